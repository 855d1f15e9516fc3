//! `xheap-fig4`: where the time of deduplication goes, with 75 to 85 % of its memory (xHeap, Figure 4).

use super::support_xheap::Configuration;
use super::support_xheap_bars::{self, Paper};
use super::support_xheap_programs::Program;
use super::{COLUMNS, Experiment, On, Progress, Report, Result, Setting, Table};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "xheap-fig4",
    source: "xHeap, Figure 4",
    summary: "Time of deduplication with 15 to 25 % of its memory on storage, and the kernel's share",
    on: On::Sim,
    columns: COLUMNS,
    run,
};

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut table = Table::new(EXPERIMENT.name);
    let paper = Paper { longer, system };
    support_xheap_bars::add(&mut table, Program::Dedup, paper, (setting, progress))?;
    table.note(
        "In the paper swap with THP takes as long as without, within error, and the kernel has 26 to \
         27 % under swap with THP, 2 to 3 % under xHeap: 26.5 and 2.5 are the middles of these. The \
         paper says in the same sentence that xHeap's share is 8.2 to 8.4 times less, where these \
         numbers are 8.7 to 13.5 times apart. How a program allocates is not modelled: under xHeap \
         the paper's programs get memory from jemalloc (libvmmalloc), under swap presumably from the C \
         library. What is gained there does not follow from pages and storage.",
    );
    Ok(table.report)
}

/// From the text of section 4.2, which has one number for all budgets.
fn longer(_: u32, configuration: Configuration) -> Option<f64> {
    (configuration == Configuration::SwapThp).then_some(1.5)
}

/// From the text of section 4.2: the middles of 26 to 27 % and of 2 to 3 %. Swap without THP has none.
fn system(_: u32, configuration: Configuration) -> Option<f64> {
    match configuration {
        Configuration::SwapThp => Some(26.5),
        Configuration::XHeap => Some(2.5),
        Configuration::Swap | Configuration::XHeapAhead => None,
    }
}
