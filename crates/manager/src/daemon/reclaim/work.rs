//! The work of a pass's thread: it frees memory above a watermark, or splits huge pages that stay
//! partly used.

use super::looks::{Looks, Seen};
use super::permission::{self, Levels};
use super::progress::Progress;
use crate::account::Account;
use crate::budget::CpuBudget;
use crate::came_back::CameBack;
use crate::clock;
use crate::config::Config;
use crate::cooldown::CoolDown;
use crate::daemon::nanos;
use crate::daemon::report::Reporter;
use crate::daemon::watch::{Level, Watch};
use crate::free_memory::Nodes;
use crate::left_behind::{LeftBehind, Owner};
use crate::pass::{End, Event, Flow, Mode, Options, Pass, Permission};
use crate::process::{ManagedProcess, is_about_one_process};
use crate::registry::Registry;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use superpage_kernel::usage::CpuTime;
use superpage_kernel::{Error, Result};
use superpage_policy::debloat::Debloat;
use superpage_policy::debloat::emd::{self, Emd, Observation};
use superpage_units::{BasePages, Nanos, Pid, PmdRange, ProcessKey, Share};
use tracing::debug;

/// How often used memory is looked at again during a pass.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A long pause is cut into parts, so that the pass can be ended. Chosen: leaving waits no longer for it.
const SLICE: Duration = Duration::from_millis(20);
/// While huge pages that may be partly used are looked for, the process is left alone for so many times
/// longer than each stride takes. Chosen, not measured.
const UNHURRIED: u32 = 3;

/// The aim of a pass.
#[derive(Debug)]
pub(super) enum Task {
    /// Free so much, because this memory is above its watermark.
    Free { watch: Watch, need: BasePages },
    /// Split huge pages that stay partly used, of these processes, each under the policy of that name.
    Idle { policies: BTreeMap<ProcessKey, String> },
    /// Only learn which processes there are.
    Find,
}

/// State that one pass hands on to the next.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) policy: Box<dyn Debloat>,
    pub(super) cooling: Arc<CoolDown>,
    /// When huge pages that may be partly used are looked at.
    pub(super) looks: Looks,
    /// The memory that came back after splits.
    pub(super) came_back: Arc<CameBack>,
}

/// How a task ended.
#[derive(Debug)]
pub(in crate::daemon) enum Ended {
    /// The memory of this name was above its watermark. `None`: the pass was given up.
    Free { watch: String, done: Option<Result<(Account, End)>> },
    /// The search for huge pages that may be partly used took so much CPU time. `None`: the pass was given
    /// up.
    Idle { cost: Duration, done: Option<Result<()>> },
    /// To ask which processes there are took so much CPU time. `None`: the pass was given up.
    Found { cost: Duration, done: Option<Result<()>> },
}

impl Task {
    /// The task was given up.
    pub(super) fn given_up(&self) -> Ended {
        match self {
            Self::Free { watch, .. } => Ended::Free { watch: watch.name(), done: None },
            Self::Idle { .. } => Ended::Idle { cost: Duration::ZERO, done: None },
            Self::Find => Ended::Found { cost: Duration::ZERO, done: None },
        }
    }
}

/// The processes that are left alone, because earlier passes waited there too long.
#[derive(Debug, Default)]
pub(super) struct Avoided {
    /// Single processes.
    pub(super) processes: BTreeSet<ProcessKey>,
    /// All processes of the owners who have used up their share of this.
    pub(super) left_behind: LeftBehind,
}

impl Avoided {
    fn has(&self, process: &ManagedProcess) -> bool {
        self.processes.contains(&process.key)
            || self.left_behind.is_used_up_by(&Owner::of(&process.identity))
    }
}

/// All that a pass needs but its task.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) config: Arc<Config>,
    /// The share of one core that the pass may use.
    pub(super) budget: CpuBudget,
    pub(super) watches: Vec<Watch>,
    pub(super) registry: Arc<Registry>,
    pub(super) reporter: Reporter,
    pub(super) kept: Kept,
    pub(super) avoided: Avoided,
    /// The number of this pass.
    pub(super) number: u64,
}

/// A process, and its huge pages.
type Found = (Arc<ManagedProcess>, Vec<PmdRange>);

impl Work {
    /// Makes the pass.
    pub(super) fn carry_out(mut self, task: &Task, progress: &Progress) -> (Ended, Kept) {
        let ended = match task {
            Task::Free { watch, need } => {
                let done = self.free(watch, *need, progress);
                Ended::Free { watch: watch.name(), done: Some(done) }
            }
            Task::Idle { policies } => {
                let before = CpuTime::of_thread();
                let found = self.due(policies, progress);
                let cost = Duration::from_nanos(CpuTime::of_thread().since(before).0);
                let done = found.and_then(|due| match due.is_empty() {
                    true => Ok(()),
                    false => self.split_idle(due, policies, progress),
                });
                Ended::Idle { cost, done: Some(done) }
            }
            Task::Find => {
                let (done, cost) = self.refresh(progress);
                Ended::Found { cost, done: Some(done) }
            }
        };
        self.reporter.tell_splits();
        (ended, self.kept)
    }

    /// The huge pages of the managed processes that are `wanted`, and the CPU time that each has used. The
    /// process is left alone for so many times longer than each stride takes.
    fn find(
        &self,
        wanted: impl Fn(&ManagedProcess) -> bool,
        rest: u32,
        progress: &Progress,
    ) -> Result<Vec<Seen>> {
        let mut found = Vec::new();
        for process in self.registry.processes() {
            if self.avoided.has(&process) || !wanted(&process) {
                continue;
            }
            let (mut cpu, mut began) = (CpuTime::of_thread(), Instant::now());
            progress.begins(&process);
            let seen = process.stat().and_then(|stat| {
                let huge_pages = process.huge_pages_in_strides(&mut |took| {
                    progress.is_over();
                    std::thread::sleep(took * rest);
                    // The strides of one process can take any time.
                    if began.elapsed() >= SLICE {
                        self.pay(CpuTime::of_thread().since(cpu), began, progress);
                        (cpu, began) = (CpuTime::of_thread(), Instant::now());
                    }
                    progress.begins(&process);
                    match progress.is_to_end() {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                })?;
                Ok((huge_pages, stat.cpu.time()))
            });
            progress.is_over();
            self.pay(CpuTime::of_thread().since(cpu), began, progress);
            match seen {
                Ok((huge_pages, used)) => found.push(Seen { process, huge_pages, used }),
                Err(error @ Error::Unsupported { .. }) => return Err(error),
                // What is odd about one process is no reason to leave the others alone.
                Err(error) if is_about_one_process(&error) => {}
                Err(error) => debug!(pid = process.pid().0, "passed over: {error}"),
            }
            if progress.is_to_end() {
                break;
            }
        }
        Ok(found)
    }

    /// The share that came back of what was freed before, for each of these processes; nothing where the policy does not ask.
    fn shares(&self, found: &[Found], progress: &Progress) -> Vec<(ProcessKey, Share)> {
        let mut shares = Vec::new();
        if !self.kept.policy.asks_what_came_back() {
            return shares;
        }
        for (process, _) in found {
            if progress.is_to_end() {
                break;
            }
            let (cpu, began) = (CpuTime::of_thread(), Instant::now());
            progress.begins(process);
            shares.push((process.key, self.kept.came_back.of(process)));
            progress.is_over();
            self.pay(CpuTime::of_thread().since(cpu), began, progress);
        }
        shares
    }

    /// Pauses until work that began then, and took so much CPU time, is within the budget, or the pass is to end.
    fn pay(&self, cpu: Nanos, began: Instant, progress: &Progress) {
        let wall = Nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let end = Instant::now() + self.budget.pause(cpu, wall);
        while Instant::now() < end && !progress.is_to_end() {
            std::thread::sleep(SLICE.min(end.saturating_duration_since(Instant::now())));
        }
    }

    /// Asks which processes there are; how much CPU time that took.
    fn refresh(&self, progress: &Progress) -> (Result<()>, Duration) {
        let (cpu, began) = (CpuTime::of_thread(), Instant::now());
        progress.begins_with_all();
        let done = self.registry.refresh(clock::now());
        progress.is_over();
        let cost = CpuTime::of_thread().since(cpu);
        self.pay(cost, began, progress);
        (done, Duration::from_nanos(cost.0))
    }

    fn free(
        &mut self,
        watch: &Watch,
        need: BasePages,
        progress: &Progress,
    ) -> Result<(Account, End)> {
        let now = clock::now();
        let selection = watch.selection(&self.config.processes);
        let may_change = selection.may_change();
        // The registry knows well enough who is in a cgroup near its limit, or bound to nodes that are nearly full: all of it may
        // be used up while all processes are asked.
        if !watch.is_found() {
            self.refresh(progress).0?;
        }
        let can_help = |process: &ManagedProcess| {
            selection.admits(&process.identity)
                && watch.covers(process.cgroup(), process.nodes().as_ref())
        };
        let found = self.find(can_help, 0, progress)?;
        let found = found.into_iter().filter(|seen| !seen.huge_pages.is_empty());
        let found: Vec<Found> = found.map(|seen| (seen.process, seen.huge_pages)).collect();
        let shares = self.shares(&found, progress);
        if progress.is_to_end() {
            // A part of the huge pages would be taken for all, and none for nothing left.
            return Ok((Account::default(), End::Stopped));
        }
        let (options, name) = (self.options(), self.config.policy.name);
        let Kept { policy, cooling, came_back, .. } = &mut self.kept;
        let cooling = Arc::make_mut(cooling);
        cooling.expire(now);
        let mut pass = Pass::over(found, need, options, cooling, now);
        shares.into_iter().for_each(|(key, share)| pass.set_came_back(key, share));
        let level = Cell::new(watch.level(&mut Nodes::now()));
        // A pass can take long; a process may be in another group by now, or another user's.
        let is_admitted = |process: &ManagedProcess| {
            let identity = self.registry.describer().ask(&process.process);
            identity.is_ok_and(|identity| selection.admits(&identity))
        };
        let mut guard = |process: &ManagedProcess| {
            progress.begins(process);
            match level.get() {
                _ if may_change && !is_admitted(process) => Permission::Nothing,
                Some(Level::High) => Permission::All,
                _ => Permission::NotAskedFor,
            }
        };
        let mut looked = Instant::now();
        let mut told = |event: Event<'_>| {
            progress.is_over();
            self.reporter.event(&event, name, None);
            // A pass can take long; whoever used the memory may have left meanwhile.
            let is_time = looked.elapsed() >= LOOK_AGAIN;
            if is_time {
                looked = Instant::now();
            }
            if is_time || matches!(event, Event::Split { .. }) {
                level.set(watch.level(&mut Nodes::now()));
            }
            let is_relieved = level.get() == Some(Level::Low);
            if is_relieved || progress.is_to_end() { Flow::Stop } else { Flow::Continue }
        };
        let end = pass.run_guarded(policy.as_mut(), cooling, now, &mut guard, &mut told)?;
        let came_back = Arc::make_mut(came_back);
        came_back.retain(&self.registry.processes());
        came_back.take_in(pass.splits());
        Ok((pass.account().clone(), end))
    }

    /// The huge pages that are to be looked at now, of those of these processes from which may be
    /// reclaimed now.
    fn due(
        &mut self,
        policies: &BTreeMap<ProcessKey, String>,
        progress: &Progress,
    ) -> Result<Vec<Found>> {
        let now = clock::now();
        let levels = Levels::now(&self.watches);
        let may = |process: &ManagedProcess| {
            let (identity, nodes) = (&process.identity, process.nodes());
            let may =
                permission::idle(identity, nodes.as_ref(), &self.config, &self.watches, &levels);
            may != Permission::Nothing
        };
        let is_wanted = |process: &ManagedProcess| policies.contains_key(&process.key);
        let all = self.registry.processes();
        // What is known of a process is kept until it may be reclaimed from again.
        let others = all.iter().filter(|process| is_wanted(process) && !may(process));
        let others: BTreeSet<ProcessKey> = others.map(|process| process.key).collect();
        let found = self.find(|process| is_wanted(process) && may(process), UNHURRIED, progress)?;
        if progress.is_to_end() {
            // A part of the huge pages would be taken for all.
            return Ok(Vec::new());
        }
        let idle = nanos(self.config.promotion.idle);
        Ok(self.kept.looks.see(found, &others, idle, now))
    }

    fn split_idle(
        &mut self,
        due: Vec<Found>,
        policies: &BTreeMap<ProcessKey, String>,
        progress: &Progress,
    ) -> Result<()> {
        let (now, options, all) = (clock::now(), self.options(), BasePages(u64::MAX));
        let (config, watches) = (&self.config, &self.watches);
        let Kept { cooling, looks, .. } = &mut self.kept;
        let cooling = Arc::make_mut(cooling);
        cooling.expire(now);
        let names: BTreeMap<Pid, &str> = due
            .iter()
            .filter_map(|(process, _)| Some((process.pid(), policies.get(&process.key)?.as_str())))
            .collect();
        let mut pass = Pass::over(due, all, options, cooling, now);
        let cause =
            format!("partly used and so for {}", humantime::format_duration(config.promotion.idle));
        let levels = RefCell::new(Levels::now(watches));
        let mut guard = |process: &ManagedProcess| {
            progress.begins(process);
            let identity = self.registry.describer().ask(&process.process);
            identity.map_or(Permission::Nothing, |identity| {
                let nodes = process.nodes();
                permission::idle(&identity, nodes.as_ref(), config, watches, &levels.borrow())
            })
        };
        let mut looked = Instant::now();
        let mut told = |event: Event<'_>| {
            progress.is_over();
            let policy = match &event {
                Event::Split { process, .. } => names.get(&process.pid).copied(),
                _ => None,
            };
            self.reporter.event(&event, policy.unwrap_or_default(), Some(&cause));
            let is_short = looked.elapsed() >= LOOK_AGAIN && {
                looked = Instant::now();
                levels.replace(Levels::now(watches));
                // Memory above a watermark comes first.
                levels.borrow().is_any_high()
            };
            if is_short || progress.is_to_end() { Flow::Stop } else { Flow::Continue }
        };
        // Most of them are in use. What is taken for that is not looked at again soon, so that
        // little may be missed.
        let mut emd = Emd::new(emd::Options { observation: Observation::Filtered, ..config.emd });
        pass.run_guarded(&mut emd, cooling, now, &mut guard, &mut told)?;
        self.reporter.left_alone(pass.account());
        looks.looked(pass.maps(), nanos(config.promotion.idle), now);
        Ok(())
    }

    /// How the pass goes about it.
    fn options(&self) -> Options {
        Options {
            mode: Mode::Act,
            budget: self.budget,
            seed: self.number << 32,
            worth: self.config.worth(),
            cool_down: nanos(self.config.cool_down),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use crate::registry::WORTH_MANAGING;
    use crate::select::{Identity, Selection};
    use superpage_kernel::process::Process;
    use superpage_kernel::status::Uid;
    use superpage_policy::debloat::emd::EMD;
    use superpage_policy::debloat::lasting::EMD_LASTING;
    use superpage_policy::debloat::list::Entry;

    fn work(policy: &Entry, directory: &tempfile::TempDir) -> Work {
        let config = Config::default();
        let kept = Kept {
            policy: (policy.build)(config.emd),
            cooling: Arc::default(),
            looks: Looks::default(),
            came_back: Arc::default(),
        };
        Work {
            config: Arc::new(config),
            budget: CpuBudget::UNLIMITED,
            watches: Vec::new(),
            registry: Arc::new(Registry::new(Selection::default(), WORTH_MANAGING)),
            reporter: Reporter::new(Arc::new(Ledger::open(directory.path()))),
            kept,
            avoided: Avoided::default(),
            number: 1,
        }
    }

    #[test]
    fn all_processes_of_who_has_used_up_his_share_are_avoided_and_no_others() {
        let mine = |user| {
            let me = Process::current().expect("we run");
            let identity = Identity { user: Uid(user), ..Identity::for_tests() };
            ManagedProcess::new(ProcessKey(1), me, identity).expect("readable")
        };
        let hostile = Owner::of(&mine(1000).identity);
        let left_behind = LeftBehind::of(std::iter::repeat_n(Some(&hostile), 8));
        let avoided = Avoided { left_behind, ..Avoided::default() };
        assert!(avoided.has(&mine(1000)) && !avoided.has(&mine(1001)) && !avoided.has(&mine(0)));
        let processes = BTreeSet::from([ProcessKey(1)]);
        let avoided = Avoided { processes, ..Avoided::default() };
        assert!(avoided.has(&mine(0)), "a process for which a pass was given up");
    }

    #[test]
    fn what_came_back_is_asked_for_who_asks_until_the_pass_is_to_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let me = Process::current().expect("we run");
        let me = ManagedProcess::new(ProcessKey(1), me, Identity::for_tests()).expect("readable");
        let found = [(Arc::new(me), Vec::new())];
        let (progress, lasting) = (Progress::default(), work(&EMD_LASTING, &directory));
        assert_eq!(lasting.shares(&found, &progress), [(ProcessKey(1), Share::NONE)]);
        assert!(work(&EMD, &directory).shares(&found, &progress).is_empty());
        progress.end();
        assert!(lasting.shares(&found, &progress).is_empty());
    }
}
