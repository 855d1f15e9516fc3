//! Promoting processes once, now, because somebody asked for it: no policy, no scheduler.

use super::collapse;
use super::event::{Collapse, LONGEST_RUN};
use super::gate::{Limits, Past, Room};
use super::range::Refusal;
use crate::exclude::Why;
use crate::find::{self, Refusal as Unfit};
use crate::free_memory;
use crate::pass::Mode;
use crate::process::{
    Extent, ManagedProcess, Memory, PromotableVma, Survey, Terms, is_about_one_process,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use superpage_kernel::pagemap::{Found, Survey as Seen};
use superpage_kernel::usage::CpuTime;
use superpage_kernel::{Error, Result};
use superpage_policy::watermark::Watermarks;
use superpage_units::{
    BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HugePages, Nanos, Pid, PmdRange, Share,
};

/// A page that the kernel is using for a moment is tried again so often, so long after.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(10);

/// How to go about it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to act, or only say what would be promoted.
    pub mode: Mode,
    /// PMD ranges with fewer base pages present are left alone; the rest of one is filled with
    /// zeroes.
    pub least: BasePages,
    /// Nothing that adds memory is promoted while the machine uses more than this share of its
    /// memory.
    pub max_used: Share,
}

/// What was done to one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Its number, for showing.
    pub pid: Pid,
    /// Its command.
    pub command: String,
    /// Ranges that were huge already.
    pub were_huge: HugePages,
    /// Ranges that became huge (in a dry run: that would have).
    pub promoted: HugePages,
    /// Base pages filled with zeroes for it.
    pub filled: BasePages,
    /// Ranges with too little in them.
    pub too_empty: HugePages,
    /// Ranges that were refused, by reason.
    pub refused: BTreeMap<Refusal, u64>,
    /// Resident memory that was not looked into, by the reason.
    pub left_alone: BTreeMap<Why, Bytes>,
    /// The process exited meanwhile.
    pub exited: bool,
    /// It forbade itself huge pages.
    pub refuses_huge_pages: bool,
    /// CPU time it took us.
    pub cpu: Nanos,
    /// Time it took.
    pub wall: Duration,
}

/// A process that is to be promoted.
#[derive(Debug)]
pub struct Candidate {
    process: Arc<ManagedProcess>,
    survey: Survey,
    account: Account,
}

/// Takes hold of process `pid`, and sees what is mapped in it.
///
/// # Errors
/// Why it cannot be promoted.
pub fn hold(pid: Pid) -> std::result::Result<Candidate, Unfit> {
    let process = find::hold(pid)?;
    let candidate = |process: Arc<ManagedProcess>| {
        let refuses_huge_pages = process.refuses_huge_pages()?;
        let survey = process.survey(Terms::ASKED_FOR, Extent::ALL)?;
        let command = process.command().to_owned();
        let left_alone = process.left_alone(Terms::ASKED_FOR)?;
        let account =
            Account { pid, command, refuses_huge_pages, left_alone, ..Account::default() };
        Ok(Candidate { process, survey, account })
    };
    candidate(process).map_err(|error| Unfit::about(pid, error))
}

/// Is told how many PMD ranges were gone through, for a progress bar.
pub type Progress<'a> = &'a mut dyn FnMut(u64);

impl Candidate {
    /// PMD ranges in which anything is mapped; for a progress bar.
    #[must_use]
    pub fn ranges(&self) -> u64 {
        let count = |found: &Found| match found {
            Found::Huge(_, count) => count.0,
            Found::Base(..) => 1,
        };
        self.survey.found.iter().map(count).sum()
    }

    /// Promotes what can be promoted.
    ///
    /// # Errors
    /// Whatever is not about this one process.
    pub fn promote(mut self, options: Options, progress: Progress<'_>) -> Result<Account> {
        let (began, cpu) = (Instant::now(), CpuTime::of_thread());
        if !self.account.refuses_huge_pages {
            match self.walk(options, progress) {
                Err(error) if is_about_one_process(&error) => {
                    self.account.exited = matches!(error, Error::Gone { .. });
                }
                other => other?,
            }
        }
        self.account.wall = began.elapsed();
        self.account.cpu = CpuTime::of_thread().since(cpu);
        Ok(self.account)
    }

    fn walk(&mut self, options: Options, progress: Progress<'_>) -> Result<()> {
        let found = std::mem::take(&mut self.survey.found);
        let mut run: Vec<(PmdRange, Memory)> = Vec::new();
        let (mut limits, mut room) = self.now(options)?;
        for found in found {
            let (range, seen) = match found {
                Found::Huge(first, count) => {
                    progress(count.0);
                    self.account.were_huge += self.inside(first, count);
                    continue;
                }
                Found::Base(range, seen) => (range, seen),
            };
            progress(1);
            let memory = self.holds(range).map(|vma| vma.memory);
            let follows = run
                .last()
                .is_some_and(|(last, of)| last.end() == range.start() && Some(*of) == memory);
            if !run.is_empty() && (!follows || run.len() as u64 >= LONGEST_RUN.0) {
                self.carry_out(std::mem::take(&mut run), options.mode)?;
                (limits, room) = self.now(options)?;
            }
            if let Some(memory) = memory
                && self.is_wanted(&seen, options.least, &limits, room)
            {
                run.push((range, memory));
            }
        }
        self.carry_out(run, options.mode)
    }

    /// The VMA that holds all of a PMD range.
    fn holds(&self, range: PmdRange) -> Option<PromotableVma> {
        let vmas = &self.survey.vmas;
        let vma = vmas.get(vmas.partition_point(|vma| vma.end <= range.start()))?;
        (vma.start <= range.start() && range.end() <= vma.end).then_some(*vma)
    }

    /// How many of these huge pages lie in VMAs where huge pages can be made.
    fn inside(&self, first: PmdRange, count: HugePages) -> HugePages {
        let all = PmdRange::within(first.start(), first.start().offset(count.bytes()));
        HugePages(all.filter(|range| self.holds(*range).is_some()).count() as u64)
    }

    fn is_wanted(&mut self, seen: &Seen, least: BasePages, limits: &Limits, room: Room) -> bool {
        if seen.present.is_zero() {
            return false;
        }
        if seen.present < least {
            self.account.too_empty += HugePages(1);
            return false;
        }
        // Asked for by hand: reclaimed bloat may come back.
        let seen = Seen { zero_pages: BasePages::ZERO, ..*seen };
        match limits.check(&seen, Past::New, room) {
            Ok(()) => true,
            Err(why) => {
                *self.account.refused.entry(why).or_default() += 1;
                false
            }
        }
    }

    fn carry_out(&mut self, run: Vec<(PmdRange, Memory)>, mode: Mode) -> Result<()> {
        let Some((first, memory)) = run.first().copied() else { return Ok(()) };
        self.process.process.check_alive()?;
        if mode == Mode::DryRun {
            for (range, _) in run {
                let seen = self.process.pagemap.survey(range)?;
                if !seen.is_huge && !seen.present.is_zero() {
                    self.account.promoted += HugePages(1);
                    self.account.filled +=
                        BasePages(BASE_PAGES_PER_HUGE_PAGE).saturating_sub(seen.present);
                }
            }
            return Ok(());
        }
        let (process, count) = (self.process.key, HugePages(run.len() as u64));
        for (_, became) in
            self.with_patience(&Collapse { process, first, count, memory, least: BasePages(1) })
        {
            match became {
                Ok(filled) => {
                    self.account.promoted += HugePages(1);
                    self.account.filled += filled;
                }
                Err(Refusal::Gone) => return Err(Error::Gone { pid: self.account.pid }),
                Err(why) => *self.account.refused.entry(why).or_default() += 1,
            }
        }
        Ok(())
    }

    /// Carries a request out; ranges that the kernel was using are tried again a few times. Then the
    /// process is left alone for as long as it had to wait.
    fn with_patience(
        &self,
        request: &Collapse,
    ) -> Vec<(PmdRange, std::result::Result<BasePages, Refusal>)> {
        let mut done = collapse::carry_out(&self.process, request);
        let mut held = done.held;
        for _ in 0..TRIES {
            let is_busy = |became: &(PmdRange, std::result::Result<BasePages, Refusal>)| {
                became.1 == Err(Refusal::Busy)
            };
            if !done.became.iter().any(is_busy) {
                break;
            }
            std::thread::sleep(PAUSE);
            for (range, became) in done.became.iter_mut().filter(|one| is_busy(one)) {
                let one = Collapse { first: *range, count: HugePages(1), ..request.clone() };
                let mut again = collapse::carry_out(&self.process, &one);
                held += again.held;
                if let Some((_, again)) = again.became.pop() {
                    *became = again;
                }
            }
        }
        std::thread::sleep(Duration::from_nanos(held.0));
        done.became
    }

    /// What holds now, and what memory there is for it, the machine's and the cgroup's.
    fn now(&mut self, options: Options) -> Result<(Limits, Room)> {
        let proc = Path::new("/proc");
        let is_full = free_memory::usage_of_machine(proc)?.share() >= options.max_used;
        let machine = if is_full { Room::None } else { Room::Plenty };
        let cgroup = self.process.cgroup().and_then(free_memory::fullest_cgroup);
        let cgroup = cgroup.map(|usage| Room::below(Watermarks::default(), usage));
        let (max_fragmentation, fragmentation) = (Share::ALL, Share::NONE);
        let mut limits = Limits { worth: BasePages(1), max_fragmentation, fragmentation };
        limits.see(&free_memory::read(proc)?);
        Ok((limits, machine.min(cgroup.unwrap_or(Room::Plenty))))
    }
}
