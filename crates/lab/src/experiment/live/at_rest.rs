//! `at-rest`: what the daemon costs beside a Redis that does nothing. No paper has it.
//!
//! The Redis is filled beside the daemon, with `transparent_hugepage/enabled` at `always` before the daemon
//! begins, and then left alone. The first minute after that has the daemon's first looks at all of that
//! memory, the second what it goes on to cost. CPU time is told by thread, from
//! `/proc/PID/task/TID/stat`.

use super::support_bench::{Bench, fitting_size, rounded, warm};
use super::support_daemon::{Configuration, Daemon};
use super::support_redis::{Memory, WINDOW, memory_of};
use super::support_regime::{Khugepaged, set_enabled};
use super::support_told::{Follower, Told};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::load::{Items, Redis, Sizes};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use superpage_kernel::process::Process;
use superpage_kernel::status::{self, Stat};
use superpage_kernel::thp::Enabled;
use superpage_kernel::{Error as KernelError, Result as KernelResult};
use superpage_units::{Bytes, Nanos};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "at-rest",
    source: "no paper",
    summary: "What the daemon costs beside a real Redis that does nothing",
    on: On::Live,
    columns: &[
        ("resident_bytes", "Redis"),
        ("huge_share", "on huge pages"),
        ("policy", "configuration"),
        ("round", "round"),
        ("settled", "settled for s"),
        ("seconds", "s"),
        ("daemon_cpu", "CPU of the daemon"),
        ("threads", "by thread"),
        ("daemon_bytes", "its memory"),
        ("promoted", "promoted"),
        ("split", "split"),
    ],
    run: &run,
};

/// What Redis holds; the larger one, or as much as fits.
const SIZES: [Bytes; 2] = [Bytes::from_mib(2355), Bytes::from_gib(16)];

const VALUE: Bytes = Bytes::from_kib(4);
/// The memory that a value takes, as in `fill-and-read`.
const FOOTPRINT: Bytes = Bytes(5220);

const CONFIGURATIONS: [Configuration; 2] = [Configuration::Default, Configuration::Quicksilver];

/// Times that are measured, one after the other. Chosen: see above.
const TIMES: u32 = 2;

#[derive(Debug, Serialize)]
struct Row {
    case: String,
    policy: &'static str,
    round: u32,
    resident_bytes: u64,
    huge_share: f64,
    settled: f64,
    seconds: f64,
    daemon_cpu: f64,
    threads: String,
    daemon_bytes: u64,
    promoted: u64,
    split: u64,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let sizes = match setting.size {
        Some(_) => vec![fitting_size(setting, SIZES[0], 1)?],
        None => SIZES.iter().map(|size| fitting_size(setting, *size, 1)).collect::<Result<_>>()?,
    };
    let mut bench = Bench::open(setting)?;
    let mut report = Report::default();
    for round in 1..=setting.rounds {
        for size in &sizes {
            for configuration in CONFIGURATIONS {
                let trial = Trial { size: *size, configuration, round, setting };
                trial.run(&mut bench, progress, &mut report)?;
            }
        }
    }
    report.notes.push(
        "enabled = always, khugepaged at its defaults; each daemon has a Redis of its own, which is filled \
         with values of 4 KiB beside it. settled: how long Redis has done nothing when the row begins. CPU \
         time is a share of a core; by thread in steps of 10 ms."
            .to_owned(),
    );
    Ok(report)
}

/// One Redis, and the daemon beside it.
struct Trial<'a> {
    size: Bytes,
    configuration: Configuration,
    round: u32,
    setting: &'a Setting,
}

impl Trial<'_> {
    fn run(&self, bench: &mut Bench, progress: Progress<'_>, report: &mut Report) -> Result<()> {
        let Self { size, configuration, round, setting } = *self;
        // Below a GiB a run is a trial of the experiment, not a measurement.
        let length = Duration::from_secs(if size < Bytes::from_gib(1) { 1 } else { 60 });
        let what = format!("{size}, {}, round {round} of {}", configuration.name(), setting.rounds);
        progress(&format!("{what}: filling"))?;
        warm(setting, size)?;
        set_enabled(bench, Enabled::Always)?;
        Khugepaged::Default.set(bench)?;
        let (server, mut client) = Redis::start(Items::new(Sizes::all(VALUE), setting.seed))?;
        let Some(daemon) = configuration.start(setting, server.pid())? else { return Ok(()) };
        client.fill(size.0 / FOOTPRINT.0, WINDOW)?;
        let mut watched = Watched::new(daemon)?;
        for time in 1..=TIMES {
            progress(&format!("{what}: {time} of {TIMES}"))?;
            let seen = watched.rest(length)?;
            report.push(&row(size, configuration, round, &seen, memory_of(server.pid())?))?;
        }
        watched.daemon.stop()
    }
}

/// A daemon whose cost is taken down from time to time.
struct Watched {
    daemon: Daemon,
    log: Follower,
    began: Instant,
    last: Look,
}

/// What it had used, by thread too, and done.
#[derive(Clone, Debug)]
struct Look {
    at: Instant,
    cpu: Nanos,
    threads: BTreeMap<String, Nanos>,
    told: Told,
}

/// A time beside Redis.
#[derive(Clone, Debug)]
struct Seen {
    /// How long Redis had done nothing before.
    settled: Duration,
    before: Look,
    after: Look,
    resident: Bytes,
}

impl Watched {
    fn new(daemon: Daemon) -> Result<Self> {
        let mut log = Follower::new(&daemon);
        let last = look(&daemon, &mut log)?;
        Ok(Self { log, began: last.at, last, daemon })
    }

    /// Lets it run for so long.
    fn rest(&mut self, length: Duration) -> Result<Seen> {
        std::thread::sleep(length);
        self.daemon.check()?;
        let after = look(&self.daemon, &mut self.log)?;
        let before = std::mem::replace(&mut self.last, after.clone());
        let settled = before.at.saturating_duration_since(self.began);
        let resident = memory_of(self.daemon.pid())?.resident;
        Ok(Seen { settled, before, after, resident })
    }
}

fn look(daemon: &Daemon, log: &mut Follower) -> Result<Look> {
    let threads = by_name(threads_of(&Process::open(daemon.pid())?)?);
    Ok(Look { at: Instant::now(), cpu: daemon.cpu()?, threads, told: log.told()? })
}

/// What the kernel says of each thread of a process.
fn threads_of(process: &Process) -> KernelResult<Vec<Stat>> {
    let mut threads = Vec::new();
    for thread in process.threads()? {
        let name = format!("task/{thread}/stat");
        match process.read_file(&name) {
            Ok(text) => threads.push(status::parse_stat(&text, &process.path(&name))?),
            // The thread has ended.
            Err(KernelError::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(threads)
}

/// The CPU time of threads, those of a name together.
fn by_name(threads: Vec<Stat>) -> BTreeMap<String, Nanos> {
    let mut times = BTreeMap::new();
    for thread in threads {
        let name = String::from_utf8_lossy(&thread.comm).into_owned();
        *times.entry(name).or_insert(Nanos::ZERO) += thread.cpu.time();
    }
    times
}

/// The threads that used something, those that used most first.
fn in_words(
    before: &BTreeMap<String, Nanos>,
    after: &BTreeMap<String, Nanos>,
    time: Duration,
) -> String {
    let used = |(name, now): (&String, &Nanos)| {
        let used = now.saturating_sub(before.get(name).copied().unwrap_or(Nanos::ZERO));
        (used > Nanos::ZERO).then(|| (used, name.clone()))
    };
    let mut used: Vec<(Nanos, String)> = after.iter().filter_map(used).collect();
    used.sort_by(|one, other| other.cmp(one));
    let percent = |(used, name): &(Nanos, String)| {
        format!("{name} {:.2} %", used.as_secs_f64() / time.as_secs_f64() * 100.0)
    };
    used.iter().map(percent).collect::<Vec<_>>().join(", ")
}

fn row(size: Bytes, configuration: Configuration, round: u32, seen: &Seen, redis: Memory) -> Row {
    let Seen { settled, before, after, resident } = seen;
    let time = after.at.saturating_duration_since(before.at);
    let cpu = (after.cpu - before.cpu).as_secs_f64();
    Row {
        case: size.to_string(),
        policy: configuration.name(),
        round,
        resident_bytes: redis.resident.0,
        huge_share: rounded(redis.huge.bytes().share_of(redis.resident).get(), 3),
        settled: rounded(settled.as_secs_f64(), 1),
        seconds: rounded(time.as_secs_f64(), 1),
        daemon_cpu: rounded(cpu / time.as_secs_f64(), 5),
        threads: in_words(&before.threads, &after.threads, time),
        daemon_bytes: resident.0,
        promoted: (after.told.promoted - before.told.promoted).0,
        split: (after.told.split - before.told.split).0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use superpage_units::HugePages;

    fn stat(name: &str, ticks: u64) -> Stat {
        let text =
            format!("7 ({name}) S 1 7 7 0 -1 4194304 5 0 0 0 {ticks} 0 0 0 20 0 1 0 99 0 0\n");
        status::parse_stat(text.as_bytes(), Path::new("stat")).expect("a line of stat")
    }

    #[test]
    fn threads_of_a_name_are_added_and_the_dearest_comes_first() {
        let before = by_name(vec![stat("superpage", 10), stat("collapse", 1), stat("collapse", 2)]);
        let after = by_name(vec![
            stat("superpage", 25),
            stat("collapse", 31),
            stat("collapse", 2),
            stat("new one", 1),
            stat("idle", 0),
        ]);
        let words = in_words(&before, &after, Duration::from_secs(10));
        assert_eq!(words, "collapse 3.00 %, superpage 1.50 %, new one 0.10 %");
        assert_eq!(in_words(&after, &after, Duration::from_secs(10)), "");
    }

    #[test]
    fn our_own_threads_are_there() {
        let threads = threads_of(&Process::current().expect("we run")).expect("readable");
        assert!(!threads.is_empty());
    }

    #[test]
    fn a_row_is_of_its_own_time_only() {
        let at = Instant::now();
        let look = |seconds, cpu, promoted| Look {
            at: at + Duration::from_secs(seconds),
            cpu: Nanos(cpu),
            threads: BTreeMap::new(),
            told: Told { promoted: HugePages(promoted), ..Told::default() },
        };
        let seen = Seen {
            settled: Duration::from_secs(60),
            before: look(60, 5_000_000_000, 7),
            after: look(120, 5_300_000_000, 9),
            resident: Bytes::from_mib(8),
        };
        let redis = Memory { resident: HugePages(4).bytes(), huge: HugePages(3) };
        let row = row(Bytes::from_gib(2), Configuration::Default, 1, &seen, redis);
        assert_eq!((row.settled, row.seconds, row.daemon_cpu), (60.0, 60.0, 0.005));
        assert_eq!((row.promoted, row.split, row.huge_share), (2, 0, 0.75));
    }
}
