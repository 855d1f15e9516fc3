//! Regions that are left alone for a while: those that a split left whole, those that were not worth
//! one, those where nothing is to be promoted.

use std::collections::BTreeMap;
use superpage_units::{Nanos, ProcessKey, Region, Time};

/// The most regions remembered; further ones are simply tried again. Chosen, not measured: the
/// huge pages of 2 TiB.
const CAPACITY: usize = 1 << 20;

/// A cooldown that doubles gets at most so many times as long as the first one. Chosen, not measured: at
/// the default of ten minutes some eleven hours, about as long as a program that pins memory runs.
const LONGEST: u64 = 64;

/// Until when a region is left alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cooldown {
    /// Until then.
    pub until: Time,
    /// How often in a row it stayed whole; 0 if that does not count.
    pub failures: u32,
    /// How long this one is, if the next one is to be longer. It is forgotten that the region stayed
    /// whole when it is not tried again for so long after `until`.
    pub length: Nanos,
}

/// The regions that are left alone.
#[derive(Clone, Debug, Default)]
pub struct CoolDown {
    regions: BTreeMap<(ProcessKey, Region), Cooldown>,
}

impl CoolDown {
    /// Nothing is cooling down.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves `region` alone until `until`.
    pub fn add(&mut self, process: ProcessKey, region: Region, until: Time) {
        self.insert(process, region, Cooldown { until, ..Cooldown::default() });
    }

    /// Leaves `region` alone as an earlier list did.
    pub fn insert(&mut self, process: ProcessKey, region: Region, cooldown: Cooldown) {
        let place = (process, region);
        if self.regions.len() < CAPACITY || self.regions.contains_key(&place) {
            self.regions.insert(place, cooldown);
        }
    }

    /// Leaves `region` alone, which stayed whole at `now`: for `first`, and each further time in a row for
    /// twice as long.
    pub fn stayed_whole(&mut self, process: ProcessKey, region: Region, now: Time, first: Nanos) {
        let before = self.regions.get(&(process, region)).map_or(0, |cooldown| cooldown.failures);
        let failures = before.saturating_add(1);
        let length = length(failures, first);
        self.insert(process, region, Cooldown { until: now + length, failures, length });
    }

    /// Whether `region` is to be left alone at `now`.
    #[must_use]
    pub fn contains(&self, process: ProcessKey, region: Region, now: Time) -> bool {
        self.regions.get(&(process, region)).is_some_and(|cooldown| cooldown.until > now)
    }

    /// Forgets what has cooled down by `now`, and for as long again where it stayed whole.
    pub fn expire(&mut self, now: Time) {
        self.regions.retain(|_, cooldown| cooldown.until + cooldown.length > now);
    }

    /// Leaves nothing alone for longer than if it began at `now`, with a first cooldown of `first`.
    pub fn cap(&mut self, now: Time, first: Nanos) {
        for cooldown in self.regions.values_mut() {
            let length = length(cooldown.failures.max(1), first);
            cooldown.length = cooldown.length.min(length);
            cooldown.until = cooldown.until.min(now + length);
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (ProcessKey, Region, Cooldown)> {
        self.regions.iter().map(|((process, region), cooldown)| (*process, *region, *cooldown))
    }

    /// How many regions are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }
}

/// The cooldown after so many failures, 1 or more.
fn length(failures: u32, first: Nanos) -> Nanos {
    let times = 1u64.checked_shl(failures.saturating_sub(1)).unwrap_or(LONGEST);
    first * times.min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::VirtAddr;

    const REGION: Region = Region::containing(VirtAddr(1 << 30));
    const ONE: ProcessKey = ProcessKey(1);

    #[test]
    fn a_region_is_left_alone_for_a_while_and_for_one_process() {
        let mut list = CoolDown::new();
        list.add(ONE, REGION, Time(10));
        assert!(list.contains(ONE, REGION, Time(9)));
        assert!(!list.contains(ONE, REGION, Time(10)));
        assert!(!list.contains(ProcessKey(2), REGION, Time(9)));
        list.expire(Time(10));
        assert!(list.is_empty());
        list.add(ONE, REGION, Time(30));
        list.cap(Time(10), Nanos(10));
        assert!(list.contains(ONE, REGION, Time(19)) && !list.contains(ONE, REGION, Time(20)));
    }

    #[test]
    fn what_stays_whole_again_and_again_is_left_alone_for_longer_and_longer() {
        let (mut list, mut now) = (CoolDown::new(), Time(1000));
        for times in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            list.stayed_whole(ONE, REGION, now, Nanos(10));
            let until = now + Nanos(10 * times);
            assert!(list.contains(ONE, REGION, Time(until.0 - 1)), "{times} times");
            assert!(!list.contains(ONE, REGION, until), "{times} times");
            // Tried again within as long again.
            now = until + Nanos(10 * times - 1);
            list.expire(now);
        }
        list.expire(now + Nanos(1));
        assert!(list.is_empty(), "it was not tried for long");
        list.stayed_whole(ONE, REGION, now, Nanos(10));
        assert!(!list.contains(ONE, REGION, now + Nanos(10)), "it begins anew");
    }

    #[test]
    fn a_shorter_first_cooldown_shortens_the_later_ones() {
        let mut list = CoolDown::new();
        for _ in 0..3 {
            list.stayed_whole(ONE, REGION, Time(0), Nanos(100));
        }
        list.cap(Time(0), Nanos(10));
        assert!(list.contains(ONE, REGION, Time(39)) && !list.contains(ONE, REGION, Time(40)));
    }
}
