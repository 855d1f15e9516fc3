//! What experiments share: a bench with workloads on it, de-bloated and restored again and again.
//!
//! All variants are measured on the same process in turn: de-bloat it, time it, turn what was
//! split back into huge pages (which brings the bloat back), and go on with the next variant.

use super::{Error, Result, Setting};
use crate::helper::{Helper, Part};
use crate::worker::Worker;
use crate::workload::arena::Residency;
use crate::workload::{LEAST_SIZE, PageSize, Timing, WorkloadKind, WorkloadSpec};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use superpage_kernel::cgroup::{Hierarchy, Scratch};
use superpage_kernel::made::{self, MADE};
use superpage_kernel::meminfo;
use superpage_kernel::pagemap::{Found, Mapping};
use superpage_kernel::settings::{self, Settings};
use superpage_kernel::thp::{self, Thp};
use superpage_manager::account::Account;
use superpage_manager::cooldown::CoolDown;
use superpage_manager::find::{self, Refusal};
use superpage_manager::pass::{Flow, Options, Pass};
use superpage_manager::process::{Extent, ManagedProcess, Terms};
use superpage_policy::debloat::emd;
use superpage_policy::debloat::list::Entry;
use superpage_units::{BasePages, Bytes, HUGE_PAGE_BYTES, HugePages, Nanos, Pid, PmdRange, Time};

/// Memory left to the rest of the machine, at least. Chosen, not measured.
const HEADROOM: Bytes = Bytes::from_mib(1536);

/// How long a timed run should take. Long enough that a timer tick does not show, short enough
/// that variants alternate within the drift of a shared machine. Chosen, not measured.
const RUN: Duration = Duration::from_millis(300);
/// Runs of which the fastest counts: what else happens on the machine can only add time.
pub(super) const RUNS: u32 = 5;

/// The size of each of `instances` workloads: what was asked for, else `preferred`, else what fits.
///
/// More than fits is refused: the kernel might make room by killing somebody else's program.
pub(super) fn fitting_size(setting: &Setting, preferred: Bytes, instances: u64) -> Result<Bytes> {
    let available = meminfo::obtainable(Path::new("/proc"))?;
    let room = available.saturating_sub(HEADROOM).scaled(0.9);
    let each = Bytes(room.0 / instances / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);
    let size = setting.size.unwrap_or_else(|| preferred.min(each));
    if size <= each && size >= LEAST_SIZE {
        return Ok(size);
    }
    Err(Error::NotPossible(format!(
        "{instances} workload(s) of {size} do not fit: {available} of memory are available, and at most {each} \
         each (at least {LEAST_SIZE}) leave enough to the machine"
    )))
}

/// Sees that so much memory can be had for programs of `size`.
pub(super) fn check_memory(programs: &str, size: Bytes, least: Bytes) -> Result<()> {
    let available = meminfo::obtainable(Path::new("/proc"))?;
    if available >= least {
        return Ok(());
    }
    Err(Error::NotPossible(format!(
        "{programs} of {size} need {least} of memory, and {available} are available; --size takes smaller ones"
    )))
}

/// The memory cgroups of this machine.
pub(super) fn memory_cgroups() -> Result<Hierarchy> {
    let none = || Error::NotPossible("there is no memory cgroup here, see cgroups(7)".to_owned());
    Hierarchy::find(Path::new("/"))?.ok_or_else(none)
}

/// Holds the kernel's own machinery off the workloads while it lives.
#[derive(Debug)]
pub(super) struct Bench {
    settings: Settings,
}

impl Bench {
    /// Opens the settings gate and sends khugepaged to sleep.
    ///
    /// Not by its `max_ptes_none`: a lower one would let the kernel split huge pages of any process
    /// when the workloads make memory short.
    pub(super) fn open(setting: &Setting) -> Result<Self> {
        /// Longer than any experiment.
        const ASLEEP: Nanos = Nanos(24 * 3600 * 1_000_000_000);
        let (mut settings, _) = Settings::open(&setting.state, settings::Mode::Apply)?;
        // What a run that was killed left would be measured with.
        let removals = made::undo_left_behind(&setting.state.join(MADE))?;
        removals.into_iter().try_for_each(|removal| removal.outcome)?;
        Thp::under(Path::new("/sys")).set(&mut settings, thp::SCAN_SLEEP, ASLEEP)?;
        keep_memory(&mut settings);
        Ok(Self { settings })
    }

    /// The gate, for an experiment that sets more.
    pub(super) fn settings(&mut self) -> &mut Settings {
        &mut self.settings
    }
}

/// A memory cgroup of this name, recorded, so that it does not outlive us.
pub(super) fn scratch(setting: &Setting, hierarchy: &Hierarchy, name: &str) -> Result<Scratch> {
    Ok(Scratch::create_recorded(hierarchy, name, &setting.state.join(MADE))?)
}

/// Keeps a virtual machine from giving free memory back to its host while experiments run: the host
/// would have to find and zero it again at the next touch, which takes many times longer than what
/// is measured. Where there is no such thing, or it cannot be set, nothing is changed.
fn keep_memory(settings: &mut Settings) {
    /// The smallest free chunks that are given back are of this order.
    const ORDER: &str = "/sys/module/page_reporting/parameters/page_reporting_order";
    /// Larger than any chunk; where that is refused, the largest there is.
    const NONE: [&str; 2] = ["11", "10"];
    let _ = NONE.iter().find(|order| settings.change(Path::new(ORDER), order).is_ok());
}

/// Touches memory and gives it back: on a virtual machine memory that was free for a while is the
/// host's, and the first to touch it would pay for that. All that is free, because nobody knows which
/// of it comes next; where a smaller size than usual was asked for, half as much again as that.
pub(super) fn warm(setting: &Setting, size: Bytes) -> Result<()> {
    let all = meminfo::obtainable(Path::new("/proc"))?.saturating_sub(HEADROOM).scaled(0.95);
    let size = if setting.size.is_some() { all.min(size.scaled(1.5)) } else { all };
    let size = size.to_huge_pages();
    drop(Helper::start(&setting.launcher, Part::Heap { size })?);
    Ok(())
}

/// A workload in a process, and what is needed to de-bloat and restore it.
#[derive(Debug)]
pub(super) struct Subject {
    worker: Worker,
    process: Arc<ManagedProcess>,
    /// The huge pages it began with.
    ranges: Vec<PmdRange>,
    operations: u64,
    seed: u64,
}

impl Subject {
    /// Starts a workload on huge pages (one that does not ask for them has its memory collapsed) and finds out how many operations fill a timed run.
    pub(super) fn start(setting: &Setting, kind: WorkloadKind, size: Bytes) -> Result<Self> {
        let spec = WorkloadSpec { kind, size, pages: PageSize::Huge, cpu: Some(0) };
        let worker = Worker::spawn(&setting.launcher, &spec)?;
        let process = hold(worker.pid())?;
        if !kind.asks_for_huge_pages() {
            collapse_all(&process)?;
        } else if !worker.populated().is_on_huge_pages() {
            return Err(Error::NotPossible(format!(
                "{kind} got only {} huge pages for {size}; set transparent_hugepage/enabled to \
                 'madvise' or 'always', or choose a smaller --size",
                worker.populated().huge_pages
            )));
        }
        let ranges = process.huge_pages()?;
        let mut subject = Self { worker, process, ranges, operations: 0, seed: 0 };
        subject.calibrate()?;
        Ok(subject)
    }

    fn calibrate(&mut self) -> Result<()> {
        const FEW: u64 = 20_000;
        self.worker.run(FEW, 1)?;
        let mut operations = FEW;
        // Twice: the first guess comes from a run too short to trust.
        for _ in 0..2 {
            let timing = self.worker.run(operations, 2)?;
            operations = operations_for(timing, RUN);
        }
        self.operations = operations;
        Ok(())
    }

    /// The workload's process.
    pub(super) fn pid(&self) -> Pid {
        self.worker.pid()
    }

    /// The huge pages it began with.
    pub(super) fn huge_pages(&self) -> HugePages {
        HugePages(self.ranges.len() as u64)
    }

    /// The memory it began with on huge pages.
    pub(super) fn footprint(&self) -> Bytes {
        self.huge_pages().bytes()
    }

    /// What there is to free at most.
    pub(super) fn bloat(&self) -> BasePages {
        self.worker.populated().bloat()
    }

    /// Operations in a timed run.
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    /// Starts every timed run with the same operations from now on.
    pub(super) fn set_operations(&mut self, operations: u64) {
        self.operations = operations;
    }

    /// Times the workload; see [`time_in_turn`].
    pub(super) fn time(&mut self) -> Result<f64> {
        Ok(time_in_turn(std::slice::from_mut(self))?[0])
    }

    /// As [`Subject::time`], but one long run by the clock on the wall.
    pub(super) fn time_by_the_wall(&mut self) -> Result<f64> {
        self.warm_up()?;
        Ok(self.one_run(self.operations * u64::from(RUNS))?.wall.as_secs_f64())
    }

    /// The first accesses after a change pay for faults and cold caches.
    fn warm_up(&mut self) -> Result<()> {
        self.one_run(self.operations / 4).map(|_| ())
    }

    fn one_run(&mut self, operations: u64) -> Result<Timing> {
        self.seed += 1;
        Ok(self.worker.run(operations, self.seed)?)
    }

    /// What became of the huge pages it began with: how many are split, and what that freed.
    pub(super) fn split_so_far(&mut self) -> Result<(HugePages, BasePages)> {
        let mappings = self.process.pagemap.mappings(&self.ranges)?;
        let freed = mappings.iter().filter_map(|mapping| match mapping {
            Mapping::Split { zero_pages } => Some(*zero_pages),
            Mapping::Huge => None,
        });
        Ok((HugePages(freed.clone().count() as u64), freed.sum()))
    }

    /// Turns everything that was split back into huge pages, bloat included.
    pub(super) fn restore(&mut self) -> Result<()> {
        /// The kernel may need a few attempts while it compacts memory.
        const ATTEMPTS: u32 = 5;
        for _ in 0..ATTEMPTS {
            let mappings = self.process.pagemap.mappings(&self.ranges)?;
            let split: Vec<PmdRange> = self
                .ranges
                .iter()
                .zip(mappings)
                .filter(|(_, mapping)| *mapping != Mapping::Huge)
                .map(|(range, _)| *range)
                .collect();
            if split.is_empty() {
                return Ok(());
            }
            self.process.collapse(&split)?;
        }
        let (left, _) = self.split_so_far()?;
        let few = self.ranges.len() as u64 / 100;
        if left.0 <= few {
            return Ok(());
        }
        Err(Error::NotPossible(format!(
            "{left} huge pages could not be restored between two variants: free memory is too \
             fragmented or too scarce; choose a smaller --size"
        )))
    }

    /// Makes the workload compare all its data with what it wrote.
    pub(super) fn check(&mut self) -> Result<()> {
        self.worker.check()?;
        Ok(())
    }
}

/// Takes hold of a workload's process.
pub(super) fn hold(pid: Pid) -> Result<Arc<ManagedProcess>> {
    find::hold(pid).map_err(|refusal| match refusal {
        Refusal::Denied { .. } => Error::NotPossible(refusal.to_string()),
        Refusal::Failed(error) => error.into(),
        other => Error::Child(other.to_string()),
    })
}

/// Makes huge pages of all that a program has mapped by base pages, as far as that lies in its memory in whole.
pub(super) fn collapse_all(process: &ManagedProcess) -> Result<()> {
    /// The kernel may need a few attempts while it compacts memory.
    const ATTEMPTS: u32 = 5;
    /// Libraries, and the ends of VMAs, stay on base pages. Chosen.
    const LEAST: f64 = 0.9;
    let pid = process.pid();
    for _ in 0..ATTEMPTS {
        let survey = process.survey(Terms::ASKED_FOR, Extent::ALL)?;
        let base = survey.found.iter().filter_map(|found| match found {
            Found::Base(range, _) => Some(*range),
            Found::Huge(..) => None,
        });
        process.collapse(&base.collect::<Vec<_>>())?;
        let Residency { resident, huge_pages } = Residency::of(pid)?;
        if huge_pages.bytes() >= resident.scaled(LEAST) {
            return Ok(());
        }
    }
    Err(Error::NotPossible(format!(
        "much of {} could not be collapsed: free memory is too fragmented or too scarce; choose a smaller --size",
        process.command()
    )))
}

/// How many operations take about `time`, after a run that was timed.
pub(super) fn operations_for(timing: Timing, time: Duration) -> u64 {
    let seconds = timing.wall.as_secs_f64().max(1e-6);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float to integer cast saturates"
    )]
    let operations = (timing.operations as f64 * time.as_secs_f64() / seconds) as u64;
    operations.max(1000)
}

/// Times each workload: seconds of CPU time of the process with the memory, in the fastest of a
/// few runs, each of other operations of the same kind.
///
/// Not by the clock on the wall: a client, another program or a busy host would be measured along
/// with the page walks. The workloads take turns, one run each, so that the drift of a shared
/// machine meets all of them alike.
pub(super) fn time_in_turn(subjects: &mut [Subject]) -> Result<Vec<f64>> {
    subjects.iter_mut().try_for_each(Subject::warm_up)?;
    let mut fastest = vec![f64::INFINITY; subjects.len()];
    for _ in 0..RUNS {
        for (subject, fastest) in subjects.iter_mut().zip(&mut fastest) {
            *fastest = fastest.min(subject.one_run(subject.operations)?.cpu.as_secs_f64());
        }
    }
    Ok(fastest)
}

/// De-bloats `subjects` (in the order of their creation) by `policy` until `need` is freed.
pub(super) fn debloat(
    subjects: &[Subject],
    policy: Entry,
    need: BasePages,
    seed: u64,
) -> Result<Account> {
    let processes = subjects.iter().map(|subject| Arc::clone(&subject.process)).collect();
    let mut cooling = CoolDown::new();
    let options = Options { seed: seed << 32, ..Options::default() };
    let mut pass = Pass::new(processes, need, options, &cooling, Time::ZERO)?;
    let mut decider = (policy.build)(emd::Options::default());
    pass.run(decider.as_mut(), &mut cooling, Time::ZERO, &mut |_| Flow::Continue)?;
    Ok(pass.account().clone())
}

/// The middle of some numbers; the mean of the two middle ones if their count is even.
pub(super) fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => numbers[odd / 2],
        even => f64::midpoint(numbers[even / 2 - 1], numbers[even / 2]),
    }
}

/// Rounded to `digits` decimals, for rows.
pub(super) fn rounded(number: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (number * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_none() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
        assert_eq!(rounded(1.23456, 3), 1.235);
    }
}
