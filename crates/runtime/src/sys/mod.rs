//! The system calls that the library makes, without libc: no errno, no cancellation point, no lock.
//!
//! The library's threads may not call libc, which may allocate from memory that the library manages; and
//! libc's `mmap` is the library's own. Every call here is one instruction.

#![expect(unsafe_code, reason = "every function here is a system call")]

mod pagemap;
mod procmap;

use core::ffi::CStr;
use core::sync::atomic::AtomicU32;
use superpage_units::{GIGANTIC_PAGE_BYTES, Nanos};
use syscalls::{Sysno, syscall};

pub(crate) use pagemap::{HUGE_PAGE, PRESENT, Pagemap, SWAPPED, ZERO};
pub(crate) use procmap::{is_writable, vma_at};
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

/// The time after which a thread that waits for another looks whether that still runs. Chosen, not measured.
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

/// Wakes so many of those who wait for `word`.
pub(crate) fn futex_wake_some(word: &AtomicU32, count: usize) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel only uses the address.
    let _ = unsafe { syscall!(Sysno::futex, word.as_ptr(), operation, count) };
}

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

/// The monotonic clock.
pub(crate) fn now() -> Nanos {
    let mut time = [0_u64; 2];
    // SAFETY: the kernel writes a timespec of this architecture.
    let _ = unsafe { syscall!(Sysno::clock_gettime, libc::CLOCK_MONOTONIC, time.as_mut_ptr()) };
    Nanos(time[0] * 1_000_000_000 + time[1])
}

/// This process, which is also the number of its first thread.
pub(crate) fn process() -> u32 {
    // SAFETY: it only answers.
    unsafe { syscall!(Sysno::getpid) }.map_or(0, |pid| int(pid).unsigned_abs())
}

/// The process that started this one.
pub(crate) fn parent() -> u32 {
    // SAFETY: it only answers.
    unsafe { syscall!(Sysno::getppid) }.map_or(0, |pid| int(pid).unsigned_abs())
}

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

/// Waits until there is something to read, at most so long.
pub(crate) fn wait_for_input(descriptor: &Descriptor, time: Nanos) -> Result<()> {
    let mut wanted = libc::pollfd { fd: descriptor.0, events: libc::POLLIN, revents: 0 };
    let time = [time.0 / 1_000_000_000, time.0 % 1_000_000_000];
    let wanted = core::ptr::from_mut(&mut wanted);
    // SAFETY: there is one descriptor to wait for; the time is a timespec of this architecture.
    unsafe { syscall!(Sysno::ppoll, wanted, 1, time.as_ptr(), 0, 0) }.map(|_| ())
}

/// An epoll that waits for one descriptor to have input. Of all that wait for the same descriptor by such, one is woken.
pub(crate) fn epoll_for_one(descriptor: &Descriptor) -> Result<Descriptor> {
    // SAFETY: it makes a descriptor.
    let epoll = unsafe { syscall!(Sysno::epoll_create1, libc::EPOLL_CLOEXEC) };
    let epoll = Descriptor(int(epoll?));
    let events = (libc::EPOLLIN | libc::EPOLLEXCLUSIVE).cast_unsigned();
    let mut wanted = libc::epoll_event { events, u64: 0 };
    let wanted = core::ptr::from_mut(&mut wanted);
    // SAFETY: the kernel reads the event.
    unsafe { syscall!(Sysno::epoll_ctl, epoll.0, libc::EPOLL_CTL_ADD, descriptor.0, wanted) }
        .map(|_| epoll)
}

/// Waits until an epoll has something to tell, at most so long.
pub(crate) fn epoll_wait(epoll: &Descriptor, time: Nanos) -> Result<()> {
    const NANOS_PER_MS: u64 = 1_000_000;
    let mut told = libc::epoll_event { events: 0, u64: 0 };
    let told = core::ptr::from_mut(&mut told);
    // SAFETY: there is room for one event.
    unsafe { syscall!(Sysno::epoll_wait, epoll.0, told, 1, time.0 / NANOS_PER_MS) }.map(|_| ())
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

/// Reads once.
pub(crate) fn read(descriptor: &Descriptor, into: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes no more than there is room for.
    unsafe { syscall!(Sysno::read, descriptor.0, into.as_mut_ptr(), into.len()) }
}

/// Reads once from the beginning of a file.
pub(crate) fn read_again(descriptor: &Descriptor, into: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes no more than there is room for.
    unsafe { syscall!(Sysno::pread64, descriptor.0, into.as_mut_ptr(), into.len(), 0) }
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

/// Gives up the calling thread's rights, if it has root's: it becomes nobody. The other threads keep theirs.
pub(crate) fn drop_rights() {
    const NOBODY: u32 = 65_534;
    let none = core::ptr::null::<u32>();
    // SAFETY: these calls concern the calling thread alone, but for the last: a change of the user makes the
    // kernel forbid core dumps of the whole process, which is undone.
    unsafe {
        if syscall!(Sysno::geteuid) != Ok(0) {
            return;
        }
        let dumpable = syscall!(Sysno::prctl, libc::PR_GET_DUMPABLE);
        let _ = syscall!(Sysno::setgroups, 0, none);
        let _ = syscall!(Sysno::setresgid, NOBODY, NOBODY, NOBODY);
        let _ = syscall!(Sysno::setresuid, NOBODY, NOBODY, NOBODY);
        if dumpable == Ok(1) {
            let _ = syscall!(Sysno::prctl, libc::PR_SET_DUMPABLE, 1);
        }
    }
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

/// Whether two tasks have the same table of descriptors; where the kernel does not say, they have not.
pub(crate) fn share_descriptors(one: u32, other: u32) -> bool {
    const KCMP_FILES: u32 = 2;
    // SAFETY: it only answers.
    unsafe { syscall!(Sysno::kcmp, one, other, KCMP_FILES, 0, 0) }.is_ok_and(|order| order == 0)
}

/// The calling thread.
pub(crate) fn thread() -> u32 {
    // SAFETY: it only answers.
    unsafe { syscall!(Sysno::gettid) }.map_or(0, |thread| int(thread).unsigned_abs())
}

/// Ends the process.
pub(crate) fn end_process(code: i32) -> ! {
    loop {
        // SAFETY: nothing runs after it.
        let _ = unsafe { syscall!(Sysno::exit_group, code) };
    }
}

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
