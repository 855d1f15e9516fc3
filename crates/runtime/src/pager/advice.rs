//! The program's advice about its memory (madvise), as the pager follows it. The pager keeps advice for ranges of 2 MiB that the
//! program names as a whole; it reads ahead also those that are named in part.
//!
//! The paper takes such advice about page sizes only (section 2.2).

use super::table::{Advised, Range, State};
use super::{PER_RANGE, Pager};
use crate::sys::{HUGE, Span};

impl Pager {
    /// Has a part of the heap read ahead.
    pub(super) fn will_need(&self, part: Span) {
        let ranges = self.ranges_of(part);
        let due = self.table.with(|table| {
            table.will_need(ranges);
            table.work_is_due()
        });
        self.tell(due);
    }

    /// Has a part of the heap leave memory before others.
    pub(super) fn leave_first(&self, part: Span) {
        for range in self.whole_ranges(part) {
            let Some(entry) = self.entry(range) else { continue };
            match entry.state {
                State::Huge => self.table.with(|table| table.pass(range)),
                State::Base => {
                    let pages = entry.resident.iter().map(|index| range * PER_RANGE + index);
                    pages.for_each(|page| self.rounds.cool(page));
                }
                State::Out | State::Waiting | State::Busy => {}
            }
        }
    }

    /// The ranges that a part of the heap has as a whole.
    fn whole_ranges(&self, part: Span) -> impl Iterator<Item = usize> + use<> {
        let offset = |address: usize| address - self.heap.start;
        offset(part.start).div_ceil(HUGE)..offset(part.end()) / HUGE
    }

    /// Forgets how the program goes through a part of the heap, also where that is a part of a range only.
    pub(super) fn forget_advice(&self, part: Span) {
        self.note_advice(self.ranges_of(part), Advised::Nothing);
    }

    /// Notes how the program goes through a part of the heap.
    pub(super) fn advise(&self, part: Span, advised: Advised) {
        self.note_advice(self.whole_ranges(part), advised);
    }

    fn note_advice(&self, ranges: impl Iterator<Item = usize>, advised: Advised) {
        for range in ranges {
            if self.table.with(|table| table.advised(range)) != advised
                && let Some(before) = self.take_over(range)
            {
                self.settle(range, &before, Range { advised, ..before });
            }
        }
    }
}
