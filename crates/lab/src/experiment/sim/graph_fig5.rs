//! `graph-fig5`: huge pages for one array of BFS at a time (graph paper, Figure 5 and section 4.5).

use super::support_graph_programs::{Array, Program};
use super::support_graph_rows::{self, Bar, Said, mean};
use super::support_graph_runs::{Case, LINUX, Pages};
use super::{COLUMNS, Experiment, On, Progress, Quantity, Report, Rests, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig5",
    source: "Graph page sizes, Figure 5 and section 4.5",
    summary: "Speedup of BFS with huge pages everywhere and for one array at a time",
    on: On::Sim,
    columns: COLUMNS,
    run: &run,
};

const PROPERTY: &str = "linux-madvise, property array";
/// The huge pages that it takes, of those that everything takes, on average (section 4.5).
const PROPERTY_SHARE: f64 = 0.0292; // not a Constant: the paper's number

fn bars() -> [Bar; 4] {
    [
        Bar::new(LINUX, |program| Case::plain(program, Pages::Linux)),
        Bar::new("linux-madvise, vertex array", |program| one(program, Array::Vertex)),
        Bar::new("linux-madvise, edge array", |program| one(program, Array::Edge)),
        Bar::new(PROPERTY, |program| one(program, Array::Property)),
    ]
}

const fn one(program: Program, array: Array) -> Case {
    Case::plain(program, Pages::Advised(array))
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let (programs, bars) = (Program::bfs(), bars());
    let found = support_graph_rows::add(&mut table, &programs, &bars, "", (setting, progress))?;
    for (bar, found) in bars.iter().zip(&found) {
        let memory = (bar.policy == PROPERTY).then_some(PROPERTY_SHARE);
        let said = Said { speedup: None, memory };
        support_graph_rows::add_means(&mut table, "mean", (bar, found), said)?;
    }
    if let ([all, .., property], [.., last]) = (found.as_slice(), &bars) {
        let of = |name, unit| Quantity { case: "mean", policy: &last.policy, name, unit };
        let kept = property.speedup() / all.speedup();
        let over = format!("performance over {LINUX}");
        let rests = Rests::all([&property.rests_of_speedups(), &all.rests_of_speedups()]);
        table.add(of(&over, "ratio"), Some(0.829), kept, &rests)?;
        let base = programs.iter().map(|program| {
            support_graph_rows::baseline(*program).outcome(setting).map(|found| found.miss_rate)
        });
        let fewer = mean(&base.collect::<Result<Vec<f64>>>()?)
            - mean(&property.all(|outcome| outcome.miss_rate));
        let name = "TLB misses less than linux-4k";
        let rests = property.rests_of_speedups();
        table.add(of(name, "of accesses"), Some(0.1252), fewer, &rests)?;
    }
    support_graph_rows::note(&mut table);
    Ok(table.report)
}
