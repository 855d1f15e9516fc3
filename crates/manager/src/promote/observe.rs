//! An observation: which processes are to be promoted in, under which policy, what they have done, and
//! what memory there is for it.

use super::event::{Activity, Observation, Observed};
use super::gate::{Domain, Domains};
use super::policy::Promotion;
use crate::config::{CgroupMarks, PromotionConfig};
use crate::free_memory::{self, Nodes};
use crate::left_behind::Owner;
use crate::process::ManagedProcess;
use crate::registry::Registry;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use superpage_kernel::Result;
use superpage_kernel::node::NodeSet;
use superpage_kernel::thp::{self, Enabled, Thp};
use superpage_policy::watermark::{Usage, Watermarks};
use superpage_units::{Bytes, HugePages, Time};

/// The part of the configuration that an observation goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Policies and rules.
    pub promotion: PromotionConfig,
    /// The watermarks of the machine.
    pub marks: Watermarks,
    /// The watermarks of single cgroups.
    pub cgroups: Vec<CgroupMarks>,
    /// The watermarks of other cgroups with a limit, and of nodes.
    pub limited: Watermarks,
}

/// Goes through all processes, and reads how memory is used.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn observe(registry: &Registry, wanted: &Wanted, now: Time) -> Result<Observation> {
    registry.refresh(now)?;
    let mut domains = Measured::new(wanted.marks);
    let processes = if is_forbidden(&wanted.promotion) { Vec::new() } else { registry.processes() };
    let observed = processes.into_iter().filter_map(|process| {
        let policy = wanted.promotion.policy_of(&process.identity)?;
        if policy == Promotion::Off {
            return None;
        }
        let activity = activity(&process)?;
        let domains = domains.of(&process, wanted);
        let owner = Owner::of(&process.identity);
        Some(Observed { key: process.key, owner, policy, activity, domains })
    });
    let processes = observed.collect();
    Ok(Observation {
        processes,
        domains: domains.all,
        free: free_memory::read(Path::new("/proc"))?,
    })
}

/// Whether the administrator wants no huge pages on this machine, and the configuration does not say otherwise.
fn is_forbidden(promotion: &PromotionConfig) -> bool {
    let is_never = || Thp::under(Path::new("/sys")).get(thp::ENABLED) == Ok(Enabled::Never);
    !promotion.under_never && is_never()
}

fn activity(process: &ManagedProcess) -> Option<Activity> {
    let stat = process.stat().ok()?;
    let faults = stat.minor_faults + stat.major_faults;
    Some(Activity { faults, resident: stat.resident })
}

/// Memory whose usage cannot be read is taken for full: nothing is added to it.
const FULL: Usage = Usage { used: Bytes(1), total: Bytes(1) };

/// The memory that promotions are measured against: the machine's first, then cgroups' with limits, and nodes'.
struct Measured {
    all: Vec<Domain>,
    /// The domain of each cgroup that was asked for; `None` if the cgroup has no limit.
    cgroups: BTreeMap<PathBuf, Option<usize>>,
    nodes: BTreeMap<NodeSet, usize>,
    read: Nodes,
}

impl Measured {
    fn new(marks: Watermarks) -> Self {
        let usage = free_memory::usage_of_machine(Path::new("/proc")).unwrap_or(FULL);
        let machine = Domain { usage, marks, promised: HugePages::ZERO };
        let (cgroups, nodes) = (BTreeMap::new(), BTreeMap::new());
        Self { all: vec![machine], cgroups, nodes, read: Nodes::now() }
    }

    fn of(&mut self, process: &ManagedProcess, wanted: &Wanted) -> Domains {
        Domains {
            cgroup: process.cgroup().and_then(|path| self.of_cgroup(path, wanted)),
            nodes: process.nodes().map(|nodes| self.of_nodes(nodes, wanted)),
        }
    }

    fn add(&mut self, usage: Usage, marks: Watermarks) -> usize {
        self.all.push(Domain { usage, marks, promised: HugePages::ZERO });
        self.all.len() - 1
    }

    fn of_nodes(&mut self, nodes: NodeSet, wanted: &Wanted) -> usize {
        if let Some(known) = self.nodes.get(&nodes) {
            return *known;
        }
        let usage = self.read.usage(&nodes).unwrap_or(FULL);
        let index = self.add(usage, wanted.limited);
        self.nodes.insert(nodes, index);
        index
    }

    /// The domain of a cgroup: the fullest of those limits that hold for it, with the watermarks of the
    /// nearest cgroup that has some of its own, or else those of all cgroups.
    fn of_cgroup(&mut self, path: &Path, wanted: &Wanted) -> Option<usize> {
        if let Some(known) = self.cgroups.get(path) {
            return *known;
        }
        let usage = free_memory::fullest_cgroup(path);
        let own = wanted.cgroups.iter().filter(|group| path.starts_with(&group.path));
        let own = own.max_by_key(|group| group.path.as_os_str().len()).map(|group| group.marks);
        let marks = own.unwrap_or(wanted.limited);
        let index = usage.map(|usage| self.add(usage, marks));
        self.cgroups.insert(path.to_owned(), index);
        index
    }
}
