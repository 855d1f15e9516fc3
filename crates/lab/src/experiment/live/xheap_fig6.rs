//! `xheap-fig6`: liblinear trains an SVM with memory for a part of its own: on swap, in a heap file, and
//! all in memory.

use super::support_heap::{self, Plan};
use super::support_heap_trial::{Job, Policy};
use super::{Experiment, On, Progress, Report, Result, Setting};
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "xheap-fig6",
    source: "xHeap, Figure 6",
    summary: "The training of an SVM with 15 to 25 % of its memory on storage",
    on: On::Live,
    columns: support_heap::COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let plan = Plan {
        experiment: EXPERIMENT.name,
        cases: &[("svm", Job::Train)],
        policies: &Policy::FOR_A_PART,
        size: Bytes(support_heap::SIZE.0 / 2),
        memory: &[(75, None), (80, None), (85, None)],
    };
    let mut report = support_heap::run(&plan, setting, progress)?;
    report.notes.push(
        "liblinear-train of Debian's liblinear-tools, solver 2 (the primal), one thread, from its start until it is \
         trained, with reading the rows as text; all models are the same, byte by byte. The paper: swap with THP \
         takes 1.28 to 1.76 times as long as xHeap over all budgets, swap without about as long, and the kernel's share is 14 and 5 % on average."
            .to_owned(),
    );
    Ok(report)
}
