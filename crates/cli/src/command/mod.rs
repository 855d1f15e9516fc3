//! One file for each command; each says what it did on standard output.

mod daemon;
mod debloat;
mod doctor;
mod generate;
mod graph;
mod heap;
mod lab;
pub(crate) mod log;
mod promote;
mod record;
mod restore;
mod run;
mod scan;
mod sim;
mod top;

use crate::args::{Arguments, Command};
use crate::exit::Outcome;

/// Carries out the command.
pub(crate) fn run(arguments: Arguments) -> Outcome {
    match arguments.command {
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Scan(arguments) => scan::run(&arguments),
        Command::Debloat(arguments) => debloat::run(&arguments),
        Command::Daemon(arguments) => daemon::run(&arguments),
        Command::Graph(arguments) => graph::run(&arguments),
        Command::Heap(arguments) => heap::run(&arguments),
        Command::Log(arguments) => log::run(&arguments),
        Command::Promote(arguments) => promote::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Lab(arguments) => lab::run(arguments.command),
        Command::Completions(arguments) => generate::completions(&arguments),
        Command::Man(arguments) => generate::man(&arguments),
    }
}
