//! `graph-fig1`: speedups by huge pages with and without memory pressure, and the TLB misses behind
//! them (graph paper, Figures 1 and 2).

use super::support_graph_programs::Program;
use super::support_graph_rows::{self, Bar, Found, baseline, mean, range};
use super::support_graph_runs::{Case, LINUX, Memory, Pages};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig1",
    source: "Graph page sizes, Figures 1 and 2",
    summary: "Speedup and TLB misses of graph programs by huge pages, with and without memory \
              pressure",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

fn bars() -> [Bar; 3] {
    [
        Bar::new("linux-4k", baseline),
        Bar::new(LINUX, |program| Case::plain(program, Pages::Linux)),
        Bar::new(&format!("{LINUX}, under pressure"), |program| {
            Case::plain(program, Pages::Linux).on(Memory::Fragmented(50))
        }),
    ]
}

/// Means of the speedups (section 1), which are over the first bar.
const SPEEDUPS: [Option<f64>; 3] = [None, Some(1.63), Some(1.02)];
/// Mean, lowest and highest share of accesses that miss (section 2.2).
const MISSES: [[Option<f64>; 3]; 3] =
    [[Some(0.263), Some(0.126), Some(0.476)], [Some(0.115), Some(0.04), Some(0.267)], [None; 3]];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let (programs, bars) = (Program::all(), bars());
    let found = support_graph_rows::add(&mut table, &programs, &bars, "", (setting, progress))?;
    for ((bar, found), (paper, misses)) in
        bars.iter().zip(&found).zip(SPEEDUPS.into_iter().zip(MISSES))
    {
        summarize(&mut table, bar, found, paper, misses)?;
    }
    support_graph_rows::note(&mut table);
    support_graph_rows::note_memory(&mut table);
    table.note(
        "Under pressure: 3 GB beyond the program's own memory, half of what is free fragmented. \
         Accesses are those that the published programs make for an edge and for a vertex; the \
         paper counts by hardware.",
    );
    Ok(table.report)
}

fn summarize(
    table: &mut Table,
    bar: &Bar,
    found: &Found,
    speedup: Option<f64>,
    misses: [Option<f64>; 3],
) -> Result<()> {
    let of = |case, name, unit| Quantity { case, policy: &bar.policy, name, unit };
    if speedup.is_some() {
        let rests = found.rests_of_speedups();
        table.add(of("mean", "speedup", "ratio"), speedup, found.speedup(), &rests)?;
    }
    let rates = found.all(|outcome| outcome.miss_rate);
    let [lowest, highest] = range(&rates);
    let rests = found.rests();
    let measured = [("mean", mean(&rates)), ("lowest", lowest), ("highest", highest)];
    for ((case, measured), paper) in measured.into_iter().zip(misses) {
        table.add(of(case, "TLB misses", "of accesses"), paper, measured, &rests)?;
    }
    Ok(())
}
