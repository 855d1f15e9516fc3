//! Trident, its two ablations and Trident-pv (Trident, sections 5 to 7).
//!
//! A first touch maps 1 GiB if the VMA has room for it and a chunk is free, else 2 MiB, else a
//! base page (section 5.1.2). A thread of its own zeroes free 1 GiB chunks ahead of time. A scan promotes (section
//! 5.1.3, Figure 5): a range that 1 GiB fits and that smaller pages map goes into a gigantic page, with
//! compaction if no chunk is free; if that fails, and where 1 GiB does not fit, its ranges that
//! base pages map go into huge pages.
//!
//! | configuration | differs in |
//! |---|---|
//! | Trident-1Gonly (section 7, Figure 11) | no 2 MiB pages |
//! | Trident-NC (section 7, Figure 11) | Linux's compaction instead of the smart one |
//! | page-fault only (section 5.1.2, Table 3) | no promotion in the background |
//! | Trident-pv (section 6) | a guest exchanges what backs its huge frames instead of copying, for promotion to 1 GiB and for compaction that makes room for it: in one hypercall each or, unbatched, in one per page |
//!
//! Deviations:
//! - The paper names no pace of the scan. It is that of the scripts published with it: 2,097,152
//!   base pages each time khugepaged wakes (github.com/csl-iisc/Trident-MICRO21-artifact,
//!   scripts/common.sh). At khugepaged's default it would take hours to come by 100 GB.
//! - If no chunk was zeroed ahead of time, a fault takes any free one and zeroes it; the paper's
//!   mean latency leaves that open ([`Options::zeroed_at_fault`]).
//! - The thread that zeroes does so whenever a chunk is free and is not zeroed; the paper's does it "periodically" and has no period.
//! - No fault compacts; the paper does so in the scan only.
//! - Compaction for 2 MiB is Linux's in all configurations: the smart one chooses among 1 GiB
//!   chunks.
//! - Under pressure it is Linux, with its clock.

use super::backoff::BackOff;
use super::capabilities::{Capabilities, Need};
use super::life::{Allocation, Deallocation, Life, Mapped, Preparation, Unmapping};
use super::scan::{Found, Hand, Pace, Scanner, base_mapped, is_thp, vma_holding};
use super::{
    Act, Action, Attempt, Batching, Cause, Fault, FaultCause, FaultPlan, How, Outcome, Policy,
    Shortage, Step, View, Zeroed,
};
use crate::compaction::Compaction;
use superpage_units::{BasePages, Mapping, Nanos, Page, PageSize, PmdRange, ProcessKey};

/// Which superpages Trident uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// 2 MiB and 1 GiB.
    HugeAndGigantic,
    /// 1 GiB: Trident-1Gonly.
    Gigantic,
}

/// How smaller pages become a gigantic page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// They are copied.
    Copy,
    /// What backs them is exchanged: Trident-pv.
    Exchange(Batching),
}

/// Whether pages are promoted after they were mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// The scan promotes them.
    Promote,
    /// They stay as the fault mapped them: the paper's "page-fault only".
    Never,
}

/// Trident's choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which superpages it uses.
    pub sizes: Sizes,
    /// How the scan makes a 1 GiB chunk if none is free (section 5.1.3).
    pub compaction: Compaction,
    /// How smaller pages become a gigantic page (section 6).
    pub promotion: Promotion,
    /// Whether a fault takes a gigantic page only if it was zeroed ahead of time (section 5.1.2).
    pub zeroed_at_fault: Zeroed,
    /// The least present pages of a range that is promoted to 1 GiB. The paper promotes any range with
    /// something mapped in it (Figure 5): 1.
    pub min_present: BasePages,
    /// Whether there is a scan (section 5.1.3).
    pub later: Later,
    /// The pace of the scan.
    pub pace: Pace,
    /// How long nothing is zeroed after that failed; chosen, not measured.
    pub pause: Nanos,
}

impl Options {
    /// Trident.
    pub const PUBLISHED: Self = Self {
        sizes: Sizes::HugeAndGigantic,
        compaction: Compaction::Smart,
        promotion: Promotion::Copy,
        zeroed_at_fault: Zeroed::Preferred,
        min_present: BasePages(1),
        later: Later::Promote,
        pace: Pace { pages: BasePages(8 * PageSize::Gigantic.base_pages().0), ..Pace::KHUGEPAGED },
        pause: Nanos(1_000_000_000),
    };
    /// Trident-1Gonly.
    pub const GIGANTIC_ONLY: Self = Self { sizes: Sizes::Gigantic, ..Self::PUBLISHED };
    /// Trident-NC.
    pub const NORMAL_COMPACTION: Self =
        Self { compaction: Compaction::Sequential, ..Self::PUBLISHED };
    /// Trident without its scan.
    pub const FAULTS_ONLY: Self = Self { later: Later::Never, ..Self::PUBLISHED };
    /// Trident-pv.
    pub const PARAVIRTUAL: Self =
        Self { promotion: Promotion::Exchange(Batching::Whole), ..Self::PUBLISHED };
    /// Trident-pv with one exchange in each hypercall.
    pub const PARAVIRTUAL_SINGLE: Self =
        Self { promotion: Promotion::Exchange(Batching::Single), ..Self::PUBLISHED };
}

/// A range of 1 GiB in a round of the scan.
type Visit = (u64, ProcessKey, Page);

/// The policy. Its state is where its scan is.
#[derive(Clone, Debug)]
pub struct Trident {
    options: Options,
    scanner: Scanner,
    /// The range that is left to huge pages in this round: 1 GiB does not fit it, or failed.
    left_to_huge: Option<Visit>,
    zeroing: BackOff,
    clock: Hand,
}

impl Trident {
    /// Trident with these options, about to scan.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            scanner: Scanner::default(),
            left_to_huge: None,
            zeroing: BackOff::default(),
            clock: Hand::default(),
        }
    }

    /// Trident's judgement of what the scan came to: first of the 1 GiB around it, then of itself.
    fn judge(&mut self, view: &dyn View, process: ProcessKey, range: PmdRange) -> Step {
        let gigantic = Page::containing(range.start(), PageSize::Gigantic);
        let visit = (self.scanner.rounds(), process, gigantic);
        if self.left_to_huge == Some(visit) {
            return self.judge_huge(view, process, range);
        }
        if view.range(process, range).mapping == Mapping::Gigantic {
            self.scanner.pass(process, gigantic, range);
            return Step::Scanned(PageSize::Huge.base_pages());
        }
        if let Some(present) = self.gigantic_present(view, process, gigantic) {
            self.scanner.pass(process, gigantic, range);
            return promote(process, gigantic, self.how_gigantic(), present);
        }
        self.left_to_huge = Some(visit);
        self.judge_huge(view, process, range)
    }

    /// The present pages of a range that is to be mapped by a gigantic page.
    fn gigantic_present(
        &self,
        view: &dyn View,
        process: ProcessKey,
        gigantic: Page,
    ) -> Option<BasePages> {
        vma_holding(view, process, gigantic).filter(is_thp)?;
        let present = gigantic.ranges().map(|range| view.range(process, range).present);
        Some(present.sum()).filter(|pages| *pages >= self.options.min_present)
    }

    fn how_gigantic(&self) -> How {
        let compaction = Some(self.options.compaction);
        match self.options.promotion {
            Promotion::Copy => How::Copy(compaction),
            Promotion::Exchange(batching) => How::Exchange(batching, compaction),
        }
    }

    fn judge_huge(&mut self, view: &dyn View, process: ProcessKey, range: PmdRange) -> Step {
        let found = base_mapped(view, process, range, BasePages(1));
        match found.filter(|(vma, _)| is_thp(vma)) {
            Some((_, seen)) if self.options.sizes == Sizes::HugeAndGigantic => {
                let how = How::Copy(Some(Compaction::Sequential));
                promote(process, range.into(), how, seen.present)
            }
            _ => Step::Scanned(PageSize::Huge.base_pages()),
        }
    }
}

fn promote(process: ProcessKey, page: Page, how: How, present: BasePages) -> Step {
    let act = Act::Promote { process, page, how };
    Step::Act(Action { act, cause: Cause::Scanned(present) })
}

impl Policy for Trident {
    fn fault(&mut self, fault: &Fault, _: &dyn View) -> FaultPlan {
        if !is_thp(&fault.vma) {
            return FaultPlan::base(FaultCause::NotWanted);
        }
        let zeroed = self.options.zeroed_at_fault;
        let gigantic = Attempt::Map { size: PageSize::Gigantic, compaction: None, zeroed };
        let zeroed = Zeroed::Preferred;
        let huge = Attempt::Map { size: PageSize::Huge, compaction: None, zeroed };
        let has_huge = self.options.sizes == Sizes::HugeAndGigantic;
        let first_touch = FaultCause::FirstTouch;
        match (fault.is_mappable(PageSize::Gigantic), fault.is_mappable(PageSize::Huge) && has_huge)
        {
            (true, true) => FaultPlan::try_both(gigantic, huge, first_touch(PageSize::Gigantic)),
            (true, false) => FaultPlan::try_first(gigantic, first_touch(PageSize::Gigantic)),
            (false, true) => FaultPlan::try_first(huge, first_touch(PageSize::Huge)),
            (false, false) => FaultPlan::base(FaultCause::NoRoom),
        }
    }

    /// "A kernel thread periodically zero-fills free 1GB regions" (section 5.1.2).
    fn prepare(&mut self, view: &dyn View) -> Step {
        if let Some(until) = self.zeroing.until(view.now(), self.options.pause) {
            return Step::Rest(Some(until));
        }
        let free_memory = view.free_memory();
        let free = free_memory.chunks[usize::from(PageSize::Gigantic.order())];
        if free_memory.zeroed_gigantic >= free {
            return Step::Rest(None);
        }
        let act = Act::Zero(PageSize::Gigantic);
        Step::Act(Action { act, cause: Cause::Short(PageSize::Gigantic) })
    }

    fn background(&mut self, view: &mut dyn View) -> Step {
        if self.options.later == Later::Never {
            return Step::Rest(None);
        }
        match self.scanner.next(view, self.options.pace) {
            Found::PmdRange(process, range) => self.judge(view, process, range),
            Found::Asleep(until) => Step::Rest(Some(until)),
        }
    }

    fn pressure(&mut self, _: Shortage, view: &mut dyn View) -> Option<Action> {
        self.clock.evict_idle(view)
    }

    /// No chunk could be had for a gigantic page: the scan goes back over its range, for huge pages.
    fn learn(&mut self, action: &Action, outcome: Outcome) {
        match action.act {
            Act::Promote { process, page, .. }
                if page.size() == PageSize::Gigantic && outcome == Outcome::NoFrame =>
            {
                self.left_to_huge = Some((self.scanner.rounds(), process, page));
                if self.options.sizes == Sizes::HugeAndGigantic {
                    self.scanner.jump(process, page.start());
                }
            }
            Act::Zero(_) if outcome != Outcome::Done => self.zeroing.fail(),
            _ => {}
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::needs(Need::GiganticPages)
    }

    fn life(&self) -> Life {
        let later = (self.options.later == Later::Promote).then_some(BasePages(1));
        Life {
            allocation: Allocation::FirstTouch { largest: PageSize::Gigantic, later },
            preparation: match self.options.promotion {
                Promotion::Copy => Preparation::AheadOfTime,
                Promotion::Exchange(_) => Preparation::Exchange,
            },
            mapping: Mapped::AtOnce,
            unmapping: Unmapping::WhenFreed,
            deallocation: Deallocation::WhenUnmapped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::drive;
    use super::super::model::{Model, START, Served, address, at_second, promoted, range, vma};
    use super::*;
    use alloc::vec::Vec;
    use superpage_units::{Advice, Vma};

    /// Ranges in a gigantic page.
    const RANGES: u64 = 512;

    fn gigantic_at(index: u64) -> Page {
        Page::containing(address(index * RANGES, 0), PageSize::Gigantic)
    }

    fn size(served: Served) -> Option<PageSize> {
        match served {
            Served::By(Attempt::Map { size, .. }) => Some(size),
            Served::By(Attempt::Base) => Some(PageSize::Base),
            _ => None,
        }
    }

    #[test]
    fn a_fault_takes_the_largest_page_that_fits_and_is_free() {
        use PageSize::{Base, Gigantic, Huge};
        let rows = [
            // Free gigantic and huge chunks, and what each configuration maps at the first touch of
            // room for 1 GiB, for 2 MiB, for less.
            (2, 2, Options::PUBLISHED, [Gigantic, Huge, Base]),
            (0, 2, Options::PUBLISHED, [Huge, Huge, Base]),
            (0, 0, Options::PUBLISHED, [Base, Base, Base]),
            (2, 2, Options::GIGANTIC_ONLY, [Gigantic, Base, Base]),
            (0, 2, Options::GIGANTIC_ONLY, [Base, Base, Base]),
        ];
        for (gigantic, huge, options, expected) in rows {
            let mut model = Model::new(gigantic, huge, 50);
            let process = model.spawn(&[Vma { end: address(RANGES + 1, 9), ..vma(1) }]);
            let mut policy = Trident::new(options);
            let places = [address(3, 0), address(RANGES, 7), address(RANGES + 1, 3)];
            let sizes = places.map(|at| size(model.touch(&mut policy, process, at)));
            assert_eq!(sizes, expected.map(Some), "{gigantic} {huge} {options:?}");
            model.check();
        }
    }

    #[test]
    fn a_gigantic_page_needs_an_empty_range() {
        let mut model = Model::new(2, 2, 50);
        let process = model.spawn(&[vma(RANGES)]);
        let mut policy = Trident::new(Options::PUBLISHED);
        model.hide();
        model.touch(&mut policy, process, address(9, 0));
        model.show();
        let served = model.touch(&mut policy, process, address(10, 0));
        assert_eq!(size(served), Some(PageSize::Huge));
    }

    #[test]
    fn a_fault_can_insist_on_a_chunk_zeroed_ahead_of_time() {
        let options = Options { zeroed_at_fault: Zeroed::Required, ..Options::PUBLISHED };
        for (zeroed, expected) in [(0, PageSize::Huge), (1, PageSize::Gigantic)] {
            let mut model = Model::new(2, 2, 50);
            let process = model.spawn(&[vma(RANGES)]);
            let mut policy = Trident::new(options);
            for _ in 0..zeroed {
                let Step::Act(action) = policy.prepare(&model) else { panic!("idle") };
                assert_eq!(action.act, Act::Zero(PageSize::Gigantic));
                drive::carry_out(&mut policy, &mut model, &action);
            }
            assert_eq!(size(model.touch(&mut policy, process, START)), Some(expected));
        }
    }

    #[test]
    fn all_free_gigantic_chunks_are_zeroed() {
        let mut model = Model::new(3, 9, 50);
        model.work(&mut Trident::new(Options::PUBLISHED), 100);
        assert_eq!(model.free_memory().zeroed_gigantic, 3);
    }

    /// Two ranges of 1 GiB and one range more, with two base pages in each of three ranges of the
    /// first, one of the second, and in the last.
    fn small_pages(model: &mut Model, policy: &mut Trident) -> ProcessKey {
        let process = model.spawn(&[vma(2 * RANGES + 1)]);
        model.hide();
        for index in [0, 1, 5, RANGES + 2, 2 * RANGES] {
            model.fill(policy, process, index, 2);
        }
        model.show();
        process
    }

    fn work(
        options: Options,
        gigantic: u64,
        base: u64,
        can_compact: u64,
    ) -> Vec<(Action, Outcome)> {
        let mut model = Model::new(gigantic, 20, base);
        let mut policy = Trident::new(options);
        small_pages(&mut model, &mut policy);
        model.can_compact = can_compact > 0;
        let done = model.work(&mut policy, 1000).0;
        model.check();
        done.into_iter().filter(|(action, _)| matches!(action.act, Act::Promote { .. })).collect()
    }

    fn pages(done: &[(Action, Outcome)]) -> Vec<Page> {
        promoted(done).into_iter().map(|(_, page)| page).collect()
    }

    fn huge(index: u64) -> Page {
        range(index).into()
    }

    #[test]
    fn the_scan_makes_gigantic_pages_and_huge_ones_where_those_do_not_fit() {
        let done = work(Options::PUBLISHED, 2, 50, 0);
        assert_eq!(pages(&done), [gigantic_at(0), gigantic_at(1), huge(2 * RANGES)]);
        assert_eq!(done[0].0.cause, Cause::Scanned(BasePages(6)));
    }

    /// Figure 5: 1 GiB, else compaction, else 2 MiB in that range; then the next range.
    #[test]
    fn a_range_falls_back_to_huge_pages_when_1_gib_fails() {
        let done = work(Options::PUBLISHED, 1, 50, 0);
        let tried: Vec<_> = done
            .iter()
            .map(|(action, outcome)| match action.act {
                Act::Promote { page, .. } => (page, *outcome),
                _ => panic!("{action:?}"),
            })
            .collect();
        let expected = [
            (gigantic_at(0), Outcome::Done),
            (gigantic_at(1), Outcome::NoFrame),
            (huge(RANGES + 2), Outcome::Done),
            (huge(2 * RANGES), Outcome::Done),
        ];
        assert_eq!(tried, expected);
        let compacted = work(Options::PUBLISHED, 1, 512 * 512 + 50, 1);
        assert_eq!(pages(&compacted), [gigantic_at(0), gigantic_at(1), huge(2 * RANGES)]);
    }

    #[test]
    fn a_range_left_to_huge_pages_is_tried_again_in_the_next_round() {
        let mut model = Model::new(0, 20, 50);
        let mut policy = Trident::new(Options::PUBLISHED);
        let process = model.spawn(&[vma(RANGES)]);
        model.hide();
        model.fill(&mut policy, process, 3, 1);
        model.show();
        model.can_compact = false;
        assert_eq!(pages(&model.work(&mut policy, 100).0), [huge(3)]);
        for round in 1..3 {
            model.now = at_second(10 * round);
            let (done, _) = model.work(&mut policy, 100);
            assert_eq!(done.len(), 1, "one attempt in each round");
            assert_eq!(done[0].1, Outcome::NoFrame);
        }
    }

    #[test]
    fn the_ablations_and_the_guest_differ_in_one_thing_each() {
        let how = |options, gigantic| {
            let done = work(options, gigantic, 50, 0);
            let how = |(action, _): &(Action, Outcome)| match action.act {
                Act::Promote { page, how, .. } => (page.size(), how),
                _ => panic!("{action:?}"),
            };
            let mut found: Vec<_> = done.iter().map(how).collect();
            found.dedup();
            found
        };
        let (smart, sequential) = (Some(Compaction::Smart), Some(Compaction::Sequential));
        let by_huge = (PageSize::Huge, How::Copy(sequential));
        let gigantic = |how| (PageSize::Gigantic, how);
        assert_eq!(how(Options::PUBLISHED, 2), [gigantic(How::Copy(smart)), by_huge]);
        assert_eq!(how(Options::GIGANTIC_ONLY, 1), [gigantic(How::Copy(smart))]);
        let nc = how(Options::NORMAL_COMPACTION, 2);
        assert_eq!(nc, [gigantic(How::Copy(sequential)), by_huge]);
        let pv = How::Exchange(Batching::Whole, smart);
        assert_eq!(how(Options::PARAVIRTUAL, 2), [gigantic(pv), by_huge]);
        let single = How::Exchange(Batching::Single, smart);
        assert_eq!(how(Options::PARAVIRTUAL_SINGLE, 2), [gigantic(single), by_huge]);
    }

    #[test]
    fn a_least_present_keeps_sparse_ranges_on_huge_pages() {
        for (least, expected) in [(6, gigantic_at(0)), (7, huge(0))] {
            let options = Options { min_present: BasePages(least), ..Options::PUBLISHED };
            assert_eq!(pages(&work(options, 2, 50, 0))[0], expected);
        }
    }

    #[test]
    fn the_scan_keeps_khugepageds_pace() {
        let mut model = Model::new(0, 40, 100);
        let process = model.spawn(&[vma(20)]);
        let mut policy = Trident::new(Options { pace: Pace::KHUGEPAGED, ..Options::PUBLISHED });
        model.hide();
        for index in 0..20 {
            model.fill(&mut policy, process, index, 1);
        }
        model.show();
        for (second, expected) in [(0, 8), (9, 0), (10, 8), (20, 4)] {
            model.now = at_second(second);
            assert_eq!(promoted(&model.work(&mut policy, 100).0).len(), expected);
        }
    }

    #[test]
    fn a_gigantic_range_counts_as_all_of_its_base_pages() {
        let pages = PageSize::Gigantic.base_pages() * 2;
        let options = Options { pace: Pace { pages, ..Pace::KHUGEPAGED }, ..Options::PUBLISHED };
        let mut model = Model::new(5, 9, 50);
        let process = model.spawn(&[vma(5 * RANGES)]);
        let mut policy = Trident::new(options);
        model.hide();
        for gigantic in 0..5 {
            model.fill(&mut policy, process, gigantic * RANGES, 1);
        }
        model.show();
        for (second, expected) in [(0, 2), (9, 0), (10, 2), (20, 1)] {
            model.now = at_second(second);
            assert_eq!(promoted(&model.work(&mut policy, 100).0).len(), expected);
        }
    }

    #[test]
    fn without_its_scan_pages_stay_as_the_fault_mapped_them() {
        assert_eq!(pages(&work(Options::PUBLISHED, 2, 50, 0)).len(), 3);
        assert_eq!(pages(&work(Options::FAULTS_ONLY, 2, 50, 0)).len(), 0);
    }

    #[test]
    fn what_asked_for_none_gets_no_superpages() {
        let mut model = Model::new(2, 20, 50);
        let no = Vma { advice: Advice::NoHuge, ..vma(RANGES) };
        let process = model.spawn(&[no]);
        let mut policy = Trident::new(Options::PUBLISHED);
        assert_eq!(size(model.touch(&mut policy, process, START)), Some(PageSize::Base));
        assert_eq!(promoted(&model.work_and_wait(&mut policy, 3)), []);
    }
}
