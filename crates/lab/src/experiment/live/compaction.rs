//! `compaction`: what a program gets that begins when free memory is in pieces, and what the kernel's compaction does to the
//! program whose memory it moves. No paper has it.
//!
//! One program has left most of the free memory in pieces, and goes on to use the base pages that it has kept between them. Ten
//! seconds later a second one takes as many huge pages as were free before, and a third one fills memory as fast as it can, first
//! touches being given huge pages where there are free ones. What the kernel's defaults do is beside what the daemon does without
//! its compaction and with it.

use super::support_bench::{Bench, fitting_size, median, rounded};
use super::support_daemon::{Configuration, Daemon};
use super::support_regime::{Kernel, Khugepaged, in_turn};
use super::{Experiment, On, Progress, Report, Result, Setting};
use crate::helper::{Helper, Order, Part, Paused};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use superpage_kernel::compaction::Threads;
use superpage_kernel::process::Process;
use superpage_kernel::{meminfo, smaps};
use superpage_manager::free_memory;
use superpage_units::{Bytes, HugePages, Nanos, PageSize, Pid, Share};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "compaction",
    source: "no paper",
    summary: "What a program gets where free memory is in pieces, and what compaction does to the program that it moves",
    on: On::Live,
    columns: &[
        ("policy", "configuration"),
        ("rounds", "rounds"),
        ("in_pieces_before", "free memory in pieces"),
        ("in_pieces", "ten seconds later"),
        ("fill_s", "filled in s"),
        ("huge_then", "on huge pages then"),
        ("huge_later", "ten seconds later"),
        ("kcompactd_s", "kcompactd s"),
        ("daemon_cpu_s", "daemon s"),
        ("turns", "turns of the other"),
        ("over_5_ms", "over 5 ms"),
        ("longest_ms", "longest ms"),
    ],
    run: &run,
};

/// The memory that the program fills.
const SIZE: Bytes = Bytes::from_gib(4);
/// The share of the free memory that the first program maps, so that two thirds of what is free then are in pieces. With all of
/// it in pieces of 16 KiB the kernel compacts next to nothing: it gives up after some thousand base pages.
const PIECES: f64 = 0.68;
/// The second program leaves so many of the free huge pages to the rest of the machine.
const LEFT: HugePages = HugePages(128);
/// How long the daemon has before the program begins, and the program afterwards.
const WAIT: Duration = Duration::from_secs(10);
/// How long the program whose memory is moved makes turns: from before the daemon starts until after the program has filled its
/// memory.
const TIME: Duration = Duration::from_secs(25);

const CONFIGURATIONS: [Configuration; 3] =
    [Configuration::NoDaemon, Configuration::NoCompaction, Configuration::Default];

/// What one trial gave.
#[derive(Clone, Debug)]
struct Sample {
    /// The share of the free memory that is in pieces.
    before: Share,
    /// When the program begins to fill.
    then: Share,
    fill: Nanos,
    /// The share of the program that is on huge pages when it has filled its memory.
    huge_then: Share,
    huge_later: Share,
    kcompactd: Nanos,
    daemon: Nanos,
    paused: Paused,
}

#[derive(Debug, Serialize)]
struct Row {
    policy: &'static str,
    rounds: usize,
    in_pieces_before: f64,
    in_pieces: f64,
    fill_s: f64,
    huge_then: f64,
    huge_later: f64,
    kcompactd_s: f64,
    daemon_cpu_s: f64,
    turns: f64,
    over_5_ms: f64,
    longest_ms: f64,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let size = fitting_size(setting, SIZE, 4)?;
    let mut bench = Bench::open(setting)?;
    let samples = in_turn(CONFIGURATIONS, setting.rounds, |configuration, round| {
        progress(&format!("{}, round {} of {}", configuration.name(), round + 1, setting.rounds))?;
        trial(setting, &mut bench, configuration, size)
    })?;
    let mut report = Report::default();
    for (configuration, samples) in CONFIGURATIONS.into_iter().zip(&samples) {
        report.push(&row(configuration, samples))?;
    }
    report.notes.push(format!(
        "{size} are filled; pieces are of 16 KiB and less. kcompactd: from before the daemon started until after the memory was \
         filled. Medians; turns over 5 ms and the longest one of all rounds."
    ));
    Ok(report)
}

fn trial(
    setting: &Setting,
    bench: &mut Bench,
    configuration: Configuration,
    size: Bytes,
) -> Result<Sample> {
    Kernel::ALWAYS.set(bench)?;
    Khugepaged::Asleep.set(bench)?;
    let pieces = meminfo::read(Path::new("/proc"))?.free.scaled(PIECES).to_huge_pages();
    let time = Nanos::from_secs_f64(TIME.as_secs_f64());
    let mut other = Helper::start(&setting.launcher, Part::Pieces { size: pieces, time })?;
    let whole = free_memory::read(Path::new("/proc"))?.huge_pages().saturating_sub(LEFT);
    let filling = Part::Filling { size: size.to_huge_pages(), touched: Share::ALL, pace: None };
    let mut program = Helper::start(&setting.launcher, filling)?;
    let (threads, before) = (Threads::find()?, in_pieces()?);
    let kcompactd = threads.cpu_time()?;
    other.order(Order::Go)?;
    let daemon = configuration.start(setting, program.pid())?;
    std::thread::sleep(WAIT);
    let then = in_pieces()?;
    let hog = Part::Hog { huge: whole, base: HugePages::ZERO };
    let _hog = Helper::start(&setting.launcher, hog)?;
    let fill = program.done_with(Order::Go)?;
    let filled = Instant::now();
    let huge_then = on_huge_pages(program.pid(), size)?;
    let kcompactd = threads.cpu_time()?.saturating_sub(kcompactd);
    std::thread::sleep(WAIT.saturating_sub(filled.elapsed()));
    let huge_later = on_huge_pages(program.pid(), size)?;
    program.done_with(Order::Check)?;
    let paused = other.has_paused()?;
    let cpu = daemon.as_ref().map_or(Ok(Nanos::ZERO), Daemon::cpu)?;
    daemon.map_or(Ok(()), Daemon::stop)?;
    Ok(Sample { before, then, fill, huge_then, huge_later, kcompactd, daemon: cpu, paused })
}

/// The share of the free memory that no huge page can be had from.
fn in_pieces() -> Result<Share> {
    Ok(free_memory::read(Path::new("/proc"))?.fmfi(PageSize::Huge))
}

fn on_huge_pages(pid: Pid, size: Bytes) -> Result<Share> {
    let huge = smaps::of(&Process::open(pid)?)?.anon_huge_pages;
    Ok(huge.unwrap_or(Bytes::ZERO).share_of(size))
}

fn row(configuration: Configuration, samples: &[Sample]) -> Row {
    let middle = |of: fn(&Sample) -> f64| rounded(median(samples.iter().map(of)), 3);
    let over: usize = samples.iter().map(|sample| sample.paused.pauses.len()).sum();
    let longest = samples.iter().map(|sample| sample.paused.longest_nanos).max().unwrap_or(0);
    let turns: u64 = samples.iter().map(|sample| sample.paused.turns).sum();
    Row {
        policy: configuration.name(),
        rounds: samples.len(),
        in_pieces_before: middle(|sample| sample.before.get()),
        in_pieces: middle(|sample| sample.then.get()),
        fill_s: middle(|sample| sample.fill.as_secs_f64()),
        huge_then: middle(|sample| sample.huge_then.get()),
        huge_later: middle(|sample| sample.huge_later.get()),
        kcompactd_s: middle(|sample| sample.kcompactd.as_secs_f64()),
        daemon_cpu_s: middle(|sample| sample.daemon.as_secs_f64()),
        turns: turns as f64,
        over_5_ms: over as f64,
        longest_ms: rounded(Nanos(longest).as_secs_f64() * 1e3, 2),
    }
}
