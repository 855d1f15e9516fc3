//! What can go wrong at the kernel boundary, each cause by itself and with its evidence.

use rustix::io::Errno;
use std::path::{Path, PathBuf};
use superpage_units::{Bytes, Pid};

/// This crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed look at, or request to, the kernel.
///
/// Denied, unsupported and gone are apart because a caller does different things: ask for rights,
/// do without, or move on to the next process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// We lack the rights.
    #[error("not allowed to {what} ({errno})")]
    Denied {
        /// What was tried.
        what: String,
        /// What the kernel answered.
        errno: Errno,
    },
    /// This kernel, or this build of it, cannot do it.
    #[error("this kernel cannot {what} ({errno})")]
    Unsupported {
        /// What was tried.
        what: String,
        /// What the kernel answered.
        errno: Errno,
    },
    /// This kernel's pages have other sizes than those that everything here counts in.
    #[error(
        "this kernel has base pages of {}{}, and superpage works with 4 KiB and 2 MiB only: \
         boot a kernel with pages of 4 KiB (on arm64 CONFIG_ARM64_4K_PAGES)",
        whole(*base), of_huge(*huge)
    )]
    OtherPages {
        /// The size of a base page.
        base: Bytes,
        /// The size of a huge page, where the kernel says one.
        huge: Option<Bytes>,
    },
    /// The process has exited.
    #[error("process {pid} has exited")]
    Gone {
        /// The number it had.
        pid: Pid,
    },
    /// A file that should be there is not.
    #[error("{path} does not exist")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file of the kernel's (or of ours) does not read as expected.
    #[error("{path}:{line}: expected {expected}, found {found:?}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Its line, counted from 1; 0 where the whole file is meant.
        line: usize,
        /// What should have been there.
        expected: &'static str,
        /// What was there, shortened.
        found: String,
    },
    /// A file of the kernel's about a process is longer than what is read of one process.
    #[error(
        "the {file} file of process {pid} is longer than {limit}, which is the most that is read"
    )]
    TooLong {
        /// The process.
        pid: Pid,
        /// The file's name in its `/proc` directory.
        file: String,
        /// The most that is read.
        limit: Bytes,
    },
    /// Somebody else holds what only one may hold.
    #[error("{} already holds the lock", holder(*pid))]
    Busy {
        /// The process that holds it, where it said so.
        pid: Option<Pid>,
    },
    /// We ourselves refuse, before anything was touched.
    #[error("left {path} alone: {reason}")]
    Refused {
        /// The file or directory it is about.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// A setting was written and the kernel kept another value.
    #[error("{path} was set to {wanted:?} but still says {found:?}")]
    NotTaken {
        /// The file.
        path: PathBuf,
        /// What was written.
        wanted: String,
        /// What it holds all the same.
        found: String,
    },
    /// The record of changed settings cannot be understood, so nothing can be put back from it.
    #[error(
        "{path} cannot be read as a record of changed settings ({why}): \
         check the settings it names by hand, then delete it"
    )]
    Journal {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Anything else that the kernel refused.
    #[error("could not {what} ({errno})")]
    Failed {
        /// What was tried.
        what: String,
        /// What the kernel answered.
        errno: Errno,
    },
}

impl Error {
    /// The error for `errno` while doing `what`.
    #[must_use]
    pub fn from_errno(errno: Errno, what: impl Into<String>) -> Self {
        let what = what.into();
        match errno {
            Errno::PERM | Errno::ACCESS => Self::Denied { what, errno },
            Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOTTY => Self::Unsupported { what, errno },
            _ => Self::Failed { what, errno },
        }
    }

    /// The error for `error` while doing `what` to the file at `path`.
    #[must_use]
    pub fn from_io(error: &std::io::Error, what: &str, path: &Path) -> Self {
        if error.kind() == std::io::ErrorKind::NotFound {
            return Self::Missing { path: path.to_owned() };
        }
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        Self::from_errno(errno, format!("{what} {}", path.display()))
    }

    /// The error for text that is not as it should be; keeps the start of it.
    #[must_use]
    pub fn malformed(path: &Path, line: usize, expected: &'static str, found: &[u8]) -> Self {
        const KEPT: usize = 60;
        let found = String::from_utf8_lossy(&found[..found.len().min(KEPT)]).into_owned();
        Self::Malformed { path: path.to_owned(), line, expected, found }
    }
}

/// The words for the size of huge pages, where it is known.
fn of_huge(huge: Option<Bytes>) -> String {
    huge.map(|huge| format!(" and huge pages of {}", whole(huge))).unwrap_or_default()
}

/// The size of a page in whole numbers.
fn whole(size: Bytes) -> String {
    match size.0 >> 10 {
        kib if kib != 0 && kib.is_multiple_of(1 << 10) => format!("{} MiB", kib >> 10),
        kib => format!("{kib} KiB"),
    }
}

/// The words for the process that holds a lock, where its number is known.
fn holder(pid: Option<Pid>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}
