//! `growing-heap`: how much of a growing heap is on huge pages while it grows (Quicksilver, Figure 2).
//!
//! The paper shows gcc's heap. A first touch gets a huge page only where the whole range is mapped
//! by then, and a heap that grows by little never has it mapped: `brk` in the steps of `malloc`, or
//! mappings of a MiB, one beside the other. The figure itself has no numbers to compare.

use super::support_bench::{Bench, fitting_size, median, rounded, warm};
use super::support_regime::{Khugepaged, Regime};
use super::{Content, Experiment, Line, On, Picture, Progress, Report, Result, Setting};
use crate::helper::{Growth, Helper, Order, Part};
use serde::Serialize;
use std::time::{Duration, Instant};
use superpage_kernel::process::Process;
use superpage_kernel::smaps;
use superpage_units::{Bytes, Nanos};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "growing-heap",
    source: "Quicksilver, Figure 2",
    summary: "Share of a heap on huge pages while it grows through brk and mmap",
    on: On::Live,
    columns: &[
        ("case", "grows by"),
        ("policy", "policy"),
        ("huge_at_25", "huge at 25 %"),
        ("huge_at_50", "at 50 %"),
        ("huge_at_75", "at 75 %"),
        ("huge_at_100", "at 100 %"),
        ("mean_huge", "mean"),
        ("promote_cpu_s", "CPU s to promote"),
    ],
    run: &run,
};

const SIZE: Bytes = Bytes::from_gib(1);
/// What a GiB takes to grow. Chosen, as a compiler's heap does.
const PER_GIB: Duration = Duration::from_secs(20);
/// From one look to the next. Chosen.
const LOOK: Duration = Duration::from_millis(200);

const REGIMES: [Regime; 3] = [Regime::BasePages, Regime::Always, Regime::Superpage];

/// At a moment: how much time has passed, and the heap's memory, all and on huge pages.
#[derive(Clone, Copy, Debug)]
struct Look {
    seconds: f64,
    heap: Bytes,
    huge: Bytes,
}

/// A heap that has grown.
#[derive(Debug)]
struct Grown {
    looks: Vec<Look>,
    cpu: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    huge_at_25: f64,
    huge_at_50: f64,
    huge_at_75: f64,
    huge_at_100: f64,
    mean_huge: f64,
    promote_cpu_s: f64,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = fitting_size(setting, SIZE, 1)?;
    let time = Nanos::from_secs_f64(PER_GIB.as_secs_f64() * mib(size) / mib(Bytes::from_gib(1)));
    let mut bench = Bench::open(setting)?;
    warm(setting, size)?;
    let mut report = Report::default();
    for (case, by) in [("brk", Growth::Brk), ("mmap", Growth::Mmap)] {
        let mut series: Vec<Line> = Vec::new();
        let part = Part::Growing { by, size: size.to_huge_pages(), time };
        for regime in REGIMES {
            let mut rounds = Vec::new();
            for round in 0..setting.rounds {
                let (name, of) = (regime.name(), setting.rounds);
                progress(&format!("{case}: {name}, round {} of {of}", round + 1))?;
                rounds.push(grow(regime, part, &mut bench, setting)?);
            }
            report.push(&row(case, regime, size, &rounds))?;
            series.extend(rounds.first().map(|grown| line(regime.name(), &grown.looks)));
        }
        report.pictures.push(picture(case, series, size));
    }
    report.notes.push(format!(
        "{size} in {:.0} s, evenly. linux: khugepaged at its defaults. The numbers are the share of the \
         heap that is on huge pages when that much of it is there; medians.",
        time.as_secs_f64()
    ));
    Ok(report)
}

fn grow(regime: Regime, part: Part, bench: &mut Bench, setting: &Setting) -> Result<Grown> {
    regime.prepare(bench)?;
    let mut heap = Helper::start(&setting.launcher, part)?;
    let background = regime.begin(setting, heap.pid())?;
    if regime == Regime::Always {
        Khugepaged::Default.set(bench)?;
    }
    let Part::Growing { time, .. } = part else { return Ok(Grown { looks: vec![], cpu: 0.0 }) };
    let process = Process::open(heap.pid())?;
    let before = smaps::of(&process)?;
    heap.order(Order::Go)?;
    let start = Instant::now();
    let mut looks = Vec::new();
    while start.elapsed().as_secs_f64() < time.as_secs_f64() {
        std::thread::sleep(LOOK);
        let now = smaps::of(&process)?;
        looks.push(Look {
            seconds: start.elapsed().as_secs_f64(),
            heap: now.anonymous.saturating_sub(before.anonymous),
            huge: now.anon_huge_pages.unwrap_or(Bytes::ZERO),
        });
    }
    heap.done()?;
    let cpu = background.cpu()?.as_secs_f64();
    background.end()?;
    Ok(Grown { looks, cpu })
}

/// What was on huge pages when the heap had reached a share of `size`.
fn huge_at(looks: &[Look], size: Bytes, share: f64) -> f64 {
    // The last look is just before the end.
    let reached = looks.iter().find(|look| look.heap >= size.scaled(share)).or(looks.last());
    reached.map_or(f64::NAN, |look| look.huge.share_of(look.heap).get())
}

fn row(case: &'static str, regime: Regime, size: Bytes, rounds: &[Grown]) -> Row {
    let at = |share| rounded(median(rounds.iter().map(|g| huge_at(&g.looks, size, share))), 3);
    let mean = |grown: &Grown| {
        let shares = grown.looks.iter().map(|look| look.huge.share_of(look.heap).get());
        shares.sum::<f64>() / grown.looks.len().max(1) as f64
    };
    Row {
        case,
        policy: regime.name(),
        huge_at_25: at(0.25),
        huge_at_50: at(0.5),
        huge_at_75: at(0.75),
        huge_at_100: at(1.0),
        mean_huge: rounded(median(rounds.iter().map(mean)), 3),
        promote_cpu_s: rounded(median(rounds.iter().map(|grown| grown.cpu)), 3),
    }
}

fn mib(bytes: Bytes) -> f64 {
    bytes.0 as f64 / Bytes::from_mib(1).0 as f64
}

fn line(name: &str, looks: &[Look]) -> Line {
    (name.to_owned(), looks.iter().map(|look| (look.seconds, mib(look.huge))).collect())
}

fn picture(case: &str, series: Vec<Line>, size: Bytes) -> Picture {
    Picture {
        file: format!("growing-heap-{case}.svg"),
        title: format!("A heap that grows by {case} to {size}: what is on huge pages"),
        content: Content::Lines {
            x_label: "time (s)".to_owned(),
            y_label: "on huge pages (MiB)".to_owned(),
            series,
        },
    }
}
