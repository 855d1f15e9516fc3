//! `superpage sim`: a recorded program under several policies, each on a simulated machine.

mod answer;
mod hardware;

use crate::args::{Chosen, Sim};
use crate::exit::{Failure, Outcome};
use crate::show;
use anyhow::{Context, anyhow};
use serde_json::{Value, json};
use std::path::Path;
use superpage_lab::picture::{self, Lines};
use superpage_policy::promotion::list;
use superpage_sim::profile::Profile;
use superpage_sim::run::Hardware;
use superpage_sim::trace::candidate::Candidate;
use superpage_sim::trace::compare::{self, Ended, Options, REFERENCE, Row};
use superpage_sim::trace::replay::{self, Plan};
use superpage_trace::{Partial, Trace};
use superpage_units::{Bytes, Share};

/// The most memory that a machine may have. Chosen: it can still be simulated in a few GiB.
const MOST_MEMORY: Bytes = Bytes::from_gib(4096); // tidy: allow(GiB)

/// Replays the trace and says what each policy costs.
pub(super) fn run(arguments: &Sim) -> Outcome {
    let trace = read(arguments)?;
    let profile = hardware::find(&arguments.profile)?;
    let frequency = profile.cpu.frequency.value;
    let accesses_per_second = arguments.access_rate * 1e6;
    let plan = replay::plan(&trace, &replay::Options { accesses_per_second, frequency });
    let options = options(arguments, &plan)?;
    let candidates = chosen(arguments)?;
    if let Some(path) = &arguments.svg {
        check_picture(path, &arguments.trace)?;
    }
    let rows = replay_all(&candidates, &plan, &profile, &options);
    if arguments.json {
        let lines =
            rows.iter().map(|row| format!("{}\n", as_json(row, &rows, arguments, &options)));
        show::print(&lines.collect::<String>())?;
    } else {
        show::print(&format!(
            "{}\n{}\n{}",
            about(&trace, &plan),
            table(&rows),
            answer::in_words(&rows, &trace, arguments, &options)
        ))?;
    }
    match &arguments.svg {
        Some(path) => Ok(draw(path, &trace, &rows)?),
        None => Ok(()),
    }
}

/// Whether the picture can be written, and not over the recording.
fn check_picture(path: &Path, trace: &Path) -> Outcome {
    let same = |other: &Path| std::fs::canonicalize(other).ok();
    if same(path).is_some() && same(path) == same(trace) {
        let what = "--svg and --trace are the same file; give the picture another name";
        return Err(Failure::Usage(what.to_owned()));
    }
    picture::try_path(path)
        .map_err(|error| Failure::Failed(anyhow!("--svg {}: {error}", path.display())))
}

fn read(arguments: &Sim) -> Result<Trace, Failure> {
    let path = arguments.trace.display();
    let partial = if arguments.allow_partial { Partial::Allowed } else { Partial::Refused };
    let unreadable = |error| Failure::Usage(format!("{path} could not be read: {error}"));
    // A device may have no end.
    if !std::fs::metadata(&arguments.trace).map_err(unreadable)?.is_file() {
        let what = "is not a regular file; give one that `superpage record PID -o FILE` wrote";
        return Err(Failure::Usage(format!("{path} {what}")));
    }
    let bytes = std::fs::read(&arguments.trace).map_err(unreadable)?;
    superpage_trace::read(&bytes, partial)
        .map_err(|error| Failure::Usage(format!("{path}: {error}")))
}

/// The machine that was asked for, or one that fits.
fn options(arguments: &Sim, plan: &Plan) -> Result<Options, Failure> {
    let fragmented = arguments.fragment;
    let gib = Bytes::from_gib(1).0;
    let fitting = Bytes((compare::needs(plan, fragmented).0 * 2).next_multiple_of(gib));
    let memory = arguments.memory.unwrap_or(fitting);
    if memory > MOST_MEMORY {
        return Err(Failure::Usage(format!(
            "{memory} is more than the {MOST_MEMORY} that can be simulated; give a smaller --memory"
        )));
    }
    let options = Options { memory, fragmented, seed: arguments.seed };
    compare::check(plan, &options).map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(options)
}

/// The policies that were asked for, each once, and the one that all are compared with.
fn chosen(arguments: &Sim) -> Result<Vec<Candidate>, Failure> {
    let reference = list::find(REFERENCE).map(Candidate::alone);
    let mut candidates: Vec<Candidate> = Vec::new();
    let asked = arguments.policy.iter().flat_map(|choice| match choice {
        Chosen::All => list::ALL.iter().map(Candidate::alone).collect(),
        Chosen::One(candidate) => vec![*candidate],
    });
    for candidate in asked.chain(reference) {
        if candidates.iter().all(|known| known.name() != candidate.name()) {
            candidates.push(between(candidate, arguments)?);
        }
    }
    let has_marks = arguments.high.is_some() || arguments.low.is_some();
    if has_marks && candidates.iter().all(|candidate| candidate.debloater.is_none()) {
        let what = "--high and --low say when a de-bloater works; plug one in, as in linux+emd";
        return Err(Failure::Usage(what.to_owned()));
    }
    Ok(candidates)
}

/// The candidate with the watermarks that were asked for.
fn between(candidate: Candidate, arguments: &Sim) -> Result<Candidate, Failure> {
    let (high, low) = (arguments.high, arguments.low);
    candidate.between(high, low).map_err(|bad| {
        let own = candidate.debloater.map_or([Share::NONE; 2], |plugged| plugged.entry.marks);
        let said = |mark: Option<Share>, own: Share| match mark {
            Some(share) => share.to_string(),
            None => format!("{}, as always for {}", own, candidate.name()),
        };
        let (high, low) = (said(high, own[0]), said(low, own[1]));
        Failure::Usage(format!("{bad}: --high is {high}; --low is {low}"))
    })
}

fn replay_all(
    candidates: &[Candidate],
    plan: &Plan,
    profile: &Profile,
    options: &Options,
) -> Vec<Row> {
    let samples = plan.marks.len() as u64;
    let bar = show::progress(
        samples * candidates.len() as u64,
        "{elapsed_precise} {wide_bar} {percent} % {msg}",
    );
    let mut rows = Vec::new();
    for (at, candidate) in (0..).zip(candidates) {
        bar.set_message(candidate.name());
        let hardware = Hardware::native(profile.clone());
        rows.push(compare::replay(plan, candidate, hardware, options, |sample| {
            bar.set_position(at * samples + sample as u64);
        }));
    }
    bar.finish_and_clear();
    rows
}

fn about(trace: &Trace, plan: &Plan) -> String {
    let cut_off = if trace.is_whole { "" } else { " before it was cut off" };
    let (touched, samples) = (plan.needs.bytes(), trace.samples.len());
    let resident = trace.samples.iter().map(|sample| sample.usage.resident).max();
    let resident = resident.unwrap_or_default();
    let rest = if touched.0 < resident.0 / 2 {
        format!(
            "\nMost of its {resident} resident is files, shared memory, or empty; only the {touched} \
             are replayed."
        )
    } else {
        String::new()
    };
    format!(
        "{}: {samples} sample{} over {:.1} s{cut_off}, up to {touched} of private memory touched.{rest}",
        trace.header.command,
        if samples == 1 { "" } else { "s" },
        trace.duration().as_secs_f64(),
    )
}

/// CPU time of the program in relation to base pages only.
fn relative(row: &Row, rows: &[Row]) -> Option<f64> {
    let reference = rows.iter().find(|row| row.policy == REFERENCE)?;
    let both = row.ended == Ended::Whole && reference.ended == Ended::Whole;
    let time = |row: &Row| row.busy.as_secs_f64();
    (both && time(reference) > 0.0).then(|| time(row) / time(reference))
}

/// A column: its head, and what a row has there.
type Column = (&'static str, fn(&Row, &[Row]) -> String);

#[rustfmt::skip]
const COLUMNS: [Column; 15] = [
    ("policy", |row, _| row.policy.clone()),
    ("peak", |row, _| row.peak.to_string()),
    ("at end", |row, _| row.at_end.to_string()),
    ("huge", |row, _| row.mapped.huge.to_string()),
    (GIGANTIC, |row, _| row.mapped.gigantic.unwrap_or_default().to_string()),
    (SPLIT, |row, _| row.debloated.map_or("-".to_owned(), |by| by.split.to_string())),
    (FREED, |row, _| row.debloated.map_or("-".to_owned(), |by| by.freed.bytes().to_string())),
    ("faults", |row, _| row.faults.count().to_string()),
    ("p50", |row, _| show::time(row.faults.quantile(0.5))),
    ("p99", |row, _| show::time(row.faults.quantile(0.99))),
    ("max", |row, _| show::time(row.faults.max())),
    ("in faults", |row, _| show::time(row.fault_time)),
    ("background", |row, _| show::time(row.background)),
    ("walks", |row, _| row.walk_share.to_string()),
    ("CPU time", |row, rows| relative(row, rows).map_or("-".to_owned(), |share| format!("{share:.3}"))),
];

/// The column that is left out if there are none: few policies make gigantic pages, and few programs
/// are large enough.
const GIGANTIC: &str = "gigantic";

/// The columns that are left out if no policy has a de-bloater: huge pages split, memory freed.
const SPLIT: &str = "split";
const FREED: &str = "freed";

/// The columns of [`COLUMNS`] that go to a table of their own where the terminal is narrow.
const OF_FAULTS: [&str; 5] = ["faults", "p50", "p99", "max", "in faults"];

/// The columns of a terminal that one table fits into.
const WIDE: u16 = 140;

fn table(rows: &[Row]) -> String {
    let has_gigantic = rows.iter().any(|row| row.mapped.gigantic > Some(0));
    let has_debloater = rows.iter().any(|row| row.debloated.is_some());
    let applies = |head: &str| match head {
        GIGANTIC => has_gigantic,
        SPLIT | FREED => has_debloater,
        _ => true,
    };
    let part = |is_wanted: &dyn Fn(&str) -> bool| {
        let wanted = |head: &str| is_wanted(head) && applies(head);
        let columns: Vec<&Column> = COLUMNS.iter().filter(|(head, _)| wanted(head)).collect();
        let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
        let mut table = show::table(&heads);
        for row in rows {
            table.add_row(columns.iter().map(|(_, cell)| cell(row, rows)));
        }
        table
    };
    let whole = part(&|_| true);
    if whole.width().is_none_or(|width| width >= WIDE) {
        return whole.to_string();
    }
    let memory = part(&|head| !OF_FAULTS.contains(&head));
    let faults = part(&|head| head == "policy" || OF_FAULTS.contains(&head));
    format!("{memory}\n{faults}")
}

fn as_json(row: &Row, rows: &[Row], arguments: &Sim, options: &Options) -> Value {
    json!({
        "policy": row.policy,
        "ended": match row.ended {
            Ended::Whole => "whole",
            Ended::OutOfMemory => "out of memory",
        },
        "peak_bytes": row.peak.0,
        "end_bytes": row.at_end.0,
        "reserved_bytes": row.reserved.0,
        "swapped_bytes": row.swapped.0,
        "base_pages": row.mapped.base.0,
        "huge_pages": row.mapped.huge.0,
        "gigantic_pages": row.mapped.gigantic.unwrap_or_default(),
        "faults": row.faults.count(),
        "fault_p50_ns": row.faults.quantile(0.5).0,
        "fault_p99_ns": row.faults.quantile(0.99).0,
        "fault_max_ns": row.faults.max().0,
        "fault_time_ns": row.fault_time.0,
        "background_ns": row.background.0,
        "debloat_passes": row.debloated.map(|by| by.passes),
        "debloat_split_huge_pages": row.debloated.map(|by| by.split.0),
        "debloat_freed_bytes": row.debloated.map(|by| by.freed.bytes().0),
        "debloat_ns": row.debloated.map(|by| by.busy.0),
        "walk_share": row.walk_share.get(),
        "cpu_time_ns": row.busy.0,
        "cpu_time_to_linux_4k": relative(row, rows),
        "time_ns": row.time.0,
        "memory": row.memory.iter().map(|(at, used)| [at.0, used.0]).collect::<Vec<_>>(),
        "machine_bytes": options.memory.0,
        "fragmented": options.fragmented.get(),
        "seed": options.seed,
        "profile": arguments.profile,
        "access_rate": arguments.access_rate * 1e6,
        "basis": "assumed",
    })
}

fn draw(path: &Path, trace: &Trace, rows: &[Row]) -> anyhow::Result<()> {
    let peak = rows.iter().map(|row| row.peak).max().unwrap_or_default();
    let (unit, y_label) = if peak >= Bytes::from_gib(1) {
        (Bytes::from_gib(1), "memory (GiB)")
    } else {
        (Bytes::from_mib(1), "memory (MiB)")
    };
    let point = |(at, used): &(superpage_units::Nanos, Bytes)| {
        (at.as_secs_f64(), used.0 as f64 / unit.0 as f64)
    };
    let series: Vec<_> = rows
        .iter()
        .map(|row| (row.policy.clone(), row.memory.iter().map(point).collect()))
        .collect();
    let title = format!("{}: resident memory, replayed", trace.header.command);
    let lines = Lines { x_label: "time (s)", y_label, series: &series };
    picture::lines(path, &title, &lines)
        .map_err(|error| anyhow!(error))
        .with_context(|| format!("the picture could not be written to {}", path.display()))
}
