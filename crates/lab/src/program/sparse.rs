//! Sparse: random updates of the parts of an array that are in use, a quarter of it.
//!
//! As of a program that allocates room for the most that it may need: a table with a part for each of its users,
//! each part filled from its beginning. What is not in use was never touched. The parts are many huge pages long, so
//! huge pages hold next to nothing for nothing, and a gigantic page three quarters.

use super::Work;
use crate::width::to_usize;
use crate::workload::rng::{Rng, mix, scale};
use superpage_units::Bytes;

/// The parts of the array, and of those one in how many is in use. Chosen: a GiB is 16 parts of 64 MiB.
const PARTS: u64 = 16;
const USED: u64 = 4;

pub(super) struct Sparse {
    /// The array, one allocation of zeroes.
    table: Vec<u64>,
    /// The words of a part.
    part: u64,
    /// The runs so far, for the check.
    #[cfg(test)]
    runs: Vec<(u64, u64)>,
}

impl Sparse {
    /// The words in use hold their own numbers at first.
    pub(super) fn build(size: Bytes) -> Self {
        let part = size.0 / size_of::<u64>() as u64 / PARTS;
        let mut sparse = Self {
            table: vec![0; to_usize(part * PARTS)],
            part,
            #[cfg(test)]
            runs: Vec::new(),
        };
        for word in 0..sparse.used() {
            *sparse.word(word) = word;
        }
        sparse
    }

    /// The number of words in use.
    const fn used(&self) -> u64 {
        self.part * (PARTS / USED)
    }

    /// A word in use, by its number.
    fn word(&mut self, number: u64) -> &mut u64 {
        let place = number / self.part * self.part * USED + number % self.part;
        &mut self.table[to_usize(place)]
    }

    /// Returns the exclusive or of all words that were updated, as they were before.
    fn update(&mut self, updates: u64, seed: u64) -> u64 {
        let (mut rng, used) = (Rng::new(mix(seed)), self.used());
        (0..updates).fold(0, |found, _| {
            let random = rng.next();
            let word = self.word(scale(random, used));
            let before = *word;
            *word ^= random;
            found ^ before
        })
    }
}

impl Work for Sparse {
    fn work(&mut self, operations: u64, seed: u64) -> u64 {
        #[cfg(test)]
        self.runs.push((operations, seed));
        self.update(operations, seed)
    }

    /// The same updates once more undo themselves.
    #[cfg(test)]
    fn check(&mut self) -> Result<(), String> {
        let runs = std::mem::take(&mut self.runs);
        for (updates, seed) in &runs {
            self.update(*updates, *seed);
        }
        let wrong = (0..self.used()).find(|number| *self.word(*number) != *number);
        let others = self.table.iter().filter(|word| **word != 0).count() as u64;
        let is_one_zero = others + 1 == self.used();
        for (updates, seed) in &runs {
            self.update(*updates, *seed);
        }
        self.runs = runs;
        match wrong {
            Some(number) => Err(format!("word {number}")),
            None if !is_one_zero => Err(format!("{others} words are not zero")),
            None => Ok(()),
        }
    }
}
