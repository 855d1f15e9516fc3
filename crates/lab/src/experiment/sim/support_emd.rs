//! EMD's programs (its Table 2) as workloads, and a machine with them on it, populated.
//!
//! Memory by 4 KiB and by 2 MiB pages comes from Table 2. How bloat lies in it is known for
//! RandomAccess (section 3.1 and Figure 4: halves of 80 % and 20 %); for BTree and Memcached Figure 4
//! shows three kinds of ranges, nearly all bloat, about half, none.

use super::{Cell, Constant, Constants, EXPOSED, Error, Rests, Result, Setting, support_hardware};
use superpage_policy::debloat::emd;
use superpage_policy::debloat::list::Entry;
use superpage_policy::promotion::list;
use superpage_sim::machine::work::Work;
use superpage_sim::machine::{Backing, Machine, Setup};
use superpage_sim::random::Random;
use superpage_sim::run::Run;
use superpage_sim::workload::{
    Access, Counting, Order, Part, Pattern, Phase, Populate, Stream, Target, VmaShape, Workload,
};
use superpage_units::{BasePages, Bytes, HUGE_PAGE_BYTES, HugePages, ProcessKey, Share};

static MEMORY: Constant<Bytes> =
    Constant::paper("emd.memory", Bytes::from_gib(256), "section 5.1: 256 GB");
static ACCESSES: Constant<f64> = Constant::immaterial(
    "emd.accesses",
    1e9,
    "accesses of a timed run, of which only ratios of times are told",
);
static BTREE_SIZE: Constant<Bytes> =
    Constant::paper("emd.btree-size", Bytes::from_gib(44), "Table 2, on huge pages");
static MEMCACHED_SIZE: Constant<Bytes> =
    Constant::paper("emd.memcached-size", Bytes::from_gib(50), "Table 2, on huge pages");
static RANDOM_SIZE: Constant<Bytes> =
    Constant::paper("emd.random-access-size", Bytes::from_gib(8), "Table 2, on huge pages");
static RANDOM_DENSE: Constant<Share> =
    Constant::paper("emd.random-access-dense", Share::percent(80), "section 3.1, Figure 4 (c, d)");
static RANDOM_SPARSE: Constant<Share> =
    Constant::paper("emd.random-access-sparse", Share::percent(20), "section 3.1, Figure 4 (c, d)");
static BTREE_FULL: Constant<Share> = Constant::fitted(
    "emd.btree-full",
    Share::clamped(0.14),
    &[
        kept_by_hawkeye("emd-fig10", "4 x BTree, 40 %", "retained by instance 1"),
        kept_by_hawkeye("emd-fig10", "4 x BTree, 40 %", "retained by instance 2"),
        kept_by_hawkeye("emd-fig13", "BTree and Memcached, 40 %", "retained by instance 1"),
    ],
    "the part of the ranges that is full; Figure 4 shows it without numbers",
);

/// The 14 % of sections 5.3.2 and 5.3.3: HawkEye keeps the ranges without bloat, and no others.
const fn kept_by_hawkeye(
    experiment: &'static str,
    case: &'static str,
    quantity: &'static str,
) -> Cell {
    Cell { experiment, case, policy: "hawkeye", quantity }
}

static BTREE_MIDDLING: Constant<Share> = Constant::chosen(
    "emd.btree-middling",
    Share::clamped(0.145),
    "the memory of Table 2",
    "the part of the ranges that is half full; Figure 4 shows it without numbers",
);
static MEMCACHED_FULL: Constant<Share> = Constant::chosen(
    "emd.memcached-full",
    Share::clamped(0.245),
    "the memory of Table 2",
    "the part of the ranges that is full; Figure 4 shows it without numbers",
);
static MEMCACHED_MIDDLING: Constant<Share> = Constant::chosen(
    "emd.memcached-middling",
    Share::clamped(0.25),
    "the memory of Table 2",
    "the part of the ranges that is half full; Figure 4 shows it without numbers",
);
static MIDDLING: Constant<Share> =
    Constant::assumed("emd.middling", Share::percent(50), "Figure 4: about half is bloat");
static BLOATED: Constant<Share> =
    Constant::assumed("emd.bloated", Share::percent(2), "Figure 4: nearly all is bloat");
static LONGEST: Constant<u64> = Constant::assumed(
    "emd.longest-of-a-kind",
    32,
    "huge pages of one kind in a row, at most: a slab, the nodes of a level",
);
static CYCLES: Constant<f64> = Constant::fitted(
    "emd.cycles",
    172.0,
    &[Cell {
        experiment: "emd-table3",
        case: "RandomAccess-L",
        policy: "emd, high bloat",
        quantity: "relative time",
    }],
    "cycles of an access without translation, the same for all programs",
);
static FILL_CYCLES: Constant<f64> = Constant::immaterial(
    "emd.fill-cycles",
    500.0,
    "cycles for a page that is touched first, which is not timed",
);

/// A note of tables with shares that are reclaimed.
pub(super) const SHARE_OF_FOOTPRINT: &str = "Reclaimed is a share of the memory that programs have. The paper says a share of the unused memory in one place and of \
     the physical memory in another; only this fits its results: with 50 % nearly all huge pages of RandomAccess are split, and \
     all of its bloat is half of its memory.";

/// A program of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    BTree,
    Memcached,
    RandomAccessL,
    RandomAccessR,
}

impl Kind {
    pub(super) const ALL: [Self; 4] =
        [Self::BTree, Self::Memcached, Self::RandomAccessL, Self::RandomAccessR];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::BTree => "BTree",
            Self::Memcached => "Memcached",
            Self::RandomAccessL => "RandomAccess-L",
            Self::RandomAccessR => "RandomAccess-R",
        }
    }

    /// Memory with huge pages.
    pub(super) fn size(self, constants: &Constants) -> Bytes {
        constants.get(match self {
            Self::BTree => &BTREE_SIZE,
            Self::Memcached => &MEMCACHED_SIZE,
            Self::RandomAccessL | Self::RandomAccessR => &RANDOM_SIZE,
        })
    }

    /// Share of the ranges and share of their base pages that are used, for each kind of range.
    fn ranges(self, constants: &Constants) -> Vec<(f64, f64)> {
        let share = |constant: &Constant<Share>| constants.get(constant).get();
        let three = |full, middling| {
            let (full, middling): (f64, f64) = (share(full), share(middling));
            let rest = (1.0 - full - middling).max(0.0);
            vec![(full, 1.0), (middling, share(&MIDDLING)), (rest, share(&BLOATED))]
        };
        match self {
            Self::BTree => three(&BTREE_FULL, &BTREE_MIDDLING),
            Self::Memcached => three(&MEMCACHED_FULL, &MEMCACHED_MIDDLING),
            Self::RandomAccessL => vec![(0.5, share(&RANDOM_SPARSE)), (0.5, share(&RANDOM_DENSE))],
            Self::RandomAccessR => vec![(0.5, share(&RANDOM_DENSE)), (0.5, share(&RANDOM_SPARSE))],
        }
    }

    /// Whether its kinds of ranges lie one after the other, or mixed.
    const fn is_mixed(self) -> bool {
        matches!(self, Self::BTree | Self::Memcached)
    }

    fn workload(self, runs: usize, constants: &Constants) -> Workload {
        let mut phases = vec![Phase::Map(VmaShape::fixed(self.size(constants)))];
        phases.extend(self.present(constants));
        let access = Access {
            streams: vec![Stream {
                part: Part::whole(0),
                pattern: Pattern::Uniform,
                target: Target::Data,
                weight: 1.0,
            }],
            count: constants.get(&ACCESSES),
            cycles: constants.get(&CYCLES),
            exposed: EXPOSED,
            counting: Counting::Sampled,
        };
        phases.extend(std::iter::repeat_n(Phase::Access(access), runs));
        Workload { name: self.name().to_owned(), threads: 1, phases }
    }

    /// Phases that touch the pages that are used.
    fn present(self, constants: &Constants) -> Vec<Phase> {
        let (size, ranges) = (self.size(constants), self.ranges(constants));
        let huge_pages = size.to_huge_pages().0;
        let cycles_per_page = constants.get(&FILL_CYCLES);
        let touch = |from: u64, to: u64, density: f64| {
            Phase::Populate(Populate {
                part: Part {
                    vma: 0,
                    from: from as f64 / huge_pages as f64,
                    to: to as f64 / huge_pages as f64,
                },
                order: Order::Sequential,
                density,
                step: Bytes::ZERO,
                cycles_per_page,
                threads: 1,
            })
        };
        if self.is_mixed() {
            let longest = constants.get(&LONGEST);
            let mut random = Random::new(size.0);
            let mut phases = Vec::new();
            let mut at = 0;
            while at < huge_pages {
                let length = (1 + random.below(longest)).min(huge_pages - at);
                phases.push(touch(at, at + length, density(&ranges, random.share())));
                at += length;
            }
            return phases;
        }
        let mut from = 0.0;
        let mut phases = Vec::new();
        for (share, density) in &ranges {
            let to = from + share;
            let border =
                |share: f64| HugePages(huge_pages).bytes().scaled(share).0 / HUGE_PAGE_BYTES;
            phases.push(touch(border(from), border(to), *density));
            from = to;
        }
        phases
    }
}

/// The density of the kind of range that a random number stands for.
fn density(ranges: &[(f64, f64)], random: f64) -> f64 {
    let mut until = 0.0;
    for (share, density) in ranges {
        until += share;
        if random < until {
            return *density;
        }
    }
    1.0
}

/// Programs on the paper's machine, populated, and timed once as they are.
#[derive(Debug)]
pub(super) struct Stage {
    run: Run,
    programs: Vec<(Kind, ProcessKey)>,
    constants: Constants,
}

/// What a program took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    /// Time over that before anything was reclaimed.
    pub(super) slowdown: f64,
    /// Share of its huge pages that it still has.
    pub(super) retained: f64,
}

impl Stage {
    /// Starts them one after the other under `policy`.
    pub(super) fn new(kinds: &[Kind], policy: &str, setting: &Setting) -> Result<Self> {
        let entry = list::find(policy).ok_or_else(|| Error::Simulation(policy.to_owned()))?;
        let constants = Constants::of(setting);
        let (memory, backing) = (constants.get(&MEMORY), Backing::None);
        let setup = Setup { memory, pools: None, backing, seed: setting.seed };
        let machine = Machine::new(setup, (entry.build)());
        let mut run = Run::new(machine, support_hardware::of("emd")?);
        let mut programs = Vec::new();
        for kind in kinds {
            programs.push((*kind, run.start(kind.workload(2, &constants))));
            run.until_left(1)?;
        }
        Ok(Self { run, programs, constants })
    }

    /// The constants behind the numbers of this stage.
    pub(super) fn rests(&self) -> Rests {
        self.constants.rests()
    }

    /// The memory that the programs have.
    pub(super) fn footprint(&self) -> BasePages {
        self.programs.iter().map(|(_, key)| self.run.machine().resident(*key)).sum()
    }

    /// Takes `need` back.
    pub(super) fn debloat(&mut self, policy: Entry, need: BasePages) -> (BasePages, Work) {
        let mut work = Work::default();
        let mut policy = (policy.build)(emd::Options::default());
        let keys: Vec<ProcessKey> = self.programs.iter().map(|(_, key)| *key).collect();
        let machine = self.run.machine_mut();
        let freed = machine.debloat(policy.as_mut(), &keys, need, &mut work);
        (freed, work)
    }

    /// Huge pages split so far.
    pub(super) fn split(&self) -> u64 {
        self.run.machine().counts().split
    }

    /// Times the programs once more.
    pub(super) fn time(mut self) -> Result<Vec<Timed>> {
        self.run.to_end()?;
        let of = |(kind, key): &(Kind, ProcessKey)| {
            let report = self.run.report(*key);
            let seconds = |back: usize| {
                let phases = report.as_ref().map(|report| report.phases.as_slice());
                let at = phases.and_then(|phases| phases.get(phases.len().checked_sub(back)?));
                at.map_or(f64::NAN, |time| time.as_secs_f64())
            };
            let huge = self.run.machine().process(*key).map(|process| process.footprint().huge);
            Timed {
                slowdown: seconds(1) / seconds(2),
                retained: huge
                    .unwrap_or_default()
                    .share_of(kind.size(&self.constants).to_huge_pages())
                    .get(),
            }
        };
        Ok(self.programs.iter().map(of).collect())
    }

    /// Seconds of the last timed run of each program.
    pub(super) fn seconds(&self) -> Vec<f64> {
        let last = |key: &ProcessKey| {
            let report = self.run.report(*key)?;
            report.phases.last().map(|time| time.as_secs_f64())
        };
        self.programs.iter().map(|(_, key)| last(key).unwrap_or(f64::NAN)).collect()
    }
}
