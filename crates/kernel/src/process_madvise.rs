//! Advice about another process's memory: `process_madvise(2)`.
//!
//! Two kinds are used. `MADV_COLD` on one base page of a huge page splits it, and since Linux
//! 6.12 a split maps the zero-filled base pages of an anonymous huge page to the shared zero page
//! and frees them. `MADV_COLLAPSE` makes a range one huge page now. Both leave the contents of
//! memory as they are, so neither can damage the process.
//! [process_madvise(2)](https://man7.org/linux/man-pages/man2/process_madvise.2.html),
//! [madvise(2)](https://man7.org/linux/man-pages/man2/madvise.2.html).
//!
//! What can go wrong: the call needs CAP_SYS_NICE and the right to ptrace-read the process. It
//! **succeeds and does nothing** on a huge page that is shared after a fork or pinned, so success
//! proves nothing: look with [`crate::pagemap`]. It refuses locked memory, hugetlb and device
//! VMAs (EINVAL).

#![expect(unsafe_code, reason = "a system call that no crate wraps")]

use crate::error::Result;
use crate::process::{Process, explain};
use crate::width::to_usize;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use superpage_units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, HugePages, PmdRange, VirtAddr};

/// Ranges in one call: half of what the kernel takes (UIO_MAXIOV is 1024), so that it holds its
/// locks shorter. Measured (`make bench`): the time of a split does not depend on this.
pub const RANGES_PER_CALL: usize = 512; // tidy: allow(ranges, not pages)

/// Advice that leaves contents alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advice {
    Cold,
    Collapse,
}

impl Advice {
    const fn number(self) -> i32 {
        match self {
            Self::Cold => libc::MADV_COLD,
            Self::Collapse => libc::MADV_COLLAPSE,
        }
    }

    const fn purpose(self) -> &'static str {
        match self {
            Self::Cold => "split its huge pages",
            Self::Collapse => "make its memory a huge page",
        }
    }
}

/// A range that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which of the addresses given.
    pub index: usize,
    /// What the kernel answered.
    pub errno: Errno,
}

/// Splits the huge pages that the base pages at `addresses` (4 KiB aligned, at most one in each
/// huge page) lie in. Returns the ones that the kernel refused outright.
///
/// # Errors
/// [`crate::Error::Gone`] and [`crate::Error::Denied`] end the work; whatever concerns one range
/// is a [`Refusal`].
pub fn split(process: &Process, addresses: &[VirtAddr]) -> Result<Vec<Refusal>> {
    let mut refusals = Vec::new();
    let mut done = 0;
    while done < addresses.len() {
        let rest = &addresses[done..];
        let batch = &rest[..rest.len().min(RANGES_PER_CALL)];
        match advise(process.pidfd(), batch, BASE_PAGE_BYTES, Advice::Cold) {
            // The kernel stops at the range it refuses and says what it got done before.
            Ok(ranges) if ranges > 0 => done += ranges.min(batch.len()),
            Ok(_) => return Err(explain(Errno::IO, process.pid(), Advice::Cold.purpose())),
            Err(Errno::INTR) => {}
            Err(errno @ (Errno::PERM | Errno::ACCESS | Errno::SRCH | Errno::NOSYS)) => {
                return Err(explain(errno, process.pid(), Advice::Cold.purpose()));
            }
            Err(errno) => {
                refusals.push(Refusal { index: done, errno });
                done += 1;
            }
        }
    }
    Ok(refusals)
}

/// Makes each of `ranges` one huge page, filling holes with zeroes. Returns the ones that the
/// kernel refused (no free huge page, nothing mapped there, locked elsewhere).
///
/// Each range is a call of its own, because one bad range fails a whole call.
///
/// # Errors
/// As [`split`].
pub fn collapse(process: &Process, ranges: &[PmdRange]) -> Result<Vec<Refusal>> {
    let mut refusals = Vec::new();
    for (index, range) in ranges.iter().enumerate() {
        match advise(process.pidfd(), &[range.start()], HUGE_PAGE_BYTES, Advice::Collapse) {
            Ok(_) => {}
            Err(errno @ (Errno::PERM | Errno::ACCESS | Errno::SRCH | Errno::NOSYS)) => {
                return Err(explain(errno, process.pid(), Advice::Collapse.purpose()));
            }
            Err(errno) => refusals.push(Refusal { index, errno }),
        }
    }
    Ok(refusals)
}

/// Makes each range of a run of `count` neighbours one huge page, in one call. What the kernel
/// refuses of it does not keep it from the rest; the answer is the last refusal.
///
/// One call instead of many, because each makes every processor hand over its batches of pages
/// first (`lru_add_drain_all`), which takes as long as the busiest of them lets us wait.
///
/// # Errors
/// As [`split`].
pub fn collapse_run(process: &Process, first: PmdRange, count: HugePages) -> Result<Option<Errno>> {
    let length = count.bytes().0;
    match advise(process.pidfd(), &[first.start()], length, Advice::Collapse) {
        Ok(_) => Ok(None),
        Err(errno @ (Errno::PERM | Errno::ACCESS | Errno::SRCH | Errno::NOSYS)) => {
            Err(explain(errno, process.pid(), Advice::Collapse.purpose()))
        }
        Err(errno) => Ok(Some(errno)),
    }
}

/// Whether we may advise `process` at all: advises it about no range.
///
/// Rights over our own process say nothing here: since Linux 6.13 it may always be advised.
///
/// # Errors
/// [`crate::Error::Denied`] if not, [`crate::Error::Gone`], [`crate::Error::Unsupported`].
pub fn check_rights(process: &Process) -> Result<()> {
    advise(process.pidfd(), &[], BASE_PAGE_BYTES, Advice::Cold)
        .map(drop)
        .map_err(|errno| explain(errno, process.pid(), "advise another process about its memory"))
}

/// Gives `advice` about the ranges of `length` bytes at `starts`; returns how many it took.
fn advise(
    pidfd: BorrowedFd<'_>,
    starts: &[VirtAddr],
    length: u64,
    advice: Advice,
) -> rustix::io::Result<usize> {
    let range = |start: &VirtAddr| libc::iovec {
        // An address in the other process: the kernel never reads or writes it through us.
        iov_base: std::ptr::without_provenance_mut(to_usize(start.0)),
        iov_len: to_usize(length),
    };
    let ranges: Vec<libc::iovec> = starts.iter().map(range).collect();
    // SAFETY: the kernel reads `ranges.len()` iovecs from `ranges`, which lives across the call.
    // The advice leaves memory contents unchanged, in whatever process the pidfd names.
    let bytes = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            ranges.as_ptr(),
            ranges.len(),
            advice.number(),
            0u32,
        )
    };
    match u64::try_from(bytes) {
        Ok(bytes) => Ok(to_usize(bytes / length)),
        Err(_) => Err(last_errno()),
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
