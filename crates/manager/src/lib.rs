//! The loop over other processes: find, watch, decide, act, verify, account.
//!
//! [`find`] tells who a process is, [`select`] whether a list lets it through, [`process`] holds one that
//! is managed, and [`registry`] holds all of them. [`promote`] makes huge pages; [`pass`] runs a
//! de-bloating policy until it is done, and [`split`] carries out what that policy decides. [`account`]
//! counts, [`budget`] paces, and [`daemon`] does all that for as long as the machine runs, as [`config`]
//! says. [`record`] only watches, and writes down what it sees. [`history`] says what was done and why,
//! [`status`] how the daemon stands, and [`metrics`] counts both for Prometheus.
//!
//! What is deliberately absent: how policies decide (`superpage-policy`), how the kernel is asked
//! (`superpage-kernel`), and anything shown to a person: the caller gets values and log events.

pub mod account;
pub mod budget;
mod came_back;
pub mod clock;
pub mod config;
pub mod cooldown;
pub mod daemon;
pub mod exclude;
pub mod find;
pub mod free_memory;
pub mod history;
pub mod hugetlb_pool;
pub mod ledger;
pub mod left_behind;
pub mod metrics;
pub mod nodes;
pub mod pass;
pub mod plain;
pub mod process;
pub mod promote;
pub mod record;
pub mod registry;
pub mod select;
pub mod split;
pub mod status;
