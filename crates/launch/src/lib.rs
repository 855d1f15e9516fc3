//! The interface between `superpage run` and the library inside the program.
//!
//! The command tells the library its [`Config`] through an environment variable. The library keeps
//! [`Counters`] in a file that both have mapped, so that the report survives a program that is killed,
//! that calls `_exit`, or that runs another program in its place.
//!
//! Nothing here allocates or calls the kernel, because the library reads it before the program begins.

#![no_std]

#[cfg(test)]
extern crate std;

mod config;
mod counters;
mod process;
pub mod symbols;

pub use config::{
    Config, Heap, KEPT, LEAST_MEMORY, MOST_READY, MOST_SIZE, OFF, OUT, OpenFile, SPARE, VARIABLE,
    value_of,
};
pub use counters::{Cause, Counters, FORMAT, HeapCounters, Refused, Waits, Words};
pub use process::{is_instrumented, is_kept_out, variable};
