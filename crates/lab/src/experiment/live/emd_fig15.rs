//! `emd-fig15`: what the daemon costs a program that has no bloat to give (EMD, section 6,
//! Figure 15).
//!
//! The paper runs benchmarks without bloat and invokes EMD on them. Here: random updates of memory
//! of which every base page is used, on one core, with the real daemon switched on and off in turn.
//! Its watermarks are so low that it keeps trying as long as it runs; it is shown that program only.

use super::support_bench::{Subject, fitting_size, median, rounded};
use super::{Content, Error, Experiment, On, Picture, Progress, Report, Result, Setting};
use crate::workload::WorkloadKind;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use superpage_kernel::settings::{self, Lock, Settings};
use superpage_policy::units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig15",
    source: "EMD, Figure 15",
    summary: "What the daemon costs a program without bloat",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("daemon", "daemon"),
        ("rounds", "rounds"),
        ("broken", "huge pages broken"),
        ("normalized_runtime", "run time"),
        ("paper_normalized_runtime", "in the paper"),
    ],
    run,
};

/// An effect of 1 % needs more pairs than the others. Chosen, not measured.
const ROUNDS_FACTOR: u32 = 4;

/// A daemon that never rests (above its watermarks whatever happens, at its default budget) and
/// sees one process only: others on this machine are none of our business.
fn restless(pid: u32) -> String {
    format!(
        "[watermarks]\nhigh = \"1%\"\nlow = \"0.5%\"\n[promotion]\npolicy = \"off\"\n\
         [timing]\ninterval = \"200ms\"\nback_off = \"1s\"\n\
         [processes.include]\npids = [{pid}]\n"
    )
}

#[derive(Debug, Serialize)]
struct Row {
    experiment: &'static str,
    machine: &'static str,
    case: &'static str,
    daemon: &'static str,
    rounds: u32,
    broken: u64,
    normalized_runtime: f64,
    paper_normalized_runtime: f64,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let kind = WorkloadKind::RandomAccessDense;
    let size = fitting_size(setting, Bytes::from_gib(8), 1)?;
    progress(&format!("{kind}: filling {size} of memory"))?;
    let mut subject = Subject::start(setting, kind, size)?;
    let rounds = setting.rounds * ROUNDS_FACTOR;
    let mut ratios = Vec::new();
    for round in 0..rounds {
        progress(&format!("{kind}: round {} of {rounds}", round + 1))?;
        let before = subject.time_by_the_wall()?;
        let daemon = Daemon::start(setting, subject.pid())?;
        let with = subject.time_by_the_wall()?;
        daemon.stop()?;
        let after = subject.time_by_the_wall()?;
        ratios.push(with / f64::midpoint(before, after));
    }
    let (broken, _) = subject.broken()?;
    subject.check()?;
    let ratio = median(ratios);
    let mut report = Report::default();
    for (daemon, normalized, broken) in [("off", 1.0, 0), ("on", ratio, broken.0)] {
        report.push(&Row {
            experiment: EXPERIMENT.name,
            machine: "live",
            case: kind.name(),
            daemon,
            rounds,
            broken,
            normalized_runtime: rounded(normalized, 4),
            paper_normalized_runtime: if daemon == "on" { 1.01 } else { 1.0 },
        })?;
    }
    report.pictures.push(Picture {
        file: "emd-fig15.svg".to_owned(),
        title: "Run time of a program without bloat".to_owned(),
        content: Content::Bars {
            y_label: "relative run time".to_owned(),
            categories: vec![kind.name().to_owned()],
            series: vec![
                ("daemon off".to_owned(), vec![1.0]),
                ("daemon on".to_owned(), vec![ratio]),
            ],
            reference: Some(1.0),
        },
    });
    Ok(report)
}

/// The real daemon in a process of its own, with a lock and a record of its own.
struct Daemon {
    child: Child,
    state: PathBuf,
}

impl Daemon {
    fn start(setting: &Setting, pid: u32) -> Result<Self> {
        // Below our own state directory, where nobody else can write.
        let state = setting.state.join("lab");
        let config = state.join("superpage.toml");
        drop(Lock::take(&state)?);
        std::fs::write(&config, restless(pid))
            .map_err(|error| Error::Child(format!("{}: {error}", config.display())))?;
        let child = Command::new(&setting.launcher.program)
            .arg("daemon")
            .arg("--config")
            .arg(&config)
            .arg("--state")
            .arg(&state)
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Error::Child(format!("the daemon did not start: {error}")))?;
        // Its probes and first pass come at once; let it settle into its loop.
        std::thread::sleep(Duration::from_millis(300));
        Ok(Self { child, state })
    }

    fn stop(mut self) -> Result<()> {
        match self.terminate() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Error::Child(format!("the daemon ended with {status}"))),
            Err(error) => Err(Error::Child(format!("the daemon was lost: {error}"))),
        }
    }

    /// Asks it to leave, which puts its settings back, and waits.
    fn terminate(&mut self) -> std::io::Result<ExitStatus> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Some(pid), None) = (pid, self.child.try_wait()?) {
            kill_process(pid, Signal::TERM)?;
        }
        self.child.wait()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.terminate();
        // Had it crashed, this repairs what it left.
        let _ = Settings::open(&self.state, settings::Mode::Apply);
        let _ = std::fs::remove_dir_all(&self.state);
    }
}
