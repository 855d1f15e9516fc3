//! Every de-bloater that can be plugged into a system, by name, with when it starts and stops.
//!
//! The names are those of [`super::PolicyName`] and the shrinker's. A de-bloater is written after
//! the system that it is plugged into: `linux+emd`.

use super::underused::{self, Underused};
use super::{Debloat, PolicyName, emd};
use crate::units::BasePages;
use crate::watermark::Watermarks;
use alloc::boxed::Box;

/// A de-bloater.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// Shares of memory in use, 0 to 1: above the first it starts, at the second it stops.
    pub marks: [f64; 2],
    /// The base pages that may be missing in a region that it broke for a system to promote it
    /// again: with one more, promoting would bring back what it breaks.
    pub may_miss: BasePages,
    /// Makes a fresh one.
    pub build: fn() -> Box<dyn Debloat>,
}

impl Entry {
    /// When it starts and stops unless somebody says otherwise.
    #[must_use]
    pub fn watermarks(&self) -> Watermarks {
        let [high, low] = self.marks;
        Watermarks::new(high, low).unwrap_or_default()
    }
}

/// EMD starts above 80 % in use and stops at 65 % (section 4.5).
const EMD: [f64; 2] = [0.80, 0.65];
/// HawkEye starts with less than 15 % free and stops at 30 %.
const HAWKEYE: [f64; 2] = [0.85, 0.70];

/// The zero-filled base pages above which the shrinker splits: 80 % of a huge page. Chosen; at the
/// kernel's default of 511 it frees nothing.
const UNDERUSED: underused::Options = underused::Options { max_ptes_none: BasePages(409) };

/// One less than what EMD breaks a huge page for, as the daemon holds khugepaged's `max_ptes_none`.
const UNDER_EMD: BasePages =
    emd::Options::WORTHWHILE.floor.base_pages().saturating_sub(BasePages(1));

/// All of them, in the order to show them.
#[rustfmt::skip]
pub const ALL: &[Entry] = &[
    Entry {
        name: PolicyName::Emd.name(), marks: EMD, may_miss: UNDER_EMD,
        build: || PolicyName::Emd.build(emd::Options::WORTHWHILE),
        summary: "Densest bloat first, processes take turns; bloat is known from samples.",
    },
    Entry {
        name: PolicyName::EmdExact.name(), marks: EMD, may_miss: UNDER_EMD,
        build: || PolicyName::EmdExact.build(emd::Options::WORTHWHILE),
        summary: "As emd, every base page read.",
    },
    Entry {
        name: PolicyName::HawkEye.name(), marks: HAWKEYE, may_miss: BasePages::ZERO,
        build: || PolicyName::HawkEye.build(emd::Options::WORTHWHILE),
        summary: "In address order, one process after the other.",
    },
    Entry {
        name: "underused", marks: EMD, may_miss: UNDERUSED.max_ptes_none,
        build: || Box::new(Underused::new(UNDERUSED)),
        summary: "Linux's shrinker, of huge pages that are 80 % zero-filled, at EMD's watermarks.",
    },
];

/// The de-bloater with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn names_are_found_unlike_and_the_policies_own() {
        let names: BTreeSet<_> = ALL.iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(PolicyName::ALL.iter().all(|policy| names.contains(policy.name())));
        for entry in ALL {
            assert_eq!(find(entry.name).map(|found| found.summary), Some(entry.summary));
            assert!(entry.summary.ends_with('.'));
            let marks = entry.watermarks();
            assert_eq!([marks.high(), marks.low()], entry.marks, "{}", entry.name);
        }
        assert!(find("ksm").is_none());
    }

    #[test]
    fn what_each_breaks_it_would_break_again_with_one_page_more_missing() {
        for (name, may_miss) in [("emd", 50), ("emd-exact", 50), ("hawkeye", 0), ("underused", 409)]
        {
            assert_eq!(find(name).map(|entry| entry.may_miss), Some(BasePages(may_miss)), "{name}");
        }
    }
}
