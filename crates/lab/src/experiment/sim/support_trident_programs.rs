//! Trident's programs (its Tables 2 and 3) as workloads: how each gets its memory and how it goes
//! over it.
//!
//! They live with the experiments because they are what one paper says of its programs, not what
//! the simulator knows. Footprints are those of Table 3 where a program is in it, else Table 2's.
//! Which programs get their memory at once is in section 5.1.2; the sizes of VMAs and of growth
//! are assumptions:
//!
//! | program | assumed |
//! |---|---|
//! | XSBench, GUPS | one VMA |
//! | Graph500 | four: edges, offsets, neighbours, tree |
//! | SVM | 55 GiB at once; two arrays that grow by 64 MiB |
//! | Redis | its hash table (2^26 entries of 8 bytes) at once; a heap that grows by 132 KiB, as malloc's does |
//! | Memcached | its hash table (2^31 entries of 8 bytes) and 1 GiB at once; slabs that grow by 64 MiB |
//! | Canneal | 9 GiB at once; a heap that grows by 132 KiB |
//! | Btree | fitted to its row of Table 3: nine VMAs that grow by 6 MiB |
//! | CC, BC, PR, CG.D | two VMAs |
//!
//! A VMA begins at an arbitrary page, 379 MiB and 4 KiB behind a 1 GiB border. Memcached's slabs
//! and Btree's nodes leave base pages untouched, as many as the difference between Tables 2 and 3.

use superpage_sim::units::Hertz;
use superpage_sim::workload::{
    Access, Counting, Order, Part, Pattern, Phase, Populate, Spread, Stream, Target, VmaShape,
    Workload,
};
use superpage_units::{BASE_PAGE_BYTES, Bytes, Growth, HUGE_PAGE_BYTES, PageSize};

/// Bytes between a 1 GiB border and the start of a VMA. Any that is aligned to no superpage.
const OFFSET: Bytes = Bytes(189 * HUGE_PAGE_BYTES + HUGE_PAGE_BYTES / 2 + BASE_PAGE_BYTES);
/// How malloc grows a heap (glibc: `M_TOP_PAD` and the request).
const HEAP_STEP: Bytes = Bytes::from_kib(132);
/// How arrays and slabs grow: by more than a huge page and less than a gigantic one. Assumed.
const ARRAY_STEP: Bytes = Bytes::from_mib(64);
/// How Btree's VMAs grow: two of three huge pages fit. Fitted.
const BTREE_STEP: Bytes = Bytes::from_mib(6);
/// Cycles of a program's own for each base page that it fills in one go, and for each that it
/// fills item by item. Assumed.
const FILL_CYCLES: f64 = 2_000.0;
const INSERT_CYCLES: f64 = 20_000.0;
/// The main part would take so long if translation cost nothing. Assumed; the paper names no
/// times.
pub(super) const SECONDS: f64 = 300.0;

/// A program of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Program {
    XsBench,
    Gups,
    Svm,
    Redis,
    Btree,
    Graph500,
    Memcached,
    Canneal,
    Cc,
    Bc,
    Pr,
    CgD,
}

/// A VMA of a program.
#[derive(Clone, Copy, Debug)]
struct Memory {
    size: Bytes,
    /// By how much it grows at a time; `None`: it is there at once.
    step: Option<Bytes>,
    /// The share of its base pages that are touched.
    density: f64,
}

impl Memory {
    const fn at_once(mib: u64) -> Self {
        Self { size: Bytes::from_mib(mib), step: None, density: 1.0 }
    }

    const fn growing(mib: u64, step: Bytes) -> Self {
        Self { size: Bytes::from_mib(mib), step: Some(step), density: 1.0 }
    }

    const fn touched(self, density: f64) -> Self {
        Self { density, ..self }
    }
}

const GIB: u64 = 1024;

impl Program {
    /// The programs that gain from gigantic pages: those of Tables 3 and 4.
    pub(super) const SENSITIVE: [Self; 8] = [
        Self::XsBench,
        Self::Gups,
        Self::Svm,
        Self::Redis,
        Self::Btree,
        Self::Graph500,
        Self::Memcached,
        Self::Canneal,
    ];
    /// The others.
    pub(super) const OTHERS: [Self; 4] = [Self::Cc, Self::Bc, Self::Pr, Self::CgD];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::XsBench => "XSBench",
            Self::Gups => "GUPS",
            Self::Svm => "SVM",
            Self::Redis => "Redis",
            Self::Btree => "Btree",
            Self::Graph500 => "Graph500",
            Self::Memcached => "Memcached",
            Self::Canneal => "Canneal",
            Self::Cc => "CC",
            Self::Bc => "BC",
            Self::Pr => "PR",
            Self::CgD => "CG.D",
        }
    }

    /// Threads (Table 2).
    pub(super) const fn threads(self) -> u32 {
        match self {
            Self::Btree | Self::Gups | Self::Redis | Self::Canneal => 1,
            _ => 36,
        }
    }

    fn memory(self) -> Vec<Memory> {
        let [one, two, four, nine] = [1, 2, 4, 9];
        let repeat = |memory, count| vec![memory; count];
        match self {
            Self::XsBench => repeat(Memory::at_once(117 * GIB), one),
            Self::Gups => repeat(Memory::at_once(32 * GIB), one),
            Self::Graph500 => repeat(Memory::at_once(127 * GIB / 8), four),
            Self::Svm => {
                let array = Memory::growing(27 * GIB / 4, ARRAY_STEP);
                vec![Memory::at_once(55 * GIB), array, array]
            }
            Self::Redis => {
                vec![Memory::at_once(GIB / 2), Memory::growing(87 * GIB / 2, HEAP_STEP)]
            }
            Self::Memcached => {
                let slabs = Memory::growing(120 * GIB, ARRAY_STEP).touched(62.0 / 120.0);
                vec![Memory::at_once(17 * GIB), slabs]
            }
            Self::Canneal => {
                vec![Memory::at_once(9 * GIB), Memory::growing(23 * GIB, HEAP_STEP)]
            }
            Self::Btree => {
                let nodes = Memory::growing(25 * GIB / 9, BTREE_STEP);
                repeat(nodes.touched(10.5 / 25.0), nine)
            }
            Self::Cc | Self::Bc | Self::Pr => repeat(Memory::at_once(36 * GIB), two),
            Self::CgD => repeat(Memory::at_once(25 * GIB), two),
        }
    }

    /// Where its accesses that miss the data caches go.
    const fn pattern(self) -> Pattern {
        match self {
            Self::Graph500 | Self::Cc | Self::Bc | Self::Pr => {
                Pattern::PowerLaw { theta: 0.6, spread: Spread::Scattered }
            }
            _ => Pattern::Uniform,
        }
    }

    /// Cycles of one such access and of what is done until the next, without translation.
    ///
    /// For GUPS so that gigantic pages gain 47 % (Figure 9). The others are assumed: a pointer that
    /// is waited for takes 90 ns, a processor has a few gathers under way at once, and a program
    /// computes in between.
    pub(super) const fn cycles(self) -> f64 {
        match self {
            Self::Gups => 20.5,
            Self::Canneal => 80.0,
            Self::Btree | Self::Graph500 => 150.0,
            Self::Svm | Self::CgD => 200.0,
            Self::XsBench | Self::Cc | Self::Bc | Self::Pr => 300.0,
            Self::Redis | Self::Memcached => 400.0,
        }
    }

    /// It as a workload on a processor of this frequency.
    pub(super) fn workload(self, pages: Backed, frequency: Hertz) -> Workload {
        let memory = self.memory();
        let mut phases: Vec<Phase> =
            memory.iter().map(|memory| Phase::Map(pages.shape(*memory))).collect();
        let populate = |(vma, memory): (usize, &Memory)| {
            Phase::Populate(Populate {
                part: Part::whole(vma),
                order: Order::Sequential,
                density: memory.density,
                step: memory.step.unwrap_or_default(),
                cycles_per_page: if memory.step.is_some() { INSERT_CYCLES } else { FILL_CYCLES },
                threads: self.threads(),
            })
        };
        phases.extend(memory.iter().enumerate().map(populate));
        let total: f64 = memory.iter().map(|memory| memory.size.0 as f64).sum();
        let stream = |(vma, memory): (usize, &Memory)| Stream {
            part: Part::whole(vma),
            pattern: self.pattern(),
            target: if memory.density < 1.0 { Target::Data } else { Target::Any },
            weight: memory.size.0 as f64 / total,
        };
        phases.push(Phase::Access(Access {
            streams: memory.iter().enumerate().map(stream).collect(),
            count: SECONDS * frequency.0 as f64 * f64::from(self.threads()) / self.cycles(),
            cycles: self.cycles(),
            exposed: 1.0,
            counting: Counting::Sampled,
        }));
        Workload { name: self.name().to_owned(), threads: self.threads(), phases }
    }

    /// Its memory that 1 GiB and that 2 MiB could map once all of it is there, in GiB.
    pub(super) fn mappable(self, size: PageSize) -> f64 {
        let of = |memory: &Memory| {
            let (from, to) = (OFFSET.0, OFFSET.0 + memory.size.0);
            let bytes = size.bytes().0;
            ((to / bytes).saturating_sub(from.div_ceil(bytes)) * bytes) as f64
        };
        self.memory().iter().map(of).sum::<f64>() / Bytes::from_gib(1).0 as f64
    }
}

/// What backs a program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Backed {
    /// The kernel, as the program asks for it.
    Asked,
    /// Pages of this size set aside before (libhugetlbfs): VMAs are whole numbers of them, and
    /// there at once.
    SetAside(PageSize),
}

impl Backed {
    fn shape(self, memory: Memory) -> VmaShape {
        match self {
            Self::Asked => VmaShape {
                size: if memory.step.is_some() { Bytes::ZERO } else { memory.size },
                growth: if memory.step.is_some() { Growth::Up } else { Growth::Fixed },
                offset: OFFSET,
                ..VmaShape::fixed(memory.size)
            },
            Self::SetAside(size) => {
                let bytes = size.bytes().0;
                VmaShape::fixed(Bytes(memory.size.0.div_ceil(bytes) * bytes))
            }
        }
    }
}
