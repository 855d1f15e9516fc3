//! What holds for every configuration in the list, whatever a program does: the model's checks
//! after each step of random programs, that the background comes to rest, and that each does what
//! its table of the five events says.

use super::life::{Allocation, Deallocation, Preparation};
use super::list::{ALL, Entry};
use super::model::{HUGE, Model, START, Served, address, range, seconds, vma};
use super::*;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use proptest::prelude::*;
use superpage_units::{
    Advice, BASE_PAGE_BYTES, Bytes, GIGANTIC_PAGE_BYTES, Growth, Mapping, VmaKind,
};

/// One step of a random program: which, and two numbers that choose where and how much.
type Op = (u8, u16, u16);

/// The VMAs of the program's processes: with room for a gigantic page, growing, of a file, without
/// huge pages, next to each other, odd in their borders.
fn vmas() -> Vec<Vma> {
    let at = |range: u64, page: u64| address(range, page);
    let vma = |start, end, kind, growth, advice| Vma { start, end, kind, growth, advice };
    let (anonymous, none) = (VmaKind::Anonymous, Advice::None);
    alloc::vec![
        vma(at(0, 0), at(514, 7), anonymous, Growth::Fixed, Advice::Huge),
        vma(at(516, 9), at(518, 3), anonymous, Growth::Up, none),
        vma(at(520, 100), at(522, 0), anonymous, Growth::Fixed, none),
        vma(at(522, 0), at(524, 0), VmaKind::File, Growth::Fixed, none),
        vma(at(524, 0), at(525, 0), anonymous, Growth::Fixed, Advice::NoHuge),
        vma(at(525, 0), at(526, 0), VmaKind::Stack, Growth::Fixed, none),
    ]
}

/// A touch somewhere: near the start of a VMA, or near its end.
fn place(vmas: &[Vma], a: u16, b: u16) -> VirtAddr {
    let vma = vmas[usize::from(a) % vmas.len()];
    let pages = vma.end.since(vma.start).0 / BASE_PAGE_BYTES;
    let page = u64::from(b) % pages.min(1200);
    let page = if a % 16 < 8 { page } else { pages - 1 - page };
    vma.start.offset(Bytes(page * BASE_PAGE_BYTES))
}

fn run(model: &mut Model, policy: &mut dyn Policy, (op, a, b): Op) {
    let Some(process) = model.processes().get(usize::from(b) % 2).copied() else {
        model.spawn(&vmas());
        return;
    };
    let vmas = model.vmas(process).to_vec();
    let somewhere = place(&vmas, a, b);
    match op {
        0 => drop(model.touch(policy, process, somewhere)),
        1..=4 => {
            let count = [2, 63, 64, 256, 460, HUGE][usize::from(a / 32) % 6];
            let vma = vmas[usize::from(a) % vmas.len()];
            for page in 0..count {
                let at = somewhere.offset(Bytes(page * BASE_PAGE_BYTES));
                if at < vma.end {
                    model.touch(policy, process, at);
                }
            }
        }
        5 => model.grow(process, 1, address(518, u64::from(b) % 1500)),
        6 => model.now += seconds(u64::from(b) % 40),
        7 => drop(model.work(policy, 20_000)),
        8 => {
            let size = [PageSize::Base, PageSize::Huge][usize::from(a) % 2];
            drive::relieve(policy, model, Shortage { size, pages: 1 });
        }
        9 => model.fragment(),
        10 if a % 2 == 0 => model.hide(),
        10 => model.show(),
        11 if a % 4 == 0 => model.exit(process),
        11 => model.split(process, PmdRange::containing(somewhere), u64::from(b) % HUGE),
        12 => model.set_coverage(process, PmdRange::containing(somewhere), u64::from(b) % 513),
        _ => model.can_compact = a % 2 == 0,
    }
}

/// A machine that suits the configuration: xHeap needs pools.
fn machine(entry: &Entry) -> Model {
    if entry.name == "xheap" { Model::with_pools(700, 6) } else { Model::new(2, 20, 1000) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Safety, then liveness: when the program stops, the background comes to rest each time it is
    /// asked, and after a while it has nothing more to change.
    #[test]
    fn random_programs(program in prop::collection::vec((0u8..14, any::<u16>(), any::<u16>()), 0..40)) {
        for entry in ALL {
            let mut model = machine(entry);
            let mut policy = (entry.build)();
            model.spawn(&vmas());
            model.spawn(&vmas());
            for op in &program {
                run(&mut model, &mut *policy, *op);
                model.check();
            }
            model.work_and_wait(&mut *policy, 100);
            let late = model.work_and_wait(&mut *policy, 20);
            model.check();
            let changed = late.iter().find(|(_, outcome)| *outcome == Outcome::Done);
            prop_assert_eq!(changed, None, "{} does not come to an end", entry.name);
        }
    }
}

/// A process with a VMA of two gigantic pages, on a machine with plenty of everything.
fn plenty(entry: &Entry) -> (Model, ProcessKey, Box<dyn Policy>) {
    let pools = entry.name == "xheap";
    let mut model = if pools { Model::with_pools(2000, 8) } else { Model::new(8, 64, 4000) };
    let process = model.spawn(&[Vma { advice: Advice::Huge, ..vma(1024) }]);
    (model, process, (entry.build)())
}

fn mapping(model: &Model, process: ProcessKey) -> Mapping {
    model.range(process, range(0)).mapping
}

/// What the first touch must lead to: the mapping, and whether the range is reserved.
fn first_touch(life: &Life) -> (Mapping, bool) {
    match life.allocation {
        Allocation::FirstTouch { largest: PageSize::Gigantic, .. } => (Mapping::Gigantic, false),
        Allocation::FirstTouch { .. } | Allocation::Pool(_) => (Mapping::Huge, false),
        Allocation::Reserved | Allocation::ReservedSpeculatively => match life.preparation {
            Preparation::IncrementalThenSynchronous(BasePages(1)) => (Mapping::Huge, false),
            _ => (Mapping::Base, true),
        },
        // No range is chosen in the list.
        Allocation::Never | Allocation::Asynchronous(_) | Allocation::Chosen => {
            (Mapping::Base, false)
        }
    }
}

#[test]
fn the_first_touch_is_as_the_table_says() {
    for entry in ALL {
        let (mut model, process, mut policy) = plenty(entry);
        model.touch(&mut *policy, process, START);
        let seen = model.range(process, range(0));
        assert_eq!((seen.mapping, seen.is_reserved), first_touch(&policy.life()), "{}", entry.name);
    }
}

/// Only who reserves speculatively reserves beyond the end of a growing heap.
#[test]
fn speculation_is_as_the_table_says() {
    for entry in ALL {
        let (mut model, _, mut policy) = plenty(entry);
        let heap = Vma { end: address(0, 5), growth: Growth::Up, ..vma(1) };
        let process = model.spawn(&[heap]);
        model.touch(&mut *policy, process, START);
        let seen = model.range(process, range(0));
        assert_eq!(seen.mapping, Mapping::Base, "{}", entry.name);
        let is_speculative = policy.life().allocation == Allocation::ReservedSpeculatively;
        assert_eq!(seen.is_reserved, is_speculative, "{}", entry.name);
    }
}

/// Touches one base page after the other; after how many the range is mapped by a superpage, if
/// the background rests so often in between.
fn touches_until_huge(entry: &Entry, rests: usize) -> Option<u64> {
    let (mut model, process, mut policy) = plenty(entry);
    (1..=HUGE).find(|touches| {
        model.touch(&mut *policy, process, address(0, touches - 1));
        model.work_and_wait(&mut *policy, rests);
        mapping(&model, process) != Mapping::Base
    })
}

#[test]
fn preparation_in_place_ends_where_the_table_says() {
    for entry in ALL {
        let in_faults = touches_until_huge(entry, 0);
        let (expected, expected_later) = match (entry.build)().life().preparation {
            Preparation::Incremental => (Some(HUGE), Some(HUGE)),
            Preparation::IncrementalThenSynchronous(t) => (Some(t.0), Some(t.0)),
            Preparation::IncrementalThenAsynchronous(t) => (None, Some(t.0)),
            _ => continue,
        };
        assert_eq!(in_faults, expected, "{}", entry.name);
        assert_eq!(touches_until_huge(entry, 3), expected_later, "{}", entry.name);
    }
}

/// Populates `pages` base pages while no superpage can be had, then lets the background work with
/// plenty of them.
fn later(entry: &Entry, pages: u64) -> (Mapping, Vec<(Action, Outcome)>) {
    let (mut model, process, mut policy) = plenty(entry);
    model.hide();
    model.can_compact = false;
    model.fill(&mut *policy, process, 0, pages);
    model.show();
    model.can_compact = true;
    let done = model.work_and_wait(&mut *policy, 20);
    model.check();
    (mapping(&model, process), done)
}

#[test]
fn background_promotion_begins_where_the_table_says() {
    for entry in ALL {
        let life = (entry.build)().life();
        let (from, size) = match life.allocation {
            Allocation::FirstTouch { largest: PageSize::Gigantic, later } => {
                (later, Mapping::Gigantic)
            }
            Allocation::FirstTouch { later, .. } => (later, Mapping::Huge),
            Allocation::Asynchronous(from) | Allocation::Pool(from) => (Some(from), Mapping::Huge),
            _ => (None, Mapping::Huge),
        };
        let Some(from) = from else {
            assert_eq!(later(entry, HUGE).0, Mapping::Base, "{}", entry.name);
            continue;
        };
        assert_eq!(later(entry, from.0).0, size, "{} from {from}", entry.name);
        if from > BasePages(1) {
            assert_eq!(later(entry, from.0 - 1).0, Mapping::Base, "{} below {from}", entry.name);
        }
    }
}

/// How a promotion prepares a superpage, and who zeroes ahead of time.
#[test]
fn promotion_prepares_as_the_table_says() {
    for entry in ALL {
        let life = (entry.build)().life();
        let (_, done) = later(entry, HUGE - 1);
        let zeroes = done.iter().any(|(action, _)| matches!(action.act, Act::Zero(_)));
        let is_ahead = matches!(life.preparation, Preparation::AheadOfTime | Preparation::Exchange);
        assert_eq!(zeroes, is_ahead, "{}", entry.name);
        for (action, _) in done {
            let Act::Promote { how, .. } = action.act else { continue };
            let is_right = match life.preparation {
                Preparation::AtOnce | Preparation::AheadOfTime => matches!(how, How::Copy(_)),
                Preparation::Exchange => matches!(how, How::Exchange(..)),
                Preparation::Read => how == How::Read,
                _ => how == How::InPlace,
            };
            assert!(is_right, "{}: {how:?} for {}", entry.name, life.preparation);
        }
    }
}

/// What becomes of a partly used range when huge frames run short and nobody comes back to it, and
/// what is given up first under pressure.
#[test]
fn deallocation_is_as_the_table_says() {
    for entry in ALL {
        let (mut model, process, mut policy) = plenty(entry);
        model.fill(&mut *policy, process, 0, 2);
        model.hide();
        model.can_compact = false;
        let background = model.work_and_wait(&mut *policy, 20);
        let evacuates =
            background.iter().any(|(action, _)| matches!(action.act, Act::Evacuate { .. }));
        let life = policy.life();
        assert_eq!(evacuates, life.deallocation == Deallocation::WhenIdle, "{}", entry.name);

        let (mut model, process, mut policy) = plenty(entry);
        model.fill(&mut *policy, process, 0, 2);
        let seen = model.range(process, range(0));
        let shortage = Shortage { size: PageSize::Huge, pages: 1 };
        let act = policy.pressure(shortage, &mut model).map(|action| action.act);
        let expected = match life.deallocation {
            Deallocation::OnlyWhenUnmapped => None,
            Deallocation::Deferred => Some(Act::Unreserve { process, range: range(0) }),
            _ if seen.is_reserved => Some(Act::Unreserve { process, range: range(0) }),
            _ => model.next_page(process, START).map(|page| Act::Evict { process, page }),
        };
        assert_eq!(act, expected, "{}", entry.name);
    }
}

/// Whoever never maps a superpage has nothing to say in the table, and the other way round.
#[test]
fn who_never_maps_superpages_says_never() {
    for entry in ALL {
        let life = (entry.build)().life();
        let says_never = life.mapping.to_string() == "never";
        let never = [0, 3].map(|rests| touches_until_huge(entry, rests));
        let is_chosen = life.allocation == Allocation::Chosen;
        assert_eq!(says_never || is_chosen, never == [None, None], "{}", entry.name);
    }
}

#[test]
fn the_model_serves_by_what_is_there() {
    let mut model = Model::new(0, 1, 10);
    let process = model.spawn(&[vma(2)]);
    let mut policy = list::find("linux-nokhugepaged").map(|entry| (entry.build)()).unwrap();
    let map = model.touch(&mut *policy, process, START);
    assert!(matches!(map, Served::By(Attempt::Map { size: PageSize::Huge, .. })));
    assert_eq!(model.touch(&mut *policy, process, address(0, 9)), Served::Hit);
    for page in 0..10 {
        assert_eq!(model.touch(&mut *policy, process, address(1, page)), Served::By(Attempt::Base));
    }
    // The huge page was touched before all others, and its bit is taken in the first round.
    let by_pressure = model.touch(&mut *policy, process, address(1, 10));
    assert_eq!(by_pressure, Served::By(Attempt::Base));
    assert_eq!(mapping(&model, process), Mapping::Empty);
    assert_eq!(START.0, GIGANTIC_PAGE_BYTES);
    model.check();
}
