//! Demotion: copies a gigantic page to smaller pages and puts those in its place, while all writes to it
//! are held.
//!
//! Reads go on meanwhile. Only what is not zero is copied: a huge page's worth of zeroes stays untouched
//! memory, which reads as zeroes. What a device writes without the page tables would be lost, so programs
//! that may have such writes under way are refused, before and while writes are held ([`pins`]).

#![expect(unsafe_code, reason = "copies memory and replaces mappings")]

use super::Gigantic;
use crate::pins;
use crate::room;
use crate::sys::{self, GIGANTIC, HUGE, Mmap, Span};
use crate::uffd::Userfaultfd;
use core::arch::x86_64::{__m128i, _mm_load_si128, _mm_sfence, _mm_stream_si128};
use core::sync::atomic::Ordering::Relaxed;
use superpage_launch::{Cause, Counters};
use superpage_units::{Bytes, Nanos};

/// Copies the gigantic page that maps this slot to smaller pages, for a thread of the program that asks. The
/// slot must be nobody else's to change. `needed` is the part of it that is not zero, or all of it where nobody counted.
///
/// # Errors
/// The cause. The gigantic page is still there then, and nothing has changed.
pub(super) fn demote(
    gigantic: &Gigantic,
    writes: Holding,
    slot: Span,
    asking: u32,
    needed: Bytes,
) -> Result<(), Cause> {
    if pins::may_be(asking) {
        return Err(Cause::MayPin);
    }
    let available = room::available();
    let is_enough = |needed| room::is_enough(available, needed);
    // Counting reads all of the slot that is zero, so only a GiB that does not fit as a whole is counted.
    // SAFETY: the slot is mapped by a gigantic page, which is nobody else's to change.
    if !is_enough(needed) && !is_enough(unsafe { filled(slot) }) {
        return Err(Cause::NoMemory);
    }
    let staging = Staging::map().ok_or(Cause::NoMemory)?;
    let begun = sys::now();
    let done = held(writes, slot, &staging, asking);
    if done.is_err() {
        writes.release(slot);
        return done;
    }
    core::mem::forget(staging); // its memory is the slot's now
    let counters = gigantic.areas.counters;
    Counters::waited(&counters.longest_demotion, Nanos(sys::now().0 - begun.0));
    counters.demotions.fetch_add(1, Relaxed);
    gigantic.remove_gigantic();
    Ok(())
}

fn held(writes: Holding, slot: Span, staging: &Staging, asking: u32) -> Result<(), Cause> {
    writes.hold(slot).map_err(|_| Cause::Kernel)?;
    // A descriptor that was opened since the first look may have a write under way by now.
    if pins::may_be(asking) {
        return Err(Cause::MayPin);
    }
    for offset in (0..GIGANTIC).step_by(HUGE) {
        // SAFETY: the slot is mapped by a gigantic page, to which nobody writes; the staging memory is
        // nobody else's.
        unsafe { copy(slot.start + offset, staging.span.start + offset) };
    }
    // SAFETY: everything that the slot holds has been copied.
    unsafe { sys::move_over(staging.span.start, slot.start) }.map_err(|_| Cause::Kernel)
}

/// The way in which writes to a gigantic page are held.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holding {
    /// The kernel has them wait.
    Wait(&'static Userfaultfd),
    /// The program's only thread is the one that asks, and waits. A write by another process is refused if it begins
    /// now; one that is under way may be lost, as it may be while writes wait.
    Refused,
}

impl Holding {
    fn hold(self, slot: Span) -> sys::Result<()> {
        match self {
            Self::Wait(uffd) => uffd.hold_writes(slot),
            // SAFETY: the slot is mapped by a gigantic page of the program's.
            Self::Refused => unsafe { sys::mprotect(slot, libc::PROT_READ) }.map(|_| ()),
        }
    }

    fn release(self, slot: Span) {
        match self {
            Self::Wait(uffd) => uffd.release_writes(slot),
            Self::Refused => {
                // SAFETY: as in `hold`.
                let _ = unsafe { sys::mprotect(slot, libc::PROT_READ | libc::PROT_WRITE) };
            }
        }
    }
}

/// Whether a huge page's worth of memory is zero.
///
/// # Safety
/// It must be mapped.
unsafe fn is_zero(start: usize) -> bool {
    // SAFETY: the caller's promise. A thread of the program may write to it meanwhile.
    (0..HUGE / 8).all(|word| unsafe { (start as *const u64).add(word).read_volatile() } == 0)
}

/// The part of a slot that a demotion copies: the huge pages' worths that are not zero.
///
/// # Safety
/// The slot must be mapped by a gigantic page.
pub(crate) unsafe fn filled(slot: Span) -> Bytes {
    let parts = (slot.start..slot.end()).step_by(HUGE);
    // SAFETY: the caller's promise.
    let filled = parts.filter(|start| !unsafe { is_zero(*start) }).count();
    Bytes((filled * HUGE) as u64)
}

/// Copies a huge page's worth of memory, unless it is zero. What is written to it meanwhile may be copied or not.
///
/// # Safety
/// Both must be mapped, and the second be nobody else's.
pub(super) unsafe fn copy(from: usize, to: usize) {
    // SAFETY: the caller's promise.
    if !unsafe { is_zero(from) } {
        // SAFETY: the caller's promise; they do not overlap.
        unsafe { stream(from, to) };
    }
}

/// Copies a huge page's worth of memory past the caches, which it would only fill.
///
/// # Safety
/// Both must be mapped, and not overlap.
unsafe fn stream(from: usize, to: usize) {
    for offset in (0..HUGE).step_by(size_of::<__m128i>()) {
        // SAFETY: the caller's promise; huge pages are aligned.
        unsafe {
            let part = _mm_load_si128((from + offset) as *const __m128i);
            _mm_stream_si128((to + offset) as *mut __m128i, part);
        }
    }
    // SAFETY: every x86-64 processor has it. Such writes are not ordered with others by themselves.
    unsafe { _mm_sfence() };
}

/// Memory to copy to: a slot's worth, aligned for huge pages. It goes unless it was moved.
#[derive(Debug)]
pub(super) struct Staging {
    span: Span,
}

impl Staging {
    /// Maps it, empty.
    pub(super) fn map() -> Option<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses an unused place.
        let mapped =
            unsafe { sys::mmap(Mmap::anywhere(GIGANTIC + HUGE, protection, libc::MAP_NORESERVE)) }
                .ok()?;
        let span = Span::gigantic(mapped.next_multiple_of(HUGE));
        let mapped_end = mapped + GIGANTIC + HUGE;
        for (start, end) in [(mapped, span.start), (span.end(), mapped_end)] {
            if start < end {
                // SAFETY: a part of what was just mapped.
                let _ = unsafe { sys::munmap(start, end - start) };
            }
        }
        // SAFETY: the advice concerns page sizes only. Without huge pages base pages will do.
        let _ = unsafe { sys::madvise(span, libc::MADV_HUGEPAGE) };
        Some(Self { span })
    }

    /// The place of the memory.
    pub(super) const fn span(&self) -> Span {
        self.span
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: it is nobody else's.
        let _ = unsafe { sys::munmap(self.span.start, self.span.length) };
    }
}
