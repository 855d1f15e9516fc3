//! The driver: takes faults and time to a policy, its answers to a machine, and what became of
//! them back to the policy. All machines are driven by this.

use super::{Action, Attempt, Carried, Fault, FaultCause, Machine, Policy, Shortage, Step};
use superpage_units::{BasePages, PageSize, Time};

/// How a fault was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The attempt that succeeded.
    pub attempt: Attempt,
    /// The size of the page that serves it.
    pub size: PageSize,
    /// Why the policy wanted it so.
    pub cause: FaultCause,
}

/// Has a fault served by the first of the policy's attempts that succeeds; `None` if none does.
pub fn serve(policy: &mut dyn Policy, machine: &mut dyn Machine, fault: &Fault) -> Option<Served> {
    let plan = policy.fault(fault, machine);
    plan.attempts().find_map(|attempt| {
        let size = machine.attempt(fault, attempt, policy)?;
        Some(Served { attempt, size, cause: plan.cause })
    })
}

/// What a step in the background came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// The policy wanted this, and this came of it.
    Acted(Action, Carried),
    /// So many base pages were scanned, and nothing was to be done.
    Scanned(BasePages),
    /// Nothing is to be done until this time, or until something happens.
    Rests(Option<Time>),
}

/// Lets the policy do one thing in the background.
pub fn step(policy: &mut dyn Policy, machine: &mut dyn Machine) -> Stepped {
    let step = policy.background(machine);
    take(step, policy, machine)
}

/// Lets the policy prepare one thing ahead of time.
pub fn prepare(policy: &mut dyn Policy, machine: &mut dyn Machine) -> Stepped {
    let step = policy.prepare(machine);
    take(step, policy, machine)
}

fn take(step: Step, policy: &mut dyn Policy, machine: &mut dyn Machine) -> Stepped {
    match step {
        Step::Act(action) => Stepped::Acted(action, carry_out(policy, machine, &action)),
        Step::Scanned(pages) => Stepped::Scanned(pages),
        Step::Rest(until) => Stepped::Rests(until),
    }
}

/// Has the policy give up one thing, because memory is short; `None` if it has nothing to give up.
pub fn relieve(
    policy: &mut dyn Policy,
    machine: &mut dyn Machine,
    shortage: Shortage,
) -> Option<(Action, Carried)> {
    let action = policy.pressure(shortage, machine)?;
    Some((action, carry_out(policy, machine, &action)))
}

/// Has an action carried out, and tells the policy what became of it if that is known.
pub fn carry_out(policy: &mut dyn Policy, machine: &mut dyn Machine, action: &Action) -> Carried {
    let carried = machine.carry_out(action);
    if let Carried::Now(outcome) = carried {
        policy.learn(action, outcome);
    }
    carried
}
