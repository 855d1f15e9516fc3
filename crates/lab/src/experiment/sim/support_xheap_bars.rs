//! What xHeap's Figures 4 to 6 show alike: how long a program takes with each budget, and how much of
//! that is the kernel's.

use super::support_xheap::{self, BUDGETS, Case, Configuration, Outcome, make};
use super::support_xheap_programs::Program;
use super::{Progress, Quantity, Rests, Result, Setting, Table};

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

/// How much longer swap with THP takes than xHeap, for each budget, and what that rests on.
#[derive(Clone, Debug, Default)]
pub(super) struct Longer {
    pub(super) ratios: Vec<f64>,
    pub(super) rests: Rests,
}

/// Adds the rows of one program.
pub(super) fn add(
    table: &mut Table,
    program: Program,
    paper: Paper,
    (setting, progress): (&Setting, Progress<'_>),
) -> Result<Longer> {
    let mut over_thp = Longer::default();
    let of = |budget, configuration| Case { program, configuration, budget };
    let cases: Vec<Case> =
        BUDGETS.iter().flat_map(|budget| Configuration::ALL.map(|c| of(*budget, c))).collect();
    make(&cases, setting, progress)?;
    for budget in BUDGETS {
        let xheap = of(budget, Configuration::XHeap).outcome(setting)?;
        let ahead = of(budget, Configuration::XHeapAhead).outcome(setting)?;
        for configuration in Configuration::ALL {
            let case = of(budget, configuration);
            let outcome = case.outcome(setting)?;
            add_one(table, case, paper, [&outcome, &xheap, &ahead])?;
            if configuration == Configuration::SwapThp {
                over_thp.ratios.push(outcome.seconds / xheap.seconds);
                over_thp.rests = Rests::all([&over_thp.rests, &outcome.rests, &xheap.rests]);
            }
        }
    }
    support_xheap::note(table);
    Ok(over_thp)
}

/// Adds the rows of one run, which stand beside those of xHeap in both readings.
fn add_one(
    table: &mut Table,
    Case { program, configuration, budget }: Case,
    paper: Paper,
    [outcome, xheap, ahead]: [&Outcome; 3],
) -> Result<()> {
    let case = format!("{}, {budget} % in memory", program.name());
    let policy = configuration.name();
    let row = |name, unit| Quantity { case: &case, policy, name, unit };
    let rests = &outcome.rests;
    table.add(row("time", "s"), None, outcome.seconds, rests)?;
    if configuration.is_swap() {
        let said = (paper.longer)(budget, configuration);
        for (name, xheap, said) in [(PLAIN, xheap, said), (AHEAD, ahead, None)] {
            let longer = outcome.seconds / xheap.seconds;
            table.add(row(name, "ratio"), said, longer, &Rests::all([rests, &xheap.rests]))?;
        }
    }
    let system = outcome.system_percent();
    let said = (paper.system)(budget, configuration);
    let said = said.filter(|_| configuration != Configuration::XHeapAhead);
    table.add(row("time in the kernel", "%"), said, system, rests)?;
    table.add(row("faults", "thousands"), None, outcome.faults, rests)?;
    table.add(row("time waiting for storage", "%"), None, outcome.wait_percent(), rests)
}
