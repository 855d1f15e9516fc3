//! Gigantic pages that nobody uses yet: taken from the kernel's pool and zeroed, ready to be moved over a
//! slot.

#![expect(unsafe_code, reason = "maps memory")]

use crate::sys::{self, Errno, Mmap, Result, Span};
use core::ffi::CStr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

const MAP_HUGE_1GB: i32 = 30 << 26;
const FREE: &CStr = c"/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages";
const RESERVED: &CStr = c"/sys/kernel/mm/hugepages/hugepages-1048576kB/resv_hugepages";
const SURPLUS: &CStr = c"/sys/kernel/mm/hugepages/hugepages-1048576kB/surplus_hugepages";

/// The most that are kept ready.
pub(crate) const MOST: usize = 16; // chosen: more would be a pool of its own

/// Gigantic pages in the kernel's pool that nobody has or was promised.
pub(crate) fn in_pool() -> u64 {
    let count = |path| sys::number(path).unwrap_or_default();
    count(FREE).saturating_sub(count(RESERVED))
}

/// Gigantic pages that are used beyond the size that the kernel's pool is to have: so many of those that are given back
/// become ordinary memory.
pub(crate) fn surplus() -> u64 {
    sys::number(SURPLUS).unwrap_or_default()
}

/// A gigantic page of zeroes that is mapped somewhere, and nobody's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gigantic(usize);

impl Gigantic {
    /// Takes one from the kernel's pool and zeroes it, which takes 50 to 130 ms.
    ///
    /// # Errors
    /// ENOMEM if there is none, or a limit stands against it.
    pub(crate) fn prepare() -> Result<Self> {
        let flags = libc::MAP_HUGETLB | MAP_HUGE_1GB;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses an unused place.
        let start = unsafe { sys::mmap(Mmap::anywhere(sys::GIGANTIC, protection, flags)) }?;
        let page = Self(start);
        let span = Span::gigantic(start);
        // A child that had it mapped would take another page from the pool when it is written to.
        // SAFETY: it was just mapped, and holds nothing.
        unsafe { sys::madvise(span, libc::MADV_DONTFORK) }?;
        // SAFETY: as above. An error, where a touch would be a signal.
        match unsafe { sys::madvise(span, libc::MADV_POPULATE_WRITE) } {
            Ok(_) => Ok(page),
            Err(errno) => {
                page.free();
                Err(if errno == Errno::EFAULT { Errno::ENOMEM } else { errno })
            }
        }
    }

    /// Moves it over a slot. Whatever was there is gone, at once for all threads.
    ///
    /// # Errors
    /// The error of the kernel; the page is free again then.
    ///
    /// # Safety
    /// The slot must hold nothing, or nothing that is still needed.
    pub(crate) unsafe fn move_over(self, slot: Span) -> Result<()> {
        // SAFETY: the caller's promise.
        if let Err(errno) = unsafe { sys::move_over(self.0, slot.start) } {
            self.free();
            return Err(errno);
        }
        // SAFETY: advice that keeps what is there.
        let _ = unsafe { sys::madvise(slot, libc::MADV_DOFORK) };
        Ok(())
    }

    /// The address at which the page is mapped.
    pub(crate) const fn start(&self) -> usize {
        self.0
    }

    /// Gives it back to the pool.
    pub(crate) fn free(self) {
        // SAFETY: nobody uses it.
        let _ = unsafe { sys::munmap(self.0, sys::GIGANTIC) };
    }
}

/// Gigantic pages that are ready.
#[derive(Debug)]
pub(crate) struct Ready {
    wanted: AtomicUsize,
    pages: [AtomicUsize; MOST],
}

impl Ready {
    /// None yet, and so many wanted.
    pub(crate) fn new(wanted: u32) -> Self {
        let wanted = usize::try_from(wanted).unwrap_or(MOST).min(MOST);
        Self { wanted: AtomicUsize::new(wanted), pages: [const { AtomicUsize::new(0) }; MOST] }
    }

    /// The number of pages that are wanted.
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted.load(Acquire) as u64
    }

    /// The number of pages that are ready.
    pub(crate) fn count(&self) -> u64 {
        self.pages.iter().filter(|page| page.load(Acquire) != 0).count() as u64
    }

    /// Takes one.
    pub(crate) fn take(&self) -> Option<Gigantic> {
        let taken = self.pages.iter().map(|page| page.swap(0, AcqRel)).find(|start| *start != 0);
        taken.map(Gigantic)
    }

    /// Forgets all: this is the child of a fork, in which they are not mapped.
    pub(crate) fn forget(&self) {
        for page in &self.pages {
            page.store(0, Release);
        }
    }

    /// Adds one; it is free again if there is no room for it.
    pub(crate) fn add(&self, page: Gigantic) {
        let swap =
            |place: &&AtomicUsize| place.compare_exchange(0, page.0, AcqRel, Acquire).is_ok();
        let wanted = self.wanted.load(Acquire);
        if self.pages.iter().take(wanted).find(swap).is_none() {
            page.free();
        } else if self.wanted() == 0 {
            self.close(); // none is wanted any more since
        }
    }

    /// Frees all, and wants none any more.
    pub(crate) fn close(&self) {
        self.wanted.store(0, Release);
        while let Some(page) = self.take() {
            page.free();
        }
    }
}
