//! Programs that are filled and then asked, each in a cgroup of its own: a Redis after deletions that saves while it is
//! asked, one that was filled again before, a memcached, and lookups in a B+ tree. None asks for huge pages. Who makes those, and what is compared, is the
//! experiment's to know.

use super::support_redis::{LOAD, Pacing, READS, WINDOW, memory_of, micros};
use super::{Error, Result, Setting};
use crate::load::{Client, Items, Mix, Redis, Sizes};
use crate::worker::{self, Launcher, Worker};
use crate::workload::clock::cpu_time;
use crate::workload::memcached::Memcached;
use crate::workload::{PageSize, WorkloadKind, WorkloadSpec};
use std::time::{Duration, Instant};
use superpage_kernel::cgroup::Scratch;
use superpage_units::{Bytes, Nanos, Pid};

/// Quicksilver's Del-70: objects of 8 KB are stored, and 70 % of them, chosen at random, deleted.
const VALUES: Sizes = Sizes::all(Bytes::from_kib(8));
/// The memory that such an object takes: jemalloc puts two of them with their heads into five base pages.
const FOOTPRINT: Bytes = Bytes::from_kib(10);
/// The share of them that is deleted.
const DELETED: f64 = 0.7;
/// What a Redis that is filled again stores then: values of another of jemalloc's size classes, which get slabs of their own and
/// do not fill the gaps that the deleted ones left. Chosen.
const OTHER_VALUES: Sizes = Sizes::all(Bytes::from_kib(4));
/// The memory that such an object takes, as in `fill-and-read`.
const OTHER_FOOTPRINT: Bytes = Bytes(5220);
/// Lookups that are timed at once.
const LOOKUPS: u64 = 50_000;

/// A program that is filled and asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// Redis after deletions, which saves all that it holds (BGSAVE) while it is asked.
    Redis,
    /// The same, filled again after the deletions to what it held before.
    RedisRefilled,
    /// memcached, with memory that it takes as it needs it.
    Memcached,
    /// Lookups in a B+ tree, three quarters of whose footprint on huge pages are bloat.
    BTree,
}

/// How a program is asked.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    /// The time for which the program is left alone, and asked.
    pub(super) pacing: Pacing,
    /// The choice of keys and values.
    pub(super) seed: u64,
    /// Requests a second to Redis in an open loop; found out by the first, on base pages.
    pub(super) rate: &'a mut Option<f64>,
}

/// The measurements of a program while it was asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Answers a second, as fast as it answers.
    pub(super) throughput: f64,
    /// The CPU time of the program for each of them, in microseconds.
    pub(super) cpu_us: f64,
    /// The latency that one request of a thousand exceeds, in microseconds: of Redis at a fixed rate, of batches of gets from
    /// memcached; there is none of lookups in the tree.
    pub(super) p999_us: Option<f64>,
    /// The memory that it had while it was asked.
    pub(super) resident: Bytes,
    /// The huge pages that it had.
    pub(super) huge_pages: u64,
}

impl Served {
    /// The name in rows.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis, Del-70, BGSAVE",
            Self::RedisRefilled => "Redis, Del-70, refilled, BGSAVE",
            Self::Memcached => "memcached",
            Self::BTree => "B+ tree",
        }
    }

    /// The name in names of files.
    pub(super) const fn file(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::RedisRefilled => "redis-refilled",
            Self::Memcached => "memcached",
            Self::BTree => "btree",
        }
    }

    /// Fills the program in the group, leaves it alone, and asks it; all that it holds is compared.
    pub(super) fn run(
        self,
        setting: &Setting,
        group: &Scratch,
        size: Bytes,
        asked: Asked<'_>,
    ) -> Result<Seen> {
        let Asked { pacing, seed, .. } = asked;
        match self {
            Self::Redis | Self::RedisRefilled => {
                let (server, mut client) = start_redis(group, seed)?;
                fill_redis(&mut client, size, seed)?;
                std::thread::sleep(pacing.settle);
                if self == Self::RedisRefilled {
                    refill_redis(&mut client, size)?;
                    std::thread::sleep(pacing.settle);
                }
                ask_redis(&server, &mut client, asked)
            }
            Self::Memcached => {
                let mut program = Memcached::populate_under(&group.words(), size)?;
                std::thread::sleep(pacing.settle);
                ask_memcached(&mut program, pacing, seed)
            }
            Self::BTree => {
                let mut program = filled_tree(setting, group, size)?;
                std::thread::sleep(pacing.settle);
                ask_tree(&mut program, pacing.closed, seed)
            }
        }
    }
}

/// An empty Redis in the group.
pub(super) fn start_redis(group: &Scratch, seed: u64) -> Result<(Redis, Client)> {
    Ok(Redis::start_under(&group.words(), Items::new(VALUES, seed))?)
}

/// Has a Redis store so much, and delete most of it.
pub(super) fn fill_redis(client: &mut Client, size: Bytes, seed: u64) -> Result<()> {
    client.fill(size.0 / FOOTPRINT.0, WINDOW)?;
    client.delete(DELETED, seed, WINDOW)?;
    Ok(())
}

/// Has a Redis store as much again as was deleted.
fn refill_redis(client: &mut Client, size: Bytes) -> Result<()> {
    client.fill_with(OTHER_VALUES, size.scaled(DELETED).0 / OTHER_FOOTPRINT.0, WINDOW)?;
    Ok(())
}

/// Asks a Redis as fast as it answers, and then at half of that rate on base pages. It saves all that it holds each time.
pub(super) fn ask_redis(server: &Redis, client: &mut Client, asked: Asked<'_>) -> Result<Seen> {
    let Asked { pacing, seed, rate } = asked;
    let mix = |part: u64| Mix { reads: READS, seed: seed << 8 | part };
    client.closed(mix(0), WINDOW, pacing.closed / 4)?;
    let memory = memory_of(server.pid())?;
    server.begin_to_save()?;
    let cpu = cpu_time(server.pid())?;
    let closed = client.closed(mix(1), WINDOW, pacing.closed)?;
    let cpu = cpu_time(server.pid())?.saturating_sub(cpu);
    server.has_saved()?;
    let rate = *rate.get_or_insert(closed.throughput() * LOAD);
    server.begin_to_save()?;
    let open = client.open(mix(2), rate, pacing.open)?;
    server.has_saved()?;
    client.check(WINDOW)?;
    Ok(Seen {
        throughput: closed.throughput(),
        cpu_us: each(cpu, closed.count()),
        p999_us: Some(micros(open.quantile(0.999))),
        resident: memory.resident,
        huge_pages: memory.huge.0,
    })
}

fn ask_memcached(program: &mut Memcached, pacing: Pacing, seed: u64) -> Result<Seen> {
    use crate::workload::Workload;
    program.run_for(pacing.closed / 4, seed << 1)?;
    let (timing, latencies) = program.run_for(pacing.closed, seed << 1 | 1)?;
    let memory = memory_of(program.pid())?;
    program.check()?;
    Ok(Seen {
        throughput: timing.operations as f64 / timing.wall.as_secs_f64(),
        cpu_us: each(timing.cpu, timing.operations),
        p999_us: Some(micros(latencies.quantile(0.999))),
        resident: memory.resident,
        huge_pages: memory.huge.0,
    })
}

/// A B+ tree in the group, in a process of its own.
pub(super) fn filled_tree(setting: &Setting, group: &Scratch, size: Bytes) -> Result<Worker> {
    let pages = PageSize::Unasked;
    let spec = WorkloadSpec { kind: WorkloadKind::BTree, size, pages, cpu: None };
    let mut words = group.words();
    let program = words.remove(0).into();
    words.push(setting.launcher.program.to_string_lossy().into_owned());
    words.extend_from_slice(&setting.launcher.leading_args);
    Ok(Worker::spawn(&Launcher { program, leading_args: words }, &spec)?)
}

/// Looks keys up in a B+ tree for so long.
pub(super) fn ask_tree(program: &mut Worker, time: Duration, seed: u64) -> Result<Seen> {
    let (mut wall, mut cpu, mut count) = (Nanos::ZERO, Nanos::ZERO, 0);
    program.run(LOOKUPS, seed << 32)?;
    let begin = Instant::now();
    for batch in 1.. {
        if begin.elapsed() >= time {
            break;
        }
        let timing = program.run(LOOKUPS, (seed << 32) | batch)?;
        (wall, cpu, count) = (wall + timing.wall, cpu + timing.cpu, count + timing.operations);
    }
    let memory = memory_of(program.pid())?;
    program.check()?;
    Ok(Seen {
        throughput: count as f64 / wall.as_secs_f64(),
        cpu_us: each(cpu, count),
        p999_us: None,
        resident: memory.resident,
        huge_pages: memory.huge.0,
    })
}

/// The result of work with a program in the group; `None` if the kernel has killed it there, or the child that saves for it.
pub(super) fn unless_killed<T>(group: &Scratch, done: Result<T>) -> Result<Option<T>> {
    let was_lost = |error: &Error| {
        matches!(error, Error::Child(_) | Error::Worker(worker::Error::Died { .. }))
            || matches!(error, Error::Kernel(superpage_kernel::Error::Gone { .. }))
    };
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if was_lost(&error) && group.group().kills()? > 0 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits until nobody is in the group: a child that saves outlives its server.
pub(super) fn wait_until_empty(group: &Scratch) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let left: Vec<Pid> = group.group().processes()?;
        if left.is_empty() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(Error::Child("a program that was ended is still in its cgroup".to_owned()))
}

/// The part of each, in microseconds.
fn each(time: Nanos, count: u64) -> f64 {
    micros(time) / count.max(1) as f64
}
