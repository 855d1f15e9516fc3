//! Time: programs and the system's background work share a machine.
//!
//! Each program has a clock of its own, and so has the background. The program that is furthest
//! behind runs for a slice; then the background catches up with it. Everything follows from the
//! seed.
//!
//! A promotion by copying holds the process's memory locked (`collapse_huge_page()` in
//! mm/khugepaged.c takes `mmap_lock` for writing), so a program that takes fault after fault waits
//! for it. One that runs on what it has does not.
//!
//! Threads and background work that want more CPUs than there are all take longer alike. What a run
//! does not model: which CPU runs what, contention for memory bandwidth, and the sharing of
//! translation hardware by hardware threads. All threads of a program are alike, so one is simulated
//! and stands for all.
//!
//! The device that pages go to is shared by all faults and by the background. Who waits for it needs
//! no CPU, but counts as one that does, so a machine with as many threads as CPUs that are mostly
//! waiting is a little slower here than it would be.

mod program;
mod report;

pub use report::{Latencies, Report};

use crate::machine::work::Work;
use crate::machine::{Machine, OutOfMemory, Stepped};
use crate::profile::Profile;
use crate::translation::Translator;
use crate::workload::Workload;
use program::Program;
use superpage_policy::debloat::ProcessKey;
use superpage_policy::page::PageSize;
use superpage_policy::units::Nanos;

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

    /// Cycles of its processor in a second.
    fn frequency(&self) -> f64 {
        self.profile.cpu.frequency.value.0 as f64
    }
}

/// A machine with programs on it, and time.
#[derive(Debug)]
pub struct Run {
    machine: Machine,
    hardware: Hardware,
    programs: Vec<Program>,
    background: Background,
    /// The most that the background may take of a CPU, whatever the system says.
    limit: f64,
}

/// The background's clock.
#[derive(Clone, Copy, Debug, Default)]
struct Background {
    clock: Nanos,
    /// CPU time spent.
    busy: Nanos,
    work: Work,
    /// Until when it changes nothing, unless something else happens.
    still_until: Nanos,
    /// CPUs that it kept busy while it last caught up.
    load: f64,
}

impl Run {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(machine: Machine, hardware: Hardware) -> Self {
        let background = Background::default();
        Self { machine, hardware, programs: Vec::new(), background, limit: f64::INFINITY }
    }

    /// The same, with no more than this share of one CPU for the background.
    #[must_use]
    pub fn with_background_limit(self, share: f64) -> Self {
        Self { limit: share, ..self }
    }

    /// Starts a program, which has done nothing yet.
    pub fn start(&mut self, workload: Workload) -> ProcessKey {
        let key = self.machine.spawn();
        let hardware = &self.hardware;
        let translator =
            Translator::new(&hardware.profile.geometry(), &hardware.profile.latencies());
        let now = self.machine.now;
        let random = self.machine.random.fork();
        self.machine.set_threads(key, workload.threads);
        self.programs.push(Program::new(key, workload, translator, random, now));
        key
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The machine, to do something to it between two phases.
    pub fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// The hardware.
    #[must_use]
    pub fn hardware(&self) -> &Hardware {
        &self.hardware
    }

    /// Runs until every program has ended.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn to_end(&mut self) -> Result<(), OutOfMemory> {
        self.until_left(0)
    }

    /// Runs until no program has more than `phases` of its phases left.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn until_left(&mut self, phases: usize) -> Result<(), OutOfMemory> {
        while self.slice(phases)? {}
        Ok(())
    }

    /// Lets the program that is furthest behind run for a slice, and the background catch up;
    /// whether any had something to do.
    fn slice(&mut self, left: usize) -> Result<bool, OutOfMemory> {
        let waiting = self.programs.iter().enumerate().filter(|(_, p)| p.phases_left() > left);
        let Some((next, clock)) =
            waiting.map(|(at, program)| (at, program.clock())).min_by_key(|(at, c)| (*c, *at))
        else {
            return Ok(false);
        };
        self.machine.now = clock;
        let rest = self.rest(next);
        let stretch = self.stretch();
        if let Some(program) = self.programs.get_mut(next) {
            program.slice(&mut self.machine, &self.hardware, rest, stretch)?;
        }
        let behind = self.programs.iter().filter(|p| p.phases_left() > left).map(Program::clock);
        let until = behind.min().or_else(|| self.programs.get(next).map(Program::clock));
        self.catch_up(until.unwrap_or(clock));
        Ok(true)
    }

    /// How much longer everything takes than with a CPU for each thread.
    fn stretch(&self) -> f64 {
        let now = self.machine.now;
        let threads: f64 = self.programs.iter().map(|program| program.runnable_at(now)).sum();
        let cpus = self.hardware.profile.cpu.hardware_threads.value.0 as f64;
        ((threads + self.background.load) / cpus).max(1.0)
    }

    /// How long nothing will change memory while program `next` runs.
    fn rest(&self, next: usize) -> Rest {
        let others = self.programs.iter().enumerate().filter(|(at, _)| *at != next);
        let change =
            others.filter(|(_, program)| !program.is_steady()).map(|(_, p)| p.clock()).min();
        let until = change.unwrap_or(Nanos(u64::MAX));
        let until = until.min(self.background.still_until);
        if until > self.machine.now { Rest::Until(until) } else { Rest::Short }
    }

    /// Lets the background work until its clock shows `until`.
    fn catch_up(&mut self, until: Nanos) {
        let share = self.machine.system().map_or(1.0, |system| system.background_share());
        let share = share.min(self.limit).max(1e-3);
        let (begun, busy) = (self.background.clock, self.background.busy);
        while self.background.clock < until {
            self.machine.now = self.background.clock;
            match self.machine.step() {
                Stepped::Worked(work) => {
                    let profile = &self.hardware.profile;
                    let busy = profile.cpu_time(&work).max(Nanos(1));
                    let cost = busy + self.machine.wait_for_device(profile, &work);
                    self.background.work += work;
                    self.background.busy += busy;
                    self.background.clock += Nanos::from_secs_f64(cost.as_secs_f64() / share);
                    self.background.clock += Nanos(1);
                    self.background.still_until = Nanos::ZERO;
                    if let Some(key) = self.machine.locked.take() {
                        let faults = self.programs.iter_mut().find(|p| p.key() == key);
                        faults.into_iter().for_each(|program| program.wait_for_lock(cost));
                    }
                }
                Stepped::Resting(wake) => {
                    self.background.still_until = wake.unwrap_or(Nanos(u64::MAX));
                    let wake = wake.unwrap_or(until).min(until);
                    self.background.clock = wake.max(self.background.clock + Nanos(1));
                }
            }
        }
        let elapsed = self.background.clock.saturating_sub(begun).as_secs_f64();
        if elapsed > 0.0 {
            let spent = self.background.busy.saturating_sub(busy).as_secs_f64();
            self.background.load = spent / elapsed;
        }
        self.machine.now = until;
    }

    /// Lets time pass while no program runs.
    pub fn idle(&mut self, time: Nanos) {
        let until = self.machine.now.max(self.background.clock) + time;
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

    /// CPU time and work of the background so far.
    #[must_use]
    pub fn background(&self) -> (Nanos, Work) {
        (self.background.busy, self.background.work)
    }
}

/// How long a slice of steady accesses may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// The background may change memory at any time.
    Short,
    /// Neither it nor another program will before this time.
    Until(Nanos),
}
