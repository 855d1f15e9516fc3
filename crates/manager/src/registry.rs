//! The registry of processes: all that are selected and large enough, held once each, for whoever looks
//! at them or acts on them: the promoter, passes, `superpage scan` and `superpage top`.
//!
//! [`Registry::refresh`] goes through all processes, and reads nothing for which the kernel waits for a
//! process's memory map. Small processes are passed over until they have grown. Whether a process is
//! selected is asked again every `DESCRIBED_HOLD`, so one that changes its user or its cgroup is known as
//! what it is. Several threads may refresh at once: while one waits for an answer about a process (to open
//! its page tables waits for an `execve` under way), the others pass that process over.

use crate::find::{self, Describer};
use crate::process::ManagedProcess;
use crate::select::Selection;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use superpage_kernel::{Error, Result, process, status};
use superpage_units::{Bytes, Nanos, PageSize, Pid, ProcessKey, Time};
use tracing::{debug, info, warn};

/// A daemon does not manage smaller processes unless their number is named. Chosen, not measured: the
/// gain of eight huge pages is hard to see.
pub const WORTH_MANAGING: Bytes = Bytes::from_mib(16);
/// How long an answer about who a process is, or that it is small, is believed. To ask takes some
/// 100 us.
const DESCRIBED_HOLD: Nanos = Nanos(10_000_000_000); // tidy: allow(10 s)
/// Managed processes that are asked who they are in one refresh, at the most: those that were asked longest
/// ago. Meanwhile the others are known as who they were. Chosen: some milliseconds.
const DESCRIBED_AT_ONCE: usize = 32;
/// The open files that each managed process takes: a pidfd, its `/proc` directory, its page tables.
const FILES_EACH: u64 = 3;
/// Open files that are left for all else. Chosen, not measured.
const FILES_RESERVED: u64 = 64;
/// A small process is asked for its size again after this, and then as long after as it is known. Chosen,
/// not measured: it takes some 5 us.
const ASKED_FIRST: Nanos = Nanos(100_000_000);

/// What is known of a process by its number.
#[derive(Debug)]
enum Known {
    /// The process is small, not selected, or out of reach.
    PassedOver {
        /// Since when it is known.
        since: Time,
        /// When it is asked again.
        until: Time,
        /// Whether we lack the rights to look into it.
        is_denied: bool,
    },
    /// A thread is asking who the process is, which was managed so far if it is given.
    Asked(Option<Arc<ManagedProcess>>),
    /// The process is managed.
    Managed {
        process: Arc<ManagedProcess>,
        /// When it was asked who it is; `None` if it is to be asked again.
        described: Option<Time>,
    },
}

impl Known {
    /// The process, if it is managed.
    fn managed(&self) -> Option<&Arc<ManagedProcess>> {
        match self {
            Self::Managed { process, .. } => Some(process),
            Self::Asked(process) => process.as_ref(),
            Self::PassedOver { .. } => None,
        }
    }
}

/// A question about a process: whether it is to be managed.
struct Question {
    pid: Pid,
    /// The process that was managed under this number so far.
    before: Option<Arc<ManagedProcess>>,
    /// Since when it is known.
    since: Time,
    /// The count of selections when this was asked.
    generation: u64,
}

#[derive(Debug, Default)]
struct State {
    selection: Arc<Selection>,
    /// How many selections there were before this one.
    generation: u64,
    known: BTreeMap<Pid, Known>,
}

/// The registry.
#[derive(Debug)]
pub struct Registry {
    smallest: Bytes,
    /// Whether a process with less memory is managed if it has a gigantic page.
    counts_gigantic: bool,
    /// The most processes that are managed, so that some open files are left.
    most: usize,
    is_full: AtomicBool,
    describer: Describer,
    state: Mutex<State>,
}

impl Registry {
    /// A registry of the processes that `selection` lets through and that have so much memory, or whose
    /// numbers it names. It knows of none before it is refreshed. Our limit of open files is raised as far
    /// as may be.
    #[must_use]
    pub fn new(selection: Selection, smallest: Bytes) -> Self {
        let most = raise_limit_of_files().saturating_sub(FILES_RESERVED) / FILES_EACH;
        let registry = Self {
            smallest,
            counts_gigantic: false,
            most: usize::try_from(most).unwrap_or(usize::MAX),
            is_full: AtomicBool::new(false),
            describer: Describer::new(),
            state: Mutex::default(),
        };
        registry.configure(selection);
        registry
    }

    /// The same registry, but of processes that have a gigantic page too: such pages are not resident, and a
    /// program may have little other memory. To ask takes as long again as to ask a small process for its size.
    #[must_use]
    pub fn with_gigantic(self) -> Self {
        Self { counts_gigantic: true, ..self }
    }

    /// Other processes are to be managed from now on; each is asked again who it is.
    pub fn configure(&self, selection: Selection) {
        if selection.asks_for_cgroups() && !self.describer.knows_cgroups() {
            warn!(
                "processes are selected by cgroup, but no memory cgroups are mounted: those that are \
                 selected by nothing else are left alone"
            );
        }
        let mut state = self.state();
        state.selection = Arc::new(selection);
        state.generation += 1;
        state.known.retain(|_, known| match known {
            Known::PassedOver { .. } => false,
            Known::Asked(_) => true,
            Known::Managed { described, .. } => {
                *described = None;
                true
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The describer, which tells who a process is.
    #[must_use]
    pub fn describer(&self) -> &Describer {
        &self.describer
    }

    /// Goes through all processes.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn refresh(&self, now: Time) -> Result<()> {
        let pids = process::list(Path::new("/proc"))?;
        self.forget_others(&pids.iter().copied().collect());
        for pid in self.due(&pids, now) {
            let question = self.state().question(pid, now);
            if let Some(question) = question {
                // Also where the answer is a panic, the question is not asked any more.
                let _asked = Asked { registry: self, pid };
                let answer = self.ask(&question, now);
                self.state().answer(&question, answer, now);
            }
        }
        Ok(())
    }

    /// Forgets all processes but these.
    fn forget_others(&self, alive: &BTreeSet<Pid>) {
        let mut state = self.state();
        // Another thread may know of a process that has begun since these were listed.
        let is_alive = |process: &Arc<ManagedProcess>| process.process.is_alive();
        let is_there = |pid: &Pid, known: &mut Known| {
            alive.contains(pid) || known.managed().is_some_and(is_alive)
        };
        state.known.retain(is_there);
    }

    /// The processes among `pids` about which something is to be asked.
    fn due(&self, pids: &[Pid], now: Time) -> Vec<Pid> {
        let (mut due, mut managed) = (Vec::new(), Vec::new());
        {
            let state = self.state();
            for pid in pids {
                match state.known.get(pid) {
                    None => due.push(*pid),
                    Some(Known::PassedOver { until, .. }) if *until <= now => due.push(*pid),
                    Some(Known::PassedOver { .. } | Known::Asked(_)) => {}
                    Some(Known::Managed { process, described }) => {
                        managed.push((*described, *pid, Arc::clone(process)));
                    }
                }
            }
        }
        let is_stale = |described: &Option<Time>| {
            described.is_none_or(|described| now.since(described) >= DESCRIBED_HOLD)
        };
        // After an `execve` it is another program, with other memory.
        let (same, others): (Vec<_>, Vec<_>) =
            managed.into_iter().partition(|(_, _, process)| process.pagemap.is_current());
        let mut stale: Vec<_> = same.into_iter().filter(|(at, ..)| is_stale(at)).collect();
        stale.sort_by_key(|(described, pid, _)| (*described, *pid));
        stale.truncate(DESCRIBED_AT_ONCE);
        due.extend(others.into_iter().chain(stale).map(|(_, pid, _)| pid));
        due
    }

    /// All managed processes, in the order of their numbers.
    #[must_use]
    pub fn processes(&self) -> Vec<Arc<ManagedProcess>> {
        self.state().known.values().filter_map(Known::managed).cloned().collect()
    }

    /// A managed process.
    #[must_use]
    pub fn get(&self, key: ProcessKey) -> Option<Arc<ManagedProcess>> {
        let state = self.state();
        let process = state.known.get(&find::pid_of(key)).and_then(Known::managed);
        process.filter(|process| process.key == key).cloned()
    }

    /// How many processes we may not look into.
    #[must_use]
    pub fn denied(&self) -> usize {
        let is_denied = |known: &&Known| matches!(known, Known::PassedOver { is_denied: true, .. });
        self.state().known.values().filter(is_denied).count()
    }

    /// How many managed processes are passed over because a file of their `/proc` directories is longer than what is read of one.
    #[must_use]
    pub fn too_long(&self) -> usize {
        self.processes().iter().filter(|process| process.too_long().is_some()).count()
    }

    /// The process, if it is to be managed.
    fn ask(&self, question: &Question, now: Time) -> Known {
        // A program that has just begun may fill its memory soon.
        let wait = now.since(question.since).clamp(ASKED_FIRST, DESCRIBED_HOLD);
        let passed_over =
            |is_denied| Known::PassedOver { since: question.since, until: now + wait, is_denied };
        match self.manage(question) {
            Ok(Some(process)) => Known::Managed { process, described: Some(now) },
            Ok(None) | Err(Error::Gone { .. } | Error::Missing { .. }) => passed_over(false),
            Err(Error::Denied { .. }) => passed_over(true),
            Err(error) => {
                debug!(pid = question.pid.0, "not managed: {error}");
                passed_over(false)
            }
        }
    }

    fn manage(&self, question: &Question) -> Result<Option<Arc<ManagedProcess>>> {
        let Question { pid, before, .. } = question;
        let selection = Arc::clone(&self.state().selection);
        if before.is_none() && !selection.include.pids.contains(pid) && !self.is_large(*pid) {
            return Ok(None);
        }
        if before.is_none() && self.is_full() {
            return Ok(None);
        }
        let found = self.describer.describe(*pid)?;
        let Some(found) = found.filter(|found| selection.admits(&found.identity)) else {
            return Ok(None);
        };
        let is_same =
            |before: &&Arc<ManagedProcess>| before.pagemap.is_current() && found.is_same(before);
        if let Some(same) = before.as_ref().filter(is_same) {
            return Ok(Some(Arc::clone(same)));
        }
        let held = found.hold()?;
        Ok(Some(Arc::new(match before {
            Some(before) => held.after(before),
            None => held,
        })))
    }

    fn is_large(&self, pid: Pid) -> bool {
        let proc = Path::new("/proc");
        let hugetlb = || status::hugetlb(proc, pid);
        status::resident(proc, pid).is_ok_and(|size| size >= self.smallest)
            || self.counts_gigantic
                && hugetlb().is_ok_and(|size| size >= PageSize::Gigantic.bytes())
    }

    /// Whether no further process can be managed.
    fn is_full(&self) -> bool {
        let is_full = self.state().known.values().filter_map(Known::managed).count() >= self.most;
        if is_full && !self.is_full.swap(true, Ordering::Relaxed) {
            warn!(
                "{} processes are managed, and no more: the limit of open files allows no more; raise it \
                 (LimitNOFILE= of a service, ulimit -n)",
                self.most
            );
        }
        is_full
    }
}

/// A question that is being asked; its process can be asked about again when this is dropped.
struct Asked<'a> {
    registry: &'a Registry,
    pid: Pid,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut state = self.registry.state();
        if matches!(state.known.get(&self.pid), Some(Known::Asked(_))) {
            state.known.remove(&self.pid);
        }
    }
}

impl State {
    /// The question about a process, unless another thread asks already.
    fn question(&mut self, pid: Pid, now: Time) -> Option<Question> {
        let (before, since) = match self.known.get(&pid) {
            Some(Known::Asked(_)) => return None,
            Some(Known::PassedOver { since, .. }) => (None, *since),
            Some(Known::Managed { process, .. }) => (Some(Arc::clone(process)), now),
            None => (None, now),
        };
        self.known.insert(pid, Known::Asked(before.clone()));
        Some(Question { pid, before, since, generation: self.generation })
    }

    /// Takes an answer in.
    fn answer(&mut self, question: &Question, mut answer: Known, now: Time) {
        if question.generation != self.generation {
            // The answer is about an earlier selection.
            match &mut answer {
                Known::PassedOver { until, .. } => *until = now,
                Known::Managed { described, .. } => *described = None,
                Known::Asked(_) => {}
            }
        }
        self.known.insert(question.pid, answer);
    }
}

/// Raises our limit of open files as far as may be; the limit then.
fn raise_limit_of_files() -> u64 {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, ..limits };
    if let Err(errno) = setrlimit(Resource::Nofile, raised) {
        info!("no more open files than usual: {errno}");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::{Filter, Identity};
    use std::process::{Child, Command};
    use superpage_kernel::node::NodeSet;
    use superpage_kernel::process::own_pid;

    /// A program of ours that waits to be killed.
    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn sleeper() -> Sleeper {
        Sleeper(Command::new("sleep").arg("600").spawn().expect("sleep runs"))
    }

    fn only(pids: &[Pid]) -> Selection {
        Selection {
            include: Filter { pids: pids.to_vec(), ..Filter::default() },
            ..Selection::default()
        }
    }

    fn pids(registry: &Registry) -> Vec<Pid> {
        registry.processes().iter().map(|process| process.pid()).collect()
    }

    #[test]
    fn a_selected_process_is_held_once_until_it_ends() {
        let program = sleeper();
        let pid = Pid(program.0.id());
        let registry = Registry::new(only(&[pid, own_pid()]), WORTH_MANAGING);
        registry.refresh(Time(1)).expect("processes");
        assert_eq!(pids(&registry), [pid], "named, so it may be small; and never ourselves");
        let first = registry.processes().remove(0);
        registry.refresh(Time(2)).expect("processes");
        assert!(registry.get(first.key).is_some_and(|same| Arc::ptr_eq(&same, &first)));
        drop(program);
        registry.refresh(Time(3)).expect("processes");
        assert!(registry.get(first.key).is_none() && registry.processes().is_empty());
    }

    #[test]
    fn another_selection_holds_at_the_next_refresh() {
        let (one, other) = (sleeper(), sleeper());
        let registry = Registry::new(only(&[Pid(one.0.id())]), WORTH_MANAGING);
        registry.refresh(Time(1)).expect("processes");
        registry.configure(only(&[Pid(other.0.id())]));
        registry.refresh(Time(2)).expect("processes");
        assert_eq!(pids(&registry), [Pid(other.0.id())]);
    }

    /// The nodes of the machine and its cpuset are part of its identity.
    #[test]
    fn the_policy_of_a_process_with_another_identity_is_not_forgotten() {
        let program = sleeper();
        let pid = Pid(program.0.id());
        let registry = Registry::new(only(&[pid]), WORTH_MANAGING);
        registry.refresh(Time(1)).expect("processes");
        let key = registry.processes().remove(0).key;
        let process = process::Process::open(pid).expect("it runs");
        let other = ManagedProcess::new(key, process, Identity::for_tests()).expect("it runs");
        let bound = NodeSet::parse(b"1").expect("a list");
        other.policy.set(Some(bound.clone()));
        let known = Known::Managed { process: Arc::new(other), described: None };
        registry.state().known.insert(pid, known);
        registry.refresh(Time(2)).expect("processes");
        let held = registry.get(key).expect("it is held");
        assert_ne!(held.identity, Identity::for_tests(), "anew");
        assert_eq!(held.policy.bound(), Some(bound));
    }

    /// Some more than are asked in one refresh.
    #[test]
    fn all_are_asked_again_in_turns_however_far_apart_refreshes_are() {
        let programs: Vec<Sleeper> = (0..DESCRIBED_AT_ONCE + 8).map(|_| sleeper()).collect();
        let pids: Vec<Pid> = programs.iter().map(|program| Pid(program.0.id())).collect();
        let registry = Registry::new(only(&pids), WORTH_MANAGING);
        let at = |round: u64| Time(1) + DESCRIBED_HOLD * round;
        registry.refresh(at(0)).expect("processes");
        let stale = |round: u64| {
            let is_before = |known: &&Known| matches!(known, Known::Managed { described, .. } if *described < Some(at(round)));
            registry.state().known.values().filter(is_before).count()
        };
        registry.refresh(at(1)).expect("processes");
        assert_eq!(stale(1), 8);
        registry.refresh(at(2)).expect("processes");
        assert_eq!((stale(1), stale(2)), (0, 8));
    }

    #[test]
    fn no_more_are_managed_than_open_files_allow() {
        let programs = [sleeper(), sleeper(), sleeper()];
        let pids: Vec<Pid> = programs.iter().map(|program| Pid(program.0.id())).collect();
        let mut registry = Registry::new(only(&pids), WORTH_MANAGING);
        registry.most = 2;
        registry.refresh(Time(1)).expect("processes");
        assert_eq!(registry.processes().len(), 2);
    }

    #[test]
    fn a_process_about_which_another_thread_asks_is_passed_over() {
        let program = sleeper();
        let pid = Pid(program.0.id());
        let registry = Registry::new(only(&[pid]), WORTH_MANAGING);
        let question = registry.state().question(pid, Time(1)).expect("nobody knows it");
        registry.refresh(Time(2)).expect("processes");
        assert!(registry.processes().is_empty(), "the answer is awaited");
        registry.configure(only(&[]));
        let answer = registry.ask(&question, Time(3));
        registry.state().answer(&question, answer, Time(3));
        registry.configure(only(&[pid]));
        registry.refresh(Time(4)).expect("processes");
        assert_eq!(pids(&registry), [pid]);
    }
}
