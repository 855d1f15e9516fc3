//! Promotion: puts a gigantic page in the place of a slot's smaller pages.
//!
//! This file decides who may be promoted, and counts. The work is in [`full_stop`].

#![expect(unsafe_code, reason = "changes what memory is reserved")]

use crate::areas::Areas;
use crate::demote::Staging;
use crate::full_stop;
use crate::gigantic::Gigantic;
use crate::pins;
use crate::slot::State;
use crate::supply;
use crate::sys::{self, Span};
use crate::uffd::Userfaultfd;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use superpage_launch::{Cause, Counters};
use superpage_units::Nanos;

/// The reason why a slot was not promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The slot is not nearly full of plain memory any more, or somebody is changing it.
    Changed,
    /// No gigantic page could be had.
    NoPage,
    /// The library or the kernel refused.
    Refused(Cause),
}

/// Promotes a slot, for the background thread.
///
/// # Errors
/// [`Failure`]. The slot is as it was then.
pub(crate) fn promote(areas: &Areas, slot: usize) -> Result<(), Failure> {
    count(areas, promote_by(areas, slot, || begin(areas, slot)))
}

/// As [`promote`], for a thread of the program that asks and holds the lock of the space, so that the slot stays
/// full of plain memory.
///
/// # Errors
/// As of [`promote`].
pub(crate) fn promote_asked(areas: &Areas, slot: usize) -> Result<(), Failure> {
    let begin = || areas.slots.begin(slot, State::Ordinary, State::Changing).then(Vec::new);
    count(areas, promote_by(areas, slot, begin))
}

/// Counts a refusal by its cause. A slot that has changed was not refused.
fn count(areas: &Areas, done: Result<(), Failure>) -> Result<(), Failure> {
    match done {
        Err(Failure::NoPage) => areas.counters.refused.add(Cause::PoolEmpty),
        Err(Failure::Refused(cause)) => areas.counters.refused.add(cause),
        Ok(()) | Err(Failure::Changed) => {}
    }
    done
}

fn promote_by(
    areas: &Areas,
    slot: usize,
    begin: impl FnOnce() -> Option<Vec<Span>>,
) -> Result<(), Failure> {
    if !areas.decider.promotes() {
        return Err(Failure::Refused(Cause::NotWanted));
    }
    let uffd = areas.uffd().ok_or_else(|| Failure::Refused(areas.cause_of_no_uffd()))?;
    let page = prepared(areas)?;
    let Some(holes) = begin() else {
        areas.ready.add(page);
        return Err(Failure::Changed);
    };
    let done = carry_out(areas, uffd, slot, &holes, page);
    if let Some(cooldown) = areas.cooldown(slot) {
        if done.is_ok() { cooldown.forget() } else { cooldown.begin() }
    }
    done
}

/// A gigantic page of zeroes, if the program is one that may have it.
fn prepared(areas: &Areas) -> Result<Gigantic, Failure> {
    permitted(areas).map_err(Failure::Refused)?;
    let ready = areas.ready.take().map(Ok);
    ready.unwrap_or_else(|| supply::prepare(areas)).map_err(|_| Failure::NoPage)
}

/// Takes the slot over, if it is nearly full of plain memory and nobody changes it; the holes in it. A thread of the
/// program changes ordinary slots with the lock of the space held only, and waits for one that is taken over.
fn begin(areas: &Areas, slot: usize) -> Option<Vec<Span>> {
    // Waiting for the lock could take for ever: who holds it may wait for this thread.
    let space = areas.space.try_take()?;
    space.slot(slot).filter(|pages| pages.is_nearly_full())?;
    let mut holes = Vec::new();
    // A program that is short of memory is not to end here.
    holes.try_reserve_exact(space.free_runs(slot).count()).ok()?;
    holes.extend(space.free_runs(slot));
    areas.slots.begin(slot, State::Ordinary, State::Changing).then_some(holes)
}

/// The cause of a failure, and the gigantic page if it still holds zeroes.
pub(crate) type Failed = (Cause, Option<Gigantic>);

/// A slot to which accesses are held.
#[derive(Debug)]
pub(crate) struct Held {
    /// Whether a gigantic page maps it now.
    pub(crate) done: Result<(), Failed>,
    /// The time since which they are; none if they never were.
    pub(crate) begun: Option<Nanos>,
    /// Memory that goes when nobody waits any more.
    pub(crate) staging: Option<Staging>,
}

/// Promotes a slot that was taken over, and lets go of it.
fn carry_out(
    areas: &Areas,
    uffd: &Userfaultfd,
    slot: usize,
    holes: &[Span],
    page: Gigantic,
) -> Result<(), Failure> {
    let span = areas.slots.span(slot);
    // Since the slot was taken over, a thread that is about to fork waits for it.
    let held = match permitted(areas).and_then(|()| open(holes)) {
        Err(cause) => Held { done: Err((cause, Some(page))), begun: None, staging: None },
        Ok(()) => full_stop::promote(uffd, span, page),
    };
    let counters = areas.counters;
    let state = if held.done.is_ok() { State::Gigantic } else { State::Ordinary };
    if state == State::Ordinary {
        let _ = uffd.unregister(span);
        reserve(holes);
    } else {
        counters.promotions.fetch_add(1, Relaxed);
        areas.add_gigantic();
    }
    // The program may end as soon as its threads go on. A promotion that failed has held them as well.
    if let Some(begun) = held.begun {
        Counters::waited(&counters.longest_promotion, Nanos(sys::now().0 - begun.0));
    }
    areas.slots.settle(slot, state);
    uffd.wake(span);
    if let Some(staging) = &held.staging {
        // The kernel may have been asked to populate all memory meanwhile (mlockall).
        let _ = uffd.unregister(staging.span());
        uffd.wake(staging.span());
    }
    held.done.map_err(|(cause, page)| {
        if let Some(page) = page {
            areas.ready.add(page);
        }
        Failure::Refused(cause)
    })
}

/// Makes the holes of a slot what the rest of it is, because all of it is to be moved.
fn open(holes: &[Span]) -> Result<(), Cause> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: free pages of the areas are reserved memory that nobody uses. With the advice that its neighbours
    // have, a hole is one VMA with them.
    let mut done = holes.iter().map(|hole| unsafe {
        let _ = sys::madvise(*hole, libc::MADV_HUGEPAGE);
        sys::open_reserved(*hole, protection)
    });
    if done.all(|done| done.is_ok()) { Ok(()) } else { Err(Cause::Kernel) }
}

/// Reserves the holes of a slot again.
fn reserve(holes: &[Span]) {
    for hole in holes {
        // SAFETY: nobody has anything there.
        let _ = unsafe { sys::reserve(*hole) };
    }
}

/// Whether faults are served, and the program neither forks nor has a descriptor for direct I/O.
fn permitted(areas: &Areas) -> Result<(), Cause> {
    if areas.uffd().is_none() {
        return Err(areas.cause_of_no_uffd());
    }
    if !areas.may_use_gigantic() {
        return Err(Cause::Forked);
    }
    if !areas.may_promote() {
        return Err(Cause::NotWanted);
    }
    // The gigantic page could not be demoted again.
    if pins::may_be(sys::process()) { Err(Cause::MayPin) } else { Ok(()) }
}
