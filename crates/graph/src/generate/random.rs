//! Random numbers by position: the generators draw number `i` of a stream without drawing those before it, so that an
//! edge is the same whichever thread makes it, and in each pass.
//!
//! The numbers are those of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA
//! 2014), which is a counter and a scrambler and passes BigCrush. SplitMix64 is here because ten lines do what is
//! needed: the usual generators (xoshiro, PCG, and the Mersenne Twister that GAPBS seeds anew for each block) must be
//! seeded for each block, whose sequences may then overlap. Positions of one stream never do. Not for secrets.

/// SplitMix64's increment: the odd number next to 2^64 divided by the golden ratio.
const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;

/// The use of a stream. Streams of one seed for different uses have nothing in common.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    /// The ends of edges.
    Ends = 1,
    /// The weights of edges.
    Weights = 2,
    /// The numbers of vertices.
    Numbers = 3,
    /// The expected degrees of vertices.
    Degrees = 4,
}

/// A sequence of random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    start: u64,
}

impl Stream {
    /// The stream of a seed for one use.
    pub(crate) fn new(seed: u64, of: Use) -> Self {
        Self { start: mix(mix(seed).wrapping_add(INCREMENT.wrapping_mul(of as u64))) }
    }

    /// The number at a position.
    #[inline]
    pub(crate) fn at(self, position: u64) -> u64 {
        mix(self.start.wrapping_add(position.wrapping_add(1).wrapping_mul(INCREMENT)))
    }
}

/// SplitMix64's scrambler: a bijection.
#[inline]
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// A random number as one below `bound`, uniform to `bound` parts in 2^64: Lemire's multiplication ("Fast Random
/// Integer Generation in an Interval", 2019) without its rejection, so that each takes one draw.
#[inline]
pub(crate) fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// A random number as one from 0 to below 1.
#[inline]
pub(crate) fn fraction(random: u64) -> f64 {
    const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
    (random >> 11) as f64 * STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let stream = Stream { start: 1_234_567 };
        assert_eq!(stream.at(0), 6_457_827_717_110_365_317);
        assert_eq!(stream.at(1), 3_203_168_211_198_807_973);
    }

    #[test]
    fn seeds_and_uses_have_streams_of_their_own() {
        let first = |seed, of| Stream::new(seed, of).at(0);
        let all = [
            first(1, Use::Ends),
            first(1, Use::Weights),
            first(1, Use::Numbers),
            first(1, Use::Degrees),
            first(2, Use::Ends),
            first(0, Use::Ends),
        ];
        assert_eq!(std::collections::BTreeSet::from(all).len(), all.len());
    }

    #[test]
    fn numbers_below_a_bound_are_uniform() {
        let stream = Stream::new(3, Use::Weights);
        let mut counts = [0_u32; 7];
        for position in 0..70_000 {
            let number = below(stream.at(position), 7);
            counts[usize::try_from(number).expect("a small number")] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_eq!([below(u64::MAX, 7), below(0, 7), below(u64::MAX, 1)], [6, 0, 0]);
        assert!(fraction(u64::MAX) < 1.0 && fraction(0) == 0.0);
    }
}
