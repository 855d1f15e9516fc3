//! The functions of libc that the library takes the place of: what a program calls before the kernel.
//!
//! Each does what libc's does, with the same errors, and goes to the kernel as it is where the process is
//! not managed. libc itself calls the kernel without these: the stacks of its threads and what its loader
//! maps are not seen here.
//!
//! A program comes to the kernel's calls by their functions or by `syscall`; both come to [`by_number`], which has one arm for each
//! call that the library carries out. The functions behind it call libc's of the same name: they are more than one call of the
//! kernel's (`fork`, `pthread_create`), or other libraries take their place too (`ioctl`, `prctl`).
//!
//! Some calls that concern memory need nothing and are libc's own. `brk` and `sbrk` change the heap, which the kernel
//! puts tens of TiB away from the areas and lets grow into no other mapping. `munlock` leaves gigantic pages as they
//! are; `move_pages` and `migrate_pages` move them whole; `set_mempolicy_home_node` changes only what was given to
//! `mbind` before. `vfork` copies no memory.

#![expect(unsafe_code, reason = "C functions that programs call")]
#![cfg_attr(test, expect(dead_code, reason = "only programs call them"))]

use crate::areas::{Process, Threads, managed};
use crate::backing::Child;
use crate::memory::During;
use crate::next::{Next, next};
use crate::sys::{self, Errno, Mmap, Result};
use crate::{advice, fork, limited, memory, thread};
use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use libc::rlimit64;

/// The calls of the kernel's that `libc` does not name.
const SYS_MSEAL: c_long = 462;
/// seccomp(2) in one of its two modes, of which the first is 0, and for all threads of the process.
const SECCOMP_SET_MODE_FILTER: usize = 1;
const SECCOMP_FILTER_FLAG_TSYNC: usize = 1;
/// The request of ioctl that makes a userfaultfd: _IO(0xAA, 0x00).
const USERFAULTFD_IOC_NEW: usize = 0xAA00;

/// A call of the kernel's, by its number.
///
/// # Errors
/// What the kernel answers, or would.
///
/// # Safety
/// As of the call with this number.
unsafe fn by_number(call: c_long, arguments: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller's promise.
    let pass = || unsafe { sys::any(sys::to_usize(call.cast_unsigned()), arguments) };
    let Some(process) = managed() else { return pass() };
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller's promise.
    unsafe {
        match call {
            libc::SYS_mmap => {
                let asked = Mmap {
                    address: a,
                    length: b,
                    protection: sys::int(c),
                    flags: sys::int(d),
                    descriptor: sys::int(e),
                    offset: f.cast_signed() as i64,
                };
                memory::map(process, asked)
            }
            libc::SYS_munmap => memory::unmap(process, a, b),
            libc::SYS_mremap => memory::remap(process, a, b, c, sys::int(d), e),
            libc::SYS_mprotect => memory::protect(process, a, b, sys::int(c), &pass),
            libc::SYS_madvise => memory::advise(process, a, b, sys::int(c)),
            // Sealed memory stays ordinary. Locked memory is not promoted, because locked pages cannot be moved.
            libc::SYS_pkey_mprotect => memory::protect_by_key(process, a, b, sys::int(c), pass),
            libc::SYS_mbind | SYS_MSEAL => memory::special(process, a, b, During::Held, pass),
            libc::SYS_mlock | libc::SYS_mlock2 => {
                memory::special(process, a, b, During::Free, pass)
            }
            libc::SYS_mincore | libc::SYS_msync => memory::look(process, a, b, pass),
            libc::SYS_process_madvise => {
                let parts = b as *const libc::iovec;
                advice::by_process(process, sys::int(a), parts, c, sys::int(d), sys::int(e), pass)
            }
            // Refused with EINVAL at a place in the areas, as the kernel refuses one where something is mapped. Without an
            // address the kernel chooses a place outside.
            libc::SYS_shmat if process.areas.span.contains(b) => Err(Errno::EINVAL),
            // The kernel would lock reserved memory, and would not lock memory that is placed later.
            libc::SYS_mlockall => memory::lock_all(process, pass),
            libc::SYS_prlimit64 => limit(process, arguments),
            libc::SYS_setrlimit => limit(process, [0, a, b, 0, 0, 0]),
            libc::SYS_getrlimit => limit(process, [0, a, 0, b, 0, 0]),
            libc::SYS_userfaultfd => {
                before_userfaultfd(process);
                pass()
            }
            libc::SYS_ioctl => {
                before_ioctl(process, b);
                pass()
            }
            libc::SYS_seccomp if a <= SECCOMP_SET_MODE_FILTER => {
                let is_for_all = b & SECCOMP_FILTER_FLAG_TSYNC != 0;
                before_filter(process, if is_for_all { Filtered::All } else { Filtered::One });
                pass()
            }
            libc::SYS_prctl => {
                before_prctl(process, sys::int(a));
                pass()
            }
            // A profiler of the program's own that signals each thread would wait for an answer that ours never give.
            libc::SYS_tkill if is_ours(a) => Err(Errno::ESRCH),
            libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo if is_ours(b) => Err(Errno::ESRCH),
            libc::SYS_fork => fork::unheard(Child::Served, pass),
            libc::SYS_clone | libc::SYS_clone3 => match made_by(call, a, b) {
                Made::Fork => fork::unheard(Child::Whole, pass),
                Made::Thread => {
                    process.backing().before_second_thread();
                    pass()
                }
                Made::Process => {
                    process.backing().before_second_process();
                    pass()
                }
                Made::Other => pass(),
            },
            _ => pass(),
        }
    }
}

/// Whether a thread is one of the library's.
fn is_ours(number: usize) -> bool {
    thread::is_ours(sys::int(number).unsigned_abs())
}

/// prlimit64(2), to which all calls that set or read limits come.
///
/// # Safety
/// As of prlimit64.
unsafe fn limit(process: &Process, arguments: [usize; 6]) -> Result<usize> {
    let [whose, resource, new, old, ..] = arguments;
    let call = sys::to_usize(libc::SYS_prlimit64.cast_unsigned());
    let (new, old) = (new as *const rlimit64, old as *mut rlimit64);
    // SAFETY: the caller's promise.
    unsafe {
        limited::set(process, sys::int(whose), sys::int(resource), new, old, |new| {
            sys::any(call, [whose, resource, new.addr(), old.addr(), 0, 0])
        })
    }
}

/// The program is about to have the kernel filter the calls of this thread, or of all. Threads of the library's that have not been
/// started yet would have the filter of the thread that starts them.
fn before_filter(process: &Process, whose: Filtered) {
    let counts = whose == Filtered::All || process.areas.threads() == Threads::NotYet;
    if counts && process.areas.limited.is_of_this_process() {
        process.backing().before_filter();
    }
}

/// As [`before_filter`], by prctl(2).
fn before_prctl(process: &Process, option: c_int) {
    if option == libc::PR_SET_SECCOMP {
        before_filter(process, Filtered::One);
    }
}

/// The program is about to have a userfaultfd of its own. One of a child that shares its memory until it becomes another program
/// (vfork) is none of its.
fn before_userfaultfd(process: &Process) {
    if process.areas.limited.is_of_this_process() {
        process.backing().leave_alone();
    }
}

/// A userfaultfd may come from its device.
fn before_ioctl(process: &Process, request: usize) {
    if request == USERFAULTFD_IOC_NEW {
        before_userfaultfd(process);
    }
}

/// The threads whose calls are filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filtered {
    /// The calling thread, and those that it starts.
    One,
    /// All of the process.
    All,
}

/// The kinds of children that a call of clone or clone3 makes.
enum Made {
    /// A child with memory of its own, which goes on here.
    Fork,
    /// A thread of this process.
    Thread,
    /// A process that runs at once with its parent, in one memory.
    Process,
    /// A child on a stack of its own, or one that its parent waits for.
    Other,
}

/// The kind of child that clone(2) or clone3(2) makes with these first two arguments.
///
/// # Safety
/// As of the call.
unsafe fn made_by(call: c_long, a: usize, b: usize) -> Made {
    /// The stack is the sixth argument of clone3.
    const STACK: usize = 5;
    let (flags, stack) = match call {
        libc::SYS_clone => (a as u64, b as u64),
        _ if a != 0 && b > STACK * size_of::<u64>() => {
            let arguments = a as *const u64;
            // SAFETY: the caller's promise; the kernel takes at least six words as well.
            unsafe { (arguments.read(), arguments.add(STACK).read()) }
        }
        // The kernel refuses it.
        _ => return Made::Other,
    };
    match flags & libc::CLONE_VM as u64 {
        0 if stack == 0 => Made::Fork,
        _ => made_in_memory(flags),
    }
}

/// The kind of child that a clone with these flags makes in the memory of its parent.
fn made_in_memory(flags: u64) -> Made {
    let has = |flag: c_int| flags & flag as u64 != 0;
    match (has(libc::CLONE_VM) && !has(libc::CLONE_VFORK), has(libc::CLONE_THREAD)) {
        (true, true) => Made::Thread,
        (true, false) => Made::Process,
        (false, _) => Made::Other,
    }
}

/// A C function's argument, as the register that holds it.
trait Argument {
    fn register(self) -> usize;
}

/// A C function's answer.
pub(crate) trait Returned: Sized {
    /// The answer of a function that has failed.
    const FAILED: Self;

    fn from_register(value: usize) -> Self;

    /// The answer; where the call has failed, with errno set.
    fn of(done: Result<usize>) -> Self {
        match done {
            Ok(value) => Self::from_register(value),
            Err(errno) => {
                // SAFETY: errno is the calling thread's.
                unsafe { *libc::__errno_location() = errno.into_raw() };
                Self::FAILED
            }
        }
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Argument for $type {
            #[expect(clippy::allow_attributes, reason = "not for all of the types")]
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as C does it")]
            fn register(self) -> usize {
                self as usize
            }
        }
    )*};
}

integers!(c_int, c_uint, usize, i64, c_ulong);

impl<T> Argument for *const T {
    fn register(self) -> usize {
        self.addr()
    }
}

impl<T> Argument for *mut T {
    fn register(self) -> usize {
        self.addr()
    }
}

impl Returned for c_int {
    const FAILED: Self = -1;

    fn from_register(value: usize) -> Self {
        sys::int(value)
    }
}

impl Returned for c_long {
    const FAILED: Self = -1;

    fn from_register(value: usize) -> Self {
        value as Self
    }
}

impl Returned for isize {
    const FAILED: Self = -1;

    fn from_register(value: usize) -> Self {
        value.cast_signed()
    }
}

impl Returned for *mut c_void {
    const FAILED: Self = libc::MAP_FAILED;

    fn from_register(value: usize) -> Self {
        value as Self
    }
}

const fn registers<const N: usize>(given: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    let (given_part, _) = all.split_at_mut(N);
    given_part.copy_from_slice(&given);
    all
}

/// The functions of libc that are one call of the kernel's, with its arguments in its order.
macro_rules! functions {
    ($($name:ident, $call:path: ($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        #[doc = concat!("The call of the kernel's `", stringify!($call), "`.")]
        ///
        /// # Safety
        /// As of that call.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            // SAFETY: the caller's promise.
            Returned::of(unsafe { by_number($call, registers([$($argument.register()),*])) })
        }
    )*};
}

functions! {
    mmap, libc::SYS_mmap: (address: *mut c_void, length: usize, protection: c_int, flags: c_int, descriptor: c_int, offset: i64) -> *mut c_void;
    mmap64, libc::SYS_mmap: (address: *mut c_void, length: usize, protection: c_int, flags: c_int, descriptor: c_int, offset: i64) -> *mut c_void;
    munmap, libc::SYS_munmap: (address: *mut c_void, length: usize) -> c_int;
    mremap, libc::SYS_mremap: (old: *mut c_void, old_length: usize, length: usize, flags: c_int, to: *mut c_void) -> *mut c_void;
    mprotect, libc::SYS_mprotect: (address: *mut c_void, length: usize, protection: c_int) -> c_int;
    pkey_mprotect, libc::SYS_pkey_mprotect: (address: *mut c_void, length: usize, protection: c_int, key: c_int) -> c_int;
    madvise, libc::SYS_madvise: (address: *mut c_void, length: usize, advice: c_int) -> c_int;
    process_madvise, libc::SYS_process_madvise: (process: c_int, parts: *const libc::iovec, count: usize, advice: c_int, flags: c_uint) -> isize;
    mbind, libc::SYS_mbind: (address: *mut c_void, length: usize, mode: c_int, nodes: *const usize, most: usize, flags: c_uint) -> c_long;
    mseal, SYS_MSEAL: (address: *mut c_void, length: usize, flags: c_ulong) -> c_int;
    mlock, libc::SYS_mlock: (address: *const c_void, length: usize) -> c_int;
    mlock2, libc::SYS_mlock2: (address: *const c_void, length: usize, flags: c_uint) -> c_int;
    mlockall, libc::SYS_mlockall: (flags: c_int) -> c_int;
    mincore, libc::SYS_mincore: (address: *mut c_void, length: usize, pages: *mut c_void) -> c_int;
    msync, libc::SYS_msync: (address: *mut c_void, length: usize, flags: c_int) -> c_int;
    shmat, libc::SYS_shmat: (segment: c_int, address: *const c_void, flags: c_int) -> *mut c_void;
    tgkill, libc::SYS_tgkill: (process: c_int, thread: c_int, signal: c_int) -> c_int;
    prlimit, libc::SYS_prlimit64: (process: c_int, resource: c_int, new: *const rlimit64, old: *mut rlimit64) -> c_int;
    prlimit64, libc::SYS_prlimit64: (process: c_int, resource: c_int, new: *const rlimit64, old: *mut rlimit64) -> c_int;
    setrlimit, libc::SYS_setrlimit: (resource: c_int, new: *const rlimit64) -> c_int;
    setrlimit64, libc::SYS_setrlimit: (resource: c_int, new: *const rlimit64) -> c_int;
    getrlimit, libc::SYS_getrlimit: (resource: c_int, old: *mut rlimit64) -> c_int;
    getrlimit64, libc::SYS_getrlimit: (resource: c_int, old: *mut rlimit64) -> c_int;
}

/// syscall(2).
///
/// # Safety
/// As of the call with this number.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn syscall(
    call: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller's promise.
    Returned::of(unsafe { by_number(call, [a, b, c, d, e, f]) })
}

/// posix_madvise(3), which returns its error.
///
/// # Safety
/// As of posix_madvise.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn posix_madvise(
    address: *mut c_void,
    length: usize,
    advice: c_int,
) -> c_int {
    // libc does nothing there, because the kernel would empty the memory.
    if advice == libc::POSIX_MADV_DONTNEED {
        return 0;
    }
    let arguments = registers([address.addr(), length, advice.register()]);
    // SAFETY: the caller's promise; the other kinds of advice have the numbers that the kernel gives them.
    let done = unsafe { by_number(libc::SYS_madvise, arguments) };
    done.map_or_else(Errno::into_raw, |_| 0)
}

type SetAttribute = extern "C" fn(*mut c_void, c_int) -> c_int;
type Start = extern "C" fn(*mut c_void) -> c_int;
type Clone = extern "C" fn(
    Start,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;
type ForkPty = extern "C" fn(*mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int;
type Create = extern "C" fn(*mut c_void, *const c_void, *const c_void, *mut c_void) -> c_int;

next! {
    FORK, c"fork": extern "C" fn() -> c_int;
    UNHEARD_FORK, c"_Fork": extern "C" fn() -> c_int;
    CLONE, c"clone": Clone;
    DAEMON, c"daemon": extern "C" fn(c_int, c_int) -> c_int;
    FORKPTY, c"forkpty": ForkPty;
    IOCTL, c"ioctl": extern "C" fn(c_int, c_ulong, usize) -> c_int;
    PRCTL, c"prctl": extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;
    CREATE, c"pthread_create": Create;
    THRD_CREATE, c"thrd_create": extern "C" fn(*mut c_void, *const c_void, *mut c_void) -> c_int;
    SET_STACK, c"pthread_attr_setstack": extern "C" fn(*mut c_void, *mut c_void, usize) -> c_int;
    SET_PROTOCOL, c"pthread_mutexattr_setprotocol": SetAttribute;
    SET_ROBUST, c"pthread_mutexattr_setrobust": SetAttribute;
}

/// ioctl(2), which other libraries take the place of too.
///
/// # Safety
/// As of ioctl.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ioctl(
    descriptor: c_int,
    request: c_ulong,
    argument: usize,
) -> c_int {
    if let Some(process) = managed() {
        before_ioctl(process, request.register());
    }
    let Some(next) = IOCTL.get() else { return Returned::of(Err(Errno::ENOSYS)) };
    next(descriptor, request, argument)
}

/// prctl(2), as [`ioctl`].
///
/// # Safety
/// As of prctl.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn prctl(
    option: c_int,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
) -> c_int {
    if let Some(process) = managed() {
        before_prctl(process, option);
    }
    let Some(next) = PRCTL.get() else { return Returned::of(Err(Errno::ENOSYS)) };
    next(option, a, b, c, d)
}

/// pthread_mutexattr_setprotocol(3): nothing is promoted any more. The kernel changes such mutexes in ways that do
/// not wait for a page that is held.
///
/// # Safety
/// As of pthread_mutexattr_setprotocol.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pthread_mutexattr_setprotocol(
    attributes: *mut c_void,
    protocol: c_int,
) -> c_int {
    set_attribute(&SET_PROTOCOL, attributes, protocol)
}

/// pthread_mutexattr_setrobust(3), as [`pthread_mutexattr_setprotocol`].
///
/// # Safety
/// As of pthread_mutexattr_setrobust.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pthread_mutexattr_setrobust(
    attributes: *mut c_void,
    robustness: c_int,
) -> c_int {
    set_attribute(&SET_ROBUST, attributes, robustness)
}

fn set_attribute(next: &Next<SetAttribute>, attributes: *mut c_void, value: c_int) -> c_int {
    if let Some(process) = managed() {
        process.backing().stop_promoting();
    }
    next.get().map_or(libc::ENOSYS, |set| set(attributes, value))
}

/// pthread_attr_setstack(3): the memory becomes a stack of the program's choice and stays ordinary. What the kernel
/// writes there when the thread ends is lost while accesses are held.
///
/// # Safety
/// As of pthread_attr_setstack.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pthread_attr_setstack(
    attributes: *mut c_void,
    stack: *mut c_void,
    length: usize,
) -> c_int {
    if let Some(process) = managed() {
        let _ = memory::special(process, stack.addr(), length, During::Held, || Ok(0));
    }
    SET_STACK.get().map_or(libc::ENOSYS, |set| set(attributes, stack, length))
}

/// pthread_create(3). Threads that libc makes for itself, such as those of timers, are not seen here.
///
/// # Safety
/// As of pthread_create.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    work: *const c_void,
    argument: *mut c_void,
) -> c_int {
    before_second_thread();
    CREATE.get().map_or(libc::EAGAIN, |create| create(thread, attributes, work, argument))
}

/// thrd_create(3), as [`pthread_create`].
///
/// # Safety
/// As of thrd_create.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn thrd_create(
    thread: *mut c_void,
    work: *const c_void,
    argument: *mut c_void,
) -> c_int {
    const ERROR: c_int = 2; // thrd_error
    before_second_thread();
    THRD_CREATE.get().map_or(ERROR, |create| create(thread, work, argument))
}

fn before_second_thread() {
    if let Some(process) = managed() {
        process.backing().before_second_thread();
    }
}

/// fork(2): refused with ENOMEM where the child could not have all of its memory.
///
/// # Safety
/// As of fork.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fork() -> c_int {
    heard(|| FORK.get().map_or(-1, |fork| fork()))
}

/// daemon(3), which forks and cannot say that it may not: refused as [`fork`] is.
///
/// # Safety
/// As of daemon.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn daemon(stays: c_int, keeps: c_int) -> c_int {
    heard(|| DAEMON.get().map_or(-1, |daemon| daemon(stays, keeps)))
}

/// forkpty(3), which forks and cannot say that it may not: refused as [`fork`] is.
///
/// # Safety
/// As of forkpty.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn forkpty(
    master: *mut c_int,
    name: *mut c_char,
    terminal: *const c_void,
    size: *const c_void,
) -> c_int {
    heard(|| FORKPTY.get().map_or(-1, |forkpty| forkpty(master, name, terminal, size)))
}

fn heard(fork: impl FnOnce() -> c_int) -> c_int {
    fork::heard(managed(), fork).unwrap_or_else(|errno| Returned::of(Err(errno)))
}

/// `_Fork(3)`, of which the handlers of pthread_atfork do not hear.
///
/// # Safety
/// As of `_Fork`.
#[cfg_attr(test, expect(non_snake_case, reason = "libc calls it so"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn _Fork() -> c_int {
    unheard(Child::Served, || UNHEARD_FORK.get().map(|fork| fork()))
}

/// A function of libc that forks without telling the handlers: `fork` calls it, and answers nothing where there is none.
fn unheard(child: Child, fork: impl FnOnce() -> Option<c_int>) -> c_int {
    let call = || {
        let answer = fork().ok_or(Errno::ENOSYS)?;
        // SAFETY: errno is the calling thread's.
        usize::try_from(answer).map_err(|_| Errno::new(unsafe { *libc::__errno_location() }))
    };
    Returned::of(match managed() {
        Some(_) => fork::unheard(child, call),
        None => call(),
    })
}

/// The work of a child of `clone`.
struct Work {
    start: Start,
    argument: *mut c_void,
}

extern "C" fn begin_child(work: *mut c_void) -> c_int {
    fork::in_child();
    // SAFETY: it is a copy of the parent's, which `clone` made.
    let work = unsafe { &*work.cast::<Work>() };
    (work.start)(work.argument)
}

/// clone(2): one that copies memory is a fork, of which libc's handlers do not hear.
///
/// # Safety
/// As of clone.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn clone(
    start: Start,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parents: *mut c_void,
    locals: *mut c_void,
    childs: *mut c_void,
) -> c_int {
    let Some(next) = CLONE.get() else { return Returned::of(Err(Errno::ENOSYS)) };
    let managed = managed();
    if managed.is_some() && flags & libc::CLONE_VM == 0 {
        let mut work = Work { start, argument };
        let work = core::ptr::from_mut(&mut work).cast();
        let call = || Some(next(begin_child, stack, flags, work, parents, locals, childs));
        return unheard(Child::Whole, call);
    }
    if let Some(process) = managed {
        match made_in_memory(i64::from(flags).cast_unsigned()) {
            Made::Thread => process.backing().before_second_thread(),
            Made::Process => process.backing().before_second_process(),
            Made::Fork | Made::Other => {}
        }
    }
    next(start, stack, flags, argument, parents, locals, childs)
}

/// For `libsuperpage_malloc.so`: functions to call before each fork and after it.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn superpage_watch_forks(before: extern "C" fn(), after: extern "C" fn()) {
    fork::add(before, after);
}
