//! `trident-table3`: memory mapped by 1 GiB and by 2 MiB pages, by the fault handler alone and with promotion, while
//! free memory is whole and while it is fragmented (Trident, Table 3).
//!
//! The programs are those of `trident-fig9`, tens of times smaller than the paper's, so shares are compared. Memory is
//! looked at when it has settled. Whole: the pages of 1 GiB that a program needs are in the kernel's pool before.
//! Fragmented: as in `trident-fig10`, none is taken before. The kernel has one compaction, which is none of the paper's
//! two; the paper's numbers with promotion are those with its smart one. Graph500 is only on the simulated machine.

use super::support_bench::{median, rounded};
use super::support_mapped::Mapped;
use super::support_programs::{Case, Memory, Plan, Policy, Resting, Trial, Work, trials};
use super::trident::FRAGMENTED;
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::experiment::sim;
use serde::Serialize;
use serde_json::Value;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-table3",
    source: "Trident, Table 3",
    summary: "Memory mapped by 1 GiB and by 2 MiB pages, by the fault handler alone and with promotion",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("policy", "policy"),
        ("bytes_4k", "on 4 KiB"),
        ("bytes_2m", "on 2 MiB"),
        ("bytes_1g", "on 1 GiB"),
        ("share_2m", "share on 2 MiB"),
        ("paper_2m", "in the paper"),
        ("share_1g", "share on 1 GiB"),
        ("paper_1g", "in the paper"),
        ("seconds", "s to settle"),
        ("promotions", "promotions"),
    ],
    run: &run,
};

/// The states of free memory, by the paper's names.
const STATES: [(&str, Memory); 2] =
    [("un-fragmented", Memory::Whole), ("fragmented", Memory::Fragmented(FRAGMENTED))];

#[derive(Debug, Serialize)]
struct Row {
    /// The program and the state of free memory.
    case: String,
    policy: &'static str,
    size_bytes: u64,
    bytes_4k: u64,
    bytes_2m: u64,
    bytes_1g: u64,
    /// The part of the memory that the program has mapped.
    share_2m: f64,
    paper_2m: Option<f64>,
    share_1g: f64,
    paper_1g: Option<f64>,
    seconds: f64,
    rounds: usize,
    /// The promotions of the last round.
    promotions: Option<u64>,
    refused: Option<Value>,
}

/// A program's memory when it had settled, and the seconds until then.
type Seen = (Mapped, f64);

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut report = Report::default();
    for (memory, state) in STATES {
        let plan = Plan {
            cases: Case::ALL,
            policies: &[Policy::FaultsOnly, Policy::Trident],
            memory: state,
            work: Work::Brief,
        };
        let look = |_: &mut _, program: &Resting| {
            let (mapped, took) = program.settled(|| Ok(()))?;
            Ok((mapped, took.as_secs_f64()))
        };
        let (all, notes) = trials(&plan, setting, progress, look)?;
        report.notes.extend(notes.into_iter().map(|note| format!("{memory}: {note}")));
        for program in &all {
            for (policy, trials) in &program.of {
                report.push(&row(program.case, program.size, memory, *policy, trials))?;
            }
        }
    }
    report.notes.push(
        "Bytes are from the program's smaps when they had not changed for 2 s, under trident for 30 s, gigantic pages \
         that the library holds ready not counted; medians. Shares are of their sum, the paper's of its programs' memory, \
         which is 25 to 137 GB; with promotion those with its smart compaction. Promotions of the last round, those \
         during the program's beginning included."
            .to_owned(),
    );
    Ok(report)
}

fn row(case: Case, size: Bytes, memory: &str, policy: Policy, trials: &[Trial<Seen>]) -> Row {
    let (name, of_paper) = case.names();
    let mapped = Mapped::median(trials.iter().map(|trial| trial.seen.0));
    let (base, huge, gigantic) = (mapped.base, mapped.huge, mapped.gigantic);
    let share = |part: Bytes| rounded(part.share_of(base + huge + gigantic).get(), 3);
    let paper = sim::paper_of_trident_table3(of_paper, memory, policy.name());
    let report = trials.last().and_then(|trial| trial.report.as_ref());
    Row {
        case: format!("{name}, {memory}"),
        policy: policy.name(),
        size_bytes: size.0,
        bytes_4k: base.0,
        bytes_2m: huge.0,
        bytes_1g: gigantic.0,
        share_2m: share(huge),
        paper_2m: paper.map(|[_, huge]| rounded(huge, 3)),
        share_1g: share(gigantic),
        paper_1g: paper.map(|[gigantic, _]| rounded(gigantic, 3)),
        seconds: rounded(median(trials.iter().map(|trial| trial.seen.1)), 1),
        rounds: trials.len(),
        promotions: report.and_then(|report| report["promotions"].as_u64()),
        refused: report.map(|report| report["refused"].clone()),
    }
}
