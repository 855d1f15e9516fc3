//! mmap(2) and its kin: what is mapped where, and how it may be used.

#![expect(unsafe_code, reason = "system calls")]

use super::{Errno, GIGANTIC, PAGE, Result, Span, open};
use syscalls::{Sysno, syscall};

/// Arguments of mmap, as a program gives them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mmap {
    pub(crate) address: usize,
    pub(crate) length: usize,
    pub(crate) protection: i32,
    pub(crate) flags: i32,
    pub(crate) descriptor: i32,
    pub(crate) offset: i64,
}

impl Mmap {
    /// Private anonymous memory at this place, over whatever is there.
    pub(crate) const fn fixed(span: Span, protection: i32) -> Self {
        Self {
            address: span.start,
            length: span.length,
            protection,
            flags: libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            descriptor: -1,
            offset: 0,
        }
    }

    /// The place where the program would like it.
    pub(crate) const fn hint(&self) -> usize {
        self.address.next_multiple_of(PAGE)
    }

    /// Private anonymous memory anywhere.
    pub(crate) const fn anywhere(length: usize, protection: i32, flags: i32) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        Self { address: 0, length, protection, flags, descriptor: -1, offset: 0 }
    }
}

/// mmap(2).
///
/// # Safety
/// Memory that is mapped there already, if the place is fixed, must be the caller's to replace.
pub(crate) unsafe fn mmap(a: Mmap) -> Result<usize> {
    let Mmap { address, length, protection, flags, descriptor, offset } = a;
    // SAFETY: the caller's promise.
    unsafe { syscall!(Sysno::mmap, address, length, protection, flags, descriptor, offset) }
}

/// Makes a span memory that nobody may access, over whatever is there. A debugger that writes a core file of the program would
/// write zeroes for all of it, so it is left out.
///
/// # Safety
/// As of [`mmap`] at a fixed place.
pub(crate) unsafe fn reserve(span: Span) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { mmap(Mmap::fixed(span, libc::PROT_NONE)) }?;
    leave_out_of_dumps(span);
    Ok(())
}

/// Leaves reserved memory, or memory of the library's own, out of core files.
pub(crate) fn leave_out_of_dumps(span: Span) {
    // SAFETY: the advice concerns core files only.
    let _ = unsafe { madvise(span, libc::MADV_DONTDUMP) };
}

/// Makes reserved memory the program's, with this protection.
///
/// # Safety
/// As of [`mprotect`].
pub(crate) unsafe fn open_reserved(span: Span, protection: i32) -> Result<()> {
    if protection != libc::PROT_NONE {
        // SAFETY: the caller's promise.
        unsafe { mprotect(span, protection) }?;
    }
    // SAFETY: the advice concerns core files only.
    let _ = unsafe { madvise(span, libc::MADV_DODUMP) };
    Ok(())
}

/// munmap(2).
///
/// # Safety
/// Nothing may use the memory any more.
pub(crate) unsafe fn munmap(address: usize, length: usize) -> Result<usize> {
    // SAFETY: the caller's promise.
    unsafe { syscall!(Sysno::munmap, address, length) }
}

/// mprotect(2).
///
/// # Safety
/// Nothing of the library's own may lie there.
pub(crate) unsafe fn mprotect(span: Span, protection: i32) -> Result<usize> {
    // SAFETY: the caller's promise.
    unsafe { syscall!(Sysno::mprotect, span.start, span.length, protection) }
}

/// madvise(2).
///
/// # Safety
/// Advice that drops what memory holds must be what the owner of the memory wants.
pub(crate) unsafe fn madvise(span: Span, advice: i32) -> Result<usize> {
    // SAFETY: the caller's promise.
    unsafe { syscall!(Sysno::madvise, span.start, span.length, advice) }
}

/// mremap(2), with all arguments.
///
/// # Safety
/// As of [`munmap`] for where the memory was, and of [`mmap`] for where it goes.
pub(crate) unsafe fn mremap(old: Span, length: usize, flags: i32, to: usize) -> Result<usize> {
    // SAFETY: the caller's promise.
    unsafe { syscall!(Sysno::mremap, old.start, old.length, length, flags, to) }
}

/// Moves the mapping of one gigantic page's worth of memory over another place, in one step for all
/// threads.
///
/// # Safety
/// The memory at `to` must be the library's to replace.
pub(crate) unsafe fn move_over(from: usize, to: usize) -> Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the caller's promise; nothing refers to where it was.
    unsafe { mremap(Span::gigantic(from), GIGANTIC, flags, to) }.map(|_| ())
}

/// Reads memory of this process, also where it may not be read.
///
/// # Errors
/// EIO where nothing is, and what the kernel says.
pub(crate) fn read_memory(address: usize, into: &mut [u8]) -> Result<()> {
    let memory = open(c"/proc/thread-self/mem", libc::O_RDONLY)?;
    let (room, length) = (into.as_mut_ptr(), into.len());
    // SAFETY: the kernel writes no more than there is room for.
    let got = unsafe { syscall!(Sysno::pread64, memory.0, room, length, address) }?;
    if got == length { Ok(()) } else { Err(Errno::EIO) }
}
