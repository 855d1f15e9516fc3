//! The promotion policies that a configuration can name, and what each needs of the promoter.

use std::fmt;
use std::str::FromStr;
use superpage_policy::system::hawkeye::{self, HawkEye};
use superpage_policy::system::ingens::{self, Ingens};
use superpage_policy::system::linux::{self, Linux};
use superpage_policy::system::quicksilver::{self, Mode, Quicksilver};
use superpage_policy::system::{Speculation, System};
use superpage_units::{BASE_PAGES_PER_HUGE_PAGE, BasePages};

/// A promotion policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promotion {
    /// The daemon's own rule: promotes as Quicksilver's Sync-64 does, and reclaims bloat only where
    /// memory gets short.
    #[default]
    Default,
    /// Nothing is promoted.
    Off,
    /// Quicksilver: at a threshold of populated base pages, at once or in the background.
    Quicksilver {
        /// The threshold, 1 to 512 base pages.
        threshold: BasePages,
        /// At once (`sync`) or in the background (`async`).
        mode: Mode,
    },
    /// Ingens: in the background, from 90 % populated.
    Ingens,
    /// HawkEye: in the background, from one base page; the fullest regions first.
    HawkEye,
    /// khugepaged's rule at its default pace.
    Linux,
}

/// When huge pages that stay partly used are split in the background, under a promotion policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleReclaim {
    /// Never: that is left to passes above the high watermark.
    Never,
    /// Above the low watermark, of the machine or of a guarded cgroup that the process is in; and not
    /// what the program asked huge pages for.
    AboveLow,
    /// Always, as Quicksilver does.
    Always,
}

/// Names, for messages.
pub const NAMES: &str = "default, quicksilver, quicksilver-sync-T, quicksilver-async-T (T from 1 to 512), \
                         ingens, hawkeye, linux, off";

impl Promotion {
    /// Quicksilver's Sync-64, the balance that its authors found.
    const SYNC_64: Self = Self::Quicksilver { threshold: BasePages(64), mode: Mode::Sync };
}

impl fmt::Display for Promotion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Off => f.write_str("off"),
            Self::Quicksilver { threshold, mode: Mode::Sync } => {
                write!(f, "quicksilver-sync-{threshold}")
            }
            Self::Quicksilver { threshold, mode: Mode::Async } => {
                write!(f, "quicksilver-async-{threshold}")
            }
            Self::Ingens => f.write_str("ingens"),
            Self::HawkEye => f.write_str("hawkeye"),
            Self::Linux => f.write_str("linux"),
        }
    }
}

/// There is no promotion policy of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPromotion(String);

impl fmt::Display for UnknownPromotion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no promotion policy {:?}; expected one of {NAMES}", self.0)
    }
}

impl std::error::Error for UnknownPromotion {}

impl FromStr for Promotion {
    type Err = UnknownPromotion;

    fn from_str(name: &str) -> Result<Self, UnknownPromotion> {
        let quicksilver = |digits: &str, mode| {
            let threshold = digits.parse().ok().map(BasePages);
            let range = BasePages(1)..=BasePages(BASE_PAGES_PER_HUGE_PAGE);
            let threshold = threshold.filter(|pages| range.contains(pages));
            threshold.map(|threshold| Self::Quicksilver { threshold, mode })
        };
        let found = match name {
            "default" => Some(Self::Default),
            "off" => Some(Self::Off),
            "quicksilver" => Some(Self::SYNC_64),
            "ingens" => Some(Self::Ingens),
            "hawkeye" => Some(Self::HawkEye),
            "linux" => Some(Self::Linux),
            _ => match name.strip_prefix("quicksilver-sync-") {
                Some(digits) => quicksilver(digits, Mode::Sync),
                None => name
                    .strip_prefix("quicksilver-async-")
                    .and_then(|digits| quicksilver(digits, Mode::Async)),
            },
        };
        found.ok_or_else(|| UnknownPromotion(name.to_owned()))
    }
}

impl Promotion {
    /// The policy itself, as the simulated machine runs it; `None` if nothing is to be promoted.
    #[must_use]
    pub fn build(self) -> Option<Box<dyn System>> {
        Some(match self {
            Self::Default => return Self::SYNC_64.build(),
            Self::Off => return None,
            Self::Quicksilver { threshold, mode } => {
                Box::new(Quicksilver::new(quicksilver::Options {
                    speculation: Speculation::Growing,
                    ..quicksilver::Options::with(threshold, mode)
                }))
            }
            Self::Ingens => Box::new(Ingens::new(ingens::Options::PUBLISHED)),
            Self::HawkEye => Box::new(HawkEye::new(hawkeye::Options::PUBLISHED)),
            Self::Linux => Box::new(Linux::new(linux::Options::ALWAYS)),
        })
    }

    /// Whether it is told of page faults. khugepaged and HawkEye go by what they come upon.
    #[must_use]
    pub fn hears_faults(self) -> bool {
        matches!(self, Self::Default | Self::Quicksilver { .. } | Self::Ingens)
    }

    /// Whether it wants first touches to give base pages. Linux has no such wish.
    #[must_use]
    pub fn wants_base_pages(self) -> bool {
        !matches!(self, Self::Off | Self::Linux)
    }

    /// When huge pages that stay partly used are split in the background.
    #[must_use]
    pub fn idle_reclaim(self) -> IdleReclaim {
        match self {
            Self::Default => IdleReclaim::AboveLow,
            Self::Quicksilver { .. } => IdleReclaim::Always,
            Self::Off | Self::Ingens | Self::HawkEye | Self::Linux => IdleReclaim::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in
            ["default", "off", "quicksilver-sync-1", "quicksilver-async-512", "ingens", "linux"]
        {
            assert_eq!(name.parse::<Promotion>().expect(name).to_string(), name);
        }
        assert_eq!("quicksilver".parse(), Ok(Promotion::SYNC_64));
        for name in ["", "quicksilver-sync-0", "quicksilver-sync-513", "quicksilver-sync", "thp"] {
            let error = name.parse::<Promotion>().expect_err(name).to_string();
            assert!(error.contains("ingens, hawkeye"), "{error}");
        }
    }

    #[test]
    fn only_what_is_chosen_by_its_published_name_reclaims_while_memory_is_free() {
        assert_eq!(Promotion::default().idle_reclaim(), IdleReclaim::AboveLow);
        assert_eq!(Promotion::SYNC_64.idle_reclaim(), IdleReclaim::Always);
        assert_eq!(Promotion::Ingens.idle_reclaim(), IdleReclaim::Never);
    }

    #[test]
    fn only_off_is_nothing() {
        assert!(Promotion::Off.build().is_none());
        for one in [Promotion::default(), Promotion::Ingens, Promotion::HawkEye, Promotion::Linux] {
            assert!(one.build().is_some());
        }
    }
}
