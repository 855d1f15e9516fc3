//! Free memory by order: what there is, by contiguity, and how fragmented it is.

use superpage_units::{BasePages, HugePages, PageSize, Share};

/// Orders of a buddy allocator that keeps free chunks from a base page up to a gigantic page.
pub const ORDERS: usize = 19; // PageSize::Gigantic.order() + 1; a test asserts

/// Free memory by the size of its chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeMemory {
    /// All memory that programs and caches can have.
    pub total: BasePages,
    /// Free chunks of each order, each counted once, in its largest chunk.
    pub chunks: [u64; ORDERS],
    /// Of those of [`PageSize::Gigantic`], how many are zero-filled already.
    pub zeroed_gigantic: u64,
    /// Of those of [`PageSize::Huge`], how many are zero-filled already.
    pub zeroed_huge: u64,
    /// Memory that holds pages of files, which can be dropped without writing.
    pub page_cache: BasePages,
}

impl FreeMemory {
    /// No memory at all.
    pub const NONE: Self = Self {
        total: BasePages::ZERO,
        chunks: [0; ORDERS],
        zeroed_gigantic: 0,
        zeroed_huge: 0,
        page_cache: BasePages::ZERO,
    };

    /// All free base pages.
    #[must_use]
    pub fn free(&self) -> BasePages {
        self.free_from(0)
    }

    /// The free base pages in chunks of at least this order.
    fn free_from(&self, order: usize) -> BasePages {
        let pages = |(order, count): (usize, &u64)| BasePages(*count << order);
        self.chunks.iter().enumerate().skip(order).map(pages).sum()
    }

    /// How many huge pages could be had at once.
    #[must_use]
    pub fn huge_pages(&self) -> HugePages {
        let order = PageSize::Huge.order();
        HugePages(self.free_from(usize::from(order)).0 >> order)
    }

    /// The free memory fragmentation index for pages of this size: the share of free memory that
    /// lies in smaller chunks.
    ///
    /// As in Trident (section 3) and Ingens, which take it from Gorman and Healy ("unusable free
    /// space index", ISMM 2008). Without free memory it is all: nothing can be had.
    #[must_use]
    pub fn fmfi(&self, size: PageSize) -> Share {
        let free = self.free();
        if free.is_zero() {
            return Share::ALL;
        }
        self.free_from(usize::from(size.order())).share_of(free).rest()
    }

    /// The share of all memory that is free.
    #[must_use]
    pub fn free_share(&self) -> Share {
        self.free().share_of(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragmentation_is_the_share_in_smaller_chunks() {
        assert_eq!(usize::from(PageSize::Gigantic.order()) + 1, ORDERS);
        let mut free_memory = FreeMemory { total: BasePages(10_000), ..FreeMemory::NONE };
        assert_eq!(free_memory.fmfi(PageSize::Base), Share::ALL);
        free_memory.chunks[0] = 512;
        free_memory.chunks[10] = 1;
        assert_eq!(free_memory.free(), BasePages(1536));
        assert_eq!(free_memory.huge_pages(), HugePages(2));
        assert_eq!(free_memory.fmfi(PageSize::Base), Share::NONE);
        assert!((free_memory.fmfi(PageSize::Huge).get() - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(free_memory.fmfi(PageSize::Gigantic), Share::ALL);
    }
}
