//! What a process has mapped, and what changed since a look before.

use std::collections::BTreeMap;
use superpage_units::{BasePages, HUGE_PAGE_BYTES, HugePages, Mapping, PmdRange, VirtAddr, Vma};

/// How a range is mapped, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeState {
    /// How it is mapped.
    pub mapping: Mapping,
    /// Base pages populated; all 512 of a huge page.
    pub present: BasePages,
    /// Of those, base pages that hold anything but zeroes; perhaps an estimate.
    pub data: BasePages,
}

/// Neighbouring ranges that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: PmdRange,
    /// How many.
    pub count: HugePages,
    /// What each is like; empty: nothing is mapped there any more.
    pub state: RangeState,
}

impl Run {
    /// Its ranges.
    pub fn ranges(self) -> impl Iterator<Item = PmdRange> {
        let start = self.first.start().0;
        (0..self.count.0)
            .map(move |at| PmdRange::containing(VirtAddr(start + at * HUGE_PAGE_BYTES)))
    }
}

/// What is different from a sample before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// VMAs that are new or changed, in address order.
    pub vmas: Vec<Vma>,
    /// Starts of VMAs that are gone.
    pub unmapped: Vec<VirtAddr>,
    /// Ranges that changed, in address order.
    pub runs: Vec<Run>,
}

/// The memory that a process has mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Its VMAs by start.
    pub vmas: BTreeMap<VirtAddr, Vma>,
    /// Its ranges with anything in them.
    pub ranges: BTreeMap<PmdRange, RangeState>,
}

impl Memory {
    /// What is different in here from `earlier`.
    #[must_use]
    pub fn changes_since(&self, earlier: &Self) -> Changes {
        let vmas = self.vmas.iter().filter(|(start, vma)| earlier.vmas.get(start) != Some(vma));
        let unmapped = earlier.vmas.keys().filter(|start| !self.vmas.contains_key(start));
        let mut changed: BTreeMap<PmdRange, RangeState> = BTreeMap::new();
        for (range, state) in &self.ranges {
            if earlier.ranges.get(range) != Some(state) {
                changed.insert(*range, *state);
            }
        }
        for range in earlier.ranges.keys().filter(|range| !self.ranges.contains_key(range)) {
            changed.insert(*range, RangeState::default());
        }
        Changes {
            vmas: vmas.map(|(_, vma)| *vma).collect(),
            unmapped: unmapped.copied().collect(),
            runs: runs(&changed),
        }
    }

    /// Makes the changes.
    pub fn apply(&mut self, changes: &Changes) {
        for start in &changes.unmapped {
            self.vmas.remove(start);
        }
        self.vmas.extend(changes.vmas.iter().map(|vma| (vma.start, *vma)));
        for run in &changes.runs {
            for range in run.ranges() {
                if run.state == RangeState::default() {
                    self.ranges.remove(&range);
                } else {
                    self.ranges.insert(range, run.state);
                }
            }
        }
    }
}

/// Ranges as runs of neighbours that are alike.
fn runs(ranges: &BTreeMap<PmdRange, RangeState>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (range, state) in ranges {
        match runs.last_mut() {
            Some(run) if run.state == *state && end_of(run) == range.start().0 => {
                run.count.0 += 1;
            }
            _ => runs.push(Run { first: *range, count: HugePages(1), state: *state }),
        }
    }
    runs
}

fn end_of(run: &Run) -> u64 {
    run.first.start().0 + run.count.0 * HUGE_PAGE_BYTES
}
