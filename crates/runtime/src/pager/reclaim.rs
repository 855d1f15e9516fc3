//! Reclaim: pages leave memory, written to the file before if the program has changed them.

#![expect(unsafe_code, reason = "moves memory and drops what is in the file")]

use super::file::{FilePage, FileSpace, behind};
use super::table::{Hash, Pages, Queue, Range, State, Taken, Work};
use super::{PER_RANGE, Pager, bytes};
use crate::areas::Areas;
use crate::sys::{self, Errno, Result, Span};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use superpage_policy::promotion::Outcome;

/// Attempts to have a page when none is free. With one attempt 29 pages more than there may be were taken while 512 MiB went through
/// 256 MiB of memory, with two, eight or 32 attempts none (three rounds).
const ATTEMPTS: usize = 2;

/// Base pages of which one is to leave: those that are pinned, or in a range that somebody is changing, stay. With 1 to 128 of them
/// times are not told apart where none is pinned.
const TRIED: usize = 32;

/// Base pages that a worker has leave at once. With 32 of them four threads that read words at random from a file in memory take 2.5 s, with 1
/// 3.2 s; on a disk that takes 40 us a read 8 and 128 are not told apart from it (three rounds).
const AT_ONCE: usize = 32;

/// The outcome of a worker's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worked {
    /// No work was to be done.
    Nothing,
    /// The work was done.
    Done,
    /// Nothing could be reclaimed.
    Stuck,
}

impl Pager {
    /// Does some work ahead of the program.
    pub(super) fn work(&self, areas: &Areas) -> Worked {
        let Some(work) = self.table.with(|table| table.work()) else {
            return Worked::Nothing;
        };
        let is_done = match work {
            Work::Reclaim => {
                let to_leave = || self.table.with(|table| table.base_to_leave());
                self.reclaim() || self.reclaim_base(areas, to_leave())
            }
            Work::Drop(place) => {
                self.empty(place);
                true
            }
            Work::Read(range) => {
                let state = self.table.with(|table| table.range(range).map(|range| range.state));
                match state {
                    Some(State::Base) => drop(self.promote(range)),
                    _ => self.read_ahead(range),
                }
                true
            }
            Work::Promote => {
                self.promote_next(areas);
                true
            }
            Work::ReclaimBase(pages) => {
                let is_done = self.reclaim_base(areas, pages);
                self.table.with(|table| table.base_workers -= 1);
                is_done
            }
        };
        if is_done { Worked::Done } else { Worked::Stuck }
    }

    /// Takes a huge page of the pool, reclaiming one if none is free. Where all are pinned, there is one more than there may
    /// be.
    pub(super) fn page_of_pool(&self) -> Option<Taken> {
        for _ in 0..ATTEMPTS {
            if let Some(taken) = self.table.with(|table| table.take_page()) {
                return self.filled(taken);
            }
            self.reclaim();
        }
        self.counters.heap.stuck.fetch_add(1, Relaxed);
        let more = self.table.with(|table| table.take_more())?;
        self.filled(more)
    }

    /// Has memory mapped in a place that never held any, so that no page of zeroes that others share is moved.
    pub(super) fn filled(&self, taken: Taken) -> Option<Taken> {
        if let Taken::Fresh(place) = taken {
            // A huge page that was split where it came to has left page tables in the place, which would get base pages.
            // SAFETY: the place is taken and holds nothing.
            let _ = unsafe { sys::madvise(self.place(place), libc::MADV_DONTNEED) };
            // SAFETY: as above.
            if unsafe { sys::madvise(self.place(place), libc::MADV_POPULATE_WRITE) }.is_err() {
                self.table.with(|table| table.lose_page());
                self.empty(place);
                return None;
            }
        }
        Some(taken)
    }

    /// Gives a huge page back that nobody needs.
    pub(super) fn give_page(&self, place: u32) {
        if self.table.with(|table| table.give_page(place)) {
            self.empty(place);
        }
    }

    /// As [`Pager::give_page`], of one that the program has freed.
    pub(super) fn give_spare(&self, place: u32) {
        if self.table.with(|table| table.give_spare(place)) {
            self.empty(place);
        }
    }

    /// Empties a place. Only then may others have it.
    fn empty(&self, place: u32) {
        // SAFETY: the place holds nothing that anybody needs.
        let _ = unsafe { sys::madvise(self.place(place), libc::MADV_DONTNEED) };
        self.table.with(|table| table.give_empty(place));
    }

    /// Makes a huge page free; whether one is.
    fn reclaim(&self) -> bool {
        let unused = self.table.with(|table| table.take_unused());
        if let Some(place) = unused.and_then(|(range, before)| self.clean(range, before)) {
            self.give_page(place);
            return true;
        }
        if let Some(place) = self.take_passed() {
            self.give_page(place);
            if self.table.with(|table| table.is_waiting_low()) {
                self.move_out();
            }
            return true;
        }
        // Some are touched again. Without it huge pages read by Zipf's law take 3.55 s instead of 3.17 s; two, or eight, for each that
        // is reclaimed take 3.06 and 3.07 s (medians of three rounds), which is not told apart.
        if self.table.with(|table| table.is_waiting_low()) {
            self.move_out();
        }
        let oldest = |queue| self.table.with(|table| table.take_oldest(queue));
        let is_far_ahead = self.table.with(|table| table.is_far_ahead());
        let taken = is_far_ahead
            .then(|| oldest(Queue::Ahead))
            .flatten()
            .or_else(|| oldest(Queue::Waiting))
            .or_else(|| {
                self.move_out()?;
                oldest(Queue::Waiting)
            })
            .or_else(|| oldest(Queue::Ahead));
        let Some(place) = taken.and_then(|(range, before)| self.clean(range, before)) else {
            return false;
        };
        self.give_page(place);
        true
    }

    /// Takes a huge page that a stream has left behind; its place.
    fn take_passed(&self) -> Option<u32> {
        let (range, before) = self.table.with(|table| table.take_passed())?;
        self.move_out_of(range, before)?;
        let before = self.table.with(|table| table.take_to_move_out(range))?;
        if before.state != State::Waiting {
            self.settle(range, &before, before);
            return None;
        }
        self.clean(range, before)
    }

    /// Moves the oldest huge page out of the heap, where it waits to be touched again or reclaimed.
    fn move_out(&self) -> Option<()> {
        let (range, before) = self.table.with(|table| table.take_oldest(Queue::Active))?;
        self.move_out_of(range, before)
    }

    fn move_out_of(&self, range: usize, before: Range) -> Option<()> {
        let Some(place) = self.table.with(|table| table.take_empty()) else {
            self.settle(range, &before, before);
            return None;
        };
        let moved = self.take_out(self.span(range), self.place(place));
        let after = match moved {
            Ok(()) => Range { state: State::Waiting, place, ..before },
            Err(errno) => {
                self.counters.heap.stuck.fetch_add(1, Relaxed);
                self.table.with(|table| table.give_empty(place));
                self.cut_apart(range, before, errno)
            }
        };
        self.settle(range, &before, after);
        moved.ok()
    }

    /// A range whose huge page did not move: base pages, if it is more than one VMA, because the program has protected or
    /// locked a part of it, or if all of it is protected. The kernel has split the page in the first case, and does so once
    /// one of the base pages leaves.
    fn cut_apart(&self, range: usize, before: Range, errno: Errno) -> Range {
        // Base pages that cannot leave either would be more memory than there may be.
        let is_protected = || self.is_protected(self.span(range)) && !self.may_be_written_unseen();
        let is_cut = || self.is_cut(range) || is_protected();
        if errno != Errno::EINVAL || before.is_mixed || !is_cut() {
            return before;
        }
        self.table.with(|table| table.lose_page());
        Range {
            state: State::Base,
            resident: Pages::ALL,
            dirty: Pages::ALL,
            hash: Hash::UNKNOWN,
            has_tables: true,
            ..before
        }
    }

    /// Whether a range is more than one VMA.
    pub(super) fn is_cut(&self, range: usize) -> bool {
        let span = self.span(range);
        sys::vma_at(span.start).is_ok_and(|vma| vma.overlap(span) != Some(span))
    }

    /// Moves pages out of the heap, all or none.
    ///
    /// # Errors
    /// What the kernel says of one that is pinned, locked, or shared with a child.
    pub(super) fn take_out(&self, from: Span, to: Span) -> Result<()> {
        let mut moved = self.uffd.move_pages(from, to.start);
        if moved.is_err() {
            self.put_back(from, to, Pages::ALL);
        }
        if moved == Err(Errno::EBUSY) || moved == Err(Errno::EAGAIN) {
            // Pages that a child had too are the program's alone after a write, or as good as one. This thread would have to
            // serve the fault at a missing page, or at one whose writes are told: all are back in place, and none is.
            self.uffd.allow_writes(from);
            // SAFETY: it changes nothing of what the memory holds.
            let _ = unsafe { sys::madvise(from, libc::MADV_POPULATE_WRITE) };
            moved = self.uffd.move_pages(from, to.start);
            if moved.is_err() {
                self.put_back(from, to, Pages::ALL);
            }
        }
        moved
    }

    /// Puts these pages back in their places in the heap, of which some were moved to places of the pager's.
    pub(super) fn put_back(&self, to: Span, from: Span, pages: Pages) {
        if self.uffd.move_pages(from, to.start).is_ok() {
            return;
        }
        // The kernel moves none to a VMA whose protection has changed, nor one that it migrates just now. A page that is in
        // its place already stays.
        for index in pages.iter().take_while(|index| index * sys::PAGE < to.length) {
            let offset = index * sys::PAGE;
            self.put_copy(from.start + offset, to.start + offset);
        }
        // SAFETY: what was there is in its place.
        let _ = unsafe { sys::madvise(from, libc::MADV_DONTNEED) };
    }

    /// Takes a huge page from a range that waited, after writing it if it was changed; its place.
    fn clean(&self, range: usize, before: Range) -> Option<u32> {
        let mut after = before;
        let hash = if before.was_seen { Hash::of(self.hash(before.place)) } else { before.hash };
        let kept = if hash == before.hash {
            self.counters.heap.clean.fetch_add(1, Relaxed);
            Ok(())
        } else if hash == Hash::of(self.zeroes) {
            (0..PER_RANGE).for_each(|index| self.store(range, index, 0, &mut after));
            Ok(())
        } else {
            self.write_huge(range, before.place, &mut after)
        };
        if kept.is_err() {
            self.counters.heap.errors.fetch_add(1, Relaxed);
            // Some pages may have been written.
            self.settle(range, &before, Range { hash: Hash::UNKNOWN, was_seen: true, ..after });
            return None;
        }
        after.hash = hash;
        after.was_seen = false;
        // A page that was touched meanwhile is in use.
        if self.table.with(|table| table.was_touched(range)) {
            self.counters.heap.soft_faults.fetch_add(1, Relaxed);
            let after = self.bring_back(range, after);
            self.settle(range, &before, after);
            return None;
        }
        self.settle(range, &before, Range { state: State::Out, ..after });
        Some(before.place)
    }

    /// Takes a page of the file, or a range's worth side by side. Where there is none the file grows, up to the size of the heap:
    /// 512 MiB that were evicted at random before are written in order in 0.9 s with free ranges, and in 1.3 s page by page.
    fn taken(&self, take: impl Fn(&mut FileSpace) -> Option<FilePage>) -> Option<FilePage> {
        let found = self.space.with(&take);
        if found.is_some() {
            return found;
        }
        let family = self.space.with(|space| *space.family());
        family.make_more_room(self.file.descriptor()).ok()?;
        self.space.with(&take)
    }

    /// Writes a huge page of the pool to fresh places in the file.
    fn write_huge(&self, range: usize, place: u32, after: &mut Range) -> Result<()> {
        let from = self.place(place).start;
        if let Some(first) = self.taken(FileSpace::take_range) {
            // SAFETY: the page is in the pool and taken.
            let written = unsafe { self.file.write(first, PER_RANGE, from) };
            if written.is_err() {
                let pages = first..behind(first, PER_RANGE);
                self.space.with(|space| pages.for_each(|page| space.free(page)));
                return written;
            }
            for index in 0..PER_RANGE {
                self.store(range, index, behind(first, index), after);
            }
        } else {
            // The free pages of the file are scattered.
            for index in 0..PER_RANGE {
                self.write_page(range, index, from + index * sys::PAGE, after)?;
            }
        }
        self.counters.heap.written_huge.fetch_add(bytes(PER_RANGE).0, Relaxed);
        Ok(())
    }

    /// Writes a base page, which is at an address and which nobody changes, to a fresh place in the file.
    pub(super) fn write_base(
        &self,
        range: usize,
        index: usize,
        from: usize,
        after: &mut Range,
    ) -> Result<()> {
        self.write_page(range, index, from, after)?;
        self.counters.heap.written_base.fetch_add(bytes(1).0, Relaxed);
        Ok(())
    }

    fn write_page(&self, range: usize, index: usize, from: usize, after: &mut Range) -> Result<()> {
        let page = self.taken(FileSpace::take_page).ok_or(Errno::ENOSPC)?;
        // SAFETY: the caller's page holds what is to be written, and nobody changes it.
        let written = unsafe { self.file.write(page, 1, from) };
        match written {
            Ok(()) => self.store(range, index, page, after),
            Err(_) => self.space.with(|space| space.free(page)),
        }
        written
    }

    /// Reads a range that will be touched next.
    fn read_ahead(&self, range: usize) {
        let Some(before) = self.table.with(|table| table.take_to_move_out(range)) else {
            return;
        };
        let is_whole = !before.is_mixed && !self.is_cut(range);
        let is_out = before.state == State::Out && before.stored > 0 && is_whole;
        let taken = is_out.then(|| self.table.with(|table| table.take_page())).flatten();
        let Some(taken) = taken.and_then(|taken| self.filled(taken)) else {
            self.settle(range, &before, before);
            return;
        };
        let loaded = self.load(range, &taken, &before, Pages::default());
        let place = taken.place();
        let after = match loaded {
            Ok(hash) => {
                self.counters.heap.read_ahead.fetch_add(1, Relaxed);
                let after = Range { state: State::Waiting, hash, place, was_seen: false, ..before };
                let is_needed = self.table.with(|table| table.was_touched(range));
                self.counters.heap.ahead_used.fetch_add(is_needed.into(), Relaxed);
                if is_needed { self.bring_back(range, after) } else { after }
            }
            Err(_) => {
                self.give_page(place);
                before
            }
        };
        self.settle(range, &before, after);
    }

    /// Makes base pages free, `most` at most and no more than [`AT_ONCE`]; whether one is.
    pub(super) fn reclaim_base(&self, areas: &Areas, most: usize) -> bool {
        if most == 0 {
            return false;
        }
        let most = most.min(AT_ONCE);
        for _ in 0..TRIED.div_ceil(most) {
            let pages = self.next_base(areas, most);
            if pages.is_empty() {
                return self.reclaim_range();
            }
            let stays = |range, index| self.keep_base(areas, range, index);
            if self.evict_bases(&pages, stays) {
                return true;
            }
        }
        false
    }

    /// Has at most [`AT_ONCE`] base pages leave memory; whether one did. `stays` hears of each whose range somebody else has.
    fn evict_bases(&self, pages: &[(usize, usize)], stays: impl Fn(usize, usize)) -> bool {
        let evict = |staging: Span| {
            pages.iter().enumerate().fold(false, |evicted, (at, (range, index))| {
                let place = Span { start: staging.start + at * sys::PAGE, length: sys::PAGE };
                let is_done = self.evict_base(*range, *index, place);
                if is_done.is_none() {
                    stays(*range, *index);
                }
                is_done.unwrap_or(false) | evicted
            })
        };
        self.with_staging(evict).unwrap_or(false)
    }

    /// Makes the base pages of a range free of which the policy knows nothing, because a huge page could not be put in
    /// place: as a huge page again where that goes, else one by one.
    fn reclaim_range(&self) -> bool {
        let Some((range, resident)) = self.table.with(|table| table.next_base_range()) else {
            return false;
        };
        let is_full = resident == Pages::ALL;
        if is_full && self.promote(range) == Outcome::Done {
            return true;
        }
        let pages: Vec<(usize, usize)> = resident.iter().map(|index| (range, index)).collect();
        // What has left is given back to the kernel behind each part.
        let evict = |part| self.evict_bases(part, |_, _| ());
        pages.chunks(AT_ONCE).fold(false, |freed, part| evict(part) | freed)
    }

    /// Has a base page leave memory, which is moved to the empty place `place` where it has to be written or compared; whether it did
    /// leave, or nothing if somebody else has its range.
    fn evict_base(&self, range: usize, index: usize, place: Span) -> Option<bool> {
        let before = self.table.with(|table| table.take_to_move_out(range))?;
        let mut after = before;
        let is_there = before.state == State::Base && before.resident.has(index);
        let done = is_there && self.drop_base(range, index, place, &mut after).is_ok();
        if done {
            after.resident.remove(index);
            after.dirty.remove(index);
            self.rounds.left(range * PER_RANGE + index);
            if after.resident.is_empty() {
                after.state = State::Out;
                after.hash = Hash::UNKNOWN;
            }
        } else if is_there {
            self.counters.heap.stuck.fetch_add(1, Relaxed);
        }
        self.settle(range, &before, after);
        Some(done)
    }

    fn drop_base(&self, range: usize, index: usize, place: Span, after: &mut Range) -> Result<()> {
        let page = self.page(range, index);
        if !after.dirty.has(index) {
            // The file has it. A write that begins now is told, and waits.
            // SAFETY: the program finds it again.
            return unsafe { sys::madvise(page, libc::MADV_DONTNEED) }.map(|_| ());
        }
        let moved = self.take_out(page, place);
        after.is_protected = moved == Err(Errno::EINVAL) && self.is_protected(page);
        if after.is_protected {
            return self.drop_protected(range, index, after);
        }
        moved?;
        // SAFETY: the page was moved out of the heap.
        if unsafe { self.is_same(range, index, place.start, after) } {
            return Ok(());
        }
        let written = self.write_base(range, index, place.start, after);
        if written.is_err() {
            self.counters.heap.errors.fetch_add(1, Relaxed);
            self.put_back(page, place, Pages::ALL);
        }
        written
    }

    /// Whether the content of a base page, which is at an address, is still what it was when it came to memory.
    ///
    /// # Safety
    /// The content must be there, and nobody may change it.
    pub(super) unsafe fn is_same(
        &self,
        range: usize,
        index: usize,
        content: usize,
        entry: &Range,
    ) -> bool {
        // SAFETY: the caller's promise.
        let is_same = || unsafe { self.hashes.is_same(range * PER_RANGE + index, content) };
        entry.hashed.has(index) && is_same()
    }
}
