//! `libsuperpage_c.so`: memory on chosen pages for C, as `include/superpage.h` documents it. Each function here is that header's,
//! and checks what it is given before it uses [`superpage_array`].

#![expect(unsafe_code, reason = "functions for C, and what they are given")]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError};
use superpage_array::{PageArray, Pages, Placement, Request, Shortfall};

/// SUPERPAGE_REQUIRE.
const REQUIRE: c_uint = 1;

/// `struct superpage_placement`.
#[repr(C)]
#[derive(Debug)]
pub struct SuperpagePlacement {
    base: u64,
    huge: u64,
    gigantic: u64,
    swapped: u64,
    absent: u64,
}

thread_local! {
    static ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// The memory that was given out, by its address.
static GIVEN: LazyLock<Mutex<Given>> = LazyLock::new(Mutex::default);

/// Arrays by address.
type Given = HashMap<usize, PageArray<u8>>;

fn given() -> MutexGuard<'static, Given> {
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The lock of [`GIVEN`] while this thread forks, boxed, so that no other thread has it in the child.
    static HELD: Cell<*mut MutexGuard<'static, Given>> = const { Cell::new(std::ptr::null_mut()) };
}

/// Has forks take the lock. A child without that could wait for it for ever.
fn hold_in_forks() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handlers are functions of this library, with which libc forgets them.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
    });
}

extern "C" fn before_fork() {
    HELD.set(Box::into_raw(Box::new(given())));
}

extern "C" fn after_fork() {
    let held = HELD.replace(std::ptr::null_mut());
    if !held.is_null() {
        // SAFETY: only `before_fork` puts something there, a box that nobody else has.
        drop(unsafe { Box::from_raw(held) });
    }
}

/// Notes the sentence that `superpage_error` returns.
fn failed(what: impl ToString) {
    let text = CString::new(what.to_string().replace('\0', " ")).unwrap_or_default();
    ERROR.with_borrow_mut(|error| *error = text);
}

/// The return value of a C function: 0, or -1 after the error was noted.
fn answer<E: ToString>(done: Result<(), E>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(what) => {
            failed(what);
            -1
        }
    }
}

/// `superpage_alloc`.
///
/// # Safety
/// `pages` must be NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn superpage_alloc(
    length: usize,
    pages: *const c_char,
    flags: c_uint,
) -> *mut c_void {
    if pages.is_null() {
        failed("no pages were said: say base, huge, gigantic or such as huge:20%");
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    let pages = unsafe { CStr::from_ptr(pages) }.to_string_lossy();
    match allocate(length, &pages, flags) {
        Ok(memory) => memory,
        Err(what) => {
            failed(what);
            std::ptr::null_mut()
        }
    }
}

fn allocate(length: usize, pages: &str, flags: c_uint) -> Result<*mut c_void, String> {
    if length == 0 {
        return Err("a length of 0 is no memory: say how many bytes".to_owned());
    }
    if flags & !REQUIRE != 0 {
        return Err(format!("the flags {flags:#x} are not known: say 0 or SUPERPAGE_REQUIRE"));
    }
    let pages: Pages =
        pages.parse().map_err(|error: superpage_array::pages::NoPages| error.to_string())?;
    let shortfall = if flags & REQUIRE == 0 { Shortfall::Allowed } else { Shortfall::Refused };
    let request = Request { pages, shortfall };
    let mut memory = PageArray::<u8>::zeroed(length, request).map_err(|error| error.to_string())?;
    let start = memory.as_mut_ptr();
    hold_in_forks();
    given().insert(start.addr(), memory);
    Ok(start.cast())
}

/// `superpage_free`.
///
/// # Safety
/// Nobody may use the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn superpage_free(memory: *mut c_void) -> c_int {
    if memory.is_null() {
        return 0;
    }
    // The array is dropped after the lock is given back.
    let found = given().remove(&memory.addr());
    answer(
        found
            .map(drop)
            .ok_or("superpage_alloc has not returned this address, or it was given back before"),
    )
}

/// `superpage_pages`.
///
/// # Safety
/// `placement` must be NULL or room for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn superpage_pages(
    memory: *const c_void,
    length: usize,
    placement: *mut SuperpagePlacement,
) -> c_int {
    let found = there(memory)
        .and_then(|address| Placement::at(address, length).map_err(|error| error.to_string()));
    answer(found.map(|found| {
        let Placement { base, huge, gigantic, swapped, absent } = found;
        let found = SuperpagePlacement {
            base: base.0,
            huge: huge.0,
            gigantic: gigantic.0,
            swapped: swapped.0,
            absent: absent.0,
        };
        if !placement.is_null() {
            // SAFETY: the caller's promise.
            unsafe { placement.write(found) };
        }
    }))
}

/// `superpage_collapse`.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_collapse(memory: *mut c_void, length: usize) -> c_int {
    let done = there(memory).and_then(|address| {
        superpage_array::collapse_at(address, length).map_err(|error| error.to_string())
    });
    answer(done)
}

/// The address of memory that is neither read nor written here.
fn there(memory: *const c_void) -> Result<usize, String> {
    if memory.is_null() { Err("NULL is no memory".to_owned()) } else { Ok(memory.addr()) }
}

/// `superpage_error`.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_error() -> *const c_char {
    ERROR.with_borrow(|error| error.as_ptr())
}
