//! `guest-memory`: a memfd that two processes share, as a virtual machine's memory is, before and after
//! superpage has promoted it in one of them.
//!
//! No paper. The kernel's `shmem_enabled` says `never` mostly, so such memory is on base pages; a
//! collapse from outside does not ask it. What is collapsed in one process is huge in the file, and
//! the other gets a huge mapping at its next touch.

use super::support_bench::{Bench, fitting_size, median, rounded, warm};
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use crate::helper::{Helper, Order, Part};
use serde::Serialize;
use std::process::{Command, Stdio};
use std::time::Instant;
use superpage_kernel::process::Process;
use superpage_kernel::smaps;
use superpage_units::{Bytes, HugePages, Pid};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "guest-memory",
    source: "no paper",
    summary: "A memfd shared by two processes before and after it is promoted in one: huge pages and \
              time of random reads in each",
    on: On::Live,
    columns: &[
        ("case", "process"),
        ("policy", "policy"),
        ("huge_pages", "huge pages"),
        ("huge_share", "of its memory"),
        ("access_ns", "ns per read"),
        ("access_ratio", "over 4 KiB"),
        ("promote_s", "s to promote"),
    ],
    run: &run,
};

const SIZE: Bytes = Bytes::from_gib(4);
/// Reads of a timed run: about a second. Chosen.
const READS: u64 = 4_000_000;

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    huge_pages: u64,
    huge_share: f64,
    access_ns: f64,
    access_ratio: f64,
    promote_s: Option<f64>,
}

/// What was seen of one process.
#[derive(Clone, Copy, Debug)]
struct Seen {
    huge: HugePages,
    access_ns: f64,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = fitting_size(setting, SIZE, 1)?.to_huge_pages();
    let _bench = Bench::open(setting)?;
    warm(setting, size.bytes())?;
    progress(&format!("two processes: touching {} of shared memory", size.bytes()))?;
    let host = Helper::start(&setting.launcher, Part::Host { size })?;
    let fd = host.fd.ok_or_else(|| Error::Child("the host made no memfd".to_owned()))?;
    let guest = Helper::start(&setting.launcher, Part::Guest { of: host.pid(), fd, size })?;
    let mut both = [host, guest];
    progress("base pages: reading")?;
    let before = see(&mut both, setting)?;
    progress("superpage promote")?;
    let start = Instant::now();
    promote(setting, both[0].pid())?;
    let promote_s = rounded(start.elapsed().as_secs_f64(), 2);
    progress("promoted: reading")?;
    let after = see(&mut both, setting)?;
    let mut report = Report::default();
    for (at, case) in ["host", "guest"].into_iter().enumerate() {
        for (policy, seen, promote_s) in
            [("linux-4k", before[at], None), ("superpage", after[at], Some(promote_s))]
        {
            report.push(&Row {
                case,
                policy,
                huge_pages: seen.huge.0,
                huge_share: rounded(seen.huge.share_of(size).get(), 3),
                access_ns: rounded(seen.access_ns, 1),
                access_ratio: rounded(seen.access_ns / before[at].access_ns, 3),
                promote_s,
            })?;
        }
    }
    report.notes.push(format!(
        "{} of base pages in a memfd; promoted once by `superpage promote` of the host, the process that made it. \
         Each read depends on the one before. The memory holds what was written, read by read.",
        size.bytes()
    ));
    Ok(report)
}

/// Times both in turn, and counts their huge pages then: the guest's come with its reads.
fn see(both: &mut [Helper; 2], setting: &Setting) -> Result<[Seen; 2]> {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=setting.rounds {
        for (helper, times) in both.iter_mut().zip(&mut times) {
            helper.order(Order::Read { count: READS, seed: u64::from(round) })?;
            let time = helper.done()?;
            // The first is to get everything mapped.
            if round > 0 {
                times.push(time.0 as f64 / READS as f64);
            }
        }
    }
    let mut seen = both.iter().zip(times).map(|(helper, times)| {
        let rollup = smaps::of(&Process::open(helper.pid())?)?;
        let huge = rollup.shmem_huge_pages.unwrap_or(Bytes::ZERO).to_huge_pages();
        Ok(Seen { huge, access_ns: median(times) })
    });
    let missing = || Err(Error::Child("a process is missing".to_owned()));
    Ok([seen.next().unwrap_or_else(missing)?, seen.next().unwrap_or_else(missing)?])
}

/// Promotes what the process has, by the program itself.
fn promote(setting: &Setting, pid: Pid) -> Result<()> {
    let explain = |detail: String| Error::Child(format!("superpage promote {pid}: {detail}"));
    let output = Command::new(&setting.launcher.program)
        .args(["promote", &pid.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| explain(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(explain(said.lines().next().unwrap_or("it gave no reason").to_owned()))
}
