//! Graphs that are made: [`kronecker`] (skewed degrees, no locality), [`uniform`] (neither), and [`block_model`]
//! (skewed degrees and communities, as many real graphs have).
//!
//! Edges are never in a list. Edge number `i` is a function of the parameters and of `i` (`random`), so the builder's
//! passes go over the same edges, and so does any number of threads. The weight of an edge is another such function: a
//! graph with weights has the edges of the one without, and both directions of an edge have one weight.
//!
//! Sizes are those of the GAP benchmark suite (GAPBS, `src/generator.h`): 2^scale vertices, `degree` edges for each
//! before the builder leaves out loops and what is there twice, each counted once although an undirected one is kept
//! twice. Weights are uniform from 1 to 255 as there. The graphs are not GAPBS's own: the random numbers are others.

mod alias;
pub mod block_model;
pub mod kronecker;
mod permutation;
mod random;
pub mod uniform;

pub use block_model::BlockModel;
pub use kronecker::Kronecker;
pub(crate) use permutation::Permutation;
pub use uniform::Uniform;

use crate::build::{BLOCK, Edge, Edges};
use crate::error::{Error, Result};
use crate::graph::{Vertex, Weight};
use crate::progress::Progress;
use random::{Stream, Use, below};
use rayon::prelude::*;
use std::fmt;

/// Edges for each vertex where nobody says another number: GAPBS's.
pub const DEGREE: u32 = 16;
/// The seed where nobody says another one: GAPBS's `kRandSeed`.
pub const SEED: u64 = 27_491_095;
/// The largest scale: one number of a vertex is left over, which stands for "none".
pub const MOST_SCALE: u32 = 31;
/// The largest weight: GAPBS's.
pub const MOST_WEIGHT: Weight = 255;

/// Whether edges get weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weights {
    /// Edges have no weights.
    #[default]
    None,
    /// Each edge has a weight from 1 to [`MOST_WEIGHT`], all equally likely.
    Uniform,
}

/// Formats the weights for a generator's description.
impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no weights"),
            Self::Uniform => write!(f, "weights from 1 to {MOST_WEIGHT}"),
        }
    }
}

/// Any of the generators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Generator {
    /// A Kronecker graph.
    Kronecker(Kronecker),
    /// A uniform graph.
    Uniform(Uniform),
    /// A block model.
    BlockModel(BlockModel),
}

impl Generator {
    /// Fails where its parameters make no graph.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Kronecker(of) => of.check(),
            Self::Uniform(of) => of.check(),
            Self::BlockModel(of) => of.check(),
        }
    }

    /// The number of vertices.
    #[must_use]
    pub fn vertices(&self) -> u64 {
        vertices(self.size().0)
    }

    /// The number of edges that are drawn.
    #[must_use]
    pub fn edges(&self) -> u64 {
        let (scale, degree) = self.size();
        edges(scale, degree)
    }

    /// The source of edges for [`build::graph`](crate::build::graph).
    #[must_use]
    pub fn source(&self) -> &dyn Edges {
        match self {
            Self::Kronecker(of) => of,
            Self::Uniform(of) => of,
            Self::BlockModel(of) => of,
        }
    }

    fn size(&self) -> (u32, u32) {
        match self {
            Self::Kronecker(of) => (of.scale, of.degree),
            Self::Uniform(of) => (of.scale, of.degree),
            Self::BlockModel(of) => (of.scale, of.degree),
        }
    }
}

impl fmt::Display for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kronecker(of) => of.fmt(f),
            Self::Uniform(of) => of.fmt(f),
            Self::BlockModel(of) => of.fmt(f),
        }
    }
}

/// The vertices of a scale. A scale that [`check_size`] refuses may have too many.
fn vertices(scale: u32) -> u64 {
    1_u64.checked_shl(scale).unwrap_or(u64::MAX)
}

/// The number of edges that are drawn.
fn edges(scale: u32, degree: u32) -> u64 {
    vertices(scale).saturating_mul(degree.into())
}

/// Fails where a graph has no or too many vertices, or no edges.
fn check_size(scale: u32, degree: u32) -> Result<()> {
    if !(1..=MOST_SCALE).contains(&scale) {
        let what =
            format!("a graph of scale {scale} cannot be made: the scale is from 1 to {MOST_SCALE}");
        return Err(Error::Usage(what));
    }
    if degree == 0 {
        let what = "a graph of degree 0 has no edges: the degree is at least 1";
        return Err(Error::Usage(what.to_owned()));
    }
    Ok(())
}

/// The part of a generator that is its own; everything else of [`Edges`] is the same for all generators.
trait Drawn: Sync {
    /// The scale, degree and weights.
    fn size(&self) -> (u32, u32, Weights);

    /// Fails where its parameters make no graph.
    fn check_all(&self) -> Result<()>;

    /// The function that makes an edge of its number.
    fn drawing(&self) -> impl Fn(u64) -> Edge + Sync;
}

impl<T: Drawn> Edges for T {
    /// `None` where the parameters make no graph, which the pass then says in words.
    fn vertices(&self) -> Option<u64> {
        self.check_all().ok().map(|()| vertices(self.size().0))
    }

    fn is_weighted(&self) -> bool {
        self.size().2 == Weights::Uniform
    }

    fn pass(&self, progress: &Progress, each: &(dyn Fn(&[Edge]) + Sync)) -> Result<()> {
        self.check_all()?;
        let (scale, degree, _) = self.size();
        pass(edges(scale, degree), progress, each, self.drawing());
        Ok(())
    }
}

/// Gives `each` all edges in blocks, in parallel.
fn pass(
    edges: u64,
    progress: &Progress,
    each: &(dyn Fn(&[Edge]) + Sync),
    edge: impl Fn(u64) -> Edge + Sync,
) {
    progress.begin(edges);
    let size = BLOCK as u64;
    (0..edges.div_ceil(size)).into_par_iter().for_each_init(
        || Vec::with_capacity(BLOCK),
        |block, index| {
            let first = index * size;
            let end = edges.min(first + size);
            block.clear();
            block.extend((first..end).map(&edge));
            each(block);
            progress.add(end - first);
        },
    );
}

/// The source of random weights.
#[derive(Clone, Copy, Debug)]
struct WeightSource(Option<Stream>);

impl WeightSource {
    fn new(weights: Weights, seed: u64) -> Self {
        match weights {
            Weights::None => Self(None),
            Weights::Uniform => Self(Some(Stream::new(seed, Use::Weights))),
        }
    }

    /// The weight of an edge, by its number.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it is at most the largest weight")]
    fn of(self, edge: u64) -> Weight {
        self.0.map_or(0, |stream| below(stream.at(edge), MOST_WEIGHT.into()) as Weight + 1)
    }
}

/// A number as a vertex; each number that comes here is less than 2^31.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a scale is at most 31")]
fn vertex(number: u64) -> Vertex {
    number as Vertex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_in_a_sentence() {
        let refused = |scale, degree| match check_size(scale, degree) {
            Err(Error::Usage(what)) => what,
            other => panic!("{other:?}"),
        };
        for scale in [0, 32, 64, u32::MAX] {
            assert_eq!(
                refused(scale, 16),
                format!("a graph of scale {scale} cannot be made: the scale is from 1 to 31")
            );
        }
        assert_eq!(refused(20, 0), "a graph of degree 0 has no edges: the degree is at least 1");
        assert!(check_size(1, 1).is_ok() && check_size(31, u32::MAX).is_ok());
    }

    #[test]
    fn weights_are_from_1_to_255() {
        let source = WeightSource::new(Weights::Uniform, SEED);
        let mut counts = [0_u32; 256];
        for edge in 0..255_000 {
            counts[source.of(edge) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        assert!(counts[1..].iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        assert_eq!(WeightSource::new(Weights::None, SEED).of(3), 0);
    }

    #[test]
    fn edges_come_in_blocks_once_each() {
        let seen = std::sync::Mutex::new(Vec::new());
        let progress = Progress::default();
        let all = 2 * BLOCK as u64 + 17;
        let edge = |number| Edge { from: vertex(number), to: 0, weight: 0 };
        pass(all, &progress, &|block| seen.lock().expect("a lock").extend_from_slice(block), edge);
        let mut seen = seen.into_inner().expect("a lock");
        seen.sort_unstable();
        assert!(seen.into_iter().eq((0..all).map(edge)));
        assert_eq!(progress.now(), (all, all));
    }

    #[test]
    fn a_generator_describes_itself_in_a_line() {
        let kronecker = Kronecker { weights: Weights::Uniform, ..Kronecker::new(20) };
        let all = [
            Generator::Kronecker(kronecker),
            Generator::Uniform(Uniform { seed: 3, ..Uniform::new(4) }),
            Generator::BlockModel(BlockModel::new(20)),
        ];
        let lines = [
            "Kronecker, scale 20, degree 16, weights from 1 to 255, seed 27491095",
            "uniform, scale 4, degree 16, no weights, seed 3",
            "block model, scale 20, degree 16, exponent 2.2, 1024 communities of equal sizes with 80% of the edges \
             within, no weights, seed 27491095",
        ];
        assert_eq!(all.map(|generator| generator.to_string()), lines);
        let [kronecker, uniform, _] = all;
        assert_eq!((kronecker.vertices(), kronecker.edges()), (1 << 20, 1 << 24));
        assert_eq!((uniform.vertices(), uniform.edges()), (16, 256));
    }
}
