//! A de-bloater plugged into a run: any of [`superpage_policy::debloat`]'s policies under any
//! promotion policy, started and stopped by watermarks on used memory (EMD, section 4.5), in time of its
//! own.
//!
//! It is as the daemon on the real kernel: one decision after the other, each of which takes the
//! time of what it reads, splits and frees; it ends when the low watermark is reached, and when
//! nothing is left to free it waits before it looks again. What it split, the promotion policy does not
//! promote again while promoting would bring back what it splits, as the daemon holds
//! `max_ptes_none` down for khugepaged. The papers do not say what keeps theirs from being undone.
//!
//! What differs from the daemon:
//! - It notices at once when used memory passes the watermark, as a kernel would. The daemon looks
//!   every five seconds and when the kernel says that programs wait for memory.
//! - It has a CPU to itself, as the papers' kernel threads, or the share of one that background work
//!   is limited to. The daemon keeps to a tenth of one unless it is told otherwise.
//! - Frames that are reserved and not populated do not count as used: they are given back whenever
//!   memory is short.
//! - Gigantic pages are split as well (Trident, section 7). EMD's and HawkEye's kernels have none.
//! - Memory from pools is left alone: it cannot be split.
//! - A program that finds no memory at all does not wait for it.

use crate::machine::work::Work;
use crate::machine::{Machine, Pass, Stepped, Worked};
use superpage_policy::debloat::list::Entry;
use superpage_policy::debloat::{Debloat, DoneCause, emd};
use superpage_policy::promotion::View;
use superpage_policy::promotion::life::Allocation;
use superpage_policy::watermark::{Guard, Order, Usage, Watermarks};
use superpage_units::{BasePages, Bytes, HugePages, Nanos};

/// How long it waits when nothing was left to free, the first time: as the daemon.
const BACK_OFF: Nanos = Nanos(30_000_000_000);

/// A de-bloating policy and when to start and stop it.
#[derive(Debug)]
pub struct Debloater {
    policy: Box<dyn Debloat>,
    guard: Guard,
    may_miss: BasePages,
    pass: Option<Pass>,
    passes: u64,
}

/// What a de-bloater did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debloated {
    /// Times that it set out to free something.
    pub passes: u64,
    /// Huge pages split.
    pub split: HugePages,
    /// What that freed.
    pub freed: BasePages,
    /// CPU time it took.
    pub busy: Nanos,
}

impl Debloater {
    /// One that does what `entry` says, between these watermarks.
    #[must_use]
    pub fn new(entry: &Entry, marks: Watermarks) -> Self {
        let policy = (entry.build)(emd::Options::WORTHWHILE);
        Self {
            may_miss: policy.floor().base_pages().saturating_sub(BasePages(1)),
            policy,
            guard: Guard::new(marks),
            pass: None,
            passes: 0,
        }
    }

    /// The base pages that may be missing of a range that it split for the policy to promote it again.
    pub(super) const fn may_miss(&self) -> BasePages {
        self.may_miss
    }

    /// The work of the de-bloater so far on this machine, in so much CPU time.
    pub(super) fn debloated(&self, machine: &Machine, busy: Nanos) -> Debloated {
        let counts = machine.counts();
        Debloated { passes: self.passes, split: HugePages(counts.split), freed: counts.freed, busy }
    }

    /// Does one thing.
    pub(super) fn step(&mut self, machine: &mut Machine) -> Stepped {
        let usage = usage(machine, self.guard.marks());
        if let Some(mut pass) = self.pass.take() {
            if self.guard.is_relieved(usage) {
                self.guard.freed_enough();
            } else {
                let mut work = Work::default();
                match machine.debloat_once(self.policy.as_mut(), &mut pass, &mut work) {
                    None => self.pass = Some(pass),
                    Some(DoneCause::NeedMet) => self.guard.freed_enough(),
                    Some(DoneCause::NothingLeft) => {
                        self.guard.nothing_left(machine.now(), BACK_OFF);
                    }
                }
                return worked(work);
            }
        }
        match self.guard.step(machine.now(), usage) {
            None => Stepped::Resting(Some(self.guard.waits_until())),
            Some(Order::Rest { .. }) => Stepped::Resting(None),
            Some(Order::Free { need, .. }) => {
                self.passes += 1;
                let processes = machine.processes().keys().to_vec();
                self.pass = Some(machine.begin_pass(&processes, need));
                // The de-bloater reads an entry of the upper page tables for each range.
                let mapped =
                    processes.iter().map(|key| machine.resident(*key).bytes()).sum::<Bytes>();
                let scanned = BasePages(mapped.to_huge_pages().0);
                worked(Work { scanned, ..Work::default() })
            }
        }
    }
}

const fn worked(work: Work) -> Stepped {
    Stepped::Worked(Worked { work, locked: None })
}

/// Used memory, without what reservations would give back. Those are only counted where it matters:
/// it takes a walk over all page tables.
fn usage(machine: &Machine, marks: Watermarks) -> Usage {
    let total = machine.physical().total().bytes();
    let usage = Usage { used: machine.used().bytes(), total };
    let reserves = machine.policy().is_some_and(|policy| {
        matches!(policy.life().allocation, Allocation::Reserved | Allocation::ReservedSpeculatively)
    });
    if !reserves || usage.share() <= marks.low() {
        return usage;
    }
    Usage { used: machine.used().saturating_sub(machine.reserved()).bytes(), total }
}
