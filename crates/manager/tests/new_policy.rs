//! A policy of one's own is one file and one line, whether it makes superpages ([`own::hundred`]) or takes
//! bloat back ([`own::half`]): it runs on the simulated machine, a configuration can name it, the scheduler
//! asks it, and the lists that help and documents are made of show it. The promoter's live tests run both
//! on real processes.

mod own;

use std::path::Path;
use superpage_kernel::pagemap::{Found, Survey as Seen};
use superpage_kernel::status::Uid;
use superpage_manager::budget::CpuBudget;
use superpage_manager::config;
use superpage_manager::left_behind::Owner;
use superpage_manager::process::{Memory, PromotableVma, Survey};
use superpage_manager::promote::event::{Activity, Command, Event, Observation, Observed};
use superpage_manager::promote::gate::Domains;
use superpage_manager::promote::policy::{Promotion, names};
use superpage_manager::promote::scheduler::Scheduler;
use superpage_manager::promote::{Promoted, Rules};
use superpage_policy::debloat;
use superpage_policy::free_memory::FreeMemory;
use superpage_policy::promotion::list::{self, Registry};
use superpage_policy::promotion::{View as _, life::Allocation};
use superpage_sim::machine::{Backing, Content, Machine, Setup, Stepped};
use superpage_sim::profile::Profile;
use superpage_sim::run::{Debloater, Hardware, Run};
use superpage_sim::trace::candidate::Candidate;
use superpage_sim::workload::{Order, Part, Phase, Populate, VmaShape, Workload};
use superpage_units::{
    Advice, BasePages, Bytes, Growth, HugePages, Mapping, PmdRange, ProcessKey, Share, Time,
    VirtAddr, Vma, VmaKind,
};

/// A huge page's border.
const START: VirtAddr = VirtAddr(1 << 40);

fn ranges() -> Vec<PmdRange> {
    PmdRange::within(START, START.offset(HugePages(2).bytes())).collect()
}

#[test]
fn it_runs_on_the_simulated_machine() {
    let policy = own::policies().promotion.find("hundred").expect("its line").build();
    let memory = Bytes::from_mib(64);
    let mut machine =
        Machine::new(Setup { memory, pools: None, backing: Backing::None, seed: 1 }, policy);
    let process = machine.spawn();
    let end = START.offset(HugePages(2).bytes());
    let (kind, growth, advice) = (VmaKind::Anonymous, Growth::Fixed, Advice::None);
    machine.map(process, Vma { start: START, end, kind, growth, advice });
    for (range, pages) in ranges().into_iter().zip([100, 99]) {
        for page in 0..pages {
            machine.touch(process, range.base_page(page), Content::Data).expect("memory");
        }
    }
    while matches!(machine.step(), Stepped::Worked(_)) {}
    let mapping = ranges().into_iter().map(|range| machine.range(process, range).mapping);
    assert_eq!(mapping.collect::<Vec<_>>(), [Mapping::Huge, Mapping::Base]);
    machine.check();
}

#[test]
fn a_configuration_names_it_and_messages_list_it() {
    let text = "[promotion]\npolicy = \"hundred\"\n";
    let path = Path::new("test.toml");
    let policies = own::policies();
    let config = config::parse_with(text, path, &policies).expect("it is known");
    assert_eq!(config.promotion.policy.to_string(), "hundred");
    let unknown = config::parse(text, path).expect_err("it is nobody else's");
    assert!(unknown.to_string().contains("test.toml:2"), "{unknown}");
    assert!(names(&policies.promotion).contains("hundred"));
    assert!(!names(&Registry::published()).contains("hundred"));
    let rows = list::five_events(&policies.promotion);
    let allocation = Allocation::Asynchronous(BasePages(100)).to_string();
    assert!(rows.iter().any(|row| row[0] == "hundred" && row[1] == allocation));
}

/// A program that touches an eighth of each huge page would have five sixths of memory.
#[test]
fn a_de_bloater_is_plugged_into_a_simulated_run() {
    let candidate = Candidate::named_with("linux+half", &own::policies()).expect("its line");
    assert_eq!(candidate.name(), "linux+half");
    let plugged = candidate.debloater.expect("half");
    let setup = Setup { memory: Bytes::from_mib(96), pools: None, backing: Backing::None, seed: 1 };
    let machine = Machine::new(setup, (candidate.policy.build)());
    let hardware = Hardware::native(Profile::named("emd").expect("it is built in"));
    let mut run =
        Run::new(machine, hardware).with_debloater(Debloater::new(&plugged.entry, plugged.marks));
    let populate = Populate {
        part: Part::whole(0),
        order: Order::Sequential,
        density: 0.125,
        step: Bytes::ZERO,
        cycles_per_page: 200_000.0,
        threads: 1,
    };
    let vma = VmaShape::fixed(Bytes::from_mib(80));
    let phases = vec![Phase::Map(vma), Phase::Populate(populate)];
    run.start(Workload { name: "thin".to_owned(), threads: 1, phases });
    run.to_end().expect("there is room");
    run.machine().check();
    let (used, total) = (run.machine().used(), setup.memory.to_base_pages());
    assert!(used.share_of(total) <= Share::percent(55), "{used} of {total} is used");
    let by = run.debloated().expect("it is plugged in");
    assert!(
        by.split > HugePages(0) && by.freed.share_of(by.split.base_pages()) >= Share::percent(50),
        "{by:?}"
    );
}

#[test]
fn a_configuration_names_a_de_bloater_and_messages_list_it() {
    let path = Path::new("test.toml");
    let parsed = |name| {
        let text = format!("[debloat]\nname = \"{name}\"\n");
        config::parse_with(&text, path, &own::policies())
    };
    assert_eq!(parsed("half").expect("it is known").policy, own::half::ENTRY);
    let said = parsed("quarter").expect_err("there is none").to_string();
    assert!(said.starts_with("test.toml:2") && said.contains("half, emd, emd-exact"), "{said}");
    let said = Candidate::named_with("linux+quarter", &own::policies()).expect_err("there is none");
    assert!(said.to_string().contains("half, emd, emd-exact"), "{said}");
    let rows = debloat::list::five_events(&own::policies().debloat);
    assert!(rows.iter().any(|row| row[0] == "+half" && row[4].contains("more than 50 %")));
}

#[test]
fn the_scheduler_asks_it() {
    let policy = Promotion::named("hundred", &own::policies().promotion).expect("its line");
    let rules = Rules {
        policies: vec![policy],
        budget: CpuBudget::UNLIMITED,
        at_once: 1,
        worth: BasePages(31),
        max_fragmentation: Share::ALL,
    };
    let mut scheduler = Scheduler::new(rules, Promoted::new(), Time::ZERO);
    let key = ProcessKey(1);
    let observed = Observed {
        key,
        owner: Owner { user: Uid(0), cgroup: None },
        policy,
        activity: Activity::default(),
        domains: Domains::default(),
    };
    let seen =
        Observation { processes: vec![observed], domains: Vec::new(), free: FreeMemory::NONE };
    let commands = scheduler.step(Event::Tick, Time::ZERO);
    let [Command::Observe(id)] = commands[..] else { panic!("{commands:?}") };
    let commands = scheduler.step(Event::Observed(id, seen, Default::default()), Time::ZERO);
    let [Command::Survey(id, ..)] = commands[..] else { panic!("{commands:?}") };
    let end = START.offset(HugePages(2).bytes());
    let found = ranges().into_iter().zip([100, 99]).map(|(range, pages)| {
        Found::Base(range, Seen { present: BasePages(pages), ..Seen::default() })
    });
    let survey = Survey {
        vmas: vec![PromotableVma { start: START, end, memory: Memory::Private, is_heap: false }],
        found: found.collect(),
        part: None,
        is_late: false,
    };
    let event = Event::Surveyed(id, Some(survey), Default::default());
    let commands = scheduler.step(event, Time::ZERO);
    scheduler.check();
    let [Command::Collapse(_, request)] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!((request.first, request.count), (ranges()[0], HugePages(1)));
}
