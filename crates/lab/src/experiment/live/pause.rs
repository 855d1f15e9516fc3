//! `pause`: how long a program has to wait, with the daemon and without. No paper has it.
//!
//! The program touches, maps and unmaps memory a thousand times a second, so that the daemon promotes in it all the time. Each
//! turn of it that takes over 5 ms is a row, with what else the time may have gone to: the program had no processor
//! (run delay), the machine's host took processors (steal), or the daemon did something. What the daemon did is known to the
//! second, as its history has it, so an action beside a pause need not be its cause.

use super::support_bench::{Bench, fitting_size, rounded};
use super::support_daemon::{Configuration, Daemon};
use super::support_regime::{Khugepaged, set_enabled};
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use crate::helper::{Helper, Part, Pause, Paused};
use serde::Serialize;
use std::collections::BTreeMap;
use superpage_kernel::thp::Enabled;
use superpage_manager::history::{Entry, MERGED_MS, Tail, What};
use superpage_units::{Bytes, Nanos};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "pause",
    source: "no paper",
    summary: "How long a program that maps and touches memory all the time waits, with the daemon and without",
    on: On::Live,
    columns: &[
        ("policy", "configuration"),
        ("round", "round"),
        ("turns", "turns"),
        ("over_5_ms", "over 5 ms"),
        ("over_20_ms", "over 20 ms"),
        ("at_s", "at s"),
        ("ms", "longest ms"),
        ("run_delay_ms", "of it without a processor"),
        ("stolen_ms", "stolen meanwhile"),
        ("actions", "daemon in that second"),
    ],
    run: &run,
};

/// The program's heap.
const SIZE: Bytes = Bytes::from_mib(256);
/// How long it runs each time.
const TIME: Nanos = Nanos(60_000_000_000); // tidy: allow(60 s)
/// The same where less memory is asked for: a trial of the experiment, not a measurement.
const SHORT: Nanos = Nanos(2_000_000_000); // tidy: allow(2 s)
/// The longest pauses of a run, each of which is a row.
const SHOWN: usize = 10;

const CONFIGURATIONS: [Configuration; 2] = [Configuration::NoDaemon, Configuration::Default];

/// All turns of a run, or one that was a pause.
#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    round: u32,
    turns: Option<u64>,
    over_5_ms: Option<u64>,
    over_20_ms: Option<u64>,
    at_s: Option<f64>,
    ms: f64,
    run_delay_ms: Option<f64>,
    stolen_ms: Option<f64>,
    actions: String,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = fitting_size(setting, SIZE, 1)?;
    let time = if size < SIZE { SHORT } else { TIME };
    let mut bench = Bench::open(setting)?;
    set_enabled(&mut bench, Enabled::Madvise)?;
    Khugepaged::Default.set(&mut bench)?;
    let mut report = Report::default();
    for round in 1..=setting.rounds {
        for configuration in CONFIGURATIONS {
            let name = configuration.name();
            progress(&format!("{name}, round {round} of {}", setting.rounds))?;
            let part = Part::Pauses { size: size.to_huge_pages(), time };
            let mut program = Helper::start(&setting.launcher, part)?;
            let daemon = configuration.start(setting, program.pid())?;
            let paused = program.paused()?;
            let entries = daemon.map(entries_of).transpose()?.unwrap_or_default();
            push(&mut report, name, round, &paused, &entries)?;
        }
    }
    report.notes.push(
        "case all: the turns of a run; case pause: one of its ten longest turns of over 5 ms. Steal is of all processors \
         together and in steps of 10 ms."
            .to_owned(),
    );
    Ok(report)
}

/// Ends a daemon; all that it told.
fn entries_of(mut daemon: Daemon) -> Result<Vec<Entry>> {
    daemon.end()?;
    let told = Tail::new(daemon.state()).more();
    let told =
        told.map_err(|error| Error::Child(format!("the daemon's log cannot be read: {error}")));
    Ok(told?.entries)
}

fn push(
    report: &mut Report,
    policy: &'static str,
    round: u32,
    paused: &Paused,
    entries: &[Entry],
) -> Result<()> {
    let over =
        |ms: f64| paused.pauses.iter().filter(|pause| millis(pause.nanos) > ms).count() as u64;
    let mut longest = paused.pauses.clone();
    longest.sort_by_key(|pause| std::cmp::Reverse(pause.nanos));
    report.push(&Row {
        case: "all",
        policy,
        round,
        turns: Some(paused.turns),
        over_5_ms: Some(over(5.0)),
        over_20_ms: Some(over(20.0)),
        at_s: None,
        ms: rounded(millis(paused.longest_nanos), 3),
        run_delay_ms: None,
        stolen_ms: None,
        actions: actions(entries),
    })?;
    for pause in longest.iter().take(SHOWN) {
        report.push(&Row {
            case: "pause",
            policy,
            round,
            turns: None,
            over_5_ms: None,
            over_20_ms: None,
            at_s: Some(rounded(pause.at_ms.saturating_sub(paused.began_ms) as f64 / 1e3, 3)),
            ms: rounded(millis(pause.nanos), 3),
            run_delay_ms: Some(rounded(millis(pause.run_delay_nanos), 3)),
            stolen_ms: Some(rounded(millis(pause.stolen_nanos), 3)),
            actions: actions(&beside(pause, entries)),
        })?;
    }
    Ok(())
}

/// The entries whose second overlaps a pause.
fn beside(pause: &Pause, entries: &[Entry]) -> Vec<Entry> {
    let end = pause.at_ms + pause.nanos / 1_000_000;
    let overlaps = |entry: &&Entry| entry.at_ms <= end && entry.at_ms + MERGED_MS >= pause.at_ms;
    entries.iter().filter(overlaps).cloned().collect()
}

/// What was done, in words: `promoted 12, refused 3`.
fn actions(entries: &[Entry]) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in entries {
        let name = match entry.what {
            What::Promoted => "promoted",
            What::Refused => "refused",
            What::Debloated => "split",
            What::BackedOff => "backed off",
            What::Missed => "missed",
            _ => continue,
        };
        *counts.entry(name).or_default() += entry.huge_pages.0.max(1);
    }
    let words: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::HugePages;

    #[test]
    fn an_action_is_beside_a_pause_where_its_second_overlaps_it() {
        let entry = |at_ms, what| Entry {
            huge_pages: HugePages(3),
            ..Entry::new(at_ms, what, "test", "a test")
        };
        let entries = [
            entry(1_000, What::Promoted),
            entry(2_500, What::Refused),
            entry(9_000, What::Debloated),
        ];
        let pause = |at_ms: u64, ms: u64| Pause {
            at_ms,
            nanos: ms * 1_000_000,
            run_delay_nanos: 0,
            stolen_nanos: 0,
        };
        assert_eq!(actions(&beside(&pause(1_900, 20), &entries)), "promoted 3");
        assert_eq!(actions(&beside(&pause(1_900, 700), &entries)), "promoted 3, refused 3");
        assert_eq!(actions(&beside(&pause(5_000, 20), &entries)), "-");
    }
}
