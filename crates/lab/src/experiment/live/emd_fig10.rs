//! `emd-fig10`: four instances of one program de-bloated together (EMD, section 5.3.2; covers
//! Figures 9, 10 and 11: slowdown, fairness, huge pages retained).

use super::super::emd_paper;
use super::support_bench::{Bench, Subject, fitting_size};
use super::support_fairness::{ABOUT_POLICIES, measure, picture};
use super::support_sweep::{KINDS, percent};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::workload::WorkloadKind;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig10",
    source: "EMD, Figures 9 to 11",
    summary: "How evenly four instances of one program are hurt when 20 and 40 % are reclaimed",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("policy", "policy"),
        ("fraction", "reclaimed"),
        ("slowdowns", "slowdowns"),
        ("huge_pages_retained", "huge pages retained"),
        ("fairness", "fairness"),
        ("paper_fairness", "in the paper"),
    ],
    run: &run,
};

const INSTANCES: u64 = 4;
const FRACTIONS: [f64; 2] = [0.2, 0.4];

/// The programs, each of which can be run by itself: all of them take twenty minutes.
pub(super) fn parts() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name()).collect()
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let is_wanted = |kind: &WorkloadKind| {
        setting.only.is_empty() || setting.only.iter().any(|one| one == kind.name())
    };
    let kinds: Vec<WorkloadKind> = KINDS.into_iter().filter(is_wanted).collect();
    let size = fitting_size(setting, Bytes::from_gib(4), INSTANCES)?;
    let _bench = Bench::open(setting)?;
    let mut report = Report::default();
    for kind in kinds.iter().copied() {
        let mut subjects = Vec::new();
        for instance in 1..=INSTANCES {
            progress(&format!("{kind}: filling {size} for instance {instance} of {INSTANCES}"))?;
            subjects.push(Subject::start(setting, kind, size)?);
        }
        // Equal instances do equal work, whatever each one's calibration said.
        let operations = subjects.iter().map(Subject::operations).min().unwrap_or(1);
        subjects.iter_mut().for_each(|subject| subject.set_operations(operations));
        for fraction in FRACTIONS {
            let label = kind.name();
            for outcome in measure(&mut subjects, fraction, setting.rounds, label, progress)? {
                let paper = emd_paper::fairness(kind.name(), outcome.policy.name);
                report.push(&outcome.row(kind.name(), paper))?;
            }
        }
        subjects.iter_mut().try_for_each(Subject::check)?;
    }
    report.notes.push(
        "Runs are timed one instance at a time: four at once on two cores would measure the \
         scheduler."
            .to_owned(),
    );
    report.notes.push(
        "The paper's text has slowdowns and huge pages retained of BTree at 40 % only: under HawkEye \
         1.26 and 1.25 times and about 14 % for the first two instances, nearly none and nearly all for \
         the others; under EMD about 56 % for each."
            .to_owned(),
    );
    report.notes.push(ABOUT_POLICIES.to_owned());
    let category = |kind: WorkloadKind, fraction| format!("{kind} {}", percent(fraction));
    let categories =
        kinds.into_iter().flat_map(|kind| FRACTIONS.map(|fraction| category(kind, fraction)));
    let title = "Fairness between four equal instances (1: all hurt alike)";
    report.pictures.push(picture(EXPERIMENT.name, title, categories.collect(), &report));
    Ok(report)
}
