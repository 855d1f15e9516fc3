//! One CPU's ring: memory that the kernel writes records into and we take them out of.
//!
//! The kernel moves `data_head` after it has written, we move `data_tail` after we have read.
//! Between the two nobody but us touches the data.

#![expect(unsafe_code, reason = "memory shared with the kernel")]

use super::record::{Span, take};
use super::{Counts, Event};
use crate::error::{Error, Result};
use crate::width::to_usize;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::sync::atomic::{AtomicU64, Ordering};
use superpage_units::{BASE_PAGE_BYTES, Bytes};

/// Where the two positions are in the control page (`struct perf_event_mmap_page`).
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// A ring and the event it belongs to.
#[derive(Debug)]
pub(super) struct Ring {
    file: OwnedFd,
    cpu: u32,
    /// The control page, then the data.
    control: *mut u8,
    /// The size of the data: a power of two of base pages.
    size: usize,
}

// SAFETY: the mapping belongs to this value alone, and reading it takes `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of the event `file`, which is on `cpu`.
    pub(super) fn map(file: OwnedFd, cpu: u32, size: Bytes) -> Result<Self> {
        let fail = |errno| match errno {
            Errno::PERM => Error::Denied {
                what: format!(
                    "lock {size} for each CPU's ring: it takes CAP_IPC_LOCK, or more \
                     kernel.perf_event_mlock_kb"
                ),
                errno,
            },
            errno => Error::from_errno(errno, format!("map a ring of {size} for fault events")),
        };
        let pages = size.to_base_pages().0.max(1).checked_next_power_of_two();
        let data = pages.and_then(|pages| pages.checked_mul(BASE_PAGE_BYTES));
        let data = data.filter(|data| *data <= 1 << 40).ok_or_else(|| fail(Errno::NOMEM))?;
        let length = to_usize(data + BASE_PAGE_BYTES);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let nowhere = std::ptr::null_mut();
        // SAFETY: the kernel chooses an unused place.
        let mapped =
            unsafe { mmap(nowhere, length, protection, MapFlags::SHARED, file.as_fd(), 0) };
        let control = mapped.map_err(fail)?.cast();
        Ok(Self { file, cpu, control, size: to_usize(data) })
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub(super) fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Hands on what is in it now. What comes meanwhile is for the next time.
    pub(super) fn drain(&mut self, counts: &mut Counts, each: &mut impl FnMut(Event)) {
        let tail = self.position(DATA_TAIL).load(Ordering::Relaxed);
        // Acquire: what lies below the head was written before the head was.
        let head = self.position(DATA_HEAD).load(Ordering::Acquire);
        if head == tail {
            return;
        }
        match usize::try_from(head.wrapping_sub(tail)).ok().filter(|length| *length <= self.size) {
            Some(length) => take(self.span(tail, length), counts, each),
            None => counts.unreadable += 1,
        }
        // Release: all was read before the kernel may write over it.
        self.position(DATA_TAIL).store(head, Ordering::Release);
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both offsets lie in the control page and are aligned; it is mapped for as long
        // as `self` lives, and the kernel too accesses them as single words.
        unsafe { AtomicU64::from_ptr(self.control.add(offset).cast()) }
    }

    /// The `length` bytes from position `tail` on: to the ring's end, and from its beginning.
    fn span(&self, tail: u64, length: usize) -> Span<'_> {
        let start = to_usize(tail & (self.size as u64 - 1));
        let first = length.min(self.size - start);
        let page = to_usize(BASE_PAGE_BYTES);
        // SAFETY: `start + first` is at most the size of the data, which follows the control
        // page. The kernel does not write there until the tail has moved.
        let first = unsafe { std::slice::from_raw_parts(self.control.add(page + start), first) };
        let rest = length - first.len();
        // SAFETY: as above; `rest` is at most the size of the data.
        let rest = unsafe { std::slice::from_raw_parts(self.control.add(page), rest) };
        Span { first, rest }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let length = self.size + to_usize(BASE_PAGE_BYTES);
        // SAFETY: exactly what `map` mapped; no slice of it outlives `self`.
        let unmapped = unsafe { munmap(self.control.cast(), length) };
        debug_assert!(unmapped.is_ok(), "our own mapping unmaps");
    }
}
