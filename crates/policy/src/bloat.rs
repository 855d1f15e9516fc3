//! What is known about the zero-filled base pages in a process's huge pages.
//!
//! The bloat density of a huge page, the ten buckets of the EMD paper (section 4.2), and the
//! bloat map that holds a process's ranges in them. How densities come to be known is another
//! matter: see [`crate::sampling`] for estimates.

use crate::sampling::Sample;
use alloc::collections::{BTreeMap, BTreeSet};
use core::fmt;
use superpage_units::{BasePages, HugePages, PmdRange, Share};

/// How many of a huge page's 512 base pages are zero-filled: 0 to 512.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BloatDensity(u16);

impl BloatDensity {
    /// No zero-filled base page.
    pub const NONE: Self = Self(0);
    /// Nothing but zero-filled base pages: as many as a huge page has, a test asserts.
    pub const FULL: Self = Self(512); // tidy: allow(the constant as a u16; a test compares)

    /// A density of `zero_pages`; more than there are in a huge page counts as all of them.
    #[must_use]
    pub const fn new(zero_pages: u16) -> Self {
        if zero_pages > Self::FULL.0 { Self::FULL } else { Self(zero_pages) }
    }

    /// The density nearest to this share of a huge page.
    #[must_use]
    pub fn from_share(share: Share) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float to integer cast saturates, and new() caps it"
        )]
        Self::new((share.get() * f64::from(Self::FULL.0) + 0.5) as u16)
    }

    /// The zero-filled base pages, as a plain number for arithmetic on samples.
    #[must_use]
    pub const fn zero_pages(self) -> u16 {
        self.0
    }

    /// The base pages that splitting a huge page of this density frees.
    #[must_use]
    pub const fn base_pages(self) -> BasePages {
        BasePages(self.0 as u64)
    }

    /// As a share of the huge page.
    #[must_use]
    pub fn share(self) -> Share {
        self.base_pages().share_of(Self::FULL.base_pages())
    }

    /// The bucket of the bloat map that this density belongs in.
    #[must_use]
    pub const fn bucket(self) -> Bucket {
        Bucket::new((self.0 / Bucket::WIDTH).to_le_bytes()[0])
    }
}

/// One of the ten buckets of a bloat map: densities 0-49, 50-99, ... 450-512 (EMD, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u8);

impl Bucket {
    /// How many buckets a bloat map has.
    pub const COUNT: usize = 10;
    const TOP: u8 = 9;
    /// How many densities a bucket spans; the last one spans 63 (450 to 512).
    pub const WIDTH: u16 = 50;

    /// Bucket `index`; anything past the last is the last.
    #[must_use]
    pub const fn new(index: u8) -> Self {
        if index > Self::TOP { Self(Self::TOP) } else { Self(index) }
    }

    /// All buckets, densest first.
    pub fn densest_first() -> impl Iterator<Item = Self> {
        (0..=Self::TOP).rev().map(Self)
    }

    /// 0 to 9.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The lowest density in it.
    #[must_use]
    pub const fn floor(self) -> BloatDensity {
        BloatDensity(self.0 as u16 * Self::WIDTH)
    }

    /// The highest density in it.
    #[must_use]
    pub const fn ceiling(self) -> BloatDensity {
        if self.0 == Self::TOP {
            BloatDensity::FULL
        } else {
            BloatDensity(self.floor().0 + Self::WIDTH - 1)
        }
    }

    /// The bucket nearest to this share of the way up from the lowest.
    #[must_use]
    pub fn scaled(self, share: Share) -> Self {
        let wanted = share.get() * f64::from(self.0);
        Self((0..self.0).find(|index| f64::from(*index) + 0.5 > wanted).unwrap_or(self.0))
    }

    /// The bucket `steps` below, or the lowest.
    #[must_use]
    pub const fn below(self, steps: u8) -> Self {
        Self(self.0.saturating_sub(steps))
    }
}

/// The range of densities: `400-449`.
impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.floor().0, self.ceiling().0)
    }
}

/// The knowledge about one range's density.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Nobody has looked yet.
    Unknown,
    /// Excerpts of some of its base pages were looked at: enough to rank it, not to split it.
    PreSampled(Sample),
    /// Some of its base pages were read whole.
    Sampled(Sample),
    /// All of its base pages were read.
    Exact(BloatDensity),
}

impl Knowledge {
    /// The best guess at the density, if anybody has looked.
    #[must_use]
    pub fn density(self) -> Option<BloatDensity> {
        match self {
            Self::Unknown => None,
            Self::PreSampled(sample) | Self::Sampled(sample) => Some(sample.density()),
            Self::Exact(density) => Some(density),
        }
    }

    /// Whether a look at whole pages saw no zero-filled one.
    #[must_use]
    pub fn is_without_bloat(self) -> bool {
        match self {
            Self::Sampled(sample) => sample.zero() == 0,
            Self::Exact(density) => density == BloatDensity::NONE,
            Self::Unknown | Self::PreSampled(_) => false,
        }
    }

    /// This knowledge after a further look: the closer one counts, and of two alike the newer.
    #[must_use]
    pub fn refined(self, look: Self) -> Self {
        let closeness = |knowledge| match knowledge {
            Self::Unknown => 0,
            Self::PreSampled(_) => 1,
            Self::Sampled(_) => 2,
            Self::Exact(_) => 3,
        };
        if closeness(look) >= closeness(self) { look } else { self }
    }
}

/// The huge pages of one process by bloat density (EMD, section 4.2: `bloat_map`).
///
/// Ranges nobody has looked at are held too, outside the buckets. Those known to hold no
/// zero-filled base page count into the lowest bucket, but nobody has to walk past them.
#[derive(Clone, Debug, Default)]
pub struct BloatMap {
    ranges: BTreeMap<PmdRange, Knowledge>,
    unknown: BTreeSet<PmdRange>,
    dense: BTreeSet<PmdRange>,
    buckets: [BTreeSet<PmdRange>; Bucket::COUNT],
    zero_pages: [u64; Bucket::COUNT],
    came_back: Share,
}

impl BloatMap {
    /// A map with no ranges.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The share of the base pages freed by earlier splits in this process that its program has used again.
    #[must_use]
    pub fn came_back(&self) -> Share {
        self.came_back
    }

    /// Takes note of that share. Nothing is known to have come back before.
    pub fn set_came_back(&mut self, share: Share) {
        self.came_back = share;
    }

    /// Adds a range, or replaces what was known about it.
    pub fn insert(&mut self, range: PmdRange, knowledge: Knowledge) {
        self.remove(range);
        self.ranges.insert(range, knowledge);
        if let Some(density) = knowledge.density() {
            self.zero_pages[density.bucket().index()] += density.base_pages().0;
        }
        self.place(knowledge).insert(range);
    }

    /// The set that a range of which this is known stands in.
    fn place(&mut self, knowledge: Knowledge) -> &mut BTreeSet<PmdRange> {
        match knowledge {
            Knowledge::Unknown => &mut self.unknown,
            Knowledge::Sampled(_) | Knowledge::Exact(_) if knowledge.is_without_bloat() => {
                &mut self.dense
            }
            Knowledge::PreSampled(_) | Knowledge::Sampled(_) | Knowledge::Exact(_) => {
                let density = knowledge.density().unwrap_or_default();
                &mut self.buckets[density.bucket().index()]
            }
        }
    }

    /// Adds a further look at a range. A range that is not in the map stays out.
    pub fn refine(&mut self, range: PmdRange, look: Knowledge) {
        if let Some(known) = self.ranges.get(&range) {
            self.insert(range, known.refined(look));
        }
    }

    /// Takes a range out; returns what was known about it.
    pub fn remove(&mut self, range: PmdRange) -> Option<Knowledge> {
        let knowledge = self.ranges.remove(&range)?;
        if let Some(density) = knowledge.density() {
            self.zero_pages[density.bucket().index()] -= density.base_pages().0;
        }
        self.place(knowledge).remove(&range);
        Some(knowledge)
    }

    /// The knowledge about a range; `None` if it is not in the map.
    #[must_use]
    pub fn get(&self, range: PmdRange) -> Option<Knowledge> {
        self.ranges.get(&range).copied()
    }

    /// All ranges in address order.
    pub fn by_address(&self) -> impl Iterator<Item = (PmdRange, Knowledge)> {
        self.ranges.iter().map(|(range, knowledge)| (*range, *knowledge))
    }

    /// The ranges of one bucket in address order, with what is known; without those that are
    /// known to hold no zero-filled base page.
    pub fn in_bucket(&self, bucket: Bucket) -> impl Iterator<Item = (PmdRange, Knowledge)> {
        self.buckets[bucket.index()].iter().filter_map(|range| Some((*range, self.get(*range)?)))
    }

    /// The ranges nobody has looked at, in address order.
    pub fn unknown(&self) -> impl Iterator<Item = PmdRange> {
        self.unknown.iter().copied()
    }

    /// How many ranges a bucket holds.
    #[must_use]
    pub fn count(&self, bucket: Bucket) -> HugePages {
        HugePages(self.buckets[bucket.index()].len() as u64 + self.dense_in(bucket))
    }

    fn dense_in(&self, bucket: Bucket) -> u64 {
        if bucket == BloatDensity::NONE.bucket() { self.dense.len() as u64 } else { 0 }
    }

    /// The (estimated) zero-filled base pages in a bucket.
    #[must_use]
    pub fn zero_pages(&self, bucket: Bucket) -> BasePages {
        BasePages(self.zero_pages[bucket.index()])
    }

    /// The (estimated) zero-filled base pages in all ranges somebody has looked at.
    #[must_use]
    pub fn total_zero_pages(&self) -> BasePages {
        BasePages(self.zero_pages.iter().sum())
    }

    /// How many ranges there are.
    #[must_use]
    pub fn len(&self) -> HugePages {
        HugePages(self.ranges.len() as u64)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Asserts that every range stands where its density says, once, and that the sums agree.
    ///
    /// # Panics
    /// If one does not. For tests and simulators.
    pub fn check(&self) {
        let held = self.unknown.len()
            + self.dense.len()
            + self.buckets.iter().map(BTreeSet::len).sum::<usize>();
        assert_eq!(held, self.ranges.len(), "every range stands in one place");
        for bucket in Bucket::densest_first() {
            let mut sum = 0;
            for range in &self.buckets[bucket.index()] {
                let density = self.ranges.get(range).and_then(|known| known.density());
                assert_eq!(density.map(BloatDensity::bucket), Some(bucket), "range {range}");
                sum += density.unwrap_or_default().base_pages().0;
            }
            assert_eq!(sum, self.zero_pages[bucket.index()], "sum of bucket {bucket}");
        }
        for range in &self.dense {
            let known = self.ranges.get(range);
            assert!(known.is_some_and(|known| known.is_without_bloat()), "range {range}");
        }
        for range in &self.unknown {
            assert_eq!(self.ranges.get(range), Some(&Knowledge::Unknown), "range {range}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use superpage_units::{HUGE_PAGE_BYTES, VirtAddr};

    fn range(index: u64) -> PmdRange {
        PmdRange::new(VirtAddr((index + 1) * HUGE_PAGE_BYTES)).unwrap()
    }

    #[test]
    fn a_full_huge_page_is_all_of_its_base_pages() {
        assert_eq!(BloatDensity::FULL.base_pages(), HugePages(1).base_pages());
        assert_eq!(Bucket::densest_first().count(), Bucket::COUNT);
    }

    #[test]
    fn buckets_are_the_papers() {
        let bucket = |density| BloatDensity::new(density).bucket().index();
        assert_eq!([bucket(0), bucket(49), bucket(50), bucket(449)], [0, 0, 1, 8]);
        assert_eq!([bucket(450), bucket(500), bucket(512)], [9, 9, 9]);
        assert_eq!(Bucket::new(8).to_string(), "400-449");
        assert_eq!(Bucket::new(9).to_string(), "450-512");
    }

    #[test]
    fn every_density_lies_between_its_buckets_borders() {
        for zero_pages in 0..=512 {
            let density = BloatDensity::new(zero_pages);
            let bucket = density.bucket();
            assert!(bucket.floor() <= density && density <= bucket.ceiling());
        }
    }

    #[test]
    fn the_closer_look_counts() {
        let of = |pages, zero| Sample::new(pages, zero).unwrap();
        let pre_sample = Knowledge::PreSampled(of(8, 8));
        let sample = Knowledge::Sampled(of(24, 12));
        let exact = Knowledge::Exact(BloatDensity::new(7));
        let rising = [Knowledge::Unknown, pre_sample, sample, exact];
        for (index, closer) in rising.iter().enumerate() {
            for known in &rising[..=index] {
                assert_eq!(known.refined(*closer), *closer);
                assert_eq!(closer.refined(*known), *closer);
            }
        }
        assert_eq!(sample.refined(Knowledge::Sampled(of(24, 9))), Knowledge::Sampled(of(24, 9)));
    }

    proptest! {
        /// Random programs against the slow, obvious model: a plain list of densities.
        #[test]
        fn the_map_agrees_with_a_plain_list(
            steps in prop::collection::vec((0u64..40, prop::option::of(0u16..=512), any::<bool>()), 0..200)
        ) {
            let mut map = BloatMap::new();
            let mut model: BTreeMap<PmdRange, Option<u16>> = BTreeMap::new();
            for (index, density, keep) in steps {
                if keep {
                    let known = density.map_or(Knowledge::Unknown, |d| Knowledge::Exact(BloatDensity::new(d)));
                    map.insert(range(index), known);
                    model.insert(range(index), density);
                } else {
                    prop_assert_eq!(map.remove(range(index)).is_some(), model.remove(&range(index)).is_some());
                }
                map.check();
            }
            for bucket in Bucket::densest_first() {
                let expected: Vec<PmdRange> = model
                    .iter()
                    .filter(|(_, d)| d.is_some_and(|d| d > 0 && BloatDensity::new(d).bucket() == bucket))
                    .map(|(r, _)| *r)
                    .collect();
                let found: Vec<PmdRange> = map.in_bucket(bucket).map(|(r, _)| r).collect();
                prop_assert_eq!(found, expected);
            }
            let sum: u64 = model.values().flatten().map(|d| u64::from(*d)).sum();
            prop_assert_eq!(map.total_zero_pages(), BasePages(sum));
        }
    }
}
