//! Quicksilver, Sync-t and Async-t ("Understanding Transparent Superpage Management", ;login:
//! 2020: Table 1, sections "Superpage Management Designs" and "Evaluation").
//!
//! A huge frame is reserved at the first touch, as in [`super::freebsd`], and populated in place.
//! With `t` base pages prepared the rest of the frame is prepared at once: within that fault
//! (Sync-t), or in the background (Async-t). Before free huge frames run out, frames that are
//! partly used and idle are evacuated in the background, and memory is compacted. A superpage that is
//! freed in part is a reservation again until then (Table 1, "Deallocation").
//!
//! *Relaxed mapping*: FreeBSD waits until a program has touched every base page of a range. Here a
//! superpage is mapped as soon as its frame is prepared, with base pages in it that nobody has
//! touched.
//!
//! A range that reaches beyond the end of a growing heap is reserved too. It cannot be mapped by a
//! superpage yet, whatever its present pages; once the heap has passed it, it is.
//!
//! Deviations:
//! - The article names no marks. When huge frames count as short, how long is idle, and how long
//!   to wait after a failure are chosen, not measured ([`Options`]).
//! - Where an evacuation finds no frame for what it has to move, the reservation that was populated longest ago is given back, as
//!   FreeBSD's allocator does for a page that it cannot find (`vm_reserv_reclaim_inactive()` in vm/vm_reserv.c).
//! - The next fault in a superpage that was freed in part prepares all of it again, where `t` base pages of it are left. The article
//!   does not say so.
//! - A partly used superpage is one that was mapped before all of it was touched; what of it was
//!   touched since cannot be seen. Reservations go first, because less has to be moved.
//! - Compaction is [`Compaction::Smart`]: moving the least out of a frame is the nearest to choosing
//!   fragmented frames, which the article says of its own. FreeBSD has no compaction.
//! - Those of [`super::freebsd`] on speculation, advice and page queues.

use super::backoff::BackOff;
use super::capabilities::{Capabilities, IdleReclaim};
use super::freebsd::give_back_oldest;
use super::life::{Allocation, Deallocation, Life, Mapped, Preparation, Unmapping};
use super::queue::Queue;
use super::reservations::{Reservation, Reservations, Speculation, is_reservable, is_reserved};
use super::scan::{Hand, is_huge_free_memory_short, vma_holding};
use super::{
    Act, Action, Attempt, Cause, Fault, FaultCause, FaultPlan, How, Outcome, Policy, RangeView,
    Shortage, Step, View, Zeroed,
};
use crate::compaction::Compaction;
use crate::free_memory::FreeMemory;
use alloc::collections::BTreeSet;
use superpage_units::{BasePages, Mapping, Nanos, PageSize, PmdRange, ProcessKey, Share, Time};

/// Who prepares the rest of a superpage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The fault that reaches the threshold.
    Sync,
    /// The background, after that fault.
    Async,
}

/// Quicksilver's choices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The base pages that must be prepared before the rest is (`t`; section "Superpage
    /// Management Designs"); at least 1.
    pub threshold: BasePages,
    /// Who prepares the rest.
    pub mode: Mode,
    /// Whether ranges beyond the end of a heap are reserved (observation 3).
    pub speculation: Speculation,
    /// Free huge frames are short below this share of all memory.
    pub free_huge: Share,
    /// A frame may be evacuated when it was not populated or accessed for so long.
    pub idle: Nanos,
    /// How often the free memory is looked at, and how long nothing is moved after that failed.
    pub pause: Nanos,
    /// How to compact.
    pub compaction: Compaction,
}

impl Options {
    /// Sync-1: prepares as Linux does.
    pub const SYNC_1: Self = Self::with(BasePages(1), Mode::Sync);
    /// Sync-64.
    pub const SYNC_64: Self = Self::with(BasePages(64), Mode::Sync);
    /// Async-64.
    pub const ASYNC_64: Self = Self::with(BasePages(64), Mode::Async);
    /// Async-256.
    pub const ASYNC_256: Self = Self::with(BasePages(256), Mode::Async);

    /// This variant. The other values are chosen, not measured.
    #[must_use]
    pub const fn with(threshold: BasePages, mode: Mode) -> Self {
        Self {
            threshold,
            mode,
            speculation: Speculation::Growing,
            free_huge: Share::percent(10),
            idle: Nanos(5_000_000_000),
            pause: Nanos(1_000_000_000),
            compaction: Compaction::Smart,
        }
    }
}

/// The policy. Its state is what it reserved, what it mapped early, and what awaits promotion.
#[derive(Clone, Debug)]
pub struct Quicksilver {
    options: Options,
    /// Reserved and not yet mapped by a superpage.
    reservations: Reservations,
    /// Mapped by a superpage before all of it was touched.
    early: Reservations,
    /// At the threshold, to be promoted in the background.
    ready: Queue<(ProcessKey, PmdRange)>,
    /// At the threshold, but reaching beyond the heap's end.
    beyond: BTreeSet<(ProcessKey, PmdRange)>,
    defragmentation: BackOff,
    /// Whether an evacuation found no frame for what it had to move.
    needs_frames: bool,
    clock: Hand,
}

impl Quicksilver {
    /// This variant, nothing reserved.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            reservations: Reservations::default(),
            early: Reservations::default(),
            ready: Queue::default(),
            beyond: BTreeSet::new(),
            defragmentation: BackOff::default(),
            needs_frames: false,
            clock: Hand::default(),
        }
    }

    /// Serves a fault in a range that is reserved, or that `first` would reserve, and notes what
    /// follows from it.
    fn prepare(&mut self, fault: &Fault, view: &dyn View, first: Option<Attempt>) -> FaultPlan {
        let range = PmdRange::containing(fault.address);
        let place = (fault.process, range);
        let prepared = fault.range.present + BasePages(1);
        let is_held = fault.vma.holds(range.into());
        let in_place = first.unwrap_or(Attempt::InPlace);
        self.reservations.touch(fault.process, range, view.now());
        if prepared < self.options.threshold {
            return FaultPlan::try_first(in_place, FaultCause::Prepared(prepared));
        }
        let cause = FaultCause::Threshold(prepared);
        if !is_held {
            self.beyond.insert(place);
        } else if self.options.mode == Mode::Async {
            self.ready.push_back(place);
        } else {
            self.mapped(fault.process, range, prepared, view.now());
            return FaultPlan::try_first(whole(first), cause);
        }
        FaultPlan::try_first(in_place, cause)
    }

    /// From the reservations to the superpages that were mapped early, if this is early.
    fn mapped(&mut self, process: ProcessKey, range: PmdRange, prepared: BasePages, now: Time) {
        self.reservations.remove(process, range);
        if prepared < PageSize::Huge.base_pages() {
            self.early.touch(process, range, now);
        }
    }

    /// The next promotion of a range that is prepared far enough.
    fn promotion(&mut self, view: &dyn View) -> Option<Action> {
        while let Some((process, range)) = self.ready.pop_front() {
            if let Some(present) = completable(view, process, range) {
                let cause = Cause::Threshold(present);
                return Some(self.promote(view, process, range, present, cause));
            }
        }
        self.beyond.retain(|(process, range)| view.range(*process, *range).is_reserved);
        let passed = |place: &(ProcessKey, PmdRange)| completable(view, place.0, place.1);
        let (place, present) =
            self.beyond.iter().find_map(|place| Some((*place, passed(place)?)))?;
        self.beyond.remove(&place);
        Some(self.promote(view, place.0, place.1, present, Cause::HeapGrew))
    }

    fn promote(
        &mut self,
        view: &dyn View,
        process: ProcessKey,
        range: PmdRange,
        present: BasePages,
        cause: Cause,
    ) -> Action {
        self.mapped(process, range, present, view.now());
        let act = Act::Promote { process, page: range.into(), how: How::InPlace };
        Action { act, cause }
    }

    /// Whether free huge frames are short, and more could be had: what is reserved and not populated is free memory, too.
    fn is_short(&self, free_memory: &FreeMemory) -> bool {
        let share = self.options.free_huge;
        let has_few = free_memory.huge_pages().base_pages().share_of(free_memory.total) < share;
        is_huge_free_memory_short(free_memory, share) || (has_few && !self.reservations.is_empty())
    }

    /// The partly used frame to evacuate next: of those that are idle long enough, the one
    /// populated longest ago; reservations first.
    fn evacuation(&mut self, view: &dyn View) -> Option<Action> {
        let idle = self.options.idle;
        let is_idle = |one: &Reservation| unused(one) >= idle;
        // A superpage is in use as long as nobody can see that it is not.
        let is_inactive = |one: &Reservation| one.seen.idle.is_some() && is_idle(one);
        let is_reserved = |seen: &RangeView| seen.is_reserved;
        let is_huge = |seen: &RangeView| seen.mapping == Mapping::Huge;
        let found = self
            .reservations
            .take_oldest(view, is_reserved, is_idle)
            .or_else(|| self.early.take_oldest(view, is_huge, is_inactive))?;
        let act = Act::Evacuate { process: found.process, range: found.range };
        Some(Action { act, cause: Cause::Idle(unused(&found)) })
    }
}

/// How long nobody has populated it nor, as far as that can be seen, accessed it.
fn unused(one: &Reservation) -> Nanos {
    one.seen.idle.map_or(one.age, |idle| one.age.min(idle))
}

/// The attempt that maps a whole superpage, for a range that is reserved or that `first` would
/// reserve.
fn whole(first: Option<Attempt>) -> Attempt {
    match first {
        None => Attempt::Complete,
        Some(_) => {
            Attempt::Map { size: PageSize::Huge, compaction: None, zeroed: Zeroed::Preferred }
        }
    }
}

/// The present pages of a reserved range that could be mapped by a superpage.
fn completable(view: &dyn View, process: ProcessKey, range: PmdRange) -> Option<BasePages> {
    let seen = view.range(process, range);
    let is_reserved = seen.is_reserved && seen.mapping == Mapping::Base;
    vma_holding(view, process, range.into()).filter(|_| is_reserved)?;
    Some(seen.present)
}

impl Policy for Quicksilver {
    fn fault(&mut self, fault: &Fault, view: &dyn View) -> FaultPlan {
        if is_reserved(fault) {
            self.prepare(fault, view, None)
        } else if is_reservable(fault, view, self.options.speculation) {
            self.prepare(fault, view, Some(Attempt::Reserve))
        } else {
            FaultPlan::base(FaultCause::NoRoom)
        }
    }

    fn background(&mut self, view: &mut dyn View) -> Step {
        if let Some(action) = self.promotion(view) {
            return Step::Act(action);
        }
        if core::mem::take(&mut self.needs_frames) {
            match give_back_oldest(&mut self.reservations, view) {
                Some(action) => return Step::Act(action),
                None => self.defragmentation.fail(),
            }
        }
        let pause = self.options.pause;
        let is_paused = self.defragmentation.until(view.now(), pause).is_some();
        if is_paused || !self.is_short(view.free_memory()) {
            return Step::Rest(Some(view.now() + pause));
        }
        let act = Act::Compact(PageSize::Huge, self.options.compaction);
        let compaction = Action { act, cause: Cause::Short(PageSize::Huge) };
        Step::Act(self.evacuation(view).unwrap_or(compaction))
    }

    fn pressure(&mut self, _: Shortage, view: &mut dyn View) -> Option<Action> {
        give_back_oldest(&mut self.reservations, view).or_else(|| self.clock.evict_idle(view))
    }

    fn learn(&mut self, action: &Action, outcome: Outcome) {
        if outcome != Outcome::NoFrame {
            return;
        }
        if let Act::Evacuate { process, range } = action.act {
            self.reservations.touch(process, range, Time::ZERO);
            self.needs_frames = true;
        } else {
            self.defragmentation.fail();
        }
    }

    fn freed_in_part(&mut self, process: ProcessKey, range: PmdRange, now: Time) {
        self.early.remove(process, range);
        self.reservations.touch(process, range, now);
    }

    fn forget(&mut self, process: ProcessKey, view: &dyn View) {
        self.reservations.forget(process, view, |seen| seen.is_reserved);
        self.early.forget(process, view, |seen| seen.mapping == Mapping::Huge);
        let is_there = |(of, range): &(ProcessKey, PmdRange)| {
            *of != process || view.range(*of, *range).is_reserved
        };
        self.beyond.retain(is_there);
        self.ready.retain(is_there);
    }

    fn capabilities(&self) -> Capabilities {
        let told = Capabilities::told(self.options.threshold);
        Capabilities { idle: IdleReclaim::Always, ..told }
    }

    fn life(&self) -> Life {
        let threshold = self.options.threshold;
        Life {
            allocation: Allocation::reserved(self.options.speculation),
            preparation: match self.options.mode {
                Mode::Sync => Preparation::IncrementalThenSynchronous(threshold),
                Mode::Async => Preparation::IncrementalThenAsynchronous(threshold),
            },
            mapping: Mapped::WhenPrepared,
            unmapping: Unmapping::WhenFreed,
            deallocation: Deallocation::WhenIdle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{
        HUGE, Model, Served, address, at_second, promoted, range, seconds, vma,
    };
    use super::super::{Carried, drive};
    use super::*;
    use alloc::vec::Vec;
    use superpage_units::{Growth, Vma};

    fn work(model: &mut Model, policy: &mut Quicksilver) -> Vec<(Action, Outcome)> {
        model.work(policy, 1000).0
    }

    fn acts(done: &[(Action, Outcome)]) -> Vec<Act> {
        done.iter().map(|(action, _)| action.act).collect()
    }

    /// A heap with 70 base pages, all touched, and room to grow.
    fn heap(options: Options) -> (Model, ProcessKey, Quicksilver) {
        let mut model = Model::new(0, 8, 0);
        let heap = Vma { end: address(0, 70), growth: Growth::Up, ..vma(1) };
        let process = model.spawn(&[heap]);
        let mut policy = Quicksilver::new(options);
        model.fill(&mut policy, process, 0, 70);
        (model, process, policy)
    }

    #[test]
    fn a_heaps_last_range_is_promoted_once_the_heap_has_passed_it() {
        for options in [Options::SYNC_64, Options::ASYNC_64] {
            let (mut model, process, mut policy) = heap(options);
            assert_eq!(work(&mut model, &mut policy), []);
            model.grow(process, 0, address(0, 511));
            assert_eq!(work(&mut model, &mut policy), []);
            model.grow(process, 0, address(1, 0));
            let done = work(&mut model, &mut policy);
            assert_eq!(promoted(&done), [(process, range(0).into())]);
            assert_eq!(done[0].0.cause, Cause::HeapGrew);
        }
        let (mut model, process, mut policy) = heap(Options::ASYNC_256);
        model.grow(process, 0, address(1, 0));
        assert_eq!(work(&mut model, &mut policy), [], "below the threshold");
    }

    #[test]
    fn a_fault_after_the_heap_grew_need_not_wait_for_the_background() {
        let (mut model, process, mut policy) = heap(Options::SYNC_64);
        model.grow(process, 0, address(2, 0));
        let served = model.touch(&mut policy, process, address(0, 70));
        assert_eq!(served, Served::By(Attempt::Complete));
        assert_eq!(work(&mut model, &mut policy), []);
    }

    #[test]
    fn promotions_come_in_the_order_in_which_ranges_got_ready() {
        let mut model = Model::new(0, 8, 0);
        let process = model.spawn(&[vma(4)]);
        let mut policy = Quicksilver::new(Options::ASYNC_64);
        for (range, pages) in [(0, 63), (2, 64), (1, 65), (0, 64), (3, 63)] {
            model.fill(&mut policy, process, range, pages);
        }
        let expected = [2, 1, 0].map(|index| (process, range(index).into()));
        assert_eq!(promoted(&work(&mut model, &mut policy)), expected);
    }

    /// Three partly used ranges, populated in the order 1, 2, 0, on a machine short of huge frames
    /// that cannot compact.
    fn partly_used(options: Options) -> (Model, ProcessKey, Quicksilver) {
        let mut model = Model::new(0, 3, 2000);
        model.can_compact = false;
        let process = model.spawn(&[vma(3)]);
        let mut policy = Quicksilver::new(options);
        for (second, range) in [(1, 1), (2, 2), (3, 0)] {
            model.now = at_second(second);
            model.fill(&mut policy, process, range, 64);
        }
        (model, process, policy)
    }

    fn evacuated(done: &[(Action, Outcome)]) -> Vec<PmdRange> {
        let range = |act: Act| match act {
            Act::Evacuate { range, .. } => Some(range),
            _ => None,
        };
        acts(done).into_iter().filter_map(range).collect()
    }

    #[test]
    fn idle_reservations_are_evacuated_the_oldest_first() {
        let options = Options { free_huge: Share::ALL, ..Options::ASYNC_256 };
        let (mut model, _, mut policy) = partly_used(options);
        model.now = at_second(5) + Nanos(999_999_999);
        assert_eq!(evacuated(&work(&mut model, &mut policy)), []);
        model.now = at_second(8);
        let done = work(&mut model, &mut policy);
        assert_eq!(evacuated(&done), [range(1), range(2), range(0)]);
        let causes: Vec<_> = done.iter().map(|(action, _)| action.cause).take(3).collect();
        assert_eq!(causes, [7, 6, 5].map(|time| Cause::Idle(seconds(time))));
        model.check();
    }

    #[test]
    fn what_is_accessed_stays_and_superpages_come_after_reservations() {
        let options = Options { free_huge: Share::ALL, ..Options::SYNC_64 };
        let (mut model, process, mut policy) = partly_used(options);
        model.now = at_second(7);
        model.touch(&mut policy, process, address(2, 5));
        model.now = at_second(11);
        // Ranges 1 and 0 are superpages with 64 touched base pages: idle, but 0 not as long.
        assert_eq!(evacuated(&work(&mut model, &mut policy)), [range(1), range(0)]);

        let mut model = Model::new(0, 2, 2000);
        model.can_compact = false;
        let process = model.spawn(&[vma(2)]);
        let mut policy = Quicksilver::new(options);
        model.fill(&mut policy, process, 0, 64);
        model.now = at_second(1);
        model.fill(&mut policy, process, 1, 63);
        model.now = at_second(20);
        assert_eq!(evacuated(&work(&mut model, &mut policy)), [range(1), range(0)]);
    }

    #[test]
    fn a_range_that_was_touched_whole_is_not_partly_used() {
        let options =
            Options { free_huge: Share::ALL, ..Options::with(BasePages(HUGE), Mode::Sync) };
        let mut model = Model::new(0, 1, 2000);
        model.can_compact = false;
        let process = model.spawn(&[vma(1)]);
        let mut policy = Quicksilver::new(options);
        model.fill(&mut policy, process, 0, HUGE);
        model.now = at_second(60);
        assert_eq!(evacuated(&work(&mut model, &mut policy)), []);
    }

    #[test]
    fn nothing_is_evacuated_while_huge_frames_are_not_short() {
        // One of ten huge frames is free: a tenth of memory, which is the mark.
        for (free, is_short) in [(1, false), (0, true)] {
            let options = Options {
                free_huge: BasePages(512).share_of(BasePages(5632)),
                ..Options::ASYNC_256
            };
            let mut model = Model::new(0, 1 + free, 5632 - HUGE * (1 + free));
            model.can_compact = false;
            let process = model.spawn(&[vma(1)]);
            let mut policy = Quicksilver::new(options);
            model.fill(&mut policy, process, 0, 1);
            model.now = at_second(60);
            let done = work(&mut model, &mut policy);
            assert_eq!(evacuated(&done).len(), usize::from(is_short));
        }
    }

    #[test]
    fn without_idle_frames_memory_is_compacted_up_to_the_mark() {
        let mut model = Model::new(0, 0, 20 * HUGE);
        let mut policy = Quicksilver::new(Options::SYNC_64);
        let compact = Act::Compact(PageSize::Huge, Compaction::Smart);
        assert_eq!(acts(&work(&mut model, &mut policy)), [compact; 2]);
        // A failure is not repeated at once.
        model.fragment();
        model.can_compact = false;
        assert_eq!(acts(&work(&mut model, &mut policy)), [compact]);
        model.now += Nanos(999_999_999);
        assert_eq!(acts(&work(&mut model, &mut policy)), []);
        model.now += Nanos(1);
        assert_eq!(acts(&work(&mut model, &mut policy)), [compact]);
    }

    #[test]
    fn a_reservation_that_cannot_be_moved_is_the_first_to_be_given_back() {
        let options = Options { free_huge: Share::ALL, ..Options::ASYNC_256 };
        let mut model = Model::new(0, 2, 600);
        let hog = model.spawn(&[vma(2)]);
        for page in 0..600 {
            let mut linux = super::super::linux::Linux::new(super::super::linux::Options::NEVER);
            model.touch(&mut linux, hog, address(page / HUGE, page % HUGE));
        }
        let process = model.spawn(&[vma(2)]);
        let mut policy = Quicksilver::new(options);
        model.now = at_second(1);
        model.touch(&mut policy, process, address(0, 0));
        model.touch(&mut policy, process, address(1, 0));
        model.now = at_second(60);
        let action = policy.evacuation(&model).unwrap();
        let carried = drive::carry_out(&mut policy, &mut model, &action);
        assert_eq!(carried, Carried::Now(Outcome::NoFrame));
        let shortage = Shortage { size: PageSize::Base, pages: 1 };
        let act = policy.clone().pressure(shortage, &mut model).map(|action| action.act);
        assert_eq!(act, Some(Act::Unreserve { process, range: range(0) }));
        // The policy gives that reservation back, so that the other can be moved.
        let acts = acts(&work(&mut model, &mut policy));
        assert_eq!(acts[0], Act::Unreserve { process, range: range(0) });
        assert_eq!(acts[1], Act::Evacuate { process, range: range(1) });
    }
}
