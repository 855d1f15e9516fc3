//! Standard streams that were closed, and signals that were ignored or blocked, when this process began. Rust opens `/dev/null` in the
//! places of closed streams before `main`, and it unblocks signals and resets SIGPIPE in a child; exec resets the signals that this
//! process handles. A program that this process starts is to find all of them as they were.
//!
//! [sigaction(2)](https://man7.org/linux/man-pages/man2/sigaction.2.html),
//! [sigprocmask(2)](https://man7.org/linux/man-pages/man2/sigprocmask.2.html).

#![expect(unsafe_code, reason = "looks before Rust's own beginning, and changes a child")]

use rustix::fd::{AsRawFd, BorrowedFd};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

/// The streams that were closed, a bit for each.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// The signals that were ignored, and those that were blocked, a bit for each, signal 1 first.
static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// The standard streams.
const STREAMS: std::ops::Range<i32> = 0..3;
/// The kernel's signals.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = look;

/// libc calls this before Rust begins.
extern "C" fn look() {
    for stream in STREAMS {
        // SAFETY: it only asks, and an error is the answer where nothing is open.
        if rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(stream) }).is_err() {
            CLOSED.fetch_or(1 << stream, Relaxed);
        }
    }
    let blocked = mask();
    for signal in SIGNALS {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: it only asks; libc answers with an error for signals of its own, and leaves zeroes then.
        let handler = unsafe {
            libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
            action.assume_init().sa_sigaction
        };
        if handler == libc::SIG_IGN {
            IGNORED.fetch_or(bit(signal), Relaxed);
        }
        // SAFETY: the set was filled.
        if unsafe { libc::sigismember(&raw const blocked, signal) } == 1 {
            BLOCKED.fetch_or(bit(signal), Relaxed);
        }
    }
}

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The signals that this thread blocks.
fn mask() -> libc::sigset_t {
    let mut blocked = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: it only asks.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr());
        blocked.assume_init()
    }
}

/// Whether this process was to ignore a signal, as what `nohup` starts ignores SIGHUP.
#[must_use]
pub fn ignored(signal: i32) -> bool {
    SIGNALS.contains(&signal) && IGNORED.load(Relaxed) & bit(signal) != 0
}

/// Has the command begin with the same streams closed, and the same signals ignored and blocked, as this program. What is to be
/// done in the child has Rust fork, where it would have libc spawn, and that ignores the two signals that libc has for itself.
pub fn pass_on(command: &mut Command) {
    let closed = CLOSED.load(Relaxed);
    let (ignored, blocked) = (IGNORED.load(Relaxed), BLOCKED.load(Relaxed));
    let change = move || {
        for stream in STREAMS.filter(|stream| closed & 1 << stream != 0) {
            // SAFETY: nothing of the child's uses it.
            unsafe { rustix::io::close(stream) };
        }
        let mut mask = mask();
        for signal in SIGNALS {
            // SAFETY: the calls are allowed between fork and exec, and nothing of the child's waits for a signal.
            unsafe {
                if ignored & bit(signal) != 0 {
                    libc::signal(signal, libc::SIG_IGN);
                }
                if blocked & bit(signal) != 0 {
                    libc::sigaddset(&raw mut mask, signal);
                }
            }
        }
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) };
        Ok(())
    };
    // SAFETY: between fork and exec it only closes descriptors and changes signals, which is allowed there.
    unsafe { command.pre_exec(change) };
}

/// Sends a process the signal of this number, which may be one without a name (SIGRTMIN and above). It may have ended.
pub fn send_signal(process: BorrowedFd<'_>, signal: i32) {
    // SAFETY: a signal is sent, and without more information about it.
    let _ = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, 0_usize, 0)
    };
}
