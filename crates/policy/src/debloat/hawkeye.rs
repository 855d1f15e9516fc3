//! HawkEye's bloat recovery, as the EMD paper describes it (sections 3.1 and 3.2): the policy to
//! compare with.
//!
//! Processes come in the order of their creation, each de-bloated fully before the next; within
//! one, huge pages come in address order, and each that holds a zero-filled base page is split.
//!
//! Deviations:
//! - HawkEye reads a huge page, splits it and goes on. Here up to [`BATCH`] are read and then
//!   split together, so that the comparison is of orders and not of system call counts.
//! - HawkEye chooses the first process by memory use and TLB cost; the EMD paper runs it first
//!   come, first served, and so do we.

use super::list::Entry;
use super::{BloatMaps, Debloat, Decision, Depth, DoneCause, LookCause, SplitCause};
use crate::bloat::{BloatDensity, BloatMap, Knowledge};
use alloc::boxed::Box;
use alloc::vec::Vec;
use superpage_units::{BasePages, PmdRange, ProcessKey, Share};

/// Ranges in one look and one split. Chosen, not measured: enough to share a system call, few
/// enough that little is read beyond the need.
pub const BATCH: usize = 16;

/// HawkEye as the registry has it. It starts with less than 15 % free and stops at 30 %.
pub const HAWKEYE: Entry = Entry {
    name: "hawkeye",
    summary: "In address order, one process after the other.",
    source: "EMD, sections 3.1 and 3.2",
    marks: [Share::percent(85), Share::percent(70)],
    build: |_| Box::new(HawkEye),
};

/// HawkEye's order. It has no state: the maps say where it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct HawkEye;

impl Debloat for HawkEye {
    fn decide(&mut self, maps: &BloatMaps, need: BasePages) -> Decision {
        if need.is_zero() {
            return Decision::Done(DoneCause::NeedMet);
        }
        maps.iter()
            .find_map(|(process, map)| next_in(*process, map, need))
            .unwrap_or(Decision::Done(DoneCause::NothingLeft))
    }

    fn floor(&self) -> BloatDensity {
        BloatDensity::new(1)
    }
}

/// What to do next in this process, unless nothing is left to gain in it.
fn next_in(process: ProcessKey, map: &BloatMap, need: BasePages) -> Option<Decision> {
    let mut worth = map.by_address().filter(|(_, known)| !is_dense(*known)).peekable();
    let (_, first) = worth.peek()?;
    if is_exact(*first) {
        let ranges = until_met(worth.take_while(|(_, known)| is_exact(*known)), need);
        let cause = SplitCause::FirstInOrder;
        return Some(Decision::Split { process, ranges, cause });
    }
    let ranges = worth
        .take_while(|(_, known)| !is_exact(*known))
        .take(BATCH)
        .map(|(range, _)| range)
        .collect();
    Some(Decision::Look { process, ranges, depth: Depth::Exact, cause: LookCause::Unknown })
}

/// A huge page without a zero-filled base page: nothing to gain.
fn is_dense(known: Knowledge) -> bool {
    known == Knowledge::Exact(BloatDensity::NONE)
}

/// Whether all of its base pages were read.
pub(super) fn is_exact(known: Knowledge) -> bool {
    matches!(known, Knowledge::Exact(_))
}

/// The first of `ranges` that together free `need`, at most a batch.
pub(super) fn until_met(
    ranges: impl Iterator<Item = (PmdRange, Knowledge)>,
    need: BasePages,
) -> Vec<PmdRange> {
    let mut freed = BasePages::ZERO;
    ranges
        .take(BATCH)
        .take_while(|(_, known)| {
            let more = freed < need;
            freed += known.density().unwrap_or_default().base_pages();
            more
        })
        .map(|(range, _)| range)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::model::{World, play};
    use super::*;
    use proptest::prelude::*;

    /// The paper's Table 1 on 8 GiB: 250,000 base pages, both variants.
    #[test]
    fn table_1_of_the_emd_paper() {
        let halves = |first: u16, second: u16| -> World {
            let half = |density| core::iter::repeat_n(density, 2048);
            alloc::vec![half(first).chain(half(second)).collect()]
        };
        let split = |world| play(&mut HawkEye, &world, 250_000).split.len();
        assert_eq!(split(halves(410, 102)), 610);
        assert_eq!(split(halves(102, 410)), 2149);
    }

    proptest! {
        /// The obvious model: walk processes and addresses, split what has zeros, until it is
        /// enough.
        #[test]
        fn breaks_exactly_the_sequential_prefix(
            world in prop::collection::vec(prop::collection::vec(0u16..=512, 0..60), 0..4),
            need in 0u64..20_000
        ) {
            let mut expected = Vec::new();
            let mut left = need;
            for (p, densities) in world.iter().enumerate() {
                for (r, density) in densities.iter().enumerate() {
                    if *density > 0 && left > 0 {
                        expected.push((p, r, *density));
                        left = left.saturating_sub(u64::from(*density));
                    }
                }
            }
            let played = play(&mut HawkEye, &world, need);
            prop_assert_eq!(played.split, expected);
            prop_assert_eq!(played.done == DoneCause::NeedMet, left == 0);
        }
    }
}
