//! The common part of `trident-fig9`, `trident-fig10` and `three-sizes`: Trident's programs, the ways to put them on
//! larger pages, and a trial of one of each.

use super::support_bench::{Bench, fitting_size, median, rounded, warm};
use super::support_fragments::Fragments;
use super::support_mapped::Mapped;
use super::support_redis::{READS, WINDOW};
use super::support_regime::{Khugepaged, set_enabled};
use super::support_run::{read_report, take_gigantic};
use super::{Error, Progress, Report, Result, Setting};
use crate::helper::{Helper, Part};
use crate::liblinear::{Data, Training};
use crate::load::{Items, Mix, Redis, Sizes};
use crate::program::Program;
use crate::worker::Launcher;
use crate::workload::Workload;
use crate::workload::memcached::Memcached;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use superpage_kernel::hugetlb;
use superpage_kernel::thp::{self, Enabled, Thp};
use superpage_units::{Bytes, GIGANTIC_PAGE_BYTES, HUGE_PAGE_BYTES, Nanos, Pid};
use tempfile::TempDir;

pub(super) const COLUMNS: &[(&str, &str)] = &[
    ("case", "program"),
    ("policy", "policy"),
    ("seconds", "s"),
    ("low", "least"),
    ("high", "most"),
    ("over_4k", "over 4 KiB"),
    ("over_linux", "over THP"),
    ("paper", "in the paper"),
    ("bytes_4k", "on 4 KiB"),
    ("bytes_2m", "on 2 MiB"),
    ("bytes_1g", "on 1 GiB"),
    ("rss_bytes", "in all"),
    ("promotions", "promotions"),
];

/// A figure: its programs, and how memory is before they start.
pub(super) struct Figure {
    pub(super) name: &'static str,
    /// Its programs.
    pub(super) cases: &'static [Case],
    /// The ways to put them on larger pages.
    pub(super) policies: &'static [Policy],
    /// The state of memory before a program starts.
    pub(super) memory: Memory,
    /// Trident's performance over THP in the paper, by the paper's name of a program.
    pub(super) paper: fn(&str) -> Option<f64>,
}

/// The state of memory before a program starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Memory {
    /// Gigantic pages are in the kernel's pool.
    Whole,
    /// This part of the free memory is fragmented.
    Fragmented(f64),
    /// Memory is left as it was found.
    AsItIs,
}

/// How a program comes by its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// `transparent_hugepage/enabled` is never.
    BasePages,
    /// `transparent_hugepage/enabled` is always.
    Linux,
    /// glibc's malloc advises huge pages (MADV_HUGEPAGE).
    GlibcAdvised,
    /// glibc's malloc maps the kernel's pool of huge pages.
    GlibcPool,
    /// Debian's mimalloc takes gigantic pages from the kernel's pool when the program starts.
    Mimalloc,
    /// `superpage run --policy hugetlb-1g`.
    Hugetlb,
    /// `superpage run`.
    Trident,
}

/// The path at which Debian's `libmimalloc2.0` puts its library.
const MIMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2";
/// The kernel's pool of huge pages.
const HUGE_POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

impl Policy {
    pub(super) const ALL: &[Self] = &[
        Self::BasePages,
        Self::Linux,
        Self::GlibcAdvised,
        Self::GlibcPool,
        Self::Mimalloc,
        Self::Hugetlb,
        Self::Trident,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::BasePages => "linux-4k",
            Self::Linux => "linux",
            Self::GlibcAdvised => "glibc-hugetlb-1",
            Self::GlibcPool => "glibc-hugetlb-2",
            Self::Mimalloc => "mimalloc-1g",
            Self::Hugetlb => "hugetlb-1g",
            Self::Trident => "trident",
        }
    }

    /// Those that do not make huge pages of all memory find the machine as distributions have it.
    const fn enabled(self) -> Enabled {
        match self {
            Self::BasePages => Enabled::Never,
            Self::Linux => Enabled::Always,
            _ => Enabled::Madvise,
        }
    }

    /// Sets the machine for a program that is going to start.
    ///
    /// khugepaged is brisk where it counts as part of what is measured: these runs are short, and in a long
    /// one it would come by all memory at its defaults too.
    fn prepare(self, bench: &mut Bench) -> Result<()> {
        set_enabled(bench, self.enabled())?;
        match self {
            Self::Linux | Self::GlibcAdvised => Khugepaged::Brisk.set(bench),
            _ => Khugepaged::Asleep.set(bench),
        }
    }

    const fn is_run(self) -> bool {
        matches!(self, Self::Hugetlb | Self::Trident)
    }

    /// The words of the command that starts a program so; `gigantic` pages are for mimalloc, `report` is where
    /// `superpage run` puts its own.
    fn words(self, setting: &Setting, gigantic: u64, report: &Path) -> Vec<String> {
        let (program, report) =
            (setting.launcher.program.to_string_lossy(), report.to_string_lossy());
        let pages = format!("MIMALLOC_RESERVE_HUGE_OS_PAGES={gigantic}");
        let preload = format!("LD_PRELOAD={MIMALLOC}");
        let words: &[&str] = match self {
            Self::BasePages | Self::Linux => &["env"],
            Self::GlibcAdvised => &["env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"],
            Self::GlibcPool => &["env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=2"],
            Self::Mimalloc => &["env", &pages, &preload],
            Self::Hugetlb | Self::Trident => {
                &[&program, "run", "--quiet", "--report", &report, "--policy", self.name(), "--"]
            }
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// The reason why this cannot be had here, as a sentence.
    fn missing(self, setting: &Setting) -> Option<String> {
        if self == Self::Mimalloc && !Path::new(MIMALLOC).exists() {
            return Some(format!("there is no {MIMALLOC} (Debian package libmimalloc2.0)"));
        }
        let words = self.words(setting, 0, Path::new("/dev/null"));
        let (first, rest) = words.split_first()?;
        let tried = Command::new(first).args(rest).arg("true").output();
        let said = match tried {
            Ok(output) if output.status.success() && output.stderr.is_empty() => return None,
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!(
            "`{} true` said: {}",
            words.join(" "),
            said.lines().next().unwrap_or_default()
        ))
    }
}

/// A program, and the size that it has where nothing else is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Own(Program),
    Memcached,
    Redis,
    Liblinear,
}

impl Case {
    pub(super) const ALL: &[Self] = &[
        Self::Own(Program::Gups),
        Self::Own(Program::Btree),
        Self::Own(Program::Xsbench),
        Self::Own(Program::Canneal),
        Self::Memcached,
        Self::Redis,
        Self::Liblinear,
    ];

    /// The name in rows, and the name in the paper.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Own(Program::Gups) => ("gups", "GUPS"),
            Self::Own(Program::Btree) => ("btree", "Btree"),
            Self::Own(Program::Xsbench) => ("xsbench", "XSBench"),
            Self::Own(Program::Canneal) => ("canneal", "Canneal"),
            Self::Memcached => ("memcached", "Memcached"),
            Self::Redis => ("redis", "Redis"),
            Self::Liblinear => ("liblinear", "SVM"),
        }
    }

    /// Its size if no other is asked for. Chosen: several GiB where they are built in seconds, less where a
    /// server is filled or a file read.
    const fn preferred(self) -> Bytes {
        match self {
            Self::Own(Program::Gups) => Bytes::from_gib(4),
            Self::Own(_) | Self::Memcached => Bytes::from_gib(3),
            Self::Redis => Bytes::from_mib(1536),
            Self::Liblinear => Bytes::from_gib(1),
        }
    }

    /// The size that was asked for, but for liblinear no more than its own: it reads all of its data as text each time.
    fn size(self, setting: &Setting) -> Bytes {
        let asked = setting.size.unwrap_or_else(|| self.preferred());
        if self == Self::Liblinear { asked.min(self.preferred()) } else { asked }
    }

    fn missing(self) -> Option<&'static str> {
        match self {
            Self::Memcached if !Memcached::is_installed() => Some("memcached"),
            Self::Redis if !Redis::is_installed() => Some("redis-server"),
            Self::Liblinear if !Data::is_usable() => Some("liblinear-tools"),
            _ => None,
        }
    }
}

/// Work on base pages takes so long, about. Chosen: a promotion of 150 ms is small beside it. Below a GiB a run is
/// a trial of the experiment, not a measurement.
fn work_time(size: Bytes) -> Duration {
    Duration::from_millis(if size < Bytes::from_gib(1) { 500 } else { 5_000 })
}

/// A run that is long enough to tell the number of operations by.
const SHORT: Duration = Duration::from_millis(200);
/// Operations to begin with, to learn how long they take.
const FEW: u64 = 10_000;
/// The size of a value in Redis. Chosen.
const VALUE: Bytes = Bytes::from_kib(1);
/// The bytes that Redis and its allocator take beside a value, about.
const OVERHEAD: Bytes = Bytes(200);
/// Memory that a program has beside its size, and that an allocator needs to lay it out. Chosen.
const SLACK: Bytes = Bytes::from_gib(1);

/// Memory for so many programs: one and both of the kernel's pools, or one and twice its room in which memory is fragmented.
const PARTS: u64 = 3;

/// The findings of one run of one program.
#[derive(Clone, Debug)]
struct Trial {
    seconds: f64,
    mapped: Mapped,
    /// A number that is the same for the same work; none where a program has no such number.
    result: Option<u64>,
    /// The report of `superpage run`.
    report: Option<Value>,
}

/// A program under test.
struct Subject<'a> {
    setting: &'a Setting,
    case: Case,
    size: Bytes,
    /// The operations that make the work.
    operations: u64,
    /// For liblinear.
    data: Option<Data>,
    /// Gigantic pages that it needs.
    gigantic: u64,
    /// Whether those pages are in the kernel's pool before.
    is_pool_ready: bool,
}

/// Runs the trials of a figure.
pub(super) fn run(figure: &Figure, setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let mut bench = Bench::open(setting)?;
    let mut report = Report::default();
    let mut policies = Vec::new();
    for policy in figure.policies.iter().copied() {
        match policy.missing(setting) {
            None => policies.push(policy),
            Some(why) => report.notes.push(format!("{} is left out: {why}", policy.name())),
        }
    }
    let sizes = figure.cases.iter().copied().map(Case::preferred);
    let largest = sizes.max().unwrap_or_default();
    let largest = fitting_size(setting, largest, PARTS)?;
    progress("touching free memory")?;
    warm(setting, largest * 2)?;
    let _fragments = match figure.memory {
        Memory::Fragmented(share) => {
            let made = Fragments::make(&mut bench, setting, largest * 2, share)?;
            let percent = (100.0 * made.found).round();
            report.notes.push(format!("{percent} % of the free memory is in pieces below 2 MiB."));
            Some(made)
        }
        Memory::Whole => {
            take_gigantic(&mut bench, gigantic_for(largest))?;
            None
        }
        Memory::AsItIs => None,
    };
    for case in figure.cases.iter().copied() {
        if let Some(package) = case.missing() {
            let name = case.names().0;
            report
                .notes
                .push(format!("{name} is left out: it needs the Debian package {package}."));
            continue;
        }
        let size = case.size(setting).min(largest);
        let data = match case {
            Case::Liblinear => Some(Data::generate(size)?),
            _ => None,
        };
        let is_pool_ready = figure.memory == Memory::Whole;
        let gigantic = gigantic_for(size);
        let mut subject =
            Subject { setting, case, size, operations: 0, data, gigantic, is_pool_ready };
        progress(&format!("{}: how much work", case.names().0))?;
        subject.measure_operations(&mut bench)?;
        subject.measure(&mut bench, figure, &policies, progress, &mut report)?;
    }
    report.notes.extend(NOTES.map(str::to_owned));
    Ok(report)
}

const NOTES: [&str; 3] = [
    "Seconds are of the work, without what a program does before it; medians. Over 4 KiB and over THP: the \
     seconds of linux-4k and of linux through these. In the paper: over THP, with 36 threads where it has them.",
    "Bytes are from the program's smaps at the end of the work, gigantic pages that the library holds ready \
     not counted. In all: with those, and under trident with the free pages of the kernel's pool, some of \
     which the experiment took itself where free memory is whole.",
    "The malloc of Debian's Redis is jemalloc, which glibc's variable does not reach. Redis and liblinear have no \
     result to compare; the others' results are the same under all policies.",
];

const fn gigantic_for(size: Bytes) -> u64 {
    (size.0 + SLACK.0).div_ceil(GIGANTIC_PAGE_BYTES)
}

#[derive(Debug, Serialize)]
struct Row {
    experiment: &'static str,
    machine: &'static str,
    case: &'static str,
    policy: &'static str,
    size_bytes: u64,
    seconds: f64,
    low: f64,
    high: f64,
    over_4k: Option<f64>,
    over_linux: Option<f64>,
    paper: Option<f64>,
    bytes_4k: u64,
    bytes_2m: u64,
    bytes_1g: u64,
    rss_bytes: u64,
    rounds: usize,
    /// The promotions of the last round, under `superpage run`.
    promotions: Option<u64>,
    demotions: Option<u64>,
    refused: Option<Value>,
}

impl Subject<'_> {
    /// Runs all rounds of all policies, another policy first in each round.
    fn measure(
        &self,
        bench: &mut Bench,
        figure: &Figure,
        policies: &[Policy],
        progress: Progress<'_>,
        report: &mut Report,
    ) -> Result<()> {
        let (name, of_paper) = self.case.names();
        let mut trials: Vec<Vec<Trial>> = vec![Vec::new(); policies.len()];
        for round in 0..self.setting.rounds as usize {
            for turn in 0..policies.len() {
                let at = (turn + round) % policies.len();
                let (policy, of) = (policies[at].name(), self.setting.rounds);
                progress(&format!("{name}, {policy}: round {} of {of}", round + 1))?;
                match self.trial(bench, policies[at]) {
                    Ok(trial) => trials[at].push(trial),
                    Err(error) => {
                        report
                            .notes
                            .push(format!("{name}, {policy} did not come to an end: {error}"));
                    }
                }
            }
        }
        let mut results = trials.iter().flatten().filter_map(|trial| trial.result);
        let first = results.next();
        if results.any(|result| Some(result) != first) {
            return Err(Error::Child(format!("{name} has another result under another policy")));
        }
        let seconds = |trials: &[Trial]| median(trials.iter().map(|trial| trial.seconds));
        let of = |wanted| policies.iter().position(|policy| *policy == wanted);
        let base = |wanted| of(wanted).map(|at| seconds(&trials[at])).filter(|s| s.is_finite());
        let (base_pages, linux) = (base(Policy::BasePages), base(Policy::Linux));
        for (policy, trials) in policies.iter().zip(&trials).filter(|(_, of)| !of.is_empty()) {
            let of = |what: fn(&Trial) -> f64| median(trials.iter().map(what));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a number of bytes"
            )]
            let bytes = |what: fn(&Trial) -> f64| of(what) as u64;
            let last = trials.last().and_then(|trial| trial.report.as_ref());
            let report_of = |key: &str| last.and_then(|report| report.get(key));
            let took = of(|trial| trial.seconds);
            let all = trials.iter().map(|trial| trial.seconds);
            report.push(&Row {
                experiment: figure.name,
                machine: "live",
                case: name,
                policy: policy.name(),
                size_bytes: self.size.0,
                seconds: rounded(took, 2),
                low: rounded(all.clone().fold(f64::INFINITY, f64::min), 2),
                high: rounded(all.fold(0.0, f64::max), 2),
                over_4k: base_pages.map(|base| rounded(base / took, 3)),
                over_linux: linux.map(|linux| rounded(linux / took, 3)),
                paper: (figure.paper)(of_paper).filter(|_| *policy == Policy::Trident),
                bytes_4k: bytes(|trial| trial.mapped.base.0 as f64),
                bytes_2m: bytes(|trial| trial.mapped.huge.0 as f64),
                bytes_1g: bytes(|trial| trial.mapped.gigantic.0 as f64),
                rss_bytes: bytes(|trial| trial.mapped.all.0 as f64),
                rounds: trials.len(),
                promotions: report_of("promotions").and_then(Value::as_u64),
                demotions: report_of("demotions").and_then(Value::as_u64),
                refused: report_of("refused").cloned(),
            })?;
        }
        Ok(())
    }

    /// Learns how many operations make the work, on base pages.
    fn measure_operations(&mut self, bench: &mut Bench) -> Result<()> {
        Policy::BasePages.prepare(bench)?;
        let words = Policy::BasePages.words(self.setting, 0, Path::new(""));
        let mut timed: Box<dyn FnMut(u64) -> Result<Duration>> = match self.case {
            Case::Own(program) => {
                let mut helper = self.start(program, &words)?;
                Box::new(move |operations| Ok(seconds(helper.work(operations, 0)?.0)))
            }
            Case::Memcached => {
                let mut server = Memcached::populate_under(&words, self.size)?;
                Box::new(move |operations| Ok(seconds(server.run(operations, 0)?.wall)))
            }
            Case::Redis => {
                let (_server, mut client) = self.start_redis(&words)?;
                let count = client.closed(self.mix(), WINDOW, SHORT)?.count();
                let short = SHORT.as_secs_f64();
                self.operations = Bytes(count).scaled(work_time(self.size).as_secs_f64() / short).0;
                return Ok(());
            }
            Case::Liblinear => return Ok(()),
        };
        let mut operations = FEW;
        let mut took = timed(operations)?;
        while took < SHORT {
            operations *= 4;
            took = timed(operations)?;
        }
        drop(timed);
        let times = work_time(self.size).as_secs_f64() / took.as_secs_f64();
        self.operations = Bytes(operations).scaled(times).0;
        Ok(())
    }

    /// Runs one program under one policy, with the pools that this needs.
    fn trial(&self, bench: &mut Bench, policy: Policy) -> Result<Trial> {
        policy.prepare(bench)?;
        let pool = match policy {
            Policy::GlibcPool => {
                let pages = (self.size + SLACK).0.div_ceil(HUGE_PAGE_BYTES);
                Some((PathBuf::from(HUGE_POOL), pages))
            }
            Policy::Mimalloc if !self.is_pool_ready => {
                Some((hugetlb::setting(Path::new("/sys")), self.gigantic))
            }
            _ => None,
        };
        let before =
            |path: &Path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let pool = pool.map(|(path, pages)| (before(&path), path, pages));
        if let Some((_, path, pages)) = &pool {
            // The kernel may find fewer, or none: the program then gets what there is.
            let _ = bench.settings().change(path, &pages.to_string());
        }
        let directory = TempDir::new().map_err(|error| Error::Child(error.to_string()))?;
        let report = directory.path().join("report.json");
        let words = policy.words(self.setting, self.gigantic, &report);
        let mut trial = self.work(policy, &words);
        if let Some((before, path, _)) = &pool {
            bench.settings().change(path, before)?;
        }
        self.check_settings(policy)?;
        if let (Ok(trial), true) = (&mut trial, policy.is_run()) {
            trial.report = Some(read_report(&report)?);
        }
        trial
    }

    /// Another program that sets what we have set would be measured along.
    fn check_settings(&self, policy: Policy) -> Result<()> {
        let sys = Path::new("/sys");
        let what = if Thp::under(sys).get(thp::ENABLED)? != policy.enabled() {
            "transparent_hugepage/enabled"
        } else if self.is_pool_ready && hugetlb::read(sys)?.size < self.gigantic {
            "the kernel's pool of 1 GiB pages"
        } else {
            return Ok(());
        };
        Err(Error::NotPossible(format!("another program has changed {what} meanwhile")))
    }

    /// Starts the program, has it work, and looks at its memory.
    fn work(&self, policy: Policy, words: &[String]) -> Result<Trial> {
        let looked_at = |pid| -> Result<Mapped> {
            let mut mapped = Mapped::of(pid)?;
            if policy == Policy::Trident {
                let free = hugetlb::read(Path::new("/sys"))?.free;
                mapped.all += Bytes(free * GIGANTIC_PAGE_BYTES);
            }
            Ok(mapped)
        };
        let started = |pid| -> Result<Pid> {
            process(policy, pid).map_err(|error| {
                Error::Child(format!("no program below `{}`: {error}", words.join(" ")))
            })
        };
        let seed = self.setting.seed;
        match self.case {
            Case::Own(program) => {
                let mut helper = self.start(program, words)?;
                let (took, result) = helper.work(self.operations, seed)?;
                let mapped = looked_at(started(helper.pid())?)?;
                helper.end()?;
                Ok(Trial {
                    seconds: seconds(took).as_secs_f64(),
                    mapped,
                    result: Some(result),
                    report: None,
                })
            }
            Case::Memcached => {
                let mut server = Memcached::populate_under(words, self.size)?;
                let timing = server.run(self.operations, seed)?;
                let (took, result) = (seconds(timing.wall), Some(timing.checksum));
                let mapped = looked_at(started(server.pid())?)?;
                Ok(Trial { seconds: took.as_secs_f64(), mapped, result, report: None })
            }
            Case::Redis => {
                let (server, mut client) = self.start_redis(words)?;
                let throughput =
                    client.closed(self.mix(), WINDOW, work_time(self.size))?.throughput();
                let mapped = looked_at(started(server.pid())?)?;
                let seconds = self.operations as f64 / throughput;
                Ok(Trial { seconds, mapped, result: None, report: None })
            }
            Case::Liblinear => {
                let data = self.data.as_ref().ok_or_else(|| Error::Child("no data".into()))?;
                let mut training = Training::start(data, words, |pid| process(policy, pid))?;
                let took = training.trained()?;
                let mapped = looked_at(training.pid)?;
                Ok(Trial {
                    seconds: seconds(took).as_secs_f64(),
                    mapped,
                    result: None,
                    report: None,
                })
            }
        }
    }

    fn start(&self, program: Program, words: &[String]) -> Result<Helper> {
        let Launcher { program: us, leading_args } = &self.setting.launcher;
        let (first, rest) = words.split_first().ok_or_else(|| Error::Child("no words".into()))?;
        let mut arguments = rest.to_vec();
        arguments.push(us.to_string_lossy().into_owned());
        arguments.extend_from_slice(leading_args);
        let launcher = Launcher { program: first.into(), leading_args: arguments };
        Ok(Helper::start_under(&launcher, Part::Program { program, size: self.size })?)
    }

    fn start_redis(&self, words: &[String]) -> Result<(Redis, crate::load::Client)> {
        let items = Items::new(Sizes::all(VALUE), self.setting.seed);
        let (server, mut client) = Redis::start_under(words, items)?;
        client.fill(self.size.0 / (VALUE + OVERHEAD).0, WINDOW)?;
        Ok((server, client))
    }

    const fn mix(&self) -> Mix {
        Mix { reads: READS, seed: self.setting.seed }
    }
}

fn seconds(time: Nanos) -> Duration {
    Duration::from_nanos(time.0)
}

/// The program's own process: the one that was started, or its child if that is `superpage run`.
fn process(policy: Policy, started: Pid) -> std::io::Result<Pid> {
    if !policy.is_run() {
        return Ok(started);
    }
    let children = std::fs::read_to_string(format!("/proc/{started}/task/{started}/children"))?;
    let first = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
    first.map(Pid).ok_or_else(|| std::io::ErrorKind::NotFound.into())
}
