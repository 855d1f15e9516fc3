//! Memory that the program gives up, and memory that it needs as a whole: for the service thread.

#![expect(unsafe_code, reason = "drops memory that the program has given up")]

use super::table::{Hash, Pages, Range, State};
use super::{PER_RANGE, Pager, WORKERS};
use crate::room;
use crate::sys::{self, Errno, HUGE, PAGE, Result, Span};
use crate::uffd::Writes;
use core::ops::Range as Indices;
use superpage_units::Bytes;

impl Pager {
    /// Empties a part of the heap, in memory and in the file: it holds zeroes.
    pub(crate) fn discard(&self, span: Span) {
        for range in self.ranges_of(span) {
            let Some(part) = self.span(range).overlap(span) else { continue };
            let never_held =
                |range: &Range| range.state == State::Out && range.stored == 0 && !range.has_tables;
            if self.table.with(|table| table.range(range).is_some_and(never_held)) {
                continue;
            }
            if let Some(before) = self.take_over(range) {
                let after = self.emptied(range, part, before);
                self.settle(range, &before, after);
            }
        }
    }

    /// The ranges that a part of the heap touches.
    pub(super) fn ranges_of(&self, span: Span) -> Indices<usize> {
        let offset = |address: usize| address - self.heap.start;
        offset(span.start) / HUGE..offset(span.end()).div_ceil(HUGE)
    }

    /// The pages of a range that a part of it has.
    pub(super) fn pages_of(&self, range: usize, part: Span) -> Indices<usize> {
        let start = (part.start - self.span(range).start) / PAGE;
        start..start + part.length / PAGE
    }

    /// Empties a part of the heap in whose place another mapping of the program's will lie.
    pub(crate) fn leave(&self, span: Span) {
        self.discard(span);
        for range in self.ranges_of(span) {
            if let Some(before) = self.take_over(range) {
                self.settle(range, &before, Range { is_mixed: true, ..before });
            }
        }
    }

    fn emptied(&self, range: usize, part: Span, before: Range) -> Range {
        let indices = self.pages_of(range, part);
        let is_whole = indices.len() == PER_RANGE;
        let mut after = before;
        match before.state {
            State::Huge => self.empty_huge(range, part, &mut after),
            State::Waiting if is_whole => {
                self.give_spare(before.place);
                after.state = State::Out;
            }
            State::Waiting => {
                self.zero(before.place, &indices);
                after.was_seen = true;
            }
            State::Base => {
                // SAFETY: the program has given it up.
                let _ = unsafe { sys::madvise(part, libc::MADV_DONTNEED_LOCKED) };
                for index in indices.clone() {
                    after.resident.remove(index);
                    after.dirty.remove(index);
                }
                if after.resident.is_empty() {
                    after.state = State::Out;
                }
            }
            State::Out if before.has_tables => {
                // A page that could not be read has a mark there.
                // SAFETY: as above.
                let _ = unsafe { sys::madvise(part, libc::MADV_DONTNEED_LOCKED) };
            }
            State::Out | State::Busy => {}
        }
        // A huge page that stays is written as a whole once it is reclaimed, because its hash has changed.
        if matches!(after.state, State::Out | State::Base) {
            indices.for_each(|index| self.store(range, index, 0, &mut after));
            after.hash = Hash::UNKNOWN;
        }
        after
    }

    /// Empties a part of a range that a huge page maps, which stays whole where it can.
    fn empty_huge(&self, range: usize, part: Span, after: &mut Range) {
        let indices = self.pages_of(range, part);
        let is_whole = indices.len() == PER_RANGE;
        let place = self.table.with(|table| table.take_empty());
        let moved = place.map(|place| (place, self.take_out(self.span(range), self.place(place))));
        match moved {
            Some((place, Ok(()))) if is_whole => {
                self.give_spare(place);
                after.state = State::Out;
            }
            Some((place, Ok(()))) => {
                self.zero(place, &indices);
                self.put_in_place(range, place, after);
                after.was_seen = true;
            }
            other => {
                if let Some((place, _)) = other {
                    self.table.with(|table| table.give_empty(place));
                }
                // A pinned page is replaced; the pool has one less.
                // SAFETY: the program has given it up.
                let _ = unsafe { sys::madvise(part, libc::MADV_DONTNEED_LOCKED) };
                self.table.with(|table| table.lose_page());
                after.resident = if is_whole { Pages::default() } else { Pages::ALL };
                indices.for_each(|index| after.resident.remove(index));
                after.dirty = after.resident;
                after.state = if is_whole { State::Out } else { State::Base };
            }
        }
    }

    fn zero(&self, place: u32, indices: &Indices<usize>) {
        let start = self.place(place).start + indices.start * PAGE;
        // SAFETY: the page is in the pool and taken.
        unsafe { core::ptr::write_bytes(start as *mut u8, 0, indices.len() * PAGE) };
    }

    /// Has all of the heap in memory, and keeps it there until [`Pager::release`]: a child of a fork finds nothing that is
    /// not.
    ///
    /// # Errors
    /// ENOMEM where there is no memory, and what the file says. Nothing is kept then.
    pub(crate) fn hold_all(&self) -> Result<()> {
        let needed = self.table.with(|table| table.out());
        if needed > 0 && !room::is_enough(room::available(), Bytes(needed as u64)) {
            return Err(Errno::ENOMEM);
        }
        self.table.with(|table| table.is_held = true);
        let count = self.table.with(|table| table.count());
        let held = (0..count).try_for_each(|range| self.hold(range));
        if held.is_err() {
            self.release();
        }
        held
    }

    /// Lets pages leave memory again.
    pub(crate) fn release(&self) {
        self.table.with(|table| table.is_held = false);
        self.tell(WORKERS);
    }

    fn hold(&self, range: usize) -> Result<()> {
        let is_in = |range: &Range| match range.state {
            State::Out | State::Base => range.stored == 0,
            State::Huge => true,
            State::Waiting | State::Busy => false,
        };
        if self.table.with(|table| table.range(range).is_none_or(is_in)) {
            return Ok(());
        }
        let Some(before) = self.take_over(range) else { return Ok(()) };
        let mut after = before;
        let held = match before.state {
            State::Waiting => {
                after = self.bring_back(range, before);
                Ok(())
            }
            State::Out if before.stored > 0 && !before.is_mixed => {
                self.hold_huge(range, &mut after)
            }
            State::Base | State::Out => self.hold_base(range, &mut after),
            State::Huge | State::Busy => Ok(()),
        };
        self.settle(range, &before, after);
        held
    }

    fn hold_huge(&self, range: usize, after: &mut Range) -> Result<()> {
        let taken = self.table.with(|table| table.take_page().or_else(|| table.take_more()));
        let taken = taken.and_then(|taken| self.filled(taken)).ok_or(Errno::ENOMEM)?;
        let loaded = self.load(range, &taken, after, Pages::default());
        let place = taken.place();
        after.hash = loaded.inspect_err(|_| self.give_page(place))?;
        after.was_seen = true;
        self.put_in_place(range, place, after);
        Ok(())
    }

    /// Reads the base pages of a range that are in the file only.
    fn hold_base(&self, range: usize, after: &mut Range) -> Result<()> {
        let resident = after.resident;
        self.with_staging(|staging| {
            let missing =
                |index: &usize| !resident.has(*index) && self.file_page(range, *index) != 0;
            for index in (0..PER_RANGE).filter(missing) {
                // SAFETY: the staging memory is this thread's.
                unsafe { self.file.read(self.file_page(range, index), 1, staging.start) }?;
                self.uffd.copy(staging.start, self.page(range, index).start, Writes::Told)?;
                after.resident.add(index);
                after.state = State::Base;
                after.has_tables = true;
            }
            Ok(())
        })
        .unwrap_or(Err(Errno::ENOMEM))
    }
}
