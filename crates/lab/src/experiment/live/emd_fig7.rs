//! `emd-fig7`: how much slower each program gets when 20 to 50 % of its footprint is reclaimed
//! (EMD, section 5.2, Figure 7).

use super::super::emd_paper;
use super::support_sweep::{Point, Shown, Taken, Timed, sweep};
use super::{Experiment, On, Progress, Report, Result, Setting};
use serde::Serialize;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig7",
    source: "EMD, Figure 7",
    summary: "Slowdown of one program when 20 to 50 % of its footprint is reclaimed",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("policy", "policy"),
        ("fraction", "reclaimed"),
        ("freed_base_pages", "base pages freed"),
        ("target_base_pages", "asked for"),
        ("huge_pages_retained", "huge pages retained"),
        ("slowdown", "slowdown"),
        ("paper_mean_slowdown", "mean in the paper"),
    ],
    run: &run,
};

const SHOWN: Shown = Shown {
    experiment: EXPERIMENT.name,
    title: "run time relative to no de-bloating",
    y_label: "slowdown (times)",
    value: |point| point.slowdown,
    reference: Some(1.0),
};

#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    taken: Taken,
    slowdown: f64,
    paper_mean_slowdown: Option<f64>,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let points = sweep(setting, Timed::Rounds(setting.rounds), progress)?;
    let mut report = Report::default();
    for point in &points {
        report.push(&row(point))?;
    }
    report.notes.push(
        "The paper's text gives the mean over the four shares, and for EMD on BTree and Memcached \
         only that it is below 1.01. It calls the order of addresses optimal for RandomAccess-R, where \
         by its Figure 4 it is so for RandomAccess-L."
            .to_owned(),
    );
    report.pictures = SHOWN.pictures(&points);
    Ok(report)
}

fn row(point: &Point) -> Row {
    Row {
        taken: point.taken(),
        slowdown: point.slowdown,
        paper_mean_slowdown: emd_paper::mean_slowdown(point.kind.name(), point.policy.name),
    }
}
