//! Programs on 4 KiB, 2 MiB and 1 GiB pages by every way there is to get them: Figures 9 and 10 of Trident's paper on this machine,
//! and the demonstration of `superpage run`, each by its programs, ways and memory. How it is measured: `support_figure`, a
//! trial: `support_programs`.
//!
//! The paper's programs have 10 to 150 GB and two processors; ours have what this machine has. HawkEye, which the figures have
//! too, is only on the simulated machine, and so are walk cycles.

use super::support_figure::{COLUMNS, Figure};
use super::support_programs::{Case, Memory, Plan, Policy, Work};
use super::{Experiment, On};
use crate::experiment::sim;
use crate::program::Program;

/// Programs while free memory is whole. The pages of 1 GiB that programs need are in the kernel's pool before.
pub(super) const FIG9: Experiment = Experiment {
    name: "trident-fig9",
    source: "Trident, Figure 9",
    summary: "Programs on 4 KiB, 2 MiB and 1 GiB pages by every way to get them, un-fragmented",
    on: On::Live,
    columns: COLUMNS,
    run: &Figure {
        plan: Plan {
            cases: Case::ALL,
            policies: Policy::ALL,
            memory: Memory::Whole,
            work: Work::Timed,
        },
        paper: sim::paper_of_trident_fig9,
    },
};

/// Programs while half of the free memory is fragmented.
///
/// The paper fragments memory by reading files at random; a base page of the page cache can be moved. Here one base page of each
/// huge frame is pinned, which nothing can undo. No pages of 1 GiB are taken before: a program gets what the kernel can still
/// find when it starts.
pub(super) const FIG10: Experiment = Experiment {
    name: "trident-fig10",
    source: "Trident, Figure 10",
    summary: "Programs on 4 KiB, 2 MiB and 1 GiB pages by every way to get them, fragmented",
    on: On::Live,
    columns: COLUMNS,
    run: &Figure {
        plan: Plan {
            cases: Case::ALL,
            policies: Policy::ALL,
            memory: Memory::Fragmented(FRAGMENTED),
            work: Work::Timed,
        },
        paper: sim::paper_of_trident_fig10,
    },
};

/// The part of the free memory without a whole huge frame, at least. Chosen: the other half holds the largest program, on huge
/// pages.
pub(super) const FRAGMENTED: f64 = 0.5;

/// GUPS on three page sizes at once, as `superpage run` starts it on the machine as it is found.
pub(super) const THREE_SIZES: Experiment = Experiment {
    name: "three-sizes",
    source: "Trident, section 5",
    summary: "Updates at random on 4 KiB, 2 MiB and 1 GiB pages at once, on the machine as it is found",
    on: On::Live,
    columns: COLUMNS,
    run: &Figure {
        plan: Plan {
            cases: &[Case::Own(Program::Gups)],
            policies: &[Policy::BasePages, Policy::Linux, Policy::Trident],
            memory: Memory::AsItIs,
            work: Work::Timed,
        },
        paper: |_| None,
    },
};
