//! Breadth-first search: for each vertex that a source reaches, a parent on a path of the fewest edges.
//!
//! Direction-optimising (Beamer, Asanović and Patterson, "Direction-Optimizing Breadth-First Search", SC 2012), with its
//! parameters and, as GAP's reference (`bfs.cc`), with a queue for rounds top-down and bitmaps for rounds bottom-up:
//! - a round top-down goes from each vertex of the frontier to its neighbors, and reads and writes `parents` at random;
//! - a round bottom-up goes through `parents` in order, looks for a neighbor of each vertex that has no parent yet in the
//!   frontier's bitmap, and reads that bitmap at random: one bit for each vertex, a thirty-second of `parents`.
//!
//! There is no other record of visited vertices than `parents`. GAP's keeps the degree of each vertex there until it is
//! visited, to know how many edges lead out of the next frontier; here it comes from the vertex array when a vertex is
//! visited, so that all numbers of 32 bits but one are left for vertices.
//!
//! Which of several parents a vertex gets depends on the threads. The number of edges on the path to it does not.

use crate::atomic::shared;
use crate::error::Result;
use crate::graph::{Adjacency, Graph, Vertex};
use crate::kernel::support::{
    Bitmap, Buffer, NONE, Queue, Worker, check_length, fill, together, verify_length,
};
use crate::width::to_usize;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Rounds go bottom-up once the frontier has more than this part of the edges that are left (the paper's section 5.2, with
/// GAP's value).
const ALPHA: u64 = 15;
/// Rounds go top-down again once a frontier that became smaller is at most this part of the vertices (as above).
const BETA: u64 = 18;

/// Vertices of the frontier that a thread takes at a time. Chosen, not measured.
const TAKEN_DOWN: usize = 64;
/// Vertices that a thread takes at a time in rounds bottom-up: GAP's value, and whole words of a bitmap.
const TAKEN_UP: usize = 1024;
/// Words of a bitmap that a thread takes at a time. Chosen, not measured.
const TAKEN_WORDS: usize = 256;

/// The result of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bfs {
    /// The vertices that the source reaches, with itself.
    pub reached: u64,
    /// The edges on the path to the farthest of them.
    pub depth: u32,
    /// The rounds top-down.
    pub top_down: u32,
    /// The rounds bottom-up.
    pub bottom_up: u32,
}

impl Bfs {
    /// Counts the vertices that a round found.
    fn count(&mut self, found: u64) {
        self.reached += found;
        self.depth += u32::from(found > 0);
    }
}

/// Searches from `source`. `parents` becomes the parent of each vertex; the source is its own, and `u32::MAX` stands where
/// the source does not lead.
///
/// # Errors
/// [`Error::Usage`](crate::Error::Usage) if there is no such source, or `parents` has not one entry for each vertex.
pub fn run(graph: &Graph, source: Vertex, parents: &mut [Vertex]) -> Result<Bfs> {
    graph.check(source)?;
    check_length(graph, "parents", parents.len())?;
    fill(parents, NONE);
    parents[source as usize] = source;
    let mut places = vec![0; graph.vertices()];
    places[0] = source;
    let words = graph.vertices().div_ceil(Bitmap::WORD);
    let (mut first, mut second) = (vec![0; words], vec![0; words]);
    let search = Search {
        outgoing: graph.outgoing(),
        incoming: graph.incoming(),
        parents: shared(parents),
        queue: Queue::new(&mut places, 1),
        bitmaps: [Bitmap::new(&mut first), Bitmap::new(&mut second)],
    };
    Ok(together(|worker| search.rounds(worker, source)))
}

/// The state that all threads share.
struct Search<'a> {
    outgoing: &'a Adjacency,
    incoming: &'a Adjacency,
    parents: &'a [AtomicU32],
    queue: Queue<'a>,
    /// The bitmaps of the current and the next frontier, in bottom-up rounds.
    bitmaps: [Bitmap<'a>; 2],
}

impl Search<'_> {
    /// Runs all rounds. Each thread comes to the same decisions and results.
    fn rounds(&self, worker: &mut Worker<'_>, source: Vertex) -> Bfs {
        let mut found = Bfs { reached: 1, ..Bfs::default() };
        let mut buffer = self.queue.buffer();
        let mut edges_left = self.outgoing.edges();
        let mut edges_out = self.outgoing.degree(source);
        let mut frontier = 0..1;
        while !frontier.is_empty() {
            if edges_out > edges_left / ALPHA {
                frontier = self.rounds_bottom_up(worker, frontier, &mut buffer, &mut found);
                edges_out = 1;
            } else {
                edges_left = edges_left.saturating_sub(edges_out);
                let [new, edges] =
                    self.top_down(worker, frontier.clone(), edges_left / ALPHA, &mut buffer);
                found.top_down += 1;
                found.count(new);
                frontier = frontier.end..frontier.end + to_usize(new);
                edges_out = edges;
            }
        }
        found
    }

    /// Rounds bottom-up until the frontier is small. Takes the first frontier from the queue, and puts the last one there.
    fn rounds_bottom_up(
        &self,
        worker: &mut Worker<'_>,
        frontier: Range<usize>,
        buffer: &mut Buffer<'_>,
        found: &mut Bfs,
    ) -> Range<usize> {
        let [mut now, mut next] = self.bitmaps.each_ref();
        let mut awake = frontier.len() as u64;
        self.enter_bitmap(worker, frontier.clone(), now);
        loop {
            let before = awake;
            awake = self.bottom_up(worker, now, next);
            (now, next) = (next, now);
            found.bottom_up += 1;
            found.count(awake);
            if awake < before && awake <= self.parents.len() as u64 / BETA {
                self.leave_bitmap(worker, now, buffer);
                return frontier.end..frontier.end + to_usize(awake);
            }
        }
    }

    /// Visits the neighbors of the frontier. Returns how many vertices are new, and how many edges lead out of them; where
    /// these are more than `enough`, not all of them are counted.
    fn top_down(
        &self,
        worker: &mut Worker<'_>,
        frontier: Range<usize>,
        enough: u64,
        buffer: &mut Buffer<'_>,
    ) -> [u64; 2] {
        let (mut new, mut edges) = (0, 0);
        worker.blocks(frontier.len(), TAKEN_DOWN, |block| {
            for vertex in self.queue.range(frontier.start + block.start..frontier.start + block.end)
            {
                for neighbor in self.outgoing.neighbors(vertex) {
                    let parent = &self.parents[*neighbor as usize];
                    if parent.load(Relaxed) == NONE
                        && parent.compare_exchange(NONE, vertex, Relaxed, Relaxed).is_ok()
                    {
                        new += 1;
                        if buffer.is_full() {
                            self.flush(buffer, enough, &mut edges);
                        }
                        buffer.push(*neighbor);
                    }
                }
            }
        });
        self.flush(buffer, enough, &mut edges);
        worker.sum([new, edges])
    }

    /// Moves vertices to the queue, and counts the edges that lead out of them unless there are enough. To read many entries
    /// of the vertex array one after the other takes less time than each when its vertex is visited.
    fn flush(&self, buffer: &mut Buffer<'_>, enough: u64, edges: &mut u64) {
        if *edges <= enough {
            *edges +=
                buffer.vertices().iter().map(|vertex| self.outgoing.degree(*vertex)).sum::<u64>();
        }
        buffer.flush();
    }

    /// Gives each vertex that has no parent one of the frontier, if there is one. Returns how many are new.
    fn bottom_up(&self, worker: &mut Worker<'_>, frontier: &Bitmap<'_>, next: &Bitmap<'_>) -> u64 {
        let mut new = 0;
        worker.blocks(self.parents.len(), TAKEN_UP, |block| {
            let words = &next.words()[block.start / Bitmap::WORD..block.end.div_ceil(Bitmap::WORD)];
            for (word, begin) in words.iter().zip(block.clone().step_by(Bitmap::WORD)) {
                let bits =
                    self.bottom_up_word(begin..block.end.min(begin + Bitmap::WORD), frontier);
                word.store(bits, Relaxed);
                new += u64::from(bits.count_ones());
            }
        });
        worker.sum([new, 0])[0]
    }

    /// Searches the frontier for a parent of each vertex of one word; returns the bits of new vertices.
    fn bottom_up_word(&self, vertices: Range<usize>, frontier: &Bitmap<'_>) -> u64 {
        let neighbors = self.incoming.all_neighbors();
        let ends = self.incoming.offsets()[vertices.start..=vertices.end].windows(2);
        let mut bits = 0;
        for (bit, (parent, ends)) in self.parents[vertices].iter().zip(ends).enumerate() {
            if parent.load(Relaxed) != NONE {
                continue;
            }
            let mut neighbors = neighbors[to_usize(ends[0])..to_usize(ends[1])].iter();
            if let Some(found) = neighbors.find(|neighbor| frontier.has(**neighbor)) {
                parent.store(*found, Relaxed);
                bits |= 1 << bit;
            }
        }
        bits
    }

    /// Puts the frontier into a bitmap. Vertices of earlier frontiers may be in it still: each that they have an edge to has a
    /// parent, so nobody finds them there.
    fn enter_bitmap(&self, worker: &mut Worker<'_>, frontier: Range<usize>, bitmap: &Bitmap<'_>) {
        worker.blocks(frontier.len(), TAKEN_UP, |block| {
            for vertex in self.queue.range(frontier.start + block.start..frontier.start + block.end)
            {
                bitmap.set(vertex);
            }
        });
        worker.wait();
    }

    /// Puts the frontier of a bitmap into the queue.
    fn leave_bitmap(&self, worker: &mut Worker<'_>, bitmap: &Bitmap<'_>, buffer: &mut Buffer<'_>) {
        let words = bitmap.words();
        worker.blocks(words.len(), TAKEN_WORDS, |block| {
            for (word, begin) in words[block.clone()]
                .iter()
                .zip((block.start * Bitmap::WORD..).step_by(Bitmap::WORD))
            {
                let mut bits = word.load(Relaxed);
                while bits != 0 {
                    buffer.push(crate::graph::number(begin + bits.trailing_zeros() as usize));
                    bits &= bits - 1;
                }
            }
        });
        buffer.flush();
        worker.wait();
    }
}

/// Checks what [`run`] made of `parents`, by a serial search that knows one direction only: the same vertices are reached,
/// and the parent of each is the beginning of an edge to it, one edge nearer to the source.
///
/// # Errors
/// The first wrong vertex or score, in words.
pub fn verify(
    graph: &Graph,
    source: Vertex,
    parents: &[Vertex],
) -> std::result::Result<(), String> {
    graph.check(source).map_err(|error| error.to_string())?;
    verify_length(graph, "parents", parents.len())?;
    let depths = depths(graph, source);
    for ((parent, depth), vertex) in parents.iter().zip(&depths).zip(0..) {
        if vertex == source {
            if *parent != source {
                return Err(format!("the parent of the source {source} is {parent}"));
            }
            continue;
        }
        if (*parent == NONE) != (*depth == NONE) {
            let reached = if *depth == NONE { "not reached" } else { "reached" };
            return Err(format!("vertex {vertex} is {reached}, and its parent is {parent}"));
        }
        if *depth == NONE {
            continue;
        }
        if !graph.incoming().neighbors(vertex).contains(parent) {
            return Err(format!(
                "no edge leads from {parent}, the parent of vertex {vertex}, to it"
            ));
        }
        if depths[*parent as usize].checked_add(1) != Some(*depth) {
            let of_parent = depths[*parent as usize];
            return Err(format!(
                "vertex {vertex} has depth {depth}, and its parent {parent} has {of_parent}"
            ));
        }
    }
    Ok(())
}

/// The number of edges from the source to each vertex.
fn depths(graph: &Graph, source: Vertex) -> Vec<u32> {
    let mut depths = vec![NONE; graph.vertices()];
    depths[source as usize] = 0;
    let mut frontier = vec![source];
    for depth in 1.. {
        let mut next = Vec::new();
        for vertex in &frontier {
            for neighbor in graph.outgoing().neighbors(*vertex) {
                if depths[*neighbor as usize] == NONE {
                    depths[*neighbor as usize] = depth;
                    next.push(*neighbor);
                }
            }
        }
        if next.is_empty() {
            break;
        }
        frontier = next;
    }
    depths
}
