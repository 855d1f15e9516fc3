//! Which processes to look at: by number, or all that an include and an exclude list let through.
//!
//! Kernel threads and we ourselves are never among them. Where a list names cgroups and nobody can tell
//! which one a process is in, the process is let through by none.

use crate::process::ManagedProcess;
use crate::target::Target;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use superpage_kernel::cgroup::Hierarchy;
use superpage_kernel::process::{self, Process};
use superpage_kernel::rights::Hindrance;
use superpage_kernel::status::{self, Uid};
use superpage_kernel::{Error, Result};
use superpage_units::ProcessKey;
use tracing::warn;

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

    /// Whether it matches this process; `None` if that depends on its cgroup, and that is not known.
    fn matches(&self, facts: &Facts<'_>) -> Option<bool> {
        let is_in = |group: Option<&Path>| {
            group.is_some_and(|group| self.cgroups.iter().any(|wanted| group.starts_with(wanted)))
        };
        let is_named = self.pids.contains(&facts.pid)
            || self.commands.iter().any(|command| command == facts.command)
            || self.users.contains(&facts.user);
        match facts.cgroup {
            _ if is_named => Some(true),
            _ if self.cgroups.is_empty() => Some(false),
            Membership::Known(group) => Some(is_in(group)),
            Membership::Unknown => None,
        }
    }
}

/// What lists go by: what is known of a process.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pid: u32,
    command: &'a str,
    user: Uid,
    cgroup: Membership<'a>,
}

/// What is known of a process's memory cgroup.
#[derive(Clone, Copy, Debug)]
enum Membership<'a> {
    /// Its directory; `None` if it lies outside what is mounted here.
    Known(Option<&'a Path>),
    /// Nobody has asked, or it cannot be told.
    Unknown,
}

impl Facts<'_> {
    /// The directory of its memory cgroup, if that is known.
    #[must_use]
    pub fn cgroup(&self) -> Option<&Path> {
        match self.cgroup {
            Membership::Known(group) => group,
            Membership::Unknown => None,
        }
    }

    /// What is known of a process in this cgroup that nobody names otherwise.
    #[cfg(test)]
    pub(crate) fn in_cgroup(directory: &Path) -> Facts<'_> {
        let cgroup = Membership::Known(Some(directory));
        Facts { pid: 1, command: "init", user: Uid(0), cgroup }
    }

    /// The first of `rules` that is about it; `None` if there is none.
    ///
    /// # Errors
    /// [`CannotTell`] if that depends on its cgroup, and that is not known.
    pub fn first_of<'r, R>(
        &self,
        rules: &'r [R],
        who: impl Fn(&R) -> &Filter,
    ) -> std::result::Result<Option<&'r R>, CannotTell> {
        for rule in rules {
            match who(rule).matches(self) {
                Some(true) => return Ok(Some(rule)),
                Some(false) => {}
                None => return Err(CannotTell),
            }
        }
        Ok(None)
    }
}

/// A list or rule names cgroups, and nobody can tell which one a process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CannotTell;

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
    /// Whether it lets this process through.
    #[must_use]
    pub fn admits(&self, facts: &Facts<'_>) -> bool {
        let included = self.include.is_empty() || self.include.matches(facts) == Some(true);
        let within = match (&self.within, facts.cgroup()) {
            (Some(wanted), Some(group)) => group.starts_with(wanted),
            (Some(_), None) => false,
            (None, _) => true,
        };
        within && included && self.exclude.matches(facts) == Some(false)
    }

    /// Whether it may let a process through and later not any more: by all but its number.
    #[must_use]
    pub fn may_change(&self) -> bool {
        let changes = |filter: &Filter| !filter.commands.is_empty() || !filter.users.is_empty();
        self.asks_for_cgroups() || changes(&self.include) || changes(&self.exclude)
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
    /// Whether that was asked for.
    asked: Asked,
}

/// Whether a process's memory cgroup was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Yes,
    No,
}

impl Described {
    /// What lists go by.
    #[must_use]
    pub fn facts(&self) -> Facts<'_> {
        let cgroup = match self.asked {
            Asked::Yes => Membership::Known(self.cgroup.as_deref()),
            Asked::No => Membership::Unknown,
        };
        Facts { pid: self.process.pid(), command: &self.command, user: self.user, cgroup }
    }

    /// Whether `selection` lets it through.
    #[must_use]
    pub fn is_admitted(&self, selection: &Selection) -> bool {
        selection.admits(&self.facts())
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
}

/// The mounted memory cgroups are looked for again after this, where there are none or they cannot be
/// told. Chosen, not measured.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Describes processes one by one.
#[derive(Debug)]
pub struct Describer {
    root: PathBuf,
    hierarchy: RefCell<Option<Hierarchy>>,
    /// When that was looked for last.
    looked: Cell<Instant>,
}

impl Describer {
    /// With the memory cgroups that are mounted now.
    #[must_use]
    pub fn new() -> Self {
        Self::under(Path::new("/"))
    }

    /// With the memory cgroups that are mounted according to `proc/self/mountinfo` under `root`.
    fn under(root: &Path) -> Self {
        let found = find(root);
        let (hierarchy, looked) = (RefCell::new(found), Cell::new(Instant::now()));
        Self { root: root.to_owned(), hierarchy, looked }
    }

    /// Process `pid`; `None` if it is none, a thread of the kernel, or we ourselves.
    #[must_use]
    pub fn describe(&self, pid: u32) -> Option<Described> {
        if pid == std::process::id() {
            return None;
        }
        self.look_again();
        candidate(pid, self.hierarchy.borrow().as_ref()).ok().flatten()
    }

    /// Asks anew about a process that is held; what `judge` makes of it.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::Malformed`].
    pub fn ask<T>(&self, process: &Process, judge: impl FnOnce(&Facts<'_>) -> T) -> Result<T> {
        self.look_again();
        let command = status::comm(process)?;
        let command = String::from_utf8_lossy(&command);
        let user = status::of(process)?.effective_uid;
        let hierarchy = self.hierarchy.borrow();
        let group = hierarchy.as_ref().map(|hierarchy| group_of(process, hierarchy)).transpose()?;
        let cgroup = match &group {
            Some(group) => Membership::Known(group.as_deref()),
            None => Membership::Unknown,
        };
        Ok(judge(&Facts { pid: process.pid(), command: &command, user, cgroup }))
    }

    /// Whether `selection` lets a process through still; not if that cannot be told.
    #[must_use]
    pub fn still_admits(&self, target: &Target, selection: &Selection) -> bool {
        self.ask(target.process(), |facts| selection.admits(facts)).unwrap_or(false)
    }

    /// Looks for the mounted memory cgroups again, if there were none and that was some time ago.
    fn look_again(&self) {
        if self.hierarchy.borrow().is_none() && self.looked.get().elapsed() >= LOOK_AGAIN {
            self.looked.set(Instant::now());
            *self.hierarchy.borrow_mut() = find(&self.root);
        }
    }
}

/// The memory cgroups that are mounted.
fn find(root: &Path) -> Option<Hierarchy> {
    let failed = |error: &Error| {
        warn!(
            "which cgroup a process is in cannot be told, lists that name some let none through: {error}"
        );
    };
    Hierarchy::find(root).inspect_err(failed).ok().flatten()
}

/// The directory of a process's memory cgroup. By name only: a group without the memory controller is a
/// group all the same.
fn group_of(process: &Process, hierarchy: &Hierarchy) -> Result<Option<PathBuf>> {
    hierarchy.directory(&process.read_file("cgroup")?, &process.path("cgroup"))
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
    if !found.is_admitted(selection) {
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
    let (cgroup, asked) = match hierarchy {
        Some(hierarchy) => (group_of(&process, hierarchy)?, Asked::Yes),
        None => (None, Asked::No),
    };
    let command = String::from_utf8_lossy(&stat.comm).into_owned();
    Ok(Some(Described { key: key(stat.start.0, pid), process, command, user, cgroup, asked }))
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
        assert!(found.is_admitted(&selection(&nobody, &nobody)));
        assert!(found.is_admitted(&selection(&us, &other)));
        assert!(!found.is_admitted(&selection(&other, &nobody)));
        assert!(!found.is_admitted(&selection(&us, &us)));
    }

    /// A program of ours that waits to be killed.
    struct Sleeper(std::process::Child);

    impl Sleeper {
        fn start() -> Self {
            let mut command = std::process::Command::new("sleep");
            Self(command.arg("600").spawn().expect("sleep runs"))
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn where_cgroups_cannot_be_told_lists_that_name_some_let_nobody_through() {
        let root = tempfile::tempdir().expect("a directory");
        let describer = Describer::under(root.path());
        let sleeper = Sleeper::start();
        let pid = sleeper.0.id();
        let found = describer.describe(pid).expect("it runs");
        let group = || Filter { cgroups: vec!["/sys/fs/cgroup/a".into()], ..Filter::default() };
        let named = || Filter { pids: vec![pid], ..group() };
        let selection = |include, exclude| Selection { include, exclude, within: None };
        let none = Filter::default;
        assert!(found.is_admitted(&selection(none(), none())), "no list names cgroups");
        assert!(!found.is_admitted(&selection(none(), group())));
        assert!(!found.is_admitted(&selection(group(), none())));
        assert!(found.is_admitted(&selection(named(), none())), "its number is on the list");
        let within = Some("/sys/fs/cgroup/a".into());
        assert!(!found.is_admitted(&Selection { within, ..Selection::default() }));
        // Of rules, those before the one that names cgroups still count.
        let first = |rules: &[Filter]| {
            found.facts().first_of(rules, |rule| rule).map(|rule| rule.is_some())
        };
        assert_eq!(first(&[group()]), Err(CannotTell));
        assert_eq!(first(&[named(), group()]), Ok(true));
        assert_eq!(first(&[none()]), Ok(false));
    }

    #[test]
    fn a_process_is_asked_about_anew() {
        let sleeper = Sleeper::start();
        let (describer, pid) = (Describer::new(), sleeper.0.id());
        let process = Process::open(pid).expect("it runs");
        let is_sleep = || describer.ask(&process, |facts| facts.command == "sleep");
        // It is another program until its exec.
        while is_sleep() == Ok(false) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(is_sleep(), Ok(true));
        drop(sleeper);
        assert_eq!(is_sleep(), Err(Error::Gone { pid }));
    }
}
