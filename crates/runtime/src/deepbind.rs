//! Libraries that are loaded with `RTLD_DEEPBIND` (PHP's, Julia's): they look names up in themselves and in libc before they
//! look where everybody else does, so they would find libc's `free` for blocks of `libsuperpage_malloc.so`, and libc's `munmap`
//! for memory in the areas.
//!
//! Before the first such library is loaded, the functions that our libraries take the place of are given our addresses in libc's
//! table of symbols. So whoever looks there finds what everybody else finds. What was looked up before stays, and so do the
//! calls within libc.

#![expect(
    unsafe_code,
    reason = "takes the place of dlopen and dlmopen, and changes libc's table of symbols"
)]
#![cfg_attr(test, allow(dead_code, reason = "only programs call them"))]

use crate::areas::managed;
use crate::pager::handover;
use crate::sys::{self, Errno, PAGE, Span};
use crate::{exec, export};
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_long};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};
use superpage_launch::symbols::{self, Object, Symbol, objects};

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
        "call {before}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before_dlopen,
    )
}

/// dlmopen(3), jumped to as dlopen is.
///
/// # Safety
/// As of dlmopen.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlmopen() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {before}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before_dlmopen,
    )
}

/// With the arguments of dlopen: the address of libc's.
extern "C" fn before_dlopen(_: *const c_char, flags: c_int) -> usize {
    before(flags);
    DLOPEN.get()
}

/// With the arguments of dlmopen: the address of libc's. Another namespace than the program's has a libc of its own, and knows
/// nothing of us.
extern "C" fn before_dlmopen(namespace: c_long, _: *const c_char, flags: c_int) -> usize {
    if namespace == libc::LM_ID_BASE {
        before(flags);
    }
    DLMOPEN.get()
}

/// Before a library is loaded with these flags.
fn before(flags: c_int) {
    if flags & libc::RTLD_DEEPBIND != 0 {
        redirect_once();
    }
}

/// A function of libc that is jumped to.
struct Jump {
    name: &'static CStr,
    own: unsafe extern "C" fn(),
    found: AtomicUsize,
}

static DLOPEN: Jump = Jump::new(c"dlopen", dlopen);
static DLMOPEN: Jump = Jump::new(c"dlmopen", dlmopen);

impl Jump {
    const fn new(name: &'static CStr, own: unsafe extern "C" fn()) -> Self {
        Self { name, own, found: AtomicUsize::new(0) }
    }

    fn get(&self) -> usize {
        match self.found.load(Relaxed) {
            0 => {
                let next = symbols::next(self.name, self.own as *const () as usize);
                let next = next.unwrap_or(nothing as *const () as usize);
                self.found.store(next, Relaxed);
                next
            }
            found => found,
        }
    }
}

/// The dlopen of a process in which no other library has one: it loads nothing.
extern "C" fn nothing() -> usize {
    0
}

/// The thread that redirects; [`NOT_YET`] before, and [`DONE`] after that.
static REDIRECTING: AtomicU32 = AtomicU32::new(NOT_YET);
const NOT_YET: u32 = 0;
const DONE: u32 = u32::MAX;

/// Redirects, or waits for the thread that does.
fn redirect_once() {
    let me = sys::thread();
    loop {
        let state = REDIRECTING.load(Acquire);
        // A signal handler has come in between.
        if state == DONE || state == me {
            return;
        }
        // A fork may have left that thread in the parent.
        if state != NOT_YET && is_of_this_process(state) {
            sys::futex_wait_for(&REDIRECTING, state, sys::LOOK);
        } else if REDIRECTING.compare_exchange(state, me, AcqRel, Acquire).is_ok() {
            redirect();
            REDIRECTING.store(DONE, Release);
            sys::futex_wake(&REDIRECTING);
            return;
        }
    }
}

/// Whether a thread runs in this process.
fn is_of_this_process(thread: u32) -> bool {
    // SAFETY: no signal is sent.
    let asked = unsafe { syscalls::syscall!(syscalls::Sysno::tgkill, sys::process(), thread, 0) };
    asked != Err(Errno::ESRCH)
}

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
    // mimalloc may serve a process in which nothing else of ours does.
    let ours = managed().map(|_| ours);
    // Our functions look up those of libc that they call first: afterwards libc's table would lead them to themselves.
    export::resolve();
    exec::resolve();
    handover::resolve();
    DLOPEN.get();
    DLMOPEN.get();
    let failed = ours.into_iter().chain(malloc).filter(|ours| !lead(libc, *ours));
    if failed.count() > 0 {
        sys::complain(
            "superpage: a library is loaded with RTLD_DEEPBIND, and libc's symbols cannot be changed: if the program \
             crashes, run it with SUPERPAGE_OFF=1\n",
        );
    }
}

/// Has libc's functions be those of another object, where that has one of the same name; whether that could be done.
fn lead(libc: Object, ours: Object) -> bool {
    ours.all_functions().all(|(name, address)| {
        // A library between the two calls libc's by this way, and would come back to us.
        let is_next = symbols::next(name, address) == libc.function(name);
        let value = address.wrapping_sub(libc.base());
        !is_next || libc.functions(name).all(|symbol| write(symbol, value))
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Mmap;

    #[test]
    fn the_value_of_a_symbol_is_written_where_nobody_may_write() {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses an unused place.
        let start = unsafe { sys::mmap(Mmap::anywhere(PAGE, protection, 0)) }.expect("a page");
        let page = Span { start, length: PAGE };
        let symbols = start as *const Symbol;
        for index in [0, 1, 7, PAGE / size_of::<Symbol>() - 1] {
            // SAFETY: the page is the test's, and zero bytes are symbols.
            let symbol = unsafe {
                sys::mprotect(page, libc::PROT_READ).expect("the page is mapped");
                symbols.add(index)
            };
            assert!(write(symbol, 0x1234 + index));
            // SAFETY: the page can be read.
            assert_eq!(unsafe { (*symbol).value }, 0x1234 + index);
            assert!(sys::is_writable(start) != Ok(true), "the page is what it was");
        }
        // SAFETY: the page is the test's.
        let words = unsafe { core::slice::from_raw_parts(start as *const usize, PAGE / 8) };
        assert_eq!(words.iter().filter(|word| **word != 0).count(), 4, "nothing else is written");
        // SAFETY: nobody uses the page any more.
        unsafe { sys::munmap(start, PAGE) }.expect("the page is mapped");
    }

    #[test]
    fn a_symbol_that_cannot_be_written_is_left() {
        // Nothing is ever mapped so low.
        assert!(!write(core::ptr::without_provenance(64), 1));
    }

    #[test]
    fn one_thread_redirects_and_the_others_wait_for_it() {
        before(libc::RTLD_NOW | libc::RTLD_GLOBAL);
        assert_eq!(REDIRECTING.load(Acquire), NOT_YET, "such a library needs nothing");
        let ended = std::thread::spawn(sys::thread).join().expect("it does not panic");
        // The state that a fork leaves whose parent was redirecting in another thread.
        for state in [NOT_YET, ended] {
            REDIRECTING.store(state, Release);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        before(libc::RTLD_NOW | libc::RTLD_DEEPBIND);
                        assert_eq!(REDIRECTING.load(Acquire), DONE);
                    });
                }
            });
        }
        REDIRECTING.store(sys::thread(), Release);
        before(libc::RTLD_DEEPBIND);
        assert_eq!(REDIRECTING.load(Acquire), sys::thread(), "a signal handler does not wait");
        REDIRECTING.store(DONE, Release);
    }

    #[test]
    fn a_thread_of_another_process_is_not_of_this_one() {
        assert!(is_of_this_process(sys::thread()));
        assert!(!is_of_this_process(1), "the first process is not ours");
    }
}
