//! `gigantic-supply`: how many gigantic pages the kernel finds where free memory is fragmented.
//!
//! Trident makes its gigantic pages from memory that its compaction frees, and is measured on a machine whose
//! memory was fragmented before (section 6). A stock kernel makes one of an aligned GiB in which it can move
//! every page. Here a share of the free huge frames is fragmented by a pinned base page in each, which nothing can
//! move; then the kernel's pool is enlarged page by page. Beside what was found stands what `superpage doctor`
//! would have said before; it does not see pins.

use super::support_bench::{Bench, rounded};
use super::support_regime::set_enabled;
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::helper::{Held, Helper, Part};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use superpage_kernel::thp::Enabled;
use superpage_kernel::{Error, hugetlb, kpageflags};
use superpage_manager::free_memory;
use superpage_units::{HugePages, PageSize};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "gigantic-supply",
    source: "Trident, section 6",
    summary: "How many 1 GiB pages the kernel finds where free memory is fragmented",
    on: On::Live,
    columns: &[
        ("case", "fragmented"),
        ("policy", "policy"),
        ("measured", "measured"),
        ("tried", "tried"),
        ("found", "found"),
        ("said", "said at least"),
        ("said_at_most", "at most"),
        ("seconds", "s"),
    ],
    run: &run,
};

/// The shares of the free huge frames that are fragmented, in percent. Chosen.
const CASES: [u32; 3] = [0, 50, 90];
/// Gigantic pages that are asked for. Chosen: so many leave the machine enough of 16 GiB.
const TRIED: u64 = 4;

/// The findings of all rounds of a case.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    measured: f64,
    tried: u64,
    found: u64,
    said: u64,
    said_at_most: u64,
    time: Duration,
}

#[derive(Debug, Serialize)]
struct Row {
    case: String,
    policy: &'static str,
    /// The share of free memory that no huge page could be had from, in the mean.
    measured: f64,
    tried: u64,
    found: u64,
    said: u64,
    said_at_most: u64,
    seconds: f64,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut bench = Bench::open(setting)?;
    let mut sums = CASES.map(|_| Sum::default());
    for round in 1..=setting.rounds {
        for (percent, sum) in CASES.into_iter().zip(&mut sums) {
            progress(&format!("{percent} %: round {round} of {}", setting.rounds))?;
            trial(&mut bench, setting, percent, sum)?;
        }
    }
    let mut report = Report::default();
    for (percent, sum) in CASES.into_iter().zip(sums) {
        report.push(&Row {
            case: format!("{percent} %"),
            policy: "linux",
            measured: rounded(sum.measured / f64::from(setting.rounds), 2),
            tried: sum.tried,
            found: sum.found,
            said: sum.said,
            said_at_most: sum.said_at_most,
            seconds: rounded(sum.time.as_secs_f64(), 2),
        })?;
    }
    report.notes.push(
        "Sums of all rounds, the seconds those of the kernel's search. Measured: the share of free memory that no \
         huge page could be had from. Said: by what /proc/kpageflags showed before, which does not show pins, at \
         most as many as were tried. Page tables and slab of the machine's earlier use are in the way at 0 % too."
            .to_owned(),
    );
    Ok(report)
}

/// Fragments memory, and asks for gigantic pages one by one until the kernel finds none.
fn trial(bench: &mut Bench, setting: &Setting, percent: u32, sum: &mut Sum) -> Result<()> {
    let (proc, sys) = (Path::new("/proc"), Path::new("/sys"));
    let _fragments = fragment(bench, setting, percent)?;
    let measured = free_memory::read(proc)?.fmfi(PageSize::Huge).get();
    let said = kpageflags::contiguous(proc)?;
    let before = hugetlb::read(sys, PageSize::Gigantic)?.size;
    let begun = Instant::now();
    let mut found = 0;
    while found < TRIED {
        let wanted = before + found + 1;
        match bench
            .settings()
            .change(&hugetlb::setting(sys, PageSize::Gigantic), &wanted.to_string())
        {
            Ok(_) => found += 1,
            Err(Error::NotTaken { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    sum.time += begun.elapsed();
    bench.settings().change(&hugetlb::setting(sys, PageSize::Gigantic), &before.to_string())?;
    sum.measured += measured;
    sum.tried += TRIED;
    sum.found += found;
    sum.said += said.movable.min(TRIED);
    sum.said_at_most += said.at_most.min(TRIED);
    Ok(())
}

/// Pins a base page in each of so many percent of the free huge frames, until this is dropped.
fn fragment(bench: &mut Bench, setting: &Setting, percent: u32) -> Result<Option<Helper>> {
    if percent == 0 {
        return Ok(None);
    }
    set_enabled(bench, Enabled::Madvise)?;
    let frames = free_memory::read(Path::new("/proc"))?.huge_pages();
    let pinned = HugePages(frames.0 * u64::from(percent) / 100);
    let (ballast, held) = (HugePages::ZERO, Held::Pinned);
    let part = Part::Fragmenter { ballast, apart: pinned, held };
    Ok(Some(Helper::start(&setting.launcher, part)?))
}
