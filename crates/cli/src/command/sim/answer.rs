//! What the table of `superpage sim` comes to, in a few sentences.

use super::relative;
use crate::args::Sim;
use crate::show;
use superpage_sim::trace::compare::{Ended, Options, REFERENCE, Row};
use superpage_trace::{Contents, Trace};
use superpage_units::{Bytes, Nanos, Share};

/// Differences below this are not worth a word: the model is not that good.
const NEGLIGIBLE: f64 = 0.01;

/// The best choices, and what was assumed.
pub(super) fn in_words(rows: &[Row], trace: &Trace, arguments: &Sim, options: &Options) -> String {
    let mut text = String::new();
    let whole: Vec<&Row> = rows.iter().filter(|row| row.ended == Ended::Whole).collect();
    let lost: Vec<&str> =
        rows.iter().filter(|row| row.ended != Ended::Whole).map(|row| &*row.policy).collect();
    if !lost.is_empty() {
        text.push_str(&format!(
            "Out of memory before the end: {}; give more --memory.\n",
            lost.join(", ")
        ));
    }
    if let Some(sentence) = about_memory(&whole) {
        text.push_str(&sentence);
    }
    let cpu: Nanos = trace.samples.iter().map(|sample| sample.usage.cpu).sum();
    if cpu == Nanos::ZERO {
        text.push_str(
            "Speed: the program used no CPU time while it was recorded, so only faults count.\n",
        );
    }
    if let Some(sentence) = about_speed(&whole, rows) {
        text.push_str(&sentence);
    }
    if let Some(sentence) = about_both(&whole) {
        text.push_str(&sentence);
    }
    text.push_str(&about_swap(&whole));
    text.push_str(&about_debloaters(rows, options));
    text.push_str(&about_fragmentation(rows, options));
    text.push_str(&assumed(trace, arguments, options));
    text
}

fn memory(row: &Row) -> f64 {
    row.peak.0 as f64
}

fn speed(row: &Row) -> f64 {
    row.busy.0 as f64
}

/// The first with the least.
fn least<'a>(rows: &[&'a Row], key: impl Fn(&Row) -> f64) -> Option<&'a Row> {
    rows.iter().copied().min_by(|a, b| key(a).total_cmp(&key(b)))
}

/// Those that are as good as the best, by name.
fn as_good<'a>(rows: &[&'a Row], key: impl Fn(&Row) -> f64) -> Vec<&'a str> {
    let best = least(rows, &key).map_or(0.0, &key);
    let near = rows.iter().filter(|row| key(row) <= best * (1.0 + NEGLIGIBLE));
    near.map(|row| &*row.policy).collect()
}

/// Those that are as bad as the worst, and not as good as the best, by name.
fn as_bad<'a>(rows: &[&'a Row], key: impl Fn(&Row) -> f64) -> Vec<&'a str> {
    let good = as_good(rows, &key);
    let worst = rows.iter().map(|row| key(row)).fold(0.0, f64::max);
    let near = rows.iter().filter(|row| key(row) * (1.0 + NEGLIGIBLE) >= worst);
    near.map(|row| &*row.policy).filter(|name| !good.contains(name)).collect()
}

fn about_memory(rows: &[&Row]) -> Option<String> {
    let mut text = format!("Memory: {}.\n", extremes(rows, |row| row.peak, "at the peak")?);
    let at_end = |row: &Row| row.at_end.0 as f64;
    let is_other = as_good(rows, memory) != as_good(rows, at_end)
        || as_bad(rows, memory) != as_bad(rows, at_end);
    if is_other {
        text.push_str(&format!("At the end: {}.\n", extremes(rows, |row| row.at_end, "then")?));
    }
    Some(text)
}

/// Which need least and which most, all of a tie named.
fn extremes(rows: &[&Row], key: fn(&Row) -> Bytes, when: &str) -> Option<String> {
    let least = rows.iter().map(|row| key(row)).min()?;
    let most = rows.iter().map(|row| key(row)).max()?;
    let number = |row: &Row| key(row).0 as f64;
    let (good, bad) = (as_good(rows, number), as_bad(rows, number));
    if bad.is_empty() {
        return Some(format!("all need about the same, {least} {when}"));
    }
    Some(format!(
        "{} need{} least, {least} {when}; {} need{} most, {} more",
        names(&good),
        plural(&good),
        names(&bad),
        plural(&bad),
        show::percent(most.0 as f64 / (least.0 as f64).max(1.0) - 1.0)
    ))
}

/// The ending of what one does, and several do not have.
fn plural(names: &[&str]) -> &'static str {
    if names.len() == 1 { "s" } else { "" }
}

fn about_speed(rows: &[&Row], all: &[Row]) -> Option<String> {
    let best = least(rows, speed)?;
    let gained = 1.0 - relative(best, all)?;
    if gained <= NEGLIGIBLE {
        return Some(format!(
            "Speed: none saves more than {} of {REFERENCE}'s CPU time.\n",
            show::percent(NEGLIGIBLE)
        ));
    }
    let near = as_good(rows, speed);
    Some(format!(
        "Speed: {} {} fastest, by an estimated {} of {REFERENCE}'s CPU time; the slowest fault of \
         {} takes {}.\n",
        names(&near),
        if near.len() == 1 { "is" } else { "are" },
        show::percent(gained),
        best.policy,
        show::time(best.faults.max())
    ))
}

/// The one whose worse side is least bad.
fn about_both(rows: &[&Row]) -> Option<String> {
    let (lean, fast) = (least(rows, memory)?, least(rows, speed)?);
    let excess = |row: &Row| {
        let (memory, speed) =
            (memory(row) / memory(lean).max(1.0), speed(row) / speed(fast).max(1.0));
        (memory - 1.0, speed - 1.0)
    };
    let worse = |row: &Row| excess(row).0.max(excess(row).1);
    let best = least(rows, worse)?;
    let (memory, speed) = excess(best);
    Some(if worse(best) <= NEGLIGIBLE {
        format!("Both: {} is as good as the best of each.\n", best.policy)
    } else {
        format!(
            "Both: {} is the best compromise, {} over the least memory and {} over the least time.\n",
            best.policy,
            show::percent(memory),
            show::percent(speed)
        )
    })
}

/// Those de-bloaters that had nothing to do: on a smaller machine they would have.
fn about_debloaters(rows: &[Row], options: &Options) -> String {
    let idle = |row: &&Row| row.debloated.is_some_and(|by| by.passes == 0);
    let idle: Vec<&str> = rows.iter().filter(idle).map(|row| &*row.policy).collect();
    if idle.is_empty() {
        return String::new();
    }
    format!(
        "De-bloating: {} took nothing back, for {} of memory never got short; give less --memory, or a \
         lower --high.\n",
        names(&idle),
        options.memory
    )
}

/// Those whose program does not fit in memory at the end.
fn about_swap(rows: &[&Row]) -> String {
    let out: Vec<String> = rows
        .iter()
        .filter(|row| row.swapped > Bytes::ZERO)
        .map(|row| format!("{} with {}", row.policy, row.swapped))
        .collect();
    if out.is_empty() {
        return String::new();
    }
    let out: Vec<&str> = out.iter().map(|text| &**text).collect();
    format!("Swap: memory got short, and some was in swap at the end: {}.\n", names(&out))
}

/// Where there are more whole blocks than anybody used, those that are pinned are not missed.
fn about_fragmentation(rows: &[Row], options: &Options) -> String {
    let whole = options.fragmented.rest().of(options.memory);
    let is_enough = rows.iter().all(|row| row.peak + row.reserved <= whole);
    if options.fragmented == Share::NONE || !is_enough {
        return String::new();
    }
    format!(
        "Fragmentation: --fragment can hardly have mattered for pages of 2 MiB, for the {whole} in \
         whole blocks are more than any policy used; give less --memory, or a higher --fragment.\n"
    )
}

fn names(names: &[&str]) -> String {
    match names {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => names.concat(),
    }
}

fn assumed(trace: &Trace, arguments: &Sim, options: &Options) -> String {
    let fragmented = if options.fragmented > Share::NONE {
        format!(", {} of its 2 MiB blocks pinned", options.fragmented)
    } else {
        String::new()
    };
    let contents = match trace.header.contents {
        Contents::Sampled => "estimated from samples",
        Contents::Exact => "counted",
    };
    format!(
        "Assumed: {} million accesses a second of CPU time, to all pages that hold data alike \
         (--access-rate); what was touched of huge pages is what holds data, {contents}; machine \
         {:?} with {} of memory{fragmented}; seed {}. CPU time is relative to {REFERENCE}.\n",
        arguments.access_rate, arguments.profile, options.memory, options.seed
    )
}
