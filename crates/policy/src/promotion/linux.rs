//! Linux: transparent huge pages as the kernel has them, and with them switched off.
//!
//! A huge page is allocated, zeroed and mapped at the first touch of an aligned range inside an
//! VMA (Quicksilver, Table 1, "Linux"), after direct compaction if none is free. khugepaged walks
//! 4096 base pages every ten seconds and promotes any range with one base page present. Since
//! 6.12 the kernel splits underused huge pages under reclaim: another rule,
//! [`crate::debloat::underused`]. When memory is short and there is swap, pages that were not
//! accessed lately go there, huge ones whole (`CONFIG_THP_SWAP`).
//!
//! Deviations:
//! - The kernel's two generations of LRU lists are one clock here.
//! - `khugepaged` counts a range as 512 scanned base pages whatever it finds, as kernels before
//!   6.16 do.
//! - Compaction that failed is tried again by the next fault. The kernel defers it, for up to 64 attempts
//!   (`defer_compaction()` in mm/compaction.c).
//! - A fault whose compaction failed takes a base page at once. The kernel reclaims directly and compacts once more first
//!   (`__alloc_pages_slowpath()` in mm/page_alloc.c).
//! - Compaction looks at every block again. The kernel passes over blocks from which it could isolate nothing (`pageblock_skip`).
//! - kswapd does not swap: a fault that finds no memory does.
//! - There is no kcompactd. Nothing wakes it for a huge page under the settings of `defrag` that are here: page faults and khugepaged
//!   allocate without `__GFP_KSWAPD_RECLAIM` then (`vma_thp_gfp_mask()` in mm/huge_memory.c), and the row of no daemon in the live
//!   experiment `compaction` has none of its CPU time. From Linux 5.9 on it also compacts by itself, above 90 % of free memory in pieces.
//!   Of the papers that name their kernel the graph paper has a newer one (5.15; EMD 4.3, Trident 4.17.3), and there all that
//!   fragments memory is unmovable.

use super::capabilities::Capabilities;
use super::life::{Allocation, Deallocation, Life, Mapped, Preparation, Unmapping};
use super::scan::{Found, Hand, Pace, Scanner, base_mapped};
use super::{
    Act, Action, Attempt, Cause, Fault, FaultCause, FaultPlan, How, Policy, Shortage, Step, View,
    Zeroed,
};
use crate::compaction::Compaction;
use superpage_units::{Advice, BasePages, Nanos, PageSize, PmdRange, ProcessKey, Vma, VmaKind};

/// `transparent_hugepage/enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enabled {
    /// Everywhere but where the program says no.
    Always,
    /// Where the program says so.
    Madvise,
    /// Nowhere.
    Never,
}

/// `transparent_hugepage/defrag`: what a fault does if no huge page is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defrag {
    /// Compact memory, whatever it costs.
    Always,
    /// That, but only where the program asked for huge pages.
    Madvise,
    /// Take a base page.
    Never,
}

/// khugepaged's pace and threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Khugepaged {
    /// Base pages scanned each time it wakes (`pages_to_scan`).
    pub pages: BasePages,
    /// How long it sleeps in between (`scan_sleep_millisecs`).
    pub sleep: Nanos,
    /// How many base pages of a range may be missing (`max_ptes_none`).
    pub max_missing: BasePages,
    /// How many may be in swap (`max_ptes_swap`).
    pub max_swapped: BasePages,
    /// How many may be shared with other processes (`max_ptes_shared`).
    pub max_shared: BasePages,
}

impl Khugepaged {
    /// The kernel's defaults: 4096 base pages, ten seconds, 511, an eighth of a huge page, half of it.
    pub const DEFAULT: Self = Self {
        pages: Pace::KHUGEPAGED.pages,
        sleep: Pace::KHUGEPAGED.sleep,
        max_missing: BasePages(511),
        max_swapped: BasePages(64),
        max_shared: BasePages(256),
    };

    /// The least present pages of a range that it promotes.
    fn least(self) -> BasePages {
        PageSize::Huge.base_pages().saturating_sub(self.max_missing).max(BasePages(1))
    }
}

impl Default for Khugepaged {
    /// [`Khugepaged::DEFAULT`].
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Linux's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where huge pages are used.
    pub enabled: Enabled,
    /// What a fault does if none is free.
    pub defrag: Defrag,
    /// khugepaged, if it runs.
    pub khugepaged: Option<Khugepaged>,
}

impl Options {
    /// Huge pages everywhere, with direct compaction and khugepaged.
    pub const ALWAYS: Self = Self {
        enabled: Enabled::Always,
        defrag: Defrag::Always,
        khugepaged: Some(Khugepaged::DEFAULT),
    };
    /// Huge pages where the program asks for them.
    pub const MADVISE: Self =
        Self { enabled: Enabled::Madvise, defrag: Defrag::Madvise, ..Self::ALWAYS };
    /// Huge pages everywhere, and faults that compact where the program asks for that: what a
    /// kernel from 4.6 on does if nobody sets `defrag`.
    pub const DEFRAG_MADVISE: Self = Self { defrag: Defrag::Madvise, ..Self::ALWAYS };
    /// Huge pages everywhere at faults, and none later.
    pub const NO_KHUGEPAGED: Self = Self { khugepaged: None, ..Self::ALWAYS };
    /// Base pages only.
    pub const NEVER: Self =
        Self { enabled: Enabled::Never, defrag: Defrag::Never, khugepaged: None };
}

/// The policy. Its state is where khugepaged and the clock's hand are.
#[derive(Clone, Debug)]
pub struct Linux {
    options: Options,
    khugepaged: Scanner,
    clock: Hand,
}

impl Linux {
    /// Linux with these knobs, khugepaged about to wake.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, khugepaged: Scanner::default(), clock: Hand::default() }
    }

    /// Whether huge pages are wanted in this VMA.
    fn wants(&self, vma: &Vma) -> bool {
        let is_memory = matches!(vma.kind, VmaKind::Anonymous | VmaKind::Stack);
        is_memory
            && match self.options.enabled {
                Enabled::Always => vma.advice != Advice::NoHuge,
                Enabled::Madvise => vma.advice == Advice::Huge,
                Enabled::Never => false,
            }
    }

    fn compaction(&self, vma: &Vma) -> Option<Compaction> {
        let may = match self.options.defrag {
            Defrag::Always => true,
            Defrag::Madvise => vma.advice == Advice::Huge,
            Defrag::Never => false,
        };
        may.then_some(Compaction::Sequential)
    }

    /// khugepaged's judgement of one range.
    fn judge(
        &self,
        view: &dyn View,
        process: ProcessKey,
        range: PmdRange,
        khugepaged: Khugepaged,
    ) -> Step {
        let found = base_mapped(view, process, range, khugepaged.least());
        let Some((_, seen)) = found.filter(|(vma, seen)| {
            self.wants(vma)
                && seen.swapped <= khugepaged.max_swapped
                && seen.shared <= khugepaged.max_shared
        }) else {
            return Step::Scanned(PageSize::Huge.base_pages());
        };
        let how = How::Copy(Some(Compaction::Sequential));
        Step::Act(Action {
            act: Act::Promote { process, page: range.into(), how },
            cause: Cause::Scanned(seen.present),
        })
    }
}

impl Policy for Linux {
    fn fault(&mut self, fault: &Fault, _: &dyn View) -> FaultPlan {
        if !self.wants(&fault.vma) {
            return FaultPlan::base(FaultCause::NotWanted);
        }
        if !fault.is_mappable(PageSize::Huge) || !fault.range.swapped.is_zero() {
            return FaultPlan::base(FaultCause::NoRoom);
        }
        let compaction = self.compaction(&fault.vma);
        let attempt = Attempt::Map { size: PageSize::Huge, compaction, zeroed: Zeroed::Preferred };
        FaultPlan::try_first(attempt, FaultCause::FirstTouch(PageSize::Huge))
    }

    fn background(&mut self, view: &mut dyn View) -> Step {
        let Some(khugepaged) = self.options.khugepaged else {
            return Step::Rest(None);
        };
        let pace = Pace { pages: khugepaged.pages, sleep: khugepaged.sleep };
        match self.khugepaged.next(view, pace) {
            Found::PmdRange(process, range) => self.judge(view, process, range, khugepaged),
            Found::Asleep(until) => Step::Rest(Some(until)),
        }
    }

    fn pressure(&mut self, _: Shortage, view: &mut dyn View) -> Option<Action> {
        self.clock.evict_idle(view)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::SCANS
    }

    fn life(&self) -> Life {
        let later = self.options.khugepaged.map(Khugepaged::least);
        match self.options.enabled {
            Enabled::Never => Life {
                allocation: Allocation::Never,
                preparation: Preparation::Never,
                mapping: Mapped::Never,
                unmapping: Unmapping::Never,
                deallocation: Deallocation::Never,
            },
            Enabled::Always | Enabled::Madvise => Life {
                allocation: Allocation::FirstTouch { largest: PageSize::Huge, later },
                preparation: Preparation::AtOnce,
                mapping: Mapped::AtOnce,
                unmapping: Unmapping::WhenFreed,
                deallocation: Deallocation::WhenUnmapped,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Model, START, address, at_second, promoted, range, vma};
    use super::*;
    use superpage_units::{Mapping, PageSize};

    fn mapped_at_first_touch(options: Options, kind: VmaKind, advice: Advice) -> Mapping {
        let mut model = Model::new(0, 1, 50);
        let process = model.spawn(&[Vma { kind, advice, ..vma(1) }]);
        model.touch(&mut Linux::new(options), process, START);
        model.range(process, range(0)).mapping
    }

    #[test]
    fn advice_and_settings_decide_where_huge_pages_are_used() {
        use Mapping::{Base, Huge};
        let rows = [
            (Options::ALWAYS, [Huge, Huge, Base]),
            (Options::MADVISE, [Base, Huge, Base]),
            (Options::NEVER, [Base, Base, Base]),
        ];
        for (options, expected) in rows {
            let advice = [Advice::None, Advice::Huge, Advice::NoHuge];
            let of = |kind| advice.map(|advice| mapped_at_first_touch(options, kind, advice));
            assert_eq!(of(VmaKind::Anonymous), expected);
            assert_eq!(of(VmaKind::Stack), expected);
            assert_eq!(of(VmaKind::File), [Base; 3]);
        }
    }

    #[test]
    fn a_fault_compacts_if_it_may() {
        let rows = [
            (Defrag::Always, Mapping::Huge),
            (Options::DEFRAG_MADVISE.defrag, Mapping::Base),
            (Defrag::Never, Mapping::Base),
        ];
        for (defrag, expected) in rows {
            let mut model = Model::new(0, 0, 600);
            let process = model.spawn(&[vma(1)]);
            let options = Options { defrag, ..Options::NO_KHUGEPAGED };
            model.touch(&mut Linux::new(options), process, START);
            assert_eq!(model.range(process, range(0)).mapping, expected);
        }
    }

    #[test]
    fn khugepaged_promotes_what_misses_no_more_than_it_may() {
        for (missing, expected) in [(508, 1), (507, 0)] {
            let khugepaged = Khugepaged { max_missing: BasePages(missing), ..Khugepaged::DEFAULT };
            let options = Options { khugepaged: Some(khugepaged), ..Options::ALWAYS };
            let mut model = Model::new(0, 1, 50);
            let process = model.spawn(&[vma(1)]);
            let mut policy = Linux::new(options);
            model.hide();
            model.can_compact = false;
            model.fill(&mut policy, process, 0, 4);
            model.show();
            assert_eq!(promoted(&model.work(&mut policy, 100).0).len(), expected);
        }
    }

    #[test]
    fn khugepaged_scans_eight_ranges_every_ten_seconds_in_order() {
        let mut model = Model::new(0, 40, 100);
        let process = model.spawn(&[vma(20)]);
        let mut policy = Linux::new(Options::ALWAYS);
        model.hide();
        model.can_compact = false;
        for index in 0..20 {
            model.touch(&mut policy, process, address(index, 0));
        }
        model.show();
        for (second, expected) in [(0, 0..8), (9, 8..8), (10, 8..16), (20, 16..20)] {
            model.now = at_second(second);
            let expected: alloc::vec::Vec<_> =
                expected.map(|index| (process, range(index).into())).collect();
            assert_eq!(promoted(&model.work(&mut policy, 100).0), expected);
        }
        assert_eq!(model.range(process, range(19)).mapping, Mapping::Huge);
        assert_eq!(PageSize::Huge.base_pages() * 8, Khugepaged::DEFAULT.pages);
    }
}
