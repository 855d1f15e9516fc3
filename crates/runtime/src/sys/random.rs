//! getrandom(2).

#![expect(unsafe_code, reason = "system calls")]

use super::{Errno, Result};
use syscalls::{Sysno, syscall};

/// Fills this with random bytes.
///
/// # Errors
/// EIO where the kernel has fewer, and what it says.
pub(crate) fn random(into: &mut [u8]) -> Result<()> {
    let (room, length) = (into.as_mut_ptr(), into.len());
    // SAFETY: the kernel writes no more than there is room for.
    let got = unsafe { syscall!(Sysno::getrandom, room, length, 0) }?;
    if got == length { Ok(()) } else { Err(Errno::EIO) }
}
