//! `heap-compressed`: what compressed memory before the heap's file buys and costs, for data that can be compressed to 0.6 of
//! its size: heaps without it, and with a quarter and half of their memory for it, beside swap.

use super::support_heap::{self, Plan};
use super::support_heap_trial::{Job, Policy};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::helper::{Pattern, Words};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "heap-compressed",
    source: "xHeap, section 2.4",
    summary: "Data larger than memory that can be compressed: on swap, and in a heap with and without compressed memory",
    on: On::Live,
    columns: support_heap::COLUMNS,
    run,
};

const CASES: [(&str, Job); 4] = [
    ("sequential-read", Job::Passes(Pattern::SequentialRead, Words::HalfTheSame)),
    ("sequential-write", Job::Passes(Pattern::SequentialWrite, Words::HalfTheSame)),
    ("uniform", Job::Passes(Pattern::Uniform, Words::HalfTheSame)),
    ("zipf", Job::Passes(Pattern::Zipf, Words::HalfTheSame)),
];

const POLICIES: [Policy; 6] = [
    Policy::InMemory,
    Policy::SWAP_4K_0,
    Policy::SWAP_THP_3,
    Policy::XHeap,
    Policy::XHeapCompressed("xheap-compressed-25", 25),
    Policy::XHeapCompressed("xheap-compressed-50", 50),
];

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let plan = Plan {
        experiment: EXPERIMENT.name,
        cases: &CASES,
        policies: &POLICIES,
        size: support_heap::SIZE,
        memory: &[(75, None)],
    };
    let mut report = support_heap::run(&plan, setting, progress)?;
    report.notes.push(support_heap::PASSES.to_owned());
    report.notes.push(
        "xheap-compressed-25 and -50: that part of the heap's memory, in percent, is for compressed pages \
         (`superpage run --heap --compressed`), and the pools have as much less. Half of all words of the data are the \
         same. Of swap only two ways, of which one is the best or nearly so in each case of heap-streams and heap-random."
            .to_owned(),
    );
    Ok(report)
}
