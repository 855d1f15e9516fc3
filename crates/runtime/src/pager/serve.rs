//! Faults: the program touches a page of the heap that is not there, or writes to one whose writes are told.

use super::choose::Wanted;
use super::file::{FilePage, behind};
use super::table::{Advised, Hash, Pages, Range, State, Taken};
use super::{PER_RANGE, Pager, SHORTEST_REST, bytes};
use crate::areas::Areas;
use crate::sys::{self, Errno, PAGE, Result, Span};
use crate::uffd::{Access, Fault, Kind, Writes};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use superpage_units::Nanos;

/// The time between two attempts to put a page in place while there is no memory: that of the kernel's clock, in which it
/// looks for some.
const BETWEEN_TRIALS: Nanos = Nanos(10_000_000);

/// Room for a base page, as a device wants it.
#[repr(C, align(4096))] // tidy: allow(an attribute takes a number only)
pub(super) struct Buffer([u8; PAGE]);

impl Buffer {
    pub(super) const fn zeroes() -> Self {
        Self([0; PAGE])
    }

    pub(super) fn address(&mut self) -> usize {
        self.0.as_mut_ptr().addr()
    }

    pub(super) fn content(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// A touch of a page that is not there.
#[derive(Clone, Copy, Debug)]
struct Touch {
    range: usize,
    index: usize,
    access: Access,
    /// Whether the range is in a stream that the program goes through.
    is_next: bool,
}

/// A range whose fault was served.
#[derive(Clone, Copy, Debug)]
struct Served {
    after: Range,
    /// When the thread that waited went on, if it did so already.
    woken: Option<Nanos>,
}

impl From<Range> for Served {
    fn from(after: Range) -> Self {
        Self { after, woken: None }
    }
}

impl Pager {
    /// Serves a fault.
    pub(crate) fn serve(&self, areas: &Areas, fault: Fault) {
        let begun = sys::now();
        let page = (fault.address - self.heap.start) / PAGE;
        let (range, index) = (page / PER_RANGE, page % PER_RANGE);
        // Streams are followed also where somebody else brings the range in: otherwise they would end there.
        let is_next = fault.kind == Kind::Missing && self.follow(range, index);
        let touch = Touch { range, index, access: fault.access, is_next };
        // Whoever has taken the range over wakes the thread, which faults again if it has to.
        let Some(before) = self.table.with(|table| table.take_over(range)) else { return };
        let Served { after, woken } = match (before.state, fault.kind) {
            (_, Kind::WriteProtected) => self.allow_writes(range, index, before).into(),
            (State::Waiting, _) => {
                self.count_soft(&before);
                self.bring_back(range, before).into()
            }
            (State::Base, _) if !before.resident.has(index) => self.bring_in(areas, &touch, before),
            (State::Out, _) => self.bring_in(areas, &touch, before),
            // The page came since the fault; or the program had the kernel drop it in a way that the library does not hear of.
            (State::Huge | State::Base | State::Busy, _) => {
                let to = self.page(range, index).start;
                let put = self.uffd.copy(Buffer::zeroes().address(), to, Writes::Free);
                let mut after = before;
                if put.is_ok() && before.state == State::Base {
                    after.dirty.add(index);
                }
                after.into()
            }
        };
        if !self.settle(range, &before, after) && woken.is_none() {
            self.uffd.wake(self.span(range));
        }
        if before.state != State::Huge && after.state == State::Huge {
            // A program may end before the workers look.
            self.note_sizes();
        }
        if fault.kind == Kind::Missing {
            let woken = woken.unwrap_or_else(sys::now);
            self.count_wait(Nanos(woken.0 - begun.0), &before, &after);
        }
        self.keep_to_size(areas);
        // The program will have the rest of the range next.
        if is_next && before.state == State::Base && after.state == State::Base {
            self.promote(range);
        }
    }

    /// Has a base page leave where there are more than there may be: the workers are slower than the program. Where there are more
    /// than 512 too many, this thread has them leave until 512 are: a range that gets no huge page brings 512 at once. The last 512
    /// are the workers', to whom memory that goes back to huge pages leaves them. While no base page leaves, because all are locked or
    /// pinned, this thread tries once in 10 ms.
    fn keep_to_size(&self, areas: &Areas) {
        loop {
            let over = self.table.with(|table| table.base_over());
            if over == 0 || sys::now().0 < self.base_stuck_until.load(Relaxed) {
                return;
            }
            if !self.reclaim_base(areas, 1) {
                self.base_stuck_until.store(sys::now().0 + SHORTEST_REST.0, Relaxed);
            }
            if over <= PER_RANGE {
                return;
            }
        }
    }

    /// Counts how long a fault was served. Not in it: the time until this thread had read of it, and faults that met a range
    /// which somebody else was changing.
    fn count_wait(&self, time: Nanos, before: &Range, after: &Range) {
        let counters = &self.counters.heap;
        let waited = match (before.state, after.state) {
            // The page came since the fault.
            (State::Huge | State::Busy, _) => return,
            (State::Waiting, _) => &counters.waited_soft,
            (_, State::Huge) => &counters.waited_huge,
            (_, State::Out | State::Waiting | State::Base | State::Busy) => &counters.waited_base,
        };
        waited.fetch_add(time.0, Relaxed);
        counters.waits.add(time);
    }

    /// Lets the program write to a base page, which counts as written from now on.
    fn allow_writes(&self, range: usize, index: usize, before: Range) -> Range {
        let mut after = before;
        if before.state == State::Base && before.resident.has(index) {
            after.dirty.add(index);
            self.counters.heap.write_faults.fetch_add(1, Relaxed);
        }
        // A huge page, which has come since, would be split by that.
        if before.state != State::Huge {
            self.uffd.allow_writes(self.page(range, index));
        }
        after
    }

    /// Follows the streams of the program, and has what comes next read; whether the range is in a stream.
    fn follow(&self, range: usize, index: usize) -> bool {
        let (is_next, due) = self.table.with(|table| {
            let advised = table.advised(range);
            if advised == Advised::Random {
                table.note_at_random();
                return (false, table.work_is_due());
            }
            let touched = table.follow(range, index);
            if advised == Advised::Sequential {
                table.read_on(range);
            }
            table.read_ahead(&touched);
            touched.passed.iter().for_each(|range| table.pass(range));
            (touched.length > 0 || advised == Advised::Sequential, table.work_is_due())
        });
        if due > 0 {
            self.tell(due);
        }
        is_next
    }

    /// Puts a huge page back that waited.
    pub(super) fn bring_back(&self, range: usize, before: Range) -> Range {
        let mut after = Range { was_seen: true, ..before };
        self.put_in_place(range, before.place, &mut after);
        after
    }

    fn bring_in(&self, areas: &Areas, touch: &Touch, before: Range) -> Served {
        let Touch { range, index, is_next, .. } = *touch;
        if before.state == State::Base {
            // A huge page is out of the question: the policy hears of the fault when the program goes on.
            let served = self.bring_in_base(touch, before);
            self.choose(areas, range, index, &before);
            return served;
        }
        let wanted = self.choose(areas, range, index, &before);
        // The kernel puts no huge page where the program may not write.
        let is_protected = || before.is_protected && self.is_protected(self.span(range));
        if !before.is_mixed
            && !is_protected()
            && (wanted == Wanted::Huge || is_next)
            && !self.is_cut(range)
            && let Some(after) = self.bring_in_huge(range, before)
        {
            self.counters.heap.huge_faults.fetch_add(1, Relaxed);
            return after.into();
        }
        self.bring_in_base(touch, before)
    }

    fn bring_in_huge(&self, range: usize, before: Range) -> Option<Range> {
        let taken = self.page_of_pool()?;
        let loaded = self.load(range, &taken, &before, Pages::default());
        let place = taken.place();
        let Ok(hash) = loaded else {
            self.give_page(place);
            return None;
        };
        let mut after = Range { hash, was_seen: true, ..before };
        self.put_in_place(range, place, &mut after);
        Some(after)
    }

    /// Fills a huge page of the pool with the content of a range, but for the pages `without`; the hash of it, if it has
    /// all.
    pub(super) fn load(
        &self,
        range: usize,
        taken: &Taken,
        entry: &Range,
        without: Pages,
    ) -> Result<Hash> {
        let place = taken.place();
        let to = self.place(place);
        if entry.stored == 0 {
            if let Taken::Used(_) = taken {
                // SAFETY: the page is in the pool and taken.
                unsafe { core::ptr::write_bytes(to.start as *mut u8, 0, to.length) };
            }
            return Ok(Hash::of(self.zeroes));
        }
        let mut index = 0;
        while index < PER_RANGE {
            let first = self.file_page(range, index);
            let mut count = 1;
            let follows = |count: usize| match first {
                0 => self.file_page(range, index + count) == 0,
                first => self.file_page(range, index + count) == behind(first, count),
            };
            while index + count < PER_RANGE && follows(count) {
                count += 1;
            }
            let part = Span { start: to.start + index * PAGE, length: count * PAGE };
            let is_needed = (index..index + count).any(|index| !without.has(index));
            match first {
                // SAFETY: the page is in the pool and taken.
                0 => unsafe { core::ptr::write_bytes(part.start as *mut u8, 0, part.length) },
                first if is_needed => {
                    // SAFETY: as above.
                    unsafe { self.file.read(first, count, part.start) }.inspect_err(|_| {
                        self.counters.heap.errors.fetch_add(1, Relaxed);
                    })?;
                    self.counters.heap.read_huge.fetch_add(bytes(count).0, Relaxed);
                }
                _ => {}
            }
            index += count;
        }
        Ok(if without.is_empty() { Hash::of(self.hash(place)) } else { Hash::UNKNOWN })
    }

    /// The page of the file that holds a page of the heap; zero if none does.
    pub(super) fn file_page(&self, range: usize, index: usize) -> FilePage {
        self.stored(range, index).map_or(0, |page| page.load(Relaxed))
    }

    /// Reads a base page, if the file holds it. Accesses to a page that cannot be read fail from then on.
    ///
    /// # Errors
    /// What the file says.
    pub(super) fn read_base(&self, range: usize, index: usize, buffer: &mut Buffer) -> Result<()> {
        let stored = self.file_page(range, index);
        if stored != 0 {
            // SAFETY: the buffer is a page.
            unsafe { self.file.read(stored, 1, buffer.address()) }.inspect_err(|_| {
                self.counters.heap.errors.fetch_add(1, Relaxed);
                self.mark(self.page(range, index).start);
            })?;
            self.counters.heap.read_base.fetch_add(bytes(1).0, Relaxed);
        }
        Ok(())
    }

    /// Has accesses to a page fail that could not be read.
    fn mark(&self, page: usize) {
        self.has_marks.store(true, Relaxed);
        // The kernel puts no mark where there is one that writes are told.
        self.uffd.allow_writes(Span { start: page, length: PAGE });
        self.uffd.poison(page);
    }

    /// Moves a huge page of the pool to its range, where nothing is.
    pub(super) fn put_in_place(&self, range: usize, place: u32, after: &mut Range) {
        let (from, to) = (self.place(place), self.span(range));
        if !after.is_mixed {
            // The fault itself has left page tables there, or base pages before it, and with those the kernel splits what is
            // moved there. It frees empty ones with the memory.
            // SAFETY: nothing of the heap is mapped there, and all of it is the heap's.
            let _ = unsafe { sys::madvise(to, libc::MADV_DONTNEED) };
            after.has_tables = false;
        }
        let move_all = || match after.is_mixed {
            true => Err(Errno::EINVAL),
            false => self.uffd.move_pages(from, to.start),
        };
        let mut moved = move_all();
        if moved == Err(Errno::EBUSY) {
            moved = move_all();
        }
        if moved.is_ok() {
            after.state = State::Huge;
            self.table.with(|table| table.give_empty(place));
            return;
        }
        // The range is more than one VMA, or one to which the kernel moves nothing: it gets base pages. What has moved
        // already is there.
        let mut resident = Pages::default();
        for index in 0..PER_RANGE {
            let offset = index * PAGE;
            if self.put_copy(from.start + offset, to.start + offset) {
                resident.add(index);
            }
        }
        *after = Range { state: State::Base, resident, dirty: resident, ..*after };
        after.has_tables = true;
        after.hash = Hash::UNKNOWN;
        self.give_page(place);
    }

    /// Puts a copy of a page in its place in the heap, unless one is there; whether one is: another mapping of the program's has
    /// none. Where there is no memory it waits for some, as a fault in ordinary memory does.
    pub(super) fn put_copy(&self, from: usize, to: usize) -> bool {
        loop {
            match self.uffd.copy(from, to, Writes::Free) {
                Ok(()) | Err(Errno::EEXIST) => return true,
                Err(Errno::ENOMEM | Errno::EAGAIN) => {
                    sys::futex_wait_for(&AtomicU32::new(0), 0, BETWEEN_TRIALS);
                }
                Err(_) => return false,
            }
        }
    }

    fn bring_in_base(&self, touch: &Touch, before: Range) -> Served {
        let Touch { range, index, access, .. } = *touch;
        let page = self.page(range, index);
        let mut buffer = Buffer::zeroes();
        if self.read_base(range, index, &mut buffer).is_err() {
            return Range { has_tables: true, ..before }.into();
        }
        // To be told of a write costs the program two wake-ups, to compare a page later next to nothing. But a page that the
        // program may not write to leaves without a look at it if writes are told.
        let is_hashed = access == Access::Read && !before.is_protected;
        let is_free = access == Access::Write || is_hashed;
        let writes = if is_free { Writes::Free } else { Writes::Told };
        let put = self.uffd.copy_and_wake(buffer.address(), page.start, writes);
        let woken = put.is_ok().then(sys::now);
        if is_hashed {
            // SAFETY: the buffer is a page of this thread's.
            unsafe { self.hashes.note(range * PER_RANGE + index, buffer.address()) };
        }
        // Writes to a page that is there already may not be told.
        let is_there = put == Err(Errno::EEXIST);
        let is_dirty = is_free || is_there;
        if put.is_err() && put != Err(Errno::EEXIST) {
            return before.into(); // the thread is woken, and tries again
        }
        self.counters.heap.base_faults.fetch_add(1, Relaxed);
        let room = self.table.with(|table| table.base_most);
        self.rounds.came(range * PER_RANGE + index, room);
        let mut after = Range { state: State::Base, hash: Hash::UNKNOWN, ..before };
        after.resident.add(index);
        after.has_tables = true;
        if is_dirty {
            after.dirty.add(index);
        }
        if is_hashed && !is_there {
            after.hashed.add(index);
        } else {
            after.hashed.remove(index);
        }
        Served { after, woken }
    }
}
