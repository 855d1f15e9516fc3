//! errno: what succeeds leaves the program's as it was, whatever the kernel refused mimalloc meanwhile.
//!
//! mimalloc asks the kernel for things that it can do without (names of mappings, memory in larger pieces, memory given back),
//! and looks at errno then. So it has an errno of its own: its calls of the kernel come here (`build.rs`), which leaves the
//! program's alone. Nothing of this is on the way of a block that needs no call of the kernel.
//!
//! The linker leads all of this library's calls of `__errno_location` here, so nothing in it may look at errno after a call
//! that is not among these.

#![expect(unsafe_code, reason = "stands between mimalloc and the kernel")]

use core::ffi::{c_int, c_long, c_ulong, c_void};

unsafe extern "C" {
    fn __real___errno_location() -> *mut c_int;
    fn __real_munmap(address: *mut c_void, length: usize) -> c_int;
    fn __real_madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    fn __real_mprotect(address: *mut c_void, length: usize, protection: c_int) -> c_int;
    fn __real_prctl(what: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    fn __real_syscall(
        call: c_long,
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        e: usize,
        f: usize,
    ) -> c_long;
}

/// A function that finds the calling thread's number of this name, which begins as zero. The number lives as long as the thread,
/// and is found without a call of the dynamic linker, which may allocate: the initial-exec model, for a library that is there when
/// the program begins.
macro_rules! local {
    ($(#[$doc:meta])* $visible:vis fn $name:ident, $symbol:literal) => {
        core::arch::global_asm!(
            concat!(".section .tbss.", $symbol, ", \"awT\", @nobits"),
            concat!(".globl ", $symbol),
            concat!(".hidden ", $symbol),
            concat!(".type ", $symbol, ", @object"),
            concat!(".size ", $symbol, ", 4"),
            ".p2align 2",
            concat!($symbol, ":"),
            ".zero 4",
            ".text",
        );

        $(#[$doc])*
        #[inline]
        $visible fn $name() -> *mut core::ffi::c_int {
            let place;
            // SAFETY: it reads the distance of the number from the thread pointer, and that pointer.
            unsafe {
                core::arch::asm!(
                    concat!("mov {place}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "add {place}, qword ptr fs:[0]",
                    place = out(reg) place,
                    options(nostack, readonly, pure),
                );
            }
            place
        }
    };
}

pub(crate) use local;

local!(
    /// mimalloc's errno.
    fn own, "superpage_malloc_errno");

/// mimalloc's errno, where it looks for the program's.
#[unsafe(no_mangle)]
extern "C" fn __wrap___errno_location() -> *mut c_int {
    own()
}

/// Sets the program's errno.
#[cold]
pub(crate) fn set(errno: c_int) {
    // SAFETY: errno is the calling thread's.
    unsafe { *__real___errno_location() = errno };
}

/// Makes a call that may set errno; only mimalloc's is set.
pub(crate) fn apart<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: both are the calling thread's, as long as it lives.
    unsafe {
        let (programs, own) = (__real___errno_location(), own());
        let before = programs.read();
        let done = call();
        own.write(programs.read());
        programs.write(before);
        done
    }
}

/// munmap(2) for mimalloc.
///
/// # Safety
/// As of munmap.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_munmap(address: *mut c_void, length: usize) -> c_int {
    // SAFETY: the caller's promise.
    apart(|| unsafe { __real_munmap(address, length) })
}

/// madvise(2) for mimalloc.
///
/// # Safety
/// As of madvise.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int {
    // SAFETY: the caller's promise.
    apart(|| unsafe { __real_madvise(address, length, advice) })
}

/// mprotect(2) for mimalloc.
///
/// # Safety
/// As of mprotect.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_mprotect(
    address: *mut c_void,
    length: usize,
    protection: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    apart(|| unsafe { __real_mprotect(address, length, protection) })
}

/// prctl(2) for mimalloc, which names its mappings.
///
/// # Safety
/// As of prctl.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_prctl(
    what: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    // SAFETY: the caller's promise.
    apart(|| unsafe { __real_prctl(what, a, b, c, d) })
}

/// syscall(2) for mimalloc, which reads files of the kernel's by it.
///
/// # Safety
/// As of the call.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_syscall(
    call: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller's promise.
    apart(|| unsafe { __real_syscall(call, a, b, c, d, e, f) })
}
