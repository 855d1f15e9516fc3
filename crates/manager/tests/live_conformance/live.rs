//! Real processes on the real kernel as a [`Testbed`]: seen and acted on by the promoter's own
//! [`LiveMachine`]. Where that wants a huge page, the promoter's own [`collapse`] makes it at once, and the
//! policy is taught the outcome.

use crate::ensure;
use crate::program::Program;
use crate::simulated;
use crate::testbed::{Ended, Pages, Place, Seen, Testbed, Worked, place};
use libtest_mimic::Failed;
use std::sync::Arc;
use std::time::Duration;
use superpage_kernel::maps;
use superpage_kernel::pagemap::Found;
use superpage_kernel::probe::{self, Ability, Answer};
use superpage_kernel::process::Process;
use superpage_kernel::sample::{self, Sampler};
use superpage_kernel::status::Uid;
use superpage_manager::cooldown::CoolDown;
use superpage_manager::pass::{Flow, Options, Pass};
use superpage_manager::process::{Extent, ManagedProcess, Survey, Terms};
use superpage_manager::promote::collapse;
use superpage_manager::promote::event::Collapse;
use superpage_manager::promote::machine::LiveMachine;
use superpage_manager::promote::range::Refusal;
use superpage_manager::select::{Identity, Membership};
use superpage_policy::debloat::Debloat;
use superpage_policy::free_memory::FreeMemory;
use superpage_policy::promotion::drive::{self, Stepped};
use superpage_policy::promotion::{Act, Action, Carried, Fault, Outcome, Policy, View};
use superpage_sim::machine::Content;
use superpage_units::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HugePages, Mapping, PageSize,
    PmdRange, ProcessKey, Time, VirtAddr,
};

#[derive(Debug)]
pub(crate) struct Live {
    programs: Vec<Running>,
    policy: Box<dyn Policy>,
    machine: LiveMachine,
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
        Ok(seen) if seen.mapping == Mapping::Base && seen.present == BasePages(1) => None,
        Ok(_) => Some(
            "a first touch gives a huge page here (transparent_hugepage/enabled is 'always'), and \
             this kernel cannot keep them from a single process (Linux 6.18 can)"
                .to_owned(),
        ),
        Err(why) => Some(why.message().unwrap_or("no program could be started").to_owned()),
    }
}

fn first_touch() -> Result<Seen, Failed> {
    let never = superpage_policy::promotion::linux::Options::NEVER;
    let policy = superpage_policy::promotion::linux::Linux::new(never);
    let mut machine = Live::start(&[HugePages(1)], Box::new(policy))?;
    machine.touch(place(0), 0, Content::Data)?;
    machine.seen(place(0))
}

/// A machine with so much memory, all of it free in huge chunks.
fn all_of(memory: Bytes) -> FreeMemory {
    let mut free = FreeMemory { total: memory.to_base_pages(), ..FreeMemory::NONE };
    free.chunks[usize::from(PageSize::Huge.order())] = memory.to_huge_pages().0;
    free
}

/// The number of a base page in its VMA.
fn number(place: Place, page: u16) -> BasePages {
    BasePages(place.range * BASE_PAGES_PER_HUGE_PAGE + u64::from(page))
}

impl Live {
    fn running(&mut self, key: ProcessKey) -> Result<&mut Running, Failed> {
        let index = usize::try_from(key.0)?.checked_sub(1);
        Ok(index.and_then(|index| self.programs.get_mut(index)).ok_or("no such process")?)
    }

    /// The base pages of a range that are present.
    fn present(&mut self, key: ProcessKey, range: PmdRange) -> Result<Vec<u16>, Failed> {
        let Running { process, .. } = self.running(key)?;
        let vma = maps::of(&process.process)?
            .into_iter()
            .filter(|vma| vma.start <= range.start() && range.end() <= vma.end);
        let found = process.pagemap.populated(&vma.collect::<Vec<_>>())?;
        let found = found.into_iter().find(|found| found.range == range);
        Ok(found.map(|found| found.pages.iter().collect()).unwrap_or_default())
    }

    /// Looks at all programs again.
    fn look(&mut self) -> Ended {
        self.programs.iter_mut().for_each(|one| one.is_stale = true);
        self.catch_up()
    }

    /// Looks into the VMAs of those to which something was done.
    fn catch_up(&mut self) -> Ended {
        for one in self.programs.iter_mut().filter(|one| one.is_stale) {
            self.machine.take_in(one.process.key, &one.survey()?);
            one.is_stale = false;
        }
        Ok(())
    }

    /// Makes a range one huge page.
    fn collapse(&mut self, key: ProcessKey, range: PmdRange) -> Result<Outcome, Failed> {
        /// The kernel may hold a page for a moment, for instance to move it.
        const TRIES: u32 = 50;
        const PAUSE: Duration = Duration::from_millis(2);
        let memory = self.machine.snapshot.memory(key, range);
        let Running { process, .. } = self.running(key)?;
        let (first, count, least) = (range, HugePages(1), BasePages(1));
        let request = Collapse { process: key, first, count, memory, least };
        let mut done = collapse::carry_out(process, &request);
        for _ in 1..TRIES {
            match done.became.first() {
                None | Some((_, Ok(_) | Err(Refusal::NotPossible | Refusal::NoHugePage))) => break,
                Some((_, Err(_))) => std::thread::sleep(PAUSE),
            }
            done = collapse::carry_out(process, &request);
        }
        Ok(done.outcome(range))
    }

    /// What became of an action, which is finished if the machine has left that for later.
    fn finish(&mut self, action: &Action, carried: Carried) -> Result<Outcome, Failed> {
        let outcome = match (carried, action.act) {
            (Carried::Now(outcome), _) => outcome,
            (Carried::Later, Act::Promote { process, page, .. }) => {
                let outcome = self.collapse(process, PmdRange::containing(page.start()))?;
                self.policy.learn(action, outcome);
                outcome
            }
            (Carried::Later, act) => return Err(format!("{act:?} was left for later").into()),
        };
        self.look()?;
        Ok(outcome)
    }
}

impl Running {
    /// What is mapped in the program's VMA; the rest of its memory is none of the test's.
    fn survey(&self) -> Result<Survey, Failed> {
        let (start, end) = (self.program.start, self.end);
        let mut survey = self.process.survey(Terms::ASKED_FOR, Extent::ALL)?;
        survey.vmas.retain(|vma| vma.start < end && start < vma.end);
        for vma in &mut survey.vmas {
            (vma.start, vma.end) = (vma.start.max(start), vma.end.min(end));
        }
        survey.found.retain(|found| {
            let (Found::Huge(first, _) | Found::Base(first, _)) = found;
            start <= first.start() && first.start() < end
        });
        Ok(survey)
    }
}

impl Testbed for Live {
    fn start(programs: &[HugePages], policy: Box<dyn Policy>) -> Result<Self, Failed> {
        let start = |(index, size): (usize, &HugePages)| -> Result<Running, Failed> {
            let program = Program::start(*size)?;
            let (pid, command, user) = (program.pid(), "program".to_owned(), Uid(0));
            let identity =
                Identity { pid, command, user, cgroup: Membership::Unknown, nodes: None };
            let process = ManagedProcess::new(Self::key(index), Process::open(pid)?, identity)?;
            let process = Arc::new(process);
            let end = program.start.offset(size.bytes());
            Ok(Running { program, process, end, is_stale: true })
        };
        let programs: Vec<_> = programs.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        let mut machine = LiveMachine::told_of_faults();
        programs.iter().for_each(|one| machine.snapshot.add(one.process.key));
        machine.snapshot.set_free(all_of(simulated::MEMORY));
        Ok(Self { programs, policy, machine, sampler: Sampler::new() })
    }

    fn change_policy(&mut self, policy: Box<dyn Policy>) {
        self.policy = policy;
    }

    fn vma(&self, program: usize) -> VirtAddr {
        self.programs[program].program.start
    }

    fn set_time(&mut self, now: Time) {
        self.machine.snapshot.set_now(now);
    }

    fn view(&mut self) -> Result<&mut dyn View, Failed> {
        self.look()?;
        Ok(&mut self.machine)
    }

    fn data(&mut self, place: Place) -> Result<Pages, Failed> {
        self.catch_up()?;
        let (key, range) = (Self::key(place.program), self.range(place));
        // What is not there is not read: that would map the zero page.
        let pages = self.present(key, range)?;
        let addresses: Vec<_> = pages.iter().map(|page| range.base_page(*page)).collect();
        let process = &self.programs[place.program].process.process;
        let found = self.sampler.contents(process, &addresses, Bytes(BASE_PAGE_BYTES))?;
        ensure!(
            !found.contains(&sample::Content::Unreadable),
            "a page of {place:?} cannot be read"
        );
        let used = pages.iter().zip(found).filter(|(_, found)| *found == sample::Content::Used);
        Ok(used.map(|(page, _)| *page).collect())
    }

    fn touch(&mut self, place: Place, page: u16, content: Content) -> Ended {
        self.catch_up()?;
        let (key, range) = (Self::key(place.program), self.range(place));
        let is_present = self.present(key, range)?.contains(&page);
        let running = &mut self.programs[place.program];
        if is_present {
            return running.program.touch(number(place, page), content);
        }
        let address = range.base_page(page);
        let fault = Fault::at(&self.machine, key, address).ok_or("no VMA there")?;
        running.program.touch(number(place, page), content)?;
        running.is_stale = true;
        let served = drive::serve(self.policy.as_mut(), &mut self.machine, &fault);
        if served.ok_or("no attempt succeeded")?.size == PageSize::Huge {
            self.collapse(key, range)?;
        }
        Ok(())
    }

    fn release(&mut self, place: Place, first: u16, count: BasePages) -> Ended {
        let running = &mut self.programs[place.program];
        running.is_stale = true;
        running.program.release(number(place, first), count)
    }

    fn step(&mut self) -> Result<Worked, Failed> {
        self.look()?;
        match drive::step(self.policy.as_mut(), &mut self.machine) {
            Stepped::Acted(action, carried) => self.finish(&action, carried).map(|_| Worked::Yes),
            Stepped::Scanned(_) => Ok(Worked::Yes),
            Stepped::Rests(_) => Ok(Worked::Rests),
        }
    }

    fn apply(&mut self, action: &Action) -> Result<Outcome, Failed> {
        self.look()?;
        let carried = drive::carry_out(self.policy.as_mut(), &mut self.machine, action);
        self.finish(action, carried)
    }

    /// By the manager's own pass.
    fn debloat(&mut self, policy: &mut dyn Debloat, need: BasePages) -> Result<BasePages, Failed> {
        let processes = self.programs.iter().map(|one| Arc::clone(&one.process)).collect();
        let mut cooling = CoolDown::new();
        let mut pass = Pass::new(processes, need, Options::default(), &cooling, Time::ZERO)?;
        pass.run(policy, &mut cooling, Time::ZERO, &mut |_| Flow::Continue)?;
        self.look()?;
        Ok(pass.account().processes.values().map(|account| account.freed).sum())
    }

    fn check(&mut self) -> Ended {
        self.programs.iter_mut().try_for_each(|one| one.program.check())
    }
}
