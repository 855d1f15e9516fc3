//! `trident-fig9`: performance and walk cycles of Trident and HawkEye against THP without
//! fragmentation (Trident, Figure 9).

use super::support_trident_bars::{self, Bars, Paper};
use super::support_trident_programs::Program;
use super::support_trident_runs::{Case, HAWKEYE, Memory, THP};
use super::{COLUMNS, Experiment, On, Progress, Report, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-fig9",
    source: "Trident, Figure 9",
    summary: "Performance and walk cycles of HawkEye and Trident over Linux THP, un-fragmented",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let paper = Paper { performance, mean };
    let bars = Bars { programs: &Program::SENSITIVE, suffix: "", paper };
    let of = |program, policy| Case::native(program, policy, Memory::Unfragmented);
    let thp = |program| of(program, THP);
    bars.add(&mut table, &[HAWKEYE, "trident"], &thp, &of, (setting, progress))?;
    support_trident_bars::note(&mut table);
    table.note(
        "In the paper Trident lowers the share of walk cycles by 38 to 85 %. HawkEye's mean is derived \
         from Trident's gain of 14 % over THP and over HawkEye. In the paper Trident is 3 % faster on \
         average than 1 GiB pages set aside, which are in trident-fig1, and slower for Btree only.",
    );
    Ok(table.report)
}

/// Trident's performance over THP, by the paper's name of a program.
pub(in crate::experiment) fn paper(program: &str) -> Option<f64> {
    let program = Program::SENSITIVE.into_iter().find(|known| known.name() == program)?;
    performance(program, "trident")
}

/// From the text of section 7.
fn performance(program: Program, policy: &str) -> Option<f64> {
    match (program, policy) {
        (Program::Gups, "trident") => Some(1.47),
        (Program::XsBench, "trident") => Some(1.041),
        (Program::Svm, "trident") => Some(1.112),
        (Program::Btree, "trident") => Some(1.15),
        (Program::Canneal, "trident") => Some(1.3),
        _ => None,
    }
}

/// From the text of section 7; HawkEye's follows from Trident's gain of 14 % over both.
fn mean(policy: &str) -> Option<f64> {
    Some(if policy == HAWKEYE { 1.0 } else { 1.14 })
}
