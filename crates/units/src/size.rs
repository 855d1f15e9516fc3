//! Sizes: bytes, base pages and huge pages. 4096 and 512 are written here once.

use crate::count::count;
use core::fmt;

/// Bytes in a base page on the architectures we run on (x86-64, and arm64 with 4 KiB granules).
pub const BASE_PAGE_BYTES: u64 = 4096;
/// Base pages in a huge page: one full page-table page.
pub const BASE_PAGES_PER_HUGE_PAGE: u64 = 512;
/// Bytes in a huge page (2 MiB).
pub const HUGE_PAGE_BYTES: u64 = BASE_PAGE_BYTES * BASE_PAGES_PER_HUGE_PAGE;

count! {
    /// A size in bytes.
    Bytes
}
count! {
    /// A number of base pages (4 KiB each).
    BasePages
}
count! {
    /// A number of huge pages (2 MiB each).
    HugePages
}
impl Bytes {
    /// `kib` KiB.
    #[must_use]
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1 << 10))
    }

    /// `mib` MiB.
    #[must_use]
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }

    /// `gib` GiB.
    #[must_use]
    pub const fn from_gib(gib: u64) -> Self {
        Self(gib.saturating_mul(1 << 30))
    }

    /// The base pages needed to hold this many bytes, rounded up.
    #[must_use]
    pub const fn to_base_pages(self) -> BasePages {
        BasePages(self.0.div_ceil(BASE_PAGE_BYTES))
    }

    /// The whole huge pages in this many bytes, rounded down.
    #[must_use]
    pub const fn to_huge_pages(self) -> HugePages {
        HugePages(self.0 / HUGE_PAGE_BYTES)
    }

    /// So many times the size, rounded to the nearest byte.
    #[must_use]
    pub fn scaled(self, times: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float to integer cast saturates, which is what a size wants"
        )]
        Self((self.0 as f64 * times + 0.5) as u64)
    }
}

/// Binary units with one decimal: `1.5 GiB`, `640.0 MiB`, `4.0 KiB`, `12 B`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] =
            [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match UNITS.iter().find(|(_, size)| self.0 >= *size) {
            Some((unit, size)) => write!(f, "{:.1} {unit}", self.0 as f64 / *size as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

impl BasePages {
    /// The size of this many base pages.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0 * BASE_PAGE_BYTES)
    }
}

impl fmt::Display for BasePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl HugePages {
    /// The size of this many huge pages.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0 * HUGE_PAGE_BYTES)
    }

    /// The base pages in this many huge pages.
    #[must_use]
    pub const fn base_pages(self) -> BasePages {
        BasePages(self.0 * BASE_PAGES_PER_HUGE_PAGE)
    }
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn pages_and_bytes_convert_both_ways() {
        assert_eq!(Bytes(1).to_base_pages(), BasePages(1));
        assert_eq!(Bytes::from_gib(8).to_huge_pages(), HugePages(4096));
        assert_eq!(HugePages(2).base_pages(), BasePages(1024));
        assert_eq!(HugePages(1).bytes(), Bytes::from_mib(2));
    }

    #[test]
    fn sizes_print_in_binary_units() {
        assert_eq!(Bytes(12).to_string(), "12 B");
        assert_eq!(Bytes::from_kib(4).to_string(), "4.0 KiB");
        assert_eq!(Bytes(3 << 29).to_string(), "1.5 GiB");
    }
}
