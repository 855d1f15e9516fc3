//! Four of the programs that Trident's paper measures, written anew: what they do to memory, on memory that
//! they get as the originals do, from malloc. One that uses a part of what it allocates, and one of xHeap's paper.
//!
//! [`gups`], [`btree`], [`xsbench`], [`canneal`]; [`sparse`]; [`dedup`]. Unlike those of [`crate::workload`] they ask for no page size
//! and know nothing of bloat: who allocates, and on which pages, is the experiment's to vary, by libraries and
//! variables of the environment. This crate sets no allocator, so what Rust allocates is libc's malloc.

mod btree;
mod canneal;
mod dedup;
mod gups;
mod sparse;
mod xsbench;

use serde::{Deserialize, Serialize};
use superpage_units::Bytes;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Program {
    Gups,
    Btree,
    Xsbench,
    Canneal,
    Sparse,
    Dedup,
}

/// A program that has built its data.
pub(crate) trait Work {
    /// Does so many operations, chosen by `seed`. The result follows from the size, and from the operations
    /// so far: it is the same on whatever pages.
    fn work(&mut self, operations: u64, seed: u64) -> u64;

    /// Compares the data with what it must be after the operations so far.
    #[cfg(test)]
    fn check(&mut self) -> Result<(), String>;
}

impl Program {
    /// Builds the data, about `size` in glibc's malloc.
    pub(crate) fn build(self, size: Bytes) -> Box<dyn Work> {
        match self {
            Self::Gups => Box::new(gups::Gups::build(size)),
            Self::Btree => Box::new(btree::Btree::build(size)),
            Self::Xsbench => Box::new(xsbench::Xsbench::build(size)),
            Self::Canneal => Box::new(canneal::Canneal::build(size)),
            Self::Sparse => Box::new(sparse::Sparse::build(size)),
            Self::Dedup => Box::new(dedup::Dedup::build(size)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Program; 5] =
        [Program::Gups, Program::Btree, Program::Xsbench, Program::Canneal, Program::Sparse];
    const SMALL: Bytes = Bytes::from_mib(8);

    #[test]
    fn data_is_right_before_and_after_the_work() {
        for program in ALL {
            let mut built = program.build(SMALL);
            assert_eq!(built.check(), Ok(()), "{program:?}");
            built.work(10_000, 1);
            built.work(10_000, 2);
            assert_eq!(built.check(), Ok(()), "{program:?}");
        }
    }

    #[test]
    fn the_same_operations_have_the_same_result_and_others_another() {
        for program in ALL {
            let results = |seeds: [u64; 2]| {
                let mut built = program.build(SMALL);
                seeds.map(|seed| built.work(10_000, seed))
            };
            assert_eq!(results([1, 2]), results([1, 2]), "{program:?}");
            assert_ne!(results([1, 2])[0], results([2, 1])[0], "{program:?}");
        }
    }
}
