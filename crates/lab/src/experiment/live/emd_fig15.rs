//! `emd-fig15`: what the daemon costs a program that has no bloat to give (EMD, section 6,
//! Figure 15).
//!
//! The paper runs benchmarks without bloat and invokes EMD on them. Here: random updates of memory
//! of which every base page is used, on one core, with the real daemon switched on and off in turn.
//! Its watermarks are so low that it keeps trying as long as it runs; it is shown that program only.

use super::support_bench::{Subject, fitting_size, median, rounded};
use super::support_daemon::Daemon;
use super::{Content, Experiment, On, Picture, Progress, Report, Result, Setting};
use crate::workload::WorkloadKind;
use serde::Serialize;
use superpage_units::{Bytes, Pid};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig15",
    source: "EMD, Figure 15",
    summary: "What the daemon costs a program without bloat",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("daemon", "daemon"),
        ("rounds", "rounds"),
        ("split", "huge pages split"),
        ("normalized_runtime", "run time"),
        ("paper_normalized_runtime", "in the paper"),
    ],
    run: &run,
};

/// An effect of 1 % needs more pairs than the others. Chosen, not measured.
const ROUNDS_FACTOR: u32 = 4;

/// A daemon that never rests (above its watermarks whatever happens, at its default budget) and
/// sees one process only: others on this machine are none of our business.
fn restless(pid: Pid) -> String {
    format!(
        "[watermarks]\nhigh = \"1%\"\nlow = \"0.5%\"\n[promotion]\npolicy = \"off\"\n\
         [timing]\ninterval = \"200ms\"\nback_off = \"1s\"\n\
         [processes.include]\npids = [{pid}]\n"
    )
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    daemon: &'static str,
    rounds: u32,
    split: u64,
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
        let daemon = Daemon::start(setting, &restless(subject.pid()))?;
        let with = subject.time_by_the_wall()?;
        daemon.stop()?;
        let after = subject.time_by_the_wall()?;
        ratios.push(with / f64::midpoint(before, after));
    }
    let (split, _) = subject.split_so_far()?;
    subject.check()?;
    let ratio = median(ratios);
    let mut report = Report::default();
    for (daemon, normalized, split) in [("off", 1.0, 0), ("on", ratio, split.0)] {
        report.push(&Row {
            case: kind.name(),
            daemon,
            rounds,
            split,
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
