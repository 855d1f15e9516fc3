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
/// The pages that there may be in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolSizes {
    pub(super) huge: usize,
    pub(super) base: usize,
}

impl PoolSizes {
    /// The pools that this much memory has room for.
    pub(super) fn of(memory: Bytes) -> Self {
        let base = sys::to_usize(memory.0 / BASE_SHARE);
        let huge = sys::to_usize(memory.0).saturating_sub(base) / HUGE;
        Self { huge: huge.max(1), base: base / PAGE }
    }
}

/// The time between two looks at what is available, each of which takes some 10 us. While another program took 2 GiB as fast as it
/// could, up to 220 MiB less were available than asked, and with 250 ms 695 MiB (medians of three rounds).
const BETWEEN_LOOKS: Nanos = Nanos(25_000_000);

/// How much of the heap may be in memory.
#[derive(Debug)]
pub(super) struct Size {
    /// The bytes that may be in memory now.
    now: AtomicU64,
    /// The bytes that may be in memory while enough is available to others.
    most: AtomicU64,
    /// The memory that others are to find available; zero if it does not matter.
    keep_available: Bytes,
    /// When what is available was looked at last, on the monotonic clock.
    looked: AtomicU64,
}

impl Size {
    pub(super) const fn new(config: &Config) -> Self {
        let Config { memory, keep_available, .. } = *config;
        let (now, most) = (AtomicU64::new(memory.0), AtomicU64::new(memory.0));
        Self { now, most, keep_available, looked: AtomicU64::new(0) }
    }

    /// The pools that there is room for now.
    pub(super) fn pools(&self) -> PoolSizes {
        PoolSizes::of(Bytes(self.now.load(Relaxed)))
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
        fits.min(most).max(LEAST_MEMORY.min(most))
    }
}

/// How much of the heap may be in memory, after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resized {
    before: Bytes,
    now: Bytes,
    most: Bytes,
}

impl Size {
    /// Asserts that the memory is between the least and the most there may be.
    #[cfg(test)]
    fn check(&self) {
        let [now, most] = [&self.now, &self.most].map(|number| Bytes(number.load(Relaxed)));
        assert!(now <= most, "more than there may be");
        assert!(now >= LEAST_MEMORY.min(most), "less than the least");
    }

    /// Follows what is `wanted`, and what is `seen`: the memory that the heap has, and what is available.
    fn follow(&self, wanted: Bytes, seen: Option<(Bytes, Bytes)>) -> Resized {
        let (before, most) = (Bytes(self.now.load(Relaxed)), self.most.load(Relaxed));
        let is_new = wanted >= LEAST_MEMORY && wanted.0 != most;
        if is_new {
            self.most.store(wanted.0, Relaxed);
        }
        let most = Bytes(self.most.load(Relaxed));
        let mut now = if is_new { most } else { before };
        if let Some((there, available)) = seen {
            now = self.fitting(there, available);
        }
        if now != before {
            self.now.store(now.0, Relaxed);
        }
        Resized { before, now, most }
    }
}

impl Pager {
    /// Gives the pools the size that `superpage heap` wants, if that is another one, and that leaves enough available to
    /// others: those of the program and of each of its children. What is less than the least is not `superpage heap`'s.
    pub(super) fn take_size(&self) {
        let (heap, size) = (&self.counters.heap, &self.memory);
        // Zero stands for a machine that does not tell what is available.
        let seen = match size.is_look_due().then(room::available) {
            Some(available @ Bytes(1..)) => {
                Some((self.table.with(|table| table.there()), available))
            }
            _ => None,
        };
        let Resized { before, now, most } = size.follow(Bytes(heap.wanted.load(Relaxed)), seen);
        if now != before {
            self.table.with(|table| table.resize(size.pools()));
        }
        if self.whose == Whose::Programs {
            heap.memory.store(now.0, Relaxed);
            heap.most.store(most.0, Relaxed);
        }
        if now != before {
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
    use proptest::prelude::*;
    use superpage_launch::OpenFile;

    fn size(memory: Bytes, keep_available: Bytes) -> Size {
        let file = OpenFile { descriptor: 0, identity: (0, 0) };
        Size::new(&Config { file, size: memory, memory, keep_available })
    }

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
        let size = size(mib(1000), mib(200));
        let fits = |there, available| size.fitting(mib(there), mib(available));
        assert_eq!(fits(600, 5000), mib(1000), "there is enough");
        assert_eq!(fits(600, 500), mib(900), "it may grow");
        assert_eq!(fits(600, 150), mib(550), "it is to give some back");
        assert_eq!(fits(550, 200), mib(550), "once it has, it stays so");
        assert_eq!(fits(100, 0), LEAST_MEMORY);
    }

    #[test]
    fn there_is_always_some_of_each() {
        let least = PoolSizes::of(LEAST_MEMORY);
        assert!(least.huge >= 4 && least.base >= 64);
    }

    /// The least memory of a heap in KiB.
    const LEAST: i64 = 16 << 10;

    /// As [`Size`], in KiB below and above zero.
    #[derive(Debug)]
    struct Model {
        now: i64,
        most: i64,
        keep_available: i64,
    }

    impl Model {
        fn follow(&mut self, wanted: i64, seen: Option<(i64, i64)>) {
            if wanted >= LEAST && wanted != self.most {
                (self.now, self.most) = (wanted, wanted);
            }
            let Some((there, available)) = seen else { return };
            let fits = there + available - self.keep_available;
            let fits = if fits < LEAST { LEAST } else { fits };
            let fits = if fits > self.most { self.most } else { fits };
            self.now = fits;
        }
    }

    /// Memory in KiB, up to 256 MiB.
    fn kib() -> impl Strategy<Value = i64> {
        prop_oneof![0_i64..256 << 10, (0_i64..64).prop_map(|parts| parts << 12)]
    }

    fn bytes(kib: i64) -> Bytes {
        Bytes(u64::try_from(kib).expect("it is not below zero") << 10)
    }

    proptest! {
        #[test]
        fn the_memory_follows_what_is_wanted_and_what_is_available(
            (memory, keep_available) in (kib(), kib()),
            steps in prop::collection::vec((kib(), prop::option::of((kib(), kib()))), 1..40),
        ) {
            let memory = memory + LEAST;
            let size = size(bytes(memory), bytes(keep_available));
            let mut model = Model { now: memory, most: memory, keep_available };
            for (wanted, seen) in steps {
                let before = bytes(model.now);
                model.follow(wanted, seen);
                let seen = seen.map(|(there, available)| (bytes(there), bytes(available)));
                let (now, most) = (bytes(model.now), bytes(model.most));
                assert_eq!(size.follow(bytes(wanted), seen), Resized { before, now, most });
                size.check();
                assert_eq!(size.pools(), PoolSizes::of(now));
                assert_eq!(size.follow(bytes(model.most), None), Resized { before: now, now, most });
                let copied = size.copied().follow(Bytes::ZERO, None);
                assert_eq!(copied, Resized { before: now, now, most }, "a child has the same");
            }
        }

        #[test]
        fn pools_are_the_largest_that_fit_beside_the_share_for_base_pages(memory in 0_u64..16 << 30) {
            let pools = PoolSizes::of(Bytes(memory));
            let share = memory / 50;
            let fit = |huge: usize| (huge * HUGE) as u64 + share <= memory;
            let most = (1..).take_while(|huge| fit(*huge)).last().unwrap_or(1);
            let base = (1..).take_while(|base| (base * PAGE) as u64 <= share).last().unwrap_or(0);
            assert_eq!(pools, PoolSizes { huge: most, base });
        }
    }

    #[test]
    fn a_heap_that_has_less_than_the_least_keeps_what_it_has() {
        let size = size(Bytes::from_mib(8), Bytes(1));
        assert_eq!(size.fitting(Bytes::ZERO, Bytes::ZERO), Bytes::from_mib(8));
        size.check();
    }

    #[test]
    fn what_is_available_is_looked_at_by_one_and_not_again_at_once() {
        let all = size(Bytes::from_mib(100), Bytes(1));
        assert!(all.is_look_due() && !all.is_look_due());
        assert!(all.copied().is_look_due(), "a child has looked at nothing yet");
        assert!(!size(Bytes::from_mib(100), Bytes::ZERO).is_look_due());
    }
}
