//! The system calls that the library makes, without libc: no errno, no cancellation point, no lock.
//!
//! The library's threads may not call libc, which may allocate from memory that the library manages; and
//! libc's `mmap` is the library's own. Every call here is one instruction.

#![expect(unsafe_code, reason = "every function here is a system call")]

mod clock;
mod epoll;
mod file;
mod futex;
mod limits;
mod mapping;
mod pagemap;
mod process;
mod procmap;
mod random;
mod signals;

use superpage_units::GIGANTIC_PAGE_BYTES;

pub(crate) use clock::now;
pub(crate) use epoll::{epoll_for_one, epoll_wait, wait_for_input};
pub(crate) use file::{
    Descriptor, available_for, close, close_all, close_all_but, complain, descriptor_of, entries,
    file_identity, file_length, make_longer, may_access, number, open, read, read_at, read_link,
    share_descriptors,
};
pub(crate) use futex::{
    LOOK, futex_wait_for, futex_wake, futex_wake_some, shared_futex_wait_for, shared_futex_wake,
};
pub(crate) use limits::{address_space, limit, limits, set_limit};
pub(crate) use mapping::{
    Mmap, leave_out_of_dumps, madvise, mmap, move_over, mprotect, mremap, munmap, open_reserved,
    read_memory, reserve,
};
pub(crate) use pagemap::{HUGE_PAGE, PRESENT, Pagemap, SWAPPED, ZERO};
pub(crate) use process::{drop_rights, end_process, parent, process, thread};
pub(crate) use procmap::{Part, first_part, is_writable, vma_at};
pub(crate) use random::random;
pub(crate) use signals::{SignalMask, set_signal_mask};
pub(crate) use syscalls::Errno;

pub(crate) type Result<T> = core::result::Result<T, Errno>;

/// The size of a base page.
pub(crate) const PAGE: usize = to_usize(superpage_units::BASE_PAGE_BYTES);
/// The size of a huge page.
pub(crate) const HUGE: usize = to_usize(superpage_units::HUGE_PAGE_BYTES);
/// The size of a gigantic page.
pub(crate) const GIGANTIC: usize = to_usize(GIGANTIC_PAGE_BYTES);

/// A number as an address or a length: the library is for x86-64 only.
#[expect(clippy::cast_possible_truncation, reason = "64-bit machines only")]
pub(crate) const fn to_usize(number: u64) -> usize {
    number as usize
}

/// The `int` in a register: its upper half is of no meaning.
#[expect(clippy::cast_possible_truncation, reason = "that is what an int in a register is")]
pub(crate) const fn int(register: usize) -> i32 {
    register as i32
}

/// A part of the address space, in whole base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its first byte.
    pub(crate) start: usize,
    /// Its length in bytes.
    pub(crate) length: usize,
}

impl Span {
    /// A gigantic page's worth.
    pub(crate) const fn gigantic(start: usize) -> Self {
        Self { start, length: GIGANTIC }
    }

    /// The first byte behind it.
    pub(crate) const fn end(self) -> usize {
        self.start + self.length
    }

    /// Whether the address lies in it.
    pub(crate) const fn contains(self, address: usize) -> bool {
        self.start <= address && address < self.end()
    }

    /// The part that both have; `None` if it is empty.
    pub(crate) fn overlap(self, other: Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let end = self.end().min(other.end());
        (start < end).then(|| Self { start, length: end - start })
    }
}

/// A call of any number, also one that was added to the kernel since.
///
/// # Safety
/// As of the call with this number.
pub(crate) unsafe fn any(call: usize, arguments: [usize; 6]) -> Result<usize> {
    let [a, b, c, d, e, f] = arguments;
    let answer: usize;
    // SAFETY: the caller's promise; these are the registers of the system calls of this architecture.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") call => answer,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    Errno::from_ret(answer)
}
