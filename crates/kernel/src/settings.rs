//! The gate for all writes to sysfs, procfs and cgroupfs: recorded first, put back afterwards.
//!
//! A [`Settings`] changes files that belong to the whole machine. Before each change it records
//! in a journal what the file held and what it will hold; at the end, or at the next start after
//! a crash, everything is put back that still holds our value. What somebody else has changed in
//! between is theirs, left alone and reported. A journal from before a reboot is void, because
//! the kernel has forgotten our values too.
//!
//! What does not outlive its file descriptor (a pressure trigger) or is not a setting (a
//! [`Scratch`](crate::cgroup::Scratch) group of our own) has no entry in the journal.
//! [sysfs(5)](https://man7.org/linux/man-pages/man5/sysfs.5.html),
//! [flock(2)](https://man7.org/linux/man-pages/man2/flock.2.html).

use crate::error::{Error, Result};
use crate::hugetlb;
use crate::text;
use rustix::fs::{FlockOperation, FsWord, OFlags, PROC_SUPER_MAGIC, flock, statfs};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use superpage_units::Pid;

/// Where the journal and the locks are kept: gone after a reboot, like the settings themselves.
pub const STATE_DIRECTORY: &str = "/run/superpage";

/// Where a program that starts a daemon of its own has it keep its state: below the program's. What
/// that daemon changes lies above what the program changed, and is put back first.
pub const INNER: &str = "inner";

/// Where the record of the kernel's pool of gigantic pages is kept, below the machine's state. One process at a
/// time changes the pool, and holds the lock there: a daemon that keeps pages free, or a `superpage run`.
pub const RUN: &str = "run";

const JOURNAL: &str = "settings.json";
const LOCK: &str = "settings.lock";
const JOURNAL_FORMAT: u32 = 1;
const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";

/// Whether changes are made or only described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Make them.
    Apply,
    /// Describe them; nothing is written anywhere.
    DryRun,
}

/// One changed setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The file.
    pub path: PathBuf,
    /// What it held before.
    pub from: String,
    /// What it holds now (in a dry run: what it would have been told).
    pub to: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.path.display(), self.from, self.to)
    }
}

/// What became of one journal entry when it was to be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The file.
    pub path: PathBuf,
    /// What it held before we changed it.
    pub original: String,
    /// What was found and done.
    pub outcome: Outcome,
}

/// All journal entries, the last change first.
pub type Repairs = Vec<Repair>;

/// How putting back one setting ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It held our value and has its original again.
    PutBack {
        /// Our value.
        ours: String,
    },
    /// It already held its original.
    NothingToDo,
    /// Somebody has changed it since; left alone.
    Theirs {
        /// Their value.
        found: String,
    },
    /// The file no longer exists.
    Vanished,
    /// The journal is from before a reboot; left alone.
    OtherBoot,
    /// It could not be put back. The entry stays in the journal for the next attempt.
    Failed(Error),
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, original, .. } = self;
        let path = path.display();
        match &self.outcome {
            Outcome::PutBack { ours } => write!(f, "{path}: {ours} -> {original}, put back"),
            Outcome::NothingToDo => write!(f, "{path}: already {original} again"),
            Outcome::Theirs { found } => {
                write!(f, "{path}: somebody set it to {found} since, left alone")
            }
            Outcome::Vanished => write!(f, "{path}: no longer exists"),
            Outcome::OtherBoot => write!(f, "{path}: the machine has rebooted since, left alone"),
            Outcome::Failed(error) => write!(f, "{path}: not put back to {original}: {error}"),
        }
    }
}

/// The gate: changes settings, and puts them back when asked or dropped.
#[derive(Debug)]
pub struct Settings {
    mode: Mode,
    bounds: Bounds,
    state: PathBuf,
    boot_id: String,
    entries: Vec<Entry>,
    /// Keeps a second process from repairing what this one still needs.
    _lock: Option<Lock>,
}

impl Settings {
    /// Opens the gate to the kernel's settings, after repairing what a crashed run left behind.
    ///
    /// With [`Mode::Apply`] it holds a lock in `state` until dropped, so that there is one at a
    /// time. With [`Mode::DryRun`] nothing is locked, repaired or created.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process has it open, [`Error::Journal`] if the record of an
    /// earlier run cannot be read, [`Error::Refused`] if `state` is not safely ours, and what
    /// files in `state` can fail with. A setting that could not be put back is in the repairs.
    pub fn open(state: &Path, mode: Mode) -> Result<(Self, Repairs)> {
        Self::open_within(Bounds::Kernel, state, mode)
    }

    /// As [`Settings::open`], but only for files under `root`: a tree that imitates the kernel's.
    ///
    /// # Errors
    /// As [`Settings::open`].
    pub fn open_under(root: &Path, state: &Path, mode: Mode) -> Result<(Self, Repairs)> {
        let root =
            std::fs::canonicalize(root).map_err(|error| Error::from_io(&error, "resolve", root))?;
        Self::open_within(Bounds::Under(root), state, mode)
    }

    fn open_within(bounds: Bounds, state: &Path, mode: Mode) -> Result<(Self, Repairs)> {
        let mut settings = Self {
            mode,
            boot_id: boot_id(&bounds.root())?,
            bounds,
            state: state.to_owned(),
            entries: Vec::new(),
            _lock: None,
        };
        if mode == Mode::DryRun {
            return Ok((settings, Repairs::new()));
        }
        settings._lock = Some(Lock::take_file(state, LOCK)?);
        let inner = state.join(INNER);
        let mut repairs = match has_journal(&inner) {
            true => Self::open_within(settings.bounds.clone(), &inner, mode)?.1,
            false => Repairs::new(),
        };
        repairs.extend(settings.recover()?);
        Ok((settings, repairs))
    }

    /// What a run that was killed left changed, and the next [`Settings::open`] would put back.
    /// Nothing while somebody has the gate open: that is then theirs to put back.
    ///
    /// # Errors
    /// As [`Settings::open`], but for [`Error::Busy`].
    pub fn left_behind(state: &Path) -> Result<Vec<Change>> {
        let mut left = Vec::new();
        for below in [RUN, INNER].map(|name| state.join(name)) {
            if has_journal(&below) {
                left.extend(Self::left_behind(&below)?);
            }
        }
        if !has_journal(state) {
            return Ok(left);
        }
        let Some(_lock) = Lock::share(state, LOCK)? else { return Ok(left) };
        let Some(journal) = Journal::load(&state.join(JOURNAL))? else { return Ok(left) };
        if journal.boot_id == boot_id(&Bounds::Kernel.root())? {
            left.extend(journal.changes.iter().filter_map(Entry::left));
        }
        Ok(left)
    }

    /// Whether changes are made or only described.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The root under which the settings lie: `/`, or that of the test.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.bounds.root()
    }

    /// What is changed now and will be put back, in the order of the first changes.
    #[must_use]
    pub fn held(&self) -> Vec<Change> {
        self.entries.iter().map(Entry::change).collect()
    }

    /// Sets the file at `path` to `value`, to be put back to what it held at the first change.
    ///
    /// Of a selector such as `always [madvise] never` the value is the word in brackets. If the
    /// file already holds `value`, nothing is written or recorded. The kernel may round a value;
    /// [`Change::to`] is what the file holds in the end.
    ///
    /// # Errors
    /// [`Error::Refused`] for a file that is not a kernel setting, [`Error::NotTaken`] if the file
    /// still holds the old value, [`Error::Missing`], [`Error::Denied`], [`Error::Failed`].
    pub fn change(&mut self, path: &Path, value: &str) -> Result<Change> {
        let path = self.bounds.admit(path)?;
        let from = read_value(&path)?;
        if self.mode == Mode::DryRun || from == value {
            let to = value.to_owned();
            return Ok(Change { path, from, to });
        }
        let before = self.entries.clone();
        self.record(&path, &from, value)?;
        match write_and_check(&path, &from, value) {
            Ok(to) => {
                self.settle(&path, &to)?;
                Ok(Change { path, from, to })
            }
            Err(error) => {
                self.forget_failed(&path, &from, before)?;
                Err(error)
            }
        }
    }

    /// Writes `value` to the file at `path` as an action: nothing is recorded, nothing put back.
    ///
    /// # Errors
    /// [`Error::Refused`] in a dry run and for a file that is not a kernel setting, and what the
    /// write can fail with.
    pub fn act(&self, path: &Path, value: &str) -> Result<()> {
        let path = self.bounds.admit(path)?;
        if self.mode == Mode::DryRun {
            let reason = "this is a dry run";
            return Err(Error::Refused { path, reason });
        }
        write_value(&path, value)
    }

    /// Puts everything back, the last change first, and deletes the journal.
    ///
    /// What cannot be put back stays in the journal and is tried again by the next call, at drop,
    /// and at the next start.
    ///
    /// # Errors
    /// Only what writing or deleting the journal fails with; the rest is in the answer.
    pub fn restore(&mut self) -> Result<Repairs> {
        if self.mode == Mode::DryRun || self.entries.is_empty() {
            return Ok(Repairs::new());
        }
        let repairs: Repairs =
            self.entries.iter().rev().map(|e| e.put_back(&self.bounds)).collect();
        let stuck = |entry: &Entry| {
            repairs.iter().any(|repair| {
                repair.path == entry.path && matches!(repair.outcome, Outcome::Failed(_))
            })
        };
        self.entries.retain(stuck);
        self.store()?;
        Ok(repairs)
    }

    /// Puts the file at `path` back alone; `None` if it is not held, or this is a dry run. What cannot be put back is tried again
    /// by [`Settings::restore`].
    ///
    /// # Errors
    /// Only what writing or deleting the journal fails with; the rest is in the answer.
    pub fn put_back(&mut self, path: &Path) -> Result<Option<Repair>> {
        let Some(index) = self.entries.iter().position(|entry| entry.path == path) else {
            return Ok(None);
        };
        let repair = self.entries[index].put_back(&self.bounds);
        if !matches!(repair.outcome, Outcome::Failed(_)) {
            self.entries.remove(index);
            self.store()?;
        }
        Ok(Some(repair))
    }

    /// Reads the journal of an earlier run and acts on it.
    fn recover(&mut self) -> Result<Repairs> {
        let Some(journal) = Journal::load(&self.journal_path())? else {
            return Ok(Repairs::new());
        };
        self.entries = journal.changes;
        self.check_journal()?;
        if journal.boot_id == self.boot_id {
            return self.restore();
        }
        let repairs = self.entries.drain(..).rev().map(|entry| entry.repair(Outcome::OtherBoot));
        let repairs = repairs.collect();
        self.store()?;
        Ok(repairs)
    }

    /// A journal that names anything but settings was not written by us.
    fn check_journal(&mut self) -> Result<()> {
        let foreign = self.entries.iter().find_map(|entry| match self.bounds.admit(&entry.path) {
            Err(Error::Refused { path, reason }) => Some(format!("{}: {reason}", path.display())),
            _ => None,
        });
        let Some(why) = foreign else { return Ok(()) };
        self.entries.clear();
        Err(Error::Journal { path: self.journal_path(), why })
    }

    /// Puts into the journal that `path`, which holds `from`, is about to hold `value`.
    fn record(&mut self, path: &Path, from: &str, value: &str) -> Result<()> {
        match self.entries.iter_mut().find(|entry| entry.path == path) {
            Some(entry) => entry.ours.push(value.to_owned()),
            None => self.entries.push(Entry {
                path: path.to_owned(),
                original: from.to_owned(),
                ours: vec![value.to_owned()],
            }),
        }
        self.store()
    }

    /// Notes that `path` now holds `held` and nothing else of ours.
    fn settle(&mut self, path: &Path, held: &str) -> Result<()> {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.path == path) else {
            return Ok(());
        };
        let settled = [held.to_owned()];
        if entry.ours == settled {
            return Ok(());
        }
        entry.ours = settled.into();
        self.store()
    }

    /// After a failed write: back to the journal of before, unless the file did change.
    fn forget_failed(&mut self, path: &Path, from: &str, before: Vec<Entry>) -> Result<()> {
        if read_value(path).is_ok_and(|found| found == from) {
            self.entries = before;
            return self.store();
        }
        Ok(())
    }

    fn journal_path(&self) -> PathBuf {
        self.state.join(JOURNAL)
    }

    /// Makes the journal on disk say what `entries` say; none means no journal.
    fn store(&self) -> Result<()> {
        let path = self.journal_path();
        if self.entries.is_empty() {
            return remove(&path).and_then(|()| sync_directory(&self.state));
        }
        let journal = Journal {
            format: JOURNAL_FORMAT,
            boot_id: self.boot_id.clone(),
            changes: self.entries.clone(),
        };
        journal.save(&path)
    }
}

/// The last resort; [`Settings::restore`] says what happened, this cannot.
impl Drop for Settings {
    fn drop(&mut self) {
        let _ = self.restore();
    }
}

/// One file we have changed. From a journal it is an allegation: [`Bounds::admit`] is asked again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: PathBuf,
    original: String,
    /// What we have written, the latest last. There are two when a crash came between recording
    /// a second change and making it: the file then still holds the first.
    ours: Vec<String>,
}

impl Entry {
    fn change(&self) -> Change {
        Change {
            path: self.path.clone(),
            from: self.original.clone(),
            to: self.ours.last().cloned().unwrap_or_default(),
        }
    }

    /// What would be put back now, if the file still holds our value.
    fn left(&self) -> Option<Change> {
        let found = read_value(&self.path).ok()?;
        let is_ours = found != self.original && self.ours.contains(&found);
        is_ours.then(|| Change { to: found, ..self.change() })
    }

    fn repair(&self, outcome: Outcome) -> Repair {
        Repair { path: self.path.clone(), original: self.original.clone(), outcome }
    }

    fn put_back(&self, bounds: &Bounds) -> Repair {
        let outcome = self.try_put_back(bounds).unwrap_or_else(|error| match error {
            Error::Missing { .. } => Outcome::Vanished,
            other => Outcome::Failed(other),
        });
        self.repair(outcome)
    }

    fn try_put_back(&self, bounds: &Bounds) -> Result<Outcome> {
        let path = bounds.admit(&self.path)?;
        let found = read_value(&path)?;
        if found == self.original {
            return Ok(Outcome::NothingToDo);
        }
        if !self.ours.contains(&found) {
            return Ok(Outcome::Theirs { found });
        }
        write_and_check(&path, &found, &self.original)?;
        Ok(Outcome::PutBack { ours: found })
    }
}

/// What the journal file holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Journal {
    format: u32,
    boot_id: String,
    changes: Vec<Entry>,
}

impl Journal {
    /// The journal at `path`, if there is one.
    fn load(path: &Path) -> Result<Option<Self>> {
        let text = match text::read(path) {
            Err(Error::Missing { .. }) => return Ok(None),
            other => other?,
        };
        let journal: Self = serde_json::from_slice(&text)
            .map_err(|error| Error::Journal { path: path.to_owned(), why: error.to_string() })?;
        if journal.format == JOURNAL_FORMAT {
            return Ok(Some(journal));
        }
        let why = format!("its format is {}, not {JOURNAL_FORMAT}", journal.format);
        Err(Error::Journal { path: path.to_owned(), why })
    }

    /// Replaces the journal at `path` so that a crash leaves either the old or the new one.
    fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::Journal { path: path.to_owned(), why: error.to_string() })?;
        let new = path.with_extension("json.new");
        write_durably(&new, &text)
            .and_then(|()| std::fs::rename(&new, path))
            .map_err(|error| Error::from_io(&error, "write", path))?;
        sync_directory(path.parent().unwrap_or(path))
    }
}

fn has_journal(state: &Path) -> bool {
    state.join(JOURNAL).exists()
}

fn write_durably(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut file = private_file().truncate(true).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

fn sync_directory(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| Error::from_io(&error, "sync", path))
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::from_io(&error, "delete", path))
        }
        _ => Ok(()),
    }
}

/// Options for a file that only we read, at a place where no link is followed.
fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    options.read(true).write(true).create(true).mode(0o600).custom_flags(flags);
    options
}

/// Creates the state directory if it is missing, and makes sure that nobody else can write to it:
/// its journal tells a privileged process what to write where.
fn prepare_state_directory(path: &Path) -> Result<()> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|error| Error::from_io(&error, "create", path))?;
    let found =
        std::fs::symlink_metadata(path).map_err(|error| Error::from_io(&error, "look at", path))?;
    let me = rustix::process::geteuid();
    let ours = found.is_dir() && found.uid() == me.as_raw();
    if ours && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    if !ours && !me.is_root() {
        let what = format!("use {}, which belongs to somebody else", path.display());
        return Err(Error::from_errno(Errno::ACCESS, what));
    }
    Err(Error::Refused {
        path: path.to_owned(),
        reason: "the state directory must belong to us, and nobody else may write to it",
    })
}

/// A lock that is taken is asked for again so often, so long after.
const LOOKS: u32 = 10;
const LOOK: Duration = Duration::from_millis(1);

/// A lock that one process on the machine can hold, released when dropped or when we die.
#[derive(Debug)]
pub struct Lock {
    /// Holds the lock as long as it is open.
    _file: File,
}

impl Lock {
    /// Takes the daemon's lock in the state directory `state`, which is created if missing.
    ///
    /// # Errors
    /// [`Error::Busy`] with the pid of the process that has it; [`Error::Refused`] if `state` is
    /// not safely ours; what the files in it can fail with.
    pub fn take(state: &Path) -> Result<Self> {
        Self::take_file(state, "daemon.lock")
    }

    /// Takes the lock of the whole machine, which every daemon holds, wherever its state is. The inner error
    /// says why it is out of reach, as it is without root.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Refused`].
    pub fn of_machine() -> Result<Result<Self>> {
        match Self::take(Path::new(STATE_DIRECTORY)) {
            Err(error @ (Error::Busy { .. } | Error::Refused { .. })) => Err(error),
            other => Ok(other),
        }
    }

    /// Keeps others from taking the lock, to look for a moment; `None` if somebody has taken it.
    fn share(state: &Path, name: &str) -> Result<Option<File>> {
        let path = state.join(name);
        let file = File::open(&path).map_err(|error| Error::from_io(&error, "open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(Error::from_errno(errno, format!("lock {}", path.display()))),
        }
    }

    pub(crate) fn take_file(state: &Path, name: &str) -> Result<Self> {
        match Self::try_file(state, name) {
            Err(Error::Busy { pid: Some(pid) }) if is_dying(pid) => {
                let path = state.join(name);
                std::fs::remove_file(&path)
                    .map_err(|error| Error::from_io(&error, "remove", &path))?;
                Self::try_file(state, name)
            }
            other => other,
        }
    }

    fn try_file(state: &Path, name: &str) -> Result<Self> {
        prepare_state_directory(state)?;
        let path = state.join(name);
        let mut file = private_file()
            .truncate(false)
            .open(&path)
            .map_err(|error| Error::from_io(&error, "open", &path))?;
        let lock = || flock(&file, FlockOperation::NonBlockingLockExclusive);
        // Somebody may just be looking.
        let taken = (0..LOOKS).find_map(|_| match lock() {
            Err(Errno::WOULDBLOCK) => {
                std::thread::sleep(LOOK);
                None
            }
            other => Some(other),
        });
        match taken {
            Some(Ok(())) => {}
            None => return Err(Error::Busy { pid: holder(&mut file) }),
            Some(Err(errno)) => {
                return Err(Error::from_errno(errno, format!("lock {}", path.display())));
            }
        }
        file.set_len(0)
            .and_then(|()| write!(file, "{}", std::process::id()))
            .map_err(|error| Error::from_io(&error, "write", &path))?;
        Ok(Self { _file: file })
    }
}

/// Whether a process has ended but for threads that wait in the kernel and do not come back, as for a file system in user space
/// that does not answer: it does nothing any more, and holds its locks for as long as they wait.
fn is_dying(pid: Pid) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command before it may hold any character.
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 2));
    matches!(state, Some(b'Z' | b'X'))
}

/// The pid in a lock file; `None` if its holder has not written it yet.
fn holder(file: &mut File) -> Option<Pid> {
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    text::decimal(&text)?.try_into().ok().map(Pid)
}

/// Which files may be written at all.
#[derive(Clone, Debug)]
enum Bounds {
    /// Files of sysfs, of `/proc/sys`, and of cgroup file systems wherever they are mounted.
    Kernel,
    /// Whatever lies under this directory, its links resolved.
    Under(PathBuf),
}

impl Bounds {
    fn root(&self) -> PathBuf {
        match self {
            Self::Kernel => PathBuf::from("/"),
            Self::Under(root) => root.clone(),
        }
    }

    /// The path with its links resolved, if it may be written.
    fn admit(&self, path: &Path) -> Result<PathBuf> {
        let refuse = |reason| Error::Refused { path: path.to_owned(), reason };
        if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
            return Err(refuse("a setting is named by an absolute path without '..'"));
        }
        let real =
            std::fs::canonicalize(path).map_err(|error| Error::from_io(&error, "resolve", path))?;
        if real.to_str().is_none() {
            return Err(refuse("its name is not UTF-8"));
        }
        if self.contain(&real)? {
            Ok(real)
        } else {
            Err(refuse("it is not a setting of the kernel's"))
        }
    }

    fn contain(&self, path: &Path) -> Result<bool> {
        match self {
            Self::Under(root) => Ok(path.starts_with(root)),
            Self::Kernel => file_system(path).map(|found| match found {
                SYSFS_MAGIC => path.starts_with("/sys"),
                PROC_SUPER_MAGIC => path.starts_with("/proc/sys"),
                CGROUP_MAGIC | CGROUP2_MAGIC => true,
                _ => false,
            }),
        }
    }
}

// From linux/magic.h.
const SYSFS_MAGIC: FsWord = 0x6265_6572;
const CGROUP_MAGIC: FsWord = 0x0027_e0eb;
const CGROUP2_MAGIC: FsWord = 0x6367_7270;

fn file_system(path: &Path) -> Result<FsWord> {
    statfs(path)
        .map(|found| found.f_type)
        .map_err(|errno| Error::from_errno(errno, format!("look at {}", path.display())))
}

/// The number that names this boot. A test root without one has the machine's.
pub(crate) fn boot_id(root: &Path) -> Result<String> {
    match read_value(&root.join(BOOT_ID)) {
        Err(Error::Missing { .. }) => read_value(&Path::new("/").join(BOOT_ID)),
        other => other,
    }
}

/// The value of the setting at `path`: the word in brackets of a selector, else the whole text. Of a number of
/// hugetlb pages, those that were asked for, without those in use beyond it.
///
/// # Errors
/// [`Error::Missing`], [`Error::Denied`], [`Error::Failed`], or [`Error::Malformed`] if it is not
/// text.
pub fn read_value(path: &Path) -> Result<String> {
    let text = text::read(path)?;
    let value = selected(text.trim_ascii());
    let value = std::str::from_utf8(value)
        .map_err(|_| Error::malformed(path, 1, "text in UTF-8", value))?;
    Ok(hugetlb::asked_for(path, value).map_or_else(|| value.to_owned(), |asked| asked.to_string()))
}

/// `b` of `a [b] c`; all of a text without such a word.
fn selected(text: &[u8]) -> &[u8] {
    text::words(text).find_map(|word| word.strip_prefix(b"[")?.strip_suffix(b"]")).unwrap_or(text)
}

/// Writes `value`, reads what the file holds then, and fails if that is still `from`.
fn write_and_check(path: &Path, from: &str, value: &str) -> Result<String> {
    write_value(path, value)?;
    let found = read_value(path)?;
    if found == from && found != value {
        return Err(Error::NotTaken { path: path.to_owned(), wanted: value.to_owned(), found });
    }
    Ok(found)
}

/// Writes `value` to the file at `path` in one call. Every write of this crate to a file of the
/// kernel's passes here; it never creates one.
pub(crate) fn write_value(path: &Path, value: &str) -> Result<()> {
    let written = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| file.write(value.as_bytes()))
        .map_err(|error| Error::from_io(&error, "write", path))?;
    if written == value.len() {
        return Ok(());
    }
    let what = format!("write all of {value:?} to {}", path.display());
    Err(Error::from_errno(Errno::IO, what))
}

#[cfg(test)]
mod tests;
