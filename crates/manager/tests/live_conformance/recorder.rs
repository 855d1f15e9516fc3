//! Writes down what a policy is asked and what it answers, so that two machines can be compared.

use crate::ensure;
use crate::testbed::Ended;
use std::sync::{Arc, Mutex, PoisonError};
use superpage_policy::bloat::BloatDensity;
use superpage_policy::debloat::{BloatMaps, Debloat, Decision};
use superpage_policy::promotion::capabilities::Capabilities;
use superpage_policy::promotion::life::Life;
use superpage_policy::promotion::{
    Act, Action, Fault, FaultPlan, Outcome, Policy, Shortage, Step, View,
};
use superpage_units::{
    BASE_PAGE_BYTES, BasePages, HUGE_PAGE_BYTES, PmdRange, ProcessKey, Time, VirtAddr,
};

/// Something that was asked and answered.
#[derive(Clone, Debug)]
enum Said {
    Fault(Fault, FaultPlan),
    Step(Step),
    Became(Action, Outcome),
    Decided(Decision),
}

/// All that was said, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Said>>>);

impl Log {
    /// Returns how much has been said now.
    fn add(&self, said: Said) -> usize {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(said);
        all.len()
    }

    /// In words; `vma` gives the first address of a process's VMA.
    pub(crate) fn words(&self, vma: impl Fn(ProcessKey) -> VirtAddr) -> Vec<String> {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = |process: ProcessKey, address: VirtAddr| {
            let offset = address.since(vma(process)).0;
            let (range, page) = (offset / HUGE_PAGE_BYTES, offset % HUGE_PAGE_BYTES);
            format!("{}:{range}+{}", process.0, page / BASE_PAGE_BYTES)
        };
        said.iter().map(|said| in_words(said, &at)).collect()
    }
}

type At<'a> = &'a dyn Fn(ProcessKey, VirtAddr) -> String;

fn in_words(said: &Said, at: At<'_>) -> String {
    match said {
        Said::Fault(fault, plan) => {
            let (at, seen) = (at(fault.process, fault.address), fault.range);
            format!("fault at {at}, {seen:?}: {plan:?}")
        }
        Said::Step(Step::Act(action)) => format!("{}: {}", act(&action.act, at), action.cause),
        Said::Step(step) => format!("{step:?}"),
        Said::Became(action, outcome) => format!("{} became {outcome:?}", act(&action.act, at)),
        Said::Decided(Decision::Look { process, ranges, depth, cause }) => {
            format!("look at {}, {depth:?}: {cause}", places(*process, ranges, at))
        }
        Said::Decided(Decision::Split { process, ranges, cause }) => {
            format!("split {}: {cause}", places(*process, ranges, at))
        }
        Said::Decided(Decision::Done(cause)) => format!("done: {cause}"),
    }
}

fn act(act: &Act, at: At<'_>) -> String {
    match act {
        Act::Promote { process, page, how } => {
            format!("promote {} to {} by {how:?}", at(*process, page.start()), page.size())
        }
        Act::Unreserve { process, range } => format!("unreserve {}", at(*process, range.start())),
        Act::Evacuate { process, range } => format!("evacuate {}", at(*process, range.start())),
        Act::Evict { process, page } => format!("evict {}", at(*process, page.start())),
        Act::Zero(_) | Act::Compact(..) => format!("{act:?}"),
    }
}

fn places(process: ProcessKey, ranges: &[PmdRange], at: At<'_>) -> String {
    let places: Vec<String> = ranges.iter().map(|range| at(process, range.start())).collect();
    places.join(" ")
}

/// Fails where what was said parts.
pub(crate) fn same(simulated: &[String], live: &[String]) -> Ended {
    /// Lines shown before the first difference.
    const CONTEXT: usize = 5;
    if let Some(at) = simulated.iter().zip(live).position(|(a, b)| a != b) {
        let before = &simulated[at.saturating_sub(CONTEXT)..at];
        let (a, b) = (&simulated[at], &live[at]);
        return Err(format!("after {before:#?}\nsimulated: {a}\n     live: {b}").into());
    }
    let (a, b) = (simulated.len(), live.len());
    ensure!(a == b, "one says {a} lines and the other {b}");
    Ok(())
}

/// A policy that is listened to.
#[derive(Debug)]
pub(crate) struct Recorder<P> {
    policy: P,
    log: Log,
}

impl<P> Recorder<P> {
    pub(crate) fn new(policy: P) -> (Self, Log) {
        let log = Log::default();
        (Self { policy, log: log.clone() }, log)
    }
}

impl Policy for Recorder<Box<dyn Policy>> {
    fn fault(&mut self, fault: &Fault, view: &dyn View) -> FaultPlan {
        let plan = self.policy.fault(fault, view);
        self.log.add(Said::Fault(*fault, plan));
        plan
    }

    fn background(&mut self, view: &mut dyn View) -> Step {
        let step = self.policy.background(view);
        self.log.add(Said::Step(step));
        step
    }

    fn prepare(&mut self, view: &dyn View) -> Step {
        self.policy.prepare(view)
    }

    fn pressure(&mut self, shortage: Shortage, view: &mut dyn View) -> Option<Action> {
        self.policy.pressure(shortage, view)
    }

    fn freed_in_part(&mut self, process: ProcessKey, range: PmdRange, now: Time) {
        self.policy.freed_in_part(process, range, now);
    }

    fn learn(&mut self, action: &Action, outcome: Outcome) {
        self.log.add(Said::Became(*action, outcome));
        self.policy.learn(action, outcome);
    }

    fn capabilities(&self) -> Capabilities {
        self.policy.capabilities()
    }

    fn life(&self) -> Life {
        self.policy.life()
    }
}

impl Debloat for Recorder<Box<dyn Debloat>> {
    fn decide(&mut self, maps: &BloatMaps, need: BasePages) -> Decision {
        /// Many times what it takes to de-bloat any program here.
        const MOST: usize = 10_000;
        let decision = self.policy.decide(maps, need);
        let count = self.log.add(Said::Decided(decision.clone()));
        assert!(count < MOST, "the policy does not come to an end");
        decision
    }

    fn floor(&self) -> BloatDensity {
        self.policy.floor()
    }
}
