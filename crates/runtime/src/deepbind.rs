//! Libraries that are loaded with `RTLD_DEEPBIND` (PHP's, Julia's): they look names up in themselves and in libc before they
//! look where everybody else does, so they would find libc's `free` for blocks of `libsuperpage_malloc.so`, and libc's `munmap`
//! for memory in the areas.
//!
//! Before the first such library is loaded, the functions that our libraries take the place of are given our addresses in libc's
//! table of symbols. So whoever looks there finds what everybody else finds. What was looked up before stays, and so do the
//! calls within libc.

#![expect(unsafe_code, reason = "takes the place of dlopen, and changes libc's table of symbols")]
#![cfg_attr(test, allow(dead_code, reason = "only programs call them"))]

use crate::areas::areas;
use crate::sys::{self, PAGE, Span};
use core::arch::naked_asm;
use core::ffi::{CStr, c_int};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};
use superpage_launch::symbols::{self, Object, Symbol, objects};

/// The functions of `libsuperpage.so` that libc has too.
const OURS: [&CStr; 37] = [
    c"mmap",
    c"mmap64",
    c"munmap",
    c"mremap",
    c"mprotect",
    c"pkey_mprotect",
    c"madvise",
    c"posix_madvise",
    c"process_madvise",
    c"mseal",
    c"remap_file_pages",
    c"shmat",
    c"shmdt",
    c"mlock",
    c"mlock2",
    c"mlockall",
    c"setrlimit",
    c"setrlimit64",
    c"prlimit",
    c"prlimit64",
    c"getrlimit",
    c"getrlimit64",
    c"execve",
    c"execv",
    c"execvp",
    c"execvpe",
    c"posix_spawn",
    c"posix_spawnp",
    c"clone",
    c"pthread_create",
    c"thrd_create",
    c"pthread_attr_setstack",
    c"daemon",
    c"forkpty",
    c"fork",
    c"_Fork",
    c"syscall",
];

/// The functions of `libsuperpage_malloc.so`.
const MALLOC: [&CStr; 12] = [
    c"malloc",
    c"calloc",
    c"realloc",
    c"reallocarray",
    c"free",
    c"memalign",
    c"aligned_alloc",
    c"posix_memalign",
    c"valloc",
    c"pvalloc",
    c"malloc_usable_size",
    c"malloc_trim",
];

/// The function by which `libsuperpage_malloc.so` says whether its malloc is the process's.
const ASKED: &CStr = c"superpage_malloc_is_ours";

/// dlopen(3). libc's looks at who calls it, for the paths that are searched and for the namespace: so it is jumped to.
///
/// # Safety
/// As of dlopen.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlopen() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov edi, esi",
        "call {before}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before,
    )
}

/// Before a library is loaded with these flags: the address of libc's dlopen.
extern "C" fn before(flags: c_int) -> usize {
    let is_deep = flags & libc::RTLD_DEEPBIND != 0 && areas().is_some();
    if is_deep && !REDIRECTED.swap(true, Relaxed) {
        redirect();
    }
    match NEXT.load(Relaxed) {
        0 => {
            let next = symbols::next(c"dlopen", dlopen as *const () as usize);
            let next = next.unwrap_or(nothing as *const () as usize);
            NEXT.store(next, Relaxed);
            next
        }
        next => next,
    }
}

/// The dlopen of a process in which no other library has one: it loads nothing.
extern "C" fn nothing() -> usize {
    0
}

static NEXT: AtomicUsize = AtomicUsize::new(0);
static REDIRECTED: AtomicBool = AtomicBool::new(false);

/// Has libc's table of symbols lead to our functions.
fn redirect() {
    let libc = objects().find(|object| object.function(c"gnu_get_libc_version").is_some());
    let ours =
        objects().find(|object| object.function(c"dlopen") == Some(dlopen as *const () as usize));
    let (Some(libc), Some(ours)) = (libc, ours) else { return };
    let malloc = objects().find(|object| object.function(ASKED).is_some()).filter(|malloc| {
        let asked = malloc.function(ASKED).unwrap_or(0);
        // SAFETY: it is that library's function, which takes nothing.
        let is_ours = unsafe { core::mem::transmute::<usize, extern "C" fn() -> bool>(asked)() };
        // A program with a malloc of its own has libc's for such libraries.
        is_ours && objects().find_map(|object| object.function(c"free")) == malloc.function(c"free")
    });
    let functions = OURS.map(|name| (ours, name));
    let of_malloc = malloc.into_iter().flat_map(|malloc| MALLOC.map(|name| (malloc, name)));
    let is_done = functions.into_iter().chain(of_malloc).all(|(ours, name)| lead(libc, ours, name));
    if !is_done {
        sys::complain(
            "superpage: a library is loaded with RTLD_DEEPBIND, and libc's symbols cannot be changed: if the program \
             crashes, run it with SUPERPAGE_OFF=1\n",
        );
    }
}

/// Has libc's functions of a name be that of another object; whether that is so, or none of theirs is to be changed.
fn lead(libc: Object, ours: Object, name: &CStr) -> bool {
    let Some(address) = ours.function(name) else { return true };
    // A library between the two calls libc's by this way, and would come back to us.
    if symbols::next(name, address) != libc.function(name) {
        return true;
    }
    let value = address.wrapping_sub(libc.base());
    libc.functions(name).all(|symbol| write(symbol, value))
}

/// Writes the value of a symbol of libc's; whether that could be done.
fn write(symbol: *const Symbol, value: usize) -> bool {
    // SAFETY: the symbol is in libc's table; only its address is taken.
    let place = unsafe { &raw const (*symbol).value }.cast_mut();
    let start = place.addr() & !(PAGE - 1);
    let pages = Span { start, length: PAGE };
    // SAFETY: libc's table of symbols is private memory of a file that is read by the linker alone; a word of it is written at
    // once, and the pages are what they were again.
    unsafe {
        if sys::mprotect(pages, libc::PROT_READ | libc::PROT_WRITE).is_err() {
            return false;
        }
        place.write_volatile(value);
        let _ = sys::mprotect(pages, libc::PROT_READ);
    }
    true
}
