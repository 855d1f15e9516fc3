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
}
