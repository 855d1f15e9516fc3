//! `graph-fig6`: the file of a graph in the page cache takes the memory that huge pages want (graph paper, section 4.3, whose
//! Figure 6 draws it).
//!
//! Different from the paper: it has no numbers for this, and keeps the cache out of its other experiments.

use super::support_graph::{Among, COLUMNS, Kind, Policy, Variant, compare};
use super::{Experiment, On, Progress, Report, Result, Setting};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig6",
    source: "Graph page sizes, Figure 6 and section 4.3",
    summary: "Speedup of BFS with little free memory, the graph read past the page cache and through it (single-use memory)",
    on: On::Live,
    columns: COLUMNS,
    run,
};

/// As in `graph-fig7`.
const LITTLE: f64 = 0.05;

const fn under(policy: Policy, name: &'static str) -> Variant {
    Variant::under(policy.named(name), LITTLE, 0.0)
}

const CACHED: Policy = Policy { is_cached: true, ..Policy::LINUX };

const VARIANTS: [Variant; 6] = [
    Variant::free(Policy::BASE),
    Variant::free(Policy::HUGE),
    under(Policy::LINUX, "linux, pressure"),
    under(CACHED, "linux, cached, pressure"),
    under(Policy { when: "first", ..Policy::LINUX }, "linux, property first, pressure"),
    under(Policy { when: "first", ..CACHED }, "linux, property first, cached, pressure"),
];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let notes = &[
        "cached: the graph is read through the page cache and stays there, as with most programs. Its pages go when memory is \
         short; what they leave is in pieces. The paper says that fewer huge pages are made so, and gives no number.",
    ];
    let of: Among<'_> = (&Kind::ALL, &["bfs"]);
    compare(EXPERIMENT.name, of, &VARIANTS, notes, (setting, progress))
}
