//! What a run adds to the machine: forks.

use superpage_policy::debloat::ProcessKey;
use superpage_policy::system::list;
use superpage_policy::units::{Bytes, HugePages};
use superpage_sim::machine::{Backing, Machine, Setup};
use superpage_sim::profile::Profile;
use superpage_sim::run::{Hardware, Run};
use superpage_sim::workload::{
    Access, AreaShape, Counting, Order, Part, Phase, Populate, Workload,
};

fn on(system: &str) -> Run {
    let entry = list::find(system).expect("it is in the list");
    let memory = Bytes::from_gib(1);
    let setup = Setup { memory, pools: None, backing: Backing::None, seed: 1 };
    let hardware = Hardware::native(Profile::named("emd").expect("it is built in"));
    Run::new(Machine::new(setup, (entry.build)()), hardware)
}

fn map(mib: u64) -> Phase {
    Phase::Map(AreaShape::fixed(Bytes::from_mib(mib)))
}

fn populate(area: usize, order: Order, density: f64) -> Phase {
    let part = Part::whole(area);
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
    let of = |system: &str| {
        let mut run = on(system);
        let parent = run.start(saving());
        run.until_left(1).expect("there is room");
        let before = run.machine().used();
        assert_eq!(before, Bytes::from_mib(64).to_base_pages(), "the child has ended");
        let mut run = on(system);
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
