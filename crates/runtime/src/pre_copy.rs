//! Promotion by "pre-copy": a slot's pages are copied while the program writes on, then those again that were written
//! to, round by round, and writes are held only for the last few.
//!
//! Writes are protected (`UFFDIO_WRITEPROTECT`): the first one to a base page is told to a fault thread, which notes the
//! page and lets it go on. A page is protected again before it is copied again. Reads are never held.
//!
//! A write that does not go by the page tables of this process is not seen: devices (direct I/O, io_uring, RDMA) and
//! other processes (`process_vm_writev`, ptrace). So `superpage run` does this only where it is asked to (`--promote live`),
//! and a program with a descriptor for direct I/O is refused ([`pins`]).
//!
//! | phase | a write to a protected page | where it fails |
//! |---|---|---|
//! | no slot is copied | does not occur here | |
//! | copying | is noted, and goes on | all pages are let go, and huge pages that were split are collapsed |
//! | the last round | waits until the gigantic page is in its place | as above |

#![expect(unsafe_code, reason = "copies memory and replaces mappings")]

use crate::areas::Areas;
use crate::demote;
use crate::gigantic::Gigantic;
use crate::pins;
use crate::promote::{Failed, Held};
use crate::sys::{self, GIGANTIC, HUGE, PAGE, Pagemap, Span};
use crate::uffd::Userfaultfd;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use superpage_launch::Cause;
use superpage_units::Nanos;

const PAGES: usize = GIGANTIC / PAGE;
const WORD: usize = 64;

/// Writes are held for the last round once so few pages were written to. Chosen: they are copied in under 1 ms.
const FEW: usize = 256;
/// The rounds that a program gets whose writes do not become few. Chosen: on an idle machine handlers let some 30,000
/// writes a second go on, so each round has a tenth of the pages of the one before.
const ROUNDS: usize = 12;
/// From this round on, where this thread hardly gets a processor, each write waits before it goes on. Chosen, not
/// measured.
const SLOWED: usize = 3;
const SLOWLY: Nanos = Nanos(500_000);
/// The time that a fault thread takes to let a write go on, about.
const MOMENT: Nanos = Nanos(10_000);

/// The slot that is copied while the program writes to it, and the pages that it has written to. One at a time.
#[derive(Debug)]
pub(crate) struct PreCopy {
    /// Whether a slot is being copied, from the first round until the end.
    is_taken: AtomicBool,
    /// The slot whose writes are noted; [`NOBODY`] if none.
    slot: AtomicUsize,
    /// The fault threads that are about to let a write go on.
    noting: AtomicU32,
    is_slowed: AtomicBool,
    written: [AtomicU64; PAGES / WORD],
}

const NOBODY: usize = usize::MAX;

impl PreCopy {
    pub(crate) const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            slot: AtomicUsize::new(NOBODY),
            noting: AtomicU32::new(0),
            is_slowed: AtomicBool::new(false),
            written: [const { AtomicU64::new(0) }; PAGES / WORD],
        }
    }

    /// Notes a write to a protected page and lets it go on, if the slot is being copied; whether it was.
    pub(crate) fn note(&self, uffd: &Userfaultfd, slot: usize, offset: usize, page: Span) -> bool {
        if self.is_slowed.load(Relaxed) && self.slot.load(Relaxed) == slot {
            sys::futex_wait_for(&AtomicU32::new(0), 0, SLOWLY);
        }
        self.noting.fetch_add(1, SeqCst);
        // In the last round, or for another slot, nothing goes on here.
        let is_copied = self.slot.load(SeqCst) == slot;
        if is_copied {
            // Noted after the write is let go: noted before, the page could be copied in between, and what is written
            // to it then would never be. The last round waits for both.
            uffd.allow_writes(page);
            let index = offset / PAGE;
            if let Some(word) = self.written.get(index / WORD) {
                word.fetch_or(1 << (index % WORD), SeqCst);
            }
        }
        self.noting.fetch_sub(1, SeqCst);
        is_copied
    }

    /// Has all writes wait from now on. Those that were noted have gone on.
    fn hold(&self) {
        self.slot.store(NOBODY, SeqCst);
        while self.noting.load(SeqCst) > 0 {
            sys::futex_wait_for(&AtomicU32::new(0), 0, MOMENT);
        }
    }

    /// Tells the pages that were written to since the last time.
    fn take(&self, mut tell: impl FnMut(usize)) {
        for (index, word) in self.written.iter().enumerate() {
            let mut pages = word.swap(0, SeqCst);
            while pages != 0 {
                tell(index * WORD + pages.trailing_zeros() as usize);
                pages &= pages - 1;
            }
        }
    }
}

/// Puts a gigantic page in the place of a slot's smaller pages.
pub(crate) fn promote(areas: &Areas, uffd: &Userfaultfd, slot: usize, page: Gigantic) -> Held {
    // The background thread may be copying one slot while a thread of the program asks for another.
    if areas.pre_copy.is_taken.swap(true, SeqCst) {
        return Held { done: Err((Cause::Kernel, Some(page))), begun: None, staging: None };
    }
    let span = areas.slots.span(slot);
    let mut copy = Copy { areas, uffd, slot: span, begun: None };
    let huge = huge_ranges(span);
    let done = copy.promote(slot, page);
    if done.is_err() {
        areas.pre_copy.hold();
        areas.pre_copy.take(|_| {});
        uffd.release_writes(span);
        uffd.wake(span);
        for range in huge {
            // SAFETY: the advice concerns page sizes only.
            let _ = unsafe { sys::madvise(range, libc::MADV_COLLAPSE) };
        }
    }
    areas.pre_copy.is_taken.store(false, SeqCst);
    Held { done, begun: copy.begun, staging: None }
}

/// The ranges of a slot that huge pages map; none where that cannot be found out.
fn huge_ranges(slot: Span) -> Vec<Span> {
    let mut ranges = Vec::new();
    let Ok(pagemap) = Pagemap::open() else { return ranges };
    let _ = pagemap.scan(slot, sys::PRESENT, |found| {
        if found.is(sys::HUGE_PAGE) && ranges.try_reserve(1).is_ok() {
            ranges.push(found.span());
        }
    });
    ranges
}

struct Copy<'a> {
    areas: &'a Areas,
    uffd: &'a Userfaultfd,
    slot: Span,
    /// The time since which writes are held.
    begun: Option<Nanos>,
}

impl Copy<'_> {
    fn promote(&mut self, slot: usize, page: Gigantic) -> Result<(), Failed> {
        let Self { areas, uffd, slot: span, .. } = *self;
        let noted = &areas.pre_copy;
        noted.is_slowed.store(false, Relaxed);
        noted.slot.store(slot, SeqCst);
        if uffd.hold_writes(span).is_err() {
            return Err((Cause::Kernel, Some(page)));
        }
        for offset in (0..GIGANTIC).step_by(HUGE) {
            // SAFETY: both are mapped. What a thread writes meanwhile is noted, and copied again.
            unsafe { demote::copy(span.start + offset, page.start() + offset) };
        }
        let done = self.copy_rest(&page);
        if let Err(cause) = done {
            page.free();
            return Err((cause, None));
        }
        // SAFETY: everything that the slot holds has been copied, and nobody can write to it.
        unsafe { page.move_over(span) }.map_err(|_| (Cause::Kernel, None))
    }

    /// Copies what was written to since it was copied, until nothing is written to any more because writes are held.
    fn copy_rest(&mut self, page: &Gigantic) -> Result<(), Cause> {
        let mut rounds = 0;
        while self.copy_again(page)? > FEW {
            rounds += 1;
            self.areas.pre_copy.is_slowed.store(rounds >= SLOWED, Relaxed);
            if rounds > ROUNDS {
                return Err(Cause::Written);
            }
        }
        self.begun = Some(sys::now());
        self.areas.pre_copy.hold();
        self.copy_again(page)?;
        // With a descriptor for direct I/O open the page could not be demoted again, and a device may be writing.
        if pins::may_be(sys::process()) { Err(Cause::MayPin) } else { Ok(()) }
    }

    /// Copies the pages that were written to since the last time; how many those were.
    fn copy_again(&self, page: &Gigantic) -> Result<usize, Cause> {
        let (mut count, mut done) = (0, Ok(()));
        self.areas.pre_copy.take(|index| {
            let (from, to) = (self.slot.start + index * PAGE, page.start() + index * PAGE);
            done = done.and(self.uffd.protect(Span { start: from, length: PAGE }));
            // SAFETY: both are mapped, and are not the same.
            unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, PAGE) };
            count += 1;
        });
        done.map_err(|_| Cause::Kernel).map(|()| count)
    }
}
