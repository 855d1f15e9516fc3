//! The kernel and the programs, simulated: what a scheduler's commands come to, and when.

use std::collections::BTreeMap;
use std::path::Path;
use superpage_kernel::pagemap::{Found, Survey as Seen};
use superpage_kernel::status::Uid;
use superpage_manager::left_behind::Owner;
use superpage_manager::process::{Memory, PromotableVma, Survey};
use superpage_manager::promote::event::{
    Activity, Collapse, Collapsed, Command, Event, Observation, Observed, Report, RequestId,
};
use superpage_manager::promote::gate::{Domain, Domains};
use superpage_manager::promote::policy::Promotion;
use superpage_manager::promote::range::Refusal;
use superpage_policy::promotion::linux::{Linux, Options};
use superpage_policy::promotion::{Act, Action, Cause, How, Outcome, View as _};
use superpage_policy::watermark::{Usage, Watermarks};
use superpage_sim::machine::work::Work;
use superpage_sim::machine::{Backing, Content, Machine, Setup};
use superpage_sim::random::Random;
use superpage_units::{
    Advice, BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, Growth, HUGE_PAGE_BYTES,
    HugePages, Mapping, Nanos, PageSize, PmdRange, ProcessKey, Time, VirtAddr, Vma, VmaKind,
};

/// Programs at most, and the PMD ranges of each.
const PROGRAMS: usize = 5;
const RANGES: u64 = 12;
/// Where each program's memory begins.
const START: VirtAddr = VirtAddr(1 << 40);
/// Plenty: the programs take a third of it at most.
const MEMORY: Bytes = Bytes::from_mib(512); // tidy: allow(MiB)
/// From one thing that programs do to the next.
const PACE: Nanos = Nanos(20_000_000);

/// How programs and kernel behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Temper {
    /// Programs do nothing, and each request is carried out at once.
    Calm,
    /// Programs come and go; requests are late, lost, or refused.
    Rough,
}

/// A program: a key that stays the same when it runs another one.
#[derive(Clone, Debug)]
struct Program {
    /// As the scheduler knows it.
    key: ProcessKey,
    /// As the machine knows it.
    memory: ProcessKey,
    faults: u64,
    /// Its owner; one of its own, or shared by all slow ones.
    owner: Owner,
    /// It answers no request.
    is_stuck: bool,
    /// Each request about it takes so much longer.
    slow: Nanos,
}

/// Root, in a cgroup of this name.
fn owner(cgroup: &str) -> Owner {
    Owner { user: Uid(0), cgroup: Some(Path::new(cgroup).into()) }
}

pub(crate) struct Kernel {
    pub(crate) now: Time,
    pub(crate) temper: Temper,
    pub(crate) policy: Promotion,
    machine: Machine,
    programs: Vec<Program>,
    last_key: u64,
    random: Random,
    /// What is reported, and when; the number keeps the order.
    reports: BTreeMap<(Time, u64), Event>,
    count: u64,
    next_deed: Time,
}

impl Kernel {
    /// Five programs, each with some of its memory touched.
    pub(crate) fn new(policy: Promotion, seed: u64) -> Self {
        let setup = Setup { memory: MEMORY, pools: None, backing: Backing::None, seed };
        let machine = Machine::new(setup, Box::new(Linux::new(Options::NEVER)));
        let mut kernel = Self {
            now: Time(1_000_000_000),
            temper: Temper::Calm,
            policy,
            machine,
            programs: Vec::new(),
            last_key: 100,
            random: Random::new(seed),
            reports: BTreeMap::new(),
            count: 0,
            next_deed: Time::ZERO,
        };
        for _ in 0..PROGRAMS {
            kernel.spawn();
        }
        for index in 0..PROGRAMS {
            (0..4).for_each(|_| kernel.fill(index));
        }
        kernel
    }

    fn spawn(&mut self) {
        self.last_key += 1;
        let memory = self.map();
        let key = ProcessKey(self.last_key);
        let owner = owner(&key.0.to_string());
        let (is_stuck, slow) = (false, Nanos::ZERO);
        self.programs.push(Program { key, memory, faults: 0, owner, is_stuck, slow });
    }

    fn map(&mut self) -> ProcessKey {
        let memory = self.machine.spawn();
        let end = START.offset(HugePages(RANGES).bytes());
        let (kind, growth, advice) = (VmaKind::Anonymous, Growth::Fixed, Advice::None);
        self.machine.map(memory, Vma { start: START, end, kind, growth, advice });
        memory
    }

    /// No request about a program is answered from now on.
    pub(crate) fn stick(&mut self, program: usize) {
        self.programs[program].is_stuck = true;
    }

    /// Each request about a program takes so much longer from now on. All slow ones are in one cgroup.
    pub(crate) fn slow_down(&mut self, program: usize, slow: Nanos) {
        let program = &mut self.programs[program];
        (program.owner, program.slow) = (owner("slow"), slow);
    }

    /// How many programs there are.
    pub(crate) fn alive(&self) -> u64 {
        self.programs.len() as u64
    }

    /// Ranges of programs that are mapped by at least so many base pages, and by no other process.
    pub(crate) fn base_mapped_with(&self, least: BasePages) -> Vec<(usize, PmdRange)> {
        let ranges = PmdRange::within(START, START.offset(HugePages(RANGES).bytes()));
        let all = ranges.flat_map(|range| (0..self.programs.len()).map(move |p| (p, range)));
        all.filter(|(program, range)| {
            let view = self.machine.range(self.programs[*program].memory, *range);
            let is_wanted = view.mapping == Mapping::Base && view.present >= least;
            is_wanted && view.shared.is_zero()
        })
        .collect()
    }

    pub(crate) fn check(&self) {
        self.machine.check();
    }

    /// What happens next, until `end`, and when: a report, or that it is time for a step.
    pub(crate) fn next_event(&mut self, step: Time, end: Time) -> (Event, Time) {
        let until = step.max(self.now).min(end);
        if self.temper == Temper::Rough {
            while self.next_deed <= until {
                self.deed();
                self.next_deed = self.next_deed.max(self.now) + PACE;
            }
        }
        match self.reports.first_key_value().map(|(at, _)| *at) {
            Some(at) if at.0 <= until => {
                let event = self.reports.remove(&at).expect("it is there");
                (event, at.0.max(self.now))
            }
            _ => (Event::Tick, until),
        }
    }

    /// Carries commands out; returns what was reported to the operator.
    pub(crate) fn take(&mut self, commands: Vec<Command>) -> Vec<Report> {
        let mut reports = Vec::new();
        for command in commands {
            match command {
                Command::Observe(id) => {
                    let event = self.observe(id);
                    self.answer(id, None, event);
                }
                Command::Survey(id, process, _) => {
                    let event = Event::Surveyed(id, self.survey(process), Nanos(200_000));
                    self.answer(id, Some(process), event);
                }
                Command::Collapse(id, request) => {
                    let event = Event::Collapsed(id, self.collapse(&request), Nanos(500_000));
                    self.answer(id, Some(request.process), event);
                }
                Command::Report(report) => reports.push(report),
            }
        }
        reports
    }

    fn slow(&self, process: ProcessKey) -> Nanos {
        let program = self.programs.iter().find(|program| program.key == process);
        program.map_or(Nanos::ZERO, |program| program.slow)
    }

    fn is_stuck(&self, process: ProcessKey) -> bool {
        self.programs.iter().any(|program| program.key == process && program.is_stuck)
    }

    /// Reports at once, late, very late, or not at all.
    fn answer(&mut self, id: RequestId, process: Option<ProcessKey>, event: Event) {
        let slow = process.map_or(Nanos::ZERO, |process| self.slow(process));
        let soon = self.now + Nanos(1_000_000 + self.random.below(5_000_000)) + slow;
        let late = self.now + Nanos(10_000_000_000);
        if process.is_some_and(|process| self.is_stuck(process)) {
            return self.report(late, Event::TimedOut(id));
        }
        let chance = if self.temper == Temper::Calm { 100 } else { self.random.below(100) };
        let delay = Nanos(self.random.below(900_000_000));
        match chance {
            0..3 => self.report(soon, Event::WorkerLost(id)),
            3..6 => {
                self.report(late, Event::TimedOut(id));
                self.report(late + delay * 5, event);
            }
            6 => {
                self.report(late, Event::TimedOut(id));
                self.report(late + Nanos(1_000_000), Event::WorkerLost(id));
            }
            7..20 => self.report(soon + delay, event),
            _ => self.report(soon, event),
        }
    }

    fn report(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.reports.insert((at, self.count), event);
    }

    fn observe(&self, id: RequestId) -> Event {
        let observed = |program: &Program| {
            let resident = self.machine.resident(program.memory).bytes();
            let activity = Activity { faults: program.faults, resident };
            Observed {
                key: program.key,
                owner: program.owner.clone(),
                policy: self.policy,
                activity,
                domains: Domains::default(),
            }
        };
        let usage = Usage { used: self.machine.used().bytes(), total: MEMORY };
        let domain = Domain { usage, marks: Watermarks::default(), promised: HugePages::ZERO };
        let processes = self.programs.iter().map(observed).collect();
        let free = *self.machine.free_memory();
        Event::Observed(id, Observation { processes, domains: vec![domain], free }, Nanos(100_000))
    }

    fn memory_of(&self, process: ProcessKey) -> Option<ProcessKey> {
        let program = self.programs.iter().find(|program| program.key == process);
        program.map(|program| program.memory)
    }

    fn survey(&self, process: ProcessKey) -> Option<Survey> {
        let memory = self.memory_of(process)?;
        let vma = |vma: &Vma| PromotableVma {
            start: vma.start,
            end: vma.end,
            memory: Memory::Private,
            is_heap: false,
        };
        let vmas = self.machine.vmas(memory).iter().map(vma).collect();
        let mut found = Vec::new();
        let mut at = START;
        while let Some(range) = self.machine.next_mapped(memory, at) {
            at = range.end();
            let view = self.machine.range(memory, range);
            found.push(match view.mapping {
                Mapping::Huge => Found::Huge(range, HugePages(1)),
                _ => {
                    let seen = Seen { present: view.present, ..Seen::default() };
                    Found::Base(range, seen)
                }
            });
        }
        Some(Survey { vmas, found, part: None, is_late: false })
    }

    fn collapse(&mut self, request: &Collapse) -> Collapsed {
        let became = request.ranges().filter_map(|range| {
            let became = self.collapse_one(request.process, range)?;
            Some((range, became))
        });
        let became = became.collect();
        let took = Nanos(400_000 + self.random.below(200_000)) + self.slow(request.process);
        Collapsed { became, slowest: took, held: took * request.count.0 }
    }

    fn collapse_one(
        &mut self,
        process: ProcessKey,
        range: PmdRange,
    ) -> Option<Result<BasePages, Refusal>> {
        let Some(memory) = self.memory_of(process) else { return Some(Err(Refusal::Gone)) };
        let before = self.machine.range(memory, range);
        match before.mapping {
            Mapping::Huge => return None,
            Mapping::Base if before.shared.is_zero() => {}
            Mapping::Base => return Some(Err(Refusal::Shared)),
            _ => return Some(Err(Refusal::NotPossible)),
        }
        if self.temper == Temper::Rough {
            match self.random.below(20) {
                0 | 1 => return Some(Err(Refusal::Busy)),
                2 => return Some(Err(Refusal::NoHugePage)),
                3 => return Some(Err(Refusal::CgroupLimit)),
                _ => {}
            }
        }
        let act = Act::Promote { process: memory, page: range.into(), how: How::Copy(None) };
        let action = Action { act, cause: Cause::Scanned(before.present) };
        Some(match self.machine.apply(&action, &mut Work::default()) {
            Outcome::Done => {
                let all = PageSize::Huge.base_pages();
                Ok(all.saturating_sub(before.present))
            }
            Outcome::NoFrame => Err(Refusal::NoHugePage),
            Outcome::Stale => Err(Refusal::NotPossible),
        })
    }

    // What programs do.

    fn deed(&mut self) {
        let index = usize::try_from(self.random.below(self.programs.len() as u64)).expect("few");
        match self.random.below(100) {
            0..70 => self.fill(index),
            70..90 => self.release(index),
            90..94 => self.exec(index),
            94..97 => self.exit(index),
            _ => self.fork(index),
        }
    }

    /// Every program touches all of its memory.
    pub(crate) fn fill_all(&mut self) {
        for index in 0..self.programs.len() {
            self.touch(index, 0..RANGES * BASE_PAGES_PER_HUGE_PAGE);
        }
    }

    /// Every program touches some of its memory.
    pub(crate) fn fill_some(&mut self) {
        (0..self.programs.len()).for_each(|index| self.fill(index));
    }

    /// Touches pages one beside the other.
    fn fill(&mut self, index: usize) {
        let count = 1 + self.random.below(600);
        let first = self.random.below(RANGES * BASE_PAGES_PER_HUGE_PAGE - 600);
        self.touch(index, first..first + count);
    }

    fn touch(&mut self, index: usize, pages: std::ops::Range<u64>) {
        let Program { memory, .. } = self.programs[index];
        for page in pages {
            let address = START.offset(Bytes(page * BASE_PAGE_BYTES));
            let range = PmdRange::containing(address);
            let before = self.machine.range(memory, range).present;
            self.machine.touch(memory, address, Content::Data).expect("memory is plentiful");
            let grown = self.machine.range(memory, range).present > before;
            self.programs[index].faults += u64::from(grown);
        }
    }

    fn release(&mut self, index: usize) {
        let first = self.random.below(RANGES * BASE_PAGES_PER_HUGE_PAGE - 1200);
        let start = START.offset(Bytes(first * BASE_PAGE_BYTES));
        let end = start.offset(Bytes(self.random.below(2 * HUGE_PAGE_BYTES)));
        self.machine.discard(self.programs[index].memory, start, VirtAddr(end.0 & !0xfff));
    }

    /// It runs another program: the same process, with other memory.
    fn exec(&mut self, index: usize) {
        self.machine.exit(self.programs[index].memory);
        self.programs[index].memory = self.map();
        self.programs[index].faults += 1;
    }

    fn exit(&mut self, index: usize) {
        let gone = self.programs.remove(index);
        self.machine.exit(gone.memory);
        self.spawn();
    }

    /// A child, which takes the place of the oldest program so that there are never more.
    fn fork(&mut self, index: usize) {
        let parent = self.programs[index].clone();
        let Some((memory, _)) = self.machine.fork(parent.memory) else { return };
        self.last_key += 1;
        self.programs.push(Program { key: ProcessKey(self.last_key), memory, ..parent });
        if self.programs.len() > PROGRAMS {
            let oldest = self.programs.remove(0);
            self.machine.exit(oldest.memory);
        }
    }
}
