//! A heap that grows at an even pace, a little at a time, and is touched as it grows: as `malloc`
//! does through brk(2), or by mappings one after the other. It is never given back.
//! [brk(2)](https://man7.org/linux/man-pages/man2/brk.2.html).

#![expect(unsafe_code, reason = "the end of the heap is only to be had from libc")]

use super::{Answer, Growth, Order, Play, refused};
use crate::width::to_usize;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::time::{Duration, Instant};
use superpage_units::{BASE_PAGE_BYTES, Bytes, HugePages, Nanos};

/// What glibc's `malloc` asks for at a time (M_TOP_PAD).
const BRK_STEP: Bytes = Bytes::from_kib(128);
/// As some allocators' chunks. Chosen: less than a huge page.
const MMAP_STEP: Bytes = Bytes::from_mib(1);

/// What it grows by, to what, in what time.
pub(super) struct Growing {
    pub(super) by: Growth,
    pub(super) size: HugePages,
    pub(super) time: Nanos,
}

impl Play for Growing {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        if order != Order::Go {
            return refused(order);
        }
        let start = Instant::now();
        let step = match self.by {
            Growth::Brk => BRK_STEP,
            Growth::Mmap => MMAP_STEP,
        };
        let steps = self.size.bytes().0 / step.0;
        for done in 1..=steps {
            let piece = match self.by {
                Growth::Brk => by_brk(step),
                Growth::Mmap => by_mmap(step),
            }?;
            touch(piece, step);
            let due = start + Duration::from_nanos(self.time.0 / steps * done);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        // Divided, it may be a little short.
        let rest = Duration::from_nanos(self.time.0).saturating_sub(start.elapsed());
        std::thread::sleep(rest);
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(Answer::Done { nanos })
    }
}

/// The next piece of the heap.
fn by_brk(step: Bytes) -> Result<*mut u8, String> {
    let step = libc::intptr_t::try_from(step.0).map_err(|error| error.to_string())?;
    // SAFETY: moves the end of the heap up; whoever else uses it, as malloc, is prepared for pieces
    // that are not its own, and nothing of ours moves it down.
    let piece = unsafe { libc::sbrk(step) };
    if piece.addr() == usize::MAX {
        return Err(format!("grow the heap: {}", std::io::Error::last_os_error()));
    }
    Ok(piece.cast())
}

/// A mapping of its own; the kernel puts it beside the one before.
fn by_mmap(step: Bytes) -> Result<*mut u8, String> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
    let piece =
        unsafe { mmap_anonymous(std::ptr::null_mut(), to_usize(step.0), protection, flags) };
    piece.map(|piece| piece.cast()).map_err(|errno| format!("map memory: {errno}"))
}

/// Writes to every base page of a new piece.
fn touch(piece: *mut u8, length: Bytes) {
    for offset in (0..length.0).step_by(to_usize(BASE_PAGE_BYTES)) {
        // SAFETY: `offset` lies inside the piece, which is new, writable and nobody else's.
        unsafe { piece.add(to_usize(offset)).write_volatile(1) };
    }
}
