//! Promoting processes once, now, because somebody asked for it: no policy, no faults.

use super::crew::{Done, Job, Reason, carry_out};
use super::group::LONGEST_RUN;
use super::limits::{Limits, Past, Refusal, Room};
use super::tenant::Tenant;
use super::view::LiveView;
use crate::pass::Mode;
use crate::select::{self, Refusal as Unfit};
use crate::supply;
use crate::target::is_about_one_process;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use superpage_kernel::cgroup::Hierarchy;
use superpage_kernel::usage::CpuTime;
use superpage_kernel::{Error, Result};
use superpage_policy::system::View as _;
use superpage_policy::watermark::Watermarks;
use superpage_units::{
    BASE_PAGES_PER_HUGE_PAGE, BasePages, HugePages, Mapping, Nanos, Region, VirtAddr,
};

/// How to go about it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to act, or only say what would be promoted.
    pub mode: Mode,
    /// Regions with fewer base pages populated are left alone; the rest of a region is filled with
    /// zeroes.
    pub least: BasePages,
    /// Nothing that adds memory is promoted while the machine uses more than this share of its
    /// memory, 0 to 1.
    pub max_used: f64,
}

/// What was done to one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Its number, for showing.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// Regions that were huge already.
    pub were_huge: HugePages,
    /// Regions that became huge (in a dry run: that would have).
    pub promoted: HugePages,
    /// Base pages filled with zeroes for it.
    pub filled: BasePages,
    /// Regions with too little in them.
    pub too_empty: HugePages,
    /// Regions that were refused, by reason.
    pub refused: BTreeMap<Refusal, u64>,
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
    view: LiveView,
    account: Account,
    key: superpage_units::ProcessKey,
}

/// Takes hold of process `pid`.
///
/// # Errors
/// Why it cannot be promoted.
pub fn hold(pid: u32) -> std::result::Result<Candidate, Unfit> {
    let hierarchy = Hierarchy::find(Path::new("/")).ok().flatten();
    let tenant = select::hold_as(pid, hierarchy.as_ref(), |found| {
        Tenant::new(found.key, found.process, found.command, found.cgroup)
    })?;
    let (key, command) = (tenant.key(), tenant.held.command.clone());
    let refuses_huge_pages = tenant.refuses_huge_pages();
    let mut view = LiveView::new();
    view.add(tenant);
    let account = Account { pid, command, refuses_huge_pages, ..Account::default() };
    Ok(Candidate { view, account, key })
}

/// What a run of neighbours came to, for a progress bar: regions looked at.
pub type Progress<'a> = &'a mut dyn FnMut(u64);

impl Candidate {
    /// Regions in which anything is mapped, at most; for a progress bar.
    #[must_use]
    pub fn regions(&self) -> u64 {
        let areas = self.view.areas(self.key).iter();
        areas.map(|area| Region::within(area.start, area.end).count() as u64).sum()
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
        let mut at = VirtAddr::default();
        let mut run: Vec<Region> = Vec::new();
        let (mut limits, mut room) = now(options)?;
        while let Some(region) = self.view.next_mapped(self.key, at) {
            progress(1);
            at = region.end();
            let follows = run.last().is_some_and(|last| last.end() == region.start());
            if !run.is_empty() && (!follows || run.len() as u64 >= LONGEST_RUN.0) {
                self.carry_out(std::mem::take(&mut run), options.mode)?;
                (limits, room) = now(options)?;
            }
            if self.is_wanted(region, options.least, &limits, room) {
                run.push(region);
            }
        }
        self.carry_out(run, options.mode)
    }

    fn is_wanted(&mut self, region: Region, least: BasePages, limits: &Limits, room: Room) -> bool {
        let Some(tenant) = self.view.tenant_mut(self.key) else { return false };
        if !tenant.areas().iter().any(|area| area.holds(region.into())) {
            return false;
        }
        let Ok(seen) = tenant.survey(region) else { return false };
        let room = tenant.room(Watermarks::default()).min(room);
        if seen.is_huge {
            self.account.were_huge += HugePages(1);
            return false;
        }
        if seen.population < least {
            self.account.too_empty += HugePages(1);
            return false;
        }
        // Asked for by hand: what was taken back may come back.
        let seen = superpage_kernel::pagemap::Survey { zero_pages: BasePages::ZERO, ..seen };
        match limits.check(&seen, Past::New, room) {
            Ok(()) => {
                tenant.promise();
                true
            }
            Err(why) => {
                *self.account.refused.entry(why).or_default() += 1;
                false
            }
        }
    }

    fn carry_out(&mut self, run: Vec<Region>, mode: Mode) -> Result<()> {
        let Some(first) = run.first().copied() else { return Ok(()) };
        let Some(tenant) = self.view.tenant(self.key) else { return Ok(()) };
        tenant.held.process.check_alive()?;
        if mode == Mode::DryRun {
            for region in run {
                let seen = self.view.region(self.key, region);
                if seen.mapping == Mapping::Base {
                    self.account.promoted += HugePages(1);
                    self.account.filled +=
                        BasePages(BASE_PAGES_PER_HUGE_PAGE).saturating_sub(seen.population);
                }
            }
            return Ok(());
        }
        let job = Job {
            key: self.key,
            held: Arc::clone(&tenant.held),
            first,
            count: HugePages(run.len() as u64),
            memory: tenant.memory_of(first),
            reason: Reason { kind: "asked", words: "somebody asked for it".to_owned() },
            since: None,
            action: None,
            tries: 0,
        };
        for (region, became) in self.with_patience(job) {
            if let Some(tenant) = self.view.tenant_mut(self.key) {
                tenant.settle();
            }
            match became {
                Ok(filled) => {
                    self.account.promoted += HugePages(1);
                    self.account.filled += filled;
                    if let Some(tenant) = self.view.tenant_mut(self.key) {
                        tenant.is_huge(region, filled, super::now());
                    }
                }
                Err(Refusal::Gone) => {
                    let pid = self.account.pid;
                    return Err(Error::Gone { pid });
                }
                Err(why) => *self.account.refused.entry(why).or_default() += 1,
            }
        }
        Ok(())
    }

    /// Carries out a job; what the kernel was using just then is tried again a few times. Then the
    /// process has as much time for itself ([`Turns`](super::pace::Turns)); not four times as much as
    /// in the background, because somebody waits.
    fn with_patience(&self, job: Job) -> Vec<(Region, std::result::Result<BasePages, Refusal>)> {
        const TRIES: u32 = 3;
        const PAUSE: Duration = Duration::from_millis(10);
        let Done { mut became, mut held_up, .. } = carry_out(job.clone());
        for _ in 0..TRIES {
            if !became.iter().any(|(_, became)| *became == Err(Refusal::Busy)) {
                break;
            }
            std::thread::sleep(PAUSE);
            for (region, became) in became.iter_mut().filter(|(_, b)| *b == Err(Refusal::Busy)) {
                let one = Job { first: *region, count: HugePages(1), ..job.clone() };
                let mut done = carry_out(one);
                held_up += done.held_up;
                if let Some((_, again)) = done.became.pop() {
                    *became = again;
                }
            }
        }
        std::thread::sleep(held_up);
        became
    }
}

/// What holds now, and what memory the machine has for it.
fn now(options: Options) -> Result<(Limits, Room)> {
    let proc = Path::new("/proc");
    let room = if supply::usage_of_machine(proc)?.share() >= options.max_used {
        Room::None
    } else {
        Room::Plenty
    };
    let mut limits = Limits { worth: BasePages(1), max_fragmentation: 1.0, fragmentation: 0.0 };
    limits.see(&supply::read(proc)?);
    Ok((limits, room))
}
