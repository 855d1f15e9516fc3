//! GUPS: random updates of one big array.
//!
//! RandomAccess of the [HPC Challenge benchmark](https://hpcchallenge.org/projectsfiles/hpcc/RandomAccess.html),
//! on one processor: word `i` holds `i` at first, and the update for the random number `r` is
//! `table[r] ^= r`. The numbers are its own: a shift register over GF(2). Unlike it, the table need
//! not be a power of two, so the index is the number scaled and not masked.

use super::Work;
use crate::width::to_usize;
use crate::workload::rng::{mix, scale};
use superpage_units::Bytes;

/// The polynomial of the benchmark's random numbers.
const POLYNOMIAL: u64 = 7;

pub(super) struct Gups {
    /// The array, one allocation.
    table: Vec<u64>,
    /// The runs so far, for the check.
    #[cfg(test)]
    runs: Vec<(u64, u64)>,
}

impl Gups {
    pub(super) fn build(size: Bytes) -> Self {
        Self {
            table: (0..size.0 / size_of::<u64>() as u64).collect(),
            #[cfg(test)]
            runs: Vec::new(),
        }
    }

    /// Returns the exclusive or of all words that were updated, as they were before.
    fn update(&mut self, updates: u64, seed: u64) -> u64 {
        let words = self.table.len() as u64;
        let (mut random, mut found) = (mix(seed) | 1, 0);
        for _ in 0..updates {
            random = (random << 1) ^ ((random >> 63) * POLYNOMIAL);
            // The upper bits of neighbouring numbers are each other's, shifted: scrambled they are not.
            let word = &mut self.table[to_usize(scale(mix(random), words))];
            found ^= *word;
            *word ^= random;
        }
        found
    }
}

impl Work for Gups {
    fn work(&mut self, operations: u64, seed: u64) -> u64 {
        #[cfg(test)]
        self.runs.push((operations, seed));
        self.update(operations, seed)
    }

    /// As the benchmark's own: the same updates once more undo themselves.
    #[cfg(test)]
    fn check(&mut self) -> Result<(), String> {
        let runs = std::mem::take(&mut self.runs);
        for (updates, seed) in &runs {
            self.update(*updates, *seed);
        }
        let wrong = (0_u64..).zip(&self.table).find(|(place, word)| place != *word);
        let wrong = wrong.map(|(place, word)| format!("word {place} is {word}"));
        for (updates, seed) in &runs {
            self.update(*updates, *seed);
        }
        self.runs = runs;
        wrong.map_or(Ok(()), Err)
    }
}
