//! Shortest paths from one source to all vertices, over edges with weights.
//!
//! Delta-stepping (Meyer and Sanders, "Δ-stepping: a parallelizable shortest path algorithm", Journal of Algorithms 49,
//! 2003) with bucket fusion (Zhang et al., "Optimizing Ordered Graph Algorithms with GraphIt", CGO 2020), as GAP's reference
//! (`sssp.cc`). Vertices are in buckets by their distance, each `delta` wide. In each round all threads relax the edges of
//! the vertices in the first bucket that has any. A vertex whose distance shrinks goes into a bucket of the thread that found
//! it, and stays in the buckets that it was in before, where its distance tells that it is done. A thread goes on at once with
//! what it put into the current bucket itself, as long as that is little.
//!
//! Deviations: threads hand over their part of a bucket as a list, where GAP's copies it into an array with as many entries
//! as there are edges. And each thread has 65,536 buckets and one list of what lies beyond, where GAP's has as many
//! as the largest distance asks for, so that `delta` may be small and weights large.
//!
//! Distances are the same on any number of threads. A path as long as `u32::MAX` or longer is none: sums saturate, and the
//! vertex counts as not reached.

use crate::atomic::shared;
use crate::error::{Error, Result};
use crate::graph::{Graph, Vertex, Weight};
use crate::kernel::support::{NONE, Worker, check_length, fill, together, verify_length};
use crate::width::to_usize;
use rayon::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{PoisonError, RwLock};

/// Buckets of each thread. Chosen, not measured: 1.5 MiB of empty lists at the most.
const BUCKETS: usize = 1 << 16;
/// A thread goes on with its own part of the current bucket while that has fewer vertices than this (GAP's value).
const FUSED: usize = 1000;
/// Vertices of the current bucket that a thread takes at a time (GAP's value).
const TAKEN: usize = 64;
/// Vertices that are counted at a time. Chosen, not measured: enough work for a task.
const COUNTED: usize = 1 << 16;

/// The result of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sssp {
    /// The vertices that the source reaches, with itself.
    pub reached: u64,
    /// The number of times that all threads took a bucket together; it depends on how the threads ran.
    pub rounds: u64,
}

/// Finds the distances from `source`. `distances` becomes the distance of each vertex; `u32::MAX` stands where the source
/// does not lead.
///
/// # Errors
/// [`Error::NoWeights`]; [`Error::Usage`] if there is no such source, `delta` is 0, or `distances` has not one entry for each
/// vertex.
pub fn run(graph: &Graph, source: Vertex, delta: Weight, distances: &mut [u32]) -> Result<Sssp> {
    let weights = graph.outgoing().all_weights().ok_or(Error::NoWeights { what: "sssp" })?;
    graph.check(source)?;
    check_length(graph, "distances", distances.len())?;
    if delta == 0 {
        return Err(Error::Usage("delta is 0, and a bucket must be wider".to_owned()));
    }
    fill(distances, NONE);
    distances[source as usize] = 0;
    let slots = (0..rayon::current_num_threads()).map(|_| Slot::default()).collect();
    let search = Search {
        offsets: graph.outgoing().offsets(),
        neighbors: graph.outgoing().all_neighbors(),
        weights,
        delta,
        distances: shared(distances),
        slots,
    };
    let rounds = together(|worker| search.rounds(worker, source));
    let count = |part: &[u32]| part.iter().filter(|distance| **distance != NONE).count() as u64;
    Ok(Sssp { reached: distances.par_chunks(COUNTED).map(count).sum(), rounds })
}

/// The state that all threads share.
struct Search<'a> {
    offsets: &'a [u64],
    neighbors: &'a [Vertex],
    weights: &'a [Weight],
    delta: Weight,
    distances: &'a [AtomicU32],
    slots: Vec<Slot>,
}

/// A thread's part of the current bucket, for all threads to take from. The lock is never waited for: the thread writes to
/// the list between two barriers, and all read it between others.
#[derive(Default)]
#[repr(align(128))]
struct Slot {
    vertices: RwLock<Vec<Vertex>>,
    taken: AtomicUsize,
}

impl Search<'_> {
    /// Runs all rounds, and returns their number.
    fn rounds(&self, worker: &mut Worker<'_>, source: Vertex) -> u64 {
        let mut buckets = Buckets::default();
        if worker.index() == 0 {
            buckets.put(source, 0);
        }
        let (mut current, mut rounds) = (0, 0);
        loop {
            let Some(next) = self.agree(worker, &mut buckets, current) else {
                return rounds;
            };
            current = next;
            rounds += 1;
            self.hand_over(worker, &mut buckets, current);
            self.relax_shared(worker, &mut buckets, current);
            self.relax_own(&mut buckets, current);
        }
    }

    /// The first bucket from `current` on that has vertices on any thread.
    fn agree(&self, worker: &mut Worker<'_>, buckets: &mut Buckets, current: u32) -> Option<u32> {
        let near = worker.least(buckets.next(current));
        if near != Buckets::END {
            return u32::try_from(near).ok();
        }
        let far = worker.least(buckets.next_far(self.distances, self.delta));
        let first = u32::try_from(far).ok()?;
        buckets.move_to(first, self.distances, self.delta);
        Some(first)
    }

    /// Gives all threads each thread's part of a bucket.
    fn hand_over(&self, worker: &mut Worker<'_>, buckets: &mut Buckets, current: u32) {
        let slot = &self.slots[worker.index()];
        let mut vertices = slot.vertices.write().unwrap_or_else(PoisonError::into_inner);
        vertices.clear();
        buckets.take(current, &mut vertices);
        slot.taken.store(0, Relaxed);
        drop(vertices);
        worker.wait();
    }

    /// Relaxes the edges of the vertices that all threads handed over, this thread's own first.
    fn relax_shared(&self, worker: &Worker<'_>, buckets: &mut Buckets, current: u32) {
        let (before, from_own) = self.slots.split_at(worker.index());
        for slot in from_own.iter().chain(before) {
            let vertices = slot.vertices.read().unwrap_or_else(PoisonError::into_inner);
            loop {
                let begin = slot.taken.fetch_add(TAKEN, Relaxed);
                if begin >= vertices.len() {
                    break;
                }
                for vertex in &vertices[begin..vertices.len().min(begin + TAKEN)] {
                    self.relax(*vertex, buckets, current);
                }
            }
        }
    }

    /// Relaxes the edges of the vertices that this thread put into the current bucket meanwhile, while they are few.
    fn relax_own(&self, buckets: &mut Buckets, current: u32) {
        let mut vertices = Vec::new();
        while (1..FUSED).contains(&buckets.length(current)) {
            buckets.take(current, &mut vertices);
            for vertex in vertices.drain(..) {
                self.relax(vertex, buckets, current);
            }
        }
    }

    /// Relaxes the edges of a vertex, unless it was in an earlier bucket since.
    #[inline]
    fn relax(&self, vertex: Vertex, buckets: &mut Buckets, current: u32) {
        let distance = self.distances[vertex as usize].load(Relaxed);
        // The bucket has a vertex as far as that, so the product is no larger than a distance.
        if distance < self.delta * current {
            return;
        }
        let range = self.range(vertex);
        for (neighbor, weight) in self.neighbors[range.clone()].iter().zip(&self.weights[range]) {
            let shorter = distance.saturating_add(*weight);
            let known = &self.distances[*neighbor as usize];
            if shorter < known.load(Relaxed) && shorter < known.fetch_min(shorter, Relaxed) {
                buckets.put(*neighbor, shorter / self.delta);
            }
        }
    }

    fn range(&self, vertex: Vertex) -> Range<usize> {
        let ends = &self.offsets[vertex as usize..][..2];
        to_usize(ends[0])..to_usize(ends[1])
    }
}

/// A thread's buckets.
#[derive(Default)]
struct Buckets {
    /// The number of the first of `near`.
    first: u32,
    near: Vec<Vec<Vertex>>,
    /// Vertices that are farther than [`BUCKETS`] buckets from the first.
    far: Vec<Vertex>,
}

impl Buckets {
    /// The number that stands for no bucket.
    const END: u64 = u64::MAX;

    /// Puts a vertex into a bucket, which is none before the current one.
    #[inline]
    fn put(&mut self, vertex: Vertex, bucket: u32) {
        let at = bucket.wrapping_sub(self.first) as usize;
        match self.near.get_mut(at) {
            Some(vertices) => vertices.push(vertex),
            None => self.put_beyond(vertex, at),
        }
    }

    #[cold]
    fn put_beyond(&mut self, vertex: Vertex, at: usize) {
        if at >= BUCKETS {
            self.far.push(vertex);
            return;
        }
        self.near.resize_with(at + 1, Vec::new);
        self.near[at].push(vertex);
    }

    /// The vertices in a bucket.
    fn length(&self, bucket: u32) -> usize {
        self.near.get((bucket - self.first) as usize).map_or(0, Vec::len)
    }

    /// Exchanges the vertices of a bucket for those of an empty list.
    fn take(&mut self, bucket: u32, empty: &mut Vec<Vertex>) {
        if let Some(vertices) = self.near.get_mut((bucket - self.first) as usize) {
            std::mem::swap(vertices, empty);
        }
    }

    /// The first bucket from `current` on that has vertices, of those that are near.
    fn next(&self, current: u32) -> u64 {
        let mut buckets =
            (u64::from(self.first)..).zip(&self.near).skip((current - self.first) as usize);
        buckets.find(|(_, vertices)| !vertices.is_empty()).map_or(Self::END, |(bucket, _)| bucket)
    }

    /// The first bucket of what is far, where all that is near is done.
    fn next_far(&mut self, distances: &[AtomicU32], delta: Weight) -> u64 {
        let bucket = |vertex: &Vertex| distances[*vertex as usize].load(Relaxed) / delta;
        let end = u64::from(self.first) + BUCKETS as u64;
        // A vertex that was found to be near since is done as well.
        self.far.retain(|vertex| u64::from(bucket(vertex)) >= end);
        self.far.iter().map(|vertex| u64::from(bucket(vertex))).min().unwrap_or(Self::END)
    }

    /// Moves what is near to begin at another bucket, where all that was near is done.
    fn move_to(&mut self, first: u32, distances: &[AtomicU32], delta: Weight) {
        self.first = first;
        for vertex in std::mem::take(&mut self.far) {
            self.put(vertex, distances[vertex as usize].load(Relaxed) / delta);
        }
    }
}

/// Checks what [`run`] made of `distances`, by a serial search in the order of distances (Dijkstra).
///
/// # Errors
/// The first wrong vertex or score, in words.
pub fn verify(graph: &Graph, source: Vertex, distances: &[u32]) -> std::result::Result<(), String> {
    graph.check(source).map_err(|error| error.to_string())?;
    verify_length(graph, "distances", distances.len())?;
    if !graph.is_weighted() {
        return Err("the graph has no weights".to_owned());
    }
    let expected = dijkstra(graph, source);
    for ((found, expected), vertex) in distances.iter().zip(&expected).zip(0_u32..) {
        let expected = u32::try_from(*expected).unwrap_or(NONE);
        if *found != expected {
            return Err(format!(
                "vertex {vertex} has distance {found}, and should have {expected}"
            ));
        }
    }
    Ok(())
}

/// The distance of each vertex; `u64::MAX` where the source does not lead.
fn dijkstra(graph: &Graph, source: Vertex) -> Vec<u64> {
    let mut distances = vec![u64::MAX; graph.vertices()];
    distances[source as usize] = 0;
    let mut next = BinaryHeap::from([Reverse((0, source))]);
    while let Some(Reverse((distance, vertex))) = next.pop() {
        if distance > distances[vertex as usize] {
            continue;
        }
        let edges = graph.outgoing();
        for (neighbor, weight) in edges.neighbors(vertex).iter().zip(edges.weights(vertex)) {
            let shorter = distance + u64::from(*weight);
            if shorter < distances[*neighbor as usize] {
                distances[*neighbor as usize] = shorter;
                next.push(Reverse((shorter, *neighbor)));
            }
        }
    }
    distances
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_give_back_in_order_what_was_put_into_them() {
        let delta = 3;
        let ends = [0, 2, 5, 700, 3 * 65_535, 3 * 65_536, 4_000_000, 2_000_000_000, u32::MAX - 1];
        let mut distances = ends;
        let distances = shared(&mut distances);
        let mut buckets = Buckets::default();
        for (vertex, distance) in (0..9).zip(ends).rev() {
            buckets.put(vertex, distance / delta);
        }
        let mut found = Vec::new();
        let mut current = 0;
        loop {
            let mut next = buckets.next(current);
            if next == Buckets::END {
                next = buckets.next_far(distances, delta);
                let Ok(first) = u32::try_from(next) else { break };
                buckets.move_to(first, distances, delta);
            }
            current = u32::try_from(next).expect("a bucket");
            let mut vertices = Vec::new();
            buckets.take(current, &mut vertices);
            vertices.sort_unstable();
            found.extend(vertices.into_iter().map(|vertex| (current, vertex)));
        }
        let expected: Vec<_> = ends.iter().map(|distance| distance / delta).zip(0_u32..).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_vertex_that_came_near_is_not_far_any_more() {
        let mut distances = [500_000, 900_000];
        let distances = shared(&mut distances);
        let mut buckets = Buckets::default();
        buckets.put(0, 500_000);
        buckets.put(1, 900_000);
        distances[0].store(7, Relaxed);
        assert_eq!(buckets.next(0), Buckets::END);
        assert_eq!(buckets.next_far(distances, 1), 900_000);
        assert_eq!(buckets.far, [1]);
    }
}
