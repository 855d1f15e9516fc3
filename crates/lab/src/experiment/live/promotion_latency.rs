//! `promotion-latency`: how long a range waits for its huge page, and how long a heap that is there
//! already takes to become huge: superpage beside khugepaged at its defaults and without any sleep.
//!
//! No table of a paper: what the papers' kernels do in the page fault itself is done from user space
//! here, so the delay is ours to show. Where khugepaged is not done in the time that can be waited,
//! the number is extrapolated from its pace and marked so.

use super::support_bench::{Bench, fitting_size, hold, rounded, warm};
use super::support_daemon::Daemon;
use super::support_redis::memory_of;
use super::support_regime::{Khugepaged, khugepaged_pid, promoter, set_enabled};
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use crate::helper::{Helper, Order, Part, Threshold};
use crate::workload::clock::cpu_time;
use serde::Serialize;
use std::time::{Duration, Instant};
use superpage_kernel::thp::Enabled;
use superpage_units::{Bytes, HugePages, Nanos, Pid};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "promotion-latency",
    source: "Quicksilver, Observation 2 (no table)",
    summary: "From the touch that crosses the threshold to the huge page, and from base pages to \
              90 % huge pages of a heap",
    on: On::Live,
    columns: &[
        ("case", "case"),
        ("policy", "policy"),
        ("threshold_to_mapped_p50_ms", "p50 ms"),
        ("threshold_to_mapped_p99_ms", "p99 ms"),
        ("ranges", "ranges"),
        ("mapped", "mapped"),
        ("seconds_to_90_percent", "s to 90 %"),
        ("extrapolated", "extrapolated"),
        ("cpu_s", "CPU s"),
    ],
    run: &run,
};

/// The heap that is to become huge.
const HEAP: Bytes = Bytes::from_gib(8);
/// Ranges that are touched in each round.
const RANGES: HugePages = HugePages(300);
/// quicksilver-sync-64's threshold.
const TOUCHES: u64 = 64;
/// How long it is waited, for khugepaged at its defaults and for those that are expected to be done.
const BOUND: Duration = Duration::from_secs(60);
/// As the bound, where the heap is so small that it is a trial of the experiment only.
const BOUND_OF_TRIAL: Duration = Duration::from_secs(3);
/// A heap of a trial is smaller.
const LEAST_HEAP: HugePages = Bytes::from_gib(1).to_huge_pages();
const PATIENCE: Duration = Duration::from_secs(300);
/// From one look at a heap to the next; each takes some 10 ms. Chosen.
const LOOK: Duration = Duration::from_millis(200);
/// What is to be huge of a heap.
const SHARE: f64 = 0.9;

/// Who promotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promoter {
    Superpage,
    Kernel(Khugepaged),
}

const PROMOTERS: [Promoter; 3] = [
    Promoter::Superpage,
    Promoter::Kernel(Khugepaged::Fastest),
    Promoter::Kernel(Khugepaged::Default),
];

/// Somebody at work.
enum Work {
    Daemon(Daemon),
    Khugepaged { pid: Pid, before: Nanos },
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    threshold_to_mapped_p50_ms: Option<f64>,
    threshold_to_mapped_p99_ms: Option<f64>,
    ranges: u64,
    mapped: u64,
    seconds_to_90_percent: Option<f64>,
    extrapolated: bool,
    cpu_s: f64,
}

impl Promoter {
    const fn name(self) -> &'static str {
        match self {
            Self::Superpage => "superpage",
            Self::Kernel(Khugepaged::Fastest) => "khugepaged-fastest",
            Self::Kernel(_) => "khugepaged",
        }
    }

    /// Ranges that are not done in time are not waited for longer.
    fn bound(self, size: HugePages) -> Duration {
        match self {
            Self::Kernel(Khugepaged::Default) if size < LEAST_HEAP => BOUND_OF_TRIAL,
            Self::Kernel(Khugepaged::Default) => BOUND,
            _ => PATIENCE,
        }
    }

    /// Sets the machine so that `pid` starts on base pages. Page faults make huge pages only where
    /// they are asked for, khugepaged sleeps.
    fn prepare(bench: &mut Bench) -> Result<()> {
        set_enabled(bench, Enabled::Madvise)?;
        Khugepaged::Asleep.set(bench)
    }

    fn begin(self, bench: &mut Bench, setting: &Setting, pid: Pid) -> Result<Work> {
        match self {
            Self::Superpage => promoter(setting, pid).map(Work::Daemon),
            Self::Kernel(pace) => {
                let pid = khugepaged_pid()?;
                let before = cpu_time(pid)?;
                pace.set(bench)?;
                Ok(Work::Khugepaged { pid, before })
            }
        }
    }
}

impl Work {
    fn cpu(&self) -> Result<f64> {
        let used = match self {
            Self::Daemon(daemon) => daemon.cpu()?,
            Self::Khugepaged { pid, before } => cpu_time(*pid)?.saturating_sub(*before),
        };
        Ok(used.as_secs_f64())
    }

    fn end(self, bench: &mut Bench) -> Result<()> {
        match self {
            Self::Daemon(daemon) => daemon.stop(),
            Self::Khugepaged { .. } => Khugepaged::Asleep.set(bench),
        }
    }
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    // Huge pages are made beside the base pages that they replace.
    let size = fitting_size(setting, HEAP, 1)?.to_huge_pages();
    let ranges = RANGES.min(size);
    let mut bench = Bench::open(setting)?;
    warm(setting, size.bytes())?;
    let mut report = Report::default();
    for promoter in PROMOTERS {
        let (mut all, mut cpu) = (Vec::new(), 0.0);
        // At its defaults khugepaged has nothing to show that would be better a second time.
        let is_default = promoter == Promoter::Kernel(Khugepaged::Default);
        let rounds = if is_default { 1 } else { setting.rounds };
        for round in 0..rounds {
            progress(&format!("{}: touching, round {} of {rounds}", promoter.name(), round + 1))?;
            let (took, used) =
                touch(promoter, &mut bench, setting, (ranges, promoter.bound(size)))?;
            all.extend(took);
            cpu += used;
        }
        report.push(&touched(promoter, all, cpu))?;
    }
    for promoter in PROMOTERS {
        progress(&format!("{}: a heap of {}", promoter.name(), size.bytes()))?;
        report.push(&heap(promoter, &mut bench, setting, size)?)?;
    }
    let (touching, heap) = (ranges.bytes(), size.bytes());
    report.notes = vec![
        format!(
            "touching: a program with a thread that computes and one that touches {touching} page by page, \
             4 us each, and looks by PAGEMAP_SCAN; from the touch of the {TOUCHES}th base page of a range, for \
             khugepaged from the first one and the advice that makes it eligible. At its defaults \
             khugepaged is waited for {} s.",
            Promoter::Kernel(Khugepaged::Default).bound(size).as_secs()
        ),
        format!(
            "heap: {heap} of base pages that are there before anybody begins; for superpage the time \
             has the daemon's start in it. What was not done in time is extrapolated from the pace \
             until then."
        ),
    ];
    Ok(report)
}

/// From threshold to huge page for each range, and the CPU time of who promoted, in seconds.
fn touch(
    promoter: Promoter,
    bench: &mut Bench,
    setting: &Setting,
    (size, bound): (HugePages, Duration),
) -> Result<(Vec<Option<Nanos>>, f64)> {
    /// For the last ranges of those that are expected to be done.
    const LAST: Duration = Duration::from_secs(10);
    Promoter::prepare(bench)?;
    let threshold = match promoter {
        Promoter::Superpage => Threshold::Touches(TOUCHES),
        Promoter::Kernel(_) => Threshold::Advice,
    };
    let last = if bound == PATIENCE { LAST } else { bound };
    let patience = Nanos::from_secs_f64(last.as_secs_f64());
    let part = Part::Toucher { size, threshold, patience };
    let mut toucher = Helper::start(&setting.launcher, part)?;
    let work = promoter.begin(bench, setting, toucher.pid())?;
    toucher.order(Order::Go)?;
    let took = toucher.mapped()?;
    let cpu = work.cpu()?;
    work.end(bench)?;
    Ok((took, cpu))
}

fn touched(promoter: Promoter, took: Vec<Option<Nanos>>, cpu: f64) -> Row {
    let ranges = took.len() as u64;
    let mapped = took.iter().flatten().count() as u64;
    Row {
        case: "touching",
        policy: promoter.name(),
        threshold_to_mapped_p50_ms: quantile(&took, 0.5),
        threshold_to_mapped_p99_ms: quantile(&took, 0.99),
        ranges,
        mapped,
        seconds_to_90_percent: None,
        extrapolated: false,
        cpu_s: rounded(cpu, 3),
    }
}

/// The time that a share of the ranges did not exceed, in milliseconds; none if as many were not
/// mapped in time.
fn quantile(took: &[Option<Nanos>], share: f64) -> Option<f64> {
    let mut sorted: Vec<Nanos> = took.iter().flatten().copied().collect();
    sorted.sort_unstable();
    let rank = Bytes(took.len() as u64).scaled(share).0;
    let at = usize::try_from(rank).ok()?.min(took.len().checked_sub(1)?);
    sorted.get(at).map(|nanos| rounded(nanos.0 as f64 / 1e6, 3))
}

fn heap(promoter: Promoter, bench: &mut Bench, setting: &Setting, size: HugePages) -> Result<Row> {
    Promoter::prepare(bench)?;
    let mut heap = Helper::start(&setting.launcher, Part::Heap { size })?;
    let before = memory_of(heap.pid())?.huge;
    if before.0 * 100 > size.0 {
        return Err(Error::Child(format!("the heap began with {before} huge pages")));
    }
    let process = hold(heap.pid())?;
    if promoter != Promoter::Superpage {
        heap.order(Order::Advise)?;
        heap.done()?;
    }
    let start = Instant::now();
    let work = promoter.begin(bench, setting, heap.pid())?;
    let (huge, elapsed) = loop {
        let huge = process.huge_pages()?.len() as f64;
        let elapsed = start.elapsed();
        if huge >= SHARE * size.0 as f64 || elapsed >= promoter.bound(size) {
            break (huge, elapsed.as_secs_f64());
        }
        std::thread::sleep(LOOK);
    };
    let cpu = work.cpu()?;
    work.end(bench)?;
    let wanted = SHARE * size.0 as f64;
    let seconds = (huge > 0.0).then(|| elapsed * (wanted / huge).max(1.0));
    Ok(Row {
        case: "heap",
        policy: promoter.name(),
        threshold_to_mapped_p50_ms: None,
        threshold_to_mapped_p99_ms: None,
        ranges: size.0,
        mapped: HugePages(size.0).bytes().scaled(huge / size.0 as f64).to_huge_pages().0,
        seconds_to_90_percent: seconds.map(|seconds| rounded(seconds, 1)),
        extrapolated: huge < wanted,
        cpu_s: rounded(cpu, 3),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_that_was_never_reached_is_none() {
        let took = [Some(Nanos(3_000_000)), Some(Nanos(1_000_000)), Some(Nanos(2_000_000)), None];
        assert_eq!(quantile(&took, 0.0), Some(1.0));
        assert_eq!(quantile(&took, 0.5), Some(3.0));
        assert_eq!(quantile(&took, 0.99), None);
        assert_eq!(quantile(&[], 0.5), None);
    }
}
