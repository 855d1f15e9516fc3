//! Pure decisions about superpages.
//!
//! What is here: what is known about the bloat in ranges of memory ([`bloat`], [`sampling`]), the
//! published policies that decide when a superpage is made ([`promotion`], with [`free_memory`] and
//! [`compaction`]), which data goes where before they do ([`grouping`]), those that decide what to
//! reclaim ([`debloat`]), all policies by name ([`registry`]), the trigger ([`watermark`]) and the score
//! of how evenly they hurt ([`fairness`]).
//!
//! What is deliberately absent: system calls, files, clocks, threads, logging, random sources and
//! `unsafe`. Observations and the time come in as arguments; decisions go out as values. The same
//! policy value therefore runs over other processes, inside one, and on a simulated machine.

#![no_std]
#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "test values are small"))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bloat;
pub mod compaction;
pub mod debloat;
pub mod fairness;
pub mod free_memory;
pub mod grouping;
pub mod promotion;
pub mod registry;
pub mod sampling;
pub mod watermark;
