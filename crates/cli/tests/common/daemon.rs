//! The daemon as a test sees it: a configuration, a process, and the log that it writes.

use super::{Ended, PROGRAM, Said, wait_for};
use crate::ensure;
use libtest_mimic::Failed;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use superpage_kernel::Error;
use superpage_kernel::settings::{Lock, STATE_DIRECTORY};
use superpage_units::Pid;

/// Long enough for whatever does not take a fault to take longer, on emulated processors too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long other test programs may have the machine's one daemon before it is our turn.
const TURN: Duration = Duration::from_secs(120);

/// A configuration, as far as the tests vary it. It never leaves the processes open: those of
/// others on this machine are none of a test's business.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// High and low watermark of the machine.
    pub(crate) marks: Option<(String, String)>,
    pub(crate) include: Vec<Pid>,
    pub(crate) exclude: Vec<Pid>,
    pub(crate) exclude_cgroups: Vec<PathBuf>,
    pub(crate) cpu: &'static str,
    pub(crate) quantum: u64,
    pub(crate) interval: &'static str,
    pub(crate) cool_down: &'static str,
    pub(crate) max_ptes_none: String,
    /// A cgroup, and its high and low watermark.
    pub(crate) cgroup: Option<(PathBuf, &'static str, &'static str)>,
}

impl Config {
    /// Frees all bloat of `include` at once: there is always more than 1 % of memory in use.
    pub(crate) fn all_of(include: &[Pid]) -> Self {
        Self {
            marks: Some(("1%".to_owned(), "0%".to_owned())),
            include: include.to_vec(),
            exclude: Vec::new(),
            exclude_cgroups: Vec::new(),
            cpu: "100%",
            quantum: 100,
            interval: "50ms",
            cool_down: "10min",
            max_ptes_none: "\"keep\"".to_owned(),
            cgroup: None,
        }
    }

    /// Does nothing.
    pub(crate) fn idle() -> Self {
        // No process has this number: the kernel's limit is 2^22.
        Self { marks: None, ..Self::all_of(&[Pid(4_194_305)]) }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.marks {
            Some((high, low)) => writeln!(f, "[watermarks]\nhigh = \"{high}\"\nlow = \"{low}\"")?,
            None => writeln!(f, "[watermarks]\nenabled = false")?,
        }
        writeln!(f, "[debloat]\nquantum = {}", self.quantum)?;
        writeln!(f, "[promotion]\npolicy = \"off\"\n[budget]\ndebloat = \"{}\"", self.cpu)?;
        writeln!(f, "[timing]\ninterval = \"{}\"\nback_off = \"100ms\"", self.interval)?;
        writeln!(f, "cool_down = \"{}\"", self.cool_down)?;
        let numbers = |pids: &[Pid]| pids.iter().map(|pid| pid.0).collect::<Vec<_>>();
        writeln!(f, "[processes.include]\npids = {:?}", numbers(&self.include))?;
        writeln!(f, "[processes.exclude]\npids = {:?}", numbers(&self.exclude))?;
        writeln!(f, "cgroups = {:?}", self.exclude_cgroups)?;
        writeln!(f, "[khugepaged]\nmax_ptes_none = {}", self.max_ptes_none)?;
        if let Some((path, high, low)) = &self.cgroup {
            writeln!(f, "[[cgroup]]\npath = {path:?}\nhigh = \"{high}\"\nlow = \"{low}\"")?;
        }
        Ok(())
    }
}

/// A directory with a configuration and the daemon's state, which only we can read.
#[derive(Debug)]
pub(crate) struct Home {
    directory: tempfile::TempDir,
    /// The words of a command that starts the daemon in its place, if one does.
    starter: &'static [&'static str],
}

impl Home {
    pub(crate) fn with(config: &Config) -> Result<Self, Failed> {
        let home = Self { directory: tempfile::tempdir()?, starter: &[] };
        home.configure(&config.to_string())?;
        Ok(home)
    }

    /// The same, but the daemon is started by a command with these words.
    pub(crate) fn started_by(self, starter: &'static [&'static str]) -> Self {
        Self { starter, ..self }
    }

    /// Replaces the configuration; the daemon hears of it by SIGHUP.
    pub(crate) fn configure(&self, text: &str) -> Ended {
        Ok(std::fs::write(self.config(), text)?)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.directory.path().join("superpage.toml")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.state().join("settings.json")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn command(&self) -> Command {
        let words = [self.starter, &[PROGRAM]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command.args(["daemon", "--log", "json", "--level", "debug"]);
        command.arg("--config").arg(self.config()).arg("--state").arg(self.state());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts a daemon that is expected to end by itself at once.
    pub(crate) fn start_in_vain(&self) -> Result<Said, Failed> {
        Ok(self.command().output()?.into())
    }

    /// Starts the daemon and waits until it watches; as long as another test program has one, the
    /// machine has no room for ours.
    pub(crate) fn start(&self) -> Result<Daemon, Failed> {
        wait_for("the machine to have no other daemon", TURN, || {
            let daemon = self.start_logging_to(Stdio::piped())?;
            let first = |line: &Value| says(line, "watching memory") || is_busy(line);
            let line = daemon.wait_since(0, "it to watch", first)?;
            Ok((!is_busy(&line)).then_some(daemon))
        })
    }

    /// Starts the daemon with its log going elsewhere, once no other is seen.
    pub(crate) fn start_logging_to(&self, log: Stdio) -> Result<Daemon, Failed> {
        wait_for("the machine to have no other daemon", TURN, || {
            Ok((!matches!(Lock::take(Path::new(STATE_DIRECTORY)), Err(Error::Busy { .. })))
                .then_some(()))
        })?;
        let mut child = self.command().stderr(log).spawn()?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        if let Some(stderr) = child.stderr.take() {
            let lines = Arc::clone(&lines);
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                    lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            });
        }
        Ok(Daemon { child, lines })
    }
}

/// A running daemon. When this is dropped it ends, in good order if it can.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Daemon {
    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// The log so far; every line of it must be JSON.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How long the log is now, to wait for what comes after.
    pub(crate) fn mark(&self) -> usize {
        self.log().len()
    }

    /// The first line from `mark` on that is `wanted`.
    pub(crate) fn wait_since(
        &self,
        mark: usize,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, Failed> {
        let found = wait_for(what, PATIENCE, || {
            Ok(self.log().into_iter().skip(mark).find(|line| wanted(line)))
        });
        found.map_err(|error| {
            let tail: Vec<_> = self.log().iter().rev().take(12).map(Value::to_string).collect();
            let message = error.message().unwrap_or_default();
            format!("{message}; the log, last line first:\n{}", tail.join("\n")).into()
        })
    }

    pub(crate) fn signal(&self, signal: Signal) -> Ended {
        let pid = rustix::process::Pid::from_raw(self.pid().0.cast_signed()).ok_or("no pid")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Tells it to leave and sees that it does so in good order.
    pub(crate) fn stop(mut self) -> Result<Vec<Value>, Failed> {
        self.signal(Signal::TERM)?;
        let status = wait_for("the daemon's end", PATIENCE, || Ok(self.child.try_wait()?))?;
        ensure!(status.success(), "the daemon ended with {status}");
        Ok(self.log())
    }

    /// Takes it down without a word.
    pub(crate) fn kill(mut self) -> Ended {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// CPU time used so far, in user space and in the kernel.
    pub(crate) fn cpu(&self) -> Result<Duration, Failed> {
        let path = format!("/proc/{}/stat", self.pid());
        let text = std::fs::read_to_string(Path::new(&path))?;
        let (_, fields) = text.rsplit_once(')').ok_or("no command")?;
        // utime and stime, the 14th and 15th, are behind the state, the third.
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(str::parse::<u64>).sum::<Result<_, _>>()?;
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.signal(Signal::TERM);
        let left = wait_for("its end", PATIENCE, || Ok(self.child.try_wait()?));
        if left.is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether this is the last word of a daemon that found another one.
fn is_busy(line: &Value) -> bool {
    line.as_str().is_some_and(|text| text.contains("another superpage holds this machine"))
}

/// Whether the message of a log line begins like this.
pub(crate) fn says(line: &Value, begin: &str) -> bool {
    line["message"].as_str().is_some_and(|message| message.starts_with(begin))
}
