//! futex(2): threads that wait for a word to change.

#![expect(unsafe_code, reason = "system calls")]

use core::sync::atomic::AtomicU32;
use superpage_units::Nanos;
use syscalls::{Sysno, syscall};

/// The time after which a thread that waits for another looks whether that still runs. Who waits for
/// one that runs is woken before.
pub(crate) const LOOK: Nanos = Nanos(1_000_000_000);

/// Waits while `word` holds `value`, at most for `time`. Returns at once if it does not, and sometimes for no reason.
pub(crate) fn futex_wait_for(word: &AtomicU32, value: u32, time: Nanos) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let time = [time.0 / 1_000_000_000, time.0 % 1_000_000_000];
    // SAFETY: the kernel reads the word, which lives as long as the reference; the time is a timespec of this architecture.
    let _ = unsafe { syscall!(Sysno::futex, word.as_ptr(), operation, value, time.as_ptr()) };
}

/// As [`futex_wait_for`], for a word in memory that other processes have mapped too.
pub(crate) fn shared_futex_wait_for(word: &AtomicU32, value: u32, time: Nanos) {
    let time = [time.0 / 1_000_000_000, time.0 % 1_000_000_000];
    // SAFETY: the kernel reads the word, which lives as long as the reference; the time is a timespec of
    // this architecture.
    let _ =
        unsafe { syscall!(Sysno::futex, word.as_ptr(), libc::FUTEX_WAIT, value, time.as_ptr()) };
}

/// As [`futex_wake`], for a word in memory that other processes have mapped too.
pub(crate) fn shared_futex_wake(word: &AtomicU32) {
    // SAFETY: the kernel only uses the address.
    let _ = unsafe { syscall!(Sysno::futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Wakes all who wait for `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel only uses the address.
    let _ = unsafe { syscall!(Sysno::futex, word.as_ptr(), operation, i32::MAX) };
}

/// Wakes `count` of those who wait for `word`.
pub(crate) fn futex_wake_some(word: &AtomicU32, count: usize) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel only uses the address.
    let _ = unsafe { syscall!(Sysno::futex, word.as_ptr(), operation, count) };
}
