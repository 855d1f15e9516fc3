//! Which processes to look at: by number, or all that an include and an exclude list let through.
//!
//! Kernel threads and we ourselves are never among them.

use crate::process::ManagedProcess;
use crate::target::Target;
use std::path::{Path, PathBuf};
use superpage_kernel::cgroup::Hierarchy;
use superpage_kernel::process::{self, Process};
use superpage_kernel::rights::Hindrance;
use superpage_kernel::status::{self, Uid};
use superpage_kernel::{Error, Result};
use superpage_units::ProcessKey;

/// Describes processes; one that matches any entry matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Process numbers.
    pub pids: Vec<u32>,
    /// Commands, as `ps -o comm` shows them (the first 15 bytes).
    pub commands: Vec<String>,
    /// Effective user ids.
    pub users: Vec<Uid>,
    /// Directories of memory cgroups; processes in groups below count too.
    pub cgroups: Vec<PathBuf>,
}

impl Filter {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn matches(&self, candidate: &Described) -> bool {
        self.pids.contains(&candidate.process.pid())
            || self.commands.contains(&candidate.command)
            || self.users.contains(&candidate.user)
            || candidate
                .cgroup
                .as_ref()
                .is_some_and(|group| self.cgroups.iter().any(|wanted| group.starts_with(wanted)))
    }
}

/// An include and an exclude list. An empty include list lets everything through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only these, if any are given.
    pub include: Filter,
    /// None of these, also if they are included.
    pub exclude: Filter,
    /// Only processes in this memory cgroup (its directory) or in groups below it.
    pub within: Option<PathBuf>,
}

impl Selection {
    fn admits(&self, candidate: &Described) -> bool {
        let included = self.include.is_empty() || self.include.matches(candidate);
        let within = match (&self.within, &candidate.cgroup) {
            (Some(wanted), Some(group)) => group.starts_with(wanted),
            (Some(_), None) => false,
            (None, _) => true,
        };
        within && included && !self.exclude.matches(candidate)
    }

    fn asks_for_cgroups(&self) -> bool {
        let filters = [&self.include, &self.exclude];
        self.within.is_some() || filters.iter().any(|filter| !filter.cgroups.is_empty())
    }
}

/// Why a process that was asked for cannot be a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such process, or it exited.
    #[error("there is no process {0}; run `superpage scan` to see which processes hold huge pages")]
    Gone(u32),
    /// It is a thread of the kernel.
    #[error("process {0} is a thread of the kernel and has no memory of its own; choose a program")]
    KernelThread(u32),
    /// It is this very process.
    #[error("process {0} is this very program; choose another process")]
    Ourselves(u32),
    /// We may not look into it.
    #[error("not allowed to look into process {pid}; {hindrance}")]
    Denied {
        /// Its number.
        pid: u32,
        /// What stands in our way.
        hindrance: Hindrance,
    },
    /// Something else went wrong.
    #[error(transparent)]
    Failed(Error),
}

/// A held process, and what lists go by.
#[derive(Debug)]
pub struct Described {
    /// The process.
    pub process: Process,
    /// Its key towards policies.
    pub key: ProcessKey,
    /// Its command, as `ps -o comm` shows it.
    pub command: String,
    user: Uid,
    /// The directory of its memory cgroup, if that is known.
    pub cgroup: Option<PathBuf>,
}

impl Described {
    /// Whether `selection` lets it through.
    #[must_use]
    pub fn is_admitted(&self, selection: &Selection) -> bool {
        selection.admits(self)
    }

    /// Whether it is who `process` was when that was taken hold of.
    #[must_use]
    pub fn is_same(&self, process: &ManagedProcess) -> bool {
        self.key == process.key
            && self.user == process.user
            && self.cgroup == process.cgroup
            && self.command == process.command
    }

    /// Takes hold of it.
    ///
    /// # Errors
    /// As [`ManagedProcess::new`].
    pub fn hold(self) -> Result<ManagedProcess> {
        ManagedProcess::new(self.key, self.process, self.command, self.user, self.cgroup)
    }

    /// Whether it matches any entry of `filter`.
    #[must_use]
    pub fn matches(&self, filter: &Filter) -> bool {
        filter.matches(self)
    }
}

/// Describes processes one by one.
#[derive(Debug)]
pub struct Describer {
    hierarchy: Option<Hierarchy>,
}

impl Describer {
    /// With the memory cgroups that are mounted now.
    #[must_use]
    pub fn new() -> Self {
        Self { hierarchy: Hierarchy::find(Path::new("/")).ok().flatten() }
    }

    /// Process `pid`; `None` if it is none, a thread of the kernel, or we ourselves.
    #[must_use]
    pub fn describe(&self, pid: u32) -> Option<Described> {
        if pid == std::process::id() {
            return None;
        }
        candidate(pid, self.hierarchy.as_ref()).ok().flatten()
    }
}

impl Default for Describer {
    fn default() -> Self {
        Self::new()
    }
}

/// Takes hold of process `pid` as a target.
///
/// # Errors
/// [`Refusal`].
pub fn hold(pid: u32) -> std::result::Result<Target, Refusal> {
    hold_as(pid, None, |found| Target::new(found.key, found.process, found.command))
}

/// Takes hold of process `pid` in the way that `held` does, which is told its cgroup if `hierarchy`
/// is given.
///
/// # Errors
/// [`Refusal`].
pub fn hold_as<T>(
    pid: u32,
    hierarchy: Option<&Hierarchy>,
    held: impl FnOnce(Described) -> Result<T>,
) -> std::result::Result<T, Refusal> {
    let refuse = |error| match error {
        Error::Gone { .. } | Error::Missing { .. } => Refusal::Gone(pid),
        Error::Denied { .. } => Refusal::Denied { pid, hindrance: Hindrance::now() },
        other => Refusal::Failed(other),
    };
    if pid == std::process::id() {
        return Err(Refusal::Ourselves(pid));
    }
    match candidate(pid, hierarchy).map_err(refuse)? {
        None => Err(Refusal::KernelThread(pid)),
        Some(found) => held(found).map_err(refuse),
    }
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Found {
    /// The processes with huge pages.
    pub targets: Vec<Target>,
    /// How many processes could not be looked into for lack of rights.
    pub denied: usize,
}

/// All processes under `/proc` that hold anonymous huge pages and that `selection` admits.
///
/// # Errors
/// If `/proc` cannot be read, or the kernel cannot find huge pages at all.
pub fn search(selection: &Selection) -> Result<Found> {
    let hierarchy = match selection.asks_for_cgroups() {
        true => Some(Hierarchy::find(Path::new("/"))?.ok_or_else(no_hierarchy)?),
        false => None,
    };
    let mut found = Found::default();
    for pid in process::list(Path::new("/proc"))? {
        match admitted(pid, selection, hierarchy.as_ref()) {
            Ok(Some(target)) => found.targets.push(target),
            Ok(None) | Err(Error::Gone { .. } | Error::Missing { .. }) => {}
            Err(Error::Denied { .. }) => found.denied += 1,
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            // What is odd about one process is no reason to leave the others alone.
            Err(error) => tracing::debug!(pid, "passed over: {error}"),
        }
    }
    Ok(found)
}

/// Lists that name cgroups would let everything through if there were none.
fn no_hierarchy() -> Error {
    Error::Refused {
        path: PathBuf::from("/proc/self/mountinfo"),
        reason: "processes are selected by cgroup, but no memory cgroups are mounted",
    }
}

fn admitted(
    pid: u32,
    selection: &Selection,
    hierarchy: Option<&Hierarchy>,
) -> Result<Option<Target>> {
    if pid == std::process::id() {
        return Ok(None);
    }
    let Some(found) = candidate(pid, hierarchy)? else { return Ok(None) };
    if !selection.admits(&found) {
        return Ok(None);
    }
    let mut target = Target::new(found.key, found.process, found.command)?;
    let holds_any = !target.huge_pages()?.is_empty();
    Ok(holds_any.then_some(target))
}

/// What there is to know about process `pid`; `None` for a kernel thread.
fn candidate(pid: u32, hierarchy: Option<&Hierarchy>) -> Result<Option<Described>> {
    let process = Process::open(pid)?;
    let stat = status::stat_of(&process)?;
    if stat.is_kernel_thread() {
        return Ok(None);
    }
    let user = status::of(&process)?.effective_uid;
    let cgroup = match hierarchy {
        // By name only: a group without the memory controller is a group all the same.
        Some(hierarchy) => {
            hierarchy.directory(&process.read_file("cgroup")?, &process.path("cgroup"))?
        }
        None => None,
    };
    let command = String::from_utf8_lossy(&stat.comm).into_owned();
    Ok(Some(Described { key: key(stat.start.0, pid), process, command, user, cgroup }))
}

/// Sorts by start time, then by number, and names one process until the next boot.
fn key(start_ticks: u64, pid: u32) -> ProcessKey {
    /// The kernel's PID_MAX_LIMIT is 2^22.
    const PID_BITS: u32 = 22;
    ProcessKey(start_ticks << PID_BITS | u64::from(pid) & ((1 << PID_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_start_time_first() {
        assert!(key(1, 4_000_000) < key(2, 1));
        assert_ne!(key(1, 1), key(1, 2));
    }

    #[test]
    fn what_cannot_be_a_target_says_why_and_what_to_do() {
        let me = std::process::id();
        assert_eq!(hold(me).err(), Some(Refusal::Ourselves(me)));
        assert_eq!(hold(u32::MAX).err(), Some(Refusal::Gone(u32::MAX)));
        let denied = Refusal::Denied { pid: 7, hindrance: Hindrance::NotRoot };
        assert_eq!(denied.to_string(), "not allowed to look into process 7; run as root (sudo)");
    }

    #[test]
    fn exclusion_wins_over_inclusion() {
        let found = candidate(std::process::id(), None).expect("we run").expect("not the kernel");
        let us = Filter { pids: vec![std::process::id()], ..Filter::default() };
        let selection = |include: &Filter, exclude: &Filter| Selection {
            include: include.clone(),
            exclude: exclude.clone(),
            within: None,
        };
        let nobody = Filter::default();
        let other = Filter { commands: vec!["no such command".into()], ..Filter::default() };
        assert!(selection(&nobody, &nobody).admits(&found));
        assert!(selection(&us, &other).admits(&found));
        assert!(!selection(&other, &nobody).admits(&found));
        assert!(!selection(&us, &us).admits(&found));
    }
}
