//! Address translation: TLBs of two levels, page-walk caches and page walks, also of a guest.
//!
//! A [`Translator`] belongs to one hardware thread. It is told of every access and the size of the
//! page that maps the address, and says how many cycles the translation takes. Whether the address
//! is mapped, and by what, the machine knows.
//!
//! Nothing is invalidated. Translations are looked up by page size, so one that was replaced by
//! another size is not found any more, and takes up an entry until others push it out. One of the
//! same size, moved by compaction or mapped anew, is found where a processor would have walked once.
//!
//! The first level has tables of its own for each page size. The second has one for base and huge
//! pages together and one for gigantic pages; a processor may lack either, and then looking there is
//! a miss. Both levels take in what a walk finds.

mod lines;
mod tlb;
mod walk;

pub use lines::{LINE_WAYS, LineGeometry};
pub use tlb::{GeometryError, MOST_ENTRIES, MOST_WAYS, TlbGeometry};
pub use walk::{LEVELS, ReadLatencies, Reads, WalkGeometry};

use crate::units::Cycles;
use superpage_units::{PageSize, VirtAddr};
use tlb::{Found, Table};
use walk::{Walker, entry, key, touched};

/// The number of page sizes.
const SIZES: usize = PageSize::ALL.len();

/// The tables of a processor; what is `None` is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// First level, by [`PageSize::index`].
    pub first: [Option<TlbGeometry>; SIZES],
    /// Second level, base and huge pages.
    pub second_shared: Option<TlbGeometry>,
    /// Second level, gigantic pages.
    pub second_gigantic: Option<TlbGeometry>,
    /// What makes walks shorter.
    pub walk: WalkGeometry,
}

/// What a translation costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// A miss of the first level that hits in the second.
    pub second_level_hit: Cycles,
    /// Each page-table entry read in a walk.
    pub read: ReadLatencies,
}

/// What has happened. Arrays are by [`PageSize::index`]; in a guest, by the smaller of the two
/// sizes, which is what a TLB entry can map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Accesses.
    pub accesses: [u64; SIZES],
    /// Accesses that the first level did not know.
    pub first_misses: [u64; SIZES],
    /// Accesses that the second level did not know either: walks.
    pub second_misses: [u64; SIZES],
    /// Entries read in walks of the program's page tables.
    pub reads: Reads,
    /// Entries read in walks of the host's page tables, for a guest.
    pub host_reads: Reads,
    /// Cycles spent on hits in the second level.
    pub second_level_cycles: Cycles,
}

impl Stats {
    /// Cycles spent on walks.
    #[must_use]
    pub fn walk_cycles(&self) -> Cycles {
        self.reads.cycles.into_iter().chain(self.host_reads.cycles).sum()
    }

    /// Cycles spent on translation.
    #[must_use]
    pub fn total(&self) -> Cycles {
        self.walk_cycles() + self.second_level_cycles
    }

    /// Accesses that the first level did not know.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.first_misses.iter().sum()
    }

    /// Walks.
    #[must_use]
    pub fn walks(&self) -> u64 {
        self.second_misses.iter().sum()
    }
}

/// Where a translation came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The first level of the TLBs.
    FirstLevel,
    /// The second level.
    SecondLevel,
    /// A page walk.
    PageTables,
}

/// The translation of one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The cycles that it adds to the access.
    pub cycles: Cycles,
    /// Where it came from.
    pub source: Source,
}

/// The translation hardware of one hardware thread.
#[derive(Clone, Debug)]
pub struct Translator {
    first: [Option<Table>; SIZES],
    second_shared: Option<Table>,
    second_gigantic: Option<Table>,
    walker: Walker,
    second_level_hit: Cycles,
    stats: Stats,
}

impl Translator {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(geometry: &Geometry, latencies: &Latencies) -> Self {
        Self {
            first: geometry.first.map(|shape| shape.map(Table::new)),
            second_shared: geometry.second_shared.map(Table::new),
            second_gigantic: geometry.second_gigantic.map(Table::new),
            walker: Walker::new(&geometry.walk, latencies.read),
            second_level_hit: latencies.second_level_hit,
            stats: Stats::default(),
        }
    }

    /// An access to `address`, which a page of `size` maps: the cycles its translation adds.
    #[inline]
    pub fn access(&mut self, address: VirtAddr, size: PageSize) -> Cycles {
        self.translate(address, size, None).cycles
    }

    /// An access to `address`, which a page of `size` maps; in a guest to its physical memory, which
    /// the host maps by pages of `host` size.
    #[inline]
    pub fn translate(
        &mut self,
        address: VirtAddr,
        size: PageSize,
        host: Option<PageSize>,
    ) -> Translation {
        let source = self.look_up(address, host.map_or(size, |host| size.min(host)));
        let cycles = match (source, host) {
            (Source::FirstLevel, _) => Cycles::ZERO,
            (Source::SecondLevel, _) => self.second_level_hit,
            (Source::PageTables, None) => self.walker.walk(address, size),
            (Source::PageTables, Some(host)) => self.walker.walk_nested(address, size, host),
        };
        Translation { cycles, source }
    }

    /// Looks into both levels; what is not there is put in.
    #[inline]
    fn look_up(&mut self, address: VirtAddr, size: PageSize) -> Source {
        let index = size.index();
        let key = key(index, entry(address.0, index));
        self.stats.accesses[index] += 1;
        if touched(self.first[index].as_mut(), key) == Found::Hit {
            return Source::FirstLevel;
        }
        self.stats.first_misses[index] += 1;
        if touched(self.second(size), key) == Found::Hit {
            self.stats.second_level_cycles += self.second_level_hit;
            return Source::SecondLevel;
        }
        self.stats.second_misses[index] += 1;
        Source::PageTables
    }

    /// The second-level table for pages of `size`.
    #[inline]
    const fn second(&mut self, size: PageSize) -> Option<&mut Table> {
        match size {
            PageSize::Base | PageSize::Huge => self.second_shared.as_mut(),
            PageSize::Gigantic => self.second_gigantic.as_mut(),
        }
    }

    /// All tables of translations.
    #[cfg(test)]
    fn tables(&mut self) -> impl Iterator<Item = &mut Table> {
        let second = [&mut self.second_shared, &mut self.second_gigantic];
        self.first.iter_mut().chain(second).flatten()
    }

    /// What has happened since the start.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        let (reads, host_reads) = self.walker.reads();
        Stats { reads, host_reads, ..self.stats }
    }

    /// Asserts what always holds.
    #[cfg(test)]
    fn check(&mut self) {
        self.tables().for_each(|table| table.check());
        self.walker.check();
        let stats = self.stats();
        for size in PageSize::ALL.map(PageSize::index) {
            assert!(stats.accesses[size] >= stats.first_misses[size]);
            assert!(stats.first_misses[size] >= stats.second_misses[size]);
        }
        assert!(stats.walks() <= stats.reads.count.iter().sum());
    }
}

#[cfg(test)]
mod tests;
