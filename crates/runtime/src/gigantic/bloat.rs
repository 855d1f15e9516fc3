//! Bloat: gives back what gigantic pages hold for nothing, once memory is short.
//!
//! Trident's authors recover the bloat of 1 GiB pages by HawkEye's technique (Trident, section 8): pages that are large
//! and hold zeroes are demoted, and what is zero becomes free. Here a page that is ready goes first, because nobody
//! uses it. A gigantic page is worth demoting from an eighth of zeroes on.
//!
//! Deviations: HawkEye looks for base pages of zeroes and takes the process with the most first; here it is huge pages
//! of zeroes of one process, in the order of addresses. Base pages of zeroes in the huge pages that remain are for
//! de-bloating (`superpage daemon`).

#![expect(unsafe_code, reason = "reads the program's memory")]

use super::demote;
use super::slot::State;
use super::{Cooldown, Gigantic};
use crate::room;
use crate::sys::{self, GIGANTIC};
use core::sync::atomic::Ordering::Relaxed;

/// The zeroes that a gigantic page must hold to be demoted: 128 MiB. A demotion holds the program's writes for 260 to 680 ms where most
/// of the page has to be copied, which is not done for less.
const LEAST: usize = GIGANTIC / 8;

/// The slot that is looked at next.
#[derive(Debug, Default)]
pub(super) struct Hand(usize);

impl Hand {
    /// Gives one thing back, if memory is short and there is one.
    pub(super) fn reclaim(&mut self, gigantic: &Gigantic) {
        if gigantic.count() == 0 && gigantic.ready.count() == 0 || !room::is_short() {
            return;
        }
        if let Some(page) = gigantic.ready.take() {
            page.free();
            return;
        }
        // A page that is demoted goes to the kernel's pool, and becomes memory only where `superpage run` added it, or
        // where the pool was told to be smaller than what is used of it.
        if gigantic.areas.counters.added.load(Relaxed) == 0 && gigantic.gives.pool.surplus() == 0 {
            return;
        }
        for _ in 0..gigantic.slots.count() {
            let slot = self.0 % gigantic.slots.count();
            self.0 = slot + 1;
            let has_cooled_down = gigantic.cooldown(slot).is_some_and(Cooldown::is_over);
            if gigantic.slots.state(slot) == State::Gigantic && has_cooled_down {
                demote_bloated(gigantic, slot);
                return;
            }
        }
    }
}

/// Demotes a slot that holds enough zeroes. A thread of the program that changes its mappings waits meanwhile.
fn demote_bloated(gigantic: &Gigantic, slot: usize) {
    // Waiting for the lock could take for ever: who holds it may wait for this thread.
    let Some(space) = gigantic.areas.space.try_take() else { return };
    if gigantic.slots.state(slot) != State::Gigantic {
        return;
    }
    // SAFETY: with the lock held the slot stays mapped by its gigantic page.
    let needed = unsafe { demote::filled(gigantic.slots.span(slot)) };
    if GIGANTIC - sys::to_usize(needed.0) < LEAST {
        return;
    }
    match (gigantic.demote_for(slot, sys::process(), needed, None), gigantic.cooldown(slot)) {
        (Ok(()), _) => gigantic.was_demoted(&space, slot),
        (Err(_), Some(cooldown)) => cooldown.begin(),
        (Err(_), None) => {}
    }
}
