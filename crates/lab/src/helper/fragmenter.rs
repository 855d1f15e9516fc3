//! Makes free memory fragmented: a part of each of many huge frames is held, and the rest of the frame is free. Either one base
//! page is pinned for good, as the fixed buffer of an io_uring, which nothing can undo; or 64 KiB are held that the kernel can
//! move. And takes other memory out of the way.
//!
//! A frame is got as a huge page, of which some base pages are written to; to split it frees the others,
//! which hold only zeroes. So never more is taken than is kept. A pinned page cannot be moved:
//! compaction gives up.
//! [io_uring_register(2)](https://man7.org/linux/man-pages/man2/io_uring_register.2.html),
//! IORING_REGISTER_BUFFERS.

#![expect(unsafe_code, reason = "registers buffers, which must outlive the ring")]

use super::{Answer, Order, Play, refused};
use crate::width::to_usize;
use io_uring::IoUring;
use serde::{Deserialize, Serialize};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::process::Process;
use superpage_kernel::process_madvise::split;
use superpage_units::{
    BASE_PAGE_BYTES, BasePages, Bytes, HUGE_PAGE_BYTES, HugePages, PmdRange, VirtAddr,
};

/// Fixed buffers of a ring at most (the kernel's IORING_MAX_REG_BUFFERS): those of 32 GiB of frames.
const BUFFERS: usize = 1 << 14;
/// Frames that are split with one call.
const BATCH: usize = 256;

/// The part of a huge frame that the program holds, so that the rest of the frame is free in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Held {
    /// The program holds one base page, which is pinned.
    Pinned,
    /// The program holds 64 KiB that the kernel can move, as Quicksilver's fragmenting program does (Frag/frag/fragment_level.c in the
    /// repository rice-systems/quicksilver).
    Movable,
}

impl Held {
    const fn base_pages(self) -> usize {
        match self {
            Self::Pinned => 1,
            Self::Movable => 16,
        }
    }
}

/// Holds the memory. The rings go first: their buffers lie in the memory.
pub(super) struct Fragmenter {
    _rings: Vec<IoUring>,
    _apart: OwnMemory,
    _ballast: OwnMemory,
}

impl Fragmenter {
    /// Takes `ballast` whole, and a part of each of `apart` frames.
    pub(super) fn new(ballast: HugePages, apart: HugePages, part: Held) -> Result<Self, String> {
        // Should memory become short after all, we are the ones to go.
        std::fs::write("/proc/self/oom_score_adj", "1000").map_err(|error| error.to_string())?;
        let said = |error: superpage_kernel::Error| error.to_string();
        let mut held = OwnMemory::map(ballast, Wish::HugePages).map_err(said)?;
        for frame in held.bytes_mut().chunks_mut(to_usize(HUGE_PAGE_BYTES)) {
            frame[0] = 1;
        }
        let mut memory = OwnMemory::map(apart, Wish::HugePages).map_err(said)?;
        let (first, ranges) = (memory.bytes().as_ptr(), memory.ranges().collect::<Vec<_>>());
        thin_out(&mut memory, &ranges, part)?;
        if part == Held::Movable {
            // khugepaged would put the pieces together again.
            memory.wish(BasePages::ZERO, apart.base_pages(), Wish::BasePages).map_err(said)?;
            return Ok(Self { _rings: Vec::new(), _apart: memory, _ballast: held });
        }
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
        Ok(Self { _rings: rings, _apart: memory, _ballast: held })
    }
}

/// Makes each range a huge page with that part of it in use, and frees the rest.
fn thin_out(memory: &mut OwnMemory, ranges: &[PmdRange], part: Held) -> Result<(), String> {
    let said = |error: superpage_kernel::Error| error.to_string();
    let own = Process::current().map_err(said)?;
    let batch = to_usize(Bytes(BATCH as u64 * HUGE_PAGE_BYTES).0);
    for (ranges, bytes) in ranges.chunks(BATCH).zip(memory.bytes_mut().chunks_mut(batch)) {
        for frame in bytes.chunks_mut(to_usize(HUGE_PAGE_BYTES)) {
            let pages = frame.chunks_mut(to_usize(BASE_PAGE_BYTES)).take(part.base_pages());
            pages.for_each(|page| page[0] = 1);
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
