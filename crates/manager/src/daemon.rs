//! The daemon: promotes while memory is free, and reclaims bloat when memory passes a watermark.
//!
//! One at a time on a machine. It sleeps until its interval is over, memory pressure wakes it, or
//! a signal comes; while memory lies below the watermarks it looks at the used memory, and at huge
//! pages that stay partly used. Promoting goes on beside it ([`crate::promote`]). SIGHUP reads the
//! configuration again, SIGTERM and SIGINT have it leave (`leave`).

mod hold;
mod idle;
mod leave;
mod saved;
mod tell;
mod watch;

use crate::account::Account;
use crate::config::{self, Config, ConfigError};
use crate::cooldown::CoolDown;
use crate::history::What;
use crate::ledger::{Ledger, entry};
use crate::metrics::{self, Server};
use crate::pass::{End, Event, Flow, Mode, Options, Pass, Permission};
use crate::promote::{self, Promoted, Promoter, Setup};
use crate::reclaim::Looks;
use crate::select::{self, Describer};
use crate::target::Target;
use leave::{Restarts, Verdict};
use rustix::event::{PollFd, PollFlags, poll};
use saved::Saved;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cell::Cell;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_kernel::Error;
use superpage_kernel::pressure::Trigger;
use superpage_kernel::probe::{self, Answer, Finding};
use superpage_kernel::settings::{self, Lock, Settings};
use superpage_policy::debloat::{Debloat, DoneCause};
use superpage_policy::watermark::{Order, Watermarks};
use superpage_units::{BasePages, HugePages, Nanos};
use tell::Teller;
use tracing::{debug, error, info, warn};
use watch::{Level, Watch};

/// Tasks stalling this long for memory within [`PRESSURE_WINDOW`] wake the daemon. Chosen, not
/// measured: long enough that ordinary page cache turnover does not.
const PRESSURE_STALL: Nanos = Nanos(100_000_000);
/// A multiple of two seconds needs no rights beyond reading the file.
const PRESSURE_WINDOW: Nanos = Nanos(2_000_000_000);

/// How often what would be missed at a restart is kept.
const SAVE: Duration = Duration::from_secs(30);

/// How often used memory is looked at again during a pass.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Why the daemon did not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Another one runs.
    #[error("another superpage holds this machine{}; stop it first", number(*pid))]
    Busy {
        /// Its process number, if it is known.
        pid: Option<u32>,
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
    /// Signals could not be set up.
    #[error("signals could not be set up: {0}")]
    Signals(std::io::Error),
    /// The promoter ended by itself and was started again, too often.
    #[error(
        "the promoter ended by itself again and again; the settings of the kernel are put back"
    )]
    PromoterEnds,
    /// The daemon's own thread panicked; the panic said where.
    #[error("the daemon made a mistake (see above); the settings of the kernel are put back")]
    Panicked,
}

fn number(pid: Option<u32>) -> String {
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
    let config = read_config(config_path)?;
    let locks = Locks::take(state)?;
    // First of all: whatever else fails, what a crash left behind is put back.
    let (settings, repairs) = Settings::open(state, settings::Mode::Apply)?;
    for repair in &repairs {
        warn!("an earlier run did not end well: {repair}");
    }
    check_essentials()?;
    if let Err(error) = &locks.machine {
        warn!("a daemon with another --state would not be noticed: {error}");
    }
    let signals = Signals::install().map_err(DaemonError::Signals)?;
    hold::descriptors();
    let mut daemon = Daemon::new(config, config_path, state, settings);
    for repair in &repairs {
        daemon.teller.ledger.record(entry(What::Setting, "repaired", &repair.to_string()));
    }
    daemon.run_to_its_end(|daemon| {
        daemon.begin();
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        daemon.serve(&signals)
    })
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
    let (no, unclear): (Vec<Finding>, Vec<Finding>) =
        probe::missing_essentials().into_iter().partition(|found| found.answer == Answer::No);
    for finding in &unclear {
        warn!("could not tell whether we can {}: {}", finding.ability.purpose(), finding.why);
    }
    if no.is_empty() { Ok(()) } else { Err(DaemonError::NotPossible(no)) }
}

fn read_config(path: Option<&Path>) -> Result<Config, ConfigError> {
    path.map_or_else(|| Ok(Config::default()), config::read)
}

struct Daemon {
    config: Config,
    config_path: Option<PathBuf>,
    state: PathBuf,
    settings: Settings,
    trigger: Option<Trigger>,
    watches: Vec<Watch>,
    policy: Box<dyn Debloat>,
    cooling: CoolDown,
    /// When huge pages that may be partly used are looked at.
    looks: Looks,
    describer: Describer,
    /// Regions that were huge, from an earlier run, until the promoter has them.
    remembered: Promoted,
    promoter: Option<Promoter>,
    restarts: Restarts,
    server: Option<Server>,
    teller: Teller,
    /// Huge pages that may be partly used are not looked for before this time.
    next_idle: Instant,
    saved: Instant,
    passes: u64,
}

impl Daemon {
    fn new(config: Config, config_path: Option<&Path>, state: &Path, settings: Settings) -> Self {
        let path = settings.root().join("proc/pressure/memory");
        let trigger = Trigger::arm(&path, PRESSURE_STALL, PRESSURE_WINDOW)
            .inspect_err(|error| info!("memory pressure cannot wake us, the timer will: {error}"))
            .ok();
        let saved = Saved::read(state);
        let mut watches = watch::all(&config);
        for watch in watches.iter_mut().filter(|watch| saved.above.contains(&watch.name())) {
            watch.stand_above();
        }
        Self {
            watches,
            policy: config.policy.build(config.emd),
            config,
            config_path: config_path.map(Path::to_owned),
            state: state.to_owned(),
            settings,
            trigger,
            cooling: saved.cooling(),
            looks: Looks::new(),
            describer: Describer::new(),
            remembered: saved.remembered(),
            promoter: None,
            restarts: Restarts::default(),
            server: None,
            teller: Teller::new(Arc::new(Ledger::open(state))),
            next_idle: Instant::now(),
            saved: Instant::now(),
            passes: 0,
        }
    }

    /// Holds settings, starts what runs beside.
    fn begin(&mut self) {
        let ledger = Arc::clone(&self.teller.ledger);
        ledger.record(entry(
            What::Started,
            "start",
            concat!("superpage ", env!("CARGO_PKG_VERSION")),
        ));
        self.shorten_cool_downs();
        self.hold();
        self.promote();
        self.listen();
    }

    /// A cool-down that began under another configuration lasts no longer than one that begins now.
    fn shorten_cool_downs(&mut self) {
        self.cooling.cap(promote::now(), nanos(self.config.cool_down));
    }

    /// Holds the kernel's settings as the configuration wants them.
    fn hold(&mut self) {
        for change in hold::settings(&mut self.settings, &self.config) {
            info!("{change}, until we leave");
            self.teller.ledger.record(entry(What::Setting, "held", &change.to_string()));
        }
    }

    /// Has promotions made as the configuration wants them.
    fn promote(&mut self) {
        if !self.promotes() {
            return self.end_promoter();
        }
        let promotion = &self.config.promotion;
        let setup = Setup {
            promotion: promotion.clone(),
            processes: self.config.processes.clone(),
            marks: self.config.machine.unwrap_or(Watermarks::NEVER),
            cgroups: self.config.cgroups.clone(),
            worth: self.config.worth(),
        };
        match &self.promoter {
            Some(promoter) => promoter.configure(setup),
            None => {
                let remembered = std::mem::take(&mut self.remembered);
                let started = Promoter::start(setup, Arc::clone(&self.teller.ledger), remembered);
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
        self.teller.ledger.record(entry(What::Restarted, "promoter", words));
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
        match metrics::serve(Arc::clone(self.teller.ledger.metrics()), address) {
            Ok(server) => {
                info!("metrics at http://{}/metrics", server.address());
                self.server = Some(server);
            }
            Err(error) => error!("metrics cannot be served at {address}: {error}"),
        }
    }

    fn serve(&mut self, signals: &Signals) -> Result<(), DaemonError> {
        info!(
            policy = self.config.policy.name(),
            watches = self.watches.len(),
            promotion = %self.config.promotion.policy,
            "watching memory"
        );
        self.tell();
        loop {
            self.wait(signals);
            signals.drain();
            if signals.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if signals.reload.swap(false, Ordering::Relaxed) {
                self.reload();
            }
            self.see_to_promoter()?;
            self.look_around(signals);
            self.reclaim_idle(signals);
            self.tell();
        }
    }

    /// Says how things stand, and keeps what would be missed.
    fn tell(&mut self) {
        self.teller.tell(&self.watches, self.promoter.as_ref());
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
        let saved = Saved::of(above.collect(), &self.cooling, &remembered);
        if let Err(error) = saved.write(&self.state) {
            warn!("a restart will not know what was done before: {error}");
        }
    }

    /// Sleeps until the interval is over, memory is short, or a signal came.
    fn wait(&self, signals: &Signals) {
        let timeout = rustix::time::Timespec::try_from(self.config.interval).ok();
        let mut fds = vec![PollFd::new(&signals.wake, PollFlags::IN)];
        fds.extend(self.trigger.as_ref().map(|trigger| PollFd::new(trigger, PollFlags::PRI)));
        // A signal may end the wait early; the flags say what to do.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    fn reload(&mut self) {
        match read_config(self.config_path.as_deref()) {
            Ok(config) => {
                let is_held = hold::wanted(&self.config) == hold::wanted(&config);
                let earlier = std::mem::replace(&mut self.watches, watch::all(&config));
                self.watches.iter_mut().for_each(|watch| watch.resume(&earlier));
                self.policy = config.policy.build(config.emd);
                self.config = config;
                // For a moment others would see what we hold them back from.
                if !is_held && let Err(error) = self.put_back() {
                    warn!("{error}");
                }
                self.shorten_cool_downs();
                // What was found in use by other rules may not be by these.
                self.looks = Looks::new();
                self.next_idle = Instant::now();
                self.hold();
                self.promote();
                self.listen();
                self.teller.ledger.record(entry(What::Reloaded, "reload", "configuration read"));
                info!("configuration read again");
            }
            Err(error) => error!("{error}; the configuration of before stays in force"),
        }
    }

    /// Looks at the used memory of every watch and frees what its watermarks ask for.
    fn look_around(&mut self, signals: &Signals) {
        let now = promote::now();
        self.cooling.expire(now);
        for index in 0..self.watches.len() {
            let watch = &mut self.watches[index];
            match watch.step(now) {
                Ok(Some(Order::Free { need, share, limit })) => {
                    let name = watch.name();
                    self.teller.above_watermark(&name, share, limit, need);
                    self.free(index, need, signals);
                }
                Ok(Some(Order::Rest { share, limit })) => {
                    debug!(
                        watch = %watch.name(),
                        used = %tell::percent(share),
                        limit = %tell::percent(limit),
                        "resting"
                    );
                }
                Ok(None) => debug!(watch = %watch.name(), "backing off"),
                Err(error) => warn!(watch = %watch.name(), "cannot tell the used memory: {error}"),
            }
        }
    }

    fn free(&mut self, index: usize, need: BasePages, signals: &Signals) {
        let outcome = self.pass(index, need, signals);
        let now = promote::now();
        let Some(watch) = self.watches.get_mut(index) else { return };
        match outcome {
            Ok((account, end)) => {
                let spared = account.total().spared;
                let wait = watch.after_pass(end, spared, now, self.config.back_off);
                self.teller.pass_done(&watch.name(), &account, end, wait);
            }
            Err(error) => {
                let end = End::Done(DoneCause::NothingLeft);
                watch.after_pass(end, HugePages::default(), now, self.config.back_off);
                error!(watch = %watch.name(), "the pass failed: {error}");
            }
        }
    }

    fn pass(
        &mut self,
        index: usize,
        need: BasePages,
        signals: &Signals,
    ) -> Result<(Account, End), Error> {
        let now = promote::now();
        let selection = self.watches[index].selection(&self.config.processes);
        let may_change = selection.may_change();
        let found = select::search(&selection)?;
        let options = self.options();
        let mut pass = Pass::new(found.targets, need, options, &self.cooling, now)?;
        let memory = &self.watches[index];
        let level = Cell::new(memory.level());
        // A pass can take long; a process may be in another group by now, or another user's.
        let mut guard = |target: &Target| match level.get() {
            _ if may_change && !self.describer.still_admits(target, &selection) => {
                Permission::Nothing
            }
            Some(Level::High) => Permission::All,
            _ => Permission::NotAskedFor,
        };
        let mut looked = Instant::now();
        let name = self.config.policy.name();
        let mut watch = |event: Event<'_>| {
            self.teller.event(&event, name, None);
            // A pass can take long; whoever used the memory may have left meanwhile.
            let is_time = looked.elapsed() >= LOOK_AGAIN;
            if is_time {
                looked = Instant::now();
                self.teller.tell(&self.watches, self.promoter.as_ref());
            }
            if is_time || matches!(event, Event::Broke { .. }) {
                level.set(memory.level());
            }
            let is_relieved = level.get() == Some(Level::Low);
            if is_relieved || signals.any() { Flow::Stop } else { Flow::Continue }
        };
        let policy = self.policy.as_mut();
        let end = pass.run_guarded(policy, &mut self.cooling, now, &mut guard, &mut watch)?;
        Ok((pass.account().clone(), end))
    }

    /// How a pass goes about it.
    fn options(&mut self) -> Options {
        self.passes += 1;
        Options {
            mode: Mode::Act,
            budget: self.config.budget,
            seed: self.passes << 32,
            worth: self.config.worth(),
            cool_down: nanos(self.config.cool_down),
        }
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos::from_secs_f64(time.as_secs_f64())
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

    /// Whether a signal waits to be dealt with.
    fn any(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.reload.load(Ordering::Relaxed)
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.wake).read(&mut bytes), Ok(count) if count > 0) {}
    }
}
