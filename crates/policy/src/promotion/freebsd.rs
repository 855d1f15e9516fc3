//! FreeBSD's reservations, as Quicksilver describes them (Table 1, and section "Analysis of
//! Existing Designs", observations 3 and 4).
//!
//! The first touch of a range reserves a huge frame for it, of anonymous memory and of files, also
//! where the range reaches beyond the end of a VMA that grows. Base pages are prepared in their
//! place in the frame, one fault at a time. The fault that prepares the last of the 512 maps the
//! range by one huge page: nothing is copied, and nobody waits for more than a base page. A
//! reservation is given back as late as possible: when memory is short, the one that was populated
//! longest ago. A superpage that is freed in part is a reservation again. After the reservations, pages that were not accessed lately go.
//!
//! Deviations:
//! - FreeBSD speculates beyond the end of any anonymous object; here the VMA must be one that
//!   grows ([`superpage_units::Growth`]), so that a reservation can become a superpage.
//! - FreeBSD maps a superpage only if its base pages also agree in their dirty and access bits.
//!   Those are not part of what a policy sees here: present pages alone decide.
//! - FreeBSD has no advice against huge pages, so none is heeded.
//! - A reservation that is given back keeps its present base pages where they are, as in
//!   FreeBSD; the range is never reserved again while one of them is there.
//! - FreeBSD's page queues are one clock here.
//! - A superpage that is protected since a fork is broken up at once when it is freed in part.

use super::capabilities::Capabilities;
use super::life::{Allocation, Deallocation, Life, Mapped, Preparation, Unmapping};
use super::reservations::{Reservations, Speculation, is_reservable, is_reserved};
use super::scan::Hand;
use super::{
    Act, Action, Attempt, Cause, Fault, FaultCause, FaultPlan, Policy, RangeView, Shortage, Step,
    View,
};
use superpage_units::{BasePages, PageSize, PmdRange, ProcessKey, Time};

/// FreeBSD's choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether ranges beyond the end of a VMA are reserved (Quicksilver, observation 3).
    pub speculation: Speculation,
}

impl Default for Options {
    /// As Quicksilver describes it: speculative.
    fn default() -> Self {
        Self { speculation: Speculation::Growing }
    }
}

/// The policy. Its state is the list of what it reserved.
#[derive(Clone, Debug)]
pub struct FreeBsd {
    options: Options,
    reservations: Reservations,
    clock: Hand,
}

impl FreeBsd {
    /// FreeBSD with these options, nothing reserved.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, reservations: Reservations::default(), clock: Hand::default() }
    }

    /// One more base page in a reserved frame.
    fn populate(&mut self, fault: &Fault, view: &dyn View) -> FaultPlan {
        let range = PmdRange::containing(fault.address);
        let prepared = fault.range.present + BasePages(1);
        let is_whole = prepared >= PageSize::Huge.base_pages();
        if is_whole && fault.vma.holds(range.into()) {
            self.reservations.remove(fault.process, range);
            return FaultPlan::try_first(Attempt::Complete, FaultCause::Threshold(prepared));
        }
        self.reservations.touch(fault.process, range, view.now());
        FaultPlan::try_first(Attempt::InPlace, FaultCause::Prepared(prepared))
    }
}

impl Policy for FreeBsd {
    fn fault(&mut self, fault: &Fault, view: &dyn View) -> FaultPlan {
        if is_reserved(fault) {
            return self.populate(fault, view);
        }
        if !is_reservable(fault, view, self.options.speculation) {
            return FaultPlan::base(FaultCause::NoRoom);
        }
        self.reservations.touch(fault.process, PmdRange::containing(fault.address), view.now());
        FaultPlan::try_first(Attempt::Reserve, FaultCause::FirstTouch(PageSize::Huge))
    }

    fn background(&mut self, _: &mut dyn View) -> Step {
        Step::Rest(None)
    }

    fn pressure(&mut self, _: Shortage, view: &mut dyn View) -> Option<Action> {
        give_back_oldest(&mut self.reservations, view).or_else(|| self.clock.evict_idle(view))
    }

    fn freed_in_part(&mut self, process: ProcessKey, range: PmdRange, now: Time) {
        self.reservations.touch(process, range, now);
    }

    fn forget(&mut self, process: ProcessKey, view: &dyn View) {
        self.reservations.forget(process, view, |seen| seen.is_reserved);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::told(PageSize::Huge.base_pages())
    }

    fn life(&self) -> Life {
        Life {
            allocation: Allocation::reserved(self.options.speculation),
            preparation: Preparation::Incremental,
            mapping: Mapped::WhenPrepared,
            unmapping: Unmapping::WhenFreed,
            deallocation: Deallocation::Deferred,
        }
    }
}

/// Gives back the reservation that was populated longest ago.
pub(super) fn give_back_oldest(reservations: &mut Reservations, view: &dyn View) -> Option<Action> {
    let is_there = |seen: &RangeView| seen.is_reserved;
    let oldest = reservations.take_oldest(view, is_there, |_| true)?;
    let act = Act::Unreserve { process: oldest.process, range: oldest.range };
    Some(Action { act, cause: Cause::Idle(oldest.age) })
}

#[cfg(test)]
mod tests {
    use super::super::drive;
    use super::super::model::{
        HUGE, Model, START, Served, address, at_second, range, seconds, vma,
    };
    use super::*;
    use alloc::vec::Vec;
    use superpage_units::{Growth, Mapping, ProcessKey, Vma, VmaKind};

    fn freebsd() -> FreeBsd {
        FreeBsd::new(Options::default())
    }

    const SHORT: Shortage = Shortage { size: PageSize::Base, pages: 1 };

    #[test]
    fn files_and_memory_fill_up_in_place() {
        for kind in [VmaKind::Anonymous, VmaKind::File] {
            let mut model = Model::new(0, 1, 0);
            let process = model.spawn(&[Vma { kind, ..vma(1) }]);
            let mut policy = freebsd();
            let touch = |model: &mut Model, policy: &mut FreeBsd, page| {
                model.touch(policy, process, address(0, page))
            };
            assert_eq!(touch(&mut model, &mut policy, 3), Served::By(Attempt::Reserve));
            for page in (0..HUGE - 1).filter(|page| *page != 3) {
                let served = touch(&mut model, &mut policy, page);
                assert_eq!(served, Served::By(Attempt::InPlace));
            }
            assert_eq!(model.range(process, range(0)).mapping, Mapping::Base);
            assert_eq!(touch(&mut model, &mut policy, 511), Served::By(Attempt::Complete));
            assert_eq!(model.range(process, range(0)).mapping, Mapping::Huge);
            model.check();
        }
    }

    fn is_reserved_after_touch(vmas: &[Vma], options: Options) -> bool {
        let mut model = Model::new(0, 4, 0);
        let process = model.spawn(vmas);
        model.touch(&mut FreeBsd::new(options), process, START);
        model.range(process, range(0)).is_reserved
    }

    #[test]
    fn only_vmas_that_grow_are_reserved_beyond_their_end() {
        let short = Vma { end: address(0, 5), ..vma(1) };
        let heap = Vma { growth: Growth::Up, ..short };
        let never = Options { speculation: Speculation::Never };
        assert!(is_reserved_after_touch(&[heap], Options::default()));
        assert!(!is_reserved_after_touch(&[heap], never));
        assert!(!is_reserved_after_touch(&[short], Options::default()));
        assert!(is_reserved_after_touch(&[vma(1)], never));
        // Another VMA in the rest of the range, or just after it.
        let next = |start| Vma { start, end: address(2, 0), ..vma(1) };
        assert!(!is_reserved_after_touch(&[heap, next(address(0, 511))], Options::default()));
        assert!(is_reserved_after_touch(&[heap, next(address(1, 0))], Options::default()));
    }

    #[test]
    fn a_vma_keeps_out_of_a_frame_that_another_reserved() {
        let mut model = Model::new(0, 4, 10);
        let heap = Vma { end: address(0, 5), growth: Growth::Up, ..vma(1) };
        let process = model.spawn(&[heap]);
        let mut policy = freebsd();
        model.touch(&mut policy, process, START);
        let other = Vma { start: address(0, 9), end: address(2, 0), ..vma(1) };
        let fault = Fault { address: other.start, vma: other, ..model.fault_at(process, START) };
        assert_eq!(policy.fault(&fault, &model), FaultPlan::base(FaultCause::NoRoom));
    }

    #[test]
    fn the_reservation_populated_longest_ago_is_given_back_first() {
        let mut model = Model::new(0, 4, 0);
        let process = model.spawn(&[vma(8)]);
        let mut policy = freebsd();
        for (second, range, page) in [(1, 0, 0), (2, 2, 0), (3, 1, 0), (4, 0, 1)] {
            model.now = at_second(second);
            model.touch(&mut policy, process, address(range, page));
        }
        model.now = at_second(10);
        let mut given_back = Vec::new();
        while let Some(action) = policy.pressure(SHORT, &mut model) {
            let Act::Unreserve { range, .. } = action.act else { break };
            drive::carry_out(&mut policy, &mut model, &action);
            given_back.push((range, action.cause));
        }
        let idle = |after| Cause::Idle(seconds(after));
        let expected = [(range(2), idle(8)), (range(1), idle(7)), (range(0), idle(6))];
        assert_eq!(given_back, expected);
        // What was populated stays, and is not reserved again.
        assert_eq!(model.range(process, range(0)).present, BasePages(2));
        let again = model.touch(&mut policy, process, address(0, 2));
        assert_eq!(again, Served::By(Attempt::Base));
        model.check();
    }

    #[test]
    fn reservations_that_are_gone_are_forgotten() {
        let mut model = Model::new(0, 4, 0);
        let [first, second] = [model.spawn(&[vma(1)]), model.spawn(&[vma(1)])];
        let mut policy = freebsd();
        model.touch(&mut policy, first, START);
        model.touch(&mut policy, second, START);
        model.exit(first);
        let act = policy.pressure(SHORT, &mut model).map(|action| action.act);
        assert_eq!(act, Some(Act::Unreserve { process: ProcessKey(2), range: range(0) }));
    }
}
