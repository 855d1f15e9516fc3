//! The parts that kernels share: threads that go through the rounds of a kernel together, the queue of a frontier,
//! bitmaps, and checks of property arrays.
//!
//! A kernel has many short rounds, and starting a parallel iterator for each costs more than some of them take. So a kernel
//! is started once on each thread of rayon's current pool ([`together`]), and threads wait for each other between rounds at a
//! barrier that spins before it yields. All decisions follow from numbers that [`Worker::sum`] and [`Worker::least`] give to
//! every thread alike.

use crate::error::{Error, Result};
use crate::graph::{Graph, Vertex};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

/// The number that stands for "no vertex" and "not reached".
pub(crate) const NONE: u32 = u32::MAX;

/// Turns of a thread that waits at a barrier before it yields its processor. Chosen, not measured: some ten microseconds.
const SPINS: u32 = 2000;

/// Vertices that are filled at a time. Chosen, not measured: enough work for a task.
const FILLED: usize = 1 << 16;

/// Vertices that a queue's buffer collects before it writes them. Chosen, not measured: a page of them.
const BUFFERED: usize = 1024;

/// A value on cache lines of its own, apart from values that other threads write. Processors fetch lines in pairs.
#[repr(align(128))]
struct Line<T>(T);

/// A barrier at which threads wait for each other, with the values that they exchange.
struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    /// The number of times that all threads have arrived.
    round: Line<AtomicUsize>,
    /// The first item of the next block of the loop of this round.
    next: Line<AtomicUsize>,
    /// A thread has panicked, so that the others would wait for ever.
    is_broken: AtomicBool,
    /// The values that each thread tells the others, in two sets: a thread may write to one while others still read the
    /// other.
    values: [Vec<Line<[AtomicU64; 2]>>; 2],
}

impl Barrier {
    fn new(threads: usize) -> Self {
        let set = || (0..threads).map(|_| Line([AtomicU64::new(0), AtomicU64::new(0)])).collect();
        Self {
            threads,
            arrived: AtomicUsize::new(0),
            round: Line(AtomicUsize::new(0)),
            next: Line(AtomicUsize::new(0)),
            is_broken: AtomicBool::new(false),
            values: [set(), set()],
        }
    }
}

/// One of the threads that run a kernel together.
pub(crate) struct Worker<'a> {
    barrier: &'a Barrier,
    index: usize,
    /// The set of values that is written next.
    set: usize,
}

/// Runs `work` as [`on_each_thread`] does, and returns what all threads have found alike.
pub(crate) fn together<T: Send>(work: impl Fn(&mut Worker<'_>) -> T + Sync) -> T {
    on_each_thread(work).swap_remove(0)
}

/// Runs `work` once on each thread of rayon's current pool at the same time, and returns what each found.
///
/// `work` waits for the other threads, so it must not give rayon other work to do. Rayon hands the calls of several kernels
/// that share a pool to all of its threads in the same order, so two kernels never wait for each other.
fn on_each_thread<T: Send>(work: impl Fn(&mut Worker<'_>) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(rayon::current_num_threads());
    rayon::broadcast(|context| {
        work(&mut Worker { barrier: &barrier, index: context.index(), set: 0 })
    })
}

impl Worker<'_> {
    /// The number of this thread, from 0 on.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// A loop over `items` that all threads share: each takes the next block of `size` when it has done one. The loop
    /// does not wait; between two such loops must be a [`Worker::wait`].
    pub(crate) fn blocks(&self, items: usize, size: usize, mut work: impl FnMut(Range<usize>)) {
        loop {
            let begin = self.barrier.next.0.fetch_add(size, Relaxed);
            if begin >= items {
                return;
            }
            work(begin..items.min(begin + size));
        }
    }

    /// Waits until all threads wait. Afterwards, all threads read what any thread wrote before.
    pub(crate) fn wait(&mut self) {
        let barrier = self.barrier;
        let round = barrier.round.0.load(Relaxed);
        if barrier.arrived.fetch_add(1, AcqRel) + 1 == barrier.threads {
            barrier.arrived.store(0, Relaxed);
            barrier.next.0.store(0, Relaxed);
            barrier.round.0.store(round.wrapping_add(1), Release);
            return;
        }
        let mut spins = 0;
        while barrier.round.0.load(Acquire) == round {
            assert!(!barrier.is_broken.load(Relaxed), "another thread of this kernel panicked");
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Waits for all threads, and returns the sums of their values.
    pub(crate) fn sum(&mut self, own: [u64; 2]) -> [u64; 2] {
        self.reduce(own, |a, b| [a[0] + b[0], a[1] + b[1]])
    }

    /// Waits for all threads, and returns the sum of their values, added up in the order of the threads' numbers.
    pub(crate) fn sum_of_floats(&mut self, own: f64) -> f64 {
        let add =
            |a: [u64; 2], b: [u64; 2]| [(f64::from_bits(a[0]) + f64::from_bits(b[0])).to_bits(), 0];
        f64::from_bits(self.reduce([own.to_bits(), 0], add)[0])
    }

    /// Waits for all threads, and returns the least of their values.
    pub(crate) fn least(&mut self, own: u64) -> u64 {
        self.reduce([own, 0], |a, b| [a[0].min(b[0]), 0])[0]
    }

    fn reduce(
        &mut self,
        own: [u64; 2],
        combine: impl Fn([u64; 2], [u64; 2]) -> [u64; 2],
    ) -> [u64; 2] {
        let values = &self.barrier.values[self.set];
        self.set ^= 1;
        for (place, value) in values[self.index].0.iter().zip(own) {
            place.store(value, Relaxed);
        }
        self.wait();
        let all =
            values.iter().map(|Line([first, second])| [first.load(Relaxed), second.load(Relaxed)]);
        all.reduce(combine).unwrap_or(own)
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.barrier.is_broken.store(true, Relaxed);
        }
    }
}

/// Vertices in the order in which they were found. The vertices that one round found are a range of the queue.
pub(crate) struct Queue<'a> {
    places: &'a [AtomicU32],
    end: AtomicUsize,
}

impl<'a> Queue<'a> {
    /// A queue with room for as many vertices as there are `places`, the first `filled` of which hold one already.
    pub(crate) fn new(places: &'a mut [Vertex], filled: usize) -> Self {
        Self { places: crate::atomic::shared(places), end: AtomicUsize::new(filled) }
    }

    /// The vertices of a range.
    pub(crate) fn range(&self, range: Range<usize>) -> impl Iterator<Item = Vertex> {
        self.places[range].iter().map(|place| place.load(Relaxed))
    }

    /// A buffer in which one thread collects vertices for this queue.
    pub(crate) fn buffer(&'a self) -> Buffer<'a> {
        Buffer { queue: self, own: Vec::with_capacity(BUFFERED) }
    }
}

/// Vertices of one thread that are not in the queue yet.
pub(crate) struct Buffer<'a> {
    queue: &'a Queue<'a>,
    own: Vec<Vertex>,
}

impl Buffer<'_> {
    /// The vertices in the buffer.
    pub(crate) fn vertices(&self) -> &[Vertex] {
        &self.own
    }

    /// Whether the buffer has to be flushed before another vertex is added.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.own.len() == BUFFERED
    }

    /// Adds a vertex, and flushes the buffer before if it is full.
    #[inline]
    pub(crate) fn push(&mut self, vertex: Vertex) {
        if self.is_full() {
            self.flush();
        }
        self.own.push(vertex);
    }

    /// Writes all vertices of the buffer to the queue.
    #[inline(never)]
    pub(crate) fn flush(&mut self) {
        let begin = self.queue.end.fetch_add(self.own.len(), Relaxed);
        let places = &self.queue.places[begin..begin + self.own.len()];
        for (place, vertex) in places.iter().zip(self.own.drain(..)) {
            place.store(vertex, Relaxed);
        }
    }
}

/// One bit for each vertex.
pub(crate) struct Bitmap<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Bitmap<'a> {
    /// Vertices of one word.
    pub(crate) const WORD: usize = 64;

    /// A bitmap in `words`, of which there must be one for each 64 vertices.
    pub(crate) fn new(words: &'a mut [u64]) -> Self {
        Self { words: crate::atomic::shared_large(words) }
    }

    /// Whether a vertex's bit is set.
    #[inline]
    pub(crate) fn has(&self, vertex: Vertex) -> bool {
        let vertex = vertex as usize;
        (self.words[vertex / Self::WORD].load(Relaxed) >> (vertex % Self::WORD)) & 1 != 0
    }

    /// Sets a vertex's bit, while other threads set others.
    pub(crate) fn set(&self, vertex: Vertex) {
        let vertex = vertex as usize;
        self.words[vertex / Self::WORD].fetch_or(1 << (vertex % Self::WORD), Relaxed);
    }

    /// All words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.words
    }
}

/// Fails unless a property array has an entry for each vertex.
pub(crate) fn check_length(graph: &Graph, what: &str, length: usize) -> Result<()> {
    if length == graph.vertices() {
        return Ok(());
    }
    let what =
        format!("{what} has {length} entries, and the graph has {} vertices", graph.vertices());
    Err(Error::Usage(what))
}

/// Fails, in words, unless a result has an entry for each vertex.
pub(crate) fn verify_length(
    graph: &Graph,
    what: &str,
    length: usize,
) -> std::result::Result<(), String> {
    check_length(graph, what, length).map_err(|error| error.to_string())
}

/// Writes the same value to all entries of a property array.
pub(crate) fn fill<T: Copy + Send + Sync>(property: &mut [T], value: T) {
    property.par_chunks_mut(FILLED).for_each(|part| part.fill(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        pool.install(work)
    }

    #[test]
    fn all_threads_agree_on_sums_and_leasts_round_after_round() {
        for threads in [1, 2, 5] {
            let found = on_threads(threads, || {
                on_each_thread(|worker| {
                    let own = worker.index() as u64;
                    let mut found = Vec::new();
                    for round in 0..500 {
                        found.push(worker.sum([own + round, 1])[0]);
                        found.push(worker.least(own ^ round));
                        found.push(worker.sum_of_floats(own as f64).to_bits());
                    }
                    found
                })
            });
            let all = 0..threads as u64;
            let sum = all.clone().sum::<u64>();
            let of_round = |round: u64| {
                let least = all.clone().map(|own| own ^ round).min().unwrap_or_default();
                [sum + round * threads as u64, least, (sum as f64).to_bits()]
            };
            let expected: Vec<u64> = (0..500).flat_map(of_round).collect();
            assert_eq!(found, vec![expected; threads]);
        }
    }

    #[test]
    fn each_item_is_in_one_block_of_each_loop() {
        for (threads, items, size) in
            [(1, 10, 3), (2, 1000, 7), (4, 4096, 64), (3, 0, 5), (2, 5, 100)]
        {
            let counts: Vec<AtomicU32> = (0..items).map(|_| AtomicU32::new(0)).collect();
            on_threads(threads, || {
                on_each_thread(|worker| {
                    for _ in 0..50 {
                        worker.blocks(items, size, |block| {
                            assert!(block.len() <= size);
                            counts[block].iter().for_each(|count| {
                                count.fetch_add(1, Relaxed);
                            });
                        });
                        worker.wait();
                    }
                })
            });
            assert!(counts.iter().all(|count| count.load(Relaxed) == 50));
        }
    }

    #[test]
    fn a_panic_of_one_thread_is_one_of_all() {
        let run = || {
            on_threads(3, || {
                on_each_thread(|worker| {
                    assert!(worker.index() != 1, "on purpose");
                    worker.wait();
                })
            })
        };
        assert!(std::panic::catch_unwind(run).is_err());
    }

    #[test]
    fn kernels_that_share_a_pool_do_not_wait_for_each_other() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
        let rounds = || {
            on_each_thread(|worker| (0..200).map(|_| worker.sum([1, 0])[0]).sum::<u64>())
                .iter()
                .sum::<u64>()
        };
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| pool.install(|| rayon::join(rounds, rounds))))
                .collect();
            for caller in callers {
                assert_eq!(caller.join().expect("no panic"), (800, 800));
            }
        });
    }

    #[test]
    fn a_queue_holds_what_all_threads_put_into_it() {
        let mut places = vec![0; 10_000];
        let queue = Queue::new(&mut places, 0);
        on_threads(4, || {
            on_each_thread(|worker| {
                let mut buffer = queue.buffer();
                worker.blocks(10_000, 13, |block| {
                    block.for_each(|vertex| buffer.push(crate::graph::number(vertex)));
                });
                buffer.flush();
            })
        });
        let mut found: Vec<Vertex> = queue.range(0..10_000).collect();
        found.sort_unstable();
        assert!(found.into_iter().eq(0..10_000));
    }
}
