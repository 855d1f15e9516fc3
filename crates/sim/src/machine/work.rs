//! Work that the machine did, counted. What it costs in time is priced elsewhere.

use crate::physical::compact::Compacted;
use std::ops::AddAssign;
use superpage_policy::promotion::Batching;
use superpage_units::{BasePages, PageSize};

/// What was done for one fault or one action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Faults taken, by the size of the page that served them.
    pub faults: [u64; 3],
    /// Superpages put together from what was mapped by smaller pages.
    pub promotions: u64,
    /// Superpages mapped by smaller pages from now on.
    pub splits: u64,
    /// Base pages freed one by one.
    pub freed: BasePages,
    /// Base pages zeroed.
    pub zeroed: BasePages,
    /// Base pages copied to build superpages or to move them out of the way.
    pub copied: BasePages,
    /// Base pages scanned: page-table entries and frames.
    pub scanned: BasePages,
    /// What compaction did for it.
    pub compacted: Compacted,
    /// Page-table entries written.
    pub entries: u64,
    /// CPUs that were told to forget translations, each time.
    pub shootdowns: u64,
    /// Pages of a guest whose backing was exchanged.
    pub exchanged: u64,
    /// Hypercalls for that.
    pub hypercalls: u64,
    /// Base pages read whole to look for data in them.
    pub examined: BasePages,
    /// Reads from the backing store, and their base pages.
    pub reads: Transfers,
    /// Writes to the backing store, and their base pages.
    pub writes: Transfers,
    /// File pages dropped to make room.
    pub dropped: BasePages,
}

impl Work {
    /// Counts huge pages of a guest whose backing is exchanged for that of others. One hypercall names up to 512 pages, as many as a
    /// chunk of 1 GiB has (Trident, section 6).
    pub(super) fn exchange(&mut self, huge: u64, batching: Batching) {
        const NAMED: u64 = PageSize::Gigantic.base_pages().0 / PageSize::Huge.base_pages().0;
        self.exchanged += huge;
        self.hypercalls += match batching {
            Batching::Whole => huge.div_ceil(NAMED),
            Batching::Single => huge,
        };
    }

    /// Has the backing of the huge pages that compaction moved exchanged instead of copying them, as Trident-pv does (Trident,
    /// section 6). Base pages are copied.
    pub(super) fn exchange_compacted(&mut self, batching: Batching) {
        let base_pages = |huge| PageSize::Huge.base_pages() * huge;
        let huge = std::mem::take(&mut self.compacted.huge);
        self.compacted.copied -= base_pages(huge);
        self.compacted.futile -= base_pages(std::mem::take(&mut self.compacted.futile_huge));
        self.exchange(huge, batching);
    }
}

/// Transfers between memory and a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// How many requests.
    pub requests: u64,
    /// How many base pages they moved.
    pub pages: BasePages,
}

impl Transfers {
    /// One request for so many base pages.
    #[must_use]
    pub const fn one(pages: BasePages) -> Self {
        Self { requests: 1, pages }
    }
}

impl AddAssign for Transfers {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.pages += other.pages;
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        for (mine, others) in self.faults.iter_mut().zip(other.faults) {
            *mine += others;
        }
        self.promotions += other.promotions;
        self.splits += other.splits;
        self.freed += other.freed;
        self.zeroed += other.zeroed;
        self.copied += other.copied;
        self.scanned += other.scanned;
        self.compacted.add(other.compacted);
        self.entries += other.entries;
        self.shootdowns += other.shootdowns;
        self.exchanged += other.exchanged;
        self.hypercalls += other.hypercalls;
        self.examined += other.examined;
        self.reads += other.reads;
        self.writes += other.writes;
        self.dropped += other.dropped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compaction_moved_is_exchanged_in_calls_of_512_pages_and_base_pages_are_copied() {
        for (batching, hypercalls) in [(Batching::Whole, 2), (Batching::Single, 600)] {
            let copied = BasePages(600 * 512 + 7);
            let futile = BasePages(10 * 512 + 3);
            let compacted =
                Compacted { copied, futile, huge: 600, futile_huge: 10, ..Compacted::default() };
            let mut work = Work { compacted, ..Work::default() };
            work.exchange_compacted(batching);
            assert_eq!((work.exchanged, work.hypercalls), (600, hypercalls));
            let (copied, futile) = (work.compacted.copied, work.compacted.futile);
            assert_eq!((copied, futile), (BasePages(7), BasePages(3)));
        }
    }
}
