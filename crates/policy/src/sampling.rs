//! Estimating bloat density from a few base pages instead of all 512, and how wrong that can be.
//!
//! EMD (section 4.4) counts the zero-filled base pages of every huge page. A policy needs only a
//! bucket, so a sample does. This file says which base pages to look at and what follows from
//! what was seen; reading them is done elsewhere.
//!
//! # Two looks
//!
//! - A **pre-sample** of every huge page, to rank them: an excerpt of [`EXCERPT`] bytes of each of
//!   [`PRE_SAMPLE`] base pages. HawkEye found that a page in use shows it within some ten bytes, but
//!   a page may be used elsewhere than in the excerpt, so a pre-sample can only overstate bloat.
//! - A **sample** of those that a decision is about to split: [`SAMPLE`] base pages, each read
//!   whole. It replaces the pre-sample, and nothing is split without one.
//!
//! Where most huge pages are expected to be in use, a sample of [`FILTER`] base pages says which are worth
//! reading whole. Of each base page in it an excerpt is read first: of a program in use hardly one is
//! empty, and only then the base page is read whole.
//!
//! # Which pages
//!
//! A look at `n` base pages cuts the huge page into `n` strata, equal to within one base page, and
//! takes one base page at random from each. Every base page then has (nearly) the same chance of
//! being looked at, whatever the program's layout (a fixed stride would see only one phase of a
//! periodic layout), and layouts that fill a huge page from one end, the common case, are
//! estimated better than by drawing freely.
//!
//! # How wrong
//!
//! Drawing freely, the zero pages in a sample of `n` out of 512 follow the hypergeometric
//! distribution; stratifying narrows it, except on layouts that repeat from stratum to stratum,
//! where it loses the factor for drawing without replacement (3 % at 24). With `p` the true share, the estimate's standard
//! error is `512 * sqrt(p * (1 - p) / n * (512 - n) / 511)` base pages: at worst (p = 1/2) 90 for
//! a pre-sample, 51 or one bucket for a sample.
//!
//! The chance that the estimated bucket is not the true one depends on how near a border the true
//! density lies: [`chance_of_other_bucket`] computes it, and a test holds this table against it:
//!
//! | true density | pre-sample (8) | sample (24) |
//! |---|---|---|
//! | 25 (middle of the lowest bucket) | 33 % | 11 % |
//! | 275 (middle of bucket 5, where samples spread most) | 73 % | 53 % |
//! | 275, two or more buckets off | 48 % | 14 % |
//! | 275, three or more buckets off | 15 % | 1.9 % |
//! | 410 (ten above a border) | 66 % | 45 % |
//! | 410, two or more buckets off | 20 % | 8.2 % |
//! | 500 (top bucket) | 17 % | 1.5 % |
//!
//! A pre-sample separates full, half and empty; after a sample, few ranges are two buckets off and
//! hardly any three. What is gained by certainty beyond that is at most a bucket's width per huge
//! page, and every split is verified, so an error never adds up.

use crate::bloat::BloatDensity;
use superpage_units::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, PmdRange, VirtAddr,
};

/// Base pages in a pre-sample. Chosen, not measured: 8 of 512 are little to read, and full, half and
/// empty huge pages come apart.
pub const PRE_SAMPLE: SampleSize = SampleSize(8);
/// Base pages in a sample: two dozen. Chosen by measurement: a base page in a sample costs two to
/// five times what it costs in a full reading, so more would eat up what sampling saves.
pub const SAMPLE: SampleSize = SampleSize(24);
/// Base pages in a sample that is to miss little. Chosen: drawn freely, it sees nothing of 6 % of bloat in 1.4 %
/// of cases (a test holds that), and by excerpts it reads one part in 64 of memory that is in use.
pub const FILTER: SampleSize = SampleSize(64);
/// What a pre-sample reads of a base page: an eighth, anywhere in it. Chosen by measurement: reading
/// whole pages in random order takes up to five times as long, by how the host backs them.
pub const EXCERPT: Bytes = Bytes(BASE_PAGE_BYTES / 8);

/// How many base pages of a huge page a look reads: 1 to 512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SampleSize(u16);

impl SampleSize {
    /// A look at `pages` base pages, if that is 1 to 512.
    #[must_use]
    pub const fn new(pages: u16) -> Option<Self> {
        if pages >= 1 && pages as u64 <= BASE_PAGES_PER_HUGE_PAGE {
            Some(Self(pages))
        } else {
            None
        }
    }

    /// The base pages it reads.
    #[must_use]
    pub const fn pages(self) -> u16 {
        self.0
    }

    /// The base pages (0 to 511, ascending, no two alike) that this look reads of `range`.
    ///
    /// `seed` makes looks differ; the same seed and range give the same pages.
    pub fn positions(self, range: PmdRange, seed: u64) -> impl Iterator<Item = u16> + Clone {
        let strata = u64::from(self.0);
        (0..strata).map(move |stratum| {
            let first = stratum * BASE_PAGES_PER_HUGE_PAGE / strata;
            let next = (stratum + 1) * BASE_PAGES_PER_HUGE_PAGE / strata;
            let random = mix(seed ^ mix(range.start().0 ^ mix(stratum)));
            #[expect(clippy::cast_possible_truncation, reason = "below 512")]
            {
                (first + random % (next - first)) as u16
            }
        })
    }
}

/// Where in `range` the excerpt of base page `page` lies, for a pre-sample with this `seed`.
#[must_use]
pub fn excerpt(range: PmdRange, page: u16, seed: u64) -> VirtAddr {
    let start = range.base_page(page);
    let pieces = BASE_PAGE_BYTES / EXCERPT.0;
    start.offset(EXCERPT * (mix(seed ^ mix(start.0)) % pieces))
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What a look at some base pages of a range saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pages: u16,
    zero: u16,
}

impl Sample {
    /// `zero` zero-filled base pages among `pages` looked at, if those numbers can be.
    #[must_use]
    pub const fn new(pages: u16, zero: u16) -> Option<Self> {
        if pages >= 1 && zero <= pages { Some(Self { pages, zero }) } else { None }
    }

    /// How many base pages were looked at.
    #[must_use]
    pub const fn pages(self) -> u16 {
        self.pages
    }

    /// How many of those were zero-filled.
    #[must_use]
    pub const fn zero(self) -> u16 {
        self.zero
    }

    /// The estimated density: the sample's share of zero-filled pages, scaled to the huge page.
    #[must_use]
    pub fn density(self) -> BloatDensity {
        let [zero, pages] = [self.zero, self.pages].map(|pages| BasePages(pages.into()));
        BloatDensity::from_share(zero.share_of(pages))
    }

    /// The estimate's standard error, in base pages.
    ///
    /// The true share is not known, so the sample's is used after adding one page of each kind
    /// (Laplace's rule): a sample with no zero page does not prove that there is none.
    #[must_use]
    pub fn standard_error(self) -> f64 {
        let all = BASE_PAGES_PER_HUGE_PAGE as f64;
        let n = f64::from(self.pages).min(all);
        let share = (f64::from(self.zero) + 1.0) / (f64::from(self.pages) + 2.0);
        all * libm::sqrt(share * (1.0 - share) / n * (all - n) / (all - 1.0))
    }
}

/// The chance that a free draw of `size` base pages puts a range of this true density into a
/// bucket that is at least `off` (1 or more) buckets away from the true one.
#[must_use]
pub fn chance_of_other_bucket(truth: BloatDensity, size: SampleSize, off: u8) -> f64 {
    let home = truth.bucket().index();
    (0..=size.pages())
        .filter_map(|zero| Sample::new(size.pages(), zero))
        .filter(|sample| sample.density().bucket().index().abs_diff(home) >= usize::from(off))
        .map(|sample| hypergeometric(truth, sample))
        .sum()
}

/// The chance of exactly this sample from a huge page of this density, drawn without replacement.
fn hypergeometric(truth: BloatDensity, sample: Sample) -> f64 {
    let all = BASE_PAGES_PER_HUGE_PAGE as f64;
    let zeros = f64::from(truth.zero_pages());
    let n = f64::from(sample.pages);
    let k = f64::from(sample.zero);
    if k > zeros || n - k > all - zeros {
        return 0.0;
    }
    libm::exp(ln_choose(zeros, k) + ln_choose(all - zeros, n - k) - ln_choose(all, n))
}

fn ln_choose(n: f64, k: f64) -> f64 {
    libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use superpage_units::HUGE_PAGE_BYTES;

    fn range(index: u64) -> PmdRange {
        PmdRange::new(VirtAddr((index + 1) * HUGE_PAGE_BYTES)).unwrap()
    }

    fn percent(density: u16, pages: u16, off: u8) -> f64 {
        let size = SampleSize::new(pages).unwrap();
        100.0 * chance_of_other_bucket(BloatDensity::new(density), size, off)
    }

    /// The numbers in this file's documentation.
    #[test]
    fn the_documented_chances_are_the_computed_ones() {
        let close = |found: f64, stated: f64| {
            assert!((found - stated).abs() <= stated * 0.1 + 0.005, "{found} is not {stated}");
        };
        close(percent(25, 8, 1), 33.0);
        close(percent(25, 24, 1), 11.0);
        close(percent(275, 8, 1), 73.0);
        close(percent(275, 24, 1), 53.0);
        close(percent(275, 8, 2), 48.0);
        close(percent(275, 24, 2), 14.0);
        close(percent(275, 8, 3), 15.0);
        close(percent(275, 24, 3), 1.9);
        close(percent(410, 8, 1), 66.0);
        close(percent(410, 24, 1), 45.0);
        close(percent(410, 8, 2), 20.0);
        close(percent(410, 24, 2), 8.2);
        close(percent(500, 8, 1), 17.0);
        close(percent(500, 24, 1), 1.5);
        let none = Sample::new(FILTER.pages(), 0).unwrap();
        close(100.0 * hypergeometric(BloatDensity::new(31), none), 1.4);
        let error = |pages| Sample::new(pages, pages / 2).unwrap().standard_error();
        close(error(8), 90.0);
        close(error(24), 51.0);
        assert!(error(512) < 1e-9);
    }

    #[test]
    fn chances_add_up_to_one() {
        for density in [0, 1, 102, 256, 410, 512] {
            let sum: f64 = (0..=64)
                .map(|zero| {
                    hypergeometric(BloatDensity::new(density), Sample::new(64, zero).unwrap())
                })
                .sum();
            assert!((sum - 1.0).abs() < 1e-9, "{density}: {sum}");
        }
    }

    /// The stratified draw is unbiased on layouts that a fixed stride would get wrong, and its
    /// spread stays within the free draw's standard error.
    #[test]
    fn estimates_are_unbiased_whatever_the_layout() {
        let layouts: [fn(u16) -> bool; 5] = [
            |page| page >= 410,
            |page| page % 8 == 0,
            |page| page % 32 < 24,
            |page| mix(u64::from(page)).is_multiple_of(5),
            |page| page == 0,
        ];
        for (number, is_zero) in layouts.iter().enumerate() {
            let truth = (0..512).filter(|page| is_zero(*page)).count() as f64;
            let looks: Vec<f64> = (0..4000)
                .map(|i| {
                    let zero = PRE_SAMPLE.positions(range(i), 42).filter(|p| is_zero(*p)).count();
                    512.0 * zero as f64 / f64::from(PRE_SAMPLE.pages())
                })
                .collect();
            let mean = looks.iter().sum::<f64>() / looks.len() as f64;
            let spread = libm::sqrt(
                looks.iter().map(|x| (x - truth) * (x - truth)).sum::<f64>() / looks.len() as f64,
            );
            let p = truth / 512.0;
            let free = 512.0 * libm::sqrt(p * (1.0 - p) / 8.0 * (512.0 - 8.0) / 511.0);
            assert!(
                (mean - truth).abs() < 5.0 * free / 63.0 + 0.5,
                "layout {number}: {mean} {truth}"
            );
            assert!(spread < free * 1.06, "layout {number}: {spread} against {free}");
        }
    }

    #[test]
    fn no_zero_page_seen_does_not_prove_that_there_is_none() {
        let nothing = Sample::new(16, 0).unwrap();
        assert!(nothing.standard_error() > 20.0);
    }

    proptest! {
        #[test]
        fn positions_are_distinct_ascending_and_in_range(pages in 1u16..=512, at in 0u64..1000, seed: u64) {
            let size = SampleSize::new(pages).unwrap();
            let found: Vec<u16> = size.positions(range(at), seed).collect();
            prop_assert_eq!(found.len(), usize::from(pages));
            prop_assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(found.iter().all(|page| *page < 512));
        }

        #[test]
        fn a_full_look_is_exact(zeros in 0u16..=512, seed: u64) {
            let all = SampleSize::new(512).unwrap();
            let zero = all.positions(range(1), seed).filter(|page| *page < zeros).count();
            let sample = Sample::new(512, u16::try_from(zero).unwrap()).unwrap();
            prop_assert_eq!(sample.density(), BloatDensity::new(zeros));
        }
    }
}
