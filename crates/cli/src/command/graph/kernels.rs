//! The kernels as `superpage graph run` uses them: their property arrays, a trial, and the check of its result.

use crate::args::graph::{KernelName, Run, When};
use std::io::{self, Write};
use superpage_array::{PageArray, Pages, Placement, Request};
use superpage_graph::kernel::{bfs, components, pagerank, sssp};
use superpage_graph::{Beside, Graph, Result, Vertex, Weight};
use superpage_units::Bytes;

/// The width of a bucket of distances where nobody says another one. Chosen: weights are from 1 to 255.
const DELTA: Weight = 16;

/// PageRank goes on until it changes less than GAP's tolerance; GAP's 20 iterations are not enough for every order of vertices.
const RANKING: pagerank::Options = pagerank::Options { iterations: 100, tolerance: 1e-4 };

/// A kernel with its property arrays, which are made before a trial.
pub(super) enum Kernel {
    /// The parent of each vertex.
    Bfs(PageArray<Vertex>),
    /// The distance of each vertex.
    Sssp(PageArray<u32>, Weight),
    /// The component of each vertex.
    Components(PageArray<Vertex>),
    /// The contributions, which are touched at random, and the scores.
    PageRank { contributions: PageArray<f32>, scores: PageArray<f32>, options: pagerank::Options },
}

impl Kernel {
    /// The kernel that was asked for, with property arrays for so many vertices.
    pub(super) fn new(arguments: &Run, vertices: usize, request: Request) -> Result<Self> {
        Ok(match arguments.kernel {
            KernelName::Bfs => Self::Bfs(PageArray::zeroed(vertices, request)?),
            KernelName::Sssp => {
                Self::Sssp(PageArray::zeroed(vertices, request)?, arguments.delta.unwrap_or(DELTA))
            }
            KernelName::Cc => Self::Components(PageArray::zeroed(vertices, request)?),
            KernelName::Pr => Self::PageRank {
                contributions: PageArray::zeroed(vertices, request)?,
                scores: PageArray::zeroed(vertices, Pages::BASE)?,
                options: arguments
                    .iterations
                    .map_or(RANKING, |iterations| pagerank::Options { iterations, tolerance: 0.0 }),
            },
        })
    }

    /// The memory that the kernel takes for each vertex once the graph is there: its property arrays for all kinds of pages,
    /// unless they come first, and what a trial or its check needs for itself.
    pub(super) fn beside(arguments: &Run) -> Beside {
        // The queue of bfs with its bitmaps; the vertices in the buckets of sssp; the sizes of components.
        let (property, trial, check) = match arguments.kernel {
            KernelName::Bfs => (4, 5, 8),
            KernelName::Sssp => (4, 8, 36),
            KernelName::Cc => (4, 4, 5),
            KernelName::Pr => (8, 0, 8),
        };
        let variants = match arguments.property {
            When::First => 0,
            When::Last => arguments.pages.len() as u64,
        };
        let itself = if arguments.verify { check.max(trial) } else { trial };
        // Dijkstra's queue, which checks sssp, has a vertex once for each time that it comes nearer. Measured, on a star and on
        // Kronecker graphs.
        let is_dijkstra = arguments.verify && arguments.kernel == KernelName::Sssp;
        let per_edge = Bytes(if is_dijkstra { 2 } else { 0 });
        let per_vertex = Bytes(property * variants + itself);
        Beside { per_vertex, per_edge, ..Beside::default() }
    }

    /// Writes to all of the property arrays, so that arrays on default or base pages have their memory from now on.
    pub(super) fn touch(&mut self) {
        match self {
            Self::Bfs(array) | Self::Components(array) => array.fill(0),
            Self::Sssp(array, _) => array.fill(0),
            Self::PageRank { contributions, scores, .. } => {
                contributions.fill(0.0);
                scores.fill(0.0);
            }
        }
    }

    /// The array that is touched at random: its size, and the pages that it is on.
    pub(super) fn property(&self) -> Result<(Bytes, Placement)> {
        Ok(match self {
            Self::Bfs(array) | Self::Sssp(array, _) | Self::Components(array) => {
                (array.size(), array.placement()?)
            }
            Self::PageRank { contributions, .. } => {
                (contributions.size(), contributions.placement()?)
            }
        })
    }

    /// The scores, where there are some: their size, and the pages that they are on.
    pub(super) fn scores(&self) -> Result<Option<(Bytes, Placement)>> {
        Ok(match self {
            Self::PageRank { scores, .. } => Some((scores.size(), scores.placement()?)),
            Self::Bfs(_) | Self::Sssp(..) | Self::Components(_) => None,
        })
    }

    /// Runs once, and says in a few words what came out.
    pub(super) fn trial(&mut self, graph: &Graph, source: Vertex) -> Result<String> {
        Ok(match self {
            Self::Bfs(parents) => {
                let found = bfs::run(graph, source, parents)?;
                format!("{} vertices reached, at most {} edges away", found.reached, found.depth)
            }
            Self::Sssp(distances, delta) => {
                let found = sssp::run(graph, source, *delta, distances)?;
                format!("{} vertices reached", found.reached)
            }
            Self::Components(numbers) => {
                let found = components::run(graph, numbers)?;
                format!(
                    "{} components, the largest of {} vertices",
                    found.components, found.largest
                )
            }
            Self::PageRank { contributions, scores, options } => {
                let found = pagerank::run(graph, *options, scores, contributions)?;
                format!("{} iterations, the last changed {:.1e}", found.iterations, found.error)
            }
        })
    }

    /// Checks the result of the last trial in another way; what is wrong with it.
    pub(super) fn verify(&self, graph: &Graph, source: Vertex) -> std::result::Result<(), String> {
        match self {
            Self::Bfs(parents) => bfs::verify(graph, source, parents),
            Self::Sssp(distances, _) => sssp::verify(graph, source, distances),
            Self::Components(numbers) => components::verify(graph, numbers),
            Self::PageRank { scores, options, .. } => {
                pagerank::verify(graph, options.tolerance, scores)
            }
        }
    }

    /// Writes the result of the last trial: a number of 4 bytes for each vertex, the least byte first.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Bfs(numbers) | Self::Sssp(numbers, _) | Self::Components(numbers) => {
                numbers.iter().try_for_each(|number| to.write_all(&number.to_le_bytes()))
            }
            Self::PageRank { scores, .. } => {
                scores.iter().try_for_each(|score| to.write_all(&score.to_le_bytes()))
            }
        }
    }
}
