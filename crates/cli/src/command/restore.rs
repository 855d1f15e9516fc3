//! `superpage restore`: puts back what a run that was killed left changed.

use crate::args::Restore;
use crate::exit::{Failure, Outcome};
use crate::show;
use superpage_kernel::Error;
use superpage_kernel::made::{self, MADE};
use superpage_kernel::settings::{self, Lock, Mode, Settings};
use superpage_kernel::zram::{self, ZRAM};

const NOTHING: &str = "Nothing was left changed.\n";

/// Opens the gate to the kernel's settings, which is all it takes, and says what that did.
pub(super) fn run(arguments: &Restore) -> Outcome {
    if !arguments.state.try_exists()? {
        return show::print(NOTHING);
    }
    // A daemon with another state may go by what was left.
    let _machine = Lock::of_machine()?;
    let (_settings, mut repairs) = Settings::open(&arguments.state, Mode::Apply)?;
    let run = arguments.state.join(settings::RUN);
    let of_runs = match run.try_exists()?.then(|| Settings::open(&run, Mode::Apply)) {
        Some(Ok((_settings, more))) => {
            repairs.extend(more);
            Ok(())
        }
        // A program runs: what was changed for it is put back at its end.
        None | Some(Err(Error::Busy { .. })) => Ok(()),
        Some(Err(error)) => Err(error),
    };
    let removals = zram::remove_left_behind(&arguments.state.join(ZRAM));
    let made = made::undo_left_behind(&arguments.state.join(MADE));
    let lines = repairs.iter().map(|repair| format!("{repair}\n"));
    let lines = lines.chain(removals.iter().flatten().map(|removal| format!("{removal}\n")));
    let lines = lines.chain(made.iter().flatten().map(|removal| format!("{removal}\n")));
    let lines: String = lines.collect();
    // The user is told of each thing that was put back, also where another one could not be.
    show::print(&lines)?;
    of_runs?;
    let (removals, made) = (removals?, made?);
    if lines.is_empty() {
        return show::print(NOTHING);
    }
    if let Some(removal) = made.iter().find(|removal| removal.outcome.is_err()) {
        return Err(Failure::Failed(anyhow::anyhow!("{removal}")));
    }
    let remains = |removal: &&zram::Removal| matches!(removal.outcome, zram::Outcome::Failed(_));
    if let Some(removal) = removals.iter().find(remains) {
        return Err(Failure::Failed(anyhow::anyhow!("{removal}")));
    }
    let is_stuck =
        |repair: &&settings::Repair| matches!(repair.outcome, settings::Outcome::Failed(_));
    match repairs.iter().filter(is_stuck).count() {
        0 => Ok(()),
        stuck => Err(Failure::Failed(anyhow::anyhow!(
            "{stuck} of {} settings could not be put back; they stay recorded for the next time",
            repairs.len()
        ))),
    }
}
