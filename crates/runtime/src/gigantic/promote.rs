//! Promotion: puts a gigantic page in the place of a slot's smaller pages.
//!
//! This file decides who may be promoted, and counts. The work is in [`full_stop`].

#![expect(unsafe_code, reason = "changes what memory is reserved")]

use super::Gigantic;
use super::demote::Staging;
use super::full_stop;
use super::page::GiganticPage;
use super::slot::State;
use super::supply;
use crate::pins;
use crate::sys::{self, Span};
use crate::uffd::Userfaultfd;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use superpage_launch::{Cause, Counters};
use superpage_units::Nanos;

/// The reason why a slot was not promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
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
pub(super) fn promote(gigantic: &Gigantic, slot: usize) -> Result<(), Failure> {
    count(gigantic, promote_by(gigantic, slot, || begin(gigantic, slot)))
}

/// As [`promote`], for a thread of the program that asks and holds the lock of the space, so that the slot stays
/// full of plain memory.
///
/// # Errors
/// As of [`promote`].
pub(super) fn promote_asked(gigantic: &Gigantic, slot: usize) -> Result<(), Failure> {
    let begin = || gigantic.slots.begin(slot, State::Ordinary, State::Changing).then(Vec::new);
    count(gigantic, promote_by(gigantic, slot, begin))
}

/// Counts a refusal by its cause. A slot that has changed was not refused.
fn count(gigantic: &Gigantic, done: Result<(), Failure>) -> Result<(), Failure> {
    match done {
        Err(Failure::NoPage) => gigantic.areas.counters.refused.add(Cause::PoolEmpty),
        Err(Failure::Refused(cause)) => gigantic.areas.counters.refused.add(cause),
        Ok(()) | Err(Failure::Changed) => {}
    }
    done
}

fn promote_by(
    gigantic: &Gigantic,
    slot: usize,
    begin: impl FnOnce() -> Option<Vec<Span>>,
) -> Result<(), Failure> {
    if !gigantic.areas.decider.promotes() {
        return Err(Failure::Refused(Cause::NotWanted));
    }
    let uffd = gigantic.uffd().ok_or_else(|| Failure::Refused(gigantic.cause_of_no_uffd()))?;
    let page = prepared(gigantic)?;
    let Some(holes) = begin() else {
        gigantic.ready.add(page);
        return Err(Failure::Changed);
    };
    let done = carry_out(gigantic, uffd, slot, &holes, page);
    if let Some(cooldown) = gigantic.cooldown(slot) {
        if done.is_ok() { cooldown.forget() } else { cooldown.begin() }
    }
    done
}

/// A gigantic page of zeroes, if the program is one that may have it.
fn prepared(gigantic: &Gigantic) -> Result<GiganticPage, Failure> {
    permitted(gigantic).map_err(Failure::Refused)?;
    let ready = gigantic.ready.take().map(Ok);
    ready.unwrap_or_else(|| supply::prepare(gigantic)).map_err(|_| Failure::NoPage)
}

/// Takes the slot over, if it is nearly full of plain memory and nobody changes it; the holes in it. A thread of the
/// program changes ordinary slots with the lock of the space held only, and waits for one that is taken over.
fn begin(gigantic: &Gigantic, slot: usize) -> Option<Vec<Span>> {
    // Waiting for the lock could take for ever: who holds it may wait for this thread.
    let space = gigantic.areas.space.try_take()?;
    space.slot(slot).filter(|pages| pages.is_nearly_full())?;
    let mut holes = Vec::new();
    // A program that is short of memory is not to end here.
    holes.try_reserve_exact(space.free_runs(slot).count()).ok()?;
    holes.extend(space.free_runs(slot));
    gigantic.slots.begin(slot, State::Ordinary, State::Changing).then_some(holes)
}

/// The cause of a failure, and the gigantic page if it still holds zeroes.
pub(super) type Failed = (Cause, Option<GiganticPage>);

/// A slot to which accesses are held.
#[derive(Debug)]
pub(super) struct Held {
    /// Whether a gigantic page maps it now.
    pub(super) done: Result<(), Failed>,
    /// The time since which they are; none if they never were.
    pub(super) begun: Option<Nanos>,
    /// Memory that goes when nobody waits any more.
    pub(super) staging: Option<Staging>,
}

/// Promotes a slot that was taken over, and lets go of it.
fn carry_out(
    gigantic: &Gigantic,
    uffd: &Userfaultfd,
    slot: usize,
    holes: &[Span],
    page: GiganticPage,
) -> Result<(), Failure> {
    let span = gigantic.slots.span(slot);
    // Since the slot was taken over, a thread that is about to fork waits for it.
    let held = match permitted(gigantic).and_then(|()| open(holes)) {
        Err(cause) => Held { done: Err((cause, Some(page))), begun: None, staging: None },
        Ok(()) => full_stop::promote(uffd, span, page),
    };
    let counters = gigantic.areas.counters;
    let state = if held.done.is_ok() { State::Gigantic } else { State::Ordinary };
    if state == State::Ordinary {
        let _ = uffd.unregister(span);
        reserve(holes);
    } else {
        counters.promotions.fetch_add(1, Relaxed);
        gigantic.add_gigantic();
    }
    // The program may end as soon as its threads go on. A promotion that failed has held them as well.
    if let Some(begun) = held.begun {
        Counters::waited(&counters.longest_promotion, Nanos(sys::now().0 - begun.0));
    }
    gigantic.slots.settle(slot, state);
    uffd.wake(span);
    if let Some(staging) = &held.staging {
        // The kernel may have been asked to populate all memory meanwhile (mlockall).
        let _ = uffd.unregister(staging.span());
        uffd.wake(staging.span());
    }
    held.done.map_err(|(cause, page)| {
        if let Some(page) = page {
            gigantic.ready.add(page);
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
fn permitted(gigantic: &Gigantic) -> Result<(), Cause> {
    if gigantic.uffd().is_none() {
        return Err(gigantic.cause_of_no_uffd());
    }
    if !gigantic.may_use_gigantic() {
        return Err(Cause::Forked);
    }
    if !gigantic.may_promote() {
        return Err(Cause::NotWanted);
    }
    // The gigantic page could not be demoted again.
    if pins::may_be(sys::process()) { Err(Cause::MayPin) } else { Ok(()) }
}
