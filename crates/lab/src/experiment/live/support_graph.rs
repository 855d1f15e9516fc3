//! Kernels on graphs, each run a `superpage graph run` of its own: on which pages, under what pressure on memory, and what came
//! out. The figures of the graph paper say which runs stand beside each other.
//!
//! Different from the paper (section 3): the graphs are generated ones, smaller, and of this machine's size; free memory beyond
//! what a run takes is a share of it where the paper has 0.5 and 3 GB beside 3 to 25; and what is fragmented is pinned from user
//! space, where the paper has a kernel module.

use super::support_bench::{Bench, fitting_size, median, rounded};
use super::support_regime::set_enabled;
use super::{Error, Progress, Report, Result, Setting};
use crate::pressure::{self, Pressure};
use serde::Serialize;
use serde_json::Value;
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
const TRIALS: u32 = 3;
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
    const fn name(self) -> &'static str {
        match self {
            Self::Kronecker => "kronecker",
            Self::Uniform => "uniform",
            Self::BlockModel => "block-model",
        }
    }
}

/// Graphs in files, made once.
#[derive(Debug)]
struct Graphs<'a> {
    setting: &'a Setting,
    directory: TempDir,
    scale: u32,
}

impl<'a> Graphs<'a> {
    /// No graphs yet, in a directory of their own on the disk.
    fn new(setting: &'a Setting) -> Result<Self> {
        let size = fitting_size(setting, SIZE, 3)?;
        let directory = TempDir::with_prefix_in("superpage-graphs", &setting.directory);
        let directory = directory.map_err(|error| {
            Error::NotPossible(format!("no directory in {}: {error}", setting.directory.display()))
        })?;
        Ok(Self { setting, directory, scale: (size.0 / EDGE_BYTES).max(1).ilog2() })
    }

    /// The file of a graph, with weights for SSSP, its vertices in an order.
    fn file(&self, kind: Kind, kernel: &str, group: &str) -> Result<PathBuf> {
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
struct Outcome {
    seconds: f64,
    grouping: f64,
    huge: Bytes,
    all: Bytes,
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
    let trials = TRIALS.to_string();
    let mut command = Command::new(&setting.launcher.program);
    command.args(["graph", "run", kernel]).arg(file);
    command.args(["--json", "--repeat", &trials, "--pages", policy.property, "--group", now]);
    command.args(["--vertex-pages", policy.vertex, "--edge-pages", policy.edge]);
    command.args(["--values-pages", policy.values, "--property", policy.when]);
    set_enabled(bench, policy.enabled)?;
    let said = output(&mut command)?;
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
    set_enabled(bench, Enabled::Madvise)?;
    let available = meminfo::read(Path::new("/proc"))?.available;
    let held = available.saturating_sub(wanted);
    let mut taken = vec![pressure::hold(&setting.launcher, held)?];
    if free.fragmented > 0.0 {
        taken.push(pressure::fragment(&setting.launcher, Share::clamped(free.fragmented))?);
    }
    Ok(taken)
}

/// The output of a command that must end well.
fn output(command: &mut Command) -> Result<Vec<u8>> {
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
    experiment: &'static str,
    machine: &'static str,
    case: &'a str,
    policy: &'static str,
    scale: u32,
    seconds: f64,
    low: f64,
    high: f64,
    /// The seconds of `linux-4k` without pressure through these.
    over_base: f64,
    /// The seconds of `huge` without pressure through these.
    over_huge: Option<f64>,
    paper_over_base: Option<f64>,
    huge_bytes: u64,
    huge_share: f64,
    property_share: f64,
    grouping_s: f64,
    rounds: usize,
}

/// Runs the variants of a case by turns, round by round, and adds a row for each. The first is what others are compared with;
/// the second too, where it is huge pages everywhere.
fn case(
    experiment: &'static str,
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
    let seconds = |outcomes: &[Outcome]| median(outcomes.iter().map(|outcome| outcome.seconds));
    let base = found.first().map_or(f64::NAN, |outcomes| seconds(outcomes));
    let is_huge = |variant: &Variant| variant.policy.name == Policy::HUGE.name;
    let huge = variants.iter().position(is_huge).map(|at| seconds(&found[at]));
    for (variant, outcomes) in variants.iter().zip(&found) {
        let took = seconds(outcomes);
        let each = || outcomes.iter().map(|outcome| outcome.seconds);
        let middle = |of: fn(&Outcome) -> f64| median(outcomes.iter().map(of));
        report.push(&Row {
            experiment,
            machine: "live",
            case: &name,
            policy: variant.policy.name,
            scale: graphs.scale,
            seconds: rounded(took, 4),
            low: rounded(each().fold(f64::INFINITY, f64::min), 4),
            high: rounded(each().fold(0.0, f64::max), 4),
            over_base: rounded(base / took, 3),
            over_huge: huge.map(|huge| rounded(huge / took, 3)),
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

/// The graphs, and the kernels on each.
pub(super) type Among<'a> = (&'a [Kind], &'a [&'a str]);

/// Runs the variants for each kernel on each kind of graph; `notes` go below the table.
pub(super) fn compare(
    experiment: &'static str,
    (kinds, kernels): Among<'_>,
    variants: &[Variant],
    notes: &[&str],
    (setting, progress): (&Setting, Progress<'_>),
) -> Result<Report> {
    let graphs = Graphs::new(setting)?;
    let mut bench = Bench::open(setting)?;
    let mut report = Report::default();
    for kind in kinds {
        for kernel in kernels {
            // A graph without weights has no values array.
            let has_values = *kernel == "sssp";
            let wanted = |variant: &&Variant| has_values || variant.policy.name != VALUES;
            let variants: Vec<Variant> = variants.iter().filter(wanted).copied().collect();
            let on = (&graphs, &mut bench);
            case(experiment, on, (*kind, kernel), &variants, &mut report, progress)?;
        }
    }
    add_notes(&graphs, &mut report);
    report.notes.extend(notes.iter().map(|note| (*note).to_owned()));
    Ok(report)
}

/// Adds the note on graphs, trials and columns that all of these tables need.
fn add_notes(graphs: &Graphs<'_>, report: &mut Report) {
    report.notes.push(format!(
        "Graphs of scale {}, 16 edges drawn for each vertex, both ways. Each run is a `superpage graph run` with {TRIALS} trials \
         after one that does not count, of which the median counts; rows are medians of the rounds. Over base, over huge: the \
         seconds of linux-4k and of huge, both without pressure, through a row's. Huge: memory of all arrays on huge pages, as \
         PAGEMAP_SCAN says; of memory, of property: the same as a share of all arrays and of the property array. linux: \
         enabled = always and nothing asked for. Under pressure the graph was grouped before, so grouping takes no time there.",
        graphs.scale
    ));
}
