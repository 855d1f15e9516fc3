//! `heap-numpy`: a NumPy array larger than the memory that its process may have: on swap, in a heap file, and all in memory.
//!
//! Each run is a Python process of its own (`heap_numpy.py`), which needs nothing but NumPy. One cgroup with one limit holds
//! everything of a run, on swap and in a heap file alike: data, page tables, Python, and what the library has for itself.

use super::support_bench::{Bench, fitting_size, median, rounded, warm};
use super::support_heap::bypass_zswap;
use super::support_heap_trial::{
    Policy, SWAP, group, heap_options, swap_file, while_counted, without_heap,
};
use super::support_python::{Python, object};
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use superpage_units::{Bytes, Share};
use tempfile::TempDir;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "heap-numpy",
    source: "no paper",
    summary: "A NumPy array larger than memory, filled, summed, indexed at random and sorted: on swap, in a heap file, and in memory",
    on: On::Live,
    columns: &[
        ("case", "case"),
        ("policy", "policy"),
        ("memory_percent", "memory %"),
        ("seconds", "s"),
        ("low", "fastest"),
        ("high", "slowest"),
        ("over_swap", "over swap"),
        ("over_swap_low", "at least"),
        ("over_swap_high", "at most"),
    ],
    run: &run,
};

/// The array where nobody says how large. Chosen: a round of one amount of memory takes a minute and a half.
const SIZE: Bytes = Bytes(Bytes::from_gib(1).0 / 2);
/// The part of the array that memory has room for, in percent, where nobody says.
const MEMORY: [u8; 2] = [50, 33];
/// The limit beyond the part of the array: Python and NumPy take some 30 MiB, page tables of the array 2 MiB for each GiB.
const BESIDE: Bytes = Bytes::from_mib(64);
/// What a run in a heap file has beside the heap's memory: code, stacks of threads, what the library has for itself. 18 MiB were found with
/// 256 MiB of memory and with 288.
const OUTSIDE: Bytes = Bytes::from_mib(24);
/// What is timed, by the program's names.
const CASES: [&str; 4] = ["fill", "sum", "index", "sort"];
/// The program.
const PROGRAM: &str = include_str!("heap_numpy.py");

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    memory_percent: f64,
    size_bytes: u64,
    seconds: f64,
    low: f64,
    high: f64,
    /// The seconds of the way to swap that is best in this case through these, in the same round: the median, the least and the
    /// most of all rounds.
    over_swap: f64,
    over_swap_low: f64,
    over_swap_high: f64,
    rounds: usize,
}

/// The seconds of each case in one run.
type Sample = [f64; CASES.len()];

/// A program, and the memory that it has.
struct Trial<'a> {
    setting: &'a Setting,
    python: &'a Python,
    program: &'a Path,
    size: Bytes,
    memory: Bytes,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    if let Some(why) = without_heap(setting) {
        return Err(Error::NotPossible(why));
    }
    let size = fitting_size(setting, SIZE, 2)?;
    let mut bench = Bench::open(setting)?;
    bypass_zswap(bench.settings())?;
    progress("making a virtual environment of Python's")?;
    let python = Python::new(setting)?;
    let program = &python.write("heap_numpy.py", PROGRAM)?;
    warm(setting, size)?;
    let own = || MEMORY.iter().map(|percent| Share::percent(*percent)).collect();
    let shares: Vec<Share> = if setting.memory.is_empty() { own() } else { setting.memory.clone() };
    let mut report = Report::default();
    for share in shares {
        let trial = Trial { setting, python: &python, program, size, memory: share.of(size) };
        let all = trial.measure(&mut bench, progress)?;
        rows(&trial, &all).iter().try_for_each(|row| report.push(row))?;
    }
    report.notes.push(note(size));
    Ok(report)
}

impl Trial<'_> {
    /// Runs all rounds, another policy first in each.
    fn measure(
        &self,
        bench: &mut Bench,
        progress: Progress<'_>,
    ) -> Result<[(Policy, Vec<Sample>); Policy::FOR_A_PART.len()]> {
        let mut all = Policy::FOR_A_PART.map(|policy| (policy, Vec::new()));
        let (memory, rounds) = (self.memory, self.setting.rounds);
        let mut found = None;
        for round in 0..rounds as usize {
            for turn in 0..all.len() {
                let (policy, samples) = &mut all[(turn + round) % Policy::FOR_A_PART.len()];
                let name = policy.name();
                progress(&format!("{memory}, {name}: round {} of {rounds}", round + 1))?;
                let said = self.run(*policy, bench)?;
                let unexpected = || Error::Child("a program has not said what was expected".into());
                samples.push(sample(&said).ok_or_else(unexpected)?);
                if found.get_or_insert_with(|| said["found"].clone()) != &said["found"] {
                    return Err(Error::Child(format!("{name} has found something else")));
                }
            }
        }
        Ok(all)
    }

    /// Runs the program; what it says.
    fn run(&self, policy: Policy, bench: &mut Bench) -> Result<Value> {
        policy.prepare(bench)?;
        if policy == Policy::InMemory {
            return self.object(&[]);
        }
        let explain = |error| Error::Child(format!("a directory: {error}"));
        let directory = TempDir::new_in(&self.setting.directory).map_err(explain)?;
        let swap = policy.is_swap().then(|| swap_file(self.setting, Bytes(self.size.0 * SWAP)));
        let _swap = swap.transpose()?;
        let group = group(self.setting)?;
        group.limit(self.memory + BESIDE)?;
        let mut words = group.words();
        if policy == Policy::XHeap {
            let launcher = self.setting.launcher.program.to_string_lossy().into_owned();
            words.extend([launcher, "run".into(), "--quiet".into()]);
            let memory = self.memory + BESIDE - OUTSIDE;
            words.extend(heap_options(directory.path(), memory, self.size));
            words.push("--".to_owned());
        }
        while_counted(group.group(), || self.object(&words))
    }

    /// Runs the program by the words of a command, without words by itself.
    fn object(&self, words: &[String]) -> Result<Value> {
        let python = self.python.command();
        let mut command = match words.split_first() {
            Some((first, others)) => {
                let mut command = Command::new(first);
                command.args(others).arg(python.get_program()).args(python.get_args());
                command
            }
            None => python,
        };
        object(command.arg(self.program).arg(self.size.0.to_string()))
    }
}

/// The seconds that the program says.
fn sample(said: &Value) -> Option<Sample> {
    let mut sample = [0.0; CASES.len()];
    for (case, seconds) in CASES.iter().zip(&mut sample) {
        *seconds = said["seconds"][case].as_f64()?;
    }
    Some(sample)
}

/// The rows of one amount of memory.
fn rows(trial: &Trial<'_>, all: &[(Policy, Vec<Sample>)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, case) in CASES.into_iter().enumerate() {
        let swap = all.iter().filter(|(policy, _)| policy.is_swap());
        let took = |samples: &[Sample]| median(samples.iter().map(|sample| sample[at]));
        let best = swap.min_by(|(_, a), (_, b)| took(a).total_cmp(&took(b)));
        for (policy, samples) in all {
            let each = || samples.iter().map(|sample| sample[at]);
            let least = |of: &[f64]| rounded(of.iter().copied().fold(f64::INFINITY, f64::min), 3);
            let most = |of: &[f64]| rounded(of.iter().copied().fold(0.0, f64::max), 3);
            let pairs = best.iter().flat_map(|(_, best)| best.iter().zip(samples));
            let over: Vec<f64> = pairs.map(|(best, own)| best[at] / own[at]).collect();
            let seconds: Vec<f64> = each().collect();
            rows.push(Row {
                case,
                policy: policy.name(),
                memory_percent: rounded(trial.memory.share_of(trial.size).get() * 100.0, 1),
                size_bytes: trial.size.0,
                seconds: rounded(took(samples), 3),
                low: least(&seconds),
                high: most(&seconds),
                over_swap: rounded(median(over.iter().copied()), 3),
                over_swap_low: least(&over),
                over_swap_high: most(&over),
                rounds: samples.len(),
            });
        }
    }
    rows
}

fn note(size: Bytes) -> String {
    format!(
        "An array of {size} of float64 in a process of its own: fill, with random numbers, 8 MiB at a time; sum; index, as many single \
         elements at random as the array has base pages, and the sum of them; sort, in place. One cgroup with a limit of memory % of the \
         array and {BESIDE} holds everything of a run on swap, and of one in a heap file alike; --memory of xheap is {OUTSIDE} less. in-memory \
         has no limit, and huge pages from the first touch on. What is found is compared between all runs. Swap is a file of {SWAP} times \
         the array, used before any other, zswap off; swap-4k: enabled = never, swap-thp: always, khugepaged at its defaults; the last \
         number is vm.page-cluster. Over swap: the seconds of the way to swap with the least median in this case through a row's, in the \
         same round: the median, the least and the most of all rounds."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_program_says_the_seconds_of_each_case() {
        let said = json!({"seconds": {"fill": 1.0, "sum": 2.5, "index": 3, "sort": 4.0}, "found": [0.5, 1.5]});
        assert_eq!(sample(&said), Some([1.0, 2.5, 3.0, 4.0]));
        assert_eq!(sample(&json!({"seconds": {"fill": 1.0}})), None);
    }
}
