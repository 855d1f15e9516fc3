//! De-bloating: which huge pages to split, in which order, and what must be known first.
//!
//! A policy is asked again and again for one [`Decision`]. It may ask to look at ranges, or to
//! split some, or say that it is done and why. The caller carries the decision out and brings the
//! bloat maps up to date: a range that was looked at is refined (or removed if it is gone), a
//! range that was split, or that would not split, is removed. Every decision therefore changes
//! a map, and a policy never waits.
//!
//! | policy | file | order |
//! |---|---|---|
//! | EMD | [`emd`] | densest bucket first; processes in it take turns |
//! | EMD to the letter | [`emd_literal`] | the same, turns whole to the last, no least density |
//! | our own | [`lasting`] | as EMD; what came back after earlier splits makes bloat count less |
//! | HawkEye | [`hawkeye`] | address order, one process after the other |
//! | Linux's shrinker | [`underused`] | the same, of those with more zero-filled base pages than a threshold |
//!
//! [`list`] has all of them by name.

pub mod emd;
pub mod emd_literal;
pub mod hawkeye;
pub mod lasting;
pub mod list;
pub mod underused;

use crate::bloat::{BloatDensity, BloatMap, Bucket};
use crate::sampling::SampleSize;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use superpage_units::{BasePages, HugePages, PmdRange, ProcessKey};

/// The bloat maps of all processes that may be de-bloated.
pub type BloatMaps = BTreeMap<ProcessKey, BloatMap>;

/// How closely to look at ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// At excerpts of some base pages ([`crate::sampling::excerpt`]).
    PreSample(SampleSize),
    /// At some base pages, each read whole.
    Sample(SampleSize),
    /// As much is known afterwards as after a sample, for less where most of the base pages are in use: an
    /// excerpt of each is read first, and a page whole only where its excerpt was empty.
    Filter(SampleSize),
    /// At every base page.
    Exact,
}

/// Why ranges must be looked at before anything can be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookCause {
    /// Nothing is known about them.
    Unknown,
    /// They are next, and only pre-sampled: their buckets are not certain enough.
    AboutToSplit(Bucket),
}

impl fmt::Display for LookCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("nothing is known about them"),
            Self::AboutToSplit(bucket) => {
                write!(f, "about to split them as bucket {bucket}, and a pre-sample is not certain")
            }
        }
    }
}

/// Why ranges are to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitCause {
    /// They are in the densest bucket; `sharers` processes with ranges in it take turns of at
    /// most `turn` huge pages.
    Densest {
        /// The bucket.
        bucket: Bucket,
        /// Processes with ranges in it when the round began.
        sharers: usize,
        /// What each may split in this round.
        turn: HugePages,
    },
    /// The ranges are in the bucket that counts as the densest, by what is likely to stay freed; the rest as in `Densest`.
    Lasting {
        /// The bucket as which theirs counts.
        bucket: Bucket,
        /// Processes with ranges that count as that when the round began.
        sharers: usize,
        /// What each may split in this round.
        turn: HugePages,
    },
    /// They come first in address order, in the process created first.
    FirstInOrder,
}

impl SplitCause {
    /// Its kind in a word, one of a small fixed set.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Densest { .. } => "densest",
            Self::Lasting { .. } => "lasting",
            Self::FirstInOrder => "first-in-order",
        }
    }
}

impl fmt::Display for SplitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Densest { bucket, sharers, turn } => write!(
                f,
                "densest bucket {bucket}, {sharers} process(es) in it, {turn} huge pages a turn"
            ),
            Self::Lasting { bucket, sharers, turn } => write!(
                f,
                "densest by what stays freed, as bucket {bucket}, {sharers} process(es) in it, {turn} huge pages a turn"
            ),
            Self::FirstInOrder => f.write_str("first in address order"),
        }
    }
}

/// Why there is nothing more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoneCause {
    /// As much was freed as was asked for.
    NeedMet,
    /// No huge page is left from which anything could be freed.
    NothingLeft,
}

impl fmt::Display for DoneCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeedMet => "enough was freed",
            Self::NothingLeft => "nothing is left to free",
        })
    }
}

/// What a policy wants done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Look at these ranges of this process.
    Look {
        /// Whose.
        process: ProcessKey,
        /// Which, in address order.
        ranges: Vec<PmdRange>,
        /// How closely.
        depth: Depth,
        /// Why.
        cause: LookCause,
    },
    /// Split these huge pages of this process and free their zero-filled base pages.
    Split {
        /// Whose.
        process: ProcessKey,
        /// Which, in address order.
        ranges: Vec<PmdRange>,
        /// Why.
        cause: SplitCause,
    },
    /// Stop.
    Done(DoneCause),
}

/// A rule for reclaiming bloat.
pub trait Debloat: fmt::Debug + Send {
    /// What to do next, given what is known and how much is still to be freed.
    fn decide(&mut self, maps: &BloatMaps, need: BasePages) -> Decision;

    /// The least density for which a huge page is split.
    fn floor(&self) -> BloatDensity;

    /// Whether the policy goes by what came back of what earlier splits freed ([`BloatMap::came_back`](crate::bloat::BloatMap::came_back)),
    /// which somebody has to find out.
    fn asks_what_came_back(&self) -> bool {
        false
    }
}

#[cfg(test)]
pub(crate) mod model {
    //! A slow, obvious world to run a policy in: every range's true density in a list.

    use super::*;
    use crate::bloat::{BloatDensity, Knowledge};
    use crate::sampling::Sample;
    use superpage_units::{HUGE_PAGE_BYTES, Share, VirtAddr};

    /// One process as a list of true densities; range `i` has density `densities[i]`.
    pub(crate) type World = Vec<Vec<u16>>;

    /// What a policy did: (process, range index, density) in order, and why it stopped.
    #[derive(Debug)]
    pub(crate) struct Played {
        pub(crate) split: Vec<(usize, usize, u16)>,
        pub(crate) looks: usize,
        pub(crate) done: DoneCause,
    }

    impl Played {
        pub(crate) fn freed(&self) -> u64 {
            self.split.iter().map(|(_, _, density)| u64::from(*density)).sum()
        }
    }

    fn range(index: usize) -> PmdRange {
        PmdRange::new(VirtAddr((index as u64 + 1) * HUGE_PAGE_BYTES)).unwrap()
    }

    fn index(range: PmdRange) -> usize {
        usize::try_from(range.start().0 / HUGE_PAGE_BYTES - 1).unwrap()
    }

    /// The first `density` base pages of a range are its zero pages, after a shuffle.
    fn look(density: u16, range: PmdRange, depth: Depth, seed: u64) -> Knowledge {
        match depth {
            Depth::Exact => Knowledge::Exact(BloatDensity::new(density)),
            Depth::PreSample(size) => Knowledge::PreSampled(sample(density, range, size, seed)),
            Depth::Sample(size) | Depth::Filter(size) => {
                Knowledge::Sampled(sample(density, range, size, seed))
            }
        }
    }

    fn sample(density: u16, range: PmdRange, size: SampleSize, seed: u64) -> Sample {
        let is_zero = |page: &u16| (u32::from(*page) * 333 + 17) % 512 < u32::from(density);
        let zero = size.positions(range, seed).filter(is_zero).count();
        Sample::new(size.pages(), u16::try_from(zero).unwrap()).unwrap()
    }

    pub(crate) fn unknown_maps(world: &World) -> BloatMaps {
        let map = |densities: &Vec<u16>| {
            let mut map = BloatMap::new();
            for at in 0..densities.len() {
                map.insert(range(at), Knowledge::Unknown);
            }
            map
        };
        world.iter().enumerate().map(|(p, d)| (ProcessKey(p as u64), map(d))).collect()
    }

    /// Runs `policy` until it is done; checks every map and that each decision changes one.
    pub(crate) fn play(policy: &mut dyn Debloat, world: &World, need: u64) -> Played {
        play_with(policy, world, need, &[])
    }

    /// As [`play`], where these shares of what was freed in the processes came back.
    pub(crate) fn play_with(
        policy: &mut dyn Debloat,
        world: &World,
        need: u64,
        came_back: &[Share],
    ) -> Played {
        let mut maps = unknown_maps(world);
        maps.values_mut().zip(came_back).for_each(|(map, share)| map.set_came_back(*share));
        let mut left = BasePages(need);
        let mut split = Vec::new();
        let mut looks = 0;
        for step in 0..100_000 {
            match policy.decide(&maps, left) {
                Decision::Look { process, ranges, depth, .. } => {
                    assert!(!ranges.is_empty(), "an empty look");
                    looks += ranges.len();
                    let map = maps.get_mut(&process).unwrap();
                    for r in ranges {
                        let before = map.get(r).unwrap();
                        let density = world[process.0 as usize][index(r)];
                        map.refine(r, look(density, r, depth, step));
                        assert_ne!(map.get(r), Some(before), "a look must teach something");
                    }
                    map.check();
                }
                Decision::Split { process, ranges, .. } => {
                    assert!(!ranges.is_empty(), "an empty split");
                    let map = maps.get_mut(&process).unwrap();
                    for r in ranges {
                        assert!(map.remove(r).is_some(), "split a range that was not there");
                        let density = world[process.0 as usize][index(r)];
                        split.push((process.0 as usize, index(r), density));
                        left = left.saturating_sub(BasePages(u64::from(density)));
                    }
                    map.check();
                }
                Decision::Done(done) => {
                    return Played { split, looks, done };
                }
            }
        }
        panic!("the policy does not come to an end");
    }
}
