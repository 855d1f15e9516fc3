//! Large machines, told to the scheduler: what it costs in CPU time and in memory, whatever programs do.
//!
//! The programs are told of, not run. The cost of requests is assumed; that of the scheduler itself is measured here. Memory is
//! what is allocated.

use peak_alloc::PeakAlloc;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use superpage_kernel::pagemap::{Found, Survey as Seen};
use superpage_kernel::status::Uid;
use superpage_kernel::usage::CpuTime;
use superpage_manager::budget::CpuBudget;
use superpage_manager::left_behind::Owner;
use superpage_manager::process::{Extent, Memory, PromotableVma, Survey};
use superpage_manager::promote::event::{
    Activity, Collapse, Collapsed, Command, Event, Observation, Observed, RequestId,
};
use superpage_manager::promote::gate::{BURST, Domain, Domains};
use superpage_manager::promote::policy::Promotion;
use superpage_manager::promote::scheduler::Scheduler;
use superpage_manager::promote::{Promoted, Rules};
use superpage_policy::free_memory::FreeMemory;
use superpage_policy::promotion::list::Registry;
use superpage_policy::watermark::{Usage, Watermarks};
use superpage_units::{
    BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HUGE_PAGE_BYTES, HugePages, Nanos, PmdRange,
    ProcessKey, Share, Time, VirtAddr,
};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// One test at a time allocates memory.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const MINUTE: Nanos = Nanos(60_000_000_000); // tidy: allow(60 s)
/// A TiB in ranges.
const TIB: u64 = 1 << 19;

// What requests cost.
/// To look at one process.
const OBSERVED: Nanos = Nanos(20_000);
/// To survey a process, and a range of it that is mapped by base pages.
const SURVEYED: Nanos = Nanos(50_000);
const SURVEYED_RANGE: Nanos = Nanos(4_000);
/// To collapse a range.
const COLLAPSED: Nanos = Nanos(500_000);

/// A program with memory in one VMA.
struct Program {
    key: ProcessKey,
    /// Where it begins.
    start: VirtAddr,
    /// The present base pages of each range; a huge page where all are.
    present: Vec<u16>,
    faults: u64,
}

const HUGE: u16 = 512;

impl Program {
    fn new(number: u64, ranges: u64, present: u16) -> Self {
        let present = (0..ranges).map(|_| present).collect();
        Self { key: ProcessKey(number + 1), start: VirtAddr(1 << 40), present, faults: 0 }
    }

    fn range(&self, index: usize) -> PmdRange {
        PmdRange::containing(VirtAddr(self.start.0 + index as u64 * HUGE_PAGE_BYTES))
    }

    fn index(&self, range: PmdRange) -> usize {
        usize::try_from(range.start().since(self.start).0 / HUGE_PAGE_BYTES).expect("small")
    }

    fn survey(&self, extent: Extent) -> (Survey, Nanos) {
        let end = self.start.offset(HugePages(self.present.len() as u64).bytes());
        let vma = PromotableVma { start: self.start, end, memory: Memory::Private, is_heap: false };
        let mut found: Vec<Found> = Vec::new();
        let mut base = 0;
        let mut until = VirtAddr(u64::MAX);
        for (index, present) in self.present.iter().enumerate() {
            let range = self.range(index);
            if range.start() < extent.from {
                continue;
            }
            if base + 1 >= extent.most {
                until = range.start();
                break;
            }
            match found.last_mut() {
                Some(Found::Huge(_, count)) if *present == HUGE => *count += HugePages(1),
                _ if *present == HUGE => found.push(Found::Huge(range, HugePages(1))),
                _ => {
                    let present = BasePages(u64::from(*present));
                    found.push(Found::Base(range, Seen { present, ..Seen::default() }));
                    base += 1;
                }
            }
        }
        let part = Some((extent.from, until));
        (
            Survey { vmas: vec![vma], found, part, is_late: false },
            SURVEYED + SURVEYED_RANGE * base as u64,
        )
    }

    fn collapse(&mut self, request: &Collapse) -> Collapsed {
        let mut became = Vec::new();
        for range in request.ranges() {
            let index = self.index(range);
            let filled = BASE_PAGES_PER_HUGE_PAGE - u64::from(self.present[index]);
            self.present[index] = HUGE;
            became.push((range, Ok(BasePages(filled))));
        }
        let held = COLLAPSED * request.count.0;
        Collapsed { became, slowest: COLLAPSED, held }
    }
}

/// The machine and its scheduler.
struct Machine {
    programs: Vec<Program>,
    policy: Promotion,
    scheduler: Scheduler,
    now: Time,
    /// What was answered, and when; the number keeps the order.
    answers: BTreeMap<(Time, u64), Event>,
    answered: u64,
    /// CPU time of all that was done, and of that the scheduler's own.
    spent: Nanos,
    own: Nanos,
    surveys: BTreeMap<ProcessKey, u64>,
}

impl Machine {
    fn new(programs: Vec<Program>, policy: &str, budget: Share) -> Self {
        let policy = Promotion::named(policy, &Registry::published()).expect("a policy");
        let rules = Rules {
            policies: vec![policy],
            budget: CpuBudget::new(budget).expect("a share"),
            at_once: 1,
            worth: BasePages(31),
            max_fragmentation: Share::ALL,
        };
        Self {
            programs,
            policy,
            scheduler: Scheduler::new(rules, Promoted::new(), Time::ZERO),
            now: Time::ZERO,
            answers: BTreeMap::new(),
            answered: 0,
            spent: Nanos(0),
            own: Nanos(0),
            surveys: BTreeMap::new(),
        }
    }

    /// Goes on until `end`. `each_second` is what programs do.
    fn run(&mut self, end: Time, mut each_second: impl FnMut(&mut Vec<Program>)) {
        let mut next_second = self.now;
        let mut event = Event::Tick;
        while self.now < end {
            let cpu = CpuTime::of_thread();
            let mut commands = self.scheduler.step(event, self.now);
            let own = CpuTime::of_thread().since(cpu);
            self.spent += own;
            self.own += own;
            commands.extend(self.scheduler.step(Event::Spent(own), self.now));
            commands.into_iter().for_each(|command| self.carry_out(command));
            let step = self.scheduler.next_step().max(self.now).min(end);
            event = match self.answers.first_entry() {
                Some(first) if first.key().0 <= step => {
                    self.now = self.now.max(first.key().0);
                    first.remove()
                }
                _ => {
                    self.now = step.max(self.now + Nanos(1));
                    Event::Tick
                }
            };
            while next_second <= self.now {
                each_second(&mut self.programs);
                next_second += Nanos(1_000_000_000);
            }
        }
    }

    fn answer(&mut self, cost: Nanos, event: Event) {
        self.answered += 1;
        self.spent += cost;
        self.answers.insert((self.now + cost, self.answered), event);
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Observe(id) => self.observe(id),
            Command::Survey(id, process, extent) => {
                let program = self.programs.iter().find(|one| one.key == process);
                let (survey, cost) = program.expect("it is there").survey(extent);
                *self.surveys.entry(process).or_default() += 1;
                self.answer(cost, Event::Surveyed(id, Some(survey), cost));
            }
            Command::Collapse(id, request) => {
                let program = self.programs.iter_mut().find(|one| one.key == request.process);
                let done = program.expect("it is there").collapse(&request);
                let cost = done.held;
                self.answer(cost, Event::Collapsed(id, done, cost));
            }
            Command::Report(_) => {}
        }
    }

    fn observe(&mut self, id: RequestId) {
        let observed = |program: &Program| Observed {
            key: program.key,
            owner: Owner { user: Uid(0), cgroup: None },
            policy: self.policy,
            activity: Activity { faults: program.faults, resident: Bytes::ZERO },
            domains: Domains::default(),
        };
        let usage = Usage { used: Bytes::ZERO, total: Bytes::from_mib(1 << 30) };
        let domain = Domain { usage, marks: Watermarks::default(), promised: HugePages::ZERO };
        let processes: Vec<Observed> = self.programs.iter().map(observed).collect();
        let cost = OBSERVED * processes.len() as u64;
        // Enough for a policy that goes by it.
        let free = FreeMemory { total: BasePages(1 << 30), ..FreeMemory::NONE };
        let free = FreeMemory { page_cache: free.total, ..free };
        let observation = Observation { processes, domains: vec![domain], free };
        self.answer(cost, Event::Observed(id, observation, cost));
    }

    fn huge(&self) -> usize {
        let huge = |program: &Program| program.present.iter().filter(|one| **one == HUGE).count();
        self.programs.iter().map(huge).sum()
    }
}

/// Nobody else allocates anything until this is dropped.
fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is allocated from now on.
struct Measured {
    before: usize,
}

impl Measured {
    fn begin() -> Self {
        MEMORY.reset_peak_usage();
        Self { before: MEMORY.current_usage() }
    }

    /// The most that was allocated at a time.
    fn peak(&self) -> Bytes {
        Bytes(MEMORY.peak_usage().saturating_sub(self.before) as u64)
    }

    fn now(&self) -> Bytes {
        Bytes(MEMORY.current_usage().saturating_sub(self.before) as u64)
    }
}

#[test]
fn ten_thousand_programs_with_a_tebibyte_stay_within_the_budget() {
    let _turn = alone();
    const PROGRAMS: u64 = 10_000;
    /// The scheduler promotes four ranges of a program after it has surveyed that: 14,336 of 3,585 programs were counted.
    const PROMOTED_AT_ONCE: u64 = 4;
    let share = Share::percent(5);
    let programs = (0..PROGRAMS).map(|number| Program::new(number, TIB / PROGRAMS, 200)).collect();
    let mut machine = Machine::new(programs, "superpage", share);
    let end = Time::ZERO + MINUTE * 5;
    // All of them fault all the time.
    machine.run(end, |programs| programs.iter_mut().for_each(|one| one.faults += 1_000));
    let may = Nanos::from_secs_f64(share.get() * (end.since(Time::ZERO) + BURST).as_secs_f64());
    let spent = machine.spent;
    println!(
        "{spent:?} of {may:?} spent, {:?} of it by the scheduler itself; {} surveyed, {} promoted",
        machine.own,
        machine.surveys.len(),
        machine.huge()
    );
    assert!(spent <= may + Nanos(500_000_000), "{spent:?} of {may:?}");
    // The scheduler's own time depends on the machine that runs this test; the programs get the rest of the budget.
    let rest = may.saturating_sub(machine.own);
    let of_one = SURVEYED + SURVEYED_RANGE * (TIB / PROGRAMS) + COLLAPSED * PROMOTED_AT_ONCE;
    let surveyed = machine.surveys.len() as u64;
    let enough = rest.0 / of_one.0 * 3 / 4; // tidy: allow(the rest is for looking at all of them)
    assert!(surveyed > enough, "only {surveyed} were surveyed, {enough} can be");
    let again = machine.surveys.values().filter(|surveys| **surveys > 1).count();
    assert!(again == 0 || surveyed == PROGRAMS, "{again} were surveyed twice before all were once");
    assert!(machine.huge() as u64 > enough * PROMOTED_AT_ONCE, "{} were promoted", machine.huge());
}

/// What is kept of a TiB on base pages, all of which is promoted in time, and then of one on huge pages.
#[test]
fn a_tebibyte_takes_little_memory() {
    let _turn = alone();
    for (policy, base, huge) in [("superpage", 64, 16), ("quicksilver-sync-64", 64, 96)] {
        let mut machine = Machine::new(vec![Program::new(0, TIB, 500)], policy, Share::ALL);
        let measured = Measured::begin();
        machine.run(Time::ZERO + MINUTE, |_| {});
        let peak = measured.peak();
        machine.run(Time::ZERO + MINUTE * 20, |_| {});
        assert!(machine.huge() as u64 > TIB * 9 / 10, "only {} are huge", machine.huge());
        let kept = measured.now();
        println!(
            "{policy}: {peak} at most of a TiB on base pages, {kept} kept of one on huge pages"
        );
        assert!(peak <= Bytes::from_mib(base), "{policy}: {peak} for a TiB on base pages");
        assert!(kept <= Bytes::from_mib(huge), "{policy}: {kept} for a TiB on huge pages");
    }
}

/// Programs that touch a page in each of very many ranges: to each it costs 8 KiB, a page and its page table.
#[test]
fn programs_with_a_page_in_each_range_are_not_all_remembered() {
    let _turn = alone();
    for policy in ["superpage", "quicksilver-sync-64", "freebsd", "ingens", "hawkeye", "linux"] {
        let programs = (0..40).map(|number| Program::new(number, TIB / 4, 1)).collect();
        let mut machine = Machine::new(programs, policy, Share::ALL);
        let measured = Measured::begin();
        machine.run(Time::ZERO + MINUTE, |programs| {
            programs.iter_mut().for_each(|one| one.faults += 1_000);
        });
        let peak = measured.peak();
        println!("{policy}: {peak} at most for ten TiB of ranges with a page each");
        assert!(peak <= Bytes::from_mib(160), "{policy}: {peak}");
    }
}

/// A program that maps memory at ever new addresses.
#[test]
fn what_was_unmapped_is_forgotten() {
    let _turn = alone();
    for policy in ["superpage", "quicksilver-sync-64", "freebsd", "ingens", "hawkeye", "linux"] {
        for present in [1, 500] {
            let mut machine =
                Machine::new(vec![Program::new(0, 1_000, present)], policy, Share::ALL);
            let measured = Measured::begin();
            machine.run(Time::ZERO + MINUTE * 10, |programs| {
                let moved = programs[0].start.offset(HugePages(1_000).bytes());
                let faults = programs[0].faults + 1_000;
                programs[0] = Program { start: moved, faults, ..Program::new(0, 1_000, present) };
            });
            let kept = measured.now();
            println!(
                "{policy}: {kept} kept after 600,000 ranges with {present} pages were unmapped"
            );
            assert!(kept <= Bytes::from_mib(2), "{policy}: {kept}");
        }
    }
}

/// Many programs have so much that no survey comes to the end of anybody's memory: others are promoted in all the same, and what
/// was huge of theirs is not forgotten.
#[test]
fn a_program_is_known_to_its_end_whatever_others_have() {
    let _turn = alone();
    let mut programs: Vec<Program> = (1..1000).map(|number| Program::new(number, 600, 1)).collect();
    let mut victim = Program::new(0, 600, 1);
    victim.present[300..].fill(500);
    programs.insert(0, victim);
    let mut machine = Machine::new(programs, "superpage", Share::ALL);
    let end = Time::ZERO + MINUTE * 3;
    machine.run(end, |programs| programs.iter_mut().for_each(|one| one.faults += 1_000));
    let huge = machine.programs[0].present.iter().filter(|present| **present == HUGE).count();
    assert_eq!(huge, 300, "of those that lie behind");
    // It frees most of them: what would be bloat again is not made again.
    machine.programs[0].present[300..].fill(100);
    machine.run(end + MINUTE * 3, |programs| {
        programs.iter_mut().for_each(|one| one.faults += 1_000);
    });
    let huge = machine.programs[0].present.iter().filter(|present| **present == HUGE).count();
    assert_eq!(huge, 0, "of those that were freed in part");
}
