//! What the scheduler is told and what it orders: plain values, so that a test can be the kernel.

use super::gate::{Domain, Domains};
use super::policy::Promotion;
use super::range::{Reason, Refusal};
use crate::left_behind::Owner;
use crate::process::{Extent, Memory, Survey};
use std::fmt;
use superpage_policy::free_memory::FreeMemory;
use superpage_policy::promotion::Outcome;
use superpage_units::{BasePages, Bytes, HugePages, Nanos, PmdRange, ProcessKey};

/// Names a request that a worker carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Something to be carried out outside, or to be told. Each request is answered by one event, or by
/// [`Event::TimedOut`] and one event later, or by [`Event::WorkerLost`].
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// See which processes there are, what they have done, and how memory is used.
    Observe(RequestId),
    /// See what is mapped in a process, so far.
    Survey(RequestId, ProcessKey, Extent),
    /// Make neighbouring ranges of a process huge pages.
    Collapse(RequestId, Collapse),
    /// Tell the operator.
    Report(Report),
}

/// Neighbours collapsed by one call: some two milliseconds in which their process hardly gets a page
/// fault served.
pub const LONGEST_RUN: HugePages = HugePages(4);

/// Neighbouring PMD ranges of one process to be made huge pages by one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collapse {
    /// Whose.
    pub process: ProcessKey,
    /// The first range.
    pub first: PmdRange,
    /// How many.
    pub count: HugePages,
    /// What kind of memory it is.
    pub memory: Memory,
    /// The base pages that were present in the emptiest of them: with fewer, one is left alone.
    pub least: BasePages,
}

impl Collapse {
    /// Its ranges.
    pub fn ranges(&self) -> impl Iterator<Item = PmdRange> + use<> {
        PmdRange::within(self.first.start(), self.first.start().offset(self.count.bytes()))
    }
}

/// What became of a collapse request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collapsed {
    /// What became of each range: so many base pages were filled with zeroes, or why it was not
    /// promoted. Those are left out that were huge already.
    pub became: Vec<(PmdRange, Result<BasePages, Refusal>)>,
    /// How long the kernel took for each huge page, in the slowest call.
    pub slowest: Nanos,
    /// How long it took in all calls together.
    pub held: Nanos,
}

impl Collapsed {
    /// The outcome that a policy is told of one of its ranges.
    #[must_use]
    pub fn outcome(&self, range: PmdRange) -> Outcome {
        match self.became.iter().find(|(of, _)| *of == range) {
            Some((_, Ok(_))) => Outcome::Done,
            Some((_, Err(Refusal::NoHugePage))) => Outcome::NoFrame,
            // Or somebody else made it huge meanwhile.
            Some((_, Err(_))) | None => Outcome::Stale,
        }
    }
}

/// What a process has done since it began, as far as it may have changed what is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Its page faults.
    pub faults: u64,
    /// Its resident memory.
    pub resident: Bytes,
}

/// A process that is to be promoted in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Its name towards policies.
    pub key: ProcessKey,
    /// Whose process it is.
    pub owner: Owner,
    /// The policy that it is under.
    pub policy: Promotion,
    /// What it has done.
    pub activity: Activity,
    /// The observation's domains that the process has its memory in.
    pub domains: Domains,
}

/// What was observed of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// All processes to promote in. Those that are not here any more have gone, or are not to be
    /// promoted in any more.
    pub processes: Vec<Observed>,
    /// The machine's memory first, then that of cgroups with limits, and of nodes.
    pub domains: Vec<Domain>,
    /// Free memory by order.
    pub free: FreeMemory,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The thread that steps the scheduler has used so much CPU time.
    Spent(Nanos),
    /// An observation was made, for so much CPU time.
    Observed(RequestId, Observation, Nanos),
    /// A process was surveyed, for so much CPU time; `None` if it has gone or is out of reach.
    Surveyed(RequestId, Option<Survey>, Nanos),
    /// A collapse request was carried out, for so much CPU time.
    Collapsed(RequestId, Collapsed, Nanos),
    /// A request has taken longer than it may. It may end later.
    TimedOut(RequestId),
    /// The worker that had a request is gone, and nobody knows what became of it.
    WorkerLost(RequestId),
}

/// Something that an operator is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Ranges became huge pages.
    Promoted {
        /// Whose.
        process: ProcessKey,
        /// The policy.
        policy: String,
        /// How many.
        huge_pages: HugePages,
        /// Base pages filled with zeroes for that.
        filled: BasePages,
        /// Why.
        reason: Reason,
        /// From the survey that found them until they were huge.
        waited: Nanos,
    },
    /// Ranges were not promoted.
    Refused {
        /// Whose.
        process: ProcessKey,
        /// The policy.
        policy: String,
        /// How many.
        huge_pages: HugePages,
        /// Why.
        why: Refusal,
    },
    /// A collapse took so long for each huge page.
    CollapseTook(Nanos),
    /// Promotions pause, because the kernel took long or had no huge page.
    BackedOff {
        /// How long the last call took for each huge page.
        took: Nanos,
        /// How long they pause.
        pause: Nanos,
        /// Whether there was no huge page.
        cause: Slow,
    },
    /// A request about this process (none: an observation) has taken longer than it may.
    TimedOut(Option<ProcessKey>),
    /// The worker that had a request about this process is gone.
    WorkerLost(Option<ProcessKey>),
}

/// Why promotions pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// The kernel took long.
    Kernel,
    /// It had no huge page.
    NoHugePage,
}
