//! A range: an aligned range of virtual memory the size of a huge page. Not what is in it.

use crate::{BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, Bytes, HUGE_PAGE_BYTES, VirtAddr};
use core::fmt;

/// An aligned 2 MiB range of one process's virtual memory.
///
/// Only its address is kept; whether a huge page is mapped there is an observation that can go
/// stale, so it is not part of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PmdRange {
    start: VirtAddr,
}

impl PmdRange {
    /// The one at the bottom of the address space.
    pub const FIRST: Self = Self::containing(VirtAddr(0));
    /// The one at its top.
    pub const LAST: Self = Self::containing(VirtAddr(u64::MAX));

    /// The range that starts at `start`, if `start` is aligned and the range fits below the top.
    #[must_use]
    pub const fn new(start: VirtAddr) -> Option<Self> {
        if start.0.is_multiple_of(HUGE_PAGE_BYTES) && start.0 <= u64::MAX - HUGE_PAGE_BYTES {
            Some(Self { start })
        } else {
            None
        }
    }

    /// The range that `address` lies in.
    #[must_use]
    pub const fn containing(address: VirtAddr) -> Self {
        let start = address.huge_page_floor();
        let last = VirtAddr(u64::MAX - HUGE_PAGE_BYTES).huge_page_floor();
        Self { start: if start.0 > last.0 { last } else { start } }
    }

    /// All whole ranges between two addresses.
    pub fn within(start: VirtAddr, end: VirtAddr) -> impl Iterator<Item = Self> {
        let first = start.huge_page_ceil().0;
        let last = end.huge_page_floor().0;
        (0..last.saturating_sub(first) / HUGE_PAGE_BYTES)
            .filter_map(move |i| Self::new(VirtAddr(first + i * HUGE_PAGE_BYTES)))
    }

    /// Its first address.
    #[must_use]
    pub const fn start(self) -> VirtAddr {
        self.start
    }

    /// The first address after it.
    #[must_use]
    pub const fn end(self) -> VirtAddr {
        VirtAddr(self.start.0 + HUGE_PAGE_BYTES)
    }

    /// The address of base page `index` (0 to 511; larger indices wrap around).
    #[must_use]
    pub const fn base_page(self, index: u16) -> VirtAddr {
        self.start.offset(Bytes(index as u64 % BASE_PAGES_PER_HUGE_PAGE * BASE_PAGE_BYTES))
    }
}

impl fmt::Display for PmdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.start.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn only_aligned_starts_make_a_range() {
        assert!(PmdRange::new(VirtAddr(HUGE_PAGE_BYTES)).is_some());
        assert!(PmdRange::new(VirtAddr(HUGE_PAGE_BYTES + 1)).is_none());
        assert!(PmdRange::new(VirtAddr(u64::MAX).huge_page_floor()).is_none());
    }

    #[test]
    fn within_leaves_out_partial_ranges() {
        let start = VirtAddr(HUGE_PAGE_BYTES - 1);
        let end = VirtAddr(HUGE_PAGE_BYTES * 3 + 1);
        let found: Vec<_> = PmdRange::within(start, end).map(PmdRange::start).collect();
        assert_eq!(found, [VirtAddr(HUGE_PAGE_BYTES), VirtAddr(HUGE_PAGE_BYTES * 2)]);
        assert_eq!(PmdRange::within(end, start).count(), 0);
    }
}
