//! Walking over the memory of all processes in turn, region by region or page by page, and coming
//! back to where one was; and what several systems ask of what they find on the way.

use super::{AccessBits, Act, Action, Cause, RegionView, View};
use crate::supply::Supply;
use superpage_units::{
    Advice, Area, AreaKind, BasePages, Mapping, Nanos, Page, PageSize, ProcessKey, Region, Share,
    Time, VirtAddr,
};

/// How fast a scan goes over memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Base pages scanned each time it wakes; a region counts as all of its base pages.
    pub pages: BasePages,
    /// How long it sleeps in between.
    pub sleep: Nanos,
}

impl Pace {
    /// khugepaged's defaults: 4096 base pages (`pages_to_scan`) every ten seconds
    /// (`scan_sleep_millisecs`).
    pub const KHUGEPAGED: Self = Self {
        pages: BasePages(4096), // tidy: allow(the kernel's default of pages_to_scan)
        sleep: Nanos(10_000_000_000),
    };
}

/// The area that holds the whole of `page`, if one does.
pub(super) fn area_holding(view: &dyn View, process: ProcessKey, page: Page) -> Option<Area> {
    let areas = view.areas(process);
    let after = areas.partition_point(|area| area.start <= page.start());
    areas.get(after.checked_sub(1)?).copied().filter(|area| area.holds(page))
}

/// Whether Linux, and what is made from it, may map superpages here without being asked to.
pub(super) fn is_thp(area: &Area) -> bool {
    matches!(area.kind, AreaKind::Anonymous | AreaKind::Stack) && area.advice != Advice::NoHuge
}

/// The region, with its area, if it is mapped by at least `least` base pages and one area holds
/// all of it: it could be promoted.
pub(super) fn base_mapped(
    view: &dyn View,
    process: ProcessKey,
    region: Region,
    least: BasePages,
) -> Option<(Area, RegionView)> {
    let seen = view.region(process, region);
    let is_candidate = seen.mapping == Mapping::Base && seen.population >= least;
    let area = area_holding(view, process, region.into()).filter(|_| is_candidate)?;
    Some((area, seen))
}

/// Whether less than this share of all memory is free in huge frames, and scattered free memory is
/// there to make one more from.
pub(super) fn is_huge_supply_short(supply: &Supply, share: Share) -> bool {
    let whole = supply.huge_pages().base_pages();
    let scattered = supply.free().saturating_sub(whole);
    whole.share_of(supply.total) < share && scattered >= PageSize::Huge.base_pages()
}

/// A place in the memory of all processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hand {
    process: Option<ProcessKey>,
    from: VirtAddr,
}

impl Hand {
    /// The next region with anything mapped in it. `None` at the end of the last process; after
    /// that it begins anew.
    pub(super) fn next_region(&mut self, view: &dyn View) -> Option<(ProcessKey, Region)> {
        self.advance(view, |view, process, from| {
            let region = view.next_mapped(process, from)?;
            Some((region, region.end()))
        })
    }

    /// The next mapped page, likewise.
    pub(super) fn next_page(&mut self, bits: &dyn AccessBits) -> Option<(ProcessKey, Page)> {
        self.advance(bits, |bits, process, from| {
            let page = bits.next_page(process, from)?;
            Some((page, page.end()))
        })
    }

    /// Evicts the next page that was not accessed since the hand came by last; none where accesses
    /// cannot be seen. Two rounds after the one it is in: the first may find that all were accessed.
    pub(super) fn evict_idle(&mut self, view: &mut dyn View) -> Option<Action> {
        let bits = view.access_bits()?;
        for _ in 0..3 {
            while let Some((process, page)) = self.next_page(bits) {
                if !bits.take_accessed(process, page) {
                    return Some(Action { act: Act::Evict { process, page }, cause: Cause::Clock });
                }
            }
        }
        None
    }

    fn advance<V: View + ?Sized, T>(
        &mut self,
        view: &V,
        next: impl Fn(&V, ProcessKey, VirtAddr) -> Option<(T, VirtAddr)>,
    ) -> Option<(ProcessKey, T)> {
        let begun = self.process;
        for process in view.processes().iter().copied().filter(|key| Some(*key) >= begun) {
            let from = if Some(process) == begun { self.from } else { VirtAddr::default() };
            if let Some((found, after)) = next(view, process, from) {
                *self = Self { process: Some(process), from: after };
                return Some((process, found));
            }
        }
        *self = Self::default();
        None
    }
}

/// A scan of all memory, round after round, at some pace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scanner {
    hand: Hand,
    scanned: BasePages,
    wakes: Time,
    rounds: u64,
}

/// What a scanner comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This region.
    Region(ProcessKey, Region),
    /// It sleeps until then.
    Asleep(Time),
}

impl Scanner {
    /// The next region. It sleeps when it has scanned as much as it should and at the end of the
    /// last process.
    pub(super) fn next(&mut self, view: &dyn View, pace: Pace) -> Found {
        if view.now() < self.wakes {
            return Found::Asleep(self.wakes);
        }
        if self.scanned < pace.pages {
            if let Some((process, region)) = self.hand.next_region(view) {
                self.scanned += PageSize::Huge.base_pages();
                return Found::Region(process, region);
            }
            self.rounds += 1;
        }
        self.scanned = BasePages::ZERO;
        self.wakes = view.now() + pace.sleep;
        Found::Asleep(self.wakes)
    }

    /// Leaves the rest of a gigantic page out; all of it counts as scanned.
    pub(super) fn pass(&mut self, process: ProcessKey, gigantic: Page, from: Region) {
        self.scanned += gigantic.end().since(from.end()).to_base_pages();
        self.jump(process, gigantic.end());
    }

    /// Goes on from there.
    pub(super) fn jump(&mut self, process: ProcessKey, to: VirtAddr) {
        self.hand = Hand { process: Some(process), from: to };
    }

    /// How often it has come to the end of the last process.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }
}
