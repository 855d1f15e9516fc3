//! What a pass did, counted: per process and in sum. Numbers only; showing them is elsewhere.

use crate::split::LeftAlone;
use std::collections::BTreeMap;
use superpage_units::{BasePages, Bytes, HugePages, Nanos, Pid, ProcessKey};

/// Huge pages that stayed whole although they were to be split, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftAloneCounts {
    /// Shared with another process, as after a fork.
    pub shared: HugePages,
    /// Pinned, or in use by the kernel just then.
    pub busy: HugePages,
    /// The kernel refused: locked memory, or not there any more.
    pub refused: HugePages,
    /// Huge pages that were not tried, because their writes are tracked by a userfaultfd or by soft-dirty bits.
    pub followed: HugePages,
}

impl LeftAloneCounts {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> HugePages {
        self.shared + self.busy + self.refused + self.followed
    }

    /// Counts one more.
    pub fn add(&mut self, reason: LeftAlone) {
        let count = match reason {
            LeftAlone::Shared => &mut self.shared,
            LeftAlone::Busy => &mut self.busy,
            LeftAlone::Refused(_) => &mut self.refused,
        };
        *count += HugePages(1);
    }

    fn merge(&mut self, other: Self) {
        self.shared += other.shared;
        self.busy += other.busy;
        self.refused += other.refused;
        self.followed += other.followed;
    }
}

/// What was done to one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessAccount {
    /// Its number, for showing.
    pub pid: Pid,
    /// Its command.
    pub command: String,
    /// Anonymous huge pages when the pass began.
    pub huge_pages: HugePages,
    /// Huge pages split (in a dry run: that would have been).
    pub split: HugePages,
    /// Base pages freed, as verified from outside (in a dry run: as estimated).
    pub freed: BasePages,
    /// The base pages that the bloat map had promised of the huge pages that were split.
    pub expected: BasePages,
    /// Huge pages that stayed whole.
    pub left_alone: LeftAloneCounts,
    /// Huge pages that were not looked at, because the program asked for them.
    pub spared: HugePages,
    /// Ranges that were gone or could not be read when looked at.
    pub vanished: HugePages,
    /// The process exited during the pass.
    pub exited: bool,
}

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// By process, in the order of their creation.
    pub processes: BTreeMap<ProcessKey, ProcessAccount>,
    /// Memory of the processes that was read.
    pub read: Bytes,
    /// CPU time of the finding and the freeing, in user space and in the kernel.
    pub cpu: Nanos,
    /// Time it took.
    pub wall: Nanos,
}

impl Account {
    /// Everything that was done, over all processes; `pid` and `command` are empty.
    #[must_use]
    pub fn total(&self) -> ProcessAccount {
        let mut sum = ProcessAccount::default();
        for process in self.processes.values() {
            sum.huge_pages += process.huge_pages;
            sum.split += process.split;
            sum.freed += process.freed;
            sum.expected += process.expected;
            sum.left_alone.merge(process.left_alone);
            sum.spared += process.spared;
            sum.vanished += process.vanished;
            sum.exited |= process.exited;
        }
        sum
    }

    /// Asserts that no process lost more huge pages than it had, nor freed more than they held.
    ///
    /// # Panics
    /// If one did. For tests.
    pub fn check(&self) {
        for process in self.processes.values() {
            let left_alone = process.left_alone.total() + process.spared;
            let handled = process.split + left_alone + process.vanished;
            assert!(handled <= process.huge_pages, "{process:?}");
            assert!(process.freed <= process.split.base_pages(), "{process:?}");
        }
    }
}
