//! `graph-peers`: four kernels on graphs beside the Python packages that have them, on one thread each. No paper has it.
//!
//! The packages are installed in a virtual environment that is removed afterwards. All run on the same files from the same
//! sources and on the same CPU, because not every package has a setting for its threads, and `graph_peers.py` compares the
//! result of the last trial with ours.

use super::support_bench::{fitting_size, median, rounded};
use super::support_graph::{Graphs, KERNELS, Kind, Policy, output};
use super::support_python::{Python, object};
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use crate::server::cores;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-peers",
    source: "no paper",
    summary: "BFS, shortest paths, PageRank and components beside NetworKit, igraph, SciPy and graph-mate, one thread each",
    on: On::Live,
    columns: &[
        ("case", "case"),
        ("policy", "package"),
        ("seconds", "s"),
        ("low", "fastest"),
        ("high", "slowest"),
        ("faster_by", "ours is faster by"),
        ("faster_by_default", "on default pages by"),
        ("graph_s", "graph s"),
        ("same", "same"),
        ("result", "result"),
    ],
    run: &run,
};

/// Memory of the largest of the packages' processes where nobody says how much. Chosen: a round takes some two minutes then.
const SIZE: Bytes = Bytes::from_gib(1);
/// Memory that the largest of them, igraph's with weights, takes for each vertex with 16 edges.
const VERTEX_BYTES: u64 = 4096; // tidy: allow(measured, not a page)
/// Trials of a kernel in one process. Those of a kernel that begins somewhere are from as many sources.
const TRIALS: u32 = 3;
const KINDS: [Kind; 2] = [Kind::Kronecker, Kind::Uniform];
/// The program that runs a package's kernel.
const PROGRAM: &str = include_str!("graph_peers.py");
/// The setting that decides where memory gets huge pages unasked.
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Our pages: those of all arrays.
const OURS: [(&str, &str); 2] =
    [("superpage, huge pages", "huge"), ("superpage, default pages", "default")];

/// A Python package.
#[derive(Clone, Copy, Debug)]
struct Peer {
    name: &'static str,
    /// Its name in the package registry.
    package: &'static str,
    kernels: &'static [&'static str],
}

const PEERS: [Peer; 4] = [
    Peer { name: "NetworKit", package: "networkit", kernels: &KERNELS },
    Peer { name: "igraph", package: "igraph", kernels: &KERNELS },
    Peer { name: "SciPy", package: "scipy", kernels: &["bfs", "sssp", "cc"] },
    Peer { name: "graph-mate", package: "graph-mate", kernels: &["pr", "cc"] },
];

/// The findings of one process.
#[derive(Clone, Debug)]
struct Sample {
    /// The package's version; none of ours.
    version: Option<String>,
    /// The median of its trials.
    seconds: f64,
    /// The time from the file to a graph that the kernel runs on.
    graph: f64,
    same: Option<bool>,
    result: String,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    case: &'a str,
    policy: String,
    scale: u32,
    seconds: f64,
    low: f64,
    high: f64,
    /// The seconds of this row through those of ours on huge pages in the same round; the median of the rounds.
    faster_by: f64,
    /// The same with ours on the pages that memory gets unasked.
    faster_by_default: f64,
    graph_s: f64,
    /// Whether the result was the same as ours in all rounds.
    same: Option<bool>,
    result: &'a str,
    rounds: usize,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let scale = (fitting_size(setting, SIZE, 1)?.0 / VERTEX_BYTES).max(1).ilog2();
    let mut report = Report::default();
    progress("making a virtual environment of Python's")?;
    let python = Python::new(setting)?;
    let mut peers = Vec::new();
    for peer in PEERS {
        progress(&format!("installing {}", peer.name))?;
        match python.install([peer.package]) {
            Ok(()) => peers.push(peer),
            Err(why) => report.notes.push(format!("{} cannot be installed: {why}", peer.name)),
        }
    }
    let program = python.write("graph_peers.py", PROGRAM)?;
    let graphs = Graphs::of_scale(setting, scale)?;
    for kind in KINDS {
        for kernel in KERNELS {
            let name = format!("{kernel}, {}", kind.name());
            progress(&format!("{name}: making the graph"))?;
            let file = graphs.file(kind, kernel, Policy::BASE.group)?;
            let bench = Bench { setting, python: &python, program: &program, kernel, file, scale };
            bench.case(&name, &peers, &mut report, progress)?;
        }
    }
    report.notes.push(note(scale));
    Ok(report)
}

/// A kernel, and the graph that everybody runs it on.
struct Bench<'a> {
    setting: &'a Setting,
    python: &'a Python,
    program: &'a Path,
    kernel: &'static str,
    file: PathBuf,
    scale: u32,
}

impl Bench<'_> {
    /// Runs the kernel by turns, round by round, and adds a row for each who ran it.
    fn case(
        &self,
        name: &str,
        peers: &[Peer],
        report: &mut Report,
        progress: Progress<'_>,
    ) -> Result<()> {
        let _cpu = OneCpu::stay()?;
        let mut peers: Vec<_> =
            peers.iter().filter(|peer| peer.kernels.contains(&self.kernel)).collect();
        let mut ours = OURS.map(|_| Vec::new());
        let mut theirs: Vec<Vec<Sample>> = vec![Vec::new(); peers.len()];
        for round in 1..=self.setting.rounds {
            let mut say = |who: &str| {
                progress(&format!("{name}: {who}, round {round} of {}", self.setting.rounds))
            };
            let mut sources = Vec::new();
            for ((who, pages), samples) in OURS.iter().zip(&mut ours) {
                say(who)?;
                let (sample, from) = self.ours(pages)?;
                samples.push(sample);
                sources = from;
            }
            for at in (0..peers.len()).rev() {
                say(peers[at].name)?;
                match self.peer(peers[at], &sources) {
                    Ok(sample) => theirs[at].push(sample),
                    Err(Error::Child(why)) => {
                        // The signal that interrupts us ends its process too.
                        say(peers[at].name)?;
                        report.notes.push(format!("{name}: {}: {why}", peers[at].name));
                        peers.remove(at);
                        theirs.remove(at);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let names = OURS.iter().map(|(who, _)| *who).chain(peers.iter().map(|peer| peer.name));
        for (who, samples) in names.zip(ours.iter().chain(&theirs)) {
            self.row((name, who), samples, &ours, report)?;
        }
        Ok(())
    }

    /// Runs ours, and writes its result to a file; also the sources.
    fn ours(&self, pages: &str) -> Result<(Sample, Vec<String>)> {
        let trials = TRIALS.to_string();
        let mut command = Command::new(&self.setting.launcher.program);
        command.args(["graph", "run", self.kernel]).arg(&self.file);
        command.args(["--json", "--verify", "--threads", "1", "--output"]).arg(self.result());
        for array in ["--pages", "--vertex-pages", "--edge-pages", "--values-pages"] {
            command.args([array, pages]);
        }
        match begins_somewhere(self.kernel) {
            true => command.args(["--sources", &trials, "--repeat", "1"]),
            false => command.args(["--repeat", &trials]),
        };
        let said = output(&mut command)?;
        serde_json::from_slice(&said).ok().and_then(|found: Value| ours(&found)).ok_or_else(unclear)
    }

    /// Runs a package's kernel from these sources, and compares its result with ours.
    fn peer(&self, peer: &Peer, sources: &[String]) -> Result<Sample> {
        let mut command = self.python.command();
        for threads in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"] {
            command.env(threads, "1");
        }
        command.arg(self.program).args([peer.name, self.kernel]).arg(&self.file);
        command.arg(self.result()).arg(TRIALS.to_string()).args(sources);
        sample(&object(&mut command)?).ok_or_else(unclear)
    }

    /// The file that our result is in.
    fn result(&self) -> PathBuf {
        self.python.path("result")
    }

    fn row(
        &self,
        (case, who): (&str, &str),
        samples: &[Sample],
        [huge, default]: &[Vec<Sample>; OURS.len()],
        report: &mut Report,
    ) -> Result<()> {
        let Some(last) = samples.last() else { return Ok(()) };
        let of = |value: fn(&Sample) -> f64| samples.iter().map(value);
        // The machine's speed changes over minutes, so a run is compared with those of its round.
        let faster_by = |ours: &[Sample]| {
            let pairs = ours.iter().zip(samples);
            rounded(median(pairs.map(|(ours, own)| own.seconds / ours.seconds)), 2)
        };
        let version = last.version.as_ref().map(|version| format!(" {version}"));
        report.push(&Row {
            case,
            policy: format!("{who}{}", version.unwrap_or_default()),
            scale: self.scale,
            seconds: rounded(median(of(|sample| sample.seconds)), 5),
            low: rounded(of(|sample| sample.seconds).fold(f64::INFINITY, f64::min), 5),
            high: rounded(of(|sample| sample.seconds).fold(0.0, f64::max), 5),
            faster_by: faster_by(huge),
            faster_by_default: faster_by(default),
            graph_s: rounded(median(of(|sample| sample.graph)), 3),
            same: last.same.map(|_| samples.iter().all(|sample| sample.same == Some(true))),
            result: &last.result,
            rounds: samples.len(),
        })
    }
}

/// Keeps this thread and all processes that it starts on one CPU, until this is dropped.
struct OneCpu {
    before: CpuSet,
}

impl OneCpu {
    fn stay() -> Result<Self> {
        let explain = |errno| Error::NotPossible(format!("no CPU can be chosen: {errno}"));
        let before = sched_getaffinity(None).map_err(explain)?;
        let (first, _) = cores(None)?;
        sched_setaffinity(None, &first).map_err(explain)?;
        Ok(Self { before })
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Whether the kernel begins at a vertex.
fn begins_somewhere(kernel: &str) -> bool {
    matches!(kernel, "bfs" | "sssp")
}

fn unclear() -> Error {
    Error::Child("a program has not said what was expected".to_owned())
}

/// The sample that `graph run` says, and the sources.
fn ours(found: &Value) -> Option<(Sample, Vec<String>)> {
    let sources = found["sources"].as_array()?.iter().map(Value::to_string).collect();
    let sample = Sample {
        version: None,
        seconds: found["median_s"].as_f64()?,
        graph: found["reading_s"].as_f64()?,
        same: None,
        result: format!("{}; verified", found["result"].as_str()?),
    };
    (found["verified"] == true && found["threads"] == 1).then_some((sample, sources))
}

/// The sample that the Python program says.
fn sample(found: &Value) -> Option<Sample> {
    let seconds: Option<Vec<f64>> =
        found["seconds"].as_array()?.iter().map(Value::as_f64).collect();
    Some(Sample {
        version: Some(found["version"].as_str()?.to_owned()),
        seconds: median(seconds?),
        graph: found["built_s"].as_f64()?,
        same: Some(found["same"].as_bool()?),
        result: found["result"].as_str()?.to_owned(),
    })
}

fn note(scale: u32) -> String {
    let enabled = std::fs::read_to_string(ENABLED).unwrap_or_default();
    let enabled = enabled.trim();
    format!(
        "Graphs of scale {scale}, 16 edges drawn for each vertex, both ways; shortest paths with weights from 1 to 255. Ours is \
         `superpage graph run --threads 1` with all arrays on huge pages, and on default pages, which are those that memory gets \
         unasked, as a package's does (transparent_hugepage/enabled was {enabled:?}). Each process runs the kernel \
         {TRIALS} times after one run that does not count (ours: one from each source), BFS and shortest paths from as many sources, the same ones for all; its \
         median counts, and rows are medians of the rounds. All stay on one CPU while they take turns. Timed is the call of the \
         kernel alone; graph s: from the file to a graph that the kernel runs on. The times of igraph and SciPy have the making of \
         Python's lists and NumPy's arrays for the result in them, because their calls return \
         these. PageRank: damping 0.85, until an iteration changes scores by less than 1e-4 in the L1 norm; igraph's PRPACK \
         has a tolerance of its own (1e-10) that cannot be set, so that it does more. SciPy has no PageRank, graph-mate neither \
         searches nor paths. Shortest paths: delta-stepping here, Dijkstra's algorithm in the packages. Same: the same vertices \
         reached, distances, components; scores as near as the tolerance says once both are divided by their sum."
    )
}
