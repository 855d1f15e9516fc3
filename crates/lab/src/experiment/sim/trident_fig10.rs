//! `trident-fig10`: the same as Figure 9 on fragmented memory (Trident, Figure 10).

use super::support_trident_bars::{self, Bars, Paper};
use super::support_trident_programs::Program;
use super::support_trident_runs::{Case, HAWKEYE, Memory, THP};
use super::{COLUMNS, Experiment, On, Progress, Report, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-fig10",
    source: "Trident, Figure 10",
    summary: "Performance and walk cycles of HawkEye and Trident over Linux THP, fragmented",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let paper = Paper { performance, mean };
    let bars = Bars { programs: &Program::SENSITIVE, suffix: "", paper };
    let of = |program, policy| Case::native(program, policy, Memory::Fragmented);
    let thp = |program| of(program, THP);
    bars.add(&mut table, &[HAWKEYE, "trident"], &thp, &of, (setting, progress))?;
    support_trident_bars::note(&mut table);
    table.note(
        "In the paper Trident lowers the share of walk cycles by 40 to 97 %, and HawkEye is slower \
         than THP for Redis and Memcached. GUPS gains \"over 50 %\": 1.5 is a bound.",
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
    (program == Program::Gups && policy == "trident").then_some(1.5)
}

fn mean(policy: &str) -> Option<f64> {
    (policy == "trident").then_some(1.18)
}
