//! Random programs on the machine: no frame is lost or mapped twice, whatever is done, and a page
//! that was written stays written.

use proptest::prelude::*;
use std::collections::BTreeSet;
use superpage_policy::compaction::Compaction;
use superpage_policy::debloat::{PolicyName, ProcessKey, emd};
use superpage_policy::page::{Page, PageSize};
use superpage_policy::region::Region;
use superpage_policy::system::{
    Act, Action, Advice, Area, AreaKind, Batching, Cause, Growth, How, System,
};
use superpage_policy::units::{BASE_PAGE_BYTES, BasePages, Bytes, VirtAddr};
use superpage_sim::machine::work::Work;
use superpage_sim::machine::{Backing, Content, Machine, Setup};

/// Where the test's areas begin: a giant page's border.
const START: u64 = 4 << 30;

fn linux() -> Box<dyn System> {
    use superpage_policy::system::linux::{Linux, Options};
    Box::new(Linux::new(Options::ALWAYS))
}

fn machine(memory: Bytes, backing: Backing, seed: u64) -> Machine {
    Machine::new(Setup { memory, pools: None, backing, seed }, linux())
}

fn with_area(machine: &mut Machine, pages: u64) -> ProcessKey {
    let process = machine.spawn();
    machine.map(
        process,
        Area {
            start: VirtAddr(START),
            end: VirtAddr(START + pages * BASE_PAGE_BYTES),
            kind: AreaKind::Anonymous,
            growth: Growth::Up,
            advice: Advice::None,
        },
    );
    process
}

fn page(index: u64) -> VirtAddr {
    VirtAddr(START + index * BASE_PAGE_BYTES)
}

#[derive(Clone, Debug)]
enum Do {
    Touch(u64, bool),
    Discard(u64, u64),
    Act(u8, u64),
    Debloat(u64),
    Pin,
    Step,
}

fn any_do(pages: u64) -> impl Strategy<Value = Do> {
    prop_oneof![
        8 => (0..pages, any::<bool>()).prop_map(|(page, data)| Do::Touch(page, data)),
        2 => (0..pages, 1u64..1200).prop_map(|(page, count)| Do::Discard(page, count)),
        4 => (0u8..9, 0..pages).prop_map(|(what, page)| Do::Act(what, page)),
        1 => (1u64..2000).prop_map(Do::Debloat),
        1 => Just(Do::Pin),
        2 => Just(Do::Step),
    ]
}

fn act(what: u8, process: ProcessKey, at: VirtAddr) -> Act {
    let region = Region::containing(at);
    let huge = Page::from(region);
    let giant = Page::containing(at, PageSize::Giant);
    match what {
        0 => Act::Promote { process, page: huge, how: How::Copy(Some(Compaction::Sequential)) },
        1 => Act::Promote { process, page: huge, how: How::InPlace },
        2 => {
            let how = How::Exchange(Batching::Whole, Some(Compaction::Smart));
            Act::Promote { process, page: giant, how }
        }
        3 => Act::Zero(PageSize::Huge),
        4 => Act::Compact(PageSize::Huge, Compaction::Smart),
        5 => Act::Unreserve { process, region },
        6 => Act::Evacuate { process, region },
        7 => Act::Evict { process, page: Page::containing(at, PageSize::Base) },
        _ => Act::Evict { process, page: huge },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]
    #[test]
    fn nothing_is_lost_or_mapped_twice(
        steps in prop::collection::vec(any_do(6 * 512), 1..120),
        seed in any::<u64>(),
        swaps in any::<bool>()
    ) {
        let backing = if swaps { Backing::Swap } else { Backing::None };
        let mut machine = machine(Bytes::from_mib(24), backing, seed);
        let process = with_area(&mut machine, 6 * 512);
        let mut written: BTreeSet<u64> = BTreeSet::new();
        let mut work = Work::default();
        for step in steps {
            match step {
                Do::Touch(index, data) => {
                    let content = if data { Content::Data } else { Content::Zeroes };
                    if machine.touch(process, page(index), content).is_ok() && data {
                        written.insert(index);
                    }
                }
                Do::Discard(index, count) => {
                    let count = count.min(6 * 512 - index);
                    machine.discard(process, page(index), page(index + count));
                    written.retain(|page| !(index..index + count).contains(page));
                }
                Do::Act(what, index) => {
                    let action = Action { act: act(what, process, page(index)), cause: Cause::Clock };
                    machine.carry_out(&action, &mut work);
                }
                Do::Debloat(need) => {
                    let mut policy = PolicyName::Emd.build(emd::Options::default());
                    machine.debloat(policy.as_mut(), &[process], BasePages(need), &mut work);
                }
                Do::Pin => machine.prepare(|physical, random| {
                    physical.scatter_unmovable(BasePages(3), random);
                }),
                Do::Step => { machine.step(); }
            }
            machine.check();
            for index in &written {
                prop_assert!(machine.holds_data(process, page(*index)), "page {} lost its data", index);
            }
        }
        machine.exit(process);
        machine.check();
        prop_assert_eq!(machine.physical().owned_by_processes(), BasePages::ZERO);
    }
}
