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

use clap::FromArgMatches;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut command = args::command();
    if let Some(columns) = show::columns_where_unknown() {
        command = command.term_width(columns.into());
    }
    let parsed = args::Arguments::from_arg_matches(&command.get_matches());
    exit::code(command::run(parsed.unwrap_or_else(|error| error.exit())))
}
