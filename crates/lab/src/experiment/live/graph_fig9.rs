//! `graph-fig9`: BFS at levels of fragmentation (graph paper, Figure 9 and section 4.4.3).

use super::support_graph::{Among, BEYOND, COLUMNS, Kind, Policy, Variant, compare};
use super::{Experiment, On, Progress, Report, Result, Setting};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig9",
    source: "Graph page sizes, Figure 9 and section 4.4.3",
    summary: "Speedup of BFS with 0 to 75 % of free memory fragmented, the graph or the property array made first",
    on: On::Live,
    columns: COLUMNS,
    run,
};

const FIRST: Policy = Policy { when: "first", ..Policy::LINUX };

const VARIANTS: [Variant; 10] = [
    Variant::free(Policy::BASE),
    Variant::free(Policy::HUGE),
    Variant::under(Policy::LINUX.named("linux, 0 %"), BEYOND, 0.0),
    Variant::under(FIRST.named("linux, property first, 0 %"), BEYOND, 0.0),
    Variant::under(Policy::LINUX.named("linux, 25 %"), BEYOND, 0.25),
    Variant::under(FIRST.named("linux, property first, 25 %"), BEYOND, 0.25),
    Variant::under(Policy::LINUX.named("linux, 50 %"), BEYOND, 0.5),
    Variant::under(FIRST.named("linux, property first, 50 %"), BEYOND, 0.5),
    Variant::under(Policy::LINUX.named("linux, 75 %"), BEYOND, 0.75),
    Variant::under(FIRST.named("linux, property first, 75 %"), BEYOND, 0.75),
];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let notes = &[];
    let of: Among<'_> = (&Kind::ALL, &["bfs"]);
    compare(EXPERIMENT.name, of, &VARIANTS, notes, (setting, progress))
}
