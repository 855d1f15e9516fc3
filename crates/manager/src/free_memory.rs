//! Memory as policies see it, from what the kernel's files say: what is free and in what pieces, and
//! how much of it, the machine's, a cgroup's or some nodes', is used.
//!
//! What a policy makes of it is the policies' business.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use superpage_kernel::buddyinfo::{self, Buddyinfo};
use superpage_kernel::cgroup::Group;
use superpage_kernel::meminfo::{self, Meminfo};
use superpage_kernel::node::{self, Node, NodeMemory, NodeSet};
use superpage_kernel::zoneinfo::{self, CpuLists};
use superpage_kernel::{Error, Result};
use superpage_policy::free_memory::{FreeMemory, ORDERS};
use superpage_policy::watermark::Usage;
use superpage_units::Bytes;

/// The free memory now, from `meminfo` and `buddyinfo` in `proc_root` (normally `/proc`).
///
/// # Errors
/// As [`meminfo::read`] and [`buddyinfo::read`].
pub fn read(proc_root: &Path) -> Result<FreeMemory> {
    Ok(free_memory(&meminfo::read(proc_root)?, &buddyinfo::read(proc_root)?))
}

/// The free memory according to these two.
///
/// The allocator's largest chunk is 4 MiB: what lies side by side in larger ones is counted in
/// chunks of that size, so no gigantic page is ever said to be available. Which free pages hold
/// zeroes the kernel does not say, so none do. What can be dropped is what is available and not
/// free.
#[must_use]
pub fn free_memory(memory: &Meminfo, free: &Buddyinfo) -> FreeMemory {
    let mut chunks = [0; ORDERS];
    chunks.iter_mut().zip(free.chunks).for_each(|(chunk, count)| *chunk = count);
    FreeMemory {
        total: memory.ordinary().to_base_pages(),
        chunks,
        page_cache: memory.available.saturating_sub(memory.free).to_base_pages(),
        ..FreeMemory::NONE
    }
}

/// How much of the machine's memory is used, without what is set aside for hugetlb, by `meminfo` and `zoneinfo` in `proc_root`.
///
/// Free pages on the CPUs' own lists are not used, though the kernel leaves them out of what is available: what a pass has just
/// freed lies there first (without them `live_daemon`'s `what_was_asked_for_goes_only_above_high` may split too much).
///
/// # Errors
/// As [`meminfo::read`].
pub fn usage_of_machine(proc_root: &Path) -> Result<Usage> {
    let memory = meminfo::read(proc_root)?;
    let on_lists = zoneinfo::read(proc_root).unwrap_or_default().all();
    Ok(Usage { used: memory.used().saturating_sub(on_lists), total: memory.ordinary() })
}

/// How much of its limit a memory cgroup uses, by its directory; `None` if it has no limit of its own.
///
/// # Errors
/// As [`Group::open`] and [`Group::usage`].
pub fn usage_of_cgroup(directory: &Path) -> Result<Option<Usage>> {
    let group = Group::open(directory)?;
    let Some(total) = group.least_limit()? else { return Ok(None) };
    Ok(Some(Usage { used: group.usage()?.working, total }))
}

/// The nodes' memory at one moment: each is read once, in however many sets it is. To read one takes some 100 us.
#[derive(Debug)]
pub struct Nodes {
    proc_root: PathBuf,
    sys_root: PathBuf,
    read: BTreeMap<Node, Result<NodeMemory>>,
    lists: Option<CpuLists>,
}

impl Nodes {
    /// The nodes of this machine; none is read yet.
    #[must_use]
    pub fn now() -> Self {
        Self::under(Path::new("/proc"), Path::new("/sys"))
    }

    /// The nodes below `sys_root`, and the CPUs' lists of free pages in `proc_root`.
    pub(crate) fn under(proc_root: &Path, sys_root: &Path) -> Self {
        let (proc_root, sys_root) = (proc_root.to_owned(), sys_root.to_owned());
        Self { proc_root, sys_root, read: BTreeMap::new(), lists: None }
    }

    /// How much of the memory of these nodes is used, without what is set aside for hugetlb.
    ///
    /// # Errors
    /// As [`node::memory`]; [`Error::Refused`] if they have no memory, or all of it is set aside.
    pub fn usage(&mut self, nodes: &NodeSet) -> Result<Usage> {
        let mut sum = Usage { used: Bytes::ZERO, total: Bytes::ZERO };
        for one in nodes.iter() {
            let read = self.read.entry(one);
            let memory = read.or_insert_with(|| node::memory(&self.sys_root, one)).clone()?;
            let lists = self
                .lists
                .get_or_insert_with(|| zoneinfo::read(&self.proc_root).unwrap_or_default());
            sum.used += memory.used().saturating_sub(lists.of(one));
            sum.total += memory.ordinary();
        }
        if sum.total == Bytes::ZERO {
            let path = self.sys_root.join("devices/system/node");
            let reason = "these nodes have no memory that is not set aside for hugetlb";
            return Err(Error::Refused { path, reason });
        }
        Ok(sum)
    }
}

/// The fullest of the limits that hold in a memory cgroup: its own, and those of the groups it is in;
/// `None` where none has one, or can be asked.
#[must_use]
pub fn fullest_cgroup(directory: &Path) -> Option<Usage> {
    let limited = directory.ancestors().filter_map(|path| usage_of_cgroup(path).ok().flatten());
    limited.max_by_key(|usage| usage.share())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use superpage_units::{BasePages, HugePages, PageSize};

    /// Writes a node with a GiB, so much of it in use, and this many gigantic pages in its pool.
    pub(crate) fn write_node(sys_root: &Path, node: u32, used: Bytes, pool: u64) {
        let directory = sys_root.join(format!("devices/system/node/node{node}"));
        let gigantic = directory.join("hugepages/hugepages-1048576kB");
        std::fs::create_dir_all(&gigantic).expect("there is room");
        std::fs::write(gigantic.join("nr_hugepages"), pool.to_string()).expect("there is room");
        let total = Bytes::from_gib(1);
        let fields = [
            ("MemTotal", total),
            ("MemFree", total - used),
            ("Active(file)", Bytes::ZERO),
            ("Inactive(file)", Bytes::ZERO),
            ("SReclaimable", Bytes::ZERO),
        ];
        let line = |(name, size): (&str, Bytes)| {
            format!("Node {node} {name}: {} kB\n", size.0 / Bytes::from_kib(1).0)
        };
        let text: String = fields.into_iter().map(line).collect();
        std::fs::write(directory.join("meminfo"), text).expect("there is room");
    }

    #[test]
    fn each_node_is_read_once() {
        let root = tempfile::tempdir().expect("there is room");
        let set = |list: &str| NodeSet::parse(list.as_bytes()).expect("a list");
        let half = Bytes::from_mib(512); // tidy: allow(half a GiB)
        (0..2).for_each(|node| write_node(root.path(), node, half, 0));
        let mut nodes = Nodes::under(root.path(), root.path());
        std::fs::write(root.path().join("zoneinfo"), "Node 0, zone Normal\n count: 1\n")
            .expect("there is room");
        let usage = Usage { used: half - BasePages(1).bytes(), total: Bytes::from_gib(1) };
        assert_eq!(nodes.usage(&set("0")), Ok(usage));
        write_node(root.path(), 0, Bytes::ZERO, 0);
        let both = Usage { used: usage.used + half, total: Bytes::from_gib(2) };
        assert_eq!(nodes.usage(&set("0-1")), Ok(both), "node 0 as it was read");
        assert!(nodes.usage(&set("2")).is_err(), "there is none");
    }

    #[test]
    fn nodes_that_are_all_hugetlb_have_nothing_free() {
        let root = tempfile::tempdir().expect("there is room");
        let set = |list: &str| NodeSet::parse(list.as_bytes()).expect("a list");
        (0..2).for_each(|node| write_node(root.path(), node, Bytes::ZERO, node.into()));
        let mut nodes = Nodes::under(root.path(), root.path());
        assert!(matches!(nodes.usage(&set("1")), Err(Error::Refused { .. })));
        let usage = Usage { used: Bytes::ZERO, total: Bytes::from_gib(1) };
        assert_eq!(nodes.usage(&set("0-1")), Ok(usage));
    }

    fn memory() -> Meminfo {
        Meminfo {
            total: Bytes::from_gib(8),
            hugetlb: Bytes::ZERO,
            free: Bytes::from_gib(1),
            available: Bytes::from_gib(3),
            anonymous: Bytes::ZERO,
            anon_huge_pages: None,
            swap_total: Bytes::ZERO,
            swap_free: Bytes::ZERO,
        }
    }

    #[test]
    fn chunks_of_four_mebibytes_are_two_huge_pages_each() {
        let mut free = Buddyinfo::default();
        free.chunks[0] = 1024;
        free.chunks[9] = 1;
        free.chunks[10] = 3;
        let free_memory = free_memory(&memory(), &free);
        assert_eq!(free_memory.huge_pages(), HugePages(7));
        assert_eq!(free_memory.free().bytes(), free.free());
        assert!((free_memory.fmfi(PageSize::Huge).get() - 2.0 / 9.0).abs() < 1e-9);
        assert_eq!(free_memory.page_cache.bytes(), Bytes::from_gib(2));
        assert_eq!((free_memory.zeroed_huge, free_memory.zeroed_gigantic), (0, 0));
    }

    #[test]
    fn this_machine_has_some() {
        let free_memory = read(Path::new("/proc")).expect("we have /proc");
        assert!(free_memory.total > free_memory.free() && free_memory.free() > BasePages::ZERO);
    }
}
