//! The memory that this process can still have: the least of what the machine has left, of what the limits of its cgroups
//! leave, and of what its resource limits leave. The machine's swap space is no memory, but a group with a limit is there to
//! be swapped at it: what it may have in swap counts.
//!
//! Not the machine's alone (that is [`meminfo`]), and nothing is set aside: another process may take the memory first.
//! [getrlimit(2)](https://man7.org/linux/man-pages/man2/getrlimit.2.html),
//! [proc_pid_statm(5)](https://man7.org/linux/man-pages/man5/proc_pid_statm.5.html).

use crate::error::{Error, Result};
use crate::{cgroup, meminfo, text};
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::path::{Path, PathBuf};
use superpage_units::{BASE_PAGE_BYTES, Bytes};

/// The memory that is left, and what leaves no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The memory that is left.
    pub left: Bytes,
    /// The limit that it is left under.
    pub under: Limit,
}

/// A limit of the memory that a process can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The machine's memory, without swapping.
    Machine,
    /// The limit of a cgroup that the process is in.
    Cgroup(PathBuf),
    /// A resource limit of the process, by the name that getrlimit(2) has for it.
    Resource(&'static str),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("the machine"),
            Self::Cgroup(path) => write!(f, "the limit of the cgroup {}", path.display()),
            Self::Resource(name) => f.write_str(name),
        }
    }
}

/// The memory that this process can have now. What is below `root` (normally `/`) says so, but of resource limits, which are
/// asked of the kernel. A limit that cannot be read counts as none.
///
/// # Errors
/// [`Error::Missing`], [`Error::Denied`] or [`Error::Malformed`] where `meminfo` cannot be read.
pub fn now(root: &Path) -> Result<Room> {
    let proc = root.join("proc");
    let machine = Room { left: meminfo::obtainable(&proc)?, under: Limit::Machine };
    let swap = meminfo::read(&proc)?.swap_free;
    let groups = cgroup::own_limits(root, swap).unwrap_or_default().into_iter();
    let groups = groups.map(|group| Room { left: group.left, under: Limit::Cgroup(group.path) });
    let taken = taken(&proc.join("self/statm")).ok();
    let resource = |name, resource, taken: Bytes| {
        let most = Bytes(getrlimit(resource).current?);
        Some(Room { left: most.saturating_sub(taken), under: Limit::Resource(name) })
    };
    let space = taken.and_then(|taken| resource("RLIMIT_AS", Resource::As, taken.space));
    let data = taken.and_then(|taken| resource("RLIMIT_DATA", Resource::Data, taken.data));
    let limits = groups.chain(space).chain(data);
    Ok(limits.fold(machine, |least, room| if room.left < least.left { room } else { least }))
}

/// The use that a process makes of what its resource limits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    space: Bytes,
    /// Private memory that can be written to, and the stack.
    data: Bytes,
}

/// Reads a `statm` file: its first number is the address space, the sixth the data, both in pages.
fn taken(path: &Path) -> Result<Taken> {
    let text = text::read(path)?;
    let numbers: Option<Vec<u64>> = text::words(text.trim_ascii()).map(text::decimal).collect();
    match numbers.as_deref() {
        Some([space, _, _, _, _, data, ..]) => {
            let size = |pages: u64| Bytes(pages.saturating_mul(BASE_PAGE_BYTES));
            Ok(Taken { space: size(*space), data: size(*data) })
        }
        _ => Err(Error::malformed(path, 1, "seven numbers of pages", &text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A root with 16 GiB available, and a process in the cgroup `own` of version 1 or 2.
    fn root(mount: &str, own: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary directory");
        let process = root.path().join("proc/self");
        fs::create_dir_all(&process).expect("created");
        let meminfo = "MemTotal: 24684096 kB\nMemFree: 1024 kB\nMemAvailable: 16777216 kB\nAnonPages: 0 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n";
        fs::write(root.path().join("proc/meminfo"), meminfo).expect("written");
        fs::write(process.join("mountinfo"), format!("{mount}\n")).expect("written");
        fs::write(process.join("cgroup"), format!("{own}\n")).expect("written");
        root
    }

    fn group(root: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(root).expect("created");
        for (name, content) in files {
            fs::write(root.join(name), content).expect("written");
        }
    }

    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
    const V2: &str = "35 31 0:32 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";

    fn v1(root: &Path, limit: u64, usage: u64, cache: u64) {
        group(
            root,
            &[
                ("memory.usage_in_bytes", &format!("{usage}\n")),
                (
                    "memory.stat",
                    &format!(
                        "hierarchical_memory_limit {limit}\ntotal_inactive_file {cache}\ntotal_active_file {cache}\n"
                    ),
                ),
            ],
        );
    }

    fn v2(root: &Path, max: &str, high: &str) {
        group(
            root,
            &[
                ("cgroup.controllers", "memory\n"),
                ("memory.max", max),
                ("memory.high", high),
                ("memory.current", "1000000"),
                ("memory.stat", "inactive_file 100000\nactive_file 200000\n"),
            ],
        );
    }

    #[test]
    fn without_a_limit_the_machine_decides() {
        let root = root(V1, "4:memory:/a");
        v1(&root.path().join("sys/fs/cgroup/memory/a"), 0x7fff_ffff_ffff_f000, 5, 0);
        let found = now(root.path()).expect("a room");
        assert_eq!(found, Room { left: Bytes::from_gib(16), under: Limit::Machine });
        fs::remove_file(root.path().join("proc/meminfo")).expect("removed");
        assert!(matches!(now(root.path()), Err(Error::Missing { .. })));
    }

    #[test]
    fn the_least_room_of_all_groups_above_counts_in_version_1() {
        let root = root(V1, "4:memory:/a/b");
        let top = root.path().join("sys/fs/cgroup/memory");
        v1(&top.join("a"), 3_000_000, 2_500_000, 100_000);
        v1(&top.join("a/b"), 2_000_000, 500_000, 0);
        let found = now(root.path()).expect("a room");
        assert_eq!(found, Room { left: Bytes(700_000), under: Limit::Cgroup(top.join("a")) });
        // A group that is over its limit leaves nothing.
        v1(&top.join("a/b"), 1_000_000, 2_000_000, 0);
        let found = now(root.path()).expect("a room");
        assert_eq!(found, Room { left: Bytes::ZERO, under: Limit::Cgroup(top.join("a/b")) });
    }

    #[test]
    fn memory_high_counts_as_a_limit_in_version_2() {
        let root = root(V2, "0::/a/b");
        let top = root.path().join("sys/fs/cgroup");
        group(&top, &[("cgroup.controllers", "cpu memory\n")]);
        v2(&top.join("a"), "max\n", "5000000\n");
        v2(&top.join("a/b"), "6000000\n", "max\n");
        let found = now(root.path()).expect("a room");
        assert_eq!(found, Room { left: Bytes(4_300_000), under: Limit::Cgroup(top.join("a")) });
        // The group has no memory controller of its own, or is out of sight: those above it count.
        group(&top.join("a/b/c"), &[("cgroup.controllers", "cpu\n")]);
        for own in ["0::/a/b/c\n", "0::/a/b/gone\n"] {
            fs::write(root.path().join("proc/self/cgroup"), own).expect("written");
            assert_eq!(now(root.path()).expect("a room"), found, "{own}");
        }
        fs::write(top.join("a/memory.high"), "much\n").expect("written");
        let found = now(root.path()).expect("a room");
        assert_eq!(found.left, Bytes(5_300_000), "of the group whose limits can be read");
    }

    #[test]
    fn swap_that_a_group_may_have_is_room() {
        let swap = |root: &Path, kib: u32| {
            let path = root.join("proc/meminfo");
            let text = fs::read_to_string(&path).expect("it is there");
            fs::write(path, text.replace("SwapFree: 0", &format!("SwapFree: {kib}")))
                .expect("written");
        };
        let left = |root: &Path| now(root).expect("a room").left;
        let first = root(V1, "4:memory:/a");
        let own = first.path().join("sys/fs/cgroup/memory/a");
        v1(&own, 3_000_000, 1_000_000, 50_000);
        swap(first.path(), 1000);
        assert_eq!(left(first.path()), Bytes(2_100_000 + 1_024_000));
        let stat = fs::read_to_string(own.join("memory.stat")).expect("it is there");
        let both = |limit: u64| stat.clone() + &format!("hierarchical_memsw_limit {limit}\n");
        let used = ("memory.memsw.usage_in_bytes", "1000000");
        group(&own, &[("memory.stat", &both(3_500_000)), used]);
        assert_eq!(left(first.path()), Bytes(2_600_000));
        group(&own, &[("memory.stat", &both(0x7fff_ffff_ffff_f000))]);
        assert_eq!(left(first.path()), Bytes(2_100_000 + 1_024_000));
        let second = root(V2, "0::/a");
        let top = second.path().join("sys/fs/cgroup");
        group(&top, &[("cgroup.controllers", "memory\n")]);
        let own = top.join("a");
        v2(&own, "3000000", "max");
        swap(second.path(), 1000);
        assert_eq!(left(second.path()), Bytes(2_300_000 + 1_024_000));
        group(&own, &[("memory.swap.max", "500000"), ("memory.swap.current", "100000")]);
        assert_eq!(left(second.path()), Bytes(2_700_000));
        group(&own, &[("memory.swap.max", "max")]);
        assert_eq!(left(second.path()), Bytes(2_300_000 + 1_024_000));
    }

    #[test]
    fn statm_says_what_resource_limits_count() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let path = root.path().join("statm");
        fs::write(&path, "100 50 20 3 0 40 0\n").expect("written");
        let pages = |pages| Bytes(pages * BASE_PAGE_BYTES);
        assert_eq!(taken(&path), Ok(Taken { space: pages(100), data: pages(40) }));
        for bad in ["", "1 2 3\n", "1 2 3 4 5 x 7\n"] {
            fs::write(&path, bad).expect("written");
            assert!(matches!(taken(&path), Err(Error::Malformed { .. })), "{bad:?}");
        }
    }
}
