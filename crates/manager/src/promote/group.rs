//! The processes under one policy, and what the policy wants of them.

use super::crew::{Job, Reason};
use super::pace::Purse;
use super::policy::Promotion;
use super::tenant::Tenant;
use super::view::LiveView;
use crate::budget::CpuBudget;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use superpage_policy::system::{
    Act, Action, Attempt, Cause, FaultCause, FaultPlan, Outcome, Step, System, View as _,
};
use superpage_units::{BasePages, HugePages, Nanos, PageSize, ProcessKey, Region, VirtAddr};

/// A policy with its processes.
#[derive(Debug)]
pub struct Group {
    /// The policy by name.
    pub name: String,
    policy: Promotion,
    system: Box<dyn System>,
    /// What it sees.
    pub view: LiveView,
    /// What of a core it may use in the background, where it limits itself.
    pub purse: Purse,
    rests_until: Option<Nanos>,
    /// Where to look for what is populated already and no fault will tell of.
    due: VecDeque<Span>,
}

/// Memory of a process that is to be looked over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    process: ProcessKey,
    /// From here on it has not been looked over yet.
    at: VirtAddr,
    end: VirtAddr,
}

impl Span {
    /// All of it.
    fn all(process: ProcessKey) -> Self {
        Self { process, at: VirtAddr::default(), end: VirtAddr(u64::MAX) }
    }

    /// What the program may have filled lately that is at this region now.
    fn around(process: ProcessKey, region: Region) -> Self {
        let (start, end) = (region.start(), region.end());
        let at = VirtAddr(start.0.saturating_sub(NEAR.bytes().0));
        Self { process, at, end: end.offset(NEAR.bytes()) }
    }
}

/// What a group wants next.
#[derive(Debug)]
pub enum Wanted {
    /// These regions promoted.
    Job(Job),
    /// It looked around, and wants to go on.
    Looked,
    /// Nothing before this time, or until something happens.
    Nothing(Option<Nanos>),
}

/// Steps of a policy at a time before others have their turn. Chosen, not measured: some hundreds
/// of microseconds.
const STEPS: usize = 64;
/// Neighbours promoted by one call: some two milliseconds in which their process hardly gets a page
/// fault done ([`Turns`](super::pace::Turns)).
pub const LONGEST_RUN: HugePages = HugePages(4);
/// What a program may have filled on either side of where it is, while nobody listened: windows are
/// some 60 ms apart, twice that after a quiet while. Chosen, not measured: a GB a second, or half.
const NEAR: HugePages = HugePages(32);
/// From this population on a region that no fault told of is promoted: Ingens's 90 %. Its program
/// may not be filling it any more.
pub(super) const FULL_ENOUGH: BasePages = BasePages(460);

impl Group {
    /// Nobody under this policy yet; `None` if it promotes nothing.
    #[must_use]
    pub fn new(policy: Promotion, budget: CpuBudget) -> Option<Self> {
        let system = policy.build()?;
        let own = CpuBudget::new(system.background_share().min(1.0)).unwrap_or(budget);
        Some(Self {
            name: policy.to_string(),
            policy,
            system,
            view: LiveView::new(),
            purse: Purse::new(own, Instant::now()),
            rests_until: None,
            due: VecDeque::new(),
        })
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> Promotion {
        self.policy
    }

    /// Puts a process under it.
    pub fn add(&mut self, mut tenant: Tenant) {
        let key = tenant.key();
        if self.policy.hears_faults() {
            self.due.push_back(Span::all(key));
        }
        if matches!(self.policy, Promotion::Ingens | Promotion::HawkEye) {
            tenant.count();
        }
        self.view.add(tenant);
        self.rests_until = None;
    }

    /// Looks over a process's memory once more.
    pub fn look_again(&mut self, key: ProcessKey) {
        let is_due = |span: &Span| span.process == key && span.end == Span::all(key).end;
        if self.policy.hears_faults() && !self.due.iter().any(is_due) {
            self.due.push_back(Span::all(key));
        }
    }

    /// Looks over what lies around `region` first of all: its process was not heard for a while.
    pub fn look_around(&mut self, key: ProcessKey, region: Region) {
        if self.policy.hears_faults() {
            self.due.push_front(Span::around(key, region));
        }
    }

    /// Takes a process out.
    pub fn remove(&mut self, key: ProcessKey) -> Option<Tenant> {
        self.system.forget(key);
        self.view.remove(key)
    }

    /// Has the areas of its processes read now and then, where no fault does.
    pub fn see_areas(&mut self) {
        const AGE: std::time::Duration = std::time::Duration::from_secs(10);
        if !self.policy.hears_faults() {
            self.view.tenants_mut().for_each(|tenant| tenant.see_areas(AGE));
        }
    }

    /// A page fault was seen there. What is to be promoted at once, if anything.
    pub fn fault(&mut self, key: ProcessKey, address: VirtAddr, since: Nanos) -> Option<Job> {
        if !self.policy.hears_faults() {
            return None;
        }
        self.rests_until = None;
        let plan = self.tell(key, address)?;
        let region = Region::containing(address);
        self.job(key, region, HugePages(1), reason_of(&plan), Some(since), None)
    }

    /// Tells the policy of a fault; its plan, if that is a huge page now.
    fn tell(&mut self, key: ProcessKey, address: VirtAddr) -> Option<FaultPlan> {
        let fault = self.view.fault(key, address)?;
        let plan = self.system.fault(&fault, &self.view);
        let is_huge = |attempt| match attempt {
            Attempt::Complete => true,
            Attempt::Map { size, .. } => size == PageSize::Huge,
            Attempt::Base | Attempt::Reserve | Attempt::InPlace => false,
        };
        plan.attempts().next().is_some_and(is_huge).then_some(plan)
    }

    fn job(
        &self,
        key: ProcessKey,
        first: Region,
        count: HugePages,
        reason: Reason,
        since: Option<Nanos>,
        action: Option<Action>,
    ) -> Option<Job> {
        let tenant = self.view.tenant(key)?;
        let (held, memory) = (Arc::clone(&tenant.held), tenant.memory_of(first));
        Some(Job { key, held, first, count, memory, reason, since, action, tries: 0 })
    }

    /// Looks over what is due of a process in which something may be promoted now; `turn` says for how
    /// long one has to be left to itself.
    pub fn look(&mut self, now: Nanos, turn: impl Fn(ProcessKey) -> Duration) -> Wanted {
        self.view.set_now(now);
        let (view, time) = (&self.view, Instant::now());
        let wait = |span: &Span| {
            let tenant = view.tenant(span.process);
            let budget = tenant.map(|tenant| tenant.wait_to_promote(time));
            turn(span.process).max(budget.unwrap_or_default())
        };
        let may = self.due.iter().position(|span| wait(span).is_zero());
        match may.and_then(|at| self.due.remove(at)) {
            Some(span) => self.look_over(span),
            None => {
                let first = self.due.iter().map(wait).min();
                let nanos = |wait: Duration| u64::try_from(wait.as_nanos()).ok().map(Nanos);
                Wanted::Nothing(first.and_then(nanos).map(|wait| now + wait))
            }
        }
    }

    /// What it wants next in the background, besides looking over processes.
    pub fn next(&mut self, now: Nanos) -> Wanted {
        self.view.set_now(now);
        if self.view.is_empty() {
            return Wanted::Nothing(None);
        }
        if let Some(until) = self.rests_until.filter(|until| *until > now) {
            return Wanted::Nothing(Some(until));
        }
        for _ in 0..STEPS {
            match self.system.background(&mut self.view) {
                Step::Act(action) => {
                    if let Some(job) = self.act(action) {
                        return Wanted::Job(job);
                    }
                }
                Step::Scanned(_) => {}
                Step::Rest(until) => {
                    self.rests_until = until;
                    return Wanted::Nothing(until);
                }
            }
        }
        Wanted::Looked
    }

    /// What can be done of an action from outside: promoting. Memory is not compacted or zeroed for
    /// anybody, and there is no reservation to give back; what is partly used and idle is broken
    /// elsewhere (`take_back`).
    fn act(&mut self, action: Action) -> Option<Job> {
        let outcome = match action.act {
            Act::Promote { process, page, .. } if page.size() == PageSize::Huge => {
                let region = Region::containing(page.start());
                let reason = reason(&action.cause);
                match self.job(process, region, HugePages(1), reason, None, Some(action)) {
                    Some(job) => return Some(job),
                    None => Outcome::Stale,
                }
            }
            Act::Zero(_) | Act::Compact(..) => Outcome::NoFrame,
            _ => Outcome::Stale,
        };
        self.system.learn(&action, outcome);
        None
    }

    /// What became of an action.
    pub fn learn(&mut self, action: &Action, outcome: Outcome) {
        self.system.learn(action, outcome);
    }

    /// Goes on looking over a span for what is populated already, in address order: a policy that
    /// goes by faults is told of each region that is nearly full as if its last page had just been
    /// touched. What is left of the span stays due.
    fn look_over(&mut self, mut span: Span) -> Wanted {
        let key = span.process;
        let mut is_over = false;
        let mut run: Option<(Region, HugePages, Reason)> = None;
        for _ in 0..STEPS {
            let next = self.view.next_mapped(key, span.at);
            let Some(region) = next.filter(|region| region.start() < span.end) else {
                is_over = true;
                break;
            };
            if let Some((first, count, _)) = &run {
                let end = first.start().offset(count.bytes());
                if region.start() != end || *count >= LONGEST_RUN {
                    break;
                }
            }
            span.at = region.end();
            if let Some(reason) = self.is_due(key, region) {
                run = match run {
                    Some((first, count, reason)) => Some((first, count + HugePages(1), reason)),
                    None => Some((region, HugePages(1), reason)),
                };
            } else if run.is_some() {
                break;
            }
        }
        if !is_over {
            self.due.push_front(span);
        }
        let Some((first, count, reason)) = run else { return Wanted::Looked };
        let job = self.job(key, first, count, reason, None, None);
        job.map_or(Wanted::Looked, Wanted::Job)
    }

    /// Whether a region that no fault told of is to be promoted, and why.
    fn is_due(&mut self, key: ProcessKey, region: Region) -> Option<Reason> {
        let seen = self.view.region(key, region);
        if !seen.is_reserved || seen.population < FULL_ENOUGH {
            return None;
        }
        self.tell(key, region.start()).map(|_| reason(&Cause::Scanned(seen.population)))
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
