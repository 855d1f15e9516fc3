//! A memory cgroup of our own, for a test or an experiment: made, used, and taken away again.

use super::{Group, Hierarchy, Version, lists_memory};
use crate::error::{Error, Result};
use crate::made::{Made, Thing};
use crate::process::Process;
use crate::settings::write_value;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;
use superpage_units::Bytes;

/// A group of our own, removed when dropped; what still runs in it then goes back to
/// the group we ourselves are in.
#[derive(Debug)]
pub struct Scratch {
    group: Group,
    /// Where the processes go in the end.
    home: PathBuf,
    made: Option<Made>,
}

impl Scratch {
    /// Creates the group `name` at the top of `hierarchy`. An empty one that a crash left behind
    /// is replaced.
    ///
    /// # Errors
    /// [`Error::Refused`] if `name` is not a plain name, or if the v2 hierarchy does not pass the
    /// memory controller on to its groups; [`Error::Denied`]; [`Error::Failed`] if it exists and
    /// is in use.
    pub fn create(hierarchy: &Hierarchy, name: &str) -> Result<Self> {
        Self::make(hierarchy, name, |_| Ok(None))
    }

    /// The same, recorded in the directory `state`, so that it is taken away also where this process is killed.
    ///
    /// # Errors
    /// As [`Scratch::create`], and what the files in `state` can fail with.
    pub fn create_recorded(hierarchy: &Hierarchy, name: &str, state: &Path) -> Result<Self> {
        Self::make(hierarchy, name, |path| {
            Made::record(state, Thing::Cgroup(path.to_owned())).map(Some)
        })
    }

    fn make(
        hierarchy: &Hierarchy,
        name: &str,
        record: impl FnOnce(&Path) -> Result<Option<Made>>,
    ) -> Result<Self> {
        let path = hierarchy.mount.join(name);
        check_name(&path, name)?;
        check_delegation(hierarchy)?;
        let home = home(hierarchy);
        let made = record(&path)?;
        // Fails unless it exists and is empty, which is all that is wanted.
        let _ = std::fs::remove_dir(&path);
        std::fs::create_dir(&path).map_err(|error| Error::from_io(&error, "create", &path))?;
        let version = hierarchy.version;
        Ok(Self { group: Group { version, path }, home, made })
    }

    /// Takes the group at `path` away, which a process that was killed had made. What runs in it goes to the group that we are in.
    ///
    /// # Errors
    /// As [`Group::open`] and [`Hierarchy::find`]; [`Error::Failed`] if it is still in use.
    pub(crate) fn take_away(path: &Path) -> Result<()> {
        let group = Group::open(path)?;
        let hierarchy = Hierarchy::find(Path::new("/"))?;
        let hierarchy = hierarchy.ok_or_else(|| Error::Missing { path: path.to_owned() })?;
        Self { group, home: home(&hierarchy), made: None }.remove()
    }

    /// Tries for a while: a process that was just killed holds its group until it is gone.
    fn remove(&self) -> Result<()> {
        // Chosen, not measured: a second for a large process to be torn down.
        for _ in 0..50 {
            self.empty();
            match std::fs::remove_dir(&self.group.path) {
                Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                other => {
                    return other
                        .map_err(|error| Error::from_io(&error, "remove", &self.group.path));
                }
            }
        }
        Err(Error::from_errno(Errno::BUSY, format!("remove {}", self.group.path.display())))
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Moves `process` into it. Memory that it already has stays charged to where it was.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::Failed`].
    pub fn add(&self, process: &Process) -> Result<()> {
        move_to(&self.group.path, process)
    }

    /// Does `work` while we ourselves are in the group: what it starts is charged to the group from
    /// its first page on. We go back to where we were afterwards.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Failed`].
    pub fn while_in<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let me = std::process::id().to_string();
        write_value(&self.group.path.join("cgroup.procs"), &me)?;
        let done = work();
        write_value(&self.home.join("cgroup.procs"), &me)?;
        Ok(done)
    }

    /// The words of a command that moves itself into the group and becomes the program whose words come after them:
    /// that is charged to the group from its first page on.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let processes = self.group.path.join("cgroup.procs").to_string_lossy().into_owned();
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        vec!["sh".to_owned(), "-c".to_owned(), script.to_owned(), processes]
    }

    /// Limits the memory of the group; what it uses beyond that is swapped out or reclaimed, and where that is
    /// not possible the kernel kills. The limit goes with the group.
    ///
    /// # Errors
    /// [`Error::Denied`]; [`Error::Failed`] if the group uses more and that cannot be reclaimed.
    pub fn limit(&self, limit: Bytes) -> Result<()> {
        let file = match self.group.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        write_value(&self.group.path.join(file), &limit.0.to_string())
    }

    /// Asks the kernel to reclaim `amount` from the group, and says by how much its use fell,
    /// which can be less, or more.
    ///
    /// On v2 by `memory.reclaim`; on v1 by a limit below what is used, lifted again at once.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Missing`] on a v2 kernel without `memory.reclaim` (5.19), and
    /// [`Error::Failed`]. Not having found enough is no error.
    pub fn reclaim(&self, amount: Bytes) -> Result<Bytes> {
        let before = self.group.usage()?.current;
        match self.group.version {
            Version::V1 => self.squeeze(before.saturating_sub(amount))?,
            Version::V2 => tolerate(write_value(
                &self.group.path.join("memory.reclaim"),
                &amount.0.to_string(),
            ))?,
        }
        Ok(before.saturating_sub(self.group.usage()?.current))
    }

    /// Lowers the v1 limit to `size` and puts it back, whatever became of it.
    fn squeeze(&self, size: Bytes) -> Result<()> {
        let path = self.group.path.join("memory.limit_in_bytes");
        let limit = self.group.limit_v1("memory.limit_in_bytes")?;
        let lowered = tolerate(write_value(&path, &size.0.to_string()));
        let old = limit.map_or_else(|| "-1".to_owned(), |limit| limit.0.to_string());
        write_value(&path, &old)?;
        lowered
    }

    /// Moves what is left in the group to `home`.
    fn empty(&self) {
        let listed = self.group.processes().unwrap_or_default();
        let held: Vec<_> = listed.into_iter().filter_map(|pid| Process::open(pid).ok()).collect();
        // A number may have come to mean another process before that was held. One that is listed
        // still is of a process in the group.
        let listed = self.group.processes().unwrap_or_default();
        for process in held.iter().filter(|process| listed.contains(&process.pid())) {
            // A process that has exited needs no move.
            let _ = move_to(&self.home, process);
        }
    }
}

/// Moves `process` into the group at `directory`. The kernel takes only a number there.
fn move_to(directory: &Path, process: &Process) -> Result<()> {
    process.check_alive()?;
    let moved = write_value(&directory.join("cgroup.procs"), &process.pid().to_string());
    // Says which of the two it was if the process ended meanwhile.
    process.check_alive()?;
    moved
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.remove().is_err() {
            // The next run, or `superpage restore`, tries again.
            self.made.take().into_iter().for_each(Made::leave);
        }
    }
}

/// Less than was asked for: v1 says EBUSY, v2 EAGAIN, either EINTR when a signal came.
fn tolerate(written: Result<()>) -> Result<()> {
    match written {
        Err(Error::Failed { errno: Errno::BUSY | Errno::AGAIN | Errno::INTR, .. }) => Ok(()),
        other => other,
    }
}

fn check_name(path: &Path, name: &str) -> Result<()> {
    if !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0', '\n']) {
        return Ok(());
    }
    Err(Error::Refused { path: path.to_owned(), reason: "a new cgroup needs a plain name" })
}

/// On v2 a group has the memory controller only if the group above it hands it down.
fn check_delegation(hierarchy: &Hierarchy) -> Result<()> {
    let path = hierarchy.mount.join("cgroup.subtree_control");
    if hierarchy.version == Version::V1 || lists_memory(&path) {
        return Ok(());
    }
    Err(Error::Refused {
        path,
        reason: "it does not hand the memory controller down; write +memory to it",
    })
}

/// The group we ourselves are in, or the top one.
fn home(hierarchy: &Hierarchy) -> PathBuf {
    Process::current()
        .and_then(|me| hierarchy.group_of(&me))
        .ok()
        .flatten()
        .map_or_else(|| hierarchy.mount.clone(), |group| group.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn v2() -> Hierarchy {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cgroup_v2");
        Hierarchy::find(&root).expect("reads").expect("has one")
    }

    #[test]
    fn scratch_groups_are_named_plainly_and_need_the_controller() {
        for name in ["", ".", "..", "a/b", "/a", "a\n"] {
            let refused = Scratch::create(&v2(), name).err();
            assert!(matches!(refused, Some(Error::Refused { .. })), "{name:?}");
        }
        let root = tempfile::tempdir().expect("a temporary directory");
        let hierarchy = Hierarchy { mount: root.path().to_owned(), ..v2() };
        fs::write(root.path().join("cgroup.subtree_control"), "cpu pids\n").expect("written");
        let refused = Scratch::create(&hierarchy, "scratch").err().map(|error| error.to_string());
        assert!(refused.is_some_and(|why| why.contains("write +memory")));
        fs::write(root.path().join("cgroup.subtree_control"), "cpu memory\n").expect("written");
        let scratch = Scratch::create(&hierarchy, "scratch").expect("created");
        assert!(root.path().join("scratch").is_dir());
        drop(scratch);
        assert!(!root.path().join("scratch").exists());
    }

    #[test]
    fn only_processes_that_are_still_there_are_moved_home() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let [inside, home] = ["scratch", "home"].map(|name| root.path().join(name));
        for directory in [&inside, &home] {
            fs::create_dir(directory).expect("created");
            fs::write(directory.join("cgroup.procs"), "").expect("written");
        }
        let mut exited = std::process::Command::new("true").spawn().expect("true runs");
        exited.wait().expect("it ends");
        let (us, gone) = (std::process::id(), exited.id());
        fs::write(inside.join("cgroup.procs"), format!("{us}\n{gone}\n")).expect("written");
        let group = Group { version: Version::V2, path: inside.clone() };
        let scratch = Scratch { group, home: home.clone(), made: None };
        scratch.empty();
        // Each is written in one call, over what was there.
        let moved = fs::read_to_string(home.join("cgroup.procs")).expect("reads");
        assert_eq!(moved, us.to_string());
        fs::write(inside.join("cgroup.procs"), format!("{gone}\n")).expect("written");
        scratch.empty();
        let moved = fs::read_to_string(home.join("cgroup.procs")).expect("reads");
        assert_eq!(moved, us.to_string(), "one that has exited was written");
    }

    #[test]
    fn version_2_is_asked_to_reclaim() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| root.path().join(name);
        fs::write(at("memory.current"), "8192\n").expect("written");
        fs::write(at("memory.max"), "max\n").expect("written");
        fs::write(at("memory.high"), "max\n").expect("written");
        fs::write(at("memory.stat"), "inactive_file 0\nactive_file 0\n").expect("written");
        let group = Group { version: Version::V2, path: root.path().to_owned() };
        let home = root.path().to_owned();
        let scratch = Scratch { group, home, made: None };
        let missing = scratch.reclaim(Bytes::from_kib(4));
        assert!(matches!(missing, Err(Error::Missing { .. })));
        fs::write(at("memory.reclaim"), "").expect("written");
        assert_eq!(scratch.reclaim(Bytes::from_kib(4)), Ok(Bytes::ZERO));
        assert_eq!(fs::read(at("memory.reclaim")).expect("reads"), b"4096");
    }

    #[test]
    fn not_having_found_enough_is_no_error() {
        for errno in [Errno::BUSY, Errno::AGAIN, Errno::INTR] {
            assert_eq!(tolerate(Err(Error::from_errno(errno, "reclaim"))), Ok(()));
        }
        assert!(tolerate(Err(Error::from_errno(Errno::INVAL, "reclaim"))).is_err());
    }
}
