//! Draws of one among many with given weights, each by one random number and one look: Walker's alias method ("An
//! Efficient Method for Generating Discrete Random Variables with General Distributions", ACM TOMS 1977).
//!
//! The table is made without lists of what is still light and heavy: two places move over the weights instead, as in
//! Hübschle-Schneider and Sanders, "Parallel Weighted Random Sampling" (ESA 2019).

use crate::graph::number;
use crate::width::to_usize;

/// An entry of a table: it stands for itself, and for another one where a fraction is not below its threshold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    /// The share of the entry itself, in parts of 2^32.
    threshold: u32,
    /// The entry that has the other parts.
    other: u32,
}

/// Draws from a table: the upper bits of the random number say which entry, the next 32 which of its two.
#[inline]
pub(crate) fn draw(entries: &[Entry], random: u64) -> u64 {
    let product = u128::from(random) * entries.len() as u128;
    let index = (product >> 64) as u64;
    let entry = entries[to_usize(index)];
    // A branch would be predicted wrongly every other time.
    std::hint::select_unpredictable(part(product) < entry.threshold, index, entry.other.into())
}

/// The 32 bits below a product's whole part.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "these bits are what is wanted")]
fn part(product: u128) -> u32 {
    (product >> 32) as u32
}

/// Makes the table of positive weights, one entry for each; at most 2^32 - 1 of them.
pub(crate) fn fill(entries: &mut [Entry], weights: &[f64]) {
    for (index, entry) in entries.iter_mut().enumerate() {
        *entry = Entry { threshold: u32::MAX, other: number(index) };
    }
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    let next_light = |from| (from..weights.len()).find(|at| weights[*at] < mean);
    let next_heavy = |from| (from..weights.len()).find(|at| weights[*at] >= mean);
    let (mut light, Some(mut heavy)) = (next_light(0), next_heavy(0)) else { return };
    // The rest of the heavy entry that fills light ones. When that rest is light itself, the next heavy entry fills it.
    let mut left = weights[heavy];
    loop {
        if left < mean {
            let Some(next) = next_heavy(heavy + 1) else { return };
            entries[heavy] = Entry { threshold: threshold(left / mean), other: number(next) };
            left = weights[next] - (mean - left);
            heavy = next;
        } else if let Some(at) = light {
            entries[at] = Entry { threshold: threshold(weights[at] / mean), other: number(heavy) };
            left -= mean - weights[at];
            light = next_light(at + 1);
        } else {
            return;
        }
    }
}

/// A share as parts of 2^32.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a share is at most 1, and more would be cut to the largest number"
)]
fn threshold(share: f64) -> u32 {
    (share * (1_u64 << 32) as f64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The weight that each entry stands for in a table, counted in 2^32 parts of an entry.
    fn parts(entries: &[Entry]) -> Vec<u64> {
        let mut parts = vec![0; entries.len()];
        for (index, entry) in entries.iter().enumerate() {
            // A whole entry has a threshold of one part less, and stands for itself in that part as well.
            parts[index] += u64::from(entry.threshold);
            parts[to_usize(entry.other.into())] += (1 << 32) - u64::from(entry.threshold);
        }
        parts
    }

    proptest! {
        #[test]
        fn a_table_holds_each_weight(
            weights in prop::collection::vec(prop_oneof![0.001..1.0_f64, 1.0..1000.0_f64, Just(1.0)], 1..200),
        ) {
            let mut entries = vec![Entry::default(); weights.len()];
            fill(&mut entries, &weights);
            let whole = weights.len() as f64 * 2_f64.powi(32) / weights.iter().sum::<f64>();
            for (found, weight) in parts(&entries).into_iter().zip(&weights) {
                // Each entry rounds down by one part.
                let wrong = (found as f64 - weight * whole).abs();
                prop_assert!(wrong <= weights.len() as f64 + 1.0, "{found} for {weight}");
            }
        }

        #[test]
        fn a_draw_is_in_the_table(weights in prop::collection::vec(0.001..1000.0_f64, 1..50), random: u64) {
            let mut entries = vec![Entry::default(); weights.len()];
            fill(&mut entries, &weights);
            for random in [random, 0, u64::MAX] {
                prop_assert!(draw(&entries, random) < weights.len() as u64);
            }
        }
    }

    #[test]
    fn draws_follow_the_weights() {
        let mut entries = [Entry::default(); 3];
        fill(&mut entries, &[1.0, 7.0, 2.0]);
        let stream = crate::generate::random::Stream::new(5, crate::generate::random::Use::Ends);
        let mut counts = [0_u32; 3];
        for position in 0..100_000 {
            counts[to_usize(draw(&entries, stream.at(position)))] += 1;
        }
        let expected = [10_000, 70_000, 20_000];
        let is_near = |(found, expected): (&u32, u32)| found.abs_diff(expected) < 1_000;
        assert!(counts.iter().zip(expected).all(is_near), "{counts:?}");
    }
}
