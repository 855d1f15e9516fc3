//! `libsuperpage_malloc.so`: malloc of a program under `superpage run`.
//!
//! glibc's malloc calls the kernel without the functions that `libsuperpage.so` takes the place of, so its memory
//! never lies in the areas. mimalloc's does: this library is mimalloc under the names of C's functions
//! ([`export`]), with arenas that fill the areas from the front ([`arena`]), an errno of its own ([`errno`]), ends of threads that come
//! after all destructors ([`ends`]), and forks that find none of its locks ([`locks`]) held ([`gate`]). A process that is not managed, and a program with another allocator of its own, keep
//! theirs ([`chosen`]).

#[cfg(not(test))]
mod arena;
#[cfg(not(test))]
mod chosen;
#[cfg(not(test))]
mod ends;
#[cfg(not(test))]
mod errno;
#[cfg(not(test))]
mod export;
mod gate;
#[cfg(not(test))]
mod locks;

// mimalloc itself: its functions are declared where they are called, because that crate lacks some.
use libmimalloc_sys as _;
