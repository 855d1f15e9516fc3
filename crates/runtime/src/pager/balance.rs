//! How memory is divided between the pools of huge and of base pages.
//!
//! The paper divides it once. Where a program keeps coming back to single pages that lie apart, base pages for them are
//! worth more than huge pages of which little is used; elsewhere huge pages are. Time is counted in faults of base pages.
//! A base page that comes back soon after it left would still be there if there were more of them: the share of such faults
//! is what that memory would save in a unit of time. Huge pages of as much memory cost what they are touched in that time. So
//! one that was moved out of the heap, and was not touched for several times as long as would make the two equal, gives its
//! memory to base pages. Touches at random of equal pages make them equal, and nothing changes.
//!
//! Where huge pages are asked for again and again and no memory has gone to base pages meanwhile, it goes back.

#![expect(unsafe_code, reason = "takes memory of zeroes")]

use super::{PER_RANGE, Pager, zeroed};
use crate::sys::Result;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// The base pages by which the pool is thought to be larger: those that left last.
const MORE: u32 = 4096; // tidy: allow(a number of base pages, not their size)
/// The huge pages of as much memory.
const HUGE_OF_MORE: u32 = 8;
/// So many times longer a huge page must not be touched: of touches at random one in four hundred comes so late. Chosen.
const PATIENCE: u32 = 6;
/// One, as a share of faults.
const ALL: u32 = 1 << 16;
/// The share follows the last so many faults. Chosen, not measured.
const MEMORY: u32 = 512; // tidy: allow(a number of faults)
/// Below this share of faults nothing is taken from huge pages. Chosen, not measured: one in 256.
const LEAST: u32 = ALL / 256;
/// Huge pages that are moved out to see whether they are used, for each batch of base pages that is reclaimed. Chosen, not
/// measured.
const TRIALS: usize = 2;
/// So many huge pages are asked for before memory goes back. Chosen, not measured.
const ASKED: u32 = 32;

/// What is known of when pages come back.
#[derive(Debug)]
pub(super) struct Balance {
    /// The faults of base pages so far.
    now: AtomicU32,
    /// When each page left memory as a base page; zero if it never did.
    left: &'static [AtomicU32],
    /// The share of faults, of [`ALL`], that more base pages would have saved.
    saved: AtomicU32,
    /// Huge pages asked for since memory went to base pages.
    asked: AtomicU32,
}

impl Balance {
    /// Of so many ranges, nothing is known.
    pub(super) fn new(ranges: usize) -> Result<Self> {
        // SAFETY: zero bytes are atomic integers.
        let left = unsafe { zeroed::<AtomicU32>(ranges * PER_RANGE) }?;
        let zero = || AtomicU32::new(0);
        Ok(Self { now: AtomicU32::new(1), left, saved: zero(), asked: zero() })
    }

    /// The time.
    pub(super) fn now(&self) -> u32 {
        self.now.load(Relaxed)
    }

    /// A base page has left memory.
    pub(super) fn left(&self, range: usize, index: usize) {
        if let Some(left) = self.left.get(range * PER_RANGE + index) {
            left.store(self.now().max(1), Relaxed);
        }
    }

    /// A base page was brought in.
    pub(super) fn came(&self, range: usize, index: usize) {
        let now = self.now.fetch_add(1, Relaxed);
        let left = self.left.get(range * PER_RANGE + index).map_or(0, |left| left.swap(0, Relaxed));
        let was_there = left != 0 && now.wrapping_sub(left) <= MORE;
        let saved = self.saved.load(Relaxed);
        let saved = saved - saved / MEMORY + if was_there { ALL / MEMORY } else { 0 };
        self.saved.store(saved, Relaxed);
    }

    /// The time that a huge page may go untouched; nothing while more base pages would save next to nothing.
    fn patience(&self) -> Option<u32> {
        let saved = self.saved.load(Relaxed);
        (saved >= LEAST).then(|| HUGE_OF_MORE * PATIENCE * (ALL / saved))
    }
}

impl Pager {
    /// Turns the memory of a huge page that is not used to memory for base pages; whether it did.
    pub(super) fn give_to_base(&self) -> bool {
        let Some(patience) = self.balance.patience() else { return false };
        for _ in 0..TRIALS {
            if self.table.with(|table| table.is_waiting_low()) {
                self.move_out();
            }
        }
        let now = self.balance.now();
        let oldest = self.table.with(|table| table.take_waiting_since(now, patience));
        let Some(place) = oldest.and_then(|(range, before)| self.clean(range, before)) else {
            return false;
        };
        if self.table.with(|table| table.turn_to_base()) {
            self.balance.asked.store(0, Relaxed);
            self.empty(place);
            return true;
        }
        self.give_page(place);
        false
    }

    /// A huge page is asked for and none is free: memory that went to base pages may have to come back.
    pub(super) fn take_from_base(&self) {
        let asked = self.balance.asked.fetch_add(1, Relaxed);
        if asked >= ASKED {
            self.table.with(|table| table.turn_to_huge());
        }
    }
}
