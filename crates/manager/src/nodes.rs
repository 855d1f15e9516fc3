//! The nodes (NUMA) to which a process is bound: those that its cpuset and its memory policy leave it.
//!
//! A process that may use all nodes with memory is bound to none, and on a machine with one such node nothing is asked. The cpuset
//! is in `status`, which is read anyway. For the policy the kernel takes the lock of the process's memory map, so it is asked
//! where its VMAs are.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use superpage_kernel::maps;
use superpage_kernel::node::{self, NodeSet};
use superpage_kernel::numa_maps;
use superpage_kernel::process::Process;
use superpage_units::Bytes;

/// How long an answer about nodes is believed. Chosen, not measured: memory is plugged in, and a policy changed, rarely.
const HOLD: Duration = Duration::from_secs(10);
/// The policy of a process of which one of the first two VMAs is larger is not asked for: the kernel walks the page tables of these
/// two for it ([`numa_maps`]), about a millisecond for this. Chosen. Mostly these two are of the program's own file;
/// large ones (Java's heap) may lie below that.
const LARGEST_WALKED: Bytes = Bytes::from_mib(32);

/// The nodes that a process's cpuset lets it use, on a machine with several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    nodes: NodeSet,
    /// All nodes with memory.
    machine: NodeSet,
}

impl Allowed {
    /// The nodes of a machine that a cpuset lists.
    #[must_use]
    pub fn new(cpuset: &NodeSet, machine: NodeSet) -> Self {
        Self { nodes: cpuset.and(&machine), machine }
    }

    /// The nodes to which a process is bound, where its policy binds it to these, if it does; `None` if it may use all.
    #[must_use]
    pub fn bound(&self, policy: Option<&NodeSet>) -> Option<NodeSet> {
        let both = policy.map(|policy| policy.and(&self.nodes));
        // The kernel forgets a policy of which the cpuset leaves nothing.
        let bound = both.filter(|both| !both.is_empty()).unwrap_or_else(|| self.nodes.clone());
        (!bound.is_empty() && bound != self.machine).then_some(bound)
    }
}

/// The nodes with memory of the machine.
#[derive(Debug)]
pub(crate) struct Machine {
    sys: PathBuf,
    /// The nodes as of a time.
    nodes: Mutex<Option<(Instant, Option<NodeSet>)>>,
}

impl Machine {
    /// The machine whose `/sys` lies below `root`.
    pub(crate) fn under(root: &Path) -> Self {
        Self { sys: root.join("sys"), nodes: Mutex::default() }
    }

    /// The machine's nodes with memory; `None` where there are no two.
    pub(crate) fn several(&self) -> Option<NodeSet> {
        let mut known = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, nodes)) = known.as_ref().filter(|(at, _)| at.elapsed() < HOLD) {
            return nodes.clone();
        }
        let nodes = node::with_memory(&self.sys).ok().filter(|nodes| nodes.len() > 1);
        known.insert((Instant::now(), nodes)).1.clone()
    }
}

/// The policy of a process, as it was asked for last.
#[derive(Debug, Default)]
pub(crate) struct Policy(Mutex<Option<(Instant, Option<NodeSet>)>>);

impl Policy {
    /// The same, for another hold of the same process: neither an `execve` nor other nodes change it.
    pub(crate) fn same(&self) -> Self {
        Self(Mutex::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    }

    /// The nodes to which it binds the process.
    pub(crate) fn bound(&self) -> Option<NodeSet> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().and_then(|(_, nodes)| nodes.clone())
    }

    /// Asks for it if it is time and costs little, of a process with these VMAs.
    pub(crate) fn see(&self, process: &Process, vmas: &[maps::Vma]) {
        if vmas.iter().take(2).any(|vma| Bytes(vma.end.0 - vma.start.0) > LARGEST_WALKED) {
            return;
        }
        {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.as_ref().is_some_and(|(at, _)| at.elapsed() < HOLD) {
                return;
            }
        }
        // A process whose policy cannot be read is gone, or binds nobody.
        self.set(numa_maps::bound(process).ok().flatten());
    }

    /// Takes an answer in.
    pub(crate) fn set(&self, nodes: Option<NodeSet>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), nodes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::VirtAddr;

    fn set(list: &str) -> NodeSet {
        NodeSet::parse(list.as_bytes()).expect("a list")
    }

    #[test]
    fn cpuset_and_policy_bind_together() {
        for (cpuset, policy, bound) in [
            ("0-3", None, None),
            ("0-1023", None, None),
            ("0-3", Some("0-3"), None),
            ("1", None, Some("1")),
            ("0-3", Some("1,3"), Some("1,3")),
            ("0-1", Some("1-2"), Some("1")),
            ("0-1", Some("2"), Some("0-1")),
            ("7", None, None),
        ] {
            let allowed = Allowed::new(&set(cpuset), set("0-3"));
            let found = allowed.bound(policy.map(set).as_ref());
            assert_eq!(found, bound.map(set), "{cpuset} {policy:?}");
        }
    }

    #[test]
    fn a_process_that_begins_with_a_large_vma_is_not_asked() {
        let own = Process::current().expect("we have /proc");
        let file = maps::of(&own).expect("we have VMAs").remove(0);
        let sized =
            |size: Bytes| maps::Vma { end: VirtAddr(file.start.0 + size.0), ..file.clone() };
        let (small, large) = (sized(LARGEST_WALKED), sized(Bytes::from_gib(1)));
        for (vmas, is_asked) in [
            ([&large, &small, &small], false),
            ([&small, &large, &small], false),
            ([&small, &small, &large], true),
        ] {
            let policy = Policy::default();
            policy.see(&own, &vmas.map(Clone::clone));
            assert_eq!(policy.0.lock().expect("nobody panics").is_some(), is_asked, "{vmas:?}");
        }
    }

    #[test]
    fn a_machine_with_one_node_has_none_to_tell_apart() {
        let root = tempfile::tempdir().expect("there is room");
        assert_eq!(Machine::under(root.path()).several(), None, "a kernel without");
        let nodes = root.path().join("sys/devices/system/node");
        std::fs::create_dir_all(&nodes).expect("there is room");
        for (list, several) in [("0\n", None), ("0-1\n", Some(set("0-1")))] {
            std::fs::write(nodes.join("has_memory"), list).expect("there is room");
            assert_eq!(Machine::under(root.path()).several(), several);
        }
    }
}
