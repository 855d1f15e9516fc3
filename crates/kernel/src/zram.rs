//! Compressed memory as a block device (zram): one of our own for each [`Zram`].
//!
//! A device is recorded once it is there and before it has a size, and removed when the [`Zram`] is dropped. A process
//! that was killed leaves the record, and [`remove_left_behind`] undoes it. The record names a device by its number and
//! by its `diskseq`, which no other disk has until the machine reboots, so nobody else's device is removed; and the
//! kernel removes none that is open, so that of a program that outlives its `superpage run` stays.
//!
//! A process that is killed between the device and its record leaves a device without a size: it takes no memory, and
//! `zramctl --find` takes it for free.
//! [zram](https://docs.kernel.org/admin-guide/blockdev/zram.html).

use crate::error::{Error, Result};
use crate::made::{RECORD, records};
use crate::settings::{Lock, boot_id, write_value};
use crate::text;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use superpage_units::Bytes;

/// Where the records are kept, below the machine's state.
pub const ZRAM: &str = "zram";

const LOCK: &str = "zram.lock";

/// A device is asked for again so often until it is there, or until nobody has it open: whoever looks into new devices
/// (udev) has it open for a moment, and so has the kernel after its user has ended. Chosen.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

/// A device of ours. Dropping it removes it, once nobody has it open.
#[derive(Debug)]
pub struct Zram {
    state: PathBuf,
    /// Nothing once the device has been removed.
    record: Option<Record>,
}

/// Which device it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    boot_id: String,
    number: u64,
    diskseq: u64,
}

/// A device that a process left when it was killed, and how its removal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    device: PathBuf,
    /// Whether it is gone.
    pub outcome: Outcome,
}

/// How the removal of a device ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is gone.
    Removed,
    /// Somebody has it open. Its record stays.
    InUse,
    /// It could not be removed. Its record stays.
    Failed(Error),
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device.display();
        match &self.outcome {
            Outcome::Removed => write!(f, "{device}: removed"),
            Outcome::InUse => write!(f, "{device}: in use by a program, left alone"),
            Outcome::Failed(error) => write!(f, "{device}: not removed: {error}"),
        }
    }
}

impl Zram {
    /// Adds a device of this size, recorded in the directory `state`, and opens it for nobody else. What processes that
    /// were killed left there is removed first.
    ///
    /// # Errors
    /// [`Error::Missing`] on a kernel without zram, [`Error::Denied`] without root, [`Error::Busy`] while another process
    /// adds or removes one, and what the files in `state` can fail with.
    pub fn create(state: &Path, size: Bytes) -> Result<(Self, File)> {
        let _lock = lock(state)?;
        remove_recorded(state)?;
        let record = add()?;
        match record.save(state).and_then(|()| record.set_up(size)) {
            Ok(file) => Ok((Self { state: state.to_owned(), record: Some(record) }, file)),
            Err(error) => {
                // Where this fails too, the next one removes it.
                let _ = record.remove(state);
                Err(error)
            }
        }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> PathBuf {
        self.record.as_ref().map(Record::device).unwrap_or_default()
    }

    /// Removes the device. Whoever has it open must close it within seconds.
    ///
    /// # Errors
    /// What the kernel refuses; the record stays for [`remove_left_behind`] then.
    pub fn remove(mut self) -> Result<()> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<()> {
        let Some(record) = self.record.take() else { return Ok(()) };
        let locked = || Lock::take_file(&self.state, LOCK);
        patiently(|| locked().and_then(|_lock| record.remove(&self.state)))
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        // The next run, or `superpage restore`, removes what cannot be removed here.
        let _ = self.take_away();
    }
}

/// Removes the devices that are recorded in `state` and that nobody has open. What was found.
///
/// # Errors
/// As [`Zram::create`], but for a kernel without zram, which has none.
pub fn remove_left_behind(state: &Path) -> Result<Vec<Removal>> {
    if records(state)?.is_empty() {
        return Ok(Vec::new());
    }
    let _lock = lock(state)?;
    remove_recorded(state)
}

/// The devices that are recorded in `state` and whose `superpage run` has been killed; their programs may still use them.
///
/// # Errors
/// As [`remove_left_behind`].
pub fn left_behind(state: &Path) -> Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for path in records(state)? {
        let record = Record::load(&path)?;
        // A run has its device open for nobody else.
        if record.is_there()? && exclusively().open(record.device()).is_ok() {
            left.push(record.device());
        }
    }
    Ok(left)
}

/// How a device is opened for nobody else.
fn exclusively() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::EXCL.bits().cast_signed());
    options
}

/// The lock, which others hold for a moment only.
fn lock(state: &Path) -> Result<Lock> {
    patiently(|| Lock::take_file(state, LOCK))
}

/// Tries again for a while where somebody else is in the way.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && Instant::now() < deadline => std::thread::sleep(LOOK),
            other => return other,
        }
    }
}

/// As [`remove_left_behind`], for who holds the lock.
fn remove_recorded(state: &Path) -> Result<Vec<Removal>> {
    let mut found = Vec::new();
    for path in records(state)? {
        let record = Record::load(&path)?;
        if !record.is_there()? {
            forget(&path)?;
            continue;
        }
        let outcome = match record.remove(state) {
            Ok(()) => Outcome::Removed,
            Err(error) if is_busy(&error) => Outcome::InUse,
            Err(error) => Outcome::Failed(error),
        };
        found.push(Removal { device: record.device(), outcome });
    }
    Ok(found)
}

fn forget(path: &Path) -> Result<()> {
    std::fs::remove_file(path).map_err(|error| Error::from_io(&error, "delete", path))
}

/// Whether somebody has the device open, or is adding or removing one.
fn is_busy(error: &Error) -> bool {
    matches!(error, Error::Busy { .. } | Error::Failed { errno: Errno::BUSY, .. })
}

/// Where devices are added and removed. Loads the module if it has not been.
fn control(file: &str) -> Result<PathBuf> {
    let directory = Path::new("/sys/class/zram-control");
    if !directory.exists() {
        // No device of the module's own; whether it has loaded is looked at below.
        let _ = Command::new("/sbin/modprobe").args(["--quiet", "zram", "num_devices=0"]).status();
    }
    match directory.exists() {
        true => Ok(directory.join(file)),
        false => Err(Error::Missing { path: directory.to_owned() }),
    }
}

/// Adds a device without a size: reading the file does.
fn add() -> Result<Record> {
    let path = control("hot_add")?;
    let number = text::read_decimal(&path)?;
    let attributes = attributes(number);
    let diskseq = text::read_decimal(&attributes.join("diskseq"))?;
    Ok(Record { boot_id: boot_id(Path::new("/"))?, number, diskseq })
}

/// The attributes of the device of this number.
fn attributes(number: u64) -> PathBuf {
    PathBuf::from(format!("/sys/block/zram{number}"))
}

impl Record {
    fn device(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.number))
    }

    fn path(&self, state: &Path) -> PathBuf {
        state.join(format!("zram{}", self.number)).with_extension(RECORD)
    }

    fn load(path: &Path) -> Result<Self> {
        serde_json::from_slice(&text::read(path)?)
            .map_err(|error| Error::Journal { path: path.to_owned(), why: error.to_string() })
    }

    fn save(&self, state: &Path) -> Result<()> {
        let path = self.path(state);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::Journal { path: path.clone(), why: error.to_string() })?;
        // A file is there whole or not at all.
        let new = path.with_extension("new");
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(|error| Error::from_io(&error, "write", &path))
    }

    /// Whether this device is still there, and is not another of the same number.
    fn is_there(&self) -> Result<bool> {
        if boot_id(Path::new("/"))? != self.boot_id {
            return Ok(false);
        }
        match text::read_decimal(&attributes(self.number).join("diskseq")) {
            Ok(diskseq) => Ok(diskseq == self.diskseq),
            Err(Error::Missing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn set_up(&self, size: Bytes) -> Result<File> {
        write_value(&attributes(self.number).join("disksize"), &size.0.to_string())?;
        let device = self.device();
        let options = exclusively();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match options.open(&device) {
                Err(_) if Instant::now() < deadline => std::thread::sleep(LOOK),
                other => return other.map_err(|error| Error::from_io(&error, "open", &device)),
            }
        }
    }

    /// Removes the device and its record.
    fn remove(&self, state: &Path) -> Result<()> {
        if self.is_there()? {
            write_value(&control("hot_remove")?, &self.number.to_string())?;
        }
        match forget(&self.path(state)) {
            // Another process has been here.
            Err(Error::Missing { .. }) => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(boot_id: &str) -> Record {
        Record { boot_id: boot_id.into(), number: 999_999, diskseq: 1 }
    }

    #[test]
    fn records_of_devices_that_are_gone_go() {
        let state = tempfile::tempdir().expect("there is room");
        let boot = boot_id(Path::new("/")).expect("a boot");
        for boot_id in [boot.as_str(), "another"] {
            record(boot_id).save(state.path()).expect("there is room");
            assert_eq!(records(state.path()).map(|all| all.len()), Ok(1));
            assert_eq!(remove_recorded(state.path()), Ok(Vec::new()));
            assert_eq!(records(state.path()), Ok(Vec::new()));
        }
    }

    #[test]
    fn a_record_that_is_none_is_an_error_and_stays() {
        let state = tempfile::tempdir().expect("there is room");
        let path = record("another").path(state.path());
        for text in ["", "{}", "{\"boot_id\": 3}"] {
            std::fs::write(&path, text).expect("there is room");
            let found = remove_recorded(state.path());
            assert!(matches!(found, Err(Error::Journal { .. })), "{found:?}");
            assert!(path.exists());
        }
    }

    #[test]
    fn nothing_is_recorded_where_nobody_was() {
        assert_eq!(remove_left_behind(Path::new("/nonexistent")), Ok(Vec::new()));
    }
}
