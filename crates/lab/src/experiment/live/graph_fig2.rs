//! `graph-fig2`: all kernels with huge pages for one array at a time. The paper's Figure 2 shows TLB misses, which a virtual
//! machine does not count; its section 4.1 says array by array where they are.

use super::support_graph::{Among, COLUMNS, KERNELS, Kind, Policy, VALUES, Variant, compare};
use super::{Experiment, On, Progress, Report, Result, Setting};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig2",
    source: "Graph page sizes, Figure 2 and section 4.1",
    summary: "Speedup of each kernel with huge pages for one array at a time, instead of TLB misses",
    on: On::Live,
    columns: COLUMNS,
    run,
};

const ONE: Policy = Policy { property: "base", ..Policy::PROPERTY };

const VARIANTS: [Variant; 6] = [
    Variant::free(Policy::BASE),
    Variant::free(Policy::HUGE),
    Variant::free(Policy { vertex: "huge", ..ONE.named("vertex") }),
    Variant::free(Policy { edge: "huge", ..ONE.named("edge") }),
    Variant::free(Policy { values: "huge", ..ONE.named(VALUES) }),
    Variant::free(Policy::PROPERTY),
];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let notes = &[];
    let of: Among<'_> = (&[Kind::Kronecker], &KERNELS);
    compare(EXPERIMENT.name, of, &VARIANTS, notes, (setting, progress))
}
