//! `trident-fig11`: Trident without 2 MiB pages, and without smart compaction (Trident, Figure 11).

use super::support_trident_bars::{self, Bars, Paper};
use super::support_trident_programs::Program;
use super::support_trident_runs::{Case, Memory, THP};
use super::{Basis, COLUMNS, Experiment, On, Progress, Report, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-fig11",
    source: "Trident, Figure 11",
    summary: "Performance of Trident and its ablations over Linux THP: 1 GiB pages only, and \
              normal compaction",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let paper = Paper { performance: |_, _| None, mean: |_| None, basis: |_| Basis::Assumed };
    for memory in Memory::BOTH {
        let suffix = format!(", {}", memory.name());
        let bars = Bars { programs: &Program::SENSITIVE, suffix: &suffix, paper };
        let of = |program, policy| Case::native(program, policy, memory);
        let thp = |program| of(program, THP);
        let policies = ["trident-1g-only", "trident-nc", "trident"];
        bars.add(&mut table, &policies, &thp, &of, (setting, &mut *progress))?;
    }
    support_trident_bars::note(&mut table);
    table.note(
        "In the paper Trident-1Gonly is slower than THP for several programs without \
         fragmentation, Trident-NC as fast as Trident there, and with fragmentation 6 % slower for \
         XSBench, 2 to 5 % for SVM, Btree, Graph500, Memcached and Canneal, and as fast for GUPS \
         and Redis.",
    );
    Ok(table.report)
}
