//! A memfd that processes share, as a virtual machine's memory is shared by its monitor and what
//! serves its devices: made by one, opened by the other through `/proc`, mapped by both.

#![expect(unsafe_code, reason = "maps shared memory and reads it")]

use super::{Answer, Order, Play, refused};
use crate::width::to_usize;
use crate::workload::rng::{mix, scale};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use superpage_units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, HugePages, Pid};

const WORDS_PER_PAGE: u64 = BASE_PAGE_BYTES / size_of::<u64>() as u64;

/// The memory as this process has it mapped.
pub(super) struct Shared {
    /// Address space, a huge page longer than the memory so that an aligned start fits.
    reserved: *mut c_void,
    reserved_bytes: usize,
    start: *const AtomicU64,
    pages: u64,
    /// Open for the others.
    _file: OwnedFd,
}

impl Shared {
    /// Makes the memory and writes to every base page. Also the number of its file.
    pub(super) fn create(size: HugePages) -> Result<(Self, i32), String> {
        let explain = |errno: rustix::io::Errno| format!("make a memfd: {errno}");
        let file = memfd_create("guest-memory", MemfdFlags::CLOEXEC).map_err(explain)?;
        ftruncate(&file, size.bytes().0).map_err(explain)?;
        let number = file.as_raw_fd();
        let shared = Self::map(file, size)?;
        for page in 0..shared.pages {
            shared.word(page).store(mix(page), Ordering::Relaxed);
        }
        Ok((shared, number))
    }

    /// Maps the memory that process `of` has open as `fd`, and reads every base page.
    pub(super) fn join(of: Pid, fd: i32, size: HugePages) -> Result<Self, String> {
        let path = format!("/proc/{of}/fd/{fd}");
        let file = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| format!("open {path}: {errno}"))?;
        let shared = Self::map(file, size)?;
        (0..shared.pages).try_for_each(|page| shared.read(page).map(|_| ()))?;
        Ok(shared)
    }

    fn map(file: OwnedFd, size: HugePages) -> Result<Self, String> {
        let explain = |errno: rustix::io::Errno| format!("map a memfd: {errno}");
        let (bytes, slack) = (to_usize(size.bytes().0), to_usize(HUGE_PAGE_BYTES));
        let reserved_bytes = bytes + slack;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let reserved = unsafe {
            mmap_anonymous(std::ptr::null_mut(), reserved_bytes, ProtFlags::empty(), flags)
        }
        .map_err(explain)?;
        let start = reserved.map_addr(|address| address.next_multiple_of(slack));
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the range lies inside what was just reserved, which nothing uses.
        let mapped = unsafe { mmap(start, bytes, protection, flags, &file, 0) };
        let shared = Self {
            reserved,
            reserved_bytes,
            start: start.cast_const().cast(),
            pages: size.bytes().to_base_pages().0,
            _file: file,
        };
        mapped.map(|_| shared).map_err(explain)
    }

    /// The first word of a base page.
    fn word(&self, page: u64) -> &AtomicU64 {
        let page = page.min(self.pages.saturating_sub(1));
        // SAFETY: the page lies in the mapping, which lives as long as `self`, is aligned and
        // written by atomics only, in this process and the others.
        unsafe { &*self.start.add(to_usize(page * WORDS_PER_PAGE)) }
    }

    /// Reads a base page's word, which must be the one that was written.
    fn read(&self, page: u64) -> Result<u64, String> {
        match self.word(page).load(Ordering::Relaxed) {
            word if word == mix(page) => Ok(word),
            _ => {
                Err(format!("base page {page} of the shared memory does not hold what was written"))
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: all of it is ours alone, and no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.reserved, self.reserved_bytes) };
        debug_assert_eq!(unmapped, Ok(()), "our own mapping unmaps");
    }
}

impl Play for Shared {
    /// Where it reads next follows from what it read: nothing overlaps.
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        let Order::Read { count, seed } = order else { return refused(order) };
        let start = Instant::now();
        let mut at = mix(seed);
        for step in 0..count {
            at = mix(at ^ step) ^ self.read(scale(at, self.pages))?;
        }
        Ok(Answer::Done { nanos: u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX) })
    }
}
