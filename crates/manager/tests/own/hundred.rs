//! A policy: a huge page where a hundred base pages are present.

use superpage_policy::promotion::capabilities::Capabilities;
use superpage_policy::promotion::life::{
    Allocation, Deallocation, Life, Mapped, Preparation, Unmapping,
};
use superpage_policy::promotion::list::Entry;
use superpage_policy::promotion::{
    Act, Action, Cause, Fault, FaultCause, FaultPlan, How, Policy, Shortage, Step, View,
};
use superpage_units::{BasePages, Mapping, Nanos, PmdRange, ProcessKey, VirtAddr};

/// The line of the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "hundred",
    summary: "Base pages first; in the background a huge page where a hundred are present.",
    source: "CONTRIBUTING.md",
    build: || Box::new(Hundred { process: ProcessKey(0), at: VirtAddr(0) }),
};

const THRESHOLD: BasePages = BasePages(100);
/// From one round over all memory to the next.
const PAUSE: Nanos = Nanos(100_000_000);

/// A scan goes round; where it is.
#[derive(Debug)]
struct Hundred {
    process: ProcessKey,
    at: VirtAddr,
}

impl Hundred {
    /// The next range in which anything is mapped; `None` at the end of a round.
    fn next(&mut self, view: &dyn View) -> Option<(ProcessKey, PmdRange)> {
        for process in view.processes().iter().filter(|process| **process >= self.process) {
            let from = if *process == self.process { self.at } else { VirtAddr(0) };
            if let Some(range) = view.next_mapped(*process, from) {
                (self.process, self.at) = (*process, range.end());
                return Some((*process, range));
            }
        }
        (self.process, self.at) = (ProcessKey(0), VirtAddr(0));
        None
    }
}

impl Policy for Hundred {
    fn fault(&mut self, _: &Fault, _: &dyn View) -> FaultPlan {
        FaultPlan::base(FaultCause::BasePages)
    }

    fn background(&mut self, view: &mut dyn View) -> Step {
        while let Some((process, range)) = self.next(view) {
            let seen = view.range(process, range);
            let is_held = view.vmas(process).iter().any(|vma| vma.holds(range.into()));
            if is_held && seen.mapping == Mapping::Base && seen.present >= THRESHOLD {
                let act = Act::Promote { process, page: range.into(), how: How::Copy(None) };
                return Step::Act(Action { act, cause: Cause::Threshold(seen.present) });
            }
        }
        Step::Rest(Some(view.now() + PAUSE))
    }

    fn pressure(&mut self, _: Shortage, _: &mut dyn View) -> Option<Action> {
        None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { threshold: Some(THRESHOLD), ..Capabilities::SCANS }
    }

    fn life(&self) -> Life {
        Life {
            allocation: Allocation::Asynchronous(THRESHOLD),
            preparation: Preparation::AtOnce,
            mapping: Mapped::AtOnce,
            unmapping: Unmapping::WhenFreed,
            deallocation: Deallocation::WhenUnmapped,
        }
    }
}
