//! `/proc/PID/mountinfo`: which of the file systems that a process sees keep their files in memory.
//!
//! A process may live in a mount namespace of its own, so it is asked, not we.
//! [proc_pid_mountinfo(5)](https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html).

use crate::error::Result;
use crate::maps::Device;
use crate::process::Process;
use crate::text;
use std::collections::BTreeSet;
use superpage_units::Bytes;

/// The most that is read of one process's `mountinfo`. Chosen: the kernel allows 100,000 mounts by default (`fs.mount-max`), of
/// some hundred bytes each.
const LONGEST: Bytes = Bytes::from_mib(16);

/// The devices of those that are a tmpfs.
///
/// # Errors
/// [`Error::Gone`](crate::Error::Gone), [`Error::Denied`](crate::Error::Denied), [`Error::TooLong`](crate::Error::TooLong).
pub fn tmpfs_of(process: &Process) -> Result<BTreeSet<Device>> {
    let mut devices = BTreeSet::new();
    process.for_each_line("mountinfo", LONGEST, |_, line| {
        devices.extend(tmpfs(line));
        Ok(())
    })?;
    Ok(devices)
}

/// `36 35 98:0 / /mnt rw,noatime master:1 - tmpfs source rw`; how many words stand before the dash varies.
fn tmpfs(line: &[u8]) -> Option<Device> {
    let mut words = text::words(line);
    let device = words.nth(2)?;
    let kind = words.skip_while(|word| *word != b"-").nth(1)?;
    if kind == b"tmpfs" { Device::parse(device, text::decimal) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> BTreeSet<Device> {
        text::lines(text).filter_map(|(_, line)| tmpfs(line)).collect()
    }

    #[test]
    fn those_in_memory_are_told_from_the_others() {
        let text = b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            25 22 0:23 / /dev/shm rw,nosuid master:4 propagate_from:2 - tmpfs tmpfs rw\n\
            26 22 0:24 /sub /tmp/a\\040b rw - tmpfs none rw,size=4k\n\
            27 22 0:5 / /dev rw - devtmpfs udev rw\n\
            28 22 no:device / /x rw - tmpfs none rw\n\
            29\n";
        let device = |minor| Device { major: 0, minor };
        assert_eq!(parse(text), BTreeSet::from([device(23), device(24)]));
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(b"25 22 0:23 / /dev/shm rw - tmpfs tmpfs rw\n", parse);
    }

    #[test]
    fn our_own_are_readable() {
        let me = Process::current().expect("we run");
        assert!(tmpfs_of(&me).is_ok());
    }
}
