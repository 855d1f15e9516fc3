//! Pages of the three sizes that x86-64 maps, and where they lie in virtual memory.
//!
//! A page here is a place, not a mapping: whether anything is mapped there is an observation.

use crate::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HUGE_PAGE_BYTES, PmdRange,
    VirtAddr,
};
use core::fmt;

/// Huge pages in a gigantic page: one full page-table page of the next level.
pub const HUGE_PAGES_PER_GIGANTIC_PAGE: u64 = BASE_PAGES_PER_HUGE_PAGE; // both: entries of a table
/// Bytes in a gigantic page (1 GiB).
pub const GIGANTIC_PAGE_BYTES: u64 = HUGE_PAGE_BYTES * HUGE_PAGES_PER_GIGANTIC_PAGE;

/// How large a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageSize {
    /// 4 KiB.
    Base,
    /// 2 MiB.
    Huge,
    /// 1 GiB.
    Gigantic,
}

impl PageSize {
    /// All sizes, smallest first.
    pub const ALL: [Self; 3] = [Self::Base, Self::Huge, Self::Gigantic];

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes(match self {
            Self::Base => BASE_PAGE_BYTES,
            Self::Huge => HUGE_PAGE_BYTES,
            Self::Gigantic => GIGANTIC_PAGE_BYTES,
        })
    }

    /// The base pages it covers.
    #[must_use]
    pub const fn base_pages(self) -> BasePages {
        BasePages(match self {
            Self::Base => 1,
            Self::Huge => BASE_PAGES_PER_HUGE_PAGE,
            Self::Gigantic => BASE_PAGES_PER_HUGE_PAGE * HUGE_PAGES_PER_GIGANTIC_PAGE,
        })
    }

    /// The power of two of base pages in it, which is its order in a buddy allocator.
    #[must_use]
    pub const fn order(self) -> u8 {
        match self {
            Self::Base => 0,
            Self::Huge => 9,
            Self::Gigantic => 18,
        }
    }

    /// 0, 1, 2: to index arrays that hold something for each size.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Base => 0,
            Self::Huge => 1,
            Self::Gigantic => 2,
        }
    }
}

/// `4 KiB`, `2 MiB`, `1 GiB`.
impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Base => "4 KiB",
            Self::Huge => "2 MiB",
            Self::Gigantic => "1 GiB",
        })
    }
}

/// An aligned range of virtual memory the size of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page {
    start: VirtAddr,
    size: PageSize,
}

impl Page {
    /// The page of this size that `address` lies in.
    #[must_use]
    pub const fn containing(address: VirtAddr, size: PageSize) -> Self {
        Self { start: VirtAddr(address.0 & !(size.bytes().0 - 1)), size }
    }

    /// Its first address.
    #[must_use]
    pub const fn start(self) -> VirtAddr {
        self.start
    }

    /// The first address after it; saturates at the top.
    #[must_use]
    pub const fn end(self) -> VirtAddr {
        self.start.offset(self.size.bytes())
    }

    /// How large it is.
    #[must_use]
    pub const fn size(self) -> PageSize {
        self.size
    }

    /// The ranges in it: 512 for a gigantic page, and the one it is or lies in for the others.
    pub fn ranges(self) -> impl Iterator<Item = PmdRange> {
        let count = match self.size {
            PageSize::Base | PageSize::Huge => 1,
            PageSize::Gigantic => HUGE_PAGES_PER_GIGANTIC_PAGE,
        };
        let start = self.start;
        (0..count).map(move |i| PmdRange::containing(start.offset(Bytes(i * HUGE_PAGE_BYTES))))
    }
}

impl From<PmdRange> for Page {
    fn from(range: PmdRange) -> Self {
        Self { start: range.start(), size: PageSize::Huge }
    }
}

/// Size and address: `2 MiB at 0x200000`.
impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.size, self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_orders_and_base_pages_agree() {
        for size in PageSize::ALL {
            assert_eq!(size.base_pages().bytes(), size.bytes());
            assert_eq!(1 << size.order(), size.base_pages().0);
        }
    }

    #[test]
    fn a_gigantic_page_holds_its_ranges() {
        let page = Page::containing(VirtAddr(5 * GIGANTIC_PAGE_BYTES + 12345), PageSize::Gigantic);
        assert_eq!(page.start(), VirtAddr(5 * GIGANTIC_PAGE_BYTES));
        assert_eq!(page.ranges().count(), 512);
        assert_eq!(page.ranges().last().map(PmdRange::end), Some(page.end()));
        let huge =
            Page::containing(page.start().offset(Bytes(HUGE_PAGE_BYTES + 1)), PageSize::Huge);
        assert_eq!(huge.ranges().map(Page::from).next(), Some(huge));
    }
}
