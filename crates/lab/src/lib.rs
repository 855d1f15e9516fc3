//! Real workloads, and one file for each experiment that is done with them.
//!
//! What is here: the programs of the papers ([`workload`]), the processes they run in ([`worker`]), a
//! server under load ([`load`]), a JVM that rests ([`jvm`]), memory that is short ([`shortage`], [`pressure`]), the tables and figures that are reproduced with them ([`experiment`]), the drawings
//! of what was measured ([`picture`]), the pages that are made from kept rows ([`report`]), and the measuring of this machine for
//! a simulated one ([`calibrate`]).
//!
//! What is deliberately absent: any decision about huge pages, and printing. A workload only uses
//! memory; whoever started it looks at that memory from outside.

#[cfg(test)]
#[path = "../build/bare_numbers.rs"]
mod bare_numbers;
pub mod calibrate;
pub mod experiment;
mod helper;
pub mod jvm;
mod liblinear;
pub mod load;
pub mod picture;
pub mod pressure;
mod program;
pub mod report;
mod server;
pub mod shortage;
pub mod turn;
mod width;
pub mod worker;
pub mod workload;
