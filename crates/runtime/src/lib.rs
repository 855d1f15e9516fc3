//! `libsuperpage.so`: page sizes by policy and heaps in files, from inside an unmodified program (Trident, xHeap).
//!
//! `superpage run` has the dynamic linker load it before the program's own libraries. It takes the place of
//! the functions by which a program changes its memory ([`export`]), and packs large private anonymous mappings
//! into areas of its own ([`space`]). Behind the memory there stand pages by policy ([`gigantic`]), which serve the first
//! touch of each GiB as the policy decides, or a heap that lives in a file ([`pager`]). A process that `superpage run` did not
//! start itself is left alone.
//!
//! The library is a guest in somebody's process. Nothing in it may take the program down, and no byte of the
//! program's memory may be another than without it. [`areas`] says which thread does what.

extern crate alloc;

mod advice;
mod allocator;
mod areas;
mod at_start;
mod backing;
mod decider;
mod deepbind;
mod elf;
mod end;
mod exec;
mod export;
mod fault;
mod fork;
mod gigantic;
mod limited;
mod lock;
mod memory;
mod next;
mod numbered;
mod pager;
mod pins;
mod room;
mod service;
mod space;
mod start;
mod sys;
mod thread;
mod uffd;

/// Tests of parts of the library run in a process that is not managed, with an allocator of its own.
#[cfg_attr(not(test), global_allocator)]
#[cfg_attr(test, expect(dead_code, reason = "the test's allocator is another"))]
static ALLOCATOR: allocator::Ours = allocator::Ours::new();
