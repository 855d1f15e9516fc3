//! The registry: every policy by name, and the table of what each does when.
//!
//! A policy is one file and one line in [`ALL`]. That makes it known to the simulator, the daemon, the
//! command line, its help, and the documents made from the code. Whoever has a policy of his own adds
//! it to a [`Registry`].

use super::Policy;
use super::capabilities::Capabilities;
use super::freebsd::{self, FreeBsd};
use super::hawkeye::{self, HawkEye};
use super::hugetlb::{self, Hugetlb};
use super::ingens::{self, Ingens};
use super::linux::{self, Linux};
use super::quicksilver::{self, Mode, Quicksilver};
use super::selective::{self, Selective};
use super::superpage::{self, Superpage};
use super::trident::{self, Trident};
use super::xheap::{self, XHeap};
use crate::registry::Line;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use superpage_units::{BasePages, PageSize};

/// A configuration of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name on the command line, in configurations and in results.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// Where it is published: paper and section.
    pub source: &'static str,
    /// Makes a fresh one.
    pub build: fn() -> Box<dyn Policy>,
}

/// A line of the list.
macro_rules! entry {
    ($name:literal, $policy:ident($options:expr), $source:literal, $summary:literal) => {
        Entry {
            name: $name,
            summary: $summary,
            source: $source,
            build: || Box::new($policy::new($options)),
        }
    };
}

/// Policies of one kind that differ in a threshold, which stands at the end of their names.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// What their names begin with.
    pub prefix: &'static str,
    /// Makes a fresh one, for a threshold of 1 to 512 base pages.
    pub build: fn(BasePages) -> Box<dyn Policy>,
}

/// All families. Some of their members have a line of their own in [`ALL`], where papers show them.
pub const FAMILIES: &[Family] = &[
    Family {
        prefix: "quicksilver-sync-",
        build: |threshold| {
            Box::new(Quicksilver::new(quicksilver::Options::with(threshold, Mode::Sync)))
        },
    },
    Family {
        prefix: "quicksilver-async-",
        build: |threshold| {
            Box::new(Quicksilver::new(quicksilver::Options::with(threshold, Mode::Async)))
        },
    },
];

/// A policy that was chosen by its name.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    name: &'static str,
    threshold: Option<BasePages>,
    make: Make,
}

#[derive(Clone, Copy, Debug)]
enum Make {
    Fixed(fn() -> Box<dyn Policy>),
    Family(fn(BasePages) -> Box<dyn Policy>),
}

impl Chosen {
    /// A fresh one.
    #[must_use]
    pub fn build(&self) -> Box<dyn Policy> {
        match self.make {
            Make::Fixed(build) => build(),
            Make::Family(build) => build(self.threshold.unwrap_or(BasePages(1))),
        }
    }

    /// What a machine must know of it.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.build().capabilities()
    }
}

impl From<&Entry> for Chosen {
    fn from(entry: &Entry) -> Self {
        Self { name: entry.name, threshold: None, make: Make::Fixed(entry.build) }
    }
}

/// Its name.
impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.threshold.map_or(Ok(()), |threshold| write!(f, "{threshold}"))
    }
}

/// Two are the same that have the same name.
impl PartialEq for Chosen {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.threshold) == (other.name, other.threshold)
    }
}

impl Eq for Chosen {}

/// The policies that can be asked for by name.
pub type Registry = crate::registry::Registry<Entry>;

impl Line for Entry {
    const ALL: &'static [Self] = ALL;

    fn name(&self) -> &'static str {
        self.name
    }
}

impl Registry {
    /// The policy with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Chosen> {
        self.entry(name).as_ref().map(Chosen::from).or_else(|| {
            let range = BasePages(1)..=PageSize::Huge.base_pages();
            FAMILIES.iter().find_map(|family| {
                let threshold = name.strip_prefix(family.prefix)?.parse().ok().map(BasePages);
                let threshold = threshold.filter(|threshold| range.contains(threshold));
                let make = Make::Family(family.build);
                threshold.map(|_| Chosen { name: family.prefix, threshold, make })
            })
        })
    }

    /// Those that can be run from outside of a process, on a kernel that gives base and huge pages.
    pub fn live(&self) -> impl Iterator<Item = &Entry> {
        self.entries().iter().filter(|entry| (entry.build)().capabilities().need.is_none())
    }
}

/// All of them, in the order to show them.
#[rustfmt::skip]
pub const ALL: &[Entry] = &[
    entry!("linux", Linux(linux::Options::ALWAYS), "Quicksilver, Table 1",
        "Huge pages at the first touch, with direct compaction; khugepaged promotes the rest."),
    entry!("linux-madvise", Linux(linux::Options::MADVISE), "Linux, transhuge.rst",
        "As linux, but only where the program asked for huge pages."),
    entry!("linux-nokhugepaged", Linux(linux::Options::NO_KHUGEPAGED), "Quicksilver, Table 2",
        "As linux, without khugepaged."),
    entry!("linux-defrag-madvise", Linux(linux::Options::DEFRAG_MADVISE), "Trident, section 7",
        "As linux, but faults compact only where the program asked: the kernel's default."),
    entry!("linux-4k", Linux(linux::Options::NEVER), "Quicksilver, Tables 2 and 5",
        "Base pages only."),
    entry!("freebsd", FreeBsd(freebsd::Options::default()), "Quicksilver, Table 1",
        "Frames reserved at the first touch, filled in place, mapped huge when all is there."),
    entry!("ingens", Ingens(ingens::Options::PUBLISHED), "Quicksilver, Table 1",
        "Background promotion from 460 base pages, the process with fewest superpages first."),
    entry!("ingens-star", Ingens(ingens::Options::STAR), "Quicksilver, Table 4",
        "As ingens, promoting from one base page."),
    entry!("hawkeye", HawkEye(hawkeye::Options::PUBLISHED), "Quicksilver, Table 1",
        "Background promotion by access coverage, from one base page."),
    entry!("hawkeye-star", HawkEye(hawkeye::Options::STAR), "Quicksilver, Table 4",
        "As hawkeye, promoting with a whole CPU."),
    entry!("hawkeye-first-touch", HawkEye(hawkeye::Options::FIRST_TOUCH), "Trident, section 7",
        "As hawkeye, with huge pages at the first touch while they are free."),
    entry!("quicksilver-sync-1", Quicksilver(quicksilver::Options::SYNC_1), "Quicksilver, Evaluation",
        "Reserved and prepared whole at the first touch; idle frames are evacuated."),
    entry!("quicksilver-sync-64", Quicksilver(quicksilver::Options::SYNC_64), "Quicksilver, Evaluation",
        "Filled in place up to 64 base pages, the rest within that fault."),
    entry!("quicksilver-async-64", Quicksilver(quicksilver::Options::ASYNC_64), "Quicksilver, Evaluation",
        "Filled in place up to 64 base pages, the rest in the background."),
    entry!("quicksilver-async-256", Quicksilver(quicksilver::Options::ASYNC_256), "Quicksilver, Evaluation",
        "Filled in place up to 256 base pages, the rest in the background."),
    entry!("superpage", Superpage(superpage::Options::DEFAULT), "no paper: our own rule",
        "Huge pages at the first touch while memory is free, then promotion, dearer as memory gets short."),
    entry!("trident", Trident(trident::Options::PUBLISHED), "Trident, section 5",
        "1 GiB, else 2 MiB, else 4 KiB, at the first touch and by promotion; smart compaction."),
    entry!("trident-1g-only", Trident(trident::Options::GIGANTIC_ONLY), "Trident, Figure 11",
        "As trident, without 2 MiB pages."),
    entry!("trident-nc", Trident(trident::Options::NORMAL_COMPACTION), "Trident, Figure 11",
        "As trident, with Linux's compaction."),
    entry!("trident-faults-only", Trident(trident::Options::FAULTS_ONLY), "Trident, Table 3",
        "As trident, without promotion in the background."),
    entry!("trident-pv", Trident(trident::Options::PARAVIRTUAL), "Trident, section 6",
        "As trident, in a guest that exchanges mappings instead of copying, 512 in a hypercall."),
    entry!("trident-pv-single", Trident(trident::Options::PARAVIRTUAL_SINGLE), "Trident, section 6",
        "As trident-pv, one exchange in a hypercall."),
    entry!("hugetlb-2m", Hugetlb(hugetlb::Options::HUGE), "Trident, section 4.1",
        "2 MiB pages set aside before, for the whole heap."),
    entry!("hugetlb-1g", Hugetlb(hugetlb::Options::GIGANTIC), "Trident, section 4.1",
        "1 GiB pages set aside before, for the whole heap."),
    entry!("xheap", XHeap(xheap::Options::default()), "xHeap, section 2",
        "Two pools: huge pages while they are free, promotion from 64 base pages, a clock each."),
    entry!("selective", Selective(selective::Options::default()), "Graph page sizes, section 5.2",
        "Huge pages for chosen ranges only; none are chosen here."),
];

/// The configuration with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.name == name)
}

/// The head of [`five_events`].
pub const FIVE_EVENTS: [&str; 6] =
    ["policy", "allocation", "preparation", "mapping", "unmapping", "deallocation"];

/// What each configuration does when in a superpage's life, a row for each: Quicksilver's Table 1,
/// with more policies and turned on its side.
#[must_use]
pub fn five_events(registry: &Registry) -> Vec<[String; 6]> {
    let row = |entry: &Entry| {
        let life = (entry.build)().life();
        [
            entry.name.to_owned(),
            life.allocation.to_string(),
            life.preparation.to_string(),
            life.mapping.to_string(),
            life.unmapping.to_string(),
            life.deallocation.to_string(),
        ]
    };
    registry.entries().iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn names_are_found_and_unlike() {
        let names: BTreeSet<_> = ALL.iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), ALL.len());
        for entry in ALL {
            assert_eq!(find(entry.name).map(|found| found.summary), Some(entry.summary));
            assert!(entry.summary.ends_with('.') && !entry.source.is_empty(), "{}", entry.name);
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(entry.name.chars().all(is_plain), "{} is hard to type", entry.name);
        }
        assert!(find("ingens*").is_none());
    }

    #[test]
    fn a_threshold_may_stand_at_the_end_of_a_name() {
        let registry = Registry::published();
        for name in ["quicksilver-sync-64", "quicksilver-sync-65", "quicksilver-async-512", "linux"]
        {
            let chosen = registry.find(name).unwrap();
            assert_eq!(chosen.to_string(), name);
            assert_eq!(registry.find(name), Some(chosen));
        }
        let threshold = |name| registry.find(name).unwrap().capabilities().threshold;
        assert_eq!(threshold("quicksilver-sync-65"), Some(BasePages(65)));
        assert_eq!(threshold("quicksilver-async-256"), Some(BasePages(256)));
        for name in ["", "quicksilver-sync-", "quicksilver-sync-0", "quicksilver-sync-513", "emd"] {
            assert_eq!(registry.find(name), None, "{name}");
        }
        let live: Vec<&str> = registry.live().map(|entry| entry.name).collect();
        assert!(live.contains(&"freebsd") && !live.contains(&"trident"), "{live:?}");
    }

    /// Quicksilver's Table 1, in this project's words.
    #[test]
    fn the_table_says_what_quicksilvers_does() {
        let table = five_events(&Registry::published());
        let row = |name: &str| table.iter().find(|row| row[0] == name).unwrap()[1..].to_vec();
        assert_eq!(
            row("linux"),
            [
                "first touch, up to 2 MiB; later from 1 base page",
                "all at once",
                "at once",
                "when freed or changed",
                "when unmapped",
            ]
        );
        assert_eq!(
            row("freebsd"),
            [
                "reserved at the first touch, also beyond a heap's end",
                "base page by base page, in place",
                "when its preparation is complete",
                "when freed or changed",
                "as late as possible, idle longest first",
            ]
        );
        assert_eq!(row("ingens")[0], "in the background from 460 base pages");
        assert_eq!(row("hawkeye")[0], "in the background from 1 base page");
        assert_eq!(row("quicksilver-sync-64")[1], "in place up to 64, then the rest in the fault");
    }
}
