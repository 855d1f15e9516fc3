//! A trace under several policies, with or without a de-bloater, each on a machine of its own, all
//! alike.

use super::candidate::Candidate;
use super::replay::Plan;
use crate::machine::{Backing, Machine, Setup};
use crate::run::{Debloated, Debloater, Hardware, Latencies, Report, Run};
use superpage_policy::promotion::Footprint;
use superpage_policy::promotion::list::Entry;
use superpage_units::{BasePages, Bytes, Nanos, PageSize, ProcessKey, Share};

/// The policy that others are compared with: base pages only.
pub const REFERENCE: &str = "linux-4k";

/// The policy that works on pools of base and huge pages set aside for it. Half of the memory
/// each; chosen, for its paper leaves their sizes to the administrator.
const POOLED: &str = "xheap";

/// The machine to replay on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Its memory.
    pub memory: Bytes,
    /// The share of its 2 MiB blocks that have an unmovable base page in them.
    pub fragmented: Share,
    /// The seed of all chance.
    pub seed: u64,
}

/// The machine has less memory than the program touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the trace needs {needs} of memory, and {memory} is too little; give --memory {}M or more",
    needs.0.div_ceil(Bytes::from_mib(1).0)
)]
pub struct TooSmall {
    /// What it has.
    pub memory: Bytes,
    /// What it would have to have.
    pub needs: Bytes,
}

/// What became of the program under one policy.
#[derive(Clone, Debug)]
pub struct Row {
    /// The candidate's name.
    pub policy: String,
    /// The most memory that the program had mapped at any time, its resident set.
    pub peak: Bytes,
    /// The same at the end.
    pub at_end: Bytes,
    /// The most memory at any sample that was taken for the program and not mapped: frames reserved
    /// for huge pages, which are given back when memory is short.
    pub reserved: Bytes,
    /// What was in swap at the end.
    pub swapped: Bytes,
    /// What is mapped at the end, by page size.
    pub mapped: Footprint,
    /// Each fault.
    pub faults: Latencies,
    /// Time in faults, of all threads.
    pub fault_time: Nanos,
    /// CPU time of the policy's background work, a de-bloater's included.
    pub background: Nanos,
    /// What a de-bloater did, if one is plugged in.
    pub debloated: Option<Debloated>,
    /// The share of the program's cycles that went into translation, hidden ones included.
    pub walk_share: Share,
    /// CPU time of the program: its own, what translation adds, and its faults.
    pub busy: Nanos,
    /// From start to end, waiting included.
    pub time: Nanos,
    /// Memory mapped at each sample, and when that was.
    pub memory: Vec<(Nanos, Bytes)>,
    /// Whether memory ran out before the end.
    pub ended: Ended,
}

/// How a replay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All of it was replayed.
    Whole,
    /// Memory ran out, and nothing more could be given up.
    OutOfMemory,
}

/// Checks that the machine has room for what the program touches.
///
/// # Errors
/// [`TooSmall`].
pub fn check(plan: &Plan, options: &Options) -> Result<(), TooSmall> {
    let needs = needs(plan, options.fragmented);
    if options.memory < needs {
        return Err(TooSmall { memory: options.memory, needs });
    }
    Ok(())
}

/// The least memory that a machine must have: what the program touches, a huge page for rounding,
/// and one base page in each 2 MiB that is fragmented.
#[must_use]
pub fn needs(plan: &Plan, fragmented: Share) -> Bytes {
    let touched = plan.needs.bytes();
    let pinned = 1.0 + fragmented.get() / (PageSize::Huge.base_pages().0 as f64 - 1.0);
    Bytes(touched.scaled(pinned).0.next_multiple_of(PageSize::Huge.bytes().0))
        + PageSize::Huge.bytes()
}

/// Replays the plan under one candidate. `progress` hears how many samples are behind.
#[must_use]
pub fn replay(
    plan: &Plan,
    candidate: &Candidate,
    hardware: Hardware,
    options: &Options,
    mut progress: impl FnMut(usize),
) -> Row {
    let mut run = Run::new(machine(&candidate.policy, options), hardware);
    if let Some(plugged) = candidate.debloater {
        run = run.with_debloater(Debloater::new(&plugged.entry, plugged.marks));
    }
    let taken = run.machine().used();
    let key = run.start(plan.workload.clone());
    let phases = plan.workload.phases.len();
    let mut memory = Vec::new();
    let mut reserved = Bytes::ZERO;
    let mut ended = Ended::Whole;
    for (sample, mark) in plan.marks.iter().enumerate() {
        if run.until_left(phases.saturating_sub(mark.phases)).is_err() {
            ended = Ended::OutOfMemory;
            break;
        }
        let mapped = run.machine().resident(key);
        let used = run.machine().used().saturating_sub(taken);
        reserved = reserved.max(used.saturating_sub(mapped).bytes());
        memory.push((mark.at, mapped.bytes()));
        progress(sample + 1);
    }
    Row { reserved, ended, ..row(candidate.name(), &run, key, memory) }
}

fn machine(entry: &Entry, options: &Options) -> Machine {
    let half = Bytes(options.memory.0 / 2);
    let pools = [half.to_base_pages().0, half.to_huge_pages().0];
    let setup = Setup {
        memory: options.memory,
        pools: (entry.name == POOLED).then_some(pools),
        backing: Backing::Swap,
        seed: options.seed,
    };
    let mut machine = Machine::new(setup, (entry.build)());
    machine.prepare(|physical, _| physical.pin_blocks(options.fragmented));
    machine
}

fn row(policy: String, run: &Run, key: ProcessKey, memory: Vec<(Nanos, Bytes)>) -> Row {
    let at_end = memory.last().map_or(Bytes::ZERO, |(_, mapped)| *mapped);
    let debloated = run.debloated();
    let mut row = Row {
        policy,
        peak: memory.iter().map(|(_, mapped)| *mapped).max().unwrap_or_default(),
        at_end,
        reserved: Bytes::ZERO,
        swapped: run.machine().process(key).map(|p| p.swapped().bytes()).unwrap_or_default(),
        mapped: run.machine().process(key).map(|p| p.footprint()).unwrap_or_default(),
        faults: Latencies::default(),
        fault_time: Nanos::ZERO,
        background: run.background().0 + debloated.map_or(Nanos::ZERO, |by| by.busy),
        debloated,
        walk_share: Share::NONE,
        busy: Nanos::ZERO,
        time: Nanos::ZERO,
        memory,
        ended: Ended::Whole,
    };
    if let Some(report) = run.report(key) {
        take_in(&mut row, report, run.hardware());
    }
    row
}

fn take_in(row: &mut Row, report: Report, hardware: &Hardware) {
    let frequency = hardware.profile.cpu.frequency.value.0.max(1) as f64;
    let own = Nanos::from_secs_f64(report.cycles / frequency);
    row.peak = row.peak.max(BasePages::bytes(report.peak));
    row.walk_share = report.walk_share();
    row.busy = own + report.fault_time;
    row.fault_time = report.fault_time;
    row.time = report.time;
    row.faults = report.faults;
}
