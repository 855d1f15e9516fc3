//! The page tables of the process: [`superpage_uapi::pagemap`] of a [`Span`].

use super::{Errno, PAGE, Result, Span, to_usize};
use superpage_uapi::file::File;
use superpage_uapi::pagemap::{self, Categories, Filter, Region, Walk};
use superpage_units::VirtAddr;

/// Pages that are in memory.
pub(crate) const PRESENT: u64 = Categories::PRESENT.bits();
/// Pages that are swapped out.
pub(crate) const SWAPPED: u64 = Categories::SWAPPED.bits();
/// Pages that map the kernel's page of zeroes.
pub(crate) const ZERO: u64 = Categories::ZERO.bits();
/// Base pages of huge pages.
pub(crate) const HUGE_PAGE: u64 = Categories::HUGE.bits();

/// A run of pages of the same kinds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found(Region);

impl Found {
    /// The place of the run.
    pub(crate) const fn span(&self) -> Span {
        span(self.0.start(), self.0.end())
    }

    /// Whether its pages are of all these kinds.
    pub(crate) const fn is(&self, kinds: u64) -> bool {
        self.0.categories().contains(Categories::from_bits_retain(kinds))
    }
}

/// Runs of pages that are told at a time: a page of a thread's stack.
const RUNS: usize = PAGE / size_of::<Region>();

/// The page tables of the process. Kept open where a later open could be refused: the program may give up rights.
#[derive(Debug)]
pub(crate) struct Pagemap(File);

impl Pagemap {
    /// Opens it.
    pub(crate) fn open() -> Result<Self> {
        File::open(c"/proc/thread-self/pagemap").map(Self).map_err(errno)
    }

    /// Tells the pages of a span that are of any of these kinds, in address order.
    ///
    /// # Errors
    /// What the kernel says where it cannot tell.
    pub(crate) fn scan(&self, span: Span, kinds: u64, mut tell: impl FnMut(&Found)) -> Result<()> {
        let (start, end) = ends(span);
        let mut regions = [Region::EMPTY; RUNS];
        let mut walk = Walk::new(&self.0, start, any_of(kinds), &mut regions);
        while walk.at() < end {
            walk.step(end).map_err(errno)?.iter().for_each(|region| tell(&Found(*region)));
        }
        Ok(())
    }

    /// Whether nothing is mapped in a span, and nothing of it is swapped out.
    ///
    /// # Errors
    /// As of [`Pagemap::scan`].
    pub(crate) fn is_empty(&self, span: Span) -> Result<bool> {
        let (start, end) = ends(span);
        let found = pagemap::first(&self.0, start, end, any_of(PRESENT | SWAPPED));
        found.map(|found| found.is_none()).map_err(errno)
    }
}

/// The filter for pages of any of these kinds.
fn any_of(kinds: u64) -> Filter {
    let report = Categories::PRESENT | Categories::SWAPPED | Categories::ZERO | Categories::HUGE;
    Filter { any: Categories::from_bits_retain(kinds), report, ..Filter::default() }
}

const fn ends(span: Span) -> (VirtAddr, VirtAddr) {
    (VirtAddr(span.start as u64), VirtAddr(span.end() as u64))
}

pub(super) const fn span(start: VirtAddr, end: VirtAddr) -> Span {
    Span { start: to_usize(start.0), length: to_usize(end.since(start).0) }
}

/// The error that the kernel's readers tell, as system calls of this crate have it.
pub(super) fn errno(errno: superpage_uapi::Errno) -> Errno {
    Errno::new(errno.raw_os_error())
}
