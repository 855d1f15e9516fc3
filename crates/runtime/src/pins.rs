//! Whether somebody may write to the program's memory without its page tables: direct I/O, io_uring, AIO,
//! VFIO, RDMA, KVM. What they write while memory is copied is lost, and no check afterwards shows it.
//!
//! Seen by the descriptors that such writes need. A program that has one open but reads nothing by it is
//! refused as well.

use crate::sys::{self, Descriptor, Errno};
use core::ffi::CStr;

const DESCRIPTORS: &CStr = c"/proc/self/fd";
const MAPS: &CStr = c"/proc/self/maps";
/// What the links of descriptors that allow such writes begin with.
const LINKS: [&[u8]; 7] = [
    b"anon_inode:[io_uring]",
    b"anon_inode:kvm",
    b"anon_inode:[vfio",
    b"/dev/kvm",
    b"/dev/vfio",
    b"/dev/infiniband",
    b"/dev/vhost",
];
/// How much of a file or a directory is read at a time.
const ROOM: usize = crate::sys::PAGE;
/// The ring of an AIO context, as it stands in the memory map.
const AIO: &[u8] = b"[aio]";

/// Whether somebody may. Where it cannot be found out, somebody may.
pub(crate) fn may_be() -> bool {
    any_descriptor(is_direct).unwrap_or(true) || has_aio().unwrap_or(true)
}

/// Whether any descriptor of the program is such. `/proc/self` is the process, so it shows the program's
/// table and not that of the library's threads.
fn any_descriptor(is_such: fn(&Descriptor, &[u8]) -> bool) -> sys::Result<bool> {
    let directory = sys::open(DESCRIPTORS, libc::O_RDONLY | libc::O_DIRECTORY)?;
    let mut entries = [0; ROOM];
    loop {
        let length = sys::entries(&directory, &mut entries)?;
        let mut rest = entries.get(..length).unwrap_or_default();
        if rest.is_empty() {
            return Ok(false);
        }
        while let Some((name, next)) = entry(rest) {
            if name.first().is_some_and(u8::is_ascii_digit) && is_such(&directory, name) {
                return Ok(true);
            }
            rest = next;
        }
    }
}

/// The name of the first entry of a directory as getdents64 tells them, with its zero, and the rest.
fn entry(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = entries.get(16..18)?;
    let length = usize::from(u16::from_ne_bytes([*length.first()?, *length.get(1)?]));
    let name = entries.get(19..length)?;
    let end = name.iter().position(|byte| *byte == 0)? + 1;
    Some((name.get(..end)?, entries.get(length..)?))
}

fn is_direct(directory: &Descriptor, name: &[u8]) -> bool {
    let mut link = [0; 64];
    match sys::read_link(directory, name, &mut link) {
        // Closed meanwhile.
        Err(Errno::ENOENT) => return false,
        Err(_) => return true,
        Ok(length) => {
            let link = link.get(..length).unwrap_or_default();
            if LINKS.iter().any(|begin| link.starts_with(begin)) {
                return true;
            }
        }
    }
    flags(name).is_none_or(|flags| flags & libc::O_DIRECT as u64 != 0)
}

/// The flags that a descriptor was opened with; those of one that was closed meanwhile are none.
fn flags(name: &[u8]) -> Option<u64> {
    const PREFIX: &[u8] = b"/proc/self/fdinfo/";
    let mut path = [0; 40];
    path.get_mut(..PREFIX.len())?.copy_from_slice(PREFIX);
    path.get_mut(PREFIX.len()..PREFIX.len() + name.len())?.copy_from_slice(name);
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let mut text = [0; 256];
    let length = match sys::open(path, libc::O_RDONLY) {
        Err(Errno::ENOENT) => return Some(0),
        Err(_) => return None,
        Ok(file) => match sys::read(&file, &mut text) {
            Err(Errno::ENOENT) => return Some(0),
            read => read.ok()?,
        },
    };
    flags_in(text.get(..length)?)
}

/// The flags in the text of a file in fdinfo.
fn flags_in(text: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    u64::from_str_radix(line.trim(), 8).ok()
}

/// Whether the memory map shows a ring of AIO.
fn has_aio() -> sys::Result<bool> {
    let maps = sys::open(MAPS, libc::O_RDONLY)?;
    let mut text = [0; ROOM];
    let mut kept = 0;
    loop {
        let room = text.get_mut(kept..).unwrap_or_default();
        let read = sys::read(&maps, room)?;
        let seen = text.get(..kept + read).unwrap_or_default();
        if seen.windows(AIO.len()).any(|window| window == AIO) {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
        // The name may begin in one piece and end in the next.
        let tail = seen.len().min(AIO.len() - 1);
        let start = seen.len() - tail;
        text.copy_within(start..start + tail, 0);
        kept = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn flags_are_read_in_octal() {
        assert_eq!(flags_in(b"pos:\t0\nflags:\t0140002\nmnt_id:\t21\n"), Some(0o140_002));
        assert_eq!(flags_in(b"pos:\t0\n"), None);
        assert_eq!(flags_in(b"flags:\t9\n"), None);
    }

    #[test]
    fn a_file_that_is_open_for_direct_io_is_seen() {
        // Other tests of this binary open files too, but none of them for direct I/O.
        assert!(!may_be());
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = directory.join("Cargo.toml");
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
        let Ok(direct) = direct else { return }; // a file system without direct I/O
        assert!(may_be());
        drop(direct);
        assert!(!may_be());
    }
}
