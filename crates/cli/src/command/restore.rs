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
    if run.try_exists()? {
        match Settings::open(&run, Mode::Apply) {
            Ok((_settings, more)) => repairs.extend(more),
            // A program runs: what was changed for it is put back at its end.
            Err(Error::Busy { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let removals = zram::remove_left_behind(&arguments.state.join(ZRAM))?;
    let made = made::undo_left_behind(&arguments.state.join(MADE))?;
    if repairs.is_empty() && removals.is_empty() && made.is_empty() {
        return show::print(NOTHING);
    }
    let lines = repairs.iter().map(|repair| format!("{repair}\n"));
    let lines = lines.chain(removals.iter().map(|removal| format!("{removal}\n")));
    let lines = lines.chain(made.iter().map(|removal| format!("{removal}\n")));
    show::print(&lines.collect::<String>())?;
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
