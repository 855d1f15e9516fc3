//! xHeap's programs (section 3) with the numbers that they are given here. The paper names them and
//! their inputs, and gives neither footprints nor threads.

use super::{Cell, Constant, Constants};
use superpage_sim::workload::Workload;
use superpage_sim::workload::offload::{Dedup, Svm, XsBench};
use superpage_units::{BASE_PAGE_BYTES, Bytes};

static THREADS: Constant<u32> =
    Constant::assumed("xheap.threads", 32, "of each program: as many as the machine runs at once");

static XSBENCH_NUCLIDES: Constant<u64> = Constant::assumed(
    "xheap.xsbench-nuclides",
    355,
    "XSBench's preset XL; the paper does not say which it took",
);
static XSBENCH_GRIDPOINTS: Constant<u64> = Constant::assumed(
    "xheap.xsbench-gridpoints",
    238_847,
    "XSBench's preset XL (120 GB); the paper does not say which it took",
);
static XSBENCH_LOOKUPS: Constant<u64> =
    Constant::paper("xheap.xsbench-lookups", 1_000_000, "section 3");
static XSBENCH_NUCLIDES_A_LOOKUP: Constant<f64> = Constant::assumed(
    "xheap.xsbench-nuclides-a-lookup",
    55.7,
    "nuclides of a material, weighted with how often it is looked up; the weights were not looked up again",
);
static XSBENCH_PROBES: Constant<f64> = Constant::assumed(
    "xheap.xsbench-probes",
    4.0,
    "probes of a binary search that go to pages of their own: of 26 or so the last nine are in one page, the first dozen in few",
);
static XSBENCH_CYCLES: Constant<f64> = Constant::fitted(
    "xheap.xsbench-cycles",
    34_800.0,
    &[Cell {
        experiment: "xheap-fig3",
        case: "XSBench",
        policy: "linux-4k",
        quantity: "TLB miss cycles",
    }],
    "cycles of a look-up without translation",
);

static SVM_INSTANCES: Constant<u64> = Constant::assumed(
    "xheap.svm-instances",
    149_639_105 / 4,
    "a quarter of the instances of KDD 2012, which the paper names; their number was not looked up \
     again",
);
static SVM_NONZEROS: Constant<u64> = Constant::assumed(
    "xheap.svm-nonzeros",
    11,
    "features of an instance of KDD 2012; not from the paper, and not checked",
);
static SVM_FEATURES: Constant<u64> = Constant::assumed(
    "xheap.svm-features",
    54_686_452,
    "all features of KDD 2012; not from the paper, and not checked",
);
static SVM_SKEW: Constant<f64> = Constant::assumed(
    "xheap.svm-skew",
    0.8,
    "the exponent of how often features occur, which stand for users, queries and words",
);
static SVM_PASSES: Constant<u64> =
    Constant::assumed("xheap.svm-passes", 2, "passes that are timed: the second and the third");
static SVM_CYCLES: Constant<f64> = Constant::assumed(
    "xheap.svm-cycles",
    9_000.0,
    "cycles for a page of instances without translation: 38 for each feature",
);

static DEDUP_INPUT: Constant<Bytes> =
    Constant::assumed("xheap.dedup-input", Bytes::from_gib(12), "text in memory; not said");
static DEDUP_KEPT: Constant<f64> =
    Constant::assumed("xheap.dedup-kept", 0.25, "output as a part of the input; not said");
static DEDUP_TABLE: Constant<Bytes> =
    Constant::assumed("xheap.dedup-table", Bytes::from_gib(1), "the table of chunks; not said");
static DEDUP_LOOKUPS: Constant<f64> = Constant::assumed(
    "xheap.dedup-lookups",
    2.0,
    "pages of the table that are touched for a base page of input: a chunk begins in it, with a bucket and an entry",
);
static DEDUP_ACCESSES: Constant<f64> = Constant::assumed(
    "xheap.dedup-accesses",
    2.0,
    "accesses for each byte of input to the hash table, the chain and the window, of which two miss no cache",
);
static DEDUP_CYCLES: Constant<f64> = Constant::assumed(
    "xheap.dedup-cycles",
    50.0,
    "cycles for each byte of input without translation; not said",
);

/// A program of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Program {
    Dedup,
    XsBench,
    Svm,
}

impl Program {
    pub(super) const ALL: [Self; 3] = [Self::Dedup, Self::XsBench, Self::Svm];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Dedup => "dedup",
            Self::XsBench => "XSBench",
            Self::Svm => "SVM",
        }
    }

    /// The program as a workload, and the most memory that it takes.
    pub(super) fn workload(self, constants: &Constants) -> (Workload, Bytes) {
        match self {
            Self::Dedup => {
                let dedup = dedup(constants);
                (dedup.workload(), dedup.footprint())
            }
            Self::XsBench => {
                let xsbench = xsbench(constants);
                (xsbench.workload(), xsbench.footprint())
            }
            Self::Svm => {
                let svm = svm(constants);
                (svm.workload(), svm.footprint())
            }
        }
    }
}

fn dedup(constants: &Constants) -> Dedup {
    Dedup {
        input: constants.get(&DEDUP_INPUT),
        kept: constants.get(&DEDUP_KEPT),
        table: constants.get(&DEDUP_TABLE),
        lookups: constants.get(&DEDUP_LOOKUPS),
        accesses: constants.get(&DEDUP_ACCESSES),
        threads: constants.get(&THREADS),
        cycles: constants.get(&DEDUP_CYCLES) * BASE_PAGE_BYTES as f64,
    }
}

fn xsbench(constants: &Constants) -> XsBench {
    XsBench {
        nuclides: constants.get(&XSBENCH_NUCLIDES),
        gridpoints: constants.get(&XSBENCH_GRIDPOINTS),
        lookups: constants.get(&XSBENCH_LOOKUPS),
        nuclides_a_lookup: constants.get(&XSBENCH_NUCLIDES_A_LOOKUP),
        probes: constants.get(&XSBENCH_PROBES),
        threads: constants.get(&THREADS),
        cycles: constants.get(&XSBENCH_CYCLES),
    }
}

fn svm(constants: &Constants) -> Svm {
    Svm {
        instances: constants.get(&SVM_INSTANCES),
        nonzeros: constants.get(&SVM_NONZEROS),
        features: constants.get(&SVM_FEATURES),
        skew: constants.get(&SVM_SKEW),
        passes: constants.get(&SVM_PASSES),
        threads: constants.get(&THREADS),
        cycles: constants.get(&SVM_CYCLES),
    }
}
