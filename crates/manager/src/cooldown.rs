//! Regions that a split left alone, and until when not to try them again.

use std::collections::BTreeMap;
use superpage_units::{Nanos, ProcessKey, Region};

/// The most regions remembered; further ones are simply tried again. Chosen, not measured: the
/// huge pages of 2 TiB.
const CAPACITY: usize = 1 << 20;

/// The cool-down list.
#[derive(Clone, Debug, Default)]
pub struct CoolDown {
    until: BTreeMap<(ProcessKey, Region), Nanos>,
}

impl CoolDown {
    /// Nothing is cooling down.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves `region` alone until `until`.
    pub fn add(&mut self, process: ProcessKey, region: Region, until: Nanos) {
        if self.until.len() < CAPACITY {
            self.until.insert((process, region), until);
        }
    }

    /// Whether `region` is to be left alone at `now`.
    #[must_use]
    pub fn contains(&self, process: ProcessKey, region: Region, now: Nanos) -> bool {
        self.until.get(&(process, region)).is_some_and(|until| *until > now)
    }

    /// Forgets what has cooled down by `now`.
    pub fn expire(&mut self, now: Nanos) {
        self.until.retain(|_, until| *until > now);
    }

    /// Leaves nothing alone beyond this time.
    pub fn cap(&mut self, latest: Nanos) {
        self.until.values_mut().for_each(|until| *until = latest.min(*until));
    }

    /// All of them, each with its time.
    pub fn iter(&self) -> impl Iterator<Item = (ProcessKey, Region, Nanos)> {
        self.until.iter().map(|((process, region), until)| (*process, *region, *until))
    }

    /// How many regions are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.until.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.until.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::VirtAddr;

    #[test]
    fn a_region_is_left_alone_for_a_while_and_for_one_process() {
        let region = Region::containing(VirtAddr(1 << 30));
        let (one, other) = (ProcessKey(1), ProcessKey(2));
        let mut list = CoolDown::new();
        list.add(one, region, Nanos(10));
        assert!(list.contains(one, region, Nanos(9)));
        assert!(!list.contains(one, region, Nanos(10)));
        assert!(!list.contains(other, region, Nanos(9)));
        list.expire(Nanos(10));
        assert!(list.is_empty());
        list.add(one, region, Nanos(30));
        list.cap(Nanos(20));
        assert!(list.contains(one, region, Nanos(19)) && !list.contains(one, region, Nanos(20)));
    }
}
