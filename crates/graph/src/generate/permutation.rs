//! Permutations without a table: the place of an item is computed, by any thread, in any order.
//!
//! A Feistel network over the bits of the largest item: Luby and Rackoff, "How to Construct Pseudorandom Permutations
//! from Pseudorandom Functions" (SIAM Journal on Computing 1988), have four rounds of functions that are better and
//! slower than those here. Halves may differ by one bit. Where the items are no power of two, the network is applied
//! until it gives an item (cycle walking: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002),
//! less than twice on average.
//!
//! GAPBS shuffles a table of all vertices, in one thread, and looks up both ends of each edge in it. The table of a
//! large graph is in no cache, and takes memory beside the graph.

use super::random::{Stream, Use};

/// Rounds, two for each pair of keys. With four, runs of neighbors are spread less evenly than by chance (chi square
/// over sixteen parts of 2^20 items: 24 instead of 14), with six they are not.
const ROUNDS: usize = 6;

/// The factor of the round function. Chosen: the odd number next to 2^64 divided by the golden ratio, as in SplitMix64.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A permutation of the numbers below `count`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    count: u64,
    /// Bits of the lower half.
    lower: u32,
    /// The bits of a number in either half, as ones.
    masks: [u64; 2],
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation of so many items that belongs to a seed.
    pub(crate) fn new(count: u64, seed: u64) -> Self {
        let bits = (u64::BITS - count.saturating_sub(1).leading_zeros()).max(1);
        let lower = bits.div_ceil(2);
        let masks = [(1 << (bits - lower)) - 1, (1 << lower) - 1];
        let keys = Stream::new(seed, Use::Numbers);
        let mut position = 0;
        let keys = [(); ROUNDS].map(|()| {
            position += 1;
            keys.at(position)
        });
        Self { count, lower, masks, keys }
    }

    /// The place of an item, which must be less than the count.
    #[inline]
    pub(crate) fn place(&self, item: u64) -> u64 {
        let mut place = item;
        loop {
            place = self.network(place);
            if place < self.count {
                return place;
            }
        }
    }

    /// Each round changes one half by what the other one says, so that the round can be undone.
    #[inline]
    fn network(&self, number: u64) -> u64 {
        let (mut high, mut low) = (number >> self.lower, number & self.masks[1]);
        for keys in self.keys.chunks_exact(2) {
            low ^= folded(high ^ keys[0]) & self.masks[1];
            high ^= folded(low ^ keys[1]) & self.masks[0];
        }
        high << self.lower | low
    }
}

/// The round function: both halves of a product, folded, as wyhash mixes numbers (Wang Yi, 2019). One multiplication
/// takes less time than SplitMix64's two.
#[inline]
fn folded(number: u64) -> u64 {
    let product = u128::from(number) * u128::from(MULTIPLIER);
    (product >> 64) as u64 ^ lower_half(product)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted alone")]
fn lower_half(product: u128) -> u64 {
    product as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::width::to_usize;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn each_place_is_taken_once(count in 1..3000_u64, seed: u64) {
            let permutation = Permutation::new(count, seed);
            let mut is_taken = vec![false; to_usize(count)];
            for item in 0..count {
                let place = to_usize(permutation.place(item));
                prop_assert!(place < is_taken.len() && !is_taken[place]);
                is_taken[place] = true;
            }
        }

        #[test]
        fn each_place_of_a_scale_is_taken_once(scale in 1..15_u32, seed: u64) {
            let permutation = Permutation::new(1 << scale, seed);
            let mut places: Vec<_> = (0..1 << scale).map(|item| permutation.place(item)).collect();
            places.sort_unstable();
            prop_assert!(places.into_iter().eq(0..1 << scale));
        }
    }

    #[test]
    fn the_largest_scale_stays_in_its_bounds() {
        let permutation = Permutation::new(u64::from(u32::MAX), 1);
        let items = [0, 1, 1 << 16, u64::from(u32::MAX) - 1];
        let places: BTreeSet<u64> = items.iter().map(|item| permutation.place(*item)).collect();
        assert_eq!(places.len(), items.len());
        assert!(places.iter().all(|place| *place < u64::from(u32::MAX)));
    }

    #[test]
    fn items_that_are_neighbors_go_far_apart() {
        let count = 1_u64 << 14;
        let permutation = Permutation::new(count, 7);
        let apart =
            (1..count).map(|item| permutation.place(item).abs_diff(permutation.place(item - 1)));
        // Two places taken at random are a third of all apart.
        let mean = apart.sum::<u64>() as f64 / (count - 1) as f64 / count as f64;
        assert!((0.31..0.36).contains(&mean), "{mean}");
        let other = Permutation::new(count, 8);
        let alike =
            (0..count).filter(|item| permutation.place(*item) == other.place(*item)).count();
        assert!(alike < 20, "{alike}");
    }

    /// The unevenness with which items are spread over sixteen parts: chi square, the mean of many seeds.
    fn unevenness(scale: u32, items: &[u64], part: impl Fn(u64) -> u64) -> f64 {
        let seeds = 50;
        let of_seed = |seed| {
            let permutation = Permutation::new(1 << scale, seed);
            let mut counts = [0_u32; 16];
            for item in items {
                counts[to_usize(part(permutation.place(*item)))] += 1;
            }
            let expected = items.len() as f64 / 16.0;
            counts
                .iter()
                .map(|count| (f64::from(*count) - expected).powi(2) / expected)
                .sum::<f64>()
        };
        (0..seeds).map(of_seed).sum::<f64>() / seeds as f64
    }

    #[test]
    fn items_go_anywhere() {
        for scale in [12, 16, 20] {
            // A Kronecker graph's hottest vertices have numbers of few ones; others may be next to each other.
            let hot: Vec<_> = (0..1_u64 << scale).filter(|item| item.count_ones() <= 3).collect();
            let first: Vec<_> = (0..1 << (scale - 4)).collect();
            for items in [hot, first] {
                let upper = unevenness(scale, &items, |place| place >> (scale - 4));
                let lower = unevenness(scale, &items, |place| place & 15);
                // Fifteen degrees of freedom, of which the mean of 50 deviates by 0.8.
                for found in [upper, lower] {
                    assert!((12.0..18.0).contains(&found), "scale {scale}: {upper} {lower}");
                }
            }
        }
    }
}
