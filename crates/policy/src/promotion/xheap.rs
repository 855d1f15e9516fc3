//! xHeap (section 2): heaps larger than memory, on base and huge pages of two pools.
//!
//! A fault gets a huge page while the pool has one free, the VMA has room, and no base page is in
//! the range (section 2.3); else a base page. A fault that brings 64 base pages of a range in
//! schedules its promotion in the background: what is missing is read from the backing store.
//! Pending promotions are held in shards, so that further faults in a range do not schedule it
//! again. There is no movement between the pools: if no huge page is free for a promotion, or a
//! fault finds its pool empty, the clock of that pool makes one free, writing it back first
//! (section 2.1).
//!
//! All VMAs are taken for heap VMAs; which are served from the pools is the machine's business.
//!
//! Deviations:
//! - xHeap has a queue and a clock hand for each core; here there is one for each pool.
//! - Promotions run as work items at once on several cores. A machine asks for one action after
//!   the other, so [`Options::workers`] is the share of CPUs that they may take.
//! - How many huge pages are reclaimed at once is not in the paper: [`Options::reclaimed`], by default
//!   no more than is needed.
//! - A promotion for which no huge page can be made free is dropped; the next fault in the range
//!   schedules it again.
//! - Of the advice that a program can give, "no huge pages" is heeded. The paper takes advice as
//!   hints and does not say what they do.

use super::capabilities::{Capabilities, Need};
use super::life::{Allocation, Deallocation, Life, Mapped, Preparation, Unmapping};
use super::queue::Queue;
use super::scan::{Hand, base_mapped};
use super::{
    AccessBits, Act, Action, Attempt, Cause, Fault, FaultCause, FaultPlan, How, Outcome, Policy,
    Shortage, Step, View, Zeroed,
};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use superpage_units::{Advice, BasePages, HUGE_PAGE_BYTES, Page, PageSize, PmdRange, ProcessKey};

/// xHeap's choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The base pages of a range that must be in before it is promoted (section 2.3); at least 1.
    pub threshold: BasePages,
    /// How many promotions run at once, each on its CPU. Chosen, not measured: the paper leaves it
    /// to the kernel's work queues.
    pub workers: u32,
    /// How many shards the list of pending promotions has; at least 1. Chosen, not measured.
    pub shards: u32,
    /// Huge pages evicted at once when a promotion finds none; at least 1. What it leaves is free for
    /// faults. The paper does not say how many its kernel threads reclaim, but that faults in ranges
    /// which were evicted find huge pages (section 4.2), so it is more than one is needed for.
    pub reclaimed: u32,
}

impl Default for Options {
    /// 64 base pages, four workers, 16 shards, and no more evicted than is needed.
    fn default() -> Self {
        Self { threshold: BasePages(64), workers: 4, shards: 16, reclaimed: 1 }
    }
}

type Place = (ProcessKey, PmdRange);

/// The promotions that are scheduled or under way, in shards by address, and their order.
#[derive(Clone, Debug)]
struct Pending {
    shards: Vec<BTreeSet<Place>>,
    order: VecDeque<Place>,
}

impl Pending {
    fn new(shards: u32) -> Self {
        let shards = usize::try_from(shards.max(1)).unwrap_or(1);
        Self { shards: vec![BTreeSet::new(); shards], order: VecDeque::new() }
    }

    fn shard(&mut self, place: Place) -> &mut BTreeSet<Place> {
        let number = place.1.start().0 / HUGE_PAGE_BYTES;
        let count = self.shards.len() as u64;
        let index = usize::try_from(number % count).unwrap_or_default();
        &mut self.shards[index]
    }

    /// Schedules a promotion, unless it is scheduled or under way.
    fn schedule(&mut self, place: Place) {
        if self.shard(place).insert(place) {
            self.order.push_back(place);
        }
    }

    /// The promotion to do next; it stays first until it is begun.
    fn first(&self) -> Option<Place> {
        self.order.front().copied()
    }

    /// The first is under way: it is not done again, but it cannot be scheduled either.
    fn begin(&mut self) {
        self.order.pop_front();
    }

    /// It is over: it may be scheduled again.
    fn end(&mut self, place: Place) {
        self.shard(place).remove(&place);
    }
}

/// One pool's pages in the order in which they were mapped, for replacement with a second chance.
#[derive(Clone, Debug)]
struct Clock {
    size: PageSize,
    queue: Queue<(ProcessKey, Page)>,
}

impl Clock {
    fn new(size: PageSize) -> Self {
        Self { size, queue: Queue::default() }
    }

    fn push(&mut self, process: ProcessKey, page: Page) {
        self.queue.push_back((process, page));
    }

    /// Evicts the page that was mapped first and not accessed since the hand came by. If the queue
    /// knows of none, it is filled from what is mapped.
    fn evict(&mut self, view: &mut dyn View) -> Option<Action> {
        let bits = view.access_bits()?;
        self.turn(bits).or_else(|| {
            self.refill(bits);
            self.turn(bits)
        })
    }

    /// Twice around: the first time, all may have been accessed.
    fn turn(&mut self, bits: &mut dyn AccessBits) -> Option<Action> {
        for _ in 0..2 * self.queue.len() {
            let (process, page) = self.queue.pop_front()?;
            if bits.next_page(process, page.start()) != Some(page) {
                continue;
            }
            if !bits.take_accessed(process, page) {
                return Some(Action { act: Act::Evict { process, page }, cause: Cause::Clock });
            }
            self.queue.push_back((process, page));
        }
        None
    }

    fn refill(&mut self, bits: &dyn AccessBits) {
        let mut hand = Hand::default();
        while let Some((process, page)) = hand.next_page(bits) {
            if page.size() == self.size {
                self.push(process, page);
            }
        }
    }
}

/// The policy. Its state is the pending promotions, and the clocks.
#[derive(Clone, Debug)]
pub struct XHeap {
    options: Options,
    pending: Pending,
    base: Clock,
    huge: Clock,
    /// Huge pages still to be evicted of those that are evicted at once.
    reclaiming: u32,
}

impl XHeap {
    /// xHeap with these options, nothing mapped.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            pending: Pending::new(options.shards),
            base: Clock::new(PageSize::Base),
            huge: Clock::new(PageSize::Huge),
            reclaiming: 0,
        }
    }

    /// Serves a fault with a base page, and schedules what follows from it.
    fn base_page(&mut self, fault: &Fault, cause: FaultCause) -> FaultPlan {
        self.base.push(fault.process, fault.page(PageSize::Base));
        let populated = fault.range.present + BasePages(1);
        let can_be_huge =
            fault.vma.advice != Advice::NoHuge && fault.vma.holds(fault.page(PageSize::Huge));
        if can_be_huge && populated >= self.options.threshold {
            self.pending.schedule((fault.process, PmdRange::containing(fault.address)));
        }
        FaultPlan::base(cause)
    }

    /// The next promotion that still makes sense, with the present pages of its range.
    fn next_promotion(&mut self, view: &dyn View) -> Option<(Place, BasePages)> {
        while let Some(place) = self.pending.first() {
            if let Some((_, seen)) = base_mapped(view, place.0, place.1, BasePages(1)) {
                return Some((place, seen.present));
            }
            self.drop_first(place);
        }
        None
    }

    /// The next huge page to evict, while there are some to be evicted at once.
    fn reclaim(&mut self, view: &mut dyn View) -> Option<Action> {
        self.reclaiming = self.reclaiming.checked_sub(1)?;
        let eviction = self.huge.evict(view);
        if eviction.is_none() {
            self.reclaiming = 0;
        }
        eviction
    }

    fn drop_first(&mut self, place: Place) {
        self.pending.begin();
        self.pending.end(place);
    }
}

/// Whether a huge page is free in the pool; never without pools.
fn has_free_huge(view: &dyn View) -> bool {
    view.pools().is_some_and(|pools| pools.huge.free > 0)
}

impl Policy for XHeap {
    fn fault(&mut self, fault: &Fault, view: &dyn View) -> FaultPlan {
        if fault.vma.advice == Advice::NoHuge {
            return self.base_page(fault, FaultCause::NotWanted);
        }
        if !fault.is_mappable(PageSize::Huge) {
            return self.base_page(fault, FaultCause::NoRoom);
        }
        if !has_free_huge(view) {
            return self.base_page(fault, FaultCause::Pool(PageSize::Base));
        }
        self.huge.push(fault.process, fault.page(PageSize::Huge));
        let zeroed = Zeroed::Preferred;
        let attempt = Attempt::Map { size: PageSize::Huge, compaction: None, zeroed };
        FaultPlan::try_first(attempt, FaultCause::Pool(PageSize::Huge))
    }

    fn background(&mut self, view: &mut dyn View) -> Step {
        while let Some((place, present)) = self.next_promotion(view) {
            if !has_free_huge(view) && self.reclaiming == 0 {
                self.reclaiming = self.options.reclaimed.max(1);
            }
            if let Some(eviction) = self.reclaim(view) {
                return Step::Act(eviction);
            }
            if has_free_huge(view) {
                self.pending.begin();
                let (process, range) = place;
                let act = Act::Promote { process, page: range.into(), how: How::Read };
                return Step::Act(Action { act, cause: Cause::Threshold(present) });
            }
            self.drop_first(place);
        }
        Step::Rest(None)
    }

    fn pressure(&mut self, shortage: Shortage, view: &mut dyn View) -> Option<Action> {
        match shortage.size {
            PageSize::Base => self.base.evict(view),
            PageSize::Huge => self.huge.evict(view),
            PageSize::Gigantic => None,
        }
    }

    fn learn(&mut self, action: &Action, outcome: Outcome) {
        match action.act {
            Act::Promote { process, page, .. } => {
                self.pending.end((process, PmdRange::containing(page.start())));
                if outcome == Outcome::Done {
                    self.huge.push(process, page);
                }
            }
            // A page that has stayed is evicted later: it is in use by somebody just now.
            Act::Evict { process, page } if outcome != Outcome::Done => match page.size() {
                PageSize::Base => self.base.push(process, page),
                PageSize::Huge => self.huge.push(process, page),
                PageSize::Gigantic => {}
            },
            _ => {}
        }
    }

    fn background_threads(&self) -> u32 {
        self.options.workers
    }

    fn capabilities(&self) -> Capabilities {
        let pools = Capabilities::needs(Need::Pools);
        Capabilities { threshold: Some(self.options.threshold), ..pools }
    }

    fn life(&self) -> Life {
        Life {
            allocation: Allocation::Pool(self.options.threshold),
            preparation: Preparation::Read,
            mapping: Mapped::AtOnce,
            unmapping: Unmapping::WhenEvicted,
            deallocation: Deallocation::Clock,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::drive;
    use super::super::model::{Model, START, Served, address, promoted, range, vma};
    use super::*;
    use superpage_units::{Mapping, Vma};

    fn xheap() -> XHeap {
        XHeap::new(Options::default())
    }

    fn is_huge(served: Served) -> bool {
        matches!(served, Served::By(Attempt::Map { size: PageSize::Huge, .. }))
    }

    /// What the background does without waiting.
    fn work(model: &mut Model, policy: &mut XHeap) -> Vec<Act> {
        model.work(policy, 1000).0.into_iter().map(|(action, _)| action.act).collect()
    }

    fn promotion(process: ProcessKey, index: u64) -> Act {
        Act::Promote { process, page: range(index).into(), how: How::Read }
    }

    fn eviction(process: ProcessKey, page: impl Into<Page>) -> Act {
        Act::Evict { process, page: page.into() }
    }

    fn base(index: u64, page: u64) -> Page {
        Page::containing(address(index, page), PageSize::Base)
    }

    #[test]
    fn huge_while_they_are_free_and_no_base_page_is_in_range() {
        let mut model = Model::with_pools(200, 2);
        let process = model.spawn(&[Vma { end: address(4, 9), ..vma(1) }]);
        let mut policy = xheap();
        model.hide();
        assert!(!is_huge(model.touch(&mut policy, process, address(1, 0))));
        model.show();
        assert!(!is_huge(model.touch(&mut policy, process, address(1, 1))), "a base page is in");
        assert!(!is_huge(model.touch(&mut policy, process, address(4, 0))), "no room");
        assert!(is_huge(model.touch(&mut policy, process, address(0, 3))));
        assert!(is_huge(model.touch(&mut policy, process, address(2, 0))));
        assert!(!is_huge(model.touch(&mut policy, process, address(3, 0))), "none is free");
        model.check();
    }

    /// A machine without free huge pages and with so many base pages in each range.
    fn base_pages(pages: &[u64], huge: u64) -> (Model, ProcessKey, XHeap) {
        let mut model = Model::with_pools(900, huge);
        let process = model.spawn(&[vma(pages.len() as u64)]);
        let mut policy = xheap();
        model.hide();
        for (index, pages) in (0..).zip(pages) {
            model.fill(&mut policy, process, index, *pages);
        }
        (model, process, policy)
    }

    #[test]
    fn the_64th_base_page_schedules_a_promotion_once() {
        let (mut model, process, mut policy) = base_pages(&[63, 66, 64], 8);
        model.show();
        assert_eq!(work(&mut model, &mut policy), [promotion(process, 1), promotion(process, 2)]);
        assert_eq!(work(&mut model, &mut policy), []);
        model.check();
    }

    #[test]
    fn a_promotion_under_way_is_not_scheduled_again() {
        let (mut model, process, mut policy) = base_pages(&[64], 8);
        model.show();
        let Step::Act(first) = policy.background(&mut model) else { panic!("idle") };
        model.touch(&mut policy, process, address(0, 64));
        assert_eq!(policy.background(&mut model), Step::Rest(None));
        drive::carry_out(&mut policy, &mut model, &first);
        assert_eq!(model.range(process, range(0)).mapping, Mapping::Huge);
        assert_eq!(policy.background(&mut model), Step::Rest(None));
    }

    #[test]
    fn a_range_that_was_promoted_and_evicted_is_scheduled_again() {
        let (mut model, process, mut policy) = base_pages(&[64], 1);
        model.show();
        assert_eq!(work(&mut model, &mut policy), [promotion(process, 0)]);
        let evicted = next_victim(&mut model, &mut policy, PageSize::Huge);
        assert_eq!(evicted, Some(eviction(process, range(0))));
        model.hide();
        model.fill(&mut policy, process, 0, 64);
        model.show();
        assert_eq!(work(&mut model, &mut policy), [promotion(process, 0)]);
    }

    #[test]
    fn one_shard_is_as_good_as_many() {
        for shards in [1, 3, 16] {
            let mut pending = Pending::new(shards);
            let places: Vec<_> = (0..40).map(|index| (ProcessKey(1), range(index))).collect();
            for place in places.iter().chain(&places) {
                pending.schedule(*place);
            }
            let mut order = Vec::new();
            while let Some(place) = pending.first() {
                order.push(place);
                pending.begin();
            }
            assert_eq!(order, places);
            let sizes = pending.shards.iter().map(BTreeSet::len);
            assert!(sizes.max() <= Some(40usize.div_ceil(pending.shards.len())));
        }
    }

    #[test]
    fn a_promotion_makes_room_in_its_pool() {
        let mut model = Model::with_pools(900, 2);
        let process = model.spawn(&[vma(4)]);
        let mut policy = xheap();
        model.touch(&mut policy, process, address(0, 0));
        model.touch(&mut policy, process, address(1, 0));
        model.fill(&mut policy, process, 2, 64);
        // Both huge pages were accessed; the first loses its second chance first.
        let expected = [eviction(process, range(0)), promotion(process, 2)];
        assert_eq!(work(&mut model, &mut policy), expected);
        model.check();
    }

    #[test]
    fn what_is_reclaimed_at_once_is_there_for_faults() {
        for (reclaimed, faults_find) in [(1, false), (2, true)] {
            let mut model = Model::with_pools(900, 3);
            let process = model.spawn(&[vma(6)]);
            let mut policy = XHeap::new(Options { reclaimed, ..Options::default() });
            for index in 0..3 {
                model.touch(&mut policy, process, address(index, 0));
            }
            model.fill(&mut policy, process, 3, 64);
            let done = work(&mut model, &mut policy);
            let evictions = (0..u64::from(reclaimed)).map(|index| eviction(process, range(index)));
            assert_eq!(done, evictions.chain([promotion(process, 3)]).collect::<Vec<_>>());
            let found = is_huge(model.touch(&mut policy, process, address(0, 0)));
            assert_eq!(found, faults_find);
            model.check();
        }
    }

    #[test]
    fn a_dropped_promotion_is_scheduled_by_the_next_fault() {
        let (mut model, process, mut policy) = base_pages(&[64], 2);
        assert_eq!(work(&mut model, &mut policy), []);
        model.show();
        assert_eq!(work(&mut model, &mut policy), []);
        model.touch(&mut policy, process, address(0, 64));
        assert_eq!(work(&mut model, &mut policy), [promotion(process, 0)]);
    }

    fn next_victim(model: &mut Model, policy: &mut XHeap, size: PageSize) -> Option<Act> {
        let (action, _) = drive::relieve(policy, model, Shortage { size, pages: 1 })?;
        Some(action.act)
    }

    #[test]
    fn each_pool_has_its_clock_with_a_second_chance() {
        let mut model = Model::with_pools(900, 3);
        let process = model.spawn(&[vma(5)]);
        let mut policy = xheap();
        for index in [2, 0, 1] {
            model.touch(&mut policy, process, address(index, 0));
        }
        for page in [7, 3, 5] {
            model.touch(&mut policy, process, address(3, page));
        }
        let mut next = |model: &mut Model, size| next_victim(model, &mut policy, size);
        // All were accessed, so the first round clears their bits and the first in goes.
        let (huge, small) = (PageSize::Huge, PageSize::Base);
        assert_eq!(next(&mut model, huge), Some(eviction(process, range(2))));
        assert_eq!(next(&mut model, small), Some(eviction(process, base(3, 7))));
        // A second chance for what was accessed since.
        model.touch(&mut xheap(), process, address(0, 9));
        model.touch(&mut xheap(), process, address(3, 3));
        assert_eq!(next(&mut model, huge), Some(eviction(process, range(1))));
        assert_eq!(next(&mut model, small), Some(eviction(process, base(3, 5))));
        assert_eq!(next(&mut model, huge), Some(eviction(process, range(0))));
        assert_eq!(next(&mut model, huge), None);
        assert_eq!(next(&mut model, small), Some(eviction(process, base(3, 3))));
        assert_eq!(next(&mut model, small), None);
        assert_eq!(next(&mut model, PageSize::Gigantic), None);
        model.check();
    }

    #[test]
    fn a_page_that_stayed_is_evicted_later() {
        let (mut model, process, mut policy) = base_pages(&[2], 1);
        let shortage = Shortage { size: PageSize::Base, pages: 1 };
        let first = policy.pressure(shortage, &mut model).expect("two pages are there");
        assert_eq!(first.act, eviction(process, base(0, 0)));
        policy.learn(&first, Outcome::Stale);
        for page in [1, 0] {
            let next = next_victim(&mut model, &mut policy, PageSize::Base);
            assert_eq!(next, Some(eviction(process, base(0, page))));
        }
    }

    #[test]
    fn a_promoted_range_is_in_the_huge_clock_and_not_in_the_other() {
        let (mut model, process, mut policy) = base_pages(&[64, 1], 1);
        model.show();
        assert_eq!(promoted(&model.work(&mut policy, 100).0).len(), 1);
        let next = |model: &mut Model, policy: &mut XHeap, size| next_victim(model, policy, size);
        let small = next(&mut model, &mut policy, PageSize::Base);
        assert_eq!(small, Some(eviction(process, base(1, 0))));
        let huge = next(&mut model, &mut policy, PageSize::Huge);
        assert_eq!(huge, Some(eviction(process, range(0))));
    }

    #[test]
    fn pages_that_the_clock_never_heard_of_are_found() {
        let mut model = Model::with_pools(9, 1);
        let process = model.spawn(&[vma(2)]);
        model.touch(&mut xheap(), process, START);
        model.touch(&mut xheap(), process, address(1, 0));
        let mut fresh = xheap();
        let huge = next_victim(&mut model, &mut fresh, PageSize::Huge);
        assert_eq!(huge, Some(eviction(process, range(0))));
        let small = next_victim(&mut model, &mut fresh, PageSize::Base);
        assert_eq!(small, Some(eviction(process, base(1, 0))));
    }

    #[test]
    fn advice_against_huge_pages_is_heeded() {
        let mut model = Model::with_pools(900, 2);
        let process = model.spawn(&[Vma { advice: Advice::NoHuge, ..vma(1) }]);
        let mut policy = xheap();
        model.fill(&mut policy, process, 0, 65);
        assert_eq!(work(&mut model, &mut policy), []);
    }
}
