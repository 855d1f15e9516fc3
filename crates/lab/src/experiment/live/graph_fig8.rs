//! `graph-fig8`: huge pages with half of free memory fragmented, in both orders of allocation (graph paper, Figure 8 and
//! section 4.4.2).

use super::support_graph::{
    Among, BEYOND, COLUMNS, FRAGMENTED, KERNELS, Kind, Policy, Variant, compare,
};
use super::{Experiment, On, Progress, Report, Result, Setting};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig8",
    source: "Graph page sizes, Figure 8 and section 4.4.2",
    summary: "Speedup of graph kernels with half of free memory fragmented, the graph or the property array made first",
    on: On::Live,
    columns: COLUMNS,
    run,
};

const FIRST: Policy = Policy { when: "first", ..Policy::LINUX };

const VARIANTS: [Variant; 5] = [
    Variant::free(Policy::BASE),
    Variant::free(Policy::HUGE),
    Variant::under(Policy::BASE.named("linux-4k, fragmented"), BEYOND, FRAGMENTED),
    Variant::under(Policy::LINUX.named("linux, fragmented"), BEYOND, FRAGMENTED),
    Variant::under(FIRST.named("linux, property first, fragmented"), BEYOND, FRAGMENTED)
        .paper(1.25),
];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let notes = &[
        "The paper: half fragmented, huge pages lose a factor of 1.59, and with the property array made first 80 % of their \
         speed is kept, 1.25 over base pages.",
    ];
    let of: Among<'_> = (&Kind::ALL, &KERNELS);
    compare(EXPERIMENT.name, of, &VARIANTS, notes, (setting, progress))
}
