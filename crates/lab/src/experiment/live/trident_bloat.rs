//! `trident-bloat`: what 1 GiB pages hold for nothing, and what of it is given back when memory gets short (Trident,
//! section 7, "Memory bloat").
//!
//! In the paper Trident adds 38 GB and 13 GB over THP for Memcached and Btree, and HawkEye's technique recovers that.
//! Here a program that has done its work rests until its memory has settled. Under Trident memory is then made short, and
//! the library demotes gigantic pages with an eighth of zeroes or more. The pages of 1 GiB are those that `superpage run`
//! makes when the library asks: what is given up becomes memory only where whoever enlarged the kernel's pool makes it
//! smaller again, and the library waits for that.

use super::support_bench::{Bench, median, rounded};
use super::support_mapped::Mapped;
use super::support_programs::{Case, Memory, Plan, Policy, Resting, Trial, Trials, Work, trials};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::program::Program;
use crate::shortage::Shortage;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "trident-bloat",
    source: "Trident, section 7",
    summary: "What 1 GiB pages hold for nothing, and what of it is given back when memory gets short",
    on: On::Live,
    columns: &[
        ("case", "program"),
        ("policy", "policy"),
        ("bytes_4k", "on 4 KiB"),
        ("bytes_2m", "on 2 MiB"),
        ("bytes_1g", "on 1 GiB"),
        ("rss_bytes", "in all"),
        ("over_4k_bytes", "over 4 KiB"),
        ("over_thp_bytes", "over THP"),
        ("given_back_bytes", "given back"),
        ("seconds", "s"),
        ("demotions", "demotions"),
    ],
    run: &run,
};

/// Two programs that bloat in the paper, one that was made to, and one that uses all of its memory.
const CASES: &[Case] = &[
    Case::Memcached,
    Case::Own(Program::Btree),
    Case::Own(Program::Sparse),
    Case::Own(Program::Gups),
];
/// The name of Trident's rows after memory was short.
const SHORT: &str = "trident, memory short";

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    size_bytes: u64,
    bytes_4k: u64,
    bytes_2m: u64,
    bytes_1g: u64,
    rss_bytes: u64,
    /// The memory that `linux-4k` does without; negative where that takes more.
    over_4k_bytes: Option<i64>,
    /// The memory that `linux` does without.
    over_thp_bytes: Option<i64>,
    given_back_bytes: Option<i64>,
    /// The time from the shortage to the last change.
    seconds: Option<f64>,
    /// The demotions of the last round.
    demotions: Option<u64>,
    refused: Option<Value>,
    rounds: usize,
}

/// A program's memory.
#[derive(Clone, Copy, Debug)]
struct Seen {
    before: Mapped,
    /// The memory after a shortage, and the time until it had become so.
    after: Option<(Mapped, Duration)>,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let plan = Plan {
        cases: CASES,
        policies: &[Policy::BasePages, Policy::Linux, Policy::Trident],
        memory: Memory::AsItIs,
        work: Work::Brief,
    };
    let (all, notes) = trials(&plan, setting, progress, look)?;
    let mut report = Report { notes, ..Report::default() };
    for program in &all {
        rows(program, &mut report)?;
    }
    report.notes.push(
        "Bytes are from the program's smaps when they had not changed for 2 s, under trident for 30 s; medians. In all: \
         with the gigantic pages that the library holds ready, and those that are free in the kernel's pool. Memory is \
         short when a tenth of it is available; the seconds are from then to the last change. Given back: in all, before \
         less after."
            .to_owned(),
    );
    Ok(report)
}

fn look(bench: &mut Bench, program: &Resting) -> Result<Seen> {
    let (before, _) = program.settled(|| Ok(()))?;
    if program.policy != Policy::Trident {
        return Ok(Seen { before, after: None });
    }
    let mut shortage = Shortage::make(bench.settings())?;
    let after = program.settled(|| Ok(shortage.hold()?))?;
    Ok(Seen { before, after: Some(after) })
}

/// The rows of one program.
fn rows(program: &Trials<Seen>, report: &mut Report) -> Result<()> {
    let all_before = |wanted| {
        let found = program.of.iter().find(|(policy, _)| *policy == wanted)?;
        Some(Mapped::median(found.1.iter().map(|trial| trial.seen.before)).all)
    };
    let (base_pages, linux) = (all_before(Policy::BasePages), all_before(Policy::Linux));
    for (policy, trials) in &program.of {
        let before: Vec<Mapped> = trials.iter().map(|trial| trial.seen.before).collect();
        report.push(&row_of(program, policy.name(), &before, [base_pages, linux]))?;
        let after: Vec<_> = trials.iter().filter_map(|trial| trial.seen.after).collect();
        if after.is_empty() {
            continue;
        }
        let mapped: Vec<Mapped> = after.iter().map(|(mapped, _)| *mapped).collect();
        let given = before.iter().zip(&mapped).map(|(before, after)| less(before.all, after.all));
        let seconds = median(after.iter().map(|(_, took)| took.as_secs_f64()));
        let said = trials.last().and_then(|trial: &Trial<Seen>| trial.report.as_ref());
        report.push(&Row {
            given_back_bytes: Some(whole(median(given))),
            seconds: Some(rounded(seconds, 1)),
            demotions: said.and_then(|said| said["demotions"].as_u64()),
            refused: said.map(|said| said["refused"].clone()),
            ..row_of(program, SHORT, &mapped, [base_pages, linux])
        })?;
    }
    Ok(())
}

/// The row of a program whose memory is so in each round, where base pages and THP take so much in all.
fn row_of(
    program: &Trials<Seen>,
    policy: &'static str,
    rounds: &[Mapped],
    [base_pages, linux]: [Option<Bytes>; 2],
) -> Row {
    let mapped = Mapped::median(rounds.iter().copied());
    let over = |other: Option<Bytes>| other.map(|other| whole(less(mapped.all, other)));
    Row {
        case: program.case.names().0,
        policy,
        size_bytes: program.size.0,
        bytes_4k: mapped.base.0,
        bytes_2m: mapped.huge.0,
        bytes_1g: mapped.gigantic.0,
        rss_bytes: mapped.all.0,
        over_4k_bytes: over(base_pages),
        over_thp_bytes: over(linux),
        given_back_bytes: None,
        seconds: None,
        demotions: None,
        refused: None,
        rounds: rounds.len(),
    }
}

fn less(one: Bytes, other: Bytes) -> f64 {
    one.0 as f64 - other.0 as f64
}

#[expect(clippy::cast_possible_truncation, reason = "a number of bytes")]
const fn whole(bytes: f64) -> i64 {
    bytes as i64
}
