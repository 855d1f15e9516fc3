//! Connected components: which vertices are connected by edges, in whichever direction these lead.
//!
//! Afforest (Sutton, Ben-Nun and Barak, "Optimizing Parallel Graph Connectivity Computation via Subgraph Sampling", IPDPS
//! 2018), as GAP's reference (`cc.cc`): each vertex points to one with a smaller number in its component or to itself, which
//! makes trees. The first two edges of each vertex link trees; then most vertices of the largest component are in one tree
//! already, which a sample finds, and the remaining edges of its vertices need not be looked at. Of directed graphs the other
//! vertices link by the edges that lead to them as well.
//!
//! Links go from larger to smaller numbers, so the root of a tree is the least vertex in it. The result is the least vertex of
//! each component, on any number of threads.

use crate::atomic::shared;
use crate::error::Result;
use crate::graph::{Adjacency, Graph, Vertex};
use crate::kernel::support::{Worker, check_length, together, verify_length};
use crate::width::to_usize;
use rayon::prelude::*;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The edges of each vertex that link trees before the sample (the paper's and GAP's value).
const FIRST_EDGES: usize = 2;
/// Vertices in the sample (GAP's value).
const SAMPLED: u64 = 1024;
/// Vertices that a thread takes at a time (GAP's value).
const TAKEN: usize = 16384;

/// The result of [`run`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Components {
    /// The number of components.
    pub components: u64,
    /// The number of vertices of the largest component.
    pub largest: u64,
}

/// Finds the connected components: `components` becomes the least vertex of each vertex's component.
///
/// # Errors
/// [`Error::Usage`](crate::Error::Usage) if `components` has not one entry for each vertex.
pub fn run(graph: &Graph, components: &mut [Vertex]) -> Result<Components> {
    check_length(graph, "components", components.len())?;
    if components.is_empty() {
        return Ok(Components::default());
    }
    components.par_chunks_mut(TAKEN).enumerate().for_each(|(block, part)| {
        let begin = crate::graph::number(block * TAKEN);
        part.iter_mut().zip(begin..).for_each(|(component, vertex)| *component = vertex);
    });
    let forest = Forest { graph, parents: shared(components) };
    let [roots, sampled] = together(|worker| forest.grow(worker));
    let largest = match is_largest(sampled, roots, components.len() as u64) {
        true => sampled,
        false => largest(components),
    };
    Ok(Components { components: roots, largest })
}

/// Whether a component of `size` vertices must be the largest of all `components`: no other has more than what is left when
/// the others but it have one vertex each.
fn is_largest(size: u64, components: u64, vertices: u64) -> bool {
    let others_but_one = components.saturating_sub(2);
    size + others_but_one >= vertices - size
}

/// The vertices of the largest component, counted.
fn largest(components: &[Vertex]) -> u64 {
    let mut counts = vec![0; components.len()];
    let shared = shared(&mut counts);
    components.par_iter().for_each(|component| {
        shared[*component as usize].fetch_add(1, Relaxed);
    });
    counts.into_par_iter().max().map_or(0, u64::from)
}

/// Trees of vertices.
struct Forest<'a> {
    graph: &'a Graph,
    /// A vertex with a smaller number in the same component, or the vertex itself if it is a root.
    parents: &'a [AtomicU32],
}

impl Forest<'_> {
    /// Links all edges. Returns how many roots there are, and how many vertices are in the tree that the sample found.
    fn grow(&self, worker: &mut Worker<'_>) -> [u64; 2] {
        for edge in 0..FIRST_EDGES {
            self.link_one_edge(worker, edge);
            worker.blocks(self.parents.len(), TAKEN, |block| {
                for parent in &self.parents[block] {
                    self.compress(parent);
                }
            });
            worker.wait();
        }
        // One thread samples, as the others would find other trees where there are two as large.
        let sampled = if worker.index() == 0 { u64::from(self.sample()) } else { u64::MAX };
        let sampled = Vertex::try_from(worker.least(sampled)).unwrap_or_default();
        self.link_rest(worker, sampled);
        let root = self.root(sampled);
        let (mut roots, mut in_sampled) = (0, 0);
        worker.blocks(self.parents.len(), TAKEN, |block| {
            for (parent, vertex) in
                self.parents[block.clone()].iter().zip(crate::graph::number(block.start)..)
            {
                let found = self.compress(parent);
                roots += u64::from(found == vertex);
                in_sampled += u64::from(found == root);
            }
        });
        worker.sum([roots, in_sampled])
    }

    /// Links each vertex by one of its edges.
    fn link_one_edge(&self, worker: &mut Worker<'_>, edge: usize) {
        let outgoing = self.graph.outgoing();
        let neighbors = outgoing.all_neighbors();
        worker.blocks(self.parents.len(), TAKEN, |block| {
            let ends = outgoing.offsets()[block.start..=block.end].windows(2);
            for (ends, vertex) in ends.zip(crate::graph::number(block.start)..) {
                if let Some(neighbor) = neighbors[to_usize(ends[0])..to_usize(ends[1])].get(edge) {
                    self.link(vertex, *neighbor);
                }
            }
        });
        worker.wait();
    }

    /// Links each vertex by the edges that are left, unless it is in the sampled tree.
    fn link_rest(&self, worker: &mut Worker<'_>, sampled: Vertex) {
        worker.blocks(self.parents.len(), TAKEN, |block| {
            for (parent, vertex) in
                self.parents[block.clone()].iter().zip(crate::graph::number(block.start)..)
            {
                if parent.load(Relaxed) == sampled {
                    continue;
                }
                self.link_all(vertex, self.graph.outgoing(), FIRST_EDGES);
                if self.graph.is_directed() {
                    self.link_all(vertex, self.graph.incoming(), 0);
                }
            }
        });
        worker.wait();
    }

    /// Links a vertex by its edges after the first few.
    fn link_all(&self, vertex: Vertex, edges: &Adjacency, after: usize) {
        for neighbor in edges.neighbors(vertex).iter().skip(after) {
            self.link(vertex, *neighbor);
        }
    }

    /// Puts two vertices into one tree.
    #[inline]
    fn link(&self, one: Vertex, other: Vertex) {
        let (mut one, mut other) = (self.parent(one), self.parent(other));
        while one != other {
            let (low, high) = (one.min(other), one.max(other));
            let place = &self.parents[high as usize];
            let above = place.load(Relaxed);
            if above == low
                || (above == high && place.compare_exchange(high, low, Relaxed, Relaxed).is_ok())
            {
                return;
            }
            (one, other) = (self.parent(self.parent(high)), self.parent(low));
        }
    }

    /// Makes a vertex point to its root, given where it points to. Returns the root.
    #[inline]
    fn compress(&self, place: &AtomicU32) -> Vertex {
        let parent = place.load(Relaxed);
        let root = self.root(parent);
        if root != parent {
            place.store(root, Relaxed);
        }
        root
    }

    /// The root of a vertex's tree.
    #[inline]
    fn root(&self, mut vertex: Vertex) -> Vertex {
        loop {
            let parent = self.parent(vertex);
            if parent == vertex {
                return vertex;
            }
            vertex = parent;
        }
    }

    fn parent(&self, vertex: Vertex) -> Vertex {
        self.parents[vertex as usize].load(Relaxed)
    }

    /// The root that most of a sample of vertices point to.
    fn sample(&self) -> Vertex {
        let vertices = self.parents.len() as u64;
        let vertex = |number| Vertex::try_from(mixed(number) % vertices).unwrap_or_default();
        let mut roots: Vec<Vertex> =
            (0..SAMPLED).map(|number| self.parent(vertex(number))).collect();
        roots.sort_unstable();
        let most = roots.chunk_by(|a, b| a == b).max_by_key(|equal| equal.len());
        most.and_then(|equal| equal.first()).copied().unwrap_or_default()
    }
}

/// A number that looks random, always the same for the same `number` (the function of SplitMix64; Steele et al., OOPSLA 2014).
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Checks what [`run`] made of `components`, by serial searches along edges in both directions from each vertex that none has
/// reached, the least first.
///
/// # Errors
/// The first wrong vertex or score, in words.
pub fn verify(graph: &Graph, components: &[Vertex]) -> std::result::Result<(), String> {
    verify_length(graph, "components", components.len())?;
    let mut is_reached = vec![false; graph.vertices()];
    let mut next = Vec::new();
    for source in 0..crate::graph::number(graph.vertices()) {
        if std::mem::replace(&mut is_reached[source as usize], true) {
            continue;
        }
        next.push(source);
        while let Some(vertex) = next.pop() {
            let found = components[vertex as usize];
            if found != source {
                return Err(format!(
                    "vertex {vertex} is in component {found}, and should be in {source}"
                ));
            }
            let both = [graph.outgoing().neighbors(vertex), graph.incoming().neighbors(vertex)];
            for neighbor in both.into_iter().flatten() {
                if !std::mem::replace(&mut is_reached[*neighbor as usize], true) {
                    next.push(*neighbor);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sample_takes_vertices_from_everywhere() {
        let mut quarters = [0; 4];
        (0..SAMPLED).for_each(|number| quarters[to_usize(mixed(number) % 4)] += 1);
        assert!(quarters.iter().all(|count| (200..320).contains(count)), "{quarters:?}");
        assert_eq!(mixed(0), 0xe220_a839_7b1d_cdaf);
    }

    proptest! {
        #[test]
        fn a_component_is_only_called_the_largest_if_it_is(sizes in proptest::collection::vec(1..6_u64, 1..6)) {
            let (count, all) = (sizes.len() as u64, sizes.iter().sum());
            let most = sizes.iter().copied().max().unwrap_or_default();
            for size in sizes {
                prop_assert!(!is_largest(size, count, all) || size == most);
                prop_assert!(is_largest(size, count, all) || 2 * size < all);
            }
        }
    }

    #[test]
    fn a_component_is_called_the_largest_at_the_border() {
        // Of four components with 10 vertices, one of 4 may leave one of 4, and one of 3 may leave one of 5.
        assert!(is_largest(4, 4, 10) && !is_largest(3, 4, 10));
        assert!(is_largest(7, 1, 7) && is_largest(1, 7, 7) && !is_largest(1, 2, 3));
    }

    #[test]
    fn the_largest_component_is_counted() {
        assert_eq!(largest(&[0, 1, 1, 0, 4, 1]), 3);
        assert_eq!(largest(&[]), 0);
    }
}
