//! Finds out who a process is, and takes hold of it. Kernel threads and we ourselves are never held.

use crate::nodes::{self, Allowed};
use crate::process::{ManagedProcess, is_about_one_process};
use crate::select::{Identity, Membership};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use superpage_kernel::cgroup::{self, Hierarchy};
use superpage_kernel::process::{Process, own_pid};
use superpage_kernel::rights::Hindrance;
use superpage_kernel::status;
use superpage_kernel::{Error, Result};
use superpage_units::{Pid, ProcessKey};
use tracing::{debug, warn};

/// The mounted memory cgroups are looked for again after this, where there are none or they cannot be
/// told. Chosen, not measured.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Why a process that was asked for cannot be managed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such process, or it exited.
    #[error("there is no process {0}; run `superpage scan` to see which processes hold huge pages")]
    Gone(Pid),
    /// The number is that of a thread of the kernel.
    #[error("process {0} is a thread of the kernel and has no memory of its own; choose a program")]
    KernelThread(Pid),
    /// The number is our own.
    #[error("process {0} is this very program; choose another process")]
    Ourselves(Pid),
    /// We may not look into it.
    #[error("not allowed to look into process {pid}; {hindrance}")]
    Denied {
        /// Its number.
        pid: Pid,
        /// The reason.
        hindrance: Hindrance,
    },
    /// Something else went wrong.
    #[error(transparent)]
    Failed(Error),
}

impl Refusal {
    /// Why nothing can be done about process `pid`, where the kernel said this.
    pub(crate) fn about(pid: Pid, error: Error) -> Self {
        match error {
            Error::Gone { .. } | Error::Missing { .. } => Self::Gone(pid),
            Error::Denied { .. } => Self::Denied { pid, hindrance: Hindrance::now() },
            other => Self::Failed(other),
        }
    }
}

/// A process that is known, and not managed yet.
#[derive(Debug)]
pub struct Described {
    process: Process,
    key: ProcessKey,
    /// The process's identity.
    pub identity: Identity,
}

impl Described {
    /// Whether it is who `process` was when that was taken hold of.
    #[must_use]
    pub fn is_same(&self, process: &ManagedProcess) -> bool {
        self.key == process.key && self.identity == process.identity
    }

    /// Takes hold of it.
    ///
    /// # Errors
    /// As [`ManagedProcess::new`].
    pub fn hold(self) -> Result<ManagedProcess> {
        ManagedProcess::new(self.key, self.process, self.identity)
    }
}

/// Describes processes one by one.
#[derive(Debug)]
pub struct Describer {
    root: PathBuf,
    mounted: Mutex<Mounted>,
    nodes: nodes::Machine,
    /// It was said that the cgroup of a process cannot be told.
    has_said_hidden: AtomicBool,
}

/// The memory cgroups that are mounted, as of a time.
#[derive(Debug)]
struct Mounted {
    hierarchy: Option<Arc<Hierarchy>>,
    since: Instant,
}

impl Describer {
    /// With the memory cgroups that are mounted now.
    #[must_use]
    pub fn new() -> Self {
        Self::under(Path::new("/"))
    }

    /// With the memory cgroups that are mounted according to `proc/self/mountinfo` under `root`.
    fn under(root: &Path) -> Self {
        let mounted = Mounted { hierarchy: find(root), since: Instant::now() };
        let nodes = nodes::Machine::under(root);
        let (root, has_said_hidden) = (root.to_owned(), AtomicBool::new(false));
        Self { root, mounted: Mutex::new(mounted), nodes, has_said_hidden }
    }

    /// Process `pid`; `None` if it is a thread of the kernel, or we ourselves.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Missing`], [`Error::Denied`], [`Error::Malformed`].
    pub fn describe(&self, pid: Pid) -> Result<Option<Described>> {
        if pid == own_pid() {
            return Ok(None);
        }
        let process = Process::open(pid)?;
        let stat = status::stat_of(&process)?;
        if stat.is_kernel_thread() {
            return Ok(None);
        }
        let identity = self.identity(&process, &stat.comm)?;
        Ok(Some(Described { key: key(stat.start.0, pid), process, identity }))
    }

    /// Asks anew who a process is that is held.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::Malformed`].
    pub fn ask(&self, process: &Process) -> Result<Identity> {
        self.identity(process, &status::comm(process)?)
    }

    fn identity(&self, process: &Process, command: &[u8]) -> Result<Identity> {
        let status = status::of(process)?;
        let allowed = |cpuset| self.nodes.several().map(|all| Allowed::new(&cpuset, all));
        let cgroup = match self.hierarchy().map(|hierarchy| group_of(process, &hierarchy)) {
            Some(Ok(Some(group))) => Membership::Known(group.into()),
            Some(Ok(None)) => {
                self.say_hidden(process.pid(), command);
                Membership::Unknown
            }
            Some(Err(error)) if is_about_one_process(&error) => return Err(error),
            Some(Err(error)) => {
                debug!(pid = process.pid().0, "its cgroup cannot be told: {error}");
                Membership::Unknown
            }
            None => Membership::Unknown,
        };
        let command = String::from_utf8_lossy(command).into_owned();
        Ok(Identity {
            pid: process.pid(),
            command,
            user: status.effective_uid,
            cgroup,
            nodes: status.allowed_nodes.and_then(allowed),
        })
    }

    /// Says, the first time, that the cgroup of a process cannot be told from here.
    fn say_hidden(&self, pid: Pid, command: &[u8]) {
        if !self.has_said_hidden.swap(true, Ordering::Relaxed) {
            warn!(
                pid = pid.0,
                command = %String::from_utf8_lossy(command),
                "the cgroup of this process, and maybe of others, cannot be told from here: lists that name cgroups let it \
                 through by none, and no limit of its cgroup is known. {}",
                cgroup::SHARE_NAMESPACE
            );
        }
    }

    /// Whether it can be told which cgroup a process is in.
    #[must_use]
    pub fn knows_cgroups(&self) -> bool {
        self.hierarchy().is_some()
    }

    /// The mounted memory cgroups; they are looked for again if there were none some time ago.
    fn hierarchy(&self) -> Option<Arc<Hierarchy>> {
        let mut mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
        if mounted.hierarchy.is_none() && mounted.since.elapsed() >= LOOK_AGAIN {
            *mounted = Mounted { hierarchy: find(&self.root), since: Instant::now() };
        }
        mounted.hierarchy.clone()
    }
}

impl Default for Describer {
    fn default() -> Self {
        Self::new()
    }
}

/// The memory cgroups that are mounted.
fn find(root: &Path) -> Option<Arc<Hierarchy>> {
    let failed = |error: &Error| {
        warn!(
            "which cgroup a process is in cannot be told, lists that name some let none through: {error}"
        );
    };
    Hierarchy::find(root).inspect_err(failed).ok().flatten().map(Arc::new)
}

/// The directory of a process's memory cgroup. By name only: a group without the memory controller is a
/// group all the same.
fn group_of(process: &Process, hierarchy: &Hierarchy) -> Result<Option<PathBuf>> {
    hierarchy.directory(&process.read_file("cgroup")?, &process.path("cgroup"))
}

/// Takes hold of process `pid`.
///
/// # Errors
/// [`Refusal`].
pub fn hold(pid: Pid) -> std::result::Result<Arc<ManagedProcess>, Refusal> {
    let refuse = |error| Refusal::about(pid, error);
    if pid == own_pid() {
        return Err(Refusal::Ourselves(pid));
    }
    let found = Describer::new().describe(pid).map_err(refuse)?;
    let held = found.ok_or(Refusal::KernelThread(pid))?.hold().map_err(refuse)?;
    // The caller names one process, and the error says why nothing can be done about that.
    held.check_length().map_err(refuse)?;
    Ok(Arc::new(held))
}

/// The kernel's PID_MAX_LIMIT is 2^22.
const PID_BITS: u32 = 22;

/// The number of the process that this key names.
pub(crate) fn pid_of(key: ProcessKey) -> Pid {
    Pid((key.0 & ((1 << PID_BITS) - 1)) as u32)
}

/// Sorts by start time, then by number, and names one process until the next boot.
fn key(start_ticks: u64, pid: Pid) -> ProcessKey {
    ProcessKey(start_ticks << PID_BITS | u64::from(pid.0) & ((1 << PID_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_kernel::cgroup::Version;

    #[test]
    fn keys_sort_by_start_time_first() {
        assert!(key(1, Pid(4_000_000)) < key(2, Pid(1)));
        assert_ne!(key(1, Pid(1)), key(1, Pid(2)));
        assert_eq!(pid_of(key(1_000_000, Pid(4_000_000))), Pid(4_000_000));
    }

    #[test]
    fn the_reason_why_a_process_cannot_be_held_says_what_to_do() {
        let me = own_pid();
        assert_eq!(hold(me).err(), Some(Refusal::Ourselves(me)));
        assert_eq!(hold(Pid(u32::MAX)).err(), Some(Refusal::Gone(Pid(u32::MAX))));
        let denied = Refusal::Denied { pid: Pid(7), hindrance: Hindrance::NotRoot };
        assert_eq!(denied.to_string(), "not allowed to look into process 7; run as root (sudo)");
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
    fn where_no_cgroups_are_mounted_the_cgroup_of_a_process_is_unknown() {
        let root = tempfile::tempdir().expect("a directory");
        let (describer, sleeper) = (Describer::under(root.path()), Sleeper::start());
        let found = describer.describe(Pid(sleeper.0.id())).expect("it runs").expect("a program");
        assert_eq!(found.identity.cgroup, Membership::Unknown);
        assert!(!describer.knows_cgroups());
    }

    /// A container that shares the processes of its host, and not its cgroup namespace.
    #[test]
    fn outside_our_cgroup_namespace_the_cgroup_of_a_process_is_unknown() {
        let root = tempfile::tempdir().expect("a directory");
        let mounts = root.path().join("proc/self/mountinfo");
        std::fs::create_dir_all(mounts.parent().expect("it has one")).expect("made");
        let hierarchy = Hierarchy::find(Path::new("/")).ok().flatten();
        let version = hierarchy.map_or(Version::V2, |hierarchy| hierarchy.version());
        let kind = match version {
            Version::V1 => "cgroup cgroup rw,memory",
            Version::V2 => "cgroup2 cgroup2 rw",
        };
        let group = root.path().join("sys/fs/cgroup");
        std::fs::create_dir_all(&group).expect("made");
        std::fs::write(group.join("cgroup.controllers"), "memory\n").expect("written");
        let sleeper = Sleeper::start();
        for (base, is_known) in [("/", true), ("/../..", false)] {
            let line = format!("30 25 0:26 {base} /sys/fs/cgroup rw - {kind}\n");
            std::fs::write(&mounts, line).expect("written");
            let describer = Describer::under(root.path());
            let found =
                describer.describe(Pid(sleeper.0.id())).expect("it runs").expect("a program");
            assert_eq!(found.identity.cgroup != Membership::Unknown, is_known, "below {base}");
            assert!(describer.knows_cgroups());
        }
    }

    #[test]
    fn a_process_is_asked_about_anew() {
        let sleeper = Sleeper::start();
        let (describer, pid) = (Describer::new(), Pid(sleeper.0.id()));
        let process = Process::open(pid).expect("it runs");
        let is_sleep = || describer.ask(&process).map(|identity| identity.command == "sleep");
        // It is another program until its exec.
        while is_sleep() == Ok(false) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(is_sleep(), Ok(true));
        drop(sleeper);
        assert_eq!(is_sleep(), Err(Error::Gone { pid }));
    }
}
