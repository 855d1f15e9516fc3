//! Where what is done is told: the history and the metrics, both from the same entries.

use crate::history::{Entry, History, What, now_ms};
use crate::metrics::Metrics;
use crate::status::Status;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::warn;

/// The file of the state directory that says how the daemon stands.
pub const STATUS: &str = "status.json";
/// The file of the state directory with the metrics as Prometheus reads them.
pub const METRICS: &str = "metrics.prom";

/// Tells what is done.
#[derive(Debug)]
pub struct Ledger {
    directory: PathBuf,
    history: Mutex<Option<History>>,
    metrics: Arc<Metrics>,
}

impl Ledger {
    /// Tells it in files of `directory`; where its history cannot be written, without one.
    #[must_use]
    pub fn open(directory: &Path) -> Self {
        let history = History::open(directory)
            .inspect_err(|error| warn!("there will be no history: {error}"))
            .ok();
        Self {
            directory: directory.to_owned(),
            history: Mutex::new(history),
            metrics: Arc::new(Metrics::new()),
        }
    }

    /// The metrics.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Takes in what happened.
    pub fn record(&self, entry: Entry) {
        self.metrics.take(&entry);
        if let Some(history) = self.history().as_mut() {
            history.record(entry);
        }
    }

    /// How long a collapse took.
    pub fn collapse_took(&self, time: Duration) {
        self.metrics.observe_collapse(time);
    }

    /// How long it took from the fault that called for it to the huge page.
    pub fn waited(&self, time: Duration) {
        self.metrics.observe_wait(time);
    }

    /// Brings the files up to date.
    pub fn tell(&self, status: &Status) {
        self.flush();
        self.metrics.set(status);
        let text = serde_json::to_vec(status).unwrap_or_default();
        let written = replace(&self.directory.join(STATUS), &text, Readers::Owner).and_then(|()| {
            replace(&self.directory.join(METRICS), self.metrics.encode().as_bytes(), Readers::All)
        });
        if let Err(error) = written {
            warn!("how the daemon stands cannot be written: {error}");
        }
    }

    /// Writes the entries that nothing more is added to.
    pub fn flush(&self) {
        if let Some(history) = self.history().as_mut()
            && let Err(lost) = history.flush(now_ms())
            && lost.in_a_row == 1
        {
            warn!("{lost}");
        }
    }

    /// Writes everything; nothing is running any more.
    pub fn close(&self) {
        if let Some(history) = self.history().as_mut()
            && let Err(lost) = history.finish()
        {
            warn!("{lost}");
        }
        // Who finds these would take them for those of a running daemon.
        for file in [STATUS, METRICS] {
            let _ = fs::remove_file(self.directory.join(file));
        }
    }

    fn history(&self) -> MutexGuard<'_, Option<History>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry about no process, as of now.
#[must_use]
pub fn entry(what: What, kind: &str, cause: &str) -> Entry {
    Entry::new(now_ms(), what, kind, cause)
}

/// Who may read a file, if he may look into its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// We alone: where other users' memory lies is nobody else's business.
    Owner,
    /// Everybody: a collector of metrics is another user.
    All,
}

/// Puts a file in the place of another at once, so that nobody reads half of it.
///
/// # Errors
/// If it cannot be written; the other is still there then.
pub fn replace(path: &Path, content: &[u8], readers: Readers) -> std::io::Result<()> {
    let mode = match readers {
        Readers::Owner => 0o600,
        Readers::All => 0o644,
    };
    // Collectors read `*.prom`: not this one.
    let part = path.with_extension("part");
    let written = fs::write(&part, content)
        .and_then(|()| fs::set_permissions(&part, PermissionsExt::from_mode(mode)))
        .and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // On a full disk there may be half of it.
        let _ = fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history;
    use superpage_units::HugePages;

    #[test]
    fn a_file_is_replaced_whole_and_read_by_those_who_may() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("metrics.prom");
        fs::write(&path, "old").expect("it is written");
        for (readers, mode) in [(Readers::All, 0o644), (Readers::Owner, 0o600)] {
            replace(&path, b"new", readers).expect("it is written");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), "new");
            let is = fs::metadata(&path).expect("it is there").permissions().mode();
            assert_eq!(is & 0o777, mode);
        }
        let files = fs::read_dir(directory.path()).expect("it is there").count();
        assert_eq!(files, 1, "nothing is left beside it");
        assert!(
            replace(&directory.path().join("none/metrics.prom"), b"new", Readers::All).is_err()
        );
    }

    #[test]
    fn history_and_metrics_tell_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let ledger = Ledger::open(directory.path());
        for huge_pages in [2, 3].map(HugePages) {
            let told = entry(What::Promoted, "threshold", "64 base pages populated");
            ledger.record(Entry { huge_pages, policy: Some("quicksilver".into()), ..told });
        }
        ledger.tell(&Status { pid: superpage_units::Pid(7), ..Status::default() });
        let file = |name: &str| std::fs::read_to_string(directory.path().join(name));
        assert!(file(STATUS).expect("there").contains("\"pid\":7"));
        let metrics = file(METRICS).expect("there");
        let counted = metrics.lines().find(|line| line.contains("promoted_huge_pages_total{"));
        assert!(counted.is_some_and(|line| line.ends_with(" 5")), "{counted:?}");
        ledger.close();
        assert!(file(STATUS).is_err() && file(METRICS).is_err());
        let entries = history::read(directory.path(), 0).expect("readable").entries;
        assert_eq!(entries.iter().map(|entry| entry.huge_pages).sum::<HugePages>(), HugePages(5));
    }
}
