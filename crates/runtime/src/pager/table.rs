//! The state of each range of the heap, and where the pages of the pools are.
//!
//! ```text
//!                 fault: huge page                          clock
//!   Out ───────────────────────────────▶ Huge ◀──────────────────────────▶ Waiting ──▶ Out
//!    │                                     ▲          fault: it was in use       hashed, written if it
//!    │ fault: base page                    │                                     was changed
//!    └──────────────────▶ Base ────────────┘
//!                          │    promotion
//!                          └──▶ Out, page by page
//! ```
//!
//! Whoever changes a range takes it over first ([`Table::take_over`]): it is busy then, until it is settled, and whoever
//! waits for a fault in it is woken. No lock is held meanwhile.

use super::resize::PoolSizes;
use super::streams::{self, InMemory, Streams, Touched};
use super::{PER_RANGE, WORDS};
use crate::sys::{HUGE, PAGE};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range as Indices;
use superpage_units::Bytes;

/// Where the pages of a range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// No page is in memory. All zero bytes are this.
    Out = 0,
    /// A huge page maps it.
    Huge,
    /// The huge page was taken out of the heap and is still in memory, until it is written or needed again.
    Waiting,
    /// Some base pages are in memory.
    Base,
    /// Somebody is changing it.
    Busy,
}

/// A range of the heap. All zero bytes are one that never held anything.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Range {
    /// The content of the file, as a hash, of [`State::Huge`] and [`State::Waiting`], if it is known.
    pub(super) hash: Hash,
    /// The base pages that are in memory, of [`State::Base`].
    pub(super) resident: Pages,
    /// The resident pages that may have been written to.
    pub(super) dirty: Pages,
    /// The resident pages whose [hash](super::hashes) says whether they were written to.
    pub(super) hashed: Pages,
    /// The place of its huge page, of [`State::Waiting`].
    pub(super) place: u32,
    /// Changed each time the range is put in a queue, where older entries do not count any more.
    pub(super) stamp: u32,
    /// Changed each time a stream leaves the range behind, likewise.
    pub(super) passed: u32,
    /// The ranges that streams had left behind when it was settled last.
    pub(super) since: u32,
    /// The number of pages that lie in the file.
    pub(super) stored: u16,
    pub(super) state: State,
    /// Whether the program may have changed the huge page since its hash was taken.
    pub(super) was_seen: bool,
    /// Whether it has had base pages, or marks in their place, since its page tables were freed.
    pub(super) has_tables: bool,
    /// Whether a part of it is, or was, another mapping of the program's, such as a file: it gets base pages only.
    pub(super) is_mixed: bool,
    /// Whether a base page would not move because the program may not write there.
    pub(super) is_protected: bool,
    /// Whether a fault came while it was busy.
    pub(super) was_touched: bool,
    /// The program's advice about it.
    pub(super) advised: Advised,
}

/// How the program goes through a range, by its advice (madvise). All zero bytes are no advice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Advised {
    /// The program has given no advice (MADV_NORMAL).
    #[default]
    Nothing = 0,
    /// Here and there: nothing is read ahead, and base pages serve its faults (MADV_RANDOM).
    Random,
    /// In order, upwards: what comes next is read ahead from the first fault on (MADV_SEQUENTIAL).
    Sequential,
}

/// A queue of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// Ranges that huge pages map.
    Active,
    /// Ranges whose huge pages were moved out of the heap.
    Waiting,
    /// Ranges that were read ahead and not touched yet.
    Ahead,
}

impl Range {
    fn queue(&self) -> Option<Queue> {
        match self.state {
            State::Huge => Some(Queue::Active),
            State::Waiting if self.was_seen => Some(Queue::Waiting),
            State::Waiting => Some(Queue::Ahead),
            State::Out | State::Base | State::Busy => None,
        }
    }

    /// Whether it is in the file only.
    fn is_missing(&self) -> bool {
        self.state == State::Out && self.stored > 0
    }

    /// Whether it holds anything.
    fn is_used(&self) -> bool {
        self.state != State::Out || self.stored > 0
    }
}

/// The hash of a huge page's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Hash {
    pub(super) value: u128,
    pub(super) is_known: bool,
}

impl Hash {
    pub(super) const UNKNOWN: Self = Self { value: 0, is_known: false };

    pub(super) const fn of(value: u128) -> Self {
        Self { value, is_known: true }
    }
}

/// A set of the pages of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Pages([u64; WORDS]);

impl Pages {
    pub(super) const ALL: Self = Self([u64::MAX; WORDS]);

    pub(super) const fn has(&self, index: usize) -> bool {
        self.0[index / 64] & 1 << (index % 64) != 0
    }

    pub(super) fn add(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.0[index / 64] &= !(1 << (index % 64));
    }

    fn and(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|at| self.0[at] & other.0[at]))
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let pages = *self;
        (0..PER_RANGE).filter(move |index| pages.has(*index))
    }
}

/// A huge page of the pool, and where it lies.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The page holds anything.
    Used(u32),
    /// Nothing is mapped there.
    Fresh(u32),
}

impl Taken {
    /// The number of the place.
    pub(super) const fn place(&self) -> u32 {
        let (Self::Used(place) | Self::Fresh(place)) = *self;
        place
    }
}

/// Touches without a stream after which memory for huge pages goes to base pages. Chosen, not measured.
const AT_RANDOM: usize = 256;
/// The ranges that streams have left behind last, of which one is chosen to leave memory. Chosen, not measured.
const LOOKED_AT: usize = 64; // tidy: allow(not derived from a size)
/// The most ranges that are looked at to each side of a range, for one that has left memory. Chosen, not measured.
const MOST_APART: usize = 16;
/// Huge pages that there may always be. Chosen, not measured.
const LEAST_HUGE: usize = 2;
/// Base pages that are kept free at the most. Chosen, not measured: 1 MiB.
const MOST_FREE_BASE: usize = 256;

/// A range that a stream has left behind, and what it had then.
#[derive(Clone, Copy, Debug)]
struct Passed {
    range: u32,
    stamp: u32,
    passed: u32,
}

impl Passed {
    /// Whether the range is still as it was.
    fn is_current(self, ranges: &[Range]) -> bool {
        ranges.get(self.range as usize).is_some_and(|range| {
            range.state == State::Huge && range.stamp == self.stamp && range.passed == self.passed
        })
    }
}

/// What is mapped in the heap.
struct Mapped<'a>(&'a [Range]);

impl InMemory for Mapped<'_> {
    fn has_page(&self, page: i64) -> bool {
        let Ok(page) = usize::try_from(page) else { return false };
        self.0.get(page / PER_RANGE).is_some_and(|range| match range.state {
            State::Huge => true,
            State::Base => range.resident.has(page % PER_RANGE),
            State::Out | State::Waiting | State::Busy => false,
        })
    }

    fn has_range(&self, range: i64) -> bool {
        let range = usize::try_from(range).ok().and_then(|range| self.0.get(range));
        range.is_some_and(|range| range.state == State::Huge)
    }
}

/// The ranges, and the pools.
#[derive(Debug)]
pub(super) struct Table {
    ranges: &'static mut [Range],
    /// The ranges that huge pages map, the oldest first.
    active: VecDeque<(u32, u32)>,
    /// Those of them that a stream has left behind, the last one last.
    passed: Vec<Passed>,
    /// The ranges that were left behind so far.
    passes: u32,
    /// The ranges that hold anything.
    used: usize,
    /// The ranges whose huge pages wait, the oldest first.
    waiting: VecDeque<(u32, u32)>,
    waiting_count: usize,
    /// The ranges that were read ahead and not touched yet, the oldest first.
    ahead: VecDeque<(u32, u32)>,
    ahead_count: usize,
    /// Places of huge pages that were reclaimed, and of those that the program gave back.
    free: Vec<u32>,
    spare: Vec<u32>,
    /// Places without a page.
    empty: Vec<u32>,
    /// Huge pages that there are, and that there may be.
    made: usize,
    most: usize,
    /// Base pages in the heap, and how many there may be.
    pub(super) base: usize,
    pub(super) base_most: usize,
    /// How many base pages there may be at first.
    base_least: usize,
    /// Touches since a range was read ahead last.
    at_random: usize,
    /// Where the search for a range with base pages goes on.
    next_base: usize,
    /// Ranges to be read ahead.
    reads: VecDeque<u32>,
    /// The workers that have base pages leave.
    pub(super) base_workers: usize,
    /// Whether the policy may want a promotion.
    pub(super) may_promote: bool,
    streams: Streams,
    /// Whether nothing may leave memory: the program forks.
    pub(super) is_held: bool,
}

/// The work that is to be done in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A huge page is to be free.
    Reclaim,
    /// A free huge page is to go, because there are more than there may be.
    Drop(u32),
    /// A range is to be read ahead.
    Read(usize),
    /// The policy is to be asked.
    Promote,
    /// This number of base pages is to be free.
    ReclaimBase(usize),
}

impl Table {
    /// A table of ranges that never held anything, with pools of these sizes, the huge pages in so many places.
    pub(super) fn new(ranges: &'static mut [Range], pools: PoolSizes, places: u32) -> Self {
        let room = ranges.len();
        Self {
            ranges,
            active: VecDeque::with_capacity(2 * room),
            passed: Vec::with_capacity(2 * room),
            passes: 0,
            used: 0,
            waiting: VecDeque::with_capacity(2 * room),
            waiting_count: 0,
            ahead: VecDeque::with_capacity(2 * room),
            ahead_count: 0,
            free: Vec::with_capacity(places as usize),
            spare: Vec::with_capacity(places as usize),
            empty: (0..places).rev().collect(),
            made: 0,
            most: pools.huge,
            base: 0,
            base_most: pools.base,
            base_least: pools.base,
            at_random: 0,
            next_base: 0,
            reads: VecDeque::with_capacity(room),
            base_workers: 0,
            may_promote: false,
            streams: Streams::default(),
            is_held: false,
        }
    }

    /// Gives the pools other sizes. Memory for huge pages that went to base pages stays with these where that can be.
    pub(super) fn resize(&mut self, pools: PoolSizes) {
        let turned = (self.base_most - self.base_least) / PER_RANGE;
        let turned = turned.min(pools.huge.saturating_sub(LEAST_HUGE));
        self.most = pools.huge - turned;
        self.base_least = pools.base;
        self.base_most = pools.base + turned * PER_RANGE;
    }

    /// Makes it the table of the child of a fork, which has none of the huge pages that were free, so many places without a
    /// page, and base pages whose writes are not told.
    pub(super) fn pass_to_child(&mut self, places: u32) {
        self.made -= self.free.len() + self.spare.len();
        self.free.clear();
        self.spare.clear();
        self.empty.clear();
        self.empty.extend((0..places).rev());
        self.reads.clear();
        for range in self.ranges.iter_mut() {
            range.dirty = range.resident;
        }
        self.is_held = false;
    }

    /// The number of ranges.
    pub(super) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// A range.
    pub(super) fn range(&self, range: usize) -> Option<&Range> {
        self.ranges.get(range)
    }

    /// Takes a range over; nothing if somebody else has, who wakes the threads that wait for faults in it.
    pub(super) fn take_over(&mut self, range: usize) -> Option<Range> {
        let entry = self.ranges.get_mut(range)?;
        if entry.state == State::Busy {
            entry.was_touched = true;
            return None;
        }
        let before = *entry;
        entry.state = State::Busy;
        entry.was_touched = false;
        Some(before)
    }

    /// As [`Table::take_over`], to move pages out of the heap; nothing while none may leave it.
    pub(super) fn take_to_move_out(&mut self, range: usize) -> Option<Range> {
        if self.is_held { None } else { self.take_over(range) }
    }

    /// The next range that has base pages, and these.
    pub(super) fn next_base_range(&mut self) -> Option<(usize, Pages)> {
        let count = self.ranges.len();
        let from = self.next_base;
        let mut all = (from..count).chain(0..from);
        let found = all.find(|range| self.ranges[*range].state == State::Base)?;
        self.next_base = found + 1;
        Some((found, self.ranges[found].resident))
    }

    /// Whether a fault came since the range was taken over.
    pub(super) fn was_touched(&self, range: usize) -> bool {
        self.ranges.get(range).is_some_and(|range| range.was_touched)
    }

    /// Lets go of a range; whether a fault came meanwhile, whose thread is to be woken.
    pub(super) fn settle(&mut self, range: usize, before: &Range, after: Range) -> bool {
        let Some(entry) = self.ranges.get_mut(range) else { return false };
        let stamp = entry.stamp.wrapping_add(1);
        let was_touched = entry.was_touched;
        let hashed = after.hashed.and(&after.resident);
        *entry = Range { stamp, hashed, was_touched: false, since: self.passes, ..after };
        self.used = self.used + usize::from(after.is_used()) - usize::from(before.is_used());
        let Ok(number) = u32::try_from(range) else { return was_touched };
        match before.queue() {
            Some(Queue::Waiting) => self.waiting_count -= 1,
            Some(Queue::Ahead) => self.ahead_count -= 1,
            Some(Queue::Active) | None => {}
        }
        if let Some(queue) = after.queue() {
            self.put_in(queue, number, stamp);
        }
        self.base = self.base + after.resident.count() - before.resident.count();
        was_touched
    }

    /// Puts a range in a queue, where it is not.
    fn put_in(&mut self, of: Queue, range: u32, stamp: u32) {
        let queue = match of {
            Queue::Active => &mut self.active,
            Queue::Waiting => &mut self.waiting,
            Queue::Ahead => &mut self.ahead,
        };
        // Ranges that have left a queue otherwise than as its oldest are still in it.
        if queue.len() == 2 * self.ranges.len() {
            let ranges = &*self.ranges;
            queue.retain(|&(range, stamp)| {
                let range = ranges.get(range as usize);
                range.is_some_and(|range| range.stamp == stamp && range.queue() == Some(of))
            });
        }
        queue.push_back((range, stamp));
        match of {
            Queue::Waiting => self.waiting_count += 1,
            Queue::Ahead => self.ahead_count += 1,
            Queue::Active => {}
        }
    }

    /// Takes the oldest range of a queue over; nothing while no page may leave memory.
    pub(super) fn take_oldest(&mut self, of: Queue) -> Option<(usize, Range)> {
        if self.is_held {
            return None;
        }
        loop {
            let queue = match of {
                Queue::Active => &mut self.active,
                Queue::Waiting => &mut self.waiting,
                Queue::Ahead => &mut self.ahead,
            };
            let (number, stamp) = queue.pop_front()?;
            let range = number as usize;
            let is_current = |found: &&Range| found.stamp == stamp && found.queue() == Some(of);
            if self.range(range).filter(is_current).is_some() {
                return Some((range, self.take_over(range)?));
            }
        }
    }

    /// Takes the range over that waits for longest, if streams have left behind as many ranges since as hold anything: in a
    /// program that goes through its data again and again, what it uses was touched in that time.
    pub(super) fn take_unused(&mut self) -> Option<(usize, Range)> {
        let is_waiting =
            |found: &&Range, stamp| found.stamp == stamp && found.queue() == Some(Queue::Waiting);
        while let Some(&(number, stamp)) = self.waiting.front() {
            match self.range(number as usize).filter(|found| is_waiting(found, stamp)) {
                Some(found) if self.passes.wrapping_sub(found.since) as usize > self.used => {
                    return self.take_oldest(Queue::Waiting);
                }
                Some(_) => return None,
                None => self.waiting.pop_front(),
            };
        }
        None
    }

    /// Notes for the streams that a page of a range was touched.
    pub(super) fn follow(&mut self, range: usize, index: usize) -> Touched {
        let run = if self.has_turned_to_base() { streams::RUN_ON_BASE } else { streams::RUN };
        let touched = self.streams.touch(range, index, run, &Mapped(self.ranges));
        self.at_random = if !touched.ahead.is_empty() { 0 } else { self.at_random + 1 };
        touched
    }

    /// Notes a touch of a range that is said to be gone through at random.
    pub(super) fn note_at_random(&mut self) {
        self.at_random += 1;
    }

    /// Notes that a stream has left a range behind.
    pub(super) fn pass(&mut self, range: usize) {
        let Some(entry) = self.ranges.get_mut(range) else { return };
        let (Ok(range), State::Huge) = (u32::try_from(range), entry.state) else { return };
        self.passes = self.passes.wrapping_add(1);
        entry.passed = self.passes;
        let passed = Passed { range, stamp: entry.stamp, passed: self.passes };
        if self.passed.len() == 2 * self.ranges.len() {
            let ranges = &*self.ranges;
            self.passed.retain(|passed| passed.is_current(ranges));
        }
        self.passed.push(passed);
    }

    /// Takes a range over that a stream has left behind: one of the last, because the next pass comes to them after all others,
    /// and of those the furthest from ranges that have left memory, so that the next pass reads one while it is at what lies
    /// between.
    pub(super) fn take_passed(&mut self) -> Option<(usize, Range)> {
        if self.is_held {
            return None;
        }
        while self.passed.last().is_some_and(|passed| !passed.is_current(self.ranges)) {
            self.passed.pop();
        }
        let last = self.passed.len().checked_sub(1)?;
        // A range that was left behind half a pass before will be needed sooner.
        let is_new =
            |passed: &Passed| self.passes.wrapping_sub(passed.passed) as usize <= self.used / 2;
        let looked =
            self.passed.iter().enumerate().skip(self.passed.len().saturating_sub(LOOKED_AT));
        let fit = looked.filter(|(_, passed)| is_new(passed) && passed.is_current(self.ranges));
        let apart = self.apart();
        let furthest = fit.max_by_key(|(_, passed)| self.distance(passed.range as usize, apart));
        let range = self.passed.remove(furthest.map_or(last, |(at, _)| at)).range as usize;
        Some((range, self.take_over(range)?))
    }

    /// How far a range is from the next that has left memory, which is one more than `most` where that is further.
    fn distance(&self, range: usize, most: usize) -> usize {
        let is_missing = |at: usize| self.range(at).is_some_and(Range::is_missing);
        let is_near =
            |by: &usize| is_missing(range + by) || range.checked_sub(*by).is_some_and(is_missing);
        (1..=most).find(is_near).unwrap_or(most + 1)
    }

    /// Half the distance between the ranges that have left memory, if they were spread evenly over all that hold anything.
    fn apart(&self) -> usize {
        let missing = self.used.saturating_sub(self.made).max(1);
        (self.used / missing / 2).min(MOST_APART)
    }

    /// Takes a huge page that nobody uses.
    pub(super) fn take_page(&mut self) -> Option<Taken> {
        if let Some(place) = self.spare.pop().or_else(|| self.free.pop()) {
            return Some(Taken::Used(place));
        }
        if self.made < self.most { self.take_more() } else { None }
    }

    /// Takes one more huge page than there may be, or one that there may be.
    pub(super) fn take_more(&mut self) -> Option<Taken> {
        let place = self.empty.pop()?;
        self.made += 1;
        Some(Taken::Fresh(place))
    }

    /// Gives a huge page back that was reclaimed. Whether it is to go, because there are more than there may be: its place
    /// is the caller's until it holds nothing ([`Table::give_empty`]).
    pub(super) fn give_page(&mut self, place: u32) -> bool {
        if self.made > self.most {
            self.made -= 1;
            return true;
        }
        self.free.push(place);
        false
    }

    /// Gives a huge page back that the program does not need any more.
    pub(super) fn give_spare(&mut self, place: u32) -> bool {
        if self.made > self.most {
            return self.give_page(place);
        }
        self.spare.push(place);
        false
    }

    /// A huge page is gone that was in the heap, or was never had.
    pub(super) fn lose_page(&mut self) {
        self.made -= 1;
    }

    /// Takes a place without a page.
    pub(super) fn take_empty(&mut self) -> Option<u32> {
        self.empty.pop()
    }

    /// A place holds no page.
    pub(super) fn give_empty(&mut self, place: u32) {
        self.empty.push(place);
    }

    /// Huge pages that are free without being reclaimed.
    pub(super) fn free_from_the_start(&self) -> usize {
        self.spare.len() + self.most.saturating_sub(self.made)
    }

    /// The bytes that are in the file and not in memory, at most.
    pub(super) fn out(&self) -> usize {
        let pages = |range: &Range| match range.state {
            State::Out if range.stored > 0 => PER_RANGE,
            State::Base => usize::from(range.stored),
            State::Out | State::Huge | State::Waiting | State::Busy => 0,
        };
        self.ranges.iter().map(pages).sum::<usize>() * PAGE
    }

    /// Huge pages that there are and may be.
    pub(super) fn huge(&self) -> (usize, usize) {
        (self.made, self.most)
    }

    /// A page of a range is marked that could not be read.
    pub(super) fn note_mark(&mut self, range: usize) {
        if let Some(entry) = self.ranges.get_mut(range) {
            entry.has_tables = true;
        }
    }

    /// The memory that the pools take.
    pub(super) fn there(&self) -> Bytes {
        Bytes((self.made * HUGE + self.base * PAGE) as u64)
    }

    /// The program's advice about a range.
    pub(super) fn advised(&self, range: usize) -> Advised {
        self.range(range).map_or(Advised::Nothing, |range| range.advised)
    }

    /// Has ranges read ahead that the program will need, at the most half of the huge pages that there may be.
    pub(super) fn will_need(&mut self, ranges: Indices<usize>) {
        ranges.take(self.most / 2).for_each(|range| self.have_read(range));
    }

    /// Has ranges read ahead behind one that is said to be gone through in order.
    pub(super) fn read_on(&mut self, range: usize) {
        let most = usize::try_from(streams::MOST_AHEAD).unwrap_or(0);
        let next = range + 1..range + 1 + most;
        let is_next = |range: &usize| self.advised(*range) == Advised::Sequential;
        let count = next.clone().take_while(is_next).count();
        next.take(count).for_each(|range| self.have_read(range));
    }

    /// Has ranges read ahead that are in the file and not in memory.
    pub(super) fn read_ahead(&mut self, touched: &Touched) {
        touched.ahead.iter().for_each(|range| self.have_read(range));
        let state = |range: usize| self.range(range).map(|range| range.state);
        if touched.next.iter().all(|range| state(range) == Some(State::Huge)) {
            let is_missing = |range: &usize| self.range(*range).is_some_and(Range::is_missing);
            if let Some(range) = touched.beyond.iter().find(is_missing) {
                self.have_read(range);
            }
        }
    }

    fn have_read(&mut self, range: usize) {
        let is_worth_it = self.reads.len() < self.ranges.len()
            && self.range(range).is_some_and(|range| match range.state {
                State::Out => range.stored > 0,
                State::Base => true,
                State::Huge | State::Waiting | State::Busy => false,
            });
        if let (true, Ok(number)) = (is_worth_it, u32::try_from(range)) {
            self.reads.push_back(number);
            self.turn_to_huge();
        }
    }

    /// Whether memory for huge pages goes to base pages: the program has touched pages at random for a while, and all that
    /// there may be of huge pages is there.
    fn may_turn_to_base(&self) -> bool {
        self.at_random >= AT_RANDOM && self.most > LEAST_HUGE && self.made <= self.most
    }

    /// Memory that went to base pages is for huge pages again, unless too many base pages are to leave it first.
    fn turn_to_huge(&mut self) {
        if self.has_turned_to_base() && self.base < self.base_most + PER_RANGE {
            self.most += 1;
            self.base_most -= PER_RANGE;
        }
    }

    /// Whether memory for huge pages went to base pages.
    pub(super) fn has_turned_to_base(&self) -> bool {
        self.base_most > self.base_least
    }

    /// Huge pages that can be had at once.
    fn available(&self) -> usize {
        self.free.len() + self.free_from_the_start()
    }

    /// Huge pages that are kept free. Chosen, not measured: one in 64, from two to eight, but one where there are few.
    fn low(&self) -> usize {
        (self.most / 64).clamp(2, 8).min(self.most / 2)
    }

    /// The base pages that there are more than there may be, as far as pages may leave.
    pub(super) fn base_over(&self) -> usize {
        if self.is_held { 0 } else { self.base.saturating_sub(self.base_most) }
    }

    /// The number of base pages that workers are to have leave: as many as [`Table::free_base`] is short of.
    pub(super) fn base_to_leave(&self) -> usize {
        (self.base + self.free_base()).saturating_sub(self.base_most)
    }

    /// Whether one more worker is to have base pages leave. The first is woken when half of the pages that workers leave free are taken,
    /// so that one wake-up serves many faults; the second when a quarter is left, and each further one when half of that is.
    fn is_base_due(&self) -> bool {
        self.base + (self.free_base() >> (self.base_workers + 1)) > self.base_most
    }

    /// Base pages that are kept free. Chosen, not measured: a sixteenth.
    fn free_base(&self) -> usize {
        (self.base_most / 16).min(MOST_FREE_BASE)
    }

    /// Whether few huge pages wait to be touched again. Chosen, not measured: less than an eighth.
    pub(super) fn is_waiting_low(&self) -> bool {
        self.waiting_count < self.most / 8
    }

    /// Whether much was read ahead that nobody has touched. Chosen, not measured: an eighth.
    pub(super) fn is_far_ahead(&self) -> bool {
        self.ahead_count > (self.most / 8).max(1)
    }

    /// The workers that there is work for.
    pub(super) fn work_is_due(&self) -> usize {
        let is_low = self.available() < self.low() || self.made > self.most;
        let others = [is_low, self.may_promote, self.is_base_due()];
        self.reads.len() + others.into_iter().filter(|is_due| *is_due).count()
    }

    /// The work to be done next.
    pub(super) fn work(&mut self) -> Option<Work> {
        if self.is_held {
            return None;
        }
        if self.made > self.most
            && let Some(place) = self.free.pop().or_else(|| self.spare.pop())
        {
            self.made -= 1;
            return Some(Work::Drop(place));
        }
        let available = self.available();
        if (available < self.low() || self.made > self.most)
            && (self.waiting_count + self.ahead_count > 0 || !self.active.is_empty())
        {
            return Some(Work::Reclaim);
        }
        // Pages that the program waits for come before those that it may want.
        if self.may_promote {
            self.may_promote = false;
            return Some(Work::Promote);
        }
        if available > 0
            && let Some(range) = self.reads.pop_front()
        {
            return Some(Work::Read(range as usize));
        }
        let to_leave = self.base_to_leave();
        if to_leave > 0 && self.may_turn_to_base() {
            self.most -= 1;
            self.base_most += PER_RANGE;
            return self.work();
        }
        let is_due = if self.base_workers == 0 { to_leave > 0 } else { self.is_base_due() };
        self.base_workers += usize::from(is_due);
        is_due.then_some(Work::ReclaimBase(to_leave))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with huge pages in all of its ranges.
    fn full(count: usize) -> Table {
        let ranges: Vec<Range> = (0..count)
            // SAFETY: zero bytes are a range that never held anything.
            .map(|_| unsafe { core::mem::zeroed() })
            .collect();
        let pools = PoolSizes { huge: count, base: 64 };
        let places = u32::try_from(count).expect("few") + 8;
        let mut table = Table::new(ranges.leak(), pools, places);
        (0..count).for_each(|range| turn(&mut table, range, State::Huge));
        table.made = count;
        table
    }

    /// Has a range be in this state, with all of its pages in the file as well.
    fn turn(table: &mut Table, range: usize, state: State) {
        let before = table.take_over(range).expect("nobody has it");
        let place = u32::try_from(range).expect("few");
        let after = Range { state, place, stored: 512, was_seen: true, ..before };
        table.settle(range, &before, after);
    }

    /// Takes a range that was left behind, which leaves memory.
    fn leave(table: &mut Table) -> usize {
        let (range, before) = table.take_passed().expect("some were left behind");
        table.settle(range, &before, Range { state: State::Out, ..before });
        table.made -= 1;
        range
    }

    #[test]
    fn ranges_that_leave_memory_lie_apart() {
        let mut table = full(40);
        (0..20).for_each(|range| table.pass(range));
        assert_eq!(leave(&mut table), 19, "the last first");
        assert_eq!(leave(&mut table), 2, "16 to each side stay, while one is missing");
        assert_eq!([0; 4].map(|_| leave(&mut table)), [11, 15, 7, 17]);
    }

    #[test]
    fn a_range_is_unused_once_streams_have_been_everywhere() {
        let mut table = full(10);
        turn(&mut table, 3, State::Waiting);
        turn(&mut table, 5, State::Waiting);
        assert!(table.take_unused().is_none());
        (0..10).cycle().take(12).for_each(|range| table.pass(range));
        assert!(table.take_unused().is_none(), "the ranges that wait are not left behind");
        (0..3).for_each(|range| table.pass(range));
        // It was touched meanwhile.
        turn(&mut table, 3, State::Huge);
        assert_eq!(table.take_unused().map(|(range, _)| range), Some(5));
        assert!(table.take_unused().is_none());
    }
}
