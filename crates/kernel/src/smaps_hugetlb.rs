//! `/proc/PID/smaps`, but only how much memory a process has mapped by gigantic pages.
//!
//! `HugetlbPages` of [`status`](crate::status) and [`smaps`](crate::smaps) add hugetlb pages of all sizes up;
//! only here the size of a VMA's pages stands beside what is mapped. The kernel walks all of the process's page
//! tables for the rest of the file, so this is to be asked only of a process that has a GiB of hugetlb memory.
//! [proc_pid_smaps(5)](https://man7.org/linux/man-pages/man5/proc_pid_smaps.5.html).

use crate::error::Result;
use crate::process::Process;
use crate::{smaps_flags, text};
use superpage_units::{Bytes, GIGANTIC_PAGE_BYTES};

/// The memory that `process` has mapped by gigantic pages now, private and shared.
///
/// # Errors
/// [`Error::Gone`](crate::Error::Gone), [`Error::Denied`](crate::Error::Denied), [`Error::TooLong`](crate::Error::TooLong).
pub fn gigantic(process: &Process) -> Result<Bytes> {
    let mut found = Sum::default();
    process.for_each_line("smaps", smaps_flags::LONGEST, |_, line| {
        found.add(line);
        Ok(())
    })?;
    Ok(found.gigantic)
}

/// The sum over the VMAs so far; what is not understood is left out.
#[derive(Default)]
struct Sum {
    /// The size of pages of the VMA whose lines come.
    page: Bytes,
    gigantic: Bytes,
}

impl Sum {
    fn add(&mut self, line: &[u8]) {
        let Some((name, size)) = size(line) else { return };
        match name {
            // This line stands before the other two.
            b"KernelPageSize:" => self.page = size,
            b"Private_Hugetlb:" | b"Shared_Hugetlb:" if self.page == Bytes(GIGANTIC_PAGE_BYTES) => {
                self.gigantic += size;
            }
            _ => {}
        }
    }
}

/// A line `Name:  size kB`.
fn size(line: &[u8]) -> Option<(&[u8], Bytes)> {
    let mut words = text::words(line);
    let name = words.next()?;
    let size = text::decimal(words.next()?)?;
    (words.next() == Some(b"kB")).then_some((name, Bytes::from_kib(size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Bytes {
        let mut found = Sum::default();
        text::lines(text).for_each(|(_, line)| found.add(line));
        found.gigantic
    }

    const TEXT: &[u8] =
        b"1000-2000 rw-p 00000000 00:00 0 [heap]\nSize: 4 kB\nKernelPageSize: 4 kB\nRss: 4 kB\n\
        Shared_Hugetlb: 0 kB\nPrivate_Hugetlb: 0 kB\nVmFlags: rd wr\n\
        7f0000000000-7f0080000000 rw-p 00000000 00:10 5 /anon_hugepage (deleted)\n\
        KernelPageSize:  1048576 kB\nRss: 0 kB\n\
        Shared_Hugetlb:  1048576 kB\nPrivate_Hugetlb: 1048576 kB\nVmFlags: rd wr ht\n\
        7f0080000000-7f0080400000 rw-p 00000000 00:11 6 /anon_hugepage (deleted)\n\
        KernelPageSize: 2048 kB\nShared_Hugetlb: 0 kB\nPrivate_Hugetlb: 4096 kB\n";

    #[test]
    fn only_gigantic_pages_count() {
        assert_eq!(parse(TEXT), Bytes::from_gib(2));
        assert_eq!(parse(b"1000-2000 rw-p 0 00:00 0\nRss: 4 kB\n"), Bytes::ZERO);
        assert_eq!(parse(b"KernelPageSize: 1048576 kB\nPrivate_Hugetlb: x kB\n"), Bytes::ZERO);
    }

    #[test]
    fn we_have_none() {
        assert_eq!(gigantic(&Process::current().expect("we run")), Ok(Bytes::ZERO));
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(TEXT, parse);
    }
}
