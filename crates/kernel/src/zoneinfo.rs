//! `/proc/zoneinfo`: free pages that lie on the CPUs' own lists. The kernel does not count them as free, nor as available; it
//! puts them back within seconds, or when an allocation fails after direct reclaim. On a machine with few CPUs they are half a
//! GiB and more after a large process has ended (Linux 6.7 and later let the lists of all CPUs grow to an eighth of a zone).
//!
//! Not here: what is free otherwise ([`meminfo`](crate::meminfo), [`buddyinfo`](crate::buddyinfo)).
//! [proc_zoneinfo(5)](https://man7.org/linux/man-pages/man5/proc_zoneinfo.5.html).

use crate::error::{Error, Result};
use crate::node::Node;
use crate::text;
use std::collections::BTreeMap;
use std::path::Path;
use superpage_units::{BASE_PAGE_BYTES, Bytes};

/// The line of each list that has its length.
const COUNT: &[u8] = b"count:";

/// The memory on the lists of the CPUs at one moment, by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuLists(BTreeMap<Node, Bytes>);

impl CpuLists {
    /// The memory of all nodes.
    #[must_use]
    pub fn all(&self) -> Bytes {
        self.0.values().copied().sum()
    }

    /// The memory of one node; none of a node that does not exist.
    #[must_use]
    pub fn of(&self, node: Node) -> Bytes {
        self.0.get(&node).copied().unwrap_or(Bytes::ZERO)
    }
}

/// The memory on the lists now, from `zoneinfo` in `proc_root` (normally `/proc`).
///
/// # Errors
/// [`Error::Missing`], [`Error::Denied`] or [`Error::Malformed`].
pub fn read(proc_root: &Path) -> Result<CpuLists> {
    let path = proc_root.join("zoneinfo");
    parse(&text::read(&path)?, &path)
}

/// Understands the text of a `zoneinfo` file; `path` is for the message if it cannot be.
///
/// # Errors
/// [`Error::Malformed`] if the number of a node or the length of a list is no number.
pub fn parse(text: &[u8], path: &Path) -> Result<CpuLists> {
    let mut lists = CpuLists::default();
    let mut node = Node(0);
    for (number, line) in text::lines(text) {
        if let Some(zone) = line.strip_prefix(b"Node ") {
            let digits = zone.split(|byte| *byte == b',').next().unwrap_or(zone);
            let known = text::decimal(digits).and_then(|node| node.try_into().ok());
            node = known.map(Node).ok_or_else(|| Error::malformed(path, number, "a node", zone))?;
        }
        let Some(count) = line.trim_ascii().strip_prefix(COUNT) else { continue };
        let malformed = || Error::malformed(path, number, "a number of pages", count);
        let count = text::decimal(count.trim_ascii()).ok_or_else(malformed)?;
        let sum = lists.0.entry(node).or_default();
        sum.0 = sum.0.saturating_add(count.saturating_mul(BASE_PAGE_BYTES));
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::BasePages;

    const GOOD: &[u8] = b"Node 0, zone   Normal\n  pages free     5902\n        boost    0\n  pagesets\n    cpu: 0\n\
        \x20             count:    512\n              high:     1444\n              batch:    63\n\
        \x20 vm stats threshold: 24\n    cpu: 1\n              count:    3\n              high:     696\n";

    fn parsed(text: &[u8]) -> Result<CpuLists> {
        parse(text, Path::new("zoneinfo"))
    }

    #[test]
    fn lists_of_all_cpus_are_added_up() {
        let lists = parsed(GOOD).expect("as the kernel writes it");
        assert_eq!(lists.all(), BasePages(515).bytes());
        assert_eq!(parsed(b""), Ok(CpuLists::default()));
    }

    #[test]
    fn each_node_has_its_own() {
        let two = [GOOD, b"Node 12, zone  Movable\n    cpu: 0\n       count: 7\n"].concat();
        let lists = parsed(&two).expect("as the kernel writes it");
        let pages = [0, 12, 1].map(|node| lists.of(Node(node)).to_base_pages().0);
        assert_eq!((pages, lists.all()), ([515, 7, 0], BasePages(522).bytes()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = parsed(b"  pagesets\n    count: many\n").expect_err("no number");
        assert!(wrong.to_string().contains("zoneinfo:2:"), "{wrong}");
        let wrong = parsed(b"Node x, zone DMA\n").expect_err("no number");
        assert!(wrong.to_string().contains("zoneinfo:1:"), "{wrong}");
    }

    #[test]
    fn this_machine_has_lists() {
        let total = crate::meminfo::read(Path::new("/proc")).expect("we have /proc").total;
        assert!(read(Path::new("/proc")).expect("we have /proc").all() < total);
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(GOOD, parsed);
    }
}
