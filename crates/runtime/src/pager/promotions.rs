//! Promotion: the base pages of a range, and what is missing of it, become a huge page (section 2.3).

#![expect(unsafe_code, reason = "copies pages that were moved out")]

use super::Pager;
use super::table::{Advised, Hash, Pages, Range, State};
use crate::sys::{Errno, PAGE, Result};
use core::sync::atomic::Ordering::Relaxed;
use superpage_policy::promotion::Outcome;

impl Pager {
    /// Promotes a range.
    pub(super) fn promote(&self, range: usize) -> Outcome {
        let Some(before) = self.table.with(|table| table.take_to_move_out(range)) else {
            return Outcome::Stale;
        };
        let does_not_move = || self.is_cut(range) || self.is_protected(self.span(range));
        let is_unfit = before.is_mixed || before.advised == Advised::Random;
        if before.state != State::Base || is_unfit || does_not_move() {
            self.settle(range, &before, before);
            return Outcome::Stale;
        }
        let Some(taken) = self.page_of_pool() else {
            self.settle(range, &before, before);
            return Outcome::NoFrame;
        };
        let place = taken.place();
        // Missing pages are read while the program goes on with those that are there.
        let loaded = self.load(range, &taken, &before, before.resident);
        let collected = loaded.and_then(|_| self.collect(range, place, &before));
        let Ok(is_clean) = collected else {
            self.give_page(place);
            // Writes to a page that was moved and came back are not told any more.
            self.settle(range, &before, Range { dirty: before.resident, ..before });
            return Outcome::Stale;
        };
        let mut after =
            Range { resident: Pages::default(), dirty: Pages::default(), was_seen: true, ..before };
        if is_clean {
            after.hash = Hash::of(self.hash(place));
        }
        self.put_in_place(range, place, &mut after);
        self.counters.heap.promotions.fetch_add(1, Relaxed);
        self.settle(range, &before, after);
        Outcome::Done
    }

    /// Moves the base pages of a range out, and copies them to their places in a huge page; whether the file holds the same.
    fn collect(&self, range: usize, place: u32, before: &Range) -> Result<bool> {
        let (from, to) = (self.span(range), self.place(place));
        let resident = before.resident;
        self.with_staging(|staging| {
            let moved = self.uffd.move_pages(from, staging.start);
            if moved.is_err() {
                self.put_back(from, staging, resident);
                return moved.map(|()| false);
            }
            let is_clean = resident.iter().all(|index| {
                let content = staging.start + index * PAGE;
                // SAFETY: the page was moved out of the heap.
                !before.dirty.has(index) || unsafe { self.is_same(range, index, content, before) }
            });
            for index in resident.iter() {
                let offset = index * PAGE;
                let (source, target) =
                    ((staging.start + offset) as *const u8, (to.start + offset) as *mut u8);
                // SAFETY: both are out of the program's reach: one was moved out of the heap, the other is taken.
                unsafe { core::ptr::copy_nonoverlapping(source, target, PAGE) };
            }
            Ok(is_clean)
        })
        .unwrap_or(Err(Errno::ENOMEM))
    }
}
