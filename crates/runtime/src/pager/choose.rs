//! The policy's part: which page serves a fault, which ranges are promoted, which base pages leave memory.

use super::Pager;
use super::table::{Advised, Range, State};
use crate::areas::Areas;
use crate::decider::vma;
use crate::sys;
use alloc::vec::Vec;
use superpage_policy::free_memory::FreeMemory;
use superpage_policy::promotion::{
    AccessBits, Act, Action, Attempt, Cause, Fault, Footprint, Outcome, Pool, Pools, RangeView,
    Shortage, Step, View,
};
use superpage_units::{
    Advice, BasePages, Mapping, Page, PageSize, PmdRange, ProcessKey, Time, VirtAddr, Vma,
};

/// The process itself, which is the only one there is.
const OURSELVES: ProcessKey = ProcessKey(0);

/// The page that a fault is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Base,
    Huge,
}

impl Pager {
    /// The page that the policy gives to a fault in a range that was taken over.
    pub(super) fn choose(
        &self,
        areas: &Areas,
        range: usize,
        index: usize,
        entry: &Range,
    ) -> Wanted {
        let heap = Machine::of(self, Spare::FromTheStart);
        let [mut vma] = heap.vmas;
        if entry.advised == Advised::Random {
            vma.advice = Advice::NoHuge;
        }
        let fault = Fault {
            process: OURSELVES,
            address: VirtAddr(self.page(range, index).start as u64),
            vma,
            range: view_of(entry),
            gigantic_is_empty: None,
        };
        let plan = areas.decider.ask(self.counters, |policy| policy.fault(&fault, &heap));
        let first = plan.and_then(|plan| plan.attempts().next());
        let is_huge = matches!(first, Some(Attempt::Map { size: PageSize::Huge, .. }));
        // The policy schedules the promotion itself; a worker has to ask it.
        if entry.state == State::Base {
            let present = entry.resident.count() + 1;
            let threshold = areas.decider.threshold();
            if threshold.is_some_and(|threshold| present as u64 >= threshold.0) {
                self.table.with(|table| table.may_promote = !table.has_turned_to_base());
            }
        }
        if is_huge { Wanted::Huge } else { Wanted::Base }
    }

    /// Does what the policy wants done in the background.
    pub(super) fn promote_next(&self, areas: &Areas) {
        let mut heap = Machine::of(self, Spare::Reclaimed);
        let step = areas.decider.ask(self.counters, |policy| policy.background(&mut heap));
        let Some(Step::Act(action)) = step else { return };
        let Act::Promote { page, .. } = action.act else { return };
        let outcome = match self.range_of(page) {
            Some(range) if !self.table.with(|table| table.has_turned_to_base()) => {
                self.promote(range)
            }
            _ => Outcome::Stale,
        };
        areas.decider.ask(self.counters, |policy| policy.learn(&action, outcome));
        // The policy may want more.
        self.table.with(|table| table.may_promote = true);
    }

    /// The base pages that are to leave memory, `most` at most: the range of each, and its number there.
    pub(super) fn next_base(&self, areas: &Areas, most: usize) -> Vec<(usize, usize)> {
        let shortage = Shortage { size: PageSize::Base, pages: 1 };
        let mut heap = Machine::of(self, Spare::Reclaimed);
        let evicted = areas.decider.ask(self.counters, |policy| {
            let next = || match policy.pressure(shortage, &mut heap)?.act {
                Act::Evict { page, .. } => Some(page),
                _ => None,
            };
            core::iter::from_fn(next).take(most).collect::<Vec<Page>>()
        });
        let place = |page: Page| {
            let range = self.range_of(page)?;
            let offset = sys::to_usize(page.start().0) - self.span(range).start;
            Some((range, offset / sys::PAGE))
        };
        evicted.unwrap_or_default().into_iter().filter_map(place).collect()
    }

    /// Tells the policy that a base page stays for now which it wanted evicted: somebody has taken its range over since.
    pub(super) fn keep_base(&self, areas: &Areas, range: usize, index: usize) {
        let address = VirtAddr(self.page(range, index).start as u64);
        let page = Page::containing(address, PageSize::Base);
        let act = Act::Evict { process: OURSELVES, page };
        let action = Action { act, cause: Cause::Clock };
        areas.decider.ask(self.counters, |policy| policy.learn(&action, Outcome::Stale));
    }

    fn range_of(&self, page: Page) -> Option<usize> {
        let address = sys::to_usize(page.start().0);
        self.heap.contains(address).then(|| (address - self.heap.start) / sys::HUGE)
    }
}

/// The huge pages that count as free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spare {
    /// Huge pages that are free without reclaim (section 2.3).
    FromTheStart,
    /// The same, but at least one, because a promotion reclaims one.
    Reclaimed,
}

/// The heap as the policy sees it.
struct Machine<'a> {
    pager: &'a Pager,
    vmas: [Vma; 1],
    pools: Pools,
}

impl<'a> Machine<'a> {
    fn of(pager: &'a Pager, spare: Spare) -> Self {
        let pools = pager.table.with(|table| {
            let (_, most) = table.huge();
            let free = table.free_from_the_start().max(usize::from(spare == Spare::Reclaimed));
            let pool = |free: usize, size: usize| Pool { free: free as u64, size: size as u64 };
            let base = pool(table.base_most.saturating_sub(table.base), table.base_most);
            Pools { base, huge: pool(free, most) }
        });
        let mut all = vma(pager.heap);
        all.advice = Advice::None;
        Self { pager, vmas: [all], pools }
    }

    fn entry<T>(&self, range: PmdRange, read: impl FnOnce(&Range) -> T) -> Option<T> {
        let range = self.pager.range_of(range.into())?;
        self.pager.table.with(|table| table.range(range).map(read))
    }
}

fn view_of(entry: &Range) -> RangeView {
    let resident = BasePages(entry.resident.count() as u64);
    let (mapping, present) = match entry.state {
        State::Base => (Mapping::Base, resident),
        State::Huge | State::Waiting => (Mapping::Huge, PageSize::Huge.base_pages()),
        State::Out | State::Busy => (Mapping::Empty, BasePages(0)),
    };
    RangeView { mapping, present, swapped: BasePages(entry.stored.into()), ..RangeView::default() }
}

impl View for Machine<'_> {
    fn now(&self) -> Time {
        Time(sys::now().0)
    }

    fn free_memory(&self) -> &FreeMemory {
        &FreeMemory::NONE
    }

    fn processes(&self) -> &[ProcessKey] {
        &[OURSELVES]
    }

    fn footprint(&self, _: ProcessKey) -> Footprint {
        Footprint::default()
    }

    fn vmas(&self, _: ProcessKey) -> &[Vma] {
        &self.vmas
    }

    fn range(&self, _: ProcessKey, range: PmdRange) -> RangeView {
        self.entry(range, view_of).unwrap_or_default()
    }

    fn next_mapped(&self, _: ProcessKey, _: VirtAddr) -> Option<PmdRange> {
        None
    }

    fn pools(&self) -> Option<Pools> {
        Some(self.pools)
    }

    fn access_bits(&mut self) -> Option<&mut dyn AccessBits> {
        Some(self)
    }
}

/// Base pages only: huge pages have a clock of the pager's. Accesses to base pages cannot be seen, so their
/// [rounds](super::rounds) stand for them.
impl AccessBits for Machine<'_> {
    fn next_page(&self, _: ProcessKey, from: VirtAddr) -> Option<Page> {
        let page = Page::containing(from, PageSize::Base);
        // A range that somebody is changing keeps its pages, as far as the clock is concerned.
        let is_there = self.entry(PmdRange::containing(from), |entry| {
            let index = sys::to_usize(from.0) % sys::HUGE / sys::PAGE;
            matches!(entry.state, State::Base | State::Busy) && entry.resident.has(index)
        });
        (is_there == Some(true)).then_some(page)
    }

    fn take_accessed(&mut self, _: ProcessKey, page: Page) -> bool {
        // A page whose range somebody is changing could not be evicted now.
        let is_busy = |entry: &Range| entry.state == State::Busy;
        if self.entry(PmdRange::containing(page.start()), is_busy) == Some(true) {
            return true;
        }
        let offset = sys::to_usize(page.start().0) - self.pager.heap.start;
        self.pager.rounds.spare(offset / sys::PAGE)
    }
}
