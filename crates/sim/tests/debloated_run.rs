//! A de-bloater plugged into a run: used memory stays between the watermarks, contents stay, the
//! work takes time, and what was split is not rebuilt as bloated.

use superpage_policy::debloat;
use superpage_policy::promotion::{View, list};
use superpage_policy::watermark::Watermarks;
use superpage_sim::machine::{Backing, Machine, Setup};
use superpage_sim::profile::Profile;
use superpage_sim::run::{Debloater, Hardware, Run};
use superpage_sim::trace::candidate::Candidate;
use superpage_sim::workload::{
    Access, Counting, Order, Part, Pattern, Phase, Populate, Stream, Target, VmaShape, Workload,
};
use superpage_units::{BasePages, Bytes, HugePages, Nanos, PageSize, Share, Time};

const MEMORY: Bytes = Bytes::from_mib(512);
/// Of it, what is touched: an eighth of the pages of each huge page.
const TOUCHED: Bytes = Bytes::from_mib(480);
const DENSITY: f64 = 0.125;

fn populate(density: f64, cycles_per_page: f64) -> Phase {
    let (part, order) = (Part::whole(0), Order::Sequential);
    Phase::Populate(Populate {
        part,
        order,
        density,
        step: Bytes::ZERO,
        cycles_per_page,
        threads: 1,
    })
}

/// Touches so much of its memory thinly, then accesses what it touched so many times.
fn sparse(memory: Bytes, count: f64) -> Workload {
    let stream = Stream {
        part: Part::whole(0),
        pattern: Pattern::Uniform,
        target: Target::Data,
        weight: 1.0,
    };
    let access = Access {
        streams: vec![stream],
        count,
        cycles: 100.0,
        exposed: 1.0,
        counting: Counting::Sampled,
    };
    Workload {
        name: "sparse".to_owned(),
        threads: 1,
        phases: vec![
            Phase::Map(VmaShape::fixed(memory)),
            populate(DENSITY, 200_000.0),
            Phase::Access(access),
        ],
    }
}

fn marks(high: u8, low: u8) -> Option<Watermarks> {
    Watermarks::new(Share::percent(high), Share::percent(low)).ok()
}

/// A machine with this policy, on which nothing runs yet.
fn started(policy: &str, marks: Option<Watermarks>) -> Run {
    let candidate = Candidate::named(policy).expect("it exists");
    let setup = Setup { memory: MEMORY, pools: None, backing: Backing::None, seed: 5 };
    let machine = Machine::new(setup, (candidate.policy.build)());
    let mut run =
        Run::new(machine, Hardware::native(Profile::named("emd").expect("it is built in")));
    if let Some(plugged) = candidate.debloater {
        run = run.with_debloater(Debloater::new(&plugged.entry, marks.unwrap_or(plugged.marks)));
    }
    run
}

/// A program that would need nearly all of memory, and runs for minutes.
fn large(policy: &str, marks: Option<Watermarks>) -> Run {
    let mut run = started(policy, marks);
    run.start(sparse(TOUCHED, 4e9));
    run
}

fn used(run: &Run) -> f64 {
    run.machine().used().share_of(MEMORY.to_base_pages()).get()
}

/// All that can be told apart about a run, as text.
fn summary(run: &Run) -> String {
    let reports = run.machine().processes().keys().iter().map(|key| {
        let footprint = run.machine().process(*key).map(|process| process.footprint());
        format!("{:?} {footprint:?}", run.report(*key))
    });
    let reports: Vec<String> = reports.collect();
    format!("{reports:?} {:?} {:?} {:?}", run.background(), run.debloated(), run.machine().counts())
}

#[test]
fn memory_that_bloats_stays_under_the_watermark() {
    let mut plain = large("linux", None);
    plain.until_left(1).expect("there is room");
    assert!(used(&plain) > 0.92, "{} is used without a de-bloater", used(&plain));
    for (policy, high) in [("linux+emd", 0.80), ("linux+emd-exact", 0.80), ("linux+hawkeye", 0.85)]
    {
        let mut run = large(policy, None);
        run.until_left(1).expect("there is room");
        let key = run.machine().processes().keys()[0];
        run.machine().check();
        // What a program can touch in a slice before the de-bloater has its turn, and a pass.
        assert!(used(&run) <= high + 0.05, "{policy}: {} is used", used(&run));
        assert!(
            run.report(key).expect("it runs").peak.share_of(MEMORY.to_base_pages()).get()
                < high + 0.05
        );
        let by = run.debloated().expect("it is plugged in");
        assert!(by.passes >= 1 && by.split > HugePages(0) && by.busy > Nanos::ZERO, "{by:?}");
        // Each split huge page gave all back that was not touched: some seven eighths.
        let share = by.freed.share_of(by.split.base_pages());
        assert!((share.get() - (1.0 - DENSITY)).abs() < 0.02, "{policy}: {share} freed of each");
    }
}

#[test]
fn contents_and_time_are_kept() {
    let mut run = large("linux+emd", None);
    let mut plain = large("linux", None);
    for run in [&mut run, &mut plain] {
        run.until_left(1).expect("there is room");
    }
    let key = run.machine().processes().keys()[0];
    let data = |run: &Run| run.machine().resident(key) - run.machine().bloat(key);
    assert_eq!(data(&run), data(&plain), "a page that held data holds it still");
    let faults = |run: &Run| run.report(key).expect("it runs").faults.count();
    let before = (data(&run), faults(&run));
    for run in [&mut run, &mut plain] {
        run.to_end().expect("there is room");
        run.machine().check();
    }
    // Accesses that miss what was touched fault now; each brings a page, and none is lost.
    let more = BasePages(faults(&run) - before.1);
    assert_eq!(data(&run), before.0 + more, "data was lost");
    // Base pages make the accesses slower: nothing is free.
    let time = |run: &Run| run.report(key).expect("it runs").phases[2];
    assert!(time(&run) > time(&plain), "{:?} {:?}", time(&run), time(&plain));
}

#[test]
fn what_was_broken_is_not_rebuilt_as_bloated() {
    // khugepaged would promote 8 huge pages in ten seconds; the program runs for minutes.
    let mut run = large("linux+emd", None);
    run.to_end().expect("there is room");
    assert!(
        run.machine().now() > Time::ZERO + Nanos::from_secs_f64(100.0),
        "{:?}",
        run.machine().now()
    );
    assert!(run.debloated().expect("it is plugged in").split > HugePages(8));
    assert_eq!(run.machine().counts().promotions[PageSize::Huge.index()], 0);
    // Once all of a range is touched, there is nothing to bring back.
    let mut run = started("linux+emd", marks(30, 20));
    let phases = vec![
        Phase::Map(VmaShape::fixed(Bytes::from_mib(256))),
        populate(DENSITY, 200_000.0),
        Phase::Sleep(Nanos::from_secs_f64(5.0)),
        populate(1.0, 0.0),
        Phase::Sleep(Nanos::from_secs_f64(1000.0)),
    ];
    let key = run.start(Workload { name: "filled".to_owned(), threads: 1, phases });
    run.until_left(2).expect("there is room");
    let huge = |run: &Run| run.machine().process(key).expect("it runs").footprint().huge;
    assert!(huge(&run) < HugePages(100), "{} are left", huge(&run));
    run.to_end().expect("there is room");
    assert_eq!(huge(&run), HugePages(128), "khugepaged rebuilds what is full");
    assert_eq!(run.machine().bloat(key), BasePages::ZERO);
}

#[test]
fn a_de_bloater_that_has_nothing_to_do_changes_nothing() {
    let mut run = large("linux+emd", marks(99, 98));
    let mut plain = large("linux", None);
    for run in [&mut run, &mut plain] {
        run.to_end().expect("there is room");
    }
    let by = run.debloated().expect("it is plugged in");
    assert_eq!((by.passes, by.split, by.busy), (0, HugePages(0), Nanos::ZERO));
    let told = |run: &Run| summary(run).replace(&format!("{:?}", run.debloated()), "");
    assert_eq!(told(&run), told(&plain));
}

/// Under every policy that it goes with: nothing is lost, the same seed gives the same run, and it
/// comes to an end.
#[test]
fn it_goes_with_every_policy() {
    for policy in list::ALL {
        for debloater in debloat::list::ALL {
            let name = format!("{}+{}", policy.name, debloater.name);
            if Candidate::named(&name).is_err() {
                continue;
            }
            let ended = || {
                let mut run = started(&name, marks(10, 5));
                run.start(sparse(Bytes::from_mib(64), 1e7));
                run.start(sparse(Bytes::from_mib(48), 1e7));
                run.to_end().unwrap_or_else(|error| panic!("{name}: {error}"));
                run.idle(Nanos::from_secs_f64(60.0));
                run.machine().check();
                summary(&run)
            };
            let first = ended();
            if debloater.name == "emd" {
                assert_eq!(first, ended(), "{name}");
            }
        }
    }
}
