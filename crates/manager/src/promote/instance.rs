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
    Promote(ProcessKey, PmdRange, Action),
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
        self.machine.remove(key);
        self.policy.forget(key, &self.machine);
    }

    /// Something changed: the policy may want something in the background.
    pub fn wake(&mut self, now: Time) {
        self.rests_until = Some(self.rests_until.map_or(now, |until| until.min(now)));
    }

    /// Has the policy not be asked before this time, unless something changes.
    pub fn rest(&mut self, until: Time) {
        self.rests_until = Some(until);
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

    /// Takes in what a survey found.
    pub fn surveyed(&mut self, key: ProcessKey, survey: &Survey, now: Time) {
        self.machine.snapshot.set_now(now);
        self.machine.take_in(key, survey);
        self.policy.forget(key, &self.machine);
        self.wake(now);
    }

    /// Tells a policy that is told of faults of each range of a process that is mapped by base pages, as if the last of its
    /// present pages had just been touched, until it wants `most` that are free for it to have. Returns those.
    pub fn wanted(
        &mut self,
        key: ProcessKey,
        most: usize,
        is_free: impl Fn(PmdRange) -> bool,
    ) -> Vec<(PmdRange, Reason)> {
        if !self.promotion.is_told_of_faults() {
            return Vec::new();
        }
        let (policy, machine) = (self.policy.as_mut(), &mut self.machine);
        let found: Vec<PmdRange> = machine.snapshot.base_mapped(key).map(|found| found.0).collect();
        let wanted = found.into_iter().filter_map(|range| {
            let fault = machine.snapshot.fault(key, range)?;
            let served = drive::serve(policy, machine, &fault)?;
            let is_wanted = served.size == PageSize::Huge && is_free(range);
            is_wanted.then(|| (range, reason(served.cause)))
        });
        wanted.take(most).collect()
    }

    /// What it wants next in the background.
    pub fn background(&mut self, now: Time) -> Background {
        self.machine.snapshot.set_now(now);
        for _ in 0..STEPS {
            match drive::step(self.policy.as_mut(), &mut self.machine) {
                Stepped::Acted(action, Carried::Later) => {
                    if let Act::Promote { process, page, .. } = action.act {
                        let range = PmdRange::containing(page.start());
                        return Background::Promote(process, range, action);
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

fn reason(cause: FaultCause) -> Reason {
    match cause {
        FaultCause::Threshold(pages) => Reason::Policy(Cause::Threshold(pages)),
        _ => Reason::FirstTouch,
    }
}
