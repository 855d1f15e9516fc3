//! Which pages memory of this process is really on: what the kernel says (PAGEMAP_SCAN, PROCMAP_QUERY), never what was asked.

use crate::error::Result;
use crate::memory::{BEYOND, LAST, Span};
use crate::width::to_usize;
use std::fmt;
use superpage_kernel::pagemap::Pagemap;
use superpage_kernel::process::Process;
use superpage_kernel::procmap_query::OwnMaps;
use superpage_units::{BASE_PAGE_BYTES, Bytes, GIGANTIC_PAGE_BYTES, VirtAddr};

/// The pages that a part of memory is on. Their sum is that part, whole base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// On base pages, and on sizes between them and huge pages.
    pub base: Bytes,
    /// On huge pages (2 MiB).
    pub huge: Bytes,
    /// On gigantic pages (1 GiB).
    pub gigantic: Bytes,
    /// Swapped out.
    pub swapped: Bytes,
    /// Without memory: never touched, or only read, which maps the shared page of zeroes.
    pub absent: Bytes,
}

impl Placement {
    /// The pages that all elements are on, whole base pages.
    ///
    /// # Errors
    /// [`Error::Unknown`](crate::Error::Unknown): the kernel is older than 6.11, or `/proc` is not there.
    pub fn of<T>(elements: &[T]) -> Result<Self> {
        Self::at(elements.as_ptr().expose_provenance(), size_of_val(elements))
    }

    /// As [`Placement::of`], of any addresses of this process. Nothing there is read.
    ///
    /// # Errors
    /// As [`Placement::of`]; [`Error::Memory`](crate::Error::Memory) if they go beyond the last address.
    pub fn at(address: usize, length: usize) -> Result<Self> {
        let end = address.checked_add(length).filter(|end| *end <= LAST).ok_or(BEYOND)?;
        let page = to_usize(BASE_PAGE_BYTES);
        let start = address / page * page;
        let length = if length == 0 { 0 } else { end.next_multiple_of(page) - start };
        of_span(Span { start, length })
    }

    /// The sum of all sizes.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.base + self.huge + self.gigantic + self.swapped + self.absent
    }
}

impl std::ops::Add for Placement {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            base: self.base + other.base,
            huge: self.huge + other.huge,
            gigantic: self.gigantic + other.gigantic,
            swapped: self.swapped + other.swapped,
            absent: self.absent + other.absent,
        }
    }
}

impl std::iter::Sum for Placement {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), std::ops::Add::add)
    }
}

/// For example `2.0 MiB huge, 14.0 MiB base`.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.gigantic, "gigantic"),
            (self.huge, "huge"),
            (self.base, "base"),
            (self.swapped, "swapped out"),
            (self.absent, "not there"),
        ];
        let mut separator = "";
        for (size, name) in parts.into_iter().filter(|(size, _)| !size.is_zero()) {
            write!(f, "{separator}{size} {name}")?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

/// The pages that a span is on.
pub(crate) fn of_span(span: Span) -> Result<Placement> {
    let mut placement = Placement::default();
    if span.length == 0 {
        return Ok(placement);
    }
    let (pagemap, maps) = (Pagemap::open(&Process::current()?)?, OwnMaps::open()?);
    let (mut at, end) = (VirtAddr(span.start as u64), VirtAddr(span.end() as u64));
    while at < end {
        let vma = maps.vma_from(at)?.filter(|vma| vma.start < end);
        // Addresses above the last VMA have no memory.
        let Some(vma) = vma else {
            placement.absent += end.since(at);
            break;
        };
        placement.absent += vma.start.since(at);
        let (from, until) = (at.max(vma.start), vma.end.min(end));
        let found = pagemap.mapped(from, until)?;
        let large = match vma.page_size {
            Bytes(GIGANTIC_PAGE_BYTES) => &mut placement.gigantic,
            _ => &mut placement.huge,
        };
        *large += found.huge;
        placement.base += found.base;
        placement.swapped += found.swapped;
        let there = found.huge + found.base + found.swapped;
        placement.absent += until.since(from).saturating_sub(there);
        at = until;
    }
    Ok(placement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_in_words() {
        let some = Placement {
            huge: Bytes::from_mib(2),
            base: Bytes::from_kib(4),
            ..Placement::default()
        };
        assert_eq!(some.to_string(), "2.0 MiB huge, 4.0 KiB base");
        assert_eq!(Placement::default().to_string(), "nothing");
        assert_eq!(some + Placement::default(), some);
        assert_eq!([some, some].into_iter().sum::<Placement>().total(), Bytes::from_kib(4104));
    }

    #[test]
    fn nothing_is_on_no_pages() {
        assert_eq!(Placement::of::<u64>(&[]), Ok(Placement::default()));
    }
}
