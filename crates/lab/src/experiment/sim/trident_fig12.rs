//! `trident-fig12`: performance in a guest, the same policy in guest and host (Trident, Figure 12).

use super::support_trident_bars::{self, Bars, Paper};
use super::support_trident_programs::{Backed, Program};
use super::support_trident_runs::{Case, HAWKEYE, Memory, Place, THP};
use super::{COLUMNS, Experiment, On, Progress, Report, Result, Setting, Table};
use superpage_units::PageSize;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-fig12",
    source: "Trident, Figure 12",
    summary: "Performance of HawkEye and Trident over Linux THP, each in a guest and in its host, \
              un-fragmented",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let paper = Paper { performance, mean };
    let bars = Bars { programs: &Program::SENSITIVE, suffix: "", paper };
    let thp = |program| case(program, THP);
    bars.add(&mut table, &[HAWKEYE, "trident"], &thp, &case, (setting, progress))?;
    support_trident_bars::note(&mut table);
    table.note(
        "The host's memory is not fragmented and the guest's is all there: under Trident the host \
         maps it by 1 GiB pages, under the others by 2 MiB pages; assumed. HawkEye's mean in the paper \
         is derived from Trident's gains over THP (16 %) and over HawkEye (15 %).",
    );
    Ok(table.report)
}

fn case(program: Program, policy: &'static str) -> Case {
    let host = if policy == "trident" { PageSize::Gigantic } else { PageSize::Huge };
    let (memory, backed) = (Memory::Unfragmented, Backed::Asked);
    Case { program, policy, memory, backed, place: Place::Guest(host) }
}

/// From the text of section 7.
fn performance(program: Program, policy: &str) -> Option<f64> {
    match (program, policy) {
        (Program::Canneal, "trident") => Some(1.5),
        (Program::Svm | Program::Graph500, "trident") => Some(1.06),
        _ => None,
    }
}

/// HawkEye's follows from Trident's gain of 16 % over THP and 15 % over HawkEye.
fn mean(policy: &str) -> Option<f64> {
    Some(if policy == HAWKEYE { 1.16 / 1.15 } else { 1.16 })
}
