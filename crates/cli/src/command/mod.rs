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

use crate::args::graph::GraphCommand;
use crate::args::{Arguments, Command};
use crate::exit::Outcome;
use superpage_kernel::page_sizes;

/// Carries out the command.
pub(crate) fn run(arguments: Arguments) -> Outcome {
    if counts_pages(&arguments.command) {
        page_sizes::check()?;
    }
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

/// Whether a command looks at memory of this machine, or changes it, in pages of the sizes that everything here counts in. The
/// others read and write files, simulate, or put back what was changed.
fn counts_pages(command: &Command) -> bool {
    match command {
        Command::Doctor(_)
        | Command::Scan(_)
        | Command::Debloat(_)
        | Command::Promote(_)
        | Command::Record(_)
        | Command::Run(_) => true,
        Command::Daemon(arguments) => !arguments.check,
        Command::Top(arguments) => arguments.trace.is_none(),
        Command::Graph(arguments) => matches!(arguments.command, GraphCommand::Run(_)),
        Command::Lab(arguments) => lab::counts_pages(&arguments.command),
        Command::Heap(_)
        | Command::Log(_)
        | Command::Restore(_)
        | Command::Sim(_)
        | Command::Completions(_)
        | Command::Man(_) => false,
    }
}
