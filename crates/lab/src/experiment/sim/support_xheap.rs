//! xHeap's programs on its machine, with part of their memory on storage: the paper's three
//! configurations, and what came of a run. All of its figures look at the same runs, so each is made
//! once.
//!
//! A budget is a share of what the program has in memory at most. Under swap it is all the memory that
//! the machine has, as in the paper's cgroup, whose first huge page too many fails and is not waited
//! for. Under xHeap it is split into the two pools.

use super::support_hardware;
use super::support_parallel::{self, Known};
use super::support_xheap_programs::Program;
use super::{
    Constant, Constants, Error, Given, Progress, Rests, Result, Setting, Table, policy_named,
};
use superpage_policy::promotion::Policy;
use superpage_policy::promotion::xheap::{Options, XHeap};
use superpage_sim::machine::{Backing, Machine, Setup};
use superpage_sim::run::Run;
use superpage_units::{Bytes, Nanos, Share};

static HUGE_SHARE: Constant<Share> =
    Constant::paper("xheap.huge-share", Share::clamped(0.98), "section 3: 98 % of the xHeap pool");
static WORKERS: Constant<u32> = Constant::assumed(
    "xheap.workers",
    32,
    "promotions under way at once: one on each CPU, as the kernel's work queues do it",
);
static RECLAIMED: Constant<u32> = Constant::assumed(
    "xheap.reclaimed",
    1,
    "huge pages evicted at once: one when a promotion needs it; the paper does not say how many",
);
static RECLAIMED_AHEAD: Constant<u32> = Constant::chosen(
    "xheap.reclaimed-ahead",
    32,
    "section 4.2's faults in evicted ranges, which find free huge pages,",
    "huge pages evicted at once: as many as Linux's reclaim takes pages (SWAP_CLUSTER_MAX)",
);
static READ_AHEAD: Constant<u32> = Constant::assumed(
    "xheap.read-ahead",
    8,
    "base pages that a fault reads from swap, if they are read in order: Linux's default, 2 to the \
     power of page-cluster; section 3 says only that the swapper is the default one",
);
static SLACK: Constant<f64> = Constant::assumed(
    "xheap.slack",
    0.05,
    "frames beyond the pools, so that base pages lying anywhere do not cost a huge page",
);

/// The least budget of the paper, in percent.
pub(super) const LEAST: u32 = 75; // not a Constant: of the figures' axis
/// All of them.
pub(super) const BUDGETS: [u32; 3] = [LEAST, 80, 85];

/// A configuration of the paper's Table 1; xHeap in two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Configuration {
    Swap,
    SwapThp,
    /// Evicting a huge page when one is needed.
    XHeap,
    /// Evicting several at once, so that faults find free ones.
    XHeapAhead,
}

impl Configuration {
    pub(super) const ALL: [Self; 4] = [Self::Swap, Self::SwapThp, Self::XHeap, Self::XHeapAhead];

    /// The policy in it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Swap => "linux-4k",
            Self::SwapThp => "linux-defrag-madvise",
            Self::XHeap => "xheap",
            Self::XHeapAhead => "xheap, reclaiming ahead",
        }
    }

    /// How many huge pages xHeap evicts at once in it; of Linux, none.
    fn reclaimed(self, constants: &Constants) -> Option<u32> {
        match self {
            Self::Swap | Self::SwapThp => None,
            Self::XHeap => Some(constants.get(&RECLAIMED)),
            Self::XHeapAhead => Some(constants.get(&RECLAIMED_AHEAD)),
        }
    }

    /// Whether it is one of the two that the paper compares xHeap with.
    pub(super) const fn is_swap(self) -> bool {
        matches!(self, Self::Swap | Self::SwapThp)
    }

    /// A machine with `budget` of memory for programs.
    fn machine(self, budget: Bytes, seed: u64, constants: &Constants) -> Result<Machine> {
        // A heap file has nothing to read where nothing was written, as swap.
        let backing = Backing::Swap;
        let Some(reclaimed) = self.reclaimed(constants) else {
            let setup = Setup { memory: budget, pools: None, backing, seed };
            let mut machine = Machine::new(setup, policy_named(self.name())?);
            let read_ahead = constants.get(&READ_AHEAD);
            machine.set_read_ahead(u16::try_from(read_ahead).unwrap_or(u16::MAX));
            return Ok(machine);
        };
        let huge = budget.scaled(constants.get(&HUGE_SHARE).get()).to_huge_pages();
        let base = (budget - huge.bytes()).to_base_pages();
        let memory = budget.scaled(1.0 + constants.get(&SLACK));
        let setup = Setup { memory, pools: Some([base.0, huge.0]), backing, seed };
        let workers = constants.get(&WORKERS);
        let policy: Box<dyn Policy> =
            Box::new(XHeap::new(Options { workers, reclaimed, ..Options::default() }));
        Ok(Machine::new(setup, policy))
    }
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Case {
    pub(super) program: Program,
    pub(super) configuration: Configuration,
    /// Memory, in percent of what the program would take.
    pub(super) budget: u32,
}

/// What came of its timed part. Times are of all threads together.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// From its beginning to its end.
    pub(super) seconds: f64,
    user: f64,
    system: f64,
    wait: f64,
    /// The share of the program's cycles that translation took.
    pub(super) walk_share: f64,
    /// Faults, in thousands.
    pub(super) faults: f64,
    /// The constants behind this outcome.
    pub(super) rests: Rests,
}

impl support_parallel::Outcome for Outcome {
    fn rests(&self) -> &Rests {
        &self.rests
    }
}

impl Outcome {
    fn share(&self, part: f64) -> f64 {
        100.0 * part / (self.user + self.system + self.wait)
    }

    /// Percent of time in the kernel, with that of its background threads.
    pub(super) fn system_percent(&self) -> f64 {
        self.share(self.system)
    }

    /// Percent of time waiting for the device.
    pub(super) fn wait_percent(&self) -> f64 {
        self.share(self.wait)
    }
}

impl Case {
    fn name(self) -> String {
        format!("{}, {} %: {}", self.program.name(), self.budget, self.configuration.name())
    }

    /// Its outcome, from an earlier run if there was one: the outcome follows from the case and what is given.
    pub(super) fn outcome(self, setting: &Setting) -> Result<Outcome> {
        static KNOWN: Known<(Case, Given), Outcome> = Known::new();
        KNOWN.outcome(self, setting, |setting| simulate(self, setting))
    }
}

/// Runs a program to its end; only its last phase is timed.
fn simulate(case: Case, setting: &Setting) -> Result<Outcome> {
    let constants = Constants::of(setting);
    let (workload, footprint) = case.program.workload(&constants);
    let budget = footprint.scaled(f64::from(case.budget) / 100.0);
    let machine = case.configuration.machine(budget, setting.seed, &constants)?;
    let mut run = Run::new(machine, support_hardware::of("xheap")?);
    let key = run.start(workload);
    run.until_left(1)?;
    let before = Parts::of(&run, key)?;
    run.to_end()?;
    let after = Parts::of(&run, key)?;
    let cycles = after.cycles - before.cycles;
    let frequency = run.hardware().profile.cpu.frequency.value.0 as f64;
    Ok(Outcome {
        seconds: (after.time - before.time).as_secs_f64(),
        user: cycles / frequency,
        system: (after.system - before.system).as_secs_f64(),
        wait: (after.wait - before.wait).as_secs_f64(),
        walk_share: (after.walk_cycles - before.walk_cycles) / cycles,
        faults: (after.faults - before.faults) as f64 / 1e3,
        rests: constants.rests(),
    })
}

/// Where time has gone so far.
#[derive(Clone, Copy, Debug)]
struct Parts {
    time: Nanos,
    cycles: f64,
    walk_cycles: f64,
    system: Nanos,
    wait: Nanos,
    faults: u64,
}

impl Parts {
    fn of(run: &Run, key: superpage_units::ProcessKey) -> Result<Self> {
        let report = run.report(key);
        let report = report.ok_or_else(|| Error::Simulation("the program is gone".to_owned()))?;
        Ok(Self {
            time: report.time,
            cycles: report.cycles,
            walk_cycles: report.walk_cycles,
            system: report.fault_time - report.fault_wait + run.background().0,
            wait: report.fault_wait,
            faults: report.faults.count(),
        })
    }
}

/// What the numbers rest on.
pub(super) fn note(table: &mut Table) {
    table.note(
        "The paper gives neither footprints nor threads. Assumed: 32 threads; XSBench's preset XL \
         (120 GB) with the paper's million look-ups, timed without making the grids, as XSBench does; \
         for the SVM a quarter of the instances of KDD 2012 and all of its features, 9,000 cycles for \
         a page of instances, the second and third pass; for dedup 12 GiB of text in memory, a table \
         of 1 GiB, output of a quarter, 50 cycles for each byte. XSBench's cycles are fitted to its \
         23 % in Figure 3.",
    );
    table.note(
        "Linux reads up to eight pages from swap at once, in order (page-cluster), and evicts by a \
         clock; huge pages go out whole. A heap file is taken to hold nothing where nothing was \
         written, and what was read and not written since is not written again. Reads and writes of \
         all threads and of promotions share the four drives. Contention for the kernel's locks is \
         not modelled.",
    );
    table.note(
        "The paper does not say how many huge pages xHeap reclaims at once, but that faults in \
         evicted ranges find free ones. Two readings: one when a promotion needs it (xheap), and 32 \
         (reclaiming ahead; chosen). The paper's numbers stand beside the first only.",
    );
}

/// Makes the runs of these cases, so that their outcomes are there when they are asked for.
pub(super) fn make(cases: &[Case], setting: &Setting, progress: Progress<'_>) -> Result<()> {
    let run = |case: Case| case.outcome(setting).map(|_| ());
    support_parallel::each(cases, &run, &Case::name, progress)
}
