//! Kernels on graphs, each run a `superpage graph run` of its own: on which pages, under what pressure on memory, and what came
//! out. The figures of the graph paper say which runs stand beside each other.
//!
//! Different from the paper (section 3): the graphs are generated ones, smaller, and of this machine's size; free memory beyond
//! what a run takes is a share of it where the paper has 0.5 and 3 GB beside 3 to 25; and what is fragmented is pinned from user
//! space, where the paper has a kernel module.

use super::support_bench::{Bench, fitting_size, median, rounded};
use super::support_regime::set_enabled;
use super::{Content, Error, Picture, Progress, Report, Result, Run, Setting};
use crate::picture;
use crate::pressure::{self, Pressure};
use rustix::fs::{Advice, fadvise};
use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use superpage_kernel::meminfo;
use superpage_kernel::thp::Enabled;
use superpage_units::{Bytes, Share};
use tempfile::TempDir;

/// The columns of all these experiments.
pub(super) const COLUMNS: &[(&str, &str)] = &[
    ("case", "case"),
    ("policy", "policy"),
    ("seconds", "s"),
    ("over_base", "over base"),
    ("over_huge", "over huge"),
    ("paper_over_base", "in the paper"),
    ("huge_bytes", "huge"),
    ("huge_share", "of memory"),
    ("property_share", "of property"),
    ("grouping_s", "grouping s"),
];

/// Memory of a graph's arrays where nobody says how much. Chosen: its property array is larger than a processor's TLB reaches.
const SIZE: Bytes = Bytes::from_mib(1024); // tidy: allow(megabytes, not base pages)
/// Bytes of the edge array for each vertex: 16 edges that are drawn, both ways.
const EDGE_BYTES: u64 = 128;
/// Trials of a kernel in one process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trials {
    pub(super) count: u32,
    /// Iterations in each trial of PageRank. It needs another number of them in another order of vertices, and trials are to
    /// do the same work.
    pub(super) iterations: u32,
}

/// Trials where nothing else is said, of all kernels but SSSP. Chosen, not measured.
const TRIALS: Trials = Trials { count: 3, iterations: 5 };
/// Trials of SSSP, each of which takes as long as several of another kernel.
const SSSP_TRIALS: Trials = Trials { count: 1, ..TRIALS };
/// Memory that a run takes beside the arrays: its program, buffers, frontiers. Chosen.
const BESIDE: Bytes = Bytes::from_mib(192);

/// The kernels; the paper has the first three.
pub(super) const KERNELS: [&str; 4] = ["bfs", "sssp", "pr", "cc"];
/// Free memory beyond what a run needs, as a share of that: the paper has 3 GB beside 3 to 25.
pub(super) const BEYOND: f64 = 0.35;
/// The share of it that is fragmented: the paper's.
pub(super) const FRAGMENTED: f64 = 0.5;

/// A generated graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Kronecker,
    Uniform,
    BlockModel,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Kronecker, Self::Uniform, Self::BlockModel];

    /// The name on the command line and in rows.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kronecker => "kronecker",
            Self::Uniform => "uniform",
            Self::BlockModel => "block-model",
        }
    }
}

/// Graphs in files, made once.
#[derive(Debug)]
pub(super) struct Graphs<'a> {
    setting: &'a Setting,
    directory: TempDir,
    pub(super) scale: u32,
}

impl<'a> Graphs<'a> {
    /// No graphs yet, of the size that was asked for.
    pub(super) fn new(setting: &'a Setting) -> Result<Self> {
        let size = fitting_size(setting, SIZE, 3)?;
        Self::of_scale(setting, (size.0 / EDGE_BYTES).max(1).ilog2())
    }

    /// No graphs yet, in a directory of their own on the disk.
    pub(super) fn of_scale(setting: &'a Setting, scale: u32) -> Result<Self> {
        let directory = TempDir::with_prefix_in("superpage-graphs", &setting.directory);
        let directory = directory.map_err(|error| {
            Error::NotPossible(format!("no directory in {}: {error}", setting.directory.display()))
        })?;
        Ok(Self { setting, directory, scale })
    }

    /// The file of a graph, with weights for SSSP, its vertices in an order.
    pub(super) fn file(&self, kind: Kind, kernel: &str, group: &str) -> Result<PathBuf> {
        let ending = if kernel == "sssp" { "wsg" } else { "sg" };
        let file = self.directory.path().join(format!("{}-{group}.{ending}", kind.name()));
        if !file.exists() && group != Policy::BASE.group {
            let from = self.file(kind, kernel, Policy::BASE.group)?;
            let mut command = Command::new(&self.setting.launcher.program);
            command.args(["graph", "convert", "--group", group]).arg(from).arg(&file);
            output(&mut command)?;
        } else if !file.exists() {
            let scale = self.scale.to_string();
            let words = ["graph", "generate", kind.name(), "--scale", &scale];
            let mut command = Command::new(&self.setting.launcher.program);
            output(command.args(words).arg(&file))?;
        }
        Ok(file)
    }
}

/// The kernel's setting, and the pages that a run asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Policy {
    /// The name in rows.
    pub(super) name: &'static str,
    /// The kernel's setting.
    pub(super) enabled: Enabled,
    /// The pages of the property array, and of the vertex, edge and values arrays.
    pub(super) property: &'static str,
    pub(super) vertex: &'static str,
    pub(super) edge: &'static str,
    pub(super) values: &'static str,
    pub(super) group: &'static str,
    /// When the property array is made.
    pub(super) when: &'static str,
    /// Whether the graph is read through the page cache.
    pub(super) is_cached: bool,
}

impl Policy {
    /// Base pages only.
    pub(super) const BASE: Self = Self {
        name: "linux-4k",
        enabled: Enabled::Never,
        property: "base",
        vertex: "base",
        edge: "base",
        values: "base",
        group: "none",
        when: "last",
        is_cached: false,
    };

    /// The pages that the kernel gives where all memory may have huge pages.
    pub(super) const LINUX: Self = Self {
        name: "linux",
        enabled: Enabled::Always,
        property: "default",
        vertex: "default",
        edge: "default",
        values: "default",
        ..Self::BASE
    };

    /// Huge pages for all arrays.
    pub(super) const HUGE: Self = Self {
        name: "huge",
        enabled: Enabled::Madvise,
        property: "huge",
        vertex: "huge",
        edge: "huge",
        values: "huge",
        ..Self::BASE
    };

    /// Huge pages for the property array, which is made first.
    pub(super) const PROPERTY: Self = Self {
        name: "property",
        enabled: Enabled::Madvise,
        property: "huge",
        when: "first",
        ..Self::BASE
    };

    /// Huge pages for the hottest fifth of the property array, vertices grouped by degree.
    pub(super) const HOT: Self =
        Self { name: "dbg+huge:20%", property: "huge:20%", group: "dbg", ..Self::PROPERTY };

    /// The arguments by which `superpage` runs a kernel on the graph in a file.
    pub(super) fn words(&self, kernel: &str, file: &Path, trials: Trials) -> Vec<String> {
        let mut words = vec!["graph", "run", kernel];
        let (file, count) = (file.to_string_lossy(), trials.count.to_string());
        words.extend([&*file, "--json", "--repeat", &count]);
        words.extend(["--pages", self.property, "--vertex-pages", self.vertex]);
        words.extend(["--edge-pages", self.edge, "--values-pages", self.values]);
        words.extend(["--group", self.group, "--property", self.when]);
        let iterations = trials.iterations.to_string();
        if kernel == "pr" {
            words.extend(["--iterations", &iterations]);
        }
        if self.is_cached {
            words.push("--cached");
        }
        words.into_iter().map(str::to_owned).collect()
    }

    /// The same policy under another name.
    pub(super) const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

/// The name of the policy with huge pages for the values array only.
pub(super) const VALUES: &str = "values";

/// Pressure on memory while a run has its arrays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Free {
    /// Free memory beyond what the run takes, as a share of that; nothing: all that is free.
    beyond: Option<f64>,
    /// The share of the free memory that no huge page can be had from.
    fragmented: f64,
}

/// The result of one run: its median time, and the memory on huge pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) seconds: f64,
    grouping: f64,
    pub(super) huge: Bytes,
    /// All arrays.
    pub(super) all: Bytes,
    property_huge: Bytes,
    property: Bytes,
}

/// Runs a kernel once, with its trials. Under pressure the vertices were put in order before, as the paper does it: renumbering
/// has two graphs in memory.
fn run(
    (graphs, bench): (&Graphs<'_>, &mut Bench),
    (kind, kernel): (Kind, &str),
    variant: &Variant,
) -> Result<Outcome> {
    let (setting, policy) = (graphs.setting, &variant.policy);
    let (before, now) = match variant.free.beyond {
        Some(_) => (policy.group, Policy::BASE.group),
        None => (Policy::BASE.group, policy.group),
    };
    let file = graphs.file(kind, kernel, before)?;
    set_enabled(bench, policy.enabled)?;
    let trials = if kernel == "sssp" { SSSP_TRIALS } else { TRIALS };
    let words = Policy { group: now, ..*policy }.words(kernel, &file, trials);
    let outcome = run_and_read(Command::new(&setting.launcher.program).args(words));
    if policy.is_cached {
        drop_cached(&file);
    }
    outcome
}

/// Drops a file from the page cache, so that the next run does not find it there. A failure does no harm.
fn drop_cached(file: &Path) {
    if let Ok(file) = File::open(file) {
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
    }
}

/// Runs a command of `graph run`, and reads its row.
pub(super) fn run_and_read(command: &mut Command) -> Result<Outcome> {
    let said = output(command)?;
    serde_json::from_slice(&said)
        .ok()
        .and_then(|found: Value| outcome(&found))
        .ok_or_else(|| Error::Child("`graph run` has not said what was expected".to_owned()))
}

/// Holds memory, so that a run has only `free.beyond` more than it needs.
fn press(setting: &Setting, bench: &mut Bench, file: &Path, free: Free) -> Result<Vec<Pressure>> {
    let Some(beyond) = free.beyond else { return Ok(Vec::new()) };
    let length = std::fs::metadata(file).map_or(0, |found| found.len());
    // A file has what the arrays have, but for the property array.
    let wanted = Bytes(length).scaled((1.0 + beyond) * 1.05) + BESIDE;
    leave(setting, bench, wanted, free.fragmented)
}

/// Holds memory, so that `wanted` is left, of which a share (0 to 1) is fragmented.
pub(super) fn leave(
    setting: &Setting,
    bench: &mut Bench,
    wanted: Bytes,
    fragmented: f64,
) -> Result<Vec<Pressure>> {
    set_enabled(bench, Enabled::Madvise)?;
    let available = meminfo::obtainable(Path::new("/proc"))?;
    let held = available.saturating_sub(wanted);
    let mut taken = vec![pressure::hold(&setting.launcher, held)?];
    if fragmented > 0.0 {
        taken.push(pressure::fragment(&setting.launcher, Share::clamped(fragmented))?);
    }
    Ok(taken)
}

/// The output of a command that must end well.
pub(super) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let said =
        command.output().map_err(|error| Error::Child(format!("it did not start: {error}")))?;
    if said.status.success() {
        return Ok(said.stdout);
    }
    let words = String::from_utf8_lossy(&said.stderr).trim().to_owned();
    Err(Error::Child(format!("{command:?} ended with {}: {words}", said.status)))
}

fn outcome(found: &Value) -> Option<Outcome> {
    let mut outcome = Outcome {
        seconds: found["median_s"].as_f64()?,
        grouping: found["grouping_s"].as_f64()?,
        ..Outcome::default()
    };
    for array in found["arrays"].as_array()? {
        let bytes = |name: &str| array[name].as_u64().map(Bytes);
        let (size, huge) = (bytes("size_bytes")?, bytes("huge_bytes")? + bytes("gigantic_bytes")?);
        outcome.huge += huge;
        outcome.all += size;
        if array["name"] == "property" {
            (outcome.property, outcome.property_huge) = (size, huge);
        }
    }
    Some(outcome)
}

/// A run to be compared with others of its case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    policy: Policy,
    free: Free,
    /// The paper's speed over base pages, where it has a number.
    paper: Option<f64>,
}

impl Variant {
    /// A run without pressure on memory.
    pub(super) const fn free(policy: Policy) -> Self {
        Self { policy, free: Free { beyond: None, fragmented: 0.0 }, paper: None }
    }

    /// A run under pressure on memory.
    pub(super) const fn under(policy: Policy, beyond: f64, fragmented: f64) -> Self {
        Self { policy, free: Free { beyond: Some(beyond), fragmented }, paper: None }
    }

    /// The same run with the paper's number beside it.
    pub(super) const fn paper(self, over_base: f64) -> Self {
        Self { paper: Some(over_base), ..self }
    }
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    case: &'a str,
    policy: &'static str,
    scale: u32,
    seconds: f64,
    low: f64,
    high: f64,
    /// The seconds of `linux-4k` without pressure through those of the same round; the median of the rounds.
    over_base: Option<f64>,
    /// The same of `huge` without pressure.
    over_huge: Option<f64>,
    paper_over_base: Option<f64>,
    huge_bytes: u64,
    huge_share: f64,
    property_share: f64,
    grouping_s: f64,
    rounds: usize,
}

/// Runs the variants of a case by turns, round by round, and adds a row for each.
fn case(
    (graphs, bench): (&Graphs<'_>, &mut Bench),
    (kind, kernel): (Kind, &str),
    variants: &[Variant],
    report: &mut Report,
    progress: Progress<'_>,
) -> Result<()> {
    let name = format!("{kernel}, {}", kind.name());
    progress(&format!("{name}: making the graph"))?;
    let setting = graphs.setting;
    for group in variants.iter().map(|variant| variant.policy.group) {
        graphs.file(kind, kernel, group)?;
    }
    let file = graphs.file(kind, kernel, Policy::BASE.group)?;
    let mut found: Vec<Vec<Outcome>> = vec![Vec::new(); variants.len()];
    for round in 0..setting.rounds {
        let mut pressure = (Free::default(), Vec::new());
        for (variant, outcomes) in variants.iter().zip(&mut found) {
            let policy = variant.policy.name;
            progress(&format!("{name}: {policy}, round {} of {}", round + 1, setting.rounds))?;
            if pressure.0 != variant.free {
                // The pressure of the run before goes first.
                pressure.1.clear();
                pressure = (variant.free, press(setting, bench, &file, variant.free)?);
            }
            outcomes.push(run((graphs, bench), (kind, kernel), variant)?);
            pressure.1.iter().try_for_each(Pressure::check)?;
        }
    }
    let position = |name| variants.iter().position(|variant| variant.policy.name == name);
    // The machine's speed changes over minutes, so a run is compared with those of its round.
    let over = |at: Option<usize>, outcomes: &[Outcome]| {
        let pairs = found.get(at?)?.iter().zip(outcomes);
        Some(rounded(median(pairs.map(|(other, own)| other.seconds / own.seconds)), 3))
    };
    let (base, huge) = (position(Policy::BASE.name), position(Policy::HUGE.name));
    for (variant, outcomes) in variants.iter().zip(&found) {
        let each = || outcomes.iter().map(|outcome| outcome.seconds);
        let middle = |of: fn(&Outcome) -> f64| median(outcomes.iter().map(of));
        report.push(&Row {
            case: &name,
            policy: variant.policy.name,
            scale: graphs.scale,
            seconds: rounded(median(each()), 4),
            low: rounded(each().fold(f64::INFINITY, f64::min), 4),
            high: rounded(each().fold(0.0, f64::max), 4),
            over_base: over(base, outcomes),
            over_huge: over(huge, outcomes),
            paper_over_base: variant.paper,
            huge_bytes: Bytes(1).scaled(middle(|outcome| outcome.huge.0 as f64)).0,
            huge_share: rounded(middle(|outcome| outcome.huge.share_of(outcome.all).get()), 4),
            property_share: rounded(
                middle(|outcome| outcome.property_huge.share_of(outcome.property).get()),
                3,
            ),
            grouping_s: rounded(middle(|outcome| outcome.grouping), 3),
            rounds: outcomes.len(),
        })?;
    }
    Ok(())
}

/// Runs to be compared with one another, for each kernel on each kind of graph.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) kinds: &'static [Kind],
    pub(super) kernels: &'static [&'static str],
    pub(super) variants: &'static [Variant],
    /// The notes that stand below the table.
    pub(super) notes: &'static [&'static str],
}

impl Run for Comparison {
    fn run(
        &self,
        experiment: &'static str,
        setting: &Setting,
        progress: Progress<'_>,
    ) -> Result<Report> {
        let graphs = Graphs::new(setting)?;
        let mut bench = Bench::open(setting)?;
        let mut report = Report::default();
        for kind in self.kinds {
            for kernel in self.kernels {
                // A graph without weights has no values array.
                let has_values = *kernel == "sssp";
                let wanted = |variant: &&Variant| has_values || variant.policy.name != VALUES;
                let variants: Vec<Variant> = self.variants.iter().filter(wanted).copied().collect();
                let on = (&graphs, &mut bench);
                case(on, (*kind, kernel), &variants, &mut report, progress)?;
            }
        }
        report.pictures.push(picture(experiment, &report.rows));
        add_notes(&graphs, &mut report);
        report.notes.extend(self.notes.iter().map(|note| (*note).to_owned()));
        Ok(report)
    }
}

/// The speed of each row over base pages, a group for each case, with the paper's marked.
pub(super) fn picture(experiment: &str, rows: &[Value]) -> Picture {
    let mut groups: Vec<(String, Vec<picture::Row>)> = Vec::new();
    for row in rows {
        let case = row["case"].as_str().unwrap_or_default();
        let bar = picture::Row {
            name: row["policy"].as_str().unwrap_or_default().to_owned(),
            value: row["over_base"].as_f64().unwrap_or(f64::NAN),
            mark: row["paper_over_base"].as_f64(),
        };
        match groups.last_mut().filter(|(last, _)| last == case) {
            Some((_, bars)) => bars.push(bar),
            None => groups.push((case.to_owned(), vec![bar])),
        }
    }
    Picture {
        file: format!("{experiment}.svg"),
        title: format!("{experiment}: speed over base pages"),
        content: Content::Rows {
            found: "measured",
            label: "times as fast as with base pages, without pressure".to_owned(),
            groups,
            scaling: picture::Scaling::Linear,
        },
    }
}

/// Adds the note on graphs, trials and columns that all of these tables need.
fn add_notes(graphs: &Graphs<'_>, report: &mut Report) {
    let Trials { count, iterations } = TRIALS;
    report.notes.push(format!(
        "Graphs of scale {}, 16 edges drawn for each vertex, both ways. Each run is a `superpage graph run` with {count} trials \
         (sssp: {}; each of pr with {iterations} iterations) after one that does not count, of which the median \
         counts; rows are medians of the rounds. Over base, over huge: the seconds of linux-4k and of huge, both without \
         pressure, through those of the row in the same round. Huge: memory of all arrays on huge pages, as \
         PAGEMAP_SCAN says; of memory, of property: the same as a share of all arrays and of the property array. linux: \
         enabled = always and nothing asked for. Under pressure the graph was grouped before, so grouping takes no time there.",
        graphs.scale, SSSP_TRIALS.count
    ));
}
