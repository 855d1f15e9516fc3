//! `graph-fig5`: huge pages for one array at a time (graph paper, Figure 5 and section 4.5).

use super::support_graph::{Among, COLUMNS, Kind, Policy, Variant, compare};
use super::{Experiment, On, Progress, Report, Result, Setting};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig5",
    source: "Graph page sizes, Figure 5 and section 4.5",
    summary: "Speedup of BFS with huge pages everywhere and for one array at a time",
    on: On::Live,
    columns: COLUMNS,
    run,
};

const ONE: Policy = Policy { property: "base", ..Policy::PROPERTY };

const VARIANTS: [Variant; 5] = [
    Variant::free(Policy::BASE),
    Variant::free(Policy::HUGE),
    Variant::free(Policy { vertex: "huge", ..ONE.named("vertex") }),
    Variant::free(Policy { edge: "huge", ..ONE.named("edge") }),
    Variant::free(Policy::PROPERTY),
];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let notes = &[
        "The paper: huge pages for the property array alone keep 82.9 % of the speed of huge pages everywhere, on 2.92 % of \
         the memory.",
    ];
    let of: Among<'_> = (&Kind::ALL, &["bfs"]);
    compare(EXPERIMENT.name, of, &VARIANTS, notes, (setting, progress))
}
