//! Linux's own way to reclaim bloat: the shrinker for underused huge pages (since 6.12), as
//! `mm/huge_memory.c` has it (`deferred_split_scan`, `thp_underused`).
//!
//! Under reclaim the kernel walks its list of huge pages, one after the other. It reads each, and
//! splits it if more than `max_ptes_none` of its base pages are zero-filled; those are freed. At
//! the default of 511 it does nothing: what khugepaged may fill with zeros is not reclaimed.
//!
//! Deviations:
//! - The kernel's list has huge pages in the order of their allocation, in each memory cgroup.
//!   Here addresses stand for that order, and processes come one after the other in the order of
//!   their creation.
//! - Up to [`BATCH`] are read and then split together, as in [`super::hawkeye`].
//! - The kernel looks at a part of the list each time, depending on how much it reclaims; here it
//!   goes on until the need is met.

use super::emd::EMD;
use super::hawkeye::{BATCH, is_exact, until_met};
use super::list::Entry;
use super::{BloatMaps, Debloat, Decision, Depth, DoneCause, LookCause, SplitCause};
use crate::bloat::{BloatDensity, BloatMap, Knowledge};
use alloc::boxed::Box;
use superpage_units::{BASE_PAGES_PER_HUGE_PAGE, BasePages, ProcessKey};

/// khugepaged's default, at which the shrinker is off: all base pages of a range but one.
pub const MAX_PTES_NONE: BasePages = BasePages(BASE_PAGES_PER_HUGE_PAGE - 1);

/// The shrinker as the registry has it, at EMD's watermarks: the kernel has none.
pub const UNDERUSED: Entry = Entry {
    name: "underused",
    summary: "Linux's shrinker: in address order, huge pages that are more than 80 % zero-filled.",
    source: "Linux, mm/huge_memory.c, deferred_split_scan",
    marks: EMD.marks,
    build: |_| Box::new(Underused::new(Options::FOUR_FIFTHS)),
};

/// The kernel's knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The zero-filled base pages that a huge page may hold
    /// (`transparent_hugepage/khugepaged/max_ptes_none`).
    pub max_ptes_none: BasePages,
}

impl Options {
    /// 80 % of a huge page. Chosen; at the kernel's default it frees nothing.
    pub const FOUR_FIFTHS: Self = Self { max_ptes_none: BasePages(409) };
}

impl Default for Options {
    /// The kernel's: [`MAX_PTES_NONE`].
    fn default() -> Self {
        Self { max_ptes_none: MAX_PTES_NONE }
    }
}

/// The shrinker. The maps say where it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Underused {
    options: Options,
}

impl Underused {
    /// The shrinker at this setting.
    #[must_use]
    pub const fn new(options: Options) -> Self {
        Self { options }
    }

    /// What to do next in this process, unless no underused huge page is left in it.
    fn next_in(&self, process: ProcessKey, map: &BloatMap, need: BasePages) -> Option<Decision> {
        let mut worth =
            map.by_address().filter(|(_, known)| self.may_be_underused(*known)).peekable();
        let (_, first) = worth.peek()?;
        if is_exact(*first) {
            let ranges = until_met(worth.take_while(|(_, known)| is_exact(*known)), need);
            let cause = SplitCause::FirstInOrder;
            return Some(Decision::Split { process, ranges, cause });
        }
        let unknown = worth.take_while(|(_, known)| !is_exact(*known));
        let ranges = unknown.take(BATCH).map(|(range, _)| range).collect();
        Some(Decision::Look { process, ranges, depth: Depth::Exact, cause: LookCause::Unknown })
    }

    fn may_be_underused(&self, known: Knowledge) -> bool {
        match known {
            Knowledge::Exact(density) => density.base_pages() > self.options.max_ptes_none,
            Knowledge::Unknown | Knowledge::PreSampled(_) | Knowledge::Sampled(_) => true,
        }
    }
}

impl Debloat for Underused {
    fn decide(&mut self, maps: &BloatMaps, need: BasePages) -> Decision {
        if need.is_zero() {
            return Decision::Done(DoneCause::NeedMet);
        }
        if self.options.max_ptes_none >= MAX_PTES_NONE {
            return Decision::Done(DoneCause::NothingLeft);
        }
        maps.iter()
            .find_map(|(process, map)| self.next_in(*process, map, need))
            .unwrap_or(Decision::Done(DoneCause::NothingLeft))
    }

    fn floor(&self) -> BloatDensity {
        let most = self.options.max_ptes_none.0.try_into().unwrap_or(u16::MAX);
        BloatDensity::new(most.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{World, play};
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn at(max_ptes_none: u64) -> Underused {
        Underused::new(Options { max_ptes_none: BasePages(max_ptes_none) })
    }

    #[test]
    fn more_than_the_threshold_is_underused() {
        let world: World = vec![vec![409, 410, 512, 0], vec![500]];
        let played = play(&mut at(409), &world, 100_000);
        assert_eq!(played.split, [(0, 1, 410), (0, 2, 512), (1, 0, 500)]);
        assert_eq!(played.done, DoneCause::NothingLeft);
        assert_eq!(played.looks, 5);
    }

    #[test]
    fn at_the_default_nothing_is_even_read() {
        let played = play(&mut Underused::default(), &vec![vec![512; 4]], 1);
        assert_eq!((played.split.len(), played.looks), (0, 0));
        assert_eq!(play(&mut at(510), &vec![vec![512; 4]], 1).split, [(0, 0, 512)]);
    }

    proptest! {
        /// The obvious model: walk processes and addresses, split what has more zeros than it
        /// may, until it is enough.
        #[test]
        fn breaks_exactly_the_underused_ones_in_order(
            world in prop::collection::vec(prop::collection::vec(0u16..=512, 0..60), 0..4),
            need in 0u64..20_000,
            max in 0u64..511
        ) {
            let mut expected = Vec::new();
            let mut left = need;
            for (p, densities) in world.iter().enumerate() {
                for (r, density) in densities.iter().enumerate() {
                    if u64::from(*density) > max && left > 0 {
                        expected.push((p, r, *density));
                        left = left.saturating_sub(u64::from(*density));
                    }
                }
            }
            let played = play(&mut at(max), &world, need);
            prop_assert_eq!(played.split, expected);
            prop_assert_eq!(played.done == DoneCause::NeedMet, left == 0);
        }
    }
}
