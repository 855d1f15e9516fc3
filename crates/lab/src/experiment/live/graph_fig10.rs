//! `graph-fig10`: selective huge pages and degree-based grouping, with half of free memory fragmented (graph paper, Figure 10
//! and section 5.2).

use super::support_graph::{
    Among, BEYOND, COLUMNS, FRAGMENTED, KERNELS, Kind, Policy, Variant, compare,
};
use super::{Experiment, On, Progress, Report, Result, Setting};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig10",
    source: "Graph page sizes, Figure 10 and section 5.2",
    summary: "Speedup of graph kernels with half of free memory fragmented: grouping by degree, and huge pages for 50 and 100 % of the property array",
    on: On::Live,
    columns: COLUMNS,
    run,
};

const fn under(policy: Policy) -> Variant {
    Variant::under(policy, BEYOND, FRAGMENTED)
}

const VARIANTS: [Variant; 8] = [
    Variant::free(Policy::BASE),
    Variant::free(Policy::HUGE),
    Variant::free(Policy { group: "dbg", ..Policy::HUGE.named("dbg+huge, no pressure") }),
    under(Policy::LINUX),
    under(Policy { group: "dbg", ..Policy::BASE.named("dbg") }),
    under(Policy { group: "dbg", ..Policy::LINUX.named("dbg+linux") }),
    under(Policy { property: "huge:50%", ..Policy::HOT.named("dbg+huge:50%") }),
    under(Policy { property: "huge", ..Policy::HOT.named("dbg+huge:100%") }),
];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let notes = &[
        "The paper's speedups leave out what grouping does for caches; here it is in: the row dbg has it alone, and beside the \
         selective ones stands dbg+huge, huge pages everywhere on the grouped graph.",
    ];
    let of: Among<'_> = (&Kind::ALL, &KERNELS);
    compare(EXPERIMENT.name, of, &VARIANTS, notes, (setting, progress))
}
