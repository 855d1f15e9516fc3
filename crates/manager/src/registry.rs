//! The registry of processes: which are managed, under which policy, held once each.
//!
//! All processes are gone through again and again ([`Registry::observe`]): that reads only what the
//! kernel answers without waiting for a process's locks. Small processes are passed over until they
//! have grown. Whether a process is selected, and under which policy, is asked again every
//! `DESCRIBED_HOLD`, so one that changes its user or its cgroup is known as what it is.

use crate::config::{CgroupMarks, PromotionConfig};
use crate::process::ManagedProcess;
use crate::promote::Time;
use crate::promote::event::{Activity, Observation, Observed};
use crate::promote::gate::Domain;
use crate::promote::policy::Promotion;
use crate::select::{Described, Describer, Selection};
use crate::supply;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use superpage_kernel::{Result, process, status};
use superpage_policy::watermark::{Usage, Watermarks};
use superpage_units::{Bytes, HugePages, Nanos, ProcessKey};
use tracing::debug;

/// Processes with less memory are not managed unless their number is named. Chosen, not measured: the
/// gain of eight huge pages is hard to see.
const WORTH_MANAGING: Bytes = Bytes::from_mib(16);
/// How long an answer about who a process is, or that it is small, is believed. To ask takes some
/// 100 us.
const DESCRIBED_HOLD: Nanos = Nanos(10_000_000_000); // tidy: allow(10 s)

/// Processes that are asked who they are in one observation, at the most. The others are next; meanwhile
/// they are known as who they were. Chosen: some milliseconds.
const DESCRIBED_AT_ONCE: usize = 32;
/// A small process is asked for its size again after this, and then as long after as it is known. Chosen,
/// not measured: it takes some 5 us.
const ASKED_FIRST: Nanos = Nanos(100_000_000);

/// Which processes are to be managed, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Which processes at all.
    pub processes: Selection,
    /// Policies and rules.
    pub promotion: PromotionConfig,
    /// The watermarks of the machine.
    pub marks: Watermarks,
    /// Those of single cgroups.
    pub cgroups: Vec<CgroupMarks>,
}

/// The managed processes by key, for whoever acts on them.
#[derive(Debug, Default)]
pub struct Handles(Mutex<BTreeMap<ProcessKey, Arc<ManagedProcess>>>);

impl Handles {
    /// A managed process.
    #[must_use]
    pub fn get(&self, key: ProcessKey) -> Option<Arc<ManagedProcess>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }
}

/// What is known of a process by its number.
#[derive(Debug)]
enum Known {
    /// The process is small or not selected.
    PassedOver {
        /// Since when it is known.
        since: Time,
        /// When it is asked again.
        until: Time,
    },
    /// The process is managed.
    Managed(Entry),
}

/// A managed process.
#[derive(Debug)]
struct Entry {
    process: Arc<ManagedProcess>,
    policy: Promotion,
    described: Time,
}

/// The registry.
#[derive(Debug)]
pub struct Registry {
    wanted: Wanted,
    describer: Describer,
    known: BTreeMap<u32, Known>,
    handles: Arc<Handles>,
    /// How many were asked who they are in this observation.
    described: usize,
}

impl Registry {
    /// One that knows of no process yet.
    #[must_use]
    pub fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            describer: Describer::new(),
            known: BTreeMap::new(),
            handles: Arc::default(),
            described: 0,
        }
    }

    /// The managed processes, for whoever acts on them.
    #[must_use]
    pub fn handles(&self) -> Arc<Handles> {
        Arc::clone(&self.handles)
    }

    /// Other processes are to be managed from now on; each is asked again who it is.
    pub fn configure(&mut self, wanted: Wanted) {
        self.wanted = wanted;
        self.known.retain(|_, known| match known {
            Known::PassedOver { .. } => false,
            Known::Managed(entry) => {
                entry.described = Time::ZERO;
                true
            }
        });
    }

    /// Goes through all processes, and reads how memory is used.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn observe(&mut self, now: Time) -> Result<Observation> {
        let pids = process::list(Path::new("/proc"))?;
        self.described = 0;
        let alive: BTreeSet<u32> = pids.iter().copied().collect();
        self.known.retain(|pid, _| alive.contains(pid));
        let observed: Vec<_> = pids.into_iter().filter_map(|pid| self.look(pid, now)).collect();
        let handles = self.known.values().filter_map(|known| match known {
            Known::Managed(Entry { process, .. }) => Some((process.key, Arc::clone(process))),
            Known::PassedOver { .. } => None,
        });
        *self.handles.0.lock().unwrap_or_else(PoisonError::into_inner) = handles.collect();
        let mut domains = Domains::of(self.wanted.marks);
        let processes = observed.into_iter().map(|(process, policy, activity)| {
            let domain = process.cgroup.as_deref();
            let domain = domain.and_then(|path| domains.of_cgroup(path, &self.wanted.cgroups));
            Observed { key: process.key, policy, activity, domain }
        });
        let processes = processes.collect();
        Ok(Observation { processes, domains: domains.all, free: supply::read(Path::new("/proc"))? })
    }

    /// A process, if it is managed.
    fn look(&mut self, pid: u32, now: Time) -> Option<(Arc<ManagedProcess>, Promotion, Activity)> {
        let mut since = now;
        match self.known.get(&pid) {
            Some(Known::PassedOver { until, .. }) if *until > now => return None,
            Some(Known::PassedOver { since: earlier, .. }) => since = *earlier,
            Some(Known::Managed(entry)) => {
                let is_described = now.saturating_sub(entry.described) < DESCRIBED_HOLD
                    || self.described >= DESCRIBED_AT_ONCE;
                // After an `execve` it is another program, with other memory.
                if is_described && entry.process.pagemap.is_current() {
                    let activity = activity(&entry.process)?;
                    return Some((Arc::clone(&entry.process), entry.policy, activity));
                }
            }
            None => {}
        }
        let before = match self.known.remove(&pid) {
            Some(Known::Managed(entry)) => Some(entry.process),
            _ => None,
        };
        let entry = self.manage(pid, before, now);
        let found = entry.as_ref().and_then(|entry| {
            let activity = activity(&entry.process)?;
            Some((Arc::clone(&entry.process), entry.policy, activity))
        });
        // A program that has just begun may fill its memory soon.
        let wait = now.saturating_sub(since).clamp(ASKED_FIRST, DESCRIBED_HOLD);
        let passed_over = Known::PassedOver { since, until: now + wait };
        let known = entry.map_or(passed_over, Known::Managed);
        self.known.insert(pid, known);
        found
    }

    /// The process as an entry, if it is to be managed; `before` is as what it was held before.
    fn manage(
        &mut self,
        pid: u32,
        before: Option<Arc<ManagedProcess>>,
        now: Time,
    ) -> Option<Entry> {
        let is_large =
            || status::resident(Path::new("/proc"), pid).is_ok_and(|size| size >= WORTH_MANAGING);
        let is_named = || self.wanted.processes.include.pids.contains(&pid);
        if !is_named() && before.is_none() && !is_large() {
            return None;
        }
        self.described += 1;
        let described = self.describer.describe(pid)?;
        let policy = self.policy(&described)?;
        let is_same =
            |before: &Arc<ManagedProcess>| before.pagemap.is_current() && described.is_same(before);
        let process = match before.filter(is_same) {
            Some(same) => same,
            None => {
                let held = described
                    .hold()
                    .inspect_err(|error| debug!(pid, "not managed: {error}"))
                    .ok()?;
                Arc::new(held)
            }
        };
        Some(Entry { process, policy, described: now })
    }

    /// The policy that a process is under, if it is selected.
    fn policy(&self, described: &Described) -> Option<Promotion> {
        if !described.is_admitted(&self.wanted.processes) {
            return None;
        }
        let policy = self.wanted.promotion.policy_of(&described.facts())?;
        (policy != Promotion::Off).then_some(policy)
    }
}

fn activity(process: &ManagedProcess) -> Option<Activity> {
    let stat = process.stat().ok()?;
    let faults = stat.minor_faults + stat.major_faults;
    Some(Activity { faults, resident: stat.resident })
}

/// The memory that promotions are measured against: the machine's first, then cgroups' with limits.
struct Domains {
    all: Vec<Domain>,
    /// What was found of the cgroups that were asked for.
    known: BTreeMap<PathBuf, Option<usize>>,
}

impl Domains {
    fn of(marks: Watermarks) -> Self {
        // A machine whose usage cannot be read is taken for full: nothing is added to it.
        let full = Usage { used: Bytes(1), total: Bytes(1) };
        let usage = supply::usage_of_machine(Path::new("/proc")).unwrap_or(full);
        let machine = Domain { usage, marks, promised: HugePages::ZERO };
        Self { all: vec![machine], known: BTreeMap::new() }
    }

    /// The domain of a cgroup: the fullest of those limits that hold for it, with the watermarks of the
    /// nearest cgroup that has some of its own.
    fn of_cgroup(&mut self, path: &Path, configured: &[CgroupMarks]) -> Option<usize> {
        if let Some(known) = self.known.get(path) {
            return *known;
        }
        let usage = supply::fullest_cgroup(path);
        let own = configured.iter().filter(|group| path.starts_with(&group.path));
        let own = own.max_by_key(|group| group.path.as_os_str().len()).map(|group| group.marks);
        let marks = own.unwrap_or(self.all[0].marks);
        let index = usage.map(|usage| {
            self.all.push(Domain { usage, marks, promised: HugePages::ZERO });
            self.all.len() - 1
        });
        self.known.insert(path.to_owned(), index);
        index
    }
}
