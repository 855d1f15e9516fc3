//! Uniform graphs as GAPBS has them: both ends of each edge are any vertex, all equally likely (Erdős and Rényi, "On
//! Random Graphs I", 1959, with edges drawn one by one). No vertex is hot, so there is nothing to group: the case in
//! which huge pages for a part of the property array gain in proportion to that part only.

use super::random::{Stream, Use};
use super::{DEGREE, Drawn, SEED, WeightSource, Weights, check_size, vertex};
use crate::build::Edge;
use crate::error::Result;
use std::fmt;

/// A uniform graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uniform {
    /// There are 2^scale vertices.
    pub scale: u32,
    /// Edges that are drawn for each vertex.
    pub degree: u32,
    /// The same seed gives the same graph.
    pub seed: u64,
    /// Whether edges have weights.
    pub weights: Weights,
}

impl Uniform {
    /// A uniform graph with GAPBS's parameters.
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

impl fmt::Display for Uniform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scale, degree, seed, weights } = self;
        write!(f, "uniform, scale {scale}, degree {degree}, {weights}, seed {seed}")
    }
}

impl Drawn for Uniform {
    fn size(&self) -> (u32, u32, Weights) {
        (self.scale, self.degree, self.weights)
    }

    fn check_all(&self) -> Result<()> {
        self.check()
    }

    /// One random number has bits enough for both ends.
    fn drawing(&self) -> impl Fn(u64) -> Edge + Sync {
        let ends = Stream::new(self.seed, Use::Ends);
        let weights = WeightSource::new(self.weights, self.seed);
        let (scale, unused) = (self.scale, u64::BITS - self.scale);
        move |edge| {
            let random = ends.at(edge);
            let (from, to) = (random >> unused, random << scale >> unused);
            Edge { from: vertex(from), to: vertex(to), weight: weights.of(edge) }
        }
    }
}
