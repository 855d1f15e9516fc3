//! Memory as policies see it, from what the kernel's files say: what is free and in what pieces, and
//! how much of it, the machine's, a cgroup's or some nodes', is used.
//!
//! What a policy makes of it is the policies' business.

use std::path::Path;
use superpage_kernel::Result;
use superpage_kernel::buddyinfo::{self, Buddyinfo};
use superpage_kernel::cgroup::Group;
use superpage_kernel::meminfo::{self, Meminfo};
use superpage_kernel::node::{self, NodeSet};
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

/// How much of the machine's memory is used, without what is set aside for hugetlb, by `meminfo` in `proc_root`.
///
/// # Errors
/// As [`meminfo::read`].
pub fn usage_of_machine(proc_root: &Path) -> Result<Usage> {
    let memory = meminfo::read(proc_root)?;
    Ok(Usage { used: memory.used(), total: memory.ordinary() })
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

/// How much of the memory of these nodes is used, without what is set aside for hugetlb, by `sys_root` (normally `/sys`).
///
/// # Errors
/// As [`node::memory`].
pub fn usage_of_nodes(sys_root: &Path, nodes: &NodeSet) -> Result<Usage> {
    let mut sum = Usage { used: Bytes::ZERO, total: Bytes::ZERO };
    for one in nodes.iter() {
        let memory = node::memory(sys_root, one)?;
        sum.used += memory.used();
        sum.total += memory.ordinary();
    }
    Ok(sum)
}

/// The fullest of the limits that hold in a memory cgroup: its own, and those of the groups it is in;
/// `None` where none has one, or can be asked.
#[must_use]
pub fn fullest_cgroup(directory: &Path) -> Option<Usage> {
    let limited = directory.ancestors().filter_map(|path| usage_of_cgroup(path).ok().flatten());
    limited.max_by_key(|usage| usage.share())
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::{BasePages, HugePages, PageSize};

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
