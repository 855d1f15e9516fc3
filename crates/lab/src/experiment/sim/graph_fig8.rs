//! `graph-fig8`: huge pages with half of free memory fragmented, in both orders of allocation (graph paper, Figure 8 and section 4.5).

use super::support_graph_orders::{self, Paper};
use super::support_graph_runs::Memory;
use super::{COLUMNS, Experiment, On, Progress, Report, Result, Setting};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig8",
    source: "Graph page sizes, Figure 8 and section 4.5",
    summary: "Speedup of graph programs with memory 50 % fragmented, the graph or the property array loaded first",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

/// Section 4.5; what is still gained over base pages is in the caption.
const PAPER: Paper = Paper { lost: 1.59, kept: 0.8, gain: Some(1.25) };

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    support_graph_orders::run(EXPERIMENT.name, Memory::Fragmented(50), PAPER, (setting, progress))
}
