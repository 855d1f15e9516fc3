//! Memory that is partly on storage: what is read and written, how many wait, and that xHeap does what
//! it is for.

use superpage_policy::promotion::list;
use superpage_sim::machine::work::Work;
use superpage_sim::machine::{Backing, Content, Machine, Served, Setup, Stepped, Worked};
use superpage_sim::profile::Profile;
use superpage_sim::run::{Hardware, Report, Run};
use superpage_sim::workload::Workload;
use superpage_sim::workload::offload::{Dedup, Svm, XsBench};
use superpage_units::{
    Advice, BasePages, Bytes, Growth, HUGE_PAGE_BYTES, Nanos, ProcessKey, VirtAddr, Vma, VmaKind,
};

const START: VirtAddr = VirtAddr(1 << 35);

fn machine(policy: &str, memory: Bytes, pools: Option<[u64; 2]>) -> (Machine, ProcessKey) {
    let setup = Setup { memory, pools, backing: Backing::Swap, seed: 3 };
    let policy = (list::find(policy).expect("it is known").build)();
    let mut machine = Machine::new(setup, policy);
    let process = machine.spawn();
    machine.map(
        process,
        Vma {
            start: START,
            end: START.offset(memory * 4),
            kind: VmaKind::Anonymous,
            growth: Growth::Fixed,
            advice: Advice::None,
        },
    );
    (machine, process)
}

/// Touches these pages: the work of all faults, and how many there were.
fn touch(
    (machine, process): &mut (Machine, ProcessKey),
    pages: impl Iterator<Item = u64>,
    content: Content,
) -> (Work, u64) {
    let (mut all, mut faults) = (Work::default(), 0);
    for page in pages {
        let address = START.offset(BasePages(page).bytes());
        let served = machine.touch(*process, address, content).expect("there is swap");
        if let Served::Fault { work, .. } = served {
            all += work;
            faults += 1;
        }
    }
    machine.check();
    (all, faults)
}

const MEMORY: Bytes = Bytes::from_mib(16);
/// Half as much again as there is memory.
const PAGES: u64 = 6144;

#[test]
fn what_was_read_back_and_not_written_is_not_written_again() {
    let mut program = machine("linux-4k", MEMORY, None);
    let (first, _) = touch(&mut program, 0..PAGES, Content::Data);
    assert!(first.writes.pages >= BasePages(PAGES - 4096), "{:?}", first.writes);
    // What was in memory is evicted once more, and written; then all is stored.
    touch(&mut program, 0..PAGES, Content::Zeroes);
    let (again, faults) = touch(&mut program, 0..PAGES, Content::Zeroes);
    assert_eq!((again.writes.requests, again.reads.requests), (0, faults));
    assert!(faults > 0);
    touch(&mut program, 0..PAGES, Content::Data);
    let (dirty, _) = touch(&mut program, 0..PAGES, Content::Zeroes);
    assert!(dirty.writes.pages >= BasePages(4000), "{:?}", dirty.writes);
}

#[test]
fn neighbours_are_read_along_in_order_and_not_at_random() {
    let mut program = machine("linux-4k", MEMORY, None);
    touch(&mut program, 0..PAGES, Content::Data);
    touch(&mut program, 0..PAGES, Content::Zeroes);
    let (alone, faults) = touch(&mut program, 0..PAGES, Content::Zeroes);
    assert_eq!(alone.reads.pages, BasePages(faults));
    program.0.set_read_ahead(8);
    let (ahead, fewer) = touch(&mut program, 0..PAGES, Content::Zeroes);
    assert_eq!(ahead.reads.requests, fewer);
    assert!(fewer * 7 < ahead.reads.pages.0 && fewer * 6 < faults, "{fewer} for {faults}");
    // Every fifth page, once others have taken the place of all: the page before it is not there.
    touch(&mut program, PAGES..2 * PAGES, Content::Data);
    let (random, faults) = touch(&mut program, (0..PAGES).step_by(5), Content::Zeroes);
    assert_eq!((random.reads.pages, faults), (BasePages(faults), PAGES.div_ceil(5)));
}

#[test]
fn a_range_promoted_from_storage_is_as_stored_until_it_is_written() {
    let range_pages = HUGE_PAGE_BYTES / BasePages(1).bytes().0;
    for (content, written) in [(Content::Zeroes, 0), (Content::Data, range_pages)] {
        let mut program = machine("xheap", Bytes::from_mib(8), Some([256, 1]));
        // The pool's one huge page goes to the first range, and is evicted for the second.
        touch(&mut program, 0..range_pages, Content::Data);
        touch(&mut program, range_pages..range_pages + 64, Content::Data);
        let (_, second) = background(&mut program);
        assert_eq!(second.writes.pages, BasePages(range_pages), "the first was written");
        // Back again, from storage.
        touch(&mut program, 0..64, Content::Zeroes);
        let (promotions, _) = background(&mut program);
        assert_eq!(promotions, 1);
        touch(&mut program, 0..1, content);
        touch(&mut program, 2 * range_pages..2 * range_pages + 64, Content::Data);
        let (_, work) = background(&mut program);
        assert_eq!(work.writes.pages, BasePages(written), "{content:?}");
    }
}

/// Lets the background work until it rests: promotions, and its work.
fn background((machine, _): &mut (Machine, ProcessKey)) -> (u64, Work) {
    let mut all = Work::default();
    while let Stepped::Worked(Worked { work, .. }) = machine.step() {
        all += work;
    }
    machine.check();
    (all.promotions, all)
}

/// What a program's last phase took with so much of its memory, in seconds, and its report at the end.
fn run(program: &Workload, footprint: Bytes, policy: &str, share: f64) -> (f64, Report) {
    let budget = footprint.scaled(share);
    let huge = budget.scaled(0.98).to_huge_pages();
    let is_xheap = policy == "xheap";
    let pools = is_xheap.then(|| [(budget - huge.bytes()).to_base_pages().0, huge.0]);
    let memory = if is_xheap { budget.scaled(1.05) } else { budget };
    let setup = Setup { memory, pools, backing: Backing::Swap, seed: 5 };
    let policy = (list::find(policy).expect("it is known").build)();
    let mut machine = Machine::new(setup, policy);
    if !is_xheap {
        machine.set_read_ahead(8);
    }
    let hardware = Hardware::native(Profile::named("xheap").expect("it is built in"));
    let mut run = Run::new(machine, hardware);
    let key = run.start(program.clone());
    run.to_end().expect("there is swap");
    run.machine().check();
    let report = run.report(key).expect("it ran");
    let seconds = report.phases.last().map_or(f64::NAN, |time| time.as_secs_f64());
    (seconds, report)
}

fn xsbench() -> XsBench {
    XsBench {
        nuclides: 355,
        gridpoints: 800,
        lookups: 30_000,
        nuclides_a_lookup: 55.7,
        probes: 4.0,
        threads: 16,
        cycles: 30_000.0,
    }
}

fn svm() -> Svm {
    Svm {
        instances: 600_000,
        nonzeros: 11,
        features: 8_000_000,
        skew: 0.8,
        passes: 2,
        threads: 16,
        cycles: 40_000.0,
    }
}

#[test]
fn xheap_walks_less_than_swap_with_huge_pages_and_that_no_more_than_without() {
    for (program, footprint) in
        [(xsbench().workload(), xsbench().footprint()), (svm().workload(), svm().footprint())]
    {
        let of = |policy| run(&program, footprint, policy, 0.75).1;
        let [swap, thp, xheap] = ["linux-4k", "linux-defrag-madvise", "xheap"].map(of);
        let name = &program.name;
        let walks = [&swap, &thp, &xheap].map(|report| report.walk_share().get());
        assert!(walks[2] * 1.5 < walks[1] && walks[1] <= walks[0] * 1.05, "{name}: {walks:?}");
    }
}

#[test]
fn xheap_beats_swap_with_huge_pages_where_accesses_are_at_random() {
    let program = xsbench();
    let of = |policy| run(&program.workload(), program.footprint(), policy, 0.75).0;
    let [thp, xheap] = ["linux-defrag-madvise", "xheap"].map(of);
    assert!(xheap < thp, "{xheap} s against {thp} s");
}

#[test]
fn less_memory_takes_longer_and_with_all_of_it_nobody_waits() {
    let program = Dedup {
        input: Bytes::from_mib(64),
        kept: 0.25,
        table: Bytes::from_mib(8),
        lookups: 2.0,
        accesses: 2.0,
        threads: 8,
        cycles: 50_000.0,
    };
    let of = |share| run(&program.workload(), program.footprint(), "linux-4k", share);
    let [(little, _), (more, waiting), (all, whole)] = [0.5, 0.75, 1.2].map(of);
    assert!(little > more && more > all, "{little} {more} {all}");
    assert!(waiting.fault_wait > Nanos::ZERO && whole.fault_wait == Nanos::ZERO);
}

#[test]
fn threads_together_read_no_faster_than_the_drives() {
    let program = Svm { cycles: 1.0, threads: 32, ..svm() };
    let (seconds, report) = run(&program.workload(), program.footprint(), "xheap", 0.5);
    assert!(report.fault_wait > Nanos::ZERO);
    // Half of the instances at least come from storage in each of two passes.
    let bytes = (program.footprint().0 - program.features * 8) as f64 * 0.5 * 2.0;
    assert!(seconds > bytes / 14e9, "{seconds} s for {bytes} bytes");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let of = || run(&xsbench().workload(), xsbench().footprint(), "xheap", 0.8);
    let [(one, a), (two, b)] = [of(), of()];
    assert_eq!((one, a.fault_time, a.walk_cycles), (two, b.fault_time, b.walk_cycles));
}
