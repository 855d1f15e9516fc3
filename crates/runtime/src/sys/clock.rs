//! clock_gettime(2).

#![expect(unsafe_code, reason = "system calls")]

use superpage_units::Nanos;
use syscalls::{Sysno, syscall};

/// The monotonic clock.
pub(crate) fn now() -> Nanos {
    let mut time = [0_u64; 2];
    // SAFETY: the kernel writes a timespec of this architecture.
    let _ = unsafe { syscall!(Sysno::clock_gettime, libc::CLOCK_MONOTONIC, time.as_mut_ptr()) };
    Nanos(time[0] * 1_000_000_000 + time[1])
}
