//! Programs with memory for a part of their data, for `heap-streams` and `heap-random`, which differ in the order in
//! which the data is visited.
//!
//! A program fills its data, makes a pass that is not timed, so that it finds memory as any later pass does, and then
//! one that is. On swap it is in a memory cgroup with a limit, and a swap file of ours is in use; both go with the
//! trial, and what a kill leaves of them is undone when an experiment of these starts the next time.

use super::support_bench::{Bench, fitting_size, median, rounded, warm};
use super::support_disk::{self, Disk, PIECE};
use super::support_regime::{Khugepaged, set_enabled};
use super::support_run::Managed;
use super::{Error, Progress, Report, Result, Setting};
use crate::helper::{Helper, Order, Part, Passed, Pattern};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use superpage_kernel::cgroup::{Hierarchy, Scratch};
use superpage_kernel::process::Process;
use superpage_kernel::settings::Settings;
use superpage_kernel::swap::SwapFile;
use superpage_kernel::thp::Enabled;
use superpage_kernel::vmstat::{self, VmStat};
use superpage_kernel::{smaps, text};
use superpage_units::{BasePages, Bytes, Pid, Share};
use tempfile::TempDir;

pub(super) const COLUMNS: &[(&str, &str)] = &[
    ("case", "case"),
    ("policy", "policy"),
    ("memory_percent", "memory %"),
    ("seconds", "s"),
    ("over_swap", "over swap"),
    ("over_disk", "over the disk"),
    ("user_s", "user s"),
    ("system_s", "system s"),
    ("read_bytes", "read"),
    ("written_bytes", "written"),
    ("huge_share", "huge"),
    ("faults", "faults"),
    ("p99_fault_us", "p99 us"),
    ("peak_bytes", "most memory"),
];

/// The data of a program if no other size is asked for. Chosen: a round takes some minutes.
const SIZE: Bytes = Bytes::from_gib(1);
/// The limit of a cgroup beyond the part of the data: for page tables, stacks and what the allocator has. Chosen; page
/// tables take 2 MiB for each GiB on base pages.
const ALLOWANCE: Bytes = Bytes::from_mib(16);
/// The size of the swap file, in sizes of the data: the kernel keeps what it read back on the disk too as long as half
/// of swap is free.
const SWAP: u64 = 2;
/// The size of the heap file beyond the data, for what else a program allocates. Chosen.
const HEAP_ROOM: Bytes = Bytes::from_mib(256);
/// The name of the cgroup.
const GROUP: &str = "superpage-lab-heap";

/// The cases that an experiment measures.
pub(super) struct Plan {
    pub(super) experiment: &'static str,
    pub(super) cases: &'static [(&'static str, Pattern)],
}

/// Where the data goes that memory has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Memory has room for all of the data.
    InMemory,
    /// The data goes to swap.
    Swap(Swap),
    /// The data goes to a heap file, by `superpage run --heap`.
    XHeap,
}

/// The kernel's settings for swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Swap {
    name: &'static str,
    enabled: Enabled,
    /// The kernel reads two to the power of this many pages at once (`vm.page-cluster`).
    cluster: &'static str,
}

impl Policy {
    const ALL: [Self; 6] = [
        Self::InMemory,
        Self::swap("swap-4k-3", Enabled::Never, "3"),
        Self::swap("swap-4k-0", Enabled::Never, "0"),
        Self::swap("swap-thp-3", Enabled::Always, "3"),
        Self::swap("swap-thp-0", Enabled::Always, "0"),
        Self::XHeap,
    ];

    const fn swap(name: &'static str, enabled: Enabled, cluster: &'static str) -> Self {
        Self::Swap(Swap { name, enabled, cluster })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::InMemory => "in-memory",
            Self::Swap(Swap { name, .. }) => name,
            Self::XHeap => "xheap",
        }
    }

    const fn is_swap(self) -> bool {
        matches!(self, Self::Swap(_))
    }

    /// Sets the machine for a program that is going to start.
    fn prepare(self, bench: &mut Bench) -> Result<()> {
        let (enabled, khugepaged) = match self {
            // Data that is all in memory is the base, so it has huge pages from the first touch on.
            Self::InMemory => (Enabled::Always, Khugepaged::Asleep),
            Self::Swap(Swap { enabled: Enabled::Never, .. }) => {
                (Enabled::Never, Khugepaged::Asleep)
            }
            Self::Swap(Swap { enabled, .. }) => (enabled, Khugepaged::Default),
            // The machine as distributions have it.
            Self::XHeap => (Enabled::Madvise, Khugepaged::Asleep),
        };
        set_enabled(bench, enabled)?;
        if let Self::Swap(Swap { cluster, .. }) = self {
            bench.settings().change(Path::new("/proc/sys/vm/page-cluster"), cluster)?;
        }
        khugepaged.set(bench)
    }
}

/// The findings of a trial.
#[derive(Clone, Copy, Debug)]
struct Sample {
    passed: Passed,
    /// The part of the resident data that is on huge pages.
    huge: f64,
    faults: u64,
    p99_fault_us: Option<f64>,
    /// The most memory that the program ever had.
    peak: Option<Bytes>,
}

/// The pass that is timed.
struct Worked {
    passed: Passed,
    /// The growth of the kernel's counters meanwhile, on the whole machine.
    counters: VmStat,
}

/// A program and the memory that it has.
#[derive(Clone, Copy)]
struct Trial<'a> {
    setting: &'a Setting,
    pattern: Pattern,
    size: Bytes,
    memory: Share,
}

/// Runs all rounds of all cases, another policy first in each round.
pub(super) fn run(plan: &Plan, setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = fitting_size(setting, SIZE, 1)?;
    let mut bench = Bench::open(setting)?;
    // No other experiment runs while the bench is open, so nobody uses these.
    SwapFile::remove_left_behind()?;
    bypass_zswap(bench.settings())?;
    let mut report = Report::default();
    let mut policies = Policy::ALL.to_vec();
    if let Some(why) = without_heap(setting) {
        policies.pop();
        report.notes.push(format!("{} is left out: {why}", Policy::XHeap.name()));
    }
    progress("touching free memory")?;
    warm(setting, size)?;
    let disk = disk(plan, setting, size, progress, &mut report)?;
    for memory in &setting.memory {
        for (case, pattern) in plan.cases.iter().copied() {
            let trial = Trial { setting, pattern, size, memory: *memory };
            let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); policies.len()];
            for round in 0..setting.rounds as usize {
                for turn in 0..policies.len() {
                    let at = (turn + round) % policies.len();
                    let (policy, of) = (policies[at], setting.rounds);
                    progress(&format!("{case}, {}: round {} of {of}", policy.name(), round + 1))?;
                    samples[at].push(trial.run(policy, &mut bench)?);
                }
            }
            let of: Vec<_> = policies.iter().copied().zip(samples).collect();
            for row in rows(plan, case, trial, &of, disk) {
                report.push(&row)?;
            }
        }
    }
    report.notes.extend(notes(size, disk));
    Ok(report)
}

/// Has swap go to the disk and not to compressed memory, where the kernel has that.
fn bypass_zswap(settings: &mut Settings) -> Result<()> {
    let zswap = Path::new("/sys/module/zswap/parameters/enabled");
    if text::read(zswap).is_ok_and(|enabled| enabled.trim_ascii() == b"Y") {
        settings.change(zswap, "N")?;
    }
    Ok(())
}

/// Measures the disk once in each round, for the first rows. The bytes that it reads in a second.
fn disk(
    plan: &Plan,
    setting: &Setting,
    size: Bytes,
    progress: Progress<'_>,
    report: &mut Report,
) -> Result<f64> {
    let mut all = Vec::new();
    for round in 1..=setting.rounds {
        progress(&format!("the disk: round {round} of {}", setting.rounds))?;
        all.push(support_disk::measure(&setting.directory, size)?);
    }
    let took = |time: fn(&Disk) -> Duration| median(all.iter().map(|d| time(d).as_secs_f64()));
    let (read, write) = (took(|disk| disk.read), took(|disk| disk.write));
    let row = |policy, seconds| Row {
        seconds: rounded(seconds, 3),
        ..Row::empty(plan, "disk", policy, size, all.len())
    };
    report.push(&Row { read_bytes: size.0, ..row("disk-read", read) })?;
    report.push(&Row { written_bytes: size.0, ..row("disk-write", write) })?;
    Ok(size.0 as f64 / read)
}

/// The options by which `superpage run` keeps data in a file below `directory`.
fn heap_options(directory: &Path, memory: Bytes, size: Bytes) -> Vec<String> {
    let heap = directory.to_string_lossy().into_owned();
    let (memory, heap_size) = (memory.0.to_string(), (size + HEAP_ROOM).0.to_string());
    let words = ["--heap", &heap, "--memory", &memory, "--heap-size", &heap_size];
    words.map(str::to_owned).into()
}

/// The reason why `superpage run --heap` does not work here.
fn without_heap(setting: &Setting) -> Option<String> {
    let directory = TempDir::new_in(&setting.directory).map_err(|error| error.to_string());
    let tried = directory.and_then(|directory| {
        let least = Bytes::from_mib(64);
        Command::new(&setting.launcher.program)
            .args(["run", "--quiet"])
            .args(heap_options(directory.path(), least, least))
            .args(["--", "true"])
            .output()
            .map_err(|error| error.to_string())
    });
    let said = match tried {
        Ok(output) if output.status.success() && output.stderr.is_empty() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error,
    };
    let said = said.lines().next().unwrap_or_default();
    Some(format!("`superpage run --heap {}` said: {said}", setting.directory.display()))
}

impl Trial<'_> {
    const fn part(&self) -> Part {
        Part::Passes { pattern: self.pattern, size: self.size.to_huge_pages() }
    }

    fn run(&self, policy: Policy, bench: &mut Bench) -> Result<Sample> {
        policy.prepare(bench)?;
        match policy {
            Policy::InMemory => self.in_memory(),
            Policy::Swap(_) => self.on_swap(),
            Policy::XHeap => self.in_heap(),
        }
    }

    fn in_memory(&self) -> Result<Sample> {
        let mut helper = Helper::start(&self.setting.launcher, self.part())?;
        let Worked { passed, .. } = self.work(&mut helper)?;
        let sample = Sample::of(helper.pid(), passed)?;
        helper.end()?;
        Ok(sample)
    }

    /// The program ends before its cgroup and the swap file go, also where something fails.
    fn on_swap(&self) -> Result<Sample> {
        let _swap = SwapFile::create(&self.setting.directory, Bytes(self.size.0 * SWAP))?;
        let group = group()?;
        group.limit(self.memory.of(self.size) + ALLOWANCE)?;
        let mut helper = Helper::start(&self.setting.launcher, self.part())?;
        // The program has touched nothing of its data.
        group.add(&Process::open(helper.pid())?)?;
        let Worked { passed, counters } = self.work(&mut helper)?;
        let pages = |counter| BasePages(counters.get(counter).unwrap_or(0)).bytes();
        let passed = Passed { read: pages("pswpin"), written: pages("pswpout"), ..passed };
        let sample = Sample::of(helper.pid(), passed)?;
        let peak = group.group().peak().ok();
        helper.end()?;
        Ok(Sample { peak, ..sample })
    }

    /// Under `superpage run --heap`, whose report is of the whole run, the filling included.
    fn in_heap(&self) -> Result<Sample> {
        let explain = |error: std::io::Error| Error::Child(format!("a directory: {error}"));
        let directory = TempDir::new_in(&self.setting.directory).map_err(explain)?;
        let options = heap_options(directory.path(), self.memory.of(self.size), self.size);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        // The group has no limit: it only counts, and from the start on, because memory is prepared then.
        let group = group()?;
        let start = || Managed::start(self.setting, &options, self.part());
        let mut managed = group.while_in(start)??;
        let Worked { passed, .. } = self.work(&mut managed.helper)?;
        let peak = group.group().peak().ok();
        let sample = heap_sample(passed, &managed.end()?["heap"])?;
        Ok(Sample { peak, ..sample })
    }

    /// Has the program fill its data, and make a pass that is not timed and one that is.
    fn work(&self, helper: &mut Helper) -> Result<Worked> {
        let seed = self.setting.seed.wrapping_mul(2);
        let counters = || vmstat::read(Path::new("/proc"));
        helper.done_with(Order::Go)?;
        helper.pass(seed)?;
        let before = counters()?;
        let passed = helper.pass(seed.wrapping_add(1))?;
        let counters = counters()?.since(&before);
        // A pass that reads has compared what it read.
        if self.pattern == Pattern::SequentialWrite {
            helper.done_with(Order::Check)?;
        }
        Ok(Worked { passed, counters })
    }
}

fn group() -> Result<Scratch> {
    let hierarchy = Hierarchy::find(Path::new("/"))?;
    let none = || Error::NotPossible("there is no memory cgroup here, see cgroups(7)".to_owned());
    Ok(Scratch::create(&hierarchy.ok_or_else(none)?, GROUP)?)
}

impl Sample {
    /// The sample of a program that the kernel has managed, and that is still there.
    fn of(pid: Pid, passed: Passed) -> Result<Self> {
        let memory = smaps::of(&Process::open(pid)?)?;
        let huge = memory.anon_huge_pages.unwrap_or(Bytes::ZERO);
        Ok(Self {
            passed,
            huge: huge.share_of(memory.anonymous).get(),
            faults: passed.major_faults,
            p99_fault_us: None,
            peak: None,
        })
    }
}

/// The sample of a program under `superpage run --heap`; `heap` is the object in its report.
fn heap_sample(passed: Passed, heap: &Value) -> Result<Sample> {
    let missing = |key| Error::Child(format!("the report has no heap.{key}"));
    let number = |key: &'static str| heap[key].as_f64().ok_or_else(|| missing(key));
    let count = |key: &'static str| heap[key].as_u64().ok_or_else(|| missing(key));
    Ok(Sample {
        passed,
        huge: number("huge_share")?,
        faults: count("huge_faults")? + count("base_faults")?,
        p99_fault_us: Some(number("p99_fault_us")?),
        peak: None,
    })
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    experiment: &'static str,
    machine: &'static str,
    case: &'static str,
    policy: &'static str,
    /// The memory of all trials that the row is compared with; data that is all in memory has as much as it takes.
    memory_percent: Option<f64>,
    size_bytes: u64,
    seconds: f64,
    low: Option<f64>,
    high: Option<f64>,
    /// The seconds of the best way to swap through these.
    over_swap: Option<f64>,
    /// The bytes read in a second, through those that the disk gives in order.
    over_disk: Option<f64>,
    user_s: Option<f64>,
    system_s: Option<f64>,
    read_bytes: u64,
    written_bytes: u64,
    huge_share: Option<f64>,
    faults: Option<f64>,
    p99_fault_us: Option<f64>,
    peak_bytes: Option<u64>,
    rounds: usize,
}

impl Row {
    const fn empty(
        plan: &Plan,
        case: &'static str,
        policy: &'static str,
        size: Bytes,
        rounds: usize,
    ) -> Self {
        Self {
            experiment: plan.experiment,
            machine: "live",
            case,
            policy,
            memory_percent: None,
            size_bytes: size.0,
            seconds: 0.0,
            low: None,
            high: None,
            over_swap: None,
            over_disk: None,
            user_s: None,
            system_s: None,
            read_bytes: 0,
            written_bytes: 0,
            huge_share: None,
            faults: None,
            p99_fault_us: None,
            peak_bytes: None,
            rounds,
        }
    }
}

/// The rows of a case; `disk` is what the disk reads in a second.
fn rows(
    plan: &Plan,
    case: &'static str,
    trial: Trial<'_>,
    of: &[(Policy, Vec<Sample>)],
    disk: f64,
) -> Vec<Row> {
    let seconds = |samples: &[Sample]| middle(samples, |sample| sample.passed.took.as_secs_f64());
    let swap = of.iter().filter(|(policy, _)| policy.is_swap());
    let best = swap.map(|(_, samples)| seconds(samples)).fold(f64::INFINITY, f64::min);
    let row = |(policy, samples): &(Policy, Vec<Sample>)| {
        let took = seconds(samples);
        let all = || samples.iter().map(|sample| sample.passed.took.as_secs_f64());
        let bytes = |of: fn(&Sample) -> Bytes| Bytes(1).scaled(middle(samples, |s| of(s).0 as f64));
        let read = bytes(|sample| sample.passed.read);
        let p99: Option<Vec<f64>> = samples.iter().map(|sample| sample.p99_fault_us).collect();
        let peak = samples.iter().map(|sample| sample.peak).max().flatten();
        Row {
            memory_percent: Some(rounded(trial.memory.get() * 100.0, 1)),
            seconds: rounded(took, 3),
            low: Some(rounded(all().fold(f64::INFINITY, f64::min), 3)),
            high: Some(rounded(all().fold(0.0, f64::max), 3)),
            over_swap: best.is_finite().then(|| rounded(best / took, 3)),
            over_disk: Some(rounded(read.0 as f64 / took / disk, 3)),
            user_s: Some(rounded(middle(samples, |s| s.passed.user.as_secs_f64()), 2)),
            system_s: Some(rounded(middle(samples, |s| s.passed.system.as_secs_f64()), 2)),
            read_bytes: read.0,
            written_bytes: bytes(|sample| sample.passed.written).0,
            huge_share: Some(rounded(middle(samples, |sample| sample.huge), 3)),
            faults: Some(middle(samples, |sample| sample.faults as f64)),
            p99_fault_us: p99.map(|p99| rounded(median(p99), 1)),
            peak_bytes: peak.map(|peak| peak.0),
            ..Row::empty(plan, case, policy.name(), trial.size, samples.len())
        }
    };
    of.iter().map(row).collect()
}

fn middle(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    median(samples.iter().map(of))
}

fn notes(size: Bytes, disk: f64) -> Vec<String> {
    let mib = disk / Bytes::from_mib(1).0 as f64;
    vec![
        format!(
            "{size} of data, filled, passed over once and then timed; every word that is read is compared with \
             what was written. Medians. On swap a memory cgroup holds memory % of the data and {ALLOWANCE} for \
             the rest of the process; in-memory has no limit, and huge pages from the first touch on; xheap has \
             memory % of the data for its pools, and no other limit. Most memory: of the program's cgroup, the \
             filling included."
        ),
        format!(
            "Swap is a file of {SWAP} times the data, used before any other, zswap off; the kernel swaps huge \
             pages out whole only to block devices. swap-4k: enabled = never, swap-thp: always, khugepaged at its \
             defaults; the last number is vm.page-cluster. Read and written on swap are pswpin and pswpout of the \
             machine; else what the process read and wrote (/proc/PID/io). Faults are major faults; of xheap, \
             faults that read or filled a page, the filling and the first pass included, as are its huge share \
             and p99."
        ),
        format!(
            "disk-read and disk-write: a file of the same size in pieces of {PIECE}, one at a time, O_DIRECT: \
             {mib:.0} MiB/s are read. Over the disk: what a row reads in a second through this."
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::Nanos;

    fn sample(seconds: f64, read: Bytes) -> Sample {
        let passed = Passed { took: Nanos::from_secs_f64(seconds), read, ..Passed::default() };
        Sample { passed, huge: 0.5, faults: 7, p99_fault_us: None, peak: None }
    }

    #[test]
    fn rows_are_compared_with_the_best_way_to_swap_and_with_the_disk() {
        let setting = Setting {
            launcher: crate::worker::Launcher { program: "none".into(), leading_args: Vec::new() },
            size: None,
            rounds: 1,
            state: "none".into(),
            seed: 1,
            directory: "none".into(),
            memory: Vec::new(),
        };
        let size = Bytes::from_gib(1);
        let memory = Share::percent(75);
        let trial = Trial { setting: &setting, pattern: Pattern::Uniform, size, memory };
        let of = [
            (Policy::ALL[0], vec![sample(0.5, Bytes::ZERO)]),
            (Policy::ALL[1], vec![sample(6.0, size), sample(8.0, size), sample(5.0, size)]),
            (Policy::ALL[2], vec![sample(4.0, size)]),
            (Policy::XHeap, vec![sample(2.0, size)]),
        ];
        let plan = Plan { experiment: "heap-random", cases: &[] };
        let rows = rows(&plan, "uniform", trial, &of, size.0 as f64);
        let over: Vec<Option<f64>> = rows.iter().map(|row| row.over_swap).collect();
        assert_eq!(over, [Some(8.0), Some(0.667), Some(1.0), Some(2.0)]);
        assert_eq!((rows[1].seconds, rows[1].low, rows[1].high), (6.0, Some(5.0), Some(8.0)));
        assert_eq!((rows[0].over_disk, rows[3].over_disk), (Some(0.0), Some(0.5)));
        assert_eq!((rows[3].memory_percent, rows[3].policy), (Some(75.0), "xheap"));
    }

    #[test]
    fn a_report_without_a_heap_is_an_error() {
        let heap = serde_json::json!({
            "huge_faults": 3, "base_faults": 4, "soft_faults": 9, "promotions": 1, "read_bytes": 5,
            "written_bytes": 6, "huge_share": 0.98, "p99_fault_us": 1300.5
        });
        let sample = heap_sample(Passed::default(), &heap).expect("a report");
        assert_eq!((sample.faults, sample.huge, sample.p99_fault_us), (7, 0.98, Some(1300.5)));
        assert!(heap_sample(Passed::default(), &Value::Null).is_err());
    }
}
