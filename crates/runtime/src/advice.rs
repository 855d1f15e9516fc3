//! process_madvise about the program itself: advice that goes the way of madvise.

#![expect(unsafe_code, reason = "reads what the program passes, and asks the kernel who is meant")]

use crate::areas::Process;
use crate::memory;
use crate::sys::Result;
use syscalls::{Sysno, syscall};

/// The most parts of one call, the kernel's.
const MOST: usize = 1024;

/// process_madvise(2): `ask` is the call.
///
/// # Safety
/// As of process_madvise.
pub(crate) unsafe fn by_process(
    managed: &Process,
    process: i32,
    parts: *const libc::iovec,
    count: usize,
    advice: i32,
    flags: i32,
    ask: impl FnOnce() -> Result<usize>,
) -> Result<usize> {
    // The kernel says what is wrong with a vector that may not be read.
    let are_there = !parts.is_null() && count <= MOST;
    if flags != 0 || !are_there || !is_about_us(process) {
        return ask();
    }
    let mut done = 0;
    for index in 0..count {
        // SAFETY: the caller's promise.
        let part = unsafe { parts.add(index).read_unaligned() };
        // SAFETY: the caller's promise.
        match unsafe { memory::advise(managed, part.iov_base.addr(), part.iov_len, advice) } {
            Ok(_) => done += part.iov_len,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Whether this process, by its descriptor, has our memory. The kernel takes advice that would empty memory about
/// one's own only, here about none of it. Kernels before 6.13 take none, and refuse the rest for gigantic pages.
fn is_about_us(process: i32) -> bool {
    let nothing = core::ptr::null::<libc::iovec>();
    // SAFETY: no part is advised.
    let done =
        unsafe { syscall!(Sysno::process_madvise, process, nothing, 0, libc::MADV_DONTNEED, 0) };
    done == Ok(0)
}
