//! EMD with dearer splits where what they freed came back. Our own rule: no paper has it.
//!
//! Memory that a split freed may be filled by its program soon after: a buffer that is filled slowly, a heap that grows within
//! its huge pages. Such a split freed nothing for long, and cost a page fault for each base page. So the bucket of a huge page
//! counts as much lower as the share that came back of what earlier splits freed in its process
//! ([`BloatMap::came_back`](crate::bloat::BloatMap::came_back)). Within a process the order stays EMD's, and nothing is excluded:
//! where nothing else is left such huge pages are split too, down to the same least density.
//!
//! How the share comes to be known is the caller's to say; where nobody says, nothing came back, and this is EMD.

use super::emd::{EMD, Emd, Options};
use super::list::Entry;
use crate::bloat::Bucket;
use alloc::boxed::Box;
use superpage_units::Share;

/// The policy as the registry has it.
pub const EMD_LASTING: Entry = Entry {
    name: "emd-lasting",
    summary: "As emd, but what came back after earlier splits of a process makes its bloat count less.",
    source: "our own, after EMD, sections 4.2 and 4.3",
    build: |options| Box::new(Emd::new(Options { order: Order::Lasting, ..options })),
    ..EMD
};

/// The measure by which buckets of different processes are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The bloat density, as published.
    #[default]
    Density,
    /// The bloat density that is likely to stay freed.
    Lasting,
}

impl Order {
    /// The bucket as which a bucket of a process counts in which this share came back.
    pub(super) fn rank(self, bucket: Bucket, came_back: Share) -> Bucket {
        match self {
            Self::Density => bucket,
            Self::Lasting => bucket.scaled(came_back.rest()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::DoneCause;
    use super::super::emd::Observation;
    use super::super::model::{Played, World, play_with};
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn exact(order: Order) -> Emd {
        Emd::new(Options { observation: Observation::Exact, order, ..Options::default() })
    }

    fn shares(percent: &[u8]) -> Vec<Share> {
        percent.iter().map(|percent| Share::percent(*percent)).collect()
    }

    /// The numbers of the processes in the order of their splits.
    fn order(played: &Played) -> Vec<usize> {
        played.split.iter().map(|(process, ..)| *process).collect()
    }

    #[test]
    fn what_comes_back_is_split_last_and_not_excluded() {
        let world: World = vec![vec![300; 3], vec![300; 3], vec![100; 2]];
        let all = 6 * 300 + 2 * 100;
        let came_back = shares(&[100, 0, 0]);
        let played = play_with(&mut exact(Order::Lasting), &world, all, &came_back);
        assert_eq!(order(&played), [1, 1, 1, 2, 2, 0, 0, 0]);
        assert_eq!(played.done, DoneCause::NeedMet);
        let published = play_with(&mut exact(Order::Density), &world, 600, &came_back);
        assert_eq!(order(&published), [0, 1], "as published it makes no difference");
    }

    #[test]
    fn nobody_else_asks_what_came_back() {
        let asks = |entry: &Entry| (entry.build)(Options::default()).asks_what_came_back();
        let names: Vec<&str> =
            super::super::list::ALL.iter().filter(|entry| asks(entry)).map(|e| e.name).collect();
        assert_eq!(names, ["emd-lasting"]);
    }

    #[test]
    fn a_part_that_comes_back_makes_it_as_dear_as_less_bloat() {
        // Half of 400 is as good as 200.
        let world: World = vec![vec![400; 2], vec![250], vec![150]];
        let played = play_with(&mut exact(Order::Lasting), &world, 10_000, &shares(&[50, 0, 0]));
        assert_eq!(order(&played), [1, 0, 0, 2]);
    }

    #[test]
    fn the_floor_is_one_of_density_whatever_came_back() {
        let mut policy = exact(Order::Lasting);
        policy =
            Emd::new(Options { floor: crate::bloat::BloatDensity::new(120), ..policy.options() });
        let world: World = vec![vec![119, 120, 500]];
        let played = play_with(&mut policy, &world, 10_000, &shares(&[100]));
        assert_eq!(played.split, [(0, 2, 500), (0, 1, 120)]);
    }

    proptest! {
        /// The policy frees as much as EMD where all is needed, and exactly as EMD does where nothing came back.
        #[test]
        fn it_is_emd_in_another_order(
            world in prop::collection::vec(prop::collection::vec(0u16..=512, 0..12), 1..4),
            percent in prop::collection::vec(0u8..=100, 4),
            need in 0u64..8000,
        ) {
            let nothing = shares(&[0; 4]);
            let published = play_with(&mut exact(Order::Density), &world, need, &nothing);
            let same = play_with(&mut exact(Order::Lasting), &world, need, &nothing);
            prop_assert_eq!(&published.split, &same.split);
            let other = play_with(&mut exact(Order::Lasting), &world, need, &shares(&percent));
            prop_assert_eq!(published.done, other.done);
            prop_assert!(published.done == DoneCause::NothingLeft || other.freed() >= need);
            let all = play_with(&mut exact(Order::Lasting), &world, u64::MAX, &shares(&percent));
            let bloated = world.iter().flatten().filter(|density| **density > 0).count();
            prop_assert_eq!(all.split.len(), bloated);
        }
    }
}
