//! `superpage lab`: list and run the experiments, the demonstration for newcomers, and the measuring
//! of this machine for a simulated one.

mod calibrate;
mod demo;

use crate::args::{LabCommand, LabList, LabRun};
use crate::exit::{Failure, Outcome};
use crate::show;
use anyhow::{Context, anyhow};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_kernel::settings::STATE_DIRECTORY;
use superpage_lab::experiment::{self, Error, Experiment, Report, Setting};
use superpage_lab::worker::{Launcher, worker_main};
use superpage_policy::units::Bytes;

/// Carries out a `lab` command.
pub(super) fn run(command: LabCommand) -> Outcome {
    match command {
        LabCommand::List(arguments) => list(&arguments),
        LabCommand::Run(arguments) => run_one(&arguments),
        LabCommand::Demo { out, size } => demo::run(&out, size),
        LabCommand::Calibrate(arguments) => calibrate::run(&arguments),
        LabCommand::Worker { spec } => Ok(worker_main(&spec).map_err(anyhow::Error::from)?),
    }
}

fn list(arguments: &LabList) -> Outcome {
    if arguments.json {
        let line = |e: &Experiment| {
            format!("{}\n", json!({"name": e.name, "source": e.source, "summary": e.summary}))
        };
        return show::print(&experiment::ALL.into_iter().map(line).collect::<String>());
    }
    let mut table = show::table(&["name", "in the paper", "what it shows"]);
    for experiment in experiment::ALL {
        table.add_row([experiment.name, experiment.source, experiment.summary]);
    }
    show::print(&format!("{table}\nRun one with `superpage lab run NAME`.\n"))
}

fn run_one(arguments: &LabRun) -> Outcome {
    let Some(experiment) = experiment::find(&arguments.name) else {
        let names: Vec<&str> = experiment::ALL.iter().map(|e| e.name).collect();
        return Err(Failure::Usage(format!(
            "there is no experiment {:?}; choose one of {}",
            arguments.name,
            names.join(", ")
        )));
    };
    let report = measure(experiment, &setting(arguments.size, arguments.rounds)?)?;
    if let Some(directory) = &arguments.out {
        let written = write_out(&report, experiment, directory)?;
        if !arguments.json {
            show::print(&written)?;
        }
    }
    if arguments.json {
        return show::print(&json_lines(&report));
    }
    show::print(&format!(
        "{}: {}\n{}",
        experiment.source,
        experiment.summary,
        text(experiment, &report)
    ))
}

/// How to run experiments from this program.
fn setting(size: Option<Bytes>, rounds: u32) -> Result<Setting, Failure> {
    let program = std::env::current_exe().context("this program's own path is not known")?;
    let leading_args = ["lab", "worker"].map(str::to_owned).to_vec();
    let state = PathBuf::from(STATE_DIRECTORY);
    Ok(Setting { launcher: Launcher { program, leading_args }, size, rounds, state })
}

/// Runs the experiment with its progress on standard error.
fn measure(experiment: &Experiment, setting: &Setting) -> Result<Report, Failure> {
    let spinner = show::progress(0, "{spinner} {elapsed_precise} {msg}");
    spinner.enable_steady_tick(std::time::Duration::from_millis(200));
    let stop = stop_flag()?;
    let mut progress = |what: &str| {
        spinner.set_message(what.to_owned());
        if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    };
    let report = experiment.run(setting, &mut progress);
    spinner.finish_and_clear();
    // The workloads get a terminal's interrupt too, and may be the first to end.
    let report = if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { report };
    report.map_err(|error| match error {
        Error::Kernel(error) => error.into(),
        Error::NotPossible(what) => Failure::NotPossible(what),
        other => Failure::Failed(anyhow!(other)),
    })
}

/// A flag that SIGINT and SIGTERM raise, so that an experiment ends by putting everything back.
fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("signals cannot be set up")?;
    }
    Ok(stop)
}

fn json_lines(report: &Report) -> String {
    report.rows.iter().map(|row| format!("{row}\n")).collect()
}

/// Writes rows and pictures; returns what was written, for people.
fn write_out(report: &Report, experiment: &Experiment, directory: &Path) -> anyhow::Result<String> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("{} could not be made", directory.display()))?;
    let rows = directory.join(format!("{}.jsonl", experiment.name));
    std::fs::write(&rows, json_lines(report))
        .with_context(|| format!("{} could not be written", rows.display()))?;
    let mut written = format!("Wrote {}", rows.display());
    for picture in &report.pictures {
        written.push_str(&format!(", {}", picture.draw(directory)?.display()));
    }
    Ok(format!("{written}.\n"))
}

/// The table and the notes.
fn text(experiment: &Experiment, report: &Report) -> String {
    let heads: Vec<&str> = experiment.columns.iter().map(|(_, head)| *head).collect();
    let mut table = show::table(&heads);
    for row in &report.rows {
        table.add_row(experiment.columns.iter().map(|(key, _)| cell(key, &row[*key])));
    }
    let notes: String = report.notes.iter().map(|note| format!("{note}\n")).collect();
    format!("{table}\n{notes}")
}

/// A value as people read it; the key says what kind of number it is.
fn cell(key: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            items.iter().map(|item| cell(key, item)).collect::<Vec<_>>().join(" ")
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if key.ends_with("_bytes") {
                Bytes(1).scaled(number).to_string()
            } else if is_share(key) {
                show::percent(number)
            } else {
                format!("{number}")
            }
        }
        other => other.to_string(),
    }
}

fn is_share(key: &str) -> bool {
    key == "fraction"
        || key.contains("bloat") && !key.ends_with("pages")
        || key.ends_with("retained")
        || key == "wrong_bucket"
}
