//! xHeap's programs on its machine, with part of their memory on storage: the paper's three
//! configurations, and what came of a run. All of its figures look at the same runs, so each is made
//! once.
//!
//! A budget is a share of what the program has in memory at most. Under swap it is all the memory that
//! the machine has, as in the paper's cgroup, whose first huge page too many fails and is not waited
//! for. Under xHeap it is split into the two pools.

use super::support_hardware;
use super::support_parallel::{self, Known};
use super::{Error, Progress, Result, Setting, Table, policy_named};
use superpage_policy::promotion::Policy;
use superpage_policy::promotion::xheap::{Options, XHeap};
use superpage_sim::machine::{Backing, Machine, Setup};
use superpage_sim::run::Run;
use superpage_sim::workload::Workload;
use superpage_sim::workload::offload::{Dedup, Svm, XsBench};
use superpage_units::{Bytes, Nanos};

/// Threads of each program: the machine's hardware threads. Assumed.
const THREADS: u32 = 32;
/// The share of xHeap's memory that is for huge pages (section 3).
const HUGE_SHARE: f64 = 0.98;
/// Promotions under way at once: one on each CPU, as the kernel's work queues do it. Assumed.
const WORKERS: u32 = THREADS;
/// Huge pages that xHeap evicts at once where it reclaims ahead: as many as Linux's reclaim takes pages
/// (`SWAP_CLUSTER_MAX`). Assumed.
const RECLAIMED: u32 = 32;
/// Base pages that a fault reads from swap, if they are read in order: Linux's default, 2 to the
/// power of `page-cluster`.
const READ_AHEAD: u16 = 8;
/// Frames beyond the pools, so that base pages lying anywhere do not cost a huge page.
const SLACK: f64 = 1.05;

/// The least budget of the paper, in percent.
pub(super) const LEAST: u32 = 75;
/// All of them.
pub(super) const BUDGETS: [u32; 3] = [LEAST, 80, 85];

/// XSBench's preset XL (120 GB); the look-ups are the paper's (section 3). Its cycles are fitted: see
/// Figure 3.
const XSBENCH: XsBench = XsBench {
    nuclides: 355,
    gridpoints: 238_847,
    lookups: 1_000_000,
    threads: THREADS,
    cycles: 34_800.0,
};
/// The data set of KDD 2012, but a quarter of its 149.6 million instances. Its counts are not from the
/// paper and were not looked up again. Assumed.
/// Cycles are assumed: 38 for each feature.
const SVM: Svm = Svm {
    instances: 149_639_105 / 4,
    nonzeros: 11,
    features: 54_686_452,
    passes: 2,
    threads: THREADS,
    cycles: 9_000.0,
};
/// Assumed, all of it: 12 GiB of text, of which a quarter is left, and 50 cycles for each byte.
const DEDUP: Dedup = Dedup {
    input: Bytes::from_gib(12),
    kept: 0.25,
    table: Bytes::from_gib(1),
    threads: THREADS,
    cycles: 50.0 * 4096.0, // tidy: allow(bytes of the input that a step compresses)
};

/// A program of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Program {
    Dedup,
    XsBench,
    Svm,
}

impl Program {
    pub(super) const ALL: [Self; 3] = [Self::Dedup, Self::XsBench, Self::Svm];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Dedup => "dedup",
            Self::XsBench => "XSBench",
            Self::Svm => "SVM",
        }
    }

    /// It, and what it has in memory at most.
    fn workload(self) -> (Workload, Bytes) {
        match self {
            Self::Dedup => (DEDUP.workload(), DEDUP.footprint()),
            Self::XsBench => (XSBENCH.workload(), XSBENCH.footprint()),
            Self::Svm => (SVM.workload(), SVM.footprint()),
        }
    }
}

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
    const fn reclaimed(self) -> Option<u32> {
        match self {
            Self::Swap | Self::SwapThp => None,
            Self::XHeap => Some(1),
            Self::XHeapAhead => Some(RECLAIMED),
        }
    }

    /// Whether it is one of the two that the paper compares xHeap with.
    pub(super) const fn is_swap(self) -> bool {
        self.reclaimed().is_none()
    }

    /// A machine with `budget` of memory for programs.
    fn machine(self, budget: Bytes, seed: u64) -> Result<Machine> {
        // A heap file has nothing to read where nothing was written, as swap.
        let backing = Backing::Swap;
        let Some(reclaimed) = self.reclaimed() else {
            let setup = Setup { memory: budget, pools: None, backing, seed };
            let mut machine = Machine::new(setup, policy_named(self.name())?);
            machine.set_read_ahead(READ_AHEAD);
            return Ok(machine);
        };
        let huge = budget.scaled(HUGE_SHARE).to_huge_pages();
        let base = (budget - huge.bytes()).to_base_pages();
        let setup =
            Setup { memory: budget.scaled(SLACK), pools: Some([base.0, huge.0]), backing, seed };
        let policy: Box<dyn Policy> =
            Box::new(XHeap::new(Options { workers: WORKERS, reclaimed, ..Options::default() }));
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
#[derive(Clone, Copy, Debug)]
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

    /// Its outcome, from an earlier run if there was one: it follows from the case and the seed.
    pub(super) fn outcome(self, setting: &Setting) -> Result<Outcome> {
        static KNOWN: Known<(Case, u64), Outcome> = Known::new();
        KNOWN.get((self, setting.seed), || {
            let (workload, footprint) = self.program.workload();
            simulate(self, workload, footprint, setting.seed)
        })
    }
}

/// Runs a program to its end; only its last phase is timed.
fn simulate(case: Case, workload: Workload, footprint: Bytes, seed: u64) -> Result<Outcome> {
    let budget = footprint.scaled(f64::from(case.budget) / 100.0);
    let machine = case.configuration.machine(budget, seed)?;
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
         (reclaiming ahead; assumed). The paper's numbers stand beside the first only.",
    );
}

/// Makes the runs of these cases, so that their outcomes are there when they are asked for.
pub(super) fn make(cases: &[Case], setting: &Setting, progress: Progress<'_>) -> Result<()> {
    let run = |case: Case| case.outcome(setting).map(|_| ());
    support_parallel::each(cases, &run, &Case::name, progress)
}
