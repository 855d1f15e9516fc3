//! Huge pages for chosen ranges only ("The Implications of Page Size Management on Graph
//! Analytics", section 5.2).
//!
//! The program chooses ranges, such as the property array of a graph, and how much of each is worth
//! huge pages: the first `s` per cent, where the hottest part lies after sorting. A first touch
//! there maps a huge page; everything else is on base pages, and nothing is promoted later.
//!
//! Deviations:
//! - The paper asks by `madvise` of a shortened length and leaves the rest to Linux. Here the ranges
//!   are the policy's, advice is not looked at, and khugepaged does not run.
//! - Under pressure it is Linux, with its clock.

use super::capabilities::{Capabilities, Need};
use super::life::{Allocation, Deallocation, Life, Mapped, Preparation, Unmapping};
use super::scan::Hand;
use super::{Action, Attempt, Fault, FaultCause, FaultPlan, Policy, Shortage, Step, View, Zeroed};
use crate::compaction::Compaction;
use alloc::vec::Vec;
use superpage_units::{Page, PageSize, ProcessKey, Share, VirtAddr};

/// A range of a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Whose.
    pub process: ProcessKey,
    /// Its first address.
    pub start: VirtAddr,
    /// The first address after it.
    pub end: VirtAddr,
}

/// What is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The ranges.
    pub ranges: Vec<Range>,
    /// The share of each, from its start, that huge pages are for: `s` of section 5.2.
    pub share: Share,
    /// How a fault makes a huge page if none is free; `None`: it takes a base page.
    pub compaction: Option<Compaction>,
}

impl Default for Options {
    /// No ranges; all of each; direct compaction, as Linux has it for memory that asked for huge
    /// pages.
    fn default() -> Self {
        Self { ranges: Vec::new(), share: Share::ALL, compaction: Some(Compaction::Sequential) }
    }
}

/// The policy. Its only state is the clock.
#[derive(Clone, Debug)]
pub struct Selective {
    options: Options,
    clock: Hand,
}

impl Selective {
    /// Huge pages for what is chosen.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, clock: Hand::default() }
    }

    /// Whether the whole page lies in the chosen part of a range.
    fn is_chosen(&self, process: ProcessKey, page: Page) -> bool {
        self.options.ranges.iter().filter(|range| range.process == process).any(|range| {
            let chosen = self.options.share.of(range.end.since(range.start));
            let end = range.start.offset(chosen);
            range.start <= page.start() && page.end() <= end
        })
    }
}

impl Policy for Selective {
    fn fault(&mut self, fault: &Fault, _: &dyn View) -> FaultPlan {
        if !self.is_chosen(fault.process, fault.page(PageSize::Huge)) {
            return FaultPlan::base(FaultCause::NotWanted);
        }
        if !fault.is_mappable(PageSize::Huge) {
            return FaultPlan::base(FaultCause::NoRoom);
        }
        let (compaction, zeroed) = (self.options.compaction, Zeroed::Preferred);
        let attempt = Attempt::Map { size: PageSize::Huge, compaction, zeroed };
        FaultPlan::try_first(attempt, FaultCause::Chosen)
    }

    fn background(&mut self, _: &mut dyn View) -> Step {
        Step::Rest(None)
    }

    fn pressure(&mut self, _: Shortage, view: &mut dyn View) -> Option<Action> {
        self.clock.evict_idle(view)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::needs(Need::ChosenRanges)
    }

    fn life(&self) -> Life {
        Life {
            allocation: Allocation::Chosen,
            preparation: Preparation::AtOnce,
            mapping: Mapped::AtOnce,
            unmapping: Unmapping::WhenFreed,
            deallocation: Deallocation::WhenUnmapped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Model, Served, address, vma};
    use super::*;
    use alloc::vec;

    /// Which of ten ranges a first touch maps by huge pages, where a range from base page 5 of
    /// range 1 to the end of range 9 is chosen.
    fn mapped(share: Share, compaction: Option<Compaction>, huge: u64) -> Vec<u64> {
        let mut model = Model::new(0, huge, 9000);
        let process = model.spawn(&[vma(10)]);
        let other = model.spawn(&[vma(10)]);
        let range = Range { process, start: address(1, 5), end: address(10, 0) };
        let mut policy = Selective::new(Options { ranges: vec![range], share, compaction });
        let is_huge = |served| matches!(served, Served::By(Attempt::Map { .. }));
        for range in 0..10 {
            assert!(!is_huge(model.touch(&mut policy, other, address(range, 0))));
        }
        let touch = |range: &u64| is_huge(model.touch(&mut policy, process, address(*range, 9)));
        (0..10).filter(touch).collect()
    }

    #[test]
    fn whole_ranges_in_the_first_part_of_a_range_are_huge() {
        assert_eq!(mapped(Share::ALL, None, 20), [2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(mapped(Share::percent(50), None, 20), [2, 3, 4], "8.99 ranges, so up to 5.5");
        assert_eq!(mapped(Share::NONE, None, 20), []);
    }

    #[test]
    fn the_share_ends_where_a_range_ends_or_before_it() {
        let range = |share| {
            let range = Range { process: ProcessKey(1), start: address(0, 0), end: address(10, 0) };
            Selective::new(Options { ranges: vec![range], share, ..Options::default() })
        };
        let page = Page::containing(address(1, 0), PageSize::Huge);
        assert!(range(Share::percent(20)).is_chosen(ProcessKey(1), page));
        assert!(!range(Share::clamped(0.199)).is_chosen(ProcessKey(1), page));
        assert!(!range(Share::percent(20)).is_chosen(ProcessKey(2), page));
    }

    #[test]
    fn without_a_free_huge_page_compaction_is_the_choice() {
        assert_eq!(mapped(Share::ALL, None, 2), [2, 3]);
        assert_eq!(mapped(Share::ALL, Some(Compaction::Sequential), 2).len(), 8);
    }
}
