//! Reproducible random numbers, as cheap as the loops that use them need. Not for secrets.

/// Steele, Lea and Flood's SplitMix64: a counter, scrambled. Any seed is as good as any other.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

/// The odd number next to 2^64 divided by the golden ratio: SplitMix64's increment.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scrambles `x`; a bijection (SplitMix64's finaliser).
#[inline]
#[must_use]
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Rng {
    /// The sequence that belongs to `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Its next number.
    #[inline]
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// Its next number, brought below `bound`, or 0 if `bound` is 0. Uniform to one part in
    /// 2^64 / `bound`.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        scale(self.next(), bound)
    }
}

/// Maps a uniform 64-bit number to a uniform one below `bound`.
#[inline]
#[must_use]
pub const fn scale(x: u64, bound: u64) -> u64 {
    ((x as u128 * bound as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::width::to_usize;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 7];
        (0..200).for_each(|_| seen[to_usize(rng.below(7))] = true);
        assert_eq!(seen, [true; 7]);
        assert_eq!(rng.below(0), 0);
    }
}
