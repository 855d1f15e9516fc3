//! `graph-fig7`: huge pages under pressure, in both orders of allocation (graph paper, Figure 7 and section 4.3.1).

use super::support_graph::{Among, COLUMNS, KERNELS, Kind, Policy, Variant, compare};
use super::{Experiment, On, Progress, Report, Result, Setting};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig7",
    source: "Graph page sizes, Figure 7 and section 4.3.1",
    summary: "Speedup of graph kernels with little free memory, the graph or the property array made first",
    on: On::Live,
    columns: COLUMNS,
    run,
};

/// The paper has 0.5 GB beside 3 to 25.
const LITTLE: f64 = 0.05;

const FIRST: Policy = Policy { when: "first", ..Policy::LINUX };

const VARIANTS: [Variant; 5] = [
    Variant::free(Policy::BASE),
    Variant::free(Policy::HUGE),
    Variant::under(Policy::BASE.named("linux-4k, pressure"), LITTLE, 0.0),
    Variant::under(Policy::LINUX.named("linux, pressure"), LITTLE, 0.0),
    Variant::under(FIRST.named("linux, property first, pressure"), LITTLE, 0.0),
];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let notes = &[
        "The paper: under pressure huge pages lose a factor of 1.39, and with the property array made first 92.1 % of their \
         speed is kept.",
    ];
    let of: Among<'_> = (&Kind::ALL, &KERNELS);
    compare(EXPERIMENT.name, of, &VARIANTS, notes, (setting, progress))
}
