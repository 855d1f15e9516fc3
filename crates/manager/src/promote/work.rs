//! The promoter's loop: hear, ask the policies, give work to the crew, learn what became of it.

use super::crew::{Crew, Done, Job};
use super::group::{Group, Wanted};
use super::hear::Ears;
use super::limits::{Limits, Refusal, Room};
use super::pace::{BackOff, Purse};
use super::tenant::Tenant;
use super::{Board, Command, Setup, Standing, now};
use crate::history::What;
use crate::ledger::{Ledger, entry};
use crate::select::{Described, Describer};
use crate::supply;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use superpage_kernel::fault_events::{Counts, Event};
use superpage_kernel::usage::CpuTime;
use superpage_kernel::{meminfo, process, status};
use superpage_policy::debloat::ProcessKey;
use superpage_policy::region::Region;
use superpage_policy::system::Outcome;
use superpage_policy::units::{BasePages, Bytes, HugePages, Nanos, VirtAddr};
use superpage_policy::watermark::Usage;
use tracing::{debug, warn};

/// After faults were heard, the next are waited for this long, so that many are heard at once:
/// waking for each would cost more than it brings.
const GATHER: Duration = Duration::from_millis(1);
/// How often memory is looked at, and what is known is cleared up.
const TICK: Duration = Duration::from_secs(1);
/// How often all processes are gone through. A machine with 2,000 of them takes some 30 ms for it.
const SWEEP: Duration = Duration::from_secs(10);
/// Processes with less are found by their faults, if ever.
const WORTH_A_LOOK: Bytes = Bytes::from_mib(16);
/// How often the memory of a process that faults is looked over for what no fault told of.
const LOOK_OVER: Duration = Duration::from_secs(30);
/// A page that the kernel is using for a moment (on its way to a list, being moved) is tried again
/// so often, the first time after this, then four times later each time.
const RETRIES: u32 = 3;
const RETRY: Duration = Duration::from_millis(10);
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
    worker.sweep();
    while worker.turn(&orders, &ear) == Go::On {}
    worker.crew.finish();
    worker.learn_all();
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
}

/// What is known of a process by its number.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// It is in this group.
    Tenant(ProcessKey, usize),
    /// It is not to be promoted.
    NotWanted,
    /// So many of its faults were heard.
    Stranger(u64),
}

struct Worker {
    setup: Setup,
    ledger: Arc<Ledger>,
    board: Arc<Board>,
    crew: Crew,
    waker: UnixStream,
    ears: Ears,
    told: Counts,
    groups: Vec<Group>,
    known: HashMap<u32, Known>,
    describer: Describer,
    /// Faults by region, in the order in which they were heard.
    heard: VecDeque<(u32, Region, Heard)>,
    heard_set: BTreeSet<(u32, Region)>,
    /// Faults in areas that are not known yet, and when they can be.
    late: Vec<(Instant, (u32, Region, Heard))>,
    urgent: VecDeque<(usize, Job)>,
    /// What is tried again, and when.
    again: Vec<(Instant, usize, Job)>,
    under_way: BTreeSet<(ProcessKey, Region)>,
    back_off: BackOff,
    purse: Purse,
    spent: CpuTime,
    limits: Limits,
    looked_over: BTreeMap<ProcessKey, (Instant, Faults)>,
    last_drain: Instant,
    next_tick: Instant,
    next_sweep: Instant,
    next_group: usize,
    missed: u64,
}

/// Whether a process has faulted since it was looked over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    None,
    Some,
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
        Self {
            ears: Ears::open(&setup.processes, &setup.promotion),
            told: Counts::default(),
            groups: groups(&setup),
            known: HashMap::new(),
            describer: Describer::new(),
            heard: VecDeque::new(),
            heard_set: BTreeSet::new(),
            late: Vec::new(),
            urgent: VecDeque::new(),
            again: Vec::new(),
            under_way: BTreeSet::new(),
            back_off: BackOff::default(),
            purse: Purse::new(setup.promotion.budget, began),
            spent: CpuTime::of_thread(),
            limits: Limits {
                room: Room::Plenty,
                worth: setup.worth,
                max_fragmentation: setup.promotion.max_fragmentation,
                fragmentation: 0.0,
            },
            looked_over: BTreeMap::new(),
            last_drain: began,
            next_tick: began,
            next_sweep: began + SWEEP,
            next_group: 0,
            missed: 0,
            setup,
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
        if time >= self.next_tick {
            self.tick(time);
        }
        if time >= self.next_sweep {
            self.sweep();
            self.next_sweep = time + SWEEP;
        }
        let rest = self.work();
        self.spend();
        self.wait(ear, rest);
        Go::On
    }

    /// What this thread has cost comes out of the budget too.
    fn spend(&mut self) {
        let now = CpuTime::of_thread();
        self.purse.spend(now.since(self.spent));
        self.spent = now;
    }

    /// Sleeps until something is heard or done, or `rest` is over.
    fn wait(&mut self, ear: &UnixStream, rest: Duration) {
        let now = Instant::now();
        let rest = rest.min(self.next_tick.saturating_duration_since(now));
        let gathering = GATHER.saturating_sub(now - self.last_drain);
        if !gathering.is_zero() && !rest.is_zero() {
            self.sleep(ear, gathering.min(rest), Vec::new());
        }
        let rest = rest.saturating_sub(now.elapsed());
        if !rest.is_zero() {
            self.sleep(ear, rest, self.ears.fds());
        }
        let mut bytes = [0; 64]; // tidy: allow(bytes of a wake-up)
        while matches!((&*ear).read(&mut bytes), Ok(count) if count > 0) {}
    }

    fn sleep(&self, ear: &UnixStream, time: Duration, rings: Vec<rustix::fd::BorrowedFd<'_>>) {
        let mut fds: Vec<PollFd<'_>> =
            rings.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        fds.push(PollFd::from_borrowed_fd(ear.as_fd(), PollFlags::IN));
        let timeout = Timespec::try_from(time).ok();
        // A signal may end it early; the loop looks around then.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    /// Goes by another setup; processes are sorted anew, what is known of those that stay under
    /// their policy stays.
    fn configure(&mut self, setup: Setup) {
        let mut earlier = std::mem::take(&mut self.groups);
        self.groups = groups(&setup);
        for group in &mut self.groups {
            if let Some(same) = earlier.iter_mut().find(|one| one.name == group.name) {
                std::mem::swap(group, same);
            }
        }
        if self.setup.promotion.at_once != setup.promotion.at_once {
            match Crew::new(setup.promotion.at_once, &self.waker) {
                Ok(crew) => {
                    self.crew.finish();
                    self.learn_all();
                    self.crew = crew;
                }
                Err(error) => warn!("as many promotions at once as before: {error}"),
            }
        }
        let heard = |s: &Setup| (s.processes.include.clone(), s.promotion.period);
        if heard(&self.setup) != heard(&setup)
            || self.setup.promotion.policies().any(|p| p.hears_faults())
                != setup.promotion.policies().any(|p| p.hears_faults())
        {
            self.ears = Ears::open(&setup.processes, &setup.promotion);
            self.told = Counts::default();
        }
        self.purse = Purse::new(setup.promotion.budget, Instant::now());
        self.limits.worth = setup.worth;
        self.limits.max_fragmentation = setup.promotion.max_fragmentation;
        self.setup = setup;
        self.urgent.clear();
        self.again.clear();
        self.under_way.clear();
        self.resort();
    }

    /// Puts every process under the policy that it has now.
    fn resort(&mut self) {
        let keys: Vec<(usize, ProcessKey, u32)> = self
            .groups
            .iter_mut()
            .enumerate()
            .flat_map(|(index, group)| {
                let of = |tenant: &mut Tenant| (index, tenant.key(), tenant.held.process.pid());
                group.view.tenants_mut().map(of).collect::<Vec<_>>()
            })
            .collect();
        self.known.clear();
        for (index, key, pid) in keys {
            let is_right = self.place(pid).is_some_and(|(_, place)| place == index);
            if is_right {
                self.known.insert(pid, Known::Tenant(key, index));
            } else if let Some(group) = self.groups.get_mut(index) {
                group.remove(key);
                self.ears.forget(key);
            }
        }
        self.next_sweep = Instant::now();
    }

    /// The group that process `pid` belongs to, if it is to be promoted.
    fn place(&mut self, pid: u32) -> Option<(Described, usize)> {
        let described = self.describer.describe(pid)?;
        if !described.is_admitted(&self.setup.processes) {
            return None;
        }
        let rules = &self.setup.promotion.rules;
        let rule = rules.iter().find(|rule| described.matches(&rule.who));
        let policy = rule.map_or(self.setup.promotion.policy, |rule| rule.policy);
        let index = self.groups.iter().position(|group| group.policy() == policy)?;
        Some((described, index))
    }

    /// Takes hold of a process, if it is to be promoted.
    fn hold(&mut self, pid: u32) -> Known {
        let Some((described, index)) = self.place(pid) else { return Known::NotWanted };
        let key = described.key;
        let remembered = self
            .board
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned()
            .unwrap_or_default();
        let tenant = Tenant::new(key, described.process, described.command, described.cgroup);
        let mut tenant = match tenant {
            Ok(tenant) => tenant,
            Err(error) => {
                debug!(pid, "not watched: {error}");
                return Known::NotWanted;
            }
        };
        if tenant.refuses_huge_pages() {
            debug!(pid, "it forbade itself huge pages (PR_SET_THP_DISABLE)");
            return Known::NotWanted;
        }
        tenant.remember(remembered);
        self.ears.hear(key, &tenant.held.process);
        let Some(group) = self.groups.get_mut(index) else { return Known::NotWanted };
        group.add(tenant);
        self.looked_over.insert(key, (Instant::now(), Faults::None));
        Known::Tenant(key, index)
    }

    /// Goes through all processes: those that have gone are let go, large ones are taken hold of.
    fn sweep(&mut self) {
        let Ok(pids) = process::list(Path::new("/proc")) else { return };
        let alive: BTreeSet<u32> = pids.iter().copied().collect();
        let gone: Vec<u32> =
            self.known.keys().copied().filter(|pid| !alive.contains(pid)).collect();
        for pid in gone {
            self.let_go(pid);
        }
        // Somebody may have changed user or group.
        self.known.retain(|_, known| matches!(known, Known::Tenant(..)));
        let named = &self.setup.processes.include.pids;
        let named: BTreeSet<u32> = named.iter().copied().collect();
        for pid in pids {
            let is_worth = named.contains(&pid) || self.is_large(pid);
            if is_worth && !self.known.contains_key(&pid) {
                let known = self.hold(pid);
                self.known.insert(pid, known);
            }
        }
    }

    fn is_large(&self, pid: u32) -> bool {
        let resident = status::resident(Path::new("/proc"), pid);
        resident.is_ok_and(|resident| resident >= WORTH_A_LOOK)
    }

    fn let_go(&mut self, pid: u32) {
        let Some(Known::Tenant(key, index)) = self.known.remove(&pid) else { return };
        if let Some(group) = self.groups.get_mut(index) {
            group.remove(key);
        }
        self.ears.forget(key);
        self.looked_over.remove(&key);
        self.urgent.retain(|(_, job)| job.key != key);
        self.again.retain(|(_, _, job)| job.key != key);
    }

    /// Takes in the faults that were heard.
    fn hear(&mut self) {
        let mut events = Vec::new();
        self.ears.drain(|event| events.push(event));
        if events.is_empty() {
            return;
        }
        self.last_drain = Instant::now();
        for event in events {
            match event {
                Event::Fault { pid, address, time, .. } => self.heard(pid, address, time),
                Event::Exit { pid } | Event::Exec { pid } => self.let_go(pid),
                Event::Fork { .. } => {}
            }
        }
    }

    fn heard(&mut self, pid: u32, address: VirtAddr, time: Nanos) {
        match self.known.get(&pid).copied() {
            Some(Known::Tenant(..)) => {}
            Some(Known::NotWanted) => return,
            known => {
                // Less than the base pages of one huge page is not worth looking at.
                let heard = if let Some(Known::Stranger(heard)) = known { heard + 1 } else { 1 };
                let faults = heard * self.setup.promotion.period.get();
                let is_worth = BasePages(faults) >= HugePages(1).base_pages();
                let known = if is_worth { self.hold(pid) } else { Known::Stranger(heard) };
                self.known.insert(pid, known);
                if !matches!(known, Known::Tenant(..)) {
                    return;
                }
            }
        }
        let region = Region::containing(address);
        if self.heard_set.len() >= MOST_WAITING {
            self.missed += 1;
        } else if self.heard_set.insert((pid, region)) {
            self.heard.push_back((pid, region, Heard { address, time }));
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
        let rest = rest.min(self.try_again(time));
        while self.crew.is_free() {
            let Some((index, job)) = self.urgent.pop_front() else { break };
            self.give(index, job);
        }
        if !self.crew.is_free() || !self.heard.is_empty() {
            // Whoever is done wakes us; new faults do so too.
            return if self.heard.is_empty() { rest } else { Duration::ZERO };
        }
        rest.min(self.ask_groups())
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
            let Some(Known::Tenant(key, index)) = self.known.get(&pid).copied() else { continue };
            let tenant = self.groups.get(index).and_then(|group| group.view.tenant(key));
            let wait = tenant.map(|tenant| tenant.wait_for_area(region)).unwrap_or_default();
            if !wait.is_zero() {
                self.heard_set.insert((pid, region));
                self.late.push((time + wait, (pid, region, heard)));
                continue;
            }
            if let Some((_, faults)) = self.looked_over.get_mut(&key) {
                *faults = Faults::Some;
            }
            let Some(group) = self.groups.get_mut(index) else { continue };
            let now = now();
            group.view.set_now(now);
            if group.view.tenant(key).is_none_or(|tenant| tenant.rests(region, now)) {
                continue;
            }
            if let Some(job) = group.fault(key, heard.address, heard.time) {
                self.urgent.push_back((index, job));
            }
        }
    }

    /// Asks the groups in turn what they want, until everybody is busy or nothing is wanted.
    fn ask_groups(&mut self) -> Duration {
        let mut rest = TICK;
        for _ in 0..self.groups.len() {
            let index = self.next_group % self.groups.len().max(1);
            self.next_group = self.next_group.wrapping_add(1);
            let Some(group) = self.groups.get_mut(index) else { continue };
            let wait = group.purse.wait(Instant::now());
            if !wait.is_zero() {
                rest = rest.min(wait);
                continue;
            }
            let began = CpuTime::of_thread();
            let wanted = group.next(now());
            group.purse.spend(CpuTime::of_thread().since(began));
            match wanted {
                Wanted::Job(job) => {
                    self.give(index, job);
                    rest = Duration::ZERO;
                }
                Wanted::Looked => rest = Duration::ZERO,
                Wanted::Nothing(None) => {}
                Wanted::Nothing(Some(until)) => {
                    rest = rest.min(Duration::from_nanos(until.saturating_sub(now()).0));
                }
            }
            if !self.crew.is_free() {
                return TICK;
            }
        }
        rest
    }

    /// Gives a job to the crew, as far as the limits allow it.
    fn give(&mut self, index: usize, job: Job) {
        let now = now();
        let (marks, limits) = (self.setup.marks, self.limits);
        let Some(group) = self.groups.get_mut(index) else { return };
        let Some(tenant) = group.view.tenant_mut(job.key) else { return };
        let room = tenant.room(marks);
        let mut refused = Vec::new();
        let mut allowed = Vec::new();
        for region in job.regions() {
            if tenant.rests(region, now) || self.under_way.contains(&(job.key, region)) {
                continue;
            }
            let seen = tenant.survey(region).map_err(|_| Refusal::Gone);
            let checked = seen.and_then(|seen| limits.check(&seen, tenant.past(region), room));
            match checked {
                Ok(()) => allowed.push(region),
                Err(why) => {
                    tenant.rest(region, why, now);
                    refused.push(why);
                }
            }
        }
        for why in refused {
            self.refuse(index, &job, why);
        }
        if allowed.len() != usize::try_from(job.count.0).unwrap_or(usize::MAX)
            && let Some(action) = &job.action
            && let Some(group) = self.groups.get_mut(index)
        {
            group.learn(action, Outcome::Stale);
        }
        for run in allowed.chunk_by(|one, next| one.end() == next.start()) {
            let Some(first) = run.first() else { continue };
            self.under_way.extend(run.iter().map(|region| (job.key, *region)));
            let count = HugePages(run.len() as u64);
            self.crew.give(Job { first: *first, count, ..job.clone() });
        }
    }

    /// Learns what became of all jobs that are done.
    fn learn_all(&mut self) {
        while let Some(done) = self.crew.take() {
            self.learn(done);
        }
    }

    /// Learns what became of a job.
    fn learn(&mut self, done: Done) {
        let time = Instant::now();
        let Done { job, became, took, cpu } = done;
        self.purse.spend(cpu);
        self.back_off.took(took, time);
        self.ledger.collapse_took(took);
        let index = self.known.get(&job.held.process.pid());
        let index = index.and_then(|known| match known {
            Known::Tenant(key, index) if *key == job.key => Some(*index),
            _ => None,
        });
        let now = now();
        let mut promoted = HugePages::default();
        let mut filled = BasePages::ZERO;
        let mut outcome = Outcome::Done;
        for (region, result) in became {
            self.under_way.remove(&(job.key, region));
            let group = index.and_then(|index| self.groups.get_mut(index));
            let tenant = group.and_then(|group| group.view.tenant_mut(job.key));
            match result {
                Ok(pages) => {
                    promoted += HugePages(1);
                    filled += pages;
                    if let Some(tenant) = tenant {
                        tenant.is_huge(region, pages);
                    }
                }
                Err(Refusal::Busy) if job.tries < RETRIES && index.is_some() => {
                    let at = time + RETRY * 4u32.pow(job.tries);
                    let job = Job {
                        first: region,
                        count: HugePages(1),
                        tries: job.tries + 1,
                        action: None,
                        ..job.clone()
                    };
                    self.again.push((at, index.unwrap_or_default(), job));
                    outcome = Outcome::Stale;
                }
                Err(why) => {
                    if let Some(tenant) = tenant {
                        tenant.rest(region, why, now);
                    }
                    outcome = Outcome::Stale;
                    if why == Refusal::NoHugePage {
                        outcome = Outcome::NoFrame;
                        self.back_off.found_none(time);
                    }
                    self.refuse(index.unwrap_or(usize::MAX), &job, why);
                }
            }
        }
        if let Some(group) = index.and_then(|index| self.groups.get_mut(index)) {
            group.purse.spend(cpu);
            if let Some(action) = &job.action {
                group.learn(action, outcome);
            }
        }
        if !promoted.is_zero() {
            if let Some(since) = job.since {
                self.ledger.waited(Duration::from_nanos(now.saturating_sub(since).0));
            }
            let name = index.and_then(|index| self.groups.get(index)).map(|g| g.name.clone());
            let mut told = entry(What::Promoted, job.reason.kind, &job.reason.words);
            told.policy = name;
            told.pid = Some(job.held.process.pid());
            told.command = Some(job.held.command.clone());
            told.huge_pages = promoted.0;
            told.base_pages = filled.0;
            self.ledger.record(told);
        }
        if took > super::pace::SLOW || outcome == Outcome::NoFrame {
            let words = format!(
                "the last call took {:.0} ms; the next waits {:.0} ms",
                took.as_secs_f64() * 1e3,
                self.back_off.wait(time).as_secs_f64() * 1e3
            );
            let kind = if outcome == Outcome::NoFrame { "no-huge-page" } else { "slow" };
            self.ledger.record(entry(What::BackedOff, kind, &words));
        }
    }

    fn refuse(&self, index: usize, job: &Job, why: Refusal) {
        let mut told = entry(What::Refused, why.kind(), why.reason());
        told.policy = self.groups.get(index).map(|group| group.name.clone());
        told.pid = Some(job.held.process.pid());
        told.command = Some(job.held.command.clone());
        told.huge_pages = 1;
        self.ledger.record(told);
    }

    /// Looks at memory, clears up, and says how things stand.
    fn tick(&mut self, time: Instant) {
        self.next_tick = time + TICK;
        if let Ok(supply) = supply::read(Path::new("/proc")) {
            self.limits.see(&supply);
            for group in &mut self.groups {
                group.view.set_supply(supply);
            }
        }
        if let Ok(memory) = meminfo::read(Path::new("/proc")) {
            let usage = Usage { used: memory.used(), total: memory.total };
            self.limits.room = Room::below(self.setup.marks, usage);
        }
        let now = now();
        let mut remembered = super::Remembered::new();
        for group in &mut self.groups {
            let mut due = Vec::new();
            for tenant in group.view.tenants_mut() {
                tenant.expire(now);
                remembered.insert(tenant.key(), tenant.remembered().collect());
                let looked = self.looked_over.get_mut(&tenant.key());
                if let Some((at, faults)) = looked
                    && *faults == Faults::Some
                    && at.elapsed() >= LOOK_OVER
                {
                    (*at, *faults) = (time, Faults::None);
                    due.push(tenant.key());
                }
            }
            due.into_iter().for_each(|key| group.look_again(key));
        }
        *self.board.remembered.lock().unwrap_or_else(PoisonError::into_inner) = remembered;
        self.tell_missed();
        let standing = self.standing();
        *self.board.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
        self.ledger.flush();
    }

    /// Tells of faults that were not seen.
    fn tell_missed(&mut self) {
        let counts = self.ears.counts();
        let lost = counts.lost - self.told.lost.min(counts.lost) + std::mem::take(&mut self.missed);
        let throttled = counts.throttled - self.told.throttled.min(counts.throttled);
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
            for group in &mut self.groups {
                let keys: Vec<_> = group.view.tenants_mut().map(|tenant| tenant.key()).collect();
                keys.into_iter().for_each(|key| group.look_again(key));
            }
        }
    }

    fn standing(&mut self) -> Standing {
        let counts = self.ears.counts();
        Standing {
            policies: self
                .groups
                .iter()
                .map(|group| (group.name.clone(), group.view.len() as u64))
                .collect(),
            seen: counts.seen,
            lost: counts.lost,
            throttled: counts.throttled,
            waiting: (self.urgent.len() + self.under_way.len()) as u64,
            pause_ms: self.back_off.delay().as_secs_f64() * 1e3,
            taken_back_from: self
                .groups
                .iter_mut()
                .filter(|group| group.policy().takes_back_idle())
                .flat_map(|group| group.view.tenants_mut())
                .filter(|tenant| tenant.remembered().next().is_some())
                .map(|tenant| tenant.held.process.pid())
                .collect(),
        }
    }
}

/// A group for each policy that some process may have.
fn groups(setup: &Setup) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for policy in setup.promotion.policies() {
        if groups.iter().all(|group| group.policy() != policy) {
            groups.extend(Group::new(policy, setup.promotion.budget));
        }
    }
    groups
}
