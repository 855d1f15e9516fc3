//! `/proc/buddyinfo`: the free chunks of memory by their size.
//!
//! One line for each zone of each node. The sums say how fragmented free memory is; what the
//! chunks could hold ([`PageSize`]s) is not decided here.
//! [proc_buddyinfo(5)](https://man7.org/linux/man-pages/man5/proc_buddyinfo.5.html).
//!
//! [`PageSize`]: superpage_units::PageSize

use crate::error::{Error, Result};
use crate::text;
use std::path::Path;
use superpage_units::{BasePages, Bytes};

/// The orders that the file shows: 0 (a base page) to 10 (4 MiB), the allocator's largest chunk.
pub const ORDERS: usize = 11;

/// Free chunks, all zones and nodes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buddyinfo {
    /// How many chunks of two to the power of the index base pages are free, each counted once,
    /// in its largest chunk.
    pub chunks: [u64; ORDERS],
}

impl Buddyinfo {
    /// All of it. The kernel's per-CPU stocks are free too and not in here.
    #[must_use]
    pub fn free(&self) -> Bytes {
        let pages = |(order, count): (usize, &u64)| BasePages(count.saturating_mul(1 << order));
        let total = |sum: u64, pages: BasePages| sum.saturating_add(pages.0);
        BasePages(self.chunks.iter().enumerate().map(pages).fold(0, total)).bytes()
    }
}

/// The free chunks now, from `buddyinfo` in `proc_root` (normally `/proc`).
///
/// # Errors
/// [`Error::Missing`], [`Error::Denied`] or [`Error::Malformed`].
pub fn read(proc_root: &Path) -> Result<Buddyinfo> {
    let path = proc_root.join("buddyinfo");
    parse(&text::read(&path)?, &path)
}

/// Understands the text of a `buddyinfo` file; `path` is for the message if it cannot be.
///
/// # Errors
/// [`Error::Malformed`] with the line, also where an allocator has more or fewer orders than
/// [`ORDERS`]: then nothing here would be right.
pub fn parse(text: &[u8], path: &Path) -> Result<Buddyinfo> {
    let mut sums = Buddyinfo::default();
    let mut zones = 0;
    for (number, line) in text::lines(text) {
        let expected = "'Node 0, zone Normal' and a count for each of 11 orders";
        let chunks = zone(line).ok_or_else(|| Error::malformed(path, number, expected, line))?;
        for (sum, count) in sums.chunks.iter_mut().zip(chunks) {
            *sum = sum.saturating_add(count);
        }
        zones += 1;
    }
    if zones == 0 {
        return Err(Error::malformed(path, 0, "a line for each zone", text));
    }
    Ok(sums)
}

/// `Node 0, zone   Normal    1    2 …`.
fn zone(line: &[u8]) -> Option<[u64; ORDERS]> {
    let mut words = text::words(line);
    let node = words.next()? == b"Node" && words.next()?.ends_with(b",");
    let zone = words.next()? == b"zone" && words.next().is_some();
    let counts: Option<Vec<u64>> = words.map(count).collect();
    counts?.try_into().ok().filter(|_| node && zone)
}

/// A count that could be one: no machine has that much memory.
fn count(word: &[u8]) -> Option<u64> {
    const MOST: u64 = 1 << 40;
    text::decimal(word).filter(|count| *count < MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] = include_bytes!("../tests/fixtures/proc/buddyinfo");

    fn parsed(text: &[u8]) -> Result<Buddyinfo> {
        parse(text, Path::new("buddyinfo"))
    }

    #[test]
    fn zones_and_nodes_are_summed() {
        let info = parsed(GOOD).expect("the fixture is good");
        let expected = [32, 23, 14, 9, 7, 6, 5, 4, 4, 4, 4021];
        assert_eq!(info.chunks, expected);
        let pages: u64 = (0..).zip(expected).map(|(order, count)| count << order).sum();
        assert_eq!(info.free(), BasePages(pages).bytes());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let good = "Node 0, zone Normal 1 2 3 4 5 6 7 8 9 10 11\n";
        assert!(parsed(good.as_bytes()).is_ok());
        for bad in [
            String::new(),
            good.replace(" 11", ""),
            good.replace(" 11", " 11 12"),
            good.replace(" 11", " many"),
            good.replace(" 11", " 99999999999999999999"),
            good.replace("Node", "Mode"),
            good.replace("zone", "Zone"),
        ] {
            let error = parsed(bad.as_bytes()).expect_err(&bad);
            assert!(matches!(error, Error::Malformed { .. }), "{error}");
        }
        let second = parsed(format!("{good}Node 0, zone DMA 1\n").as_bytes());
        let error = second.expect_err("too few orders");
        assert!(error.to_string().contains("buddyinfo:2:"), "{error}");
        assert!(matches!(read(Path::new("/nonexistent")), Err(Error::Missing { .. })));
    }

    #[test]
    fn this_machine_has_what_meminfo_says_is_free() {
        let here = Path::new("/proc");
        let ours = read(here).expect("we have /proc").free();
        let info = crate::meminfo::read(here).expect("and meminfo");
        let apart = Bytes(ours.0.abs_diff(info.free.0));
        assert!(apart < info.total.scaled(0.1), "{ours} and {}", info.free);
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(GOOD, |text| parsed(text).map(|info| info.free()));
    }
}
