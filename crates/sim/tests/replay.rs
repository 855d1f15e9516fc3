//! Recorded programs on the machine: what is replayed is what was recorded, under any policy, and
//! the same seed gives the same numbers.

use proptest::prelude::*;
use superpage_policy::promotion::list;
use superpage_sim::machine::{Backing, Machine, Setup};
use superpage_sim::profile::Profile;
use superpage_sim::run::{Hardware, Run};
use superpage_sim::trace::candidate::Candidate;
use superpage_sim::trace::compare::{self, Ended, Row};
use superpage_sim::trace::replay::{self, Plan};
use superpage_sim::units::Hertz;
use superpage_trace::{Contents, Header, Memory, RangeState, Sample, Trace, Usage};
use superpage_units::{
    Advice, BASE_PAGE_BYTES, BasePages, Bytes, Growth, Mapping, Nanos, PageSize, PmdRange, Share,
    VirtAddr, Vma, VmaKind,
};

const RANGE: u64 = 512 * BASE_PAGE_BYTES;
/// A border of 1 GiB and something: addresses stay what they are.
const START: u64 = (5 << 30) + 3 * RANGE;

fn vma(first: u64, pages: u64) -> Vma {
    Vma {
        start: VirtAddr(START + first * BASE_PAGE_BYTES),
        end: VirtAddr(START + (first + pages) * BASE_PAGE_BYTES),
        kind: VmaKind::Anonymous,
        growth: Growth::Fixed,
        advice: Advice::None,
    }
}

fn range(index: u64) -> PmdRange {
    PmdRange::containing(VirtAddr(START + index * RANGE))
}

fn state(mapping: Mapping, present: u64, data: u64) -> RangeState {
    RangeState { mapping, present: BasePages(present), data: BasePages(data) }
}

fn memory(vmas: &[Vma], ranges: &[(u64, RangeState)]) -> Memory {
    Memory {
        vmas: vmas.iter().map(|vma| (vma.start, *vma)).collect(),
        ranges: ranges.iter().map(|(at, state)| (range(*at), *state)).collect(),
    }
}

/// A sample a second, each with half a second of CPU time.
fn trace(memories: &[Memory]) -> Trace {
    let mut before = Memory::default();
    let sample = |(second, memory): (u64, &Memory)| {
        let changes = memory.changes_since(&before);
        before = memory.clone();
        let cpu = if second == 0 { Nanos::ZERO } else { Nanos(500_000_000) };
        let at = Nanos((second + 7) * 1_000_000_000);
        Sample { at, usage: Usage { cpu, ..Usage::default() }, changes }
    };
    let header = Header {
        command: "test".to_owned(),
        interval: Nanos(1_000_000_000),
        contents: Contents::Exact,
    };
    Trace { header, samples: (0..).zip(memories).map(sample).collect(), is_whole: true }
}

fn plan(memories: &[Memory]) -> Plan {
    let options = replay::Options { accesses_per_second: 1e6, frequency: Hertz(2_300_000_000) };
    replay::plan(&trace(memories), &options)
}

fn options(memory: Bytes) -> compare::Options {
    compare::Options { memory, fragmented: Share::NONE, seed: 3 }
}

fn hardware() -> Hardware {
    Hardware::native(Profile::named("trident").expect("built in"))
}

fn row(plan: &Plan, policy: &str, options: &compare::Options) -> Row {
    let candidate = Candidate::named(policy).expect("it exists");
    compare::replay(plan, &candidate, hardware(), options, |_| {})
}

/// Eight ranges, half of the pages of each touched, then two of them freed.
fn half_touched() -> Vec<Memory> {
    let vmas = [vma(0, 8 * 512)];
    let half: Vec<_> = (0..8).map(|at| (at, state(Mapping::Base, 256, 256))).collect();
    vec![memory(&vmas, &half), memory(&vmas, &half), memory(&vmas, &half[..6])]
}

#[test]
fn huge_pages_cost_memory_and_save_walks() {
    let plan = plan(&half_touched());
    assert_eq!(plan.needs, BasePages(8 * 256));
    let options = options(Bytes::from_gib(1));
    let [small, middle, huge] =
        ["linux-4k", "quicksilver-sync-64", "linux"].map(|policy| row(&plan, policy, &options));
    assert_eq!(small.memory[0].1, BasePages(8 * 256).bytes());
    assert_eq!((small.peak, small.at_end), (small.memory[0].1, BasePages(6 * 256).bytes()));
    assert_eq!(huge.peak, BasePages(8 * 512).bytes());
    assert!(small.peak <= middle.peak && middle.peak <= huge.peak);
    assert_eq!((small.mapped.huge.0, huge.mapped.huge.0), (0, 6));
    assert_eq!((small.faults.count(), huge.faults.count()), (8 * 256, 8));
    assert!(small.faults.max() < huge.faults.quantile(0.5), "zeroing 2 MiB takes its time");
    assert_eq!((small.time, small.ended), (Nanos(2_000_000_000), Ended::Whole));
    assert!(small.busy >= Nanos(1_000_000_000));
    assert_eq!((small.reserved, huge.reserved), (Bytes::ZERO, Bytes::ZERO));
}

#[test]
fn what_was_recorded_on_huge_pages_is_replayed_without_their_bloat() {
    let vmas = [vma(0, 4 * 512)];
    let recorded =
        |data| vec![(0, state(Mapping::Huge, 512, data)), (1, state(Mapping::Huge, 512, 0))];
    let split = vec![(0, state(Mapping::Base, 512, 100)), (1, state(Mapping::Base, 30, 0))];
    let plan =
        plan(&[memory(&vmas, &recorded(100)), memory(&vmas, &recorded(90)), memory(&vmas, &split)]);
    let row = row(&plan, "linux-4k", &options(Bytes::from_gib(1)));
    let pages: Vec<u64> = row.memory.iter().map(|(_, used)| used.to_base_pages().0).collect();
    // Data that becomes less is not reclaimed, and the rest of a split huge page was not touched.
    assert_eq!(pages, [101, 101, 101]);
}

#[test]
fn vmas_that_go_or_shrink_take_their_pages_along() {
    let full = state(Mapping::Base, 512, 512);
    let plan = plan(&[
        memory(&[vma(0, 1024), vma(1024, 512)], &[(0, full), (1, full), (2, full)]),
        memory(&[vma(0, 700)], &[(0, full), (1, state(Mapping::Base, 188, 188))]),
        memory(&[vma(100, 600)], &[(0, state(Mapping::Base, 412, 412))]),
        memory(&[], &[]),
    ]);
    for policy in ["linux-4k", "linux", "freebsd"] {
        let row = row(&plan, policy, &options(Bytes::from_gib(1)));
        let pages: Vec<u64> = row.memory.iter().map(|(_, used)| used.to_base_pages().0).collect();
        assert_eq!((pages[0], pages[3]), (3 * 512, 0), "{policy}");
        assert_eq!(pages[1..3], [700, 412], "{policy}");
    }
}

#[test]
fn every_policy_replays_it_and_the_same_seed_gives_the_same() {
    let plan = plan(&half_touched());
    let fragmented =
        compare::Options { fragmented: Share::percent(50), ..options(Bytes::from_mib(256)) };
    for entry in list::ALL {
        let first = row(&plan, entry.name, &fragmented);
        assert_eq!(first.ended, Ended::Whole, "{}", entry.name);
        assert!(first.peak >= plan.needs.bytes(), "{}: {:?}", entry.name, first.peak);
        assert!(first.walk_share < Share::ALL, "{}", entry.name);
        let again = row(&plan, entry.name, &fragmented);
        assert_eq!(format!("{first:?}"), format!("{again:?}"), "{}", entry.name);
    }
}

#[test]
fn a_machine_that_is_too_small_says_what_it_needs() {
    let plan = plan(&half_touched());
    let small = options(Bytes::from_mib(4));
    let said = compare::check(&plan, &small).expect_err("8 MiB are needed").to_string();
    assert!(said.contains("--memory 10M") && said.contains("4.0 MiB"), "{said}");
    let enough = options(compare::needs(&plan, Share::NONE));
    assert_eq!(compare::check(&plan, &enough), Ok(()));
    assert_eq!(row(&plan, "linux-4k", &enough).ended, Ended::Whole);
    assert!(compare::needs(&plan, Share::ALL) >= enough.memory);
}

prop_compose! {
    fn any_state()(pages in 0u64..=513, data: u64) -> RangeState {
        match pages {
            0 => RangeState::default(),
            513 => state(Mapping::Huge, 512, data % 513),
            pages => state(Mapping::Base, pages, data % (pages + 1)),
        }
    }
}

prop_compose! {
    fn any_memory()(
        vmas in prop::collection::vec((0u64..2000, 1u64..1500), 0..4),
        states in prop::collection::vec(any_state(), 5),
    ) -> Memory {
        let vmas: Vec<Vma> = vmas.iter().map(|(first, pages)| vma(*first, *pages)).collect();
        let states: Vec<_> = (0..).zip(states).filter(|(_, s)| *s != RangeState::default()).collect();
        memory(&vmas, &states)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]
    /// Also what cannot be, such as pages where there is no VMA, does no harm.
    #[test]
    fn no_trace_breaks_the_machine(
        memories in prop::collection::vec(any_memory(), 1..6),
        policy in 0..list::ALL.len(),
    ) {
        let plan = plan(&memories);
        let entry = &list::ALL[policy];
        let pools = [2 * 5 * 512, 2 * 5];
        let setup = Setup {
            memory: Bytes::from_mib(64),
            pools: (entry.name == "xheap").then_some(pools),
            backing: Backing::Swap,
            seed: 1,
        };
        let machine = Machine::new(setup, (entry.build)());
        let mut run = Run::new(machine, hardware());
        let key = run.start(plan.workload.clone());
        for mark in &plan.marks {
            let left = plan.workload.phases.len() - mark.phases;
            prop_assert!(run.until_left(left).is_ok(), "{}: {:?}", entry.name, plan.workload.phases);
            run.machine().check();
            let mapped = run.machine().resident(key);
            prop_assert!(mapped <= PageSize::Huge.base_pages() * 8, "{mapped}");
        }
        if entry.name == compare::REFERENCE {
            let most = plan.needs;
            prop_assert!(run.machine().resident(key) <= most);
        }
    }
}
