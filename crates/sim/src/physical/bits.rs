//! A set of small numbers that finds its next member fast: bits in words, and words of words above.

/// A set of numbers below a fixed bound.
#[derive(Clone, Debug)]
pub(super) struct Bits {
    /// Level 0 holds the members; bit `i` of level `n + 1` says that word `i` of level `n` has any.
    levels: Vec<Vec<u64>>,
}

const WORD: usize = 64;

impl Bits {
    /// No member; all numbers below `bound` may become one.
    pub(super) fn new(bound: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = bound.div_ceil(WORD).max(1);
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels };
            }
            words = words.div_ceil(WORD);
        }
    }

    /// Whether `index` is a member. Out of bounds it is not.
    pub(super) fn contains(&self, index: usize) -> bool {
        self.levels[0].get(index / WORD).is_some_and(|word| word >> (index % WORD) & 1 == 1)
    }

    /// Makes `index` a member.
    pub(super) fn insert(&mut self, index: usize) {
        if self.contains(index) {
            return;
        }
        let mut at = index;
        for level in &mut self.levels {
            let before = level[at / WORD];
            level[at / WORD] |= 1 << (at % WORD);
            if before != 0 {
                return;
            }
            at /= WORD;
        }
    }

    /// Makes `index` no member; whether it was one.
    pub(super) fn remove(&mut self, index: usize) -> bool {
        if !self.contains(index) {
            return false;
        }
        let mut at = index;
        for level in &mut self.levels {
            level[at / WORD] &= !(1 << (at % WORD));
            if level[at / WORD] != 0 {
                break;
            }
            at /= WORD;
        }
        true
    }

    /// The lowest member.
    pub(super) fn lowest(&self) -> Option<usize> {
        let (top, height) = self.top()?;
        Some(self.lowest_below(height, low(top)))
    }

    /// The highest member.
    pub(super) fn highest(&self) -> Option<usize> {
        let (top, height) = self.top()?;
        Some(self.highest_below(height, high(top)))
    }

    /// The word of the highest level, of which each level has fewer words than the one below, and its height; `None` without members.
    fn top(&self) -> Option<(u64, usize)> {
        let height = self.levels.len() - 1;
        let top = self.levels[height][0];
        (top != 0).then_some((top, height))
    }

    /// The lowest member that is at least `from`.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        let mut at = from;
        for (height, level) in self.levels.iter().enumerate() {
            let word = *level.get(at / WORD)? & (u64::MAX << (at % WORD));
            if word != 0 {
                return Some(self.lowest_below(height, at / WORD * WORD + low(word)));
            }
            at = at / WORD + 1;
        }
        None
    }

    /// The highest member that is below `before`.
    pub(super) fn previous(&self, before: usize) -> Option<usize> {
        let mut at = before.min(self.levels[0].len() * WORD).checked_sub(1)?;
        for (height, level) in self.levels.iter().enumerate() {
            let word = level[at / WORD] & (u64::MAX >> (WORD - 1 - at % WORD));
            if word != 0 {
                return Some(self.highest_below(height, at / WORD * WORD + high(word)));
            }
            at = (at / WORD).checked_sub(1)?;
        }
        None
    }

    fn lowest_below(&self, height: usize, mut at: usize) -> usize {
        for level in self.levels[..height].iter().rev() {
            at = at * WORD + low(level[at]);
        }
        at
    }

    fn highest_below(&self, height: usize, mut at: usize) -> usize {
        for level in self.levels[..height].iter().rev() {
            at = at * WORD + high(level[at]);
        }
        at
    }
}

/// The lowest bit set in a word that has one.
const fn low(word: u64) -> usize {
    word.trailing_zeros() as usize
}

/// The highest bit set in a word that has one.
const fn high(word: u64) -> usize {
    63 - word.leading_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_an_ordered_set(
            bound in 1usize..10_000,
            steps in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..300),
            probes in prop::collection::vec(0usize..11_000, 0..50)
        ) {
            let mut bits = Bits::new(bound);
            let mut model = BTreeSet::new();
            for (index, keep) in steps {
                let index = index.index(bound);
                if keep {
                    bits.insert(index);
                    model.insert(index);
                } else {
                    prop_assert_eq!(bits.remove(index), model.remove(&index));
                }
            }
            prop_assert_eq!(bits.lowest(), model.first().copied());
            prop_assert_eq!(bits.highest(), model.last().copied());
            for probe in probes {
                prop_assert_eq!(bits.next(probe), model.range(probe..).next().copied());
                prop_assert_eq!(bits.previous(probe), model.range(..probe).next_back().copied());
                prop_assert_eq!(bits.contains(probe), model.contains(&probe));
            }
        }
    }
}
