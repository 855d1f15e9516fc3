//! The promoter.

pub mod policy;
