//! The reservations that a reservation-based system has made, by when each was last populated.

use crate::debloat::ProcessKey;
use crate::region::Region;
use crate::units::Nanos;
use alloc::collections::BTreeMap;

type Place = (ProcessKey, Region);

/// Reservations in the order in which they were last populated.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations {
    by_age: BTreeMap<(Nanos, u64), Place>,
    age: BTreeMap<Place, (Nanos, u64)>,
    next: u64,
}

impl Reservations {
    /// A base page of this one was populated now.
    pub(super) fn touch(&mut self, process: ProcessKey, region: Region, now: Nanos) {
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

    /// The one populated longest ago, and when.
    pub(super) fn oldest(&self) -> Option<(ProcessKey, Region, Nanos)> {
        let ((at, _), (process, region)) = self.by_age.first_key_value()?;
        Some((*process, *region, *at))
    }

    /// All of them, the one populated longest ago first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = (ProcessKey, Region, Nanos)> {
        self.by_age.iter().map(|((at, _), (process, region))| (*process, *region, *at))
    }
}
