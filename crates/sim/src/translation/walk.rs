//! Page walks: which page-table entries are read, where each is found, and what that costs.
//!
//! Page-table pages have no physical place here. A line of entries is named by the level and the
//! addresses it maps, which is as good as a place: two lines never have the same name. The model's
//! assumptions:
//! - four levels; the top table's place is always known (CR3);
//! - page-table lines are found in the share of the second and third level data caches that the
//!   geometry gives them, else in memory; program data competes only by being what the rest of
//!   those caches is for;
//! - a walk's reads depend on each other and are never overlapped;
//! - in a guest, data lies at guest-physical addresses in the order of their virtual ones, and
//!   page-table pages lie side by side, level by level. Entries that the page-walk caches hold of
//!   a guest's tables come with the host's address, as on Intel's processors; there is no TLB of
//!   its own for guest-physical addresses.
//!
//! What is deliberately absent: whether an address is mapped. The machine knows that.

use super::lines::{Line, LineCache, LineGeometry};
use super::tlb::{Found, Table, TlbGeometry};
use crate::units::Cycles;
use superpage_units::{BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, PageSize, VirtAddr};

/// Levels of a page table. Level 0 has the entries that map base pages, 1 those for huge pages,
/// 2 for gigantic pages; 3 is the top. So a page's entry is at the level [`PageSize::index`].
pub const LEVELS: usize = 4;
/// The top level.
const TOP: usize = LEVELS - 1;

/// Bits of an address within a base page.
const PAGE_BITS: u32 = BASE_PAGE_BYTES.trailing_zeros();
/// Bits of an address that choose an entry of one table.
const INDEX_BITS: u32 = BASE_PAGES_PER_HUGE_PAGE.trailing_zeros();
/// Bits of an entry's number within its 64-byte line: eight entries of eight bytes.
const LINE_BITS: u32 = 3;

/// A key is a number (of a page or an entry) with its kind above.
const KIND_SHIFT: u32 = 44;
/// Addresses have 48 bits; a number derived from more would run into the kind.
const ADDRESS_MASK: u64 = (1 << 48) - 1;

/// Guest-physical addresses of page tables: above all of the data's, each level in a part of its
/// own.
const GUEST_TABLES: u64 = 1 << 47;
const GUEST_LEVEL_SHIFT: u32 = 42;

/// The key of what has `number` and `kind`.
#[inline]
pub(super) const fn key(kind: usize, number: u64) -> u64 {
    (kind as u64) << KIND_SHIFT | number
}

/// The number of the entry at `level` that maps `address`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "levels are 0 to 3")]
pub(super) const fn entry(address: u64, level: usize) -> u64 {
    (address & ADDRESS_MASK) >> (PAGE_BITS + INDEX_BITS * level as u32)
}

/// What caches entries and page-table lines; what is `None` is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkGeometry {
    /// Entries that lead to tables of level 0: the cache of page-directory entries.
    pub pd_entries: Option<TlbGeometry>,
    /// Entries that lead to tables of level 1.
    pub pdpt_entries: Option<TlbGeometry>,
    /// Entries that lead to tables of level 2.
    pub pml4_entries: Option<TlbGeometry>,
    /// 64-byte page-table lines in the second-level data cache.
    pub near_lines: Option<LineGeometry>,
    /// 64-byte page-table lines in the last-level data cache.
    pub far_lines: Option<LineGeometry>,
}

/// What reading a page-table entry costs, by where it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLatencies {
    /// In the second-level data cache.
    pub near: Cycles,
    /// In the last-level data cache.
    pub far: Cycles,
    /// In memory.
    pub memory: Cycles,
}

/// Reads of page-table entries by level, the level of base pages' entries first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// How many.
    pub count: [u64; LEVELS],
    /// What they took.
    pub cycles: [Cycles; LEVELS],
}

/// Where page-table lines are found.
#[derive(Clone, Debug)]
struct Lines {
    near: Option<LineCache>,
    far: Option<LineCache>,
    latencies: ReadLatencies,
}

impl Lines {
    /// Reads an entry.
    #[inline]
    fn read(&mut self, line: Line) -> Cycles {
        if self.near.as_mut().is_some_and(|near| near.touch(line) == Found::Hit) {
            self.latencies.near
        } else if self.far.as_mut().is_some_and(|far| far.touch(line) == Found::Hit) {
            self.latencies.far
        } else {
            self.latencies.memory
        }
    }
}

/// Looks into a table that may not be there.
#[inline]
pub(super) fn touched(table: Option<&mut Table>, key: u64) -> Found {
    table.map_or(Found::Miss, |table| table.touch(key))
}

/// One set of page tables being walked: the only one, a guest's, or its host's.
#[derive(Clone, Debug)]
struct Side {
    /// Caches of the entries at level 1, 2 and 3.
    upper: [Option<Table>; TOP],
    reads: Reads,
    /// Keeps the lines of a host's tables apart from a guest's.
    kind: usize,
}

impl Side {
    fn new(geometry: &WalkGeometry, kind: usize) -> Self {
        let upper = [geometry.pd_entries, geometry.pdpt_entries, geometry.pml4_entries];
        Self { upper: upper.map(|shape| shape.map(Table::new)), reads: Reads::default(), kind }
    }

    /// The level of the lowest table on the way to `leaf` whose place is known. What is not known
    /// down to there will be when the walk is done, and is put in already.
    #[inline]
    fn lowest_known(&mut self, address: u64, leaf: usize) -> usize {
        for level in leaf..TOP {
            let key = key(level, entry(address, level + 1));
            if touched(self.upper[level].as_mut(), key) == Found::Hit {
                return level;
            }
        }
        TOP
    }

    /// Reads the entry at `level`.
    #[inline]
    fn read(&mut self, lines: &mut Lines, address: u64, level: usize) -> u64 {
        let number = entry(address, level) >> LINE_BITS;
        let cost = lines.read(Line { number, kind: self.kind + level });
        self.reads.count[level] += 1;
        self.reads.cycles[level] += cost;
        cost.0
    }

    /// A whole walk to the entry at level `leaf`.
    #[inline]
    fn walk(&mut self, lines: &mut Lines, address: u64, leaf: usize) -> u64 {
        let known = self.lowest_known(address, leaf);
        let mut cost = 0;
        for level in (leaf..=known).rev() {
            cost += self.read(lines, address, level);
        }
        cost
    }
}

/// What walks page tables.
#[derive(Clone, Debug)]
pub(super) struct Walker {
    /// The page tables of a program, in a guest or not.
    own: Side,
    /// The page tables of the guest's memory.
    host: Side,
    lines: Lines,
}

impl Walker {
    pub(super) fn new(geometry: &WalkGeometry, latencies: ReadLatencies) -> Self {
        let lines = Lines {
            near: geometry.near_lines.map(LineCache::new),
            far: geometry.far_lines.map(LineCache::new),
            latencies,
        };
        Self { own: Side::new(geometry, 0), host: Side::new(geometry, LEVELS), lines }
    }

    /// Walks to the page of `size` at `address`.
    #[inline]
    pub(super) fn walk(&mut self, address: VirtAddr, size: PageSize) -> Cycles {
        Cycles(self.own.walk(&mut self.lines, address.0, size.index()))
    }

    /// The same in a guest, whose memory its host maps by pages of `host` size.
    pub(super) fn walk_nested(
        &mut self,
        address: VirtAddr,
        guest: PageSize,
        host: PageSize,
    ) -> Cycles {
        let Self { own, host: outer, lines } = self;
        let (leaf, host_leaf) = (guest.index(), host.index());
        let known = own.lowest_known(address.0, leaf);
        let mut cost = 0;
        for level in (leaf..=known).rev() {
            // The page-walk caches give the host's address of the table that they lead to.
            if level < known || known == TOP {
                cost += outer.walk(lines, table_address(address.0, level), host_leaf);
            }
            cost += own.read(lines, address.0, level);
        }
        let data = address.0 & (GUEST_TABLES - 1);
        Cycles(cost + outer.walk(lines, data, host_leaf))
    }

    /// What has been read of the program's page tables, and of the host's for its guest.
    pub(super) const fn reads(&self) -> (Reads, Reads) {
        (self.own.reads, self.host.reads)
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.own.upper.iter().chain(&self.host.upper).flatten().for_each(Table::check);
        for lines in [&self.lines.near, &self.lines.far].into_iter().flatten() {
            lines.check();
        }
    }
}

/// The guest-physical address of the guest's table at `level` on the way to `address`.
const fn table_address(address: u64, level: usize) -> u64 {
    let number = if level == TOP { 0 } else { entry(address, level + 1) };
    GUEST_TABLES + ((level as u64) << GUEST_LEVEL_SHIFT) + number * BASE_PAGE_BYTES
}
