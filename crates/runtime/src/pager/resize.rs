//! The sizes of the pools: `superpage heap` changes them while the program runs, and so does memory that others need. And what
//! is counted of what was kept.
//!
//! Nothing leaves memory here: a worker that finds more pages than there may be reclaims them ([`super::reclaim`]).

use super::table::Range;
use super::{Pager, WORKERS, Whose};
use crate::room;
use crate::sys::{self, HUGE, PAGE};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use superpage_launch::{Heap as Config, LEAST_MEMORY};
use superpage_units::{Bytes, Nanos};

/// The share of the memory that is for base pages, one in so many (section 3 of the paper: 98 % for huge pages).
const BASE_SHARE: u64 = 50;
/// The base pages that there may always be. Chosen, not measured.
const LEAST_BASE: usize = 64; // tidy: allow(not derived from a size)

/// The pages that there may be in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolSizes {
    pub(super) huge: usize,
    pub(super) base: usize,
}

impl PoolSizes {
    /// The pools that this much memory has room for.
    pub(super) fn of(memory: Bytes) -> Self {
        let base = sys::to_usize(memory.0 / BASE_SHARE).max(LEAST_BASE * PAGE);
        let huge = sys::to_usize(memory.0).saturating_sub(base) / HUGE;
        Self { huge: huge.max(1), base: base / PAGE }
    }
}

/// The time between two looks at what is available. Chosen, not measured.
const BETWEEN_LOOKS: Nanos = Nanos(250_000_000);
/// Changes that are too small to follow. Chosen, not measured: some huge pages.
const SMALL: Bytes = Bytes(8 << 20);

/// How much of the heap may be in memory.
#[derive(Debug)]
pub(super) struct Size {
    /// The bytes that may be in memory now.
    now: AtomicU64,
    /// The bytes that may be in memory while enough is available to others.
    most: AtomicU64,
    /// The part of it that is for compressed pages, and does not change.
    compressed: Bytes,
    /// The memory that others are to find available; zero if it does not matter.
    keep_available: Bytes,
    /// When what is available was looked at last, on the monotonic clock.
    looked: AtomicU64,
}

impl Size {
    pub(super) const fn new(config: &Config) -> Self {
        let Config { memory, compressed, keep_available, .. } = *config;
        let (now, most) = (AtomicU64::new(memory.0), AtomicU64::new(memory.0));
        Self { now, most, compressed, keep_available, looked: AtomicU64::new(0) }
    }

    /// The pools that there is room for now.
    pub(super) fn pools(&self) -> PoolSizes {
        PoolSizes::of(Bytes(self.now.load(Relaxed)).saturating_sub(self.compressed))
    }

    /// The least that may be in memory: compressed pages stay.
    fn least(&self) -> Bytes {
        LEAST_MEMORY + self.compressed
    }

    /// The same, for the child of a fork.
    pub(super) fn copied(&self) -> Self {
        let copied = |number: &AtomicU64| AtomicU64::new(number.load(Relaxed));
        Self {
            now: copied(&self.now),
            most: copied(&self.most),
            looked: AtomicU64::new(0),
            ..*self
        }
    }

    /// Whether what is available is to be looked at, which the caller does then.
    fn is_look_due(&self) -> bool {
        let (now, last) = (sys::now().0, self.looked.load(Relaxed));
        self.keep_available > Bytes::ZERO
            && now > last + BETWEEN_LOOKS.0
            && self.looked.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
    }

    /// The memory that the heap may take, of which it has `there`, while so much more is available.
    fn fitting(&self, there: Bytes, available: Bytes) -> Bytes {
        let most = Bytes(self.most.load(Relaxed));
        let fits = (there + available).saturating_sub(self.keep_available);
        fits.min(most).max(self.least().min(most))
    }
}

impl Pager {
    /// Gives the pools the size that `superpage heap` wants, if that is another one, and that leaves enough available to
    /// others: those of the program and of each of its children. What is less than the least is not `superpage heap`'s.
    pub(super) fn take_size(&self) {
        let (heap, size) = (&self.counters.heap, &self.memory);
        let (now, most) = (Bytes(size.now.load(Relaxed)), size.most.load(Relaxed));
        let wanted = Bytes(heap.wanted.load(Relaxed));
        let is_new = wanted >= size.least() && wanted.0 != most;
        if is_new {
            size.most.store(wanted.0, Relaxed);
        }
        let most = Bytes(size.most.load(Relaxed));
        let mut next = if is_new { most } else { now };
        // Zero stands for a machine that does not tell what is available.
        if size.is_look_due()
            && let available @ Bytes(1..) = room::available()
        {
            let there = self.table.with(|table| table.there()) + size.compressed;
            let fitting = size.fitting(there, available);
            let is_small = fitting.0.abs_diff(next.0) < SMALL.0 && fitting != most;
            next = if is_small { next } else { fitting };
        }
        if next != now {
            size.now.store(next.0, Relaxed);
            self.table.with(|table| table.resize(size.pools()));
        }
        if self.whose == Whose::Programs {
            heap.memory.store(next.0, Relaxed);
            heap.most.store(most.0, Relaxed);
        }
        if next != now {
            self.tell(WORKERS);
        }
    }

    /// Counts a fault that found its huge page in memory.
    pub(super) fn count_soft(&self, before: &Range) {
        self.counters.heap.soft_faults.fetch_add(1, Relaxed);
        self.counters.heap.ahead_used.fetch_add((!before.was_seen).into(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_launch::OpenFile;

    #[test]
    fn huge_pages_have_98_percent() {
        let pools = PoolSizes::of(Bytes::from_gib(10));
        let huge = pools.huge * HUGE;
        let base = pools.base * PAGE;
        assert!(huge + base <= 10 << 30 && huge + base > (10 << 30) - 2 * HUGE);
        assert!((0.979..0.981).contains(&(huge as f64 / (huge + base) as f64)));
    }

    #[test]
    fn others_find_memory_available() {
        let mib = Bytes::from_mib;
        let config = Config {
            file: OpenFile { descriptor: 0, identity: (0, 0) },
            size: mib(1000),
            memory: mib(1000),
            compressed: mib(0),
            keep_available: mib(200),
        };
        let size = Size::new(&config);
        let fits = |there, available| size.fitting(mib(there), mib(available));
        assert_eq!(fits(600, 5000), mib(1000), "there is enough");
        assert_eq!(fits(600, 500), mib(900), "it may grow");
        assert_eq!(fits(600, 150), mib(550), "it is to give some back");
        assert_eq!(fits(550, 200), mib(550), "once it has, it stays so");
        assert_eq!(fits(100, 0), LEAST_MEMORY);
    }

    #[test]
    fn there_is_always_some_of_each() {
        assert_eq!(PoolSizes::of(Bytes::ZERO), PoolSizes { huge: 1, base: 64 });
        let least = PoolSizes::of(LEAST_MEMORY);
        assert!(least.huge >= 4 && least.base >= 64);
    }
}
