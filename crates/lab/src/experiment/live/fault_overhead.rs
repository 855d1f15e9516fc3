//! `fault-overhead`: what watching page faults costs the program that takes them.
//!
//! No paper has this number. A program that does nothing but fault is timed with and without its
//! faults watched, in turn, while a thread of ours takes the events out of the rings every two
//! milliseconds: the worst case, since real programs do something between two faults. Then the same
//! with the daemon, which hears faults in windows, for a share of the time.

use super::support_bench::{median, rounded};
use super::support_daemon::Daemon;
use super::{Error, Experiment, On, Progress, Report, Result, Setting};
use crate::worker::Worker;
use crate::workload::{PageSize, WorkloadKind, WorkloadSpec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_kernel::fault_events::{Counts, DEFAULT_RING, FaultEvents, Scope, Watched};
use superpage_kernel::process::Process;
use superpage_units::Bytes;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "fault-overhead",
    source: "our own",
    summary: "What watching page faults costs a program that does nothing but fault",
    on: On::Live,
    columns: &[
        ("case", "watched by"),
        ("period", "one of so many faults"),
        ("rounds", "rounds"),
        ("fault_ns", "ns a fault, not watched"),
        ("ratio", "time, watched"),
        ("seen", "events seen"),
        ("lost", "lost"),
        ("reader_ns", "ns of the reader a fault"),
    ],
    run,
};

/// From every fault to hardly any; 16 is the default.
const PERIODS: [u64; 5] = [1, 8, 16, 64, 512]; // tidy: allow(a period, not base pages)

/// The daemon's periods.
const DAEMONS: [u64; 2] = [16, 64];

/// A daemon that hears the faults of the whole machine, and promotes nobody: no process has that
/// name.
fn deaf(period: u64) -> String {
    format!(
        "[promotion]\npolicy = \"quicksilver\"\nperiod = {period}\n\
         [processes.include]\ncommands = [\"nobody's name\"]\n"
    )
}

/// An effect of 1 % needs more pairs than the others. Chosen, not measured.
const ROUNDS_FACTOR: u32 = 4;

/// Faults of a timed run: about a third of a second. Chosen, not measured.
const FAULTS: u64 = 200_000;

/// Touched at a time: what the machine's caches do not hold. Chosen, not measured.
const SIZE: Bytes = Bytes::from_mib(64);

#[derive(Debug, Serialize)]
struct Row {
    experiment: &'static str,
    machine: &'static str,
    case: &'static str,
    period: u64,
    rounds: u32,
    faults: u64,
    fault_ns: f64,
    ratio: f64,
    seen: Option<u64>,
    lost: Option<u64>,
    reader_ns: Option<f64>,
}

/// What was measured at one period.
#[derive(Default)]
struct Measured {
    ratios: Vec<f64>,
    fault_ns: Vec<f64>,
    reader_ns: Vec<f64>,
    counts: Counts,
}

fn run(setting: &Setting, progress: Progress<'_>) -> Result<Report> {
    let kind = WorkloadKind::FaultLoop;
    let size = setting.size.unwrap_or(SIZE);
    let spec = WorkloadSpec { kind, size, pages: PageSize::Base, cpu: Some(0) };
    let mut worker = Worker::spawn(&setting.launcher, &spec)?;
    let process = Process::open(worker.pid())?;
    let mut events = FaultEvents::new(DEFAULT_RING)?;
    let rounds = setting.rounds * ROUNDS_FACTOR;
    let mut measured: [Measured; PERIODS.len()] = Default::default();
    worker.run(FAULTS, 0)?;
    for round in 0..rounds {
        progress(&format!("round {} of {rounds}", round + 1))?;
        for (period, measured) in PERIODS.into_iter().zip(&mut measured) {
            pair(&mut worker, &process, &mut events, period, measured)?;
        }
    }
    let mut daemons: [Measured; DAEMONS.len()] = Default::default();
    for round in 0..rounds {
        progress(&format!("the daemon: round {} of {rounds}", round + 1))?;
        for (period, measured) in DAEMONS.into_iter().zip(&mut daemons) {
            pair_with_daemon(&mut worker, setting, period, measured)?;
        }
    }
    worker.check()?;
    let mut report = Report::default();
    for (period, measured) in PERIODS.into_iter().zip(measured) {
        report.push(&Row {
            seen: Some(measured.counts.seen),
            lost: Some(measured.counts.lost),
            reader_ns: Some(rounded(median(measured.reader_ns.iter().copied()), 1)),
            ..row("rings alone", period, rounds, &measured)
        })?;
    }
    for (period, measured) in DAEMONS.into_iter().zip(daemons) {
        report.push(&row("daemon", period, rounds, &measured))?;
    }
    report.notes = vec![
        "The program does nothing but touch base pages and give them back. rings alone: all its \
         faults are watched all the time. daemon: as by default, in windows, a twentieth of the time."
            .to_owned(),
    ];
    Ok(report)
}

/// What is said of the program; of the reader nothing.
fn row(case: &'static str, period: u64, rounds: u32, measured: &Measured) -> Row {
    Row {
        experiment: EXPERIMENT.name,
        machine: "live",
        case,
        period,
        rounds,
        faults: FAULTS * u64::from(rounds),
        fault_ns: rounded(median(measured.fault_ns.iter().copied()), 0),
        ratio: rounded(median(measured.ratios.iter().copied()), 4),
        seen: None,
        lost: None,
        reader_ns: None,
    }
}

/// Times the program without the daemon, with it and without it.
fn pair_with_daemon(
    worker: &mut Worker,
    setting: &Setting,
    period: u64,
    measured: &mut Measured,
) -> Result<()> {
    let before = cpu_time(worker)?;
    let daemon = Daemon::start(setting, &deaf(period))?;
    let with = cpu_time(worker)?;
    daemon.stop()?;
    let after = cpu_time(worker)?;
    let without = f64::midpoint(before, after);
    measured.ratios.push(with / without);
    measured.fault_ns.push(without / FAULTS as f64);
    Ok(())
}

/// Times the program without, with and without its faults watched.
fn pair(
    worker: &mut Worker,
    process: &Process,
    events: &mut FaultEvents,
    period: u64,
    measured: &mut Measured,
) -> Result<()> {
    let period = NonZeroU64::new(period).unwrap_or(NonZeroU64::MIN);
    let before = cpu_time(worker)?;
    let counted = events.counts();
    let watched = events.watch(Scope::Process(process), period)?;
    let (with, reader) = while_read(events, || cpu_time(worker))?;
    let totals = check(&watched)?;
    drop(watched);
    let after = cpu_time(worker)?;
    let without = f64::midpoint(before, after);
    measured.ratios.push(with / without);
    measured.fault_ns.push(without / FAULTS as f64);
    measured.reader_ns.push(reader / FAULTS as f64);
    measured.counts.seen += events.counts().seen - counted.seen;
    measured.counts.lost += totals;
    Ok(())
}

/// What a run takes, in nanoseconds of CPU time of the program.
fn cpu_time(worker: &mut Worker) -> Result<f64> {
    Ok(worker.run(FAULTS, 0)?.cpu.0 as f64)
}

/// That the program's faults were watched at all; how many events were lost.
fn check(watched: &Watched) -> Result<u64> {
    let totals = watched.totals()?;
    if totals.faults < FAULTS {
        let what = format!("{} of {FAULTS} faults were counted", totals.faults);
        return Err(Error::NotPossible(what));
    }
    Ok(totals.lost)
}

/// Does `work` while a thread takes events out of the rings; what that thread took in nanoseconds
/// of CPU time comes second.
fn while_read<T>(events: &mut FaultEvents, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            stay_off_the_program();
            while !over.load(Ordering::Acquire) {
                wait(events);
                read(events);
            }
            read(events);
            let spent = clock_gettime(ClockId::ThreadCPUTime);
            spent.tv_sec as f64 * 1e9 + spent.tv_nsec as f64
        });
        let done = work();
        over.store(true, Ordering::Release);
        let spent = reader.join().unwrap_or_default();
        done.map(|done| (done, spent))
    })
}

/// Waits for events, but not for long: who promotes wants to know within milliseconds.
fn wait(events: &FaultEvents) {
    const LONGEST: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    let fds: Vec<_> = events.fds().collect();
    let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let _ = poll(&mut fds, Some(&LONGEST));
}

/// Takes out what is there, as one who counts by region would.
fn read(events: &mut FaultEvents) {
    let mut sum = 0_u64;
    events.drain(|event| {
        if let superpage_kernel::fault_events::Event::Fault { address, .. } = event {
            sum = sum.wrapping_add(address.huge_page_floor().0);
        }
    });
    std::hint::black_box(sum);
}

/// The program is on the first core; we go to another where there is one.
fn stay_off_the_program() {
    let mut others = CpuSet::new();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (1..cpus.min(CpuSet::MAX_CPU)).for_each(|cpu| others.set(cpu));
    // With one core there is no other, and this is refused.
    let _ = sched_setaffinity(None, &others);
}
