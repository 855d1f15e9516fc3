//! `/sys/devices/system/node`: the nodes with memory (NUMA), and how much of each is left.
//!
//! Not which of them a process may use: that is [`status`](crate::status)'s (its cpuset) and
//! [`numa_maps`](crate::numa_maps)' (its policy) to say.
//! [NUMA memory](https://docs.kernel.org/admin-guide/mm/numaperf.html),
//! [per-node hugetlb pools](https://docs.kernel.org/admin-guide/mm/hugetlbpage.html).

use crate::error::{Error, Result};
use crate::meminfo::Fields;
use crate::text;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use superpage_units::Bytes;

/// No kernel has more nodes (`CONFIG_NODES_SHIFT` is 10 at the most).
const MOST: u32 = 1024;

/// A node's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u32);

/// A set of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSet(BTreeSet<Node>);

impl NodeSet {
    /// Understands a list as the kernel writes it: `0-1,4`; `None` for anything else.
    #[must_use]
    pub fn parse(list: &[u8]) -> Option<Self> {
        let list = list.trim_ascii();
        if list.is_empty() {
            return Some(Self::default());
        }
        let parts: Option<Vec<_>> = list.split(|byte| *byte == b',').map(span).collect();
        Some(Self(parts?.into_iter().flatten().map(Node).collect()))
    }

    /// The nodes, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = Node> {
        self.0.iter().copied()
    }

    /// The number of nodes in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set has no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all nodes of the set are among `others`.
    #[must_use]
    pub fn is_within(&self, others: &Self) -> bool {
        self.0.is_subset(&others.0)
    }

    /// The nodes that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }
}

/// `4` or `0-1`.
fn span(text: &[u8]) -> Option<std::ops::RangeInclusive<u32>> {
    let number = |word| text::decimal(word)?.try_into().ok().filter(|number| *number < MOST);
    let mut ends = text.splitn(2, |byte| *byte == b'-');
    let first = number(ends.next()?)?;
    let last = ends.next().map_or(Some(first), number)?;
    (first <= last).then_some(first..=last)
}

impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut nodes = self.0.iter().map(|node| node.0).peekable();
        let mut comma = "";
        while let Some(first) = nodes.next() {
            let mut last = first;
            while let Some(next) = nodes.next_if(|next| *next == last + 1) {
                last = next;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

/// The nodes that have memory, below `sys_root` (normally `/sys`).
///
/// # Errors
/// [`Error::Missing`] on a kernel without nodes, [`Error::Denied`] or [`Error::Malformed`].
pub fn with_memory(sys_root: &Path) -> Result<NodeSet> {
    let path = sys_root.join("devices/system/node/has_memory");
    let text = text::read(&path)?;
    NodeSet::parse(&text).ok_or_else(|| Error::malformed(&path, 1, "a list of nodes", &text))
}

/// A node's memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMemory {
    /// All memory of the node.
    pub total: Bytes,
    /// The part set aside for hugetlb pages of all sizes, in use or not.
    pub hugetlb: Bytes,
    /// Memory of the node that nobody uses.
    pub free: Bytes,
    /// The page cache of files.
    pub files: Bytes,
    /// Memory of the kernel that it can reclaim.
    pub reclaimable: Bytes,
}

impl NodeMemory {
    /// The memory that is not set aside for hugetlb.
    #[must_use]
    pub fn ordinary(&self) -> Bytes {
        self.total.saturating_sub(self.hugetlb)
    }

    /// Memory in use, without hugetlb, that the kernel could not free without swapping, moving or killing. The kernel gives no
    /// `MemAvailable` of a node: its reserve, which that leaves out, counts as free here.
    #[must_use]
    pub fn used(&self) -> Bytes {
        self.ordinary().saturating_sub(self.free + self.files + self.reclaimable)
    }
}

/// The memory of a node now, below `sys_root` (normally `/sys`).
///
/// # Errors
/// [`Error::Missing`] if there is no such node, [`Error::Denied`] or [`Error::Malformed`].
pub fn memory(sys_root: &Path, node: Node) -> Result<NodeMemory> {
    let directory = sys_root.join(format!("devices/system/node/node{}", node.0));
    let path = directory.join("meminfo");
    let memory = parse(&text::read(&path)?, node, &path)?;
    Ok(NodeMemory { hugetlb: hugetlb(&directory.join("hugepages"))?, ..memory })
}

/// Understands the text of a node's `meminfo`, which counts hugetlb pages of one size only and so says nothing of them here;
/// `path` is for the message if it cannot be understood.
///
/// # Errors
/// [`Error::Malformed`] if a line that is always there is not, or has no size in kB.
pub fn parse(text: &[u8], node: Node, path: &Path) -> Result<NodeMemory> {
    let fields = Fields::of(text, path);
    let size = |key: &str| fields.size(&format!("Node {} {key}", node.0));
    Ok(NodeMemory {
        total: size("MemTotal")?,
        hugetlb: Bytes::ZERO,
        free: size("MemFree")?,
        files: size("Active(file)")? + size("Inactive(file)")?,
        reclaimable: size("SReclaimable")?,
    })
}

/// The memory in a node's pools of hugetlb pages: `hugepages-2048kB/nr_hugepages` for each size.
fn hugetlb(pools: &Path) -> Result<Bytes> {
    // Not there on a kernel built without hugetlb.
    let Ok(pools) = std::fs::read_dir(pools) else { return Ok(Bytes::ZERO) };
    let mut sum = Bytes::ZERO;
    for pool in pools.flatten() {
        let name = pool.file_name();
        let size = name.as_encoded_bytes().strip_prefix(b"hugepages-");
        let size = size.and_then(|size| size.strip_suffix(b"kB")).and_then(text::decimal);
        if let Some(size) = size {
            let count = text::read_decimal(&pool.path().join("nr_hugepages"))?;
            sum += Bytes::from_kib(size.saturating_mul(count));
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] = include_bytes!("../tests/fixtures/sys/node1_meminfo");

    fn parsed(text: &[u8]) -> Result<NodeMemory> {
        parse(text, Node(1), Path::new("meminfo"))
    }

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for list in ["", "0", "1", "0-1", "0-1,4", "0,2,4-7,1023"] {
            let set = NodeSet::parse(list.as_bytes()).expect("the kernel writes such lists");
            assert_eq!(set.to_string(), list);
        }
        let set = NodeSet::parse(b"0-1,4\n").expect("with the end of its line");
        assert_eq!(set.iter().collect::<Vec<_>>(), [Node(0), Node(1), Node(4)]);
        for bad in ["x", "1-", "-1", "2-1", "0,,1", "0-1-2", "1024", "0-4294967295", "0 1"] {
            assert_eq!(NodeSet::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn sets_are_compared() {
        let set = |list: &str| NodeSet::parse(list.as_bytes()).expect("a list");
        assert!(set("1").is_within(&set("0-1")) && !set("0-1").is_within(&set("1")));
        assert_eq!(set("0-2").and(&set("1-3")), set("1-2"));
        assert_eq!((set("0-2").len(), set("0").and(&set("1")).is_empty()), (3, true));
    }

    #[test]
    fn a_real_file_reads() {
        let memory = parsed(GOOD).expect("the fixture is good");
        assert_eq!(memory.total, Bytes::from_kib(2_058_412));
        assert_eq!(memory.free, Bytes::from_kib(1_604_212));
        assert_eq!(memory.files, Bytes::from_kib(107_688 + 187_372));
        assert_eq!(memory.reclaimable, Bytes::from_kib(27_836));
        let in_use = memory.total - memory.free - memory.files - memory.reclaimable;
        assert_eq!(memory.used(), in_use);
        let set_aside = NodeMemory { hugetlb: Bytes::from_gib(1), ..memory };
        assert_eq!(set_aside.ordinary(), memory.total - Bytes::from_gib(1));
        assert_eq!(set_aside.used(), Bytes::ZERO, "a pool is no memory in use");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let other = parse(GOOD, Node(0), Path::new("meminfo")).expect_err("it is node 1's");
        assert!(other.to_string().contains("Node 0 MemTotal"), "{other}");
        let good = String::from_utf8_lossy(GOOD).into_owned();
        let no_size = parsed(good.replace("1604212 kB", "many").as_bytes()).expect_err("no size");
        assert!(no_size.to_string().contains("meminfo:2:"), "{no_size}");
        let missing = parsed(good.replace("SReclaimable", "S").as_bytes()).expect_err("missing");
        assert!(missing.to_string().contains("SReclaimable"), "{missing}");
    }

    #[test]
    fn pools_of_all_sizes_count() {
        let root = tempfile::tempdir().expect("there is room");
        assert!(matches!(memory(root.path(), Node(1)), Err(Error::Missing { .. })));
        assert!(matches!(with_memory(root.path()), Err(Error::Missing { .. })));
        let nodes = root.path().join("devices/system/node");
        let node = nodes.join("node1");
        for (size, count) in [("2048", "3\n"), ("1048576", "1\n")] {
            let pool = node.join(format!("hugepages/hugepages-{size}kB"));
            std::fs::create_dir_all(&pool).expect("there is room");
            std::fs::write(pool.join("nr_hugepages"), count).expect("there is room");
        }
        std::fs::write(node.join("meminfo"), GOOD).expect("there is room");
        std::fs::write(nodes.join("has_memory"), "0-1\n").expect("there is room");
        let read = memory(root.path(), Node(1)).expect("good");
        assert_eq!(read.hugetlb, Bytes::from_mib(6) + Bytes::from_gib(1));
        assert_eq!(with_memory(root.path()), Ok(NodeSet(BTreeSet::from([Node(0), Node(1)]))));
        std::fs::write(nodes.join("has_memory"), "all\n").expect("there is room");
        assert!(matches!(with_memory(root.path()), Err(Error::Malformed { .. })));
    }

    #[test]
    fn nodes_have_what_the_machine_has() {
        let sys = Path::new("/sys");
        let Ok(nodes) = with_memory(sys) else {
            assert!(!sys.join("devices/system/node").exists(), "a kernel without nodes");
            return;
        };
        let total: Bytes =
            nodes.iter().map(|node| memory(sys, node).expect("a node's memory").total).sum();
        let machine = crate::meminfo::read(Path::new("/proc")).expect("we have /proc").total;
        assert!(Bytes(total.0.abs_diff(machine.0)) < machine.scaled(0.01), "{total} {machine}");
    }

    #[test]
    fn no_text_makes_it_panic() {
        text::fuzz::never_panics(GOOD, parsed);
        text::fuzz::never_panics(b"0-1,4", NodeSet::parse);
    }
}
