//! Figures 9, 10 and 12 of Trident's paper: performance and walk cycles of HawkEye and Trident against THP, natively without and
//! with fragmentation, and in a guest.

use super::support_trident_bars::{self, Bars, Paper};
use super::support_trident_programs::{Backed, Program};
use super::support_trident_runs::{Case, HAWKEYE, Memory, Place, THP};
use super::{COLUMNS, Experiment, On, Progress, Report, Result, Run, Setting, Table};
use superpage_units::PageSize;

/// Performance on memory that is not fragmented.
pub(super) const FIG9: Experiment = Experiment {
    name: "trident-fig9",
    source: "Trident, Figure 9",
    summary: "Performance and walk cycles of HawkEye and Trident over Linux THP, un-fragmented",
    on: On::Sim,
    columns: COLUMNS,
    run: &Figure {
        of: |program, policy| Case::native(program, policy, Memory::Unfragmented),
        paper: PAPER_OF_FIG9,
        note: "In the paper Trident lowers the share of walk cycles by 38 to 85 %. HawkEye's mean is derived \
             from Trident's gain of 14 % over THP and over HawkEye. In the paper Trident is 3 % faster on \
             average than 1 GiB pages set aside, which are in trident-fig1, and slower for Btree only.",
    },
};

/// Performance on fragmented memory.
pub(super) const FIG10: Experiment = Experiment {
    name: "trident-fig10",
    source: "Trident, Figure 10",
    summary: "Performance and walk cycles of HawkEye and Trident over Linux THP, fragmented",
    on: On::Sim,
    columns: COLUMNS,
    run: &Figure {
        of: |program, policy| Case::native(program, policy, Memory::Fragmented),
        paper: PAPER_OF_FIG10,
        note: "In the paper Trident lowers the share of walk cycles by 40 to 97 %, and HawkEye is slower \
             than THP for Redis and Memcached. GUPS gains \"over 50 %\": 1.5 is a bound.",
    },
};

/// Performance in a guest, with the same policy in guest and host.
pub(super) const FIG12: Experiment = Experiment {
    name: "trident-fig12",
    source: "Trident, Figure 12",
    summary: "Performance of HawkEye and Trident over Linux THP, each in a guest and in its host, un-fragmented",
    on: On::Sim,
    columns: COLUMNS,
    run: &Figure {
        of: in_guest,
        // From the text of section 7; HawkEye's mean follows from Trident's gain of 16 % over THP and 15 % over HawkEye.
        paper: Paper {
            performance: |program, policy| match (program, policy) {
                (Program::Canneal, "trident") => Some(1.5),
                (Program::Svm | Program::Graph500, "trident") => Some(1.06),
                _ => None,
            },
            mean: |policy| Some(if policy == HAWKEYE { 1.16 / 1.15 } else { 1.16 }),
        },
        note: "The host's memory is not fragmented and the guest's is all there: under Trident the host \
             maps it by 1 GiB pages, under the others by 2 MiB pages; assumed. HawkEye's mean in the paper \
             is derived from Trident's gains over THP (16 %) and over HawkEye (15 %).",
    },
};

fn in_guest(program: Program, policy: &'static str) -> Case {
    let host = if policy == "trident" { PageSize::Gigantic } else { PageSize::Huge };
    let (memory, backed) = (Memory::Unfragmented, Backed::Asked);
    Case { program, policy, memory, backed, place: Place::Guest(host) }
}

/// From the text of section 7; HawkEye's mean follows from Trident's gain of 14 % over both.
const PAPER_OF_FIG9: Paper = Paper {
    performance: |program, policy| match (program, policy) {
        (Program::Gups, "trident") => Some(1.47),
        (Program::XsBench, "trident") => Some(1.041),
        (Program::Svm, "trident") => Some(1.112),
        (Program::Btree, "trident") => Some(1.15),
        (Program::Canneal, "trident") => Some(1.3),
        _ => None,
    },
    mean: |policy| Some(if policy == HAWKEYE { 1.0 } else { 1.14 }),
};

/// From the text of section 7.
const PAPER_OF_FIG10: Paper = Paper {
    performance: |program, policy| (program == Program::Gups && policy == "trident").then_some(1.5),
    mean: |policy| (policy == "trident").then_some(1.18),
};

/// Trident's performance over THP in Figure 9, by the paper's name of a program.
pub(in crate::experiment) fn paper_of_fig9(program: &str) -> Option<f64> {
    of_trident(&PAPER_OF_FIG9, program)
}

/// Trident's performance over THP in Figure 10, likewise.
pub(in crate::experiment) fn paper_of_fig10(program: &str) -> Option<f64> {
    of_trident(&PAPER_OF_FIG10, program)
}

fn of_trident(paper: &Paper, program: &str) -> Option<f64> {
    let program = Program::SENSITIVE.into_iter().find(|known| known.name() == program)?;
    (paper.performance)(program, "trident")
}

/// HawkEye and Trident against THP: where each program runs under each policy, and what the paper says.
struct Figure {
    of: fn(Program, &'static str) -> Case,
    paper: Paper,
    note: &'static str,
}

impl Run for Figure {
    fn run(
        &self,
        experiment: &'static str,
        setting: &Setting,
        progress: Progress<'_>,
    ) -> Result<Report> {
        let mut table = Table::new(experiment);
        let bars = Bars { programs: &Program::SENSITIVE, suffix: "", paper: self.paper };
        let thp = |program| (self.of)(program, THP);
        bars.add(&mut table, &[HAWKEYE, "trident"], &thp, &self.of, (setting, progress))?;
        support_trident_bars::note(&mut table);
        table.note(self.note);
        Ok(table.report)
    }
}
