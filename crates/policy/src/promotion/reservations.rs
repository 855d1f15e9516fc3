//! The reservations that a reservation-based policy has made, by when each was last populated; and
//! where one can be made.

use super::{Fault, RangeView, View};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use superpage_units::{Nanos, PageSize, PmdRange, ProcessKey, Time};

type Place = (ProcessKey, PmdRange);

/// Whether ranges are reserved that reach beyond the end of their VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speculation {
    /// Of VMAs that grow, in the expectation that they will.
    Growing,
    /// No.
    Never,
}

/// Whether a frame can be reserved for the range of a fault: nothing is in it, it begins in the
/// VMA, and it ends there too or where the VMA may still grow.
pub(super) fn is_reservable(fault: &Fault, view: &dyn View, speculation: Speculation) -> bool {
    let range = fault.page(PageSize::Huge);
    let is_empty = fault.range.present.is_zero() && !fault.range.is_reserved;
    let is_beyond = || {
        let is_free = |other: &superpage_units::Vma| {
            other.start < fault.vma.end || other.start >= range.end()
        };
        speculation == Speculation::Growing
            && fault.vma.growth == superpage_units::Growth::Up
            && view.vmas(fault.process).iter().all(is_free)
    };
    is_empty && fault.vma.start <= range.start() && (range.end() <= fault.vma.end || is_beyond())
}

/// Whether the frame reserved for the range of a fault is that of the fault's VMA.
pub(super) fn is_reserved(fault: &Fault) -> bool {
    fault.range.is_reserved && fault.vma.start <= fault.page(PageSize::Huge).start()
}

/// A range in the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    pub(super) process: ProcessKey,
    pub(super) range: PmdRange,
    /// How long ago it was last populated.
    pub(super) age: Nanos,
    /// The range as it is seen now.
    pub(super) seen: RangeView,
}

/// Reservations in the order in which they were last populated.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations {
    by_age: BTreeMap<(Time, u64), Place>,
    age: BTreeMap<Place, (Time, u64)>,
    next: u64,
}

impl Reservations {
    /// A base page of this one was populated now.
    pub(super) fn touch(&mut self, process: ProcessKey, range: PmdRange, now: Time) {
        self.remove(process, range);
        self.next += 1;
        self.by_age.insert((now, self.next), (process, range));
        self.age.insert((process, range), (now, self.next));
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.age.is_empty()
    }

    /// It is complete, or gone.
    pub(super) fn remove(&mut self, process: ProcessKey, range: PmdRange) {
        if let Some(age) = self.age.remove(&(process, range)) {
            self.by_age.remove(&age);
        }
    }

    /// Those of this process that are not there any more, by what `is_there` sees of them, are gone.
    pub(super) fn forget(
        &mut self,
        process: ProcessKey,
        view: &dyn View,
        is_there: impl Fn(&RangeView) -> bool,
    ) {
        let of_process = self.age.range((process, PmdRange::FIRST)..=(process, PmdRange::LAST));
        let ranges = of_process.map(|((_, range), _)| *range);
        let gone: Vec<_> = ranges.filter(|range| !is_there(&view.range(process, *range))).collect();
        gone.into_iter().for_each(|range| self.remove(process, range));
    }

    /// Takes the one populated longest ago that is `wanted`. Those before it that are not there
    /// any more, by what `is_there` sees of them, are forgotten.
    pub(super) fn take_oldest(
        &mut self,
        view: &dyn View,
        is_there: impl Fn(&RangeView) -> bool,
        wanted: impl Fn(&Reservation) -> bool,
    ) -> Option<Reservation> {
        let mut gone = Vec::new();
        let found = self.oldest_first(view).find(|one| {
            let is_there = is_there(&one.seen);
            if !is_there {
                gone.push((one.process, one.range));
            }
            is_there && wanted(one)
        });
        gone.extend(found.map(|one| (one.process, one.range)));
        for (process, range) in gone {
            self.remove(process, range);
        }
        found
    }

    fn oldest_first(&self, view: &dyn View) -> impl Iterator<Item = Reservation> {
        self.by_age.iter().map(move |((at, _), (process, range))| Reservation {
            process: *process,
            range: *range,
            age: view.now().since(*at),
            seen: view.range(*process, *range),
        })
    }
}
