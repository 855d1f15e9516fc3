//! `mixed-load`: the whole daemon beside servers under load and programs that come and go, on memory
//! that is nearly full. No paper has it.
//!
//! A Redis, a memcached, a program of which half is bloat and heaps that grow (`support_mix`) take
//! more memory than the high watermark allows. Under the kernel's own policies they run for a few
//! minutes; under the daemon, as its example configuration sets it, for ten minutes each round, so
//! six rounds are an hour. At the end of each round the daemon's log and its metrics are compared.
//! Where less memory than that is asked for or free, the watermarks are lowered with it.

use super::support_bench::{Bench, fitting_size, rounded, warm};
use super::support_daemon::Daemon;
use super::support_mix::{Cycle, Load, Programs, Seen};
use super::support_redis::{memory_of, micros};
use super::support_regime::{Khugepaged, Regime, called, set_enabled};
use super::support_told::{Follower, Told};
use super::{Content, Error, Experiment, Line, On, Picture, Progress, Report, Result, Setting};
use crate::workload::PageSize;
use procfs::{CurrentSI, KernelStats};
use serde::Serialize;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use superpage_kernel::meminfo;
use superpage_kernel::process::Process;
use superpage_kernel::status;
use superpage_kernel::thp::Enabled;
use superpage_manager::free_memory;
use superpage_policy::watermark::Watermarks;
use superpage_units::{Bytes, Nanos, Share};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mixed-load",
    source: "no paper",
    summary: "The whole daemon for ten minutes a round beside Redis, memcached, bloat and growing heaps",
    on: On::Live,
    columns: &[
        ("policy", "policy"),
        ("round", "round"),
        ("seconds", "s"),
        ("stolen", "CPU time stolen"),
        ("most_used", "most used"),
        ("seconds_above_high", "s above high"),
        ("last_used", "used at its end"),
        ("throughput", "requests/s"),
        ("throughput_ratio", "over 4 KiB"),
        ("p50_us", "p50 us"),
        ("p99_us", "p99 us"),
        ("p999_us", "p99.9 us"),
        ("redis_huge", "Redis huge"),
        ("promoted", "promoted"),
        ("split", "split"),
        ("told_alike", "log = metrics"),
        ("daemon_cpu", "CPU of the daemon"),
        ("daemon_bytes", "its memory"),
    ],
    run: &run,
};

/// Of the machine's memory, what all programs take together: more than the high watermark. Chosen.
const FILLED: f64 = 0.83;

const REGIMES: [Regime; 3] = [Regime::BasePages, Regime::Always, Regime::Superpage];

/// How long it takes.
#[derive(Clone, Copy, Debug)]
struct Pacing {
    cycle: Cycle,
    /// A round under the daemon.
    round: Duration,
    /// The only round under a policy of the kernel's.
    other: Duration,
}

impl Pacing {
    /// Below a GiB a run is a trial of the experiment, not a measurement.
    fn of(size: Bytes) -> Self {
        let (closed, open, round, other) =
            if size < Bytes::from_gib(1) { (1, 2, 12, 3) } else { (5, 15, 600, 120) };
        let seconds = Duration::from_secs;
        let cycle = Cycle { closed: seconds(closed), open: seconds(open) };
        Self { cycle, round: seconds(round), other: seconds(other) }
    }
}

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    policy: &'static str,
    round: u32,
    seconds: f64,
    stolen: f64,
    high: f64,
    low: f64,
    most_used: f64,
    last_used: f64,
    seconds_above_high: usize,
    throughput: f64,
    throughput_ratio: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    redis_huge: f64,
    promoted: u64,
    filled_bytes: u64,
    split: u64,
    freed_bytes: u64,
    told_alike: Option<bool>,
    daemon_cpu: f64,
    daemon_bytes: u64,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let memory = meminfo::read(Path::new("/proc"))?;
    let all = memory.total.scaled(FILLED).saturating_sub(memory.used());
    if setting.size.is_none() && all < Bytes::from_gib(1) {
        let (used, total) = (memory.used(), memory.total);
        let what = format!("{used} of {total} are in use: end something, or choose a --size");
        return Err(Error::NotPossible(what));
    }
    let size = fitting_size(setting, all, 1)?;
    let marks = match size < all {
        false => Watermarks::default(),
        true => within(size, memory.used(), memory.total)?,
    };
    let mut bench = Bench::open(setting)?;
    let mut trial = Trial {
        setting,
        size,
        marks,
        pacing: Pacing::of(size),
        load: Load::default(),
        base: None,
        report: Report::default(),
        used: Vec::new(),
    };
    for regime in REGIMES {
        progress(&format!("{}: filling {size} of memory", regime.name()))?;
        warm(setting, size)?;
        regime.prepare(&mut bench)?;
        match regime {
            // memcached does not start where nobody can have huge pages; and Redis asks for none.
            Regime::BasePages => set_enabled(&mut bench, Enabled::Madvise)?,
            _ => Khugepaged::Default.set(&mut bench)?,
        }
        trial.run(regime, progress)?;
    }
    let Trial { mut report, pacing, used, .. } = trial;
    report.notes = notes(size, pacing, marks);
    report.pictures.push(picture(used, marks));
    Ok(report)
}

/// Watermarks that programs of this size pass.
fn within(size: Bytes, used: Bytes, total: Bytes) -> Result<Watermarks> {
    let share = |of: f64| (used + size.scaled(of)).share_of(total);
    Watermarks::new(share(0.85), share(0.7)).map_err(|error| Error::NotPossible(error.to_string()))
}

/// The example configuration says the defaults, so they need not be said; but programs that run already
/// are none of this daemon's, nor are we.
fn configuration(marks: Watermarks) -> Result<String> {
    let us = status::comm(&Process::current()?)?;
    let us = String::from_utf8_lossy(&us);
    let commands = ["redis-server", "memcached", &us];
    let others: Vec<u32> = called(&commands)?.into_iter().map(|pid| pid.0).collect();
    let percent = |share: Share| format!("{:.3}%", share.get() * 100.0);
    Ok(format!(
        "[watermarks]\nhigh = \"{}\"\nlow = \"{}\"\n\
         [processes.include]\ncommands = {commands:?}\n\
         [processes.exclude]\npids = {others:?}\n",
        percent(marks.high()),
        percent(marks.low())
    ))
}

struct Trial<'a> {
    setting: &'a Setting,
    size: Bytes,
    marks: Watermarks,
    pacing: Pacing,
    /// Follows from base pages, which come first.
    load: Load,
    /// The throughput there.
    base: Option<f64>,
    report: Report,
    /// The share of memory in use under the daemon, by minutes.
    used: Vec<(f64, Share)>,
}

/// A daemon that is followed.
struct Followed {
    daemon: Daemon,
    log: Follower,
    /// What it had told, and the CPU time that it had used, when it was looked at last, and when.
    told: Told,
    cpu: Nanos,
    since: Instant,
}

impl Trial<'_> {
    fn run(&mut self, regime: Regime, progress: Progress<'_>) -> Result<()> {
        let mut daemon = match regime {
            Regime::Superpage => Some(self.follow()?),
            _ => None,
        };
        let rounds = if daemon.is_some() { self.setting.rounds } else { 1 };
        let pages = match regime {
            Regime::BasePages => PageSize::Base,
            _ => PageSize::Huge,
        };
        let mut programs = Programs::start(self.setting, self.size, pages)?;
        for round in 1..=rounds {
            let what = format!("{}: round {round} of {rounds}", regime.name());
            let mut go_on = || progress(&what);
            self.round(regime, round, &mut programs, daemon.as_mut(), &mut go_on)?;
        }
        programs.end()?;
        daemon.map_or(Ok(()), |followed| followed.daemon.stop())
    }

    fn follow(&self) -> Result<Followed> {
        let daemon = Daemon::start(self.setting, &configuration(self.marks)?)?;
        let (log, told) = (Follower::new(&daemon), Told::default());
        Ok(Followed { log, daemon, told, cpu: Nanos::ZERO, since: Instant::now() })
    }

    fn round(
        &mut self,
        regime: Regime,
        round: u32,
        programs: &mut Programs,
        mut daemon: Option<&mut Followed>,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let length = if daemon.is_some() { self.pacing.round } else { self.pacing.other };
        let (start, watch, processors) = (Instant::now(), Watch::begin()?, Processors::read()?);
        programs.renew(self.setting)?;
        let mut seen = Seen::nothing()?;
        while start.elapsed() < length {
            go_on()?;
            programs.cycle(self.setting, self.pacing.cycle, &mut self.load, &mut seen)?;
            if let Some(followed) = &mut daemon {
                followed.daemon.check()?;
                followed.log.told()?;
            }
        }
        let (seconds, used) = (start.elapsed().as_secs_f64(), watch.end()?);
        let stolen = Processors::read()?.stolen_since(&processors);
        let redis = memory_of(programs.redis())?;
        let throughput = seen.closed.throughput();
        let base = *self.base.get_or_insert(throughput);
        let mut row = Row {
            case: "mixed",
            policy: regime.name(),
            round,
            seconds: rounded(seconds, 1),
            stolen: rounded(stolen.get(), 4),
            high: rounded(self.marks.high().get(), 4),
            low: rounded(self.marks.low().get(), 4),
            most_used: rounded(used.iter().max().copied().unwrap_or_default().get(), 3),
            last_used: rounded(used.last().copied().unwrap_or_default().get(), 3),
            seconds_above_high: used.iter().filter(|used| **used > self.marks.high()).count(),
            throughput: throughput.round(),
            throughput_ratio: rounded(throughput / base, 3),
            p50_us: rounded(micros(seen.open.quantile(0.5)), 1),
            p99_us: rounded(micros(seen.open.quantile(0.99)), 1),
            p999_us: rounded(micros(seen.open.quantile(0.999)), 1),
            redis_huge: rounded(redis.huge.bytes().share_of(redis.resident).get(), 3),
            promoted: 0,
            filled_bytes: 0,
            split: 0,
            freed_bytes: 0,
            told_alike: None,
            daemon_cpu: 0.0,
            daemon_bytes: 0,
        };
        if let Some(followed) = daemon {
            followed.tell(&mut row)?;
            let minutes = (self.used.len()..).map(|second| second as f64 / 60.0);
            self.used.extend(minutes.zip(used));
        }
        self.report.push(&row)
    }
}

impl Followed {
    /// Writes into the row what it did, and what it took for that, since the last row.
    fn tell(&mut self, row: &mut Row) -> Result<()> {
        let (told, is_alike) = self.log.compared()?;
        let (cpu, now) = (self.daemon.cpu()?, Instant::now());
        let (was, time) = (self.told, now.saturating_duration_since(self.since));
        row.promoted = (told.promoted - was.promoted).0;
        row.filled_bytes = (told.filled - was.filled).0;
        row.split = (told.split - was.split).0;
        row.freed_bytes = (told.freed - was.freed).0;
        row.told_alike = Some(is_alike);
        row.daemon_cpu = rounded((cpu - self.cpu).as_secs_f64() / time.as_secs_f64(), 4);
        row.daemon_bytes = memory_of(self.daemon.pid())?.resident.0;
        (self.told, self.cpu, self.since) = (told, cpu, now);
        Ok(())
    }
}

/// The time of all processors since the machine's start, in ticks.
struct Processors {
    /// The whole time, idle or not.
    all: u64,
    /// Of that, what the host of a virtual machine gave to others while a processor had work.
    stolen: u64,
}

impl Processors {
    fn read() -> Result<Self> {
        let now = KernelStats::current()
            .map_err(|error| Error::NotPossible(format!("/proc/stat cannot be read: {error}")))?
            .total;
        let stolen = now.steal.unwrap_or_default();
        let kernel = now.system + now.irq.unwrap_or_default() + now.softirq.unwrap_or_default();
        let idle = now.idle + now.iowait.unwrap_or_default();
        Ok(Self { all: now.user + now.nice + kernel + idle + stolen, stolen })
    }

    fn stolen_since(&self, before: &Self) -> Share {
        let stolen = self.stolen.saturating_sub(before.stolen) as f64;
        Share::clamped(stolen / self.all.saturating_sub(before.all).max(1) as f64)
    }
}

/// Takes down every second how much of the machine's memory is in use, from 0 to 1.
struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Share>>,
}

impl Watch {
    fn begin() -> Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let look = move || {
            let mut used = Vec::new();
            let second = Duration::from_secs(1);
            while stopped.recv_timeout(second) == Err(RecvTimeoutError::Timeout) {
                used.extend(
                    free_memory::usage_of_machine(Path::new("/proc")).map(|usage| usage.share()),
                );
            }
            used
        };
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(look);
        let thread = thread.map_err(|error| Error::Child(format!("start a thread: {error}")))?;
        Ok(Self { stop, thread })
    }

    fn end(self) -> Result<Vec<Share>> {
        drop(self.stop);
        self.thread.join().map_err(|_| Error::Child("the watch on memory ended early".to_owned()))
    }
}

fn notes(size: Bytes, pacing: Pacing, marks: Watermarks) -> Vec<String> {
    let Cycle { closed, open } = pacing.cycle;
    vec![
        format!(
            "{size} of memory: 12 % a Redis, 18 % a memcached, the rest a program of which half is \
             bloat and that ends and begins anew each round. Redis answers as fast as it can for \
             {} s, then at a quarter of its rate on base pages for {} s while the others work and a \
             heap grows; latency counts from when a request was due. Every value that was read was \
             right.",
            closed.as_secs(),
            open.as_secs()
        ),
        format!(
            "superpage: by the example configuration, watermarks {} and {}; what it did, and its \
             CPU time, from its beginning on, filling included. linux-4k and linux: {} s.",
            marks.high(),
            marks.low(),
            pacing.other.as_secs()
        ),
    ]
}

fn picture(used: Vec<(f64, Share)>, marks: Watermarks) -> Picture {
    let end = used.last().map_or(0.0, |(minute, _)| *minute);
    let percent = |used: Vec<(f64, Share)>| {
        used.into_iter().map(|(minute, share)| (minute, share.get() * 100.0)).collect()
    };
    let across = |name: &str, share: Share| -> Line {
        (name.to_owned(), percent(vec![(0.0, share), (end, share)]))
    };
    Picture {
        file: "mixed-load-memory.svg".to_owned(),
        title: "Memory in use, beside the daemon".to_owned(),
        content: Content::Lines {
            x_label: "time (minutes)".to_owned(),
            y_label: "in use (%)".to_owned(),
            series: vec![
                ("in use".to_owned(), percent(used)),
                across("high watermark", marks.high()),
                across("low watermark", marks.low()),
            ],
        },
    }
}
