//! Every de-bloater that can be plugged into a system, by name, with when it starts and stops.
//!
//! The names are those of [`super::PolicyName`] and the shrinker's. A de-bloater is written after
//! the system that it is plugged into: `linux+emd`.

use super::underused::{self, Underused};
use super::{Debloat, PolicyName, emd};
use crate::watermark::Watermarks;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use superpage_units::BasePages;

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

/// What each does in a superpage's life, a row for each: it changes a mapping and gives back what the
/// mapping wasted, and leaves the rest to the system that it is plugged into
/// ([`crate::system::list::five_events`]).
#[must_use]
pub fn five_events() -> Vec<[String; 6]> {
    let row = |entry: &Entry| {
        let [high, low] = entry.marks.map(|share| format!("{:.0} %", share * 100.0));
        let own = "the system's".to_owned();
        [
            format!("+{}", entry.name),
            own.clone(),
            own.clone(),
            own,
            format!("also with more than {high} of memory used, until {low}"),
            format!("also what is zero-filled then. {}", entry.summary),
        ]
    };
    ALL.iter().map(row).collect()
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

    /// What the table says of when it starts and stops is what the watermarks do.
    #[test]
    fn the_five_events_say_when_it_works() {
        for (entry, row) in ALL.iter().zip(five_events()) {
            let marks = entry.watermarks();
            let (high, low) = (marks.high(), marks.low());
            let said = format!(
                "more than {:.0} % of memory used, until {:.0} %",
                high * 100.0,
                low * 100.0
            );
            assert!(row[4].contains(&said), "{row:?}");
            assert_eq!(row[0], format!("+{}", entry.name));
        }
    }

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
