//! `superpage lab`: list and run the experiments, the demonstration for newcomers, and the measuring
//! of this machine for a simulated one.

mod calibrate;
mod demo;
mod keep;
mod pressure;
mod report;
mod together;

use crate::args::{LabCommand, LabList, LabRun};
use crate::exit::{Failure, Outcome};
use crate::{show, signals};
use anyhow::{Context, anyhow};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use superpage_kernel::settings::STATE_DIRECTORY;
use superpage_lab::experiment::{self, Error, Experiment, On, Report, Setting};
use superpage_lab::picture;
use superpage_lab::report::table;
use superpage_lab::turn;
use superpage_lab::worker::{Launcher, worker_main};
use superpage_units::Bytes;

/// Carries out a `lab` command.
pub(super) fn run(command: LabCommand) -> Outcome {
    match command {
        LabCommand::List(arguments) => list(&arguments),
        LabCommand::Run(arguments) => run_named(&arguments),
        LabCommand::Demo { out, size } => demo::run(&out, size),
        LabCommand::Hog(arguments) => pressure::hog(&arguments, &launcher()?),
        LabCommand::Fragment(arguments) => pressure::fragment(&arguments, &launcher()?),
        LabCommand::Calibrate(arguments) => calibrate::run(&arguments),
        LabCommand::Report(arguments) => report::run(&arguments),
        LabCommand::Worker { spec } => Ok(worker_main(&spec).map_err(anyhow::Error::from)?),
    }
}

/// As [`super::counts_pages`]: experiments on the simulated machine do not.
pub(super) fn counts_pages(command: &LabCommand) -> bool {
    match command {
        LabCommand::Run(arguments) => chosen(arguments).iter().any(|one| one.on == On::Live),
        LabCommand::List(_) | LabCommand::Report(_) => false,
        LabCommand::Demo { .. }
        | LabCommand::Hog(_)
        | LabCommand::Fragment(_)
        | LabCommand::Calibrate(_)
        | LabCommand::Worker { .. } => true,
    }
}

fn list(arguments: &LabList) -> Outcome {
    if arguments.json {
        let line = |e: &Experiment| {
            let (name, machine) = (e.name, e.on.name());
            let line =
                json!({"name": name, "machine": machine, "source": e.source, "summary": e.summary});
            format!("{line}\n")
        };
        return show::print(&experiment::all().map(line).collect::<String>());
    }
    let mut table = show::table(&["name", "machine", "in the paper", "what it shows"]);
    for experiment in experiment::all() {
        let machine = experiment.on.name();
        table.add_row([experiment.name, machine, experiment.source, experiment.summary]);
    }
    show::print(&format!(
        "{table}\nRun one with `superpage lab run NAME`, on the simulated machine with `--on sim`.\n"
    ))
}

/// The experiments that are asked for.
fn chosen(arguments: &LabRun) -> Vec<&'static Experiment> {
    let on = arguments.on.map(On::from);
    if arguments.name == ALL {
        let is_on = |experiment: &&Experiment| on.is_none_or(|on| experiment.on == on);
        experiment::all().filter(|experiment| experiment.is_of_all()).filter(is_on).collect()
    } else {
        experiment::find(&arguments.name, on).into_iter().collect()
    }
}

fn run_named(arguments: &LabRun) -> Outcome {
    let chosen = chosen(arguments);
    if chosen.is_empty() {
        return Err(unknown(&arguments.name, arguments.on.map(On::from)));
    }
    chosen.iter().try_for_each(|experiment| check_parts(experiment, &arguments.only))?;
    if let Some(directory) = &arguments.out {
        prepare_out(directory)?;
    }
    if let Some(directory) = &arguments.keep {
        keep::check_build()?;
        prepare_out(directory)?;
    }
    if let Some(jobs) = arguments.jobs {
        turn::limit(jobs);
    }
    // What runs on this machine would disturb each other.
    let (live, sim): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|e| e.on == On::Live);
    live.into_iter().try_for_each(|experiment| run_one(experiment, arguments))?;
    if sim.is_empty() { Ok(()) } else { together::run(&sim, arguments) }
}

/// Refuses parts that the experiment does not have.
fn check_parts(experiment: &Experiment, only: &[String]) -> Outcome {
    let (name, parts) = (experiment.name, experiment.parts());
    match only.iter().find(|one| !parts.contains(&one.as_str())) {
        None => Ok(()),
        Some(_) if parts.is_empty() => Err(Failure::Usage(format!(
            "{name} has no parts that can be run by themselves; leave out --only"
        ))),
        Some(one) => Err(Failure::Usage(format!(
            "{name} has no part {one:?}; choose from {}",
            parts.join(", ")
        ))),
    }
}

/// Stands for every experiment.
const ALL: &str = "all";

fn unknown(name: &str, on: Option<On>) -> Failure {
    let place = on.map_or(String::new(), |on| format!(" for --on {}", on.name()));
    if let Some(other) = experiment::find(name, None) {
        return Failure::Usage(format!("{name} exists only for --on {}", other.on.name()));
    }
    if experiment::all().all(|experiment| on.is_some_and(|on| experiment.on != on)) {
        return Failure::Usage(format!("there is no experiment{place} in this build"));
    }
    // Those of the same paper are likely meant.
    let paper = name.split('-').next().unwrap_or_default();
    let mut near: Vec<&str> = experiment::all()
        .filter(|known| on.is_none_or(|on| known.on == on))
        .map(|known| known.name)
        .filter(|known| known.split('-').next() == Some(paper))
        .collect();
    near.sort_unstable();
    near.dedup();
    let of_paper = match &near[..] {
        [] => String::new(),
        near => format!("choose one of {}; ", near.join(", ")),
    };
    Failure::Usage(format!(
        "there is no experiment {name:?}{place}; {of_paper}`superpage lab list` shows them all"
    ))
}

fn run_one(experiment: &Experiment, arguments: &LabRun) -> Outcome {
    let report = measure(experiment, &setting_of(arguments)?)?;
    show_report(experiment, &report, arguments)
}

/// Prints what an experiment found, and writes it where it was asked for.
fn show_report(experiment: &Experiment, report: &Report, arguments: &LabRun) -> Outcome {
    let said = if arguments.json {
        json_lines(report)
    } else if arguments.markdown {
        markdown(experiment, report, arguments)
    } else {
        let (source, summary) = (experiment.source, experiment.summary);
        format!("{source}: {summary}\n{}", text(experiment, report))
    };
    show::print(&said)?;
    if let Some(directory) = &arguments.keep {
        keep::keep(experiment, report, arguments, directory)?;
    }
    if let Some(directory) = &arguments.out {
        let written = write_out(report, experiment, directory)?;
        if !arguments.json && !arguments.markdown {
            show::print(&written)?;
        }
    }
    Ok(())
}

/// Makes the directory that rows and pictures go to, and tries it, before the work.
fn prepare_out(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("{} could not be made", directory.display()))?;
    picture::try_path(&directory.join("rows"))
        .with_context(|| format!("nothing can be written to {}", directory.display()))
}

/// How to run experiments as the arguments say.
fn setting_of(arguments: &LabRun) -> Result<Setting, Failure> {
    let LabRun { size, rounds, seed, .. } = *arguments;
    let (directory, memory) = (arguments.dir.clone(), arguments.memory.clone());
    let only = arguments.only.clone();
    Ok(Setting { directory, memory, only, ..setting(size, rounds, seed)? })
}

/// How this program starts itself as a worker.
fn launcher() -> Result<Launcher, Failure> {
    let program = std::env::current_exe().context("this program's own path is not known")?;
    let leading_args = ["lab", "worker"].map(str::to_owned).to_vec();
    Ok(Launcher { program, leading_args })
}

/// How to run experiments from this program.
fn setting(size: Option<Bytes>, rounds: u32, seed: u64) -> Result<Setting, Failure> {
    let state = PathBuf::from(STATE_DIRECTORY);
    let (launcher, directory) = (launcher()?, PathBuf::from("."));
    let (memory, only) = (Vec::new(), Vec::new());
    Ok(Setting { launcher, size, rounds, state, seed, directory, memory, scaled: None, only })
}

/// Runs the experiment with its progress on standard error.
fn measure(experiment: &Experiment, setting: &Setting) -> Result<Report, Failure> {
    let spinner = show::progress(0, "{spinner} {elapsed_precise} {msg}");
    spinner.enable_steady_tick(std::time::Duration::from_millis(200));
    let stop = signals::stop_flag()?;
    let mut progress = |what: &str| {
        spinner.set_message(what.to_owned());
        if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    };
    let report = experiment.run(setting, &mut progress);
    spinner.finish_and_clear();
    // The workloads get a terminal's interrupt too, and may be the first to end.
    let report = if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { report };
    report.map_err(failure)
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Kernel(error) => error.into(),
        Error::NotPossible(what) => Failure::NotPossible(what),
        other => Failure::Failed(anyhow!(other)),
    }
}

fn json_lines(report: &Report) -> String {
    report.rows.iter().map(|row| format!("{row}\n")).collect()
}

/// Writes rows and pictures; returns what was written, for people.
fn write_out(report: &Report, experiment: &Experiment, directory: &Path) -> anyhow::Result<String> {
    let rows = directory.join(format!("{}.jsonl", file_stem(experiment)));
    std::fs::write(&rows, json_lines(report))
        .with_context(|| format!("{} could not be written", rows.display()))?;
    let mut written = format!("Wrote {}", rows.display());
    for picture in &report.pictures {
        written.push_str(&format!(", {}", picture.draw(directory)?.display()));
    }
    Ok(format!("{written}.\n"))
}

/// The name of an experiment's files: those of the simulated machine do not overwrite the others.
fn file_stem(experiment: &Experiment) -> String {
    match experiment.on {
        On::Live => experiment.name.to_owned(),
        On::Sim => format!("{}-sim", experiment.name),
    }
}

/// The table and the notes.
fn text(experiment: &Experiment, report: &Report) -> String {
    let heads: Vec<&str> = experiment.columns.iter().map(|(_, head)| *head).collect();
    let mut table = show::table(&heads);
    for row in &report.rows {
        table.add_row(experiment.columns.iter().map(|(key, _)| table::cell(key, &row[*key])));
    }
    let notes: String = report.notes.iter().map(|note| format!("{note}\n")).collect();
    format!("{table}\n{notes}")
}

/// A section of a document: what it is, the command, the tables, the notes.
fn markdown(experiment: &Experiment, report: &Report, arguments: &LabRun) -> String {
    let tables = table::tables(experiment, &report.rows);
    let notes: String = report.notes.iter().map(|note| format!("\n{note}\n")).collect();
    let (name, source, on) = (experiment.name, experiment.source, experiment.on.name());
    let command = keep::command(experiment, arguments);
    format!(
        "## {name}, {on}\n\n`{command}` ({source}): {}\n\n{tables}{notes}\n",
        experiment.summary,
    )
}
