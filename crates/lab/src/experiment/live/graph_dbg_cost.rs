//! `graph-dbg-cost`: what degree-based grouping costs beside the kernels that run on it (graph paper, section 5.1.2).

use super::support_graph::{Among, COLUMNS, KERNELS, Kind, Policy, Variant, compare};
use super::{Experiment, On, Progress, Report, Result, Setting};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-dbg-cost",
    source: "Graph page sizes, section 5.1.2",
    summary: "The time that grouping vertices by degree takes, beside the kernels on the grouped graph",
    on: On::Live,
    columns: COLUMNS,
    run,
};

const VARIANTS: [Variant; 3] = [
    Variant::free(Policy::BASE),
    Variant::free(Policy { group: "dbg", ..Policy::BASE.named("dbg") }),
    Variant::free(Policy::HOT),
];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let notes = &[
        "Grouping: choosing the new numbers and renumbering the graph in memory. The paper: up to 16.5 % of BFS from start to \
         end, 13 % on average, and up to 2.36 % of SSSP and PageRank; beside it stands the whole program there, here one run of \
         the kernel.",
    ];
    let of: Among<'_> = (&Kind::ALL, &KERNELS);
    compare(EXPERIMENT.name, of, &VARIANTS, notes, (setting, progress))
}
