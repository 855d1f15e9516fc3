//! The registry: every de-bloater by name, with when it starts and stops.
//!
//! A de-bloater is one file, which has its [`Entry`], and one line in [`ALL`]. That makes it known to the
//! daemon, to `superpage debloat`, to their help and messages, and to the simulator, where it is written
//! after the promotion policy that it is plugged into: `linux+emd`. Whoever has a de-bloater of his own adds it to
//! a [`Registry`].

use super::emd::{self, EMD, EMD_EXACT};
use super::emd_literal::EMD_LITERAL;
use super::hawkeye::HAWKEYE;
use super::lasting::EMD_LASTING;
use super::underused::UNDERUSED;
use super::{BloatDensity, Debloat};
use crate::registry::Line;
use crate::watermark::Watermarks;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use superpage_units::Share;

/// A de-bloater.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name on the command line, in configurations and in results.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// Where it is published: paper and section.
    pub source: &'static str,
    /// Shares of memory in use: above the first it starts, at the second it stops.
    pub marks: [Share; 2],
    /// Makes a fresh one, of what an operator can say; it takes what it has a use for.
    pub build: fn(emd::Options) -> Box<dyn Debloat>,
}

impl Entry {
    /// When it starts and stops unless somebody says otherwise.
    #[must_use]
    pub fn watermarks(&self) -> Watermarks {
        let [high, low] = self.marks;
        Watermarks::new(high, low).unwrap_or_default()
    }

    /// The least density for which it splits a huge page, given these options.
    #[must_use]
    pub fn floor(&self, options: emd::Options) -> BloatDensity {
        (self.build)(options).floor()
    }
}

/// Its name.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Two are the same that have the same name.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Entry {}

impl Line for Entry {
    const ALL: &'static [Self] = ALL;

    fn name(&self) -> &'static str {
        self.name
    }
}

/// The de-bloaters that can be asked for by name.
pub type Registry = crate::registry::Registry<Entry>;

/// All of them, in the order to show them.
pub const ALL: &[Entry] = &[EMD, EMD_EXACT, HAWKEYE, UNDERUSED, EMD_LASTING, EMD_LITERAL];

/// What each does in a superpage's life, a row for each: it changes a mapping and gives back what the
/// mapping wasted, and leaves the rest to the promotion policy that it is plugged into
/// ([`crate::promotion::list::five_events`]).
#[must_use]
pub fn five_events(registry: &Registry) -> Vec<[String; 6]> {
    registry.entries().iter().map(Entry::events).collect()
}

impl Entry {
    fn events(&self) -> [String; 6] {
        let [high, low] = self.marks.map(|share| format!("{share:.0}"));
        let own = "the promotion policy's".to_owned();
        [
            format!("+{}", self.name),
            own.clone(),
            own.clone(),
            own,
            format!("also with more than {high} of memory used, until {low}"),
            format!("also what is zero-filled then. {}", self.summary),
        ]
    }

    /// The row of a promotion policy with this de-bloater plugged in, from the policy's own row.
    #[must_use]
    pub fn plugged_into(&self, policy: &[String; 6]) -> [String; 6] {
        let [name, allocation, preparation, mapping, unmapping, deallocation] = policy.clone();
        let [plus, _, _, _, unmaps, frees] = self.events();
        let both = |own, also| format!("{own}; {also}");
        let (unmapping, deallocation) = (both(unmapping, unmaps), both(deallocation, frees));
        [name + &plus, allocation, preparation, mapping, unmapping, deallocation]
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{World, play};
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use superpage_units::HugePages;

    /// What the table says of when it starts and stops is what the watermarks do.
    #[test]
    fn the_five_events_say_when_it_works() {
        for (entry, row) in ALL.iter().zip(five_events(&Registry::published())) {
            let marks = entry.watermarks();
            let (high, low) = (marks.high(), marks.low());
            let said = format!("more than {high:.0} of memory used, until {low:.0}");
            assert!(row[4].contains(&said), "{row:?}");
            assert_eq!(row[0], format!("+{}", entry.name));
        }
    }

    /// A promotion policy reclaims bloat only where a de-bloater is plugged into it.
    #[test]
    fn only_a_debloater_gives_zero_filled_pages_back() {
        let promotion = crate::promotion::list::Registry::published();
        for row in crate::promotion::list::five_events(&promotion) {
            assert!(!row.concat().contains("zero-filled"), "{row:?}");
            let plugged = HAWKEYE.plugged_into(&row);
            assert_eq!(plugged[0], format!("{}+hawkeye", row[0]));
            assert_eq!(plugged[..4][1..], row[..4][1..]);
            assert!(plugged[4].starts_with(&row[4]) && plugged[4].contains("85 %"), "{plugged:?}");
            assert!(plugged[5].starts_with(&row[5]) && plugged[5].contains("zero-filled"));
        }
    }

    #[test]
    fn names_are_found_and_unlike() {
        let registry = Registry::published();
        let names: BTreeSet<_> = registry.names().into_iter().collect();
        assert_eq!(names.len(), ALL.len());
        for entry in ALL {
            assert_eq!(registry.entry(entry.name), Some(*entry));
            assert!(entry.summary.ends_with('.') && !entry.source.is_empty(), "{entry}");
            let marks = entry.watermarks();
            assert_eq!([marks.high(), marks.low()], entry.marks, "{entry}");
        }
        assert_eq!(registry.entry("ksm"), None);
    }

    /// Each splits a huge page of the density that it names as its least, and none of one less; EMD and
    /// what is like it where they do not go by samples.
    #[test]
    fn what_each_says_of_its_floor_is_what_it_does() {
        for floor in [1, 51, 120] {
            let floor = BloatDensity::new(floor);
            let options = emd::Options { floor, quantum: HugePages(3), ..emd::Options::WORTHWHILE };
            for entry in ALL.iter().filter(|entry| ![EMD, EMD_LASTING].contains(entry)) {
                let least = entry.floor(options).zero_pages();
                let world: World = vec![vec![least - 1; 20], vec![least - 1, least]];
                let split = play((entry.build)(options).as_mut(), &world, 1_000_000).split;
                assert_eq!(split, [(1, 1, least)], "{entry}");
            }
        }
        let least = |entry: Entry| entry.floor(emd::Options::WORTHWHILE).zero_pages();
        let all = [EMD, EMD_EXACT, HAWKEYE, UNDERUSED, EMD_LITERAL].map(least);
        assert_eq!(all, [51, 51, 1, 410, 1]);
    }
}
