//! A survey: what the program has mapped in the slots that could be promoted, for the policy.
//!
//! Only slots that are nearly full of plain memory are looked at: in others no gigantic page fits, and their huge
//! pages are the kernel's to make.

use super::slot::State;
use super::{Cooldown, Gigantic};
use crate::decider::vma;
use crate::space::SlotPages;
use crate::sys::{self, GIGANTIC, HUGE, PAGE, Span};
use alloc::vec::Vec;
use superpage_policy::promotion::RangeView;
use superpage_units::{BasePages, HugePages, Mapping, PmdRange, VirtAddr, Vma};

/// PMD ranges in a slot.
const RANGES: usize = GIGANTIC / HUGE;

/// The slots that could be promoted, as they were lately.
#[derive(Debug, Default)]
pub(super) struct Survey {
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
    /// Makes it again, which takes up to 1.6 ms for each GiB; not while a thread of the program changes its mappings. Whether it was
    /// made.
    pub(super) fn make(&mut self, gigantic: &Gigantic) -> bool {
        let Some(space) = gigantic.areas.space.try_take() else { return false };
        let is_candidate = |slot: &usize| {
            gigantic.slots.state(*slot) == State::Ordinary
                && space.slot(*slot).is_some_and(SlotPages::is_nearly_full)
                && gigantic.cooldown(*slot).is_some_and(Cooldown::is_over)
        };
        let slots = || (0..gigantic.slots.count()).filter(is_candidate);
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
        true
    }

    /// Asserts that the slots are whole, in order, and have all of their ranges.
    #[cfg(test)]
    fn check(&self) {
        assert_eq!(self.ranges.len(), self.vmas.len() * RANGES, "each slot has its ranges");
        for vma in &self.vmas {
            let (start, end) = (sys::to_usize(vma.start.0), sys::to_usize(vma.end.0));
            assert!(start.is_multiple_of(GIGANTIC) && end - start == GIGANTIC, "a whole slot");
        }
        assert!(self.vmas.is_sorted_by(|one, next| one.end <= next.start), "in address order");
        let whole = HugePages(1).base_pages();
        assert!(self.ranges.iter().all(|seen| seen.present <= whole && seen.swapped <= whole));
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

/// Looks at the ranges of a slot, which are empty so far, and stay so where the kernel does not say.
fn look(slot: Span, ranges: &mut [Seen]) {
    let Ok(pagemap) = sys::Pagemap::open() else { return };
    let _ = pagemap.scan(slot, sys::PRESENT | sys::SWAPPED, |found| {
        note(slot, ranges, found.span(), |kind| found.is(kind));
    });
}

/// Notes a run of pages of a slot, which are all of the same kinds, in its ranges.
fn note(slot: Span, ranges: &mut [Seen], run: Span, is: impl Fn(u64) -> bool) {
    let mut start = run.start;
    while start < run.end() {
        let index = (start - slot.start) / HUGE;
        let end = run.end().min(slot.start + (index + 1) * HUGE);
        let pages = BasePages(((end - start) / PAGE) as u64);
        if let Some(seen) = ranges.get_mut(index) {
            let counter = match is(sys::SWAPPED) {
                true => &mut seen.swapped,
                false => &mut seen.present,
            };
            *counter += pages;
            let is_whole = pages == HugePages(1).base_pages();
            seen.is_huge |= is_whole && is(sys::HUGE_PAGE) && !is(sys::ZERO);
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PER_RANGE: usize = HUGE / PAGE;
    /// Slots of the address space that random surveys are about.
    const SLOTS: usize = 5;
    /// The ranges of a slot that random pages lie in.
    const FIRST: usize = 3;

    fn seen() -> impl Strategy<Value = Seen> {
        let whole = PER_RANGE as u64;
        let base = (0..=whole, 0..=whole).prop_map(|(present, swapped)| Seen {
            present: BasePages(present),
            swapped: BasePages(swapped),
            is_huge: false,
        });
        let huge = Just(Seen { present: BasePages(whole), is_huge: true, ..Seen::default() });
        prop_oneof![4 => base, 1 => huge]
    }

    /// A survey of these slots, in which these ranges are not empty, by the number of the range from address zero on.
    fn survey(slots: &[usize], ranges: &BTreeMap<usize, Seen>) -> Survey {
        let of_slot = |slot: usize| {
            let all = slot * RANGES..(slot + 1) * RANGES;
            all.map(|range| ranges.get(&range).copied().unwrap_or_default())
        };
        Survey {
            vmas: slots.iter().map(|slot| vma(Span::gigantic(slot * GIGANTIC))).collect(),
            ranges: slots.iter().copied().flat_map(of_slot).collect(),
        }
    }

    fn range(number: usize) -> PmdRange {
        PmdRange::containing(VirtAddr((number * HUGE) as u64))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_survey_tells_what_a_map_of_ranges_has(
            slots in prop::collection::btree_set(0..SLOTS, 0..SLOTS),
            found in prop::collection::btree_map(0..SLOTS * RANGES, seen(), 0..40),
            near in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..3 * HUGE), 20),
            anywhere in prop::collection::vec(0..SLOTS * GIGANTIC, 20),
        ) {
            let slots: Vec<usize> = slots.into_iter().collect();
            let is_seen = |range: usize| slots.contains(&(range / RANGES));
            let ranges: BTreeMap<usize, Seen> =
                found.into_iter().filter(|(range, _)| is_seen(*range)).collect();
            let survey = survey(&slots, &ranges);
            survey.check();
            let keys: Vec<usize> = ranges.keys().copied().chain([0]).collect();
            let near = near.into_iter().map(|(index, behind)| {
                (keys[index.index(keys.len())] * HUGE + HUGE).saturating_sub(behind)
            });
            for address in near.chain(anywhere) {
                let mut mapped = ranges.iter().filter(|(_, seen)| !seen.is_empty());
                let next = mapped.find(|(number, _)| **number * HUGE >= address);
                let from = VirtAddr(address as u64);
                assert_eq!(survey.next_mapped(from), next.map(|(number, _)| range(*number)));
                let expected = ranges.get(&(address / HUGE)).copied().unwrap_or_default();
                let view = survey.range(range(address / HUGE));
                let mapping = match expected {
                    Seen { present: BasePages(0), swapped: BasePages(0), .. } => Mapping::Empty,
                    Seen { is_huge: true, .. } => Mapping::Huge,
                    _ => Mapping::Base,
                };
                assert_eq!(
                    (view.mapping, view.present, view.swapped),
                    (mapping, expected.present, expected.swapped),
                );
            }
        }

        #[test]
        fn runs_of_pages_are_counted_in_the_ranges_that_they_lie_in(
            runs in prop::collection::vec(
                (prop_oneof![1..FIRST * PER_RANGE, Just(PER_RANGE)], any::<bool>(), 0_u64..16),
                1..12,
            ),
        ) {
            // The kinds of each page; runs that the kernel would not tell apart are one.
            let mut pages: Vec<u64> = Vec::new();
            for (length, is_there, kinds) in runs {
                let kinds = if is_there { kinds << 3 } else { 0 };
                pages.extend(core::iter::repeat_n(kinds, length));
            }
            pages.resize(FIRST * PER_RANGE, 0);
            let slot = Span::gigantic(7 * GIGANTIC);
            let mut ranges = [Seen::default(); FIRST];
            let mut first = 0;
            for run in pages.chunk_by(|one, next| one == next) {
                let start = slot.start + first * PAGE;
                let kinds = run[0];
                if kinds & (sys::PRESENT | sys::SWAPPED) != 0 {
                    let run = Span { start, length: run.len() * PAGE };
                    note(slot, &mut ranges, run, |kind| kinds & kind == kind);
                }
                first += run.len();
            }
            for (seen, pages) in ranges.iter().zip(pages.chunks(PER_RANGE)) {
                let count = |wanted: &dyn Fn(u64) -> bool| {
                    BasePages(pages.iter().filter(|kinds| wanted(**kinds)).count() as u64)
                };
                assert_eq!(seen.swapped, count(&|kinds| kinds & sys::SWAPPED != 0));
                let kinds_of_present = sys::PRESENT | sys::SWAPPED;
                assert_eq!(
                    seen.present,
                    count(&|kinds| kinds & kinds_of_present == sys::PRESENT),
                );
                let is_huge = pages.iter().all(|kinds| *kinds == pages[0])
                    && pages[0] & (sys::PRESENT | sys::SWAPPED) != 0
                    && pages[0] & (sys::HUGE_PAGE | sys::ZERO) == sys::HUGE_PAGE;
                assert_eq!(seen.is_huge, is_huge);
            }
        }
    }

    #[test]
    fn what_is_outside_of_all_slots_is_empty() {
        let mapped = Seen { present: BasePages(1), ..Seen::default() };
        let survey = survey(&[3, 7], &BTreeMap::from([(7 * RANGES, mapped)]));
        survey.check();
        for number in [0, 3 * RANGES - 1, 3 * RANGES, 4 * RANGES, 5 * RANGES, 8 * RANGES] {
            assert_eq!(survey.range(range(number)).mapping, Mapping::Empty);
        }
        assert_eq!(survey.range(range(7 * RANGES)).mapping, Mapping::Base);
        assert_eq!(survey.next_mapped(VirtAddr(0)), Some(range(7 * RANGES)));
        assert_eq!(survey.next_mapped(VirtAddr((7 * GIGANTIC + 1) as u64)), None);
        Survey::default().check();
    }
}
