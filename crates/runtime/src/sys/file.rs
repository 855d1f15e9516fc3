//! Files and descriptors, of which the library's threads have a table of their own.

#![expect(unsafe_code, reason = "system calls")]

use super::{Errno, Result, int};
use core::ffi::CStr;
use syscalls::{Sysno, syscall};

/// A file descriptor, closed when dropped.
#[derive(Debug)]
pub(crate) struct Descriptor(pub(crate) i32);

impl Drop for Descriptor {
    fn drop(&mut self) {
        close(self);
    }
}

/// Closes a descriptor that is not used any more.
pub(crate) fn close(descriptor: &Descriptor) {
    // SAFETY: the descriptor is this value's alone.
    let _ = unsafe { syscall!(Sysno::close, descriptor.0) };
}

fn status(descriptor: &Descriptor) -> Result<libc::stat> {
    // SAFETY: zero bytes are a status.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel fills the status.
    unsafe { syscall!(Sysno::fstat, descriptor.0, core::ptr::from_mut(&mut status)) }?;
    Ok(status)
}

/// The length of a regular file; zero of a device.
pub(crate) fn file_length(descriptor: &Descriptor) -> Result<u64> {
    Ok(u64::try_from(status(descriptor)?.st_size).unwrap_or_default())
}

/// Makes a file at least `length` bytes long; its new part holds zeroes.
pub(crate) fn make_longer(descriptor: &Descriptor, length: u64) -> Result<()> {
    if file_length(descriptor)? >= length {
        return Ok(());
    }
    // SAFETY: nothing of the file goes.
    unsafe { syscall!(Sysno::ftruncate, descriptor.0, length) }.map(|_| ())
}

/// The bytes that the file system of a file has room for, without what it keeps for root; `u64::MAX` where it does not say how
/// large it is (tmpfs without a limit).
pub(crate) fn available_for(file: &Descriptor) -> Result<u64> {
    // SAFETY: zero bytes are a description.
    let mut found: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes the description.
    unsafe { syscall!(Sysno::fstatfs, file.0, &raw mut found) }?;
    let has_size = found.f_blocks > 0;
    Ok(if has_size {
        found.f_bavail.saturating_mul(found.f_bsize.cast_unsigned())
    } else {
        u64::MAX
    })
}

/// Opens a file, closed again by exec.
pub(crate) fn open(path: &CStr, flags: i32) -> Result<Descriptor> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero.
    let opened = unsafe { syscall!(Sysno::openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) }?;
    Ok(Descriptor(int(opened)))
}

/// Whether this process may have that access to a file, as access(2) has it.
pub(crate) fn may_access(path: &CStr, access: i32) -> bool {
    // SAFETY: the path ends with a zero.
    unsafe { syscall!(Sysno::faccessat, libc::AT_FDCWD, path.as_ptr(), access) }.is_ok()
}

/// Reads once.
pub(crate) fn read(descriptor: &Descriptor, into: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes no more than there is room for.
    unsafe { syscall!(Sysno::read, descriptor.0, into.as_mut_ptr(), into.len()) }
}

/// Reads once from a place of a file.
pub(crate) fn read_at(descriptor: &Descriptor, place: u64, into: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes no more than there is room for.
    unsafe { syscall!(Sysno::pread64, descriptor.0, into.as_mut_ptr(), into.len(), place) }
}

/// The number in a file such as those of sysfs; nothing if it cannot be read.
pub(crate) fn number(path: &CStr) -> Option<u64> {
    let file = open(path, libc::O_RDONLY).ok()?;
    let mut text = [0; 32];
    let length = read(&file, &mut text).ok()?;
    core::str::from_utf8(text.get(..length)?).ok()?.trim().parse().ok()
}

/// Writes to standard error, for what the user must know and no counter can say.
pub(crate) fn complain(text: &str) {
    // SAFETY: the kernel reads the text.
    let _ = unsafe { syscall!(Sysno::write, 2, text.as_ptr(), text.len()) };
}

/// Closes all descriptors of the calling thread's table.
pub(crate) fn close_all() {
    // SAFETY: as of `close_all_but`.
    let _ = unsafe { syscall!(Sysno::close_range, 0, i32::MAX, 0) };
}

/// Closes all descriptors of the calling thread's table but these, the smallest first.
pub(crate) fn close_all_but(kept: &[&Descriptor]) {
    let mut first = 0;
    for last in kept.iter().map(|kept| kept.0 - 1).chain([i32::MAX]) {
        if first <= last {
            // SAFETY: the table is the calling thread's alone, and nothing in it is used any more.
            let _ = unsafe { syscall!(Sysno::close_range, first, last, 0) };
        }
        first = last.saturating_add(2);
    }
}

/// A descriptor of another thread of the process, which may have a table of its own, in the calling thread's table.
pub(crate) fn descriptor_of(thread: u32, number: i32) -> Result<Descriptor> {
    const THREAD: i32 = libc::O_EXCL; // PIDFD_THREAD
    // SAFETY: it makes a descriptor.
    let owner = unsafe { syscall!(Sysno::pidfd_open, thread, THREAD) }?;
    let owner = Descriptor(int(owner));
    // SAFETY: as above.
    unsafe { syscall!(Sysno::pidfd_getfd, owner.0, number, 0) }.map(|made| Descriptor(int(made)))
}

/// The device and the number of a file.
pub(crate) fn file_identity(descriptor: &Descriptor) -> Result<(u64, u64)> {
    status(descriptor).map(|status| (status.st_dev, status.st_ino))
}

/// getdents64(2): the next entries of a directory, as the kernel writes them; none at its end.
pub(crate) fn entries(directory: &Descriptor, into: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes no more than there is room for.
    unsafe { syscall!(Sysno::getdents64, directory.0, into.as_mut_ptr(), into.len()) }
}

/// Where a link in a directory leads; its name ends with a zero. What there is no room for is cut off.
pub(crate) fn read_link(directory: &Descriptor, name: &[u8], into: &mut [u8]) -> Result<usize> {
    if name.last() != Some(&0) {
        return Err(Errno::EINVAL);
    }
    let (room, length) = (into.as_mut_ptr(), into.len());
    // SAFETY: the name ends with a zero, and the kernel writes no more than there is room for.
    unsafe { syscall!(Sysno::readlinkat, directory.0, name.as_ptr(), room, length) }
}

/// Whether two tasks have the same table of descriptors; where the kernel does not say, they have not.
pub(crate) fn share_descriptors(one: u32, other: u32) -> bool {
    const KCMP_FILES: u32 = 2;
    // SAFETY: it only answers.
    unsafe { syscall!(Sysno::kcmp, one, other, KCMP_FILES, 0, 0) }.is_ok_and(|order| order == 0)
}
