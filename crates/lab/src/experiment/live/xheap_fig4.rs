//! `xheap-fig4`: deduplication with memory for a part of the text: on swap, in a heap file, and
//! all in memory.

use super::support_heap::{self, Plan};
use super::support_heap_trial::{Job, Policy};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::program::Program;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "xheap-fig4",
    source: "xHeap, Figure 4",
    summary: "Deduplication with 15 to 25 % of its memory on storage",
    on: On::Live,
    columns: support_heap::COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let plan = Plan {
        experiment: EXPERIMENT.name,
        cases: &[("dedup", Job::Program(Program::Dedup, u64::MAX))],
        policies: &Policy::FOR_A_PART,
        size: Bytes(support_heap::SIZE.0 / 2),
        memory: &[(75, Some(1.5)), (80, Some(1.5)), (85, Some(1.5))],
    };
    let mut report = support_heap::run(&plan, setting, progress)?;
    report.notes.push(
        "All of the text is chunked, hashed and compressed once, timed without making it. The paper: swap with THP takes \
         1.5 times as long as xHeap, swap without as long, within error; the kernel's share is 26 to 27 % under swap with \
         THP and 2 to 3 % under xHeap, which it calls 8.2 to 8.4 times less, where these are 8.7 to 13.5 times apart."
            .to_owned(),
    );
    Ok(report)
}
