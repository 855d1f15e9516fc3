//! The file behind the heap: which of its pages are taken, and the reads and writes.
//!
//! A page that leaves memory goes to a fresh place in the file, and the old one is free then. So what a write that fails
//! leaves behind is nobody's data.
//!
//! Somebody may truncate the file. A write would make it long again, and what was lost would read as zeroes: so its last
//! page is never used, and a file that is shorter than it was is read no more.

#![expect(unsafe_code, reason = "system calls on memory that the caller names")]

use super::{PER_RANGE, WORDS};
use crate::sys::{self, Descriptor, Errno, PAGE, Result};
use alloc::vec;
use alloc::vec::Vec;
use superpage_units::{Bytes, HUGE_PAGE_BYTES};
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
    /// The length of a regular file; zero of a device.
    length: u64,
}

impl File {
    /// The file that a descriptor refers to.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn new(descriptor: Descriptor) -> Result<Self> {
        let length = sys::file_length(&descriptor)?;
        Ok(Self { descriptor, length })
    }

    /// Reads pages of the file to memory.
    ///
    /// # Errors
    /// What the kernel says; EIO where the file is shorter.
    ///
    /// # Safety
    /// The memory must be the caller's to write, and hold so many pages.
    pub(super) unsafe fn read(&self, first: FilePage, count: usize, to: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer(Sysno::pread64, first, count, to) }?;
        // The file was whole when it was read if it is now.
        if sys::file_length(&self.descriptor)? < self.length { Err(Errno::EIO) } else { Ok(()) }
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

/// The pages of the file that hold something.
#[derive(Debug)]
pub(super) struct FileSpace {
    /// A bit for each page that is taken.
    words: Vec<u64>,
    /// The pages that are taken in each range's worth.
    taken: Vec<usize>,
    /// Where the search for a free range's worth, and for a free page, goes on.
    next_range: usize,
    next_page: usize,
}

impl FileSpace {
    /// A file of this size, of which nothing is taken but its first page and its last.
    pub(super) fn new(size: Bytes) -> Self {
        let ranges = sys::to_usize(size.0 / HUGE_PAGE_BYTES);
        let mut space = Self {
            words: vec![0; ranges * WORDS],
            taken: vec![0; ranges],
            next_range: 0,
            next_page: 0,
        };
        if ranges > 0 {
            space.set(0);
            space.set(ranges * PER_RANGE - 1);
        }
        space
    }

    fn set(&mut self, page: usize) {
        self.words[page / 64] |= 1 << (page % 64);
        self.taken[page / PER_RANGE] += 1;
    }

    /// Takes pages for a whole range, side by side.
    pub(super) fn take_range(&mut self) -> Option<FilePage> {
        let count = self.taken.len();
        let mut all = (0..count).map(|at| (self.next_range + at) % count);
        let range = all.find(|range| self.taken[*range] == 0)?;
        self.next_range = range + 1;
        self.words[range * WORDS..(range + 1) * WORDS].fill(u64::MAX);
        self.taken[range] = PER_RANGE;
        FilePage::try_from(range * PER_RANGE).ok()
    }

    /// Takes a page.
    pub(super) fn take_page(&mut self) -> Option<FilePage> {
        let count = self.words.len();
        let from = self.next_page / 64;
        let word =
            (0..count).map(|at| (from + at) % count).find(|at| self.words[*at] != u64::MAX)?;
        let page = word * 64 + self.words[word].trailing_ones() as usize;
        self.set(page);
        self.next_page = page;
        FilePage::try_from(page).ok()
    }

    /// Gives a page back.
    pub(super) fn free(&mut self, page: FilePage) {
        let page = page as usize;
        let bit = 1 << (page % 64);
        if page > 0 && self.words[page / 64] & bit != 0 {
            self.words[page / 64] &= !bit;
            self.taken[page / PER_RANGE] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_is_taken_twice() {
        let mut space = FileSpace::new(Bytes(4 * HUGE_PAGE_BYTES));
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
        assert_eq!(space.taken.iter().sum::<usize>(), 3 * PER_RANGE);
        assert_eq!(space.take_range(), Some(range));
    }
}
