//! `superpage`: manage huge pages from user space on the stock kernel.
//!
//! Arguments ([`args`]), one file for each command ([`command`]), what people read ([`show`]),
//! heaps of programs ([`heap`]), signals ([`signals`]) and exit codes ([`exit`]). Whatever is decided or done, is decided and done in the other crates.

#![allow(clippy::cast_precision_loss, reason = "numbers are shown, not computed with")]

mod args;
mod command;
mod exit;
mod heap;
mod show;
mod signals;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = args::Arguments::parse();
    exit::code(command::run(arguments))
}
