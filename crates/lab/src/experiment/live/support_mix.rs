//! Programs of several kinds that run side by side, come and go: a Redis under load, a memcached, a
//! program with much bloat, and heaps that grow. Every value that is read is compared with what was
//! written. Who makes huge pages for them, and what is measured, is the experiment's to know.

use super::support_bench::operations_for;
use super::support_redis::{READS, WINDOW};
use super::{Result, Setting};
use crate::helper::{Growth, Helper, Order, Part};
use crate::load::{Client, Items, Latencies, Mix, Redis, Sizes};
use crate::worker::Worker;
use crate::workload::{LEAST_SIZE, PageSize, WorkloadKind, WorkloadSpec};
use std::time::Duration;
use superpage_units::{Bytes, Nanos, Pid};

/// What is stored in Redis. Chosen: the allocator has to deal with many sizes.
const VALUES: Sizes = Sizes { least: Bytes(256), most: Bytes::from_kib(4) };
/// The bytes that Redis and its allocator take beside a value, about.
const OVERHEAD: Bytes = Bytes(200);
/// At this share of its throughput on base pages Redis is asked while the others run: all of them
/// together leave the processors some time. Chosen.
const LOAD: f64 = 0.25;
/// What the others work in the time that is given to them. Chosen.
const OTHERS: f64 = 0.15;
/// After so many operations it is known how long they take.
const SOME: u64 = 100_000;
/// The parts of the memory that the programs have; the one with bloat has the rest. Chosen.
const REDIS: f64 = 0.12;
/// As above.
const MEMCACHED: f64 = 0.18;
/// A heap that grows each time, beside them. Chosen.
const HEAP: f64 = 0.01;

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycle {
    /// Redis alone, as fast as it answers.
    pub(super) closed: Duration,
    /// All together, at a fixed rate.
    pub(super) open: Duration,
}

/// What was seen in one or more cycles.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// As fast as it answers.
    pub(super) closed: Latencies,
    /// At a fixed rate.
    pub(super) open: Latencies,
}

impl Seen {
    pub(super) fn nothing() -> Result<Self> {
        Ok(Self { closed: Latencies::new()?, open: Latencies::new()? })
    }
}

/// What does not change from one set of programs to the next, so that all get the same load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Requests to Redis, a second.
    rate: Option<f64>,
    /// Operations of memcached and of the program with bloat, each cycle.
    gets: Option<u64>,
    updates: Option<u64>,
}

/// The programs.
#[derive(Debug)]
pub(super) struct Programs {
    redis: Redis,
    client: Client,
    memcached: Worker,
    bloated: Option<Worker>,
    size: Bytes,
    pages: PageSize,
    seed: u64,
}

impl Programs {
    /// Starts and fills all but the one with bloat; see [`Programs::renew`]. Together they will take
    /// `size`; all but Redis ask for such pages.
    pub(super) fn start(setting: &Setting, size: Bytes, pages: PageSize) -> Result<Self> {
        let (redis, mut client) = Redis::start(Items::new(VALUES, setting.seed))?;
        client.fill(size.scaled(REDIS).0 / (VALUES.mean() + OVERHEAD).0, WINDOW)?;
        let memcached = start(setting, WorkloadKind::Memcached, size.scaled(MEMCACHED), pages)?;
        let seed = setting.seed << 16;
        Ok(Self { redis, client, memcached, bloated: None, size, pages, seed })
    }

    /// The number of Redis's process.
    pub(super) fn redis(&self) -> Pid {
        self.redis.pid()
    }

    /// The program with bloat ends, its data compared, and another one begins.
    pub(super) fn renew(&mut self, setting: &Setting) -> Result<()> {
        self.end_bloated()?;
        let size = self.size.scaled(1.0 - REDIS - MEMCACHED);
        self.bloated = Some(start(setting, WorkloadKind::RandomAccessR, size, self.pages)?);
        Ok(())
    }

    fn end_bloated(&mut self) -> Result<()> {
        if let Some(mut bloated) = self.bloated.take() {
            bloated.check()?;
            bloated.quit()?;
        }
        Ok(())
    }

    /// First Redis alone, then all together, and a heap that grows.
    pub(super) fn cycle(
        &mut self,
        setting: &Setting,
        cycle: Cycle,
        load: &mut Load,
        seen: &mut Seen,
    ) -> Result<()> {
        self.seed += 1;
        let mix = |part| Mix { reads: READS, seed: self.seed << 2 | part };
        let closed = self.client.closed(mix(0), WINDOW, cycle.closed)?;
        let rate = *load.rate.get_or_insert(closed.throughput() * LOAD);
        seen.closed.join(&closed)?;
        let size = self.size.scaled(HEAP).max(Bytes::from_mib(2)).to_huge_pages();
        let time = Nanos::from_secs_f64(cycle.open.as_secs_f64());
        let part = Part::Growing { by: Growth::Brk, size, time };
        let mut heap = Helper::start(&setting.launcher, part)?;
        let work = cycle.open.mul_f64(OTHERS);
        let mut others = vec![(&mut self.memcached, &mut load.gets)];
        others.extend(self.bloated.as_mut().map(|bloated| (bloated, &mut load.updates)));
        for (worker, operations) in &mut others {
            let operations = match operations {
                Some(operations) => *operations,
                None => *operations.insert(operations_for(worker.run(SOME, 0)?, work)),
            };
            worker.start(operations, self.seed)?;
        }
        heap.order(Order::Go)?;
        seen.open.join(&self.client.open(mix(1), rate, cycle.open)?)?;
        others.into_iter().try_for_each(|(worker, _)| worker.finish().map(|_| ()))?;
        heap.done()?;
        Ok(())
    }

    /// Ends them, all data compared.
    pub(super) fn end(mut self) -> Result<()> {
        self.end_bloated()?;
        self.client.check(WINDOW)?;
        self.memcached.check()?;
        Ok(())
    }
}

fn start(setting: &Setting, kind: WorkloadKind, size: Bytes, pages: PageSize) -> Result<Worker> {
    let spec = WorkloadSpec { kind, size: size.max(LEAST_SIZE), pages, cpu: None };
    Ok(Worker::spawn(&setting.launcher, &spec)?)
}
