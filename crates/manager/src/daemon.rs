//! The daemon: promotes while memory is free, and reclaims bloat when memory passes a watermark.
//!
//! One at a time on a machine. Its thread sleeps until its interval is over, memory pressure wakes it, a
//! pass has ended, or a signal comes; then it reads how much memory is used, and decides whether a pass is
//! to be made. It waits for no other process: passes (`reclaim`) and promotions ([`crate::promote`]) go on
//! beside it, and where it ends them it waits three seconds at most for each. SIGHUP reads the configuration again, SIGTERM and SIGINT have it
//! leave (`leave`).

mod compact;
mod gigantic;
mod hold;
mod leave;
mod limits;
mod reclaim;
mod report;
mod saved;
mod watch;

use crate::clock;
use crate::config::{self, Config, ConfigError, FirstTouch};
use crate::free_memory::{self, Nodes};
use crate::history::What;
use crate::ledger::{Ledger, entry};
use crate::metrics::{self, Server};
use crate::pass::End;
use crate::promote::scheduler::{OBSERVE_IDLE, OBSERVE_SHARE};
use crate::promote::{self, Promoted, Promoter, Setup};
use crate::registry::{self, Registry};
use compact::Compaction;
use gigantic::Supply;
use leave::{Restarts, Verdict};
use limits::Limits;
use reclaim::{Ended, Levels, Reclaimer, With};
use report::Reporter;
use rustix::event::{PollFd, PollFlags, poll};
use saved::Saved;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::VecDeque;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_kernel::Error;
use superpage_kernel::pressure::Trigger;
use superpage_kernel::probe::{self, Finding};
use superpage_kernel::process;
use superpage_kernel::settings::{self, Lock, Repairs, Settings};
use superpage_policy::debloat::DoneCause;
use superpage_policy::watermark::{Order, Watermarks};
use superpage_units::{Bytes, HugePages, Nanos, Pid};
use tracing::{debug, error, info, warn};
use watch::Watch;

/// Tasks stalling this long for memory within [`PRESSURE_WINDOW`] wake the daemon. Chosen, not
/// measured: long enough that ordinary page cache turnover does not.
const PRESSURE_STALL: Nanos = Nanos(100_000_000);
/// A multiple of two seconds needs no rights beyond reading the file.
const PRESSURE_WINDOW: Nanos = Nanos(2_000_000_000);

/// How often what would be missed at a restart is kept.
const SAVE: Duration = Duration::from_secs(30);

/// How often the daemon says how it stands while a pass is under way.
const WHILE_RUNNING: Duration = Duration::from_secs(1);

/// The daemon's thread sleeps no longer than this, and says then that it is alive: a third of the unit's `WatchdogSec`.
const LONGEST_SLEEP: Duration = Duration::from_secs(20);

/// Searches for huge pages that may be partly used, without looking into them, may take at most one in so
/// much of a core's time. Chosen, not measured.
const DEAREST: u32 = 1000; // tidy: allow(times longer)
/// The next search begins after this at the latest, however long the last one took. Chosen, not measured.
const LATEST: Duration = Duration::from_secs(120);

/// Where nobody promotes, processes are looked for as often as the promoter observes them.
const FIND: Duration = Duration::from_nanos(OBSERVE_IDLE.0);

/// Memory that programs can touch in a second at the most, and the shortest time between two looks at it. Chosen, not
/// measured.
const FASTEST: Bytes = Bytes::from_gib(4);
const SOONEST: Duration = Duration::from_millis(100);

/// Why the daemon did not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Another one runs.
    #[error("another superpage holds this machine{}; stop it first", number(*pid))]
    Busy {
        /// Its process number, if it is known.
        pid: Option<Pid>,
    },
    /// This kernel or these rights lack what it cannot do without.
    #[error("this kernel or these rights do not allow it:{}", list(.0))]
    NotPossible(Vec<Finding>),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(Error),
    /// Signals or the end of a pass could not wake it.
    #[error("the daemon cannot be woken: {0}")]
    Wakeup(std::io::Error),
    /// The promoter ended by itself and was started again, too often.
    #[error(
        "the promoter ended by itself again and again; the settings of the kernel are put back"
    )]
    PromoterEnds,
    /// The daemon's own thread panicked; the panic said where.
    #[error("the daemon made a mistake (see above); the settings of the kernel are put back")]
    Panicked,
}

fn number(pid: Option<Pid>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

fn list(findings: &[Finding]) -> String {
    let one = |finding: &Finding| {
        let advice = finding.advice.unwrap_or_default();
        format!(" {} ({}). {advice}", finding.ability.purpose(), finding.why)
    };
    findings.iter().map(one).collect()
}

impl From<Error> for DaemonError {
    fn from(error: Error) -> Self {
        match error {
            Error::Busy { pid } => Self::Busy { pid },
            other => Self::Kernel(other),
        }
    }
}

/// Runs the daemon until it is told to stop.
///
/// `config_path` is read now and on SIGHUP; without one the defaults hold. `state` is the
/// directory of its journal ([`settings::STATE_DIRECTORY`] on a real machine). There is one daemon
/// at a time on a machine, whatever their `state`.
///
/// # Errors
/// [`DaemonError`]. What was changed by then has been put back.
pub fn run(config_path: Option<&Path>, state: &Path) -> Result<(), DaemonError> {
    // A `/proc` that shows other processes than ours is of no use.
    process::list(Path::new("/proc"))?;
    // First of all: whatever else fails, also the configuration, what a crash left behind is put back.
    // Where there is no state there is nothing to put back, and nothing is made for a configuration that cannot be used.
    let opened = state.exists().then(|| put_back_and_open(state));
    let config = read_config(config_path).inspect_err(|_| {
        if let Some(Err(error)) = &opened {
            warn!("what an earlier run left changed could not be put back: {error}");
        }
    })?;
    let (locks, settings, repairs) = opened.unwrap_or_else(|| put_back_and_open(state))?;
    check_essentials()?;
    if let Err(error) = &locks.machine {
        warn!("a daemon with another --state would not be noticed: {error}");
    }
    let signals = Signals::install().map_err(DaemonError::Wakeup)?;
    let mut daemon = Daemon::new(config, config_path, state, settings)?;
    for repair in &repairs {
        daemon.reporter.ledger.record(entry(What::Setting, "repaired", &repair.to_string()));
    }
    daemon.run_to_its_end(|daemon| {
        daemon.begin();
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        daemon.serve(&signals)
    })
}

/// The locks and the gate to the kernel's settings, once what an earlier run left is put back; what that was.
fn put_back_and_open(state: &Path) -> Result<(Locks, Settings, Repairs), Error> {
    let locks = Locks::take(state)?;
    let (settings, mut repairs) = Settings::open(state, settings::Mode::Apply)?;
    repairs.extend(gigantic::put_back(&pool_record()));
    for repair in &repairs {
        warn!("an earlier run did not end well: {repair}");
    }
    Ok((locks, settings, repairs))
}

/// The directory of the record of the machine's pool of gigantic pages, which has one wherever our state is.
fn pool_record() -> PathBuf {
    Path::new(settings::STATE_DIRECTORY).join(settings::RUN)
}

/// The locks that keep other daemons away.
struct Locks {
    /// That of the whole machine, or why it could not be had.
    machine: Result<Lock, Error>,
    /// That of our state, if it is kept elsewhere.
    _own: Option<Lock>,
}

impl Locks {
    /// Takes the lock of the whole machine, and that of `state` if it is another directory.
    ///
    /// The machine is who sees the same [`settings::STATE_DIRECTORY`]: a container with a `/run` of
    /// its own mostly has its own processes too. Not a socket with a name: any user could take it
    /// first, and a unit with a network of its own would not see it. Without root the directory
    /// is out of reach, as are most processes that another daemon may manage.
    fn take(state: &Path) -> Result<Self, Error> {
        let common = Path::new(settings::STATE_DIRECTORY);
        let machine = Lock::of_machine()?;
        let is_common =
            state.canonicalize().is_ok_and(|s| common.canonicalize().is_ok_and(|c| s == c));
        let own = if machine.is_ok() && is_common { None } else { Some(Lock::take(state)?) };
        Ok(Self { machine, _own: own })
    }
}

/// What cannot be told now (no huge page was free to try it on) may work later, and every pass is
/// verified; only a plain no is final.
fn check_essentials() -> Result<(), DaemonError> {
    let probe::Missing { no, unclear } = probe::missing_essentials();
    for finding in &unclear {
        warn!("could not tell whether we can {}: {}", finding.ability.purpose(), finding.why);
    }
    if no.is_empty() { Ok(()) } else { Err(DaemonError::NotPossible(no)) }
}

fn read_config(path: Option<&Path>) -> Result<Config, ConfigError> {
    path.map_or_else(|| Ok(Config::default()), config::read)
}

struct Daemon {
    config: Arc<Config>,
    config_path: Option<PathBuf>,
    state: PathBuf,
    settings: Settings,
    trigger: Option<Trigger>,
    watches: Vec<Watch>,
    limits: Limits,
    registry: Arc<Registry>,
    reclaimer: Reclaimer,
    supply: Supply,
    compaction: Compaction,
    /// Ranges that were huge, from an earlier run, until the promoter has them.
    remembered: Promoted,
    promoter: Option<Promoter>,
    restarts: Restarts,
    server: Option<Server>,
    reporter: Reporter,
    /// When used memory is looked at next.
    next_look: Instant,
    /// The watches that are to be looked at, by their place among all.
    waiting: VecDeque<usize>,
    /// Huge pages that may be partly used are not looked for before this time.
    next_idle: Instant,
    /// Processes are not looked for before this time where nobody promotes.
    next_find: Instant,
    saved: Instant,
    /// The time at which the status was written last.
    told: Instant,
}

impl Daemon {
    fn new(
        config: Config,
        config_path: Option<&Path>,
        state: &Path,
        settings: Settings,
    ) -> Result<Self, DaemonError> {
        let path = settings.root().join("proc/pressure/memory");
        let trigger = Trigger::arm(&path, PRESSURE_STALL, PRESSURE_WINDOW)
            .inspect_err(|error| info!("memory pressure cannot wake us, the timer will: {error}"))
            .ok();
        let saved = Saved::read(state);
        let mut watches = watch::all(&config);
        for watch in watches.iter_mut().filter(|watch| saved.above.contains(&watch.name())) {
            watch.stand_above();
        }
        let reporter = Reporter::new(Arc::new(Ledger::open(state)));
        let registry = Arc::new(Registry::new(config.processes.clone(), registry::WORTH_MANAGING));
        let policy = (config.policy.build)(config.emd);
        let (its, cooling) = (Arc::clone(&registry), saved.cooling());
        let next_look = Instant::now() + config.interval;
        let reclaimer = Reclaimer::new(its, reporter.clone(), policy, cooling);
        let supply = Supply::new(reporter.clone(), pool_record());
        Ok(Self {
            watches,
            limits: Limits::new(),
            config: Arc::new(config),
            config_path: config_path.map(Path::to_owned),
            state: state.to_owned(),
            settings,
            trigger,
            registry,
            reclaimer: reclaimer.map_err(DaemonError::Wakeup)?,
            supply: supply.map_err(DaemonError::Wakeup)?,
            compaction: Compaction::default(),
            remembered: saved.remembered(),
            promoter: None,
            restarts: Restarts::default(),
            server: None,
            reporter,
            next_look,
            waiting: VecDeque::new(),
            next_idle: Instant::now(),
            next_find: Instant::now(),
            saved: Instant::now(),
            told: Instant::now(),
        })
    }

    /// Holds settings, starts what runs beside.
    fn begin(&mut self) {
        let ledger = Arc::clone(&self.reporter.ledger);
        ledger.record(entry(
            What::Started,
            "start",
            concat!("superpage ", env!("CARGO_PKG_VERSION")),
        ));
        self.configure_reclaimer();
        self.hold();
        self.keep_gigantic();
        self.promote();
        self.listen();
    }

    /// Has the pool of gigantic pages changed where the configuration and free memory ask for it.
    fn keep_gigantic(&mut self) {
        let marks = self.config.machine.unwrap_or_default();
        match free_memory::usage_of_machine(Path::new("/proc")) {
            Ok(usage) => self.supply.look(self.config.gigantic, marks, usage),
            Err(error) => warn!("the pool of gigantic pages is left as it is: {error}"),
        }
    }

    /// Has passes made as the configuration wants them.
    fn configure_reclaimer(&mut self) {
        let config = &self.config;
        let policy = (config.policy.build)(config.emd);
        self.reclaimer.configure(policy, clock::now(), nanos(config.cool_down));
    }

    /// Holds the kernel's settings as the configuration wants them.
    fn hold(&mut self) {
        for change in hold::settings(&mut self.settings, &self.config) {
            info!("{change}, until we leave");
            self.reporter.ledger.record(entry(What::Setting, "held", &change.to_string()));
        }
        self.see_to_first_touches();
    }

    /// Has first touches give huge pages while the machine's memory is free, where the configuration wants that.
    fn see_to_first_touches(&mut self) {
        if self.config.first_touch != FirstTouch::Generous {
            return;
        }
        let changed = free_memory::usage_of_machine(Path::new("/proc"))
            .and_then(|usage| hold::first_touch(&mut self.settings, &self.config, usage));
        match changed {
            Ok(changes) => {
                for change in changes {
                    info!("{change}, as much memory is in use");
                    self.reporter.ledger.record(entry(What::Setting, "held", &change.to_string()));
                }
            }
            Err(error) => warn!("first touches give what they gave: {error}"),
        }
    }

    /// The time until used memory is to be looked at again: less where first touches could fill it up to the low watermark
    /// before.
    fn until_next_look(&self) -> Duration {
        let interval = self.config.interval;
        if self.config.first_touch != FirstTouch::Generous {
            return interval;
        }
        let Ok(usage) = free_memory::usage_of_machine(Path::new("/proc")) else { return interval };
        let low = self.config.machine.unwrap_or_default().low().of(usage.total);
        let left = low.saturating_sub(usage.used).0 as f64 / FASTEST.0 as f64;
        interval.min(Duration::from_secs_f64(left).max(SOONEST))
    }

    /// Has promotions made as the configuration wants them.
    fn promote(&mut self) {
        if !self.promotes() {
            return self.end_promoter();
        }
        let promotion = &self.config.promotion;
        let setup = Setup {
            promotion: promotion.clone(),
            marks: self.config.machine.unwrap_or(Watermarks::NEVER),
            cgroups: self.config.cgroups.clone(),
            limited: self.config.limited.marks,
            worth: self.config.worth(),
        };
        match &self.promoter {
            Some(promoter) => promoter.configure(setup),
            None => {
                let remembered = std::mem::take(&mut self.remembered);
                let (registry, ledger) =
                    (Arc::clone(&self.registry), Arc::clone(&self.reporter.ledger));
                let started = Promoter::start(setup, registry, ledger, remembered);
                self.promoter =
                    started.inspect_err(|error| error!("nothing is promoted: {error}")).ok();
            }
        }
    }

    /// Whether there are promotions to be made.
    fn promotes(&self) -> bool {
        let mut policies = self.config.promotion.policies();
        policies.any(|policy| policy != promote::policy::Promotion::Off)
    }

    /// Starts the promoter again if it has ended by itself, or could not be started.
    fn see_to_promoter(&mut self) -> Result<(), DaemonError> {
        if !self.promotes() || self.promoter.as_ref().is_some_and(Promoter::is_running) {
            return Ok(());
        }
        if self.restarts.one_more(Instant::now()) == Verdict::TooMany {
            return Err(DaemonError::PromoterEnds);
        }
        let words = "the promoter ended by itself, and is started again";
        error!("{words}");
        self.reporter.ledger.record(entry(What::Restarted, "promoter", words));
        self.end_promoter();
        self.promote();
        Ok(())
    }

    /// Serves the metrics where the configuration wants them.
    fn listen(&mut self) {
        let wanted = self.config.metrics;
        if self.server.as_ref().map(Server::address) == wanted {
            return;
        }
        self.server = None;
        let Some(address) = wanted else { return };
        match metrics::serve(Arc::clone(self.reporter.ledger.metrics()), address) {
            Ok(server) => {
                info!("metrics at http://{}/metrics", server.address());
                self.server = Some(server);
            }
            Err(error) => error!("metrics cannot be served at {address}: {error}"),
        }
    }

    fn serve(&mut self, signals: &Signals) -> Result<(), DaemonError> {
        info!(
            policy = self.config.policy.name,
            watches = self.watches.len(),
            promotion = %self.config.promotion.policy,
            "watching memory"
        );
        self.tell();
        loop {
            // Only the service manager that asks for it hears of it.
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
            let woken = self.wait(signals);
            signals.drain();
            if signals.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if signals.reload.swap(false, Ordering::Relaxed) {
                self.reload();
            }
            self.see_to_promoter()?;
            if let Some(ended) = self.reclaimer.ended(&self.config) {
                self.pass_ended(ended);
            }
            if self.supply.has_ended() {
                self.keep_gigantic();
            }
            self.look_at_limits(woken);
            if woken.is_pressed || Instant::now() >= self.next_look {
                self.next_look = Instant::now() + self.until_next_look();
                self.see_to_first_touches();
                self.look_around();
                self.reclaim_idle();
                self.compact();
            } else {
                if self.compaction.is_running() {
                    self.compact();
                }
                self.look_at_waiting();
            }
            self.find_processes();
            if self.told.elapsed() >= WHILE_RUNNING {
                self.tell();
            }
        }
    }

    /// Says how things stand, and keeps what would be missed.
    fn tell(&mut self) {
        self.told = Instant::now();
        let counts = self.reclaimer.counts();
        self.reporter.status(&self.watches, &self.registry, self.promoter.as_ref(), counts);
        if self.saved.elapsed() >= SAVE {
            self.save();
        }
    }

    fn save(&mut self) {
        self.saved = Instant::now();
        let above = self.watches.iter().filter(|watch| watch.is_above()).map(Watch::name);
        let remembered = match &self.promoter {
            Some(promoter) => promoter.promoted(),
            None => self.remembered.clone(),
        };
        let saved = Saved::of(above.collect(), self.reclaimer.cooling(), &remembered);
        if let Err(error) = saved.write(&self.state) {
            warn!("a restart will not know what was done before: {error}");
        }
    }

    /// Sleeps until the interval is over, a cgroup is to be looked at, memory is short, a pass has ended, or a signal came.
    fn wait(&self, signals: &Signals) -> Woken {
        let next = if self.config.limited.is_watched {
            self.next_look.min(self.limits.next())
        } else {
            self.next_look
        };
        let until_look = next.saturating_duration_since(Instant::now());
        let is_busy = self.reclaimer.is_running() || self.supply.is_changing();
        let most = match is_busy {
            _ if self.compaction.is_running() => compact::LOOK,
            true => WHILE_RUNNING,
            false => LONGEST_SLEEP,
        };
        let timeout = rustix::time::Timespec::try_from(until_look.min(most)).ok();
        let mut fds = vec![
            PollFd::new(&signals.wake, PollFlags::IN),
            PollFd::new(self.reclaimer.wakeup(), PollFlags::IN),
            PollFd::new(self.supply.wakeup(), PollFlags::IN),
        ];
        let own = fds.len();
        fds.extend(self.trigger.as_ref().map(|trigger| PollFd::new(trigger, PollFlags::PRI)));
        let others = fds.len();
        fds.extend(self.limits.alarms());
        // A signal may end the wait early; the flags say what to do.
        let _ = poll(&mut fds, timeout.as_ref());
        let is_any =
            |fds: &[PollFd<'_>], flags| fds.iter().any(|fd| fd.revents().intersects(flags));
        Woken {
            is_pressed: is_any(&fds[own..others], PollFlags::PRI),
            is_alarmed: is_any(&fds[others..], PollFlags::IN | PollFlags::PRI),
        }
    }

    fn reload(&mut self) {
        match read_config(self.config_path.as_deref()) {
            Ok(config) => {
                self.end_pass();
                self.end_compaction();
                let is_held = hold::wanted(&self.config) == hold::wanted(&config);
                // The kernel may not find again what is given back.
                let (now, then) = (self.config.gigantic, config.gigantic);
                if (then.free < now.free || then.most < now.most)
                    && let Err(error) = self.supply.end()
                {
                    warn!("{error}");
                }
                self.registry.configure(config.processes.clone());
                self.config = Arc::new(config);
                self.set_watches();
                // For a moment others would see what we hold them back from.
                if !is_held && let Err(error) = self.put_back() {
                    warn!("{error}");
                }
                self.configure_reclaimer();
                self.next_look = Instant::now();
                self.next_idle = Instant::now();
                self.hold();
                self.keep_gigantic();
                self.promote();
                self.listen();
                self.reporter.ledger.record(entry(What::Reloaded, "reload", "configuration read"));
                info!("configuration read again");
            }
            Err(error) => error!("{error}; the configuration of before stays in force"),
        }
    }

    /// Has the used memory of every watch looked at, and freed what its watermarks ask for, one after the
    /// other.
    fn look_around(&mut self) {
        for (index, watch) in self.watches.iter().enumerate() {
            // Memory that was found is looked at by `look_at_limits`, until it is above its high watermark.
            if !self.waiting.contains(&index) && (!watch.is_found() || watch.is_above()) {
                self.waiting.push_back(index);
            }
        }
        if Levels::now(&self.watches).is_any_high() {
            self.reclaimer.make_way();
        }
        self.keep_gigantic();
        self.look_at_waiting();
    }

    /// Watches what the configuration names, and the cgroups with a limit and the nodes that were found.
    fn set_watches(&mut self) {
        let mut watches = watch::all(&self.config);
        watches.extend(self.limits.watches());
        let earlier = std::mem::replace(&mut self.watches, watches);
        self.watches.iter_mut().for_each(|watch| watch.resume(&earlier));
        self.waiting.clear();
    }

    /// Has cgroups with a limit and nodes watched as they come and go, and those first that are nearly full.
    fn look_at_limits(&mut self, woken: Woken) {
        if woken.is_alarmed {
            self.limits.alarmed();
        }
        if self.limits.search(&self.registry, self.config.limited, &self.config.cgroups) {
            self.set_watches();
        }
        let mut nodes = Nodes::now();
        for subject in self.limits.endangered(&mut nodes) {
            let is_it = |watch: &Watch| watch.is_found() && watch.is_of(&subject);
            let Some(index) = self.watches.iter().position(is_it) else { continue };
            // A pass that would find nothing ends no other.
            let order = self.watches[index].step(&mut nodes, clock::now());
            let wants_pass = matches!(order, Ok(Some(Order::Free { .. })));
            if wants_pass && !self.waiting.contains(&index) {
                self.waiting.push_front(index);
                self.reclaimer.make_way_for_limit();
            }
        }
    }

    /// Has processes looked for whose cgroups and nodes are to be watched; otherwise the promoter does that.
    fn find_processes(&mut self) {
        let is_wanted = self.config.limited.is_watched && self.promoter.is_none();
        if is_wanted && Instant::now() >= self.next_find && self.reclaimer.is_ready() {
            self.next_find = Instant::now() + FIND;
            self.reclaimer.find(With { config: &self.config, watches: &self.watches });
        }
    }

    /// Looks at the watches whose turn it is, until a pass begins. Free gigantic pages are given back before.
    fn look_at_waiting(&mut self) {
        let mut nodes = Nodes::now();
        while !self.supply.is_giving_back() && self.reclaimer.is_ready() {
            let Some(index) = self.waiting.pop_front() else { return };
            let Some(watch) = self.watches.get_mut(index) else { continue };
            match watch.step(&mut nodes, clock::now()) {
                Ok(Some(Order::Free { need, share, limit })) => {
                    let watch = watch.clone();
                    self.reporter.above_watermark(&watch.name(), share, limit, need);
                    let with = With { config: &self.config, watches: &self.watches };
                    self.reclaimer.free(watch, need, with);
                }
                Ok(Some(Order::Rest { share, limit })) => {
                    debug!(watch = %watch.name(), used = %share, limit = %limit, "resting");
                }
                Ok(None) => debug!(watch = %watch.name(), "backing off"),
                Err(error) => warn!(watch = %watch.name(), "cannot tell the used memory: {error}"),
            }
        }
    }

    /// Has huge pages split that stay partly used, of processes whose policy wants that now.
    fn reclaim_idle(&mut self) {
        if Instant::now() < self.next_idle || !self.reclaimer.is_ready() {
            return;
        }
        let levels = Levels::now(&self.watches);
        let mut policies = self.config.promotion.policies();
        // Memory above a watermark comes first.
        if levels.is_any_high() || !policies.any(|policy| levels.allow_some_of(policy)) {
            return;
        }
        let status = self.promoter.as_ref().map(Promoter::status).unwrap_or_default();
        let with = With { config: &self.config, watches: &self.watches };
        self.reclaimer.reclaim_idle(status.reclaim_from, with);
    }

    /// Takes note of a pass that has ended.
    fn pass_ended(&mut self, ended: Ended) {
        match ended {
            Ended::Free { watch, done } => {
                let (now, back_off) = (clock::now(), self.config.back_off);
                let mut watches = self.watches.iter_mut();
                let Some(watch) = watches.find(|other| other.name() == watch) else { return };
                let failed = End::Done(DoneCause::NothingLeft);
                match done {
                    Some(Ok((account, end))) => {
                        let wait = watch.after_pass(end, account.total().spared, now, back_off);
                        self.reporter.pass_done(&watch.name(), &account, end, wait);
                    }
                    Some(Err(error)) => {
                        watch.after_pass(failed, HugePages::default(), now, back_off);
                        error!(watch = %watch.name(), "the pass failed: {error}");
                    }
                    // The next one goes on without the process that it waited for.
                    None => {
                        let _ = watch.after_pass(End::Stopped, HugePages::default(), now, back_off);
                    }
                }
            }
            Ended::Idle { cost, done } => {
                let wait = if done.is_some() { (cost * DEAREST).min(LATEST) } else { LATEST };
                self.next_idle = Instant::now() + wait;
                if let Some(Err(error)) = done {
                    error!("idle huge pages cannot be reclaimed: {error}");
                }
            }
            Ended::Found { cost, done } => {
                let wait = if done.is_some() { cost * OBSERVE_SHARE } else { LATEST };
                self.next_find = Instant::now() + wait.clamp(FIND, LATEST);
                if let Some(Err(error)) = done {
                    error!("processes cannot be looked for: {error}");
                }
            }
        }
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos::from_secs_f64(time.as_secs_f64())
}

/// The events that ended a wait, besides the time and signals.
#[derive(Clone, Copy, Debug)]
struct Woken {
    /// Memory is short.
    is_pressed: bool,
    /// A cgroup has come near its limit.
    is_alarmed: bool,
}

/// Signals as flags, and a socket that becomes readable when one came.
struct Signals {
    wake: UnixStream,
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    fn install() -> std::io::Result<Self> {
        let (wake, end) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let signals = Self { wake, stop: Arc::default(), reload: Arc::default() };
        let flags = [(SIGTERM, &signals.stop), (SIGINT, &signals.stop), (SIGHUP, &signals.reload)];
        for (signal, flag) in flags {
            signal_hook::flag::register(signal, Arc::clone(flag))?;
            signal_hook::low_level::pipe::register(signal, end.try_clone()?)?;
        }
        Ok(signals)
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.wake).read(&mut bytes), Ok(count) if count > 0) {}
    }
}
