//! Whether the kernel still knows which pages were written to after it has split a huge page: tried on memory of our own.
//!
//! Programs find out what was written to since a moment by the soft-dirty bits of `/proc/PID/pagemap` (CRIU does) and by
//! write protection of a userfaultfd (QEMU's snapshots do). A split maps zero-filled base pages to the shared zero page, and
//! kernels may forget both bits of them then: a page that was filled with zeroes is missing in the next snapshot.
//! [Soft-Dirty PTEs](https://docs.kernel.org/admin-guide/mm/soft-dirty.html),
//! [pagemap](https://docs.kernel.org/admin-guide/mm/pagemap.html).
//!
//! What can go wrong: soft-dirty bits are cleared in our whole process, of which nobody else makes use.

use crate::error::{Error, Result};
use crate::own_vma::OwnVma;
use crate::pagemap::{Mapping, Pagemap, Tracked};
use crate::process::Process;
use crate::process_madvise;
use crate::smaps_flags;
use crate::width::to_usize;
use std::path::Path;
use superpage_units::{BASE_PAGE_BYTES, HugePages, PmdRange};

/// Whether the bit of a page was still set after a split.
type Survived = bool;

/// The fate of both kinds of bits; `None` where a bit could not be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The soft-dirty bit.
    pub soft_dirty: Option<Survived>,
    /// A userfaultfd's write protection.
    pub write_protected: Option<Survived>,
}

/// Splits huge pages of our own and looks.
///
/// # Errors
/// [`Error::Denied`], [`Error::Failed`]; a bit that this kernel does not have or that we may not set is none.
pub fn after_a_split() -> Result<Seen> {
    let soft_dirty = if smaps_flags::kernel_has_soft_dirty() { soft_dirty()? } else { None };
    Ok(Seen { soft_dirty, write_protected: write_protected()? })
}

/// The page that is written to, and the one by which its huge page is split.
const WRITTEN: u16 = 5;
const SPLIT_AT: u16 = 9;

fn soft_dirty() -> Result<Option<Survived>> {
    let mut one = One::new()?;
    let path = Path::new("/proc/self/clear_refs");
    std::fs::write(path, "4").map_err(|error| Error::from_io(&error, "write", path))?;
    // Zeroes are written over zeroes: the page is free for a split to take, and was written to.
    one.vma.bytes_mut()[to_usize(u64::from(WRITTEN) * BASE_PAGE_BYTES)] = std::hint::black_box(0);
    one.bit_after_split(Tracked::SOFT_DIRTY)
}

fn write_protected() -> Result<Option<Survived>> {
    let mut one = One::new()?;
    match one.vma.protect_writes() {
        Ok(()) => one.bit_after_split(Tracked::WRITE_PROTECTED),
        Err(Error::Denied { .. } | Error::Unsupported { .. } | Error::Failed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A huge page of our own with one base page in use.
struct One {
    me: Process,
    pagemap: Pagemap,
    vma: OwnVma,
    range: PmdRange,
}

impl One {
    fn new() -> Result<Self> {
        let me = Process::current()?;
        let pagemap = Pagemap::open(&me)?;
        let mut vma = OwnVma::private(HugePages(1))?;
        vma.use_huge_pages()?;
        vma.bytes_mut()[0] = 1;
        let range = PmdRange::containing(vma.start());
        let one = Self { me, pagemap, vma, range };
        if !one.is_huge()? {
            process_madvise::collapse(&one.me, &[range])?;
        }
        Ok(one)
    }

    fn is_huge(&self) -> Result<bool> {
        Ok(self.pagemap.mappings(&[self.range])? == [Mapping::Huge])
    }

    /// Whether a bit that is set in a zero-filled page of the huge page is set after a split. `None` if it is not set before,
    /// or the page was not freed.
    fn bit_after_split(self, bit: Tracked) -> Result<Option<Survived>> {
        let page = self.range.base_page(WRITTEN);
        if !self.is_huge()? || !self.pagemap.tracked(page)?.contains(bit) {
            return Ok(None);
        }
        process_madvise::split(&self.me, &[self.range.base_page(SPLIT_AT)])?;
        let freed = match self.pagemap.mappings(&[self.range])?[..] {
            [Mapping::Split { zero_pages }] => !zero_pages.is_zero(),
            _ => false,
        };
        if freed { Ok(Some(self.pagemap.tracked(page)?.contains(bit))) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_tried_is_none() {
        let seen = after_a_split().expect("our own memory");
        assert!(smaps_flags::kernel_has_soft_dirty() || seen.soft_dirty.is_none(), "{seen:?}");
    }
}
