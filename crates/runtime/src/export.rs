//! The functions of libc that the library takes the place of: what a program calls before the kernel.
//!
//! Each does what libc's does, with the same errors, and goes to the kernel as it is where the process is
//! not managed. libc itself calls the kernel without these: the stacks of its threads and what its loader
//! maps are not seen here.
//!
//! Some calls that concern memory need nothing and are libc's own. `brk` and `sbrk` change the heap, which the kernel
//! puts tens of TiB away from the areas and lets grow into no other mapping. `munlock` leaves gigantic pages as they
//! are; `move_pages` and `migrate_pages` move them whole; `set_mempolicy_home_node` changes only what was given to
//! `mbind` before. `vfork` copies no memory.

#![expect(unsafe_code, reason = "C functions that programs call")]
#![cfg_attr(test, expect(dead_code, reason = "only programs call them"))]

use crate::areas::areas;
use crate::fork::Heap;
use crate::sys::{Errno, Mmap, Result, Span};
use crate::{advice, fork, limited, memory, sys};
use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};
use syscalls::Sysno;

/// The result of a C function: the value, or `failed` with errno set.
pub(crate) fn answer<T>(done: Result<usize>, convert: impl FnOnce(usize) -> T, failed: T) -> T {
    match done {
        Ok(value) => convert(value),
        Err(errno) => {
            // SAFETY: errno is the calling thread's.
            unsafe { *libc::__errno_location() = errno.into_raw() };
            failed
        }
    }
}

fn pointer(done: Result<usize>) -> *mut c_void {
    answer(done, |address| address as *mut c_void, libc::MAP_FAILED)
}

fn number(done: Result<usize>) -> c_int {
    answer(done, sys::int, -1)
}

/// mmap(2).
///
/// # Safety
/// As of mmap.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    let asked = Mmap { address: address.addr(), length, protection, flags, descriptor, offset };
    // SAFETY: the caller's promise.
    pointer(unsafe {
        match areas() {
            Some(areas) => memory::map(areas, asked),
            None => sys::mmap(asked),
        }
    })
}

/// mmap64(3): the same on this architecture.
///
/// # Safety
/// As of mmap.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(address, length, protection, flags, descriptor, offset) }
}

/// munmap(2).
///
/// # Safety
/// As of munmap.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    // SAFETY: the caller's promise.
    number(unsafe {
        match areas() {
            Some(areas) => memory::unmap(areas, address.addr(), length),
            None => sys::munmap(address.addr(), length),
        }
    })
}

/// mremap(2). The last argument counts only with `MREMAP_FIXED` or `MREMAP_DONTUNMAP`.
///
/// # Safety
/// As of mremap.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_length: usize,
    length: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let (old, to) = (old.addr(), to.addr());
    // SAFETY: the caller's promise.
    pointer(unsafe {
        match areas() {
            Some(areas) => memory::remap(areas, old, old_length, length, flags, to),
            None => sys::mremap(Span { start: old, length: old_length }, length, flags, to),
        }
    })
}

/// mprotect(2).
///
/// # Safety
/// As of mprotect.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mprotect(
    address: *mut c_void,
    length: usize,
    protection: c_int,
) -> c_int {
    let address = address.addr();
    // SAFETY: the caller's promise.
    let change = || unsafe { sys::mprotect(Span { start: address, length }, protection) };
    number(match areas() {
        Some(areas) => memory::protect(areas, address, length, protection, &change),
        None => change(),
    })
}

/// pkey_mprotect(2).
///
/// # Safety
/// As of pkey_mprotect.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pkey_mprotect(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    key: c_int,
) -> c_int {
    let address = address.addr();
    // SAFETY: the caller's promise.
    let change =
        || unsafe { syscalls::syscall!(Sysno::pkey_mprotect, address, length, protection, key) };
    number(match areas() {
        Some(areas) => memory::special(areas, address, length, change),
        None => change(),
    })
}

/// madvise(2).
///
/// # Safety
/// As of madvise.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn madvise(
    address: *mut c_void,
    length: usize,
    advice: c_int,
) -> c_int {
    let address = address.addr();
    // SAFETY: the caller's promise.
    number(unsafe {
        match areas() {
            Some(areas) => memory::advise(areas, address, length, advice),
            None => sys::madvise(Span { start: address, length }, advice),
        }
    })
}

/// mbind(2).
///
/// # Safety
/// As of mbind.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mbind(
    address: *mut c_void,
    length: usize,
    mode: c_int,
    nodes: *const usize,
    most: usize,
    flags: u32,
) -> c_long {
    let address = address.addr();
    // SAFETY: the caller's promise.
    let change =
        || unsafe { syscalls::syscall!(Sysno::mbind, address, length, mode, nodes, most, flags) };
    let done = match areas() {
        Some(areas) => memory::special(areas, address, length, change),
        None => change(),
    };
    c_long::from(number(done))
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
    let address = address.addr();
    // SAFETY: the caller's promise; the other kinds of advice have the numbers that the kernel gives them.
    let done = unsafe {
        match areas() {
            Some(areas) => memory::advise(areas, address, length, advice),
            None => sys::madvise(Span { start: address, length }, advice),
        }
    };
    done.map_or_else(Errno::into_raw, |_| 0)
}

/// mseal(2): what is sealed stays ordinary.
///
/// # Safety
/// As of mseal.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mseal(
    address: *mut c_void,
    length: usize,
    flags: core::ffi::c_ulong,
) -> c_int {
    let address = address.addr();
    // SAFETY: the caller's promise.
    let change = || unsafe { syscalls::syscall!(Sysno::mseal, address, length, flags) };
    number(match areas() {
        Some(areas) => memory::special(areas, address, length, change),
        None => change(),
    })
}

/// shmat(2): refused with EINVAL at a place in the areas, as the kernel refuses one where something is mapped. Without an
/// address the kernel chooses a place outside.
///
/// # Safety
/// As of shmat.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn shmat(
    segment: c_int,
    address: *const c_void,
    flags: c_int,
) -> *mut c_void {
    let address = address.addr();
    // SAFETY: the caller's promise.
    pointer(attach(address, || unsafe {
        syscalls::syscall!(Sysno::shmat, segment, address, flags)
    }))
}

/// Attaches a segment, unless that is in the areas.
fn attach(address: usize, call: impl FnOnce() -> Result<usize>) -> Result<usize> {
    let is_ours = areas().is_some_and(|areas| areas.span.contains(address));
    if is_ours { Err(Errno::EINVAL) } else { call() }
}

/// process_madvise(2).
///
/// # Safety
/// As of process_madvise.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn process_madvise(
    process: c_int,
    parts: *const libc::iovec,
    count: usize,
    advice: c_int,
    flags: u32,
) -> isize {
    // SAFETY: the caller's promise.
    let done = unsafe {
        let ask =
            || syscalls::syscall!(Sysno::process_madvise, process, parts, count, advice, flags);
        match areas() {
            Some(areas) => {
                advice::by_process(areas, process, parts, count, advice, flags.cast_signed(), ask)
            }
            None => ask(),
        }
    };
    answer(done, usize::cast_signed, -1)
}

/// mlock(2): what is locked is not promoted, because locked pages cannot be moved.
///
/// # Safety
/// As of mlock.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mlock(address: *const c_void, length: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { mlock2(address, length, 0) }
}

/// mlock2(2), as [`mlock`].
///
/// # Safety
/// As of mlock2.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mlock2(
    address: *const c_void,
    length: usize,
    flags: core::ffi::c_uint,
) -> c_int {
    let address = address.addr();
    // SAFETY: the caller's promise.
    let change = || unsafe {
        match flags {
            0 => syscalls::syscall!(Sysno::mlock, address, length),
            _ => syscalls::syscall!(Sysno::mlock2, address, length, flags),
        }
    };
    number(match areas() {
        Some(areas) => memory::special_and_slow(areas, address, length, change),
        None => change(),
    })
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
    if let Some(areas) = areas() {
        areas.stop_promoting();
    }
    // SAFETY: the caller's promise.
    unsafe { set_attribute(&SET_PROTOCOL, attributes, protocol) }
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
    if let Some(areas) = areas() {
        areas.stop_promoting();
    }
    // SAFETY: the caller's promise.
    unsafe { set_attribute(&SET_ROBUST, attributes, robustness) }
}

/// Calls a function of libc that sets an attribute.
///
/// # Safety
/// As of that function.
unsafe fn set_attribute(function: &Next, attributes: *mut c_void, value: c_int) -> c_int {
    type Set = extern "C" fn(*mut c_void, c_int) -> c_int;
    // SAFETY: the caller's promise.
    function.get().map_or(libc::ENOSYS, |set| unsafe {
        core::mem::transmute::<*mut c_void, Set>(set)(attributes, value)
    })
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
    type SetStack = extern "C" fn(*mut c_void, *mut c_void, usize) -> c_int;
    if let Some(areas) = areas() {
        let _ = memory::special(areas, stack.addr(), length, || Ok(0));
    }
    // SAFETY: libc's pthread_attr_setstack has this type.
    SET_STACK.get().map_or(libc::ENOSYS, |set| unsafe {
        core::mem::transmute::<*mut c_void, SetStack>(set)(attributes, stack, length)
    })
}

/// mlockall(2): what is reserved would be locked, and what is placed later would not.
///
/// # Safety
/// As of mlockall.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let lock = || unsafe { syscalls::syscall!(Sysno::mlockall, flags) };
    number(areas().map_or_else(lock, |areas| memory::lock_all(areas, lock)))
}

/// setrlimit(2).
///
/// # Safety
/// As of setrlimit.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn setrlimit(resource: c_int, new: *const libc::rlimit64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(0, resource, new, core::ptr::null_mut()) }
}

/// setrlimit64(3): the same on this architecture.
///
/// # Safety
/// As of setrlimit.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn setrlimit64(resource: c_int, new: *const libc::rlimit64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { setrlimit(resource, new) }
}

/// prlimit(2), to which all calls that set limits come.
///
/// # Safety
/// As of prlimit.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn prlimit(
    process: c_int,
    resource: c_int,
    new: *const libc::rlimit64,
    old: *mut libc::rlimit64,
) -> c_int {
    // SAFETY: the caller's promise.
    number(unsafe {
        limit(process, resource, new, old, |new| {
            syscalls::syscall!(Sysno::prlimit64, process, resource, new, old)
        })
    })
}

/// Has `ask` set and read limits: it gets those for the kernel.
///
/// # Safety
/// As of prlimit.
unsafe fn limit(
    process: c_int,
    resource: c_int,
    new: *const libc::rlimit64,
    old: *mut libc::rlimit64,
    ask: impl FnOnce(*const libc::rlimit64) -> Result<usize>,
) -> Result<usize> {
    let Some(areas) = areas() else { return ask(new) };
    // SAFETY: the caller's promise.
    unsafe { limited::set(areas, process, resource, new, old, ask) }
}

/// getrlimit(2).
///
/// # Safety
/// As of getrlimit.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getrlimit(resource: c_int, old: *mut libc::rlimit64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(0, resource, core::ptr::null(), old) }
}

/// getrlimit64(3): the same on this architecture.
///
/// # Safety
/// As of getrlimit.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getrlimit64(resource: c_int, old: *mut libc::rlimit64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { getrlimit(resource, old) }
}

/// prlimit64(3): the same on this architecture.
///
/// # Safety
/// As of prlimit.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn prlimit64(
    process: c_int,
    resource: c_int,
    new: *const libc::rlimit64,
    old: *mut libc::rlimit64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(process, resource, new, old) }
}

/// The work of a child of `clone`.
struct Child {
    work: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

extern "C" fn begin_child(child: *mut c_void) -> c_int {
    fork::in_child();
    // SAFETY: it is a copy of the parent's, which `clone` made.
    let child = unsafe { &*child.cast::<Child>() };
    (child.work)(child.argument)
}

/// clone(2): one that copies memory is a fork, of which libc's handlers do not hear.
///
/// # Safety
/// As of clone.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn clone(
    work: extern "C" fn(*mut c_void) -> c_int,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parents: *mut c_void,
    locals: *mut c_void,
    childs: *mut c_void,
) -> c_int {
    type Clone = extern "C" fn(
        extern "C" fn(*mut c_void) -> c_int,
        *mut c_void,
        c_int,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
    ) -> c_int;
    let Some(next) = CLONE.get() else { return number(Err(Errno::ENOSYS)) };
    // SAFETY: libc's clone has this type, with its last arguments optional.
    let next = unsafe { core::mem::transmute::<*mut c_void, Clone>(next) };
    let managed = areas();
    if let (Some(areas), true) = (managed, shares_memory(i64::from(flags).cast_unsigned())) {
        match flags & libc::CLONE_THREAD {
            0 => areas.before_second_process(),
            _ => areas.before_second_thread(),
        }
    }
    let Some(areas) = managed.filter(|_| flags & libc::CLONE_VM == 0) else {
        return next(work, stack, flags, argument, parents, locals, childs);
    };
    if let Err(errno) = fork::prepare(areas, Heap::Whole) {
        return number(Err(errno));
    }
    let mut child = Child { work, argument };
    let child = core::ptr::from_mut(&mut child).cast();
    fork::before_with(Heap::Whole);
    let made = next(begin_child, stack, flags, child, parents, locals, childs);
    fork::in_parent();
    made
}

/// Whether a clone with these flags and its parent run at once, in one memory.
const fn shares_memory(flags: u64) -> bool {
    flags & (libc::CLONE_VM | libc::CLONE_VFORK) as u64 == libc::CLONE_VM as u64
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
    type Create = extern "C" fn(*mut c_void, *const c_void, *const c_void, *mut c_void) -> c_int;
    if let Some(areas) = areas() {
        areas.before_second_thread();
    }
    // SAFETY: libc's pthread_create has this type.
    CREATE.get().map_or(libc::EAGAIN, |create| unsafe {
        core::mem::transmute::<*mut c_void, Create>(create)(thread, attributes, work, argument)
    })
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
    type Create = extern "C" fn(*mut c_void, *const c_void, *mut c_void) -> c_int;
    if let Some(areas) = areas() {
        areas.before_second_thread();
    }
    // SAFETY: libc's thrd_create has this type.
    THRD_CREATE.get().map_or(ERROR, |create| unsafe {
        core::mem::transmute::<*mut c_void, Create>(create)(thread, work, argument)
    })
}

/// daemon(3), which forks and cannot say that it may not: refused as [`fork`] is.
///
/// # Safety
/// As of daemon.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn daemon(stays: c_int, keeps: c_int) -> c_int {
    if let Some(Err(errno)) = areas().map(|areas| fork::prepare(areas, Heap::Paged)) {
        return number(Err(errno));
    }
    // SAFETY: libc's daemon has this type.
    let answer = DAEMON.get().map_or(-1, |daemon| unsafe {
        core::mem::transmute::<*mut c_void, extern "C" fn(c_int, c_int) -> c_int>(daemon)(
            stays, keeps,
        )
    });
    fork::answered(areas(), answer)
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
    type ForkPty = extern "C" fn(*mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int;
    if let Some(Err(errno)) = areas().map(|areas| fork::prepare(areas, Heap::Paged)) {
        return number(Err(errno));
    }
    // SAFETY: libc's forkpty has this type.
    let answer = FORKPTY.get().map_or(-1, |forkpty| unsafe {
        core::mem::transmute::<*mut c_void, ForkPty>(forkpty)(master, name, terminal, size)
    });
    fork::answered(areas(), answer)
}

/// For `libsuperpage_malloc.so`: functions to call before each fork and after it.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn superpage_watch_forks(before: extern "C" fn(), after: extern "C" fn()) {
    fork::add(before, after);
}

static FORKPTY: Next = Next::new(c"forkpty");
static FORK: Next = Next::new(c"fork");
static UNHEARD_FORK: Next = Next::new(c"_Fork");
static CLONE: Next = Next::new(c"clone");
static DAEMON: Next = Next::new(c"daemon");
static CREATE: Next = Next::new(c"pthread_create");
static THRD_CREATE: Next = Next::new(c"thrd_create");
static SET_STACK: Next = Next::new(c"pthread_attr_setstack");
static SET_PROTOCOL: Next = Next::new(c"pthread_mutexattr_setprotocol");
static SET_ROBUST: Next = Next::new(c"pthread_mutexattr_setrobust");

/// Finds the functions of libc that are called here. Later the dynamic linker's lock may be held by a thread
/// that waits for this one.
pub(crate) fn resolve() {
    let forks = [&FORK, &UNHEARD_FORK, &CLONE, &DAEMON, &FORKPTY];
    let threads = [&CREATE, &THRD_CREATE, &SET_STACK, &SET_PROTOCOL, &SET_ROBUST];
    for next in forks.into_iter().chain(threads) {
        next.get();
    }
}

/// fork(2): refused with ENOMEM where a gigantic page cannot be copied for the child.
///
/// # Safety
/// As of fork.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fork() -> c_int {
    if let Some(Err(errno)) = areas().map(|areas| fork::prepare(areas, Heap::Paged)) {
        return number(Err(errno));
    }
    // SAFETY: libc's fork has this type.
    let answer = FORK.get().map_or(-1, |fork| unsafe {
        core::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(fork)()
    });
    fork::answered(areas(), answer)
}

/// `_Fork(3)`, of which the handlers of pthread_atfork do not hear.
///
/// # Safety
/// As of `_Fork`.
#[cfg_attr(test, expect(non_snake_case, reason = "libc calls it so"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn _Fork() -> c_int {
    let call = || {
        let next = UNHEARD_FORK.get().ok_or(Errno::ENOSYS)?;
        // SAFETY: libc's _Fork has this type.
        let fork = unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(next) };
        // SAFETY: errno is the calling thread's.
        usize::try_from(fork()).map_err(|_| Errno::new(unsafe { *libc::__errno_location() }))
    };
    number(match areas() {
        Some(areas) => fork::unheard(areas, Heap::Paged, call),
        None => call(),
    })
}

/// syscall(2): calls that change memory are treated as the functions above.
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
    let pass = || unsafe { sys::any(sys::to_usize(call.cast_unsigned()), [a, b, c, d, e, f]) };
    let Some(areas) = areas() else { return long(pass()) };
    // SAFETY: the caller's promise.
    let done = unsafe {
        match call {
            libc::SYS_mmap => {
                let asked = Mmap {
                    address: a,
                    length: b,
                    protection: sys::int(c),
                    flags: sys::int(d),
                    descriptor: sys::int(e),
                    offset: f as i64,
                };
                memory::map(areas, asked)
            }
            libc::SYS_munmap => memory::unmap(areas, a, b),
            libc::SYS_mremap => memory::remap(areas, a, b, c, sys::int(d), e),
            libc::SYS_mprotect => memory::protect(areas, a, b, sys::int(c), &pass),
            libc::SYS_madvise => memory::advise(areas, a, b, sys::int(c)),
            libc::SYS_pkey_mprotect | libc::SYS_mbind | SYS_MSEAL => {
                memory::special(areas, a, b, pass)
            }
            libc::SYS_mlock | libc::SYS_mlock2 => memory::special_and_slow(areas, a, b, pass),
            libc::SYS_process_madvise => {
                let parts = b as *const libc::iovec;
                advice::by_process(areas, sys::int(a), parts, c, sys::int(d), sys::int(e), pass)
            }
            libc::SYS_shmat => attach(b, pass),
            libc::SYS_userfaultfd => {
                areas.leave_alone();
                pass()
            }
            libc::SYS_mlockall => memory::lock_all(areas, pass),
            libc::SYS_setrlimit => {
                let new = b as *const libc::rlimit64;
                let none = core::ptr::null_mut();
                limit(0, sys::int(a), new, none, |new| {
                    sys::any(sys::to_usize(call.cast_unsigned()), [a, new.addr(), 0, 0, 0, 0])
                })
            }
            libc::SYS_prlimit64 => {
                let (new, old) = (c as *const libc::rlimit64, d as *mut libc::rlimit64);
                limit(sys::int(a), sys::int(b), new, old, |new| {
                    sys::any(sys::to_usize(call.cast_unsigned()), [a, b, new.addr(), d, 0, 0])
                })
            }
            libc::SYS_fork => fork::unheard(areas, Heap::Paged, pass),
            libc::SYS_clone if a & libc::CLONE_VM as usize == 0 && b == 0 => {
                fork::unheard(areas, Heap::Whole, pass)
            }
            libc::SYS_clone3 if clone3_is_fork(a as *const u64, b) => {
                fork::unheard(areas, Heap::Whole, pass)
            }
            libc::SYS_clone if shares_memory(a as u64) => {
                areas.before_second_process();
                pass()
            }
            libc::SYS_clone3 if clone3_flags(a as *const u64, b).is_some_and(shares_memory) => {
                areas.before_second_process();
                pass()
            }
            _ => pass(),
        }
    };
    long(done)
}

const SYS_MSEAL: c_long = 462;

/// The flags of clone3(2), the first of so many bytes of arguments; nothing if those are too few.
///
/// # Safety
/// As of clone3.
unsafe fn clone3_flags(arguments: *const u64, length: usize) -> Option<u64> {
    let are_there = !arguments.is_null() && length > CLONE3_STACK * size_of::<u64>();
    // SAFETY: the caller's promise; there are so many words.
    are_there.then(|| unsafe { arguments.read() })
}

/// The stack is the sixth argument of clone3(2).
const CLONE3_STACK: usize = 5;

/// Whether clone3(2) with so many bytes of arguments makes a child with memory of its own, which goes on here.
///
/// # Safety
/// As of clone3.
unsafe fn clone3_is_fork(arguments: *const u64, length: usize) -> bool {
    // SAFETY: the caller's promise; where there are flags there is a stack.
    let has_stack = || unsafe { arguments.add(CLONE3_STACK).read() } != 0;
    // SAFETY: the caller's promise.
    let flags = unsafe { clone3_flags(arguments, length) };
    flags.is_some_and(|flags| flags & libc::CLONE_VM as u64 == 0 && !has_stack())
}

fn long(done: Result<usize>) -> c_long {
    answer(done, |value| value as c_long, -1)
}

/// A function of this name in the next library, which is libc's.
#[derive(Debug)]
pub(crate) struct Next {
    name: &'static core::ffi::CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static core::ffi::CStr) -> Self {
        Self { name, found: AtomicPtr::new(core::ptr::null_mut()) }
    }

    pub(crate) fn get(&self) -> Option<*mut c_void> {
        let found = self.found.load(Acquire);
        if !found.is_null() {
            return Some(found);
        }
        let name: *const c_char = self.name.as_ptr();
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
        self.found.store(found, Release);
        (!found.is_null()).then_some(found)
    }
}
