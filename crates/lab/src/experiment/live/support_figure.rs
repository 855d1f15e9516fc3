//! The common part of the experiments of [`super::trident`]: how long each program takes in each way, and on which pages its
//! memory lies.

use super::support_bench::{median, rounded};
use super::support_mapped::Mapped;
use super::support_programs::{Plan, Policy, Resting, Trial, Trials, trials};
use super::{Progress, Report, Result, Run, Setting};
use serde::Serialize;
use serde_json::Value;

pub(super) const COLUMNS: &[(&str, &str)] = &[
    ("case", "program"),
    ("policy", "policy"),
    ("seconds", "s"),
    ("low", "least"),
    ("high", "most"),
    ("over_4k", "over 4 KiB"),
    ("over_linux", "over THP"),
    ("paper", "in the paper"),
    ("bytes_4k", "on 4 KiB"),
    ("bytes_2m", "on 2 MiB"),
    ("bytes_1g", "on 1 GiB"),
    ("rss_bytes", "in all"),
    ("promotions", "promotions"),
];

/// A figure.
pub(super) struct Figure {
    /// Its trials.
    pub(super) plan: Plan,
    /// Trident's performance over THP in the paper, by the paper's name of a program.
    pub(super) paper: fn(&str) -> Option<f64>,
}

const NOTES: [&str; 3] = [
    "Seconds are of the work, without what a program does before it; medians. Over 4 KiB and over THP: the \
     seconds of linux-4k and of linux through these. In the paper: over THP, with 36 threads where it has them.",
    "Bytes are from the program's smaps at the end of the work, gigantic pages that the library holds ready \
     not counted. In all: with those, and under trident with the free pages of the kernel's pool, some of \
     which the experiment took itself where free memory is whole.",
    "The malloc of Debian's Redis is jemalloc, which glibc's variable does not reach. Redis and liblinear have no \
     result to compare; the others' results are the same under all policies.",
];

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    size_bytes: u64,
    seconds: f64,
    low: f64,
    high: f64,
    over_4k: Option<f64>,
    over_linux: Option<f64>,
    paper: Option<f64>,
    bytes_4k: u64,
    bytes_2m: u64,
    bytes_1g: u64,
    rss_bytes: u64,
    rounds: usize,
    /// The promotions of the last round, under `superpage run`.
    promotions: Option<u64>,
    demotions: Option<u64>,
    refused: Option<Value>,
}

impl Run for Figure {
    fn run(&self, _: &'static str, setting: &Setting, progress: Progress<'_>) -> Result<Report> {
        let look = |_: &mut _, program: &Resting| program.mapped();
        let (all, notes) = trials(&self.plan, setting, progress, look)?;
        let mut report = Report { notes, ..Report::default() };
        for program in &all {
            rows(self, program, &mut report)?;
        }
        report.notes.extend(NOTES.map(str::to_owned));
        Ok(report)
    }
}

/// The rows of one program.
fn rows(figure: &Figure, program: &Trials<Mapped>, report: &mut Report) -> Result<()> {
    let (name, of_paper) = program.case.names();
    let seconds = |trials: &[Trial<Mapped>]| median(trials.iter().map(|trial| trial.seconds));
    let base = |wanted| {
        let found = program.of.iter().find(|(policy, _)| *policy == wanted);
        found.map(|(_, trials)| seconds(trials))
    };
    let (base_pages, linux) = (base(Policy::BasePages), base(Policy::Linux));
    for (policy, trials) in &program.of {
        let mapped = Mapped::median(trials.iter().map(|trial| trial.seen));
        let last = trials.last().and_then(|trial| trial.report.as_ref());
        let report_of = |key: &str| last.and_then(|report| report.get(key));
        let took = seconds(trials);
        let all = trials.iter().map(|trial| trial.seconds);
        report.push(&Row {
            case: name,
            policy: policy.name(),
            size_bytes: program.size.0,
            seconds: rounded(took, 2),
            low: rounded(all.clone().fold(f64::INFINITY, f64::min), 2),
            high: rounded(all.fold(0.0, f64::max), 2),
            over_4k: base_pages.map(|base| rounded(base / took, 3)),
            over_linux: linux.map(|linux| rounded(linux / took, 3)),
            paper: (figure.paper)(of_paper).filter(|_| *policy == Policy::Trident),
            bytes_4k: mapped.base.0,
            bytes_2m: mapped.huge.0,
            bytes_1g: mapped.gigantic.0,
            rss_bytes: mapped.all.0,
            rounds: trials.len(),
            promotions: report_of("promotions").and_then(Value::as_u64),
            demotions: report_of("demotions").and_then(Value::as_u64),
            refused: report_of("refused").cloned(),
        })?;
    }
    Ok(())
}
