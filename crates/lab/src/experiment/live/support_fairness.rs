//! What `emd-fig10` and `emd-fig13` share: several programs de-bloated together, and how evenly
//! that hurts them (EMD, section 5.3).
//!
//! The programs are all there and populated, one started after the other, and are de-bloated
//! together. Their runs are timed one at a time, because this kind of machine has two cores: four
//! programs at once would measure the scheduler.
//!
//! EMD is there twice: as the daemon has it, and to the letter of the paper. The paper's numbers stand beside both.

use super::support_bench::{Subject, debloat, median, rounded, time_in_turn};
use super::{Content, Picture, Progress, Report, Result};
use serde::Serialize;
use superpage_policy::debloat::emd::EMD;
use superpage_policy::debloat::emd_literal::EMD_LITERAL;
use superpage_policy::debloat::hawkeye::HAWKEYE;
use superpage_policy::debloat::list::Entry;
use superpage_policy::fairness::fairness;
use superpage_units::{BasePages, Bytes, HugePages};

/// The policies that the paper compares, and EMD to the letter.
pub(super) const POLICIES: [Entry; 3] = [HAWKEYE, EMD, EMD_LITERAL];

/// A note for readers of the rows.
pub(super) const ABOUT_POLICIES: &str = "EMD is here as the daemon has it (emd) and to the letter of the paper (emd-literal); the paper's numbers stand beside \
     both.";

/// What was measured for one policy and share.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) policy: Entry,
    pub(super) fraction: f64,
    pub(super) slowdowns: Vec<f64>,
    pub(super) fairness: f64,
    /// Share of its huge pages that each program keeps.
    pub(super) retained: Vec<f64>,
    pub(super) target: BasePages,
    pub(super) freed: f64,
}

/// A row of either experiment.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    case: &'static str,
    policy: &'static str,
    fraction: f64,
    slowdowns: Vec<f64>,
    fairness: f64,
    huge_pages_retained: Vec<f64>,
    target_base_pages: u64,
    freed_base_pages: f64,
    paper_fairness: Option<f64>,
}

impl Outcome {
    pub(super) fn row(self, case: &'static str, paper_fairness: Option<f64>) -> Row {
        Row {
            case,
            policy: self.policy.name,
            fraction: self.fraction,
            slowdowns: self.slowdowns,
            fairness: self.fairness,
            huge_pages_retained: self.retained,
            target_base_pages: self.target.0,
            freed_base_pages: self.freed,
            paper_fairness,
        }
    }
}

/// Fairness by policy; `categories` are what each policy has a row for, in the order of the rows.
pub(super) fn picture(
    experiment: &str,
    title: &str,
    categories: Vec<String>,
    report: &Report,
) -> Picture {
    let of = |policy: Entry| {
        let mine = report.rows.iter().filter(move |row| row["policy"] == policy.name);
        (policy.name.to_owned(), mine.map(|r| r["fairness"].as_f64().unwrap_or(0.0)).collect())
    };
    Picture {
        file: format!("{experiment}-fairness.svg"),
        title: title.to_owned(),
        content: Content::Bars {
            y_label: "fairness".to_owned(),
            categories,
            series: POLICIES.into_iter().map(of).collect(),
            reference: Some(1.0),
        },
    }
}

/// One policy's measurements, round by round: per program.
#[derive(Clone, Debug, Default)]
struct Rounds {
    slowdowns: Vec<Vec<f64>>,
    split: Vec<Vec<f64>>,
    freed: Vec<f64>,
}

/// Takes `fraction` of the programs' footprint back by each policy in turn, `rounds` times.
pub(super) fn measure(
    subjects: &mut [Subject],
    fraction: f64,
    rounds: u32,
    label: &str,
    progress: Progress<'_>,
) -> Result<Vec<Outcome>> {
    let footprint: Bytes = subjects.iter().map(Subject::footprint).sum();
    let target = footprint.scaled(fraction).to_base_pages();
    let mut measured = vec![Rounds::default(); POLICIES.len()];
    for round in 0..rounds {
        progress(&format!(
            "{label}: reclaiming {:.0} %, round {} of {rounds}",
            fraction * 100.0,
            round + 1
        ))?;
        for (policy, measured) in POLICIES.into_iter().zip(&mut measured) {
            let baselines = time_in_turn(subjects)?;
            debloat(subjects, policy, target, u64::from(round))?;
            let (split, freed) = split_of_all(subjects)?;
            measured.split.push(split);
            measured.freed.push(freed);
            let times = time_in_turn(subjects)?;
            let ratios = times.iter().zip(&baselines).map(|(time, base)| time / base);
            measured.slowdowns.push(ratios.collect());
            subjects.iter_mut().try_for_each(Subject::restore)?;
        }
    }
    let sizes: Vec<HugePages> = subjects.iter().map(Subject::huge_pages).collect();
    let outcomes = POLICIES.into_iter().zip(measured);
    Ok(outcomes.map(|(policy, m)| outcome(policy, fraction, target, &m, &sizes)).collect())
}

fn split_of_all(subjects: &mut [Subject]) -> Result<(Vec<f64>, f64)> {
    let mut split = Vec::new();
    let mut freed = 0.0;
    for subject in subjects {
        let (pages, base_pages) = subject.split_so_far()?;
        split.push(pages.0 as f64);
        freed += base_pages.0 as f64;
    }
    Ok((split, freed))
}

fn outcome(
    policy: Entry,
    fraction: f64,
    target: BasePages,
    rounds: &Rounds,
    sizes: &[HugePages],
) -> Outcome {
    let per_program = |rows: &[Vec<f64>], program: usize| median(rows.iter().map(|r| r[program]));
    let slowdowns: Vec<f64> = (0..sizes.len())
        .map(|program| rounded(per_program(&rounds.slowdowns, program), 3))
        .collect();
    let retained = sizes
        .iter()
        .enumerate()
        .map(|(program, size)| {
            rounded(1.0 - per_program(&rounds.split, program) / size.0.max(1) as f64, 4)
        })
        .collect();
    Outcome {
        policy,
        fraction,
        fairness: rounded(fairness(&slowdowns).unwrap_or(f64::NAN), 3),
        slowdowns,
        retained,
        target,
        freed: median(rounds.freed.iter().copied()),
    }
}
