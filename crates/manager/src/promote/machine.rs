//! Real processes as a [`Machine`], seen as of their last survey and acted on from outside.
//!
//! Pure: the machine only says what is wanted. A huge page that a fault or an action asks for is
//! made later, by a collapse request ([`super::collapse`]), and whoever makes it teaches the policy the
//! outcome. What cannot be done from outside is refused: memory is not compacted, zeroed ahead of time or
//! evicted for anybody, and nothing is moved out of a huge page.
//!
//! No frame can be set aside from outside, so a huge page for a reserved range is had when it is asked for,
//! or the range is not promoted. Where nobody tells of faults, every PMD range that is mapped by base pages
//! counts as reserved. Where somebody does, a reservation is a note, which ends with the last base page in
//! its range, and with a huge page.

use super::snapshot::Snapshot;
use crate::process::Survey;
use std::collections::BTreeSet;
use superpage_policy::free_memory::FreeMemory;
use superpage_policy::promotion::capabilities::FirstTouch;
use superpage_policy::promotion::{
    Act, Action, Attempt, Carried, Fault, Footprint, Machine, Outcome, Policy, RangeView, View,
};
use superpage_units::{Mapping, Page, PageSize, PmdRange, ProcessKey, Time, VirtAddr, Vma};

/// The processes under one policy.
#[derive(Clone, Debug, Default)]
pub struct LiveMachine {
    /// The last survey of each process.
    pub snapshot: Snapshot,
    /// The ranges that are noted as reserved; `None` where nobody tells of faults.
    noted: Option<BTreeSet<(ProcessKey, PmdRange)>>,
}

impl LiveMachine {
    /// A machine whose policy is told of every fault. That of [`Self::default`] hears of none.
    #[must_use]
    pub fn told_of_faults() -> Self {
        Self { noted: Some(BTreeSet::new()), ..Self::default() }
    }

    /// Takes in a survey of a process, in place of the last one.
    pub fn take_in(&mut self, key: ProcessKey, survey: &Survey) {
        self.snapshot.take_in(key, survey);
        if let Some(noted) = &mut self.noted {
            noted.retain(|(of, range)| *of != key || is_base_mapped(&self.snapshot, key, *range));
        }
    }

    /// A PMD range became a huge page since the survey.
    pub fn set_huge(&mut self, key: ProcessKey, range: PmdRange) {
        self.snapshot.set_huge(key, range);
        self.unreserve(key, range);
    }

    /// Forgets a process.
    pub fn remove(&mut self, key: ProcessKey) {
        self.snapshot.remove(key);
        if let Some(noted) = &mut self.noted {
            noted.retain(|(of, _)| *of != key);
        }
    }

    fn reserve(&mut self, key: ProcessKey, range: PmdRange) {
        if let Some(noted) = &mut self.noted {
            noted.insert((key, range));
        }
    }

    /// Whether there was a note.
    fn unreserve(&mut self, key: ProcessKey, range: PmdRange) -> bool {
        self.noted.as_mut().is_some_and(|noted| noted.remove(&(key, range)))
    }

    fn is_reserved(&self, key: ProcessKey, range: PmdRange) -> bool {
        self.noted.as_ref().is_none_or(|noted| noted.contains(&(key, range)))
    }

    /// Whether the kernel has served first touches before anybody told of them, and the policy leaves them to it.
    fn leaves_first_touches(&self, policy: &dyn Policy) -> bool {
        self.noted.is_none() && policy.capabilities().first_touch == FirstTouch::Kernel
    }

    /// Whether the page is huge, and its range lies in a VMA and is mapped by base pages.
    fn can_promote(&self, key: ProcessKey, page: Page) -> bool {
        let vmas = self.vmas(key);
        let after = vmas.partition_point(|vma| vma.start <= page.start());
        let vma = after.checked_sub(1).and_then(|index| vmas.get(index));
        page.size() == PageSize::Huge
            && vma.is_some_and(|vma| vma.holds(page))
            && is_base_mapped(&self.snapshot, key, PmdRange::containing(page.start()))
    }
}

fn is_base_mapped(snapshot: &Snapshot, key: ProcessKey, range: PmdRange) -> bool {
    snapshot.range(key, range).mapping == Mapping::Base
}

impl View for LiveMachine {
    fn now(&self) -> Time {
        self.snapshot.now()
    }

    fn free_memory(&self) -> &FreeMemory {
        self.snapshot.free_memory()
    }

    fn processes(&self) -> &[ProcessKey] {
        self.snapshot.processes()
    }

    fn footprint(&self, process: ProcessKey) -> Footprint {
        self.snapshot.footprint(process)
    }

    fn vmas(&self, process: ProcessKey) -> &[Vma] {
        self.snapshot.vmas(process)
    }

    fn range(&self, process: ProcessKey, range: PmdRange) -> RangeView {
        let seen = self.snapshot.range(process, range);
        let is_reserved = seen.mapping == Mapping::Base && self.is_reserved(process, range);
        RangeView { is_reserved, ..seen }
    }

    fn next_mapped(&self, process: ProcessKey, from: VirtAddr) -> Option<PmdRange> {
        self.snapshot.next_mapped(process, from)
    }
}

impl Machine for LiveMachine {
    /// The kernel has mapped a base page before anybody is asked. [`PageSize::Huge`] says that a huge page
    /// is wanted in its place.
    fn attempt(
        &mut self,
        fault: &Fault,
        attempt: Attempt,
        policy: &mut dyn Policy,
    ) -> Option<PageSize> {
        let range = PmdRange::containing(fault.address);
        match attempt {
            Attempt::Base => Some(PageSize::Base),
            Attempt::Map { .. } if self.leaves_first_touches(policy) => None,
            Attempt::Map { size, .. } => Some(size).filter(|size| *size == PageSize::Huge),
            Attempt::Reserve => {
                let is_empty = fault.range.present.is_zero() && !fault.range.is_reserved;
                is_empty.then(|| self.reserve(fault.process, range)).map(|()| PageSize::Base)
            }
            Attempt::InPlace | Attempt::Complete if !fault.range.is_reserved => None,
            Attempt::Complete if fault.vma.holds(range.into()) => Some(PageSize::Huge),
            Attempt::InPlace | Attempt::Complete => Some(PageSize::Base),
        }
    }

    /// [`Carried::Later`] says that a huge page is wanted.
    fn carry_out(&mut self, action: &Action) -> Carried {
        Carried::Now(match action.act {
            Act::Promote { process, page, .. } if self.can_promote(process, page) => {
                return Carried::Later;
            }
            Act::Unreserve { process, range } if self.unreserve(process, range) => Outcome::Done,
            Act::Zero(_) | Act::Compact(..) => Outcome::NoFrame,
            Act::Promote { .. }
            | Act::Unreserve { .. }
            | Act::Evacuate { .. }
            | Act::Evict { .. } => Outcome::Stale,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Memory, PromotableVma};
    use superpage_kernel::pagemap::{Found, Survey as Seen};
    use superpage_policy::compaction::Compaction;
    use superpage_policy::promotion::linux::{Linux, Options};
    use superpage_policy::promotion::{Cause, How, Zeroed};
    use superpage_units::{BasePages, HUGE_PAGE_BYTES};

    const KEY: ProcessKey = ProcessKey(1);

    fn range(index: u64) -> PmdRange {
        PmdRange::containing(VirtAddr(index * HUGE_PAGE_BYTES))
    }

    /// A process with three PMD ranges, of which these are mapped by nine base pages each.
    fn survey(mapped: &[u64]) -> Survey {
        let [start, end] = [1, 4].map(|index| VirtAddr(index * HUGE_PAGE_BYTES));
        let seen = Seen { present: BasePages(9), ..Seen::default() };
        Survey {
            vmas: vec![PromotableVma { start, end, memory: Memory::Private, is_heap: false }],
            found: mapped.iter().map(|index| Found::Base(range(*index), seen)).collect(),
            part: None,
            is_late: false,
        }
    }

    fn machine(mapped: &[u64]) -> LiveMachine {
        filled(LiveMachine::told_of_faults(), mapped)
    }

    fn filled(mut machine: LiveMachine, mapped: &[u64]) -> LiveMachine {
        machine.snapshot.add(KEY);
        machine.take_in(KEY, &survey(mapped));
        machine
    }

    fn attempt(machine: &mut LiveMachine, index: u64, attempt: Attempt) -> Option<PageSize> {
        let fault = Fault::at(machine, KEY, range(index).start()).expect("it is in the VMA");
        machine.attempt(&fault, attempt, &mut Linux::new(Options::NEVER))
    }

    fn carry_out(machine: &mut LiveMachine, act: Act) -> Carried {
        machine.carry_out(&Action { act, cause: Cause::Clock })
    }

    #[test]
    fn what_is_mapped_by_base_pages_can_become_huge_later() {
        let mut machine = machine(&[1]);
        let mut promote = |index: u64| {
            let (page, how) = (Page::from(range(index)), How::Copy(None));
            carry_out(&mut machine, Act::Promote { process: KEY, page, how })
        };
        assert_eq!(promote(1), Carried::Later);
        assert_eq!(promote(2), Carried::Now(Outcome::Stale), "nothing is there");
        machine.set_huge(KEY, range(1));
        let page = Page::from(range(1));
        let again = Act::Promote { process: KEY, page, how: How::InPlace };
        assert_eq!(carry_out(&mut machine, again), Carried::Now(Outcome::Stale), "it is huge");
    }

    #[test]
    fn a_reservation_is_a_note() {
        let mut machine = machine(&[2]);
        assert_eq!(attempt(&mut machine, 1, Attempt::InPlace), None, "it is not reserved");
        assert_eq!(attempt(&mut machine, 2, Attempt::Reserve), None, "it is not empty");
        assert_eq!(attempt(&mut machine, 1, Attempt::Reserve), Some(PageSize::Base));
        machine.take_in(KEY, &survey(&[1, 2]));
        let reserved =
            |machine: &LiveMachine| [1, 2].map(|at| machine.range(KEY, range(at)).is_reserved);
        assert_eq!(reserved(&machine), [true, false]);
        assert_eq!(attempt(&mut machine, 1, Attempt::InPlace), Some(PageSize::Base));
        assert_eq!(attempt(&mut machine, 1, Attempt::Complete), Some(PageSize::Huge));
        let give_back = Act::Unreserve { process: KEY, range: range(1) };
        assert_eq!(carry_out(&mut machine, give_back), Carried::Now(Outcome::Done));
        assert_eq!(carry_out(&mut machine, give_back), Carried::Now(Outcome::Stale));
        assert_eq!(reserved(&filled(LiveMachine::default(), &[1, 2])), [true, true]);
        machine.take_in(KEY, &survey(&[]));
        assert_eq!(attempt(&mut machine, 1, Attempt::Reserve), Some(PageSize::Base));
        assert_eq!(attempt(&mut machine, 2, Attempt::Reserve), Some(PageSize::Base));
        machine.take_in(KEY, &survey(&[1]));
        machine.take_in(KEY, &survey(&[1, 2]));
        assert_eq!(reserved(&machine), [true, false], "it ended with the last base page");
    }

    #[test]
    fn what_cannot_be_done_from_outside_is_refused() {
        let mut machine = machine(&[1]);
        let gigantic =
            Attempt::Map { size: PageSize::Gigantic, compaction: None, zeroed: Zeroed::Preferred };
        assert_eq!(attempt(&mut machine, 2, gigantic), None);
        let (process, range) = (KEY, range(1));
        let page = Page::containing(range.start(), PageSize::Base);
        for (act, outcome) in [
            (Act::Zero(PageSize::Huge), Outcome::NoFrame),
            (Act::Compact(PageSize::Huge, Compaction::Sequential), Outcome::NoFrame),
            (Act::Evacuate { process, range }, Outcome::Stale),
            (Act::Evict { process, page }, Outcome::Stale),
        ] {
            assert_eq!(carry_out(&mut machine, act), Carried::Now(outcome), "{act:?}");
        }
        assert!(machine.pools().is_none() && machine.access_bits().is_none());
    }
}
