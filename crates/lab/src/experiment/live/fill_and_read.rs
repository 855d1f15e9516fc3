//! `fill-and-read`: what the daemon costs or gains a real Redis that is filled and then read at once, on
//! a machine with `transparent_hugepage/enabled` at `always`. No paper has it.
//!
//! 700,000 values of 4 KiB are stored, each key once, and then random keys are read, over 10 connections
//! with 8 requests under way on each on average. The kernel gives huge pages at the first touch here, so a
//! daemon that collapses them later instead has to gain more than that costs. Every configuration has a
//! Redis of its own in each round, and is compared with the same round's Redis without a daemon.

use super::support_bench::{Bench, fitting_size, median, rounded, warm};
use super::support_daemon::{Configuration, Daemon};
use super::support_redis::{memory_of, micros, middle};
use super::support_regime::{Khugepaged, in_turn, set_enabled};
use super::support_told::{Told, told_by};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::load::{Items, Latencies, Mix, Redis, Sizes, Window};
use serde::Serialize;
use std::num::NonZeroUsize;
use std::time::Duration;
use superpage_kernel::thp::Enabled;
use superpage_units::{Bytes, HugePages, Nanos};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "fill-and-read",
    source: "no paper",
    summary: "Filling and then reading a real Redis with THP always, beside the daemon and without it",
    on: On::Live,
    columns: &[
        ("case", "requests"),
        ("policy", "configuration"),
        ("rounds", "rounds"),
        ("throughput", "a second"),
        ("throughput_ratio", "over no daemon"),
        ("throughput_ratio_least", "least"),
        ("throughput_ratio_most", "most"),
        ("p50_us", "p50 us"),
        ("p50_ratio", "over no daemon"),
        ("p99_us", "p99 us"),
        ("p99_ratio", "over no daemon"),
        ("huge_pages", "huge pages at the end"),
        ("daemon_cpu", "CPU of the daemon"),
        ("promoted", "promoted"),
        ("split", "split"),
    ],
    run: &run,
};

/// The first is what the others are compared with.
const CONFIGURATIONS: [Configuration; 4] = [
    Configuration::NoDaemon,
    Configuration::Default,
    Configuration::Generous,
    Configuration::BasePages,
];

const VALUE: Bytes = Bytes::from_kib(4);
/// The memory that a value takes: jemalloc puts one of 4 KiB with its head into 5 KiB, and its key and
/// entry take some 100 bytes.
const FOOTPRINT: Bytes = Bytes(5220);
/// 700,000 values.
const SIZE: Bytes = Bytes(700_000 * FOOTPRINT.0);

const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(10).unwrap();
/// As `redis-benchmark -c 10 -P 8` has.
const WINDOW: Window = Window { requests: 80, bytes: Bytes::from_mib(4) };

/// One kind of requests to one Redis.
#[derive(Clone, Copy, Debug)]
struct Phase {
    throughput: f64,
    p50: f64,
    p99: f64,
    /// Huge pages of Redis at its end.
    huge: HugePages,
    /// CPU time of the daemon, as a share of a core.
    cpu: f64,
}

/// One Redis, filled and read.
#[derive(Clone, Copy, Debug)]
struct Sample {
    set: Phase,
    get: Phase,
    /// What the daemon did in both; `None` without a daemon.
    told: Option<Told>,
}

/// One of a sample's phases.
type Of = fn(&Sample) -> Phase;

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    rounds: usize,
    throughput: f64,
    throughput_ratio: f64,
    throughput_ratio_least: f64,
    throughput_ratio_most: f64,
    p50_us: f64,
    p50_ratio: f64,
    p99_us: f64,
    p99_ratio: f64,
    huge_pages: f64,
    daemon_cpu: f64,
    promoted: Option<f64>,
    split: Option<f64>,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    // Huge pages may make it larger.
    let size = fitting_size(setting, SIZE, 2)?;
    // Below a GiB a run is a trial of the experiment, not a measurement.
    let reading = Duration::from_secs(if size < Bytes::from_gib(1) { 1 } else { 10 });
    let trial = Trial { setting, size, reading };
    let mut bench = Bench::open(setting)?;
    let samples = in_turn(CONFIGURATIONS, setting.rounds, |configuration, round| {
        let (name, of) = (configuration.name(), setting.rounds);
        progress(&format!("{name}: round {} of {of}", round + 1))?;
        trial.run(&mut bench, configuration, round)
    })?;
    let mut report = Report::default();
    let cases: [(&str, Of); 2] = [("SET", |sample| sample.set), ("GET", |sample| sample.get)];
    for (case, phase) in cases {
        for (configuration, of_one) in CONFIGURATIONS.into_iter().zip(&samples) {
            report.push(&row((case, phase), configuration, of_one, &samples[0]))?;
        }
    }
    report.notes.push(format!(
        "{} values of {VALUE}, each key set once, then random keys read for {} s; 10 connections, 80 requests \
         under way; enabled = always, khugepaged at its defaults. Every value that was read was right. The \
         ratios are medians over the rounds, each to the same round's Redis without a daemon; what was \
         promoted and split is of both phases.",
        trial.values(),
        reading.as_secs()
    ));
    Ok(report)
}

struct Trial<'a> {
    setting: &'a Setting,
    size: Bytes,
    reading: Duration,
}

impl Trial<'_> {
    fn values(&self) -> u64 {
        self.size.0 / FOOTPRINT.0
    }

    fn run(&self, bench: &mut Bench, configuration: Configuration, round: u32) -> Result<Sample> {
        let seed = self.setting.seed + u64::from(round);
        warm(self.setting, self.size)?;
        set_enabled(bench, Enabled::Always)?;
        Khugepaged::Default.set(bench)?;
        let items = Items::new(Sizes::all(VALUE), seed);
        let (server, mut client) = Redis::start_with(CONNECTIONS, items)?;
        let mut daemon = configuration.start(self.setting, server.pid())?;
        let mut before = cpu_of(daemon.as_ref())?;
        let mut phase = |latencies: Latencies, daemon: Option<&Daemon>| {
            let now = cpu_of(daemon)?;
            let cpu = now - std::mem::replace(&mut before, now);
            Ok::<_, super::Error>(Phase {
                throughput: latencies.throughput(),
                p50: micros(latencies.quantile(0.5)),
                p99: micros(latencies.quantile(0.99)),
                huge: memory_of(server.pid())?.huge,
                cpu: cpu.as_secs_f64() / latencies.wall.as_secs_f64(),
            })
        };
        let set = phase(client.fill(self.values(), WINDOW)?, daemon.as_ref())?;
        let mix = Mix { reads: 1.0, seed };
        let get = phase(client.closed(mix, WINDOW, self.reading)?, daemon.as_ref())?;
        let told = daemon.as_mut().map(told_by).transpose()?;
        Ok(Sample { set, get, told })
    }
}

fn cpu_of(daemon: Option<&Daemon>) -> Result<Nanos> {
    daemon.map_or(Ok(Nanos::ZERO), Daemon::cpu)
}

/// In each round, what `of` says of one sample over what it says of the other.
fn ratios(
    samples: &[Sample],
    base: &[Sample],
    of: impl Fn(&Sample) -> f64,
) -> impl Iterator<Item = f64> {
    samples.iter().zip(base).map(move |(sample, base)| of(sample) / of(base))
}

fn row(
    (case, phase): (&'static str, fn(&Sample) -> Phase),
    configuration: Configuration,
    samples: &[Sample],
    base: &[Sample],
) -> Row {
    let of = |value: fn(&Phase) -> f64| middle(samples, |sample| value(&phase(sample)));
    let over = |value: fn(&Phase) -> f64| ratios(samples, base, move |s| value(&phase(s)));
    let middle_over = |value: fn(&Phase) -> f64| rounded(median(over(value)), 3);
    let throughput: fn(&Phase) -> f64 = |phase| phase.throughput;
    let told = |value: fn(&Told) -> HugePages| {
        let told: Option<Vec<Told>> = samples.iter().map(|sample| sample.told).collect();
        told.map(|told| middle(&told, |told| value(told).0 as f64))
    };
    Row {
        case,
        policy: configuration.name(),
        rounds: samples.len(),
        throughput: of(throughput).round(),
        throughput_ratio: middle_over(throughput),
        throughput_ratio_least: rounded(over(throughput).fold(f64::INFINITY, f64::min), 3),
        throughput_ratio_most: rounded(over(throughput).fold(0.0, f64::max), 3),
        p50_us: rounded(of(|phase| phase.p50), 1),
        p50_ratio: middle_over(|phase| phase.p50),
        p99_us: rounded(of(|phase| phase.p99), 1),
        p99_ratio: middle_over(|phase| phase.p99),
        huge_pages: of(|phase| phase.huge.0 as f64),
        daemon_cpu: rounded(of(|phase| phase.cpu), 4),
        promoted: told(|told| told.promoted),
        split: told(|told| told.split),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(set: f64, get: f64, promoted: Option<u64>) -> Sample {
        let phase = |throughput| Phase {
            throughput,
            p50: 1e4 / throughput,
            p99: 1e5 / throughput,
            huge: HugePages(7),
            cpu: 0.25,
        };
        let told = promoted.map(|huge| Told { promoted: HugePages(huge), ..Told::default() });
        Sample { set: phase(set), get: phase(get), told }
    }

    #[test]
    fn a_round_is_compared_with_the_same_rounds_base() {
        // The machine was twice as fast in the second round and four times in the third.
        let base =
            [sample(100.0, 10.0, None), sample(200.0, 20.0, None), sample(400.0, 40.0, None)];
        let with = [
            sample(90.0, 5.0, Some(3)),
            sample(160.0, 18.0, Some(5)),
            sample(280.0, 44.0, Some(4)),
        ];
        let row = row(("SET", |sample| sample.set), Configuration::Default, &with, &base);
        assert_eq!((row.throughput, row.throughput_ratio), (160.0, 0.8));
        assert_eq!((row.throughput_ratio_least, row.throughput_ratio_most), (0.7, 0.9));
        assert_eq!((row.p50_ratio, row.p99_ratio), (1.25, 1.25));
        assert_eq!((row.huge_pages, row.promoted, row.split), (7.0, Some(4.0), Some(0.0)));
        let row = super::row(("GET", |sample| sample.get), Configuration::NoDaemon, &base, &base);
        assert_eq!((row.throughput, row.throughput_ratio, row.promoted), (20.0, 1.0, None));
    }
}
