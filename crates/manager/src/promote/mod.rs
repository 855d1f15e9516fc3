//! The promoter.

pub mod limits;
pub mod pace;
pub mod policy;
pub mod tenant;
pub mod view;
