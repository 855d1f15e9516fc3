//! `superpage`.
fn main() {}
