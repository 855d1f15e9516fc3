//! Experiments on the simulated machine, several at once: their progress on standard error, what they
//! found in their order on standard output. A signal ends them at once, in the middle of a simulation.

use super::{failure, setting_of, show_report};
use crate::args::LabRun;
use crate::exit::{Failure, Outcome};
use crate::{show, signals};
use anyhow::anyhow;
use indicatif::{HumanDuration, ProgressBar};
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use superpage_lab::experiment::batch::{Batch, News};
use superpage_lab::experiment::{Experiment, Report, Result};
use superpage_lab::turn;

/// How long news may take to arrive before a signal is looked for.
const PATIENCE: Duration = Duration::from_millis(200);

/// Runs them, and prints each as soon as it and all before it have ended.
pub(super) fn run(experiments: &[&'static Experiment], arguments: &LabRun) -> Outcome {
    let setting = setting_of(arguments)?;
    let stop = signals::stop_flag()?;
    let mut progress = Progress::new(experiments);
    let jobs = turn::limited_to();
    if experiments.len() > 1 {
        progress.line(&format!("{} experiments, {jobs} simulations at once", experiments.len()));
    }
    let batch = Batch::start(experiments.to_vec(), setting, jobs);
    let mut ended: Vec<Option<Result<Report>>> = experiments.iter().map(|_| None).collect();
    for (at, experiment) in experiments.iter().enumerate() {
        let report = loop {
            if let Some(report) = ended.get_mut(at).and_then(Option::take) {
                break report;
            }
            if stop.load(Ordering::Relaxed) {
                progress.clear();
                return Err(Failure::Failed(anyhow!("interrupted")));
            }
            match batch.next(PATIENCE).map_err(failure)? {
                None => progress.tick(),
                Some(News::Says(at, what)) => progress.says(at, &what),
                Some(News::Ended(at, report)) => {
                    progress.ended(at, &report);
                    if let Some(place) = ended.get_mut(at) {
                        *place = Some(report);
                    }
                }
            }
        };
        let report = report.map_err(failure)?;
        progress.bar.suspend(|| show_report(experiment, &report, arguments))?;
    }
    progress.clear();
    Ok(())
}

/// A line for each experiment that has ended, and below them, on a terminal, what is done now.
struct Progress<'a> {
    experiments: &'a [&'static Experiment],
    began: Instant,
    ended: usize,
    bar: ProgressBar,
}

impl<'a> Progress<'a> {
    fn new(experiments: &'a [&'static Experiment]) -> Self {
        let bar = match experiments {
            [_] => show::progress(0, "{spinner} {elapsed_precise} {wide_msg}"),
            _ => show::progress(
                experiments.len() as u64,
                "{elapsed_precise} {bar:20} {pos} of {len}; {wide_msg}",
            ),
        };
        Self { experiments, began: Instant::now(), ended: 0, bar }
    }

    fn name(&self, at: usize) -> &'static str {
        self.experiments.get(at).map_or("", |experiment| experiment.name)
    }

    fn says(&self, at: usize, what: &str) {
        self.bar.set_message(format!("{}: {what}", self.name(at)));
    }

    fn ended(&mut self, at: usize, report: &Result<Report>) {
        if self.experiments.len() == 1 {
            return;
        }
        self.ended += 1;
        self.bar.set_position(self.ended as u64);
        let line = format!(
            "{} {} ({} of {}, {})",
            self.name(at),
            if report.is_ok() { "done" } else { "failed" },
            self.ended,
            self.experiments.len(),
            HumanDuration(self.began.elapsed())
        );
        self.line(&line);
    }

    fn line(&self, line: &str) {
        // Nobody may be reading there.
        let _ = self.bar.suspend(|| writeln!(std::io::stderr(), "{line}"));
    }

    fn tick(&self) {
        self.bar.tick();
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
