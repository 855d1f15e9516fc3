//! PMD ranges as runs of neighbours: what holds for terabytes takes little where it holds for neighbours.

use std::collections::BTreeMap;
use superpage_units::{HugePages, PmdRange};

/// A set of PMD ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// How many neighbours there are from each first one on. No two runs are neighbours.
    runs: BTreeMap<PmdRange, HugePages>,
}

impl Runs {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether a range is one of them.
    #[must_use]
    pub fn contains(&self, range: PmdRange) -> bool {
        let run = self.runs.range(..=range).next_back();
        run.is_some_and(|(first, count)| range.start() < first.start().offset(count.bytes()))
    }

    /// Adds a range.
    pub fn insert(&mut self, range: PmdRange) {
        if self.contains(range) {
            return;
        }
        let (mut first, mut count) = (range, HugePages(1));
        if let Some((before, length)) = self.runs.range(..range).next_back()
            && before.start().offset(length.bytes()) == range.start()
        {
            (first, count) = (*before, count + *length);
        }
        if let Some(length) = self.runs.remove(&PmdRange::containing(range.end())) {
            count += length;
        }
        self.runs.insert(first, count);
    }

    /// Adds a run behind all that are there; one that is not behind them is added range by range.
    pub fn push(&mut self, first: PmdRange, count: HugePages) {
        let last = self.runs.last_key_value();
        let end = last.map(|(last, length)| last.start().offset(length.bytes()));
        match end {
            Some(end) if end > first.start() => {
                ranges((first, count)).for_each(|range| self.insert(range));
            }
            Some(end) if end == first.start() => {
                self.runs.last_entry().into_iter().for_each(|mut last| *last.get_mut() += count);
            }
            _ => {
                self.runs.insert(first, count);
            }
        }
    }

    /// Takes all others out.
    pub fn retain(&mut self, stays: impl Fn(PmdRange) -> bool) {
        if self.iter().all(&stays) {
            return;
        }
        *self = self.iter().filter(|range| stays(*range)).collect();
    }

    /// All of them, in address order.
    pub fn iter(&self) -> impl Iterator<Item = PmdRange> {
        self.runs().flat_map(ranges)
    }

    /// The runs, in address order: the first range of each, and how many there are.
    pub fn runs(&self) -> impl Iterator<Item = (PmdRange, HugePages)> {
        self.runs.iter().map(|(first, count)| (*first, *count))
    }

    /// The first range at or after this one.
    #[must_use]
    pub fn next(&self, from: PmdRange) -> Option<PmdRange> {
        let behind = || self.runs.range(from..).next().map(|(first, _)| *first);
        if self.contains(from) { Some(from) } else { behind() }
    }
}

impl FromIterator<PmdRange> for Runs {
    fn from_iter<T: IntoIterator<Item = PmdRange>>(ranges: T) -> Self {
        let mut runs = Self::default();
        ranges.into_iter().for_each(|range| runs.push(range, HugePages(1)));
        runs
    }
}

/// The neighbours of a run.
fn ranges((first, count): (PmdRange, HugePages)) -> impl Iterator<Item = PmdRange> {
    PmdRange::within(first.start(), first.start().offset(count.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use superpage_units::{HUGE_PAGE_BYTES, VirtAddr};

    fn range(index: u64) -> PmdRange {
        PmdRange::containing(VirtAddr(index * HUGE_PAGE_BYTES))
    }

    #[test]
    fn it_is_the_set_that_was_put_in_whatever_the_order() {
        let (mut runs, mut set) = (Runs::default(), BTreeSet::new());
        // Every number below 64 but for multiples of five, in an order that leaves holes and fills them.
        for index in (0..64).map(|step| step * 37 % 64).filter(|index| index % 5 != 0) {
            runs.insert(range(index));
            set.insert(range(index));
            assert_eq!(runs.iter().collect::<BTreeSet<_>>(), set);
        }
        assert_eq!(runs.runs().count(), 13);
        assert!((0..64).all(|index| runs.contains(range(index)) == set.contains(&range(index))));
        assert_eq!(set.iter().copied().collect::<Runs>(), runs);
        assert_eq!(runs.next(range(5)), Some(range(6)));
        assert_eq!((runs.next(range(7)), runs.next(range(64))), (Some(range(7)), None));
        runs.retain(|at| at < range(10));
        assert_eq!(
            runs.runs().collect::<Vec<_>>(),
            [(range(1), HugePages(4)), (range(6), HugePages(4))]
        );
    }

    #[test]
    fn a_run_may_be_added_whole() {
        let mut runs = Runs::default();
        runs.push(range(4), HugePages(3));
        runs.push(range(7), HugePages(1));
        runs.push(range(2), HugePages(3));
        runs.push(range(9), HugePages(1));
        let all: Vec<_> = runs.runs().collect();
        assert_eq!(all, [(range(2), HugePages(6)), (range(9), HugePages(1))]);
    }
}
