//! `/proc/vmstat`: what the kernel's memory management has done since the machine started.
//!
//! Machine-wide counters; whose doing it was they do not say. Most only grow, and a difference of
//! two readings is what is wanted of them.
//! [proc_vmstat(5)](https://man7.org/linux/man-pages/man5/proc_vmstat.5.html),
//! [the huge-page counters](https://docs.kernel.org/admin-guide/mm/transhuge.html#monitoring-usage).

use crate::error::{Error, Result};
use crate::text;
use std::collections::BTreeMap;
use std::path::Path;

/// All counters of one reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmStat {
    counters: BTreeMap<String, u64>,
}

impl VmStat {
    /// The counter called `name`, if this kernel has it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }

    /// How much each counter has grown since `earlier`: zero where it fell (some are gauges), its
    /// whole value where it is new.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let grown = |(name, now): (&String, &u64)| {
            let before = earlier.get(name).unwrap_or(0);
            (name.clone(), now.saturating_sub(before))
        };
        Self { counters: self.counters.iter().map(grown).collect() }
    }

    /// The counters about huge pages.
    #[must_use]
    pub fn thp(&self) -> ThpCounters {
        ThpCounters::of(self)
    }
}

/// The counters now, from `vmstat` in `proc_root` (normally `/proc`).
///
/// # Errors
/// [`Error::Missing`], [`Error::Denied`] or [`Error::Malformed`].
pub fn read(proc_root: &Path) -> Result<VmStat> {
    let path = proc_root.join("vmstat");
    parse(&text::read(&path)?, &path)
}

/// Understands the text of a `vmstat` file; `path` is for the message if it cannot be.
///
/// # Errors
/// [`Error::Malformed`] with the line.
pub fn parse(text: &[u8], path: &Path) -> Result<VmStat> {
    let counters = text::lines(text).map(|(number, line)| {
        counter(line).ok_or_else(|| Error::malformed(path, number, "'name number'", line))
    });
    Ok(VmStat { counters: counters.collect::<Result<_>>()? })
}

fn counter(line: &[u8]) -> Option<(String, u64)> {
    let mut words = text::words(line);
    let name = std::str::from_utf8(words.next()?).ok()?;
    let value = text::decimal(words.next()?)?;
    words.next().is_none().then(|| (name.to_owned(), value))
}

/// Declares a struct with one optional counter for each name.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// The counters about huge pages, each a number of events; `None` where the kernel lacks
        /// one. An event is one huge page, unless it says otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ThpCounters {
            $($(#[$doc])* pub $name: Option<u64>,)+
        }

        impl ThpCounters {
            fn of(all: &VmStat) -> Self {
                Self { $($name: all.get(stringify!($name)),)+ }
            }

            /// How much each has grown since `earlier`; `None` unless both know it.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: grown(self.$name, earlier.$name),)+ }
            }
        }
    };
}

fn grown(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(now?.saturating_sub(before?))
}

counters! {
    /// Allocated and mapped by a page fault.
    thp_fault_alloc,
    /// A page fault found no huge page and took base pages.
    thp_fault_fallback,
    /// Put together by khugepaged or MADV_COLLAPSE.
    thp_collapse_alloc,
    /// khugepaged found no huge page to put a range together in.
    thp_collapse_alloc_failed,
    /// Split into base pages.
    thp_split_page,
    /// Could not be split, usually because somebody held a base page of it.
    thp_split_page_failed,
    /// Put on the list of those to be split under reclaim, since part of it was unmapped.
    thp_deferred_split_page,
    /// Split under reclaim because most of it was zero-filled (Linux 6.12).
    thp_underused_split_page,
    /// A mapping by one huge entry split into base entries; the page itself may stay whole.
    thp_split_pmd,
    /// The huge page of zeroes allocated.
    thp_zero_page_alloc,
    /// The huge page of zeroes could not be allocated.
    thp_zero_page_alloc_failed,
    /// Swapped out whole.
    thp_swpout,
    /// Split in order to be swapped out.
    thp_swpout_fallback,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &[u8] = include_bytes!("../tests/fixtures/proc/vmstat");

    fn parsed(text: &[u8]) -> Result<VmStat> {
        parse(text, Path::new("vmstat"))
    }

    #[test]
    fn a_real_file_reads() {
        let stat = parsed(GOOD).expect("the fixture is good");
        assert_eq!(stat.get("thp_fault_alloc"), Some(7168));
        assert_eq!(stat.get("no_such_counter"), None);
        let thp = stat.thp();
        assert_eq!(thp.thp_split_page, Some(1892));
        assert_eq!(thp.thp_underused_split_page, Some(0));
    }

    #[test]
    fn a_kernel_without_a_counter_has_none() {
        let older = parsed(b"thp_split_page 5\n").expect("good").thp();
        let newer = parsed(b"thp_split_page 9\nthp_underused_split_page 3\n").expect("good").thp();
        let grown = newer.since(&older);
        assert_eq!(grown.thp_split_page, Some(4));
        assert_eq!(grown.thp_underused_split_page, None);
    }

    #[test]
    fn differences_never_wrap() {
        let earlier = parsed(b"a 5\nb 2\n").expect("good");
        let later = parsed(b"a 4\nb 7\nc 1\n").expect("good");
        let grown = later.since(&earlier);
        assert_eq!(["a", "b", "c"].map(|name| grown.get(name)), [Some(0), Some(5), Some(1)]);
    }

    #[test]
    fn a_bad_line_is_named() {
        for bad in ["name", "name x", "name 1 2", "name -1"] {
            let error = parsed(format!("good 1\n{bad}\n").as_bytes()).expect_err(bad);
            assert!(matches!(error, Error::Malformed { line: 2, .. }), "{error}");
        }
        assert!(matches!(read(Path::new("/nonexistent")), Err(Error::Missing { .. })));
    }

    #[test]
    fn this_kernel_counts() {
        let stat = read(Path::new("/proc")).expect("we have /proc");
        assert!(stat.get("pgfault").is_some_and(|faults| faults > 0));
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(GOOD, parsed);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(counters: BTreeMap<u16, u64>) {
            let counters: BTreeMap<String, u64> =
                counters.into_iter().map(|(name, value)| (format!("n{name}"), value)).collect();
            let line = |(name, value): (&String, &u64)| format!("{name} {value}\n");
            let text: String = counters.iter().map(line).collect();
            prop_assert_eq!(parsed(text.as_bytes()), Ok(VmStat { counters }));
        }
    }
}
