//! `libsuperpage_malloc.so`: malloc of a program under `superpage run`.
//!
//! glibc's malloc calls the kernel without the functions that `libsuperpage.so` takes the place of, so its memory
//! never lies in the areas. mimalloc's does: this library is mimalloc under the names of C's functions
//! ([`export`]), with arenas that fill the areas from the front ([`arena`]), and a fork that finds none of its
//! locks held ([`gate`]). A process that is not managed, and a program with another allocator of its own, keep
//! theirs ([`chosen`]).

mod arena;
mod chosen;
mod export;
mod gate;

// mimalloc itself: its functions are declared where they are called, because that crate lacks some.
use libmimalloc_sys as _;
