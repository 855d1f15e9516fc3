//! Where what is done is told: the history and the metrics, from the same entries.

use crate::history::{Entry, What};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time in milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Tells what is done.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Mutex<Vec<Entry>>,
}

impl Ledger {
    /// Takes in what happened.
    pub fn record(&self, entry: Entry) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    /// How long a collapse took.
    pub fn collapse_took(&self, _: Duration) {}

    /// How long it took from the fault that called for it to the huge page.
    pub fn waited(&self, _: Duration) {}
}

/// An entry without a process.
#[must_use]
pub fn entry(what: What, kind: &str, cause: String) -> Entry {
    Entry {
        at_ms: now_ms(),
        what,
        policy: None,
        pid: None,
        command: None,
        kind: kind.to_owned(),
        cause,
        huge_pages: 0,
        base_pages: 0,
    }
}
