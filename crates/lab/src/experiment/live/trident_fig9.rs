//! `trident-fig9`: programs on 4 KiB, 2 MiB and 1 GiB pages, by every way there is to get them, while free
//! memory is whole (Trident, Figure 9).
//!
//! The paper's programs have 10 to 150 GB and two processors; ours have what this machine has. The pages of
//! 1 GiB that programs need are in the kernel's pool before. HawkEye, which the figure has too, is only on the
//! simulated machine, and so are walk cycles (Figure 9b).

use super::support_figure::{self, Figure};
use super::support_programs::{Case, Memory, Plan, Policy, Work};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::experiment::sim;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-fig9",
    source: "Trident, Figure 9",
    summary: "Programs on 4 KiB, 2 MiB and 1 GiB pages by every way to get them, un-fragmented",
    on: On::Live,
    columns: support_figure::COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let paper = sim::paper_of_trident_fig9;
    let plan =
        Plan { cases: Case::ALL, policies: Policy::ALL, memory: Memory::Whole, work: Work::Timed };
    let figure = Figure { name: EXPERIMENT.name, plan, paper };
    support_figure::run(&figure, setting, progress)
}
