//! A survey: what the program has mapped in the slots that could be promoted, for the policy.
//!
//! Only slots that are nearly full of plain memory are looked at: in others no gigantic page fits, and their huge
//! pages are the kernel's to make.

use super::slot::State;
use super::{Cooldown, Gigantic};
use crate::space::SlotPages;
use crate::sys::{self, GIGANTIC, HUGE, PAGE, Span};
use alloc::vec::Vec;
use superpage_policy::promotion::RangeView;
use superpage_units::{
    Advice, BasePages, Growth, HugePages, Mapping, Nanos, PmdRange, VirtAddr, Vma, VmaKind,
};

/// A survey is made again after this time. Chosen, not measured: it takes up to 1.6 ms for each GiB.
const AGE: Nanos = Nanos(5_000_000_000);

/// PMD ranges in a slot.
const RANGES: usize = GIGANTIC / HUGE;

/// The slots that could be promoted, as they were lately.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The time of the survey; zero before the first.
    made: Nanos,
    /// The slots, in address order.
    vmas: Vec<Vma>,
    /// The ranges of those, [`RANGES`] of each.
    ranges: Vec<Seen>,
}

/// The pages of a PMD range, as a scan found them.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    present: BasePages,
    swapped: BasePages,
    is_huge: bool,
}

impl Survey {
    /// Makes it again, if it is old.
    pub(super) fn refresh(&mut self, gigantic: &Gigantic) {
        let now = sys::now();
        if self.made != Nanos(0) && now < Nanos(self.made.0 + AGE.0) {
            return;
        }
        // While a thread of the program changes its mappings, the last one will do.
        let Some(space) = gigantic.areas.space.try_take() else { return };
        let is_candidate = |slot: &usize| {
            gigantic.slots.state(*slot) == State::Ordinary
                && space.slot(*slot).is_some_and(SlotPages::is_nearly_full)
                && gigantic.cooldown(*slot).is_some_and(Cooldown::is_over)
        };
        let slots = || (0..gigantic.slots.count()).filter(is_candidate);
        self.made = now;
        self.vmas.clear();
        self.ranges.clear();
        // A program that is short of memory is not to end because of a survey.
        let count = slots().count();
        if self.vmas.try_reserve(count).is_ok() && self.ranges.try_reserve(count * RANGES).is_ok() {
            self.vmas.extend(slots().map(|slot| vma(gigantic.slots.span(slot))));
            self.ranges.resize(count * RANGES, Seen::default());
        }
        drop(space);
        for (vma, ranges) in self.vmas.iter().zip(self.ranges.chunks_exact_mut(RANGES)) {
            look(Span::gigantic(sys::to_usize(vma.start.0)), ranges);
        }
    }

    /// Forgets it: something has changed.
    pub(super) fn forget(&mut self) {
        self.made = Nanos(0);
    }

    /// The slots, as VMAs.
    pub(super) fn vmas(&self) -> &[Vma] {
        &self.vmas
    }

    /// A PMD range; empty if it is in none of the slots.
    pub(super) fn range(&self, range: PmdRange) -> RangeView {
        self.seen(range.start()).map_or_else(RangeView::default, |seen| RangeView {
            mapping: match seen {
                Seen { is_huge: true, .. } => Mapping::Huge,
                _ if seen.is_empty() => Mapping::Empty,
                _ => Mapping::Base,
            },
            present: seen.present,
            swapped: seen.swapped,
            ..RangeView::default()
        })
    }

    /// The first range at or after `from` with anything in it.
    pub(super) fn next_mapped(&self, from: VirtAddr) -> Option<PmdRange> {
        self.vmas.iter().filter(|vma| vma.end > from).find_map(|vma| {
            let mut ranges = PmdRange::within(vma.start.max(from), vma.end);
            ranges.find(|range| self.seen(range.start()).is_some_and(|seen| !seen.is_empty()))
        })
    }

    fn seen(&self, address: VirtAddr) -> Option<&Seen> {
        let index = self.vmas.partition_point(|vma| vma.end <= address);
        let vma = self.vmas.get(index).filter(|vma| vma.start <= address)?;
        let offset = address.since(vma.start).0 / HUGE as u64;
        self.ranges.get(index * RANGES + usize::try_from(offset).ok()?)
    }
}

impl Seen {
    fn is_empty(&self) -> bool {
        self.present.is_zero() && self.swapped.is_zero()
    }
}

/// A slot as the policy sees it.
pub(crate) fn vma(slot: Span) -> Vma {
    Vma {
        start: VirtAddr(slot.start as u64),
        end: VirtAddr(slot.end() as u64),
        kind: VmaKind::Anonymous,
        growth: Growth::Fixed,
        advice: Advice::Huge,
    }
}

/// Looks at the ranges of a slot, which are empty so far, and stay so where the kernel does not say.
fn look(slot: Span, ranges: &mut [Seen]) {
    let Ok(pagemap) = sys::Pagemap::open() else { return };
    let _ = pagemap.scan(slot, sys::PRESENT | sys::SWAPPED, |found| {
        let span = found.span();
        let mut start = span.start;
        while start < span.end() {
            let index = (start - slot.start) / HUGE;
            let end = span.end().min(slot.start + (index + 1) * HUGE);
            let pages = BasePages(((end - start) / PAGE) as u64);
            if let Some(seen) = ranges.get_mut(index) {
                let counter = match found.is(sys::SWAPPED) {
                    true => &mut seen.swapped,
                    false => &mut seen.present,
                };
                *counter += pages;
                let is_whole = pages == HugePages(1).base_pages();
                seen.is_huge |= is_whole && found.is(sys::HUGE_PAGE) && !found.is(sys::ZERO);
            }
            start = end;
        }
    });
}
