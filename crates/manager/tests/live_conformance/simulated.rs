//! The simulated machine as a [`Testbed`].

use crate::testbed::{Ended, PAGES, Pages, Place, Testbed, Worked};
use libtest_mimic::Failed;
use superpage_policy::debloat::Debloat;
use superpage_policy::promotion::{Action, Outcome, Policy, View};
use superpage_sim::machine::work::Work;
use superpage_sim::machine::{Accesses, Backing, Content, Machine, Setup, Stepped};
use superpage_units::{
    Advice, BasePages, Bytes, Growth, HugePages, ProcessKey, Time, VirtAddr, Vma, VmaKind,
};

/// Where every program's VMA begins; any address would do.
const VMA: VirtAddr = VirtAddr(1 << 40);

/// Plenty.
pub(crate) const MEMORY: Bytes = Bytes::from_gib(1);

#[derive(Debug)]
pub(crate) struct Simulated {
    machine: Machine,
    programs: Vec<ProcessKey>,
}

impl Testbed for Simulated {
    fn start(programs: &[HugePages], policy: Box<dyn Policy>) -> Result<Self, Failed> {
        let setup = Setup { memory: MEMORY, pools: None, backing: Backing::None, seed: 1 };
        let mut machine = Machine::new(setup, policy);
        machine.set_accesses(Accesses::Unseen);
        let mut start = |size: &HugePages| {
            let process = machine.spawn();
            let end = VMA.offset(size.bytes());
            let (kind, growth, advice) = (VmaKind::Anonymous, Growth::Fixed, Advice::None);
            machine.map(process, Vma { start: VMA, end, kind, growth, advice });
            process
        };
        let programs = programs.iter().map(&mut start).collect();
        Ok(Self { machine, programs })
    }

    fn change_policy(&mut self, policy: Box<dyn Policy>) {
        self.machine.change_policy(policy);
    }

    fn vma(&self, _: usize) -> VirtAddr {
        VMA
    }

    fn set_time(&mut self, now: Time) {
        self.machine.at(now);
    }

    fn view(&mut self) -> Result<&mut dyn View, Failed> {
        Ok(&mut self.machine)
    }

    fn data(&mut self, place: Place) -> Result<Pages, Failed> {
        let (key, range) = (Self::key(place.program), self.range(place));
        let holds = |page: &u16| self.machine.holds_data(key, range.base_page(*page));
        Ok((0..PAGES).filter(holds).collect())
    }

    fn touch(&mut self, place: Place, page: u16, content: Content) -> Ended {
        let address = self.range(place).base_page(page);
        self.machine.touch(Self::key(place.program), address, content)?;
        Ok(())
    }

    fn release(&mut self, place: Place, first: u16, count: BasePages) -> Ended {
        let start = self.range(place).base_page(first);
        self.machine.discard(Self::key(place.program), start, start.offset(count.bytes()));
        Ok(())
    }

    fn step(&mut self) -> Result<Worked, Failed> {
        Ok(match self.machine.step() {
            Stepped::Worked(_) => Worked::Yes,
            Stepped::Resting(_) => Worked::Rests,
        })
    }

    fn apply(&mut self, action: &Action) -> Result<Outcome, Failed> {
        Ok(self.machine.apply(action, &mut Work::default()))
    }

    fn debloat(&mut self, policy: &mut dyn Debloat, need: BasePages) -> Result<BasePages, Failed> {
        Ok(self.machine.debloat(policy, &self.programs, need, &mut Work::default()))
    }

    fn check(&mut self) -> Ended {
        self.machine.check();
        Ok(())
    }
}
