//! `graph-fig11`: BFS with huge pages for 0 to 100 % of the property array, half of free memory fragmented, as vertices are
//! numbered and grouped by degree (graph paper, Figure 11).

use super::support_graph::{Among, BEYOND, COLUMNS, FRAGMENTED, Kind, Policy, Variant, compare};
use super::{Experiment, On, Progress, Report, Result, Setting};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig11",
    source: "Graph page sizes, Figure 11",
    summary: "Speedup of BFS with huge pages for 20 to 100 % of the property array, with and without grouping by degree",
    on: On::Live,
    columns: COLUMNS,
    run,
};

const fn of(name: &'static str, property: &'static str, group: &'static str) -> Variant {
    let policy = Policy { property, group, ..Policy::PROPERTY };
    Variant::under(policy.named(name), BEYOND, FRAGMENTED)
}

const VARIANTS: [Variant; 16] = [
    Variant::free(Policy::BASE),
    Variant::free(Policy::HUGE),
    Variant::free(Policy { group: "dbg", ..Policy::HUGE.named("dbg+huge, no pressure") }),
    Variant::under(Policy::LINUX, BEYOND, FRAGMENTED),
    of("0 %", "base", "none"),
    of("20 %", "huge:20%", "none"),
    of("40 %", "huge:40%", "none"),
    of("60 %", "huge:60%", "none"),
    of("80 %", "huge:80%", "none"),
    of("100 %", "huge", "none"),
    of("dbg, 0 %", "base", "dbg"),
    of("dbg, 20 %", "huge:20%", "dbg"),
    of("dbg, 40 %", "huge:40%", "dbg"),
    of("dbg, 60 %", "huge:60%", "dbg"),
    of("dbg, 80 %", "huge:80%", "dbg"),
    of("dbg, 100 %", "huge", "dbg"),
];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let notes = &[];
    let of: Among<'_> = (&Kind::ALL, &["bfs"]);
    compare(EXPERIMENT.name, of, &VARIANTS, notes, (setting, progress))
}
