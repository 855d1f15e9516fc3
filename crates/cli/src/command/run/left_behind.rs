//! A `superpage run` that was killed leaves the directory with the file of the counters among the temporary files. Its program may
//! still use that file.

use crate::heap::{DIRECTORY, FILE};
use std::fs::{DirEntry, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use superpage_kernel::process::{self, Process};
use superpage_kernel::{Error, maps};

/// The age from which on a directory is looked at: in a younger one, the file may not be locked yet.
const AGE: Duration = Duration::from_secs(60);

/// Removes the directories of this user that nobody uses any more, and returns them.
pub(in super::super) fn remove() -> Vec<PathBuf> {
    // /proc/PID/maps has paths without links.
    let Ok(directory) = std::env::temp_dir().canonicalize() else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let old = entries.flatten().filter(is_ours).map(|entry| entry.path());
    let remove = |path: &Path| {
        std::fs::remove_file(path.join(FILE)).and_then(|()| std::fs::remove_dir(path)).is_ok()
    };
    old.filter(|path| holds_only_counters(path) && is_unused(&path.join(FILE)) && remove(path))
        .collect()
}

/// Whether an entry is a directory that a run of this user has made some time ago.
fn is_ours(entry: &DirEntry) -> bool {
    let is_named_so = entry.file_name().as_encoded_bytes().starts_with(DIRECTORY.as_bytes());
    is_named_so
        && entry.metadata().is_ok_and(|found| {
            let age = found.modified().ok().and_then(|changed| changed.elapsed().ok());
            found.is_dir()
                && found.uid() == rustix::process::geteuid().as_raw()
                && age.is_some_and(|age| age >= AGE)
        })
}

/// Whether nothing but a file of counters is in a directory.
fn holds_only_counters(directory: &Path) -> bool {
    let is_file = |entry: DirEntry| {
        entry.file_name() == FILE && entry.metadata().is_ok_and(|found| found.is_file())
    };
    std::fs::read_dir(directory).is_ok_and(|entries| entries.flatten().all(is_file))
}

/// Whether no run has locked the file of the counters, and no process has it mapped.
fn is_unused(file: &Path) -> bool {
    File::open(file).is_ok_and(|open| open.try_lock().is_ok()) && !is_mapped(file)
}

/// Whether a process that may be looked at has a file mapped, or its mappings cannot be read.
fn is_mapped(file: &Path) -> bool {
    let Ok(pids) = process::list(Path::new("/proc")) else { return true };
    let name = file.as_os_str().as_encoded_bytes();
    pids.into_iter().any(|pid| match Process::open(pid).and_then(|process| maps::of(&process)) {
        Ok(vmas) => vmas.iter().any(|vma| vma.name.starts_with(name)),
        Err(error) => {
            !matches!(error, Error::Gone { .. } | Error::Missing { .. } | Error::Denied { .. })
        }
    })
}
