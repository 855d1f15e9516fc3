//! What a process has mapped, and what changed since a look before.

use std::collections::BTreeMap;
use superpage_units::{Area, BasePages, HUGE_PAGE_BYTES, HugePages, Mapping, Region, VirtAddr};

/// How a region is mapped, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionState {
    /// How it is mapped.
    pub mapping: Mapping,
    /// Base pages populated; all 512 of a huge page.
    pub population: BasePages,
    /// Of those, base pages that hold anything but zeroes; perhaps an estimate.
    pub data: BasePages,
}

/// Neighbouring regions that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: Region,
    /// How many.
    pub count: HugePages,
    /// What each is like; empty: nothing is mapped there any more.
    pub state: RegionState,
}

impl Run {
    /// Its regions.
    pub fn regions(self) -> impl Iterator<Item = Region> {
        let start = self.first.start().0;
        (0..self.count.0).map(move |at| Region::containing(VirtAddr(start + at * HUGE_PAGE_BYTES)))
    }
}

/// What is different from a sample before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Areas that are new or changed, in address order.
    pub areas: Vec<Area>,
    /// Starts of areas that are gone.
    pub unmapped: Vec<VirtAddr>,
    /// Regions that changed, in address order.
    pub runs: Vec<Run>,
}

/// What a process has mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Its areas by start.
    pub areas: BTreeMap<VirtAddr, Area>,
    /// Its regions with anything in them.
    pub regions: BTreeMap<Region, RegionState>,
}

impl Memory {
    /// What is different in here from `earlier`.
    #[must_use]
    pub fn changes_since(&self, earlier: &Self) -> Changes {
        let areas =
            self.areas.iter().filter(|(start, area)| earlier.areas.get(start) != Some(area));
        let unmapped = earlier.areas.keys().filter(|start| !self.areas.contains_key(start));
        let mut changed: BTreeMap<Region, RegionState> = BTreeMap::new();
        for (region, state) in &self.regions {
            if earlier.regions.get(region) != Some(state) {
                changed.insert(*region, *state);
            }
        }
        for region in earlier.regions.keys().filter(|region| !self.regions.contains_key(region)) {
            changed.insert(*region, RegionState::default());
        }
        Changes {
            areas: areas.map(|(_, area)| *area).collect(),
            unmapped: unmapped.copied().collect(),
            runs: runs(&changed),
        }
    }

    /// Makes the changes.
    pub fn apply(&mut self, changes: &Changes) {
        for start in &changes.unmapped {
            self.areas.remove(start);
        }
        self.areas.extend(changes.areas.iter().map(|area| (area.start, *area)));
        for run in &changes.runs {
            for region in run.regions() {
                if run.state == RegionState::default() {
                    self.regions.remove(&region);
                } else {
                    self.regions.insert(region, run.state);
                }
            }
        }
    }
}

/// Regions as runs of neighbours that are alike.
fn runs(regions: &BTreeMap<Region, RegionState>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (region, state) in regions {
        match runs.last_mut() {
            Some(run) if run.state == *state && end_of(run) == region.start().0 => {
                run.count.0 += 1;
            }
            _ => runs.push(Run { first: *region, count: HugePages(1), state: *state }),
        }
    }
    runs
}

fn end_of(run: &Run) -> u64 {
    run.first.start().0 + run.count.0 * HUGE_PAGE_BYTES
}
