//! EMD's programs (its Table 2) as workloads, and a machine with them on it, populated.
//!
//! Memory by 4 KiB and by 2 MiB pages comes from Table 2. How bloat lies in it is known for
//! RandomAccess (Figure 1 and its text: halves of 80 % and 20 %); for BTree and Memcached Figure 4
//! shows three kinds of ranges, nearly all bloat, about half, none. Their shares here are chosen
//! so that the totals of Table 2 come out and, for BTree, that HawkEye keeps 14 % (section 5.3.2).

use super::{Error, Result, Setting, support_hardware};
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
use superpage_units::{BasePages, Bytes, HUGE_PAGE_BYTES, HugePages, ProcessKey};

/// The paper's machine has 256 GB.
const MEMORY: Bytes = Bytes::from_gib(256);
/// Accesses of a timed run: what is long does not matter, ratios do.
const ACCESSES: f64 = 1e9;

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

    /// Memory with huge pages (Table 2).
    pub(super) const fn size(self) -> Bytes {
        Bytes::from_gib(match self {
            Self::BTree => 44,
            Self::Memcached => 50,
            Self::RandomAccessL | Self::RandomAccessR => 8,
        })
    }

    /// Share of the ranges and share of their base pages that are used, for each kind of range.
    const fn ranges(self) -> &'static [(f64, f64)] {
        match self {
            Self::BTree => &[(0.14, 1.0), (0.145, 0.5), (0.715, 0.02)],
            Self::Memcached => &[(0.245, 1.0), (0.25, 0.5), (0.505, 0.02)],
            Self::RandomAccessL => &[(0.5, 0.2), (0.5, 0.8)],
            Self::RandomAccessR => &[(0.5, 0.8), (0.5, 0.2)],
        }
    }

    /// Whether the paper says to the page how bloat lies in it.
    pub(super) const fn is_known(self) -> bool {
        matches!(self, Self::RandomAccessL | Self::RandomAccessR)
    }

    /// Whether its kinds of ranges lie one after the other, or mixed.
    const fn is_mixed(self) -> bool {
        matches!(self, Self::BTree | Self::Memcached)
    }

    /// Cycles of an access without translation. Chosen so that RandomAccess-L on base pages takes
    /// 2.05 times as long as on huge pages (Table 3, first row); the same for all.
    const CYCLES: f64 = 172.0;

    fn workload(self, runs: usize) -> Workload {
        let mut phases = vec![Phase::Map(VmaShape::fixed(self.size()))];
        phases.extend(self.present());
        let access = Access {
            streams: vec![Stream {
                part: Part::whole(0),
                pattern: Pattern::Uniform,
                target: Target::Data,
                weight: 1.0,
            }],
            count: ACCESSES,
            cycles: Self::CYCLES,
            exposed: 1.0,
            counting: Counting::Sampled,
        };
        phases.extend(std::iter::repeat_n(Phase::Access(access), runs));
        Workload { name: self.name().to_owned(), threads: 1, phases }
    }

    /// Phases that touch the pages that are used.
    fn present(self) -> Vec<Phase> {
        let huge_pages = self.size().to_huge_pages().0;
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
                cycles_per_page: 500.0,
                threads: 1,
            })
        };
        if self.is_mixed() {
            // Runs of 2 to 64 MiB of one kind: a slab, a level's nodes. Assumed.
            let mut random = Random::new(self.size().0);
            let mut phases = Vec::new();
            let mut at = 0;
            while at < huge_pages {
                let length = (1 + random.below(32)).min(huge_pages - at);
                phases.push(touch(at, at + length, self.density(random.share())));
                at += length;
            }
            return phases;
        }
        let mut from = 0.0;
        let mut phases = Vec::new();
        for (share, density) in self.ranges() {
            let to = from + share;
            let border =
                |share: f64| HugePages(huge_pages).bytes().scaled(share).0 / HUGE_PAGE_BYTES;
            phases.push(touch(border(from), border(to), *density));
            from = to;
        }
        phases
    }

    /// The density of the kind of range that a random number stands for.
    fn density(self, random: f64) -> f64 {
        let mut until = 0.0;
        for (share, density) in self.ranges() {
            until += share;
            if random < until {
                return *density;
            }
        }
        1.0
    }
}

/// Programs on the paper's machine, populated, and timed once as they are.
#[derive(Debug)]
pub(super) struct Stage {
    run: Run,
    programs: Vec<(Kind, ProcessKey)>,
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
        let setup =
            Setup { memory: MEMORY, pools: None, backing: Backing::None, seed: setting.seed };
        let machine = Machine::new(setup, (entry.build)());
        let mut run = Run::new(machine, support_hardware::of("emd")?);
        let mut programs = Vec::new();
        for kind in kinds {
            programs.push((*kind, run.start(kind.workload(2))));
            run.until_left(1)?;
        }
        Ok(Self { run, programs })
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
                retained: huge.unwrap_or_default().share_of(kind.size().to_huge_pages()).get(),
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
