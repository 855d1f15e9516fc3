//! Real processes as a [`Machine`], seen as of their last survey and acted on from outside.
//!
//! Pure: the machine only says what is wanted. A huge page that a fault or an action asks for is
//! made later, by a collapse request ([`super::collapse`]), and whoever makes it teaches the system the
//! outcome. What cannot be done from outside is refused: memory is not compacted, zeroed ahead of time or
//! evicted for anybody, and nothing is moved out of a huge page.
//!
//! No frame can be set aside from outside, so a reservation is a note: its huge page is had when it is
//! asked for, or the range is not promoted. The note ends with the last base page in its range, and with
//! a huge page.

use super::snapshot::Snapshot;
use crate::process::Survey;
use std::collections::{BTreeMap, BTreeSet};
use superpage_policy::supply::Supply;
use superpage_policy::system::{
    Act, Action, Attempt, Carried, Fault, Footprint, Machine, Outcome, RegionView, System, View,
};
use superpage_units::{Area, Mapping, Page, PageSize, ProcessKey, Region, Time, VirtAddr};

/// The processes under one policy.
#[derive(Clone, Debug, Default)]
pub struct LiveMachine {
    /// What is known of them.
    pub snapshot: Snapshot,
    /// The notes of what is reserved.
    reserved: BTreeMap<ProcessKey, BTreeSet<Region>>,
}

impl LiveMachine {
    /// Takes in what a survey found, in place of what was known of the process.
    pub fn take_in(&mut self, key: ProcessKey, survey: &Survey) {
        self.snapshot.take_in(key, survey);
        if let Some(reserved) = self.reserved.get_mut(&key) {
            reserved.retain(|region| is_base_mapped(&self.snapshot, key, *region));
        }
    }

    /// As [`Self::take_in`], where nobody has told of the faults: every PMD range that is mapped by base
    /// pages counts as reserved.
    pub fn take_in_untold(&mut self, key: ProcessKey, survey: &Survey) {
        self.snapshot.take_in(key, survey);
        let all = self.snapshot.base_mapped(key).map(|(region, _)| region).collect();
        self.reserved.insert(key, all);
    }

    /// A PMD range became a huge page since the survey.
    pub fn set_huge(&mut self, key: ProcessKey, region: Region) {
        self.snapshot.set_huge(key, region);
        self.unreserve(key, region);
    }

    /// Forgets a process.
    pub fn remove(&mut self, key: ProcessKey) {
        self.snapshot.remove(key);
        self.reserved.remove(&key);
    }

    fn reserve(&mut self, key: ProcessKey, region: Region) {
        self.reserved.entry(key).or_default().insert(region);
    }

    /// Whether there was a note.
    fn unreserve(&mut self, key: ProcessKey, region: Region) -> bool {
        self.reserved.get_mut(&key).is_some_and(|reserved| reserved.remove(&region))
    }

    fn is_reserved(&self, key: ProcessKey, region: Region) -> bool {
        self.reserved.get(&key).is_some_and(|reserved| reserved.contains(&region))
    }

    /// Whether the page is huge, and its range lies in an area and is mapped by base pages.
    fn can_promote(&self, key: ProcessKey, page: Page) -> bool {
        let areas = self.areas(key);
        let after = areas.partition_point(|area| area.start <= page.start());
        let area = after.checked_sub(1).and_then(|index| areas.get(index));
        page.size() == PageSize::Huge
            && area.is_some_and(|area| area.holds(page))
            && is_base_mapped(&self.snapshot, key, Region::containing(page.start()))
    }
}

fn is_base_mapped(snapshot: &Snapshot, key: ProcessKey, region: Region) -> bool {
    snapshot.region(key, region).mapping == Mapping::Base
}

impl View for LiveMachine {
    fn now(&self) -> Time {
        self.snapshot.now()
    }

    fn supply(&self) -> &Supply {
        self.snapshot.supply()
    }

    fn processes(&self) -> &[ProcessKey] {
        self.snapshot.processes()
    }

    fn footprint(&self, process: ProcessKey) -> Footprint {
        self.snapshot.footprint(process)
    }

    fn areas(&self, process: ProcessKey) -> &[Area] {
        self.snapshot.areas(process)
    }

    fn region(&self, process: ProcessKey, region: Region) -> RegionView {
        let seen = self.snapshot.region(process, region);
        let is_reserved = seen.mapping == Mapping::Base && self.is_reserved(process, region);
        RegionView { is_reserved, ..seen }
    }

    fn next_mapped(&self, process: ProcessKey, from: VirtAddr) -> Option<Region> {
        self.snapshot.next_mapped(process, from)
    }
}

impl Machine for LiveMachine {
    /// The kernel has mapped a base page before anybody is asked. [`PageSize::Huge`] says that a huge page
    /// is wanted in its place.
    fn attempt(&mut self, fault: &Fault, attempt: Attempt, _: &mut dyn System) -> Option<PageSize> {
        let region = Region::containing(fault.address);
        match attempt {
            Attempt::Base => Some(PageSize::Base),
            Attempt::Map { size, .. } => Some(size).filter(|size| *size == PageSize::Huge),
            Attempt::Reserve => {
                let is_empty = fault.region.population.is_zero() && !fault.region.is_reserved;
                is_empty.then(|| self.reserve(fault.process, region)).map(|()| PageSize::Base)
            }
            Attempt::InPlace | Attempt::Complete if !fault.region.is_reserved => None,
            Attempt::Complete if fault.area.holds(region.into()) => Some(PageSize::Huge),
            Attempt::InPlace | Attempt::Complete => Some(PageSize::Base),
        }
    }

    /// [`Carried::Later`] says that a huge page is wanted.
    fn carry_out(&mut self, action: &Action) -> Carried {
        Carried::Now(match action.act {
            Act::Promote { process, page, .. } if self.can_promote(process, page) => {
                return Carried::Later;
            }
            Act::Unreserve { process, region } if self.unreserve(process, region) => Outcome::Done,
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
    use crate::process::{Memory, Vma};
    use superpage_kernel::pagemap::{Found, Survey as Seen};
    use superpage_policy::compaction::Compaction;
    use superpage_policy::system::linux::{Linux, Options};
    use superpage_policy::system::{Cause, How, Zeroed};
    use superpage_units::{BasePages, HUGE_PAGE_BYTES};

    const KEY: ProcessKey = ProcessKey(1);

    fn region(index: u64) -> Region {
        Region::containing(VirtAddr(index * HUGE_PAGE_BYTES))
    }

    /// A process with three PMD ranges, of which these are mapped by nine base pages each.
    fn survey(mapped: &[u64]) -> Survey {
        let [start, end] = [1, 4].map(|index| VirtAddr(index * HUGE_PAGE_BYTES));
        let seen = Seen { population: BasePages(9), ..Seen::default() };
        Survey {
            vmas: vec![Vma { start, end, memory: Memory::Private, is_heap: false }],
            found: mapped.iter().map(|index| Found::Base(region(*index), seen)).collect(),
        }
    }

    fn machine(mapped: &[u64]) -> LiveMachine {
        let mut machine = LiveMachine::default();
        machine.snapshot.add(KEY);
        machine.take_in(KEY, &survey(mapped));
        machine
    }

    fn attempt(machine: &mut LiveMachine, index: u64, attempt: Attempt) -> Option<PageSize> {
        let fault = Fault::at(machine, KEY, region(index).start()).expect("it is in the area");
        machine.attempt(&fault, attempt, &mut Linux::new(Options::NEVER))
    }

    fn carry_out(machine: &mut LiveMachine, act: Act) -> Carried {
        machine.carry_out(&Action { act, cause: Cause::Clock })
    }

    #[test]
    fn what_is_mapped_by_base_pages_can_become_huge_later() {
        let mut machine = machine(&[1]);
        let mut promote = |index: u64| {
            let (page, how) = (Page::from(region(index)), How::Copy(None));
            carry_out(&mut machine, Act::Promote { process: KEY, page, how })
        };
        assert_eq!(promote(1), Carried::Later);
        assert_eq!(promote(2), Carried::Now(Outcome::Stale), "nothing is there");
        machine.set_huge(KEY, region(1));
        let page = Page::from(region(1));
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
            |machine: &LiveMachine| [1, 2].map(|at| machine.region(KEY, region(at)).is_reserved);
        assert_eq!(reserved(&machine), [true, false]);
        assert_eq!(attempt(&mut machine, 1, Attempt::InPlace), Some(PageSize::Base));
        assert_eq!(attempt(&mut machine, 1, Attempt::Complete), Some(PageSize::Huge));
        let give_back = Act::Unreserve { process: KEY, region: region(1) };
        assert_eq!(carry_out(&mut machine, give_back), Carried::Now(Outcome::Done));
        assert_eq!(carry_out(&mut machine, give_back), Carried::Now(Outcome::Stale));
        machine.take_in_untold(KEY, &survey(&[1, 2]));
        assert_eq!(reserved(&machine), [true, true]);
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
        let (process, region) = (KEY, region(1));
        let page = Page::containing(region.start(), PageSize::Base);
        for (act, outcome) in [
            (Act::Zero(PageSize::Huge), Outcome::NoFrame),
            (Act::Compact(PageSize::Huge, Compaction::Sequential), Outcome::NoFrame),
            (Act::Evacuate { process, region }, Outcome::Stale),
            (Act::Evict { process, page }, Outcome::Stale),
        ] {
            assert_eq!(carry_out(&mut machine, act), Carried::Now(outcome), "{act:?}");
        }
        assert!(machine.pools().is_none() && machine.access_bits().is_none());
    }
}
