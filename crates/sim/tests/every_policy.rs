//! Every policy on the machine, with time: nothing is lost, the same seed gives the same run, and
//! when a program has ended the machine settles.

use superpage_policy::compaction::Compaction;
use superpage_policy::promotion::list::{self, Entry};
use superpage_sim::machine::work::Work;
use superpage_sim::machine::{Backing, Machine, Setup, Stepped};
use superpage_sim::profile::Profile;
use superpage_sim::run::{Hardware, Run};
use superpage_sim::workload::{
    Access, Counting, Discard, Order, Part, Pattern, Phase, Populate, Spread, Stream, Target,
    VmaShape, Workload,
};
use superpage_units::{BasePages, Bytes, Nanos, PageSize};

fn hardware() -> Hardware {
    Hardware::native(Profile::named("emd").expect("it is built in"))
}

fn populate(part: Part, order: Order, density: f64) -> Phase {
    Phase::Populate(Populate {
        part,
        order,
        density,
        step: Bytes::from_kib(132),
        cycles_per_page: 2000.0,
        threads: 1,
    })
}

fn access(count: f64, counting: Counting) -> Phase {
    let stream =
        |vma, pattern, target| Stream { part: Part::whole(vma), pattern, target, weight: 1.0 };
    let skewed = Pattern::PowerLaw { theta: 0.6, spread: Spread::Scattered };
    Phase::Access(Access {
        streams: vec![stream(0, Pattern::Uniform, Target::Data), stream(1, skewed, Target::Any)],
        count,
        cycles: 100.0,
        exposed: 0.8,
        counting,
    })
}

/// A heap that grows, an array touched sparsely, some given back, some touched again.
fn program(mib: u64) -> Workload {
    let heap = Part::whole(0);
    Workload {
        name: "mixed".to_owned(),
        threads: 2,
        phases: vec![
            Phase::Map(VmaShape::heap(Bytes::from_mib(mib))),
            Phase::Map(VmaShape {
                offset: Bytes::from_kib(12),
                ..VmaShape::fixed(Bytes::from_mib(mib / 2))
            }),
            populate(heap, Order::Sequential, 1.0),
            populate(Part::whole(1), Order::Random, 0.3),
            access(3e7, Counting::Sampled),
            Phase::Discard(Discard { part: heap, share: 0.5, piece: Bytes::from_kib(64) }),
            Phase::Sleep(Nanos(2_000_000_000)),
            populate(Part { vma: 0, from: 0.2, to: 0.6 }, Order::Sequential, 0.5),
            access(20_000.0, Counting::Each),
            access(3e7, Counting::Sampled),
        ],
    }
}

fn run(entry: &Entry, seed: u64, frames: Bytes) -> Run {
    let pools = (entry.name == "xheap")
        .then_some([frames.to_base_pages().0 / 8, frames.to_huge_pages().0 * 3 / 4]);
    let backing = if pools.is_some() { Backing::File } else { Backing::Swap };
    let setup = Setup { memory: frames, pools, backing, seed };
    let mut machine = Machine::new(setup, (entry.build)());
    if pools.is_none() {
        machine.prepare(|physical, random| {
            physical.scatter_unmovable(BasePages(20), random);
            physical.fill_page_cache(Bytes::from_mib(16), random);
        });
    }
    let mut run = Run::new(machine, hardware());
    run.start(program(96));
    run.start(program(64));
    run
}

/// All that can be told apart about a run, as text.
fn summary(run: &Run) -> String {
    let reports: Vec<String> = run
        .machine()
        .processes()
        .keys()
        .iter()
        .map(|key| {
            let report = run.report(*key).expect("it ran");
            let footprint = run.machine().process(*key).map(|process| process.footprint());
            format!(
                "{:?} {:?} {:?} {footprint:?}",
                report.phases, report.walk_cycles, report.fault_time
            )
        })
        .collect();
    format!("{reports:?} {:?} {:?}", run.machine().counts(), run.machine().free_memory())
}

#[test]
fn every_policy_serves_programs_and_loses_nothing() {
    for entry in list::ALL {
        let mut run = run(entry, 7, Bytes::from_mib(256));
        for left in (0..10).rev() {
            run.until_left(left).unwrap_or_else(|error| panic!("{}: {error}", entry.name));
            run.machine().check();
        }
    }
}

#[test]
fn memory_may_be_too_small_for_a_program() {
    // xHeap's machine is all pools; pages set aside are never given up.
    let can_swap = |entry: &&Entry| entry.name != "xheap" && !entry.name.starts_with("hugetlb");
    for entry in list::ALL.iter().filter(can_swap) {
        let mut run = run(entry, 3, Bytes::from_mib(96));
        run.to_end().unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        run.machine().check();
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for entry in list::ALL {
        let of = |seed| {
            let mut run = run(entry, seed, Bytes::from_mib(256));
            run.to_end().expect("there is room");
            summary(&run)
        };
        assert_eq!(of(1), of(1), "{}", entry.name);
        assert_ne!(of(1), of(2), "{}", entry.name);
    }
}

/// Liveness: when programs have ended, the background comes to rest, and stays there but for
/// scanning.
#[test]
fn the_machine_settles() {
    for entry in list::ALL {
        let mut run = run(entry, 5, Bytes::from_mib(256));
        run.to_end().expect("there is room");
        run.idle(Nanos(3_600_000_000_000));
        let before = summary(&run);
        let machine = run.machine_mut();
        let mut steps = 0;
        while let Stepped::Worked(_) = machine.step() {
            steps += 1;
            assert!(steps < 100_000, "{} does not come to rest", entry.name);
        }
        while let Stepped::Worked(_) = machine.prepare_ahead() {
            steps += 1;
            assert!(steps < 100_000, "{} does not come to rest", entry.name);
        }
        run.idle(Nanos(600_000_000_000));
        let counts = |text: &str| text.split("promotions").nth(1).map(str::to_owned);
        assert_eq!(counts(&before), counts(&summary(&run)), "{}", entry.name);
        run.machine().check();
    }
}

/// The machine carries both kinds of compaction out without losing a page.
#[test]
fn compaction_makes_what_it_says() {
    use superpage_policy::promotion::{Act, Action, Cause};
    for kind in [Compaction::Sequential, Compaction::Smart] {
        let entry = list::find("linux-4k").expect("it is in the list");
        let mut run = run(entry, 11, Bytes::from_mib(256));
        run.until_left(5).expect("there is room");
        let machine = run.machine_mut();
        let before = machine.free_memory().huge_pages();
        let mut work = Work::default();
        let act = Act::Compact(PageSize::Huge, kind);
        machine.apply(&Action { act, cause: Cause::Short(PageSize::Huge) }, &mut work);
        machine.check();
        if work.compacted.made {
            assert!(machine.free_memory().huge_pages() > before, "{kind:?}");
        }
        assert!(work.compacted.copied >= work.compacted.futile);
    }
}

/// Two programs that want more CPUs than there are take longer than one alone.
#[test]
fn programs_share_the_cpus() {
    let time = |programs: u32| {
        let entry = list::find("linux-4k").expect("it is in the list");
        let setup =
            Setup { memory: Bytes::from_mib(512), pools: None, backing: Backing::None, seed: 1 };
        let mut run = Run::new(Machine::new(setup, (entry.build)()), hardware());
        let busy = || {
            let mut busy = Workload { threads: 96, ..program(64) };
            busy.phases[4] = access(3e11, Counting::Sampled);
            busy
        };
        let keys: Vec<_> = (0..programs).map(|_| run.start(busy())).collect();
        run.to_end().expect("there is room");
        run.report(keys[0]).expect("it ran").phases[4].as_secs_f64()
    };
    let ratio = time(2) / time(1);
    assert!((1.8..2.2).contains(&ratio), "{ratio}");
}
