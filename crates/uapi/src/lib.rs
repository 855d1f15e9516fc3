//! The kernel's interfaces that are read without libc and without memory: what `kernel` and the library in the program
//! (`runtime`) have in common.
//!
//! `kernel` gives these readers typed errors, processes and collections. The library calls them as they are, also in a thread
//! of the program that holds the lock of its allocator: nothing here allocates, and every system call is one instruction,
//! because rustix makes its own unless its feature `use-libc` is on.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod cgroup;
pub mod file;
pub mod meminfo;
pub mod pagemap;
pub mod procmap_query;
pub mod text;

pub use rustix::io::Errno;

/// This crate's result.
pub type Result<T> = core::result::Result<T, Errno>;

// rustix's error has 16 bits where it makes its own system calls, and is an int where it calls libc.
const _: () = assert!(size_of::<Errno>() == 2, "rustix is built with its feature use-libc");
