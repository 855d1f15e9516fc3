//! One pass: a policy asked again and again, its decisions carried out, verified and counted.

use crate::account::{Account, ProcessAccount};
use crate::budget::CpuBudget;
use crate::came_back::Sample;
use crate::cooldown::CoolDown;
use crate::process::{ManagedProcess, is_about_one_process};
use crate::split::{Became, LeftAlone, Look, Splitter};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use superpage_kernel::usage::CpuTime;
use superpage_kernel::{Error, Result};
use superpage_policy::bloat::{BloatMap, Knowledge};
use superpage_policy::debloat::{
    BloatMaps, Debloat, Decision, Depth, DoneCause, LookCause, SplitCause,
};
use superpage_units::{
    BASE_PAGES_PER_HUGE_PAGE, BasePages, HugePages, Nanos, PmdRange, ProcessKey, Share, Time,
};
use tracing::debug;

/// Whether to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Split and free.
    Act,
    /// Look and decide only; a range counts as split as the bloat map estimates it.
    DryRun,
}

/// How a pass goes about it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to act.
    pub mode: Mode,
    /// What of one core it may use.
    pub budget: CpuBudget,
    /// Makes samples differ from pass to pass.
    pub seed: u64,
    /// The base pages that splitting a huge page has to free to be worth it.
    pub worth: BasePages,
    /// How long a range that a split left alone, or that was not worth it, is not tried again; one that is
    /// pinned, in use or locked for longer each time.
    pub cool_down: Nanos,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Act,
            budget: CpuBudget::UNLIMITED,
            seed: 0,
            worth: BasePages::ZERO,
            cool_down: Nanos::from_secs_f64(600.0),
        }
    }
}

/// Huge pages that are read whole or split before the CPU budget is looked at: some milliseconds'
/// work. With a hundred at a time a Redis waited for its processor for tens of milliseconds.
const STEP: usize = 8;

/// Huge pages that are looked at, at this depth, before the CPU budget is: as much reading as of [`STEP`].
fn step(depth: Depth) -> usize {
    match depth {
        Depth::Exact => STEP,
        Depth::PreSample(size) | Depth::Sample(size) | Depth::Filter(size) => {
            let times = BASE_PAGES_PER_HUGE_PAGE / u64::from(size.pages());
            usize::try_from(times).map_or(STEP, |times| STEP * times)
        }
    }
}

/// Something that happened in a pass.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Ranges were looked at.
    Looked {
        /// Whose.
        process: &'a ProcessAccount,
        /// How many.
        ranges: HugePages,
        /// Why.
        cause: LookCause,
    },
    /// Huge pages were split.
    Split {
        /// Whose, with its sums so far.
        process: &'a ProcessAccount,
        /// How many in this step.
        split: HugePages,
        /// What that freed.
        freed: BasePages,
        /// Why these.
        cause: SplitCause,
    },
    /// Time passes while the CPU budget is kept to.
    Pausing,
    /// The pass goes on without a process, because the guard forbids to go on with it.
    Excluded {
        /// Which.
        process: &'a ProcessAccount,
    },
    /// A process exited or cannot be reached any more; the pass goes on without it.
    Lost {
        /// Which.
        process: &'a ProcessAccount,
        /// What was seen.
        error: &'a Error,
    },
}

/// What the next step of a pass may do to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Look at and split whatever the policy chooses.
    All,
    /// The same, but for memory for which the program asked for huge pages.
    NotAskedFor,
    /// Nothing more, in this step and in all later ones.
    Nothing,
}

/// Asked before each step what it may do.
pub type Guard<'a> = dyn FnMut(&ManagedProcess) -> Permission + 'a;

/// Whether to go on after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// Stop after this step.
    Stop,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The policy was done.
    Done(DoneCause),
    /// The caller stopped it.
    Stopped,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(cause) => cause.fmt(f),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// Memory of a process that a pass leaves alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TakenOut {
    /// Memory whose writes are tracked, which may not be split.
    Followed,
    /// Memory for which the process asked for huge pages.
    AskedFor,
}

/// What a pass works on.
#[derive(Debug)]
pub struct Pass {
    processes: BTreeMap<ProcessKey, Arc<ManagedProcess>>,
    maps: BloatMaps,
    splitter: Splitter,
    options: Options,
    need: BasePages,
    looks: u64,
    /// What was taken out of the maps of which processes.
    taken_out: BTreeSet<(ProcessKey, TakenOut)>,
    /// The ranges that were split, and what that freed, where the policy asks what came back.
    splits: Option<BTreeMap<ProcessKey, Sample>>,
    account: Account,
    started: Instant,
    cpu_before: CpuTime,
}

impl Pass {
    /// A pass over `processes` to free `need`, with every huge page unknown as yet; ranges in
    /// `cooling` are left out.
    ///
    /// A process that exits or cannot be read is left out.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn new(
        processes: Vec<Arc<ManagedProcess>>,
        need: BasePages,
        options: Options,
        cooling: &CoolDown,
        now: Time,
    ) -> Result<Self> {
        let mut found = Vec::new();
        for process in processes {
            match process.huge_pages() {
                Ok(ranges) => found.push((process, ranges)),
                Err(error @ Error::Unsupported { .. }) => return Err(error),
                Err(error) if is_about_one_process(&error) => {}
                // What is odd about one process is no reason to leave the others alone.
                Err(error) => debug!(pid = process.pid().0, "passed over: {error}"),
            }
        }
        Ok(Self::over(found, need, options, cooling, now))
    }

    /// A pass as [`Pass::new`] makes it, over these ranges, which were huge just now.
    #[must_use]
    pub fn over(
        found: Vec<(Arc<ManagedProcess>, Vec<PmdRange>)>,
        need: BasePages,
        options: Options,
        cooling: &CoolDown,
        now: Time,
    ) -> Self {
        let mut pass = Self {
            processes: BTreeMap::new(),
            maps: BloatMaps::new(),
            splitter: Splitter::new(),
            options,
            need,
            looks: 0,
            taken_out: BTreeSet::new(),
            splits: None,
            account: Account::default(),
            started: Instant::now(),
            cpu_before: CpuTime::of_thread(),
        };
        for (process, ranges) in found {
            pass.add(process, &ranges, cooling, now);
        }
        pass
    }

    fn add(
        &mut self,
        process: Arc<ManagedProcess>,
        ranges: &[PmdRange],
        cooling: &CoolDown,
        now: Time,
    ) {
        let key = process.key;
        let mut map = BloatMap::new();
        for range in ranges.iter().filter(|range| !cooling.contains(key, **range, now)) {
            map.insert(*range, Knowledge::Unknown);
        }
        let account = ProcessAccount {
            pid: process.pid(),
            command: process.command().to_owned(),
            huge_pages: HugePages(ranges.len() as u64),
            ..ProcessAccount::default()
        };
        self.account.processes.insert(key, account);
        self.maps.insert(key, map);
        self.processes.insert(key, process);
    }

    /// What is known so far.
    #[must_use]
    pub fn maps(&self) -> &BloatMaps {
        &self.maps
    }

    /// Takes note of the share of what earlier splits freed in a process that its program has used again.
    pub(crate) fn set_came_back(&mut self, process: ProcessKey, share: Share) {
        if let Some(map) = self.maps.get_mut(&process) {
            map.set_came_back(share);
        }
    }

    /// Some of the ranges that were split so far, with what that freed, by process; none if the policy does not ask what came
    /// back.
    pub(crate) fn splits(&self) -> impl Iterator<Item = (ProcessKey, &Sample)> {
        self.splits.iter().flatten().map(|(process, sample)| (*process, sample))
    }

    /// What is still to be freed.
    #[must_use]
    pub fn need(&self) -> BasePages {
        self.need
    }

    /// Changes what is still to be freed.
    pub fn set_need(&mut self, need: BasePages) {
        self.need = need;
    }

    /// What was done so far.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Looks at every huge page at `depth` and splits none.
    ///
    /// # Errors
    /// As [`Pass::run`].
    pub fn survey(&mut self, depth: Depth) -> Result<()> {
        const BATCH: usize = 256;
        let all: Vec<(ProcessKey, Vec<PmdRange>)> = self
            .maps
            .iter()
            .map(|(key, map)| (*key, map.by_address().map(|(range, _)| range).collect()))
            .collect();
        for (process, ranges) in all {
            for batch in ranges.chunks(BATCH) {
                // What is shared stays in the map, unknown.
                let look = |pass: &mut Self| {
                    pass.look(process, batch, depth, LookCause::Unknown, &mut Vec::new())
                };
                self.carry_out(process, look, &mut |_| Flow::Continue)?;
                self.pause(&mut |_| Flow::Continue);
            }
        }
        self.settle_account();
        Ok(())
    }

    /// As [`Pass::run_guarded`], with everything permitted.
    ///
    /// # Errors
    /// As [`Pass::run_guarded`].
    pub fn run(
        &mut self,
        policy: &mut dyn Debloat,
        cooling: &mut CoolDown,
        now: Time,
        watch: &mut dyn FnMut(Event<'_>) -> Flow,
    ) -> Result<End> {
        self.run_guarded(policy, cooling, now, &mut |_| Permission::All, watch)
    }

    /// Asks `policy` and carries out what it says, as far as `guard` permits it, until the policy is
    /// done or `watch` says to stop. Ranges that are shared, that a split left alone, or that were
    /// not worth splitting, go to `cooling`, as of `now`.
    ///
    /// # Errors
    /// Whatever is not about one process: no rights at all, or an ability that is missing.
    pub fn run_guarded(
        &mut self,
        policy: &mut dyn Debloat,
        cooling: &mut CoolDown,
        now: Time,
        guard: &mut Guard<'_>,
        watch: &mut dyn FnMut(Event<'_>) -> Flow,
    ) -> Result<End> {
        if policy.asks_what_came_back() {
            self.splits.get_or_insert_default();
        }
        let end = loop {
            let mut to_cool = Vec::new();
            let (process, flow) = match policy.decide(&self.maps, self.need) {
                Decision::Done(cause) => break End::Done(cause),
                Decision::Look { process, ranges, depth, cause } => {
                    let look = |pass: &mut Self, part: &[PmdRange]| {
                        pass.look(process, part, depth, cause, &mut to_cool)
                    };
                    let parts = ranges.chunks(step(depth));
                    (process, self.in_steps(process, parts, look, guard, watch)?)
                }
                Decision::Split { process, ranges, cause } => {
                    let split = |pass: &mut Self, part: &[PmdRange]| {
                        pass.split(process, part, cause, &mut to_cool)
                    };
                    let parts = ranges.chunks(STEP);
                    (process, self.in_steps(process, parts, split, guard, watch)?)
                }
            };
            for (range, cooling_down) in to_cool {
                if let Some(map) = self.maps.get_mut(&process) {
                    map.remove(range);
                }
                let time = self.options.cool_down;
                match cooling_down {
                    Cooling::Alike => cooling.add(process, range, now + time),
                    Cooling::Longer => cooling.stayed_whole(process, range, now, time),
                }
            }
            if flow == Flow::Stop {
                break End::Stopped;
            }
        };
        self.settle_account();
        Ok(end)
    }

    /// Does something to each part of what a policy asked for, as far as it is permitted, with pauses
    /// between them.
    fn in_steps<'a>(
        &mut self,
        process: ProcessKey,
        parts: impl Iterator<Item = &'a [PmdRange]>,
        mut step: impl FnMut(&mut Self, &[PmdRange]) -> Result<StepDone>,
        guard: &mut Guard<'_>,
        watch: &mut dyn FnMut(Event<'_>) -> Flow,
    ) -> Result<Flow> {
        for part in parts {
            let permitted = |pass: &mut Self| match pass.permitted(process, part, guard)? {
                Some(part) if part.is_empty() => Ok(StepDone::Nothing),
                Some(part) => step(pass, &part),
                None => Ok(StepDone::Excluded),
            };
            let flow = self.carry_out(process, permitted, watch)?;
            if flow == Flow::Stop || self.pause(watch) == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Continue)
    }

    /// What of `part` a step may do something to; `None` if it may do nothing to the process.
    fn permitted(
        &mut self,
        process: ProcessKey,
        part: &[PmdRange],
        guard: &mut Guard<'_>,
    ) -> Result<Option<Vec<PmdRange>>> {
        let Some(managed) = self.processes.get(&process) else { return Ok(Some(Vec::new())) };
        let mut permission = guard(managed);
        // To find out whose writes are followed takes long, and permission may have changed meanwhile.
        if permission != Permission::Nothing && self.take_out(process, TakenOut::Followed)? {
            let managed = self.processes.get(&process);
            permission = managed.map_or(Permission::Nothing, |managed| guard(managed));
        }
        match permission {
            Permission::Nothing => return Ok(None),
            // To find out what was asked for takes as long.
            Permission::NotAskedFor if self.take_out(process, TakenOut::AskedFor)? => {
                let managed = self.processes.get(&process);
                if managed.is_none_or(|managed| guard(managed) == Permission::Nothing) {
                    return Ok(None);
                }
            }
            Permission::NotAskedFor | Permission::All => {}
        }
        let map = self.maps.get(&process);
        let is_left = |range: &&PmdRange| map.is_some_and(|map| map.get(**range).is_some());
        Ok(Some(part.iter().filter(is_left).copied().collect()))
    }

    /// Takes memory of a process out of the pass; whether that was still to be done.
    fn take_out(&mut self, process: ProcessKey, what: TakenOut) -> Result<bool> {
        let (Some(managed), Some(map), Some(account)) = (
            self.processes.get(&process),
            self.maps.get_mut(&process),
            self.account.processes.get_mut(&process),
        ) else {
            return Ok(false);
        };
        if !self.taken_out.insert((process, what)) {
            return Ok(false);
        }
        let ranges = map.by_address().map(|(range, _)| range);
        let (out, count) = match what {
            TakenOut::Followed => {
                (managed.not_to_be_split(ranges)?, &mut account.left_alone.followed)
            }
            TakenOut::AskedFor => (managed.asked_for(ranges)?, &mut account.spared),
        };
        *count += HugePages(out.len() as u64);
        for range in out {
            map.remove(range);
        }
        Ok(true)
    }

    /// Carries out one step about one process and tells `watch`; a process that is lost leaves
    /// the pass.
    fn carry_out(
        &mut self,
        process: ProcessKey,
        step: impl FnOnce(&mut Self) -> Result<StepDone>,
        watch: &mut dyn FnMut(Event<'_>) -> Flow,
    ) -> Result<Flow> {
        let done = step(self);
        let Some(account) = self.account.processes.get_mut(&process) else {
            return Ok(Flow::Continue);
        };
        match done {
            Ok(StepDone::Nothing) => Ok(Flow::Continue),
            Ok(StepDone::Looked { ranges, cause }) => {
                Ok(watch(Event::Looked { process: account, ranges, cause }))
            }
            Ok(StepDone::Split { split, freed, cause }) => {
                Ok(watch(Event::Split { process: account, split, freed, cause }))
            }
            Ok(StepDone::Excluded) => {
                self.processes.remove(&process);
                self.maps.remove(&process);
                Ok(watch(Event::Excluded { process: account }))
            }
            Err(error) if is_about_one_process(&error) => {
                account.exited = matches!(error, Error::Gone { .. });
                self.processes.remove(&process);
                self.maps.remove(&process);
                Ok(watch(Event::Lost { process: account, error: &error }))
            }
            Err(error) => Err(error),
        }
    }

    fn look(
        &mut self,
        process: ProcessKey,
        ranges: &[PmdRange],
        depth: Depth,
        cause: LookCause,
        to_cool: &mut Vec<(PmdRange, Cooling)>,
    ) -> Result<StepDone> {
        let (Some(managed), Some(map), Some(account)) = (
            self.processes.get(&process),
            self.maps.get_mut(&process),
            self.account.processes.get_mut(&process),
        ) else {
            return Ok(StepDone::Nothing);
        };
        self.looks += 1;
        let seed = self.options.seed.wrapping_add(self.looks);
        let looks = self.splitter.look(managed, ranges, depth, seed)?;
        for (range, look) in ranges.iter().zip(looks) {
            match look {
                Look::Known(knowledge) => map.refine(*range, knowledge),
                Look::Shared => {
                    account.left_alone.add(LeftAlone::Shared);
                    to_cool.push((*range, Cooling::after(LeftAlone::Shared)));
                }
                Look::Vanished => {
                    map.remove(*range);
                    account.vanished += HugePages(1);
                }
            }
        }
        Ok(StepDone::Looked { ranges: HugePages(ranges.len() as u64), cause })
    }

    fn split(
        &mut self,
        process: ProcessKey,
        ranges: &[PmdRange],
        cause: SplitCause,
        to_cool: &mut Vec<(PmdRange, Cooling)>,
    ) -> Result<StepDone> {
        let (Some(managed), Some(map), Some(account)) = (
            self.processes.get(&process),
            self.maps.get_mut(&process),
            self.account.processes.get_mut(&process),
        ) else {
            return Ok(StepDone::Nothing);
        };
        let results = match self.options.mode {
            Mode::Act => Some(self.splitter.split(managed, ranges)?),
            Mode::DryRun => None,
        };
        let before = account.clone();
        for (index, range) in ranges.iter().enumerate() {
            let known = map.remove(*range).and_then(Knowledge::density).unwrap_or_default();
            let became = results.as_ref().map_or(Became::Freed(known.base_pages()), |r| r[index]);
            match became {
                Became::Freed(pages) => {
                    account.split += HugePages(1);
                    account.freed += pages;
                    account.expected += known.base_pages();
                    self.need = self.need.saturating_sub(pages);
                    if let Some(splits) = &mut self.splits {
                        splits.entry(process).or_default().add((*range, pages));
                    }
                    // A misjudged one. khugepaged may rebuild it, and a sample misjudge it again.
                    if self.options.mode == Mode::Act && pages < self.options.worth {
                        to_cool.push((*range, Cooling::Alike));
                    }
                }
                Became::LeftAlone(reason) => {
                    account.left_alone.add(reason);
                    to_cool.push((*range, Cooling::after(reason)));
                }
            }
        }
        let (split, freed) = (account.split - before.split, account.freed - before.freed);
        Ok(StepDone::Split { split, freed, cause })
    }

    /// Keeps to the CPU budget; long pauses are cut into slices, so that `watch` can end them.
    fn pause(&mut self, watch: &mut dyn FnMut(Event<'_>) -> Flow) -> Flow {
        const SLICE: Duration = Duration::from_millis(100);
        self.settle_account();
        // Waking up takes CPU time too. It counts in the next pause: were it added to this one, a
        // small budget would go into nothing but waking up.
        let mut left = self.options.budget.pause(self.account.cpu, self.account.wall);
        while !left.is_zero() {
            let slice = left.min(SLICE);
            std::thread::sleep(slice);
            left -= slice;
            if watch(Event::Pausing) == Flow::Stop {
                return Flow::Stop;
            }
        }
        Flow::Continue
    }

    fn settle_account(&mut self) {
        self.account.cpu = CpuTime::of_thread().since(self.cpu_before);
        self.account.wall = Nanos::from_secs_f64(self.started.elapsed().as_secs_f64());
        self.account.read = self.splitter.bytes_read();
    }
}

/// How long a range cools down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cooling {
    /// Each time as long.
    Alike,
    /// Each time in a row for longer: what pins it may do so for as long as its program runs.
    Longer,
}

impl Cooling {
    /// How long what stayed whole for this reason cools down.
    fn after(reason: LeftAlone) -> Self {
        match reason {
            LeftAlone::Shared => Self::Alike,
            LeftAlone::Busy | LeftAlone::Refused(_) => Self::Longer,
        }
    }
}

/// What a step did.
enum StepDone {
    /// The process is not in the pass any more, or nothing of what was asked for.
    Nothing,
    /// The guard does not permit to go on with the process.
    Excluded,
    Looked {
        ranges: HugePages,
        cause: LookCause,
    },
    Split {
        split: HugePages,
        freed: BasePages,
        cause: SplitCause,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::Identity;
    use superpage_kernel::process::Process;
    use superpage_policy::bloat::BloatDensity;
    use superpage_policy::sampling::{FILTER, PRE_SAMPLE, SAMPLE};
    use superpage_units::VirtAddr;

    #[test]
    fn the_closer_the_look_the_fewer_at_a_time() {
        let depths = [
            Depth::Exact,
            Depth::Filter(FILTER),
            Depth::Sample(SAMPLE),
            Depth::PreSample(PRE_SAMPLE),
        ];
        assert_eq!(depths.map(step), [8, 64, 168, 512]);
    }

    /// Splits everything, in address order.
    #[derive(Debug)]
    struct Everything {
        asks_what_came_back: bool,
    }

    impl Debloat for Everything {
        fn decide(&mut self, maps: &BloatMaps, _: BasePages) -> Decision {
            let first = maps.iter().find_map(|(key, map)| Some((*key, map.by_address().next()?.0)));
            first.map_or(Decision::Done(DoneCause::NothingLeft), |(process, range)| {
                Decision::Split { process, ranges: vec![range], cause: SplitCause::FirstInOrder }
            })
        }

        fn floor(&self) -> BloatDensity {
            BloatDensity::new(0)
        }

        fn asks_what_came_back(&self) -> bool {
            self.asks_what_came_back
        }
    }

    #[test]
    fn splits_are_noted_only_where_the_policy_asks_what_came_back() {
        let noted = |asks_what_came_back| {
            let me = Process::current().expect("we run");
            let me = ManagedProcess::new(ProcessKey(1), me, Identity::for_tests());
            let found =
                vec![(Arc::new(me.expect("readable")), vec![PmdRange::containing(VirtAddr(0))])];
            let options = Options { mode: Mode::DryRun, ..Options::default() };
            let mut cooling = CoolDown::new();
            let mut pass = Pass::over(found, BasePages(1), options, &cooling, Time::ZERO);
            let mut policy = Everything { asks_what_came_back };
            pass.run(&mut policy, &mut cooling, Time::ZERO, &mut |_| Flow::Continue)
                .expect("a pass");
            assert_eq!(pass.account().processes[&ProcessKey(1)].split, HugePages(1));
            pass.splits().count()
        };
        assert_eq!((noted(true), noted(false)), (1, 0));
    }
}
