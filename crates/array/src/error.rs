//! Why there is no array.

use crate::pages::Pages;
use rustix::io::Errno;
use superpage_units::{Bytes, PageSize};

/// This crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no array, or nothing can be said of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// More memory than a process can have.
    #[error("an array of {count} elements of {each} is larger than memory can be")]
    TooLarge {
        /// The elements.
        count: usize,
        /// The size of one.
        each: Bytes,
    },
    /// An alignment that is no power of two.
    #[error("an alignment of {} bytes is no power of two", .0.0)]
    Alignment(Bytes),
    /// The kernel refused memory.
    #[error("could not {what} ({errno})")]
    Memory {
        /// The step that failed.
        what: &'static str,
        /// The error that the kernel returned.
        errno: Errno,
    },
    /// Fewer pages were to be had than the caller requires.
    #[error(
        "{got} of {asked} are on {} pages, and {pages} was required{}",
        name(*pages), remedy(*pages)
    )]
    Missing {
        /// The pages that were asked for.
        pages: Pages,
        /// The memory that was to be on such pages.
        asked: Bytes,
        /// The memory that is.
        got: Bytes,
    },
    /// The kernel does not say which pages memory is on.
    #[error(transparent)]
    Unknown(#[from] superpage_kernel::Error),
}

impl Error {
    /// The error of the kernel's that says it best, by its number, as C has it in `errno`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        use superpage_kernel::Error as Kernel;
        let errno = match self {
            Self::TooLarge { .. } | Self::Missing { .. } => Errno::NOMEM,
            Self::Alignment(_) => Errno::INVAL,
            Self::Memory { errno, .. }
            | Self::Unknown(
                Kernel::Denied { errno, .. }
                | Kernel::Unsupported { errno, .. }
                | Kernel::Failed { errno, .. },
            ) => *errno,
            Self::Unknown(Kernel::Missing { .. }) => Errno::NOENT,
            Self::Unknown(_) => Errno::IO,
        };
        errno.raw_os_error()
    }
}

const fn name(pages: Pages) -> &'static str {
    match pages.size() {
        Some(PageSize::Gigantic) => "gigantic",
        Some(PageSize::Huge) => "huge",
        Some(PageSize::Base) | None => "base",
    }
}

const fn remedy(pages: Pages) -> &'static str {
    match pages.size() {
        Some(PageSize::Gigantic) => {
            ": reserve more of them in /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
        }
        Some(PageSize::Huge) => {
            ": free memory lies in pieces, or huge pages are forbidden to this process (PR_SET_THP_DISABLE)"
        }
        Some(PageSize::Base) | None => "",
    }
}
