//! The standard streams of this process that were closed when it began: Rust opens `/dev/null` in their places, and the program that is
//! started is to find them closed.

#![expect(
    unsafe_code,
    reason = "looks before Rust's own beginning, and closes descriptors in a child"
)]

use rustix::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// The streams that were closed, a bit for each.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The standard streams.
const STREAMS: std::ops::Range<i32> = 0..3;

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
}

/// Has the command begin with the same streams closed as this program.
pub fn pass_on_closed(command: &mut Command) {
    let closed = CLOSED.load(Relaxed);
    if closed == 0 {
        return;
    }
    let close = move || {
        for stream in STREAMS.filter(|stream| closed & 1 << stream != 0) {
            // SAFETY: nothing of the child's uses it.
            unsafe { rustix::io::close(stream) };
        }
        Ok(())
    };
    // SAFETY: between fork and exec it only closes descriptors, which is allowed there.
    unsafe { command.pre_exec(close) };
}
