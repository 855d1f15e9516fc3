//! Makes free memory fragmented in a way that nothing can undo: one base page of each of many huge
//! frames is pinned for good, as the fixed buffer of an io_uring, and the rest of the frame is free.
//! And takes other memory out of the way.
//!
//! A frame is got as a huge page, of which one base page is written to; to split it frees the others,
//! which hold only zeroes. So never more is taken than is kept. A pinned page cannot be moved:
//! compaction gives up.
//! [io_uring_register(2)](https://man7.org/linux/man-pages/man2/io_uring_register.2.html),
//! IORING_REGISTER_BUFFERS.

#![expect(unsafe_code, reason = "registers buffers, which must outlive the ring")]

use super::{Answer, Order, Play, refused};
use crate::width::to_usize;
use io_uring::IoUring;
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::process::Process;
use superpage_kernel::process_madvise::split;
use superpage_units::{BASE_PAGE_BYTES, Bytes, HUGE_PAGE_BYTES, HugePages, PmdRange, VirtAddr};

/// Fixed buffers of a ring at most (the kernel's IORING_MAX_REG_BUFFERS): those of 32 GiB of frames.
const BUFFERS: usize = 1 << 14;
/// Frames that are split with one call.
const BATCH: usize = 256;

/// Holds the memory. The rings go first: their buffers lie in the memory.
pub(super) struct Fragmenter {
    _rings: Vec<IoUring>,
    _pinned: OwnMemory,
    _ballast: OwnMemory,
}

impl Fragmenter {
    /// Takes `ballast` whole, and one base page of each of `pinned` frames.
    pub(super) fn new(ballast: HugePages, pinned: HugePages) -> Result<Self, String> {
        // Should memory become short after all, we are the ones to go.
        std::fs::write("/proc/self/oom_score_adj", "1000").map_err(|error| error.to_string())?;
        let said = |error: superpage_kernel::Error| error.to_string();
        let mut held = OwnMemory::map(ballast, Wish::HugePages).map_err(said)?;
        for frame in held.bytes_mut().chunks_mut(to_usize(HUGE_PAGE_BYTES)) {
            frame[0] = 1;
        }
        let mut memory = OwnMemory::map(pinned, Wish::HugePages).map_err(said)?;
        let (first, ranges) = (memory.bytes().as_ptr(), memory.ranges().collect::<Vec<_>>());
        thin_out(&mut memory, &ranges)?;
        let page = |number: usize| libc::iovec {
            iov_base: first.wrapping_add(number * to_usize(HUGE_PAGE_BYTES)).cast_mut().cast(),
            iov_len: to_usize(BASE_PAGE_BYTES),
        };
        let pages: Vec<libc::iovec> = (0..ranges.len()).map(page).collect();
        let pin = |pages: &[libc::iovec]| {
            let ring = IoUring::new(1).map_err(|error| format!("make an io_uring: {error}"))?;
            // SAFETY: each page lies in `memory`, which is dropped after the rings; no request is
            // ever made on them.
            unsafe { ring.submitter().register_buffers(pages) }
                .map_err(|error| format!("pin {} base pages: {error}", pages.len()))?;
            Ok(ring)
        };
        let rings = pages.chunks(BUFFERS).map(pin).collect::<Result<_, String>>()?;
        Ok(Self { _rings: rings, _pinned: memory, _ballast: held })
    }
}

/// Makes each range a huge page with one base page in use, and frees the others.
fn thin_out(memory: &mut OwnMemory, ranges: &[PmdRange]) -> Result<(), String> {
    let said = |error: superpage_kernel::Error| error.to_string();
    let own = Process::current().map_err(said)?;
    let batch = to_usize(Bytes(BATCH as u64 * HUGE_PAGE_BYTES).0);
    for (ranges, bytes) in ranges.chunks(BATCH).zip(memory.bytes_mut().chunks_mut(batch)) {
        for frame in bytes.chunks_mut(to_usize(HUGE_PAGE_BYTES)) {
            frame[0] = 1;
        }
        let starts: Vec<VirtAddr> = ranges.iter().map(|range| range.start()).collect();
        if let Some(refusal) = split(&own, &starts).map_err(said)?.first() {
            return Err(format!("a huge page could not be split: {refusal:?}"));
        }
    }
    Ok(())
}

impl Play for Fragmenter {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        refused(order)
    }
}
