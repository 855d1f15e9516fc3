//! The order of vertices: by degree, coarsely or exactly, so that those that are touched most lie together at the
//! beginning of each property array, which then needs huge pages for its first part only (section 5.1.2 of the paper);
//! and at random, to take away what locality a graph has.
//!
//! A vertex's entry in a property array is touched once for each edge: by its outgoing edges where a kernel pulls (each
//! neighbor reads it), by its incoming edges where a kernel pushes (each neighbor writes to it). Faldu et al. ("A
//! Closer Look at Lightweight Graph Reordering", IISWC 2019) take one of the two by the kernel. Here the degree of a
//! vertex is the sum of both in a directed graph, so that one order does for all kernels, of which the
//! direction-optimizing one does both. In an undirected graph it is the number of neighbors.
//!
//! Orders are computed in parallel and are the same on any number of threads.

use crate::error::{Error, Result};
use crate::generate::{Permutation, SEED};
use crate::graph::{Adjacency, Graph, GraphPages, Vertex, Weight, number};
use crate::need::{Beside, Need, Size, room};
use crate::progress::Progress;
use crate::width::to_usize;
use rayon::prelude::*;
use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::Ordering::Relaxed;
use superpage_array::{PageArray, Request};
use superpage_policy::grouping;
use superpage_units::{Bytes, Share};

/// The order by which vertices are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Vertices as they are.
    #[default]
    AsIs,
    /// Vertices by degree in eight bins, the hottest first, in each as they are: degree-based grouping ([`grouping`]).
    DegreeBased,
    /// Vertices by degree, the highest first, those alike as they are.
    Degree,
    /// Vertices at random, by a seed.
    Random(u64),
}

/// A name that is none of an order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no order of vertices: say none, dbg, degree, random, or random with a seed as in random:7"
)]
pub struct NoOrder(String);

impl FromStr for Order {
    type Err = NoOrder;

    fn from_str(text: &str) -> std::result::Result<Self, NoOrder> {
        match text {
            "none" => Ok(Self::AsIs),
            "dbg" => Ok(Self::DegreeBased),
            "degree" => Ok(Self::Degree),
            "random" => Ok(Self::Random(SEED)),
            _ => text
                .strip_prefix("random:")
                .filter(|seed| seed.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|seed| seed.parse().ok())
                .map(Self::Random)
                .ok_or_else(|| NoOrder(text.to_owned())),
        }
    }
}

/// Formats an order as `FromStr` reads it.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsIs => f.write_str("none"),
            Self::DegreeBased => f.write_str("dbg"),
            Self::Degree => f.write_str("degree"),
            Self::Random(SEED) => f.write_str("random"),
            Self::Random(seed) => write!(f, "random:{seed}"),
        }
    }
}

/// The new number of each vertex.
#[must_use]
pub fn numbers(graph: &Graph, order: Order) -> Vec<Vertex> {
    let vertices = graph.vertices();
    match order {
        Order::AsIs => (0..vertices).into_par_iter().map(number).collect(),
        Order::DegreeBased => {
            let least = least_degrees(edge_ends(graph) as f64 / vertices.max(1) as f64);
            let bin = |vertex| least.iter().filter(|least| degree(graph, vertex) < **least).count();
            places(vertices, grouping::BINS, bin)
        }
        Order::Degree => by_degree(graph),
        Order::Random(seed) => {
            let permutation = Permutation::new(vertices as u64, seed);
            let place = |vertex| number(to_usize(permutation.place(vertex as u64)));
            (0..vertices).into_par_iter().map(place).collect()
        }
    }
}

/// The degree of a vertex that orders it: see the head of this file.
#[inline]
fn degree(graph: &Graph, vertex: Vertex) -> u64 {
    let outgoing = graph.outgoing().degree(vertex);
    if graph.is_directed() { outgoing + graph.incoming().degree(vertex) } else { outgoing }
}

/// The degrees of all vertices.
fn all_degrees(graph: &Graph) -> impl ParallelIterator<Item = u64> {
    (0..graph.vertices()).into_par_iter().map(|vertex| degree(graph, number(vertex)))
}

/// The sum of [`degree`] over all vertices.
fn edge_ends(graph: &Graph) -> u64 {
    if graph.is_directed() { 2 * graph.edges() } else { graph.edges() }
}

/// A number larger than any degree.
const NO_DEGREE: u64 = 1 << 40;

/// The least degree of each bin but the last: comparisons of whole numbers find a bin in half the time.
fn least_degrees(mean: f64) -> [u64; grouping::BINS - 1] {
    std::array::from_fn(|bin| {
        let (mut least, mut end) = (0, NO_DEGREE);
        while least < end {
            let middle = least.midpoint(end);
            if grouping::bin(middle as f64, mean) <= bin {
                end = middle;
            } else {
                least = middle + 1;
            }
        }
        least
    })
}

/// Degrees that are counted rather than compared: 2^16 counters of 4 bytes for a block lie in a second-level cache, and
/// few vertices have a higher degree.
const COUNTED: u64 = 1 << 16;

/// The numbers of vertices by descending degree.
fn by_degree(graph: &Graph) -> Vec<Vertex> {
    let all = (0..graph.vertices()).into_par_iter().map(number);
    let most = all.clone().map(|vertex| degree(graph, vertex)).max().unwrap_or_default();
    let counted = COUNTED.min(most + 1);
    let mut hottest: Vec<_> = all
        .map(|vertex| (Reverse(degree(graph, vertex)), vertex))
        .filter(|(Reverse(degree), _)| *degree >= counted)
        .collect();
    hottest.par_sort_unstable();
    // Vertices above the counted degrees share the first key, and get their numbers afterwards.
    let key = |vertex| to_usize(counted - degree(graph, vertex).min(counted));
    let mut numbers = places(graph.vertices(), to_usize(counted) + 1, key);
    for (place, (_, vertex)) in hottest.iter().enumerate() {
        numbers[*vertex as usize] = number(place);
    }
    numbers
}

/// The fewest vertices of a block that one thread counts. Chosen, not measured: some tens of microseconds of work.
const COUNTED_TOGETHER: usize = 1 << 14;

/// The place of each vertex when they are sorted by a key below `keys`, those alike as they are: a counting sort whose
/// two passes go over blocks of vertices in parallel.
fn places(vertices: usize, keys: usize, key: impl Fn(Vertex) -> usize + Sync) -> Vec<Vertex> {
    // A few blocks for each thread even out their work, and keep the counters of all blocks at most as many as the
    // vertices and one block's keys.
    let size = COUNTED_TOGETHER.max(keys).max(vertices.div_ceil(4 * rayon::current_num_threads()));
    let mut places = vec![0; vertices];
    let mut counts = vec![0_u32; vertices.div_ceil(size) * keys];
    counts.par_chunks_mut(keys).enumerate().for_each(|(block, counts)| {
        for vertex in block * size..vertices.min(block * size + size) {
            counts[key(number(vertex))] += 1;
        }
    });
    let mut sum = 0;
    for key in 0..keys {
        // From here on `count` is the place of the block's next vertex with that key.
        for count in counts.iter_mut().skip(key).step_by(keys) {
            (sum, *count) = (sum + *count, sum);
        }
    }
    let blocks = places.par_chunks_mut(size).zip(counts.par_chunks_mut(keys));
    blocks.enumerate().for_each(|(block, (places, counts))| {
        for (at, place) in places.iter_mut().enumerate() {
            let next = &mut counts[key(number(block * size + at))];
            *place = *next;
            *next += 1;
        }
    });
    places
}

/// Makes the same graph with other numbers: vertex `v` becomes `numbers[v]`. The neighbors of each vertex are ascending
/// afterwards.
///
/// Both graphs are in memory meanwhile, and two numbers for each vertex.
///
/// # Errors
/// [`Error::Usage`] where `numbers` has not each number of a vertex once; [`Error::TooLarge`], [`Error::Array`].
pub fn renumber(
    graph: &Graph,
    numbers: &[Vertex],
    pages: GraphPages,
    progress: &Progress,
) -> Result<Graph> {
    let size = Size {
        vertices: graph.vertices() as u64,
        edges: graph.edges(),
        is_weighted: graph.is_weighted(),
    };
    let need = Need {
        size,
        rows: if graph.is_directed() { 2 } else { 1 },
        is_exact: true,
        made: 0,
        making: Bytes(size_of::<Vertex>() as u64),
        longest: all_degrees(graph).max().unwrap_or_default(),
        buffers: Bytes::ZERO,
        beside: [Beside::default(); 2],
    };
    need.check(&room())?;
    let old = inverse(numbers, graph.vertices())?;
    progress.begin(edge_ends(graph));
    let renumbered = |adjacency| {
        let rows = Rows { adjacency, numbers, progress };
        rows.renumbered(&old, pages)
    };
    let outgoing = renumbered(graph.outgoing())?;
    if !graph.is_directed() {
        return Ok(Graph::undirected(outgoing));
    }
    Graph::directed(outgoing, renumbered(graph.incoming())?).map_err(Error::Inconsistent)
}

/// The vertex that gets each number.
fn inverse(numbers: &[Vertex], vertices: usize) -> Result<Vec<Vertex>> {
    if numbers.len() != vertices {
        let what = format!("there are {} new numbers for {vertices} vertices", numbers.len());
        return Err(Error::Usage(what));
    }
    let mut old = vec![Vertex::MAX; vertices];
    let places = crate::atomic::shared(&mut old);
    let is_taken = |(vertex, place): (usize, &Vertex)| match places.get(*place as usize) {
        Some(place) => place.swap(number(vertex), Relaxed) != Vertex::MAX,
        None => true,
    };
    match numbers.par_iter().enumerate().find_any(|item| is_taken(*item)) {
        None => Ok(old),
        Some((vertex, new)) => {
            let what = format!(
                "{new} cannot be the new number of vertex {vertex}: each from 0 to {} is that of one vertex",
                vertices - 1
            );
            Err(Error::Usage(what))
        }
    }
}

/// Edges that one task copies. Chosen, not measured: as the builder sorts.
const COPIED: usize = 1 << 16;

/// Rows that get other numbers.
struct Rows<'a> {
    adjacency: &'a Adjacency,
    numbers: &'a [Vertex],
    progress: &'a Progress,
}

impl Rows<'_> {
    fn renumbered(&self, old: &[Vertex], pages: GraphPages) -> Result<Adjacency> {
        let offsets = self.offsets(old, pages.vertex)?;
        let edges = self.adjacency.all_neighbors().len();
        let mut neighbors = PageArray::<Vertex>::zeroed(edges, pages.edge)?;
        let mut weights = match self.adjacency.all_weights() {
            Some(_) => Some(PageArray::<Weight>::zeroed(edges, pages.values)?),
            None => None,
        };
        self.copy(old, &offsets, &mut neighbors, weights.as_deref_mut());
        Adjacency::new(offsets, neighbors, weights).map_err(Error::Inconsistent)
    }

    /// The offset of each vertex's first neighbor, by new numbers: a sum within each block, then over all.
    fn offsets(&self, old: &[Vertex], pages: Request) -> Result<PageArray<u64>> {
        let mut offsets = PageArray::<u64>::zeroed(old.len() + 1, pages)?;
        let ends = offsets.get_mut(1..).unwrap_or_default();
        let add_up = |(ends, old): (&mut [u64], &[Vertex])| {
            let mut sum = 0;
            for (end, vertex) in ends.iter_mut().zip(old) {
                sum += self.adjacency.degree(*vertex);
                *end = sum;
            }
            sum
        };
        let blocks = ends.par_chunks_mut(COUNTED_TOGETHER).zip(old.par_chunks(COUNTED_TOGETHER));
        let mut sums: Vec<u64> = blocks.map(add_up).collect();
        let mut before = 0;
        for sum in &mut sums {
            (before, *sum) = (before + *sum, before);
        }
        ends.par_chunks_mut(COUNTED_TOGETHER).zip(sums).for_each(|(ends, before)| {
            ends.iter_mut().for_each(|end| *end += before);
        });
        Ok(offsets)
    }

    /// Copies the neighbors of some vertices, those with neighboring new numbers, to rows that begin at `offsets`.
    fn copy(
        &self,
        old: &[Vertex],
        offsets: &[u64],
        neighbors: &mut [Vertex],
        weights: Option<&mut [Weight]>,
    ) {
        if old.len() > 1 && neighbors.len() > COPIED {
            let middle = old.len() / 2;
            let at = to_usize(offsets[middle] - offsets[0]);
            let (first, second) = neighbors.split_at_mut(at);
            let (of_first, of_second) = weights.map(|weights| weights.split_at_mut(at)).unzip();
            rayon::join(
                || self.copy(&old[..middle], &offsets[..=middle], first, of_first),
                || self.copy(&old[middle..], &offsets[middle..], second, of_second),
            );
            return;
        }
        let copied = neighbors.len() as u64;
        match weights {
            None => self.copy_rows(old, neighbors),
            Some(weights) => self.copy_weighted_rows(old, neighbors, weights),
        }
        self.progress.add(copied);
    }

    /// Copies rows one after the other.
    fn copy_rows(&self, old: &[Vertex], neighbors: &mut [Vertex]) {
        let mut rest = neighbors;
        for vertex in old {
            let from = self.adjacency.neighbors(*vertex);
            let (row, others) = std::mem::take(&mut rest).split_at_mut(from.len());
            for (neighbor, old) in row.iter_mut().zip(from) {
                *neighbor = self.numbers[*old as usize];
            }
            row.sort_unstable();
            rest = others;
        }
    }

    /// Copies rows with weights: each weight is sorted with its neighbor, as the lower half of one number.
    fn copy_weighted_rows(&self, old: &[Vertex], neighbors: &mut [Vertex], weights: &mut [Weight]) {
        let mut places = neighbors.iter_mut().zip(weights);
        let mut row = Vec::new();
        for vertex in old {
            let from =
                self.adjacency.neighbors(*vertex).iter().zip(self.adjacency.weights(*vertex));
            row.clear();
            row.extend(
                from.map(|(neighbor, weight)| join(self.numbers[*neighbor as usize], *weight)),
            );
            row.sort_unstable();
            for (pair, (neighbor, weight)) in row.iter().zip(&mut places) {
                (*neighbor, *weight) = split(*pair);
            }
        }
    }
}

/// A neighbor and a weight as one number, which sorts by the neighbor.
fn join(neighbor: Vertex, weight: Weight) -> u64 {
    u64::from(neighbor) << 32 | u64::from(weight)
}

/// The neighbor and the weight of a number that [`join`] made.
#[expect(clippy::cast_possible_truncation, reason = "each half is wanted alone")]
fn split(pair: u64) -> (Vertex, Weight) {
    ((pair >> 32) as Vertex, pair as Weight)
}

/// The shares of the accesses to a property array that fall on parts of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotShares {
    /// The share on the first part in memory order, as vertices are numbered.
    pub first: Share,
    /// The share on the hottest vertices, as many as the first part has: the most that an order can reach.
    pub hottest: Share,
}

/// The accesses that fall on a share of the vertices, where a kernel touches a vertex once for each of its edges: see
/// the head of this file. A share of a vertex counts as a whole one.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a share of the vertices")]
pub fn hottest_share(graph: &Graph, share: Share) -> HotShares {
    let vertices = graph.vertices();
    let count = vertices.min((vertices as f64 * share.get()).ceil() as usize);
    let all = (0..vertices).into_par_iter();
    let mut degrees: Vec<_> = all.map(|vertex| degree(graph, number(vertex))).collect();
    let of_all = |degrees: &[u64]| {
        let sum: u64 = degrees.par_iter().sum();
        Share::clamped(sum as f64 / edge_ends(graph).max(1) as f64)
    };
    let first = of_all(&degrees[..count]);
    if count < vertices {
        degrees.select_nth_unstable_by_key(count, |degree| Reverse(*degree));
    }
    HotShares { first, hottest: of_all(&degrees[..count]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn orders_are_read_and_written_alike() {
        for text in ["none", "dbg", "degree", "random", "random:7", "random:0"] {
            let order: Order = text.parse().expect("an order");
            assert_eq!(order.to_string(), text);
        }
        assert_eq!("random".parse(), Ok(Order::Random(SEED)));
        for text in ["", "DBG", "none ", "random:", "random:-1", "random:+1", "random:x", "dbg:7"] {
            let refusal = text.parse::<Order>().expect_err("no order").to_string();
            assert!(
                refusal.starts_with(&format!("{text:?} is no order of vertices: say none")),
                "{refusal}"
            );
        }
    }

    proptest! {
        #[test]
        fn places_are_those_of_a_stable_sort(keys in prop::collection::vec(0..9_usize, 0..300)) {
            let mut sorted: Vec<_> = (0..keys.len()).collect();
            sorted.sort_by_key(|vertex| keys[*vertex]);
            let found = places(keys.len(), 9, |vertex| keys[vertex as usize]);
            for (place, vertex) in sorted.into_iter().enumerate() {
                prop_assert_eq!(found[vertex] as usize, place);
            }
        }

        #[test]
        fn a_pair_comes_out_as_it_went_in(neighbor: u32, weight: u32) {
            prop_assert_eq!(split(join(neighbor, weight)), (neighbor, weight));
        }
    }

    proptest! {
        #[test]
        fn least_degrees_are_those_of_the_bins(mean in 0.0..5000.0_f64, degree in 0..200_000_u64) {
            let least = least_degrees(mean);
            let bin = |degree| least.iter().filter(|least| degree < **least).count();
            // The borders themselves, and what is next to them.
            let borders = least.iter().flat_map(|least| [least.saturating_sub(1), *least, least + 1]);
            for degree in borders.chain([0, degree]) {
                prop_assert_eq!(bin(degree), grouping::bin(degree as f64, mean));
            }
        }
    }

    #[test]
    fn places_go_over_many_blocks() {
        let vertices = 10 * COUNTED_TOGETHER + 5;
        let key = |vertex: Vertex| (vertex % 7) as usize;
        let found = places(vertices, 7, key);
        let mut sorted: Vec<_> = (0..number(vertices)).collect();
        sorted.sort_by_key(|vertex| key(*vertex));
        let is_right =
            |(place, vertex): (usize, &Vertex)| found[*vertex as usize] as usize == place;
        assert!(sorted.iter().enumerate().all(is_right));
    }
}
