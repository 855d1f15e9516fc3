//! `emd-fig13`: one B+ tree and one memcached de-bloated together (EMD, section 5.3.3; covers
//! Figures 12, 13 and 14: slowdown, fairness, huge pages retained).

use super::support_bench::{Bench, Subject, fitting_size};
use super::support_fairness::{Outcome, POLICIES, measure};
use super::support_sweep::FRACTIONS;
use super::{Content, Experiment, On, Picture, Progress, Report, Result, Setting};
use crate::workload::WorkloadKind;
use serde::Serialize;
use superpage_policy::debloat::PolicyName;
use superpage_policy::units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "emd-fig13",
    source: "EMD, Figures 12 to 14",
    summary: "How evenly a B+ tree and a memcached are hurt when 20 to 50 % are taken back",
    on: On::Live,
    columns: &[
        ("policy", "policy"),
        ("fraction", "taken back"),
        ("slowdowns", "slowdown of BTree, Memcached"),
        ("huge_pages_retained", "huge pages retained"),
        ("fairness", "fairness"),
        ("paper_fairness", "in the paper"),
    ],
    run,
};

#[derive(Debug, Serialize)]
struct Row {
    experiment: &'static str,
    machine: &'static str,
    case: &'static str,
    policy: &'static str,
    fraction: f64,
    slowdowns: Vec<f64>,
    fairness: f64,
    huge_pages_retained: Vec<f64>,
    target_base_pages: u64,
    freed_base_pages: f64,
    paper_fairness: f64,
}

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
            report.push(&row(&outcome))?;
        }
    }
    subjects.iter_mut().try_for_each(Subject::check)?;
    report.notes.push(
        "The paper gives HawkEye's fairness as a mean over the four shares, and EMD's as 1.0 with \
         one 0.99."
            .to_owned(),
    );
    report.pictures.push(picture(&report));
    Ok(report)
}

fn row(outcome: &Outcome) -> Row {
    Row {
        experiment: EXPERIMENT.name,
        machine: "live",
        case: "BTree+Memcached",
        policy: outcome.policy.name(),
        fraction: outcome.fraction,
        slowdowns: outcome.slowdowns.clone(),
        fairness: outcome.fairness,
        huge_pages_retained: outcome.retained.clone(),
        target_base_pages: outcome.target.0,
        freed_base_pages: outcome.freed,
        paper_fairness: if outcome.policy == PolicyName::Emd { 0.99 } else { 0.91 },
    }
}

fn picture(report: &Report) -> Picture {
    let of = |policy: PolicyName| {
        let mine = report.rows.iter().filter(move |row| row["policy"] == policy.name());
        (policy.name().to_owned(), mine.map(|r| r["fairness"].as_f64().unwrap_or(0.0)).collect())
    };
    Picture {
        file: "emd-fig13-fairness.svg".to_owned(),
        title: "Fairness between a B+ tree and a memcached (1: both hurt alike)".to_owned(),
        content: Content::Bars {
            y_label: "fairness".to_owned(),
            categories: FRACTIONS.iter().map(|f| format!("{:.0} %", f * 100.0)).collect(),
            series: POLICIES.into_iter().map(of).collect(),
            reference: Some(1.0),
        },
    }
}
