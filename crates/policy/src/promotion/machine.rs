//! A machine as a policy sees it ([`View`]) and as its answers change it ([`Machine`]).
//!
//! The simulated machine and the processes of a real kernel are machines. What not every one can
//! tell is optional: pools and access bits are parts of a view that may be missing, and a number that
//! cannot be known is `None`. A policy does without, and says how; what it is of no use without is its
//! [`Capabilities::need`](super::capabilities::Capabilities::need).

use super::{Action, Attempt, Fault, Outcome, Policy};
use crate::free_memory::FreeMemory;
use superpage_units::{
    BasePages, HugePages, Mapping, Nanos, Page, PageSize, PmdRange, ProcessKey, Share, Time,
    VirtAddr, Vma,
};

/// A PMD range as a policy sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeView {
    /// How it is mapped.
    pub mapping: Mapping,
    /// The base pages that have been faulted in; all 512 where a larger page is mapped.
    pub present: BasePages,
    /// The base pages that are in the backing store and not in memory.
    pub swapped: BasePages,
    /// The base pages that other processes have mapped as well, since a fork.
    pub shared: BasePages,
    /// Whether a huge frame is reserved for it, which holds what has been populated in place.
    pub is_reserved: bool,
    /// The base pages accessed in the last sampling period (HawkEye's access coverage); `None` where
    /// accesses cannot be seen.
    pub coverage: Option<BasePages>,
    /// The time since it was accessed last; `None` where accesses cannot be seen.
    pub idle: Option<Nanos>,
}

/// The memory that a process has mapped, by page size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Footprint {
    /// By base pages.
    pub base: BasePages,
    /// By huge pages.
    pub huge: HugePages,
    /// Gigantic pages; `None` on a machine without.
    pub gigantic: Option<u64>,
    /// The share of its cycles that it spends on page walks; `None` where nobody counts them.
    pub walk_share: Option<Share>,
}

impl Footprint {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> BasePages {
        let gigantic = PageSize::Gigantic.base_pages() * self.gigantic.unwrap_or_default();
        self.base + self.huge.base_pages() + gigantic
    }
}

/// The machine as a policy sees it. Looking changes nothing, but for access bits.
pub trait View {
    /// The time.
    fn now(&self) -> Time;
    /// Free memory.
    fn free_memory(&self) -> &FreeMemory;
    /// The processes, in the order of their creation.
    fn processes(&self) -> &[ProcessKey];
    /// The footprint of a process; nothing if it is gone.
    fn footprint(&self, process: ProcessKey) -> Footprint;
    /// The VMAs of a process, in address order; none if it is gone.
    fn vmas(&self, process: ProcessKey) -> &[Vma];
    /// A range as a policy sees it; empty if it is gone.
    fn range(&self, process: ProcessKey, range: PmdRange) -> RangeView;
    /// The first range at or after `from` with anything mapped in it.
    fn next_mapped(&self, process: ProcessKey, from: VirtAddr) -> Option<PmdRange>;

    /// The pools that xHeap sets aside, on a machine that has them.
    fn pools(&self) -> Option<Pools> {
        None
    }

    /// The access bits, where they can be read and cleared. A clock without them evicts nothing.
    fn access_bits(&mut self) -> Option<&mut dyn AccessBits> {
        None
    }
}

/// xHeap's pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pools {
    /// The pool of base pages.
    pub base: Pool,
    /// The pool of huge pages.
    pub huge: Pool,
}

/// The state of one of xHeap's pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Pages in it that nothing uses.
    pub free: u64,
    /// All its pages.
    pub size: u64,
}

/// A machine page by page, each with its access bit.
pub trait AccessBits: View {
    /// The first page at or after `from` that is mapped, in the size it is mapped in.
    fn next_page(&self, process: ProcessKey, from: VirtAddr) -> Option<Page>;
    /// Whether a page was accessed since this was asked last: its access bit, which it clears.
    fn take_accessed(&mut self, process: ProcessKey, page: Page) -> bool;
}

/// A machine as the answers of a policy change it. [`drive`](super::drive) asks the policy and
/// calls this.
pub trait Machine: View {
    /// Tries to serve a fault in this way; the size of the page that serves it, if it can be done so.
    /// A machine that is short of memory may ask `policy` what to give up
    /// ([`drive::relieve`](super::drive::relieve)).
    fn attempt(
        &mut self,
        fault: &Fault,
        attempt: Attempt,
        policy: &mut dyn Policy,
    ) -> Option<PageSize>;

    /// Carries an action out, or sets about it. To tell the policy is the caller's.
    fn carry_out(&mut self, action: &Action) -> Carried;
}

/// Whether it is known what became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// This became of it.
    Now(Outcome),
    /// The action is under way. Whoever finishes it tells the policy, by [`Policy::learn`].
    Later,
}
