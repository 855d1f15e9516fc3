//! Memory for a workload: anonymous, private, aligned to huge pages, on the page size asked for.
//!
//! An arena is only reserved: a page exists from its first touch on, and untouched memory reads
//! as zero. What an arena does not do: grow, or give memory back before it is dropped.
//! [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html),
//! [madvise(2)](https://man7.org/linux/man-pages/man2/madvise.2.html).

#![expect(unsafe_code, reason = "maps anonymous memory and hands it out as a slice")]

use super::{Error, PageSize, Result};
use crate::width::to_usize;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;
use superpage_units::{Bytes, HUGE_PAGE_BYTES, HugePages, Pid};

/// Bytes in a word, the unit that arenas are read and written in.
pub const WORD_BYTES: u64 = 8;

/// An aligned range of our own memory.
#[derive(Debug)]
pub struct Arena {
    /// The mapping, a huge page longer than the arena so that an aligned start fits.
    mapping: *mut c_void,
    mapping_bytes: usize,
    start: NonNull<u64>,
    words: usize,
}

// SAFETY: an arena owns its mapping alone and has no tie to the thread that made it.
unsafe impl Send for Arena {}

impl Arena {
    /// Reserves `size` and asks for `pages`. Nothing is touched yet.
    ///
    /// # Errors
    /// [`Error::Memory`]: no such address space, or a kernel without transparent huge pages.
    pub fn reserve(size: HugePages, pages: PageSize) -> Result<Self> {
        let too_big = Error::Memory { what: "map the workload's memory", errno: Errno::NOMEM };
        let bytes = size.0.checked_mul(HUGE_PAGE_BYTES).map(to_usize).ok_or(too_big.clone())?;
        let slack = to_usize(HUGE_PAGE_BYTES);
        let mapping_bytes = bytes.checked_add(slack).ok_or(too_big)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let mapping =
            unsafe { mmap_anonymous(std::ptr::null_mut(), mapping_bytes, protection, flags) }
                .map_err(|errno| Error::Memory { what: "map the workload's memory", errno })?;
        let start = mapping.map_addr(|address| address.next_multiple_of(slack));
        let arena = Self {
            mapping,
            mapping_bytes,
            start: NonNull::new(start.cast())
                .ok_or(Error::Memory { what: "map the workload's memory", errno: Errno::FAULT })?,
            words: bytes / to_usize(WORD_BYTES),
        };
        arena.advise(pages)?;
        Ok(arena)
    }

    /// Asks the kernel for `pages`, in the whole mapping: it stays one VMA.
    fn advise(&self, pages: PageSize) -> Result<()> {
        let advice = match pages {
            PageSize::Huge => Advice::LinuxHugepage,
            PageSize::Base => Advice::LinuxNoHugepage,
            PageSize::Unasked => return Ok(()),
        };
        // SAFETY: the range is our own mapping, and the advice does not change its contents.
        unsafe { madvise(self.mapping, self.mapping_bytes, advice) }
            .map_err(|errno| Error::Memory { what: "choose the page size", errno })
    }

    /// Its size.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes(self.words as u64 * WORD_BYTES)
    }

    /// All of it. Reading untouched memory makes the kernel map a page there.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        // SAFETY: `words` words from `start` on lie in the mapping, which lives as long as `self`
        // and is initialised to zero by the kernel. Writers need `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// All of it, for writing.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`, and `&mut self` makes this the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and no slice of it outlives `self`.
        let unmapped = unsafe { munmap(self.mapping, self.mapping_bytes) };
        debug_assert_eq!(unmapped, Ok(()), "our own mapping unmaps");
    }
}

/// How much memory a process has, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// All resident memory.
    pub resident: Bytes,
    /// The part of it that is mapped by anonymous huge pages.
    pub huge_pages: HugePages,
}

impl Residency {
    /// The resident memory of process `pid`, from its `smaps_rollup`.
    ///
    /// # Errors
    /// [`Error::Memory`] if it cannot be read.
    pub fn of(pid: Pid) -> Result<Self> {
        let explain = |errno| Error::Memory { what: "read the workload's smaps_rollup", errno };
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
            .map_err(|error| explain(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        Self::parse(&text).ok_or_else(|| explain(Errno::INVAL))
    }

    /// Reads the two lines that matter; both must be there.
    fn parse(smaps_rollup: &str) -> Option<Self> {
        let field = |name| {
            let rest = smaps_rollup.lines().find_map(|line| line.strip_prefix(name))?;
            let kib = rest.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
            Some(Bytes::from_kib(kib))
        };
        Some(Self {
            resident: field("Rss:")?,
            huge_pages: field("AnonHugePages:")?.to_huge_pages(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_is_aligned_zero_and_writable() {
        for pages in [PageSize::Base, PageSize::Huge] {
            let mut arena = Arena::reserve(HugePages(3), pages).expect("reserved");
            assert_eq!(arena.size(), HugePages(3).bytes());
            assert_eq!(arena.words().as_ptr() as u64 % HUGE_PAGE_BYTES, 0);
            let last = arena.words().len() - 1;
            assert_eq!(arena.words()[last], 0);
            arena.words_mut()[last] = 7;
            assert_eq!(arena.words()[last], 7);
        }
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        // More than the address space of a process; more than 64 bits.
        for size in [1 << 30, u64::MAX / 2] {
            assert!(Arena::reserve(HugePages(size), PageSize::Base).is_err());
        }
    }

    #[test]
    fn residency_needs_both_lines() {
        let text = "00400000-7ff [rollup]\nRss:   4100 kB\nPss: 1 kB\nAnonHugePages:   4096 kB\n";
        let expected = Residency { resident: Bytes::from_kib(4100), huge_pages: HugePages(2) };
        assert_eq!(Residency::parse(text), Some(expected));
        assert_eq!(Residency::parse("Rss: 1 kB\n"), None);
        assert_eq!(Residency::parse("Rss: x kB\nAnonHugePages: 0 kB\n"), None);
        assert!(
            Residency::of(superpage_kernel::process::own_pid())
                .is_ok_and(|own| own.resident > Bytes::ZERO)
        );
        assert!(Residency::of(Pid(0)).is_err());
    }
}
