//! Ingens and Ingens*, as Quicksilver describes them (Table 1, section "Superpage Management
//! Designs", observations 2 and 4), and EMD (section 2.2.2).
//!
//! Faults map base pages. A range with 460 of its 512 base pages present (90 %) is promoted in
//! the background, by copying; of all processes that have such ranges, the one with the fewest
//! superpages comes first. The background also compacts memory while free huge frames are short, so
//! that neither faults nor promotions wait for it. Ingens* (observation 2) promotes from one base
//! page.
//!
//! Deviations:
//! - Only what those papers say is here; they do not say how Ingens finds its ranges, or when it
//!   compacts. Here faults put a range in the queue of its process as it reaches the threshold. A
//!   scan at khugepaged's pace finds those that reached it otherwise: the VMA grew, or a superpage
//!   was split.
//! - Ingens prefers to move memory that is not referenced; here the machine moves what
//!   [`Compaction::Sequential`] comes upon.
//! - Under pressure it is Linux, with its clock.

use super::backoff::BackOff;
use super::capabilities::Capabilities;
use super::life::{Allocation, Deallocation, Life, Mapped, Preparation, Unmapping};
use super::queue::Queue;
use super::scan::{Found, Hand, Pace, Scanner, base_mapped, is_huge_free_memory_short, is_thp};
use super::{
    Act, Action, Cause, Fault, FaultCause, FaultPlan, How, Outcome, Policy, Shortage, Step, View,
};
use crate::compaction::Compaction;
use alloc::collections::BTreeMap;
use superpage_units::{
    BasePages, HUGE_PAGES_PER_GIGANTIC_PAGE, HugePages, Mapping, Nanos, PageSize, PmdRange,
    ProcessKey, Share, Time,
};

/// Ingens's choices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The present pages from which a range is promoted (Quicksilver, Table 1); at least 1.
    pub threshold: BasePages,
    /// The pace of the scan for ranges that no fault brought to the threshold.
    pub pace: Pace,
    /// Memory is compacted while less than this share of it is free in huge frames.
    pub free_huge: Share,
    /// How long a promotion or compaction that found no memory is not tried again.
    pub pause: Nanos,
}

impl Options {
    /// Ingens: 460 base pages. What the papers do not say is chosen, not measured.
    pub const PUBLISHED: Self = Self {
        threshold: BasePages(460),
        pace: Pace::KHUGEPAGED,
        free_huge: Share::percent(10),
        pause: Nanos(1_000_000_000),
    };
    /// Ingens*: any range with a base page in it (Quicksilver, observation 2).
    pub const STAR: Self = Self { threshold: BasePages(1), ..Self::PUBLISHED };
}

/// The policy. Its state is which ranges await promotion, and where its scan is.
#[derive(Clone, Debug)]
pub struct Ingens {
    options: Options,
    waiting: BTreeMap<ProcessKey, Queue<PmdRange>>,
    scanner: Scanner,
    promotion: BackOff,
    compaction: BackOff,
    clock: Hand,
}

impl Ingens {
    /// Ingens with these options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            waiting: BTreeMap::new(),
            scanner: Scanner::default(),
            promotion: BackOff::default(),
            compaction: BackOff::default(),
            clock: Hand::default(),
        }
    }

    fn wait(&mut self, process: ProcessKey, range: PmdRange) {
        self.waiting.entry(process).or_default().push_back(range);
    }

    /// The present pages of a range that is to be promoted.
    fn ready(&self, view: &dyn View, process: ProcessKey, range: PmdRange) -> Option<BasePages> {
        let found = base_mapped(view, process, range, self.options.threshold);
        found.filter(|(vma, _)| is_thp(vma)).map(|(_, seen)| seen.present)
    }

    /// The first range that waits in the process that has the fewest superpages.
    fn next_promotion(&mut self, view: &dyn View) -> Option<Action> {
        loop {
            let superpages = |process: &ProcessKey| (superpages(view, *process), *process);
            let process = self.waiting.keys().copied().min_by_key(superpages)?;
            let next = self.waiting.get_mut(&process).and_then(Queue::pop_front);
            let Some(range) = next else {
                self.waiting.remove(&process);
                continue;
            };
            if let Some(present) = self.ready(view, process, range) {
                let act = Act::Promote { process, page: range.into(), how: How::Copy(None) };
                return Some(Action { act, cause: Cause::Threshold(present) });
            }
        }
    }

    /// One step of the scan, which is worth least.
    fn scan(&mut self, view: &dyn View, others: [Option<Time>; 2]) -> Step {
        match self.scanner.next(view, self.options.pace) {
            Found::PmdRange(process, range) => {
                if self.ready(view, process, range).is_some() {
                    self.wait(process, range);
                }
                Step::Scanned(PageSize::Huge.base_pages())
            }
            Found::Asleep(until) => Step::Rest(others.into_iter().flatten().chain([until]).min()),
        }
    }
}

/// How many huge pages' worth of superpages a process has.
fn superpages(view: &dyn View, process: ProcessKey) -> HugePages {
    let footprint = view.footprint(process);
    footprint.huge
        + HugePages(footprint.gigantic.unwrap_or_default() * HUGE_PAGES_PER_GIGANTIC_PAGE)
}

impl Policy for Ingens {
    fn fault(&mut self, fault: &Fault, _: &dyn View) -> FaultPlan {
        if !is_thp(&fault.vma) {
            return FaultPlan::base(FaultCause::NotWanted);
        }
        let populated = fault.range.present + BasePages(1);
        if populated >= self.options.threshold && fault.vma.holds(fault.page(PageSize::Huge)) {
            self.wait(fault.process, PmdRange::containing(fault.address));
        }
        FaultPlan::base(FaultCause::BasePages)
    }

    fn background(&mut self, view: &mut dyn View) -> Step {
        let (now, pause) = (view.now(), self.options.pause);
        let no_promotion = self.promotion.until(now, pause);
        if no_promotion.is_none()
            && !view.free_memory().huge_pages().is_zero()
            && let Some(action) = self.next_promotion(view)
        {
            return Step::Act(action);
        }
        let no_compaction = self.compaction.until(now, pause);
        if no_compaction.is_none()
            && is_huge_free_memory_short(view.free_memory(), self.options.free_huge)
        {
            let act = Act::Compact(PageSize::Huge, Compaction::Sequential);
            return Step::Act(Action { act, cause: Cause::Short(PageSize::Huge) });
        }
        self.scan(view, [no_promotion, no_compaction])
    }

    fn pressure(&mut self, _: Shortage, view: &mut dyn View) -> Option<Action> {
        self.clock.evict_idle(view)
    }

    fn forget(&mut self, process: ProcessKey, view: &dyn View) {
        let Some(waiting) = self.waiting.get_mut(&process) else { return };
        waiting.retain(|range| view.range(process, *range).mapping != Mapping::Empty);
        if waiting.len() == 0 {
            self.waiting.remove(&process);
        }
    }

    fn learn(&mut self, action: &Action, outcome: Outcome) {
        match action.act {
            Act::Promote { process, page, .. } if outcome == Outcome::NoFrame => {
                let range = PmdRange::containing(page.start());
                self.waiting.entry(process).or_default().push_front(range);
                self.promotion.fail();
            }
            Act::Compact(..) if outcome != Outcome::Done => self.compaction.fail(),
            _ => {}
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::told(self.options.threshold)
    }

    fn life(&self) -> Life {
        Life {
            allocation: Allocation::Asynchronous(self.options.threshold),
            preparation: Preparation::AtOnce,
            mapping: Mapped::AtOnce,
            unmapping: Unmapping::WhenFreed,
            deallocation: Deallocation::WhenUnmapped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Model, address, at_second, promoted, range, seconds, vma};
    use super::*;
    use alloc::vec::Vec;
    use superpage_units::{Advice, Growth, Mapping, Vma, VmaKind};

    fn ingens() -> Ingens {
        Ingens::new(Options::PUBLISHED)
    }

    /// What is promoted without any time passing.
    fn work(model: &mut Model, policy: &mut Ingens) -> Vec<(ProcessKey, u64)> {
        let index = |range: &PmdRange| range.start().since(address(0, 0)).to_huge_pages().0;
        let done = model.work(policy, 1000).0;
        let ranges = promoted(&done).into_iter();
        ranges.map(|(key, page)| (key, index(&PmdRange::containing(page.start())))).collect()
    }

    #[test]
    fn the_fault_that_brings_460_base_pages_in_leads_to_a_promotion() {
        let mut model = Model::new(0, 8, 2000);
        let process = model.spawn(&[vma(2)]);
        let mut policy = ingens();
        model.fill(&mut policy, process, 1, 459);
        assert_eq!(work(&mut model, &mut policy), []);
        // The scan sleeps now, so it is the fault that is heard of.
        model.fill(&mut policy, process, 1, 460);
        assert_eq!(model.range(process, range(1)).mapping, Mapping::Base);
        assert_eq!(work(&mut model, &mut policy), [(process, 1)]);
        model.check();
    }

    #[test]
    fn the_process_with_the_fewest_superpages_comes_first() {
        let mut model = Model::new(0, 20, 9000);
        let keys = [0; 3].map(|_| model.spawn(&[vma(4)]));
        let [a, b, c] = keys;
        let mut policy = ingens();
        let fill = |model: &mut Model, policy: &mut Ingens, key, ranges: core::ops::Range<u64>| {
            for range in ranges {
                model.fill(policy, key, range, 460);
            }
        };
        fill(&mut model, &mut policy, a, 0..2);
        fill(&mut model, &mut policy, b, 0..1);
        assert_eq!(work(&mut model, &mut policy), [(a, 0), (b, 0), (a, 1)]);
        fill(&mut model, &mut policy, a, 2..4);
        fill(&mut model, &mut policy, b, 1..3);
        fill(&mut model, &mut policy, c, 0..3);
        // They have 2, 1 and 0.
        let order = [(c, 0), (b, 1), (c, 1), (a, 2), (b, 2), (c, 2), (a, 3)];
        assert_eq!(work(&mut model, &mut policy), order);
    }

    #[test]
    fn ranges_that_no_fault_brought_there_are_found_by_the_scan() {
        let mut model = Model::new(0, 20, 9000);
        let heap = Vma { end: address(0, 500), growth: Growth::Up, ..vma(1) };
        let grows = model.spawn(&[heap]);
        let is_split = model.spawn(&[vma(2)]);
        let mut policy = ingens();
        model.fill(&mut policy, grows, 0, 500);
        model.fill(&mut policy, is_split, 0, 460);
        model.fill(&mut policy, is_split, 1, 460);
        assert_eq!(work(&mut model, &mut policy), [(is_split, 0), (is_split, 1)]);
        model.grow(grows, 0, address(1, 0));
        model.split(is_split, range(0), 52);
        model.split(is_split, range(1), 53);
        assert_eq!(work(&mut model, &mut policy), []);
        model.now = at_second(10);
        assert_eq!(work(&mut model, &mut policy), [(grows, 0), (is_split, 0)]);
    }

    #[test]
    fn a_range_for_which_there_is_no_frame_waits() {
        let mut model = Model::new(0, 4, 2000);
        model.can_compact = false;
        let process = model.spawn(&[vma(2)]);
        let mut policy = ingens();
        model.hide();
        model.fill(&mut policy, process, 1, 460);
        model.fill(&mut policy, process, 0, 460);
        assert_eq!(work(&mut model, &mut policy), []);
        model.show();
        assert_eq!(work(&mut model, &mut policy), [(process, 1), (process, 0)]);
        // The machine may also say no where the free memory said yes.
        model.split(process, range(0), 52);
        model.split(process, range(1), 52);
        model.fill(&mut policy, process, 1, 460);
        model.fill(&mut policy, process, 0, 460);
        let action = policy.next_promotion(&model).unwrap();
        policy.learn(&action, Outcome::NoFrame);
        assert_eq!(work(&mut model, &mut policy), []);
        model.now += seconds(1);
        assert_eq!(work(&mut model, &mut policy), [(process, 1), (process, 0)]);
    }

    #[test]
    fn memory_is_compacted_up_to_the_mark() {
        let mut model = Model::new(0, 0, 20 * super::super::model::HUGE);
        let mut policy = ingens();
        let (done, _) = model.work(&mut policy, 100);
        let compact = Act::Compact(PageSize::Huge, Compaction::Sequential);
        let acts: Vec<_> = done.into_iter().map(|(action, _)| action.act).collect();
        assert_eq!(acts, [compact; 2]);
    }

    #[test]
    fn files_and_what_asked_for_none_get_no_huge_pages() {
        let file = Vma { kind: VmaKind::File, ..vma(1) };
        let no = Vma { advice: Advice::NoHuge, ..vma(1) };
        for vma in [file, no] {
            let mut model = Model::new(0, 4, 2000);
            let process = model.spawn(&[vma]);
            let mut policy = Ingens::new(Options::STAR);
            model.fill(&mut policy, process, 0, 512);
            assert_eq!(promoted(&model.work_and_wait(&mut policy, 5)), []);
        }
    }
}
