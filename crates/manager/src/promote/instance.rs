//! A policy with the processes under it, and what it wants of them.

use super::Time;
use super::bucket::TokenBucket;
use super::gate::BURST;
use super::policy::Promotion;
use super::range::Reason;
use super::snapshot::Snapshot;
use crate::process::Survey;
use superpage_policy::system::{
    Act, Action, Attempt, Cause, FaultCause, FaultPlan, Outcome, Step, System,
};
use superpage_units::{Nanos, PageSize, ProcessKey, Region};

/// Steps of a policy at a time before others have their turn. Chosen, not measured: some hundreds
/// of microseconds.
const STEPS: usize = 256; // tidy: allow(steps)

/// A policy with its processes.
#[derive(Debug)]
pub struct PolicyInstance {
    /// The policy by name.
    pub name: String,
    policy: Promotion,
    system: Box<dyn System>,
    /// What it sees.
    pub snapshot: Snapshot,
    /// What it allows itself of a core.
    budget: TokenBucket,
    /// It wants nothing before this time; `None`: before something changes.
    rests_until: Option<Time>,
}

/// What a policy wants in the background.
#[derive(Debug)]
pub enum Background {
    /// This range promoted, by this action.
    Promote(ProcessKey, Region, Reason, Action),
    /// It looked around and wants to go on.
    More,
    /// Nothing before this time; `None`: before something changes.
    Rest(Option<Time>),
}

impl PolicyInstance {
    /// No process under this policy yet; `None` if it promotes nothing.
    #[must_use]
    pub fn new(policy: Promotion, now: Time) -> Option<Self> {
        let system = policy.build()?;
        Some(Self {
            name: policy.to_string(),
            policy,
            budget: TokenBucket::new(system.background_share().min(1.0), BURST, now),
            system,
            snapshot: Snapshot::default(),
            rests_until: Some(now),
        })
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> Promotion {
        self.policy
    }

    /// Forgets a process.
    pub fn forget(&mut self, key: ProcessKey) {
        self.system.forget(key);
        self.snapshot.remove(key);
    }

    /// Something changed: the policy may want something in the background.
    pub fn wake(&mut self, now: Time) {
        self.rests_until = Some(self.rests_until.map_or(now, |until| until.min(now)));
    }

    /// When it is to be asked what it wants in the background, if ever.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        let until = self.rests_until.filter(|_| !self.snapshot.is_empty());
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
    ) -> Vec<(Region, Reason)> {
        self.snapshot.set_now(now);
        self.snapshot.take_in(key, survey);
        self.wake(now);
        if !self.policy.is_told_of_faults() {
            return Vec::new();
        }
        let (system, snapshot) = (&mut self.system, &self.snapshot);
        let told = snapshot.base_mapped(key).filter_map(|(region, _)| {
            let fault = snapshot.fault(key, region)?;
            let plan = system.fault(&fault, snapshot);
            is_huge(&plan).then(|| (region, reason_of(&plan)))
        });
        told.collect()
    }

    /// What it wants next in the background.
    pub fn background(&mut self, now: Time) -> Background {
        self.snapshot.set_now(now);
        for _ in 0..STEPS {
            match self.system.background(&mut self.snapshot) {
                Step::Act(action) => {
                    if let Some((key, region)) = promotion(&action) {
                        return Background::Promote(key, region, reason(&action.cause), action);
                    }
                    self.learn(&action, refusal(&action));
                }
                Step::Scanned(_) => {}
                Step::Rest(until) => {
                    self.rests_until = until;
                    return Background::Rest(until);
                }
            }
        }
        Background::More
    }

    /// What became of an action.
    pub fn learn(&mut self, action: &Action, outcome: Outcome) {
        self.system.learn(action, outcome);
    }
}

/// Whether a plan begins with a huge page.
fn is_huge(plan: &FaultPlan) -> bool {
    match plan.attempts().next() {
        Some(Attempt::Complete) => true,
        Some(Attempt::Map { size, .. }) => size == PageSize::Huge,
        Some(Attempt::Base | Attempt::Reserve | Attempt::InPlace) | None => false,
    }
}

/// The range that an action promotes to a huge page: all that can be done from outside. Memory is not
/// compacted or zeroed for anybody, and there is no reservation to give back.
fn promotion(action: &Action) -> Option<(ProcessKey, Region)> {
    match action.act {
        Act::Promote { process, page, .. } if page.size() == PageSize::Huge => {
            Some((process, Region::containing(page.start())))
        }
        _ => None,
    }
}

/// What a policy is told of an action that cannot be carried out from outside.
fn refusal(action: &Action) -> Outcome {
    match action.act {
        Act::Zero(_) | Act::Compact(..) => Outcome::NoFrame,
        _ => Outcome::Stale,
    }
}

fn reason(cause: &Cause) -> Reason {
    Reason { kind: cause.kind(), words: cause.to_string() }
}

fn reason_of(plan: &FaultPlan) -> Reason {
    match plan.cause {
        FaultCause::Threshold(pages) => reason(&Cause::Threshold(pages)),
        _ => {
            Reason { kind: "first-touch", words: "the first touch of a range that it fits".into() }
        }
    }
}
