//! mimalloc's locks, which no fork finds held by another thread: the child would wait for them for ever.
//!
//! mimalloc takes a lock when a thread begins or ends and when it needs a new arena, never for a block. Each thread that has or
//! wants one is inside of a [`Gate`], which is closed before a fork. The handlers of forks that libraries have may allocate, or
//! wait for who does, so the gate is closed after theirs: `libsuperpage.so` does it, whose own handlers are the last before a
//! fork and the first after it.

#![expect(unsafe_code, reason = "stands between mimalloc and its locks")]

use crate::errno;
use crate::gate::{Gate, Kernel};
use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use std::io;

static GATE: Gate = Gate::new();

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

extern "C" fn before() {
    GATE.close(&Running);
}

extern "C" fn after() {
    GATE.open(&Running);
}

/// The kernel that this process runs on.
#[derive(Debug)]
struct Running;

/// Each round of a wait sleeps for 50 µs, so that a thread of higher priority waits for one of lower priority on the same CPU. That is the
/// kernel's timer slack, by which any sleep may last longer. Forks beside two threads that begin and join threads took 196 µs in the
/// mean with this, 204 µs with 200 µs and 353 µs with 1 ms (medians of seven interleaved runs of 400 forks on two CPUs).
const SLEEP: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };

impl Kernel for Running {
    fn thread(&self) -> u32 {
        // SAFETY: it takes nothing.
        unsafe { libc::gettid() }.cast_unsigned()
    }

    fn process(&self) -> u32 {
        // SAFETY: it takes nothing.
        unsafe { libc::getpid() }.cast_unsigned()
    }

    fn runs(&self, thread: u32) -> bool {
        let process = self.process();
        let no_signal = 0;
        // SAFETY: it only asks.
        let asked = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, no_signal) };
        // A filter of calls may refuse to say.
        let has_ended =
            asked != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        // The first thread of a process that has ended is kept by the kernel while others run.
        !(has_ended || thread == process && first_thread_has_ended())
    }

    fn give_way(&self) {
        // A futex that nobody wakes: programs whose filters of system calls forbid to sleep have locks.
        static NEVER: AtomicU32 = AtomicU32::new(0);
        let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the wait ends by its time.
        unsafe { libc::syscall(libc::SYS_futex, NEVER.as_ptr(), wait, 0, &SLEEP) };
    }
}

/// Whether the first thread has ended while others run. Where /proc does not say, it runs.
fn first_thread_has_ended() -> bool {
    let mut text = [0_u8; 1024];
    // SAFETY: the path is a string, and the buffer has room for what is read.
    let length = errno::apart(|| unsafe {
        let file = libc::open(c"/proc/self/stat".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        if file >= 0 {
            libc::close(file);
        }
        length
    });
    let text = text.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
    state(text) == Some(b'Z')
}

/// The state in a file `stat`, which is behind the name in brackets; the name may have brackets too.
fn state(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

/// pthread_mutex_lock(3) for mimalloc.
///
/// # Safety
/// As of pthread_mutex_lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_pthread_mutex_lock(mutex: *mut libc::pthread_mutex_t) -> c_int {
    GATE.enter(&Running);
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
    GATE.leave(&Running);
    done
}
