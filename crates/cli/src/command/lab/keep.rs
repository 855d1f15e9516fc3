//! `superpage lab run --keep`: rows for the report, with the command, the build, the day and the machine. Only a build of which
//! the repository has every line is kept.

use crate::args::LabRun;
use crate::exit::Failure;
use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;
use superpage_kernel::{cpuinfo, meminfo};
use superpage_lab::experiment::{Experiment, On, Report};
use superpage_lab::report::kept::{self, Circumstances};

/// The tree that this program was built from, as the build script found it; empty where there was no repository.
const TREE: &str = env!("SUPERPAGE_TREE");
const TREE_IS_CLEAN: &str = env!("SUPERPAGE_TREE_IS_CLEAN");

/// Refuses a build that cannot be made again from its tree.
pub(super) fn check_build() -> Result<(), Failure> {
    refusal(TREE, TREE_IS_CLEAN).map_or(Ok(()), |why| Err(Failure::NotPossible(why)))
}

/// Why a build of this tree is not kept.
fn refusal(tree: &str, is_clean: &str) -> Option<String> {
    let why = match (tree, is_clean) {
        ("", _) => "this program was not built in a repository of git",
        (_, "true") => return None,
        _ => "this program was built from sources that were not committed",
    };
    Some(format!(
        "--keep needs a build that can be made again, and {why}; commit, build again, and run this again"
    ))
}

/// Keeps what an experiment found.
pub(super) fn keep(
    experiment: &Experiment,
    report: &Report,
    arguments: &LabRun,
    directory: &Path,
) -> anyhow::Result<()> {
    let circumstances = Circumstances {
        command: command(experiment, arguments),
        tree: TREE.to_owned(),
        date: today(),
        host: host()?,
    };
    kept::keep(directory, &stem(experiment, arguments), experiment, report, circumstances)?;
    Ok(())
}

/// The command that gives such rows: all that changes them.
pub(super) fn command(experiment: &Experiment, arguments: &LabRun) -> String {
    let (name, on) = (experiment.name, experiment.on.name());
    let mut command = format!("superpage lab run {name} --on {on}");
    let mut add = |words: std::fmt::Arguments<'_>| {
        // Writing to a String does not fail.
        let _ = command.write_fmt(words);
    };
    match experiment.on {
        On::Sim if arguments.seed == 1 => {}
        On::Sim => add(format_args!(" --seed {}", arguments.seed)),
        On::Live => {
            add(format_args!(" --rounds {}", arguments.rounds));
            arguments.size.iter().for_each(|size| add(format_args!(" --size {}", size.0)));
            if !arguments.memory.is_empty() {
                let percents = arguments.memory.iter().map(|share| share.get() * 100.0);
                let percents: Vec<String> = percents.map(|percent| percent.to_string()).collect();
                add(format_args!(" --memory {}", percents.join(",")));
            }
        }
    }
    if !arguments.only.is_empty() {
        add(format_args!(" --only {}", arguments.only.join(",")));
    }
    command
}

/// The name of the file: runs of other parts or sizes, with other shares of memory or another seed do not overwrite each other.
fn stem(experiment: &Experiment, arguments: &LabRun) -> String {
    let mut parts = vec![experiment.name.to_owned(), experiment.on.name().to_owned()];
    parts.extend(arguments.only.iter().cloned());
    match experiment.on {
        On::Sim if arguments.seed == 1 => {}
        On::Sim => parts.push(format!("seed-{}", arguments.seed)),
        On::Live => {
            parts.extend(arguments.size.map(|size| size.0.to_string()));
            parts.extend(arguments.memory.iter().map(|share| format!("memory-{}", share.get())));
        }
    }
    parts.join("-")
}

/// The day, in UTC.
fn today() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string().chars().take(10).collect()
}

/// The machine, in words.
fn host() -> anyhow::Result<String> {
    let cpu = cpuinfo::read(Path::new("/proc"))?;
    let memory = meminfo::read(Path::new("/proc"))?.total;
    let system = rustix::system::uname();
    Ok(format!(
        "{} CPUs of {}{}, {memory}, Linux {}",
        cpu.threads,
        cpu.model.as_deref().unwrap_or("an unknown kind"),
        if cpu.is_guest { ", in a virtual machine" } else { "" },
        system.release().to_string_lossy()
    ))
}

#[cfg(test)]
mod tests {
    use super::{refusal, stem};
    use crate::args::LabRun;
    use clap::Parser;
    use superpage_lab::experiment::{On, find};

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        run: LabRun,
    }

    #[test]
    fn a_run_with_other_numbers_takes_the_place_of_none() {
        let of = |name: &str, on: On, words: &str| {
            let experiment = find(name, Some(on)).expect("it is there");
            let words = ["lab", name].into_iter().chain(words.split_whitespace());
            stem(experiment, &Arguments::parse_from(words).run)
        };
        assert_eq!(of("emd-table1", On::Sim, ""), "emd-table1-sim");
        assert_eq!(of("emd-table1", On::Sim, "--seed 2"), "emd-table1-sim-seed-2");
        assert_eq!(of("emd-table1", On::Live, "--seed 2"), "emd-table1-live");
        let swapping = of("xheap-fig4", On::Live, "--size 1G --memory 75,80");
        assert_eq!(swapping, "xheap-fig4-live-1073741824-memory-0.75-memory-0.8");
        assert_eq!(of("pareto", On::Live, "--only redis"), "pareto-live-redis");
    }

    #[test]
    fn only_a_build_of_committed_sources_is_kept() {
        assert!(refusal("0123456789ab", "true").is_none());
        assert!(refusal("0123456789ab", "false").unwrap().contains("not committed"));
        assert!(refusal("", "false").unwrap().contains("repository of git"));
    }
}
