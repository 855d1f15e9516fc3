//! `three-sizes`: one program on three page sizes at once, as `superpage run` starts it on the machine as it is found.
//!
//! The demonstration of `superpage run`; the measurement is `trident-fig9`.

use super::support_figure::{self, Figure};
use super::support_programs::{Case, Memory, Plan, Policy, Work};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::program::Program;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "three-sizes",
    source: "Trident, section 5",
    summary: "Updates at random on 4 KiB, 2 MiB and 1 GiB pages at once, on the machine as it is found",
    on: On::Live,
    columns: support_figure::COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let plan = Plan {
        cases: &[Case::Own(Program::Gups)],
        policies: &[Policy::BasePages, Policy::Linux, Policy::Trident],
        memory: Memory::AsItIs,
        work: Work::Timed,
    };
    let figure = Figure { name: EXPERIMENT.name, plan, paper: |_| None };
    support_figure::run(&figure, setting, progress)
}
