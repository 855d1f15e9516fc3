//! Zipf's law: few things are popular. Numbers below a bound, drawn as by the Yahoo! Cloud Serving Benchmark.
//!
//! Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994: an approximation that needs one
//! sum over all ranks at the beginning, and no table.

use super::rng::Rng;

/// The exponent. That of the benchmark.
const THETA: f64 = 0.99;
/// A prime by which ranks are scattered; it divides no bound below it.
const SCATTER: u64 = 2_654_435_761;

/// Draws numbers from 0 to below a bound.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    bound: u64,
    /// The sum of the popularity of all ranks.
    sum: f64,
    eta: f64,
}

impl Zipf {
    /// Numbers below `bound`, which must be below 2^32.
    pub(crate) fn new(bound: u64) -> Self {
        let sum = (1..=bound).map(|rank| (rank as f64).powf(-THETA)).sum();
        let two = 1.0 + 0.5_f64.powf(THETA);
        let eta = (1.0 - (2.0 / bound as f64).powf(1.0 - THETA)) / (1.0 - two / sum);
        Self { bound, sum, eta }
    }

    /// A rank; 0 is the most popular one.
    pub(crate) fn rank(&self, rng: &mut Rng) -> u64 {
        /// The numbers that a float holds exactly.
        const EXACT: u64 = 1 << 53;
        let u = rng.below(EXACT) as f64 / EXACT as f64;
        let popularity = u * self.sum;
        if popularity < 1.0 {
            return 0;
        }
        if popularity < 1.0 + 0.5_f64.powf(THETA) {
            return 1.min(self.bound - 1);
        }
        let place = (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float to integer cast saturates"
        )]
        let rank = (self.bound as f64 * place) as u64;
        rank.min(self.bound - 1)
    }

    /// A number that is as popular as a rank; popular ones do not lie side by side.
    pub(crate) fn scattered(&self, rng: &mut Rng) -> u64 {
        self.rank(rng) * SCATTER % self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::width::to_usize;
    use std::collections::BTreeSet;

    #[test]
    fn the_first_rank_is_as_popular_as_the_law_says() {
        let (zipf, mut rng) = (Zipf::new(1000), Rng::new(1));
        let mut counts = vec![0_u32; 1000];
        (0..100_000).for_each(|_| counts[to_usize(zipf.rank(&mut rng))] += 1);
        let share = |rank: usize| f64::from(counts[rank]) / 100_000.0;
        assert!((share(0) - 1.0 / zipf.sum).abs() < 0.01, "{} {}", share(0), zipf.sum);
        assert!(share(0) > 1.8 * share(1) && share(9) > share(99), "{counts:?}");
        assert!(counts[500..].iter().sum::<u32>() > 1000, "the tail is there");
    }

    #[test]
    fn scattered_ranks_stay_apart() {
        let places: BTreeSet<u64> = (0..1000).map(|rank| rank * SCATTER % 1000).collect();
        assert_eq!(places.len(), 1000);
        let (zipf, mut rng) = (Zipf::new(2), Rng::new(1));
        assert!((0..1000).all(|_| zipf.scattered(&mut rng) < 2));
    }
}
