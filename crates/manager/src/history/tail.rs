//! Reading the history: all that is there, and then whatever is added.

use super::{Entry, FILE, OLDER};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What was read of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// Oldest first.
    pub entries: Vec<Entry>,
    /// Lines that are no entries as we know them: torn, or written by a later version.
    pub skipped: u64,
}

/// Reads what is in `directory` from `since_ms` on, in milliseconds since 1970.
///
/// # Errors
/// If a file is there that cannot be read, or none is ([`io::ErrorKind::NotFound`]).
pub fn read(directory: &Path, since_ms: u64) -> io::Result<Entries> {
    let mut found = Tail::new(directory).more()?;
    found.entries.retain(|entry| entry.at_ms >= since_ms);
    Ok(found)
}

/// Reads a history from its beginning, and then what is added, also when the files change places
/// meanwhile.
#[derive(Debug)]
pub struct Tail {
    directory: PathBuf,
    /// The file that is read on, and the beginning of a line that is not whole yet.
    open: Option<(File, Vec<u8>)>,
}

impl Tail {
    /// A reader of the history in `directory`, which need not be there yet.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), open: None }
    }

    /// What was added since the last call; at the first, all that is there. A last line that is
    /// not whole yet is left for the next call.
    ///
    /// # Errors
    /// If a file cannot be read, or no daemon has ever written one ([`io::ErrorKind::NotFound`]).
    pub fn more(&mut self) -> io::Result<Entries> {
        let mut found = Entries::default();
        if self.open.is_none() {
            self.begin()?;
        }
        // Each round ends in a later file. More than these three are never there: were they to
        // change places again meanwhile, the next call goes on.
        for _ in 0..3 {
            self.drain(&mut found)?;
            if !self.step(&mut found)? {
                break;
            }
        }
        Ok(found)
    }

    fn begin(&mut self) -> io::Result<()> {
        let older = File::open(self.directory.join(OLDER));
        let first = match older {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                File::open(self.directory.join(FILE))?
            }
            other => other?,
        };
        self.open = Some((first, Vec::new()));
        Ok(())
    }

    /// Reads the open file to its end.
    fn drain(&mut self, found: &mut Entries) -> io::Result<()> {
        let Some((file, rest)) = &mut self.open else { return Ok(()) };
        file.read_to_end(rest)?;
        let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        for line in rest.drain(..whole).as_slice().split(|byte| *byte == b'\n') {
            found.take(line);
        }
        Ok(())
    }

    /// Goes on to the next file, if the open one is not the newest any more; says whether it did.
    fn step(&mut self, found: &mut Entries) -> io::Result<bool> {
        let newest = match File::open(self.directory.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        let Some((file, _)) = &self.open else { return Ok(false) };
        if is_same(file, &newest)? {
            return Ok(false);
        }
        // Something may have been written before the files changed places.
        self.drain(found)?;
        // Between the open file and the newest lies the older one, if they changed places twice.
        let older = File::open(self.directory.join(OLDER)).ok();
        let Some((file, rest)) = &self.open else { return Ok(false) };
        found.skipped += u64::from(!rest.is_empty());
        let next = match older {
            Some(older) if !is_same(file, &older)? && !is_same(&newest, &older)? => older,
            _ => newest,
        };
        self.open = Some((next, Vec::new()));
        Ok(true)
    }
}

impl Entries {
    fn take(&mut self, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match serde_json::from_slice(line) {
            Ok(entry) => self.entries.push(entry),
            Err(_) => self.skipped += 1,
        }
    }
}

fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}
