//! Real processes on the real kernel as a [`Machine`]: seen through their page tables, changed by
//! hints only, and each change verified.

use crate::ensure;
use crate::machine::{Ended, Machine, Pages, Place, Seen, Worked, place};
use crate::program::Program;
use crate::simulated;
use crate::snapshot::Snapshot;
use libtest_mimic::Failed;
use std::sync::Arc;
use std::time::Duration;
use superpage_kernel::pagemap;
use superpage_kernel::probe::{self, Ability, Answer};
use superpage_kernel::process::Process;
use superpage_kernel::sample::{Content as Found, Sampler};
use superpage_kernel::status::Uid;
use superpage_kernel::{maps, process_madvise};
use superpage_manager::cooldown::CoolDown;
use superpage_manager::pass::{Flow, Options, Pass};
use superpage_manager::process::{ManagedProcess, Memory};
use superpage_manager::promote::collapse;
use superpage_manager::promote::event::Collapse;
use superpage_manager::promote::range::Refusal;
use superpage_manager::select::{Identity, Membership};
use superpage_policy::debloat::Debloat;
use superpage_policy::system::{Act, Action, Attempt, Fault, How, Outcome, Step, System, View};
use superpage_sim::machine::Content;
use superpage_units::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HugePages, Mapping, Nanos, Page,
    PageSize, ProcessKey, Region, VirtAddr,
};

#[derive(Debug)]
pub(crate) struct Live {
    programs: Vec<Running>,
    system: Box<dyn System>,
    snapshot: Snapshot,
    sampler: Sampler,
}

/// A program that runs.
#[derive(Debug)]
struct Running {
    program: Program,
    process: Arc<ManagedProcess>,
    end: VirtAddr,
    /// Whether something was done to it since it was looked at.
    is_stale: bool,
}

/// Why no real machine can be had here, as far as it can be seen from trying.
pub(crate) fn hindrance() -> Option<String> {
    let needed = Ability::ESSENTIAL.into_iter().chain([Ability::Collapse]);
    let missing = needed.map(probe::probe).find(|finding| finding.answer != Answer::Yes);
    if let Some(finding) = missing {
        return Some(finding.why);
    }
    match first_touch() {
        Ok(seen) if seen.mapping == Mapping::Base && seen.population == BasePages(1) => None,
        Ok(_) => Some(
            "a first touch gives a huge page here (transparent_hugepage/enabled is 'always'), and \
             this kernel cannot keep them from a single process (Linux 6.18 can)"
                .to_owned(),
        ),
        Err(why) => Some(why.message().unwrap_or("no program could be started").to_owned()),
    }
}

fn first_touch() -> Result<Seen, Failed> {
    let never = superpage_policy::system::linux::Options::NEVER;
    let system = superpage_policy::system::linux::Linux::new(never);
    let mut machine = Live::start(&[HugePages(1)], Box::new(system))?;
    machine.touch(place(0), 0, Content::Data)?;
    machine.seen(place(0))
}

/// The number of a base page in its area.
fn number(place: Place, page: u16) -> BasePages {
    BasePages(place.region * BASE_PAGES_PER_HUGE_PAGE + u64::from(page))
}

impl Live {
    fn running(&mut self, key: ProcessKey) -> Result<&mut Running, Failed> {
        let index = usize::try_from(key.0)?.checked_sub(1);
        Ok(index.and_then(|index| self.programs.get_mut(index)).ok_or("no such process")?)
    }

    /// The base pages of a region that are present.
    fn present(&mut self, key: ProcessKey, region: Region) -> Result<Vec<u16>, Failed> {
        let Running { process, .. } = self.running(key)?;
        let vma = maps::of(&process.process)?
            .into_iter()
            .filter(|vma| vma.start <= region.start() && region.end() <= vma.end);
        let found = process.pagemap.populated(&vma.collect::<Vec<_>>())?;
        let found = found.into_iter().find(|found| found.region == region);
        Ok(found.map(|found| found.pages.iter().collect()).unwrap_or_default())
    }

    /// Looks at all programs again.
    fn look(&mut self) -> Ended {
        self.programs.iter_mut().for_each(|one| one.is_stale = true);
        self.catch_up()
    }

    /// Looks into the areas of those to which something was done.
    fn catch_up(&mut self) -> Ended {
        for one in self.programs.iter_mut().filter(|one| one.is_stale) {
            self.snapshot.look(&one.process, one.program.start, one.end)?;
            one.is_stale = false;
        }
        Ok(())
    }

    /// The first attempt of a plan that succeeds, after the kernel has mapped a base page.
    fn attempt(&mut self, fault: &Fault, attempt: Attempt) -> Result<bool, Failed> {
        let region = Region::containing(fault.address);
        let place = (fault.process, region);
        Ok(match attempt {
            Attempt::Base => true,
            Attempt::InPlace => fault.region.is_reserved,
            Attempt::Reserve => {
                let is_empty = fault.region.population.is_zero() && !fault.region.is_reserved;
                is_empty && self.snapshot.reserved.insert(place)
            }
            Attempt::Complete if !fault.region.is_reserved => false,
            Attempt::Complete if !fault.area.holds(region.into()) => true,
            Attempt::Complete | Attempt::Map { size: PageSize::Huge, .. } => {
                self.collapse(fault.process, region)? == Outcome::Done
            }
            Attempt::Map { .. } => false,
        })
    }

    /// Makes a region one huge page, and looks whether it is.
    fn collapse(&mut self, key: ProcessKey, region: Region) -> Result<Outcome, Failed> {
        /// The kernel may hold a page for a moment, for instance to move it.
        const TRIES: u32 = 50;
        const PAUSE: Duration = Duration::from_millis(2);
        let Running { process, .. } = self.running(key)?;
        let (first, count, memory) = (region, HugePages(1), Memory::Private);
        let request = Collapse { process: key, first, count, memory, least: BasePages(1) };
        for _ in 0..TRIES {
            match collapse::carry_out(process, &request).became.first() {
                Some((_, Ok(_))) | None => return Ok(Outcome::Done),
                Some((_, Err(Refusal::NotPossible))) => return Ok(Outcome::Stale),
                Some((_, Err(Refusal::NoHugePage))) => return Ok(Outcome::NoFrame),
                Some((_, Err(_))) => std::thread::sleep(PAUSE),
            }
        }
        Ok(Outcome::NoFrame)
    }

    fn carry_out(&mut self, act: Act) -> Result<Outcome, Failed> {
        self.look()?;
        match act {
            Act::Promote { process, page, how } => self.promote(process, page, how),
            Act::Evacuate { process, region } => self.evacuate(process, region),
            Act::Unreserve { process, region } => {
                let was_noted = self.snapshot.reserved.remove(&(process, region));
                Ok(if was_noted { Outcome::Done } else { Outcome::Stale })
            }
            Act::Evict { .. } => Ok(Outcome::Stale),
            Act::Zero(_) | Act::Compact(..) => Ok(Outcome::NoFrame),
        }
    }

    fn promote(&mut self, key: ProcessKey, page: Page, how: How) -> Result<Outcome, Failed> {
        let region = Region::containing(page.start());
        let seen = self.snapshot.region(key, region);
        let is_held = self.snapshot.areas(key).iter().any(|area| area.holds(page));
        let can = page.size() == PageSize::Huge && is_held && seen.mapping == Mapping::Base;
        if !can || how == How::InPlace && !seen.is_reserved {
            return Ok(Outcome::Stale);
        }
        self.collapse(key, region)
    }

    /// A reservation is forgotten; a huge page is split, which frees its zero-filled base pages.
    fn evacuate(&mut self, key: ProcessKey, region: Region) -> Result<Outcome, Failed> {
        if self.snapshot.reserved.remove(&(key, region)) {
            return Ok(Outcome::Done);
        }
        if self.snapshot.region(key, region).mapping != Mapping::Huge {
            return Ok(Outcome::Stale);
        }
        let Running { process, .. } = self.running(key)?;
        process_madvise::split(&process.process, &[region.start()])?;
        let mappings = process.pagemap.mappings(&[region])?;
        Ok(if mappings == [pagemap::Mapping::Huge] { Outcome::Stale } else { Outcome::Done })
    }
}

impl Machine for Live {
    fn start(programs: &[HugePages], system: Box<dyn System>) -> Result<Self, Failed> {
        let start = |(index, size): (usize, &HugePages)| -> Result<Running, Failed> {
            let program = Program::start(*size)?;
            let (pid, command, user) = (program.pid(), "program".to_owned(), Uid(0));
            let identity = Identity { pid, command, user, cgroup: Membership::Known(None) };
            let process = ManagedProcess::new(Self::key(index), Process::open(pid)?, identity)?;
            let process = Arc::new(process);
            let end = program.start.offset(size.bytes());
            Ok(Running { program, process, end, is_stale: true })
        };
        let programs = programs.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        let snapshot = Snapshot::new(simulated::MEMORY);
        Ok(Self { programs, system, snapshot, sampler: Sampler::new() })
    }

    fn govern(&mut self, system: Box<dyn System>) {
        self.system = system;
    }

    fn area(&self, program: usize) -> VirtAddr {
        self.programs[program].program.start
    }

    fn set_time(&mut self, now: Nanos) {
        self.snapshot.set_now(now);
    }

    fn view(&mut self) -> Result<&mut dyn View, Failed> {
        self.look()?;
        Ok(&mut self.snapshot)
    }

    fn data(&mut self, place: Place) -> Result<Pages, Failed> {
        self.catch_up()?;
        let (key, region) = (Self::key(place.program), self.region(place));
        // What is not there is not read: that would map the zero page.
        let pages = self.present(key, region)?;
        let addresses: Vec<_> = pages.iter().map(|page| region.base_page(*page)).collect();
        let process = &self.programs[place.program].process.process;
        let found = self.sampler.contents(process, &addresses, Bytes(BASE_PAGE_BYTES))?;
        ensure!(!found.contains(&Found::Unreadable), "a page of {place:?} cannot be read");
        let used = pages.iter().zip(found).filter(|(_, found)| *found == Found::Used);
        Ok(used.map(|(page, _)| *page).collect())
    }

    fn touch(&mut self, place: Place, page: u16, content: Content) -> Ended {
        self.catch_up()?;
        let (key, region) = (Self::key(place.program), self.region(place));
        let is_present = self.present(key, region)?.contains(&page);
        let running = &mut self.programs[place.program];
        if is_present {
            return running.program.touch(number(place, page), content);
        }
        let fault = self.snapshot.fault(key, region.base_page(page)).ok_or("no area there")?;
        let plan = self.system.fault(&fault, &self.snapshot);
        running.program.touch(number(place, page), content)?;
        running.is_stale = true;
        for attempt in plan.attempts() {
            if self.attempt(&fault, attempt)? {
                return Ok(());
            }
        }
        Err("no attempt succeeded".into())
    }

    fn release(&mut self, place: Place, first: u16, count: BasePages) -> Ended {
        let running = &mut self.programs[place.program];
        running.is_stale = true;
        running.program.release(number(place, first), count)
    }

    fn step(&mut self) -> Result<Worked, Failed> {
        self.look()?;
        match self.system.background(&mut self.snapshot) {
            Step::Act(action) => self.apply(&action).map(|_| Worked::Yes),
            Step::Scanned(_) => Ok(Worked::Yes),
            Step::Rest(_) => Ok(Worked::Rests),
        }
    }

    fn apply(&mut self, action: &Action) -> Result<Outcome, Failed> {
        let outcome = self.carry_out(action.act)?;
        self.look()?;
        self.system.learn(action, outcome);
        Ok(outcome)
    }

    /// By the manager's own pass.
    fn debloat(&mut self, policy: &mut dyn Debloat, need: BasePages) -> Result<BasePages, Failed> {
        let processes = self.programs.iter().map(|one| Arc::clone(&one.process)).collect();
        let mut cooling = CoolDown::new();
        let mut pass = Pass::new(processes, need, Options::default(), &cooling, Nanos::ZERO)?;
        pass.run(policy, &mut cooling, Nanos::ZERO, &mut |_| Flow::Continue)?;
        self.look()?;
        Ok(pass.account().processes.values().map(|account| account.freed).sum())
    }

    fn check(&mut self) -> Ended {
        self.programs.iter_mut().try_for_each(|one| one.program.check())
    }
}
