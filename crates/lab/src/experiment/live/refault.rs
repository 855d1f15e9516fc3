//! `refault`: what a split frees and its program fills again. No paper has it.
//!
//! Two programs of equal size in a cgroup with a limit, each huge page of theirs as bloated as the others at the start. One
//! fills its empty base pages, in address order or everywhere, or half of them and then no more; the other never does. A third one grows and makes memory short,
//! so that the daemon makes several passes. What is split of the first is filled again: it is freed for a moment, for a page
//! fault for each base page. The same with a de-bloater that learns which share of what it freed came back.

use super::support_bench::{Bench, check_memory, median, memory_cgroups, rounded, scratch};
use super::support_daemon::Daemon;
use super::support_regime::{Kernel, in_turn};
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use crate::helper::{Fill, Helper, Order, Part};
use serde::Serialize;
use std::path::Path;
use superpage_kernel::cgroup::{Hierarchy, Scratch, Version};
use superpage_kernel::process::Process;
use superpage_kernel::{smaps, status, vmstat};
use superpage_manager::history::{Tail, What};
use superpage_policy::debloat::emd::EMD;
use superpage_policy::debloat::lasting::EMD_LASTING;
use superpage_policy::debloat::list::Entry;
use superpage_units::{Bytes, HUGE_PAGE_BYTES, HugePages, Nanos, Share};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "refault",
    source: "no paper",
    summary: "What a split frees of a program that fills it again, and of one that does not",
    on: On::Live,
    columns: &[
        ("case", "fills"),
        ("policy", "de-bloater"),
        ("split_filling", "split in the filling program"),
        ("split_holding", "in the other"),
        ("freed_mib", "freed MiB"),
        ("lasting_mib", "for good"),
        ("faults_filling", "page faults of the filling program"),
        ("reads_filling", "its reads, M/CPU s"),
        ("reads_holding", "the other's"),
        ("promoted", "promoted again"),
        ("split_by_kernel", "split by the kernel, all rounds"),
        ("killed", "killed, all rounds"),
    ],
    run: &run,
};

/// The memory of each of the two programs.
const SIZE: Bytes = Bytes::from_mib(768);
/// The share of base pages that each has touched at the start.
const TOUCHED: Share = Share::percent(40);
/// How long the filling takes. Chosen: several passes.
const TIME: Nanos = Nanos(15_000_000_000); // tidy: allow(15 s)
/// The third program grows by this share of the size of one. With it the bloat of the program that never fills is about what has
/// to be freed.
const GROWTH: f64 = 0.45;
/// The third program grows until this part of the time has passed.
const GROWS: f64 = 0.9;
/// The limit: the two programs take this share of it at the start, the daemon's high watermark.
const AT_START: f64 = 0.9;

const CASES: [(&str, Fill); 3] = [
    ("in address order", Fill::InOrder),
    ("half in address order", Fill::HalfInOrder),
    ("everywhere", Fill::Everywhere),
];
const POLICIES: [Entry; 2] = [EMD, EMD_LASTING];

/// Medians over the rounds, where nothing else is said.
#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    rounds: usize,
    cgroups: &'static str,
    split_filling: f64,
    split_holding: f64,
    freed_mib: f64,
    lasting_mib: f64,
    faults_filling: f64,
    reads_filling: f64,
    reads_holding: f64,
    promoted: f64,
    /// In all rounds.
    split_by_kernel: u64,
    /// In all rounds.
    killed: u64,
}

/// What one round gave with one de-bloater.
#[derive(Debug)]
struct Sample {
    split_filling: HugePages,
    split_holding: HugePages,
    freed: Bytes,
    filling: Ended,
    holding: Ended,
    promoted: HugePages,
    split_by_kernel: u64,
    killed: u64,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = setting.size.unwrap_or(SIZE);
    let least = Bytes(size.0 * 3 + (1 << 30));
    check_memory("programs", size, least)?;
    let hierarchy = memory_cgroups()?;
    let mut bench = Bench::open(setting)?;
    let mut report = Report::default();
    for (case, fill) in CASES {
        let samples = in_turn(POLICIES, setting.rounds, |policy, round| {
            progress(&format!("{case}, {policy}: round {} of {}", round + 1, setting.rounds))?;
            Kernel::ALWAYS.set(&mut bench)?;
            Trial { fill, policy, size }.run(setting, &hierarchy)
        })?;
        for (policy, samples) in POLICIES.iter().zip(&samples) {
            report.push(&row(case, policy, hierarchy.version(), samples))?;
        }
    }
    report.notes.push(format!(
        "medians; two programs of {size}, {:.0} % of their base pages touched; a third one grows by {} in {:.0} s; limit {}. The daemon has \
         no configuration but its de-bloater and that it sees this cgroup only. For good: what the two programs take less at the end \
         than at the start.",
        TOUCHED.get() * 1e2,
        growth(size).bytes(),
        TIME.as_secs_f64() * GROWS,
        limit(size),
    ));
    Ok(report)
}

fn row(case: &'static str, policy: &Entry, cgroups: Version, samples: &[Sample]) -> Row {
    let middle = |of: fn(&Sample) -> f64, digits| rounded(median(samples.iter().map(of)), digits);
    Row {
        case,
        policy: policy.name,
        rounds: samples.len(),
        cgroups: if cgroups == Version::V1 { "v1" } else { "v2" },
        split_filling: middle(|sample| sample.split_filling.0 as f64, 0),
        split_holding: middle(|sample| sample.split_holding.0 as f64, 0),
        freed_mib: middle(|sample| mib(sample.freed), 0),
        lasting_mib: middle(|sample| sample.filling.lasting + sample.holding.lasting, 0),
        faults_filling: middle(|sample| sample.filling.faults as f64, 0),
        reads_filling: middle(|sample| sample.filling.reads, 1),
        reads_holding: middle(|sample| sample.holding.reads, 1),
        promoted: middle(|sample| sample.promoted.0 as f64, 0),
        split_by_kernel: samples.iter().map(|sample| sample.split_by_kernel).sum(),
        killed: samples.iter().map(|sample| sample.killed).sum(),
    }
}

/// The memory by which the third program grows.
fn growth(size: Bytes) -> HugePages {
    HugePages(size.scaled(GROWTH).0 / HUGE_PAGE_BYTES)
}

fn limit(size: Bytes) -> Bytes {
    Bytes(size.0 * 2).scaled(1.0 / AT_START)
}

struct Trial {
    fill: Fill,
    policy: Entry,
    size: Bytes,
}

/// One of the two programs, and how it stood at the start.
struct Program {
    helper: Helper,
    process: Process,
    before: status::Stat,
    resident: Bytes,
}

/// How a program stood at the end; nothing if it was killed.
#[derive(Debug, Default)]
struct Ended {
    lasting: f64,
    faults: u64,
    reads: f64,
}

impl Program {
    fn start(setting: &Setting, group: &Scratch, size: Bytes, fill: Fill) -> Result<Self> {
        let size = HugePages(size.0 / HUGE_PAGE_BYTES);
        let part = Part::Refilling { size, touched: TOUCHED, fill, time: TIME };
        let helper = group.while_in(|| Helper::start(&setting.launcher, part))??;
        let process = Process::open(helper.pid())?;
        let before = status::stat_of(&process)?;
        let resident = smaps::of(&process)?.anonymous;
        Ok(Self { helper, process, before, resident })
    }

    /// Waits until it has worked, and has it look at its data.
    fn worked(mut self) -> Result<Ended> {
        let Some((_, reads)) = unless_killed(self.helper.worked())? else {
            return Ok(Ended::default());
        };
        let now = status::stat_of(&self.process)?;
        let resident = smaps::of(&self.process)?.anonymous;
        self.helper.done_with(Order::Check)?;
        let cpu = (now.cpu.time() - self.before.cpu.time()).as_secs_f64();
        Ok(Ended {
            lasting: mib(self.resident) - mib(resident),
            faults: now.minor_faults - self.before.minor_faults,
            reads: reads as f64 / cpu / 1e6,
        })
    }
}

impl Trial {
    fn run(&self, setting: &Setting, hierarchy: &Hierarchy) -> Result<Sample> {
        let group = scratch(setting, hierarchy, "superpage-refault")?;
        group.limit(limit(self.size))?;
        let mut filling = Program::start(setting, &group, self.size, self.fill)?;
        let mut holding = Program::start(setting, &group, self.size, Fill::Nothing)?;
        let pids = [filling.helper.pid(), holding.helper.pid()];
        let mut growing = self.growing(setting, &group)?;
        let mut daemon = self.daemon(setting, &group)?;
        let mut log = Tail::new(daemon.state());
        let before = split_by_kernel()?;
        for helper in [&mut growing, &mut filling.helper, &mut holding.helper] {
            helper.order(Order::Go)?;
        }
        let (filling, holding) = (filling.worked()?, holding.worked()?);
        unless_killed(growing.done())?;
        daemon.end()?;
        let explain = |error| Error::Child(format!("the daemon's log cannot be read: {error}"));
        let entries = log.more().map_err(explain)?.entries;
        let of = |what: What| entries.iter().filter(move |entry| entry.what == what);
        let split = |of_pid| {
            let of_pid = of(What::Debloated).filter(|entry| entry.pid == Some(of_pid));
            of_pid.map(|entry| entry.huge_pages).sum()
        };
        Ok(Sample {
            split_filling: split(pids[0]),
            split_holding: split(pids[1]),
            freed: of(What::Debloated).map(|entry| entry.base_pages.bytes()).sum(),
            filling,
            holding,
            promoted: of(What::Promoted).map(|entry| entry.huge_pages).sum(),
            split_by_kernel: split_by_kernel()? - before,
            killed: group.group().kills()?,
        })
    }

    /// The program that makes memory short.
    fn growing(&self, setting: &Setting, group: &Scratch) -> Result<Helper> {
        let size = growth(self.size);
        let pace = size.bytes().scaled(1.0 / (TIME.as_secs_f64() * GROWS));
        let part = Part::Filling { size, touched: Share::ALL, pace: Some(pace) };
        Ok(group.while_in(|| Helper::start(&setting.launcher, part))??)
    }

    fn daemon(&self, setting: &Setting, group: &Scratch) -> Result<Daemon> {
        let paths = [group.group().path()];
        let text = format!(
            "[debloat]\nname = \"{}\"\n[processes.include]\ncgroups = {paths:?}\n",
            self.policy
        );
        Daemon::start(setting, &text)
    }
}

/// What a program answered; nothing if it was killed, which its cgroup counts.
fn unless_killed<T>(answer: crate::worker::Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(crate::worker::Error::Died { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Huge pages that the kernel's shrinker has split since the machine started.
fn split_by_kernel() -> Result<u64> {
    Ok(vmstat::read(Path::new("/proc"))?.get("thp_underused_split_page").unwrap_or(0))
}

fn mib(bytes: Bytes) -> f64 {
    bytes.0 as f64 / Bytes::from_mib(1).0 as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(split: u64, freed: u64, reads: f64, killed: u64) -> Sample {
        let ended = |reads| Ended { lasting: 10.0, faults: 0, reads };
        Sample {
            split_filling: HugePages(split),
            split_holding: HugePages(0),
            freed: Bytes::from_mib(freed),
            filling: ended(reads),
            holding: ended(2.0 * reads),
            promoted: HugePages(0),
            split_by_kernel: 0,
            killed,
        }
    }

    #[test]
    fn a_row_has_the_medians_of_its_rounds_and_all_that_were_killed() {
        let samples = [sample(9, 40, 1.0, 1), sample(1, 30, 4.0, 0), sample(5, 10, 3.0, 1)];
        let row = row("everywhere", &EMD, Version::V1, &samples);
        assert_eq!((row.rounds, row.killed, row.cgroups), (3, 2, "v1"));
        assert_eq!((row.split_filling, row.freed_mib, row.lasting_mib), (5.0, 30.0, 20.0));
        assert_eq!((row.reads_filling, row.reads_holding), (3.0, 6.0));
    }
}
