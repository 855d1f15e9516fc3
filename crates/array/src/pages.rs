//! The grammar in which the pages of an array are asked for, the same for Rust, C, Python and the command line: `base`, `huge`,
//! `gigantic`, the first part in memory order on such pages, as in `huge:20%`, and `default`, which asks for nothing.
//!
//! This file does not know whether the kernel has such pages.

use std::fmt;
use std::str::FromStr;
use superpage_units::{Bytes, PageSize, Share};

/// Which pages an array is to lie on: a part of it from its beginning on pages of one size, the rest on base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The size of the pages of the first part; none where the kernel chooses.
    size: Option<PageSize>,
    share: Share,
}

impl Pages {
    /// Base pages (4 KiB), also later: nobody makes huge pages of them.
    pub const BASE: Self = Self::first(Share::ALL, PageSize::Base);
    /// Huge pages (2 MiB).
    pub const HUGE: Self = Self::first(Share::ALL, PageSize::Huge);
    /// Gigantic pages (1 GiB) of the kernel's pool.
    pub const GIGANTIC: Self = Self::first(Share::ALL, PageSize::Gigantic);
    /// The pages that the kernel gives memory for which nothing was asked, by its setting
    /// (`/sys/kernel/mm/transparent_hugepage/enabled`), at the first touch and later.
    pub const DEFAULT: Self = Self { size: None, share: Share::ALL };

    /// The first `share` of an array on pages of `size`.
    #[must_use]
    pub const fn first(share: Share, size: PageSize) -> Self {
        Self { size: Some(size), share }
    }

    /// The size of the pages of the first part; none where nothing is asked for.
    #[must_use]
    pub const fn size(self) -> Option<PageSize> {
        self.size
    }

    /// The share of an array that the first part is.
    #[must_use]
    pub const fn share(self) -> Share {
        self.share
    }

    /// The memory of an array of `length` that is to be on pages of [`Pages::size`]: so many whole pages as the part touches.
    /// Whole pages may be larger than the array, which may end in the middle of one.
    #[must_use]
    pub fn asked(self, length: Bytes) -> Bytes {
        let page = self.size.unwrap_or(PageSize::Base).bytes().0;
        let part = self.share.of(length).0.min(length.0);
        Bytes(part.div_ceil(page).saturating_mul(page))
    }
}

/// A text that the grammar does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} are no pages of an array: say base, huge or gigantic, or the first part of it in memory order as in huge:20%, or default"
)]
pub struct NoPages(String);

impl FromStr for Pages {
    type Err = NoPages;

    fn from_str(text: &str) -> Result<Self, NoPages> {
        let none = || NoPages(text.to_owned());
        let (name, share) = match text.split_once(':') {
            Some((name, share)) => (name, percent(share).ok_or_else(none)?),
            None => (text, Share::ALL),
        };
        match name {
            "base" if !text.contains(':') => Ok(Self::BASE),
            "default" if !text.contains(':') => Ok(Self::DEFAULT),
            "huge" => Ok(Self::first(share, PageSize::Huge)),
            "gigantic" => Ok(Self::first(share, PageSize::Gigantic)),
            _ => Err(none()),
        }
    }
}

/// A share in percent, as in `20%`.
fn percent(text: &str) -> Option<Share> {
    let number = text.strip_suffix('%')?;
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    Share::new(number.parse::<f64>().ok().filter(|_| is_plain)? / 100.0)
}

/// The text that the grammar has for the pages.
impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.size {
            None => return f.write_str("default"),
            Some(PageSize::Base) => return f.write_str("base"),
            Some(PageSize::Huge) => "huge",
            Some(PageSize::Gigantic) => "gigantic",
        };
        if self.share == Share::ALL {
            return f.write_str(name);
        }
        // Whole tenths of a thousandth are as exact as anybody says it.
        let percent = (self.share.get() * 1e6).round() / 1e4;
        write!(f, "{name}:{percent}%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use superpage_units::{GIGANTIC_PAGE_BYTES, HUGE_PAGE_BYTES};

    #[test]
    fn the_grammar_is_read_and_written_alike() {
        for text in [
            "base",
            "default",
            "huge",
            "gigantic",
            "huge:20%",
            "huge:0.5%",
            "gigantic:50%",
            "huge:0%",
        ] {
            let pages: Pages = text.parse().expect("pages");
            assert_eq!(pages.to_string(), text);
        }
        assert_eq!("huge:100%".parse(), Ok(Pages::HUGE));
        let bad = [
            "",
            "Huge",
            "huge:",
            "huge:20",
            "huge:-1%",
            "huge:101%",
            "huge:nan%",
            "huge:1e1%",
            "base:20%",
            "huge:20%:",
            "huge: 20%",
            "4k",
            "huge:inf%",
            "default:20%",
        ];
        for text in bad {
            assert!(text.parse::<Pages>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_part_is_whole_pages() {
        let huge = |text: &str, length| {
            text.parse::<Pages>().expect("pages").asked(Bytes(length)).0 / HUGE_PAGE_BYTES
        };
        assert_eq!(huge("huge:20%", 10 * HUGE_PAGE_BYTES), 2);
        assert_eq!(huge("huge:21%", 10 * HUGE_PAGE_BYTES), 3);
        assert_eq!([huge("huge", 1), huge("huge", 0), huge("huge:0%", 1 << 30)], [1, 0, 0]);
        assert_eq!(Pages::GIGANTIC.asked(Bytes(1)), Bytes(GIGANTIC_PAGE_BYTES));
    }

    proptest! {
        #[test]
        fn a_part_holds_its_share_and_less_than_a_page_more(share in 0.0..=1.0_f64, length in 0..1_u64 << 40) {
            let pages = Pages::first(Share::clamped(share), PageSize::Huge);
            let asked = pages.asked(Bytes(length)).0 as f64;
            let least = share * length as f64;
            prop_assert!(asked + 1.0 >= least && asked < least + 1.0 + HUGE_PAGE_BYTES as f64);
        }

        #[test]
        fn nothing_makes_it_panic(text in ".*") {
            let _ = text.parse::<Pages>();
        }
    }
}
