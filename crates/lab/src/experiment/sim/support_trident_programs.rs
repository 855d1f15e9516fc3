//! Trident's programs (its Tables 2 and 3) as workloads: how each gets its memory and how it goes
//! over it.
//!
//! They live with the experiments because they are what one paper says of its programs, not what
//! the simulator knows. Footprints are those of Table 3 where a program is in it, else Table 2's.
//! Which programs get their memory at once is in section 5.1.2; the sizes of VMAs and of growth, and
//! what lies behind them, are in `support_trident_constants`. Memcached's slabs and Btree's nodes leave
//! base pages untouched, as many as the difference between Tables 2 and 3.

use super::support_trident_constants as numbers;
use super::{Constant, Constants, EXPOSED};
use superpage_sim::units::Hertz;
use superpage_sim::workload::{
    Access, Counting, Order, Part, Pattern, Phase, Populate, Spread, Stream, Target, VmaShape,
    Workload,
};
use superpage_units::{Bytes, Growth, PageSize};

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
    const fn at_once(size: Bytes) -> Self {
        Self { size, step: None, density: 1.0 }
    }

    const fn growing(size: Bytes, step: Bytes) -> Self {
        Self { size, step: Some(step), density: 1.0 }
    }
}

/// The size of one of `count` equal parts, in whole MiB.
const fn part_of(all: Bytes, count: usize) -> Bytes {
    Bytes::from_mib(all.0 / Bytes::from_mib(1).0 / count as u64)
}

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

    /// Threads.
    pub(super) fn threads(self, constants: &Constants) -> u32 {
        constants.get(match self {
            Self::XsBench => &numbers::XSBENCH_THREADS,
            Self::Gups => &numbers::GUPS_THREADS,
            Self::Svm => &numbers::SVM_THREADS,
            Self::Redis => &numbers::REDIS_THREADS,
            Self::Btree => &numbers::BTREE_THREADS,
            Self::Graph500 => &numbers::GRAPH500_THREADS,
            Self::Memcached => &numbers::MEMCACHED_THREADS,
            Self::Canneal => &numbers::CANNEAL_THREADS,
            Self::Cc | Self::Bc | Self::Pr => &numbers::GAPBS_THREADS,
            Self::CgD => &numbers::CG_THREADS,
        })
    }

    /// All of its memory.
    fn size(self, constants: &Constants) -> Bytes {
        constants.get(match self {
            Self::XsBench => &numbers::XSBENCH_SIZE,
            Self::Gups => &numbers::GUPS_SIZE,
            Self::Svm => &numbers::SVM_SIZE,
            Self::Redis => &numbers::REDIS_SIZE,
            Self::Btree => &numbers::BTREE_SIZE,
            Self::Graph500 => &numbers::GRAPH500_SIZE,
            Self::Memcached => &numbers::MEMCACHED_SIZE,
            Self::Canneal => &numbers::CANNEAL_SIZE,
            Self::Cc | Self::Bc | Self::Pr => &numbers::GAPBS_SIZE,
            Self::CgD => &numbers::CG_SIZE,
        })
    }

    /// Its VMAs.
    fn memory(self, constants: &Constants) -> Vec<Memory> {
        let heap_step = || constants.get(&numbers::HEAP_STEP).bytes();
        let array_step = || constants.get(&numbers::ARRAY_STEP);
        let memory = match self {
            Self::XsBench => self.alike(&numbers::XSBENCH_VMAS, constants),
            Self::Gups => self.alike(&numbers::GUPS_VMAS, constants),
            Self::Graph500 => self.alike(&numbers::GRAPH500_VMAS, constants),
            Self::Cc | Self::Bc | Self::Pr => self.alike(&numbers::GAPBS_VMAS, constants),
            Self::CgD => self.alike(&numbers::CG_VMAS, constants),
            Self::Svm => {
                let arrays = constants.get(&numbers::SVM_ARRAYS);
                self.in_part(&numbers::SVM_AT_ONCE, (array_step(), arrays), constants)
            }
            Self::Redis => self.in_part(&numbers::REDIS_AT_ONCE, (heap_step(), 1), constants),
            Self::Canneal => self.in_part(&numbers::CANNEAL_AT_ONCE, (heap_step(), 1), constants),
            Self::Memcached => self.memcached(array_step(), constants),
            Self::Btree => self.btree(constants),
        };
        memory.into_iter().filter(|memory| !memory.size.is_zero()).collect()
    }

    /// So many VMAs of one size, all there at once.
    fn alike(self, count: &Constant<usize>, constants: &Constants) -> Vec<Memory> {
        let count = constants.get(count);
        vec![Memory::at_once(part_of(self.size(constants), count)); count]
    }

    /// One VMA that is there at once, and so many that grow by `step` with the rest.
    fn in_part(
        self,
        at_once: &Constant<Bytes>,
        (step, count): (Bytes, usize),
        constants: &Constants,
    ) -> Vec<Memory> {
        let all = self.size(constants);
        let at_once = constants.get(at_once).min(all);
        let mut memory = vec![Memory::at_once(at_once)];
        let rest = Memory::growing(part_of(all - at_once, count), step);
        memory.extend(std::iter::repeat_n(rest, count));
        memory
    }

    /// Memcached's table and slabs. Of its slabs is touched what Table 2 has beside the table.
    fn memcached(self, step: Bytes, constants: &Constants) -> Vec<Memory> {
        constants.get(&numbers::UNTOUCHED);
        let mut memory = self.in_part(&numbers::MEMCACHED_AT_ONCE, (step, 1), constants);
        let at_once = constants.get(&numbers::MEMCACHED_AT_ONCE);
        let touched = constants.get(&numbers::MEMCACHED_TOUCHED).saturating_sub(at_once);
        let slabs = self.size(constants).saturating_sub(at_once);
        for growing in memory.iter_mut().filter(|memory| memory.step.is_some()) {
            growing.density = touched.share_of(slabs).get();
        }
        memory
    }

    /// Btree's nodes.
    fn btree(self, constants: &Constants) -> Vec<Memory> {
        constants.get(&numbers::UNTOUCHED);
        let (all, count) = (self.size(constants), constants.get(&numbers::BTREE_VMAS));
        let nodes = Memory::growing(part_of(all, count), constants.get(&numbers::BTREE_STEP));
        let density = constants.get(&numbers::BTREE_TOUCHED).share_of(all).get();
        vec![Memory { density, ..nodes }; count]
    }

    /// Where its accesses that miss the data caches go.
    fn pattern(self, constants: &Constants) -> Pattern {
        match self {
            Self::Graph500 | Self::Cc | Self::Bc | Self::Pr => {
                let theta = constants.get(&numbers::GRAPH_SKEW);
                return Pattern::PowerLaw { theta, spread: Spread::Scattered };
            }
            Self::Gups => constants.get(&numbers::GUPS_UNIFORM),
            _ => constants.get(&numbers::UNIFORM),
        }
        Pattern::Uniform
    }

    /// Cycles of one such access and of what is done until the next, without translation.
    pub(super) fn cycles(self, constants: &Constants) -> f64 {
        constants.get(match self {
            Self::XsBench => &numbers::XSBENCH_CYCLES,
            Self::Gups => &numbers::GUPS_CYCLES,
            Self::Svm => &numbers::SVM_CYCLES,
            Self::Redis => &numbers::REDIS_CYCLES,
            Self::Btree => &numbers::BTREE_CYCLES,
            Self::Graph500 => &numbers::GRAPH500_CYCLES,
            Self::Memcached => &numbers::MEMCACHED_CYCLES,
            Self::Canneal => &numbers::CANNEAL_CYCLES,
            Self::Cc => &numbers::CC_CYCLES,
            Self::Bc => &numbers::BC_CYCLES,
            Self::Pr => &numbers::PR_CYCLES,
            Self::CgD => &numbers::CG_CYCLES,
        })
    }

    /// The program as a workload on a processor of this frequency.
    pub(super) fn workload(
        self,
        pages: Backed,
        frequency: Hertz,
        constants: &Constants,
    ) -> Workload {
        let (memory, threads) = (self.memory(constants), self.threads(constants));
        let mut phases: Vec<Phase> =
            memory.iter().map(|memory| Phase::Map(pages.shape(*memory, constants))).collect();
        let populate = |(vma, memory): (usize, &Memory)| {
            let is_growing = memory.step.is_some();
            let cycles = if is_growing { &numbers::INSERT_CYCLES } else { &numbers::FILL_CYCLES };
            Phase::Populate(Populate {
                part: Part::whole(vma),
                order: Order::Sequential,
                density: memory.density,
                step: memory.step.unwrap_or_default(),
                cycles_per_page: constants.get(cycles),
                threads,
            })
        };
        phases.extend(memory.iter().enumerate().map(populate));
        let (seconds, cycles) = (constants.get(&numbers::SECONDS), self.cycles(constants));
        phases.push(Phase::Access(Access {
            streams: self.streams(&memory, constants),
            count: seconds * frequency.0 as f64 * f64::from(threads) / cycles,
            cycles,
            exposed: EXPOSED,
            counting: Counting::Sampled,
        }));
        Workload { name: self.name().to_owned(), threads, phases }
    }

    /// Accesses of its main part: to each VMA as many as it is large.
    fn streams(self, memory: &[Memory], constants: &Constants) -> Vec<Stream> {
        let pattern = self.pattern(constants);
        let total: f64 = memory.iter().map(|memory| memory.size.0 as f64).sum();
        let stream = |(vma, memory): (usize, &Memory)| Stream {
            part: Part::whole(vma),
            pattern,
            target: if memory.density < 1.0 { Target::Data } else { Target::Any },
            weight: memory.size.0 as f64 / total,
        };
        memory.iter().enumerate().map(stream).collect()
    }

    /// Its memory that 1 GiB and that 2 MiB could map once all of it is there, in GiB.
    pub(super) fn mappable(self, size: PageSize, constants: &Constants) -> f64 {
        let from = constants.get(&numbers::OFFSET).bytes().0;
        let of = |memory: &Memory| {
            let (to, bytes) = (from + memory.size.0, size.bytes().0);
            ((to / bytes).saturating_sub(from.div_ceil(bytes)) * bytes) as f64
        };
        self.memory(constants).iter().map(of).sum::<f64>() / Bytes::from_gib(1).0 as f64
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
    fn shape(self, memory: Memory, constants: &Constants) -> VmaShape {
        match self {
            Self::Asked => VmaShape {
                size: if memory.step.is_some() { Bytes::ZERO } else { memory.size },
                growth: if memory.step.is_some() { Growth::Up } else { Growth::Fixed },
                offset: constants.get(&numbers::OFFSET).bytes(),
                ..VmaShape::fixed(memory.size)
            },
            Self::SetAside(size) => {
                let bytes = size.bytes().0;
                VmaShape::fixed(Bytes(memory.size.0.div_ceil(bytes) * bytes))
            }
        }
    }
}
