//! Entries of the daemon's history in plain words, for the log and the terminal view alike.

use super::printable;
use std::time::{Duration, UNIX_EPOCH};
use superpage_manager::history::{Entry, What};
use superpage_units::HugePages;

/// What happened: `made 12 huge pages, filling 3.2 MiB`.
pub(crate) fn deed(entry: &Entry) -> String {
    let pages = entry.huge_pages;
    let bytes = entry.base_pages.bytes();
    match entry.what {
        What::Started => "the daemon started".to_owned(),
        What::Stopped => "the daemon stopped".to_owned(),
        What::Reloaded => "the configuration was read again".to_owned(),
        What::Setting => "a kernel setting was changed".to_owned(),
        What::Watermark => "memory passed a watermark".to_owned(),
        What::Promoted if entry.base_pages.is_zero() => format!("made {}", huge(pages)),
        What::Promoted => format!("made {}, filling {bytes}", huge(pages)),
        What::Refused => format!("could not make {}", huge(pages.max(HugePages(1)))),
        What::Debloated => format!("split {}, freeing {bytes}", huge(pages)),
        What::LeftAlone => format!("left {} whole", huge(pages.max(HugePages(1)))),
        What::BackedOff => "promotions pause".to_owned(),
        What::Missed => "a request was not carried out in time".to_owned(),
        What::Restarted => "a part of the daemon was started again".to_owned(),
    }
}

fn huge(pages: HugePages) -> String {
    if pages == HugePages(1) { "1 huge page".to_owned() } else { format!("{pages} huge pages") }
}

/// Why: `emd: densest bucket 480 (densest)`.
pub(crate) fn cause(entry: &Entry) -> String {
    let policy = entry.policy.as_deref().map(|policy| format!("{policy}: ")).unwrap_or_default();
    printable(&format!("{policy}{} [{}]", entry.cause, entry.kind))
}

/// To whom: `redis-server (123)`; empty for what concerns no process.
pub(crate) fn process(entry: &Entry) -> String {
    match (&entry.command, entry.pid) {
        (Some(command), Some(pid)) => format!("{} ({pid})", printable(command)),
        (None, Some(pid)) => format!("process {pid}"),
        (Some(command), None) => printable(command),
        (None, None) => String::new(),
    }
}

/// When, in UTC: `2026-01-31 23:59:59Z`.
pub(crate) fn date(at_ms: u64) -> String {
    match UNIX_EPOCH.checked_add(Duration::from_millis(at_ms)) {
        // The formatter knows four digits of a year.
        Some(time) if at_ms < 253_402_300_800_000 => {
            humantime::format_rfc3339_seconds(time).to_string().replace('T', " ")
        }
        _ => format!("{at_ms} ms"),
    }
}
