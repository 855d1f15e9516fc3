//! Experiments on this machine: real programs, real memory, the stock kernel.

mod emd_fig10;
mod emd_fig13;
mod emd_fig15;
mod emd_fig4;
mod emd_fig7;
mod emd_fig8;
mod emd_table1;
mod emd_table3;
mod fault_overhead;
mod support_bench;
mod support_fairness;
mod support_sweep;

use super::{Content, Error, Experiment, On, Picture, Progress, Report, Result, Setting};

/// All of them, in the order of the papers.
pub const ALL: &[&Experiment] = &[
    &emd_table1::EXPERIMENT,
    &emd_fig4::EXPERIMENT,
    &emd_fig7::EXPERIMENT,
    &emd_fig8::EXPERIMENT,
    &emd_fig10::EXPERIMENT,
    &emd_fig13::EXPERIMENT,
    &emd_table3::EXPERIMENT,
    &emd_fig15::EXPERIMENT,
    &fault_overhead::EXPERIMENT,
];
