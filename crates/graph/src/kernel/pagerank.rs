//! PageRank: how likely somebody is at each vertex who follows edges at random and now and then begins anew at any vertex.
//!
//! Page et al., "The PageRank Citation Ranking: Bringing Order to the Web" (1999), as GAP's reference (`pr.cc`): each vertex
//! pulls the contributions of the vertices whose edges lead to it, so that no two threads write to the same score; and
//! contributions are replaced at once, so that vertices that come later in an iteration read the new ones (Gauss-Seidel).
//! The contributions are what is read at random. A vertex without edges out of it contributes nothing, and what it has is
//! lost, as in GAP's; there its contribution is a division by zero, which nothing reads, and here it is 0.
//!
//! Which contributions are new already when a vertex reads them depends on the threads, so scores differ between runs within
//! the tolerance, and the number of iterations may. On one thread it is always the same.

use crate::atomic::shared;
use crate::error::{Error, Result};
use crate::graph::{Graph, Vertex};
use crate::kernel::support::{Worker, check_length, fill, together, verify_length};
use crate::width::to_usize;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The part of a vertex's score that goes on along edges (the paper's and GAP's value).
const DAMPING: f32 = 0.85;
/// Vertices that a thread takes at a time (GAP's value).
const TAKEN: usize = 16384;
/// Neighbors whose contributions are added up in 24 bits. Chosen, not measured: rounding takes less than 1e-5 of a sum.
const FEW: usize = 128;
/// Sums of contributions that are added up side by side.
const SUMS: usize = 4;
/// The change that [`verify`] allows beyond the tolerance: scores are sums of numbers of 24 bits. Chosen, not measured.
const ROUNDING: f64 = 1e-6;

/// The conditions that end the iterations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The most iterations.
    pub iterations: u32,
    /// The sum of all changes of scores in an iteration below which it is the last. With 0 there are as many as may be.
    pub tolerance: f64,
}

impl Default for Options {
    /// The values of GAP's reference.
    fn default() -> Self {
        Self { iterations: 20, tolerance: 1e-4 }
    }
}

/// The result of [`run`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PageRank {
    /// The number of iterations.
    pub iterations: u32,
    /// The sum of all changes of scores in the last of them.
    pub error: f64,
}

/// Ranks all vertices: `scores` becomes the score of each, and `contributions` the score over the number of edges out of it.
///
/// # Errors
/// [`Error::Usage`] if a property array has not one entry for each vertex, if there is to be no iteration, or if the tolerance
/// is negative or no number.
pub fn run(
    graph: &Graph,
    options: Options,
    scores: &mut [f32],
    contributions: &mut [f32],
) -> Result<PageRank> {
    check_length(graph, "scores", scores.len())?;
    check_length(graph, "contributions", contributions.len())?;
    if options.iterations == 0 {
        return Err(Error::Usage("PageRank takes one iteration at the least".to_owned()));
    }
    if options.tolerance.is_nan() || options.tolerance < 0.0 {
        return Err(Error::Usage(format!("{} is no tolerance", options.tolerance)));
    }
    if graph.vertices() == 0 {
        return Ok(PageRank::default());
    }
    let first = 1.0 / graph.vertices() as f32;
    let outgoing = graph.outgoing().offsets();
    fill(scores, first);
    let each = contributions.par_iter_mut().zip(outgoing.par_windows(2));
    each.for_each(|(own, ends)| *own = contribution(first, ends[1] - ends[0]));
    let ranking = Ranking {
        base: (1.0 - DAMPING) / graph.vertices() as f32,
        outgoing,
        incoming: graph.incoming().offsets(),
        neighbors: graph.incoming().all_neighbors(),
        scores: shared(bytemuck::cast_slice_mut(scores)),
        contributions: shared(bytemuck::cast_slice_mut(contributions)),
    };
    Ok(together(|worker| ranking.iterations(worker, options)))
}

/// The contribution of a vertex to each vertex that it has an edge to.
fn contribution(score: f32, degree: u64) -> f32 {
    if degree == 0 { 0.0 } else { score / degree as f32 }
}

/// The state that all threads share.
struct Ranking<'a> {
    /// The score of a vertex that no edge leads to.
    base: f32,
    outgoing: &'a [u64],
    incoming: &'a [u64],
    neighbors: &'a [Vertex],
    scores: &'a [AtomicU32],
    contributions: &'a [AtomicU32],
}

impl Ranking<'_> {
    /// Runs all iterations. Each thread comes to the same decisions and results.
    fn iterations(&self, worker: &mut Worker<'_>, options: Options) -> PageRank {
        let mut done = PageRank::default();
        loop {
            let mut changes = 0.0;
            worker.blocks(self.scores.len(), TAKEN, |block| changes += self.update(block));
            done.error = worker.sum_of_floats(changes);
            done.iterations += 1;
            if done.error < options.tolerance || done.iterations == options.iterations {
                return done;
            }
        }
    }

    /// Replaces the scores and contributions of some vertices. Returns the sum of changes of scores.
    fn update(&self, vertices: Range<usize>) -> f64 {
        let incoming = self.incoming[vertices.start..=vertices.end].windows(2);
        let outgoing = self.outgoing[vertices.start..=vertices.end].windows(2);
        let own = self.scores[vertices.clone()].iter().zip(&self.contributions[vertices]);
        let mut changes = 0.0;
        for ((incoming, outgoing), (score, own)) in incoming.zip(outgoing).zip(own) {
            let new = self.base + DAMPING * self.pull(to_usize(incoming[0])..to_usize(incoming[1]));
            let old = f32::from_bits(score.load(Relaxed));
            changes += f64::from((new - old).abs());
            score.store(new.to_bits(), Relaxed);
            own.store(contribution(new, outgoing[1] - outgoing[0]).to_bits(), Relaxed);
        }
        changes
    }

    /// The sum of the contributions of some neighbors.
    #[inline]
    fn pull(&self, neighbors: Range<usize>) -> f32 {
        let neighbors = &self.neighbors[neighbors];
        if neighbors.len() > FEW { self.pull_many(neighbors) } else { self.pull_few(neighbors) }
    }

    #[inline]
    fn pull_few(&self, neighbors: &[Vertex]) -> f32 {
        let of =
            |vertex: &Vertex| f32::from_bits(self.contributions[*vertex as usize].load(Relaxed));
        // Several sums, of which none waits for another's addition.
        let (parts, rest) = neighbors.as_chunks::<SUMS>();
        let mut sums = [0.0; SUMS];
        for part in parts {
            for (sum, vertex) in sums.iter_mut().zip(part) {
                *sum += of(vertex);
            }
        }
        sums.iter().sum::<f32>() + rest.iter().map(of).sum::<f32>()
    }

    /// A sum of 53 bits, as rounding to 24 takes a part of the scores of vertices with thousands of neighbors that is more
    /// than the tolerance.
    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "scores have 24 bits")]
    fn pull_many(&self, neighbors: &[Vertex]) -> f32 {
        neighbors.chunks(FEW / 2).map(|part| f64::from(self.pull_few(part))).sum::<f64>() as f32
    }
}

/// Checks what [`run`] made of `scores`, by one more iteration, which is serial, in twice the precision, and pushes scores
/// along edges: the sum of changes must not be more than the tolerance and what rounding takes.
///
/// Scores that [`run`] gave up on after the most iterations are more than the tolerance away, as [`PageRank::error`]
/// says; give that as the tolerance then. A converged result of [`run`] changes by at most 0.85 times its tolerance in
/// one more iteration.
///
/// # Errors
/// The first wrong vertex or score, in words.
pub fn verify(graph: &Graph, tolerance: f64, scores: &[f32]) -> std::result::Result<(), String> {
    verify_length(graph, "scores", scores.len())?;
    let mut sums = vec![0.0; graph.vertices()];
    for (score, vertex) in scores.iter().zip(0..) {
        if !score.is_finite() {
            return Err(format!("vertex {vertex} has the score {score}"));
        }
        let neighbors = graph.outgoing().neighbors(vertex);
        let pushed = f64::from(*score) / neighbors.len() as f64;
        for neighbor in neighbors {
            sums[*neighbor as usize] += pushed;
        }
    }
    let damping = f64::from(DAMPING);
    let base = (1.0 - damping) / graph.vertices() as f64;
    let change = |(sum, score): (&f64, &f32)| (base + damping * sum - f64::from(*score)).abs();
    let error: f64 = sums.iter().zip(scores).map(change).sum();
    if error.is_finite() && error <= tolerance + ROUNDING {
        return Ok(());
    }
    Err(format!(
        "one more iteration changes scores by {error:e} in all, and {tolerance:e} are allowed"
    ))
}
