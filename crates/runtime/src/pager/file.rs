//! The file behind the heap: which of its pages are taken, and the reads and writes.
//!
//! A page that leaves memory goes to a fresh place in the file, and the old one is free then. So what a write that fails
//! leaves behind is nobody's data.
//!
//! Somebody may truncate the file. A write would make it long again, and what was lost would read as zeroes: so its last
//! page is never used, and a file that is shorter than it was is read no more.

#![expect(unsafe_code, reason = "system calls on memory that the caller names")]

use super::family::{Family, PER_WORD};
use super::{PER_RANGE, WORDS};
use crate::sys::{self, Descriptor, Errno, PAGE, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;
use syscalls::{Sysno, syscall};

/// A page of the file. The first is never used, so that zero says that there is none.
pub(super) type FilePage = u32;

/// The page so many behind another.
pub(super) fn behind(first: FilePage, count: usize) -> FilePage {
    first.saturating_add(FilePage::try_from(count).unwrap_or(FilePage::MAX))
}

/// The file, whose pages are read and written past the page cache.
#[derive(Debug)]
pub(super) struct File {
    descriptor: Descriptor,
    /// The length of a regular file, which a fork makes longer; zero of a device.
    length: &'static AtomicU64,
}

impl File {
    /// The file that a descriptor refers to, of this length.
    pub(super) const fn new(descriptor: Descriptor, length: &'static AtomicU64) -> Self {
        Self { descriptor, length }
    }

    /// Its descriptor.
    pub(super) const fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Reads pages of the file to memory.
    ///
    /// # Errors
    /// What the kernel says; EIO where the file is shorter.
    ///
    /// # Safety
    /// The memory must be the caller's to write, and hold so many pages.
    pub(super) unsafe fn read(&self, first: FilePage, count: usize, to: usize) -> Result<()> {
        let length = self.length.load(SeqCst);
        // SAFETY: the caller's promise.
        unsafe { self.transfer(Sysno::pread64, first, count, to) }?;
        // The file was whole when it was read if it is now.
        if sys::file_length(&self.descriptor)? < length { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Writes memory to pages of the file.
    ///
    /// # Errors
    /// As of [`File::read`].
    ///
    /// # Safety
    /// The memory must hold so many pages.
    pub(super) unsafe fn write(&self, first: FilePage, count: usize, from: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer(Sysno::pwrite64, first, count, from) }
    }

    /// # Safety
    /// As of the two above.
    unsafe fn transfer(
        &self,
        call: Sysno,
        first: FilePage,
        count: usize,
        memory: usize,
    ) -> Result<()> {
        let (mut done, length) = (0, count * PAGE);
        let offset = first as usize * PAGE;
        while done < length {
            // SAFETY: the caller's promise.
            let answer = unsafe {
                syscall!(call, self.descriptor.0, memory + done, length - done, offset + done)
            };
            match answer {
                Ok(0) => return Err(Errno::EIO),
                Ok(some) => done += some,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// Room in the file for pages of this process.
#[derive(Debug)]
pub(super) struct FileSpace {
    family: Family,
    /// Where the search for a free range's worth, and for a free page, goes on.
    next_range: usize,
    next_page: usize,
}

impl FileSpace {
    /// A file of which nothing is taken but its first page and its last, which is another after the file has grown.
    pub(super) fn new(family: Family) -> Self {
        family.take(0, 1);
        Self::of(family)
    }

    /// The room that a member of the family has, of whose pages some are taken.
    pub(super) const fn of(family: Family) -> Self {
        Self { family, next_range: 0, next_page: 0 }
    }

    /// The processes that share the file.
    pub(super) const fn family(&self) -> &Family {
        &self.family
    }

    /// The pages of a word that may not be taken.
    fn taken(&self, word: usize) -> u64 {
        let is_last = (word + 1) * PER_WORD >= self.family.pages();
        self.family.taken(word) | if is_last { 1 << (PER_WORD - 1) } else { 0 }
    }

    /// Takes pages for a whole range, side by side.
    pub(super) fn take_range(&mut self) -> Option<FilePage> {
        let count = self.family.pages() / PER_RANGE;
        let mut all = (0..count).map(|at| (self.next_range + at) % count);
        let range = all.find(|range| self.take_all_of(*range))?;
        self.next_range = range + 1;
        FilePage::try_from(range * PER_RANGE).ok()
    }

    /// Takes all pages of a range's worth, or none.
    fn take_all_of(&self, range: usize) -> bool {
        let words = range * WORDS..(range + 1) * WORDS;
        if words.clone().any(|word| self.taken(word) != 0) {
            return false;
        }
        let refused = words.clone().find(|word| !self.family.take(*word, u64::MAX));
        if let Some(refused) = refused {
            (words.start..refused).for_each(|word| self.family.free(word, u64::MAX));
        }
        refused.is_none()
    }

    /// Takes a page.
    pub(super) fn take_page(&mut self) -> Option<FilePage> {
        let count = self.family.pages() / PER_WORD;
        let from = self.next_page / PER_WORD;
        let page = (0..count).map(|at| (from + at) % count).find_map(|word| {
            let taken = self.taken(word);
            let bit = taken.trailing_ones() as usize;
            (taken != u64::MAX && self.family.take(word, 1 << bit)).then_some(word * PER_WORD + bit)
        })?;
        self.next_page = page;
        FilePage::try_from(page).ok()
    }

    /// Gives a page back.
    pub(super) fn free(&mut self, page: FilePage) {
        let page = page as usize;
        if page > 0 {
            self.family.free(page / PER_WORD, 1 << (page % PER_WORD));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use superpage_units::{Bytes, HUGE_PAGE_BYTES};

    #[test]
    fn no_page_is_taken_twice() {
        let family = Family::new(Bytes(4 * HUGE_PAGE_BYTES)).expect("there is memory");
        let mut space = FileSpace::new(family);
        let range = space.take_range().expect("there is room");
        assert_eq!(range, behind(0, PER_RANGE), "the first page is never used");
        let end = behind(range, PER_RANGE);
        let mut pages: Vec<FilePage> = core::iter::from_fn(|| space.take_page()).collect();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), 3 * PER_RANGE - 2);
        assert!(!pages.contains(&behind(0, 4 * PER_RANGE - 1)), "nor the last");
        assert!(pages.iter().all(|page| !(range..end).contains(page)));
        assert!(!pages.contains(&0) && space.take_range().is_none());
        for page in range..end {
            space.free(page);
            space.free(page);
        }
        let taken: u32 = (0..4 * WORDS).map(|word| space.taken(word).count_ones()).sum();
        assert_eq!(taken as usize, 3 * PER_RANGE);
        assert_eq!(space.take_range(), Some(range));
    }
}
