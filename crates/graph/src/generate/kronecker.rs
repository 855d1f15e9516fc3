//! Kronecker graphs as GAPBS and Graph500 have them: Chakrabarti, Zhan and Faloutsos, "R-MAT: A Recursive Model for
//! Graph Mining" (SDM 2004), with A = 0.57, B = C = 0.19, and vertices numbered at random afterwards, so that the
//! hottest ones lie anywhere. The largest ones have a share of all edges.
//!
//! Deviations from GAPBS: GAPBS draws one number for each level and end, here one gives `LEVELS` levels of both ends by
//! an alias table of all their outcomes, which have the same probabilities. GAPBS numbers vertices by a shuffled table,
//! here a Feistel network computes the number (`permutation`).

use super::alias::{self, Entry};
use super::random::{Stream, Use};
use super::{
    DEGREE, Drawn, Permutation, SEED, WeightSource, Weights, check_size, vertex, vertices,
};
use crate::build::Edge;
use crate::error::Result;
use std::fmt;

/// The probability of each quarter of the adjacency matrix: A, B, C and what is left.
const QUARTERS: [f64; 4] = [0.57, 0.19, 0.19, 0.05];

/// Levels that one draw gives: their table of 4^5 entries of 8 bytes lies in a first-level cache, and four draws are
/// enough for scale 20.
const LEVELS: u32 = 5;
/// The outcomes of one draw.
const OUTCOMES: usize = 1 << (2 * LEVELS);

/// A Kronecker graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kronecker {
    /// There are 2^scale vertices.
    pub scale: u32,
    /// Edges that are drawn for each vertex.
    pub degree: u32,
    /// The same seed gives the same graph.
    pub seed: u64,
    /// Whether edges have weights.
    pub weights: Weights,
}

impl Kronecker {
    /// A Kronecker graph with GAPBS's parameters.
    #[must_use]
    pub fn new(scale: u32) -> Self {
        Self { scale, degree: DEGREE, seed: SEED, weights: Weights::None }
    }

    /// Fails where its parameters make no graph.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage).
    pub fn check(&self) -> Result<()> {
        check_size(self.scale, self.degree)
    }
}

impl fmt::Display for Kronecker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scale, degree, seed, weights } = self;
        write!(f, "Kronecker, scale {scale}, degree {degree}, {weights}, seed {seed}")
    }
}

impl Drawn for Kronecker {
    fn size(&self) -> (u32, u32, Weights) {
        (self.scale, self.degree, self.weights)
    }

    fn check_all(&self) -> Result<()> {
        self.check()
    }

    fn drawing(&self) -> impl Fn(u64) -> Edge + Sync {
        let drawing = Drawing::new(self);
        move |edge| drawing.edge(edge)
    }
}

/// The tables and streams that edges are drawn from.
struct Drawing {
    outcomes: Box<[Entry; OUTCOMES]>,
    ends: Stream,
    /// Draws for each edge.
    draws: u64,
    /// Levels that are drawn although the scale has no use for them.
    spare: u32,
    numbers: Permutation,
    weights: WeightSource,
}

impl Drawing {
    fn new(of: &Kronecker) -> Self {
        let mut outcomes = Box::new([Entry::default(); OUTCOMES]);
        alias::fill(&mut outcomes[..], &probabilities());
        let draws = of.scale.div_ceil(LEVELS);
        Self {
            outcomes,
            ends: Stream::new(of.seed, Use::Ends),
            draws: draws.into(),
            spare: draws * LEVELS - of.scale,
            numbers: Permutation::new(vertices(of.scale), of.seed),
            weights: WeightSource::new(of.weights, of.seed),
        }
    }

    #[inline]
    fn edge(&self, edge: u64) -> Edge {
        let (from, to) = self.ends(edge);
        let number = |end| vertex(self.numbers.place(end));
        Edge { from: number(from), to: number(to), weight: self.weights.of(edge) }
    }

    /// The ends of an edge before vertices are numbered: from the uppermost bit on, each pair of bits chooses a
    /// quarter.
    #[inline]
    fn ends(&self, edge: u64) -> (u64, u64) {
        let first = edge.wrapping_mul(self.draws);
        let (mut from, mut to) = (0, 0);
        for draw in 0..self.draws {
            let outcome = alias::draw(&self.outcomes[..], self.ends.at(first.wrapping_add(draw)));
            from = from << LEVELS | outcome >> LEVELS;
            to = to << LEVELS | outcome & ((1 << LEVELS) - 1);
        }
        (from >> self.spare, to >> self.spare)
    }
}

/// The probability of each outcome of [`LEVELS`] levels: the bits of one end above those of the other.
fn probabilities() -> Vec<f64> {
    let probability = |outcome: usize| {
        let quarter = |level: u32| {
            let (from, to) = (outcome >> (LEVELS + level) & 1, outcome >> level & 1);
            QUARTERS[2 * from + to]
        };
        (0..LEVELS).map(quarter).product()
    };
    (0..OUTCOMES).map(probability).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcomes_are_all_there_are() {
        let sum: f64 = probabilities().iter().sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
    }

    #[test]
    fn each_level_chooses_its_quarter_as_often_as_it_should() {
        let drawing = Drawing::new(&Kronecker::new(8));
        let edges = 200_000;
        let mut counts = [[0_u32; 4]; 8];
        for edge in 0..edges {
            let (from, to) = drawing.ends(edge);
            assert!(from < 256 && to < 256);
            for (level, counts) in counts.iter_mut().enumerate() {
                let quarter = 2 * (from >> level & 1) + (to >> level & 1);
                counts[usize::try_from(quarter).expect("a quarter")] += 1;
            }
        }
        for (level, counts) in counts.iter().enumerate() {
            for (count, expected) in counts.iter().zip(QUARTERS) {
                let share = f64::from(*count) / edges as f64;
                assert!((share - expected).abs() < 0.005, "level {level}: {share} for {expected}");
            }
        }
    }

    #[test]
    fn levels_do_not_depend_on_each_other() {
        let drawing = Drawing::new(&Kronecker::new(12));
        let edges = 200_000;
        let is_first_quarter = |end: (u64, u64), level: u32| (end.0 | end.1) >> level & 1 == 0;
        for (one, other) in [(0, 1), (0, 11), (5, 6), (4, 9)] {
            let is_in_both = |edge: &u64| {
                let ends = drawing.ends(*edge);
                is_first_quarter(ends, one) && is_first_quarter(ends, other)
            };
            let share = (0..edges).filter(is_in_both).count() as f64 / edges as f64;
            assert!((share - 0.57 * 0.57).abs() < 0.005, "levels {one} and {other}: {share}");
        }
    }
}
