//! The daemon on real processes: to come.

fn main() {}
