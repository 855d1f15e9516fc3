//! What can go wrong at the kernel boundary, each cause by itself and with its evidence.

use rustix::io::Errno;
use std::fmt;
use std::path::{Path, PathBuf};

/// This crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed look at, or request to, the kernel.
///
/// Denied, unsupported and gone are apart because a caller does different things: ask for rights,
/// do without, or move on to the next process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// We lack the rights.
    Denied {
        /// What was tried.
        what: String,
        /// What the kernel answered.
        errno: Errno,
    },
    /// This kernel, or this build of it, cannot do it.
    Unsupported {
        /// What was tried.
        what: String,
        /// What the kernel answered.
        errno: Errno,
    },
    /// The process has exited.
    Gone {
        /// The number it had.
        pid: u32,
    },
    /// A file that should be there is not.
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file of the kernel's (or of ours) does not read as expected.
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
    /// Somebody else holds what only one may hold.
    Busy {
        /// The process that holds it, where it said so.
        pid: Option<u32>,
    },
    /// We ourselves refuse, before anything was touched.
    Refused {
        /// The file or directory it is about.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// A setting was written and the kernel kept another value.
    NotTaken {
        /// The file.
        path: PathBuf,
        /// What was written.
        wanted: String,
        /// What it holds all the same.
        found: String,
    },
    /// The record of changed settings cannot be understood, so nothing can be put back from it.
    Journal {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Anything else that the kernel refused.
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { what, errno } => write!(f, "not allowed to {what} ({errno})"),
            Self::Unsupported { what, errno } => {
                write!(f, "this kernel cannot {what} ({errno})")
            }
            Self::Gone { pid } => write!(f, "process {pid} has exited"),
            Self::Missing { path } => write!(f, "{} does not exist", path.display()),
            Self::Malformed { path, line, expected, found } => {
                write!(f, "{}:{line}: expected {expected}, found {found:?}", path.display())
            }
            Self::Busy { pid: Some(pid) } => write!(f, "process {pid} already holds the lock"),
            Self::Busy { pid: None } => write!(f, "another process already holds the lock"),
            Self::Refused { path, reason } => {
                write!(f, "left {} alone: {reason}", path.display())
            }
            Self::NotTaken { path, wanted, found } => {
                write!(f, "{} was set to {wanted:?} but still says {found:?}", path.display())
            }
            Self::Journal { path, why } => write!(
                f,
                "{} cannot be read as a record of changed settings ({why}): \
                 check the settings it names by hand, then delete it",
                path.display()
            ),
            Self::Failed { what, errno } => write!(f, "could not {what} ({errno})"),
        }
    }
}

impl std::error::Error for Error {}
