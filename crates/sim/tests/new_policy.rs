//! The worked example of CONTRIBUTING.md: a system of one's own, on the simulated machine.

use superpage_policy::system::capabilities::Capabilities;
use superpage_policy::system::life::{
    Allocation, Deallocation, Life, Mapped, Preparation, Unmapping,
};
use superpage_policy::system::{
    Action, Attempt, Fault, FaultCause, FaultPlan, Shortage, Step, System, View, Zeroed,
};
use superpage_sim::machine::{Backing, Machine, Setup};
use superpage_sim::profile::Profile;
use superpage_sim::run::{Hardware, Run};
use superpage_sim::workload::{AreaShape, Order, Part, Phase, Populate, Workload};
use superpage_units::{Bytes, PageSize};

/// Huge pages at the first touch while at least half of memory is free, base pages after that.
#[derive(Debug)]
struct Generous;

impl System for Generous {
    fn fault(&mut self, fault: &Fault, view: &dyn View) -> FaultPlan {
        if view.supply().free_share() < 0.5 {
            return FaultPlan::base(FaultCause::BasePages);
        }
        if !fault.is_mappable(PageSize::Huge) {
            return FaultPlan::base(FaultCause::NoRoom);
        }
        let size = PageSize::Huge;
        let huge = Attempt::Map { size, compaction: None, zeroed: Zeroed::Preferred };
        FaultPlan::try_first(huge, FaultCause::FirstTouch(size))
    }

    fn background(&mut self, _: &mut dyn View) -> Step {
        Step::Rest(None)
    }

    fn pressure(&mut self, _: Shortage, _: &mut dyn View) -> Option<Action> {
        None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::SCANS
    }

    fn life(&self) -> Life {
        Life {
            allocation: Allocation::FirstTouch { largest: PageSize::Huge, later: None },
            preparation: Preparation::AtOnce,
            mapping: Mapped::AtOnce,
            unmapping: Unmapping::WhenFreed,
            deallocation: Deallocation::WhenUnmapped,
        }
    }
}

#[test]
fn generous_stops_giving_huge_pages_when_half_of_memory_is_used() {
    let memory = Bytes::from_mib(512);
    let setup = Setup { memory, pools: None, backing: Backing::None, seed: 1 };
    let machine = Machine::new(setup, Box::new(Generous));
    let hardware = Hardware::native(Profile::named("emd").expect("it is built in"));
    let mut run = Run::new(machine, hardware);
    let program = run.start(Workload {
        name: "array".to_owned(),
        threads: 1,
        phases: vec![
            Phase::Map(AreaShape::fixed(Bytes::from_mib(400))),
            Phase::Populate(Populate {
                part: Part::whole(0),
                order: Order::Sequential,
                density: 1.0,
                step: Bytes::ZERO,
                cycles_per_page: 100.0,
                threads: 1,
            }),
        ],
    });
    run.to_end().expect("there is room");
    run.machine().check();
    let footprint = run.machine().process(program).expect("it runs").footprint();
    assert_eq!(footprint.huge.bytes(), Bytes::from_mib(258), "half of memory, and the last one");
    assert_eq!(footprint.total().bytes(), Bytes::from_mib(400));
}
