//! A policy of one's own is one file ([`hundred`]) and one line: it runs on the simulated machine, a
//! configuration can name it, the scheduler asks it, and the lists that help and documents are made of
//! show it. The promoter's live tests run it on real processes.

mod hundred;

use std::path::Path;
use superpage_kernel::pagemap::{Found, Survey as Seen};
use superpage_manager::budget::CpuBudget;
use superpage_manager::config;
use superpage_manager::process::{Memory, Survey, Vma};
use superpage_manager::promote::event::{Activity, Command, Event, Observation, Observed};
use superpage_manager::promote::policy::{Promotion, names};
use superpage_manager::promote::scheduler::Scheduler;
use superpage_manager::promote::{Promoted, Rules, Time};
use superpage_policy::supply::Supply;
use superpage_policy::system::list::{Registry, five_events_of};
use superpage_policy::system::{View as _, life::Allocation};
use superpage_sim::machine::{Backing, Content, Machine, Setup, Stepped};
use superpage_units::{
    Advice, Area, AreaKind, BasePages, Bytes, Growth, HugePages, Mapping, ProcessKey, Region,
    VirtAddr,
};

/// A huge page's border.
const START: VirtAddr = VirtAddr(1 << 40);

fn ranges() -> Vec<Region> {
    Region::within(START, START.offset(HugePages(2).bytes())).collect()
}

#[test]
fn it_runs_on_the_simulated_machine() {
    let system = hundred::registry().find("hundred").expect("its line").build();
    let memory = Bytes::from_mib(64);
    let mut machine =
        Machine::new(Setup { memory, pools: None, backing: Backing::None, seed: 1 }, system);
    let process = machine.spawn();
    let end = START.offset(HugePages(2).bytes());
    let (kind, growth, advice) = (AreaKind::Anonymous, Growth::Fixed, Advice::None);
    machine.map(process, Area { start: START, end, kind, growth, advice });
    for (region, pages) in ranges().into_iter().zip([100, 99]) {
        for page in 0..pages {
            machine.touch(process, region.base_page(page), Content::Data).expect("memory");
        }
    }
    while matches!(machine.step(), Stepped::Worked(_)) {}
    let mapping = ranges().into_iter().map(|region| machine.region(process, region).mapping);
    assert_eq!(mapping.collect::<Vec<_>>(), [Mapping::Huge, Mapping::Base]);
    machine.check();
}

#[test]
fn a_configuration_names_it_and_messages_list_it() {
    let text = "[promotion]\npolicy = \"hundred\"\n";
    let path = Path::new("test.toml");
    let config = config::parse_with(text, path, &hundred::registry()).expect("it is known");
    assert_eq!(config.promotion.policy.to_string(), "hundred");
    let unknown = config::parse(text, path).expect_err("it is nobody else's");
    assert!(unknown.to_string().contains("test.toml:2"), "{unknown}");
    assert!(names(&hundred::registry()).contains("hundred"));
    assert!(!names(&Registry::published()).contains("hundred"));
    let rows = five_events_of(&hundred::registry());
    let allocation = Allocation::Asynchronous(BasePages(100)).to_string();
    assert!(rows.iter().any(|row| row[0] == "hundred" && row[1] == allocation));
}

#[test]
fn the_scheduler_asks_it() {
    let policy = Promotion::named("hundred", &hundred::registry()).expect("its line");
    let rules = Rules {
        policies: vec![policy],
        budget: CpuBudget::UNLIMITED,
        at_once: 1,
        worth: BasePages(31),
        max_fragmentation: 1.0,
    };
    let mut scheduler = Scheduler::new(rules, Promoted::new(), Time::ZERO);
    let key = ProcessKey(1);
    let observed = Observed { key, policy, activity: Activity::default(), domain: None };
    let seen = Observation { processes: vec![observed], domains: Vec::new(), free: Supply::NONE };
    let commands = scheduler.step(Event::Tick, Time::ZERO);
    let [Command::Observe(id)] = commands[..] else { panic!("{commands:?}") };
    let commands = scheduler.step(Event::Observed(id, seen, Default::default()), Time::ZERO);
    let [Command::Survey(id, _)] = commands[..] else { panic!("{commands:?}") };
    let end = START.offset(HugePages(2).bytes());
    let found = ranges().into_iter().zip([100, 99]).map(|(region, pages)| {
        Found::Base(region, Seen { population: BasePages(pages), ..Seen::default() })
    });
    let survey = Survey {
        vmas: vec![Vma { start: START, end, memory: Memory::Private, is_heap: false }],
        found: found.collect(),
    };
    let event = Event::Surveyed(id, Some(survey), Default::default());
    let commands = scheduler.step(event, Time::ZERO);
    scheduler.check();
    let [Command::Collapse(_, request)] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!((request.first, request.count), (ranges()[0], HugePages(1)));
}
