//! `xheap-fig5`: grid lookups as in XSBench with memory for a part of the grids: on swap, in a heap file, and
//! all in memory.

use super::support_heap::{self, Plan};
use super::support_heap_trial::{Job, Policy};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::program::Program;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "xheap-fig5",
    source: "xHeap, Figure 5",
    summary: "Grid lookups as in XSBench with 15 to 25 % of their memory on storage",
    on: On::Live,
    columns: support_heap::COLUMNS,
    run,
};

/// From the paper, section 4.1.
pub(super) const LOOKUPS: u64 = 1_000_000;

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let plan = Plan {
        experiment: EXPERIMENT.name,
        cases: &[("xsbench", Job::Program(Program::Xsbench, LOOKUPS))],
        policies: &Policy::FOR_A_PART,
        size: Bytes(support_heap::SIZE.0 / 2),
        memory: &[(75, Some(1.4)), (80, Some(1.4)), (85, Some(0.769))],
    };
    let mut report = support_heap::run(&plan, setting, progress)?;
    report.notes.push(
        "A million lookups in a unionised grid, timed without making the grids, as XSBench does. The paper: swap takes \
         1.4 times as long as xHeap with 75 and 80 %, and xHeap 1.3 times as long as swap with huge pages with 85 % (0.769 is derived from that)."
            .to_owned(),
    );
    Ok(report)
}
