//! The promoter's loop: hear, ask the policies, give work to the crew, learn what became of it.

use super::crew::{Crew, Done, Job};
use super::front::Front;
use super::group::{LONGEST_RUN, Wanted};
use super::headroom::Headroom;
use super::hear::Busy;
use super::limits::{Limits, Refusal};
use super::pace::{BackOff, Haste, Purse, Turns};
use super::roster::Roster;
use super::tenant::Tenant;
use super::{Board, Command, Setup, Standing, now};
use crate::budget::CpuBudget;
use crate::history::{Entry, What};
use crate::ledger::{Ledger, entry};
use crate::supply;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::collections::{BTreeSet, VecDeque};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use superpage_kernel::fault_events::{Counts, Event};
use superpage_kernel::usage::CpuTime;
use superpage_policy::system::Outcome;
use superpage_units::{BasePages, HugePages, Nanos, ProcessKey, Region, VirtAddr};
use tracing::warn;

/// So long without a fault that anything could follow from is a quiet while.
const QUIET: Duration = Duration::from_secs(1);
/// How often memory is looked at, and what is known is cleared up.
const TICK: Duration = Duration::from_secs(1);
/// How often all processes are gone through. A machine with 2,000 of them takes some 30 ms for it.
const SWEEP: Duration = Duration::from_secs(10);
/// A page that the kernel is using for a moment (on its way to a list, being moved) is tried again
/// so often, the first time after this, then four times later each time.
const RETRIES: u32 = 3;
const RETRY: Duration = Duration::from_millis(10);
/// What following programs by their page tables may take of the CPU budget, saved up for so long. Chosen,
/// for a quarter of a percent of a core at the default budget: a heap that is filled at once is followed as
/// closely as can be for some twenty seconds, those that grow for ever cost no more than that together.
/// (While they do, others are followed as seldom; faults are heard as before.)
const FOLLOWING: f64 = 0.01;
const FOLLOWING_SAVED: Duration = Duration::from_secs(120);
/// A turn of the loop that takes longer does something else beside. Measured: mostly 0.04 ms.
const FOLLOWING_TURN: Nanos = Nanos(200_000); // tidy: allow(0.2 ms)
/// Faults that wait to be looked at, at the most; chosen, not measured.
const MOST_WAITING: usize = 1 << 16;

/// Runs until it is told to stop.
pub(super) fn run(
    setup: Setup,
    ledger: &Arc<Ledger>,
    board: &Arc<Board>,
    orders: Receiver<Command>,
    (waker, ear): (UnixStream, UnixStream),
) {
    let crew = match Crew::new(setup.promotion.at_once, &waker) {
        Ok(crew) => crew,
        Err(error) => return warn!("nothing is promoted, threads cannot be started: {error}"),
    };
    let mut worker = Worker::new(setup, Arc::clone(ledger), Arc::clone(board), crew, waker);
    worker.roster.sweep();
    while worker.turn(&orders, &ear) == Go::On {}
    worker.crew.finish();
    worker.learn_all();
    worker.remember();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Go {
    On,
    Home,
}

/// A fault that waits to be looked at.
#[derive(Clone, Copy, Debug)]
struct Heard {
    address: VirtAddr,
    time: Nanos,
    /// It waited once until its area could be known.
    has_waited: bool,
    /// It was heard; in the others something was added since the last look.
    is_heard: bool,
}

/// What a job came to.
#[derive(Clone, Copy, Debug)]
struct Sum {
    promoted: HugePages,
    filled: BasePages,
}

struct Worker {
    roster: Roster,
    ledger: Arc<Ledger>,
    board: Arc<Board>,
    crew: Crew,
    waker: UnixStream,
    told: Counts,
    /// Faults by region, in the order in which they were heard.
    heard: VecDeque<(u32, Region, Heard)>,
    heard_set: BTreeSet<(u32, Region)>,
    /// Faults in areas that are not known yet, and when they can be.
    late: Vec<(Instant, (u32, Region, Heard))>,
    /// Where programs are filling memory.
    front: Front,
    urgent: VecDeque<(usize, Job)>,
    /// The regions of those.
    queued: BTreeSet<(ProcessKey, Region)>,
    /// What is tried again, and when.
    again: Vec<(Instant, usize, Job)>,
    under_way: BTreeSet<(ProcessKey, Region)>,
    back_off: BackOff,
    turns: Turns,
    purse: Purse,
    /// What following programs may take of that.
    following: Purse,
    spent: CpuTime,
    limits: Limits,
    machine: Headroom,
    /// When a fault was heard last in a region that does not rest; at first, when this began.
    last_heard: Instant,
    next_tick: Instant,
    next_sweep: Instant,
    next_group: usize,
    missed: u64,
}

impl Worker {
    fn new(
        setup: Setup,
        ledger: Arc<Ledger>,
        board: Arc<Board>,
        crew: Crew,
        waker: UnixStream,
    ) -> Self {
        let began = Instant::now();
        let remembered =
            std::mem::take(&mut *board.remembered.lock().unwrap_or_else(PoisonError::into_inner));
        Self {
            told: Counts::default(),
            heard: VecDeque::new(),
            heard_set: BTreeSet::new(),
            late: Vec::new(),
            front: Front::default(),
            urgent: VecDeque::new(),
            queued: BTreeSet::new(),
            again: Vec::new(),
            under_way: BTreeSet::new(),
            back_off: BackOff::default(),
            turns: Turns::default(),
            purse: Purse::new(setup.promotion.budget, began),
            following: following(setup.promotion.budget, began),
            spent: CpuTime::of_thread(),
            limits: Limits {
                worth: setup.worth,
                max_fragmentation: setup.promotion.max_fragmentation,
                fragmentation: 0.0,
            },
            machine: Headroom::default(),
            last_heard: began,
            next_tick: began,
            next_sweep: began + SWEEP,
            next_group: 0,
            missed: 0,
            roster: Roster::new(setup, remembered),
            ledger,
            board,
            crew,
            waker,
        }
    }

    /// One turn of the loop.
    fn turn(&mut self, orders: &Receiver<Command>, ear: &UnixStream) -> Go {
        while let Ok(order) = orders.try_recv() {
            match order {
                Command::Stop => return Go::Home,
                Command::Configure(setup) => self.configure(*setup),
            }
        }
        self.learn_all();
        self.hear();
        let time = Instant::now();
        let follows = self.following.wait(time).is_zero() && self.look_at_front(time);
        if time >= self.next_tick {
            self.tick(time);
        }
        if time >= self.next_sweep {
            self.roster.sweep();
            self.next_sweep = time + SWEEP;
        }
        let rest = self.work();
        let cost = self.spend();
        if follows {
            self.following.spend(cost.min(FOLLOWING_TURN), Instant::now());
        }
        self.wait(ear, rest);
        Go::On
    }

    /// What this thread has cost comes out of the budget too.
    fn spend(&mut self) -> Nanos {
        let now = CpuTime::of_thread();
        let cost = now.since(self.spent);
        self.purse.spend(cost, Instant::now());
        self.spent = now;
        cost
    }

    /// Sleeps until it is time to listen or to look, something is done, or `rest` is over.
    fn wait(&mut self, ear: &UnixStream, rest: Duration) {
        let now = Instant::now();
        let is_quiet = now.saturating_duration_since(self.last_heard) >= QUIET;
        let listen = self.roster.ears.turn(now, if is_quiet { Busy::No } else { Busy::Yes });
        let until = |time: Instant| time.saturating_duration_since(now);
        let front = self.front.next().map_or(TICK, until).max(self.following.wait(now));
        let rest = rest.min(until(self.next_tick)).min(listen).min(front);
        if !rest.is_zero() {
            self.sleep(ear, rest);
        }
        let mut bytes = [0; 64]; // tidy: allow(bytes of a wake-up)
        while matches!((&*ear).read(&mut bytes), Ok(count) if count > 0) {}
    }

    fn sleep(&self, ear: &UnixStream, time: Duration) {
        let rings = self.roster.ears.fds().into_iter();
        let mut fds: Vec<PollFd<'_>> =
            rings.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        fds.push(PollFd::from_borrowed_fd(ear.as_fd(), PollFlags::IN));
        let timeout = Timespec::try_from(time).ok();
        // A signal may end it early; the loop looks around then.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    /// Goes by another setup.
    fn configure(&mut self, setup: Setup) {
        let promotion = &setup.promotion;
        if self.roster.setup.promotion.at_once != promotion.at_once {
            match Crew::new(promotion.at_once, &self.waker) {
                Ok(crew) => {
                    self.crew.finish();
                    self.learn_all();
                    self.crew = crew;
                    self.under_way.clear();
                    self.turns = Turns::default();
                }
                Err(error) => warn!("as many promotions at once as before: {error}"),
            }
        }
        let time = Instant::now();
        self.purse = Purse::new(promotion.budget, time);
        self.following = following(promotion.budget, time);
        self.limits.worth = setup.worth;
        self.limits.max_fragmentation = promotion.max_fragmentation;
        for (index, job) in self.urgent.drain(..) {
            if let (Some(action), Some(group)) = (job.action, self.roster.groups.get_mut(index)) {
                group.learn(&action, Outcome::Stale);
            }
        }
        self.queued.clear();
        self.again.clear();
        self.roster.configure(setup);
        self.told = self.roster.ears.counts();
    }

    /// Takes in the faults that were heard.
    fn hear(&mut self) {
        let mut events = Vec::new();
        self.roster.ears.drain(|event| events.push(event));
        if events.is_empty() {
            return;
        }
        for event in events {
            match event {
                Event::Fault { pid, address, time, .. } => self.heard(pid, address, time),
                Event::Exit { pid } => self.let_go(pid),
                Event::Exec { pid } => {
                    self.let_go(pid);
                    self.roster.hold_if_named(pid);
                }
                Event::Fork { .. } => {}
            }
        }
    }

    /// Follows programs that fill memory, if it is time to; where something was added, it is as if a
    /// fault was heard. Says whether it was time.
    fn look_at_front(&mut self, time: Instant) -> bool {
        if self.front.next().is_none_or(|next| next > time) {
            return false;
        }
        let groups = &self.roster.groups;
        let survey = |key, region| {
            let tenant = groups.iter().find_map(|group| group.view.tenant(key))?;
            tenant.survey(region).ok()
        };
        let since = now();
        for (key, region) in self.front.look(time, survey) {
            let pid = groups.iter().find_map(|group| group.view.tenant(key));
            let Some(pid) = pid.map(|tenant| tenant.held.process.pid()) else { continue };
            if self.heard_set.insert((pid, region)) {
                let address = region.start();
                let heard = Heard { address, time: since, has_waited: false, is_heard: false };
                self.heard.push_back((pid, region, heard));
            }
        }
        true
    }

    fn let_go(&mut self, pid: u32) {
        if let Some(key) = self.roster.let_go(pid) {
            self.front.forget(key);
            self.urgent.retain(|(_, job)| job.key != key);
            self.queued.retain(|(of, _)| *of != key);
            self.again.retain(|(_, _, job)| job.key != key);
        }
    }

    fn heard(&mut self, pid: u32, address: VirtAddr, time: Nanos) {
        if self.roster.whose(pid).is_none() {
            return;
        }
        let region = Region::containing(address);
        if self.heard_set.len() >= MOST_WAITING {
            self.missed += 1;
        } else if self.heard_set.insert((pid, region)) {
            let heard = Heard { address, time, has_waited: false, is_heard: true };
            self.heard.push_back((pid, region, heard));
        }
    }

    /// Looks at what was heard and gives work to whoever is free; returns how long nothing is to be
    /// done.
    fn work(&mut self) -> Duration {
        let time = Instant::now();
        let wait = self.purse.wait(time).max(self.back_off.wait(time));
        if !wait.is_zero() {
            return wait;
        }
        let rest = self.hear_late(time);
        self.ask_about_faults(time);
        let mut rest = rest.min(self.try_again(time));
        while self.crew.is_free() {
            let (next, wait) = self.next_urgent(Instant::now());
            rest = rest.min(wait);
            let Some((index, job)) = next else { break };
            let job = with_neighbours(job, &mut self.urgent);
            for region in job.regions() {
                self.queued.remove(&(job.key, region));
            }
            self.give(index, job);
        }
        if !self.crew.is_free() || !self.heard.is_empty() {
            // Whoever is done wakes us; new faults do so too.
            return if self.heard.is_empty() { rest } else { Duration::ZERO };
        }
        rest.min(self.ask_groups())
    }

    /// The first job whose process does not have its own turn, and how long it is until one of those
    /// before it has had it.
    fn next_urgent(&mut self, time: Instant) -> (Option<(usize, Job)>, Duration) {
        let mut rest = TICK;
        let turns = &self.turns;
        // Thousands of one process may wait.
        let mut asked = None;
        let may = self.urgent.iter().position(|(_, job)| {
            if asked == Some(job.key) {
                return false;
            }
            asked = Some(job.key);
            let wait = turns.wait(job.key, time);
            rest = rest.min(wait);
            wait.is_zero()
        });
        // Of one that may begin now, nothing is to be waited for.
        let next = may.and_then(|at| self.urgent.remove(at));
        let rest = if next.is_some() { TICK } else { rest };
        (next, rest)
    }

    /// Puts what is to be tried again first; returns how long it is to the next.
    fn try_again(&mut self, time: Instant) -> Duration {
        let due = self.again.extract_if(.., |(at, ..)| *at <= time);
        self.urgent.extend(due.map(|(_, index, job)| (index, job)));
        let next = self.again.iter().map(|(at, ..)| *at).min();
        next.map_or(TICK, |at| at.saturating_duration_since(time))
    }

    /// Takes up faults in areas that can be known by now; returns how long it is to the next.
    fn hear_late(&mut self, time: Instant) -> Duration {
        let due = self.late.extract_if(.., |(at, _)| *at <= time);
        self.heard.extend(due.map(|(_, fault)| fault));
        let next = self.late.iter().map(|(at, _)| *at).min();
        next.map_or(TICK, |at| at.saturating_duration_since(time))
    }

    /// Tells policies of some of the faults that were heard.
    fn ask_about_faults(&mut self, time: Instant) {
        /// Chosen, not measured: half a millisecond's work.
        const AT_ONCE: usize = 64;
        for _ in 0..AT_ONCE {
            let Some((pid, region, heard)) = self.heard.pop_front() else { return };
            self.heard_set.remove(&(pid, region));
            let Some((key, index)) = self.roster.place_of(pid) else { continue };
            if self.queued.contains(&(key, region)) || self.under_way.contains(&(key, region)) {
                continue;
            }
            let tenant = self.tenant(Some(index), key);
            let wait = tenant.map(|tenant| tenant.wait_for_area(heard.address)).unwrap_or_default();
            if !wait.is_zero() && !heard.has_waited {
                self.heard_set.insert((pid, region));
                let heard = Heard { has_waited: true, ..heard };
                self.late.push((time + wait, (pid, region, heard)));
                continue;
            }
            self.roster.has_faulted(key);
            let was_quiet = self.roster.was_quiet(key, time, QUIET);
            let Some(group) = self.roster.groups.get_mut(index) else { continue };
            let now = now();
            group.view.set_now(now);
            let Some(tenant) = group.view.tenant(key) else { continue };
            if tenant.is_left_alone(region, now, time) {
                // It may have been emptied, and be new when it has rested.
                if let (Ok(seen), Some(tenant)) =
                    (tenant.survey(region), group.view.tenant_mut(key))
                {
                    tenant.see(region, &seen);
                }
                continue;
            }
            if heard.is_heard && tenant.may_hold(region) {
                self.front.add(key, region, time);
            }
            if was_quiet {
                group.look_around(key, region);
            }
            self.last_heard = time;
            if let Some(job) = group.fault(key, heard.address, heard.time) {
                self.queued.insert((key, region));
                self.urgent.push_back((index, job));
            }
        }
    }

    /// Asks the groups in turn what they want, until everybody is busy or nothing is wanted.
    fn ask_groups(&mut self) -> Duration {
        let mut rest = TICK;
        for _ in 0..self.roster.groups.len() {
            let index = self.next_group % self.roster.groups.len().max(1);
            self.next_group = self.next_group.wrapping_add(1);
            let waits =
                self.urgent.iter().any(|(of, job)| *of == index && job.haste() == Haste::Whenever);
            let Some(group) = self.roster.groups.get_mut(index) else { continue };
            let wait = group.purse.wait(Instant::now());
            if !wait.is_zero() {
                rest = rest.min(wait);
                continue;
            }
            let began = CpuTime::of_thread();
            let (turns, time) = (&self.turns, Instant::now());
            let mut wanted = group.look(now(), |key| turns.wait(key, time));
            if let (Wanted::Nothing(until), false) = (&wanted, waits) {
                rest = rest.min(until.map_or(TICK, from_now));
                wanted = group.next(now());
            }
            group.purse.spend(CpuTime::of_thread().since(began), Instant::now());
            match wanted {
                Wanted::Job(job) => {
                    rest = Duration::ZERO;
                    match self.turns.wait(job.key, Instant::now()).is_zero() {
                        true => self.give(index, job),
                        false => self.urgent.push_back((index, job)),
                    }
                }
                Wanted::Looked => rest = Duration::ZERO,
                Wanted::Nothing(None) => {}
                Wanted::Nothing(Some(until)) => rest = rest.min(from_now(until)),
            }
            if !self.crew.is_free() {
                return TICK;
            }
        }
        rest
    }

    /// Gives a job to the crew, as far as the limits allow it.
    fn give(&mut self, index: usize, job: Job) {
        let (now, time) = (now(), Instant::now());
        let marks = self.roster.setup.marks;
        let Some(group) = self.roster.groups.get_mut(index) else { return };
        let Some(tenant) = group.view.tenant_mut(job.key) else { return };
        let mut refused = Vec::new();
        let mut allowed = Vec::new();
        let mut is_any_resting = false;
        for region in job.regions() {
            if tenant.is_left_alone(region, now, time) {
                is_any_resting = true;
                continue;
            }
            if self.under_way.contains(&(job.key, region)) {
                continue;
            }
            let seen = tenant.survey(region).map_err(|_| Refusal::Gone);
            if seen.is_ok_and(|seen| seen.is_huge) {
                continue;
            }
            let used = || supply::usage_of_machine(Path::new("/proc")).ok();
            let room = self.machine.room(marks, Instant::now(), used).min(tenant.room(marks));
            let limits = self.limits;
            let checked = seen.and_then(|seen| limits.check(&seen, tenant.past(region), room));
            match checked {
                Ok(()) => {
                    self.machine.promise();
                    tenant.promise();
                    allowed.push(region);
                }
                Err(why) => {
                    tenant.rest(region, why, now);
                    refused.push(why);
                }
            }
        }
        if is_any_resting {
            // It is to be found when it has rested.
            self.roster.has_faulted(job.key);
        }
        for why in refused {
            if why.is_passing() {
                self.roster.has_faulted(job.key);
            }
            self.refuse(index, &job, why);
        }
        if allowed.len() != usize::try_from(job.count.0).unwrap_or(usize::MAX)
            && let Some(action) = &job.action
            && let Some(group) = self.roster.groups.get_mut(index)
        {
            group.learn(action, Outcome::Stale);
        }
        let mut runs = allowed.chunk_by(|one, next| one.end() == next.start());
        let part = |run: &[Region]| {
            let (first, count) = (*run.first()?, HugePages(run.len() as u64));
            Some(Job { first, count, ..job.clone() })
        };
        if let Some(first) = runs.next().and_then(part) {
            self.under_way.extend(first.regions().map(|region| (job.key, region)));
            self.turns.begin(job.key);
            self.crew.give(first);
        }
        // One at a time in a process.
        for later in runs.filter_map(part) {
            self.put_off(index, later);
        }
    }

    /// What was to be done is done when its process has had its turn.
    fn put_off(&mut self, index: usize, job: Job) {
        for region in job.regions() {
            self.queued.insert((job.key, region));
            self.machine.settle();
            if let Some(tenant) = self.tenant(Some(index), job.key) {
                tenant.settle();
            }
        }
        self.urgent.push_front((index, job));
    }

    /// Learns what became of all jobs that are done.
    fn learn_all(&mut self) {
        while let Some(done) = self.crew.take() {
            self.learn(done);
        }
    }

    /// Learns what became of a job.
    fn learn(&mut self, done: Done) {
        let Done { job, became, took, held_up, cpu } = done;
        let time = Instant::now();
        self.purse.spend(cpu, time);
        self.turns.end(job.key, held_up, job.haste(), time);
        if !took.is_zero() {
            self.back_off.took(took, time);
            self.ledger.collapse_took(took);
        }
        let place = self.roster.place_of(job.held.process.pid());
        let index = place.filter(|(key, _)| *key == job.key).map(|(_, index)| index);
        let mut sum = Sum { promoted: HugePages::default(), filled: BasePages::ZERO };
        let mut refused = Vec::new();
        if let Some(tenant) = self.tenant(index, job.key) {
            tenant.spend(cpu, time);
        }
        for region in job.regions() {
            self.under_way.remove(&(job.key, region));
            self.machine.settle();
            if let Some(tenant) = self.tenant(index, job.key) {
                tenant.settle();
            }
        }
        for (region, result) in became {
            match result {
                Ok(filled) => {
                    sum.promoted += HugePages(1);
                    sum.filled += filled;
                    if let Some(tenant) = self.tenant(index, job.key) {
                        tenant.is_huge(region, filled, now());
                    }
                }
                Err(why) => {
                    refused.push(why);
                    self.was_refused(index, &job, region, why);
                }
            }
        }
        let outcome = match refused.is_empty() {
            true => Outcome::Done,
            false if sum.promoted.is_zero() && refused.contains(&Refusal::NoHugePage) => {
                self.back_off.found_none(Instant::now());
                Outcome::NoFrame
            }
            false => Outcome::Stale,
        };
        if let Some(group) = index.and_then(|index| self.roster.groups.get_mut(index)) {
            group.purse.spend(cpu, time);
            if let Some(action) = &job.action {
                group.learn(action, outcome);
            }
        }
        self.tell_promoted(index, &job, sum);
        self.tell_slow(took, outcome);
    }

    fn tenant(&mut self, index: Option<usize>, key: ProcessKey) -> Option<&mut Tenant> {
        self.roster.groups.get_mut(index?)?.view.tenant_mut(key)
    }

    /// A region was not promoted: it is tried again, or rests.
    fn was_refused(&mut self, index: Option<usize>, job: &Job, region: Region, why: Refusal) {
        let time = Instant::now();
        if let (Refusal::Busy, Some(index), 0..RETRIES) = (why, index, job.tries) {
            let (count, tries) = (HugePages(1), job.tries + 1);
            let again = Job { first: region, count, tries, action: None, ..job.clone() };
            self.again.push((time + RETRY * 4u32.pow(job.tries), index, again));
            return;
        }
        if let Some(tenant) = self.tenant(index, job.key) {
            tenant.rest(region, why, now());
        }
        // What stood in the way may be gone later, and no fault may tell of the region again.
        if why.is_passing() {
            self.roster.has_faulted(job.key);
        }
        self.refuse(index.unwrap_or(usize::MAX), job, why);
    }

    fn tell_promoted(&self, index: Option<usize>, job: &Job, sum: Sum) {
        if sum.promoted.is_zero() {
            return;
        }
        if let Some(since) = job.since {
            self.ledger.waited(Duration::from_nanos(now().saturating_sub(since).0));
        }
        let group = index.and_then(|index| self.roster.groups.get(index));
        self.ledger.record(Entry {
            policy: group.map(|group| group.name.clone()),
            pid: Some(job.held.process.pid()),
            command: Some(job.held.command.clone()),
            huge_pages: sum.promoted.0,
            base_pages: sum.filled.0,
            ..entry(What::Promoted, job.reason.kind, &job.reason.words)
        });
    }

    fn tell_slow(&self, took: Duration, outcome: Outcome) {
        let kind = match outcome {
            Outcome::NoFrame => "no-huge-page",
            _ if took > super::pace::SLOW => "slow",
            _ => return,
        };
        let words = format!(
            "the last call took {:.0} ms for a huge page; the next waits {:.0} ms",
            took.as_secs_f64() * 1e3,
            self.back_off.wait(Instant::now()).as_secs_f64() * 1e3
        );
        self.ledger.record(entry(What::BackedOff, kind, &words));
    }

    fn refuse(&self, index: usize, job: &Job, why: Refusal) {
        self.ledger.record(Entry {
            policy: self.roster.groups.get(index).map(|group| group.name.clone()),
            pid: Some(job.held.process.pid()),
            command: Some(job.held.command.clone()),
            huge_pages: 1,
            ..entry(What::Refused, why.kind(), why.reason())
        });
    }

    /// Looks at memory, clears up, and says how things stand.
    fn tick(&mut self, time: Instant) {
        self.next_tick = time + TICK;
        if let Ok(supply) = supply::read(Path::new("/proc")) {
            self.limits.see(&supply);
            for group in &mut self.roster.groups {
                group.view.set_supply(supply);
            }
        }
        self.turns.expire(time);
        let now = now();
        for group in &mut self.roster.groups {
            group.view.tenants_mut().for_each(|tenant| tenant.expire(now));
            group.see_areas();
        }
        self.roster.look_again(time);
        self.remember();
        self.tell_missed();
        let standing = self.standing();
        *self.board.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
        self.ledger.flush();
    }

    /// Says what was huge, for a later promoter.
    fn remember(&mut self) {
        *self.board.remembered.lock().unwrap_or_else(PoisonError::into_inner) =
            self.roster.remembered();
    }

    /// Tells of faults that were not seen.
    fn tell_missed(&mut self) {
        let counts = self.roster.ears.counts();
        let since = |now: u64, told: u64| now.saturating_sub(told);
        let lost = since(counts.lost, self.told.lost)
            + since(counts.unreadable, self.told.unreadable)
            + std::mem::take(&mut self.missed);
        let throttled = since(counts.throttled, self.told.throttled);
        for (kind, number, words) in [
            ("lost", lost, "faults that found a buffer full"),
            ("throttled", throttled, "times that the kernel held fault events back"),
        ] {
            if number > 0 {
                self.ledger.record(entry(What::Missed, kind, &format!("{number} {words}")));
            }
        }
        self.told = counts;
        if lost > 0 {
            // What was not heard of is looked for.
            self.roster.look_at_all();
        }
    }

    /// Promotions and faults that wait for their turn.
    fn waiting(&self) -> u64 {
        let waiting = [
            self.urgent.len(),
            self.again.len(),
            self.under_way.len(),
            self.heard.len(),
            self.late.len(),
        ];
        waiting.iter().map(|count| *count as u64).sum()
    }

    fn standing(&mut self) -> Standing {
        let counts = self.roster.ears.counts();
        Standing {
            policies: self
                .roster
                .groups
                .iter()
                .map(|group| (group.name.clone(), group.view.len() as u64))
                .collect(),
            seen: counts.seen,
            lost: counts.lost,
            throttled: counts.throttled,
            waiting: self.waiting(),
            pause_ms: self.back_off.delay().as_secs_f64() * 1e3,
            taken_back_from: self
                .roster
                .groups
                .iter_mut()
                .filter(|group| group.policy().takes_back_idle())
                .flat_map(|group| {
                    let policy = &group.name;
                    group.view.tenants_mut().map(move |tenant| (tenant, policy))
                })
                .filter(|(tenant, _)| tenant.remembered().next().is_some())
                .map(|(tenant, policy)| (tenant.held.process.pid(), policy.clone()))
                .collect(),
        }
    }
}

/// What following programs may take of this budget.
fn following(budget: CpuBudget, now: Instant) -> Purse {
    Purse::of_share(budget.share() * FOLLOWING, FOLLOWING_SAVED, now)
}

/// How long it is until this time.
fn from_now(time: Nanos) -> Duration {
    Duration::from_nanos(time.saturating_sub(now()).0)
}

/// The job with those of its neighbours that wait too, up to the longest run: one call makes all of
/// them, and waits for the processors once.
fn with_neighbours(mut job: Job, waiting: &mut VecDeque<(usize, Job)>) -> Job {
    while job.count < LONGEST_RUN {
        let end = job.first.start().offset(job.count.bytes());
        let is_next = |other: &Job| {
            let others_end = other.first.start().offset(other.count.bytes());
            let is_beside = other.first.start() == end || others_end == job.first.start();
            is_beside
                && other.key == job.key
                && (other.memory, other.tries) == (job.memory, job.tries)
                && other.reason.kind == job.reason.kind
                && other.action.is_none()
                && job.action.is_none()
                && job.count + other.count <= LONGEST_RUN
        };
        let at = waiting.iter().position(|(_, other)| is_next(other));
        let Some((_, other)) = at.and_then(|at| waiting.remove(at)) else { break };
        job.first = job.first.min(other.first);
        job.count += other.count;
        job.since = job.since.min(other.since).or(job.since);
    }
    job
}
