//! The daemon: watches used memory and takes bloat back when it passes a watermark.
//!
//! One at a time on a machine. It sleeps until its interval is over, memory pressure wakes it, or
//! a signal comes; while memory lies below the watermarks it looks at nothing but the used memory.
//! SIGHUP reads the configuration again, SIGTERM and SIGINT put back every setting and leave.

mod watch;

use crate::account::Account;
use crate::config::{self, Config, ConfigError};
use crate::cooldown::CoolDown;
use crate::pass::{End, Event, Flow, Mode, Options, Pass};
use crate::select;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_kernel::Error;
use superpage_kernel::pressure::Trigger;
use superpage_kernel::probe::{self, Answer, Finding};
use superpage_kernel::settings::{self, Lock, Outcome, Settings};
use superpage_kernel::thp::{self, Thp};
use superpage_policy::debloat::{Debloat, DoneCause};
use superpage_policy::units::{BasePages, Bytes, Nanos};
use superpage_policy::watermark::Order;
use tracing::{debug, error, info, warn};
use watch::Watch;

/// Tasks stalling this long for memory within [`PRESSURE_WINDOW`] wake the daemon. Chosen, not
/// measured: long enough that ordinary page cache turnover does not.
const PRESSURE_STALL: Nanos = Nanos(100_000_000);
/// A multiple of two seconds needs no rights beyond reading the file.
const PRESSURE_WINDOW: Nanos = Nanos(2_000_000_000);

/// How often used memory is looked at again during a pass.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Why the daemon did not start or had to stop.
#[derive(Debug)]
pub enum DaemonError {
    /// Another one runs.
    Busy {
        /// Its process number, if it is known.
        pid: Option<u32>,
    },
    /// This kernel or these rights lack what it cannot do without.
    NotPossible(Vec<Finding>),
    /// The configuration cannot be used.
    Config(ConfigError),
    /// The kernel refused something.
    Kernel(Error),
    /// Signals could not be set up.
    Signals(std::io::Error),
}

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { pid: Some(pid) } => {
                write!(f, "another superpage holds this machine (process {pid}); stop it first")
            }
            Self::Busy { pid: None } => {
                f.write_str("another superpage holds this machine; stop it first")
            }
            Self::NotPossible(findings) => {
                f.write_str("this kernel or these rights do not allow it:")?;
                for finding in findings {
                    let advice = finding.advice.unwrap_or_default();
                    write!(f, " {} ({}). {advice}", finding.ability.purpose(), finding.why)?;
                }
                Ok(())
            }
            Self::Config(error) => error.fmt(f),
            Self::Kernel(error) => error.fmt(f),
            Self::Signals(error) => write!(f, "signals could not be set up: {error}"),
        }
    }
}

impl std::error::Error for DaemonError {}

impl From<Error> for DaemonError {
    fn from(error: Error) -> Self {
        match error {
            Error::Busy { pid } => Self::Busy { pid },
            other => Self::Kernel(other),
        }
    }
}

impl From<ConfigError> for DaemonError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// Runs the daemon until it is told to stop.
///
/// `config_path` is read now and on SIGHUP; without one the defaults hold. `state` is the
/// directory of its journal ([`settings::STATE_DIRECTORY`] on a real machine). There is one daemon
/// at a time on a machine, whatever their `state`.
///
/// # Errors
/// [`DaemonError`]. Nothing is changed then.
pub fn run(config_path: Option<&Path>, state: &Path) -> Result<(), DaemonError> {
    let config = read_config(config_path)?;
    let locks = Locks::take(state)?;
    // First of all: whatever else fails, what a crash left behind is put back.
    let (settings, repairs) = Settings::open(state, settings::Mode::Apply)?;
    for repair in repairs {
        warn!("an earlier run did not end well: {repair}");
    }
    check_essentials()?;
    if let Err(error) = &locks.machine {
        warn!("a daemon with another --state would not be noticed: {error}");
    }
    let signals = Signals::install().map_err(DaemonError::Signals)?;
    let mut daemon = Daemon::new(config, config_path, settings);
    daemon.hold_khugepaged();
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    daemon.serve(&signals);
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    daemon.leave().map_err(DaemonError::Kernel)
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
        let machine = match Lock::take(common) {
            Err(error @ (Error::Busy { .. } | Error::Refused { .. })) => return Err(error),
            other => other,
        };
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
    settings: Settings,
    trigger: Option<Trigger>,
    watches: Vec<Watch>,
    policy: Box<dyn Debloat>,
    cooling: CoolDown,
    started: Instant,
    passes: u64,
}

impl Daemon {
    fn new(config: Config, config_path: Option<&Path>, settings: Settings) -> Self {
        let path = settings.root().join("proc/pressure/memory");
        let trigger = Trigger::arm(&path, PRESSURE_STALL, PRESSURE_WINDOW)
            .inspect_err(|error| info!("memory pressure cannot wake us, the timer will: {error}"))
            .ok();
        Self {
            watches: watch::all(&config),
            policy: config.policy.build(config.emd),
            config,
            config_path: config_path.map(Path::to_owned),
            settings,
            trigger,
            cooling: CoolDown::new(),
            started: Instant::now(),
            passes: 0,
        }
    }

    fn now(&self) -> Nanos {
        Nanos::from_secs_f64(self.started.elapsed().as_secs_f64())
    }

    /// Holds `max_ptes_none` down, unless it is lower already or is to be left alone.
    fn hold_khugepaged(&mut self) {
        let knobs = Thp::under(&self.settings.root().join("sys"));
        let Some(wanted) = self.config.max_ptes_none else { return };
        let held = knobs.get(thp::MAX_PTES_NONE).and_then(|now| {
            if now <= wanted {
                return Ok(None);
            }
            knobs.set(&mut self.settings, thp::MAX_PTES_NONE, wanted).map(Some)
        });
        match held {
            Ok(Some(change)) => info!("{change}, until we leave"),
            Ok(None) => info!("max_ptes_none is low enough already"),
            Err(error) => warn!("khugepaged may rebuild what is freed: {error}"),
        }
    }

    fn serve(&mut self, signals: &Signals) {
        info!(policy = self.config.policy.name(), watches = self.watches.len(), "watching memory");
        loop {
            self.wait(signals);
            signals.drain();
            if signals.stop.load(Ordering::Relaxed) {
                return;
            }
            if signals.reload.swap(false, Ordering::Relaxed) {
                self.reload();
            }
            self.look_around(signals);
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
                let earlier = std::mem::replace(&mut self.watches, watch::all(&config));
                self.watches.iter_mut().for_each(|watch| watch.resume(&earlier));
                self.policy = config.policy.build(config.emd);
                self.config = config;
                if let Err(error) = self.put_back() {
                    warn!("{error}");
                }
                self.hold_khugepaged();
                info!("configuration read again");
            }
            Err(error) => error!("{error}; the configuration of before stays in force"),
        }
    }

    /// Looks at the used memory of every watch and frees what its watermarks ask for.
    fn look_around(&mut self, signals: &Signals) {
        let now = self.now();
        self.cooling.expire(now);
        for index in 0..self.watches.len() {
            let watch = &mut self.watches[index];
            match watch.step(now) {
                Ok(Some(Order::Free { need, share, limit })) => {
                    info!(
                        watch = %watch.name(),
                        used = format_args!("{:.1}%", share * 100.0),
                        low = format_args!("{:.1}%", limit * 100.0),
                        need = %need.bytes(),
                        "memory above its watermark"
                    );
                    self.free(index, need, signals);
                }
                Ok(Some(Order::Rest { share, limit })) => {
                    debug!(watch = %watch.name(), share, limit, "resting");
                }
                Ok(None) => debug!(watch = %watch.name(), "backing off"),
                Err(error) => warn!(watch = %watch.name(), "cannot tell the used memory: {error}"),
            }
        }
    }

    fn free(&mut self, index: usize, need: BasePages, signals: &Signals) {
        let outcome = self.pass(index, need, signals);
        let now = self.now();
        let Some(watch) = self.watches.get_mut(index) else { return };
        match outcome {
            Ok((account, end)) => {
                let wait = watch.after_pass(end, now, self.config.back_off);
                report(&watch.name(), &account, end, wait);
            }
            Err(error) => {
                watch.after_pass(End::Done(DoneCause::NothingLeft), now, self.config.back_off);
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
        self.passes += 1;
        let now = self.now();
        let selection = self.watches[index].selection(&self.config.processes);
        let found = select::search(&selection)?;
        let options = Options {
            mode: Mode::Act,
            budget: self.config.budget,
            seed: self.passes << 32,
            worth: self.config.worth(),
            cool_down: Nanos::from_secs_f64(self.config.cool_down.as_secs_f64()),
        };
        let mut pass = Pass::new(found.targets, need, options, &self.cooling, now)?;
        let memory = &self.watches[index];
        let mut looked = Instant::now();
        let mut watch = |event: Event<'_>| {
            log_event(&event);
            // A pass can take long; whoever used the memory may have left meanwhile.
            let relieved = looked.elapsed() >= LOOK_AGAIN && {
                looked = Instant::now();
                memory.is_relieved()
            };
            if relieved || signals.any() { Flow::Stop } else { Flow::Continue }
        };
        let end = pass.run(self.policy.as_mut(), &mut self.cooling, now, &mut watch)?;
        Ok((pass.account().clone(), end))
    }

    /// Puts everything back and goes; fails if something could not be put back.
    fn leave(&mut self) -> Result<(), Error> {
        let done = self.put_back();
        match &done {
            Ok(()) => info!("left"),
            Err(error) => error!("{error}; the next start will try again"),
        }
        done
    }

    fn put_back(&mut self) -> Result<(), Error> {
        let mut failed = None;
        for repair in self.settings.restore()? {
            match &repair.outcome {
                Outcome::Failed(error) => {
                    error!("{repair}");
                    failed = Some(error.clone());
                }
                _ => info!("{repair}"),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

fn log_event(event: &Event<'_>) {
    match event {
        Event::Looked { process, regions, cause } => debug!(
            pid = process.pid,
            command = process.command,
            regions = regions.0,
            cause = %cause,
            "looked"
        ),
        Event::Pausing => {}
        Event::Broke { process, broken, freed, cause } => info!(
            pid = process.pid,
            command = process.command,
            broken = broken.0,
            freed = %freed.bytes(),
            cause = %cause,
            "broke huge pages"
        ),
        Event::Lost { process, error } => {
            info!(pid = process.pid, command = process.command, "left out: {error}");
        }
    }
}

fn report(watch: &str, account: &Account, end: End, wait: Option<Duration>) {
    let total = account.total();
    let read: Bytes = account.read;
    info!(
        watch,
        end = ?end,
        processes = account.processes.len(),
        broken = total.broken.0,
        freed = %total.freed.bytes(),
        left_alone = total.left_alone.total().0,
        read = %read,
        cpu_ms = account.cpu.0 / 1_000_000,
        "pass done"
    );
    if !total.left_alone.total().is_zero() {
        let counts = total.left_alone;
        warn!(
            watch,
            shared = counts.shared.0,
            busy = counts.busy.0,
            refused = counts.refused.0,
            "huge pages that would not split; left alone for a while"
        );
    }
    if let Some(wait) = wait {
        info!(watch, wait = %humantime::format_duration(wait), "nothing left to free, waiting");
    }
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
