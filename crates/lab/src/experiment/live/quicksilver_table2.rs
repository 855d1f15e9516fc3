//! `quicksilver-table2`: memory, throughput and latency of a real Redis after random deletions
//! (Del-70) and with values of random sizes (Range-XL) (Quicksilver, Table 2).
//!
//! The paper gives memory only, and nothing of its own policies. Del-70: objects of 8 KB are stored
//! and 70 % of them, chosen at random, deleted. Range-XL: values of 256 B to 1 MB. Both are scaled
//! to this machine, so compare ratios. Then Redis is left alone until its allocator has given back
//! what it does not use, and only then loaded. Every policy and round has a Redis of its own.

use super::support_bench::{Bench, fitting_size, rounded, warm};
use super::support_redis::{Pacing, WINDOW, load, memory_of, micros, middle};
use super::support_regime::{Khugepaged, Regime, in_turn};
use super::{Content, Experiment, On, Picture, Progress, Report, Result, Setting};
use crate::load::{Items, Redis, Sizes};
use serde::Serialize;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "quicksilver-table2",
    source: "Quicksilver, Table 2",
    summary: "Memory, throughput and latency of a real Redis after deleting 70 % of its objects, and \
              with values of any size up to 1 MB",
    on: On::Live,
    columns: &[
        ("case", "case"),
        ("policy", "policy"),
        ("rss_bytes", "memory"),
        ("memory_ratio", "over 4 KiB"),
        ("paper_memory_gb", "in the paper, GB"),
        ("paper_memory_ratio", "over 4 KiB"),
        ("huge_pages", "huge pages"),
        ("throughput", "requests/s"),
        ("throughput_ratio", "over 4 KiB"),
        ("p50_us", "p50 us"),
        ("p99_us", "p99 us"),
        ("p999_us", "p99.9 us"),
        ("promote_cpu_s", "CPU s to promote"),
    ],
    run: &run,
};

/// What is stored at first. Chosen: twice that and what else runs fit the machine.
const SIZE: Bytes = Bytes::from_mib(3584);

const REGIMES: [Regime; 4] =
    [Regime::BasePages, Regime::FirstTouch, Regime::Always, Regime::Superpage];

/// What Redis is made to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Del70,
    RangeXl,
}

impl Case {
    const ALL: [Self; 2] = [Self::Del70, Self::RangeXl];

    const fn name(self) -> &'static str {
        match self {
            Self::Del70 => "Del-70",
            Self::RangeXl => "Range-XL",
        }
    }

    const fn sizes(self) -> Sizes {
        match self {
            Self::Del70 => Sizes::all(Bytes::from_kib(8)),
            Self::RangeXl => Sizes { least: Bytes(256), most: Bytes::from_mib(1) },
        }
    }

    /// The memory that a value takes, on average: jemalloc puts two of 8 KB with their heads into
    /// five base pages.
    const fn footprint(self) -> Bytes {
        match self {
            Self::Del70 => Bytes::from_kib(10),
            Self::RangeXl => self.sizes().mean(),
        }
    }

    const fn deleted(self) -> f64 {
        match self {
            Self::Del70 => 0.7,
            Self::RangeXl => 0.0,
        }
    }

    /// In GB.
    const fn paper(self, regime: Regime) -> Option<f64> {
        match (self, regime) {
            (Self::Del70, Regime::BasePages) => Some(11.6),
            (Self::Del70, Regime::FirstTouch) => Some(11.7),
            (Self::Del70, Regime::Always) => Some(19.8),
            (Self::RangeXl, Regime::BasePages) => Some(14.4),
            (Self::RangeXl, Regime::FirstTouch) => Some(25.7),
            (Self::RangeXl, Regime::Always) => Some(30.7),
            (_, Regime::Compacting | Regime::Superpage) => None,
        }
    }
}

/// One Redis, filled and loaded.
#[derive(Clone, Copy, Debug)]
struct Sample {
    resident: f64,
    huge: f64,
    throughput: f64,
    p50: f64,
    p99: f64,
    p999: f64,
    cpu: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    rss_bytes: f64,
    memory_ratio: f64,
    paper_memory_gb: Option<f64>,
    paper_memory_ratio: Option<f64>,
    huge_pages: f64,
    throughput: f64,
    throughput_ratio: f64,
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    promote_cpu_s: f64,
    rounds: u32,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    // Huge pages may make it twice as big.
    let size = fitting_size(setting, SIZE, 2)?;
    let pacing = Pacing::of(size);
    let mut bench = Bench::open(setting)?;
    let mut report = Report::default();
    for case in Case::ALL {
        // Follows from base pages, which come first.
        let mut rate = None;
        let samples = in_turn(REGIMES, setting.rounds, |regime, round| {
            let (name, of) = (case.name(), setting.rounds);
            progress(&format!("{name}: {}, round {} of {of}", regime.name(), round + 1))?;
            let trial = Trial { case, regime, size, pacing, round };
            trial.run(&mut bench, setting, &mut rate)
        })?;
        let rate = rate.unwrap_or(0.0);
        for (regime, of_regime) in REGIMES.into_iter().zip(&samples) {
            report.push(&row(case, regime, of_regime, &samples[0], rate))?;
        }
    }
    report.notes = notes(size, pacing);
    report.pictures.push(picture(&report));
    Ok(report)
}

/// One Redis to fill and load.
struct Trial {
    case: Case,
    regime: Regime,
    size: Bytes,
    pacing: Pacing,
    round: u32,
}

impl Trial {
    fn run(&self, bench: &mut Bench, setting: &Setting, rate: &mut Option<f64>) -> Result<Sample> {
        let (case, seed) = (self.case, setting.seed + u64::from(self.round));
        warm(setting, self.size)?;
        self.regime.prepare(bench)?;
        let (server, mut client) = Redis::start(Items::new(case.sizes(), seed))?;
        let background = self.regime.begin(setting, server.pid())?;
        client.fill(self.size.0 / case.footprint().0, WINDOW)?;
        client.delete(case.deleted(), seed, WINDOW)?;
        if self.regime == Regime::Always {
            Khugepaged::Brisk.set(bench)?;
        }
        std::thread::sleep(self.pacing.settle);
        if self.regime == Regime::Always {
            Khugepaged::Default.set(bench)?;
        }
        let memory = memory_of(server.pid())?;
        let (throughput, latencies) = load(&mut client, self.pacing, seed, rate)?;
        let cpu = background.cpu()?.as_secs_f64();
        client.check(WINDOW)?;
        background.end()?;
        let of = |share| micros(latencies.quantile(share));
        Ok(Sample {
            resident: memory.resident.0 as f64,
            huge: memory.huge.0 as f64,
            throughput,
            p50: of(0.5),
            p99: of(0.99),
            p999: of(0.999),
            cpu,
        })
    }
}

fn row(case: Case, regime: Regime, samples: &[Sample], base: &[Sample], rate: f64) -> Row {
    let of = |value: fn(&Sample) -> f64| middle(samples, value);
    let over = |value: fn(&Sample) -> f64| rounded(of(value) / middle(base, value), 3);
    let paper = case.paper(regime);
    let paper_base = case.paper(Regime::BasePages);
    Row {
        case: case.name(),
        policy: regime.name(),
        rss_bytes: of(|sample| sample.resident).round(),
        memory_ratio: over(|sample| sample.resident),
        paper_memory_gb: paper,
        paper_memory_ratio: paper.zip(paper_base).map(|(paper, base)| rounded(paper / base, 2)),
        huge_pages: of(|sample| sample.huge),
        throughput: of(|sample| sample.throughput).round(),
        throughput_ratio: over(|sample| sample.throughput),
        rate: rate.round(),
        p50_us: rounded(of(|sample| sample.p50), 1),
        p99_us: rounded(of(|sample| sample.p99), 1),
        p999_us: rounded(of(|sample| sample.p999), 1),
        promote_cpu_s: rounded(of(|sample| sample.cpu), 3),
        rounds: u32::try_from(samples.len()).unwrap_or(u32::MAX),
    }
}

fn notes(size: Bytes, pacing: Pacing) -> Vec<String> {
    let (settle, open) = (pacing.settle.as_secs(), pacing.open.as_secs());
    vec![
        format!(
            "{size} are stored at first (for Del-70, before 70 % are deleted); the paper's were 12 to 38 GB. Memory is RSS {settle} s after \
             that, the same for all."
        ),
        format!(
            "Latency counts from when a request was due, at half of the throughput of linux-4k, for \
             {open} s at random times; four requests of five read."
        ),
        "linux: khugepaged scans 256 MiB every tenth of a second while memory settles, because at its \
         own pace of 16 MiB every ten seconds it would take an hour; under load it is at its \
         defaults."
            .to_owned(),
    ]
}

fn picture(report: &Report) -> Picture {
    let of = |case: &str, regime: &Regime| {
        let row = report.rows.iter().find(|r| r["case"] == case && r["policy"] == regime.name());
        row.and_then(|row| row["memory_ratio"].as_f64()).unwrap_or(0.0)
    };
    let series = |case: Case| {
        let ratios = REGIMES.iter().map(|regime| of(case.name(), regime)).collect();
        (case.name().to_owned(), ratios)
    };
    Picture {
        file: "quicksilver-table2-memory.svg".to_owned(),
        title: "Memory of Redis, over that on 4 KiB pages".to_owned(),
        content: Content::Bars {
            y_label: "memory (times)".to_owned(),
            categories: REGIMES.iter().map(|regime| regime.name().to_owned()).collect(),
            series: Case::ALL.into_iter().map(series).collect(),
            reference: Some(1.0),
        },
    }
}
