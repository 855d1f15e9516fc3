//! `/proc/zoneinfo`: free pages that lie on the CPUs' own lists. The kernel does not count them as free, nor as available; it
//! puts them back within seconds, or when an allocation fails after direct reclaim. On a machine with few CPUs they are half a
//! GiB and more after a large process has ended (Linux 6.7 and later let the lists of all CPUs grow to an eighth of a zone).
//!
//! Not here: what is free otherwise ([`meminfo`](crate::meminfo), [`buddyinfo`](crate::buddyinfo)).
//! [proc_zoneinfo(5)](https://man7.org/linux/man-pages/man5/proc_zoneinfo.5.html).

use crate::error::{Error, Result};
use crate::text;
use std::path::Path;
use superpage_units::{BASE_PAGE_BYTES, Bytes};

/// The line of each list that has its length.
const COUNT: &[u8] = b"count:";

/// The memory on the lists of all CPUs, from `zoneinfo` in `proc_root` (normally `/proc`).
///
/// # Errors
/// [`Error::Missing`], [`Error::Denied`] or [`Error::Malformed`].
pub fn on_cpu_lists(proc_root: &Path) -> Result<Bytes> {
    let path = proc_root.join("zoneinfo");
    parse(&text::read(&path)?, &path)
}

/// Understands the text of a `zoneinfo` file; `path` is for the message if it cannot be.
///
/// # Errors
/// [`Error::Malformed`] if the length of a list is no number.
pub fn parse(text: &[u8], path: &Path) -> Result<Bytes> {
    let mut pages: u64 = 0;
    for (number, line) in text::lines(text) {
        let Some(count) = line.trim_ascii().strip_prefix(COUNT) else { continue };
        let malformed = || Error::malformed(path, number, "a number of pages", count);
        let count = text::decimal(count.trim_ascii()).ok_or_else(malformed)?;
        pages = pages.saturating_add(count);
    }
    Ok(Bytes(pages.saturating_mul(BASE_PAGE_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::BasePages;

    const GOOD: &[u8] = b"Node 0, zone   Normal\n  pages free     5902\n        boost    0\n  pagesets\n    cpu: 0\n\
        \x20             count:    512\n              high:     1444\n              batch:    63\n\
        \x20 vm stats threshold: 24\n    cpu: 1\n              count:    3\n              high:     696\n";

    fn parsed(text: &[u8]) -> Result<Bytes> {
        parse(text, Path::new("zoneinfo"))
    }

    #[test]
    fn lists_of_all_cpus_are_added_up() {
        assert_eq!(parsed(GOOD), Ok(BasePages(515).bytes()));
        assert_eq!(parsed(b""), Ok(Bytes::ZERO));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = parsed(b"  pagesets\n    count: many\n").expect_err("no number");
        assert!(wrong.to_string().contains("zoneinfo:2:"), "{wrong}");
    }

    #[test]
    fn this_machine_has_lists() {
        let total = crate::meminfo::read(Path::new("/proc")).expect("we have /proc").total;
        assert!(on_cpu_lists(Path::new("/proc")).expect("we have /proc") < total);
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(GOOD, parsed);
    }
}
