//! One run of one program, with memory for a part of its own: on swap, in a heap file, or all in memory. Not which
//! runs there are, nor what is made of them.
//!
//! On swap a program is in a memory cgroup with a limit, and a swap file of ours is in use; both go with the trial.

use super::support_bench::{Bench, memory_cgroups, scratch};
use super::support_regime::{Khugepaged, set_enabled};
use super::support_run::{program_of, read_report};
use super::{Error, Result, Setting};
use crate::helper::{Helper, Order, Part, Pattern};
use crate::liblinear::{Data, Training};
use crate::load::{Client, Items, Mix, Redis, Sizes, Window};
use crate::program::Program;
use serde_json::Value;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use superpage_kernel::cgroup::{Group, Scratch};
use superpage_kernel::made::MADE;
use superpage_kernel::process::Process;
use superpage_kernel::status::{self, Ticks};
use superpage_kernel::swap::SwapFile;
use superpage_kernel::thp::Enabled;
use superpage_kernel::{smaps, vmstat};
use superpage_units::{BasePages, Bytes, Nanos, Pid};
use tempfile::TempDir;

/// The limit of a cgroup beyond the part of the data: for page tables, stacks and what the allocator has. Chosen; page
/// tables take 2 MiB for each GiB on base pages.
pub(super) const ALLOWANCE: Bytes = Bytes::from_mib(16);
/// The size of the swap file, in sizes of the program's memory: the kernel keeps what it read back on the disk too as
/// long as half of swap is free.
pub(super) const SWAP: u64 = 2;
/// The size of the heap file beyond the program's memory, for what it allocates and does not use. Chosen.
const HEAP_ROOM: Bytes = Bytes::from_mib(256);
/// The name of the cgroup.
const GROUP: &str = "superpage-lab-heap";
/// The values of a Redis, which jemalloc keeps in blocks of a KiB, with what Redis adds.
const VALUE: Bytes = Bytes(1000);
const BLOCK: Bytes = Bytes(1024);
/// The keys for each request, of those that are timed and of those before. Chosen, so that a trial takes some seconds.
const KEYS_OF_REQUEST: u64 = 2;
/// The requests under way: one on each of the client's connections.
const WINDOW: Window = Window { requests: 8, bytes: Bytes::from_mib(4) };
/// The time between two looks at the statistics of a cgroup. Chosen.
const LOOK: Duration = Duration::from_millis(100);

/// Where the data goes that memory has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Memory has room for all of the data.
    InMemory,
    /// As for a heap, but without one: memory has room for all of the data.
    NoHeap,
    /// The data goes to swap.
    Swap(Swap),
    /// The data goes to a heap file, by `superpage run --heap`.
    XHeap,
}

/// The kernel's settings for swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Swap {
    name: &'static str,
    enabled: Enabled,
    /// The kernel reads two to the power of this many pages at once (`vm.page-cluster`).
    cluster: &'static str,
}

impl Policy {
    /// The policies that programs with memory for a part of their own are compared by.
    pub(super) const FOR_A_PART: [Self; 6] = [
        Self::InMemory,
        Self::swap("swap-4k-3", Enabled::Never, "3"),
        Self::swap("swap-4k-0", Enabled::Never, "0"),
        Self::swap("swap-thp-3", Enabled::Always, "3"),
        Self::swap("swap-thp-0", Enabled::Always, "0"),
        Self::XHeap,
    ];

    const fn swap(name: &'static str, enabled: Enabled, cluster: &'static str) -> Self {
        Self::Swap(Swap { name, enabled, cluster })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::InMemory => "in-memory",
            Self::NoHeap => "no-heap",
            Self::Swap(Swap { name, .. }) => name,
            Self::XHeap => "xheap",
        }
    }

    pub(super) const fn is_swap(self) -> bool {
        matches!(self, Self::Swap(_))
    }

    /// Sets the machine for a program that is going to start.
    pub(super) fn prepare(self, bench: &mut Bench) -> Result<()> {
        let (enabled, khugepaged) = match self {
            // Data that is all in memory is the base, so it has huge pages from the first touch on.
            Self::InMemory => (Enabled::Always, Khugepaged::Asleep),
            Self::Swap(Swap { enabled: Enabled::Never, .. }) => {
                (Enabled::Never, Khugepaged::Asleep)
            }
            Self::Swap(Swap { enabled, .. }) => (enabled, Khugepaged::Default),
            // The machine as distributions have it.
            Self::NoHeap | Self::XHeap => (Enabled::Madvise, Khugepaged::Asleep),
        };
        set_enabled(bench, enabled)?;
        if let Self::Swap(Swap { cluster, .. }) = self {
            bench.settings().change(Path::new("/proc/sys/vm/page-cluster"), cluster)?;
        }
        khugepaged.set(bench)
    }
}

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// A program fills its data, makes a pass that is not timed, so that it finds memory as any later pass does, and
    /// one that is.
    Passes(Pattern),
    /// A program builds its data, and does so many operations, which are timed.
    Program(Program, u64),
    /// liblinear reads rows and trains, both of which are timed.
    Train,
    /// Redis is filled by a client outside its cgroup, asked for values or told new ones, and then once more, which is
    /// timed.
    Redis(Ask),
}

/// The requests to a Redis, always about keys that are all as likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// The value of a key.
    Get,
    /// To keep a new value for a key.
    Set,
}

impl Ask {
    const fn mix(self, seed: u64) -> Mix {
        let reads = match self {
            Self::Get => 1.0,
            Self::Set => 0.0,
        };
        Mix { reads, seed }
    }
}

/// A program, and the memory that it has.
#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    pub(super) setting: &'a Setting,
    pub(super) job: Job,
    /// The size of the data, about.
    pub(super) size: Bytes,
    /// The rows for a training.
    pub(super) data: Option<&'a Data>,
    /// The program's memory, where it has as much as it wants.
    pub(super) whole: Bytes,
    /// The memory that it has.
    pub(super) memory: Bytes,
}

/// The findings of a trial.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// The time on the wall of what is timed.
    pub(super) took: Duration,
    /// The resources that this took.
    pub(super) used: Usage,
    /// The part of the resident data that is on huge pages.
    pub(super) huge: f64,
    pub(super) faults: u64,
    pub(super) p99_fault_us: Option<f64>,
    /// The time in which 99 of 100 requests were answered.
    pub(super) p99_request_us: Option<f64>,
    /// The most memory that the program ever had.
    pub(super) peak: Option<Bytes>,
    /// The program's result, the same under all policies.
    pub(super) result: Option<u64>,
}

/// Resources that a process has used so far, and the kernel for swap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// CPU time in user space, of all threads.
    pub(super) user: Nanos,
    /// CPU time in the kernel, of all threads.
    pub(super) system: Nanos,
    major_faults: u64,
    /// The bytes that the process read from disks.
    pub(super) read: Bytes,
    /// The bytes that the process wrote to disks. Pages that the kernel swaps out do not count.
    pub(super) written: Bytes,
    /// The bytes that the kernel read from swap, on the whole machine.
    swapped_in: Bytes,
    /// The bytes that the kernel wrote to swap, on the whole machine.
    swapped_out: Bytes,
}

impl Usage {
    /// The resources that a process will have used when it starts.
    fn of_none() -> Result<Self> {
        let counters = vmstat::read(Path::new("/proc"))?;
        let pages = |counter| BasePages(counters.get(counter).unwrap_or(0)).bytes();
        let (swapped_in, swapped_out) = (pages("pswpin"), pages("pswpout"));
        Ok(Self { swapped_in, swapped_out, ..Self::default() })
    }

    fn of(pid: Pid) -> Result<Self> {
        let explain = |error: procfs::ProcError| Error::Child(format!("what it uses: {error}"));
        let process = procfs::process::Process::new(pid.0.cast_signed()).map_err(explain)?;
        let (stat, io) = (process.stat().map_err(explain)?, process.io().map_err(explain)?);
        let time = |ticks| Ticks(ticks).time();
        Ok(Self {
            user: time(stat.utime),
            system: time(stat.stime),
            major_faults: stat.majflt,
            read: Bytes(io.read_bytes),
            written: Bytes(io.write_bytes),
            ..Self::of_none()?
        })
    }

    const fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            major_faults: self.major_faults - before.major_faults,
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
            swapped_in: self.swapped_in.saturating_sub(before.swapped_in),
            swapped_out: self.swapped_out.saturating_sub(before.swapped_out),
        }
    }
}

/// A program that was started. Dropping it kills it.
enum Running {
    Passes(Helper, Pattern),
    /// With the number of operations.
    Program(Helper, u64),
    /// With what was used before.
    Training(Training, Usage),
    Redis(Box<(Redis, Client)>, Ask),
}

impl Running {
    /// The process that was started, which may be one above the program's own.
    fn pid(&self) -> Pid {
        match self {
            Self::Passes(helper, _) | Self::Program(helper, _) => helper.pid(),
            Self::Training(training, _) => training.pid(),
            Self::Redis(server, _) => server.0.pid(),
        }
    }

    /// Has the program do its job. `process` finds its own process by the one that was started.
    fn work(&mut self, seed: u64, process: impl Fn(Pid) -> io::Result<Pid>) -> Result<Sample> {
        let explain = |error| Error::Child(format!("the program's process: {error}"));
        let used = |pid| Usage::of(process(pid).map_err(explain)?);
        let sample = |took: Nanos, used| Sample {
            took: Duration::from_nanos(took.0),
            used,
            ..Sample::default()
        };
        match self {
            Self::Passes(helper, pattern) => {
                helper.done_with(Order::Go)?;
                helper.done_with(Order::Pass { seed })?;
                let before = used(helper.pid())?;
                let took = helper.done_with(Order::Pass { seed: seed.wrapping_add(1) })?;
                let used = used(helper.pid())?.since(before);
                // A pass that reads has compared what it read.
                if *pattern == Pattern::SequentialWrite {
                    helper.done_with(Order::Check)?;
                }
                Ok(sample(took, used))
            }
            Self::Program(helper, operations) => {
                let before = used(helper.pid())?;
                let (took, result) = helper.work(*operations, seed)?;
                let used = used(helper.pid())?.since(before);
                Ok(Sample { result: Some(result), ..sample(took, used) })
            }
            Self::Training(training, before) => {
                let took = training.trained()?;
                let used = used(training.pid())?.since(*before);
                Ok(Sample { took, used, ..Sample::default() })
            }
            Self::Redis(server, ask) => {
                let (server, client) = &mut **server;
                let count = client.items().count() as u64 / KEYS_OF_REQUEST;
                client.ask(count, ask.mix(seed), WINDOW)?;
                let before = used(server.pid())?;
                let answered = client.ask(count, ask.mix(seed.wrapping_add(1)), WINDOW)?;
                let used = used(server.pid())?.since(before);
                let p99 = answered.quantile(0.99).0 as f64 / 1e3;
                Ok(Sample { p99_request_us: Some(p99), ..sample(answered.wall, used) })
            }
        }
    }

    /// Ends it in good order. The program's result, if it has that at its end.
    fn end(self) -> Result<Option<u64>> {
        Ok(match self {
            Self::Passes(helper, _) | Self::Program(helper, _) => helper.end().map(|()| None)?,
            Self::Training(training, _) => Some(training.ended()?),
            // Dropping it ends it in good order.
            Self::Redis(..) => None,
        })
    }
}

impl Trial<'_> {
    pub(super) fn run(&self, policy: Policy, bench: &mut Bench) -> Result<Sample> {
        policy.prepare(bench)?;
        match policy {
            Policy::InMemory | Policy::NoHeap => self.in_memory(),
            Policy::Swap(_) => self.on_swap(),
            Policy::XHeap => self.in_heap(),
        }
    }

    /// The most memory that the program ever has, on base pages, where it has as much as it wants.
    pub(super) fn measure(&self, bench: &mut Bench) -> Result<Bytes> {
        set_enabled(bench, Enabled::Never)?;
        let mut running = self.start(&[])?;
        self.work(&mut running, Ok)?;
        let peak = status::of(&Process::open(running.pid())?)?.peak_rss;
        running.end()?;
        peak.ok_or_else(|| Error::NotPossible("this kernel does not tell a process's peak".into()))
    }

    fn in_memory(&self) -> Result<Sample> {
        let mut running = self.start(&[])?;
        let sample = self.work(&mut running, Ok)?.of_kernel(running.pid())?;
        let result = running.end()?.or(sample.result);
        Ok(Sample { result, ..sample })
    }

    /// The program ends before its cgroup and the swap file go, also where something fails.
    fn on_swap(&self) -> Result<Sample> {
        let _swap = swap_file(self.setting, Bytes(self.whole.0 * SWAP))?;
        let group = group(self.setting)?;
        group.limit(self.memory + ALLOWANCE)?;
        while_counted(group.group(), || {
            let mut running = self.start(&group.words())?;
            let sample = self.work(&mut running, Ok)?.of_kernel(running.pid())?;
            let used = sample.used;
            let used = Usage { read: used.swapped_in, written: used.swapped_out, ..used };
            let peak = group.group().peak().ok();
            let result = running.end()?.or(sample.result);
            Ok(Sample { used, peak, result, ..sample })
        })
    }

    /// Under `superpage run --heap`, whose report is of the whole run.
    fn in_heap(&self) -> Result<Sample> {
        let explain = |error: io::Error| Error::Child(format!("a directory: {error}"));
        let directory = TempDir::new_in(&self.setting.directory).map_err(explain)?;
        let report = directory.path().join("report.json");
        // The group has no limit: it only counts, and from the start on, because memory is prepared then.
        let group = group(self.setting)?;
        let mut words = group.words();
        let program = self.setting.launcher.program.to_string_lossy().into_owned();
        words.extend([program, "run".into(), "--quiet".into(), "--report".into()]);
        words.push(report.to_string_lossy().into_owned());
        words.extend(heap_options(directory.path(), self.memory, self.whole));
        words.push("--".to_owned());
        let mut running = self.start(&words)?;
        let sample = self.work(&mut running, program_of)?;
        let peak = group.group().peak().ok();
        let result = running.end()?.or(sample.result);
        Ok(Sample { peak, result, ..sample.of_heap(&read_report(&report)?["heap"])? })
    }

    /// Starts the program by the words of a command, without words by itself.
    fn start(&self, words: &[String]) -> Result<Running> {
        let helper = |part| Helper::start_by(&self.setting.launcher, words, part);
        let size = self.size;
        Ok(match self.job {
            Job::Passes(pattern) => {
                let part = Part::Passes { pattern, size: size.to_huge_pages() };
                Running::Passes(helper(part)?, pattern)
            }
            Job::Program(program, operations) => {
                Running::Program(helper(Part::Program { program, size })?, operations)
            }
            Job::Train => {
                let before = Usage::of_none()?;
                let data = self.data.ok_or_else(|| Error::Child("no data".into()))?;
                Running::Training(Training::start(data, words)?, before)
            }
            Job::Redis(ask) => {
                let items = Items::new(Sizes::all(VALUE), self.setting.seed);
                let (server, mut client) = Redis::start_under(words, items)?;
                client.fill(size.0 / BLOCK.0, WINDOW)?;
                Running::Redis(Box::new((server, client)), ask)
            }
        })
    }

    fn work(
        &self,
        running: &mut Running,
        process: impl Fn(Pid) -> io::Result<Pid>,
    ) -> Result<Sample> {
        running.work(self.setting.seed.wrapping_mul(2), process)
    }
}

impl Sample {
    /// With what there is to know of a program that the kernel manages, and that is still there.
    fn of_kernel(self, pid: Pid) -> Result<Self> {
        let memory = smaps::of(&Process::open(pid)?)?;
        let huge = memory.anon_huge_pages.unwrap_or(Bytes::ZERO);
        let huge = huge.share_of(memory.anonymous).get();
        Ok(Self { huge, faults: self.used.major_faults, ..self })
    }

    /// With what there is to know of a program under `superpage run --heap`; `heap` is the object in its report.
    fn of_heap(self, heap: &Value) -> Result<Self> {
        let missing = |key| Error::Child(format!("the report has no heap.{key}"));
        let number = |key: &'static str| heap[key].as_f64().ok_or_else(|| missing(key));
        let count = |key: &'static str| heap[key].as_u64().ok_or_else(|| missing(key));
        Ok(Self {
            huge: number("huge_share")?,
            faults: count("huge_faults")? + count("base_faults")?,
            p99_fault_us: Some(number("p99_fault_us")?),
            ..self
        })
    }
}

/// Does `work` while the statistics of a group are read again and again. Without that Linux 6.18 takes a group for
/// larger than its lists of pages are, finds nothing to reclaim and kills, though swap is free (measured: 12 of 14
/// trainings of liblinear in a v1 group; none of 16 with it).
pub(super) fn while_counted<T>(group: &Group, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (working, ended) = channel::<()>();
        scope.spawn(move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                // Reading them is all that is wanted.
                let _ = group.usage();
            }
        });
        let _working = working;
        work()
    })
}

/// A memory cgroup of its own for one run.
pub(super) fn group(setting: &Setting) -> Result<Scratch> {
    scratch(setting, &memory_cgroups()?, GROUP)
}

/// A file of this size that the kernel swaps to, on the disk that the experiment is about.
pub(super) fn swap_file(setting: &Setting, size: Bytes) -> Result<SwapFile> {
    Ok(SwapFile::create(&setting.directory, size, &setting.state.join(MADE))?)
}

/// The options by which `superpage run` keeps data in a file below `directory`.
pub(super) fn heap_options(directory: &Path, memory: Bytes, size: Bytes) -> [String; 6] {
    let heap = directory.to_string_lossy().into_owned();
    let (memory, heap_size) = (memory.0.to_string(), (size + HEAP_ROOM).0.to_string());
    ["--heap".into(), heap, "--memory".into(), memory, "--heap-size".into(), heap_size]
}

/// The reason why `superpage run --heap` does not work here.
pub(super) fn without_heap(setting: &Setting) -> Option<String> {
    let directory = TempDir::new_in(&setting.directory).map_err(|error| error.to_string());
    let tried = directory.and_then(|directory| {
        let least = Bytes::from_mib(64);
        Command::new(&setting.launcher.program)
            .args(["run", "--quiet"])
            .args(heap_options(directory.path(), least, least))
            .args(["--", "true"])
            .output()
            .map_err(|error| error.to_string())
    });
    let said = match tried {
        Ok(output) if output.status.success() && output.stderr.is_empty() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error,
    };
    let said = said.lines().next().unwrap_or_default();
    Some(format!("`superpage run --heap {}` said: {said}", setting.directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_a_heap_is_an_error() {
        let heap = serde_json::json!({
            "huge_faults": 3, "base_faults": 4, "soft_faults": 9, "promotions": 1, "read_bytes": 5,
            "written_bytes": 6, "huge_share": 0.98, "p99_fault_us": 1300.5
        });
        let sample = Sample::default().of_heap(&heap).expect("a report");
        assert_eq!((sample.faults, sample.huge, sample.p99_fault_us), (7, 0.98, Some(1300.5)));
        assert!(Sample::default().of_heap(&Value::Null).is_err());
    }
}
