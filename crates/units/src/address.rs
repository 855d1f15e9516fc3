//! An address in virtual memory. Not what is mapped there.

use crate::size::{Bytes, HUGE_PAGE_BYTES};
use core::fmt;

/// An address in some process's virtual memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtAddr(pub u64);

impl VirtAddr {
    /// The address `offset` further up; saturates at the top.
    #[must_use]
    pub const fn offset(self, offset: Bytes) -> Self {
        Self(self.0.saturating_add(offset.0))
    }

    /// Rounded down to a huge-page border.
    #[must_use]
    pub const fn huge_page_floor(self) -> Self {
        Self(self.0 & !(HUGE_PAGE_BYTES - 1))
    }

    /// Rounded up to a huge-page border; saturates at the last one.
    #[must_use]
    pub const fn huge_page_ceil(self) -> Self {
        Self(self.0.saturating_add(HUGE_PAGE_BYTES - 1)).huge_page_floor()
    }

    /// Bytes from `other` up to this address; zero if `other` is above.
    #[must_use]
    pub const fn since(self, other: Self) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_to_huge_page_borders() {
        let border = VirtAddr(HUGE_PAGE_BYTES * 3);
        assert_eq!(border.huge_page_ceil(), border);
        assert_eq!(border.offset(Bytes(1)).huge_page_floor(), border);
        assert_eq!(border.offset(Bytes(1)).huge_page_ceil().since(border), Bytes(HUGE_PAGE_BYTES));
        assert_eq!(VirtAddr(u64::MAX).huge_page_ceil().0 % HUGE_PAGE_BYTES, 0);
    }
}
