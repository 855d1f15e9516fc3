//! The sizes of the pools, which `superpage heap` changes while the program runs, and what is counted of what was kept.
//!
//! Nothing leaves memory here: a worker that finds more pages than there may be reclaims them ([`super::reclaim`]).

use super::table::Range;
use super::{Pager, WORKERS, Whose};
use crate::sys::{self, HUGE, PAGE};
use core::sync::atomic::Ordering::Relaxed;
use superpage_launch::LEAST_MEMORY;
use superpage_units::Bytes;

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

impl Pager {
    /// Gives the pools the size that `superpage heap` wants, if that is another one: those of the program and of each of its
    /// children. What is less than the least is not `superpage heap`'s.
    pub(super) fn take_size(&self) {
        let heap = &self.counters.heap;
        let wanted = Bytes(heap.wanted.load(Relaxed));
        if wanted < LEAST_MEMORY || wanted.0 == self.memory.load(Relaxed) {
            return;
        }
        self.table.with(|table| table.resize(PoolSizes::of(wanted)));
        self.memory.store(wanted.0, Relaxed);
        if self.whose == Whose::Programs {
            heap.memory.store(wanted.0, Relaxed);
        }
        self.tell(WORKERS);
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

    #[test]
    fn huge_pages_have_98_percent() {
        let pools = PoolSizes::of(Bytes::from_gib(10));
        let huge = pools.huge * HUGE;
        let base = pools.base * PAGE;
        assert!(huge + base <= 10 << 30 && huge + base > (10 << 30) - 2 * HUGE);
        assert!((0.979..0.981).contains(&(huge as f64 / (huge + base) as f64)));
    }

    #[test]
    fn there_is_always_some_of_each() {
        assert_eq!(PoolSizes::of(Bytes::ZERO), PoolSizes { huge: 1, base: 64 });
        let least = PoolSizes::of(LEAST_MEMORY);
        assert!(least.huge >= 4 && least.base >= 64);
    }
}
