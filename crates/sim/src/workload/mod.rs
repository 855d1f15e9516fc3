//! Workloads by what they do to memory: which VMAs they map, in which order they touch them, what
//! they access afterwards and what they give back. Data, and the drawing of addresses from it.

pub mod draw;
pub mod graph;
pub mod jemalloc;
pub mod offload;
pub mod redis;
pub mod steps;

use crate::machine::Content;
use superpage_units::{Advice, BasePages, Bytes, Growth, Nanos, VirtAddr, Vma, VmaKind};

/// Names a VMA within a workload, in the order in which they are mapped.
pub type AreaIndex = usize;

/// A program.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Threads that access memory in the main part.
    pub threads: u32,
    /// What it does, one after the other.
    pub phases: Vec<Phase>,
}

/// One thing that a program does.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// The program maps a VMA.
    Map(VmaShape),
    /// The program touches pages for the first time (or again).
    Populate(Populate),
    /// The program accesses what it has.
    Access(Access),
    /// The program does the same step over and over, on memory that may not all be there.
    Steps(steps::Steps),
    /// The program gives pages back.
    Discard(Discard),
    /// The program reads a file, which stays in page cache.
    ReadFile(Bytes),
    /// The program waits.
    Sleep(Nanos),
    /// The mappings of the program change at given addresses: one step of a recorded program.
    Change(Change),
    /// The program waits until so long after its start; if that has passed, not at all.
    WaitUntil(Nanos),
    /// The program forks, and goes on. The child has all its VMAs, by the same indices, does what this says
    /// and ends, whatever its parent does meanwhile. What either writes is copied where it is
    /// populated ([`Phase::Populate`], [`Phase::Steps`], [`Phase::Change`]); [`Phase::Access`] only
    /// reads.
    Fork(Workload),
}

/// A VMA to be mapped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VmaShape {
    /// How long it is at first.
    pub size: Bytes,
    /// How long it may become; address space is kept free for that.
    pub limit: Bytes,
    /// Bytes between a 1 GiB border and its start: what the program's other memory leaves.
    pub offset: Bytes,
    /// What it holds.
    pub kind: VmaKind,
    /// Whether it grows.
    pub growth: Growth,
    /// What the program asks for.
    pub advice: Advice,
}

impl VmaShape {
    /// Anonymous memory of a fixed size, aligned to 1 GiB.
    #[must_use]
    pub const fn fixed(size: Bytes) -> Self {
        Self {
            size,
            limit: size,
            offset: Bytes::ZERO,
            kind: VmaKind::Anonymous,
            growth: Growth::Fixed,
            advice: Advice::None,
        }
    }

    /// A heap that grows up to `limit`.
    #[must_use]
    pub const fn heap(limit: Bytes) -> Self {
        Self { size: Bytes::ZERO, growth: Growth::Up, ..Self::fixed(limit) }.with_limit(limit)
    }

    const fn with_limit(self, limit: Bytes) -> Self {
        Self { limit, ..self }
    }
}

/// A part of a VMA: shares of its length, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Which VMA.
    pub vma: AreaIndex,
    /// Where the part begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}

impl Part {
    /// All of a VMA.
    #[must_use]
    pub const fn whole(vma: AreaIndex) -> Self {
        Self { vma, from: 0.0, to: 1.0 }
    }
}

/// The order in which pages are touched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// One after the other.
    Sequential,
    /// At random, as many as there are pages in the part; some are touched more than once.
    Random,
}

/// Touching pages for the first time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Populate {
    /// Which.
    pub part: Part,
    /// In which order.
    pub order: Order,
    /// The share of the base pages that are touched, spread evenly at random.
    pub density: f64,
    /// How much the VMA grows at a time, if it has to.
    pub step: Bytes,
    /// Cycles of the program's own for each base page touched.
    pub cycles_per_page: f64,
    /// How many threads share the work.
    pub threads: u32,
}

/// Which addresses a stream of accesses goes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Any, all alike.
    Uniform,
    /// A power law: the share of accesses to the first `x` of the part is `x` to the power of
    /// `1 - theta`; 0 is uniform, near 1 is very skewed. `Spread` says where the hot ones are.
    PowerLaw {
        /// The exponent.
        theta: f64,
        /// Where the hot items lie.
        spread: Spread,
    },
    /// One after the other, a cache line each.
    Sequential,
    /// The vertices of a graph, each as often as it has neighbours.
    Vertices(graph::Vertices),
    /// In runs: so many accesses, each `step` behind the last, and then anywhere else.
    Runs {
        /// Accesses of a run.
        accesses: u64,
        /// How far one lies behind the other; zero: all in one place.
        step: Bytes,
    },
}

/// Where the hot items of a power law lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// At the start of the part, as after degree-based grouping.
    Grouped,
    /// Anywhere.
    Scattered,
}

/// Which pages a stream goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All pages.
    Any,
    /// The pages that hold data.
    Data,
}

/// Accesses of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Where to.
    pub part: Part,
    /// How they spread.
    pub pattern: Pattern,
    /// Which pages of the part.
    pub target: Target,
    /// Their share of all accesses, in relation to the other streams' weights.
    pub weight: f64,
}

/// Whether accesses are counted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// A sample stands for many: memory stays as it is while they run, but for the background.
    Sampled,
    /// Every access is made: they may fault.
    Each,
}

/// Accessing what is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// Where to; without any, to every page that holds data, all alike.
    pub streams: Vec<Stream>,
    /// How many accesses, of all threads together.
    pub count: f64,
    /// Cycles for one access without those for translation: work and data caches.
    pub cycles: f64,
    /// The share of translation cycles that the processor cannot hide, 0 to 1.
    pub exposed: f64,
    /// Whether every one is made.
    pub counting: Counting,
}

/// Giving pages back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Discard {
    /// Of what.
    pub part: Part,
    /// The share of its pieces that are given back, at random.
    pub share: f64,
    /// How large the pieces are.
    pub piece: Bytes,
}

/// A change of what is mapped, by address: first the VMAs, then what is given back, then what is
/// touched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Its VMAs from now on, in address order, if they change. What lies in none of them any more
    /// is given back.
    pub vmas: Option<Vec<Vma>>,
    /// Pages given back.
    pub released: Vec<Extent>,
    /// Pages touched, in this order.
    pub touched: Vec<Touch>,
}

/// Neighbouring base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The address of the first.
    pub start: VirtAddr,
    /// How many.
    pub pages: BasePages,
}

/// Touching neighbouring base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Which.
    pub extent: Extent,
    /// What is written there.
    pub content: Content,
}
