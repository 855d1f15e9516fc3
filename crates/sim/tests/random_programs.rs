//! Random programs on the machine, some of which fork: no frame is lost or mapped twice, whatever is
//! done, a page that was written stays written, and nobody sees what another process writes.

use proptest::prelude::*;
use std::collections::BTreeSet;
use superpage_policy::compaction::Compaction;
use superpage_policy::debloat::emd::{self, Emd};
use superpage_policy::promotion::{Act, Action, Batching, Cause, How, Policy};
use superpage_sim::machine::work::Work;
use superpage_sim::machine::{Backing, Content, Machine, Setup};
use superpage_units::{
    Advice, BASE_PAGE_BYTES, BasePages, Bytes, Growth, Page, PageSize, PmdRange, ProcessKey,
    VirtAddr, Vma, VmaKind,
};

/// Where the test's VMAs begin: a gigantic page's border.
const START: u64 = 4 << 30;

fn linux() -> Box<dyn Policy> {
    use superpage_policy::promotion::linux::{Linux, Options};
    Box::new(Linux::new(Options::ALWAYS))
}

fn machine(memory: Bytes, backing: Backing, seed: u64) -> Machine {
    Machine::new(Setup { memory, pools: None, backing, seed }, linux())
}

fn with_vma(machine: &mut Machine, pages: u64) -> ProcessKey {
    let process = machine.spawn();
    machine.map(
        process,
        Vma {
            start: VirtAddr(START),
            end: VirtAddr(START + pages * BASE_PAGE_BYTES),
            kind: VmaKind::Anonymous,
            growth: Growth::Up,
            advice: Advice::None,
        },
    );
    process
}

fn page(index: u64) -> VirtAddr {
    VirtAddr(START + index * BASE_PAGE_BYTES)
}

/// Pages of the VMA of each process.
const PAGES: u64 = 6 * 512;
/// Processes at most.
const MOST: usize = 3;

#[derive(Clone, Debug)]
enum Do {
    Touch(u64, bool),
    Discard(u64, u64),
    DiscardLazily(u64, u64),
    Act(u8, u64),
    Debloat(u64),
    Pin,
    Step,
    Fork,
    Exit,
}

/// What one of the processes does.
fn any_do() -> impl Strategy<Value = (usize, Do)> {
    let what = prop_oneof![
        16 => (0..PAGES, any::<bool>()).prop_map(|(page, data)| Do::Touch(page, data)),
        4 => (0..PAGES, 1u64..1200).prop_map(|(page, count)| Do::Discard(page, count)),
        1 => (0..PAGES, 1u64..700).prop_map(|(page, count)| Do::DiscardLazily(page, count)),
        8 => (0u8..9, 0..PAGES).prop_map(|(what, page)| Do::Act(what, page)),
        2 => (1u64..2000).prop_map(Do::Debloat),
        2 => Just(Do::Pin),
        4 => Just(Do::Step),
        3 => Just(Do::Fork),
        1 => Just(Do::Exit),
    ];
    (0..MOST, what)
}

fn act(what: u8, process: ProcessKey, at: VirtAddr) -> Act {
    let range = PmdRange::containing(at);
    let huge = Page::from(range);
    let gigantic = Page::containing(at, PageSize::Gigantic);
    match what {
        0 => Act::Promote { process, page: huge, how: How::Copy(Some(Compaction::Sequential)) },
        1 => Act::Promote { process, page: huge, how: How::InPlace },
        2 => {
            let how = How::Exchange(Batching::Whole, Some(Compaction::Smart));
            Act::Promote { process, page: gigantic, how }
        }
        3 => Act::Zero(PageSize::Huge),
        4 => Act::Compact(PageSize::Huge, Compaction::Smart),
        5 => Act::Unreserve { process, range },
        6 => Act::Evacuate { process, range },
        7 => Act::Evict { process, page: Page::containing(at, PageSize::Base) },
        _ => Act::Evict { process, page: huge },
    }
}

/// A machine, and what each of its processes wrote and has not given back.
struct World {
    machine: Machine,
    written: Vec<(ProcessKey, BTreeSet<u64>)>,
}

impl World {
    fn make(&mut self, which: usize, step: &Do) {
        let running = self.written.len();
        let which = which % running;
        let (process, written) = &mut self.written[which];
        let (process, machine) = (*process, &mut self.machine);
        let mut work = Work::default();
        let part = |index: u64, count: u64| index..(index + count).min(PAGES);
        match *step {
            Do::Touch(index, data) => {
                let content = if data { Content::Data } else { Content::Zeroes };
                if machine.touch(process, page(index), content).is_ok() && data {
                    written.insert(index);
                }
            }
            Do::Discard(index, count) => {
                let part = part(index, count);
                machine.discard(process, page(part.start), page(part.end));
                written.retain(|page| !part.contains(page));
            }
            // What is given back so may not be touched again, so all of it goes in the end.
            Do::DiscardLazily(index, count) => {
                let part = part(index, count);
                machine.discard_lazily(process, page(part.start), page(part.end));
                machine.check();
                machine.discard(process, page(part.start), page(part.end));
                written.retain(|page| !part.contains(page));
            }
            Do::Act(what, index) => {
                let action = Action { act: act(what, process, page(index)), cause: Cause::Clock };
                machine.apply(&action, &mut work);
            }
            Do::Debloat(need) => {
                let mut policy = Emd::new(emd::Options::default());
                machine.debloat(&mut policy, &[process], BasePages(need), &mut work);
            }
            Do::Pin => machine.prepare(|physical, random| {
                physical.scatter_unmovable(BasePages(3), random);
            }),
            Do::Step => {
                machine.step();
                machine.prepare_ahead();
            }
            Do::Fork if running < MOST => {
                let before = machine.used();
                let (child, _) = machine.fork(process).expect("it is there");
                assert!(machine.used() <= before, "a fork takes no frames");
                let written = written.clone();
                self.written.push((child, written));
            }
            Do::Exit if running > 1 => {
                machine.exit(process);
                self.written.remove(which);
            }
            Do::Fork | Do::Exit => {}
        }
    }

    fn check(&self) {
        self.machine.check();
        for (process, written) in &self.written {
            for index in 0..PAGES {
                let holds = self.machine.holds_data(*process, page(index));
                assert_eq!(holds, written.contains(&index), "page {index} of {process:?}");
            }
        }
    }
}

/// A page that was evicted and then given back is in a shared range that is promoted later. Found by the property below.
#[test]
fn what_is_given_back_while_it_is_in_swap_does_not_come_back() {
    let mut machine = machine(Bytes::from_mib(24), Backing::Swap, 0);
    let written = vec![(with_vma(&mut machine, PAGES), BTreeSet::new())];
    let mut world = World { machine, written };
    let steps = [
        (0, Do::Touch(1024, true)),
        (0, Do::Fork),
        (0, Do::Fork),
        (0, Do::Exit),
        (2, Do::Touch(1354, true)),
        (1, Do::Act(8, 1024)),
        (0, Do::Fork),
        (0, Do::Discard(36, 989)),
        (0, Do::Step),
    ];
    for (which, step) in steps {
        world.make(which, &step);
        world.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]
    #[test]
    fn nothing_is_lost_or_mapped_twice(
        steps in prop::collection::vec(any_do(), 1..120),
        seed in any::<u64>(),
        swaps in any::<bool>()
    ) {
        let backing = if swaps { Backing::Swap } else { Backing::None };
        let mut machine = machine(Bytes::from_mib(24), backing, seed);
        let written = vec![(with_vma(&mut machine, PAGES), BTreeSet::new())];
        let mut world = World { machine, written };
        for (which, step) in steps {
            world.make(which, &step);
            world.check();
        }
        let World { mut machine, written } = world;
        for (process, _) in written {
            machine.exit(process);
            machine.check();
        }
        prop_assert_eq!(machine.physical().owned_by_processes(), BasePages::ZERO);
    }
}
