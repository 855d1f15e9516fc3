//! `emd-table1`: two programs that differ only in where their bloat is (EMD, section 3.1, Table 1).
//!
//! Each is de-bloated by 250,000 base pages on 8 GiB (scaled with the size) by every policy in
//! turn. The paper says "2 GB"; 611 split huge pages cannot hold that. Both of its rows fit
//! 250,000 base pages, so that is the target.
//!
//! The paper has no row for EMD itself here, nor for the kernel's own de-bloater, which came
//! later. The latter is armed by `max_ptes_none` and triggered by reclaim in a cgroup that holds
//! the workload alone; it cannot be told how much to free.

use super::super::emd_paper;
use super::support_bench::{Bench, Subject, debloat, fitting_size, median, rounded, scratch};
use super::{Content, Experiment, On, Picture, Progress, Report, Result, Setting};
use crate::workload::WorkloadKind;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;
use superpage_kernel::cgroup::{Hierarchy, Scratch};
use superpage_kernel::thp::{self, Thp};
use superpage_kernel::usage::CpuTime;
use superpage_policy::debloat::emd::{EMD, EMD_EXACT};
use superpage_policy::debloat::hawkeye::HAWKEYE;
use superpage_policy::debloat::list::Entry;
use superpage_units::{BasePages, Bytes, Nanos};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-table1",
    source: "EMD, Table 1",
    summary: "Huge pages split to free the same memory from two programs that differ only in where their bloat is",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("policy", "policy"),
        ("huge_pages", "huge pages"),
        ("split", "split"),
        ("paper_split", "in the paper"),
        ("freed_base_pages", "base pages freed"),
        ("read_bytes", "bytes read"),
        ("cpu_s", "CPU s"),
        ("wall_s", "wall s"),
        ("slowdown", "slowdown"),
        ("paper_slowdown", "in the paper"),
    ],
    run: &run,
};

/// The paper's size and target.
const PAPER_SIZE: Bytes = Bytes::from_gib(8);
const PAPER_TARGET: BasePages = BasePages(250_000);

/// More zero pages than this make a huge page underused to the kernel: a tenth, as the lowest
/// bucket of the bloat map.
const UNDERUSED: BasePages = BasePages(51);

/// Who de-bloats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Policy(Entry),
    Kernel,
}

const VARIANTS: [Variant; 4] =
    [Variant::Policy(HAWKEYE), Variant::Policy(EMD), Variant::Policy(EMD_EXACT), Variant::Kernel];

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Policy(policy) => policy.name,
            Self::Kernel => "kernel",
        }
    }
}

/// What one de-bloating cost and did.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    split: f64,
    freed: f64,
    read: Option<f64>,
    cpu: Nanos,
    wall: Nanos,
}

/// A variant's measurements, one of each per round.
#[derive(Clone, Debug, Default)]
struct Series {
    costs: Vec<Cost>,
    slowdowns: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    huge_pages: u64,
    split: f64,
    target_base_pages: u64,
    freed_base_pages: f64,
    read_bytes: Option<f64>,
    cpu_s: f64,
    wall_s: f64,
    slowdown: f64,
    paper_split: Option<u32>,
    paper_slowdown: Option<f64>,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = fitting_size(setting, PAPER_SIZE, 1)?;
    let target = BasePages(PAPER_TARGET.0 * size.0 / PAPER_SIZE.0);
    let mut bench = Bench::open(setting)?;
    let mut report = Report::default();
    let mut slowdowns = Vec::new();
    for kind in [WorkloadKind::RandomAccessL, WorkloadKind::RandomAccessR] {
        let cgroup = Cgroup::create(setting);
        progress(&format!("{kind}: touching {size} of memory"))?;
        let subject = cgroup.start(setting, kind, size)?;
        let case = Case { kind, target, subject, cgroup };
        slowdowns.push(case.run(&mut bench, setting, progress, &mut report)?);
    }
    if size != PAPER_SIZE {
        report.notes.push(format!(
            "The paper used {PAPER_SIZE} and this run {size}: its counts scale with the size."
        ));
    }
    report.notes.push(
        "The paper has less than 2 % for the slowdown of RandomAccess-L: 1.02 is a bound."
            .to_owned(),
    );
    report.pictures.push(split_picture(&report));
    report.pictures.push(slowdown_picture(slowdowns));
    Ok(report)
}

/// The cgroup that reclaim is triggered in, or why there is none.
struct Cgroup(std::result::Result<Scratch, String>);

impl Cgroup {
    fn create(setting: &Setting) -> Self {
        let name = format!("superpage-lab-{}", std::process::id());
        let scratch = match Hierarchy::find(Path::new("/")) {
            Ok(Some(hierarchy)) => {
                scratch(setting, &hierarchy, &name).map_err(|error| error.to_string())
            }
            Ok(None) => Err("no memory controller is mounted".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        Self(scratch)
    }

    fn start(&self, setting: &Setting, kind: WorkloadKind, size: Bytes) -> Result<Subject> {
        match &self.0 {
            Ok(scratch) => scratch.while_in(|| Subject::start(setting, kind, size))?,
            Err(_) => Subject::start(setting, kind, size),
        }
    }
}

/// One of the two programs. The subject comes before its cgroup: it must be gone first.
struct Case {
    kind: WorkloadKind,
    target: BasePages,
    subject: Subject,
    cgroup: Cgroup,
}

impl Case {
    /// Measures all variants in turn; returns their slowdowns in the order of [`VARIANTS`].
    fn run(
        mut self,
        bench: &mut Bench,
        setting: &Setting,
        progress: Progress<'_>,
        report: &mut Report,
    ) -> Result<Vec<f64>> {
        let mut series = vec![Series::default(); VARIANTS.len()];
        for round in 0..setting.rounds {
            let which = format!("{}: round {} of {}", self.kind, round + 1, setting.rounds);
            for (variant, series) in VARIANTS.into_iter().zip(&mut series) {
                progress(&format!("{which}, {}", variant.name()))?;
                // Right before each variant: what drifts from minute to minute cancels out.
                let baseline = self.subject.time()?;
                let Some(cost) = self.debloat(bench, variant, round)? else { continue };
                series.costs.push(cost);
                series.slowdowns.push(self.subject.time()? / baseline);
                self.subject.restore()?;
            }
        }
        self.subject.check()?;
        self.report(report, &series)?;
        Ok(series.iter().map(|series| median(series.slowdowns.iter().copied())).collect())
    }

    fn debloat(&mut self, bench: &mut Bench, variant: Variant, round: u32) -> Result<Option<Cost>> {
        match variant {
            Variant::Policy(policy) => self.by_policy(policy, round).map(Some),
            Variant::Kernel => self.by_kernel(bench),
        }
    }

    fn by_policy(&mut self, policy: Entry, round: u32) -> Result<Cost> {
        let subjects = std::slice::from_ref(&self.subject);
        let account = debloat(subjects, policy, self.target, u64::from(round))?;
        let (split, freed) = self.subject.split_so_far()?;
        Ok(Cost {
            split: split.0 as f64,
            freed: freed.0 as f64,
            read: Some(account.read.0 as f64),
            cpu: account.cpu,
            wall: account.wall,
        })
    }

    /// Arms the kernel's own de-bloater and has it reclaim the target from the cgroup.
    fn by_kernel(&mut self, bench: &mut Bench) -> Result<Option<Cost>> {
        let Ok(scratch) = &self.cgroup.0 else { return Ok(None) };
        let knobs = Thp::under(Path::new("/sys"));
        let original = knobs.get(thp::MAX_PTES_NONE)?;
        knobs.set(bench.settings(), thp::MAX_PTES_NONE, UNDERUSED)?;
        let (cpu, wall) = (CpuTime::of_thread(), Instant::now());
        scratch.reclaim(self.target.bytes())?;
        let cpu = CpuTime::of_thread().since(cpu);
        let wall = Nanos::from_secs_f64(wall.elapsed().as_secs_f64());
        knobs.set(bench.settings(), thp::MAX_PTES_NONE, original)?;
        let (split, freed) = self.subject.split_so_far()?;
        Ok(Some(Cost { split: split.0 as f64, freed: freed.0 as f64, read: None, cpu, wall }))
    }

    fn report(&self, report: &mut Report, series: &[Series]) -> Result<()> {
        report.push(&self.row("none", &Series { costs: vec![], slowdowns: vec![1.0] }))?;
        for (variant, series) in VARIANTS.into_iter().zip(series) {
            if series.costs.is_empty() {
                let why = self.cgroup.0.as_ref().err().cloned().unwrap_or_default();
                report
                    .notes
                    .push(format!("{}: no row for the kernel's own de-bloater: {why}.", self.kind));
                continue;
            }
            report.push(&self.row(variant.name(), series))?;
        }
        Ok(())
    }

    fn row(&self, policy: &'static str, series: &Series) -> Row {
        let over = |value: fn(&Cost) -> f64| match series.costs.as_slice() {
            [] => 0.0,
            costs => median(costs.iter().map(value)),
        };
        let (paper_split, paper_slowdown) = emd_paper::splits(self.kind.name(), policy).unzip();
        let reads = !series.costs.is_empty() && series.costs.iter().all(|c| c.read.is_some());
        Row {
            case: self.kind.name(),
            policy,
            huge_pages: self.subject.huge_pages().0,
            split: over(|cost| cost.split),
            target_base_pages: if policy == "none" { 0 } else { self.target.0 },
            freed_base_pages: over(|cost| cost.freed),
            read_bytes: (reads || policy == "none").then(|| over(|c| c.read.unwrap_or(0.0))),
            cpu_s: rounded(over(|cost| cost.cpu.as_secs_f64()), 4),
            wall_s: rounded(over(|cost| cost.wall.as_secs_f64()), 4),
            slowdown: rounded(median(series.slowdowns.iter().copied()), 3),
            paper_split,
            paper_slowdown,
        }
    }
}

fn split_picture(report: &Report) -> Picture {
    let of = |case: &str, policy: &str| {
        let row = report.rows.iter().find(|row| row["case"] == case && row["policy"] == policy);
        row.and_then(|row| row["split"].as_f64()).unwrap_or(0.0)
    };
    Picture {
        file: "emd-table1-split.svg".to_owned(),
        title: "Huge pages split to free the same memory".to_owned(),
        content: Content::Bars {
            y_label: "huge pages split".to_owned(),
            categories: VARIANTS.iter().map(|variant| variant.name().to_owned()).collect(),
            series: [WorkloadKind::RandomAccessL, WorkloadKind::RandomAccessR]
                .iter()
                .map(|kind| {
                    let split = VARIANTS.iter().map(|v| of(kind.name(), v.name())).collect();
                    (kind.name().to_owned(), split)
                })
                .collect(),
            reference: None,
        },
    }
}

fn slowdown_picture(slowdowns: Vec<Vec<f64>>) -> Picture {
    let kinds = [WorkloadKind::RandomAccessL, WorkloadKind::RandomAccessR];
    Picture {
        file: "emd-table1-slowdown.svg".to_owned(),
        title: "Run time after de-bloating, relative to before".to_owned(),
        content: Content::Bars {
            y_label: "slowdown (times)".to_owned(),
            categories: VARIANTS.iter().map(|variant| variant.name().to_owned()).collect(),
            series: kinds.iter().map(|kind| kind.name().to_owned()).zip(slowdowns).collect(),
            reference: Some(1.0),
        },
    }
}
