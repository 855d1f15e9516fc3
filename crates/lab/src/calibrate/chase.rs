//! How long a load takes that waits for the one before: latencies of caches, memory and walks.
//!
//! Places in memory are linked in one random ring, so no prefetcher guesses the next and no two
//! loads overlap. What the places have in common (the page size, how many pages, how many bytes)
//! decides what each load has to wait for.

use crate::width::to_usize;
use crate::workload::rng::Rng;
use std::hint::black_box;
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::usage::CpuTime;
use superpage_kernel::{Error, Result};
use superpage_units::{BASE_PAGE_BYTES, Bytes};

/// Loads in a timed run. Chosen: a tenth of a second when each goes to memory.
const LOADS: u64 = 1 << 20;
/// Timed runs; the fastest counts, because everything else on the machine can only add time.
const RUNS: usize = 3;
/// Bytes of a link.
const LINK: usize = size_of::<u64>();
/// Bytes that a data cache fetches at once.
const LINE: u64 = 64;

/// Places that are linked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// On which pages.
    pub(super) pages: Wish,
    /// How many.
    pub(super) count: u64,
    /// From one to the next, a multiple of 64 bytes.
    pub(super) step: Bytes,
}

impl Places {
    /// One in each line of `size`.
    pub(super) fn lines(size: Bytes, pages: Wish) -> Self {
        Self { pages, count: size.0 / LINE, step: Bytes(LINE) }
    }

    /// One in each of so many base pages, each in another line of its page, so that they do not
    /// all want the same place in a cache.
    pub(super) fn base_pages(count: u64, pages: Wish) -> Self {
        Self { pages, count, step: Bytes(BASE_PAGE_BYTES + LINE) }
    }

    /// The nanoseconds of a load from one of them to the next.
    pub(super) fn latency(self) -> Result<f64> {
        let bytes = Bytes(self.count * self.step.0);
        let size = bytes.0.div_ceil(superpage_units::HUGE_PAGE_BYTES);
        let mut memory = OwnMemory::map(superpage_units::HugePages(size), self.pages)?;
        link(memory.bytes_mut(), self);
        let bytes = memory.bytes();
        let mut at = follow(bytes, 0, self.count.min(LOADS))?;
        let mut fastest = f64::INFINITY;
        for _ in 0..RUNS {
            let start = CpuTime::of_thread();
            at = follow(bytes, at, LOADS)?;
            let took = CpuTime::of_thread().since(start);
            fastest = fastest.min(took.0 as f64 / LOADS as f64);
        }
        black_box(at);
        Ok(fastest)
    }
}

/// Writes into each place where the next one is: one ring through all, in random order.
fn link(bytes: &mut [u8], places: Places) {
    let mut order: Vec<u64> = (0..places.count).collect();
    let mut rng = Rng::new(1);
    for i in (1..places.count).rev() {
        order.swap(to_usize(i), to_usize(rng.below(i + 1)));
    }
    let offset = |place: u64| to_usize(place * places.step.0);
    for (i, place) in order.iter().enumerate() {
        let next = order[(i + 1) % order.len()] * places.step.0;
        bytes[offset(*place)..offset(*place) + LINK].copy_from_slice(&next.to_ne_bytes());
    }
}

/// Follows the ring from `at` for so many loads.
fn follow(bytes: &[u8], mut at: usize, loads: u64) -> Result<usize> {
    for _ in 0..loads {
        let Some(link) = bytes.get(at..).and_then(|rest| rest.first_chunk::<LINK>()) else {
            return Err(Error::from_errno(rustix::io::Errno::FAULT, "follow our own links"));
        };
        at = to_usize(u64::from_ne_bytes(*link));
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_passes_every_place() {
        let places = Places::lines(Bytes::from_kib(64), Wish::BasePages);
        let mut bytes = vec![0; 64 << 10];
        link(&mut bytes, places);
        let mut seen = std::collections::BTreeSet::new();
        let mut at = 0;
        for _ in 0..places.count {
            assert!(seen.insert(at));
            at = follow(&bytes, at, 1).expect("within");
        }
        assert_eq!((at, seen.len() as u64), (0, places.count));
        assert!(follow(&bytes[..64], 4096, 1).is_err());
    }

    #[test]
    fn a_cache_is_faster_than_memory() {
        let small = Places::lines(Bytes::from_kib(16), Wish::BasePages).latency().expect("runs");
        let large = Places::lines(Bytes::from_mib(128), Wish::BasePages).latency().expect("runs");
        assert!(small > 0.0 && small < large, "{small} {large}");
    }
}
