//! What a run makes for itself on the system and takes away at its end, besides settings: swap files and cgroups. Each is recorded
//! before it is made.
//!
//! A process that is killed leaves what it made, and its records; [`undo_left_behind`] takes both away. Whoever made a thing holds a
//! lock on its record, so nothing is taken from a process that runs. A record names the boot, because cgroups do not outlive it.
//!
//! Records lie in `/run` by default, which is empty after a boot. So a swap file whose process was killed stays after that, out of
//! use, until the next run with a swap file in the same directory replaces it.

use crate::cgroup;
use crate::error::{Error, Result};
use crate::settings::{Lock, boot_id};
use crate::{swap, text};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Where the records are kept, below the machine's state.
pub const MADE: &str = "made";

const LOCK: &str = "made.lock";
/// The ending of the files of records.
pub(crate) const RECORD: &str = "json";
/// The ending of a record that is being written.
const UNFINISHED: &str = "new";
/// Others hold the lock for as long as it takes to undo what was left. Chosen.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

/// Something that is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Thing {
    /// A file that the kernel swaps to.
    SwapFile(PathBuf),
    /// A memory cgroup, by its directory.
    Cgroup(PathBuf),
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SwapFile(path) => write!(f, "swap file {}", path.display()),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
        }
    }
}

/// A record that something is made, or about to be. It goes when this is dropped, so whoever holds it takes the thing away before.
#[derive(Debug)]
pub struct Made {
    path: PathBuf,
    /// Has the lock.
    _file: File,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    boot_id: String,
    thing: Thing,
}

/// Something that a process left when it was killed, and how that was taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The thing that was left; `None` where its record cannot be understood.
    pub thing: Option<Thing>,
    /// Whether it is gone. Its record stays otherwise.
    pub outcome: Result<()>,
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.thing, &self.outcome) {
            (Some(thing), Ok(())) => write!(f, "{thing}: removed"),
            (Some(thing), Err(error)) => write!(f, "{thing}: not removed: {error}"),
            (None, Ok(())) => write!(f, "a record: removed"),
            (None, Err(error)) => write!(f, "{error}"),
        }
    }
}

impl Made {
    /// Records in the directory `state` that this process is about to make `thing`.
    ///
    /// # Errors
    /// What the files in `state` can fail with.
    pub fn record(state: &Path, thing: Thing) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Makes the directory, and sees that nobody else can write there.
        let _lock = lock(state)?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // A process of this number that ended may have left the same name.
        let names = (number..).map(|number| format!("{}-{number}", std::process::id()));
        let mut paths = names.map(|name| state.join(name).with_extension(RECORD));
        let path = paths.find(|path| !path.exists()).unwrap_or_default();
        let record = Record { boot_id: boot_id(Path::new("/"))?, thing };
        let file = record.save(&path)?;
        Ok(Self { path, _file: file })
    }
}

impl Made {
    /// Leaves the record where the thing could not be taken away.
    pub(crate) fn leave(self) {
        let mut this = self;
        this.path = PathBuf::new();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // The next run finds nothing of it, and drops the record.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The things that processes left which have ended, by the records in `state`.
///
/// # Errors
/// [`Error::Denied`]; [`Error::Journal`] if a record cannot be understood.
pub fn left_behind(state: &Path) -> Result<Vec<Thing>> {
    let mut left = Vec::new();
    for file in records(state)? {
        let Some(record) = Record::load(&file)? else { continue };
        if !has_maker(&file)? && record.is_there()? {
            left.push(record.thing);
        }
    }
    Ok(left)
}

/// Takes away what processes that have ended left, by the records in `state`. What was found: also the records that cannot be
/// understood, which stay.
///
/// # Errors
/// [`Error::Denied`], and what else the files in `state` can fail with.
pub fn undo_left_behind(state: &Path) -> Result<Vec<Removal>> {
    if files(state)?.is_empty() {
        return Ok(Vec::new());
    }
    let _lock = lock(state)?;
    let mut removals = Vec::new();
    for file in files(state)? {
        if file.extension().is_some_and(|extension| extension == UNFINISHED) {
            // Its maker had the lock, and was killed before it made anything.
            remove(&file)?;
        }
    }
    for file in records(state)? {
        let record = match Record::load(&file) {
            Ok(Some(record)) => record,
            Ok(None) => continue,
            Err(error) => {
                removals.push(Removal { thing: None, outcome: Err(error) });
                continue;
            }
        };
        if has_maker(&file)? {
            continue;
        }
        let is_there = record.is_there()?;
        let outcome = if is_there { record.thing.undo() } else { Ok(()) };
        if outcome.is_ok() {
            remove(&file)?;
        }
        if is_there {
            removals.push(Removal { thing: Some(record.thing), outcome });
        }
    }
    Ok(removals)
}

fn remove(file: &Path) -> Result<()> {
    std::fs::remove_file(file).map_err(|error| Error::from_io(&error, "delete", file))
}

impl Thing {
    fn undo(&self) -> Result<()> {
        match self {
            Self::SwapFile(path) => swap::take_away(path),
            Self::Cgroup(path) => cgroup::Scratch::take_away(path),
        }
    }
}

impl Record {
    /// The record in a file; `None` if that has just gone.
    fn load(file: &Path) -> Result<Option<Self>> {
        let text = match text::read(file) {
            Err(Error::Missing { .. }) => return Ok(None),
            other => other?,
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| Error::Journal { path: file.to_owned(), why: error.to_string() })
    }

    /// Writes it to a new file, and locks that.
    fn save(&self, path: &Path) -> Result<File> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::Journal { path: path.to_owned(), why: error.to_string() })?;
        let explain = |error: std::io::Error| Error::from_io(&error, "write", path);
        // It is there whole and locked, or not at all.
        let new = path.with_extension(UNFINISHED);
        let mut file = File::create(&new).map_err(explain)?;
        file.lock().and_then(|()| file.write_all(&text)).map_err(explain)?;
        std::fs::rename(&new, path).map_err(explain)?;
        Ok(file)
    }

    fn is_of_this_boot(&self) -> Result<bool> {
        Ok(boot_id(Path::new("/"))? == self.boot_id)
    }

    /// Whether it is there to be taken away, and is what was made: a cgroup of that name may be another one after a boot.
    fn is_there(&self) -> Result<bool> {
        Ok(match &self.thing {
            Thing::SwapFile(path) => path.exists(),
            Thing::Cgroup(path) => self.is_of_this_boot()? && path.exists(),
        })
    }
}

/// Whether the process that made the record at `path` runs.
fn has_maker(path: &Path) -> Result<bool> {
    match File::open(path) {
        Ok(file) => Ok(file.try_lock().is_err()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Error::from_io(&error, "open", path)),
    }
}

/// The lock, which others hold for a moment only.
fn lock(state: &Path) -> Result<Lock> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Lock::take_file(state, LOCK) {
            Err(Error::Busy { .. }) if Instant::now() < deadline => std::thread::sleep(LOOK),
            other => return other,
        }
    }
}

/// The files of the records in `state`, in the order of their names.
pub(crate) fn records(state: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = files(state)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == RECORD));
    paths.sort_unstable();
    Ok(paths)
}

/// The files in `state`; none where that is not there.
fn files(state: &Path) -> Result<Vec<PathBuf>> {
    let explain = |error: &std::io::Error| Error::from_io(error, "read", state);
    let entries = match std::fs::read_dir(state) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| explain(&error))?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<std::io::Result<Vec<PathBuf>>>().map_err(|error| explain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Makes a record as a process that is killed leaves it: without its lock.
    fn of_killed(state: &Path, boot_id: &str, thing: &Thing) {
        let record = Record { boot_id: boot_id.to_owned(), thing: thing.clone() };
        record.save(&state.join("1.json")).expect("written");
    }

    fn boot() -> String {
        boot_id(Path::new("/")).expect("a boot")
    }

    #[test]
    fn what_a_run_has_is_its_own_and_its_record_goes_with_it() {
        let state = tempfile::tempdir().expect("a directory");
        let file = state.path().join(swap::NAME);
        fs::write(&file, "").expect("written");
        let made = Made::record(state.path(), Thing::SwapFile(file.clone())).expect("recorded");
        assert_eq!(left_behind(state.path()), Ok(Vec::new()));
        assert_eq!(undo_left_behind(state.path()), Ok(Vec::new()));
        assert!(file.exists());
        drop(made);
        assert_eq!(records(state.path()), Ok(Vec::new()));
    }

    #[test]
    fn what_a_killed_run_left_is_taken_away_once() {
        let state = tempfile::tempdir().expect("a directory");
        let file = state.path().join(swap::NAME);
        for boot_id in [boot().as_str(), "another"] {
            fs::write(&file, "").expect("written");
            let thing = Thing::SwapFile(file.clone());
            of_killed(state.path(), boot_id, &thing);
            assert_eq!(left_behind(state.path()), Ok(vec![thing.clone()]));
            let removal = Removal { thing: Some(thing), outcome: Ok(()) };
            assert_eq!(undo_left_behind(state.path()), Ok(vec![removal]));
            assert!(!file.exists());
            assert_eq!(undo_left_behind(state.path()), Ok(Vec::new()));
        }
    }

    #[test]
    fn a_cgroup_of_another_boot_is_another_cgroup() {
        let state = tempfile::tempdir().expect("a directory");
        let group = state.path().join("group");
        fs::create_dir(&group).expect("created");
        let thing = Thing::Cgroup(group.clone());
        of_killed(state.path(), "another", &thing);
        assert_eq!(undo_left_behind(state.path()), Ok(Vec::new()));
        assert!(group.exists() && records(state.path()) == Ok(Vec::new()));
    }

    #[test]
    fn only_files_that_are_named_as_ours_are_removed() {
        let state = tempfile::tempdir().expect("a directory");
        let other = state.path().join("passwd");
        fs::write(&other, "").expect("written");
        of_killed(state.path(), &boot(), &Thing::SwapFile(other.clone()));
        let removals = undo_left_behind(state.path()).expect("readable");
        assert!(matches!(removals[..], [Removal { outcome: Err(Error::Refused { .. }), .. }]));
        assert!(other.exists());
    }

    #[test]
    fn a_record_that_is_none_is_told_and_stays_and_the_others_go() {
        let state = tempfile::tempdir().expect("a directory");
        let (bad, unfinished) = (state.path().join("0.json"), state.path().join("2.new"));
        let swap = state.path().join(swap::NAME);
        for text in ["", "{}", "{\"boot_id\": 3}"] {
            fs::write(&bad, text).expect("written");
            fs::write(&unfinished, text).expect("written");
            fs::write(&swap, "").expect("written");
            of_killed(state.path(), &boot(), &Thing::SwapFile(swap.clone()));
            let found = undo_left_behind(state.path()).expect("readable");
            assert!(
                matches!(
                    found[..],
                    [
                        Removal { thing: None, outcome: Err(Error::Journal { .. }) },
                        Removal { thing: Some(_), outcome: Ok(()) }
                    ]
                ),
                "{found:?}"
            );
            assert!(bad.exists() && !unfinished.exists() && !swap.exists());
        }
        assert_eq!(undo_left_behind(Path::new("/nonexistent")), Ok(Vec::new()));
    }
}
