//! A fork finds none of mimalloc's locks held: the child would wait for them for ever.
//!
//! mimalloc takes a lock when a thread begins or ends and when it needs a new arena, never for a block. Each such lock
//! is counted here, and before a fork the count must be zero and stays so.

#![expect(unsafe_code, reason = "stands between mimalloc and its locks")]

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The locks that are held, or [`FORKING`].
static HELD: AtomicU32 = AtomicU32::new(0);
const FORKING: u32 = u32::MAX;
/// The thread that forks. It may allocate meanwhile.
static FORKER: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn __real_pthread_mutex_lock(mutex: *mut libc::pthread_mutex_t) -> c_int;
    fn __real_pthread_mutex_unlock(mutex: *mut libc::pthread_mutex_t) -> c_int;
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = watch_forks;

extern "C" fn watch_forks() {
    // SAFETY: the handlers live as long as the library, which is never unloaded.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
}

/// Before a fork: waits until no lock is held. Who holds one waits for nobody who forks.
extern "C" fn before() {
    while HELD.compare_exchange(0, FORKING, Acquire, Relaxed).is_err() {
        // SAFETY: it takes nothing.
        unsafe { libc::sched_yield() };
    }
    FORKER.store(thread(), Relaxed);
}

/// After a fork, in the parent and in the child.
extern "C" fn after() {
    FORKER.store(0, Relaxed);
    HELD.store(0, Release);
}

fn thread() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// Whether the calling thread forks. A child's number is another, but there its handler comes first.
fn is_forking() -> bool {
    HELD.load(Relaxed) == FORKING && FORKER.load(Relaxed) == thread()
}

/// pthread_mutex_lock(3) for mimalloc.
///
/// # Safety
/// As of pthread_mutex_lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_pthread_mutex_lock(mutex: *mut libc::pthread_mutex_t) -> c_int {
    while !is_forking() {
        let held = HELD.load(Relaxed);
        if held != FORKING && HELD.compare_exchange(held, held + 1, Acquire, Relaxed).is_ok() {
            break;
        }
        // SAFETY: it takes nothing.
        unsafe { libc::sched_yield() };
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
    if !is_forking() {
        HELD.fetch_sub(1, Release);
    }
    done
}
