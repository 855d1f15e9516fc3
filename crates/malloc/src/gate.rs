//! A fork finds none of mimalloc's locks held: the child would wait for them for ever.
//!
//! mimalloc takes a lock when a thread begins or ends and when it needs a new arena, never for a block. Each such lock
//! is counted here, and before a fork the count must be zero and stays so. The handlers of forks that libraries have
//! may allocate, or wait for who does, so this comes after theirs: `libsuperpage.so` calls it, whose own handlers are
//! the last before a fork and the first after it.

#![expect(unsafe_code, reason = "stands between mimalloc and its locks")]

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// The locks that are held, or [`FORKING`].
static HELD: AtomicU32 = AtomicU32::new(0);
const FORKING: u32 = u32::MAX;

/// A fork waits no longer than this. A signal handler that forks may have interrupted who holds a lock, and waits for
/// itself; its child goes on with the lock held as its parent does, and gives it back.
const PATIENCE: Duration = Duration::from_secs(1);

unsafe extern "C" {
    fn __real_pthread_mutex_lock(mutex: *mut libc::pthread_mutex_t) -> c_int;
    fn __real_pthread_mutex_unlock(mutex: *mut libc::pthread_mutex_t) -> c_int;
    /// A function of `libsuperpage.so`, which is told what to call before each fork, and after it in the parent and in
    /// the child.
    fn superpage_watch_forks(before: extern "C" fn(), after: extern "C" fn());
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = watch_forks;

extern "C" fn watch_forks() {
    // SAFETY: the functions live as long as the library, which is never unloaded.
    unsafe { superpage_watch_forks(before, after) };
}

/// The thread that forks, as long as it does.
static FORKER: AtomicU32 = AtomicU32::new(0);

/// Whether the thread that forks has ended meanwhile: the kernel may end one alone (seccomp).
fn forker_has_ended() -> bool {
    let forker = FORKER.load(Relaxed);
    // SAFETY: it only asks.
    let asked = unsafe { libc::syscall(libc::SYS_sched_getscheduler, forker) };
    // SAFETY: errno is the calling thread's.
    forker != 0 && asked == -1 && unsafe { *libc::__errno_location() } == libc::ESRCH
}

/// The handler before a fork: it waits until no lock is held.
extern "C" fn before() {
    // SAFETY: it takes nothing.
    FORKER.store(unsafe { libc::gettid() }.cast_unsigned(), Relaxed);
    if HELD.compare_exchange(0, FORKING, Acquire, Relaxed).is_ok() {
        return;
    }
    let begun = Instant::now();
    while HELD.compare_exchange(0, FORKING, Acquire, Relaxed).is_err() {
        if begun.elapsed() > PATIENCE {
            return;
        }
        give_way();
    }
}

/// After a fork, in the parent and in the child.
extern "C" fn after() {
    FORKER.store(0, Relaxed);
    let _ = HELD.compare_exchange(FORKING, 0, Release, Relaxed);
}

fn give_way() {
    // SAFETY: it takes nothing.
    unsafe { libc::sched_yield() };
}

/// pthread_mutex_lock(3) for mimalloc.
///
/// # Safety
/// As of pthread_mutex_lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_pthread_mutex_lock(mutex: *mut libc::pthread_mutex_t) -> c_int {
    let mut begun = None;
    loop {
        let held = HELD.load(Relaxed);
        if held != FORKING && HELD.compare_exchange(held, held + 1, Acquire, Relaxed).is_ok() {
            break;
        }
        if held == FORKING
            && begun.get_or_insert_with(Instant::now).elapsed() > PATIENCE
            && forker_has_ended()
        {
            after();
        }
        give_way();
    }
    // SAFETY: the caller's promise.
    unsafe { __real_pthread_mutex_lock(mutex) }
}

/// pthread_mutex_unlock(3) for mimalloc.
///
/// # Safety
/// As of pthread_mutex_unlock.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_pthread_mutex_unlock(mutex: *mut libc::pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { __real_pthread_mutex_unlock(mutex) };
    HELD.fetch_sub(1, Release);
    done
}
