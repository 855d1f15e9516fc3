//! `emd-fig8`: how many huge pages each program keeps when 20 to 50 % of its footprint is taken
//! back (EMD, section 5.2, Figure 8).

use super::super::emd_paper;
use super::support_sweep::{Point, Shown, Taken, Timed, sweep};
use super::{Experiment, On, Progress, Report, Result, Setting};
use serde::Serialize;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig8",
    source: "EMD, Figure 8",
    summary: "Huge pages retained by one program when 20 to 50 % of its footprint is reclaimed",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("policy", "policy"),
        ("fraction", "reclaimed"),
        ("freed_base_pages", "base pages freed"),
        ("target_base_pages", "asked for"),
        ("bloat_base_pages", "bloat there was"),
        ("huge_pages_retained", "huge pages retained"),
        ("paper_retained", "in the paper"),
    ],
    run: &run,
};

const SHOWN: Shown = Shown {
    experiment: EXPERIMENT.name,
    title: "huge pages retained",
    y_label: "huge pages retained (%)",
    value: |point| point.retained * 100.0,
    reference: None,
};

#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    taken: Taken,
    bloat_base_pages: u64,
    paper_retained: Option<f64>,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let points = sweep(setting, Timed::No, progress)?;
    let mut report = Report::default();
    for point in &points {
        report.push(&row(point))?;
    }
    report.notes.push(
        "The paper has more than 50 % for EMD at 40 %: 0.5 is a bound. Its 18 % for HawkEye does not \
         follow from the layout of its section 3.1, which leaves 12.5 %."
            .to_owned(),
    );
    report.pictures = SHOWN.pictures(&points);
    Ok(report)
}

fn row(point: &Point) -> Row {
    let (program, policy) = (point.kind.name(), point.policy.name);
    let paper_retained = emd_paper::retained(program, policy, point.fraction);
    Row { taken: point.taken(), bloat_base_pages: point.bloat.0, paper_retained }
}
