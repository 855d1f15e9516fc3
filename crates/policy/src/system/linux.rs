//! Linux: transparent huge pages as the kernel has them, and with them switched off.
//!
//! A huge page is allocated, zeroed and mapped at the first touch of an aligned range inside an
//! area (Quicksilver, Table 1, "Linux"), after direct compaction if none is free. khugepaged walks
//! 4096 base pages every ten seconds and promotes any region with one base page present. Since
//! 6.12 the kernel splits underused huge pages under reclaim:
//! another rule, a policy of [`crate::debloat`]. When memory is short and there is swap, pages that were not
//! accessed lately go there, huge ones whole (`CONFIG_THP_SWAP`).
//!
//! Deviations:
//! - The kernel's two generations of LRU lists are one clock here.
//! - `khugepaged` counts a region as 512 scanned base pages whatever it finds, as kernels before
//!   6.16 do.

use super::life::{Allocation, Deallocation, Life, Mapped, Preparation, Unmapping};
use super::scan::{Hand, area_holding};
use super::{
    Act, Action, Advice, Area, AreaKind, Attempt, Cause, Fault, FaultCause, FaultPlan, How,
    Mapping, Outcome, Shortage, Step, System, View, Zeroed,
};
use crate::compaction::Compaction;
use crate::debloat::ProcessKey;
use crate::page::PageSize;
use crate::region::Region;
use crate::units::{BasePages, Nanos};

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
    /// How many base pages of a region may be missing (`max_ptes_none`).
    pub max_missing: BasePages,
    /// How many may be in swap (`max_ptes_swap`).
    pub max_swapped: BasePages,
}

impl Default for Khugepaged {
    /// The kernel's defaults: 4096 base pages, ten seconds, 511.
    fn default() -> Self {
        Self {
            pages: BasePages(4096),
            sleep: Nanos(10_000_000_000),
            max_missing: BasePages(511),
            max_swapped: BasePages(64),
        }
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
        khugepaged: Some(Khugepaged {
            pages: BasePages(4096),
            sleep: Nanos(10_000_000_000),
            max_missing: BasePages(511),
            max_swapped: BasePages(64),
        }),
    };
    /// Base pages only.
    pub const NEVER: Self =
        Self { enabled: Enabled::Never, defrag: Defrag::Never, khugepaged: None };
}

/// The policy. Its state is where khugepaged and the clock's hand are.
#[derive(Clone, Debug)]
pub struct Linux {
    options: Options,
    khugepaged: Hand,
    scanned: BasePages,
    wakes: Nanos,
    clock: Hand,
}

impl Linux {
    /// Linux with these knobs, khugepaged about to wake.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            khugepaged: Hand::default(),
            scanned: BasePages::ZERO,
            wakes: Nanos::ZERO,
            clock: Hand::default(),
        }
    }

    /// Whether huge pages are wanted in this area.
    fn wants(&self, area: &Area) -> bool {
        let is_memory = matches!(area.kind, AreaKind::Anonymous | AreaKind::Stack);
        is_memory
            && match self.options.enabled {
                Enabled::Always => area.advice != Advice::NoHuge,
                Enabled::Madvise => area.advice == Advice::Huge,
                Enabled::Never => false,
            }
    }

    fn compaction(&self, area: &Area) -> Option<Compaction> {
        let may = match self.options.defrag {
            Defrag::Always => true,
            Defrag::Madvise => area.advice == Advice::Huge,
            Defrag::Never => false,
        };
        may.then_some(Compaction::Sequential)
    }

    /// khugepaged's judgement of one region.
    fn judge(
        &self,
        view: &dyn View,
        process: ProcessKey,
        region: Region,
        khugepaged: Khugepaged,
    ) -> Step {
        let seen = view.region(process, region);
        let area = area_holding(view, process, region.into());
        let is_candidate = seen.mapping == Mapping::Base
            && PageSize::Huge.base_pages().saturating_sub(seen.population)
                <= khugepaged.max_missing
            && seen.swapped <= khugepaged.max_swapped
            && area.is_some_and(|area| self.wants(&area));
        if !is_candidate {
            return Step::Scanned(PageSize::Huge.base_pages());
        }
        let how = How::Copy(Some(Compaction::Sequential));
        Step::Act(Action {
            act: Act::Promote { process, page: region.into(), how },
            cause: Cause::Scanned(seen.population),
        })
    }
}

impl System for Linux {
    fn fault(&mut self, fault: &Fault, _: &dyn View) -> FaultPlan {
        if !self.wants(&fault.area) {
            return FaultPlan::base(FaultCause::NotWanted);
        }
        if !fault.is_mappable(PageSize::Huge) || !fault.region.swapped.is_zero() {
            return FaultPlan::base(FaultCause::NoRoom);
        }
        let compaction = self.compaction(&fault.area);
        let attempt = Attempt::Map { size: PageSize::Huge, compaction, zeroed: Zeroed::Preferred };
        FaultPlan::try_first(attempt, FaultCause::FirstTouch(PageSize::Huge))
    }

    fn background(&mut self, view: &mut dyn View) -> Step {
        let Some(khugepaged) = self.options.khugepaged else {
            return Step::Rest(None);
        };
        if view.now() < self.wakes {
            return Step::Rest(Some(self.wakes));
        }
        let next =
            if self.scanned < khugepaged.pages { self.khugepaged.next_region(view) } else { None };
        let Some((process, region)) = next else {
            self.scanned = BasePages::ZERO;
            self.wakes = view.now() + khugepaged.sleep;
            return Step::Rest(Some(self.wakes));
        };
        self.scanned += PageSize::Huge.base_pages();
        self.judge(view, process, region, khugepaged)
    }

    fn pressure(&mut self, _: Shortage, view: &mut dyn View) -> Option<Action> {
        next_idle(&mut self.clock, view)
    }

    fn learn(&mut self, _: &Action, _: Outcome) {}

    fn life(&self) -> Life {
        let later = self
            .options
            .khugepaged
            .map(|khugepaged| PageSize::Huge.base_pages().saturating_sub(khugepaged.max_missing));
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

/// The next page that was not accessed since the hand came by last. Two rounds: the first may find
/// that all were accessed.
fn next_idle(clock: &mut Hand, view: &mut dyn View) -> Option<Action> {
    for _ in 0..3 {
        while let Some((process, page)) = clock.next_page(view) {
            if !view.take_accessed(process, page) {
                return Some(Action { act: Act::Evict { process, page }, cause: Cause::Clock });
            }
        }
    }
    None
}
