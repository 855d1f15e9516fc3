//! The memory of mimalloc: arenas that fill the areas of `libsuperpage.so` from the front.
//!
//! | memory that it has asked for | the next arena |
//! |---|---|
//! | under 1 GiB | 64 MiB, and twice as much after every eight: many small mappings fill a slot |
//! | 1 GiB and more | whole slots, whose first touches a gigantic page may serve |
//!
//! A block of 512 MiB or more is a mapping of its own, which goes when it is freed, as with glibc's malloc.

#![expect(unsafe_code, reason = "stands between mimalloc and the kernel")]

use crate::{chosen, errno, export};
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const GIGANTIC: usize = 1024 * MIB;
/// mimalloc's unit: it knows by slices which memory is its own.
const SLICE: usize = 64 * KIB;
/// The most that mimalloc is taken to keep for itself: 9 MiB were counted in a Python that had just begun, 3.7 MiB of them in
/// its first arena's tables.
const MOST_KEPT: usize = 16 * MIB;
/// The least block that holds a whole slice wherever it lies.
const LEAST_LEFT: usize = 2 * SLICE;

/// The size of the first arenas: the least that mimalloc makes, which adds 32 MiB to what it needs and rounds up to a multiple of 32 MiB.
/// With 32 MiB here a program that fills 1 MiB had the same 66 MiB in the areas. With mimalloc's own 1 GiB it took a gigantic page
/// and 398 ms, and less than 1 ms with this (medians of five interleaved runs).
const SMALL: usize = 64 * MIB;
/// The smallest block that is a mapping of its own: from here on most of a slot is its own. After a block of 600 MiB was taken,
/// filled and freed five times, 5 MiB were resident with this and with 256 MiB, and with 1 GiB and mimalloc's own 2 GiB 608 MiB,
/// also 1.3 s and 2000 blocks later. It costs the faults of the next block: the five took 1110 ms with this, and 243 ms with 2 GiB.
/// Where realloc(3) made a block larger by half up to 1.5 GiB, gigantic pages served 2 GiB with this, and 1 GiB with 256 MiB
/// (medians of five interleaved runs).
const LARGE: usize = GIGANTIC / 2;
/// The pieces in which mimalloc gives free memory back to the kernel: less would split huge pages.
const PURGED: usize = 2 * MIB;
/// mimalloc doubles the size of arenas after so many.
const DOUBLED: usize = 8;

// The places of mimalloc 3's options in `mi_option_e`, some of which libmimalloc-sys does not name.
const ARENA_RESERVE: c_int = 23;
const MINIMAL_PURGE_SIZE: c_int = 44;
const ARENA_MAX_OBJECT_SIZE: c_int = 45;

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    fn mi_option_set(option: c_int, value: c_long);
    fn mi_option_get(option: c_int) -> c_long;
    fn mi_malloc(size: usize) -> *mut c_void;
    fn mi_free(block: *mut c_void);
    fn mi_collect(force: bool);
    fn _mi_page_map_unregister_range(start: *mut c_void, size: usize);
    fn __real_mmap(
        address: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        descriptor: c_int,
        offset: i64,
    ) -> *mut c_void;
}

/// A size as mimalloc's options have it.
const fn option(size: usize) -> c_long {
    (size / KIB) as c_long
}

#[used]
#[unsafe(link_section = ".init_array.00101")]
static CONSTRUCTOR: extern "C" fn() = set_options;

/// Sets the options that the environment (`MIMALLOC_`) does not. mimalloc makes no arena before its own constructor,
/// which runs after this one.
extern "C" fn set_options() {
    for (name, size) in
        [(ARENA_RESERVE, SMALL), (ARENA_MAX_OBJECT_SIZE, LARGE), (MINIMAL_PURGE_SIZE, PURGED)]
    {
        // SAFETY: these options have sizes.
        unsafe { mi_option_set_default(name, option(size)) };
    }
    // SAFETY: as above.
    IS_OURS.store(unsafe { mi_option_get(ARENA_RESERVE) } == option(SMALL), Relaxed);
}

/// Whether the size of arenas is ours to set: the environment has not.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// The memory that mimalloc has asked for in pieces of the size of arenas, and the number of those.
static ASKED: AtomicUsize = AtomicUsize::new(0);
static ARENAS: AtomicUsize = AtomicUsize::new(0);

/// mmap(2) for mimalloc. The place that it would like is forgotten: `libsuperpage.so` knows a better one. So is that it would like its
/// memory not to be counted (MAP_NORESERVE): a block larger than the kernel gives is refused, as to libc's malloc.
///
/// # Safety
/// As of mmap.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    let is_fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    let address = if is_fixed { address } else { core::ptr::null_mut() };
    let flags =
        if protection & libc::PROT_WRITE != 0 { flags & !libc::MAP_NORESERVE } else { flags };
    // SAFETY: the caller's promise.
    let mapped = errno::apart(|| unsafe {
        __real_mmap(address, length, protection, flags, descriptor, offset)
    });
    // A block of 512 MiB or more is a mapping of its own, whose length is no whole number of GiB.
    let is_arena = (SMALL..LARGE).contains(&length) || length.is_multiple_of(GIGANTIC);
    if mapped != libc::MAP_FAILED && is_arena && IS_OURS.load(Relaxed) {
        count(length);
    }
    mapped
}

/// For `libsuperpage.so`, which places nothing in its areas any more, because address space has a limit from now on: mimalloc's
/// arenas would take more of it than the program asks for. New blocks come of the next library, and what is free of the arenas
/// is unmapped.
///
/// For that, all that is free is allocated, and kept: nobody else knows these blocks, so what they hold is ours to unmap.
///
/// Where the areas are a heap, whose pages need no memory, no more arenas are made, and mimalloc stays: `length` is zero then.
///
/// Answers with the bytes that mimalloc keeps beyond what the program has in its blocks, as far as that is known.
#[unsafe(no_mangle)]
extern "C" fn superpage_malloc_leave(areas: usize, length: usize) -> usize {
    IS_OURS.store(false, Relaxed);
    // SAFETY: the option is a size.
    unsafe { mi_option_set(ARENA_RESERVE, 0) };
    export::resolve();
    if length == 0 || !chosen::leave_to_next() {
        return 0;
    }
    let mut unmapped = 0;
    // SAFETY: what nobody uses is given back.
    unsafe { mi_collect(true) };
    let mut size = LARGE / 2;
    while size >= LEAST_LEFT {
        // SAFETY: it allocates.
        let block = unsafe { mi_malloc(size) };
        let start = block.addr().next_multiple_of(SLICE);
        if (areas..areas + length).contains(&block.addr()) {
            let length = ((block.addr() + size) / SLICE * SLICE).saturating_sub(start);
            // SAFETY: these slices are the block's alone, which is never freed. Somebody else's memory may lie there later, whose
            // blocks must not be taken for mimalloc's.
            unsafe {
                _mi_page_map_unregister_range(start as *mut c_void, length);
                libc::munmap(start as *mut c_void, length);
            }
            unmapped += length;
        } else {
            // SAFETY: it was just allocated, if there was memory.
            unsafe { mi_free(block) };
            size -= size / 8; // the next of mimalloc's size classes
        }
    }
    // SAFETY: as above.
    unsafe { mi_collect(true) };
    ASKED.load(Relaxed).saturating_sub(unmapped).min(MOST_KEPT)
}

/// Counts an arena, and has the next ones be whole slots once there is enough memory.
fn count(length: usize) {
    let before = ASKED.fetch_add(length, Relaxed);
    let arenas = ARENAS.fetch_add(1, Relaxed) + 1;
    if before + length >= GIGANTIC {
        let slot = GIGANTIC >> (arenas / DOUBLED).min(4);
        // SAFETY: the option is a size.
        unsafe { mi_option_set(ARENA_RESERVE, option(slot.max(SMALL))) };
    }
}
