//! Real workloads, and one file for each experiment that is done with them.
//!
//! What is here: the programs of the papers ([`workload`]), the processes they run in
//! ([`worker`]), the tables and figures that are reproduced with them ([`experiment`]), and the drawings of what
//! was measured ([`picture`]).
//!
//! What is deliberately absent: any decision about huge pages, and printing. A workload only uses
//! memory; whoever started it looks at that memory from outside.

pub mod experiment;
pub mod picture;
mod width;
mod wire;
pub mod worker;
pub mod workload;
