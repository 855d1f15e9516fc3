//! Trident's programs, the ways to put them on larger pages, and trials of each program in each way: for
//! `support_figure`, `trident-table3` and `trident-bloat`, which differ in what they look at.

use super::support_bench::{Bench, fitting_size, warm};
use super::support_fragments::Fragments;
use super::support_mapped::Mapped;
use super::support_redis::{READS, WINDOW};
use super::support_regime::{Khugepaged, set_enabled};
use super::support_run::{program_of, read_report, take_gigantic};
use super::{Error, Progress, Result, Setting};
use crate::helper::{Held, Helper, Part};
use crate::liblinear::{Data, Problem, Training};
use crate::load::{Items, Mix, Redis, Sizes};
use crate::program::Program;
use crate::workload::Workload;
use crate::workload::memcached::Memcached;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use superpage_kernel::thp::{self, Enabled, Thp};
use superpage_kernel::{Error as KernelError, hugetlb};
use superpage_units::{Bytes, GIGANTIC_PAGE_BYTES, HUGE_PAGE_BYTES, Nanos, PageSize, Pid};
use tempfile::TempDir;

/// The trials that are to be made.
pub(super) struct Plan {
    /// The programs.
    pub(super) cases: &'static [Case],
    /// The ways to put them on larger pages.
    pub(super) policies: &'static [Policy],
    /// The state of memory before a program starts.
    pub(super) memory: Memory,
    /// The work of a program that has its memory.
    pub(super) work: Work,
}

/// The work of a program that has its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// As many operations as take some seconds on base pages, which are timed.
    Timed,
    /// A few operations: only its memory is looked at.
    Brief,
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
    /// `superpage run --policy trident-faults-only`.
    FaultsOnly,
    /// `superpage run`.
    Trident,
}

/// The path at which Debian's `libmimalloc2.0` puts its library.
const MIMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2";

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

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::BasePages => "linux-4k",
            Self::Linux => "linux",
            Self::GlibcAdvised => "glibc-hugetlb-1",
            Self::GlibcPool => "glibc-hugetlb-2",
            Self::Mimalloc => "mimalloc-1g",
            Self::Hugetlb => "hugetlb-1g",
            Self::FaultsOnly => "trident-faults-only",
            Self::Trident => "trident",
        }
    }

    /// Policies that do not make huge pages of all memory find the machine as distributions have it.
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
        matches!(self, Self::Hugetlb | Self::FaultsOnly | Self::Trident)
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
            Self::Hugetlb | Self::FaultsOnly | Self::Trident => {
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
    pub(super) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Own(Program::Gups) => ("gups", "GUPS"),
            Self::Own(Program::Btree) => ("btree", "Btree"),
            Self::Own(Program::Xsbench) => ("xsbench", "XSBench"),
            Self::Own(Program::Canneal) => ("canneal", "Canneal"),
            // In no figure with these policies.
            Self::Own(Program::Dedup) => ("dedup", ""),
            Self::Own(Program::Sparse) => ("sparse", ""),
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

/// The findings of one run of one program; `seen` is what the experiment looked at when the work was done.
#[derive(Clone, Debug)]
pub(super) struct Trial<T> {
    pub(super) seconds: f64,
    pub(super) seen: T,
    /// A number that is the same for the same work; none where a program has no such number.
    result: Option<u64>,
    /// The report of `superpage run`.
    pub(super) report: Option<Value>,
}

/// The trials of one program.
pub(super) struct Trials<T> {
    pub(super) case: Case,
    pub(super) size: Bytes,
    /// The trials of each way that came to its end at least once.
    pub(super) of: Vec<(Policy, Vec<Trial<T>>)>,
}

/// A program that has done its work, for an experiment to look at.
#[derive(Debug)]
pub(super) struct Resting {
    pub(super) policy: Policy,
    /// Its own process, below whatever started it.
    pid: Pid,
    size: Bytes,
}

/// A program that has done its work, and has its memory until this goes.
struct Worked {
    took: Duration,
    result: Option<u64>,
    pid: Pid,
    program: Running,
}

#[expect(dead_code, reason = "a server or training is only kept, so that it goes on")]
enum Running {
    Own(Helper),
    Memcached(Memcached),
    Redis(Redis),
    Liblinear(Training),
}

/// A program under test.
struct Subject<'a> {
    setting: &'a Setting,
    case: Case,
    size: Bytes,
    work: Work,
    /// The operations that make the work.
    operations: u64,
    /// For liblinear.
    data: Option<Data>,
    /// Gigantic pages that it needs.
    gigantic: u64,
    /// Whether those pages are in the kernel's pool before.
    is_pool_ready: bool,
}

/// Makes the trials of all programs. `look` sees each program at the end of its work. Also notes, in sentences.
pub(super) fn trials<T>(
    plan: &Plan,
    setting: &Setting,
    progress: Progress<'_>,
    mut look: impl FnMut(&mut Bench, &Resting) -> Result<T>,
) -> Result<(Vec<Trials<T>>, Vec<String>)> {
    let mut bench = Bench::open(setting)?;
    let (mut all, mut notes) = (Vec::new(), Vec::new());
    let mut policies = Vec::new();
    for policy in plan.policies.iter().copied() {
        match policy.missing(setting) {
            None => policies.push(policy),
            Some(why) => notes.push(format!("{} is left out: {why}", policy.name())),
        }
    }
    let largest = plan.cases.iter().copied().map(Case::preferred).max().unwrap_or_default();
    let largest = fitting_size(setting, largest, PARTS)?;
    progress("touching free memory")?;
    warm(setting, largest * 2)?;
    let _fragments = match plan.memory {
        Memory::Fragmented(share) => {
            let made = Fragments::make(&mut bench, setting, largest * 2, (share, Held::Pinned))?;
            let percent = (100.0 * made.found).round();
            notes.push(format!("{percent} % of the free memory is in pieces below 2 MiB."));
            Some(made)
        }
        Memory::Whole => {
            take_gigantic(&mut bench, gigantic_for(largest))?;
            None
        }
        Memory::AsItIs => None,
    };
    for case in plan.cases.iter().copied() {
        let name = case.names().0;
        if let Some(package) = case.missing() {
            notes.push(format!("{name} is left out: it needs the Debian package {package}."));
            continue;
        }
        let size = case.size(setting).min(largest);
        let data = match case {
            Case::Liblinear => Some(Data::generate(Problem::Dual, size)?),
            _ => None,
        };
        let is_pool_ready = plan.memory == Memory::Whole;
        let (work, gigantic) = (plan.work, gigantic_for(size));
        let mut subject =
            Subject { setting, case, size, work, operations: FEW, data, gigantic, is_pool_ready };
        if work == Work::Timed {
            progress(&format!("{name}: how much work"))?;
            subject.measure_operations(&mut bench)?;
        }
        let of = subject.measure(&mut bench, &policies, progress, &mut look, &mut notes)?;
        all.push(Trials { case, size, of });
    }
    Ok((all, notes))
}

const fn gigantic_for(size: Bytes) -> u64 {
    (size.0 + SLACK.0).div_ceil(GIGANTIC_PAGE_BYTES)
}

impl Subject<'_> {
    /// Runs all rounds of all policies, another policy first in each round.
    fn measure<T>(
        &self,
        bench: &mut Bench,
        policies: &[Policy],
        progress: Progress<'_>,
        look: &mut impl FnMut(&mut Bench, &Resting) -> Result<T>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<(Policy, Vec<Trial<T>>)>> {
        let name = self.case.names().0;
        let mut of: Vec<_> = policies.iter().map(|policy| (*policy, Vec::new())).collect();
        for round in 0..self.setting.rounds as usize {
            for turn in 0..of.len() {
                let at = (turn + round) % policies.len();
                let (policy, rounds) = (policies[at], self.setting.rounds);
                let what = format!("{name}, {}", policy.name());
                progress(&format!("{what}: round {} of {rounds}", round + 1))?;
                match self.trial(bench, policy, look) {
                    Ok(trial) => of[at].1.push(trial),
                    Err(error) => notes.push(format!("{what} did not come to an end: {error}")),
                }
            }
        }
        let mut results = of.iter().flat_map(|(_, of)| of).filter_map(|trial| trial.result);
        let first = results.next();
        if results.any(|result| Some(result) != first) {
            return Err(Error::Child(format!("{name} has another result under another policy")));
        }
        of.retain(|(_, trials)| !trials.is_empty());
        Ok(of)
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
    fn trial<T>(
        &self,
        bench: &mut Bench,
        policy: Policy,
        look: &mut impl FnMut(&mut Bench, &Resting) -> Result<T>,
    ) -> Result<Trial<T>> {
        policy.prepare(bench)?;
        let pool = match policy {
            Policy::GlibcPool => {
                let pages = (self.size + SLACK).0.div_ceil(HUGE_PAGE_BYTES);
                Some((hugetlb::setting(Path::new("/sys"), PageSize::Huge), pages))
            }
            Policy::Mimalloc if !self.is_pool_ready => {
                Some((hugetlb::setting(Path::new("/sys"), PageSize::Gigantic), self.gigantic))
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
        let trial = self.work(policy, &words).and_then(|worked| {
            let seen = look(bench, &Resting { policy, pid: worked.pid, size: self.size })?;
            let (seconds, result) = (worked.took.as_secs_f64(), worked.result);
            worked.program.end()?;
            Ok(Trial { seconds, seen, result, report: None })
        });
        if let Some((before, path, _)) = &pool {
            bench.settings().change(path, before)?;
        }
        self.check_settings(policy)?;
        let mut trial = trial?;
        if policy.is_run() {
            trial.report = Some(read_report(&report)?);
        }
        Ok(trial)
    }

    /// Another program that sets what we have set would be measured along.
    fn check_settings(&self, policy: Policy) -> Result<()> {
        let sys = Path::new("/sys");
        let what = if Thp::under(sys).get(thp::ENABLED)? != policy.enabled() {
            "transparent_hugepage/enabled"
        } else if self.is_pool_ready && hugetlb::read(sys, PageSize::Gigantic)?.size < self.gigantic
        {
            "the kernel's pool of 1 GiB pages"
        } else {
            return Ok(());
        };
        Err(Error::NotPossible(format!("another program has changed {what} meanwhile")))
    }

    /// Starts the program and has it work.
    fn work(&self, policy: Policy, words: &[String]) -> Result<Worked> {
        let started = |pid| -> Result<Pid> {
            process(policy, pid).map_err(|error| {
                Error::Child(format!("no program below `{}`: {error}", words.join(" ")))
            })
        };
        let seed = self.setting.seed;
        Ok(match self.case {
            Case::Own(program) => {
                let mut helper = self.start(program, words)?;
                let (took, result) = helper.work(self.operations, seed)?;
                let pid = started(helper.pid())?;
                let program = Running::Own(helper);
                Worked { took: seconds(took), result: Some(result), pid, program }
            }
            Case::Memcached => {
                let mut server = Memcached::populate_under(words, self.size)?;
                let timing = server.run(self.operations, seed)?;
                let (took, result) = (seconds(timing.wall), Some(timing.checksum));
                let pid = started(server.pid())?;
                Worked { took, result, pid, program: Running::Memcached(server) }
            }
            Case::Redis => {
                let (server, mut client) = self.start_redis(words)?;
                let time = if self.work == Work::Timed { work_time(self.size) } else { SHORT };
                let throughput = client.closed(self.mix(), WINDOW, time)?.throughput();
                let took = Duration::from_secs_f64(self.operations as f64 / throughput);
                let pid = started(server.pid())?;
                Worked { took, result: None, pid, program: Running::Redis(server) }
            }
            Case::Liblinear => {
                let data = self.data.as_ref().ok_or_else(|| Error::Child("no data".into()))?;
                let mut training = Training::start(data, words)?;
                let pid = training.read(data, |pid| process(policy, pid))?;
                let begun = Instant::now();
                training.trained()?;
                let took = begun.elapsed();
                Worked { took, result: None, pid, program: Running::Liblinear(training) }
            }
        })
    }

    fn start(&self, program: Program, words: &[String]) -> Result<Helper> {
        let part = Part::Program { program, size: self.size };
        Ok(Helper::start_by(&self.setting.launcher, words, part)?)
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

impl Running {
    /// Ends it, in good order where it is ours.
    fn end(self) -> Result<()> {
        match self {
            Self::Own(helper) => Ok(helper.end()?),
            Self::Memcached(_) | Self::Redis(_) | Self::Liblinear(_) => Ok(()),
        }
    }
}

/// A program has settled when its memory was the same for so long. Chosen: khugepaged comes by ten times a second
/// here; the library's thread rests nine times as long as it worked, and zeroing a GiB takes up to three seconds where
/// the host must find the memory. Below a GiB as in [`work_time`].
fn quiet(policy: Policy, size: Bytes) -> Duration {
    let is_long = policy == Policy::Trident && size >= Bytes::from_gib(1);
    Duration::from_secs(if is_long { 30 } else { 2 })
}

/// The longest wait for memory to settle.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time between two looks at a program's memory. Chosen.
const LOOK: Duration = Duration::from_millis(500);
/// A smaller change of a program's memory is its own.
const CHANGE: Bytes = Bytes::from_mib(16);

impl Resting {
    /// The memory of the program's process. Under a policy that enlarges the kernel's pool of gigantic pages, with those
    /// that are free in it.
    pub(super) fn mapped(&self) -> Result<Mapped> {
        let mut mapped = Mapped::of(self.pid)?;
        if matches!(self.policy, Policy::FaultsOnly | Policy::Trident) {
            let free = hugetlb::read(Path::new("/sys"), PageSize::Gigantic)?.free;
            mapped.all += Bytes(free * GIGANTIC_PAGE_BYTES);
        }
        Ok(mapped)
    }

    /// Waits until the memory of a program at rest has settled: the memory then, and how long it took. `meanwhile` is
    /// called before each look. Of a program that does not rest but ends: its memory at first.
    pub(super) fn settled(
        &self,
        mut meanwhile: impl FnMut() -> Result<()>,
    ) -> Result<(Mapped, Duration)> {
        let (begun, mut took) = (Instant::now(), Duration::ZERO);
        let first = self.mapped()?;
        let (mut last, mut latest) = (first, first);
        while begun.elapsed() < (took + quiet(self.policy, self.size)).min(PATIENCE) {
            meanwhile()?;
            std::thread::sleep(LOOK);
            let now = match self.mapped() {
                Ok(now) if now.base > Bytes::ZERO => now,
                Ok(_) | Err(Error::Kernel(KernelError::Gone { .. })) => {
                    return Ok((first, Duration::ZERO));
                }
                Err(error) => return Err(error),
            };
            latest = now;
            if now.differs(last, CHANGE) {
                (last, took) = (now, begun.elapsed());
            }
        }
        Ok((latest, took))
    }
}

fn seconds(time: Nanos) -> Duration {
    Duration::from_nanos(time.0)
}

/// The program's own process: the one that was started, or its child if that is `superpage run`.
fn process(policy: Policy, started: Pid) -> std::io::Result<Pid> {
    if policy.is_run() { program_of(started) } else { Ok(started) }
}
