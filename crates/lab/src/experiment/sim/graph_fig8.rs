//! `graph-fig8`: huge pages with half of free memory fragmented, in both orders of allocation (graph paper, Figure 8 and section 4.5).

use super::support_graph_programs::Program;
use super::support_graph_rows::{self, Bar, baseline};
use super::support_graph_runs::{Case, Memory, Pages};
use super::{Basis, COLUMNS, Experiment, On, Progress, Quantity, Report, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig8",
    source: "Graph page sizes, Figure 8 and section 4.5",
    summary: "Speedup of graph programs with memory 50 % fragmented, the graph or the property array loaded first",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

/// The state of memory.
const MEMORY: Memory = Memory::fragmented(50);

fn bars() -> [Bar; 4] {
    [
        Bar::new("linux, no pressure", |program| Case::plain(program, Pages::Linux)),
        Bar::new("linux-4k", |program| baseline(program).on(MEMORY)),
        Bar::new("linux", linux),
        Bar::new("linux, property array first", |program| linux(program).property_first()),
    ]
}

const fn linux(program: Program) -> Case {
    Case::plain(program, Pages::Linux).on(MEMORY)
}

/// What huge pages lose, and what loading the property array first keeps (section 4.5).
const LOST: f64 = 1.59;
const KEPT: f64 = 0.8;
/// What it still gains over base pages (caption).
const GAIN: f64 = 1.25;

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let (programs, bars) = (Program::all(), bars());
    let found = support_graph_rows::add(&mut table, &programs, &bars, "", (setting, progress))?;
    for (bar, found) in bars.iter().zip(&found) {
        let paper = (bar.policy == "linux, property array first").then_some(GAIN);
        support_graph_rows::add_means(&mut table, "mean", (bar, found), paper)?;
    }
    if let ([ideal, _, natural, first], [_, _, linux, optimized]) = (found.as_slice(), &bars) {
        let of = |policy, name| Quantity { case: "mean", policy, name, unit: "ratio" };
        let lost = ideal.speedup() / natural.speedup();
        let name = "speedup without pressure over it";
        table.add(of(&linux.policy, name), Some(LOST), lost, Basis::Assumed)?;
        let kept = first.speedup() / ideal.speedup();
        let name = "performance over no pressure";
        table.add(of(&optimized.policy, name), Some(KEPT), kept, Basis::Assumed)?;
    }
    support_graph_rows::note(&mut table);
    support_graph_rows::note_memory(&mut table);
    Ok(table.report)
}
