//! What a run adds to the machine: forks, the background's share of a CPU, waiting for a lock; and a
//! policy changed under a running program.

use superpage_policy::promotion::capabilities::Capabilities;
use superpage_policy::promotion::life::{
    Allocation, Deallocation, Life, Mapped, Preparation, Unmapping,
};
use superpage_policy::promotion::{
    Act, Action, Cause, Fault, FaultCause, FaultPlan, How, Policy, Shortage, Step, View, list,
};
use superpage_sim::machine::{Backing, Machine, Setup};
use superpage_sim::profile::Profile;
use superpage_sim::run::{Driven, Hardware, Run};
use superpage_sim::workload::{Access, Counting, Order, Part, Phase, Populate, VmaShape, Workload};
use superpage_units::{
    BasePages, Bytes, HugePages, Mapping, Nanos, PageSize, PmdRange, ProcessKey, Share, VirtAddr,
};

/// Base pages on faults; in the background every range of one process becomes a huge page.
#[derive(Debug)]
struct Eager {
    process: ProcessKey,
    /// Up to here.
    end: VirtAddr,
    /// Whether free huge frames are zeroed ahead of time.
    zeroes: bool,
}

impl Policy for Eager {
    fn fault(&mut self, _: &Fault, _: &dyn View) -> FaultPlan {
        FaultPlan::base(FaultCause::BasePages)
    }

    fn background(&mut self, view: &mut dyn View) -> Step {
        let process = self.process;
        let mut from = VirtAddr::default();
        while let Some(range) = view.next_mapped(process, from).filter(|r| r.end() <= self.end) {
            if view.range(process, range).mapping == Mapping::Base {
                let act = Act::Promote { process, page: range.into(), how: How::Copy(None) };
                return Step::Act(Action { act, cause: Cause::Scanned(BasePages(1)) });
            }
            from = range.end();
        }
        Step::Rest(None)
    }

    fn prepare(&mut self, view: &dyn View) -> Step {
        let free_memory = view.free_memory();
        if !self.zeroes || free_memory.zeroed_huge >= free_memory.huge_pages().0 {
            return Step::Rest(None);
        }
        let act = Act::Zero(PageSize::Huge);
        Step::Act(Action { act, cause: Cause::Short(PageSize::Huge) })
    }

    fn pressure(&mut self, _: Shortage, _: &mut dyn View) -> Option<Action> {
        None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::SCANS
    }

    fn life(&self) -> Life {
        Life {
            allocation: Allocation::Asynchronous(BasePages(1)),
            preparation: Preparation::AtOnce,
            mapping: Mapped::AtOnce,
            unmapping: Unmapping::WhenFreed,
            deallocation: Deallocation::WhenUnmapped,
        }
    }
}

fn on(policy: &str) -> Run {
    let entry = list::find(policy).expect("it is in the list");
    let memory = Bytes::from_gib(1);
    let setup = Setup { memory, pools: None, backing: Backing::None, seed: 1 };
    let hardware = Hardware::native(Profile::named("emd").expect("it is built in"));
    Run::new(Machine::new(setup, (entry.build)()), hardware)
}

fn map(mib: u64) -> Phase {
    Phase::Map(VmaShape::fixed(Bytes::from_mib(mib)))
}

fn populate(vma: usize, order: Order, density: f64) -> Phase {
    let part = Part::whole(vma);
    let step = Bytes::ZERO;
    Phase::Populate(Populate { part, order, density, step, cycles_per_page: 1000.0, threads: 1 })
}

/// So many accesses to all that holds data.
fn read(count: f64) -> Phase {
    let (streams, counting) = (Vec::new(), Counting::Sampled);
    Phase::Access(Access { streams, count, cycles: 100.0, exposed: 0.5, counting })
}

fn program(name: &str, phases: Vec<Phase>) -> Workload {
    Workload { name: name.to_owned(), threads: 1, phases }
}

/// A key-value store that saves itself: a child reads everything while its parent is written to.
fn saving() -> Workload {
    let child = program("save", vec![read(3e7)]);
    let written = populate(0, Order::Random, 0.3);
    let phases = vec![map(64), populate(0, Order::Sequential, 1.0), Phase::Fork(child), written];
    program("store", phases)
}

#[test]
fn a_save_in_the_background_copies_what_is_written_meanwhile() {
    let of = |policy: &str| {
        let mut run = on(policy);
        let parent = run.start(saving());
        run.until_left(1).expect("there is room");
        let before = run.machine().used();
        assert_eq!(before, Bytes::from_mib(64).to_base_pages(), "the child has ended");
        let mut run = on(policy);
        assert_eq!(run.start(saving()), parent);
        run.to_end().expect("there is room");
        run.machine().check();
        let child = ProcessKey(parent.0 + 1);
        let lasted = run.report(child).expect("it ran").time;
        let report = run.report(parent).expect("it ran");
        assert!(lasted > report.phases[3], "the child read while its parent was written to");
        assert_eq!(run.machine().processes().keys(), [parent]);
        assert_eq!(run.machine().used(), run.machine().resident(parent));
        assert_eq!(run.machine().used(), before, "what the child had is free");
        let counts = run.machine().counts();
        assert_eq!(counts.forks, 1);
        let huge = run.machine().process(parent).expect("it is there").footprint().huge;
        (counts.copied_on_write, report, huge)
    };
    let (copied, base, _) = of("linux-4k");
    let (copied_from_huge, huge, left) = of("linux-nokhugepaged");
    // Some 4900 writes to 16384 pages, less those that hit one twice.
    assert!((3900..4900).contains(&copied.0), "{copied}");
    assert_eq!(copied, copied_from_huge);
    // All huge pages were written to, so their parent has none any more.
    assert_eq!(left, HugePages(0));
    // 512 times the entries are copied.
    assert!(base.phases[2].0 > 20 * huge.phases[2].0, "{:?} {:?}", base.phases, huge.phases);
}

#[test]
fn a_changed_policy_leaves_what_is_mapped() {
    let mut run = on("linux-4k");
    let all = |vma| populate(vma, Order::Sequential, 1.0);
    let key = run.start(program("two", vec![map(8), map(8), all(0), all(1)]));
    run.until_left(1).expect("there is room");
    let build = list::find("linux-nokhugepaged").expect("it is in the list").build;
    run.machine_mut().change_policy(build());
    run.to_end().expect("there is room");
    let footprint = run.machine().process(key).expect("it runs").footprint();
    assert_eq!((footprint.base, footprint.huge), (BasePages(2048), HugePages(4)));
}

#[test]
fn the_background_keeps_to_its_limit() {
    let idle = Nanos(100_000_000);
    let of = |limit| {
        let mut run = on("linux-4k").with_background_limit(limit);
        let phases = vec![map(64), populate(0, Order::Sequential, 1.0)];
        let process = run.start(program("array", phases));
        run.to_end().expect("there is room");
        let eager = Eager { process, end: VirtAddr(u64::MAX), zeroes: false };
        run.machine_mut().change_policy(Box::new(eager));
        let before = run.background().0;
        run.idle(idle);
        let promoted = run.machine().counts().promotions[PageSize::Huge.index()];
        (promoted, run.background().0.saturating_sub(before))
    };
    let (all, time) = of(Share::ALL);
    assert_eq!(all, 32);
    let each = Nanos(time.0 / all);
    let (some, busy) = of(Share::percent(1));
    assert!((1..32).contains(&some), "{some}");
    // A hundredth of the time, and what was begun before it was over.
    let most = Nanos(idle.0 / 100);
    assert!(most <= busy && busy <= most + each + each, "{busy:?} of {idle:?}, {each:?} each");
}

#[test]
fn what_is_zeroed_ahead_delays_no_promotion() {
    let of = |zeroes| {
        let mut run = on("linux-4k");
        let phases = vec![map(256), populate(0, Order::Sequential, 1.0)];
        let process = run.start(program("array", phases));
        run.to_end().expect("there is room");
        run.machine_mut().change_policy(Box::new(Eager {
            process,
            end: VirtAddr(u64::MAX),
            zeroes,
        }));
        run.idle(Nanos(10_000_000));
        let machine = run.machine();
        (machine.counts().promotions[PageSize::Huge.index()], machine.free_memory().zeroed_huge)
    };
    let ((promoted, none), (beside, zeroed)) = (of(false), of(true));
    assert!((1..128).contains(&promoted), "{promoted}");
    assert_eq!((beside, none), (promoted, 0));
    assert!(zeroed > 0);
}

/// Faults wait while memory of their process is copied into huge pages, and only of theirs.
#[test]
fn faults_wait_for_promotions_of_their_own_process() {
    let all = |vma| populate(vma, Order::Sequential, 1.0);
    let of = |own: bool| {
        let mut run = on("linux-4k");
        let phases = vec![map(32), map(512), all(0), all(1)];
        let faulting = run.start(program("faulting", phases));
        let sleep = Phase::Sleep(Nanos(10_000_000_000));
        let other = run.start(program("other", vec![map(32), all(0), sleep]));
        run.until_left(1).expect("there is room");
        let process = if own { faulting } else { other };
        let first = run.machine().process(process).expect("it runs").vmas()[0];
        let end = PmdRange::containing(first.end).start();
        let eager = Eager { process, end, zeroes: false };
        run.machine_mut().change_policy(Box::new(eager));
        run.to_end().expect("there is room");
        assert_eq!(run.machine().counts().promotions[PageSize::Huge.index()], 16);
        let time = run.report(faulting).expect("it ran").phases[3];
        (time.as_secs_f64(), run.background().0.as_secs_f64())
    };
    let ((waited, busy), (alone, _)) = (of(true), of(false));
    assert!(((waited - alone) / busy - 1.0).abs() < 0.05, "{waited} {alone} {busy}");
}

/// A program that is driven from outside waits for promotions of its process too, but not while it rests.
#[test]
fn a_driven_program_waits_for_its_promotions_unless_it_rests() {
    let (start, size, lag) = (VirtAddr(1 << 35), Bytes::from_mib(32), Nanos(1_000));
    let key = Driven::new(on("linux-4k"), start, size, lag).key();
    let of = |process: ProcessKey, rest: Option<Nanos>| {
        let mut run = on("linux-4k");
        let end = start.offset(size);
        run.machine_mut().change_policy(Box::new(Eager { process, end, zeroes: false }));
        let mut driven = Driven::new(run, start, size, lag);
        for page in 0..size.to_base_pages().0 {
            driven.write(start.offset(BasePages(page).bytes())).expect("there is room");
        }
        if let Some(time) = rest {
            driven.rest(time);
        }
        for _ in 0..1_000_000 {
            driven.work(Nanos(1_000));
            driven.catch_up();
        }
        let busy = driven.run().background().0.as_secs_f64();
        (driven.elapsed().saturating_sub(rest.unwrap_or_default()).as_secs_f64(), busy)
    };
    let ((waited, busy), (alone, _)) = (of(key, None), of(ProcessKey(key.0 + 1), None));
    assert!(((waited - alone) / busy - 1.0).abs() < 0.05, "{waited} {alone} {busy}");
    let (rested, busy_meanwhile) = of(key, Some(Nanos(10_000_000_000)));
    assert_eq!((rested, busy_meanwhile > 0.0), (alone, true));
}
