//! `graph-fig1`: the kernels by page policy (graph paper, Figure 1).

use super::support_graph::{
    Among, BEYOND, COLUMNS, FRAGMENTED, KERNELS, Kind, Policy, Variant, compare,
};
use super::{Experiment, On, Progress, Report, Result, Setting};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "graph-fig1",
    source: "Graph page sizes, Figure 1",
    summary: "Kernels on graphs by page policy: base pages, THP always without and under pressure, and selective huge pages under it",
    on: On::Live,
    columns: COLUMNS,
    run,
};

const VARIANTS: [Variant; 6] = [
    Variant::free(Policy::BASE),
    Variant::free(Policy::HUGE),
    Variant::free(Policy::LINUX).paper(1.63),
    Variant::under(Policy::LINUX.named("linux, pressure"), BEYOND, FRAGMENTED),
    Variant::under(Policy::PROPERTY.named("property, pressure"), BEYOND, FRAGMENTED),
    Variant::under(Policy::HOT.named("dbg+huge:20%, pressure"), BEYOND, FRAGMENTED),
];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let notes = &[
        "The paper: huge pages make its programs 1.63 times as fast, under pressure 1.02 times, and selective ones 1.26 to 1.57 \
         times, over base pages by its abstract and section 5.2, over THP under pressure by its introduction. Speed with dbg includes what grouping does for caches, which the paper leaves out.",
    ];
    let of: Among<'_> = (&Kind::ALL, &KERNELS);
    compare(EXPERIMENT.name, of, &VARIANTS, notes, (setting, progress))
}
