//! `xheap-fig5`: where the time of XSBench goes, with 75 to 85 % of its memory (xHeap, Figure 5).

use super::support_xheap::Configuration;
use super::support_xheap_bars::{self, Paper};
use super::support_xheap_programs::Program;
use super::{COLUMNS, Experiment, On, Progress, Report, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "xheap-fig5",
    source: "xHeap, Figure 5",
    summary: "Time of XSBench with 15 to 25 % of its memory on storage, and the kernel's share",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let paper = Paper { longer, system };
    support_xheap_bars::add(&mut table, Program::XsBench, paper, (setting, progress))?;
    table.note(
        "With 85 % in memory xHeap loses in the paper, because faults in evicted ranges find free huge \
         pages and read them whole. In the model that can happen only where it reclaims ahead: else a \
         huge page is evicted for a promotion, which takes it. 0.7692 is derived: there xHeap takes 1.3 \
         times as long as swap with THP.",
    );
    Ok(table.report)
}

/// From the text of section 4.2.
fn longer(budget: u32, configuration: Configuration) -> Option<f64> {
    match (budget, configuration) {
        (75 | 80, _) => Some(1.4),
        (85, Configuration::SwapThp) => Some(1.0 / 1.3),
        _ => None,
    }
}

/// From the text of section 4.2.
fn system(budget: u32, configuration: Configuration) -> Option<f64> {
    match (budget, configuration) {
        (75 | 80, Configuration::SwapThp) => Some(24.5),
        (75 | 80, Configuration::XHeap) => Some(19.0),
        _ => None,
    }
}
