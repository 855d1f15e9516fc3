//! `graph-fig7`: huge pages with 0.5 GB of memory to spare, in both orders of allocation (graph paper, Figure 7 and section 4.5).

use super::support_graph_orders::{self, Paper};
use super::support_graph_runs::Memory;
use super::{COLUMNS, Experiment, On, Progress, Report, Result, Setting};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig7",
    source: "Graph page sizes, Figure 7 and section 4.5",
    summary: "Speedup of graph programs with 0.5 GB to spare, the graph or the property array loaded first",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

/// Section 4.5.
const PAPER: Paper = Paper { lost: 1.39, kept: 0.921, gain: None };

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    support_graph_orders::run(EXPERIMENT.name, Memory::Tight, PAPER, (setting, progress))
}
