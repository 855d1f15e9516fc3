//! `/proc/meminfo`: how much memory the machine has and how much is left.
//! [proc_meminfo(5)](https://man7.org/linux/man-pages/man5/proc_meminfo.5.html).

use crate::Result;
use crate::file::File;
use crate::text;
use core::ffi::CStr;
use superpage_units::Bytes;

/// The place of the file.
pub const PATH: &CStr = c"/proc/meminfo";

/// The sizes that a `meminfo` file states by these names. Reading ends where all were found.
///
/// # Errors
/// What the kernel says.
pub fn sizes<const N: usize>(file: &File, names: [&str; N]) -> Result<[Option<Bytes>; N]> {
    let size = |line: &[u8], name: &str| Some(text::kibibytes(text::value(line, name)?)?.0);
    Ok(file.numbers(names, size)?.map(|size| size.map(Bytes)))
}

/// The memory of the machine, and what of it is available. Where `/proc` shows processes alone (`subset=pid`), free pages are what
/// is available: the kernel tells no more then.
#[must_use]
pub fn total_and_available() -> [Bytes; 2] {
    let told = File::open(PATH).and_then(|file| sizes(&file, ["MemTotal", "MemAvailable"]));
    match told {
        Ok([Some(total), Some(available)]) => [total, available],
        Ok(_) | Err(_) => free_pages(),
    }
}

fn free_pages() -> [Bytes; 2] {
    let info = rustix::system::sysinfo();
    [info.totalram, info.freeram].map(|count| Bytes(count * u64::from(info.mem_unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory() {
        let file = File::open(PATH).expect("/proc");
        let sizes = sizes(&file, ["MemTotal", "MemAvailable", "MemNonsense"]).expect("it reads");
        assert!(sizes[0] > sizes[1] && sizes[1] > Some(Bytes::from_mib(1)), "{sizes:?}");
        assert_eq!(sizes[2], None);
    }

    #[test]
    fn free_pages_are_available() {
        let [total, available] = total_and_available();
        let [all, free] = free_pages();
        assert!(total == all && free < all && available > Bytes::from_mib(1));
    }
}
