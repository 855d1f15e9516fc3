//! `graph-oversubscribed`: kernels on a graph that has less memory than its arrays take: the rest on swap, on base pages and on
//! huge ones, or in a heap file (graph paper, section 4.3.1, "High Memory Pressure").
//!
//! Different from the paper: memory is limited by a cgroup, not by a process that holds the machine's, so that others are not
//! swapped out; and the deficit is a share of the arrays.

use super::support_bench::{Bench, median, rounded};
use super::support_graph::{Graphs, Kind, Outcome, Policy, Trials, run_and_read};
use super::support_heap::bypass_zswap;
use super::support_heap_trial::{
    ALLOWANCE, group, heap_options, swap_file, while_counted, without_heap,
};
use super::support_regime::{Khugepaged, set_enabled};
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use serde::Serialize;
use std::path::Path;
use std::process::Command;
use superpage_units::{Bytes, Share};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-oversubscribed",
    source: "Graph page sizes, section 4.3.1",
    summary: "Slowdown of graph kernels with less memory than their arrays take: on swap, and in a heap file",
    on: On::Live,
    columns: &[
        ("case", "case"),
        ("policy", "policy"),
        ("memory_percent", "memory %"),
        ("seconds", "s"),
        ("slowdown", "slowdown"),
        ("paper_slowdown", "in the paper"),
        ("huge_bytes", "huge"),
    ],
    run: &run,
};

/// A kernel that touches few edges, and one that touches all.
const KERNELS: [&str; 2] = ["bfs", "pr"];
/// The trials of a run: one, after one that does not count, because a trial on swap takes minutes.
const TRIALS: Trials = Trials { count: 1, iterations: 2 };
/// Memory as a share of the arrays, in percent, where nobody says another one: a deficit as in the paper, and a larger one.
const MEMORY: [u8; 2] = [95, 75];

/// The least size of the arrays: with less the kernel kills the program, because the buffers that it reads the graph by cannot
/// be swapped out (seen with 64 MiB, not with 256).
const LEAST: Bytes = Bytes::from_mib(256);

/// Where arrays are that memory has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Memory has room for all.
    Nowhere,
    Swap,
    Heap,
}

/// A run to be compared: the name in rows, the pages, the rest, and the paper's slowdown.
type Way = (&'static str, Policy, Rest, Option<f64>);

const WAYS: [Way; 6] = [
    ("linux-4k, room for all", Policy::BASE, Rest::Nowhere, Some(1.0)),
    ("linux, room for all", Policy::LINUX, Rest::Nowhere, None),
    ("linux-4k, swap", Policy::BASE, Rest::Swap, Some(24.6)),
    ("linux, swap", Policy::LINUX, Rest::Swap, Some(23.6)),
    ("property, swap", Policy::PROPERTY, Rest::Swap, None),
    ("xheap", Policy::LINUX, Rest::Heap, None),
];

#[derive(Debug, Serialize)]
struct Row<'a> {
    case: &'a str,
    policy: &'static str,
    scale: u32,
    /// The memory of the rows that a row is compared with; where memory has room for all, it has no limit.
    memory_percent: f64,
    seconds: f64,
    low: f64,
    high: f64,
    /// The seconds through those of `linux-4k` with room for all, in the same round; the median of the rounds.
    slowdown: f64,
    paper_slowdown: Option<f64>,
    huge_bytes: u64,
    rounds: usize,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    if setting.size.is_some_and(|size| size < LEAST) {
        let why = format!(
            "arrays of less than {LEAST} leave no memory to read the graph with: choose a larger --size"
        );
        return Err(Error::NotPossible(why));
    }
    let graphs = Graphs::new(setting)?;
    let mut bench = Bench::open(setting)?;
    bypass_zswap(bench.settings())?;
    let mut report = Report::default();
    let mut ways = WAYS.to_vec();
    if let Some(why) = without_heap(setting) {
        ways.retain(|(_, _, rest, _)| *rest != Rest::Heap);
        report.notes.push(format!("xheap is left out: {why}"));
    }
    let shares: Vec<Share> = match setting.memory.as_slice() {
        [] => MEMORY.map(Share::percent).to_vec(),
        asked => asked.to_vec(),
    };
    for kernel in KERNELS {
        let case = format!("{kernel}, {}", Kind::Kronecker.name());
        progress(&format!("{case}: making the graph"))?;
        let file = graphs.file(Kind::Kronecker, kernel, Policy::BASE.group)?;
        let (arrays, memory) = (Bytes::ZERO, Bytes::ZERO);
        let mut trial = Trial { setting, kernel, file: &file, arrays, memory };
        trial.arrays = trial.run(Policy::BASE, Rest::Nowhere, &mut bench)?.all;
        for share in &shares {
            trial.memory = share.of(trial.arrays);
            let name = format!("{case}, {:.0} %", share.get() * 100.0);
            let found = trial.rounds(&ways, &name, &mut bench, progress)?;
            add_rows((&case, graphs.scale, *share), &ways, &found, &mut report)?;
        }
    }
    report.notes.push(format!(
        "A graph of scale {}, 16 edges drawn for each vertex, both ways, read in the same memory. Memory: as a share of the \
         arrays, with {ALLOWANCE} beside for the program; on swap within the limit and in a heap beside its memory are PageRank's \
         scores (3 % of the arrays), which are on base pages. Swap: a swap file, and a cgroup with that limit. xheap: `superpage run \
         --heap DIR --memory SIZE`. Huge: memory of the arrays on huge pages at the end. Slowdown: a trial (of pr with {} \
         iterations), after one that does not count, over that of linux-4k with room for all in the same round. The paper has a deficit of 0 to 0.5 GB beside 3 to 25.",
        graphs.scale, TRIALS.iterations
    ));
    Ok(report)
}

/// Adds a row for each way. The first is what others are compared with.
fn add_rows(
    (case, scale, share): (&str, u32, Share),
    ways: &[Way],
    found: &[Vec<Outcome>],
    report: &mut Report,
) -> Result<()> {
    let base = found.first().map_or(&[][..], Vec::as_slice);
    for ((policy, _, _, paper), outcomes) in ways.iter().zip(found) {
        let seconds = || outcomes.iter().map(|outcome| outcome.seconds);
        let pairs = base.iter().zip(outcomes);
        let slowdown = median(pairs.map(|(base, own)| own.seconds / base.seconds));
        let huge = median(outcomes.iter().map(|outcome| outcome.huge.0 as f64));
        report.push(&Row {
            case,
            policy,
            scale,
            memory_percent: rounded(share.get() * 100.0, 1),
            seconds: rounded(median(seconds()), 4),
            low: rounded(seconds().fold(f64::INFINITY, f64::min), 4),
            high: rounded(seconds().fold(0.0, f64::max), 4),
            slowdown: rounded(slowdown, 3),
            paper_slowdown: *paper,
            huge_bytes: Bytes(1).scaled(huge).0,
            rounds: outcomes.len(),
        })?;
    }
    Ok(())
}

/// A kernel on a graph, with memory for a part of the arrays.
#[derive(Clone, Copy)]
struct Trial<'a> {
    setting: &'a Setting,
    kernel: &'static str,
    file: &'a Path,
    /// The size of all arrays.
    arrays: Bytes,
    memory: Bytes,
}

impl Trial<'_> {
    /// Runs all rounds, in each of which the ways take turns: the outcomes of each way.
    fn rounds(
        &self,
        ways: &[Way],
        name: &str,
        bench: &mut Bench,
        progress: Progress<'_>,
    ) -> Result<Vec<Vec<Outcome>>> {
        let mut found: Vec<Vec<Outcome>> = vec![Vec::new(); ways.len()];
        for round in 1..=self.setting.rounds {
            for ((way, policy, rest, _), outcomes) in ways.iter().zip(&mut found) {
                progress(&format!("{name}, {way}: round {round} of {}", self.setting.rounds))?;
                outcomes.push(self.run(*policy, *rest, bench)?);
            }
        }
        Ok(found)
    }

    fn run(&self, policy: Policy, rest: Rest, bench: &mut Bench) -> Result<Outcome> {
        set_enabled(bench, policy.enabled)?;
        Khugepaged::Asleep.set(bench)?;
        let mut words = vec![self.setting.launcher.program.to_string_lossy().into_owned()];
        words.extend(policy.words(self.kernel, self.file, TRIALS));
        match rest {
            Rest::Nowhere => run_and_read(&mut command(&words)),
            Rest::Swap => {
                let _swap = swap_file(self.setting, self.arrays)?;
                let group = group(self.setting)?;
                group.limit(self.memory + ALLOWANCE)?;
                let words = [group.words(), words].concat();
                while_counted(group.group(), || run_and_read(&mut command(&words)))
            }
            Rest::Heap => {
                let heap = heap_options(&self.setting.directory, self.memory, self.arrays);
                let mut under = vec![words[0].clone(), "run".into(), "--quiet".into()];
                under.extend(heap);
                under.push("--".into());
                run_and_read(&mut command(&[under, words].concat()))
            }
        }
    }
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(words.first().map_or("", String::as_str));
    command.args(words.get(1..).unwrap_or_default());
    command
}
