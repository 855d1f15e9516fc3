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
//! What a run does not model: which CPU runs what, contention for memory bandwidth, and the sharing
//! of translation hardware by hardware threads. All threads of a program are alike, so one is
//! simulated and stands for all.

mod program;
mod report;

pub use report::{Latencies, Report};

use crate::machine::work::Work;
use crate::machine::{Machine, OutOfMemory, Stepped};
use crate::translation::{Geometry, Translator};
use crate::units::Hertz;
use crate::workload::Workload;
use program::Program;
use superpage_policy::debloat::ProcessKey;
use superpage_policy::page::PageSize;
use superpage_policy::units::Nanos;

/// What work costs in time.
pub trait Price: std::fmt::Debug {
    /// The time that this work takes a CPU, waiting for devices included.
    fn price(&self, work: &Work) -> Nanos;
}

/// The hardware that a run happens on.
#[derive(Debug)]
pub struct Hardware {
    /// Hardware threads.
    pub cpus: u32,
    /// Their frequency.
    pub frequency: Hertz,
    /// Their translation hardware.
    pub geometry: Geometry,
    /// What it costs.
    pub latencies: crate::translation::Latencies,
    /// What the kernel's work costs.
    pub price: Box<dyn Price>,
    /// In a guest: the size of the pages that map the guest's memory.
    pub host_pages: Option<PageSize>,
}

/// A machine with programs on it, and time.
#[derive(Debug)]
pub struct Run {
    machine: Machine,
    hardware: Hardware,
    programs: Vec<Program>,
    background: Background,
}

/// The background's clock.
#[derive(Clone, Copy, Debug, Default)]
struct Background {
    clock: Nanos,
    /// CPU time spent.
    busy: Nanos,
    work: Work,
    /// Whether it waits for something to happen.
    is_resting: bool,
}

impl Run {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(machine: Machine, hardware: Hardware) -> Self {
        Self { machine, hardware, programs: Vec::new(), background: Background::default() }
    }

    /// Starts a program, which has done nothing yet.
    pub fn start(&mut self, workload: Workload) -> ProcessKey {
        let key = self.machine.spawn();
        let hardware = &self.hardware;
        let translator = Translator::new(&hardware.geometry, &hardware.latencies);
        let now = self.machine.now;
        let random = self.machine.random.fork();
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
        let rest = self.rest();
        if let Some(program) = self.programs.get_mut(next) {
            program.slice(&mut self.machine, &self.hardware, rest)?;
        }
        let behind = self.programs.iter().filter(|p| p.phases_left() > left).map(Program::clock);
        let until = behind.min().or_else(|| self.programs.get(next).map(Program::clock));
        self.catch_up(until.unwrap_or(clock));
        Ok(true)
    }

    /// How long nothing in the background will change memory.
    fn rest(&self) -> Rest {
        let others = self.programs.iter().filter(|p| p.phases_left() > 0).count() > 1;
        if self.background.is_resting && !others { Rest::Long } else { Rest::Short }
    }

    /// Lets the background work until its clock shows `until`.
    fn catch_up(&mut self, until: Nanos) {
        let share = self.machine.system().map_or(1.0, |system| system.background_share()).max(1e-3);
        self.background.is_resting = false;
        while self.background.clock < until {
            self.machine.now = self.background.clock;
            match self.machine.step() {
                Stepped::Worked(work) => {
                    let cost = self.hardware.price.price(&work).max(Nanos(1));
                    self.background.work += work;
                    self.background.busy += cost;
                    self.background.clock += Nanos::from_secs_f64(cost.as_secs_f64() / share);
                    self.background.clock += Nanos(1);
                    if let Some(key) = self.machine.locked.take() {
                        let faults = self.programs.iter_mut().find(|p| p.key() == key);
                        faults.into_iter().for_each(|program| program.wait_for_lock(cost));
                    }
                }
                Stepped::Resting(wake) => {
                    self.background.is_resting = wake.is_none();
                    let wake = wake.unwrap_or(until).min(until);
                    self.background.clock = wake.max(self.background.clock + Nanos(1));
                }
            }
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
    /// It will not, until something else happens.
    Long,
}
