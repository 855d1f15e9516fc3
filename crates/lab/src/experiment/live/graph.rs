//! The figures of the graph paper on this machine, each by what it compares. How runs are made and compared: `support_graph`.

use super::support_graph::{
    BEYOND, COLUMNS, Comparison, FRAGMENTED, KERNELS, Kind, Policy, VALUES, Variant,
};
use super::{Experiment, On};

/// Linux with the property array made first.
const FIRST: Policy = Policy { when: "first", ..Policy::LINUX };
/// Linux with the graph read through the page cache.
const CACHED: Policy = Policy { is_cached: true, ..Policy::LINUX };
/// Huge pages for one array, other than the property array; the runs below say for which.
const ONE: Policy = Policy { property: "base", ..Policy::PROPERTY };

const VERTEX: Variant = Variant::free(Policy { vertex: "huge", ..ONE.named("vertex") });
const EDGE: Variant = Variant::free(Policy { edge: "huge", ..ONE.named("edge") });
/// Huge pages everywhere, vertices grouped by degree.
const GROUPED_HUGE: Variant =
    Variant::free(Policy { group: "dbg", ..Policy::HUGE.named("dbg+huge, no pressure") });

/// The free memory beyond what a run needs, as a share of that, where the paper has 0.5 GB beside 3 to 25.
const LITTLE: f64 = 0.05;

/// A run with little memory left.
const fn tight(policy: Policy, name: &'static str) -> Variant {
    Variant::under(policy.named(name), LITTLE, 0.0)
}

/// A run with half of free memory fragmented.
const fn half(policy: Policy, name: &'static str) -> Variant {
    Variant::under(policy.named(name), BEYOND, FRAGMENTED)
}

/// A run with this share of free memory fragmented.
const fn level(policy: Policy, name: &'static str, fragmented: f64) -> Variant {
    Variant::under(policy.named(name), BEYOND, fragmented)
}

/// A run with huge pages for a part of the property array, half of free memory fragmented.
const fn part(name: &'static str, property: &'static str, group: &'static str) -> Variant {
    half(Policy { property, group, ..Policy::PROPERTY }, name)
}

/// The kernels by page policy.
pub(super) const FIG1: Experiment = Experiment {
    name: "graph-fig1",
    source: "Graph page sizes, Figure 1",
    summary: "Kernels on graphs by page policy: base pages, THP always without and under pressure, and selective huge pages under it",
    on: On::Live,
    columns: COLUMNS,
    run: &Comparison {
        kinds: &Kind::ALL,
        kernels: &KERNELS,
        variants: &[
            Variant::free(Policy::BASE),
            Variant::free(Policy::HUGE),
            Variant::free(Policy::LINUX).paper(1.63),
            half(Policy::LINUX, "linux, pressure"),
            half(Policy::PROPERTY, "property, pressure"),
            half(Policy::HOT, "dbg+huge:20%, pressure"),
        ],
        notes: &[
            "The paper: huge pages make its programs 1.63 times as fast, under pressure 1.02 times, and selective ones 1.26 to 1.57 \
             times, over base pages by its abstract and section 5.2, over THP under pressure by its introduction. Speed with dbg includes what grouping does for caches, which the paper leaves out.",
        ],
    },
};

/// All kernels with huge pages for one array at a time. The paper's Figure 2 shows TLB misses, which a virtual machine does not
/// count; its section 4.1 says array by array where they are.
pub(super) const FIG2: Experiment = Experiment {
    name: "graph-fig2",
    source: "Graph page sizes, Figure 2 and section 4.1",
    summary: "Speedup of each kernel with huge pages for one array at a time, instead of TLB misses",
    on: On::Live,
    columns: COLUMNS,
    run: &Comparison {
        kinds: &[Kind::Kronecker],
        kernels: &KERNELS,
        variants: &[
            Variant::free(Policy::BASE),
            Variant::free(Policy::HUGE),
            VERTEX,
            EDGE,
            Variant::free(Policy { values: "huge", ..ONE.named(VALUES) }),
            Variant::free(Policy::PROPERTY),
        ],
        notes: &[],
    },
};

/// BFS with huge pages for one array at a time.
pub(super) const FIG5: Experiment = Experiment {
    name: "graph-fig5",
    source: "Graph page sizes, Figure 5 and section 4.5",
    summary: "Speedup of BFS with huge pages everywhere and for one array at a time",
    on: On::Live,
    columns: COLUMNS,
    run: &Comparison {
        kinds: &Kind::ALL,
        kernels: &["bfs"],
        variants: &[
            Variant::free(Policy::BASE),
            Variant::free(Policy::HUGE),
            VERTEX,
            EDGE,
            Variant::free(Policy::PROPERTY),
        ],
        notes: &[
            "The paper: huge pages for the property array alone keep 82.9 % of the speed of huge pages everywhere, on 2.92 % of \
             the memory.",
        ],
    },
};

/// The file of a graph in the page cache takes the memory that huge pages want (section 4.3, whose Figure 6 draws it).
///
/// Different from the paper: it has no numbers for this, and keeps the cache out of its other experiments.
pub(super) const FIG6: Experiment = Experiment {
    name: "graph-fig6",
    source: "Graph page sizes, Figure 6 and section 4.3",
    summary: "Speedup of BFS with little free memory, the graph read past the page cache and through it (single-use memory)",
    on: On::Live,
    columns: COLUMNS,
    run: &Comparison {
        kinds: &Kind::ALL,
        kernels: &["bfs"],
        variants: &[
            Variant::free(Policy::BASE),
            Variant::free(Policy::HUGE),
            tight(Policy::LINUX, "linux, pressure"),
            tight(CACHED, "linux, cached, pressure"),
            tight(FIRST, "linux, property first, pressure"),
            tight(Policy { when: "first", ..CACHED }, "linux, property first, cached, pressure"),
        ],
        notes: &[
            "cached: the graph is read through the page cache and stays there, as with most programs. Its pages go when memory is \
             short; what they leave is in pieces. The paper says that fewer huge pages are made so, and gives no number.",
        ],
    },
};

/// Little memory left, both orders of allocation.
pub(super) const FIG7: Experiment = Experiment {
    name: "graph-fig7",
    source: "Graph page sizes, Figure 7 and section 4.3.1",
    summary: "Speedup of graph kernels with little free memory, the graph or the property array made first",
    on: On::Live,
    columns: COLUMNS,
    run: &Comparison {
        kinds: &Kind::ALL,
        kernels: &KERNELS,
        variants: &[
            Variant::free(Policy::BASE),
            Variant::free(Policy::HUGE),
            tight(Policy::BASE, "linux-4k, pressure"),
            tight(Policy::LINUX, "linux, pressure"),
            tight(FIRST, "linux, property first, pressure"),
        ],
        notes: &[
            "The paper: under pressure huge pages lose a factor of 1.39, and with the property array made first 92.1 % of their \
             speed is kept.",
        ],
    },
};

/// Half of free memory fragmented, both orders of allocation.
pub(super) const FIG8: Experiment = Experiment {
    name: "graph-fig8",
    source: "Graph page sizes, Figure 8 and section 4.4.2",
    summary: "Speedup of graph kernels with half of free memory fragmented, the graph or the property array made first",
    on: On::Live,
    columns: COLUMNS,
    run: &Comparison {
        kinds: &Kind::ALL,
        kernels: &KERNELS,
        variants: &[
            Variant::free(Policy::BASE),
            Variant::free(Policy::HUGE),
            half(Policy::BASE, "linux-4k, fragmented"),
            half(Policy::LINUX, "linux, fragmented"),
            half(FIRST, "linux, property first, fragmented").paper(1.25),
        ],
        notes: &[
            "The paper: half fragmented, huge pages lose a factor of 1.59, and with the property array made first 80 % of their \
             speed is kept, 1.25 over base pages.",
        ],
    },
};

/// BFS at levels of fragmentation.
pub(super) const FIG9: Experiment = Experiment {
    name: "graph-fig9",
    source: "Graph page sizes, Figure 9 and section 4.4.3",
    summary: "Speedup of BFS with 0 to 75 % of free memory fragmented, the graph or the property array made first",
    on: On::Live,
    columns: COLUMNS,
    run: &Comparison {
        kinds: &Kind::ALL,
        kernels: &["bfs"],
        variants: &[
            Variant::free(Policy::BASE),
            Variant::free(Policy::HUGE),
            level(Policy::LINUX, "linux, 0 %", 0.0),
            level(FIRST, "linux, property first, 0 %", 0.0),
            level(Policy::LINUX, "linux, 25 %", 0.25),
            level(FIRST, "linux, property first, 25 %", 0.25),
            level(Policy::LINUX, "linux, 50 %", 0.5),
            level(FIRST, "linux, property first, 50 %", 0.5),
            level(Policy::LINUX, "linux, 75 %", 0.75),
            level(FIRST, "linux, property first, 75 %", 0.75),
        ],
        notes: &[],
    },
};

/// Selective huge pages and degree-based grouping, with half of free memory fragmented.
pub(super) const FIG10: Experiment = Experiment {
    name: "graph-fig10",
    source: "Graph page sizes, Figure 10 and section 5.2",
    summary: "Speedup of graph kernels with half of free memory fragmented: grouping by degree, and huge pages for 50 and 100 % of the property array",
    on: On::Live,
    columns: COLUMNS,
    run: &Comparison {
        kinds: &Kind::ALL,
        kernels: &KERNELS,
        variants: &[
            Variant::free(Policy::BASE),
            Variant::free(Policy::HUGE),
            GROUPED_HUGE,
            half(Policy::LINUX, "linux"),
            half(Policy { group: "dbg", ..Policy::BASE }, "dbg"),
            half(Policy { group: "dbg", ..Policy::LINUX }, "dbg+linux"),
            half(Policy { property: "huge:50%", ..Policy::HOT }, "dbg+huge:50%"),
            half(Policy { property: "huge", ..Policy::HOT }, "dbg+huge:100%"),
        ],
        notes: &[
            "The paper's speedups leave out what grouping does for caches; here it is in: the row dbg has it alone, and beside the \
             selective ones stands dbg+huge, huge pages everywhere on the grouped graph.",
        ],
    },
};

/// BFS with huge pages for 0 to 100 % of the property array, half of free memory fragmented, as vertices are numbered and
/// grouped by degree.
pub(super) const FIG11: Experiment = Experiment {
    name: "graph-fig11",
    source: "Graph page sizes, Figure 11",
    summary: "Speedup of BFS with huge pages for 20 to 100 % of the property array, with and without grouping by degree",
    on: On::Live,
    columns: COLUMNS,
    run: &Comparison {
        kinds: &Kind::ALL,
        kernels: &["bfs"],
        variants: &[
            Variant::free(Policy::BASE),
            Variant::free(Policy::HUGE),
            GROUPED_HUGE,
            half(Policy::LINUX, "linux"),
            part("0 %", "base", "none"),
            part("20 %", "huge:20%", "none"),
            part("40 %", "huge:40%", "none"),
            part("60 %", "huge:60%", "none"),
            part("80 %", "huge:80%", "none"),
            part("100 %", "huge", "none"),
            part("dbg, 0 %", "base", "dbg"),
            part("dbg, 20 %", "huge:20%", "dbg"),
            part("dbg, 40 %", "huge:40%", "dbg"),
            part("dbg, 60 %", "huge:60%", "dbg"),
            part("dbg, 80 %", "huge:80%", "dbg"),
            part("dbg, 100 %", "huge", "dbg"),
        ],
        notes: &[],
    },
};

/// The cost of degree-based grouping, beside the kernels that run on the grouped graph.
pub(super) const DBG_COST: Experiment = Experiment {
    name: "graph-dbg-cost",
    source: "Graph page sizes, section 5.1.2",
    summary: "The time that grouping vertices by degree takes, beside the kernels on the grouped graph",
    on: On::Live,
    columns: COLUMNS,
    run: &Comparison {
        kinds: &Kind::ALL,
        kernels: &KERNELS,
        variants: &[
            Variant::free(Policy::BASE),
            Variant::free(Policy { group: "dbg", ..Policy::BASE.named("dbg") }),
            Variant::free(Policy::HOT),
        ],
        notes: &[
            "Grouping: choosing the new numbers and renumbering the graph in memory. The paper: up to 16.5 % of BFS from start to \
             end, 13 % on average, and up to 2.36 % of SSSP and PageRank; beside it stands the whole program there, here one run of \
             the kernel.",
        ],
    },
};
