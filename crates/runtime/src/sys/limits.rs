//! prlimit(2): the limits of the process.

#![expect(unsafe_code, reason = "system calls")]

use super::{PAGE, Result, open, read};
use syscalls::{Sysno, syscall};

/// Sets a limit of this process, if it may.
pub(crate) fn set_limit(resource: u32, limits: [u64; 2]) {
    let none = core::ptr::null::<u64>();
    // SAFETY: the kernel reads a pair of limits.
    let _ = unsafe { syscall!(Sysno::prlimit64, 0, resource, limits.as_ptr(), none) };
}

/// The address space of this process, in bytes; nothing where the kernel does not say.
pub(crate) fn address_space() -> Option<usize> {
    let mut text = [0; 128];
    let length = read(&open(c"/proc/self/statm", libc::O_RDONLY).ok()?, &mut text).ok()?;
    let pages = core::str::from_utf8(text.get(..length)?).ok()?.split(' ').next()?;
    Some(pages.parse::<usize>().ok()? * PAGE)
}

/// A limit of this process: the one that holds, and the one up to which that may be raised.
pub(crate) fn limits(resource: u32) -> Result<[u64; 2]> {
    let mut limits = [0_u64; 2];
    let none = core::ptr::null::<u64>();
    // SAFETY: the kernel writes a pair of limits.
    unsafe { syscall!(Sysno::prlimit64, 0, resource, none, limits.as_mut_ptr()) }?;
    Ok(limits)
}

/// The limit of this process that holds; nothing if there is none.
pub(crate) fn limit(resource: u32) -> Option<u64> {
    limits(resource).ok().map(|[current, _]| current).filter(|current| *current != u64::MAX)
}
