//! The real daemon, for an experiment: in a process of its own, with a configuration, a lock and a
//! record of its own. Also the configurations that experiments compare; what others should say is the
//! experiment's to know.

use super::support_regime::SUPERPAGE_POLICY;
use super::{Error, Result, Setting};
use crate::workload::clock::cpu_time;
use rustix::process::{Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use superpage_kernel::settings::{self, Lock, Settings};
use superpage_units::{Nanos, Pid};

/// A configuration that experiments compare with the defaults and with no daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Configuration {
    /// There is no daemon.
    NoDaemon,
    /// An empty file: the defaults.
    Default,
    /// First touches give huge pages while memory is free, the rest is the defaults.
    Generous,
    /// First touches give base pages, the rest is the defaults.
    BasePages,
    /// Quicksilver's Sync-64 by its name, the rest is the defaults.
    Quicksilver,
    /// The kernel's compaction is left alone, the rest is the defaults.
    NoCompaction,
}

impl Configuration {
    /// As in rows.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NoDaemon => "no daemon",
            Self::Default => "default",
            Self::Generous => "first_touch = generous",
            Self::BasePages => "first_touch = base-pages",
            Self::Quicksilver => SUPERPAGE_POLICY,
            Self::NoCompaction => "compaction = 0%",
        }
    }

    /// The text of a file by which the daemon sees the process `pid` only; `None` without a daemon.
    fn text(self, pid: Pid) -> Option<String> {
        let keys = match self {
            Self::NoDaemon => return None,
            Self::Default => String::new(),
            Self::Generous => "[thp]\nfirst_touch = \"generous\"\n".to_owned(),
            Self::BasePages => "[thp]\nfirst_touch = \"base-pages\"\n".to_owned(),
            Self::NoCompaction => "[budget]\ncompaction = \"0%\"\n".to_owned(),
            Self::Quicksilver => format!("[promotion]\npolicy = \"{SUPERPAGE_POLICY}\"\n"),
        };
        Some(format!("{keys}[processes.include]\npids = [{pid}]\n"))
    }

    /// Starts a daemon with it that sees the process `pid` only, if there is to be one.
    pub(super) fn start(self, setting: &Setting, pid: Pid) -> Result<Option<Daemon>> {
        self.text(pid).map(|text| Daemon::start(setting, &text)).transpose()
    }
}

/// A running daemon. Dropping it ends it, and what it changed is put back.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    state: PathBuf,
}

impl Daemon {
    /// Starts it with the text of a configuration.
    pub(super) fn start(setting: &Setting, configuration: &str) -> Result<Self> {
        // Below our own state directory, where nobody else can write.
        let state = setting.state.join(settings::INNER);
        let config = state.join("superpage.toml");
        drop(Lock::take(&state)?);
        let explain = |error: std::io::Error| Error::Child(format!("{}: {error}", state.display()));
        std::fs::write(&config, configuration).map_err(explain)?;
        let log = File::create(state.join(LOG)).map_err(explain)?;
        let child = Command::new(&setting.launcher.program)
            .arg("daemon")
            .arg("--config")
            .arg(&config)
            .arg("--state")
            .arg(&state)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| Error::Child(format!("the daemon did not start: {error}")))?;
        let mut daemon = Self { child, state };
        // Its probes and first pass come at once; let it settle into its loop.
        std::thread::sleep(Duration::from_millis(300));
        daemon.check()?;
        Ok(daemon)
    }

    /// Fails if it has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(status)),
            Err(error) => Err(Error::Child(format!("the daemon was lost: {error}"))),
        }
    }

    /// Its process.
    pub(super) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Where it writes its log, metrics and status.
    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// The CPU time that it has used so far.
    pub(super) fn cpu(&self) -> Result<Nanos> {
        Ok(cpu_time(self.pid())?)
    }

    /// Ends it, which must go well.
    pub(super) fn stop(mut self) -> Result<()> {
        self.end()
    }

    /// As [`Daemon::stop`], but what it wrote stays until this is dropped.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.terminate() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.ended(status)),
            Err(error) => Err(Error::Child(format!("the daemon was lost: {error}"))),
        }
    }

    fn ended(&self, status: ExitStatus) -> Error {
        let log = std::fs::read_to_string(self.state.join(LOG)).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
        Error::Child(format!("the daemon ended with {status}; it said: {}", last.trim()))
    }

    /// Asks it to leave, which puts its settings back, and waits.
    fn terminate(&mut self) -> std::io::Result<ExitStatus> {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let (Some(pid), None) = (pid, self.child.try_wait()?) {
            kill_process(pid, Signal::TERM)?;
        }
        self.child.wait()
    }
}

/// What it says, in its state directory.
const LOG: &str = "said";

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.terminate();
        // Had it crashed, this repairs what it left.
        let _ = Settings::open(&self.state, settings::Mode::Apply);
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_manager::config::{self, Config, FirstTouch};

    #[test]
    fn each_configuration_says_what_it_is_named_after() {
        let read = |one: Configuration| {
            let text = one.text(Pid(7)).expect("there is a daemon");
            let config = config::parse(&text, Path::new("superpage.toml")).expect("valid");
            assert_eq!(config.processes.include.pids, [Pid(7)]);
            config
        };
        let usual = Config::default();
        let default = read(Configuration::Default);
        assert_eq!(Config { processes: usual.processes.clone(), ..default }, usual);
        assert_eq!(read(Configuration::Generous).first_touch, FirstTouch::Generous);
        assert_eq!(read(Configuration::BasePages).first_touch, FirstTouch::BasePages);
        assert_eq!(read(Configuration::NoCompaction).compaction, None);
        let policy = read(Configuration::Quicksilver).promotion.policy;
        assert_eq!(policy.to_string(), Configuration::Quicksilver.name());
        assert_eq!(Configuration::NoDaemon.text(Pid(7)), None);
    }
}
