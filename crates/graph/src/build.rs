//! Edges in any order become compressed sparse rows, in two passes over them: the first counts the neighbors of each vertex,
//! the second puts them in place. So no list of edges is ever in memory, and nothing but the graph and one number for each
//! vertex.
//!
//! As GAP's reference does (Beamer et al., "The GAP Benchmark Suite", arXiv:1508.03619, `builder.h`): neighbors are ascending,
//! and an edge that is there twice is there once, with the least of its weights. An edge from a vertex to itself is left out of
//! graphs that are generated, as there, and kept of files, whose edges are somebody's.

use crate::atomic::{shared, shared_large};
use crate::error::{Error, Result};
use crate::graph::{Adjacency, Graph, GraphPages, MOST_VERTICES, Vertex, Weight, number};
use crate::need::{Beside, Need, Size, room};
use crate::progress::Progress;
use crate::width::to_usize;
use rayon::prelude::*;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use superpage_array::PageArray;
use superpage_units::Bytes;

/// An edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The vertex that it leads out of.
    pub from: Vertex,
    /// The vertex that it leads to.
    pub to: Vertex,
    /// The weight; without meaning in a graph without weights.
    pub weight: Weight,
}

/// A source of edges. Each pass over it gives the same edges, in any order and in any blocks; edges from a vertex to itself, and
/// edges that are there twice, are allowed.
pub trait Edges: Sync {
    /// The number of vertices, if the source knows it before it gives edges; an edge to a larger vertex is an error then. Without
    /// it the largest vertex decides.
    fn vertices(&self) -> Option<u64>;

    /// Whether edges have weights.
    fn is_weighted(&self) -> bool;

    /// Whether an edge from a vertex to itself is kept.
    fn keeps_loops(&self) -> bool {
        false
    }

    /// The memory that the source has for its own use during a pass.
    fn buffers(&self) -> Bytes {
        Bytes::ZERO
    }

    /// Calls `each` with blocks of edges, which may be empty, from several threads at a time, until each edge has been
    /// in one. Each pass begins and advances `progress`.
    ///
    /// # Errors
    /// The source's own: a file that cannot be read, a fault on a line, parameters that make no graph.
    fn pass(&self, progress: &Progress, each: &(dyn Fn(&[Edge]) + Sync)) -> Result<()>;
}

/// Whether edges lead one way only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Each edge leads one way, and is kept backwards as well.
    Directed,
    /// Each edge leads both ways.
    Undirected,
}

/// Builds a graph from a source of edges.
///
/// # Errors
/// [`Error::TooManyVertices`], [`Error::TooLarge`], [`Error::Array`], and the errors of [`Edges::pass`].
pub fn graph(
    edges: &dyn Edges,
    direction: Direction,
    pages: GraphPages,
    progress: &Progress,
) -> Result<Graph> {
    let beside = [Beside::default(); 2];
    Ok(graph_beside(edges, direction, pages, beside, progress)?.0)
}

/// Builds a graph where there is memory for what the caller takes beside it, too. Also returns how many edges of the source were
/// there before.
pub(crate) fn graph_beside(
    edges: &dyn Edges,
    direction: Direction,
    pages: GraphPages,
    beside: [Beside; 2],
    progress: &Progress,
) -> Result<(Graph, u64)> {
    let builder = Builder { direction, pages, beside, progress };
    let (outgoing, given) = builder.adjacency(edges, 0)?;
    let graph = match direction {
        Direction::Undirected => Graph::undirected(outgoing),
        Direction::Directed => {
            let (backwards, _) = builder.adjacency(&Kept(&outgoing, Way::Backwards), 1)?;
            Graph::directed(outgoing, backwards).map_err(Error::Inconsistent)?
        }
    };
    let size = Size {
        vertices: graph.vertices() as u64,
        edges: graph.edges(),
        is_weighted: graph.is_weighted(),
    };
    builder.need(size, builder.rows()).check(&room())?;
    let duplicates = given - graph.distinct_edges();
    Ok((graph, duplicates))
}

/// The way in which edges are gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Forwards,
    Backwards,
}

/// The edges of an adjacency that is there.
pub(crate) struct Kept<'a>(pub(crate) &'a Adjacency, pub(crate) Way);

/// Edges in a block, where a source makes blocks of its own. Chosen, not measured: what fits into a second-level cache.
pub(crate) const BLOCK: usize = 4096; // tidy: allow(edges)

impl Edges for Kept<'_> {
    fn vertices(&self) -> Option<u64> {
        Some(self.0.vertices() as u64)
    }

    fn is_weighted(&self) -> bool {
        self.0.all_weights().is_some()
    }

    fn keeps_loops(&self) -> bool {
        true
    }

    fn pass(&self, progress: &Progress, each: &(dyn Fn(&[Edge]) + Sync)) -> Result<()> {
        let Self(adjacency, way) = *self;
        progress.begin(adjacency.edges());
        let vertices = adjacency.vertices();
        (0..vertices.div_ceil(BLOCK)).into_par_iter().for_each_init(
            || Vec::with_capacity(BLOCK),
            |block, index| {
                let own = number(index * BLOCK)..number((index * BLOCK + BLOCK).min(vertices));
                for Edge { from, to, weight } in own.flat_map(|from| adjacency.edges_of(from)) {
                    block.push(match way {
                        Way::Forwards => Edge { from, to, weight },
                        Way::Backwards => Edge { from: to, to: from, weight },
                    });
                    if block.len() == BLOCK {
                        each(block);
                        progress.add(BLOCK as u64);
                        block.clear();
                    }
                }
                each(block);
                progress.add(block.len() as u64);
                block.clear();
            },
        );
        Ok(())
    }
}

/// The properties that all adjacencies of a graph have in common.
struct Builder<'a> {
    direction: Direction,
    pages: GraphPages,
    beside: [Beside; 2],
    progress: &'a Progress,
}

impl Builder<'_> {
    fn rows(&self) -> u64 {
        if self.direction == Direction::Directed { 2 } else { 1 }
    }

    /// The memory that is taken from here on, where `made` adjacencies are made.
    fn need(&self, size: Size, made: u64) -> Need {
        let making = Bytes(size_of::<u64>() as u64);
        let (rows, beside) = (self.rows(), self.beside);
        let is_exact = made > 0;
        Need { size, is_exact, rows, made, making, longest: 0, buffers: Bytes::ZERO, beside }
    }

    /// Makes an adjacency, where so many of the graph are made. Also returns how many edges the source gives.
    fn adjacency(&self, edges: &dyn Edges, made: u64) -> Result<(Adjacency, u64)> {
        let pages = self.pages;
        let mut counted = self.count(edges, made)?;
        let vertices = to_usize(counted.vertices);
        let mut offsets = PageArray::<u64>::zeroed(vertices + 1, pages.vertex)?;
        let mut sum = 0;
        for (offset, degree) in offsets.iter_mut().zip(counted.degrees.iter_mut()) {
            *offset = sum;
            // From here on `degree` is the index of the vertex's next neighbor.
            (sum, *degree) = (sum + *degree, sum);
        }
        let total = to_usize(sum);
        let mut neighbors = PageArray::<Vertex>::zeroed(total, pages.edge)?;
        let mut weights = match edges.is_weighted() {
            true => Some(PageArray::<Weight>::zeroed(total, pages.values)?),
            false => None,
        };
        self.place(edges, &mut counted, &mut neighbors, weights.as_mut())?;
        if counted.degrees[..vertices] != offsets[1..] {
            let what = "the second pass over the edges did not give the same edges as the first";
            return Err(Error::Inconsistent(what.to_owned()));
        }
        let given = counted.given;
        drop(counted);
        tidy(&mut offsets, &mut neighbors, weights.as_mut())?;
        let made = Adjacency::new(offsets, neighbors, weights).map_err(Error::Inconsistent)?;
        Ok((made, given))
    }

    /// Counts each vertex's neighbors, and fails where there is too little memory for what follows. The kernel allocates
    /// counters only for vertices that occur, and there are none for vertices that there is no memory for.
    fn count(&self, edges: &dyn Edges, made: u64) -> Result<Counted> {
        let known = edges.vertices();
        if let Some(found) = known.filter(|found| *found > MOST_VERTICES) {
            return Err(Error::TooManyVertices { found });
        }
        let room = room();
        let need = |vertices, edge_ends, longest| {
            let size = Size { vertices, edges: edge_ends, is_weighted: edges.is_weighted() };
            Need { longest, buffers: edges.buffers(), ..self.need(size, made) }
        };
        need(known.unwrap_or_default(), 0, 0).check(&room)?;
        // Beside the buffers, each vertex has an offset and a counter at the least.
        let fits = room.left.saturating_sub(edges.buffers()).0 / (2 * size_of::<u64>() as u64);
        let mut degrees =
            PageArray::<u64>::sparse(to_usize(known.unwrap_or(MOST_VERTICES.min(fits)) + 1))?;
        let seen = self.count_ends(edges, &mut degrees)?;
        if seen.vertices > MOST_VERTICES {
            return Err(Error::TooManyVertices { found: seen.vertices });
        }
        let vertices = known.unwrap_or(seen.vertices);
        if seen.vertices > vertices {
            let last = seen.vertices - 1;
            let what = format!("there is no vertex {last}: the graph has {vertices} vertices");
            return Err(Error::Usage(what));
        }
        degrees.truncate(degrees.len().min(to_usize(vertices) + 1));
        let longest = match edges.is_weighted() {
            true => degrees.par_iter().copied().max().unwrap_or_default(),
            false => 0,
        };
        need(vertices, seen.ends, longest).check(&room)?;
        Ok(Counted { vertices, given: seen.edges, degrees })
    }

    /// The first pass. An edge to a vertex without a counter is reported afterwards.
    fn count_ends(&self, edges: &dyn Edges, degrees: &mut [u64]) -> Result<Seen> {
        let [most, ends, all] = [const { AtomicU64::new(0) }; 3];
        let counts = shared_large(degrees);
        let count_one = |vertex: Vertex| {
            if let Some(count) = counts.get(vertex as usize) {
                count.fetch_add(1, Relaxed);
            }
        };
        let keeps_loops = edges.keeps_loops();
        edges.pass(self.progress, &|block| {
            let (mut largest, mut added, mut given) = (0, 0, 0);
            for edge in block {
                largest = largest.max(u64::from(edge.from.max(edge.to)) + 1);
                let is_loop = edge.from == edge.to;
                if is_loop && !keeps_loops {
                    continue;
                }
                given += 1;
                count_one(edge.from);
                added += 1;
                if self.direction == Direction::Undirected && !is_loop {
                    count_one(edge.to);
                    added += 1;
                }
            }
            most.fetch_max(largest, Relaxed);
            ends.fetch_add(added, Relaxed);
            all.fetch_add(given, Relaxed);
        })?;
        let [vertices, ends, edges] = [most, ends, all].map(AtomicU64::into_inner);
        Ok(Seen { vertices, ends, edges })
    }

    /// The second pass: writes each neighbor into its row.
    fn place(
        &self,
        edges: &dyn Edges,
        counted: &mut Counted,
        neighbors: &mut [Vertex],
        weights: Option<&mut PageArray<Weight>>,
    ) -> Result<()> {
        let next = shared_large(&mut counted.degrees);
        let neighbors = shared(neighbors);
        let weights = weights.map(|weights| shared(weights));
        let put = |from: Vertex, to: Vertex, weight: Weight| {
            // Edges that the first pass has not counted go into another row, but never outside the arrays; the caller compares.
            let Some(next) = next.get(from as usize) else { return };
            let at = to_usize(next.fetch_add(1, Relaxed));
            if let Some(neighbor) = neighbors.get(at) {
                neighbor.store(to, Relaxed);
            }
            if let Some(place) = weights.and_then(|weights| weights.get(at)) {
                place.store(weight, Relaxed);
            }
        };
        let keeps_loops = edges.keeps_loops();
        edges.pass(self.progress, &|block| {
            for edge in block {
                let is_loop = edge.from == edge.to;
                if is_loop && !keeps_loops {
                    continue;
                }
                put(edge.from, edge.to, edge.weight);
                if self.direction == Direction::Undirected && !is_loop {
                    put(edge.to, edge.from, edge.weight);
                }
            }
        })
    }
}

/// The numbers of the first pass.
struct Seen {
    vertices: u64,
    /// The entries of the edge array.
    ends: u64,
    edges: u64,
}

/// The result of the first pass.
struct Counted {
    vertices: u64,
    /// The edges that the source gives.
    given: u64,
    /// The neighbors of each vertex; one entry more than there are vertices, at the least.
    degrees: PageArray<u64>,
}

/// Sorts each row and removes duplicates.
fn tidy(
    offsets: &mut PageArray<u64>,
    neighbors: &mut PageArray<Vertex>,
    mut weights: Option<&mut PageArray<Weight>>,
) -> Result<()> {
    // Unlike a vector's, the memory of an array is always given back.
    let mut degrees = PageArray::<u64>::sparse(offsets.len() - 1)?;
    sort(offsets, &mut degrees, neighbors, weights.as_mut().map(|weights| &mut weights[..]));
    move_together(offsets, &degrees, neighbors);
    if let Some(weights) = &mut weights {
        move_together(offsets, &degrees, weights);
    }
    let mut sum = 0;
    for (offset, degree) in offsets.iter_mut().zip(degrees.iter().chain([&0])) {
        *offset = sum;
        sum += degree;
    }
    neighbors.truncate(to_usize(sum));
    if let Some(weights) = weights {
        weights.truncate(to_usize(sum));
    }
    Ok(())
}

/// Edges that one thread sorts. Chosen, not measured: enough work for a task.
const SORTED: usize = 1 << 16;

/// Sorts the neighbors of neighboring vertices, which begin at `offsets`; how many different ones each has goes to `degrees`.
fn sort(
    offsets: &[u64],
    degrees: &mut [u64],
    neighbors: &mut [Vertex],
    weights: Option<&mut [Weight]>,
) {
    if degrees.len() > 1 && neighbors.len() > SORTED {
        let middle = degrees.len() / 2;
        let at = to_usize(offsets[middle] - offsets[0]);
        let (few, more) = degrees.split_at_mut(middle);
        let (first, second) = neighbors.split_at_mut(at);
        let (of_first, of_second) = match weights.map(|weights| weights.split_at_mut(at)) {
            Some((first, second)) => (Some(first), Some(second)),
            None => (None, None),
        };
        rayon::join(
            || sort(&offsets[..=middle], few, first, of_first),
            || sort(&offsets[middle..], more, second, of_second),
        );
        return;
    }
    let start = offsets.first().copied().unwrap_or_default();
    let mut weights = weights;
    let mut pairs = Vec::new();
    for (degree, ends) in degrees.iter_mut().zip(offsets.windows(2)) {
        let range = to_usize(ends[0] - start)..to_usize(ends[1] - start);
        let own = &mut neighbors[range.clone()];
        *degree = match &mut weights {
            None => sort_one(own),
            Some(weights) => sort_pairs(own, &mut weights[range], &mut pairs),
        } as u64;
    }
}

/// Sorts a row and moves its distinct neighbors to the front; returns their number.
fn sort_one(neighbors: &mut [Vertex]) -> usize {
    neighbors.sort_unstable();
    let mut kept = 0;
    for at in 0..neighbors.len() {
        if kept == 0 || neighbors[at] != neighbors[kept - 1] {
            neighbors[kept] = neighbors[at];
            kept += 1;
        }
    }
    kept
}

/// Sorts a row with its weights, keeping the least weight of each neighbor.
fn sort_pairs(
    neighbors: &mut [Vertex],
    weights: &mut [Weight],
    pairs: &mut Vec<(Vertex, Weight)>,
) -> usize {
    pairs.clear();
    pairs.extend(neighbors.iter().copied().zip(weights.iter().copied()));
    pairs.sort_unstable();
    pairs.dedup_by_key(|(neighbor, _)| *neighbor);
    for (at, (neighbor, weight)) in pairs.iter().enumerate() {
        (neighbors[at], weights[at]) = (*neighbor, *weight);
    }
    pairs.len()
}

/// Closes the gaps that removed duplicates left between rows.
fn move_together(offsets: &[u64], degrees: &[u64], of_edges: &mut [u32]) {
    let mut to = 0;
    for (begin, degree) in offsets.iter().zip(degrees) {
        let (begin, degree) = (to_usize(*begin), to_usize(*degree));
        if begin != to {
            of_edges.copy_within(begin..begin + degree, to);
        }
        to += degree;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Edges of a list.
    pub(crate) struct Listed(pub(crate) Vec<Edge>, pub(crate) Option<u64>, pub(crate) bool);

    impl Edges for Listed {
        fn vertices(&self) -> Option<u64> {
            self.1
        }

        fn is_weighted(&self) -> bool {
            self.2
        }

        fn pass(&self, _: &Progress, each: &(dyn Fn(&[Edge]) + Sync)) -> Result<()> {
            self.0.par_chunks(3).for_each(each);
            Ok(())
        }
    }

    fn edge() -> impl Strategy<Value = Edge> {
        (0..20_u32, 0..20_u32, 0..5_u32).prop_map(|(from, to, weight)| Edge { from, to, weight })
    }

    /// The least weight of each pair of vertices, found slowly.
    fn model(edges: &[Edge], direction: Direction) -> BTreeMap<(Vertex, Vertex), Weight> {
        let mut all = BTreeMap::new();
        for Edge { from, to, weight } in edges.iter().filter(|edge| edge.from != edge.to) {
            let mut put = |pair| {
                let least = all.entry(pair).or_insert(*weight);
                *least = *weight.min(least);
            };
            put((*from, *to));
            if direction == Direction::Undirected {
                put((*to, *from));
            }
        }
        all
    }

    fn all(adjacency: &Adjacency) -> Vec<(Vertex, Vertex, Weight)> {
        let of = |vertex: Vertex| {
            let weights = adjacency.weights(vertex);
            let weight = move |at: usize| weights.get(at).copied().unwrap_or_default();
            let neighbors = adjacency.neighbors(vertex).iter().enumerate();
            neighbors.map(move |(at, neighbor)| (vertex, *neighbor, weight(at)))
        };
        (0..number(adjacency.vertices())).flat_map(of).collect()
    }

    proptest! {
        #[test]
        fn rows_hold_each_edge_once(
            edges in proptest::collection::vec(edge(), 0..200),
            is_weighted: bool,
            is_directed: bool,
        ) {
            let direction = if is_directed { Direction::Directed } else { Direction::Undirected };
            let expected: Vec<_> = model(&edges, direction)
                .into_iter()
                .map(|((from, to), weight)| (from, to, if is_weighted { weight } else { 0 }))
                .collect();
            let source = Listed(edges, None, is_weighted);
            let found = graph(&source, direction, GraphPages::default(), &Progress::default()).expect("a graph");
            prop_assert_eq!(all(found.outgoing()), expected.clone());
            let mut backwards: Vec<_> = all(found.incoming());
            if is_directed {
                backwards.iter_mut().for_each(|(from, to, _)| std::mem::swap(from, to));
                backwards.sort_unstable();
            }
            prop_assert_eq!(backwards, expected);
        }
    }

    #[test]
    fn a_graph_may_have_vertices_without_edges() {
        let source = Listed(Vec::new(), Some(7), false);
        let found =
            graph(&source, Direction::Undirected, GraphPages::default(), &Progress::default());
        let found = found.expect("a graph");
        assert_eq!((found.vertices(), found.edges()), (7, 0));
        let source = Listed(Vec::new(), Some(1 << 33), false);
        let found =
            graph(&source, Direction::Undirected, GraphPages::default(), &Progress::default());
        assert!(matches!(found, Err(Error::TooManyVertices { .. })));
    }
}
