//! `quicksilver-table5`: a real Redis that is filled with objects of 4 KB (Redis Cold), on free
//! memory that is fragmented and that is not (Quicksilver, Table 5).
//!
//! The paper fills 16 GB and gives GB/s and the 95th percentile of the latency. Here each policy fills
//! two instances: one as fast as it answers, for the throughput, and one at a fixed rate, for the
//! latency. Frag-50: of the memory that Redis needs half is in huge frames of which a program that does nothing more holds 64 KB,
//! as the authors' does, and so is what else is free; memory beyond that is out of the way. The kernel can move what is held.
//!
//! The paper's Linux "compacts memory immediately when it fails to allocate a superpage" (observation 4): the authors' script sets
//! `defrag` to `always` (System-configs/linux/linux.sh), which Linux had by default up to 4.5. So `linux-defrag-always` is the
//! paper's, and `linux` is the kernel's default with huge pages for everybody.

use super::support_bench::{Bench, fitting_size, rounded, warm};
use super::support_fragments::Fragments;
use super::support_redis::{LOAD, WINDOW, memory_of, micros, middle};
use super::support_regime::{Khugepaged, Regime, in_turn};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::helper::Held;
use crate::load::{Client, Items, Latencies, Redis, Sizes};
use serde::Serialize;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "quicksilver-table5",
    source: "Quicksilver, Table 5",
    summary: "Throughput and latency of a real Redis while it is filled, with memory fragmented and \
              not",
    on: On::Live,
    columns: &[
        ("case", "case"),
        ("policy", "policy"),
        ("throughput", "requests/s"),
        ("throughput_ratio", "over 4 KiB"),
        ("paper_throughput_ratio", "in the paper"),
        ("p95_us", "p95 us"),
        ("p99_us", "p99 us"),
        ("p95_ratio", "p95 over 4 KiB"),
        ("paper_p95_ratio", "in the paper"),
        ("huge_pages", "huge pages"),
        ("fragmented", "fragmented"),
        ("promote_cpu_s", "CPU s to promote"),
    ],
    run: &run,
};

const SIZE: Bytes = Bytes::from_gib(3);
const VALUE: Bytes = Bytes::from_kib(4);
/// What a value takes: jemalloc's class of 5 KB.
const FOOTPRINT: Bytes = Bytes::from_kib(5);

const REGIMES: [Regime; 4] =
    [Regime::BasePages, Regime::Always, Regime::Compacting, Regime::Superpage];
const CASES: [(&str, f64); 2] = [("Frag-0", 0.0), ("Frag-50", 0.5)];

#[derive(Clone, Copy, Debug)]
struct Sample {
    throughput: f64,
    p95: f64,
    p99: f64,
    huge: f64,
    fragmented: f64,
    cpu: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    throughput: f64,
    throughput_gb: f64,
    throughput_ratio: f64,
    paper_throughput_gb: Option<f64>,
    paper_throughput_ratio: Option<f64>,
    rate: f64,
    p95_us: f64,
    p99_us: f64,
    p95_ratio: f64,
    paper_p95_ms: Option<f64>,
    paper_p95_ratio: Option<f64>,
    huge_pages: f64,
    fragmented: f64,
    promote_cpu_s: f64,
    rounds: u32,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    // What one Redis gives back the next one takes, and maybe not all at once.
    let size = fitting_size(setting, SIZE, 2)?;
    let mut bench = Bench::open(setting)?;
    let mut report = Report::default();
    for (case, fragmented) in CASES {
        // Follows from base pages, which come first.
        let mut rate = None;
        let samples = in_turn(REGIMES, setting.rounds, |regime, round| {
            let of = setting.rounds;
            progress(&format!("{case}: {}, round {} of {of}", regime.name(), round + 1))?;
            let trial = Trial { regime, size, fragmented, round };
            trial.run(&mut bench, setting, &mut rate)
        })?;
        for (regime, of_regime) in REGIMES.into_iter().zip(&samples) {
            report.push(&row(case, regime, of_regime, &samples[0], rate.unwrap_or(0.0)))?;
        }
    }
    report.notes.push(format!(
        "{size} of memory in objects of {VALUE}; latency counts from when a request was due, at half of \
         the throughput of linux-4k. linux and linux-defrag-always: khugepaged at its defaults; on the simulated machine \
         they are linux-defrag-madvise and linux. fragmented: the share of the free memory in pieces below 2 MiB \
         (/proc/buddyinfo) when a Redis starts, in the mean of both."
    ));
    report.notes.push(
        "The paper has GB/s and ms; its ratios are derived from them. At Frag-50 its table has less \
         throughput for linux than for linux-4k (0.92 and 1.04 GB/s), its text slightly more."
            .to_owned(),
    );
    Ok(report)
}

/// Two Redis to fill.
struct Trial {
    regime: Regime,
    size: Bytes,
    /// The share of the memory that Redis needs which is to be in pieces.
    fragmented: f64,
    round: u32,
}

/// A Redis that was filled.
struct Filled {
    latencies: Latencies,
    /// The share of the free memory that was in pieces before.
    fragmented: f64,
    /// Its huge pages.
    huge: f64,
    /// The CPU time in the background, in seconds.
    cpu: f64,
}

impl Trial {
    fn run(&self, bench: &mut Bench, setting: &Setting, rate: &mut Option<f64>) -> Result<Sample> {
        let count = self.size.0 / FOOTPRINT.0;
        let fast = self.fill(bench, setting, |client| Ok(client.fill(count, WINDOW)?))?;
        let rate = *rate.get_or_insert(fast.latencies.throughput() * LOAD);
        let seed = setting.seed + u64::from(self.round);
        let steady = self.fill(bench, setting, |client| Ok(client.fill_at(count, rate, seed)?))?;
        Ok(Sample {
            throughput: fast.latencies.throughput(),
            p95: micros(steady.latencies.quantile(0.95)),
            p99: micros(steady.latencies.quantile(0.99)),
            huge: fast.huge,
            fragmented: f64::midpoint(fast.fragmented, steady.fragmented),
            cpu: fast.cpu,
        })
    }

    /// Fills a Redis on memory that is fragmented for it.
    fn fill(
        &self,
        bench: &mut Bench,
        setting: &Setting,
        fill: impl FnOnce(&mut Client) -> Result<Latencies>,
    ) -> Result<Filled> {
        // A Redis that had memory before leaves other pieces of it, and may have had it compacted.
        Regime::BasePages.prepare(bench)?;
        warm(setting, self.size)?;
        let fragments =
            Fragments::make(bench, setting, self.size, (self.fragmented, Held::Movable))?;
        self.regime.prepare(bench)?;
        let items = Items::new(Sizes::all(VALUE), setting.seed + u64::from(self.round));
        let (server, mut client) = Redis::start(items)?;
        let background = self.regime.begin(setting, server.pid())?;
        if self.regime.has_khugepaged() {
            Khugepaged::Default.set(bench)?;
        }
        let latencies = fill(&mut client)?;
        let huge = memory_of(server.pid())?.huge.0 as f64;
        let cpu = background.cpu()?.as_secs_f64();
        client.check(WINDOW)?;
        background.end()?;
        Ok(Filled { latencies, fragmented: fragments.found, huge, cpu })
    }
}

/// GB/s and milliseconds.
fn paper(case: &str, regime: Regime) -> Option<(f64, f64)> {
    match (case, regime) {
        ("Frag-0", Regime::BasePages) => Some((1.04, 5.6)),
        ("Frag-0", Regime::Compacting) => Some((1.34, 4.1)),
        ("Frag-50", Regime::BasePages) => Some((1.04, 5.7)),
        ("Frag-50", Regime::Compacting) => Some((0.92, 10.2)),
        _ => None,
    }
}

fn row(case: &'static str, regime: Regime, samples: &[Sample], base: &[Sample], rate: f64) -> Row {
    let of = |value: fn(&Sample) -> f64| middle(samples, value);
    let over = |value: fn(&Sample) -> f64| rounded(of(value) / middle(base, value), 3);
    let (gb, ms) = paper(case, regime).unzip();
    let (base_gb, base_ms) = paper(case, Regime::BasePages).unzip();
    let ratio = |one: Option<f64>, of: Option<f64>| one.zip(of).map(|(a, b)| rounded(a / b, 2));
    Row {
        case,
        policy: regime.name(),
        throughput: of(|sample| sample.throughput).round(),
        throughput_gb: rounded(of(|sample| sample.throughput) * VALUE.0 as f64 / 1e9, 3),
        throughput_ratio: over(|sample| sample.throughput),
        paper_throughput_gb: gb,
        paper_throughput_ratio: ratio(gb, base_gb),
        rate: rate.round(),
        p95_us: rounded(of(|sample| sample.p95), 1),
        p99_us: rounded(of(|sample| sample.p99), 1),
        p95_ratio: over(|sample| sample.p95),
        paper_p95_ms: ms,
        paper_p95_ratio: ratio(ms, base_ms),
        huge_pages: of(|sample| sample.huge),
        fragmented: rounded(of(|sample| sample.fragmented), 3),
        promote_cpu_s: rounded(of(|sample| sample.cpu), 3),
        rounds: u32::try_from(samples.len()).unwrap_or(u32::MAX),
    }
}
