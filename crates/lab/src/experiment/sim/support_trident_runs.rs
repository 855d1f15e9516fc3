//! Runs of Trident's programs on its machine: memory as it is after boot or fragmented, and what
//! came of a run. Several tables and figures look at the same runs, so each is made once.
//!
//! The paper's machine has two sockets of 192 GB (Table 1). A run has one of them: its appendix
//! says 18 cores, 36 threads and 192 GB, and the scripts published with it bind memory and threads
//! to one socket (github.com/csl-iisc/Trident-MICRO21-artifact, scripts/common.sh). Guests are taken to have
//! 80 % of it.
//!
//! # Fragmentation
//!
//! Section 3: a large file is read into the page cache, which brings the FMFI to 0.95, and is accessed at random, so that its pages
//! are dropped at places that do not adjoin. Taken to hold for what is free then: 5 % of it lies in chunks that hold a
//! superpage, the rest in base pages between file pages. How much is free the paper does not say;
//! with the whole chunks that are chosen here it is 140 GiB.

use super::support_hardware;
use super::support_parallel::{self, Known};
use super::support_trident_programs::{Backed, Program};
use super::{
    Constant, Constants, Error, Given, Progress, Rests, Result, Setting, gib, policy_named,
};
use std::sync::{Arc, Mutex, PoisonError};
use superpage_sim::machine::{Backing, Counts, Machine, Setup};
use superpage_sim::physical::{Owner, Physical};
use superpage_sim::random::Random;
use superpage_sim::run::Run;
use superpage_units::{BasePages, Bytes, PageSize, Share};

static MEMORY: Constant<Bytes> =
    Constant::paper("trident.memory", Bytes::from_gib(192), "Table 1: of one socket");
static GUEST_MEMORY: Constant<Bytes> = Constant::assumed(
    "trident.guest-memory",
    Bytes::from_gib(153),
    "80 % of a socket's, which scripts/gen_vmconfigs.py works out and does not use; vmconfigs/samples have 140 GiB and 24 CPUs",
);
static GUEST_BACKGROUND: Constant<Share> = Constant::paper(
    "trident.guest-background",
    Share::percent(10),
    "section 7, Figure 13: of a CPU, for khugepaged in a guest",
);
static HOST_PAGES: Constant<()> = Constant::assumed(
    "trident.host-pages",
    (),
    "a host under Trident maps a guest by 1 GiB pages, and one under the others by 2 MiB pages",
);
static WHOLE_CHUNKS: Constant<u64> = Constant::chosen(
    "trident.whole-chunks",
    7,
    "the 5 to 9 GB of gigantic pages that Table 3 has at faults on fragmented memory",
    "chunks of 1 GiB that fragmentation leaves whole; the paper has the FMFI only",
);
static FMFI: Constant<Share> = Constant::paper(
    "trident.fmfi",
    Share::percent(95),
    "section 3: what reading a file brings memory to",
);
static UNMOVABLE: Constant<BasePages> = Constant::chosen(
    "trident.unmovable",
    BasePages(128),
    "XSBench's 80 GB by 1 GiB pages in Table 3",
    "unmovable base pages at random places, which leave about half of all 1 GiB chunks without one",
);

/// Linux's THP, as the paper's baseline.
pub(super) const THP: &str = "linux-defrag-madvise";
/// HawkEye, as the paper describes it.
pub(super) const HAWKEYE: &str = "hawkeye-first-touch";

/// The state of memory when a program starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Memory {
    Unfragmented,
    Fragmented,
}

impl Memory {
    pub(super) const BOTH: [Self; 2] = [Self::Unfragmented, Self::Fragmented];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unfragmented => "un-fragmented",
            Self::Fragmented => "fragmented",
        }
    }
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// On the machine itself.
    Native,
    /// In a guest whose memory the host maps by pages of this size.
    Guest(PageSize),
    /// The same, and the guest's background work is limited.
    LimitedGuest(PageSize),
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Case {
    pub(super) program: Program,
    pub(super) policy: &'static str,
    pub(super) memory: Memory,
    pub(super) backed: Backed,
    pub(super) place: Place,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// GiB mapped by each size at the end, by [`PageSize::index`].
    pub(super) mapped: [f64; 3],
    /// Seconds that the main part took.
    pub(super) seconds: f64,
    /// The share of cycles spent on translation in it.
    pub(super) walk_share: f64,
    pub(super) counts: Counts,
    /// GiB copied to compact, and of those for nothing.
    pub(super) compacted: f64,
    pub(super) futile: f64,
    /// Milliseconds that 99 % of the program's faults do not exceed, and the longest.
    pub(super) fault_p99: f64,
    pub(super) fault_max: f64,
    /// The constants behind this outcome.
    pub(super) rests: Rests,
}

impl support_parallel::Outcome for Outcome {
    fn rests(&self) -> &Rests {
        &self.rests
    }
}

impl Outcome {
    pub(super) const fn mapped_by(&self, size: PageSize) -> f64 {
        self.mapped[size.index()]
    }
}

impl Case {
    /// A program on the machine itself.
    pub(super) const fn native(program: Program, policy: &'static str, memory: Memory) -> Self {
        Self { program, policy, memory, backed: Backed::Asked, place: Place::Native }
    }

    /// What it is, in a few words.
    fn name(self) -> String {
        format!("{}, {}: {}", self.program.name(), self.memory.name(), self.policy)
    }

    /// Its outcome, from an earlier run if there was one: it follows from the case, the seed and the
    /// constants.
    pub(super) fn outcome(self, setting: &Setting) -> Result<Outcome> {
        static KNOWN: Known<(Case, Given), Outcome> = Known::new();
        KNOWN.outcome(self, setting, |setting| self.simulate(setting))
    }

    /// A run with its program not started yet.
    pub(super) fn prepare(self, setting: &Setting, constants: &Constants) -> Result<Run> {
        let is_native = self.place == Place::Native;
        let memory = constants.get(if is_native { &MEMORY } else { &GUEST_MEMORY });
        let setup = Setup { memory, pools: None, backing: Backing::None, seed: setting.seed };
        let mut machine = Machine::new(setup, policy_named(self.policy)?);
        if self.memory == Memory::Fragmented {
            let physical = fragmented(Fragmentation::of(memory, setting.seed, constants))?;
            machine.prepare(|fresh, _| *fresh = Physical::clone(&physical));
        }
        let hardware = match self.place {
            Place::Native => support_hardware::of("trident")?,
            Place::Guest(host) | Place::LimitedGuest(host) => {
                constants.get(&HOST_PAGES);
                support_hardware::guest_of("trident", host)?
            }
        };
        let run = Run::new(machine, hardware);
        Ok(match self.place {
            Place::LimitedGuest(_) => run.with_background_limit(constants.get(&GUEST_BACKGROUND)),
            Place::Native | Place::Guest(_) => run,
        })
    }

    fn simulate(self, setting: &Setting) -> Result<Outcome> {
        let constants = Constants::of(setting);
        let mut run = self.prepare(setting, &constants)?;
        let frequency = run.hardware().profile.cpu.frequency.value;
        let workload = self.program.workload(self.backed, frequency, &constants);
        let key = run.start(workload);
        run.to_end()?;
        let gone = || Error::Simulation(format!("{} is gone", self.program.name()));
        let report = run.report(key).ok_or_else(gone)?;
        let footprint = run.machine().process(key).ok_or_else(gone)?.footprint();
        let (_, work) = run.background();
        let compacted = work.compacted;
        Ok(Outcome {
            mapped: [
                gib(footprint.base.bytes()),
                gib(footprint.huge.bytes()),
                gib((PageSize::Gigantic.base_pages() * footprint.gigantic.unwrap_or_default())
                    .bytes()),
            ],
            seconds: report.phases.last().map_or(f64::NAN, |time| time.as_secs_f64()),
            walk_share: report.walk_share().get(),
            counts: *run.machine().counts(),
            compacted: gib(compacted.copied.bytes()),
            futile: gib(compacted.futile.bytes()),
            fault_p99: report.faults.quantile(0.99).as_secs_f64() * 1e3,
            fault_max: report.faults.max().as_secs_f64() * 1e3,
            rests: constants.rests(),
        })
    }
}

/// Makes the runs of these cases, so that their outcomes are there when they are asked for.
pub(super) fn make(cases: &[Case], setting: &Setting, progress: Progress<'_>) -> Result<()> {
    let run = |case: Case| case.outcome(setting).map(|_| ());
    support_parallel::each(cases, &run, &Case::name, progress)
}

/// All that fragmented memory follows from.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fragmentation {
    memory: Bytes,
    seed: u64,
    whole_chunks: u64,
    fmfi: Share,
    unmovable: BasePages,
}

impl Fragmentation {
    fn of(memory: Bytes, seed: u64, constants: &Constants) -> Self {
        Self {
            memory,
            seed,
            whole_chunks: constants.get(&WHOLE_CHUNKS),
            fmfi: constants.get(&FMFI),
            unmovable: constants.get(&UNMOVABLE),
        }
    }

    fn make(self) -> Result<Physical> {
        let mut random = Random::new(self.seed);
        let mut physical = Physical::new(self.memory);
        physical.scatter_unmovable(self.unmovable, &mut random);
        let mut whole = Vec::new();
        for _ in 0..self.whole_chunks {
            let taken = physical.take(PageSize::Gigantic, Owner::Unmovable);
            whole.push(taken.ok_or_else(|| Error::Simulation("no chunk is whole".to_owned()))?);
        }
        let fmfi = self.fmfi.get();
        let scattered = Bytes::from_gib(self.whole_chunks).scaled(fmfi / (1.0 - fmfi));
        physical.fill_page_cache(scattered, &mut random);
        for taken in whole {
            physical.give(taken.frame, PageSize::Gigantic);
        }
        Ok(physical)
    }
}

/// Memory fragmented so. It is made once and copied; that of the machine and of a guest are kept. Who
/// wants one while another is made waits with its turn; who makes it has a turn and waits for nobody.
fn fragmented(so: Fragmentation) -> Result<Arc<Physical>> {
    type Known = Vec<(Fragmentation, Arc<Physical>)>;
    static KNOWN: Mutex<Known> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, physical)) = known.iter().find(|(key, _)| *key == so) {
        return Ok(Arc::clone(physical));
    }
    let physical = Arc::new(so.make()?);
    known.truncate(1);
    known.insert(0, (so, Arc::clone(&physical)));
    Ok(physical)
}
