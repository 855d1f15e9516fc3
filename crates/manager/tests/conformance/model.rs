//! An obvious model of what programs have mapped: sets of base pages, nothing else.
//!
//! Every fault is served by a base page; what is promoted or de-bloated is told it.

use crate::testbed::{PAGES, Pages, Place};
use std::collections::BTreeMap;
use superpage_policy::system::Outcome;
use superpage_sim::machine::Content;
use superpage_units::{BasePages, Mapping};

/// The programs.
pub(crate) const PROGRAMS: usize = 2;
/// The regions of each.
pub(crate) const REGIONS: u64 = 8;

/// All places, in the order of processes and addresses.
pub(crate) fn places() -> impl Iterator<Item = Place> {
    (0..PROGRAMS).flat_map(|program| (0..REGIONS).map(move |region| Place { program, region }))
}

/// A region: what is populated, what holds data, and whether it is one huge page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Region {
    present: Pages,
    pub(crate) data: Pages,
    is_huge: bool,
}

impl Region {
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
pub(crate) struct Model(pub(crate) BTreeMap<Place, Region>);

impl Model {
    pub(crate) fn new() -> Self {
        Self(places().map(|place| (place, Region::default())).collect())
    }

    pub(crate) fn at(&mut self, place: Place) -> &mut Region {
        self.0.entry(place).or_default()
    }

    pub(crate) fn touch(&mut self, place: Place, first: u16, count: u16, content: Content) {
        let region = self.at(place);
        region.present.extend(first..first + count);
        if content == Content::Data {
            region.data.extend(first..first + count);
        }
    }

    pub(crate) fn release(&mut self, place: Place, first: u16, count: BasePages) {
        let whole = u64::from(PAGES);
        let range = u64::from(first)..u64::from(first) + count.0;
        for further in 0..REGIONS - place.region {
            let region = self.at(Place { region: place.region + further, ..place });
            let is_kept = |page: &u16| !range.contains(&(further * whole + u64::from(*page)));
            let before = region.present.len();
            region.present.retain(is_kept);
            region.data.retain(is_kept);
            region.is_huge &= region.present.len() == before;
        }
    }

    pub(crate) fn promote(&mut self, place: Place) -> Outcome {
        let region = self.at(place);
        if region.is_huge || region.present.is_empty() {
            return Outcome::Stale;
        }
        region.is_huge = true;
        region.present = (0..PAGES).collect();
        Outcome::Done
    }

    /// In the order of processes and addresses, until so much is freed.
    pub(crate) fn debloat(&mut self, need: BasePages) -> BasePages {
        let mut freed = BasePages::ZERO;
        let is_bloated =
            |region: &&mut Region| region.is_huge && region.data.len() < region.present.len();
        for region in self.0.values_mut().filter(is_bloated) {
            if freed < need {
                freed += region.split();
            }
        }
        freed
    }
}
