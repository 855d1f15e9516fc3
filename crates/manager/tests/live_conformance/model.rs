//! An obvious model of what programs have mapped: sets of base pages, nothing else.
//!
//! Every fault is served by a base page; what is promoted or de-bloated is told it.

use crate::testbed::{PAGES, Pages, Place};
use std::collections::BTreeMap;
use superpage_policy::promotion::Outcome;
use superpage_sim::machine::Content;
use superpage_units::{BasePages, Mapping};

/// The programs.
pub(crate) const PROGRAMS: usize = 2;
/// The ranges of each.
pub(crate) const RANGES: u64 = 8;

/// All places, in the order of processes and addresses.
pub(crate) fn places() -> impl Iterator<Item = Place> {
    (0..PROGRAMS).flat_map(|program| (0..RANGES).map(move |range| Place { program, range }))
}

/// A range: what is populated, what holds data, and whether it is one huge page.
#[derive(Clone, Debug, Default)]
pub(crate) struct PmdRange {
    present: Pages,
    pub(crate) data: Pages,
    is_huge: bool,
}

impl PmdRange {
    pub(crate) fn mapping(&self) -> (Mapping, BasePages) {
        let mapping = match (self.is_huge, self.present.is_empty()) {
            (true, _) => Mapping::Huge,
            (false, false) => Mapping::Base,
            (false, true) => Mapping::Empty,
        };
        (mapping, BasePages(self.present.len() as u64))
    }

    /// Only what holds data stays; says how many base pages went.
    fn split(&mut self) -> BasePages {
        let before = self.present.len();
        self.is_huge = false;
        self.present = self.data.clone();
        BasePages((before - self.present.len()) as u64)
    }
}

/// What should be mapped, if every fault is served by a base page.
pub(crate) struct Model(pub(crate) BTreeMap<Place, PmdRange>);

impl Model {
    pub(crate) fn new() -> Self {
        Self(places().map(|place| (place, PmdRange::default())).collect())
    }

    pub(crate) fn at(&mut self, place: Place) -> &mut PmdRange {
        self.0.entry(place).or_default()
    }

    pub(crate) fn touch(&mut self, place: Place, first: u16, count: u16, content: Content) {
        let range = self.at(place);
        range.present.extend(first..first + count);
        if content == Content::Data {
            range.data.extend(first..first + count);
        }
    }

    pub(crate) fn release(&mut self, place: Place, first: u16, count: BasePages) {
        let whole = u64::from(PAGES);
        let pages = u64::from(first)..u64::from(first) + count.0;
        for further in 0..RANGES - place.range {
            let range = self.at(Place { range: place.range + further, ..place });
            let is_kept = |page: &u16| !pages.contains(&(further * whole + u64::from(*page)));
            let before = range.present.len();
            range.present.retain(is_kept);
            range.data.retain(is_kept);
            range.is_huge &= range.present.len() == before;
        }
    }

    pub(crate) fn promote(&mut self, place: Place) -> Outcome {
        let range = self.at(place);
        if range.is_huge || range.present.is_empty() {
            return Outcome::Stale;
        }
        range.is_huge = true;
        range.present = (0..PAGES).collect();
        Outcome::Done
    }

    /// In the order of processes and addresses, until so much is freed.
    pub(crate) fn debloat(&mut self, need: BasePages) -> BasePages {
        let mut freed = BasePages::ZERO;
        let is_bloated =
            |range: &&mut PmdRange| range.is_huge && range.data.len() < range.present.len();
        for range in self.0.values_mut().filter(is_bloated) {
            if freed < need {
                freed += range.split();
            }
        }
        freed
    }
}
