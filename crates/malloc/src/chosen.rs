//! Which allocator a process has: mimalloc, or the one that it would have without this library.
//!
//! The question comes with the first call, which the dynamic linker makes before any constructor has run. So nothing
//! here allocates, and the environment is read where the kernel has put it.

#![expect(
    unsafe_code,
    reason = "reads the environment from the stack, and calls functions found by name"
)]

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use superpage_launch::{Config, value_in};
use superpage_units::Pid;

const UNKNOWN: u32 = 0;
const OURS: u32 = 1;
const NEXT: u32 = 2;
static CHOSEN: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Whether mimalloc serves this process.
#[inline]
pub(crate) fn is_ours() -> bool {
    match CHOSEN.load(Relaxed) {
        UNKNOWN => choose(),
        chosen => chosen == OURS,
    }
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
    let config = variable().and_then(|text| Config::parse(text.to_str().ok()?));
    config.is_some_and(|config| config.manages(Pid(parent.cast_unsigned()))) && !has_limit()
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

/// Our variable in the environment that the process began with.
fn variable() -> Option<&'static CStr> {
    // SAFETY: the linker sets it before it calls anything, and the kernel has put a number there, so many words and
    // a null pointer, and the environment, which ends with a null pointer. Nobody moves it.
    unsafe {
        let mut entry = __libc_stack_end.add(1 + *__libc_stack_end + 1).cast::<*const c_char>();
        while !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes_with_nul();
            if let Some(value) = value_in(text) {
                return CStr::from_bytes_with_nul(value).ok();
            }
            entry = entry.add(1);
        }
    }
    None
}

/// Whether this symbol is defined anywhere in the process: the linker has put zero in its place otherwise, before
/// the first call comes.
macro_rules! is_defined {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: it reads a word of the library's table of addresses.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(nostack, readonly, preserves_flags),
            );
        }
        address != 0
    }};
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
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Its address. glibc has all that are asked for, and looking for what is there allocates nothing.
    pub(crate) fn get(&self) -> *mut c_void {
        let mut found = self.found.load(Relaxed);
        if found.is_null() {
            // SAFETY: the name ends with a zero.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Relaxed);
        }
        found
    }
}
