//! Runs of Trident's programs on its machine: memory as it is after boot or fragmented, and what
//! came of a run. Several tables and figures look at the same runs, so each is made once.
//!
//! The paper's machine has two sockets of 192 GB (Table 1). A run has one of them: its appendix
//! says 18 cores, 36 threads and 192 GB, and the scripts published with it bind memory and threads
//! to one socket (github.com/csl-iisc/Trident-MICRO21-artifact, scripts/common.sh). Guests have
//! 80 % of it (scripts/gen_vmconfigs.py).
//!
//! # Fragmentation
//!
//! Section 3: a large file is read into the page cache, then its pages are dropped at random
//! places, until the FMFI is 0.95. Read literally: 5 % of free memory lies in chunks that hold a
//! superpage, the rest in base pages between file pages. How much is free the paper does not say.
//! Its Table 3 has 5 to 9 GB of gigantic pages that faults could still map; 7 GiB of whole chunks are
//! assumed, which makes 140 GiB free. Unmovable pages: one in each of 128 places, so about half of
//! all 1 GiB chunks have none; assumed, and not less because XSBench gets 80 of 192.

use super::support_hardware;
use super::support_parallel::{self, Known};
use super::support_trident_programs::{Backed, Program};
use super::{Error, Progress, Result, Setting, gib, policy_named};
use std::sync::{Arc, Mutex, PoisonError};
use superpage_sim::machine::{Backing, Counts, Machine, Setup};
use superpage_sim::physical::{Owner, Physical};
use superpage_sim::random::Random;
use superpage_sim::run::Run;
use superpage_units::{BasePages, Bytes, PageSize, Share};

/// One socket's memory, and a guest's.
const MEMORY: Bytes = Bytes::from_gib(192);
const GUEST_MEMORY: Bytes = Bytes::from_gib(153);
/// The share of a CPU that khugepaged may take in a guest (section 7, Figure 13).
const GUEST_BACKGROUND: Share = Share::percent(10);
/// Chunks of 1 GiB that fragmentation leaves whole. Assumed.
const WHOLE_CHUNKS: u64 = 7;
/// The FMFI that memory is brought to (section 3).
const FMFI: f64 = 0.95;
/// Unmovable base pages at random places. Assumed.
const UNMOVABLE: BasePages = BasePages(128);

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
#[derive(Clone, Copy, Debug)]
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

    /// Its outcome, from an earlier run if there was one: it follows from the case and the seed.
    pub(super) fn outcome(self, setting: &Setting) -> Result<Outcome> {
        static KNOWN: Known<(Case, u64), Outcome> = Known::new();
        KNOWN.get((self, setting.seed), || self.simulate(setting))
    }

    /// A run with its program not started yet.
    pub(super) fn prepare(self, setting: &Setting) -> Result<Run> {
        let memory = if self.place == Place::Native { MEMORY } else { GUEST_MEMORY };
        let setup = Setup { memory, pools: None, backing: Backing::None, seed: setting.seed };
        let mut machine = Machine::new(setup, policy_named(self.policy)?);
        if self.memory == Memory::Fragmented {
            let physical = fragmented(memory, setting.seed)?;
            machine.prepare(|fresh, _| *fresh = Physical::clone(&physical));
        }
        let hardware = match self.place {
            Place::Native => support_hardware::of("trident")?,
            Place::Guest(host) | Place::LimitedGuest(host) => {
                support_hardware::guest_of("trident", host)?
            }
        };
        let run = Run::new(machine, hardware);
        Ok(match self.place {
            Place::LimitedGuest(_) => run.with_background_limit(GUEST_BACKGROUND),
            Place::Native | Place::Guest(_) => run,
        })
    }

    fn simulate(self, setting: &Setting) -> Result<Outcome> {
        let mut run = self.prepare(setting)?;
        let workload =
            self.program.workload(self.backed, run.hardware().profile.cpu.frequency.value);
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
        })
    }
}

/// Makes the runs of these cases, so that their outcomes are there when they are asked for.
pub(super) fn make(cases: &[Case], setting: &Setting, progress: Progress<'_>) -> Result<()> {
    let run = |case: Case| case.outcome(setting).map(|_| ());
    support_parallel::each(cases, &run, &Case::name, progress)
}

/// Memory of this size, fragmented. It is made once for a size and a seed, and copied; that of the
/// machine and of a guest are kept. Who wants one while another is made waits with its turn; who makes
/// it has a turn and waits for nobody.
fn fragmented(memory: Bytes, seed: u64) -> Result<Arc<Physical>> {
    type Known = Vec<((Bytes, u64), Arc<Physical>)>;
    static KNOWN: Mutex<Known> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, physical)) = known.iter().find(|(key, _)| *key == (memory, seed)) {
        return Ok(Arc::clone(physical));
    }
    let physical = Arc::new(fragment(memory, seed)?);
    known.truncate(1);
    known.insert(0, ((memory, seed), Arc::clone(&physical)));
    Ok(physical)
}

fn fragment(memory: Bytes, seed: u64) -> Result<Physical> {
    let mut random = Random::new(seed);
    let mut physical = Physical::new(memory);
    physical.scatter_unmovable(UNMOVABLE, &mut random);
    let mut whole = Vec::new();
    for _ in 0..WHOLE_CHUNKS {
        let taken = physical.take(PageSize::Gigantic, Owner::Unmovable);
        whole.push(taken.ok_or_else(|| Error::Simulation("no chunk is whole".to_owned()))?);
    }
    let scattered = Bytes::from_gib(WHOLE_CHUNKS).scaled(FMFI / (1.0 - FMFI));
    physical.fill_page_cache(scattered, &mut random);
    for taken in whole {
        physical.give(taken.frame, PageSize::Gigantic);
    }
    Ok(physical)
}
