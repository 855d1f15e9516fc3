//! Which allocator a process has: mimalloc, or the one that it would have without this library.
//!
//! The question comes with the first call, which the dynamic linker makes before any constructor has run. So nothing
//! here allocates, and the environment is read where the kernel has put it.

#![expect(
    unsafe_code,
    reason = "reads the environment from the stack, and calls functions found by name"
)]

use crate::export;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use superpage_launch::{
    Config, VARIABLE, is_defined, is_instrumented, is_kept_out, symbols, variable,
};
use superpage_units::Pid;

const UNKNOWN: u32 = 0;
const OURS: u32 = 1;
const NEXT: u32 = 2;
/// mimalloc has served this process, and no more blocks come of it.
const NEXT_FROM_NOW_ON: u32 = 3;
static CHOSEN: AtomicU32 = AtomicU32::new(UNKNOWN);

unsafe extern "C" {
    fn mi_is_in_heap_region(block: *const c_void) -> bool;
}

/// Whether mimalloc is known to serve this process, and serves it alone: the one question on the way of a block.
#[inline]
pub(crate) fn is_known_ours() -> bool {
    CHOSEN.load(Relaxed) == OURS
}

/// Whether a new block comes of mimalloc.
pub(crate) fn is_ours() -> bool {
    match CHOSEN.load(Relaxed) {
        UNKNOWN => choose(),
        chosen => chosen == OURS,
    }
}

/// Whether a block is mimalloc's, or none and a new one would be.
pub(crate) fn has(block: *const c_void) -> bool {
    match CHOSEN.load(Relaxed) {
        UNKNOWN => choose(),
        // SAFETY: it only asks, of whatever address.
        NEXT_FROM_NOW_ON => unsafe { mi_is_in_heap_region(block) },
        chosen => chosen == OURS,
    }
}

/// Has new blocks come of the next library from now on; whether mimalloc served the process before.
pub(crate) fn leave_to_next() -> bool {
    CHOSEN.compare_exchange(OURS, NEXT_FROM_NOW_ON, Relaxed, Relaxed).is_ok()
}

/// Whether the next library serves blocks that come now, beside those of mimalloc.
pub(crate) fn is_left_to_next() -> bool {
    CHOSEN.load(Relaxed) == NEXT_FROM_NOW_ON
}

/// For `libsuperpage.so`, which leads libc's table of symbols to these functions then: whether mimalloc serves this process.
#[unsafe(no_mangle)]
extern "C" fn superpage_malloc_is_ours() -> bool {
    export::resolve();
    is_ours()
}

/// The answer is the same whoever asks, so two threads may ask at once.
#[cold]
fn choose() -> bool {
    let is_ours = !has_another() && is_managed();
    CHOSEN.store(if is_ours { OURS } else { NEXT }, Relaxed);
    is_ours
}

/// Whether this process is one that `superpage run` wants managed: a child of the program has the environment too.
fn is_managed() -> bool {
    // SAFETY: it takes nothing and cannot fail.
    let parent = unsafe { libc::getppid() };
    let environment = environment();
    // SAFETY: the kernel has put it on the stack, and nobody moves it.
    let (text, is_out) = unsafe {
        let is_out = is_kept_out(environment) || is_instrumented(environment);
        (variable(environment, VARIABLE), is_out)
    };
    let config = text.and_then(|text| Config::parse(text.to_str().ok()?));
    let is_managed = config.is_some_and(|config| config.manages(Pid(parent.cast_unsigned())));
    is_managed && !is_out && !has_limit()
}

/// Whether a limit stands against address space or data: `libsuperpage.so` manages nothing then, and arenas would count.
fn has_limit() -> bool {
    [libc::RLIMIT_AS, libc::RLIMIT_DATA].into_iter().any(|resource| {
        let none = libc::RLIM_INFINITY;
        let mut limit = libc::rlimit { rlim_cur: none, rlim_max: none };
        // SAFETY: it fills the structure.
        unsafe { libc::getrlimit(resource, &raw mut limit) };
        limit.rlim_cur != none
    })
}

unsafe extern "C" {
    /// The dynamic linker's: the number of arguments as the kernel put it on the stack, with the arguments and the
    /// environment behind it.
    static __libc_stack_end: *const usize;
}

/// The environment that the process began with.
fn environment() -> *const *const c_char {
    // SAFETY: the linker sets it before it calls anything, and the kernel has put a number there, so many words and
    // a null pointer, and the environment.
    unsafe { __libc_stack_end.add(1 + *__libc_stack_end + 1).cast() }
}

/// Whether the program brings an allocator with functions beside C's, which take what that allocator's malloc gave:
/// jemalloc, tcmalloc, mimalloc. A program that defines malloc itself never calls ours.
fn has_another() -> bool {
    // mimalloc's own names are this library's too; its shared library has this one more.
    is_defined!("mallctl")
        || is_defined!("mallocx")
        || is_defined!("sdallocx")
        || is_defined!("tc_malloc")
        || is_defined!("malloc_good_size")
}

/// A function of this name in the next library that has one.
#[derive(Debug)]
pub(crate) struct Next {
    name: &'static CStr,
    /// This library's own function of the name.
    own: AtomicPtr<()>,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr, own: *const ()) -> Self {
        let found = AtomicPtr::new(core::ptr::null_mut());
        Self { name, own: AtomicPtr::new(own.cast_mut()), found }
    }

    /// Its address. glibc has all that are asked for.
    pub(crate) fn get(&self) -> *mut c_void {
        let own = self.own.load(Relaxed).addr();
        let mut found = self.found.load(Relaxed);
        if found.is_null() {
            found = symbols::next(self.name, own).unwrap_or(0) as *mut c_void;
            self.found.store(found, Relaxed);
        }
        found
    }
}
