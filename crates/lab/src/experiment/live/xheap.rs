//! Programs with memory for a part of their data: the figures of xHeap's paper on this machine, and what its section 4 says of
//! heaps on storage, each by what it measures. How it is measured: `support_heap`, a trial: `support_heap_trial`.
//!
//! The paper's programs are real ones and its storage four drives. Beside its figures, patterns of access are measured apart,
//! and the disk's own rate is told beside them.

use super::support_heap::{COLUMNS, PASSES, Plan, SIZE};
use super::support_heap_trial::{Ask, Job};
use super::{Experiment, On};
use crate::helper::Pattern;
use crate::program::Program;
use superpage_units::Bytes;

/// The size of the figures' programs: each runs with three amounts of memory, the others with one.
const HALF: Bytes = Bytes(SIZE.0 / 2);
/// The lookups of XSBench. From the paper, section 4.1.
pub(super) const LOOKUPS: u64 = 1_000_000;

/// Deduplication, on swap, in a heap file, and all in memory.
pub(super) const FIG4: Experiment = Experiment {
    name: "xheap-fig4",
    source: "xHeap, Figure 4",
    summary: "Deduplication with 15 to 25 % of its memory on storage",
    on: On::Live,
    columns: COLUMNS,
    run: &Plan {
        cases: &[("dedup", Job::Program(Program::Dedup, u64::MAX))],
        size: HALF,
        memory: &[(75, Some(1.5)), (80, Some(1.5)), (85, Some(1.5))],
        notes: &[
            "All of the text is chunked, hashed and compressed once, timed without making it. The paper: swap with THP takes \
             1.5 times as long as xHeap, swap without as long, within error; the kernel's share is 26 to 27 % under swap with \
             THP and 2 to 3 % under xHeap, which it calls 8.2 to 8.4 times less, where these are 8.7 to 13.5 times apart.",
        ],
    },
};

/// Grid lookups as in XSBench.
pub(super) const FIG5: Experiment = Experiment {
    name: "xheap-fig5",
    source: "xHeap, Figure 5",
    summary: "Grid lookups as in XSBench with 15 to 25 % of their memory on storage",
    on: On::Live,
    columns: COLUMNS,
    run: &Plan {
        cases: &[("xsbench", Job::Program(Program::Xsbench, LOOKUPS))],
        size: HALF,
        memory: &[(75, Some(1.4)), (80, Some(1.4)), (85, Some(0.769))],
        notes: &[
            "A million lookups in a unionised grid, timed without making the grids, as XSBench does. The paper: swap takes \
             1.4 times as long as xHeap with 75 and 80 %, and xHeap 1.3 times as long as swap with huge pages with 85 % (0.769 is derived from that).",
        ],
    },
};

/// liblinear trains an SVM.
pub(super) const FIG6: Experiment = Experiment {
    name: "xheap-fig6",
    source: "xHeap, Figure 6",
    summary: "The training of an SVM with 15 to 25 % of its memory on storage",
    on: On::Live,
    columns: COLUMNS,
    run: &Plan {
        cases: &[("svm", Job::Train)],
        size: HALF,
        memory: &[(75, None), (80, None), (85, None)],
        notes: &[
            "liblinear-train of Debian's liblinear-tools, solver 2 (the primal), one thread, from its start until it is \
             trained, with reading the rows as text; all models are the same, byte by byte. The paper: swap with THP \
             takes 1.28 to 1.76 times as long as xHeap over all budgets, swap without about as long, and the kernel's share is 14 and 5 % on average.",
        ],
    },
};

/// A program that passes over its data in order.
pub(super) const STREAMS: Experiment = Experiment {
    name: "heap-streams",
    source: "xHeap, section 4",
    summary: "Data larger than memory, passed over in order: on swap, in a heap file, and in memory",
    on: On::Live,
    columns: COLUMNS,
    run: &Plan {
        cases: &[
            ("sequential-read", Job::Passes(Pattern::SequentialRead)),
            ("sequential-write", Job::Passes(Pattern::SequentialWrite)),
            ("strided", Job::Passes(Pattern::Strided)),
            ("four-streams", Job::Passes(Pattern::FourStreams)),
        ],
        size: SIZE,
        memory: &[(75, None)],
        notes: &[
            PASSES,
            "strided: a word of every third base page in order, then from the second base page on and from the third. \
             four-streams: four threads read a quarter each.",
        ],
    },
};

/// A program that reads words of its data at random, which is what huge pages are worst at where memory is short: a miss costs a
/// huge page for the sake of a word.
pub(super) const RANDOM: Experiment = Experiment {
    name: "heap-random",
    source: "xHeap, section 4",
    summary: "Data larger than memory, read at random: on swap, in a heap file, and in memory",
    on: On::Live,
    columns: COLUMNS,
    run: &Plan {
        cases: &[("uniform", Job::Passes(Pattern::Uniform)), ("zipf", Job::Passes(Pattern::Zipf))],
        size: SIZE,
        memory: &[(75, None)],
        notes: &[
            PASSES,
            "uniform: as many single words as there are base pages. zipf: eight times as many, of base pages that are \
             popular by Zipf's law (exponent 0.99) and lie apart.",
        ],
    },
};

/// A Redis that holds more than it has memory for. The client is not in the server's cgroup.
pub(super) const REDIS: Experiment = Experiment {
    name: "heap-redis",
    source: "xHeap, section 4",
    summary: "A Redis that holds more than memory, asked at random: on swap, in a heap file, and in memory",
    on: On::Live,
    columns: &WITH_REQUESTS,
    run: &Plan {
        cases: &[("get", Job::Redis(Ask::Get)), ("set", Job::Redis(Ask::Set))],
        size: SIZE,
        memory: &[(75, None)],
        notes: &[
            "Redis with values of 1000 bytes under keys that are all as likely (uniform), a KiB of the size for each; \
             nothing is persistent. It is filled, gets half as many requests as it has keys, and then as many once more, \
             which are timed: one on each of eight connections at a time, from a client outside the cgroup that compares \
             every answer. p99 request: from the sending of a request to its answer, so that it waits for up to seven \
             others. Of xheap the filling and the first requests count for faults, the huge share and p99 us.",
        ],
    },
};

/// The columns of all these experiments, and how long requests took.
const WITH_REQUESTS: [(&str, &str); COLUMNS.len() + 1] = {
    let mut all = [("p99_request_us", "p99 request us"); COLUMNS.len() + 1];
    let (known, _) = all.split_at_mut(COLUMNS.len());
    known.copy_from_slice(COLUMNS);
    all
};
