//! `emd-fig13`: one B+ tree and one memcached de-bloated together (EMD, section 5.3.3; covers
//! Figures 12, 13 and 14: slowdown, fairness, huge pages retained).

use super::super::emd_paper;
use super::support_bench::{Bench, Subject, fitting_size};
use super::support_fairness::{ABOUT_POLICIES, measure, picture};
use super::support_sweep::{FRACTIONS, percent};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::workload::WorkloadKind;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig13",
    source: "EMD, Figures 12 to 14",
    summary: "How evenly a B+ tree and a memcached are hurt when 20 to 50 % are reclaimed",
    on: On::Live,
    columns: &[
        ("policy", "policy"),
        ("fraction", "reclaimed"),
        ("slowdowns", "slowdown of BTree, Memcached"),
        ("huge_pages_retained", "huge pages retained"),
        ("fairness", "fairness"),
        ("paper_fairness", "in the paper"),
    ],
    run: &run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = fitting_size(setting, Bytes::from_gib(6), 2)?;
    let _bench = Bench::open(setting)?;
    let mut subjects = Vec::new();
    for kind in [WorkloadKind::BTree, WorkloadKind::Memcached] {
        progress(&format!("{kind}: filling {size} of memory"))?;
        subjects.push(Subject::start(setting, kind, size)?);
    }
    let mut report = Report::default();
    for fraction in FRACTIONS {
        let label = "BTree with Memcached";
        for outcome in measure(&mut subjects, fraction, setting.rounds, label, progress)? {
            let paper = emd_paper::fairness_of_both(outcome.policy.name);
            report.push(&outcome.row("BTree+Memcached", Some(paper)))?;
        }
    }
    subjects.iter_mut().try_for_each(Subject::check)?;
    report.notes.push(
        "The paper gives HawkEye's fairness as a mean over the four shares, and EMD's as 1.0 but for \
         one share, which has 0.99 and is not named. Under HawkEye its BTree takes 1.22 times as long on \
         average and 1.28 times at most, and memcached hardly longer. At 40 % BTree and memcached keep \
         about 14 % and nearly all of their huge pages under HawkEye, 54 and 64 % under EMD."
            .to_owned(),
    );
    report.notes.push(ABOUT_POLICIES.to_owned());
    let title = "Fairness between a B+ tree and a memcached (1: both hurt alike)";
    let categories = FRACTIONS.into_iter().map(percent).collect();
    report.pictures.push(picture(EXPERIMENT.name, title, categories, &report));
    Ok(report)
}
