//! Quicksilver's machine, its fragmentation and its programs, and a Redis that runs on the machine.
//!
//! The article gives no sizes. Constants whose origin is the paper come from the article or from the
//! authors' public repository (rice-systems/quicksilver: `Benchmark`, `Frag`, `System-configs`).
//! The programs live beside the experiments, since nothing else uses these sizes.

use super::support_hardware;
use super::support_parallel::{Known, Outcome};
use super::{Cell, Constant, Constants, EXPOSED, Error, Given, Rests, Result, Setting};
use std::collections::VecDeque;
use superpage_policy::promotion::list;
use superpage_sim::machine::{Backing, Machine, OutOfMemory, Setup};
use superpage_sim::run::{Driven, Latencies, Run};
use superpage_sim::units::Hertz;
use superpage_sim::workload::jemalloc;
use superpage_sim::workload::redis::{Event, Overhead};
use superpage_sim::workload::{
    Access, Counting, Discard, Order, Part, Pattern, Phase, Populate, Stream, Target, VmaShape,
    Workload,
};
use superpage_units::{BasePages, Bytes, HUGE_PAGE_BYTES, HugePages, Nanos, Share, Time, VirtAddr};

static MEMORY: Constant<Bytes> = Constant::chosen(
    "quicksilver.memory",
    Bytes::from_gib(32),
    "Linux's compaction without room at Frag-100 (Tables 5 and 6)",
    "not said; the authors' fragmenting program expects 29 GB free",
);
static UNFRAGMENTED: Constant<HugePages> = Constant::paper(
    "quicksilver.unfragmented",
    HugePages(8192),
    "Benchmark/redis/linux.sh: huge frames of which Frag-X takes X %",
);
static HELD: Constant<BasePages> = Constant::paper(
    "quicksilver.held",
    BasePages(16),
    "fragment_level.c: the fragmenting program holds 64 KB of each huge frame",
);
static PAUSE: Constant<Nanos> = Constant::paper(
    "quicksilver.pause",
    Nanos(60 * 1_000_000_000),
    "Benchmark/redis/linux.sh: between fragmenting and running",
);

/// How fragmented memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    fn leaves(self, constants: &Constants) -> Option<HugePages> {
        match self {
            Self::Zero => None,
            Self::Half => Some(HugePages(constants.get(&UNFRAGMENTED).0 / 2)),
            Self::Full => Some(HugePages(0)),
        }
    }
}

/// What a note says of fragmentation.
pub(super) const FRAGMENTATION: &str = "Frag-X, after the authors' repository: a program that never runs again holds 64 KB of every \
     huge frame, but for 16 GB of them less X %. Those that map no superpages at faults, as Ingens and \
     HawkEye, are fragmented under Linux first, as the authors' scripts do.";

/// The machine under a policy, fragmented.
pub(super) fn machine(
    policy: &str,
    frag: Frag,
    setting: &Setting,
    constants: &Constants,
) -> Result<Run> {
    let build = |name: &str| {
        let entry = list::find(name).ok_or_else(|| Error::Simulation(name.to_owned()))?;
        Ok::<_, Error>((entry.build)())
    };
    let reserves = policy == "freebsd" || policy.starts_with("quicksilver");
    let first = if reserves { policy } else { "linux-nokhugepaged" };
    let (memory, backing) = (constants.get(&MEMORY), Backing::None);
    let setup = Setup { memory, pools: None, backing, seed: setting.seed };
    let mut machine = Machine::new(setup, build(first)?);
    if let Some(leave) = frag.leaves(constants) {
        machine.hold_parts(leave, constants.get(&HELD))?;
    }
    if !reserves {
        machine.change_policy(build(policy)?);
    }
    let mut run = Run::new(machine, support_hardware::reading_ahead("quicksilver")?);
    run.idle(constants.get(&PAUSE));
    Ok(run)
}

/// A program of Tables 4 and 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Program {
    GraphChi,
    BlockSvm,
    Canneal,
    DsJeng,
    Xz,
}

impl Program {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::GraphChi => "GraphChi-PR",
            Self::BlockSvm => "BlockSVM",
            Self::Canneal => "canneal",
            Self::DsJeng => "DSjeng",
            Self::Xz => "XZ",
        }
    }

    fn workload(self, constants: &Constants, frequency: Hertz) -> Workload {
        let (threads, phases) = match self {
            Self::GraphChi => OutOfCore::graphchi(constants).program(constants),
            Self::BlockSvm => OutOfCore::block_svm(constants).program(constants),
            Self::Canneal => canneal(constants, frequency),
            Self::DsJeng => in_fixed((constants, frequency), &DSJENG_SIZE, &DSJENG_THREADS),
            Self::Xz => in_fixed((constants, frequency), &XZ_SIZE, &XZ_THREADS),
        };
        Workload { name: self.name().to_owned(), threads, phases }
    }
}

/// A program, the policy, and how fragmented memory is.
type Case = (Program, &'static str, Frag);

/// How long a program took under a policy.
#[derive(Clone, Debug)]
pub(super) struct Timed {
    seconds: f64,
    rests: Rests,
}

impl Outcome for Timed {
    fn rests(&self) -> &Rests {
        &self.rests
    }
}

impl Timed {
    /// Runs it, or has what came of it before.
    pub(super) fn of(
        program: Program,
        policy: &'static str,
        frag: Frag,
        setting: &Setting,
    ) -> Result<Self> {
        static KNOWN: Known<(Case, Given), Timed> = Known::new();
        let case = (program, policy, frag);
        KNOWN.outcome(case, setting, |setting| Self::run(case, setting))
    }

    fn run((program, policy, frag): Case, setting: &Setting) -> Result<Self> {
        let constants = Constants::of(setting);
        let mut run = machine(policy, frag, setting, &constants)?;
        let frequency = run.hardware().profile.cpu.frequency.value;
        let key = run.start(program.workload(&constants, frequency));
        run.to_end()?;
        let seconds = run.report(key).map_or(f64::NAN, |report| report.time.as_secs_f64());
        Ok(Self { seconds, rests: constants.rests() })
    }

    /// Its speed relative to `other`, and what that rests on.
    pub(super) fn speed_over(&self, other: &Self) -> (f64, Rests) {
        (other.seconds / self.seconds, Rests::all([&self.rests, &other.rests]))
    }
}

pub(super) static HEAP_STEP: Constant<BasePages> = Constant::assumed(
    "quicksilver.heap-step",
    BasePages(33),
    "132 KiB: how a heap grows: by brk, as glibc's malloc does",
);

/// Touching all of a VMA, or a part of it, which grows by `step` if it has to.
pub(super) fn populate(part: Part, step: Bytes, threads: u32, cycles_per_page: f64) -> Phase {
    Phase::Populate(Populate {
        part,
        order: Order::Sequential,
        density: 1.0,
        step,
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
        exposed: EXPOSED,
        counting: Counting::Sampled,
    })
}

static READ_AHEAD: Constant<()> = Constant::assumed(
    "quicksilver.read-ahead",
    (),
    "threads of a program read files ahead, so nobody waits for the device",
);
static LOAD_CYCLES: Constant<f64> = Constant::assumed(
    "quicksilver.load-cycles",
    1600.0,
    "cycles to bring a base page in from a cached file: copying and decoding",
);
static SEQUENTIAL: Constant<Share> = Constant::assumed(
    "quicksilver.sequential",
    Share::percent(50),
    "the part of the accesses in the order of the data, as to entries; not said",
);
static OUT_OF_CORE_CYCLES: Constant<f64> = Constant::fitted(
    "quicksilver.out-of-core-cycles",
    162.0,
    &[Cell {
        experiment: "quicksilver-table4",
        case: "GraphChi-PR",
        policy: "freebsd",
        quantity: "speed relative to linux",
    }],
    "cycles of an access without translation, the same in GraphChi-PR and BlockSVM",
);
static GRAPHCHI_THREADS: Constant<u32> = Constant::paper(
    "quicksilver.graphchi-threads",
    4,
    "Benchmark/README.md: 4 loading and 4 executing threads",
);
static GRAPHCHI_BLOCK: Constant<Bytes> = Constant::assumed(
    "quicksilver.graphchi-block",
    Bytes::from_gib(2),
    "data that are in memory at once; the published Benchmark/README.md gives the budget of memory, 8,000 MB, and not this",
);
static GRAPHCHI_BLOCKS: Constant<usize> = Constant::assumed(
    "quicksilver.graphchi-blocks",
    10,
    "blocks that are read, each from files not read before; the published Benchmark/README.md gives twitter-2010 and three iterations, and not this",
);
static GRAPHCHI_ACCESSES: Constant<f64> = Constant::assumed(
    "quicksilver.graphchi-accesses",
    64.0,
    "accesses to each base page of a block: each cache line once; not said",
);
static BLOCK_SVM_THREADS: Constant<u32> = Constant::assumed(
    "quicksilver.block-svm-threads",
    1,
    "the command in Benchmark/README.md asks for no threads",
);
static BLOCK_SVM_BLOCK: Constant<Bytes> = Constant::assumed(
    "quicksilver.block-svm-block",
    Bytes::from_mib(768),
    "data that are in memory at once; not said",
);
static BLOCK_SVM_FILES: Constant<usize> =
    Constant::paper("quicksilver.block-svm-files", 4, "Benchmark/README.md: 4 parts");
static BLOCK_SVM_PASSES: Constant<usize> =
    Constant::assumed("quicksilver.block-svm-passes", 5, "how often each block is read; not said");
static BLOCK_SVM_ACCESSES: Constant<f64> = Constant::assumed(
    "quicksilver.block-svm-accesses",
    8.0 * 64.0,
    "accesses to each base page of a block: each cache line eight times; not said",
);

/// A program that works through data that do not fit in memory: a block of them is read into fresh
/// memory, used, and given back.
#[derive(Clone, Copy, Debug)]
struct OutOfCore {
    threads: u32,
    block: Bytes,
    blocks: usize,
    /// Of the blocks, those that come from files not read before.
    files: usize,
    /// Accesses to each base page of a block.
    accesses: f64,
}

impl OutOfCore {
    /// GraphChi's PageRank.
    fn graphchi(constants: &Constants) -> Self {
        let blocks = constants.get(&GRAPHCHI_BLOCKS);
        Self {
            threads: constants.get(&GRAPHCHI_THREADS),
            block: constants.get(&GRAPHCHI_BLOCK),
            blocks,
            files: blocks,
            accesses: constants.get(&GRAPHCHI_ACCESSES),
        }
    }

    fn block_svm(constants: &Constants) -> Self {
        let files = constants.get(&BLOCK_SVM_FILES);
        Self {
            threads: constants.get(&BLOCK_SVM_THREADS),
            block: constants.get(&BLOCK_SVM_BLOCK),
            blocks: files * constants.get(&BLOCK_SVM_PASSES),
            files,
            accesses: constants.get(&BLOCK_SVM_ACCESSES),
        }
    }

    /// Its threads and phases.
    fn program(self, constants: &Constants) -> (u32, Vec<Phase>) {
        constants.get(&READ_AHEAD);
        let load = constants.get(&LOAD_CYCLES);
        let cycles = constants.get(&OUT_OF_CORE_CYCLES);
        let sequential = constants.get(&SEQUENTIAL).get();
        let mut phases = vec![Phase::Map(VmaShape::fixed(self.block))];
        let count = self.block.to_base_pages().0 as f64 * self.accesses;
        for block in 0..self.blocks {
            if block < self.files {
                phases.push(Phase::ReadFile(self.block));
            }
            phases.push(populate(Part::whole(0), Bytes::ZERO, self.threads, load));
            phases.push(access(count, cycles, sequential));
            phases.push(Phase::Discard(Discard {
                part: Part::whole(0),
                share: 1.0,
                piece: Bytes(HUGE_PAGE_BYTES),
            }));
        }
        (self.threads, phases)
    }
}

static IN_CORE_ORDER: Constant<()> = Constant::assumed(
    "quicksilver.in-core-order",
    (),
    "canneal, DSjeng and XZ access any address alike; not said",
);
static IN_CORE_CYCLES: Constant<f64> = Constant::assumed(
    "quicksilver.in-core-cycles",
    400.0,
    "cycles of an access without translation, the same in canneal, DSjeng and XZ; not said",
);
static IN_CORE_SECONDS: Constant<f64> = Constant::assumed(
    "quicksilver.in-core-seconds",
    60.0,
    "seconds of accesses without translation of canneal, DSjeng and XZ; not said",
);
static FILL_CYCLES: Constant<f64> = Constant::assumed(
    "quicksilver.fill-cycles",
    1600.0,
    "cycles for a page that canneal, DSjeng or XZ touches first; not said",
);
static CANNEAL_SIZE: Constant<Bytes> =
    Constant::assumed("quicksilver.canneal-size", Bytes::from_gib(1), "its heap; not said");
static CANNEAL_THREADS: Constant<u32> =
    Constant::paper("quicksilver.canneal-threads", 8, "Benchmark/README.md: canneal 8");
static DSJENG_SIZE: Constant<Bytes> = Constant::assumed(
    "quicksilver.dsjeng-size",
    Bytes::from_gib(7),
    "the paper does not say; SPEC has 7 GB for the benchmark",
);
static DSJENG_THREADS: Constant<u32> = Constant::assumed(
    "quicksilver.dsjeng-threads",
    1,
    "the paper does not say; the benchmark has one",
);
static XZ_SIZE: Constant<Bytes> = Constant::assumed(
    "quicksilver.xz-size",
    Bytes::from_gib(15),
    "the paper does not say; SPEC has 15 GB for the benchmark",
);
static XZ_THREADS: Constant<u32> =
    Constant::assumed("quicksilver.xz-threads", 4, "not said, and SPEC leaves it open");

/// canneal: a growing heap.
fn canneal(constants: &Constants, frequency: Hertz) -> (u32, Vec<Phase>) {
    let shape = VmaShape::heap(constants.get(&CANNEAL_SIZE));
    let (step, threads) = (constants.get(&HEAP_STEP).bytes(), constants.get(&CANNEAL_THREADS));
    in_core((constants, frequency), shape, step, threads)
}

/// A program whose memory is mapped at once.
fn in_fixed(
    (constants, frequency): (&Constants, Hertz),
    size: &Constant<Bytes>,
    threads: &Constant<u32>,
) -> (u32, Vec<Phase>) {
    let shape = VmaShape::fixed(constants.get(size));
    in_core((constants, frequency), shape, Bytes::ZERO, constants.get(threads))
}

/// The threads and phases of a program that takes its memory once and then accesses it at random.
fn in_core(
    (constants, frequency): (&Constants, Hertz),
    shape: VmaShape,
    step: Bytes,
    threads: u32,
) -> (u32, Vec<Phase>) {
    constants.get(&IN_CORE_ORDER);
    let (cycles, seconds) = (constants.get(&IN_CORE_CYCLES), constants.get(&IN_CORE_SECONDS));
    let count = seconds * f64::from(threads) * frequency.0 as f64 / cycles;
    let fill = populate(Part::whole(0), step, 1, constants.get(&FILL_CYCLES));
    (threads, vec![Phase::Map(shape), fill, access(count, cycles, 0.0)])
}

static CHUNK_HEADER: Constant<BasePages> = Constant::assumed(
    "quicksilver.jemalloc-header",
    BasePages(13),
    "pages at the start of a chunk that describe the others, of the order in jemalloc 4",
);
static ENTRY: Constant<Bytes> = Constant::assumed(
    "quicksilver.redis-entry",
    Bytes(96),
    "for each object besides its value: Redis's structures on 64 bits, with a key of some 20 bytes",
);

/// The memory that Redis takes beside its values.
pub(super) fn overhead(constants: &Constants) -> Overhead {
    Overhead { header: constants.get(&CHUNK_HEADER), entry: constants.get(&ENTRY) }
}

static HEAP_SIZE: Constant<Bytes> = Constant::immaterial(
    "quicksilver.redis-address-space",
    Bytes::from_gib(64),
    "address space for Redis's heap, more than the heap takes",
);
static UNDER_WAY: Constant<usize> = Constant::paper(
    "quicksilver.under-way",
    8 * 10 * 16,
    "Benchmark/redis/cold_bench.sh: 8 threads of 10 clients with 16 requests each",
);
pub(super) static LAG: Constant<Nanos> = Constant::assumed(
    "quicksilver.background-lag",
    Nanos(1_000_000),
    "how far the background may lag behind Redis: a step of the simulation",
);

/// A Redis server on the machine, which serves requests one after the other.
#[derive(Debug)]
pub(super) struct Server {
    program: Driven,
    /// Its own work for each request, and for each base page written.
    own: (Nanos, Nanos),
    /// When the requests that are under way at any time came.
    arrived: VecDeque<Time>,
    served: u64,
    latencies: Latencies,
    /// Requests under way.
    under_way: usize,
}

impl Server {
    /// Where its heap begins.
    const HEAP: VirtAddr = VirtAddr(1 << 35);

    /// An empty one.
    pub(super) fn new(run: Run, own: (Nanos, Nanos), constants: &Constants) -> Self {
        let (size, lag) = (constants.get(&HEAP_SIZE), constants.get(&LAG));
        Self {
            program: Driven::new(run, Self::HEAP, size, lag),
            own,
            arrived: VecDeque::new(),
            served: 0,
            latencies: Latencies::default(),
            under_way: constants.get(&UNDER_WAY),
        }
    }

    /// Does what the program does.
    pub(super) fn hear(&mut self, event: Event) -> std::result::Result<(), OutOfMemory> {
        match event {
            Event::Touch(pages) => self.touch(pages)?,
            Event::GiveBack(pages) => {
                let start = Self::HEAP.offset(pages.start.bytes());
                self.program.discard(start, start.offset(pages.pages.bytes()));
            }
            Event::Request => self.request(),
        }
        Ok(())
    }

    fn touch(&mut self, pages: jemalloc::Run) -> std::result::Result<(), OutOfMemory> {
        for page in 0..pages.pages.0 {
            self.program.write(Self::HEAP.offset((pages.start + BasePages(page)).bytes()))?;
            self.program.work(self.own.1);
        }
        Ok(())
    }

    fn request(&mut self) {
        self.program.work(self.own.0);
        self.served += 1;
        let now = self.program.clock();
        self.arrived.push_back(now);
        if self.arrived.len() > self.under_way
            && let Some(arrived) = self.arrived.pop_front()
        {
            self.latencies.record(now.since(arrived));
        }
        self.program.catch_up();
    }

    /// Waits for requests, none of which come.
    pub(super) fn rest(&mut self, time: Nanos) {
        self.program.rest(time);
    }

    /// Its memory.
    pub(super) fn resident(&self) -> Bytes {
        self.program.run().machine().resident(self.program.key()).bytes()
    }

    /// Requests in a second, and the latency that 95 % of them do not exceed.
    pub(super) fn performance(&self) -> (f64, Nanos) {
        let time = self.program.elapsed().as_secs_f64();
        (self.served as f64 / time, self.latencies.quantile(0.95))
    }
}
