//! The scheduler: decides what is looked at and what is promoted, and when. Pure: [`Scheduler::step`]
//! takes an event and the time and returns commands; workers carry those out and report
//! ([`super::pool`]).
//!
//! A survey of a process says what is mapped; its policy says which PMD ranges it wants; they are
//! queued, pass the [gate](super::gate), and are collapsed, some neighbours at a time, one request at a
//! time in a process. All that is known of a range beyond what is mapped in it is its one
//! [`Known`](super::range::Known).
//!
//! When a process is surveyed again: soon after it has faulted or grown, but no sooner than
//! `SURVEY_SHARE` allows; when a range of it has cooled down; and else once a minute.

use super::event::{
    Activity, Collapse, Collapsed, Command, Event, LONGEST_RUN, Observation, Observed, Report,
    RequestId, Slow,
};
use super::gate::{Gate, Guard, Past, SLOW, SLOW_REQUEST};
use super::instance::{Background, PolicyInstance};
use super::managed::{Managed, Queued};
use super::policy::Promotion;
use super::range::{Because, Reason, Refusal, State, Wanted};
use super::runs::Runs;
use super::{Counts, Promoted, Rules};
use crate::left_behind::{LeftBehind, Owner};
use crate::process::{Extent, Survey};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;
use superpage_policy::promotion::{Action, Outcome};
use superpage_units::{BasePages, HugePages, Nanos, PmdRange, ProcessKey, Time};

/// Processes are observed so often while any of them faults.
const OBSERVE: Nanos = Nanos(50_000_000);
/// Processes are observed so often at the least.
pub(crate) const OBSERVE_IDLE: Nanos = Nanos(200_000_000);
/// The share of a core that observing may take, and that surveying one process may take.
pub(crate) const OBSERVE_SHARE: u32 = 200;
/// As above: one in so many.
const SURVEY_SHARE: u64 = 100;
/// A process that does nothing is surveyed again after this: a guest's page faults are not counted as
/// its process's. For 2,000 processes that is 1 % of a core.
const SURVEY_IDLE: Nanos = Nanos(60_000_000_000); // tidy: allow(60 s)
/// A policy is asked so often in a step, at the most, while all that it wants cools down.
const ASKED: usize = 64;
/// A survey walks page tables for so long, and the next goes on there: a process with page tables for more than some 60 GiB,
/// or one that keeps its lock, delays other processes no longer. Chosen, not measured.
const LONGEST_WALK: Duration = Duration::from_millis(100);
/// It is surveyed again after this at the latest.
const LONGEST_WAIT: Nanos = Nanos(600_000_000_000); // tidy: allow(600 s)
/// Surveys under way at a time.
const SURVEYS: usize = 1;
/// The VMAs and the PMD ranges with base pages that are known of all processes together, half as many again where many
/// processes want more: a TiB where all of it is present. What a survey finds beyond it waits until some of that has become
/// huge. Without a bound, programs that touch a page in each of many ranges would fill our memory at little cost to theirs.
const MOST_KNOWN: usize = 1 << 19;
/// The ranges that are queued of all processes together, likewise: some minutes of promoting.
const MOST_QUEUED: usize = 1 << 16;

/// What one of `processes` may have of something of which there is so much for all, where the others have so much: half of
/// what is left, so that there is some for another, and at the least what each could have.
const fn share(most: usize, of_others: usize, processes: usize) -> usize {
    let (left, each) = (most.saturating_sub(of_others) / 2, most / (2 * processes + 1) + 1);
    if left > each { left } else { each }
}

/// A request that is under way.
#[derive(Debug)]
struct InFlight {
    kind: Kind,
    /// Whose process it is about.
    owner: Option<Owner>,
    began: Time,
    /// It has taken longer than it may: its worker counts as lost until it reports.
    is_late: bool,
}

#[derive(Debug)]
enum Kind {
    Observe,
    Survey(ProcessKey, Activity),
    /// With the policy's name, for what is told when the process is not managed any more.
    Collapse {
        collapse: Collapse,
        guards: Vec<Guard>,
        wanted: Vec<Wanted>,
        policy: String,
    },
}

impl Kind {
    fn process(&self) -> Option<ProcessKey> {
        match self {
            Self::Observe => None,
            Self::Survey(process, ..) => Some(*process),
            Self::Collapse { collapse, .. } => Some(collapse.process),
        }
    }
}

/// A range that the gate let through, with the base pages that were present in it.
type Admitted = (PmdRange, Guard, BasePages);

/// The scheduler.
#[derive(Debug)]
pub struct Scheduler {
    at_once: usize,
    instances: Vec<PolicyInstance>,
    processes: BTreeMap<ProcessKey, Managed>,
    /// Ranges that were huge, of processes that are not managed yet.
    promoted_before: Promoted,
    gate: Gate,
    in_flight: BTreeMap<RequestId, InFlight>,
    last_request: u64,
    observe_next: Time,
    /// The process after which the search for the next collapse begins.
    last_collapsed: ProcessKey,
    counts: Counts,
    commands: Vec<Command>,
}

impl Scheduler {
    /// One that knows of no process yet. `promoted_before` are ranges that were huge, by an earlier
    /// one.
    #[must_use]
    pub fn new(rules: Rules, promoted_before: Promoted, now: Time) -> Self {
        let gate = Gate::new(rules.budget, rules.limits(), now);
        let instances = instances(&rules, now);
        Self {
            at_once: rules.at_once,
            instances,
            processes: BTreeMap::new(),
            promoted_before,
            gate,
            in_flight: BTreeMap::new(),
            last_request: 0,
            observe_next: now,
            last_collapsed: ProcessKey(0),
            counts: Counts::default(),
            commands: Vec::new(),
        }
    }

    /// Other rules hold from now on. Processes whose policy stays keep what is known of them, and what
    /// is queued stays queued.
    pub fn configure(&mut self, rules: Rules, now: Time) {
        let mut earlier = std::mem::take(&mut self.instances);
        let old: Vec<String> = earlier.iter().map(|one| one.name.clone()).collect();
        self.instances = instances(&rules, now);
        for instance in &mut self.instances {
            if let Some(same) = earlier.iter_mut().find(|one| one.name == instance.name) {
                std::mem::swap(instance, same);
            }
        }
        let place = |index: usize| {
            let name = old.get(index)?;
            self.instances.iter().position(|instance| instance.name == *name)
        };
        // A process of a policy that is not there any more is taken in anew by the next observation.
        self.processes.retain(|key, managed| match place(managed.instance) {
            Some(instance) => {
                managed.instance = instance;
                true
            }
            None => {
                self.promoted_before.insert(*key, std::mem::take(&mut managed.was_huge));
                false
            }
        });
        self.gate.configure(rules.budget, rules.limits(), now);
        self.at_once = rules.at_once;
        self.observe_next = now;
    }

    /// Takes in what happened at `now`; returns what to do.
    pub fn step(&mut self, event: Event, now: Time) -> Vec<Command> {
        match event {
            Event::Tick => {}
            Event::Spent(cost) => self.gate.spend(cost, now),
            Event::Observed(id, observation, cost) => self.observed(id, observation, cost, now),
            Event::Surveyed(id, survey, cost) => self.surveyed(id, survey, cost, now),
            Event::Collapsed(id, collapsed, cost) => self.collapsed(id, collapsed, cost, now),
            Event::TimedOut(id) => self.timed_out(id),
            Event::WorkerLost(id) => self.worker_lost(id, now),
        }
        self.decide(now);
        std::mem::take(&mut self.commands)
    }

    fn report(&mut self, report: Report) {
        self.commands.push(Command::Report(report));
    }

    fn request(&mut self, kind: Kind, now: Time) -> RequestId {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        let process = kind.process().and_then(|process| self.processes.get(&process));
        let owner = process.map(|managed| managed.owner.clone());
        self.in_flight.insert(id, InFlight { kind, owner, began: now, is_late: false });
        id
    }

    /// The requests that have taken longer than they may, by owner.
    fn late(&self) -> LeftBehind {
        let late = self.in_flight.values().filter(|one| one.is_late);
        LeftBehind::of(late.map(|one| one.owner.as_ref()))
    }

    /// The time from which on something may be done in the processes of each owner: never, where requests about that owner's do not
    /// come back.
    fn ready_for(&self) -> impl Fn(&Owner) -> Time {
        let late = self.late();
        let is_late = move |owner: &Owner| late.is_full() || late.is_used_up_by(owner);
        move |owner| if is_late(owner) { Time::NEVER } else { self.gate.ready_for(owner) }
    }

    // What happened.

    fn observed(&mut self, id: RequestId, seen: Observation, cost: Nanos, now: Time) {
        self.gate.spend(cost, now);
        if self.in_flight.remove(&id).is_none() {
            return;
        }
        let promised = self.promised(seen.domains.len());
        let mut domains = seen.domains;
        domains.iter_mut().zip(promised).for_each(|(domain, pages)| domain.promised = pages);
        self.gate.see(domains, &seen.free);
        self.instances
            .iter_mut()
            .for_each(|instance| instance.machine.snapshot.set_free(seen.free));
        let mut gone: BTreeSet<ProcessKey> = self.processes.keys().copied().collect();
        let mut is_any_active = false;
        for process in &seen.processes {
            if self.see(process, now) {
                gone.remove(&process.key);
                let managed = self.processes.get(&process.key);
                is_any_active |= managed.is_some_and(Managed::is_active);
            }
        }
        gone.into_iter().for_each(|key| self.forget(key));
        self.gate.forget_pauses(now);
        let wait = if is_any_active { OBSERVE } else { OBSERVE_IDLE };
        self.observe_next = now + wait.max(cost * u64::from(OBSERVE_SHARE));
    }

    /// Takes in what a process has done; says whether it is managed.
    fn see(&mut self, process: &Observed, now: Time) -> bool {
        let is_its = |instance: &PolicyInstance| instance.promotion() == process.policy;
        let Some(instance) = self.instances.iter().position(is_its) else { return false };
        if let Some(managed) = self.processes.get_mut(&process.key)
            && managed.instance != instance
        {
            self.promoted_before.insert(process.key, std::mem::take(&mut managed.was_huge));
            self.forget(process.key);
        }
        if !self.processes.contains_key(&process.key) {
            let mut managed = Managed::new(process, instance, now);
            managed.was_huge = self.promoted_before.remove(&process.key).unwrap_or_default();
            self.processes.insert(process.key, managed);
            self.instances[instance].machine.snapshot.add(process.key);
        }
        if let Some(managed) = self.processes.get_mut(&process.key) {
            (managed.activity, managed.domains) = (process.activity, process.domains);
            managed.owner.clone_from(&process.owner);
            if managed.is_active() {
                managed.next_survey = managed.next_survey.min(now);
            }
        }
        true
    }

    /// Forgets a process. Its request, if one is under way, ends as one of nobody's.
    fn forget(&mut self, key: ProcessKey) {
        let Some(managed) = self.processes.remove(&key) else { return };
        if let Some(instance) = self.instances.get_mut(managed.instance) {
            instance.forget(key);
        }
    }

    fn surveyed(&mut self, id: RequestId, survey: Option<Survey>, cost: Nanos, now: Time) {
        self.gate.spend(cost, now);
        let Some(InFlight { kind: Kind::Survey(key, activity), began, owner, .. }) =
            self.in_flight.remove(&id)
        else {
            return;
        };
        let took = now.since(began);
        self.gate.waited_for(owner, took, now);
        let Some(managed) = self.processes.get_mut(&key).filter(|one| one.request == Some(id))
        else {
            return;
        };
        managed.request = None;
        self.counts.surveys += 1;
        let Some(survey) = survey else { return self.forget(key) };
        managed.surveyed = Some(activity);
        managed.next_survey = if survey.is_late { now } else { now + SURVEY_IDLE };
        let counted = if took > SLOW_REQUEST { cost.max(took) } else { cost };
        managed.survey_not_before = now + (counted * SURVEY_SHARE).min(LONGEST_WAIT);
        managed.survey_from = survey.next();
        let Some(instance) = self.instances.get_mut(managed.instance) else { return };
        instance.surveyed(key, &survey, now);
        let snapshot = &instance.machine.snapshot;
        // What was emptied or unmapped is new when it is filled again.
        let is_gone = |range| survey.covers(range) && !snapshot.is_mapped(key, range);
        managed.was_huge.retain(|range| !is_gone(range));
        managed.ranges.retain(|range, known| match known.state {
            State::InFlight(_) | State::Queued(_) => true,
            _ => !known.is_forgotten(now) && !is_gone(*range),
        });
        // What was queued and has changed is wanted again, or is not wanted any more.
        let queued = &mut managed.queued;
        managed.ranges.retain(|range, known| {
            let is_stale = matches!(&known.state, State::Queued(wanted) if wanted.action.is_none())
                && snapshot.seen(key, *range).is_none();
            *queued -= usize::from(is_stale);
            !is_stale
        });
        let cooled = managed.ranges.values().filter_map(|known| known.refused_until(now)).min();
        managed.next_survey = managed.next_survey.min(cooled.unwrap_or(managed.next_survey));
        self.fill_queue(key, now);
    }

    /// Queues what the policy of a process wants of what the last survey of it found, as far as there is room.
    fn fill_queue(&mut self, key: ProcessKey, now: Time) {
        let processes = self.processes.len();
        let queued: usize = self.processes.values().map(|managed| managed.queued).sum();
        let Some(managed) = self.processes.get_mut(&key) else { return };
        let Some(instance) = self.instances.get_mut(managed.instance) else { return };
        let most = share(MOST_QUEUED, queued - managed.queued, processes);
        let room = most.saturating_sub(managed.queued);
        let ranges = &managed.ranges;
        let is_free = |range| ranges.get(&range).is_none_or(|known| known.is_free(now));
        let wanted = instance.wanted(key, room, is_free);
        managed.wants_more = wanted.len() == room;
        for (range, reason) in wanted {
            managed.queue(range, Wanted { reason, action: None, since: now });
        }
    }

    fn collapsed(&mut self, id: RequestId, done: Collapsed, cost: Nanos, now: Time) {
        self.gate.spend(cost, now);
        let Some(InFlight { kind, owner, began, .. }) = self.in_flight.remove(&id) else { return };
        let Kind::Collapse { collapse, wanted, policy, .. } = kind else { return };
        self.gate.waited_for(owner.clone(), now.since(began), now);
        if !done.slowest.is_zero() {
            let owner = owner.clone();
            owner.into_iter().for_each(|owner| self.gate.took(owner, done.slowest, now));
            self.report(Report::CollapseTook(done.slowest));
        }
        let promoted = done.became.iter().filter(|(_, became)| became.is_ok()).count();
        let found_none = |(_, became): &(PmdRange, Result<BasePages, Refusal>)| {
            *became == Err(Refusal::NoHugePage)
        };
        let is_none = promoted == 0 && done.became.iter().any(found_none);
        if is_none {
            self.gate.no_huge_page.found_none(now);
        } else if promoted > 0 {
            self.gate.no_huge_page.took(Nanos::ZERO, now);
        }
        if is_none || done.slowest > SLOW {
            let cause = if is_none { Slow::NoHugePage } else { Slow::Kernel };
            let ready = owner.as_ref().map_or(now, |owner| self.gate.ready_for(owner));
            let pause = if is_none { self.gate.no_huge_page.left(now) } else { ready.since(now) };
            self.report(Report::BackedOff { took: done.slowest, pause, cause });
        }
        self.settle(id, &collapse, &wanted, &done, now);
        self.tell(&collapse, &wanted, &policy, &done, now);
    }

    /// Brings the ranges of a collapse request that has ended up to date, and tells their policy.
    fn settle(
        &mut self,
        id: RequestId,
        collapse: &Collapse,
        wanted: &[Wanted],
        done: &Collapsed,
        now: Time,
    ) {
        let key = collapse.process;
        let Some(managed) = self.processes.get_mut(&key).filter(|one| one.request == Some(id))
        else {
            return;
        };
        managed.request = None;
        managed.collapse_not_before = now + done.held;
        let Some(instance) = self.instances.get_mut(managed.instance) else { return };
        let became: BTreeMap<PmdRange, Result<BasePages, Refusal>> =
            done.became.iter().copied().collect();
        for (range, wanted) in collapse.ranges().zip(wanted) {
            match became.get(&range) {
                Some(Ok(_)) => {
                    instance.machine.set_huge(key, range);
                    managed.cool_down(range, Because::Promoted, now);
                }
                Some(Err(why)) => managed.cool_down(range, Because::Refused(*why), now),
                // Somebody else made it huge meanwhile.
                None => {
                    instance.machine.set_huge(key, range);
                    managed.ranges.remove(&range);
                }
            }
            if let Some(action) = &wanted.action {
                instance.learn(action, done.outcome(range));
            }
        }
        let is_any = |refusal| became.values().any(|became| *became == Err(refusal));
        if is_any(Refusal::Gone) {
            managed.next_survey = now;
        }
        if is_any(Refusal::CgroupLimit) {
            managed.cool_down_queue(Because::Refused(Refusal::CgroupLimit), now);
        }
        if wanted.iter().any(|wanted| wanted.action.is_some()) {
            instance.spend(done.held, now);
        }
    }

    /// Tells what became of a collapse request, also of a process that is not managed any more.
    fn tell(
        &mut self,
        collapse: &Collapse,
        wanted: &[Wanted],
        policy: &str,
        done: &Collapsed,
        now: Time,
    ) {
        let process = collapse.process;
        let made = || done.became.iter().filter_map(|(_, became)| became.ok());
        let (huge_pages, filled) = (HugePages(made().count() as u64), made().sum());
        if let Some(first) = wanted.first().filter(|_| !huge_pages.is_zero()) {
            let (reason, waited) = (first.reason, now.since(first.since));
            let policy = policy.to_owned();
            let report = Report::Promoted { process, policy, huge_pages, filled, reason, waited };
            self.report(report);
        }
        let mut refused: BTreeMap<Refusal, HugePages> = BTreeMap::new();
        for why in done.became.iter().filter_map(|(_, became)| became.err()) {
            *refused.entry(why).or_default() += HugePages(1);
        }
        for (why, huge_pages) in refused {
            let policy = policy.to_owned();
            self.report(Report::Refused { process, policy, huge_pages, why });
        }
    }

    /// The process of a request that takes too long is left alone until its worker reports.
    fn timed_out(&mut self, id: RequestId) {
        let Some(request) = self.in_flight.get_mut(&id) else { return };
        request.is_late = true;
        self.counts.timed_out += 1;
        let process = request.kind.process();
        self.report(Report::TimedOut(process));
    }

    /// What became of the request is not known: its ranges are left alone for a while.
    fn worker_lost(&mut self, id: RequestId, now: Time) {
        let Some(request) = self.in_flight.remove(&id) else { return };
        let process = request.kind.process();
        self.counts.workers_lost += 1;
        self.report(Report::WorkerLost(process));
        match request.kind {
            Kind::Observe => self.observe_next = now + OBSERVE_IDLE,
            Kind::Survey(key, ..) => {
                let managed = self.processes.get_mut(&key);
                if let Some(managed) = managed.filter(|one| one.request == Some(id)) {
                    managed.request = None;
                    managed.next_survey = now + SURVEY_IDLE;
                }
            }
            Kind::Collapse { collapse, wanted, .. } => {
                let became = collapse.ranges().map(|range| (range, Err(Refusal::Busy)));
                let done = Collapsed { became: became.collect(), ..Collapsed::default() };
                self.settle(id, &collapse, &wanted, &done, now);
            }
        }
    }

    /// What requests under way may still add to each domain.
    fn promised(&self, domains: usize) -> Vec<HugePages> {
        let mut promised = vec![HugePages::ZERO; domains];
        for request in self.in_flight.values() {
            let Kind::Collapse { guards, .. } = &request.kind else { continue };
            for guard in guards {
                for index in guard.domains.all() {
                    promised.get_mut(index).into_iter().for_each(|sum| *sum += HugePages(1));
                }
            }
        }
        promised
    }

    // What to do.

    fn decide(&mut self, now: Time) {
        if self.observe_at().is_some_and(|at| at <= now) {
            let id = self.request(Kind::Observe, now);
            self.commands.push(Command::Observe(id));
        }
        self.survey(now);
        if self.gate.ready_at() > now {
            return;
        }
        let has_room = |(key, managed): (&ProcessKey, &Managed)| managed.has_room().then_some(*key);
        let with_room: Vec<ProcessKey> = self.processes.iter().filter_map(has_room).collect();
        with_room.into_iter().for_each(|key| self.fill_queue(key, now));
        self.ask_policies(now);
        while self.has_slot() {
            if !self.collapse(now) {
                return;
            }
        }
    }

    fn under_way(&self, is_one: impl Fn(&Kind) -> bool) -> usize {
        self.in_flight.values().filter(|one| !one.is_late && is_one(&one.kind)).count()
    }

    fn collapses_under_way(&self) -> usize {
        self.under_way(|kind| matches!(kind, Kind::Collapse { .. }))
    }

    /// Whether another collapse may begin.
    fn has_slot(&self) -> bool {
        self.collapses_under_way() < self.at_once
    }

    fn observe_at(&self) -> Option<Time> {
        // The process that a late one waits for is passed over by the next.
        let is_under_way = self.under_way(|kind| matches!(kind, Kind::Observe)) > 0;
        (!is_under_way && !self.late().is_full()).then_some(self.observe_next)
    }

    /// The process to be surveyed next, and when.
    fn next_survey(&self) -> Option<(Time, ProcessKey)> {
        let is_full = self.under_way(|kind| matches!(kind, Kind::Survey(..))) >= SURVEYS;
        if is_full {
            return None;
        }
        let ready_for = self.ready_for();
        let at = |(key, managed): (&ProcessKey, &Managed)| {
            Some((managed.survey_at()?.max(ready_for(&managed.owner)), *key))
        };
        let (at, key) = self.processes.iter().filter_map(at).min()?;
        Some((at.max(self.gate.budget_at()), key))
    }

    fn survey(&mut self, now: Time) {
        while let Some((_, key)) = self.next_survey().filter(|(at, _)| *at <= now) {
            let Some(managed) = self.processes.get(&key) else { return };
            let (activity, from) = (managed.activity, managed.survey_from);
            let most = share(MOST_KNOWN, self.known_of_others(key), self.processes.len());
            let longest = Some(LONGEST_WALK);
            let id = self.request(Kind::Survey(key, activity), now);
            if let Some(managed) = self.processes.get_mut(&key) {
                managed.request = Some(id);
            }
            self.commands.push(Command::Survey(id, key, Extent { from, most, longest }));
        }
    }

    /// What is known of all other processes than this one, in VMAs and PMD ranges with base pages.
    fn known_of_others(&self, key: ProcessKey) -> usize {
        let known = |instance: &PolicyInstance| {
            let (all, of_one) = instance.machine.snapshot.known(key);
            all - of_one
        };
        self.instances.iter().map(known).sum()
    }

    /// Queues what policies want in the background, one range at a time, while a worker is free.
    fn ask_policies(&mut self, now: Time) {
        if !self.has_slot() {
            return;
        }
        let mut free = self.at_once.saturating_sub(self.collapses_under_way());
        for index in 0..self.instances.len() {
            for _ in 0..ASKED {
                if free == 0 || self.instances[index].due().is_none_or(|due| due > now) {
                    break;
                }
                match self.instances[index].background(now) {
                    Background::Promote(key, range, action) => {
                        // The policy may choose the same process again and again.
                        if self.is_paused(key, now) {
                            self.instances[index].learn(&action, Outcome::Stale);
                            self.instances[index].rest(now + OBSERVE_IDLE);
                            break;
                        }
                        if self.want(index, key, range, action, now) == Queued::Yes {
                            free -= 1;
                        }
                    }
                    Background::More => break,
                    Background::Rest(_) => {}
                }
            }
        }
    }

    /// Whether the processes of this process's owner make a pause.
    fn is_paused(&self, key: ProcessKey, now: Time) -> bool {
        let owner = self.processes.get(&key).map(|managed| &managed.owner);
        owner.is_some_and(|owner| self.ready_for()(owner) > now)
    }

    fn want(
        &mut self,
        index: usize,
        key: ProcessKey,
        range: PmdRange,
        action: Action,
        now: Time,
    ) -> Queued {
        let managed = self.processes.get_mut(&key).filter(|managed| managed.instance == index);
        let reason = Reason::Policy(action.cause);
        let wanted = Wanted { reason, action: Some(action), since: now };
        let queued = managed.map_or(Queued::No, |managed| managed.queue(range, wanted));
        if queued == Queued::No {
            self.instances[index].learn(&action, Outcome::Stale);
        }
        queued
    }

    /// The process in which something is collapsed next, if that may begin now.
    fn next_collapse(&self, now: Time) -> Option<ProcessKey> {
        let ready_for = self.ready_for();
        let may = |(_, managed): &(&ProcessKey, &Managed)| {
            managed.collapse_at().is_some_and(|at| at.max(ready_for(&managed.owner)) <= now)
        };
        let behind = (Bound::Excluded(self.last_collapsed), Bound::Unbounded);
        let next = self.processes.range(behind).find(may);
        next.or_else(|| self.processes.iter().find(may)).map(|(key, _)| *key)
    }

    /// Begins the next collapse that may begin now; says whether there was one to be thought of.
    fn collapse(&mut self, now: Time) -> bool {
        let Some(key) = self.next_collapse(now) else { return false };
        self.last_collapsed = key;
        let (admitted, refused) = self.admit(key, now);
        if let Some(managed) = self.processes.get(&key) {
            let policy = self.instances[managed.instance].name.clone();
            for (why, huge_pages) in refused {
                let policy = policy.clone();
                self.report(Report::Refused { process: key, policy, huge_pages, why });
            }
        }
        self.begin(key, admitted, now);
        true
    }

    /// Asks the gate about the next run of a process: the ranges that may be promoted, which are
    /// neighbours, and how many were refused for which reason.
    fn admit(
        &mut self,
        key: ProcessKey,
        now: Time,
    ) -> (Vec<Admitted>, BTreeMap<Refusal, HugePages>) {
        let (mut admitted, mut refused) = (Vec::new(), BTreeMap::new());
        let Some(managed) = self.processes.get_mut(&key) else { return (admitted, refused) };
        let Some(instance) = self.instances.get_mut(managed.instance) else {
            return (admitted, refused);
        };
        let run = managed.next_run();
        managed.cursor = run.last().map_or(managed.cursor, |last| last.end());
        let memory = run.first().map(|first| instance.machine.snapshot.memory(key, *first));
        for range in run {
            // What another kind of memory allows is asked for by itself.
            if Some(instance.machine.snapshot.memory(key, range)) != memory {
                break;
            }
            let Some(known) = managed.ranges.get(&range) else { continue };
            let past = if managed.was_huge.contains(range) { Past::WasHuge } else { Past::New };
            let seen = instance.machine.snapshot.seen(key, range);
            let answer = match seen {
                Some(seen) => self.gate.admit(&seen, past, managed.domains),
                None => Err(Refusal::NotPossible),
            };
            match answer {
                Ok(guard) => admitted.push((range, guard, seen.unwrap_or_default().present)),
                Err(why) => {
                    if let State::Queued(wanted) = &known.state
                        && let Some(action) = &wanted.action
                    {
                        instance.learn(action, Outcome::Stale);
                    }
                    *refused.entry(why).or_default() += HugePages(1);
                    managed.cool_down(range, Because::Refused(why), now);
                    // It holds for all memory of the machine.
                    if why == Refusal::Fragmentation {
                        managed.cool_down_queue(Because::Refused(why), now);
                        break;
                    }
                    // One call is about neighbours.
                    if !admitted.is_empty() {
                        break;
                    }
                }
            }
        }
        (admitted, refused)
    }

    /// Orders a collapse of neighbours.
    fn begin(&mut self, key: ProcessKey, admitted: Vec<Admitted>, now: Time) {
        let Some((first, ..)) = admitted.first().copied() else { return };
        let least = admitted.iter().map(|(.., present)| *present).min().unwrap_or_default();
        let Some(managed) = self.processes.get_mut(&key) else { return };
        let memory = self.instances[managed.instance].machine.snapshot.memory(key, first);
        let count = HugePages(admitted.len() as u64);
        let collapse = Collapse { process: key, first, count, memory, least };
        let id = RequestId(self.last_request + 1);
        let mut wanted = Vec::with_capacity(admitted.len());
        for (range, ..) in &admitted {
            let Some(known) = managed.ranges.get_mut(range) else { continue };
            if let State::Queued(one) = std::mem::replace(&mut known.state, State::InFlight(id)) {
                wanted.push(*one);
                managed.queued -= 1;
            }
        }
        managed.request = Some(id);
        let guards = admitted.into_iter().map(|(_, guard, _)| guard).collect();
        let policy = self.instances[managed.instance].name.clone();
        let kind = Kind::Collapse { collapse: collapse.clone(), guards, wanted, policy };
        let id = self.request(kind, now);
        self.commands.push(Command::Collapse(id, collapse));
    }

    /// When to step again, if nothing happens before.
    #[must_use]
    pub fn next_step(&self) -> Time {
        let may_be_filled = self.processes.values().any(Managed::has_room);
        let fill = may_be_filled.then_some(Time::ZERO);
        let ready_for = self.ready_for();
        let at = |one: &Managed| Some(one.collapse_at()?.max(ready_for(&one.owner)));
        let collapse = self.processes.values().filter_map(at).min();
        let policies = self.instances.iter().filter_map(PolicyInstance::due).min();
        let is_free = self.has_slot();
        let work = [collapse, fill, policies].into_iter().flatten().min().filter(|_| is_free);
        let work = work.map(|at| at.max(self.gate.ready_at()));
        let survey = self.next_survey().map(|(at, _)| at);
        let all = [self.observe_at(), survey, work];
        all.into_iter().flatten().min().unwrap_or(Time::NEVER)
    }

    // How it stands.

    /// The names of the policies, and how many processes are under each.
    #[must_use]
    pub fn policies(&self) -> Vec<(String, u64)> {
        let count = |index| self.processes.values().filter(|one| one.instance == index).count();
        let named = self.instances.iter().enumerate();
        named.map(|(index, one)| (one.name.clone(), count(index) as u64)).collect()
    }

    /// What was done and went wrong so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Promotions that wait or are under way.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let queued: usize = self.processes.values().map(|managed| managed.queued).sum();
        (queued + self.collapses_under_way()) as u64
    }

    /// The rest, at `now`, of the longest pause, which processes make because the kernel took long there or has no huge page.
    #[must_use]
    pub fn pause(&self, now: Time) -> Nanos {
        self.gate.longest_pause(now)
    }

    /// Ranges that were huge, by process; with the policy.
    pub fn promoted(&self) -> impl Iterator<Item = (ProcessKey, Promotion, &Runs)> {
        self.processes.iter().map(|(key, managed)| {
            let policy = self.instances[managed.instance].promotion();
            (*key, policy, &managed.was_huge)
        })
    }

    /// Ranges that were huge, of processes that an earlier scheduler knew and this one does not yet.
    #[must_use]
    pub fn promoted_before(&self) -> &Promoted {
        &self.promoted_before
    }

    /// Asserts what holds after every step. For tests.
    ///
    /// # Panics
    /// If something does not hold.
    pub fn check(&self) {
        let mut promised = HugePages::ZERO;
        for (id, request) in &self.in_flight {
            if let Kind::Collapse { collapse, guards, wanted, .. } = &request.kind {
                let count = usize::try_from(collapse.count.0).expect("a short run");
                assert!(count == guards.len() && count == wanted.len() && count > 0);
                assert!(collapse.count <= LONGEST_RUN);
                promised += collapse.count;
                let Some(managed) = self.processes.get(&collapse.process) else { continue };
                if managed.request == Some(*id) {
                    for range in collapse.ranges() {
                        assert_eq!(managed.ranges[&range].state, State::InFlight(*id));
                    }
                }
            }
        }
        assert!(self.gate.promised() >= promised || self.gate.promised().is_zero());
        assert!(self.collapses_under_way() <= self.at_once);
        for (key, managed) in &self.processes {
            assert!(managed.instance < self.instances.len());
            let states = managed.ranges.values().map(|known| &known.state);
            let queued = states.clone().filter(|state| matches!(state, State::Queued(_))).count();
            assert_eq!(queued, managed.queued, "{key:?}");
            for state in states {
                let State::InFlight(id) = state else { continue };
                assert_eq!(managed.request, Some(*id), "{key:?}");
                assert!(self.in_flight.contains_key(id), "{key:?}: nobody has request {id}");
            }
            if let Some(id) = managed.request {
                assert!(self.in_flight.contains_key(&id), "{key:?}: nobody has request {id}");
            }
        }
    }
}

/// An instance for each policy that some process may have.
fn instances(rules: &Rules, now: Time) -> Vec<PolicyInstance> {
    let mut instances: Vec<PolicyInstance> = Vec::new();
    for policy in &rules.policies {
        if instances.iter().all(|instance| instance.promotion() != *policy) {
            instances.extend(PolicyInstance::new(*policy, now));
        }
    }
    instances
}
