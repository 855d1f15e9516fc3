//! Superpage: our own rule, which holds where no policy is named. No paper has it.
//!
//! The memory that is left decides everything, by two watermarks (EMD, section 4.5):
//! - Below the low one a first touch is given a huge page if one is free, as by [`super::linux`], and nobody compacts for it. A
//!   range that missed that is promoted from 64 present base pages on, the threshold of Quicksilver's Sync-64.
//! - Between them first touches are given base pages, and a range is promoted if so little of it is missing that splitting it
//!   again would not be worth it.
//! - Above the high one only ranges are promoted of which nothing is missing: that costs no memory.
//!
//! Ranges of which something is in swap are not promoted. Which huge pages are split when memory is short is a de-bloater's to
//! say, and those that stay partly used are split above the low watermark only ([`Capabilities::idle`]).
//!
//! On a real kernel first touches are the kernel's (`[thp] first_touch` has it decide by the same watermarks).

use super::capabilities::{Capabilities, Faults, FirstTouch, IdleReclaim};
use super::life::{Allocation, Deallocation, Life, Mapped, Preparation, Unmapping};
use super::queue::Queue;
use super::scan::{Hand, base_mapped, is_thp};
use super::{
    Act, Action, Attempt, Cause, Fault, FaultCause, FaultPlan, How, Outcome, Policy, Shortage,
    Step, View, Zeroed,
};
use crate::free_memory::FreeMemory;
use crate::watermark::{Usage, Watermarks};
use superpage_units::{BasePages, Mapping, Nanos, PageSize, PmdRange, ProcessKey, Time};

/// The rule's numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Where memory gets short, and where it is.
    pub marks: Watermarks,
    /// The present base pages from which on a range is promoted while memory is free: Quicksilver's (section Evaluation).
    pub threshold: BasePages,
    /// The base pages that splitting a huge page has to free to be worth it: between the watermarks fewer may be missing. 6 %
    /// of a huge page, as the daemon's `min_bloat`.
    pub worth: BasePages,
    /// After this time ranges are looked at again that were refused. Chosen, not measured.
    pub again: Nanos,
}

impl Options {
    /// Those that hold where nothing else is said.
    pub const DEFAULT: Self = Self {
        marks: Watermarks::DEFAULT,
        threshold: BasePages(64),
        worth: BasePages(31),
        again: Nanos(10_000_000_000),
    };
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

type Place = (ProcessKey, PmdRange);

/// The policy. Its state is which ranges await promotion.
#[derive(Clone, Debug)]
pub struct Superpage {
    options: Options,
    /// Ranges with enough present base pages while memory is free.
    ready: Queue<Place>,
    /// Ranges that were refused: too much is missing for the memory that is left, or no huge page was free.
    refused: Queue<Place>,
    /// When those are looked at again.
    again: Time,
    clock: Hand,
}

impl Superpage {
    /// The rule with these numbers.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            ready: Queue::default(),
            refused: Queue::default(),
            again: Time::ZERO,
            clock: Hand::default(),
        }
    }

    /// The present base pages from which on a range is promoted now.
    fn least(&self, free: &FreeMemory) -> BasePages {
        let whole = PageSize::Huge.base_pages();
        match level(self.options.marks, free) {
            Level::Free => self.options.threshold,
            Level::Between => whole.saturating_sub(self.options.worth) + BasePages(1),
            Level::Short => whole,
        }
    }

    /// The present base pages of a range, if it may be promoted while memory is free.
    fn candidate(&self, view: &dyn View, (process, range): Place) -> Option<BasePages> {
        let found = base_mapped(view, process, range, self.options.threshold);
        let found = found.filter(|(vma, seen)| is_thp(vma) && seen.swapped.is_zero());
        found.map(|(_, seen)| seen.present)
    }
}

/// Where memory stands between two watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// Below the low one.
    Free,
    Between,
    /// At the high one, or above.
    Short,
}

fn level(marks: Watermarks, free: &FreeMemory) -> Level {
    let left = free.free() + free.page_cache;
    let used = free.total.saturating_sub(left).bytes();
    match (Usage { used, total: free.total.bytes() }).share() {
        share if share >= marks.high() => Level::Short,
        share if share >= marks.low() => Level::Between,
        _ => Level::Free,
    }
}

impl Policy for Superpage {
    fn fault(&mut self, fault: &Fault, view: &dyn View) -> FaultPlan {
        if !is_thp(&fault.vma) {
            return FaultPlan::base(FaultCause::NotWanted);
        }
        let is_free = level(self.options.marks, view.free_memory()) == Level::Free;
        if fault.is_mappable(PageSize::Huge) && fault.range.swapped.is_zero() {
            if !is_free {
                return FaultPlan::base(FaultCause::BasePages);
            }
            let attempt =
                Attempt::Map { size: PageSize::Huge, compaction: None, zeroed: Zeroed::Preferred };
            return FaultPlan::try_first(attempt, FaultCause::FirstTouch(PageSize::Huge));
        }
        let (place, present) = (
            (fault.process, PmdRange::containing(fault.address)),
            fault.range.present + BasePages(1),
        );
        let is_enough = present >= self.options.threshold && fault.range.swapped.is_zero();
        if !is_enough || !fault.vma.holds(place.1.into()) {
            return FaultPlan::base(FaultCause::BasePages);
        }
        // Whoever acts from outside has the watermarks of its configuration, and tells of the range again.
        if fault.range.is_reserved {
            return FaultPlan::try_first(Attempt::Complete, FaultCause::Threshold(present));
        }
        self.ready.push_back(place);
        FaultPlan::base(FaultCause::BasePages)
    }

    fn background(&mut self, view: &mut dyn View) -> Step {
        if view.now() >= self.again {
            while let Some(place) = self.refused.pop_front() {
                self.ready.push_back(place);
            }
            self.again = view.now() + self.options.again;
        }
        let least = self.least(view.free_memory());
        while let Some(place) = self.ready.pop_front() {
            match self.candidate(view, place) {
                Some(present) if present >= least => {
                    let (process, page) = (place.0, place.1.into());
                    let act = Act::Promote { process, page, how: How::Copy(None) };
                    return Step::Act(Action { act, cause: Cause::Threshold(present) });
                }
                Some(_) => self.refused.push_back(place),
                None => {}
            }
        }
        Step::Rest((self.refused.len() > 0).then_some(self.again))
    }

    fn pressure(&mut self, _: Shortage, view: &mut dyn View) -> Option<Action> {
        self.clock.evict_idle(view)
    }

    fn learn(&mut self, action: &Action, outcome: Outcome) {
        if let (Act::Promote { process, page, .. }, Outcome::NoFrame) = (action.act, outcome) {
            self.refused.push_back((process, PmdRange::containing(page.start())));
        }
    }

    fn forget(&mut self, process: ProcessKey, view: &dyn View) {
        let is_there = |(of, range): &Place| {
            *of != process || view.range(*of, *range).mapping == Mapping::Base
        };
        self.ready.retain(is_there);
        self.refused.retain(is_there);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            faults: Faults::Told,
            first_touch: FirstTouch::Kernel,
            idle: IdleReclaim::AboveLow,
            need: None,
            threshold: Some(self.options.threshold),
        }
    }

    fn life(&self) -> Life {
        let later = Some(self.options.threshold);
        Life {
            allocation: Allocation::FirstTouch { largest: PageSize::Huge, later },
            preparation: Preparation::AtOnce,
            mapping: Mapped::AtOnce,
            unmapping: Unmapping::WhenFreed,
            deallocation: Deallocation::WhenUnmapped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::linux::{self, Linux};
    use super::super::model::{Model, address, promoted, range, seconds, vma};
    use super::*;

    fn policy() -> Superpage {
        Superpage::new(Options::DEFAULT)
    }

    /// How a range is mapped after so many of its base pages were touched, on a machine of 40 huge pages of which so many are
    /// in use.
    fn touched(pages: u64, used: u64) -> (Model, ProcessKey, Superpage) {
        let mut model = Model::new(0, 40, 0);
        let mut policy = policy();
        let other = model.spawn(&[vma(used.max(1))]);
        for index in 0..used {
            model.fill(&mut policy, other, index, 512);
        }
        let process = model.spawn(&[vma(1)]);
        model.fill(&mut policy, process, 0, pages);
        (model, process, policy)
    }

    #[test]
    fn a_first_touch_gets_a_huge_page_while_memory_is_free() {
        for (used, expected) in [(10, Mapping::Huge), (30, Mapping::Base), (36, Mapping::Base)] {
            let (model, process, _) = touched(1, used);
            assert_eq!(model.range(process, range(0)).mapping, expected, "{used} of 40");
        }
    }

    #[test]
    fn a_promotion_is_the_dearer_the_less_memory_is_left() {
        // Of 40 huge pages 10 are below the low watermark, 28 between the two, 35 above the high one.
        for (used, pages, is_promoted) in [
            (10, 63, false),
            (10, 64, true),
            (28, 481, false),
            (28, 482, true),
            (35, 511, false),
            (35, 512, true),
        ] {
            let mut model = Model::new(0, 40, 600);
            let mut policy = policy();
            let other = model.spawn(&[vma(used)]);
            for index in 0..used {
                model.touch(
                    &mut Linux::new(linux::Options::NO_KHUGEPAGED),
                    other,
                    address(index, 0),
                );
            }
            let process = model.spawn(&[vma(1)]);
            model.hide();
            model.fill(&mut policy, process, 0, pages);
            model.show();
            model.now += seconds(10);
            let done = promoted(&model.work(&mut policy, 100).0);
            let is_done = done.iter().any(|(of, _)| *of == process);
            assert_eq!(is_done, is_promoted, "{used} of 40 in use, {pages} present");
        }
    }

    #[test]
    fn what_no_huge_page_was_free_for_is_tried_again() {
        let mut model = Model::new(0, 2, 600);
        let mut policy = policy();
        let process = model.spawn(&[vma(1)]);
        model.hide();
        model.can_compact = false;
        model.fill(&mut policy, process, 0, 100);
        model.work(&mut policy, 100);
        assert_eq!(model.range(process, range(0)).mapping, Mapping::Base);
        model.show();
        model.work(&mut policy, 100);
        assert_eq!(model.range(process, range(0)).mapping, Mapping::Base, "it waits");
        model.now += seconds(11);
        model.work(&mut policy, 100);
        assert_eq!(model.range(process, range(0)).mapping, Mapping::Huge);
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut model = Model::new(0, 20, 600);
        let mut policy = policy();
        let process = model.spawn(&[vma(1)]);
        model.hide();
        model.touch(&mut policy, process, address(0, 0));
        model.fill(&mut policy, process, 0, 100);
        assert_eq!(policy.ready.len(), 1);
        model.exit(process);
        policy.forget(process, &model);
        assert_eq!(policy.ready.len() + policy.refused.len(), 0);
    }
}
