//! The loop over other processes: find, watch, decide, act, verify, account.
//!
//! [`select`] finds processes, [`target`] holds one and carries out what a policy decides about
//! it, [`pass`] runs a policy until it is done, [`account`] counts, [`budget`] paces, and
//! [`daemon`] does all that for as long as the machine runs, as [`config`] says. [`record`] only
//! watches, and writes down what it sees. [`history`] says what was done and why, [`status`] how the
//! daemon stands, and [`metrics`] counts both for Prometheus.
//!
//! What is deliberately absent: how policies decide (`superpage-policy`), how the kernel is asked
//! (`superpage-kernel`), and anything shown to a person: the caller gets values and log events.

pub mod account;
pub mod budget;
pub mod config;
pub mod cooldown;
pub mod daemon;
pub mod history;
pub mod ledger;
pub mod metrics;
pub mod pass;
pub mod process;
pub mod promote;
pub mod reclaim;
pub mod record;
pub mod registry;
pub mod select;
pub mod status;
pub mod supply;
pub mod target;
