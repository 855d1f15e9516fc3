//! `heap-streams`: a program that passes over its data in order, with memory for a part of the data: on swap, with the
//! data in a file by `superpage run --heap`, and all in memory.
//!
//! The paper's programs are real ones and its storage four drives; here the patterns are apart, and the disk's own
//! rate is told beside them.

use super::support_heap::{self, Plan};
use super::support_heap_trial::{Job, Policy};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::helper::{Pattern, Words};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "heap-streams",
    source: "xHeap, section 4",
    summary: "Data larger than memory, passed over in order: on swap, in a heap file, and in memory",
    on: On::Live,
    columns: support_heap::COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let plan = Plan {
        experiment: EXPERIMENT.name,
        cases: &[
            ("sequential-read", Job::Passes(Pattern::SequentialRead, Words::Different)),
            ("sequential-write", Job::Passes(Pattern::SequentialWrite, Words::Different)),
            ("strided", Job::Passes(Pattern::Strided, Words::Different)),
            ("four-streams", Job::Passes(Pattern::FourStreams, Words::Different)),
        ],
        policies: &Policy::FOR_A_PART,
        size: support_heap::SIZE,
        memory: &[(75, None)],
    };
    let mut report = support_heap::run(&plan, setting, progress)?;
    report.notes.push(support_heap::PASSES.to_owned());
    report.notes.push(
        "strided: a word of every third base page in order, then from the second base page on and from the third. \
         four-streams: four threads read a quarter each."
            .to_owned(),
    );
    Ok(report)
}
