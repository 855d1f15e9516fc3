//! `trident-fig10`: the same as Figure 9 while half of the free memory is fragmented (Trident, Figure 10).
//!
//! The paper fragments memory by reading files at random; a base page of the page cache can be moved. Here one
//! base page of each huge frame is pinned, which nothing can undo. No pages of 1 GiB are taken before: a
//! program gets what the kernel can still find when it starts.

use super::support_figure::{self, Figure};
use super::support_programs::{Case, Memory, Plan, Policy, Work};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::experiment::sim;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-fig10",
    source: "Trident, Figure 10",
    summary: "Programs on 4 KiB, 2 MiB and 1 GiB pages by every way to get them, fragmented",
    on: On::Live,
    columns: support_figure::COLUMNS,
    run,
};

/// The part of the free memory without a whole huge frame, at least. Chosen: the other half holds the largest
/// program, on huge pages.
pub(super) const FRAGMENTED: f64 = 0.5;

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let paper = sim::paper_of_trident_fig10;
    let plan = Plan {
        cases: Case::ALL,
        policies: Policy::ALL,
        memory: Memory::Fragmented(FRAGMENTED),
        work: Work::Timed,
    };
    let figure = Figure { name: EXPERIMENT.name, plan, paper };
    support_figure::run(&figure, setting, progress)
}
