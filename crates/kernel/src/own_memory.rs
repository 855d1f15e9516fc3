//! Memory of our own to try things on: whole, aligned ranges of private anonymous memory.
//!
//! Probes, benches and tests use it; nothing of another process is ever reached through it.
//! [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html).

#![expect(unsafe_code, reason = "maps memory and hands out bytes of it")]

use crate::error::{Error, Result};
use crate::width::to_usize;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use superpage_units::{BasePages, Bytes, HUGE_PAGE_BYTES, HugePages, PmdRange, VirtAddr};

/// Which page size to ask the kernel for at first touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// 2 MiB pages (MADV_HUGEPAGE), unless the machine's setting is `never`.
    HugePages,
    /// 4 KiB pages (MADV_NOHUGEPAGE), also later: nobody can make huge pages of them.
    BasePages,
    /// None: what the machine's setting gives.
    Nothing,
}

/// A mapping of whole ranges, unmapped when dropped.
#[derive(Debug)]
pub struct OwnMemory {
    mapping: *mut u8,
    mapped: usize,
    first: *mut u8,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, and every write takes `&mut self`.
unsafe impl Send for OwnMemory {}
// SAFETY: as above; `&self` only reads.
unsafe impl Sync for OwnMemory {}

impl OwnMemory {
    /// Maps `size` huge pages' worth of untouched memory.
    ///
    /// # Errors
    /// [`Error::Failed`] if there is no room or the advice is refused.
    pub fn map(size: HugePages, wish: Wish) -> Result<Self> {
        let too_big = || Error::from_errno(Errno::NOMEM, format!("map {size} huge pages"));
        let length = size.0.checked_mul(HUGE_PAGE_BYTES).map(to_usize).ok_or_else(too_big)?;
        // One range more, so that an aligned part of the right length lies inside.
        let slack = to_usize(HUGE_PAGE_BYTES);
        let mapped = length.checked_add(slack).ok_or_else(too_big)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses an unused place.
        let mapping = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags) }
            .map_err(|errno| Error::from_errno(errno, format!("map {}", size.bytes())))?
            .cast::<u8>();
        let offset = mapping.align_offset(slack);
        // SAFETY: `offset` is below `slack`, so this stays inside the mapping.
        let first = unsafe { mapping.add(offset) };
        let memory = Self { mapping, mapped, first, length };
        if wish != Wish::Nothing {
            memory.wish(BasePages::ZERO, size.bytes().to_base_pages(), wish)?;
        }
        Ok(memory)
    }

    /// Asks for a page size in `count` base pages, from number `first` on. To ask for nothing
    /// changes nothing.
    ///
    /// # Errors
    /// [`Error::Failed`] if they do not all lie in here, or the kernel has no huge pages.
    pub fn wish(&self, first: BasePages, count: BasePages, wish: Wish) -> Result<()> {
        let advice = match wish {
            Wish::HugePages => Advice::LinuxHugepage,
            Wish::BasePages => Advice::LinuxNoHugepage,
            Wish::Nothing => return Ok(()),
        };
        let refused = |errno| Error::from_errno(errno, "advise on page sizes");
        let (start, length) = self.part(first, count).ok_or_else(|| refused(Errno::INVAL))?;
        // SAFETY: the range lies inside our mapping, and the advice only concerns page sizes.
        unsafe { madvise(start.cast(), length, advice) }.map_err(refused)
    }

    /// Where `count` base pages from number `first` on are, if all of them are in here.
    fn part(&self, first: BasePages, count: BasePages) -> Option<(*mut u8, usize)> {
        let end = first.0.checked_add(count.0).map(BasePages)?;
        if end > self.size().to_base_pages() {
            return None;
        }
        let (offset, length) = (to_usize(first.bytes().0), to_usize(count.bytes().0));
        // SAFETY: `offset` lies inside the mapping, or at its end if the part is empty.
        Some((unsafe { self.first.add(offset) }, length))
    }

    /// Gives `count` base pages back to the kernel, from number `first` on (MADV_DONTNEED). They
    /// read as zeroes from then on.
    ///
    /// # Errors
    /// [`Error::Failed`] if they do not all lie in here.
    pub fn discard(&mut self, first: BasePages, count: BasePages) -> Result<()> {
        let refused = |errno| Error::from_errno(errno, format!("free {count} base pages"));
        let (start, length) = self.part(first, count).ok_or_else(|| refused(Errno::INVAL))?;
        // SAFETY: the range lies inside our mapping, of which nobody holds a slice, and zeroes are
        // bytes like any others.
        unsafe { madvise(start.cast(), length, Advice::LinuxDontNeed) }.map_err(refused)
    }

    /// Has all of it in memory, where it stays until it is dropped.
    ///
    /// # Errors
    /// [`Error::Denied`] or [`Error::Failed`] if so much may not be locked (RLIMIT_MEMLOCK), or there is not so much memory.
    pub fn lock(&self) -> Result<()> {
        // SAFETY: the range is our mapping, and to lock it changes nothing of what it holds.
        unsafe { rustix::mm::mlock(self.first.cast(), self.length) }
            .map_err(|errno| Error::from_errno(errno, format!("lock {}", self.size())))
    }

    /// Its ranges, in address order.
    pub fn ranges(&self) -> impl Iterator<Item = PmdRange> + use<> {
        let start = VirtAddr(self.first.addr() as u64);
        PmdRange::within(start, start.offset(Bytes(self.length as u64)))
    }

    /// All of its bytes. Reading an untouched one maps the zero page.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `first..first + length` is mapped and readable for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.first, self.length) }
    }

    /// All of its bytes, to write to.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and nobody else has access while `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.length) }
    }

    /// The size of the usable part.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes(self.length as u64)
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped; no slice of it outlives `self`.
        let unmapped = unsafe { munmap(self.mapping.cast(), self.mapped) };
        debug_assert!(unmapped.is_ok(), "our own mapping unmaps");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_reads_as_zeroes() {
        let mut memory = OwnMemory::map(HugePages(1), Wish::Nothing).expect("2 MiB");
        memory.bytes_mut().fill(1);
        memory.discard(BasePages(2), BasePages(3)).expect("it is ours");
        let page = to_usize(BasePages(1).bytes().0);
        let sum = |page: &[u8]| page.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        let kept: Vec<bool> = memory.bytes().chunks(page).map(|page| sum(page) > 0).collect();
        let expected: Vec<bool> = (0..kept.len()).map(|page| !(2..5).contains(&page)).collect();
        assert_eq!(kept, expected);
        assert!(memory.discard(BasePages(510), BasePages(3)).is_err());
        assert!(memory.discard(BasePages(1 << 60), BasePages(1)).is_err());
    }
}
