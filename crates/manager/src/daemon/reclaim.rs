//! Passes that reclaim bloat, one at a time, each on a thread of its own. Where nobody promotes, a thread like theirs learns which
//! processes there are.
//!
//! A pass reads memory maps and page tables of other processes, and waits for whoever holds their locks.
//! The daemon's thread does not: it begins a pass, is woken when the pass has ended, and sees whether a
//! step takes longer than it may. Then the pass is given up: its thread is left behind, the process that
//! the thread waits for is left alone for a while, and the next pass goes on without.
//!
//! | file | contents |
//! |---|---|
//! | `work` | the work of the thread |
//! | `progress` | how far it is |
//! | `looks` | when a huge page that may be partly used is looked at |
//! | `permission` | what may be reclaimed from which process |

mod looks;
mod permission;
mod progress;
mod work;

pub(super) use permission::Levels;
pub(super) use work::Ended;

use super::report::Reporter;
use super::watch::Watch;
use crate::budget::CpuBudget;
use crate::came_back::CameBack;
use crate::clock;
use crate::config::Config;
use crate::cooldown::CoolDown;
use crate::daemon::nanos;
use crate::left_behind::{LeftBehind, Owner};
use crate::promote::bucket::TokenBucket;
use crate::registry::Registry;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use looks::Looks;
use progress::{Progress, Subject};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use superpage_policy::debloat::Debloat;
use superpage_units::{BasePages, Nanos, ProcessKey, Share, Time};
use work::{Avoided, Kept, Task, Work};

/// How long a step of a pass may take. Chosen, not measured: some thousand times what one takes.
const LIMIT: Duration = Duration::from_secs(10);
/// Passes for cgroups near their limit may take so much of one core, without the budget that others keep to, and save it up for
/// so long: what waits is killed. Chosen, not measured.
const EMERGENCY: (Share, Nanos) = (Share::percent(25), Nanos(60_000_000_000)); // tidy: allow(60 s)
/// A pass for a cgroup near its limit keeps to the budget, as others do, where less than this has been saved up: its first look would
/// take all of it. Chosen, not measured.
const LEAST_EMERGENCY: Nanos = Nanos(5_000_000_000);
/// A process for which a pass was given up is left alone for so long, and for as long as the thread is
/// stuck. Chosen, not measured: whoever holds a lock for ten seconds may do so again.
const AVOIDED: Duration = Duration::from_secs(600);

/// A pass under way.
#[derive(Debug)]
struct Running {
    thread: JoinHandle<()>,
    task: Arc<Task>,
    /// The time at which the pass began, if it keeps to no budget.
    in_a_hurry: Option<Instant>,
    /// `None` is sent if the thread panicked.
    result: Receiver<Option<(Ended, Kept)>>,
    progress: Arc<Progress>,
}

/// A thread that was left behind.
#[derive(Debug)]
struct Stuck {
    thread: JoinHandle<()>,
    /// The process that it waits for, if it is one, and whose that is.
    waits_for: Option<(ProcessKey, Owner)>,
    since: Instant,
}

/// Makes the passes.
#[derive(Debug)]
pub(super) struct Reclaimer {
    registry: Arc<Registry>,
    reporter: Reporter,
    /// The state for the next pass; `None` while one is under way.
    kept: Option<Kept>,
    /// The cooldowns as they were when the pass under way began.
    cooling: Arc<CoolDown>,
    /// The memory that came back after splits, as it was known then.
    came_back: Arc<CameBack>,
    running: Option<Running>,
    /// Threads that are left behind, and those that have come back not long ago.
    stuck: Vec<Stuck>,
    has_given_up: bool,
    /// Becomes readable when a pass has ended.
    wakeup: Arc<OwnedFd>,
    passes: u64,
    /// How long a step may take.
    limit: Duration,
    /// The CPU time for passes that keep to no budget.
    emergency: TokenBucket,
    counts: Counts,
}

/// Counts of passes that were given up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Passes of which a step took longer than it may.
    pub(super) timed_out: u64,
    /// Passes whose thread panicked or could not be started.
    pub(super) lost: u64,
}

impl Reclaimer {
    /// No pass yet; the first one leaves alone what is in `cooling`.
    ///
    /// # Errors
    /// If the kernel gives no descriptor.
    pub(super) fn new(
        registry: Arc<Registry>,
        reporter: Reporter,
        policy: Box<dyn Debloat>,
        cooling: CoolDown,
    ) -> std::io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let cooling = Arc::new(cooling);
        let kept = Kept {
            policy,
            cooling: Arc::clone(&cooling),
            looks: Looks::default(),
            came_back: Arc::default(),
        };
        Ok(Self {
            registry,
            reporter,
            kept: Some(kept),
            cooling,
            came_back: Arc::default(),
            running: None,
            stuck: Vec::new(),
            has_given_up: false,
            wakeup: Arc::new(wakeup),
            passes: 0,
            limit: LIMIT,
            emergency: TokenBucket::new(EMERGENCY.0, EMERGENCY.1, clock::now()),
            counts: Counts::default(),
        })
    }

    /// Becomes readable when a pass has ended.
    pub(super) fn wakeup(&self) -> &OwnedFd {
        &self.wakeup
    }

    /// How many passes were given up so far.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// The cooldowns as of the last pass.
    pub(super) fn cooling(&self) -> &CoolDown {
        self.kept.as_ref().map_or(&self.cooling, |kept| &kept.cooling)
    }

    /// The memory that came back after splits, as of the last pass.
    fn came_back(&self) -> &Arc<CameBack> {
        self.kept.as_ref().map_or(&self.came_back, |kept| &kept.came_back)
    }

    /// Whether a pass is under way.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether a pass can begin.
    pub(super) fn is_ready(&mut self) -> bool {
        self.stuck.retain(|stuck| {
            let is_avoided = || stuck.waits_for.is_some() && stuck.since.elapsed() < AVOIDED;
            !stuck.thread.is_finished() || is_avoided()
        });
        let left_behind = self.left_behind();
        let (gives_up, waiting) = (left_behind.is_full(), left_behind.count());
        if gives_up && !self.has_given_up {
            let words = format!(
                "{waiting} threads wait for processes and do not come back: no bloat is reclaimed until \
                 one does"
            );
            self.reporter.missed("stuck", None, &words);
        }
        self.has_given_up = gives_up;
        self.running.is_none() && !gives_up
    }

    /// The threads that are left behind and have not come back.
    fn left_behind(&self) -> LeftBehind {
        let waiting = self.stuck.iter().filter(|stuck| !stuck.thread.is_finished());
        LeftBehind::of(waiting.map(|stuck| stuck.waits_for.as_ref().map(|(_, owner)| owner)))
    }

    /// Another configuration holds: by its policy, and with cooldowns no longer than one that begins now.
    /// The pass under way is ended before.
    pub(super) fn configure(&mut self, policy: Box<dyn Debloat>, now: Time, cool_down: Nanos) {
        let mut cooling = self.cooling().clone();
        cooling.cap(now, cool_down);
        self.keep(policy, Arc::new(cooling));
    }

    /// The next pass begins with this and what came back, and knows of no look.
    fn keep(&mut self, policy: Box<dyn Debloat>, cooling: Arc<CoolDown>) {
        self.cooling = Arc::clone(&cooling);
        let came_back = Arc::clone(self.came_back());
        self.kept = Some(Kept { policy, cooling, looks: Looks::default(), came_back });
    }

    /// Has memory freed, because `watch` is above its watermark.
    pub(super) fn free(&mut self, watch: Watch, need: BasePages, with: With<'_>) {
        self.begin(Task::Free { watch, need }, with);
    }

    /// Ends a pass that is for no memory that is short, because some is.
    pub(super) fn make_way(&self) {
        if let Some(Running { task, progress, .. }) = &self.running
            && !matches!(**task, Task::Free { .. })
        {
            progress.end();
        }
    }

    /// Ends a pass that is for no cgroup near its limit, and for no nodes, because some are.
    pub(super) fn make_way_for_limit(&self) {
        if let Some(Running { task, progress, .. }) = &self.running {
            let is_for_one = matches!(&**task, Task::Free { watch, .. } if watch.is_found());
            if !is_for_one {
                progress.end();
            }
        }
    }

    /// Has huge pages split that stay partly used, of these processes, each under the policy of that name.
    pub(super) fn reclaim_idle(&mut self, policies: BTreeMap<ProcessKey, String>, with: With<'_>) {
        self.begin(Task::Idle { policies }, with);
    }

    /// Has the registry learn which processes there are.
    pub(super) fn find(&mut self, with: With<'_>) {
        self.begin(Task::Find, with);
    }

    fn begin(&mut self, task: Task, with: With<'_>) {
        if !self.is_ready() {
            return;
        }
        let Some(kept) = self.kept.take() else { return };
        self.cooling = Arc::clone(&kept.cooling);
        self.came_back = Arc::clone(&kept.came_back);
        self.passes += 1;
        let is_for_limit = matches!(&task, Task::Free { watch, .. } if watch.is_found());
        let now = clock::now();
        let time = self.emergency.at(now);
        let in_a_hurry = is_for_limit && time >= LEAST_EMERGENCY;
        // The pass ends when this time is spent, whatever it comes across.
        let by = in_a_hurry.then(|| Instant::now() + Duration::from_nanos(time.0));
        let work = Work {
            config: Arc::clone(with.config),
            budget: if in_a_hurry { CpuBudget::UNLIMITED } else { with.config.budget },
            watches: with.watches.to_vec(),
            registry: Arc::clone(&self.registry),
            reporter: self.reporter.clone(),
            kept,
            avoided: Avoided {
                processes: self
                    .stuck
                    .iter()
                    .filter_map(|stuck| Some(stuck.waits_for.as_ref()?.0))
                    .collect(),
                left_behind: self.left_behind(),
            },
            number: self.passes,
        };
        let (task, progress) = (Arc::new(task), Arc::new(Progress::until(by)));
        let (its_task, its_progress) = (Arc::clone(&task), Arc::clone(&progress));
        let wakeup = Arc::clone(&self.wakeup);
        let (send, result) = bounded(1);
        let run = move || {
            // Whatever a panic left half done is dropped with the pass.
            let carry_out = || work.carry_out(&its_task, &its_progress);
            let done = catch_unwind(AssertUnwindSafe(carry_out)).ok();
            // Nobody waits for a thread that was left behind.
            let _ = send.send(done);
            let _ = rustix::io::write(&*wakeup, &1_u64.to_ne_bytes());
        };
        match std::thread::Builder::new().name("reclaim".to_owned()).spawn(run) {
            Ok(thread) => {
                let in_a_hurry = in_a_hurry.then(Instant::now);
                self.running = Some(Running { thread, task, in_a_hurry, result, progress });
            }
            Err(error) => {
                self.lost(with.config, &format!("the thread of a pass cannot be started: {error}"));
            }
        }
    }

    /// How the pass under way ended, if it has; one that takes too long is given up.
    pub(super) fn ended(&mut self, config: &Config) -> Option<Ended> {
        let _ = rustix::io::read(&*self.wakeup, &mut [0_u8; 8]);
        let running = self.running.as_ref()?;
        match running.result.try_recv() {
            Ok(done) => self.take_in(done, config),
            Err(_) => {
                let late = running.progress.overdue(self.limit)?;
                self.give_up(late, config)
            }
        }
    }

    /// Ends the pass under way; one that does not end in time is given up.
    pub(super) fn end(&mut self, patience: Duration, config: &Config) -> Option<Ended> {
        let running = self.running.as_ref()?;
        running.progress.end();
        let by = Instant::now() + patience;
        match running.result.recv_deadline(by) {
            Ok(done) => self.take_in(done, config),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let late = running.progress.overdue(Duration::ZERO).flatten();
                self.give_up(late, config)
            }
        }
    }

    fn take_in(&mut self, done: Option<(Ended, Kept)>, config: &Config) -> Option<Ended> {
        let Running { thread, task, in_a_hurry, .. } = self.running.take()?;
        self.charge(in_a_hurry);
        // Its last steps were to send this and to wake us.
        let _ = thread.join();
        if let Some((ended, kept)) = done {
            self.kept = Some(kept);
            return Some(ended);
        }
        self.lost(config, "a pass ended by a mistake of its own (see above)");
        Some(task.given_up())
    }

    /// Takes the time of a pass that kept to no budget, since this, out of what there is for that.
    fn charge(&mut self, in_a_hurry: Option<Instant>) {
        if let Some(began) = in_a_hurry {
            self.emergency.spend(nanos(began.elapsed()), clock::now());
        }
    }

    fn lost(&mut self, config: &Config, words: &str) {
        self.counts.lost += 1;
        self.reporter.missed("worker-lost", None, words);
        self.keep((config.policy.build)(config.emd), Arc::clone(&self.cooling));
    }

    /// Leaves the thread of the pass under way behind, which waits for this process.
    fn give_up(&mut self, late: Option<Subject>, config: &Config) -> Option<Ended> {
        let Running { thread, task, in_a_hurry, progress, .. } = self.running.take()?;
        self.charge(in_a_hurry);
        progress.end();
        self.counts.timed_out += 1;
        let words = "a step of a pass takes longer than it may; the next pass goes on without";
        let process = late.as_ref().map(|subject| (subject.pid, &*subject.command));
        self.reporter.missed("timed-out", process, words);
        let waits_for = late.map(|subject| (subject.key, subject.owner));
        self.stuck.push(Stuck { thread, waits_for, since: Instant::now() });
        self.keep((config.policy.build)(config.emd), Arc::clone(&self.cooling));
        Some(task.given_up())
    }
}

/// The configuration for a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct With<'a> {
    pub(super) config: &'a Arc<Config>,
    /// Everything that is watched.
    pub(super) watches: &'a [Watch],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;
    use crate::left_behind::MOST;
    use crate::process::ManagedProcess;
    use crate::registry::WORTH_MANAGING;
    use crate::select::{Filter, Identity, Membership, Selection};
    use crossbeam_channel::{Sender, unbounded};
    use rustix::event::{PollFd, PollFlags, poll};
    use std::path::Path;
    use std::process::Command;
    use superpage_kernel::process::Process;
    use superpage_kernel::status::Uid;
    use superpage_policy::bloat::BloatDensity;
    use superpage_policy::debloat::{BloatMaps, Decision};
    use superpage_units::Pid;

    fn reclaimer(directory: &tempfile::TempDir) -> (Reclaimer, Config) {
        let config = Config::default();
        // Nobody has this number.
        let include = Filter { pids: vec![Pid(u32::MAX)], ..Filter::default() };
        let nobody = Selection { include, ..Selection::default() };
        let registry = Arc::new(Registry::new(nobody, WORTH_MANAGING));
        let reporter = Reporter::new(Arc::new(Ledger::open(directory.path())));
        let policy = (config.policy.build)(config.emd);
        let made = Reclaimer::new(registry, reporter, policy, CoolDown::new());
        (made.expect("a descriptor"), config)
    }

    /// A pass that waits until the sender is dropped, as if for a process of this owner.
    fn waits(reclaimer: &mut Reclaimer, owner: Option<Owner>) -> Sender<()> {
        let (free, stuck) = unbounded();
        let (send, result) = bounded(1);
        let thread = std::thread::spawn(move || {
            let _ = stuck.recv();
            drop(send);
        });
        let progress = Arc::new(Progress::default());
        match owner {
            Some(owner) => {
                let me = Process::current().expect("we run");
                let identity = Identity {
                    user: owner.user,
                    cgroup: owner.cgroup.map_or(Membership::Unknown, Membership::Known),
                    ..Identity::for_tests()
                };
                let me = ManagedProcess::new(ProcessKey(1), me, identity).expect("readable");
                progress.begins(&me);
            }
            None => progress.begins_with_all(),
        }
        reclaimer.kept = None;
        let task = Arc::new(Task::Idle { policies: BTreeMap::new() });
        reclaimer.running = Some(Running { thread, task, in_a_hurry: None, result, progress });
        free
    }

    /// Whether a pass was given up.
    fn is_given_up(ended: Option<&Ended>) -> bool {
        matches!(ended, Some(Ended::Idle { done: None, .. } | Ended::Free { done: None, .. }))
    }

    /// A policy that makes a mistake.
    #[derive(Debug)]
    struct Mistaken;

    impl Debloat for Mistaken {
        fn decide(&mut self, _: &BloatMaps, _: BasePages) -> Decision {
            panic!("a mistake, for the test")
        }

        fn floor(&self) -> BloatDensity {
            BloatDensity::new(0)
        }
    }

    #[test]
    fn a_panic_in_a_pass_is_counted_and_wakes_the_daemon() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut reclaimer, config) = reclaimer(&directory);
        let config = Arc::new(config);
        let watches = crate::daemon::watch::all(&config);
        reclaimer.configure(Box::new(Mistaken), Time::ZERO, Nanos(1));
        let with = With { config: &config, watches: &watches };
        reclaimer.free(watches[0].clone(), BasePages(1), with);
        let mut woken = [PollFd::new(reclaimer.wakeup(), PollFlags::IN)];
        let minute = rustix::time::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut woken, Some(&minute)), Ok(1), "nothing woke us");
        assert!(is_given_up(reclaimer.ended(&config).as_ref()));
        assert_eq!((reclaimer.counts().timed_out, reclaimer.counts().lost), (0, 1));
        assert!(reclaimer.is_ready(), "the next pass can begin");
    }

    #[test]
    fn a_pass_ends_by_itself_and_the_next_can_begin() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut reclaimer, config) = reclaimer(&directory);
        let config = Arc::new(config);
        reclaimer.reclaim_idle(BTreeMap::new(), With { config: &config, watches: &[] });
        assert!(reclaimer.is_running() && !reclaimer.is_ready());
        let ended = reclaimer.end(Duration::from_secs(60), &config);
        assert!(matches!(ended, Some(Ended::Idle { done: Some(Ok(())), .. })), "{ended:?}");
        assert!(!reclaimer.is_running() && reclaimer.is_ready());
    }

    #[test]
    fn processes_become_known_without_a_pass_over_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut reclaimer, config) = reclaimer(&directory);
        let config = Arc::new(config);
        let mut program = Command::new("sleep").arg("600").spawn().expect("sleep runs");
        let include = Filter { pids: vec![Pid(program.id())], ..Filter::default() };
        reclaimer.registry.configure(Selection { include, ..Selection::default() });
        reclaimer.find(With { config: &config, watches: &[] });
        let ended = reclaimer.end(Duration::from_secs(60), &config);
        let known = reclaimer.registry.processes().len();
        program.kill().and_then(|()| program.wait()).expect("it ends");
        assert!(matches!(ended, Some(Ended::Found { done: Some(Ok(())), .. })), "{ended:?}");
        assert_eq!(known, 1);
    }

    #[test]
    fn a_pass_that_waits_is_left_behind_and_others_can_begin() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut reclaimer, config) = reclaimer(&directory);
        let mut waiting = Vec::new();
        for number in 1..=MOST {
            waiting.push(waits(&mut reclaimer, None));
            assert!(reclaimer.ended(&config).is_none() && reclaimer.is_running(), "not late yet");
            let ended = reclaimer.end(Duration::from_millis(1), &config);
            assert!(is_given_up(ended.as_ref()), "{ended:?}");
            assert!(!reclaimer.is_running());
            assert_eq!(reclaimer.is_ready(), number < MOST, "{number} are left behind");
        }
        drop(waiting);
        let began = Instant::now();
        while !reclaimer.is_ready() && began.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        assert!(reclaimer.is_ready(), "they came back");
    }

    #[test]
    fn who_keeps_passes_waiting_is_left_alone_and_others_are_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut reclaimer, config) = reclaimer(&directory);
        let [hostile, pod, other] = [(1000, "/"), (0, "/pod"), (0, "/")]
            .map(|(user, group)| Owner { user: Uid(user), cgroup: Some(Path::new(group).into()) });
        let mut waiting = Vec::new();
        for owner in [&hostile, &pod].into_iter().cycle().take(16) {
            waiting.push(waits(&mut reclaimer, Some(owner.clone())));
            let ended = reclaimer.end(Duration::from_millis(1), &config);
            assert!(is_given_up(ended.as_ref()) && reclaimer.is_ready(), "{ended:?}");
        }
        let left_behind = reclaimer.left_behind();
        let is_used_up = [&hostile, &pod, &other].map(|owner| left_behind.is_used_up_by(owner));
        assert_eq!(is_used_up, [true, true, false]);
        drop(waiting);
    }

    #[test]
    fn a_step_that_takes_too_long_is_counted_and_what_was_known_before_is_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut reclaimer, config) = reclaimer(&directory);
        let range = superpage_units::PmdRange::containing(superpage_units::VirtAddr(0));
        Arc::make_mut(&mut reclaimer.cooling).add(ProcessKey(1), range, Time(7));
        let known = Arc::clone(&reclaimer.came_back);
        reclaimer.limit = Duration::ZERO;
        let waiting = waits(&mut reclaimer, None);
        assert!(is_given_up(reclaimer.ended(&config).as_ref()) && !reclaimer.is_running());
        assert_eq!((reclaimer.counts().timed_out, reclaimer.counts().lost), (1, 0));
        let kept = |reclaimer: &Reclaimer| {
            (reclaimer.cooling().len(), Arc::ptr_eq(reclaimer.came_back(), &known))
        };
        assert_eq!(kept(&reclaimer), (1, true));
        // So it is where another configuration holds.
        reclaimer.configure((config.policy.build)(config.emd), Time::ZERO, Nanos(1));
        assert_eq!(kept(&reclaimer), (1, true));
        drop(waiting);
    }
}
