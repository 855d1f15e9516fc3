//! The reservations that a reservation-based system has made, by when each was last populated; and
//! where one can be made.

use super::{Fault, RegionView, View};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use superpage_units::{Nanos, PageSize, ProcessKey, Region, Time};

type Place = (ProcessKey, Region);

/// Whether regions are reserved that reach beyond the end of their area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speculation {
    /// Of areas that grow, in the expectation that they will.
    Growing,
    /// No.
    Never,
}

/// Whether a frame can be reserved for the region of a fault: nothing is in it, it begins in the
/// area, and it ends there too or where the area may still grow.
pub(super) fn is_reservable(fault: &Fault, view: &dyn View, speculation: Speculation) -> bool {
    let region = fault.page(PageSize::Huge);
    let is_empty = fault.region.population.is_zero() && !fault.region.is_reserved;
    let is_beyond = || {
        let is_free = |other: &superpage_units::Area| {
            other.start < fault.area.end || other.start >= region.end()
        };
        speculation == Speculation::Growing
            && fault.area.growth == superpage_units::Growth::Up
            && view.areas(fault.process).iter().all(is_free)
    };
    is_empty
        && fault.area.start <= region.start()
        && (region.end() <= fault.area.end || is_beyond())
}

/// Whether the frame reserved for the region of a fault is that of the fault's area.
pub(super) fn is_reserved(fault: &Fault) -> bool {
    fault.region.is_reserved && fault.area.start <= fault.page(PageSize::Huge).start()
}

/// A region in the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    pub(super) process: ProcessKey,
    pub(super) region: Region,
    /// How long ago it was last populated.
    pub(super) age: Nanos,
    /// What can be seen of it now.
    pub(super) seen: RegionView,
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
    pub(super) fn touch(&mut self, process: ProcessKey, region: Region, now: Time) {
        self.remove(process, region);
        self.next += 1;
        self.by_age.insert((now, self.next), (process, region));
        self.age.insert((process, region), (now, self.next));
    }

    /// It is complete, or gone.
    pub(super) fn remove(&mut self, process: ProcessKey, region: Region) {
        if let Some(age) = self.age.remove(&(process, region)) {
            self.by_age.remove(&age);
        }
    }

    /// All of this process's are gone.
    pub(super) fn forget(&mut self, process: ProcessKey) {
        self.age.retain(|(of, _), age| {
            let stays = *of != process;
            if !stays {
                self.by_age.remove(age);
            }
            stays
        });
    }

    /// Takes the one populated longest ago that is `wanted`. Those before it that are not there
    /// any more, by what `is_there` sees of them, are forgotten.
    pub(super) fn take_oldest(
        &mut self,
        view: &dyn View,
        is_there: impl Fn(&RegionView) -> bool,
        wanted: impl Fn(&Reservation) -> bool,
    ) -> Option<Reservation> {
        let mut gone = Vec::new();
        let found = self.oldest_first(view).find(|one| {
            let is_there = is_there(&one.seen);
            if !is_there {
                gone.push((one.process, one.region));
            }
            is_there && wanted(one)
        });
        gone.extend(found.map(|one| (one.process, one.region)));
        for (process, region) in gone {
            self.remove(process, region);
        }
        found
    }

    fn oldest_first(&self, view: &dyn View) -> impl Iterator<Item = Reservation> {
        self.by_age.iter().map(move |((at, _), (process, region))| Reservation {
            process: *process,
            region: *region,
            age: view.now().since(*at),
            seen: view.region(*process, *region),
        })
    }
}
