//! The driver: takes faults and time to a system, its answers to a machine, and what became of
//! them back to the system. All machines are driven by this.

use super::{Action, Attempt, Carried, Fault, FaultCause, Machine, Shortage, Step, System};
use superpage_units::{BasePages, PageSize, Time};

/// How a fault was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The attempt that succeeded.
    pub attempt: Attempt,
    /// The size of the page that serves it.
    pub size: PageSize,
    /// Why the system wanted it so.
    pub cause: FaultCause,
}

/// Has a fault served by the first of the system's attempts that succeeds; `None` if none does.
pub fn serve(system: &mut dyn System, machine: &mut dyn Machine, fault: &Fault) -> Option<Served> {
    let plan = system.fault(fault, machine);
    plan.attempts().find_map(|attempt| {
        let size = machine.attempt(fault, attempt, system)?;
        Some(Served { attempt, size, cause: plan.cause })
    })
}

/// What a step in the background came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// The system wanted this, and this came of it.
    Acted(Action, Carried),
    /// So many base pages were scanned, and nothing was to be done.
    Scanned(BasePages),
    /// Nothing is to be done until this time, or until something happens.
    Rests(Option<Time>),
}

/// Lets the system do one thing in the background.
pub fn step(system: &mut dyn System, machine: &mut dyn Machine) -> Stepped {
    match system.background(machine) {
        Step::Act(action) => Stepped::Acted(action, carry_out(system, machine, &action)),
        Step::Scanned(pages) => Stepped::Scanned(pages),
        Step::Rest(until) => Stepped::Rests(until),
    }
}

/// Has the system give up one thing, because memory is short; `None` if it has nothing to give up.
pub fn relieve(
    system: &mut dyn System,
    machine: &mut dyn Machine,
    shortage: Shortage,
) -> Option<(Action, Carried)> {
    let action = system.pressure(shortage, machine)?;
    Some((action, carry_out(system, machine, &action)))
}

/// Has an action carried out, and tells the system what became of it if that is known.
pub fn carry_out(system: &mut dyn System, machine: &mut dyn Machine, action: &Action) -> Carried {
    let carried = machine.carry_out(action);
    if let Carried::Now(outcome) = carried {
        system.learn(action, outcome);
    }
    carried
}
