//! Compressed sparse rows: for each vertex its neighbors, one after the other.

use crate::build::{BLOCK, Edge};
use crate::error::{Error, Result};
use crate::width::to_usize;
use rayon::prelude::*;
use std::ops::Range;
use superpage_array::{PageArray, Pages, Placement, Request};
use superpage_units::Bytes;

/// A vertex, by number from 0 on.
pub type Vertex = u32;
/// The weight of an edge. Files have 32-bit numbers with a sign, so it is at most `i32::MAX`.
pub type Weight = u32;

/// The most vertices that a graph can have: one number is left, which stands for "none".
pub const MOST_VERTICES: u64 = u32::MAX as u64;

/// A vertex's index, or a number of vertices, in 32 bits: all indices here are below [`MOST_VERTICES`].
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "no graph has more vertices")]
pub(crate) const fn number(index: usize) -> Vertex {
    debug_assert!(index as u64 <= MOST_VERTICES, "a number of a vertex");
    index as Vertex
}

/// The pages that the arrays of a graph are to be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphPages {
    /// The pages of the vertex arrays, which hold each vertex's offset.
    pub vertex: Request,
    /// The pages of the edge arrays, which hold neighbors.
    pub edge: Request,
    /// The pages of the values arrays, which hold weights.
    pub values: Request,
}

impl GraphPages {
    /// The same pages for all arrays.
    #[must_use]
    pub fn all(pages: Pages) -> Self {
        let request = Request::from(pages);
        Self { vertex: request, edge: request, values: request }
    }
}

impl Default for GraphPages {
    fn default() -> Self {
        Self::all(Pages::BASE)
    }
}

/// The neighbors of all vertices in one direction.
#[derive(Debug)]
pub struct Adjacency {
    offsets: PageArray<u64>,
    neighbors: PageArray<Vertex>,
    weights: Option<PageArray<Weight>>,
}

impl Adjacency {
    /// Makes an adjacency of its arrays: `offsets` ascends from 0 to the number of edges and has one entry more than
    /// there are vertices; each neighbor is a vertex; those of each vertex are ascending, each there once; and there is a
    /// weight for each neighbor, or for none.
    ///
    /// # Errors
    /// The first fault of the arrays, in words.
    pub fn new(
        offsets: PageArray<u64>,
        neighbors: PageArray<Vertex>,
        weights: Option<PageArray<Weight>>,
    ) -> std::result::Result<Self, String> {
        let vertices = offsets.len().checked_sub(1).ok_or("the vertex array is empty")?;
        if vertices as u64 > MOST_VERTICES {
            return Err(format!(
                "{vertices} vertices are more than there can be ({MOST_VERTICES})"
            ));
        }
        if offsets.first() != Some(&0) || offsets.last() != Some(&(neighbors.len() as u64)) {
            return Err(format!(
                "the vertex array does not go from 0 to {} edges",
                neighbors.len()
            ));
        }
        let is_backwards = |pair: &[u64]| pair[0] > pair[1];
        if let Some(at) = offsets.par_windows(2).position_any(is_backwards) {
            return Err(format!("the neighbors of vertex {at} end before they begin"));
        }
        if let Some(weights) = weights.as_ref().filter(|weights| weights.len() != neighbors.len()) {
            return Err(format!("{} weights for {} edges", weights.len(), neighbors.len()));
        }
        let adjacency = Self { offsets, neighbors, weights };
        adjacency.check_neighbors()?;
        Ok(adjacency)
    }

    /// Fails unless all neighbors are vertices, and those of each vertex are ascending, each there once.
    fn check_neighbors(&self) -> std::result::Result<(), String> {
        let vertices = self.vertices();
        let block = |index: usize| index * BLOCK..(index * BLOCK + BLOCK).min(vertices);
        let blocks = (0..vertices.div_ceil(BLOCK)).into_par_iter().map(block);
        let Some(mut block) = blocks.find_first(|block| self.is_wrong(block.clone())) else {
            return Ok(());
        };
        let vertex = block.find(|vertex| self.is_wrong(*vertex..vertex + 1)).unwrap_or_default();
        let outside = self.neighbors(number(vertex)).iter().find(|one| **one as usize >= vertices);
        Err(match outside {
            Some(outside) => format!("{outside} is no vertex: there are {vertices}"),
            None => {
                format!("the neighbors of vertex {vertex} are not ascending, each there once")
            }
        })
    }

    /// Whether some neighbors of some vertices are no vertices, or not ascending, each there once: a neighbor is followed by
    /// one that is not larger only where one vertex's end and another's begin. Counting both is faster than looking at one
    /// vertex after the other, most of which have few neighbors.
    fn is_wrong(&self, vertices: Range<usize>) -> bool {
        let offsets = &self.offsets[vertices.start..=vertices.end];
        let begin = to_usize(offsets[0]);
        let neighbors = &self.neighbors[begin..to_usize(offsets[offsets.len() - 1])];
        // A number of vertices has 32 bits.
        let end = number(self.vertices());
        let (mut falls, mut beyond) =
            (0, neighbors.first().map_or(0, |one| u64::from(*one >= end)));
        for (one, next) in neighbors.iter().zip(neighbors.get(1..).unwrap_or_default()) {
            falls += u64::from(one >= next);
            beyond += u64::from(*next >= end);
        }
        let is_fall = |ends: &&[u64]| {
            let at = to_usize(ends[0]) - begin;
            ends[0] < ends[1] && at > 0 && neighbors[at - 1] >= neighbors[at]
        };
        beyond > 0 || falls != offsets.windows(2).filter(is_fall).count() as u64
    }

    /// The vertices.
    #[must_use]
    pub fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The edges, each in one direction.
    #[must_use]
    pub fn edges(&self) -> u64 {
        self.neighbors.len() as u64
    }

    /// The vertex array: the offset of each vertex's first neighbor, then the number of edges.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// All neighbors, those of vertex 0 first.
    #[must_use]
    pub fn all_neighbors(&self) -> &[Vertex] {
        &self.neighbors
    }

    /// All weights, in the order of [`Adjacency::all_neighbors`].
    #[must_use]
    pub fn all_weights(&self) -> Option<&[Weight]> {
        self.weights.as_deref()
    }

    /// The number of neighbors of a vertex.
    #[must_use]
    pub fn degree(&self, vertex: Vertex) -> u64 {
        let range = self.range(vertex);
        (range.end - range.start) as u64
    }

    /// The neighbors of a vertex, ascending.
    #[must_use]
    pub fn neighbors(&self, vertex: Vertex) -> &[Vertex] {
        &self.neighbors[self.range(vertex)]
    }

    /// The weights of the edges to a vertex's neighbors; none where the graph has none.
    #[must_use]
    pub fn weights(&self, vertex: Vertex) -> &[Weight] {
        self.weights.as_ref().map_or(&[], |weights| &weights[self.range(vertex)])
    }

    /// The edges that lead out of a vertex, or into it, where that is the adjacency's direction.
    pub(crate) fn edges_of(&self, from: Vertex) -> impl Iterator<Item = Edge> {
        let weights = self.weights(from);
        let neighbors = self.neighbors(from).iter().enumerate();
        neighbors.map(move |(at, to)| Edge {
            from,
            to: *to,
            weight: weights.get(at).copied().unwrap_or_default(),
        })
    }

    /// The place of a vertex's neighbors among all.
    #[must_use]
    pub fn range(&self, vertex: Vertex) -> Range<usize> {
        let vertex = vertex as usize;
        to_usize(self.offsets[vertex])..to_usize(self.offsets[vertex + 1])
    }

    /// The arrays by name, each with its size and the pages that it is on.
    ///
    /// # Errors
    /// [`Error::Array`].
    pub fn placements(&self) -> Result<Vec<(&'static str, Bytes, Placement)>> {
        let mut found = vec![
            ("vertex", self.offsets.size(), self.offsets.placement()?),
            ("edge", self.neighbors.size(), self.neighbors.placement()?),
        ];
        if let Some(weights) = &self.weights {
            found.push(("values", weights.size(), weights.placement()?));
        }
        Ok(found)
    }
}

/// A graph.
#[derive(Debug)]
pub struct Graph {
    outgoing: Adjacency,
    /// The incoming edges of a directed graph; `None` in an undirected one.
    incoming: Option<Adjacency>,
}

impl Graph {
    /// An undirected graph: each edge is in it in both directions.
    #[must_use]
    pub fn undirected(adjacency: Adjacency) -> Self {
        Self { outgoing: adjacency, incoming: None }
    }

    /// A directed graph, by its edges and the same edges backwards.
    ///
    /// # Errors
    /// The fault, in words: the two must have as many vertices and edges.
    pub fn directed(outgoing: Adjacency, incoming: Adjacency) -> std::result::Result<Self, String> {
        if (outgoing.vertices(), outgoing.edges()) != (incoming.vertices(), incoming.edges()) {
            return Err("the edges forwards and backwards are not as many".to_owned());
        }
        Ok(Self { outgoing, incoming: Some(incoming) })
    }

    /// Whether an edge may lead one way only.
    #[must_use]
    pub fn is_directed(&self) -> bool {
        self.incoming.is_some()
    }

    /// The vertices.
    #[must_use]
    pub fn vertices(&self) -> usize {
        self.outgoing.vertices()
    }

    /// The edges in the edge array: an undirected edge counts twice.
    #[must_use]
    pub fn edges(&self) -> u64 {
        self.outgoing.edges()
    }

    /// The edges from a vertex to itself.
    #[must_use]
    pub fn loops(&self) -> u64 {
        let is_loop = |vertex: &usize| {
            self.outgoing.neighbors(number(*vertex)).binary_search(&number(*vertex)).is_ok()
        };
        (0..self.vertices()).into_par_iter().filter(is_loop).count() as u64
    }

    /// The edges, where an undirected one counts once.
    pub(crate) fn distinct_edges(&self) -> u64 {
        // An edge from a vertex to itself has one entry in an undirected graph, too.
        if self.is_directed() { self.edges() } else { self.edges().midpoint(self.loops()) }
    }

    /// Whether edges have weights.
    #[must_use]
    pub fn is_weighted(&self) -> bool {
        self.outgoing.weights.is_some()
    }

    /// The outgoing edges.
    #[must_use]
    pub fn outgoing(&self) -> &Adjacency {
        &self.outgoing
    }

    /// The incoming edges; in an undirected graph the outgoing ones.
    #[must_use]
    pub fn incoming(&self) -> &Adjacency {
        self.incoming.as_ref().unwrap_or(&self.outgoing)
    }

    /// The mean number of edges that lead out of a vertex; 0 without vertices.
    #[must_use]
    pub fn mean_degree(&self) -> f64 {
        self.edges() as f64 / self.vertices().max(1) as f64
    }

    /// Fails if `vertex` is none of the graph's.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check(&self, vertex: Vertex) -> Result<()> {
        if (vertex as usize) < self.vertices() {
            return Ok(());
        }
        let what =
            format!("there is no vertex {vertex}: the graph has {} vertices", self.vertices());
        Err(Error::Usage(what))
    }
}
