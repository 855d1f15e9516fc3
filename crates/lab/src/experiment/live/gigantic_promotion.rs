//! `gigantic-promotion`: how long a program is held while a GiB of it is promoted (Trident, section 5.1.3), and
//! whether it loses a write.
//!
//! A program under `superpage run` writes to a GiB from one or two threads, at a rate, and asks for the GiB to
//! be promoted (MADV_COLLAPSE); then it changes a page of it, so that it is demoted, and so on. The paper says
//! nothing of pauses: its kernel copies page by page.

use super::support_bench::{Bench, median, rounded};
use super::support_run::{Managed, take_gigantic};
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use crate::helper::{Order, Part, Promoted};
use serde::Serialize;
use superpage_units::Nanos;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "gigantic-promotion",
    source: "Trident, section 5.1.3",
    summary: "How long a program is held while a GiB of it is promoted, and whether it loses a write",
    on: On::Live,
    columns: &[
        ("case", "threads"),
        ("policy", "policy"),
        ("writes_per_s", "writes/s"),
        ("pause_p50_ms", "pause ms"),
        ("pause_max_ms", "longest"),
        ("seconds", "s a promotion"),
        ("lost", "throughput lost"),
        ("rounds", "promotions"),
        ("checked", "words compared"),
        ("wrong", "wrong"),
    ],
    run: &run,
};

/// No GiB is copied in less: where it took less, the library had promoted it before it was asked.
const LEAST: Nanos = Nanos(20_000_000);
/// Promotions of one program in a round. Chosen.
const PROMOTIONS: usize = 10;
/// Gigantic pages in the pool: the program uses one while the library zeroes another.
const PAGES: u64 = 2;
const THREADS: [(&str, usize); 2] = [("1", 1), ("2", 2)];
/// The way to promote, as `superpage run --promote` has it.
const WAY: &str = "safe";
/// Writes a second; 0 is reading as fast as possible, nothing is writing as fast as possible.
const WRITES: [Option<u64>; 4] = [Some(0), Some(100_000), Some(1_000_000), None];

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    writes_per_s: f64,
    pause_p50_ms: f64,
    pause_max_ms: f64,
    seconds: f64,
    /// The part (0 to 1) of the accesses a second before a promotion that was not made during it.
    lost: f64,
    rounds: usize,
    checked: u64,
    wrong: u64,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut bench = Bench::open(setting)?;
    take_gigantic(&mut bench, PAGES)?;
    let mut report = Report::default();
    for (case, threads) in THREADS {
        for writes in WRITES {
            let mut seen = Vec::new();
            for round in 1..=setting.rounds {
                let rate = writes.map_or("full".to_owned(), |writes| writes.to_string());
                let of = setting.rounds;
                progress(&format!("{threads} thread(s), {rate} writes/s: round {round} of {of}"))?;
                seen.extend(trial(setting, Part::Written { threads, writes })?);
            }
            report.push(&row(case, writes, &seen))?;
        }
    }
    report.notes.push(
        "Pauses are of the longest access of any thread to the GiB from the beginning of its promotion on, so \
         on two processors also of other threads' turns; medians and the longest. A rate of 0: threads read as \
         fast as they can; else the rate of all together that was reached before the promotion. Seconds: from \
         asking to the end, with a page zeroed ahead of time or not. Throughput lost: of the accesses a second before \
         a promotion, the part that was not made from asking to the end; medians."
            .to_owned(),
    );
    Ok(report)
}

fn trial(setting: &Setting, part: Part) -> Result<Vec<Promoted>> {
    let mut managed = Managed::start(setting, &["--promote", WAY], part)?;
    let mut seen = Vec::new();
    for _ in 0..PROMOTIONS {
        managed.helper.order(Order::Go)?;
        let promoted = managed.helper.promoted()?;
        if promoted.took > LEAST {
            seen.push(promoted);
        }
    }
    let report = managed.end()?;
    match report["promotions"].as_u64() >= Some(PROMOTIONS as u64) {
        true => Ok(seen),
        false => Err(Error::NotPossible(format!(
            "of {PROMOTIONS} promotions {} were made: {}",
            report["promotions"], report["refused"]
        ))),
    }
}

fn row(case: &'static str, writes: Option<u64>, seen: &[Promoted]) -> Row {
    let pauses = || seen.iter().map(|one| one.pause.as_secs_f64() * 1e3);
    let reached = median(seen.iter().map(|one| one.accesses_per_s));
    Row {
        case,
        policy: WAY,
        writes_per_s: if writes == Some(0) { 0.0 } else { reached.round() },
        pause_p50_ms: rounded(median(pauses()), 1),
        pause_max_ms: rounded(pauses().fold(0.0, f64::max), 1),
        seconds: rounded(median(seen.iter().map(|one| one.took.as_secs_f64())), 3),
        lost: rounded(median(seen.iter().map(lost)), 3),
        rounds: seen.len(),
        checked: seen.iter().map(|one| one.accesses).sum(),
        wrong: seen.iter().map(|one| one.wrong).sum(),
    }
}

fn lost(one: &Promoted) -> f64 {
    1.0 - one.accesses_per_s_meanwhile / one.accesses_per_s
}
