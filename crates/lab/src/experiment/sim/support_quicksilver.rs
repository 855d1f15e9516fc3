//! Quicksilver's machine, its fragmentation and its programs, and a Redis that runs on the machine.
//!
//! The article gives no sizes. What comes from the authors' public repository
//! (rice-systems/quicksilver: `Benchmark`, `Frag`, `System-configs`) says so; the rest is assumed.
//! The programs live beside the experiments, since nothing else uses these sizes.

use super::support_hardware;
use super::{Error, Result, Setting};
use std::collections::VecDeque;
use superpage_policy::promotion::{View, list};
use superpage_sim::machine::{Backing, Content, Machine, OutOfMemory, Served, Setup};
use superpage_sim::run::{Latencies, Run};
use superpage_sim::workload::jemalloc;
use superpage_sim::workload::redis::Event;
use superpage_sim::workload::{
    Access, Counting, Discard, Order, Part, Pattern, Phase, Populate, Stream, Target, VmaShape,
    Workload,
};
use superpage_units::{
    Advice, BasePages, Bytes, Growth, HUGE_PAGE_BYTES, HugePages, Nanos, ProcessKey, Share, Time,
    VirtAddr, Vma, VmaKind,
};

/// Memory. Assumed: the authors' fragmenting program expects 29 GB free.
const MEMORY: Bytes = Bytes::from_gib(32);
/// The share of huge frames that hold a page of the kernel. Assumed: what is free around them is then
/// no more than what Linux always keeps free, so its compaction finds no room at Frag-100.
const PINNED: Share = Share::clamped(0.005);
/// Whole huge frames left at Frag-0, of which Frag-X takes X % (`Benchmark/redis/linux.sh`: 8192).
const UNFRAGMENTED: HugePages = HugePages(8192);
/// Base pages that the fragmenting program holds of each huge frame (`fragment_level.c`: 64 KB).
const HELD: BasePages = BasePages(16);
/// Seconds between fragmenting and running (`Benchmark/redis/linux.sh`).
const PAUSE: f64 = 60.0;

/// How fragmented memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frag {
    /// Not at all.
    Zero,
    /// Frag-50.
    Half,
    /// Frag-100.
    Full,
}

impl Frag {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Zero => "Frag-0",
            Self::Half => "Frag-50",
            Self::Full => "Frag-100",
        }
    }

    /// Whole huge frames that are left.
    const fn leaves(self) -> Option<HugePages> {
        match self {
            Self::Zero => None,
            Self::Half => Some(HugePages(UNFRAGMENTED.0 / 2)),
            Self::Full => Some(HugePages(0)),
        }
    }
}

/// What a note says of fragmentation.
pub(super) const FRAGMENTATION: &str = "Frag-X, after the authors' repository: a program that never runs again holds 64 KB of every \
     huge frame but X % of 16 GB fewer. Those that map no superpages at faults, as Ingens and \
     HawkEye, are fragmented under Linux first, as the authors' scripts do.";

/// The machine under a policy, fragmented.
pub(super) fn machine(policy: &str, frag: Frag, setting: &Setting) -> Result<Run> {
    let build = |name: &str| {
        let entry = list::find(name).ok_or_else(|| Error::Simulation(name.to_owned()))?;
        Ok::<_, Error>((entry.build)())
    };
    let reserves = policy == "freebsd" || policy.starts_with("quicksilver");
    let first = if reserves { policy } else { "linux-nokhugepaged" };
    let setup = Setup { memory: MEMORY, pools: None, backing: Backing::None, seed: setting.seed };
    let mut machine = Machine::new(setup, build(first)?);
    machine.prepare(|physical, _| physical.pin_blocks(PINNED));
    if let Some(leave) = frag.leaves() {
        machine.hold_parts(leave, HELD)?;
    }
    if !reserves {
        machine.change_policy(build(policy)?);
    }
    let mut run = Run::new(machine, support_hardware::reading_ahead("quicksilver")?);
    run.idle(Nanos::from_secs_f64(PAUSE));
    Ok(run)
}

/// Seconds that a program takes under a policy.
pub(super) fn seconds(
    program: &Workload,
    policy: &str,
    frag: Frag,
    setting: &Setting,
) -> Result<f64> {
    let mut run = machine(policy, frag, setting)?;
    let key = run.start(program.clone());
    run.to_end()?;
    Ok(run.report(key).map_or(f64::NAN, |report| report.time.as_secs_f64()))
}

/// How a heap grows: by `brk`, 132 KiB at a time, as glibc's `malloc` does.
pub(super) const HEAP_STEP: Bytes = Bytes::from_kib(132);

/// Touching all of the first VMA, or a part of it.
pub(super) fn populate(part: Part, threads: u32, cycles_per_page: f64) -> Phase {
    Phase::Populate(Populate {
        part,
        order: Order::Sequential,
        density: 1.0,
        step: HEAP_STEP,
        cycles_per_page,
        threads,
    })
}

fn access(count: f64, cycles: f64, sequential: f64) -> Phase {
    let stream =
        |pattern, weight| Stream { part: Part::whole(0), pattern, target: Target::Any, weight };
    Phase::Access(Access {
        streams: vec![
            stream(Pattern::Uniform, 1.0 - sequential),
            stream(Pattern::Sequential, sequential),
        ],
        count,
        cycles,
        exposed: 1.0,
        counting: Counting::Sampled,
    })
}

/// A program that works through data that do not fit in memory: a block of them is read into fresh
/// memory, used, and given back.
#[derive(Clone, Copy, Debug)]
struct OutOfCore {
    name: &'static str,
    threads: u32,
    block: Bytes,
    blocks: usize,
    /// Of the blocks, those that come from files not read before.
    files: usize,
    /// Cycles to bring a base page in from a cached file: copying and decoding.
    load: f64,
    /// Accesses to each base page of a block, and cycles of each without translation.
    accesses: f64,
    cycles: f64,
}

impl OutOfCore {
    /// Of the accesses, those that follow the data in their order; the others go anywhere. Assumed:
    /// an entry and what it points to.
    const SEQUENTIAL: f64 = 0.5;

    fn workload(self) -> Workload {
        let mut phases = vec![Phase::Map(VmaShape::fixed(self.block))];
        let count = self.block.to_base_pages().0 as f64 * self.accesses;
        for block in 0..self.blocks {
            if block < self.files {
                phases.push(Phase::ReadFile(self.block));
            }
            phases.push(populate(Part::whole(0), self.threads, self.load));
            phases.push(access(count, self.cycles, Self::SEQUENTIAL));
            phases.push(Phase::Discard(Discard {
                part: Part::whole(0),
                share: 1.0,
                piece: Bytes(HUGE_PAGE_BYTES),
            }));
        }
        Workload { name: self.name.to_owned(), threads: self.threads, phases }
    }
}

/// GraphChi's PageRank: four loading and four computing threads (the authors' repository); blocks
/// of 2 GiB from 20 GiB of files (assumed), each cache line of which is used once (assumed). The
/// cycles of an access are chosen so that FreeBSD comes out as in Table 4.
pub(super) fn graphchi() -> Workload {
    let program = OutOfCore {
        name: "GraphChi-PR",
        threads: 4,
        block: Bytes::from_gib(2),
        blocks: 10,
        files: 10,
        load: 1600.0,
        accesses: 64.0,
        cycles: GRAPHCHI_CYCLES,
    };
    program.workload()
}

const GRAPHCHI_CYCLES: f64 = 162.0;

/// BlockSVM: one thread; four blocks (the authors' repository) of 768 MiB, read five times over, each
/// cache line of which is used eight times before the next block (assumed).
pub(super) fn block_svm() -> Workload {
    let program = OutOfCore {
        name: "BlockSVM",
        threads: 1,
        block: Bytes::from_mib(768),
        blocks: 20,
        files: 4,
        load: 1600.0,
        accesses: 8.0 * 64.0,
        cycles: GRAPHCHI_CYCLES,
    };
    program.workload()
}

/// A program that takes its memory once and then accesses it at random.
fn in_core(name: &str, shape: VmaShape, threads: u32) -> Workload {
    // Assumed, the same for all of them: a minute of accesses of 400 cycles each.
    let (cycles, seconds, frequency) = (400.0, 60.0, 3.2e9);
    let count = seconds * f64::from(threads) * frequency / cycles;
    let phases =
        vec![Phase::Map(shape), populate(Part::whole(0), 1, 1600.0), access(count, cycles, 0.0)];
    Workload { name: name.to_owned(), threads, phases }
}

/// canneal: a growing heap; eight threads (the authors' repository), 1 GiB (assumed).
pub(super) fn canneal() -> Workload {
    in_core("canneal", VmaShape::heap(Bytes::from_gib(1)), 8)
}

/// DSjeng: a table of 7 GB (what SPEC says of the benchmark), one thread.
pub(super) fn dsjeng() -> Workload {
    in_core("DSjeng", VmaShape::fixed(Bytes::from_gib(7)), 1)
}

/// XZ: 15 GB (what SPEC says of the benchmark), four threads (assumed).
pub(super) fn xz() -> Workload {
    in_core("XZ", VmaShape::fixed(Bytes::from_gib(15)), 4)
}

/// A Redis server on the machine, which serves requests one after the other.
#[derive(Debug)]
pub(super) struct Server {
    run: Run,
    key: ProcessKey,
    clock: Time,
    began: Time,
    caught_up: Time,
    /// Its own work for each request, and for each base page written.
    own: (Nanos, Nanos),
    /// When the requests that are under way at any time came.
    arrived: VecDeque<Time>,
    served: u64,
    latencies: Latencies,
}

impl Server {
    /// Where its heap begins.
    const HEAP: VirtAddr = VirtAddr(1 << 35);
    /// Requests under way: 8 threads of 10 clients with 16 requests each
    /// (`Benchmark/redis/cold_bench.sh`).
    const UNDER_WAY: usize = 8 * 10 * 16;
    /// How far the background may lag behind.
    const LAG: Nanos = Nanos(1_000_000);

    /// An empty one.
    pub(super) fn new(mut run: Run, own: (Nanos, Nanos)) -> Self {
        let machine = run.machine_mut();
        let key = machine.spawn();
        let clock = machine.now();
        let vma = Vma {
            start: Self::HEAP,
            end: Self::HEAP.offset(Bytes::from_gib(64)),
            kind: VmaKind::Anonymous,
            growth: Growth::Fixed,
            advice: Advice::None,
        };
        machine.map(key, vma);
        Self {
            run,
            key,
            clock,
            began: clock,
            caught_up: clock,
            own,
            arrived: VecDeque::new(),
            served: 0,
            latencies: Latencies::default(),
        }
    }

    /// Does what the program does.
    pub(super) fn hear(&mut self, event: Event) -> std::result::Result<(), OutOfMemory> {
        match event {
            Event::Touch(pages) => self.touch(pages)?,
            Event::GiveBack(pages) => {
                let start = Self::HEAP.offset(pages.start.bytes());
                let end = start.offset(pages.pages.bytes());
                let work = self.run.machine_mut().discard(self.key, start, end);
                self.clock += self.run.hardware().profile.price(&work);
            }
            Event::Request => self.request(),
        }
        Ok(())
    }

    fn touch(&mut self, pages: jemalloc::Run) -> std::result::Result<(), OutOfMemory> {
        for page in 0..pages.pages.0 {
            let address = Self::HEAP.offset((pages.start + BasePages(page)).bytes());
            let machine = self.run.machine_mut();
            let served = machine.at(self.clock).touch(self.key, address, Content::Data)?;
            self.clock += self.own.1;
            if let Served::Fault { work, .. } = served {
                self.clock += self.run.hardware().profile.price(&work);
            }
        }
        Ok(())
    }

    fn request(&mut self) {
        self.clock += self.own.0;
        self.served += 1;
        self.arrived.push_back(self.clock);
        if self.arrived.len() > Self::UNDER_WAY
            && let Some(arrived) = self.arrived.pop_front()
        {
            self.latencies.record(self.clock.since(arrived));
        }
        if self.clock.since(self.caught_up) > Self::LAG {
            self.catch_up();
        }
    }

    fn catch_up(&mut self) {
        self.caught_up = self.clock;
        self.run.machine_mut().at(self.clock);
        self.run.idle(Nanos::ZERO);
    }

    /// Waits for requests, none of which come.
    pub(super) fn rest(&mut self, time: Nanos) {
        self.clock += time;
        self.catch_up();
    }

    /// Its memory.
    pub(super) fn resident(&self) -> Bytes {
        self.run.machine().resident(self.key).bytes()
    }

    /// Requests in a second, and the latency that 95 % of them do not exceed.
    pub(super) fn performance(&self) -> (f64, Nanos) {
        let time = self.clock.since(self.began).as_secs_f64();
        (self.served as f64 / time, self.latencies.quantile(0.95))
    }
}
