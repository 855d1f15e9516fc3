//! The constants of Trident's programs: their memory, how they get it, and how they access it.

use super::{Cell, Constant};
use superpage_units::{BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes};

/// Btree's row of Table 3 without fragmentation.
const BTREE_ROW: &[Cell] = &[
    btree("trident-faults-only", "mapped by 1 GiB"),
    btree("trident-faults-only", "mapped by 2 MiB"),
    btree("trident-nc", "mapped by 1 GiB"),
    btree("trident-nc", "mapped by 2 MiB"),
    btree("trident", "mapped by 1 GiB"),
    btree("trident", "mapped by 2 MiB"),
];

const fn btree(policy: &'static str, quantity: &'static str) -> Cell {
    Cell { experiment: "trident-table3", case: "Btree, un-fragmented", policy, quantity }
}

/// The gain of GUPS from Trident without fragmentation, in both figures that show it.
const GUPS_GAIN: &[Cell] = &[
    gups("trident-fig9", "GUPS", "trident"),
    gups("trident-fig11", "GUPS, un-fragmented", "trident"),
    gups("trident-fig11", "GUPS, un-fragmented", "trident-nc"),
];

const fn gups(experiment: &'static str, case: &'static str, policy: &'static str) -> Cell {
    Cell { experiment, case, policy, quantity: "performance" }
}

// Memory.
pub(super) static XSBENCH_SIZE: Constant<Bytes> =
    Constant::paper("trident.xsbench-size", Bytes::from_gib(117), "Table 3, the first column");
pub(super) static GUPS_SIZE: Constant<Bytes> =
    Constant::paper("trident.gups-size", Bytes::from_gib(32), "Table 3, the first column");
pub(super) static SVM_SIZE: Constant<Bytes> = Constant::paper(
    "trident.svm-size",
    Bytes::from_mib(70_144),
    "Table 3, the first column: 68.5 GB",
);
pub(super) static REDIS_SIZE: Constant<Bytes> =
    Constant::paper("trident.redis-size", Bytes::from_gib(44), "Table 3, the first column");
pub(super) static BTREE_SIZE: Constant<Bytes> =
    Constant::paper("trident.btree-size", Bytes::from_gib(25), "Table 3, the first column");
pub(super) static GRAPH500_SIZE: Constant<Bytes> = Constant::paper(
    "trident.graph500-size",
    Bytes::from_mib(65_024),
    "Table 3, the first column: 63.5 GB",
);
pub(super) static MEMCACHED_SIZE: Constant<Bytes> =
    Constant::paper("trident.memcached-size", Bytes::from_gib(137), "Table 3, the first column");
pub(super) static CANNEAL_SIZE: Constant<Bytes> =
    Constant::paper("trident.canneal-size", Bytes::from_gib(32), "Table 3, the first column");
pub(super) static GAPBS_SIZE: Constant<Bytes> =
    Constant::paper("trident.gapbs-size", Bytes::from_gib(72), "Table 2: CC, BC and PR");
pub(super) static CG_SIZE: Constant<Bytes> =
    Constant::paper("trident.cg-size", Bytes::from_gib(50), "Table 2");
pub(super) static BTREE_TOUCHED: Constant<Bytes> = Constant::paper(
    "trident.btree-touched",
    Bytes::from_mib(10_752),
    "Table 2: 10.5 GB, taken as what is touched of the 25 GB of Table 3",
);
pub(super) static MEMCACHED_TOUCHED: Constant<Bytes> = Constant::paper(
    "trident.memcached-touched",
    Bytes::from_gib(79),
    "Table 2, taken as what is touched of the 137 GB of Table 3",
);
pub(super) static UNTOUCHED: Constant<()> = Constant::assumed(
    "trident.untouched",
    (),
    "memory that is not touched lies between what is, anywhere, but where another constant says else; \
     the paper does not say where",
);

// VMAs.
pub(super) static OFFSET: Constant<BasePages> = Constant::assumed(
    "trident.offset",
    BasePages(189 * BASE_PAGES_PER_HUGE_PAGE + BASE_PAGES_PER_HUGE_PAGE / 2 + 1),
    "from a 1 GiB border to the start of a VMA: any that is aligned to no superpage",
);
pub(super) static XSBENCH_VMAS: Constant<usize> = Constant::assumed(
    "trident.xsbench-vmas",
    1,
    "one table that is there at once; section 5.1.2 has it allocate large chunks",
);
pub(super) static GUPS_VMAS: Constant<usize> = Constant::assumed(
    "trident.gups-vmas",
    1,
    "one table that is there at once; section 5.1.2 has it allocate large chunks",
);
pub(super) static GRAPH500_VMAS: Constant<usize> = Constant::chosen(
    "trident.graph500-vmas",
    4,
    "its row of Table 3: 60 of 63.5 GB by 1 GiB pages after promotion",
    "edges, offsets, neighbours and tree, all alike",
);
pub(super) static GAPBS_VMAS: Constant<usize> = Constant::assumed(
    "trident.gapbs-vmas",
    2,
    "CC, BC and PR, of which the paper only says that they gain little",
);
pub(super) static CG_VMAS: Constant<usize> =
    Constant::assumed("trident.cg-vmas", 2, "of CG.D the paper only says that it gains little");
pub(super) static BTREE_VMAS: Constant<usize> = Constant::fitted(
    "trident.btree-vmas",
    9,
    BTREE_ROW,
    "so many that 16 of 25 GB can be mapped by 1 GiB pages",
);
pub(super) static SVM_AT_ONCE: Constant<Bytes> = Constant::chosen(
    "trident.svm-at-once",
    Bytes::from_gib(55),
    "its row of Table 3: 54 GB by 1 GiB pages at faults",
    "section 5.1.2 only says that not all of it is allocated at once",
);
pub(super) static SVM_ARRAYS: Constant<usize> = Constant::chosen(
    "trident.svm-arrays",
    2,
    "its row of Table 3: 65 GB by 1 GiB pages after promotion",
    "arrays that hold what is not there at once",
);
pub(super) static REDIS_AT_ONCE: Constant<Bytes> = Constant::chosen(
    "trident.redis-at-once",
    Bytes::from_mib(512), // tidy: allow(MiB)
    "its row of Table 3: 0.5 GB by 2 MiB pages at faults",
    "its hash table: 2^26 entries of 8 bytes",
);
pub(super) static MEMCACHED_AT_ONCE: Constant<Bytes> = Constant::chosen(
    "trident.memcached-at-once",
    Bytes::from_gib(17),
    "its row of Table 3: 16 GB by 1 GiB pages at faults",
    "its hash table, 2^31 entries of 8 bytes, and 1 GiB",
);
pub(super) static CANNEAL_AT_ONCE: Constant<Bytes> = Constant::chosen(
    "trident.canneal-at-once",
    Bytes::from_gib(9),
    "its row of Table 3: 8 GB by 1 GiB pages at faults",
    "section 5.1.2 only says that not all of it is allocated at once",
);
pub(super) static HEAP_STEP: Constant<BasePages> = Constant::assumed(
    "trident.heap-step",
    BasePages(33),
    "132 KiB: how malloc grows a heap (glibc: M_TOP_PAD and the request)",
);
pub(super) static ARRAY_STEP: Constant<Bytes> = Constant::assumed(
    "trident.array-step",
    Bytes::from_mib(64),
    "how arrays and slabs grow: by more than a huge page and less than a gigantic one",
);
pub(super) static BTREE_STEP: Constant<Bytes> = Constant::fitted(
    "trident.btree-step",
    Bytes::from_mib(6),
    BTREE_ROW,
    "how its VMAs grow: two of three huge pages fit",
);

// Time.
pub(super) static FILL_CYCLES: Constant<f64> = Constant::assumed(
    "trident.fill-cycles",
    2_000.0,
    "a program's own cycles for each base page that it fills in one go",
);
pub(super) static INSERT_CYCLES: Constant<f64> = Constant::assumed(
    "trident.insert-cycles",
    20_000.0,
    "a program's own cycles for each base page that it fills item by item",
);
pub(super) static SECONDS: Constant<f64> = Constant::assumed(
    "trident.seconds",
    300.0,
    "how long the main part would take if translation cost nothing; the paper names no times, and \
     promotion goes on meanwhile",
);

// Threads.
pub(super) static XSBENCH_THREADS: Constant<u32> =
    Constant::paper("trident.xsbench-threads", 36, "Table 2");
pub(super) static GUPS_THREADS: Constant<u32> =
    Constant::paper("trident.gups-threads", 1, "Table 2");
pub(super) static SVM_THREADS: Constant<u32> =
    Constant::paper("trident.svm-threads", 36, "Table 2");
pub(super) static REDIS_THREADS: Constant<u32> =
    Constant::paper("trident.redis-threads", 1, "Table 2");
pub(super) static BTREE_THREADS: Constant<u32> =
    Constant::paper("trident.btree-threads", 1, "Table 2");
pub(super) static GRAPH500_THREADS: Constant<u32> =
    Constant::paper("trident.graph500-threads", 36, "Table 2");
pub(super) static MEMCACHED_THREADS: Constant<u32> =
    Constant::paper("trident.memcached-threads", 36, "Table 2");
pub(super) static CANNEAL_THREADS: Constant<u32> =
    Constant::paper("trident.canneal-threads", 1, "Table 2");
pub(super) static GAPBS_THREADS: Constant<u32> =
    Constant::paper("trident.gapbs-threads", 36, "Table 2");
pub(super) static CG_THREADS: Constant<u32> = Constant::paper("trident.cg-threads", 36, "Table 2");

// Accesses that miss the data caches.

const CYCLES: &str = "from one access to the next, without translation: a pointer that is waited \
                      for takes 90 ns, a processor has a few gathers under way at once, and a \
                      program computes in between";

pub(super) static XSBENCH_CYCLES: Constant<f64> =
    Constant::assumed("trident.xsbench-cycles", 300.0, CYCLES);
pub(super) static SVM_CYCLES: Constant<f64> =
    Constant::assumed("trident.svm-cycles", 200.0, CYCLES);
pub(super) static REDIS_CYCLES: Constant<f64> =
    Constant::assumed("trident.redis-cycles", 400.0, CYCLES);
pub(super) static BTREE_CYCLES: Constant<f64> =
    Constant::assumed("trident.btree-cycles", 150.0, CYCLES);
pub(super) static GRAPH500_CYCLES: Constant<f64> =
    Constant::assumed("trident.graph500-cycles", 150.0, CYCLES);
pub(super) static MEMCACHED_CYCLES: Constant<f64> =
    Constant::assumed("trident.memcached-cycles", 400.0, CYCLES);
pub(super) static CANNEAL_CYCLES: Constant<f64> =
    Constant::assumed("trident.canneal-cycles", 80.0, CYCLES);
pub(super) static CC_CYCLES: Constant<f64> = Constant::assumed("trident.cc-cycles", 300.0, CYCLES);
pub(super) static BC_CYCLES: Constant<f64> = Constant::assumed("trident.bc-cycles", 300.0, CYCLES);
pub(super) static PR_CYCLES: Constant<f64> = Constant::assumed("trident.pr-cycles", 300.0, CYCLES);
pub(super) static CG_CYCLES: Constant<f64> = Constant::assumed("trident.cg-cycles", 200.0, CYCLES);
pub(super) static GUPS_CYCLES: Constant<f64> = Constant::fitted(
    "trident.gups-cycles",
    20.5,
    GUPS_GAIN,
    "from one access to the next, without translation: so that it gains 47 % (Figure 9)",
);
pub(super) static GRAPH_SKEW: Constant<f64> = Constant::assumed(
    "trident.graph-skew",
    0.6,
    "the exponent of the power law of accesses of graph programs; hot items lie anywhere",
);
pub(super) static UNIFORM: Constant<()> = Constant::assumed(
    "trident.uniform",
    (),
    "programs but GUPS and the graphs access all of their memory alike",
);
pub(super) static GUPS_UNIFORM: Constant<()> = Constant::paper(
    "trident.gups-uniform",
    (),
    "Table 2: irregular; GUPS updates random entries of one table",
);
