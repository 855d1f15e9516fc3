//! `gigantic-fault`: what the first touch of a GiB takes (Trident, section 5.1.2).
//!
//! The paper's first touch takes 400 ms, and 2.7 ms where a page was zeroed ahead of time. Here a program under
//! `superpage run` maps a GiB and touches it, with a page that was zeroed ahead of time and without; and a
//! program that maps the kernel's own gigantic page (hugetlb) does.

use super::support_bench::{Bench, median, rounded};
use super::support_run::{Managed, take_gigantic};
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use crate::helper::{Helper, Order, Origin, Part};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use superpage_kernel::hugetlb;
use superpage_units::PageSize;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "gigantic-fault",
    source: "Trident, section 5.1.2",
    summary: "What the first touch of a GiB takes: with a page zeroed ahead of time, without, by the kernel",
    on: On::Live,
    columns: &[
        ("case", "page"),
        ("policy", "policy"),
        ("ms", "ms"),
        ("low", "least"),
        ("high", "most"),
        ("over_kernel", "of the kernel's"),
        ("touches", "touches"),
    ],
    run: &run,
};

/// First touches in a round. Chosen.
const TOUCHES: usize = 8;
/// The library zeroes the next page in a tenth of the time at most, so this long it may be at rest before that.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time that the library gets to zero a page once it has taken it.
const ZEROING: Duration = Duration::from_secs(4);
/// Gigantic pages in the pool: a program touches one while the library zeroes another.
const PAGES: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Kernel,
    NotPrepared,
    Prepared,
}

impl Case {
    const ALL: [Self; 3] = [Self::Kernel, Self::NotPrepared, Self::Prepared];

    const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::NotPrepared => "not prepared",
            Self::Prepared => "prepared",
        }
    }
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    ms: f64,
    low: f64,
    high: f64,
    over_kernel: f64,
    touches: usize,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut bench = Bench::open(setting)?;
    take_gigantic(&mut bench, PAGES)?;
    let mut times = Case::ALL.map(|_| Vec::new());
    for round in 1..=setting.rounds {
        for (case, times) in Case::ALL.into_iter().zip(&mut times) {
            progress(&format!("{}: round {round} of {}", case.name(), setting.rounds))?;
            times.extend(trial(setting, case)?);
        }
    }
    let mut report = Report::default();
    let kernel = median(times[0].iter().copied());
    for (case, times) in Case::ALL.into_iter().zip(times) {
        let ms = median(times.iter().copied());
        report.push(&Row {
            case: case.name(),
            policy: if case == Case::Kernel { "hugetlb-1g" } else { "trident" },
            ms: rounded(ms, 3),
            low: rounded(times.iter().copied().fold(f64::INFINITY, f64::min), 3),
            high: rounded(times.iter().copied().fold(0.0, f64::max), 3),
            over_kernel: rounded(ms / kernel, 4),
            touches: times.len(),
        })?;
    }
    report.notes.push(
        "Medians of single first touches, the pages taken into the kernel's pool before. Prepared: the library \
         had zeroed a page since the touch before."
            .to_owned(),
    );
    Ok(report)
}

/// First touches, in milliseconds.
fn trial(setting: &Setting, case: Case) -> Result<Vec<f64>> {
    if case == Case::Kernel {
        let mut helper = Helper::start(&setting.launcher, Part::FirstTouch { from: Origin::Pool })?;
        return (0..TOUCHES).map(|_| touch(&mut helper)).collect();
    }
    let ready = if case == Case::Prepared { "1" } else { "0" };
    let mut managed =
        Managed::start(setting, &["--ready", ready], Part::FirstTouch { from: Origin::Ordinary })?;
    let mut times = Vec::new();
    for _ in 0..TOUCHES {
        if case == Case::Prepared {
            wait_until_ready()?;
        }
        times.push(touch(&mut managed.helper)?);
    }
    let report = managed.end()?;
    let expected = if case == Case::Prepared { TOUCHES } else { 0 };
    let (served, prepared) = (&report["first_touches"], &report["first_touches_prepared"]);
    match *served == TOUCHES && *prepared == expected {
        true => Ok(times),
        false => Err(Error::NotPossible(format!(
            "of {TOUCHES} first touches {served} got a 1 GiB page, {prepared} one that was zeroed ahead"
        ))),
    }
}

/// Waits until the library has taken a page, and zeroed it.
fn wait_until_ready() -> Result<()> {
    let start = Instant::now();
    while hugetlb::read(Path::new("/sys"), PageSize::Gigantic)?.free >= PAGES
        && start.elapsed() < PATIENCE
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(ZEROING);
    Ok(())
}

fn touch(helper: &mut Helper) -> Result<f64> {
    helper.order(Order::Go)?;
    Ok(helper.done()?.as_secs_f64() * 1e3)
}
