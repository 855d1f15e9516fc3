//! `emd-table3`: run times on 4 KiB pages, on huge pages with all their bloat, and after EMD took
//! the bloat back (EMD, section 6, Table 3).
//!
//! The paper's columns are "Linux-4KB", "High Bloat" and "Low Bloat" and are not explained. Read
//! here as: base pages only; EMD with plenty of memory, nothing reclaimed; EMD after reclaiming
//! all bloat. Its numbers fit that (RandomAccess-L: 480, 234 and 434 s).

use super::super::emd_paper;
use super::support_bench::{Bench, RUNS, Subject, debloat, fitting_size, median, rounded};
use super::support_sweep::KINDS;
use super::{Content, Experiment, On, Picture, Progress, Report, Result, Setting};
use crate::worker::Worker;
use crate::workload::{PageSize, WorkloadKind, WorkloadSpec};
use serde::Serialize;
use superpage_policy::debloat::emd::EMD;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-table3",
    source: "EMD, Table 3",
    summary: "Run times on 4 KiB pages, on bloated huge pages, and after all bloat was reclaimed",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("pages", "pages"),
        ("resident_bytes", "memory"),
        ("time_s", "time (s)"),
        ("relative", "relative to 4 KiB"),
        ("paper_time_s", "time in the paper (s)"),
        ("paper_relative", "relative in the paper"),
    ],
    run: &run,
};

const PAGES: [&str; 3] = ["linux-4kb", "emd-high-bloat", "emd-low-bloat"];

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    pages: &'static str,
    resident_bytes: u64,
    time_s: f64,
    relative: f64,
    paper_time_s: f64,
    paper_relative: f64,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    // Two processes at once: on huge pages and on base pages, timed in turn.
    let size = fitting_size(setting, Bytes::from_gib(8), 2)?;
    let _bench = Bench::open(setting)?;
    let mut report = Report::default();
    let mut relatives = Vec::new();
    for kind in KINDS {
        progress(&format!("{kind}: filling {size} of memory, twice"))?;
        let measured = measure(setting, kind, size, progress)?;
        let base = measured[0].0;
        let paper = emd_paper::seconds(kind.name()).unwrap_or([f64::NAN; 3]);
        for (index, (time, resident)) in measured.into_iter().enumerate() {
            report.push(&Row {
                case: kind.name(),
                pages: PAGES[index],
                resident_bytes: resident.0,
                time_s: rounded(time, 3),
                relative: rounded(time / base, 3),
                paper_time_s: paper[index],
                paper_relative: rounded(paper[index] / paper[0], 3),
            })?;
            relatives.push(time / base);
        }
    }
    report.pictures.push(picture(&relatives));
    Ok(report)
}

/// Median seconds and resident memory on each kind of pages.
fn measure(
    setting: &Setting,
    kind: WorkloadKind,
    size: Bytes,
    progress: Progress<'_>,
) -> Result<[(f64, Bytes); 3]> {
    let mut huge = Subject::start(setting, kind, size)?;
    let spec = WorkloadSpec { kind, size, pages: PageSize::Base, cpu: Some(0) };
    let mut base = Worker::spawn(&setting.launcher, &spec)?;
    let mut times: [Vec<f64>; 3] = Default::default();
    let all = huge.footprint().to_base_pages();
    let mut freed = Bytes::ZERO;
    for round in 0..setting.rounds {
        progress(&format!("{kind}: round {} of {}", round + 1, setting.rounds))?;
        times[0].push(time_base(&mut base, huge.operations(), round)?);
        times[1].push(huge.time()?);
        debloat(std::slice::from_ref(&huge), EMD, all, u64::from(round))?;
        freed = huge.split_so_far()?.1.bytes();
        times[2].push(huge.time()?);
        huge.restore()?;
    }
    huge.check()?;
    let resident =
        [base.populated().resident, huge.footprint(), huge.footprint().saturating_sub(freed)];
    let mut times = times.into_iter().map(median);
    Ok(resident.map(|resident| (times.next().unwrap_or(f64::NAN), resident)))
}

/// As [`Subject::time`], for the process on base pages.
fn time_base(worker: &mut Worker, operations: u64, round: u32) -> Result<f64> {
    let mut fastest = f64::INFINITY;
    worker.run(operations / 4, u64::from(round) | 1 << 32)?;
    for run in 0..RUNS {
        let seed = u64::from(round * RUNS + run);
        fastest = fastest.min(worker.run(operations, seed)?.cpu.as_secs_f64());
    }
    Ok(fastest)
}

fn picture(relatives: &[f64]) -> Picture {
    let of = |(index, name): (usize, &&str)| {
        let mine = relatives.iter().skip(index).step_by(PAGES.len()).copied();
        ((*name).to_owned(), mine.collect())
    };
    Picture {
        file: "emd-table3.svg".to_owned(),
        title: "Run time relative to 4 KiB pages (lower is better)".to_owned(),
        content: Content::Bars {
            y_label: "relative run time".to_owned(),
            categories: KINDS.iter().map(|kind| kind.name().to_owned()).collect(),
            series: PAGES.iter().enumerate().map(of).collect(),
            reference: Some(1.0),
        },
    }
}
