//! rt_sigprocmask(2): the signals that a thread has blocked.

#![expect(unsafe_code, reason = "system calls")]

use syscalls::{Sysno, syscall};

/// The signals that a thread has blocked.
pub(crate) type SignalMask = u64;

/// Blocks the signals of `mask` and no others; what was blocked before.
pub(crate) fn set_signal_mask(mask: SignalMask) -> SignalMask {
    let mut before: SignalMask = 0;
    let size = size_of::<SignalMask>();
    // SAFETY: both masks are of the kernel's size for this architecture.
    let _ = unsafe {
        syscall!(Sysno::rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut before, size)
    };
    before
}
