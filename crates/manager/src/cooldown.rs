//! Ranges that are left alone for a while: those that a split left whole, those that were not worth
//! one, those where nothing is to be promoted.

use std::collections::BTreeMap;
use superpage_units::{Nanos, PmdRange, ProcessKey, Time};

/// The most ranges remembered; further ones are simply tried again. Chosen, not measured: the
/// huge pages of 2 TiB.
const CAPACITY: usize = 1 << 20;

/// A cooldown that doubles gets at most so many times as long as the first one. Chosen, not measured: at
/// the default of ten minutes some eleven hours, about as long as a program that pins memory runs.
const LONGEST: u64 = 64;

/// Until when a range is left alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cooldown {
    /// Until then.
    pub until: Time,
    /// How often in a row it stayed whole; 0 if that does not count.
    pub failures: u32,
    /// How long this one is, if the next one is to be longer. It is forgotten that the range stayed
    /// whole when it is not tried again for so long after `until`.
    pub length: Nanos,
}

/// The ranges that are left alone.
#[derive(Clone, Debug, Default)]
pub struct CoolDown {
    ranges: BTreeMap<(ProcessKey, PmdRange), Cooldown>,
}

impl CoolDown {
    /// Nothing is cooling down.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves `range` alone until `until`.
    pub fn add(&mut self, process: ProcessKey, range: PmdRange, until: Time) {
        self.insert(process, range, Cooldown { until, ..Cooldown::default() });
    }

    /// Leaves `range` alone as an earlier list did.
    pub fn insert(&mut self, process: ProcessKey, range: PmdRange, cooldown: Cooldown) {
        let place = (process, range);
        if self.ranges.len() < CAPACITY || self.ranges.contains_key(&place) {
            self.ranges.insert(place, cooldown);
        }
    }

    /// Leaves `range` alone, which stayed whole at `now`: for `first`, and each further time in a row for
    /// twice as long.
    pub fn stayed_whole(&mut self, process: ProcessKey, range: PmdRange, now: Time, first: Nanos) {
        let before = self.ranges.get(&(process, range)).map_or(0, |cooldown| cooldown.failures);
        let failures = before.saturating_add(1);
        let length = length(failures, first);
        self.insert(process, range, Cooldown { until: now + length, failures, length });
    }

    /// Whether `range` is to be left alone at `now`.
    #[must_use]
    pub fn contains(&self, process: ProcessKey, range: PmdRange, now: Time) -> bool {
        self.ranges.get(&(process, range)).is_some_and(|cooldown| cooldown.until > now)
    }

    /// Forgets what has cooled down by `now`, and for as long again where it stayed whole.
    pub fn expire(&mut self, now: Time) {
        self.ranges.retain(|_, cooldown| cooldown.until + cooldown.length > now);
    }

    /// Leaves nothing alone for longer than if it began at `now`, with a first cooldown of `first`.
    pub fn cap(&mut self, now: Time, first: Nanos) {
        for cooldown in self.ranges.values_mut() {
            let length = length(cooldown.failures.max(1), first);
            cooldown.length = cooldown.length.min(length);
            cooldown.until = cooldown.until.min(now + length);
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (ProcessKey, PmdRange, Cooldown)> {
        self.ranges.iter().map(|((process, range), cooldown)| (*process, *range, *cooldown))
    }

    /// How many ranges are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
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

    const RANGE: PmdRange = PmdRange::containing(VirtAddr(1 << 30));
    const ONE: ProcessKey = ProcessKey(1);

    #[test]
    fn a_range_is_left_alone_for_a_while_and_for_one_process() {
        let mut list = CoolDown::new();
        list.add(ONE, RANGE, Time(10));
        assert!(list.contains(ONE, RANGE, Time(9)));
        assert!(!list.contains(ONE, RANGE, Time(10)));
        assert!(!list.contains(ProcessKey(2), RANGE, Time(9)));
        list.expire(Time(10));
        assert!(list.is_empty());
        list.add(ONE, RANGE, Time(30));
        list.cap(Time(10), Nanos(10));
        assert!(list.contains(ONE, RANGE, Time(19)) && !list.contains(ONE, RANGE, Time(20)));
    }

    #[test]
    fn what_stays_whole_again_and_again_is_left_alone_for_longer_and_longer() {
        let (mut list, mut now) = (CoolDown::new(), Time(1000));
        for times in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            list.stayed_whole(ONE, RANGE, now, Nanos(10));
            let until = now + Nanos(10 * times);
            assert!(list.contains(ONE, RANGE, Time(until.0 - 1)), "{times} times");
            assert!(!list.contains(ONE, RANGE, until), "{times} times");
            // Tried again within as long again.
            now = until + Nanos(10 * times - 1);
            list.expire(now);
        }
        list.expire(now + Nanos(1));
        assert!(list.is_empty(), "it was not tried for long");
        list.stayed_whole(ONE, RANGE, now, Nanos(10));
        assert!(!list.contains(ONE, RANGE, now + Nanos(10)), "it begins anew");
    }

    #[test]
    fn a_shorter_first_cooldown_shortens_the_later_ones() {
        let mut list = CoolDown::new();
        for _ in 0..3 {
            list.stayed_whole(ONE, RANGE, Time(0), Nanos(100));
        }
        list.cap(Time(0), Nanos(10));
        assert!(list.contains(ONE, RANGE, Time(39)) && !list.contains(ONE, RANGE, Time(40)));
    }
}
