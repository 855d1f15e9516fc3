//! The ends of threads: what destructors of thread-specific data allocate after mimalloc's own has run.
//!
//! mimalloc gives a thread's memory to others by a destructor of pthread_key_create(3). libc calls destructors in rounds, four
//! at most, and the program's may come later in the last of them: mimalloc makes the thread anew then, and nobody would end it.
//! Each such thread left more than a MiB behind. glibc frees strings of its own after the last destructor, of which a thread
//! hardly ever has one, so its free(3) of no block is the last word of a thread.

#![expect(unsafe_code, reason = "stands between mimalloc and libc's destructors")]

use crate::errno::local;
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

type Destructor = unsafe extern "C" fn(*mut c_void);

unsafe extern "C" {
    /// mimalloc's key.
    static mut _mi_heap_default_key: libc::pthread_key_t;
    fn mi_thread_done();
    fn __real_pthread_key_create(
        key: *mut libc::pthread_key_t,
        destructor: Option<Destructor>,
    ) -> c_int;
}

/// mimalloc's destructor.
static DESTRUCTOR: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

local!(
    /// Whether mimalloc's destructor has run in this thread: it is not zero then.
    fn ends, "superpage_malloc_ends");

/// pthread_key_create(3) for mimalloc.
///
/// # Safety
/// As of pthread_key_create.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_pthread_key_create(
    key: *mut libc::pthread_key_t,
    destructor: Option<Destructor>,
) -> c_int {
    let destructor = match destructor {
        Some(mimallocs) if core::ptr::eq(key, &raw const _mi_heap_default_key) => {
            DESTRUCTOR.store(mimallocs as *mut (), Relaxed);
            Some(end as Destructor)
        }
        others => others,
    };
    // SAFETY: the caller's promise.
    unsafe { __real_pthread_key_create(key, destructor) }
}

/// The destructor in place of mimalloc's.
///
/// # Safety
/// As of that.
unsafe extern "C" fn end(value: *mut c_void) {
    let mimallocs = DESTRUCTOR.load(Relaxed);
    // SAFETY: the number is this thread's; the function was stored before the key was made, and has this type.
    unsafe {
        ends().write(1);
        core::mem::transmute::<*mut (), Destructor>(mimallocs)(value);
    }
}

/// No block was freed: if that was a thread's last word, mimalloc ends the thread.
#[inline]
pub(crate) fn freed_nothing() {
    // SAFETY: the number is this thread's. mimalloc does nothing for a thread that it has ended, and makes the thread anew with
    // its next block.
    unsafe {
        if ends().read() != 0 {
            mi_thread_done();
        }
    }
}
