//! Traces of real programs ([`superpage_trace`]) on the simulated machine. Not their format.
//!
//! | file | what |
//! |---|---|
//! | [`replay`] | a trace as a workload |
//! | [`candidate`] | a promotion policy, with or without a de-bloater |
//! | [`compare`] | a trace under several of them |

pub mod candidate;
pub mod compare;
pub mod replay;
