//! A policy with the processes under it, and what it wants of them.

use super::bucket::TokenBucket;
use super::gate::BURST;
use super::machine::LiveMachine;
use super::policy::Promotion;
use super::range::Reason;
use crate::process::Survey;
use superpage_policy::promotion::drive::{self, Stepped};
use superpage_policy::promotion::{Act, Action, Carried, Cause, FaultCause, Outcome, Policy};
use superpage_units::{Nanos, PageSize, PmdRange, ProcessKey, Time};

/// Steps of a policy at a time before others have their turn. Chosen, not measured: some hundreds
/// of microseconds.
const STEPS: usize = 256; // tidy: allow(steps)

/// A policy with its processes.
#[derive(Debug)]
pub struct PolicyInstance {
    /// The policy by name.
    pub name: String,
    promotion: Promotion,
    policy: Box<dyn Policy>,
    /// The machine that the policy sees and acts on.
    pub machine: LiveMachine,
    /// What it allows itself of a core.
    budget: TokenBucket,
    /// It wants nothing before this time; `None`: before something changes.
    rests_until: Option<Time>,
}

/// What a policy wants in the background.
#[derive(Debug)]
pub enum Background {
    /// This range promoted, by this action.
    Promote(ProcessKey, PmdRange, Reason, Action),
    /// It looked around and wants to go on.
    More,
    /// Nothing before this time; `None`: before something changes.
    Rest(Option<Time>),
}

impl PolicyInstance {
    /// No process under this policy yet; `None` if it promotes nothing.
    #[must_use]
    pub fn new(promotion: Promotion, now: Time) -> Option<Self> {
        let policy = promotion.build()?;
        Some(Self {
            name: promotion.to_string(),
            promotion,
            budget: TokenBucket::new(policy.background_share(), BURST, now),
            policy,
            machine: LiveMachine::default(),
            rests_until: Some(now),
        })
    }

    /// The policy as the configuration names it.
    #[must_use]
    pub fn promotion(&self) -> Promotion {
        self.promotion
    }

    /// Forgets a process.
    pub fn forget(&mut self, key: ProcessKey) {
        self.policy.forget(key);
        self.machine.remove(key);
    }

    /// Something changed: the policy may want something in the background.
    pub fn wake(&mut self, now: Time) {
        self.rests_until = Some(self.rests_until.map_or(now, |until| until.min(now)));
    }

    /// When it is to be asked what it wants in the background, if ever.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        let until = self.rests_until.filter(|_| !self.machine.snapshot.is_empty());
        until.map(|until| until.max(self.budget.ready_at()))
    }

    /// Its background work held the kernel for so long: the wall time of its collapse requests, which is no
    /// less than their CPU time.
    pub fn spend(&mut self, cost: Nanos, now: Time) {
        self.budget.spend(cost, now);
    }

    /// Takes in what a survey found. A policy that is told of faults is told of each range that is
    /// mapped by base pages as if its last page had just been touched; returns the ranges that it
    /// wants promoted now.
    pub fn surveyed(
        &mut self,
        key: ProcessKey,
        survey: &Survey,
        now: Time,
    ) -> Vec<(PmdRange, Reason)> {
        self.machine.snapshot.set_now(now);
        self.machine.take_in(key, survey);
        self.wake(now);
        if !self.promotion.is_told_of_faults() {
            return Vec::new();
        }
        let (policy, machine) = (self.policy.as_mut(), &mut self.machine);
        let found: Vec<PmdRange> = machine.snapshot.base_mapped(key).map(|found| found.0).collect();
        let wanted = found.into_iter().filter_map(|range| {
            let fault = machine.snapshot.fault(key, range)?;
            let served = drive::serve(policy, machine, &fault)?;
            (served.size == PageSize::Huge).then(|| (range, reason_of(served.cause)))
        });
        wanted.collect()
    }

    /// What it wants next in the background.
    pub fn background(&mut self, now: Time) -> Background {
        self.machine.snapshot.set_now(now);
        for _ in 0..STEPS {
            match drive::step(self.policy.as_mut(), &mut self.machine) {
                Stepped::Acted(action, Carried::Later) => {
                    if let Act::Promote { process, page, .. } = action.act {
                        let range = PmdRange::containing(page.start());
                        return Background::Promote(process, range, reason(&action.cause), action);
                    }
                }
                Stepped::Acted(_, Carried::Now(_)) | Stepped::Scanned(_) => {}
                Stepped::Rests(until) => {
                    self.rests_until = until;
                    return Background::Rest(until);
                }
            }
        }
        Background::More
    }

    /// Tells the policy the outcome of an action that was carried out later.
    pub fn learn(&mut self, action: &Action, outcome: Outcome) {
        self.policy.learn(action, outcome);
    }
}

fn reason(cause: &Cause) -> Reason {
    Reason { kind: cause.kind(), words: cause.to_string() }
}

fn reason_of(cause: FaultCause) -> Reason {
    match cause {
        FaultCause::Threshold(pages) => reason(&Cause::Threshold(pages)),
        _ => {
            Reason { kind: "first-touch", words: "the first touch of a range that it fits".into() }
        }
    }
}
