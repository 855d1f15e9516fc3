//! `heap-random`: a program that reads words of its data at random, with memory for a part of the data: on swap, with
//! the data in a file by `superpage run --heap`, and all in memory.
//!
//! Such reads are what huge pages are worst at where memory is short: a miss costs a huge page for the sake of a word.

use super::support_heap::{self, Plan};
use super::support_heap_trial::{Job, Policy};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::helper::{Pattern, Words};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "heap-random",
    source: "xHeap, section 4",
    summary: "Data larger than memory, read at random: on swap, in a heap file, and in memory",
    on: On::Live,
    columns: support_heap::COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let plan = Plan {
        experiment: EXPERIMENT.name,
        cases: &[
            ("uniform", Job::Passes(Pattern::Uniform, Words::Different)),
            ("zipf", Job::Passes(Pattern::Zipf, Words::Different)),
        ],
        policies: &Policy::FOR_A_PART,
        size: support_heap::SIZE,
        memory: &[(75, None)],
    };
    let mut report = support_heap::run(&plan, setting, progress)?;
    report.notes.push(support_heap::PASSES.to_owned());
    report.notes.push(
        "uniform: as many single words as there are base pages. zipf: eight times as many, of base pages that are \
         popular by Zipf's law (exponent 0.99) and lie apart."
            .to_owned(),
    );
    Ok(report)
}
