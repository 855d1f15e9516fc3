//! The command line: one table that gives parsing, help, the man pages and the completions.

pub(crate) mod graph;

use crate::command::log;
use crate::exit;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;
use superpage_lab::experiment::On;
use superpage_launch::{MOST_READY, OFF};
use superpage_manager::config::parse_percent;
use superpage_manager::history::What;
use superpage_policy::debloat::emd::EMD;
use superpage_policy::debloat::list::{Entry, Registry};
use superpage_policy::promotion::list;
use superpage_policy::watermark::Watermarks;
use superpage_sim::profile::Profile;
use superpage_sim::trace::candidate::Candidate;
use superpage_sim::trace::replay;
use superpage_units::{
    BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HUGE_PAGE_BYTES, HugePages, Pid, Share,
};

/// Manage huge pages from user space, on the stock Linux kernel.
///
/// Makes huge pages of programs' memory as they use it, while memory is free, finds what huge pages
/// waste (base pages that hold nothing but zeroes), and reclaims it in the order that costs the
/// programs least.
#[derive(Debug, Parser)]
#[command(name = "superpage", version, after_help = exit::TABLE, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say what this kernel and these rights allow, and what to do about the rest
    Doctor(Doctor),
    /// Show huge pages and the bloat in them, of all processes or of one
    Scan(Scan),
    /// Split the huge pages that waste most and free what they waste
    Debloat(Debloat),
    /// Make huge pages of the memory of processes, once, now
    Promote(Promote),
    /// Run a program on 4 KiB, 2 MiB and 1 GiB pages at once
    Run(Run),
    /// Show how the heap of a program under `run --heap` stands, or change how much of it is in memory
    Heap(Heap),
    /// Promote while memory is free, and reclaim bloat when it gets short
    Daemon(Daemon),
    /// Watch huge pages, bloat and what the daemon does, in the terminal
    Top(Top),
    /// Show what the daemon did, and why
    Log(Log),
    /// Write down what a live process has mapped, to replay it under other policies
    Record(Record),
    /// Replay a recorded process under any policies, and say what each would cost
    Sim(Sim),
    /// Make, read and time graphs, with chosen arrays on huge pages
    Graph(graph::Graph),
    /// Put back what a run that was killed left changed
    Restore(Restore),
    /// Reproduce the tables and figures of the papers
    Lab(Lab),
    /// Print completions for a shell
    Completions(Completions),
    /// Write the man pages into a directory
    Man(Man),
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print one JSON object per ability
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `scan`.
#[derive(Debug, Args)]
#[command(after_help = "Densities are estimated from 24 of the 512 base pages of each huge page; \
                        --exact reads all of them. Nothing is changed.")]
pub(crate) struct Scan {
    /// The process to look into; without one, all processes that hold huge pages
    #[arg(value_name = "PID", value_parser = pid)]
    pub(crate) pid: Option<Pid>,
    /// Read every base page instead of a sample
    #[arg(long)]
    pub(crate) exact: bool,
    /// Draw bloat by address into this file (needs a PID)
    #[arg(long, value_name = "FILE", requires = "pid", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
    /// Print JSON: one object per process, or with a PID one per huge page
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `debloat`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("amount").required(true),
          after_help = "khugepaged may rebuild what is split here; `superpage daemon` holds it back.")]
pub(crate) struct Debloat {
    /// The processes to de-bloat
    #[arg(required = true, value_name = "PID", value_parser = pid)]
    pub(crate) pids: Vec<Pid>,
    /// Free this much memory: a size such as 512M, 1.5GiB (units are binary)
    #[arg(long, value_name = "SIZE", value_parser = size, group = "amount",
          allow_hyphen_values = true)]
    pub(crate) free: Option<Bytes>,
    /// Free this much of the memory that the processes hold in huge pages, such as 20%
    #[arg(long, value_name = "PERCENT", value_parser = percent, group = "amount",
          allow_hyphen_values = true)]
    pub(crate) fraction: Option<Share>,
    /// Free all bloat there is
    #[arg(long, group = "amount")]
    pub(crate) all: bool,
    /// Which policy decides the order
    #[arg(long, default_value = EMD.name, value_parser = debloaters())]
    pub(crate) policy: Entry,
    /// Huge pages that a process gives up in one turn, when there are several processes
    #[arg(long, value_name = "N", default_value = "100", value_parser = quantum)]
    pub(crate) quantum: HugePages,
    /// Hold khugepaged back meanwhile and for so long afterwards, such as 10min, so that what was freed stays free; Ctrl-C ends it
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) hold: Option<Duration>,
    /// Only look and decide; change nothing
    #[arg(long, conflicts_with = "hold")]
    pub(crate) dry_run: bool,
    /// Print one JSON object per process instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `promote`.
#[derive(Debug, Args)]
#[command(after_help = "What is empty of a range is filled with zeroes, which takes memory: \
                        `superpage debloat` reclaims it. A program that forbade itself huge pages \
                        (Redis, unless its configuration says `disable-thp no`) cannot be given \
                        any.")]
pub(crate) struct Promote {
    /// The processes to promote
    #[arg(required = true, value_name = "PID", value_parser = pid)]
    pub(crate) pids: Vec<Pid>,
    /// Leave PMD ranges alone that have fewer of their 512 base pages present
    #[arg(long, value_name = "N", default_value = "64", value_parser = least)]
    pub(crate) least: BasePages,
    /// Add no memory while more than this share of the machine's is in use
    #[arg(long, value_name = "PERCENT", default_value = "95%", value_parser = percent)]
    pub(crate) max_used: Share,
    /// Only look; change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object per process instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(
    after_help = "The program is not changed: libraries of ours are loaded into it, which place its large \
                  private mappings and what it allocates so that 1 GiB pages fit, and serve the first touch \
                  of each GiB. A program that is linked statically or with a sanitizer, setuid, or written in Go runs unmanaged, \
                  as does one with SUPERPAGE_OFF=1 in its environment, and so do the program's children without --children. As root the kernel's pool of 1 GiB pages is enlarged \
                  while it runs (hugetlb-2m: that of 2 MiB pages), by 1 GiB at a time as it is needed and while an \
                  eighth of memory stays available, and put back at the end."
)]
pub(crate) struct Run {
    /// The policy of page sizes: trident gives 1 GiB pages at the first touch, else 2 MiB, else 4 KiB, and
    /// promotes to 1 GiB later; trident-1g-only does without 2 MiB, trident-faults-only never promotes; hugetlb-1g maps
    /// a 1 GiB page as soon as a GiB is used at all, where there is one; hugetlb-2m does so with 512 pages of 2 MiB of
    /// the kernel's pool of those; linux asks for 2 MiB pages only; off changes
    /// nothing
    #[arg(long, value_name = "POLICY", default_value = "trident", value_parser = RUN_POLICIES)]
    pub(crate) policy: String,
    /// Have the program's large memory live in a file on this disk (xHeap): a directory, where a file without a name is
    /// made; a file that is empty or not there; or a block device that holds nothing. zram: in compressed memory, for
    /// root. As much of it as --memory says is in memory as it is. Needs the right to a userfaultfd (root, or see `superpage doctor`)
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, requires = "memory",
          conflicts_with_all = ["policy", "promote", "ready", "children"])]
    pub(crate) heap: Option<PathBuf>,
    /// The memory that the heap may take: a size such as 2G, or a part such as 75% of the machine's memory or of the lowest
    /// limit of a cgroup around the program
    #[arg(long, value_name = "SIZE", requires = "heap", value_parser = memory)]
    pub(crate) memory: Option<Memory>,
    /// Have less of the heap in memory while less than this is available to others: a size, or a part as of --memory. At
    /// least 16 MiB of the heap stay
    #[arg(long, value_name = "SIZE", requires = "heap", value_parser = memory)]
    pub(crate) keep_available: Option<Memory>,
    /// The most that one mapping in the heap may be; all others may be --memory and 64 MiB besides. Room on the disk is
    /// taken before the program has the memory [default: four times --memory]
    #[arg(long, value_name = "SIZE", requires = "heap", value_parser = size)]
    pub(crate) heap_size: Option<Bytes>,
    /// 1 GiB pages that are kept zeroed ahead of the program's first touches, once it has 1 GiB of memory;
    /// at most 16
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(0..=MOST_READY as i64))]
    pub(crate) ready: u32,
    /// Whether smaller pages become 1 GiB pages after the first touch. safe: accesses to a GiB are held while it is copied,
    /// for 0.1 to 0.2 s, sometimes twice that; off: never
    #[arg(long, value_enum, value_name = "HOW", default_value = "safe")]
    pub(crate) promote: Copying,
    /// The allocator of the program: mimalloc on memory that can be on 1 GiB pages, unless the program is linked with
    /// jemalloc, tcmalloc or mimalloc; keep leaves every program its own
    #[arg(long, value_enum, value_name = "WHICH", default_value = "mimalloc")]
    pub(crate) malloc: Malloc,
    /// Manage the program's children too, each by itself; the report adds up what they did
    #[arg(long)]
    pub(crate) children: bool,
    /// Write what was done as JSON into this file, at the program's end
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
    /// Print no report, nor that the program runs unmanaged; what failed is still said
    #[arg(long)]
    pub(crate) quiet: bool,
    /// The program and its arguments
    #[arg(required = true, value_name = "PROGRAM", trailing_var_arg = true,
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Whether smaller pages are copied to 1 GiB pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Copying {
    /// With accesses held.
    #[value(help = None)]
    Safe,
    /// Not at all.
    #[value(help = None)]
    Off,
}

/// The allocators that a program can be run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Malloc {
    /// mimalloc, unless the program is linked with another allocator than libc's.
    #[value(help = None)]
    Mimalloc,
    /// The program's own.
    #[value(help = None)]
    Keep,
}

/// Arguments of `heap`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --memory nothing is changed. With it the program goes on meanwhile: 98 % of the memory is for \
                  huge pages, as at the start, and what is too much is written to the heap's file and leaves memory. \
                  It takes the rights of whoever started the program, or root."
)]
pub(crate) struct Heap {
    /// The program, or the `superpage run` that has started it
    #[arg(value_name = "PID", value_parser = pid)]
    pub(crate) pid: Pid,
    /// The memory that the heap may take from now on: a size such as 2G, or a part of the machine's memory such as 75%;
    /// at least 16 MiB, and no more than the heap's own size
    #[arg(long, value_name = "SIZE", value_parser = memory, allow_hyphen_values = true)]
    pub(crate) memory: Option<Memory>,
    /// Print one JSON object instead of words
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `daemon`.
#[derive(Debug, Args)]
#[command(
    after_help = "SIGHUP reads the configuration again; SIGTERM puts every setting back and leaves."
)]
pub(crate) struct Daemon {
    /// The configuration, a TOML file; without one the defaults hold
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Only check the configuration
    #[arg(long)]
    pub(crate) check: bool,
    /// How to write the log, which goes to standard error
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) log: LogFormat,
    /// How much to log
    #[arg(long, value_enum, default_value = "info")]
    pub(crate) level: LogLevel,
    /// Where the record of changed settings is kept; another directory is for tests, and does not
    /// allow a second daemon on the machine
    #[arg(long, value_name = "DIR", default_value = superpage_kernel::settings::STATE_DIRECTORY,
          value_hint = ValueHint::DirPath)]
    pub(crate) state: PathBuf,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Keys: s sort, r reverse, / filter, p pause, Enter open a process, Esc back, \
                        left and right step through a recording, space plays it, ? help, q quit.\n\n\
                        Bloat is estimated from 8 of the 512 base pages of some huge pages at a \
                        time, so it gets better while one watches. Looking takes at most 2% of a \
                        CPU: where there is much to look at, it takes longer until all is new."
)]
pub(crate) struct Top {
    /// Show this recording of `superpage record` instead of the machine
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,
    /// The time from one look to the next
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = refresh)]
    pub(crate) interval: Duration,
    /// Print one frame as plain text, 100 columns wide, and leave
    #[arg(long)]
    pub(crate) once: bool,
    /// The daemon's state directory
    #[arg(long, value_name = "DIR", default_value = superpage_kernel::settings::STATE_DIRECTORY,
          value_hint = ValueHint::DirPath)]
    pub(crate) state: PathBuf,
}

/// Arguments of `log`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Entries of one kind about one process within a second are one. Times are \
                        in UTC. Where no daemon ever ran, the exit code is 1.")]
pub(crate) struct Log {
    /// Only what happened in this time up to now, such as 10min
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) since: Option<Duration>,
    /// Only the last N entries
    #[arg(short = 'n', long, value_name = "N", value_parser = entries)]
    pub(crate) last: Option<usize>,
    /// Only what concerns this process
    #[arg(long, value_name = "PID|COMMAND")]
    pub(crate) process: Option<String>,
    /// Only these: started, stopped, reloaded, setting, watermark, promoted, refused, debloated,
    /// left-alone, backed-off, missed, restarted
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = log::named)]
    pub(crate) what: Vec<What>,
    /// Go on showing what is added, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print one JSON object per entry
    #[arg(long)]
    pub(crate) json: bool,
    /// The daemon's state directory
    #[arg(long, value_name = "DIR", default_value = superpage_kernel::settings::STATE_DIRECTORY,
          value_hint = ValueHint::DirPath)]
    pub(crate) state: PathBuf,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
#[command(
    after_help = "Every run puts back the kernel's settings that it changed, and the next run what \
                        a killed one could not. This does so without starting anything. What somebody \
                        else has changed since is left alone."
)]
pub(crate) struct Restore {
    /// The state directory of the run
    #[arg(long, value_name = "DIR", default_value = superpage_kernel::settings::STATE_DIRECTORY,
          value_hint = ValueHint::DirPath)]
    pub(crate) state: PathBuf,
}

/// Arguments of `record`.
#[derive(Debug, Args)]
#[command(
    after_help = "Recording changes nothing, and Ctrl-C ends it well. Only private anonymous \
                        memory is recorded: no files, and nothing is read that another process \
                        maps too. Contents are estimated from 24 base pages of each 2 MiB; --exact \
                        reads all of them.\n\n\
                        Replay the file with `superpage sim --trace FILE`."
)]
pub(crate) struct Record {
    /// The process to record
    #[arg(value_name = "PID", value_parser = recorded)]
    pub(crate) pid: Pid,
    /// Where to write the trace; a file that is there is replaced once the recording is whole
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// The time from one sample to the next, such as 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Stop after this long, such as 5m; without it, when the process exits or on Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// The share of a CPU that recording may take; samples get rarer if it needs more
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = percent)]
    pub(crate) cpu: Share,
    /// Read every base page instead of a sample
    #[arg(long)]
    pub(crate) exact: bool,
    /// Print one JSON object about the recording instead of words
    #[arg(long)]
    pub(crate) json: bool,
}

/// The policies of `sim`, and what its table shows.
fn about_sim() -> String {
    let policies = list::Registry::published().names().join(", ");
    format!("Policies: {policies}. docs/policies.md says what each does.\n\n{ABOUT_SIM}")
}

/// The policies of `sim`, de-bloaters among them.
fn about_policies() -> String {
    format!(
        "The policies to compare, by name (they are listed below), or `all`; with a plus sign and \
         the name of a de-bloater ({}) bloat is reclaimed as well: linux+emd",
        Registry::published().names().join(", ")
    )
}

/// The help of a watermark's option: `what` it does, and its value for each de-bloater.
fn about_mark(what: &str, mark: fn(Watermarks) -> Share) -> String {
    let registry = Registry::published();
    let own = |entry: &Entry| format!("{entry} {:.0}%", mark(entry.watermarks()).get() * 100.0);
    let own: Vec<String> = registry.entries().iter().map(own).collect();
    format!("{what}; by default {}", own.join(", "))
}

/// What is known of a replay and what is not.
const ABOUT_SIM: &str = "Columns: peak and at end are resident memory; huge, the 2 MiB pages at the \
                        end (gigantic: 1 GiB); split and freed, what a de-bloater did; p50, p99 and \
                        max, how long a fault takes; in faults, the time in all of them; background, \
                        CPU time of the policy's own threads; walks, the share of the program's \
                        cycles in address translation; CPU time, the program's with its faults, \
                        where linux-4k is 1.\n\n\
                        What a recording cannot say is assumed: that the program touched what was \
                        present of each 2 MiB on base pages, and what held data of each huge \
                        page; and that in each second of CPU time it makes --access-rate million \
                        accesses that miss the data caches, to all pages that hold data alike. \
                        Few programs are that hard on the TLB: compare, and do not take times for \
                        predictions.\n\n\
                        A de-bloater has a CPU to itself and notices at once when memory passes its \
                        watermark; the daemon looks every five seconds and takes a tenth of a CPU.\n\n\
                        The same trace, options and seed give the same output, to the byte.";

/// Arguments of `sim`.
#[derive(Debug, Args)]
#[command(after_help = about_sim())]
pub(crate) struct Sim {
    /// The trace to replay, written by `superpage record`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = policy,
          default_value = "linux,linux-madvise,ingens,quicksilver-sync-64,trident",
          help = about_policies())]
    pub(crate) policy: Vec<Chosen>,
    /// Memory of the simulated machine, such as 64G; by default twice what the trace needs, in
    /// whole GiB and so at least 1 GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<Bytes>,
    #[arg(long, value_name = "PERCENT", value_parser = share, help = about_mark(
          "De-bloaters start when more than this share of memory is in use", Watermarks::high))]
    pub(crate) high: Option<Share>,
    #[arg(long, value_name = "PERCENT", value_parser = share, help = about_mark(
          "De-bloaters stop when no more than this share is in use", Watermarks::low))]
    pub(crate) low: Option<Share>,
    /// The share of memory in 2 MiB blocks that an unmovable page keeps from becoming huge pages
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = share)]
    pub(crate) fragment: Share,
    /// Accesses that miss the data caches, in millions in each second of CPU time
    #[arg(long, value_name = "MILLIONS", value_parser = rate,
          default_value_t = replay::ACCESSES_PER_SECOND / 1e6)]
    pub(crate) access_rate: f64,
    /// The machine that is simulated: a paper's (emd, graph, quicksilver, trident or xheap), or a
    /// file that `superpage lab calibrate` wrote
    #[arg(long, value_name = "NAME|FILE", default_value = "trident")]
    pub(crate) profile: String,
    /// The seed of all chance
    #[arg(long, value_name = "N", default_value = "1", value_parser = seed)]
    pub(crate) seed: u64,
    /// Replay what is there of a trace that was cut off
    #[arg(long)]
    pub(crate) allow_partial: bool,
    /// Draw memory over time into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
    /// Print one JSON object per policy instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// A policy on the command line of `sim`, or all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chosen {
    /// Every one.
    All,
    /// This one.
    One(Candidate),
}

/// Arguments of `lab`.
#[derive(Debug, Args)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

/// The commands of `lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// List the experiments, each a table or figure of a paper
    List(LabList),
    /// Run an experiment and print the paper's numbers beside the measured ones
    Run(LabRun),
    /// Run the first experiment at the size that fits, in plain words
    Demo {
        /// Where to put the pictures
        #[arg(long, value_name = "DIR", default_value = "demo-out", value_hint = ValueHint::DirPath)]
        out: PathBuf,
        /// Memory of the workload; by default what fits
        #[arg(long, value_name = "SIZE", value_parser = workload_size)]
        size: Option<Bytes>,
    },
    /// Make the pages of docs/results from rows that are kept
    Report(LabReport),
    /// Hold memory, locked, until this is ended
    Hog(LabHog),
    /// Fragment free memory, so that no huge page can be had from a share of it, until this is ended
    Fragment(LabFragment),
    /// Measure this machine and write a profile of it for the simulated one
    Calibrate(LabCalibrate),
    /// Be the process that an experiment looks at
    #[command(hide = true)]
    Worker {
        /// What to be, as JSON
        spec: String,
    },
}

/// Arguments of `lab hog`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("amount").required(true))]
pub(crate) struct LabHog {
    /// The memory to hold, such as 4G
    #[arg(value_name = "SIZE", value_parser = size, group = "amount")]
    pub(crate) size: Option<Bytes>,
    /// Hold all that is available but so much
    #[arg(long, value_name = "SIZE", value_parser = size, group = "amount")]
    pub(crate) leave: Option<Bytes>,
}

/// Arguments of `lab fragment`.
#[derive(Debug, Args)]
pub(crate) struct LabFragment {
    /// The share of free memory that no huge page is to be had from, such as 50%
    #[arg(value_name = "PERCENT", value_parser = percent, allow_hyphen_values = true)]
    pub(crate) share: Share,
}

/// Arguments of `lab list`.
#[derive(Debug, Args)]
pub(crate) struct LabList {
    /// Print one JSON object per experiment
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `lab run`.
#[derive(Debug, Args)]
pub(crate) struct LabRun {
    /// The experiment (see `superpage lab list`), or `all`
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Where to run it; by default on this machine if the experiment exists for it
    #[arg(long, value_enum, value_name = "MACHINE")]
    pub(crate) on: Option<Machine>,
    /// The seed of the simulated machine: the same seed gives the same numbers
    #[arg(long, value_name = "N", default_value = "1", value_parser = seed)]
    pub(crate) seed: u64,
    /// Memory of each workload (live only); by default the paper's, or what fits this machine
    #[arg(long, value_name = "SIZE", value_parser = workload_size)]
    pub(crate) size: Option<Bytes>,
    /// How often each variant is timed (the fastest of five runs), live only; medians are reported (jvm-pretouch: for how many
    /// minutes its JVM waits)
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,
    /// Memory of a program that wants more, in percent of that (heap-streams, -random and -redis: by default 75;
    /// xheap-fig4 to -fig6: 75,80,85), live only
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = percent)]
    pub(crate) memory: Vec<Share>,
    /// Run only these parts of an experiment that has some (pareto: redis, redis-refilled, memcached, btree, two-cgroups; emd-fig10:
    /// BTree, Memcached, RandomAccess-L, RandomAccess-R; sensitivity: any simulated experiment)
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// A directory on a disk, to swap to and to keep heaps on (as above)
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// How many simulations run at once; by default one on each CPU. On this machine experiments
    /// always run one after the other
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Print one JSON object per row instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the table as Markdown, with the command that made it
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// Write pictures and the rows (NAME.jsonl) into this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Keep the rows for the report in this directory (results/rows), with the build, the day and the machine
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) keep: Option<PathBuf>,
}

/// Arguments of `lab report`.
#[derive(Debug, Args)]
pub(crate) struct LabReport {
    /// The directory of rows, findings, targets and words
    #[arg(long, value_name = "DIR", default_value = "results", value_hint = ValueHint::DirPath)]
    pub(crate) results: PathBuf,
    /// The directory of the documents, into which results.md and results/ are written
    #[arg(long, value_name = "DIR", default_value = "docs", value_hint = ValueHint::DirPath)]
    pub(crate) docs: PathBuf,
    /// Write nothing, and fail if a page is not as its rows say
    #[arg(long)]
    pub(crate) check: bool,
}

/// Arguments of `lab calibrate`.
#[derive(Debug, Args)]
#[command(after_help = "Uses half a gigabyte of memory and some seconds of CPU time. What a \
                        program cannot measure (devices, hypercalls) is taken from a paper's \
                        machine, and the profile says so of each number.")]
pub(crate) struct LabCalibrate {
    /// Where to write the profile, a TOML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// The paper's machine that what cannot be measured is taken from
    #[arg(long, value_name = "MACHINE", default_value = "trident",
          value_parser = PossibleValuesParser::new(Profile::names()))]
    pub(crate) like: String,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The directory; it is made if it is missing
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// Where experiments run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Machine {
    /// This machine's kernel and memory
    Live,
    /// The simulated machine, at the papers' sizes
    Sim,
}

impl From<Machine> for On {
    fn from(machine: Machine) -> Self {
        match machine {
            Machine::Live => Self::Live,
            Machine::Sim => Self::Sim,
        }
    }
}

/// How to write the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object on each line
    Json,
}

/// How much to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// What went wrong
    Error,
    /// And what may be wrong
    Warn,
    /// And what was done
    Info,
    /// And every look at memory
    Debug,
}

fn pid(text: &str) -> Result<Pid, String> {
    text.parse().map_err(|_| "give the number of a process, such as 1234".to_owned())
}

fn least(text: &str) -> Result<BasePages, String> {
    match text.parse() {
        Ok(pages @ 1..=BASE_PAGES_PER_HUGE_PAGE) => Ok(BasePages(pages)),
        _ => Err("give a number of base pages from 1 to 512, such as 64".to_owned()),
    }
}

fn recorded(text: &str) -> Result<Pid, String> {
    text.parse().map_err(|_| "give a process id, such as $(pidof redis-server)".to_owned())
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("give a whole number from 0 to {}, such as 7", u64::MAX))
}

fn size(text: &str) -> Result<Bytes, String> {
    let config = parse_size::Config::new().with_binary();
    match config.parse_size(text) {
        Ok(0) => Err("a size of 0 is too small; give one such as 512M".to_owned()),
        Ok(bytes) => Ok(Bytes(bytes)),
        Err(_) => Err("give a size such as 512M or 1.5GiB".to_owned()),
    }
}

/// An amount of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Memory {
    /// A number of bytes.
    Bytes(Bytes),
    /// A part of the memory that there is.
    Part(Share),
}

fn memory(text: &str) -> Result<Memory, String> {
    match text.strip_suffix('%') {
        Some(_) => percent(text).map(Memory::Part),
        None => size(text).map(Memory::Bytes),
    }
}

fn workload_size(text: &str) -> Result<Bytes, String> {
    /// Smaller ones fit into the TLB and show nothing.
    const SMALLEST: Bytes = Bytes::from_mib(64);
    let bytes = size(text)?;
    let whole = Bytes(bytes.0 / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);
    if whole < SMALLEST {
        return Err(format!("a workload needs at least {SMALLEST}"));
    }
    Ok(whole)
}

fn percent(text: &str) -> Result<Share, String> {
    let signed = if text.ends_with('%') { text.to_owned() } else { format!("{text}%") };
    match parse_percent(&signed) {
        Some(share) if share > Share::NONE => Ok(share),
        _ => Err("give a percentage above 0% and up to 100%, such as 20%".to_owned()),
    }
}

fn share(text: &str) -> Result<Share, String> {
    let signed = if text.ends_with('%') { text.to_owned() } else { format!("{text}%") };
    parse_percent(&signed)
        .ok_or_else(|| "give a percentage from 0% to 100%, such as 50%".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.001..=1000.0).contains(&rate) => Ok(rate),
        _ => Err("give millions of accesses, from 0.001 to 1000".to_owned()),
    }
}

pub(crate) fn jobs(text: &str) -> Result<NonZero<usize>, String> {
    let jobs = text.parse().ok().filter(|jobs: &NonZero<usize>| jobs.get() <= 1024); // tidy: allow(threads)
    jobs.ok_or_else(|| "give a number from 1 to 1024".to_owned())
}

fn entries(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "give a number of entries, such as 20".to_owned())
}

fn refresh(text: &str) -> Result<Duration, String> {
    /// More often, and nobody can read it.
    const SHORTEST: Duration = Duration::from_millis(100);
    let time = humantime::parse_duration(text).ok().filter(|time| *time >= SHORTEST);
    time.ok_or_else(|| "give a time such as 1s, at least 100ms".to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    /// More often, and looking would be most of what it sees.
    const SHORTEST: Duration = Duration::from_millis(10);
    let time = humantime::parse_duration(text).ok().filter(|time| *time >= SHORTEST);
    time.ok_or_else(|| "give a time such as 1s, at least 10ms".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| "give a time such as 90s or 5m".to_owned())
}

fn policy(name: &str) -> Result<Chosen, String> {
    if name.trim() == "all" {
        return Ok(Chosen::All);
    }
    Candidate::named(name).map(Chosen::One).map_err(|error| error.to_string())
}

/// The policies inside a program.
const RUN_POLICIES: [&str; 7] =
    ["trident", "trident-1g-only", "trident-faults-only", "hugetlb-1g", "hugetlb-2m", "linux", OFF];

/// The de-bloaters, each with what it does.
fn debloaters() -> impl TypedValueParser<Value = Entry> {
    let registry = Registry::published();
    let value =
        |entry: &Entry| PossibleValue::new(entry.name).help(entry.summary.trim_end_matches('.'));
    let values: Vec<PossibleValue> = registry.entries().iter().map(value).collect();
    PossibleValuesParser::new(values)
        .try_map(move |name| registry.entry(&name).ok_or("there is no such policy"))
}

fn quantum(text: &str) -> Result<HugePages, String> {
    match text.parse() {
        Ok(pages) if pages > 0 => Ok(HugePages(pages)),
        _ => Err("give a number of huge pages, 1 or more".to_owned()),
    }
}

/// The command line. A value may be a negative number, so that who says what is wrong with it is its parser.
pub(crate) fn command() -> clap::Command {
    with_negatives(Arguments::command())
}

fn with_negatives(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| match argument.get_action().takes_values() {
        true => argument.allow_negative_numbers(true),
        false => argument,
    });
    command.mut_subcommands(with_negatives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn sizes_are_binary_and_percentages_may_go_without_sign() {
        assert_eq!(size("2M"), Ok(Bytes::from_mib(2)));
        assert_eq!(size("1.5GiB"), Ok(Bytes::from_mib(1536)));
        assert!(size("0").is_err() && size("12Q").is_err() && size("-1").is_err());
        assert_eq!(percent("20"), Ok(Share::percent(20)));
        assert_eq!(percent("20%"), Ok(Share::percent(20)));
        assert!(percent("0").is_err() && percent("101").is_err() && percent("x").is_err());
        assert_eq!(workload_size("65M"), Ok(Bytes::from_mib(64)));
        assert!(workload_size("1M").is_err());
    }
}
