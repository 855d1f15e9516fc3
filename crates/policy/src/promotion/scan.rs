//! Walking over the memory of all processes in turn, range by range or page by page, and coming
//! back to where one was; and what several policies ask of what they find on the way.

use super::{AccessBits, Act, Action, Cause, RangeView, View};
use crate::free_memory::FreeMemory;
use superpage_units::{
    Advice, BasePages, Mapping, Nanos, Page, PageSize, PmdRange, ProcessKey, Share, Time, VirtAddr,
    Vma, VmaKind,
};

/// How fast a scan goes over memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Base pages scanned each time it wakes; a range counts as all of its base pages.
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

/// The VMA that holds the whole of `page`, if one does.
pub(super) fn vma_holding(view: &dyn View, process: ProcessKey, page: Page) -> Option<Vma> {
    let vmas = view.vmas(process);
    let after = vmas.partition_point(|vma| vma.start <= page.start());
    vmas.get(after.checked_sub(1)?).copied().filter(|vma| vma.holds(page))
}

/// Whether Linux, and what is made from it, may map superpages here without being asked to.
pub(super) fn is_thp(vma: &Vma) -> bool {
    matches!(vma.kind, VmaKind::Anonymous | VmaKind::Stack) && vma.advice != Advice::NoHuge
}

/// The range, with its VMA, if it is mapped by at least `least` base pages and one VMA holds
/// all of it: it could be promoted.
pub(super) fn base_mapped(
    view: &dyn View,
    process: ProcessKey,
    range: PmdRange,
    least: BasePages,
) -> Option<(Vma, RangeView)> {
    let seen = view.range(process, range);
    let is_candidate = seen.mapping == Mapping::Base && seen.present >= least;
    let vma = vma_holding(view, process, range.into()).filter(|_| is_candidate)?;
    Some((vma, seen))
}

/// Whether less than this share of all memory is free in huge frames, and scattered free memory is
/// there to make one more from.
pub(super) fn is_huge_free_memory_short(free_memory: &FreeMemory, share: Share) -> bool {
    let whole = free_memory.huge_pages().base_pages();
    let scattered = free_memory.free().saturating_sub(whole);
    whole.share_of(free_memory.total) < share && scattered >= PageSize::Huge.base_pages()
}

/// A place in the memory of all processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hand {
    process: Option<ProcessKey>,
    from: VirtAddr,
}

impl Hand {
    /// The next range with anything mapped in it. `None` at the end of the last process; after
    /// that it begins anew.
    pub(super) fn next_range(&mut self, view: &dyn View) -> Option<(ProcessKey, PmdRange)> {
        self.advance(view, |view, process, from| {
            let range = view.next_mapped(process, from)?;
            Some((range, range.end()))
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
    /// This range.
    PmdRange(ProcessKey, PmdRange),
    /// It sleeps until then.
    Asleep(Time),
}

impl Scanner {
    /// The next range. It sleeps when it has scanned as much as it should and at the end of the
    /// last process.
    pub(super) fn next(&mut self, view: &dyn View, pace: Pace) -> Found {
        if view.now() < self.wakes {
            return Found::Asleep(self.wakes);
        }
        if self.scanned < pace.pages {
            if let Some((process, range)) = self.hand.next_range(view) {
                self.scanned += PageSize::Huge.base_pages();
                return Found::PmdRange(process, range);
            }
            self.rounds += 1;
        }
        self.scanned = BasePages::ZERO;
        self.wakes = view.now() + pace.sleep;
        Found::Asleep(self.wakes)
    }

    /// Leaves the rest of a gigantic page out; all of it counts as scanned.
    pub(super) fn pass(&mut self, process: ProcessKey, gigantic: Page, from: PmdRange) {
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
