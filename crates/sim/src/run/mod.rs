//! Time: programs and the policy's background work share a machine.
//!
//! Each program has a clock of its own, and so have the background and the thread that prepares memory ahead of time. The program
//! that is furthest behind runs for a slice; then those two catch up with it, and after them a de-bloater if one
//! is plugged in. Everything follows from the seed. Whoever asks something of the machine says what its
//! clock shows ([`Machine::at`]).
//!
//! A promotion by copying holds the process's memory locked (`collapse_huge_page()` in
//! mm/khugepaged.c takes `mmap_lock` for writing), so a program that takes fault after fault waits
//! for it. One that runs on what it has does not.
//!
//! Threads and background work that want more CPUs than there are all take longer alike. What a run
//! does not model: which CPU runs what, contention for memory bandwidth, the sharing of translation
//! hardware by hardware threads, and the one walk that follows when a page was moved or mapped anew
//! in the same size ([`crate::translation`] says why; telling other CPUs of it is priced). All
//! threads of a program are alike, so one is simulated and stands for all.
//!
//! The device that pages go to is shared by all faults and by the background. Who waits for it needs
//! no CPU, but counts as one that does, so a machine with as many threads as CPUs that are mostly
//! waiting is a little slower here than it would be.

mod debloat;
mod driven;
mod program;
mod report;

pub use debloat::{Debloated, Debloater};
pub use driven::Driven;
pub use report::{Latencies, Report};

use crate::machine::work::Work;
use crate::machine::{Machine, OutOfMemory, Stepped, Worked};
use crate::profile::Profile;
use crate::translation::Translator;
use crate::workload::Workload;
use program::Program;
use std::collections::BTreeMap;
use superpage_policy::promotion::View;
use superpage_units::{Nanos, PageSize, ProcessKey, Share, Time};

/// How long background and de-bloater work in turn. Chosen: as long as the longest slice of a
/// program while either may change memory.
const TURN: Nanos = Nanos(1_000_000_000);
/// The least share of a CPU that background work has. Chosen: it must come to an end.
const LEAST_SHARE: Share = Share::clamped(1e-3);

/// The hardware that a run happens on.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// The processor, its translation hardware, and what the kernel's work costs on it.
    pub profile: Profile,
    /// In a guest: the size of the pages that map the guest's memory.
    pub host_pages: Option<PageSize>,
}

impl Hardware {
    /// A machine of this profile, without a guest.
    #[must_use]
    pub const fn native(profile: Profile) -> Self {
        Self { profile, host_pages: None }
    }

    /// The translation hardware of one of its hardware threads.
    fn translator(&self) -> Translator {
        Translator::new(&self.profile.geometry(), &self.profile.latencies())
    }

    /// Cycles of its processor in a second.
    fn frequency(&self) -> f64 {
        self.profile.cpu.frequency.value.0 as f64
    }
}

type Result<T> = std::result::Result<T, OutOfMemory>;

/// A machine on its hardware: what it does takes time.
#[derive(Debug)]
struct System {
    machine: Machine,
    hardware: Hardware,
    /// Until when nobody changes memory but the program whose slice it is; `None`: at any time.
    rest: Option<Time>,
    /// How much longer everything takes than with a CPU for each thread.
    stretch: f64,
    /// The time for which the memory of each process that is no [`Program`] was held locked, since somebody asked last.
    locked: BTreeMap<ProcessKey, Nanos>,
}

impl System {
    /// Takes the time for which this process's memory was held locked since the last call.
    fn take_wait(&mut self, key: ProcessKey) -> Nanos {
        self.locked.remove(&key).unwrap_or_default()
    }

    /// The cost of some work that is asked for now: time of a CPU, and the wait for the device.
    fn cost(&mut self, work: &Work) -> (Nanos, Nanos) {
        let profile = &self.hardware.profile;
        (profile.cpu_time(work), self.machine.wait_for_device(profile, work))
    }
}

/// A machine with programs on it, and time.
#[derive(Debug)]
pub struct Run {
    system: System,
    programs: Vec<Program>,
    background: Worker,
    /// The thread that prepares memory ahead of time, where the policy wants that.
    preparer: Worker,
    debloater: Option<(Debloater, Worker)>,
    /// The most that the background may take of a CPU, whatever the policy says; what is prepared ahead of time is not limited by it.
    limit: Option<Share>,
}

/// Somebody who works beside the programs, on a clock of its own: the background, or a de-bloater.
#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    clock: Time,
    /// CPU time spent.
    busy: Nanos,
    work: Work,
    /// Until when it changes nothing, unless something else happens.
    still_until: Time,
    /// CPUs that it kept busy while it last caught up.
    load: f64,
}

impl Worker {
    /// Takes one step after the other until its clock shows `until`, with so many CPUs or a part of
    /// one. Programs wait while it holds their memory locked.
    fn work_until(
        &mut self,
        until: Time,
        cpus: f64,
        system: &mut System,
        programs: &mut [Program],
        mut step: impl FnMut(&mut Machine) -> Stepped,
    ) {
        let (begun, before) = (self.clock, self.busy);
        while self.clock < until {
            match step(system.machine.at(self.clock)) {
                Stepped::Worked(Worked { work, locked }) => {
                    let (busy, waited) = system.cost(&work);
                    let busy = busy.max(Nanos(1));
                    let cost = busy + waited;
                    self.work += work;
                    self.busy += busy;
                    self.clock += Nanos::from_secs_f64(cost.as_secs_f64() / cpus) + Nanos(1);
                    self.still_until = Time::ZERO;
                    if let Some(locked) = locked {
                        match programs.iter_mut().find(|program| program.key() == locked) {
                            Some(program) => program.wait_for_lock(cost),
                            None => *system.locked.entry(locked).or_default() += cost,
                        }
                    }
                }
                Stepped::Resting(wake) => self.rest(wake, until),
            }
        }
        let elapsed = self.clock.since(begun).as_secs_f64();
        if elapsed > 0.0 {
            self.load = self.busy.saturating_sub(before).as_secs_f64() / elapsed;
        }
    }

    /// Does nothing until `wake`, or until something happens, but no further than to `until`.
    fn rest(&mut self, wake: Option<Time>, until: Time) {
        self.still_until = wake.unwrap_or(Time::NEVER);
        let wake = wake.unwrap_or(until).min(until);
        self.clock = wake.max(self.clock + Nanos(1));
    }
}

impl Run {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(machine: Machine, hardware: Hardware) -> Self {
        Self {
            system: System { machine, hardware, rest: None, stretch: 1.0, locked: BTreeMap::new() },
            programs: Vec::new(),
            background: Worker::default(),
            preparer: Worker::default(),
            debloater: None,
            limit: None,
        }
    }

    /// The same, with no more than this share of one CPU for the background. What is prepared ahead of time has its own thread and is
    /// not limited by it.
    #[must_use]
    pub fn with_background_limit(self, share: Share) -> Self {
        Self { limit: Some(share), ..self }
    }

    /// The same, with a de-bloater plugged in.
    #[must_use]
    pub fn with_debloater(mut self, debloater: Debloater) -> Self {
        self.system.machine.hold_broken(debloater.may_miss());
        Self { debloater: Some((debloater, Worker::default())), ..self }
    }

    /// Starts a program, which has done nothing yet.
    pub fn start(&mut self, workload: Workload) -> ProcessKey {
        let key = self.system.machine.spawn();
        let random = self.system.machine.random.fork();
        self.programs.push(Program::new(key, workload, &mut self.system, random));
        key
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.system.machine
    }

    /// The machine, to do something to it between two phases.
    pub fn machine_mut(&mut self) -> &mut Machine {
        &mut self.system.machine
    }

    /// The hardware.
    #[must_use]
    pub fn hardware(&self) -> &Hardware {
        &self.system.hardware
    }

    /// Runs until every program has ended.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn to_end(&mut self) -> Result<()> {
        self.until_left(0)
    }

    /// Runs until no program has more than `phases` of its phases left, and the children that were
    /// forked meanwhile have ended.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn until_left(&mut self, phases: usize) -> Result<()> {
        while self.slice(phases)? {}
        Ok(())
    }

    /// Lets the program that is furthest behind run for a slice, and the background catch up;
    /// whether any had something to do.
    fn slice(&mut self, left: usize) -> Result<bool> {
        let waiting = self.programs.iter().enumerate().filter(|(_, p)| p.is_waiting(left));
        let Some((next, clock)) =
            waiting.map(|(at, program)| (at, program.clock())).min_by_key(|(at, c)| (*c, *at))
        else {
            return Ok(false);
        };
        self.system.rest = self.rest(next, clock);
        self.system.stretch = self.stretch(clock);
        if let Some(program) = self.programs.get_mut(next) {
            let child = program.slice(&mut self.system)?;
            self.programs.extend(child);
        }
        let behind = self.programs.iter().filter(|p| p.is_waiting(left)).map(Program::clock);
        let until = behind.min().or_else(|| self.programs.get(next).map(Program::clock));
        self.catch_up(until.unwrap_or(clock));
        Ok(true)
    }

    /// How much longer everything takes at this time than with a CPU for each thread.
    fn stretch(&self, now: Time) -> f64 {
        let threads: f64 = self.programs.iter().map(|program| program.runnable_at(now)).sum();
        let cpus = self.system.hardware.profile.cpu.hardware_threads.value.0 as f64;
        let debloating = self.debloater.as_ref().map_or(0.0, |(_, worker)| worker.load);
        let background = self.background.load + self.preparer.load;
        ((threads + background + debloating) / cpus).max(1.0)
    }

    /// Until when nobody changes memory while program `next` runs from this time on.
    fn rest(&self, next: usize, now: Time) -> Option<Time> {
        let others = self.programs.iter().enumerate().filter(|(at, _)| *at != next);
        let change =
            others.filter(|(_, program)| !program.is_steady()).map(|(_, p)| p.clock()).min();
        let own = [&self.background, &self.preparer];
        let workers = self.debloater.iter().map(|(_, worker)| worker).chain(own);
        let until = workers.map(|worker| worker.still_until).chain(change).min();
        until.filter(|until| *until > now)
    }

    /// Lets the background and the de-bloater work until their clocks show `until`, in turns.
    fn catch_up(&mut self, until: Time) {
        while self.debloater.is_some() && self.background.clock + TURN < until {
            let turn = self.background.clock + TURN;
            self.prepare_until(turn);
            self.background_until(turn);
            self.debloat_until(turn);
        }
        self.prepare_until(until);
        self.background_until(until);
        self.debloat_until(until);
        let reclaimed = self.system.machine.take_reclaimed();
        self.background.busy += self.system.hardware.profile.cpu_time(&reclaimed);
        self.background.work += reclaimed;
        self.system.machine.at(until);
    }

    /// How many CPUs the background may take, or which part of one.
    fn background_cpus(&self) -> f64 {
        let cpus = self.system.machine.policy().map_or(1.0, |policy| {
            f64::from(policy.background_threads()) * policy.background_share().get()
        });
        self.limit.map_or(cpus, |limit| cpus.min(limit.get())).max(LEAST_SHARE.get())
    }

    /// Lets the background work until its clock shows `until`.
    fn background_until(&mut self, until: Time) {
        let cpus = self.background_cpus();
        let Self { background, system, programs, .. } = self;
        background.work_until(until, cpus, system, programs, Machine::step);
    }

    /// Has memory prepared ahead of time until that clock shows `until`, by one thread that takes as much of a CPU as the policy gives
    /// each of its own. The limit of the background is khugepaged's and does not hold for it.
    fn prepare_until(&mut self, until: Time) {
        let policy = self.system.machine.policy();
        let share = policy.map_or(Share::ALL, |policy| policy.background_share());
        let Self { preparer, system, programs, .. } = self;
        let cpus = share.max(LEAST_SHARE).get();
        preparer.work_until(until, cpus, system, programs, Machine::prepare_ahead);
    }

    /// Lets the de-bloater, if there is one, work until its clock shows `until`.
    fn debloat_until(&mut self, until: Time) {
        let share = self.limit.unwrap_or(Share::ALL).max(LEAST_SHARE).get();
        let Self { debloater, system, programs, .. } = self;
        let Some((debloater, worker)) = debloater else { return };
        worker.work_until(until, share, system, programs, |machine| debloater.step(machine));
    }

    /// Lets time pass while no program runs.
    pub fn idle(&mut self, time: Nanos) {
        let until = self.system.machine.now().max(self.background.clock) + time;
        self.catch_up(until);
        for program in &mut self.programs {
            program.wait_until(until);
        }
    }

    /// What a program did so far.
    #[must_use]
    pub fn report(&self, key: ProcessKey) -> Option<Report> {
        self.programs.iter().find(|program| program.key() == key).map(Program::report)
    }

    /// What the de-bloater did so far, if one is plugged in.
    #[must_use]
    pub fn debloated(&self) -> Option<Debloated> {
        let (debloater, worker) = self.debloater.as_ref()?;
        Some(debloater.debloated(&self.system.machine, worker.busy))
    }

    /// CPU time and work of the background so far, with what was prepared ahead of time and what kswapd did, which no limit holds for;
    /// the de-bloater's not included.
    #[must_use]
    pub fn background(&self) -> (Nanos, Work) {
        let mut work = self.background.work;
        work += self.preparer.work;
        (self.background.busy + self.preparer.busy, work)
    }
}
