//! `libsuperpage_c.so`: memory on chosen pages for C, as `include/superpage.h` documents it. Each function here is that header's,
//! and checks what it is given before it uses [`superpage_array`].
//!
//! The library's SONAME has a number (`build.rs`) that changes with each change after which a program would have to be compiled
//! anew. A structure of the header may grow without that: it says its own size.

#![expect(unsafe_code, reason = "functions for C, and what they are given")]

mod call;

use call::{Failure, answer, call};
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError};
use superpage_array::{Bytes, PageArray, Pages, Placement, Request, Shortfall};

/// SUPERPAGE_REQUIRE.
const REQUIRE: c_uint = 1;

/// `struct superpage_placement`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct SuperpagePlacement {
    size: u64,
    base: u64,
    huge: u64,
    gigantic: u64,
    swapped: u64,
    absent: u64,
}

/// The sizes that a caller's `struct superpage_placement` may have: that of the first that there was, and more than a
/// later one will have.
const PLACEMENT_SIZES: std::ops::RangeInclusive<u64> = 48..=1024;

/// An array that was given out, and how it was asked for.
#[derive(Debug)]
struct Array {
    memory: PageArray<u8>,
    request: Request,
    alignment: usize,
}

/// The memory that was given out, by its address.
static GIVEN: LazyLock<Mutex<Given>> = LazyLock::new(Mutex::default);

/// Arrays by address.
type Given = HashMap<usize, Array>;

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

/// `superpage_version`.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_version() -> c_uint {
    VERSION
}

/// SUPERPAGE_VERSION.
const VERSION: c_uint = 10_000 * number(env!("CARGO_PKG_VERSION_MAJOR"))
    + 100 * number(env!("CARGO_PKG_VERSION_MINOR"))
    + number(env!("CARGO_PKG_VERSION_PATCH"));

/// A decimal number.
const fn number(text: &str) -> c_uint {
    match c_uint::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("a part of a version is a number"),
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
    // SAFETY: the caller's promise.
    unsafe { superpage_aligned_alloc(1, length, pages, flags) }
}

/// `superpage_aligned_alloc`.
///
/// # Safety
/// `pages` must be NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn superpage_aligned_alloc(
    alignment: usize,
    length: usize,
    pages: *const c_char,
    flags: c_uint,
) -> *mut c_void {
    let allocate = || {
        if pages.is_null() {
            let none = "no pages were said: say base, huge, gigantic or such as huge:20%";
            return Err(Failure::invalid(none));
        }
        // SAFETY: the caller's promise.
        let pages = unsafe { CStr::from_ptr(pages) }.to_string_lossy();
        give(Array::new(length, request(&pages, flags)?, alignment)?)
    };
    call(allocate).unwrap_or(std::ptr::null_mut())
}

/// `superpage_realloc`.
///
/// # Safety
/// Nobody else may use the memory meanwhile, or its old address later where another one is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn superpage_realloc(memory: *mut c_void, length: usize) -> *mut c_void {
    call(|| resize(memory, length)).unwrap_or(std::ptr::null_mut())
}

fn request(pages: &str, flags: c_uint) -> Result<Request, Failure> {
    if flags & !REQUIRE != 0 {
        let unknown = format!("the flags {flags:#x} are not known: say 0 or SUPERPAGE_REQUIRE");
        return Err(Failure::invalid(unknown));
    }
    let pages: Pages = pages
        .parse()
        .map_err(|error: superpage_array::pages::NoPages| Failure::invalid(error.to_string()))?;
    let shortfall = if flags & REQUIRE == 0 { Shortfall::Allowed } else { Shortfall::Refused };
    Ok(Request { pages, shortfall })
}

impl Array {
    fn new(length: usize, request: Request, alignment: usize) -> Result<Self, Failure> {
        if length == 0 {
            return Err(Failure::invalid("a length of 0 is no memory: say how many bytes"));
        }
        let memory = PageArray::aligned(length, request, Bytes(alignment as u64))?;
        Ok(Self { memory, request, alignment })
    }
}

/// Notes an array as given out; its address.
fn give(mut array: Array) -> Result<*mut c_void, Failure> {
    let start = array.memory.as_mut_ptr();
    hold_in_forks();
    given().insert(start.addr(), array);
    Ok(start.cast())
}

/// Takes an array back.
fn take(memory: *mut c_void) -> Result<Array, Failure> {
    let unknown = "superpage_alloc has not returned this address, or it was given back before";
    given().remove(&memory.addr()).ok_or_else(|| Failure::invalid(unknown))
}

fn resize(memory: *mut c_void, length: usize) -> Result<*mut c_void, Failure> {
    if memory.is_null() {
        return Err(Failure::invalid("NULL is no memory: superpage_alloc says which pages"));
    }
    let mut old = take(memory)?;
    if (1..=old.memory.len()).contains(&length) {
        old.memory.truncate(length);
        return give(old);
    }
    match Array::new(length, old.request, old.alignment) {
        Ok(mut new) => {
            new.memory[..old.memory.len()].copy_from_slice(&old.memory);
            give(new)
        }
        Err(failure) => {
            give(old)?;
            Err(failure)
        }
    }
}

/// `superpage_free`.
///
/// # Safety
/// Nobody may use the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn superpage_free(memory: *mut c_void) -> c_int {
    // The array is dropped after the lock is given back.
    answer(|| if memory.is_null() { Ok(()) } else { take(memory).map(drop) })
}

/// `superpage_pages`.
///
/// # Safety
/// `placement` must be NULL or point to a structure as long as its first member says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn superpage_pages(
    memory: *const c_void,
    length: usize,
    placement: *mut SuperpagePlacement,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let size = unsafe { size_of_placement(placement) }?;
        let Placement { base, huge, gigantic, swapped, absent } =
            Placement::at(there(memory)?, length)?;
        let found = SuperpagePlacement {
            size: size as u64,
            base: base.0,
            huge: huge.0,
            gigantic: gigantic.0,
            swapped: swapped.0,
            absent: absent.0,
        };
        if !placement.is_null() {
            // SAFETY: the caller's structure has this length.
            unsafe { fill(placement, &found, size) };
        }
        Ok(())
    })
}

/// The size that the caller's structure says it has.
///
/// # Safety
/// As of `superpage_pages`.
unsafe fn size_of_placement(placement: *const SuperpagePlacement) -> Result<usize, Failure> {
    if placement.is_null() {
        return Ok(0);
    }
    const { assert!(offset_of!(SuperpagePlacement, size) == 0) };
    // SAFETY: the first member is there in structures of each size.
    let size = unsafe { placement.cast::<u64>().read() };
    let is_possible = PLACEMENT_SIZES.contains(&size) && size.is_multiple_of(8);
    usize::try_from(size).ok().filter(|_| is_possible).ok_or_else(|| {
        Failure::invalid(format!(
            "a struct superpage_placement has no size of {size}: set its size to sizeof it"
        ))
    })
}

/// Fills the caller's structure: what this library does not know yet with zeroes, what the caller does not know yet not at all.
///
/// # Safety
/// The structure is `size` bytes long.
unsafe fn fill(placement: *mut SuperpagePlacement, found: &SuperpagePlacement, size: usize) {
    let known = size.min(size_of::<SuperpagePlacement>());
    let to = placement.cast::<u8>();
    // SAFETY: the caller's promise; both have `known` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const *found).cast::<u8>(), to, known);
        to.add(known).write_bytes(0, size - known);
    }
}

/// `superpage_collapse`.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_collapse(memory: *mut c_void, length: usize) -> c_int {
    answer(|| Ok(superpage_array::collapse_at(there(memory)?, length)?))
}

/// The address of memory that is neither read nor written here.
fn there(memory: *const c_void) -> Result<usize, Failure> {
    if memory.is_null() { Err(Failure::invalid("NULL is no memory")) } else { Ok(memory.addr()) }
}

/// `superpage_error`.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_error() -> *const c_char {
    call::sentence()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../include/superpage.h");

    #[test]
    fn the_header_has_this_version() {
        for (name, number) in [
            ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
            ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
            ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
        ] {
            let line = format!("#define SUPERPAGE_VERSION_{name} {number}\n");
            assert!(HEADER.contains(&line), "{line}");
        }
    }

    #[test]
    fn structures_of_other_sizes_are_filled_as_far_as_both_sides_know() {
        let found = SuperpagePlacement { size: 56, base: 1, absent: 5, ..Default::default() };
        let mut words = [7_u64; 9];
        // SAFETY: the structures are 7 and 5 words long, and there are 9.
        unsafe { fill(words.as_mut_ptr().cast(), &found, 56) };
        assert_eq!(words, [56, 1, 0, 0, 0, 5, 0, 7, 7]);
        let mut words = [7_u64; 9];
        // SAFETY: as above.
        unsafe { fill(words.as_mut_ptr().cast(), &found, 40) };
        assert_eq!(words, [56, 1, 0, 0, 0, 7, 7, 7, 7]);
    }
}
