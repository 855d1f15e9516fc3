//! C's functions of memory, as glibc exports them.
//!
//! C++'s operators come here through libstdc++.

#![expect(unsafe_code, reason = "C functions that programs call")]

use crate::chosen::{Next, has, is_known_ours, is_left_to_next, is_ours};
use crate::{ends, errno};
use core::ffi::{c_int, c_void};

type Pointer = *mut c_void;

unsafe extern "C" {
    fn mi_malloc(size: usize) -> Pointer;
    fn mi_calloc(count: usize, size: usize) -> Pointer;
    fn mi_realloc(block: Pointer, size: usize) -> Pointer;
    fn mi_memalign(alignment: usize, size: usize) -> Pointer;
    fn mi_aligned_alloc(alignment: usize, size: usize) -> Pointer;
    fn mi_posix_memalign(to: *mut Pointer, alignment: usize, size: usize) -> c_int;
    fn mi_valloc(size: usize) -> Pointer;
    fn mi_pvalloc(size: usize) -> Pointer;
    fn mi_usable_size(block: Pointer) -> usize;
    fn mi_free(block: Pointer);
    fn mi_collect(force: bool);
}

/// A C function with the name of one of glibc's: mimalloc's, or that of the next library.
macro_rules! function {
    ($(#[$doc:meta])* $name:ident, $other:ident, $text:literal, ($($argument:ident: $type:ty),*) $(-> $result:ty)?,
     $ours:expr) => {
        function!($(#[$doc])* $name, $other, $text, ($($argument: $type),*) $(-> $result)?, $ours, is_ours());
    };
    ($(#[$doc:meta])* $name:ident, $other:ident, $text:literal, ($($argument:ident: $type:ty),*) $(-> $result:ty)?,
     $ours:expr, $is_ours:expr) => {
        /// The next library's.
        static $other: Next = Next::new($text, $name as *const ());

        $(#[$doc])*
        ///
        /// # Safety
        /// As of the function of this name.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            /// Where that is not known at once.
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn chosen($($argument: $type),*) $(-> $result)? {
                if $is_ours {
                    // SAFETY: the caller's promise.
                    return unsafe { $ours };
                }
                // SAFETY: the next library's function has the type of ours.
                unsafe {
                    core::mem::transmute::<Pointer, unsafe extern "C" fn($($type),*) $(-> $result)?>(
                        $other.get(),
                    )($($argument),*)
                }
            }
            if is_known_ours() {
                // SAFETY: the caller's promise.
                return unsafe { $ours };
            }
            // SAFETY: the caller's promise.
            unsafe { chosen($($argument),*) }
        }
    };
}

/// The functions of the next libraries, in the place of which these are.
static OTHERS: [&Next; 12] = [
    &MALLOC,
    &CALLOC,
    &REALLOC,
    &REALLOCARRAY,
    &FREE,
    &MEMALIGN,
    &ALIGNED_ALLOC,
    &POSIX_MEMALIGN,
    &VALLOC,
    &PVALLOC,
    &MALLOC_USABLE_SIZE,
    &MALLOC_TRIM,
];

/// Finds all functions of the next libraries: from here on libc's table of symbols may lead to ours.
pub(crate) fn resolve() {
    for other in OTHERS {
        other.get();
    }
}

/// The block, or none with errno set.
#[inline]
fn or_none(block: Pointer) -> Pointer {
    if block.is_null() {
        errno::set(libc::ENOMEM);
    }
    block
}

/// The block at this alignment, which must be a power of two.
/// # Safety
/// As of `allocate`.
unsafe fn aligned(alignment: usize, allocate: impl FnOnce() -> Pointer) -> Pointer {
    if alignment.is_power_of_two() {
        return or_none(allocate());
    }
    errno::set(libc::EINVAL);
    core::ptr::null_mut()
}

function!(
    /// malloc(3).
    malloc, MALLOC, c"malloc", (size: usize) -> Pointer, or_none(mi_malloc(size)));
function!(
    /// calloc(3).
    calloc, CALLOC, c"calloc", (count: usize, size: usize) -> Pointer, or_none(mi_calloc(count, size)));
function!(
    /// realloc(3).
    realloc, REALLOC, c"realloc", (block: Pointer, size: usize) -> Pointer, resize(block, size), has(block));
function!(
    /// reallocarray(3).
    reallocarray, REALLOCARRAY, c"reallocarray", (block: Pointer, count: usize, size: usize) -> Pointer,
    resize_array(block, count, size), has(block));
function!(
    /// free(3).
    free, FREE, c"free", (block: Pointer), give_back(block), has(block));
function!(
    /// memalign(3).
    memalign, MEMALIGN, c"memalign", (alignment: usize, size: usize) -> Pointer,
    aligned_at_least(alignment, size));
function!(
    /// aligned_alloc(3).
    aligned_alloc, ALIGNED_ALLOC, c"aligned_alloc", (alignment: usize, size: usize) -> Pointer,
    aligned(alignment, || mi_aligned_alloc(alignment, size)));
function!(
    /// posix_memalign(3).
    posix_memalign, POSIX_MEMALIGN, c"posix_memalign", (to: *mut Pointer, alignment: usize, size: usize) -> c_int,
    mi_posix_memalign(to, alignment, size));
function!(
    /// valloc(3).
    valloc, VALLOC, c"valloc", (size: usize) -> Pointer, or_none(mi_valloc(size)));
function!(
    /// pvalloc(3).
    pvalloc, PVALLOC, c"pvalloc", (size: usize) -> Pointer, or_none(mi_pvalloc(size)));
function!(
    /// malloc_usable_size(3).
    malloc_usable_size, MALLOC_USABLE_SIZE, c"malloc_usable_size", (block: Pointer) -> usize, mi_usable_size(block),
    has(block));
function!(
    /// malloc_trim(3): always says that memory was given back.
    malloc_trim, MALLOC_TRIM, c"malloc_trim", (_left: usize) -> c_int, trim());

/// # Safety
/// As of free.
#[inline]
unsafe fn give_back(block: Pointer) {
    if block.is_null() {
        ends::freed_nothing();
    } else {
        // SAFETY: the caller's promise.
        unsafe { mi_free(block) };
    }
}

/// As glibc's: a block that is resized to nothing is freed.
///
/// # Safety
/// As of realloc.
unsafe fn resize(block: Pointer, size: usize) -> Pointer {
    if size == 0 && !block.is_null() {
        // SAFETY: the caller's promise.
        unsafe { mi_free(block) };
        return core::ptr::null_mut();
    }
    if is_left_to_next() {
        // SAFETY: the caller's promise.
        return unsafe { pass_on(block, size) };
    }
    // SAFETY: the caller's promise.
    or_none(unsafe { mi_realloc(block, size) })
}

/// Resizes one of mimalloc's blocks where the next library serves new ones.
///
/// # Safety
/// As of realloc.
unsafe fn pass_on(block: Pointer, size: usize) -> Pointer {
    // SAFETY: the caller's promise; the next library's block is a new one.
    unsafe {
        let new = malloc(size);
        if !new.is_null() {
            core::ptr::copy_nonoverlapping::<u8>(
                block.cast(),
                new.cast(),
                size.min(mi_usable_size(block)),
            );
            mi_free(block);
        }
        new
    }
}

/// As glibc's: the product may be nothing.
///
/// # Safety
/// As of reallocarray.
unsafe fn resize_array(block: Pointer, count: usize, size: usize) -> Pointer {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise.
        Some(all) => unsafe { resize(block, all) },
        None => or_none(core::ptr::null_mut()),
    }
}

/// As glibc's: an alignment that is no power of two is the next one.
///
/// # Safety
/// None: it allocates.
unsafe fn aligned_at_least(alignment: usize, size: usize) -> Pointer {
    const LEAST: usize = 16; // of any block
    let Some(alignment) = alignment.max(LEAST).checked_next_power_of_two() else {
        errno::set(libc::EINVAL);
        return core::ptr::null_mut();
    };
    // SAFETY: it is a power of two.
    or_none(unsafe { mi_memalign(alignment, size) })
}

/// # Safety
/// None: it gives back what nobody uses.
unsafe fn trim() -> c_int {
    // SAFETY: as said.
    unsafe { mi_collect(true) };
    1
}
