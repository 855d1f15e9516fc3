//! Real workloads, and one file for each experiment that is done with them.
//!
//! What is here: the programs of the papers ([`workload`]), the processes they run in ([`worker`])
//! and the drawings of what was measured ([`picture`]).
//!
//! What is deliberately absent: any decision about huge pages, and printing. A workload only uses
//! memory; whoever started it looks at that memory from outside.

pub mod picture;
mod width;
mod wire;
pub mod worker;
pub mod workload;
