//! A machine in memory: physical frames, virtual memory, translation, costs and time, all from one
//! seed.
//!
//! The policies that drive the real kernel run on it unchanged, at any size. It knows nothing of
//! the kernel that it runs on: no system calls, no files, no clocks, no threads.

#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "test values are small"))]

pub mod costs;
pub mod machine;
pub mod physical;
pub mod profile;
pub mod random;
pub mod run;
pub mod trace;
pub mod translation;
pub mod units;
pub mod virtual_memory;
pub mod workload;
