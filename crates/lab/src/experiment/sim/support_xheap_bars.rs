//! What xHeap's Figures 4 to 6 show alike: how long a program takes with each budget, and how much of
//! that is the kernel's.

use super::support_xheap::{self, BUDGETS, Case, Configuration, Program, make};
use super::{Basis, Progress, Quantity, Result, Setting, Table};

/// The first reading of xHeap, which the paper's numbers are put beside.
pub(super) const PLAIN: &str = "time over xHeap's";
/// The second, beside which the configurations of swap are put as well.
const AHEAD: &str = "time over xHeap's, reclaiming ahead";

/// What the paper's text says of a budget and a configuration.
#[derive(Clone, Copy)]
pub(super) struct Paper {
    /// How much longer the configuration takes than xHeap.
    pub(super) longer: fn(u32, Configuration) -> Option<f64>,
    /// Percent of time that is the kernel's.
    pub(super) system: fn(u32, Configuration) -> Option<f64>,
}

/// Adds the rows of one program; how much longer swap with THP takes than xHeap, for each budget.
pub(super) fn add(
    table: &mut Table,
    program: Program,
    paper: Paper,
    (setting, progress): (&Setting, Progress<'_>),
) -> Result<Vec<f64>> {
    let mut over_thp = Vec::new();
    let of = |budget, configuration| Case { program, configuration, budget };
    let cases: Vec<Case> =
        BUDGETS.iter().flat_map(|budget| Configuration::ALL.map(|c| of(*budget, c))).collect();
    make(&cases, setting, progress)?;
    for budget in BUDGETS {
        let xheap = of(budget, Configuration::XHeap).outcome(setting)?;
        let ahead = of(budget, Configuration::XHeapAhead).outcome(setting)?;
        let case = format!("{}, {budget} % in memory", program.name());
        for configuration in Configuration::ALL {
            let outcome = of(budget, configuration).outcome(setting)?;
            let policy = configuration.name();
            let row = |name, unit| Quantity { case: &case, policy, name, unit };
            table.add(row("time", "s"), None, outcome.seconds, Basis::Assumed)?;
            if configuration == Configuration::SwapThp {
                over_thp.push(outcome.seconds / xheap.seconds);
            }
            if configuration.is_swap() {
                let said = (paper.longer)(budget, configuration);
                for (name, xheap, said) in [(PLAIN, &xheap, said), (AHEAD, &ahead, None)] {
                    let longer = outcome.seconds / xheap.seconds;
                    table.add(row(name, "ratio"), said, longer, Basis::Assumed)?;
                }
            }
            let system = outcome.system_percent();
            let said = (paper.system)(budget, configuration);
            let said = said.filter(|_| configuration != Configuration::XHeapAhead);
            table.add(row("time in the kernel", "%"), said, system, Basis::Assumed)?;
            table.add(row("faults", "thousands"), None, outcome.faults, Basis::Assumed)?;
            let wait = outcome.wait_percent();
            table.add(row("time waiting for storage", "%"), None, wait, Basis::Assumed)?;
        }
    }
    support_xheap::note(table);
    Ok(over_thp)
}
