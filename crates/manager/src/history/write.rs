//! Writing the history: entries are added up for a second, then appended as one line each.
//!
//! The history is for people to read; the daemon does its work without it. So nothing here is
//! fatal: what could not be written is dropped and counted, and the next entries are tried again.

use super::{Entry, FILE, MERGED_MS, OLDER};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How large the file may grow before it becomes the older one, in bytes. Chosen, not measured:
/// some twenty thousand entries, which is hours under load and weeks without.
pub const BOUND: u64 = 4 << 20;

/// The history of a daemon, open for writing.
#[derive(Debug)]
pub struct History {
    directory: PathBuf,
    file: File,
    /// Bytes in the file that are whole lines.
    size: u64,
    bound: u64,
    /// Entries that are still added up, in the order they began.
    pending: Vec<Entry>,
    lost: u64,
    in_a_row: u64,
}

/// Entries that could not be written and are gone.
#[derive(Debug, thiserror::Error)]
#[error("{lost} entries of the history are lost, {path} cannot be written: {error}")]
pub struct Unwritten {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub error: io::Error,
    /// How many entries were lost since the history was opened.
    pub lost: u64,
    /// How many writes failed one after the other, this one included: who logs only the first
    /// logs once for a disk that stays full.
    pub in_a_row: u64,
}

impl History {
    /// Opens the history in `directory` to add to it. A line that an earlier run left torn is
    /// ended, so that readers lose no more than that line.
    ///
    /// # Errors
    /// If the file cannot be opened for writing.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Self::with_bound(directory, BOUND)
    }

    /// As [`History::open`], with another bound than [`BOUND`], in bytes.
    ///
    /// # Errors
    /// As [`History::open`].
    pub fn with_bound(directory: &Path, bound: u64) -> io::Result<Self> {
        let file = append(&directory.join(FILE))?;
        let mut history = Self {
            directory: directory.to_owned(),
            size: file.metadata()?.len(),
            file,
            bound,
            pending: Vec::new(),
            lost: 0,
            in_a_row: 0,
        };
        if history.is_torn() && history.file.write_all(b"\n").is_ok() {
            history.size += 1;
        }
        Ok(history)
    }

    fn is_torn(&self) -> bool {
        let mut last = [0];
        let mut file = &self.file;
        self.size > 0
            && file.seek(SeekFrom::Start(self.size - 1)).is_ok()
            && file.read_exact(&mut last).is_ok()
            && last != *b"\n"
    }

    /// Takes an entry. It is added to one like it that began less than [`MERGED_MS`] before;
    /// nothing is written yet.
    pub fn record(&mut self, entry: Entry) {
        let like = |other: &&mut Entry| {
            entry.is_like(other) && entry.at_ms.saturating_sub(other.at_ms) < MERGED_MS
        };
        match self.pending.iter_mut().rev().find(like) {
            Some(other) => {
                other.huge_pages += entry.huge_pages;
                other.base_pages += entry.base_pages;
            }
            None => self.pending.push(entry),
        }
    }

    /// Writes the entries that nothing more is added to. Call it about once a second.
    ///
    /// # Errors
    /// [`Unwritten`] if they are lost.
    pub fn flush(&mut self, now_ms: u64) -> Result<(), Unwritten> {
        // A clock that was set back must not hold entries up.
        let is_open = |entry: &Entry| entry.at_ms <= now_ms && now_ms - entry.at_ms < MERGED_MS;
        // What began later stays behind what began earlier.
        let due = self.pending.iter().position(is_open).unwrap_or(self.pending.len());
        self.write(due)
    }

    /// Writes all entries, at the end or before somebody reads them.
    ///
    /// # Errors
    /// [`Unwritten`] if they are lost.
    pub fn finish(&mut self) -> Result<(), Unwritten> {
        self.write(self.pending.len())
    }

    /// How many entries were lost since the history was opened.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn write(&mut self, count: usize) -> Result<(), Unwritten> {
        if count == 0 {
            return Ok(());
        }
        let mut lines = Vec::new();
        let entries = self.pending.drain(..count);
        let made = entries.into_iter().try_for_each(|entry| {
            serde_json::to_writer(&mut lines, &entry)?;
            lines.push(b'\n');
            Ok(())
        });
        match made.and_then(|()| self.append(&lines)) {
            Ok(()) => {
                self.in_a_row = 0;
                Ok(())
            }
            Err(error) => {
                self.lost += count as u64;
                self.in_a_row += 1;
                let path = self.directory.join(FILE);
                Err(Unwritten { path, error, lost: self.lost, in_a_row: self.in_a_row })
            }
        }
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let length = lines.len() as u64;
        if self.size > 0 && self.size + length > self.bound {
            self.rotate()?;
        }
        if let Err(error) = self.file.write_all(lines) {
            // Half a line would spoil the next one. Where this fails too, readers skip both.
            let _ = self.file.set_len(self.size);
            return Err(error);
        }
        self.size += length;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let path = self.directory.join(FILE);
        fs::rename(&path, self.directory.join(OLDER))?;
        self.file = append(&path)?;
        self.size = self.file.metadata()?.len();
        Ok(())
    }
}

impl Drop for History {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.finish();
    }
}

/// It names processes, so it is for who runs the daemon, also where the directory is open to others.
fn append(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let _ = file.set_permissions(fs::Permissions::from_mode(0o600));
    Ok(file)
}
