//! `superpage log`: what the daemon did and why, newest last.

use crate::args::Log;
use crate::exit::{Failure, Outcome};
use crate::show::{self, action};
use crate::signals;
use anyhow::anyhow;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use superpage_manager::history::{self, Entries, Entry, Tail, What};

/// How often to look for more. Chosen, not measured: the daemon writes once a second.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Shows the history, and what is added if that was asked for.
pub(super) fn run(arguments: &Log) -> Outcome {
    let mut tail = Tail::new(&arguments.state);
    let found = tail.more().map_err(|error| unreadable(&arguments.state, error))?;
    print(arguments, found)?;
    if !arguments.follow {
        return Ok(());
    }
    let stop = signals::stop_flag()?;
    follow(arguments, &mut tail, &stop)
}

fn follow(arguments: &Log, tail: &mut Tail, stop: &AtomicBool) -> Outcome {
    // What comes now is new, and all of it is wanted.
    let arguments = Log { since: None, last: None, ..arguments.clone() };
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_AGAIN);
        let found = tail.more().map_err(|error| unreadable(&arguments.state, error))?;
        print(&arguments, found)?;
    }
    Ok(())
}

/// Why there is no history to show.
pub(super) fn unreadable(state: &Path, error: io::Error) -> Failure {
    let state = state.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::Failed(anyhow!(
            "no daemon ever ran here: there is no history in {state}; \
             start one with `superpage daemon`, or name its directory with --state"
        )),
        io::ErrorKind::PermissionDenied => Failure::NotPossible(format!(
            "the history in {state} may not be read by everybody; run as root (sudo)"
        )),
        _ => Failure::Failed(
            anyhow::Error::from(error).context(format!("the history in {state} cannot be read")),
        ),
    }
}

fn print(arguments: &Log, found: Entries) -> Outcome {
    let since = arguments.since.map_or(0, |time| {
        history::now_ms().saturating_sub(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    });
    let mut entries = found.entries;
    entries.retain(|entry| entry.at_ms >= since && is_wanted(arguments, entry));
    if let Some(last) = arguments.last {
        entries.drain(..entries.len().saturating_sub(last));
    }
    let lines: String = entries.iter().map(|entry| line(arguments, entry)).collect();
    show::print(&lines)?;
    if found.skipped > 0 {
        let (lines, are) = if found.skipped == 1 { ("line", "is") } else { ("lines", "are") };
        show::note(&format!(
            "{} {lines} of the history {are} torn or of a later version, and not shown",
            found.skipped
        ));
    }
    Ok(())
}

fn is_wanted(arguments: &Log, entry: &Entry) -> bool {
    let what = arguments.what.is_empty() || arguments.what.contains(&entry.what);
    let process = arguments.process.as_ref().is_none_or(|wanted| {
        entry.command.as_ref() == Some(wanted)
            || entry.pid.is_some_and(|pid| wanted.parse() == Ok(pid))
    });
    what && process
}

fn line(arguments: &Log, entry: &Entry) -> String {
    if arguments.json {
        // Strings and numbers always have a form in JSON.
        return serde_json::to_string(entry).map(|text| text + "\n").unwrap_or_default();
    }
    let process = action::process(entry);
    let text = format!(
        "{}  {:<10}  {process:<24}  {:<38}  {}",
        action::date(entry.at_ms),
        entry.what,
        action::deed(entry),
        action::cause(entry)
    );
    text.trim_end().to_owned() + "\n"
}

/// What can be asked for, by name.
pub(crate) fn named(name: &str) -> Result<What, String> {
    What::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = What::ALL.iter().map(|what| what.name()).collect();
        format!("give one of {}", names.join(", "))
    })
}
