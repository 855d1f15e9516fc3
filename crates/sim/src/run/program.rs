//! One program on a machine: its phases, slice by slice.
//!
//! A phase under way is a value that knows how far it has come; time passes for it on the program's
//! [`Clock`].

mod access;
mod steps;

use super::report::{Charged, Report};
use super::{Result, System};
use crate::machine::work::Work;
use crate::machine::{Content, Machine, Served};
use crate::random::Random;
use crate::translation::Translator;
use crate::workload::{
    Change, Counting, Discard, Order, Part, Phase, Populate, VmaShape, Workload,
};
use access::Accessing;
use steps::Stepping;
use superpage_policy::promotion::View;
use superpage_units::{
    BASE_PAGE_BYTES, BasePages, Bytes, GIGANTIC_PAGE_BYTES, Growth, Nanos, ProcessKey, Time,
    VirtAddr, Vma,
};

/// Where programs' VMAs begin. Anything but zero would do.
const FIRST_ADDRESS: u64 = 16 * GIGANTIC_PAGE_BYTES;
/// How long a program runs before others and the background have their turn. Chosen: short
/// against khugepaged's ten seconds, long against a fault.
const SLICE: Nanos = Nanos(20_000_000);
/// The longest slice of steady accesses while the background works. Chosen: short against
/// khugepaged's ten seconds.
const STEADY: Nanos = Nanos(1_000_000_000);

/// A program that runs.
#[derive(Debug)]
pub(super) struct Program {
    key: ProcessKey,
    threads: u32,
    /// Start of each VMA.
    vmas: Vec<(VirtAddr, VmaShape)>,
    next_address: u64,
    /// The phases that have not begun.
    phases: std::vec::IntoIter<Phase>,
    /// The phase under way.
    present: Option<Present>,
    /// Threads that want a CPU in that phase, or else the next one, and what it does to memory.
    demand: (f64, Memory),
    clock: Clock,
    phase_began: Time,
    began: Time,
    translator: Translator,
    random: Random,
    /// Threads that wanted a CPU in the last slice.
    running: f64,
    descent: Descent,
    report: Report,
}

/// Where a program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Descent {
    Started,
    /// By a fork; its memory is freed when it ends.
    Forked,
}

/// A program's clock, the only way in which time passes for it.
#[derive(Clone, Copy, Debug)]
struct Clock {
    turned: Time,
    /// Seconds since then: many short times add up, with their fractions of a nanosecond.
    seconds: f64,
}

impl Clock {
    fn now(self) -> Time {
        self.turned + self.spent()
    }

    /// The sum of the short times since something took a longer one.
    fn spent(self) -> Nanos {
        Nanos::from_secs_f64(self.seconds)
    }

    /// Lets one of many short times pass.
    fn spend(&mut self, seconds: f64) {
        self.seconds += seconds;
    }

    /// Lets a longer time pass.
    fn pass(&mut self, time: Nanos) {
        *self = Self { turned: self.now() + time, seconds: 0.0 };
    }
}

/// A phase under way, and how far it has come.
#[derive(Debug)]
enum Present {
    /// The phase is over.
    Over,
    Populate(Populating),
    Access(Accessing),
    Steps(Stepping),
    Change(Changing),
}

/// The effect of a phase on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// The phase accesses what is there.
    Steady,
    Changing,
    /// The phase takes faults all the time.
    Faulting,
}

/// The demand of this phase, of a program with so many threads, on the machine: threads that want a CPU, and the effect on memory.
fn demand(phase: Option<&Phase>, threads: u32) -> (f64, Memory) {
    let (threads, memory) = match phase {
        None => (0, Memory::Steady),
        Some(Phase::Sleep(_)) => (0, Memory::Changing),
        Some(Phase::Populate(populate)) => (populate.threads, Memory::Faulting),
        Some(Phase::Steps(_)) => (threads, Memory::Faulting),
        Some(Phase::Access(access)) if access.counting == Counting::Each => {
            (threads, Memory::Changing)
        }
        Some(Phase::Access(_)) => (threads, Memory::Steady),
        Some(Phase::Change(_)) => (1, Memory::Faulting),
        Some(_) => (1, Memory::Changing),
    };
    (f64::from(threads), memory)
}

impl Program {
    /// A program that begins now.
    pub(super) fn new(
        key: ProcessKey,
        workload: Workload,
        on: &mut System,
        random: Random,
    ) -> Self {
        on.machine.set_threads(key, workload.threads);
        let now = on.machine.now();
        Self {
            key,
            threads: workload.threads,
            vmas: Vec::new(),
            next_address: FIRST_ADDRESS,
            present: None,
            demand: demand(workload.phases.first(), workload.threads),
            phases: workload.phases.into_iter(),
            clock: Clock { turned: now, seconds: 0.0 },
            phase_began: now,
            began: now,
            translator: on.hardware.translator(),
            random,
            running: 0.0,
            descent: Descent::Started,
            report: Report::default(),
        }
    }

    pub(super) fn key(&self) -> ProcessKey {
        self.key
    }

    pub(super) fn clock(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn report(&self) -> Report {
        Report { time: self.clock().since(self.began), ..self.report.clone() }
    }

    pub(super) fn wait_until(&mut self, time: Time) {
        self.clock.pass(time.since(self.clock()));
        self.phase_began = self.phase_began.max(time);
    }

    /// Whether it changes nothing in its present phase: it has ended, or accesses what it has.
    pub(super) fn is_steady(&self) -> bool {
        self.demand.1 == Memory::Steady
    }

    /// Threads that want a CPU from this time on. A program whose clock is ahead by more than a
    /// slice was then doing what it did in its last one.
    pub(super) fn runnable_at(&self, time: Time) -> f64 {
        if self.clock() > time + STEADY { self.running } else { self.demand.0 }
    }

    /// Somebody held its memory locked for so long: its faults waited, if it takes any all the time.
    pub(super) fn wait_for_lock(&mut self, time: Nanos) {
        if self.demand.1 == Memory::Faulting {
            self.clock.pass(time);
        }
    }

    /// How many of its phases have not ended.
    fn phases_left(&self) -> usize {
        self.phases.len() + usize::from(self.present.is_some())
    }

    /// Whether it has something to do until all programs have no more than `left` phases left. Those
    /// of a child are not among its parent's: it goes on to its end.
    pub(super) fn is_waiting(&self, left: usize) -> bool {
        match self.descent {
            Descent::Started => self.phases_left() > left,
            Descent::Forked => self.phases_left() > 0,
        }
    }

    /// Runs for a while. The child, if it forks.
    pub(super) fn slice(&mut self, system: &mut System) -> Result<Option<Self>> {
        let (begun, mut child) = (self.clock(), None);
        system.machine.at(begun);
        self.running = self.demand.0;
        self.clock.pass(Nanos::ZERO);
        let mut present = match self.present.take() {
            Some(present) => present,
            None => match self.phases.next() {
                Some(phase) => self.begin(phase, system, &mut child),
                None => return Ok(None),
            },
        };
        let is_over = match &mut present {
            Present::Over => Ok(true),
            Present::Populate(phase) => phase.slice(self, system),
            Present::Access(phase) => phase.slice(self, system),
            Present::Steps(phase) => phase.slice(self, system),
            Present::Change(phase) => phase.slice(self, system),
        };
        self.present = Some(present);
        let is_over = is_over?;
        let taken = self.clock().since(begun).as_secs_f64();
        self.clock.pass(Nanos::from_secs_f64(taken * (system.stretch - 1.0)));
        self.report.peak = self.report.peak.max(system.machine.resident(self.key));
        if is_over {
            self.end_phase(system);
        }
        Ok(child)
    }

    /// Begins a phase, and ends it if it is one that is over at once.
    fn begin(&mut self, phase: Phase, system: &mut System, child: &mut Option<Self>) -> Present {
        let machine = &mut system.machine;
        let (mut present, mut work) = (Present::Over, Work::default());
        match phase {
            Phase::Map(shape) => self.map(machine, shape),
            Phase::Populate(phase) => present = Present::Populate(Populating::new(self, phase)),
            Phase::Access(phase) => present = Present::Access(Accessing::new(self, machine, phase)),
            Phase::Steps(phase) => present = Present::Steps(Stepping::new(self, phase)),
            Phase::Discard(discard) => work = self.discard(machine, &discard),
            Phase::ReadFile(size) => work = machine.read_file(size),
            Phase::Sleep(time) => self.clock.pass(time),
            Phase::Change(change) => {
                work = self.give_back(machine, &change);
                present = Present::Change(Changing { change, done: 0 });
            }
            Phase::WaitUntil(time) => self.clock.pass((self.began + time).since(self.clock())),
            Phase::Fork(workload) => *child = self.fork(system, workload),
        }
        self.clock.pass(system.hardware.profile.price(&work));
        present
    }

    fn end_phase(&mut self, system: &mut System) {
        self.report.phases.push(self.clock().since(self.phase_began));
        self.phase_began = self.clock();
        self.present = None;
        self.demand = demand(self.phases.as_slice().first(), self.threads);
        if self.descent == Descent::Forked && self.phases_left() == 0 {
            self.exit(system, self.key);
        }
    }

    fn exit(&mut self, system: &mut System, key: ProcessKey) {
        self.clock.pass(system.hardware.profile.price(&system.machine.exit(key)));
    }

    /// The child, which begins when the fork is done. None of memory that cannot be forked.
    fn fork(&mut self, system: &mut System, workload: Workload) -> Option<Self> {
        let (key, work) = system.machine.fork(self.key)?;
        self.clock.pass(system.hardware.profile.price(&work));
        if workload.phases.is_empty() {
            self.exit(system, key);
            return None;
        }
        system.machine.at(self.clock());
        let random = self.random.fork();
        Some(Self {
            vmas: self.vmas.clone(),
            next_address: self.next_address,
            descent: Descent::Forked,
            ..Self::new(key, workload, system, random)
        })
    }

    fn map(&mut self, machine: &mut Machine, shape: VmaShape) {
        let VmaShape { size, limit, offset, kind, growth, advice } = shape;
        let start = VirtAddr(self.next_address + offset.0);
        let reserved = offset.0 + limit.0.max(size.0);
        self.next_address += (reserved / GIGANTIC_PAGE_BYTES + 2) * GIGANTIC_PAGE_BYTES;
        self.vmas.push((start, shape));
        machine.map(self.key, Vma { start, end: start.offset(size), kind, growth, advice });
    }

    fn discard(&mut self, machine: &mut Machine, discard: &Discard) -> Work {
        let (start, pages) = self.extent(discard.part);
        let piece = discard.piece.to_base_pages().0.max(1);
        let mut work = Work::default();
        for first in (0..pages / piece).map(|at| at * piece) {
            if self.random.share() < discard.share {
                let from = start.offset(BasePages(first).bytes());
                work += machine.discard(self.key, from, from.offset(BasePages(piece).bytes()));
            }
        }
        work
    }

    /// The first address of a part, and its length in base pages.
    fn extent(&self, part: Part) -> (VirtAddr, u64) {
        let Some((start, shape)) = self.vmas.get(part.vma) else {
            return (VirtAddr::default(), 0);
        };
        let limit = shape.limit.to_base_pages();
        let from = limit.bytes().scaled(part.from).0 / BASE_PAGE_BYTES;
        let to = limit.bytes().scaled(part.to).0 / BASE_PAGE_BYTES;
        (start.offset(BasePages(from).bytes()), to.saturating_sub(from))
    }

    /// Touches a page at the machine's time: what the fault took, if there was one.
    fn touch(&mut self, system: &mut System, at: VirtAddr, content: Content) -> Result<Nanos> {
        let served = system.machine.touch(self.key, at, content)?;
        let Served::Fault { work, .. } = &served else { return Ok(Nanos::ZERO) };
        let (busy, waited) = system.cost(work);
        let latency = busy + waited;
        self.report.faults.record(latency);
        self.report.fault_time += latency;
        self.report.fault_wait += waited;
        Ok(latency)
    }

    /// Makes the VMA long enough for `address`.
    fn grow(&self, machine: &mut Machine, populate: &Populate, address: VirtAddr) {
        let Some((start, shape)) = self.vmas.get(populate.part.vma).copied() else { return };
        if shape.growth == Growth::Fixed {
            return;
        }
        let vma = machine
            .process(self.key)
            .and_then(|process| process.vmas().iter().find(|vma| vma.start == start).copied());
        let Some(vma) = vma.filter(|vma| vma.end <= address) else { return };
        let step = populate.step.0.max(BASE_PAGE_BYTES);
        let needed = address.offset(Bytes(BASE_PAGE_BYTES)).since(vma.end).0;
        let end = vma.end.offset(Bytes(needed.div_ceil(step) * step));
        machine.resize(self.key, start, end.min(start.offset(shape.limit)));
    }

    /// Gives back and lays out the memory of a step of a recorded program, before the step touches anything.
    fn give_back(&self, machine: &mut Machine, change: &Change) -> Work {
        let mut work = Work::default();
        if let Some(vmas) = &change.vmas {
            work += machine.lay_out(self.key, vmas.clone());
        }
        for extent in &change.released {
            let end = extent.start.offset(extent.pages.bytes());
            work += machine.discard(self.key, extent.start, end);
        }
        work
    }
}

/// Touching pages for the first time.
#[derive(Debug)]
struct Populating {
    populate: Populate,
    start: VirtAddr,
    pages: u64,
    /// How many pages have been dealt with.
    done: u64,
}

impl Populating {
    fn new(program: &Program, populate: Populate) -> Self {
        let (start, pages) = program.extent(populate.part);
        Self { populate, start, pages, done: 0 }
    }

    /// Touches pages for a slice; whether that was the last.
    fn slice(&mut self, program: &mut Program, system: &mut System) -> Result<bool> {
        let threads = f64::from(self.populate.threads.max(1));
        let own = self.populate.cycles_per_page / system.hardware.frequency() / threads;
        while self.done < self.pages && program.clock.spent() < SLICE {
            let page = match self.populate.order {
                Order::Sequential => self.done,
                Order::Random => program.random.below(self.pages),
            };
            self.done += 1;
            let density = self.populate.density;
            if density < 1.0 && program.random.share() >= density {
                continue;
            }
            let address = self.start.offset(BasePages(page).bytes());
            program.grow(&mut system.machine, &self.populate, address);
            system.machine.at(program.clock());
            let latency = program.touch(system, address, Content::Data)?;
            program.clock.spend(own + latency.as_secs_f64() / threads);
        }
        Ok(self.done >= self.pages)
    }
}

/// One step of a recorded program.
#[derive(Debug)]
struct Changing {
    change: Change,
    /// How many pages have been touched.
    done: u64,
}

impl Changing {
    /// Touches pages for a slice; whether that was the last.
    fn slice(&mut self, program: &mut Program, system: &mut System) -> Result<bool> {
        let threads = f64::from(program.threads.max(1));
        let mut before = 0;
        for touch in &self.change.touched {
            let pages = touch.extent.pages.0;
            while self.done < before + pages && program.clock.spent() < SLICE {
                let address = touch.extent.start.offset(BasePages(self.done - before).bytes());
                self.done += 1;
                system.machine.at(program.clock());
                let latency = program.touch(system, address, touch.content)?;
                program.clock.spend(latency.as_secs_f64() / threads);
            }
            before += pages;
        }
        Ok(self.done >= before)
    }
}
