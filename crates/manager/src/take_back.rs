//! Quicksilver's background de-bloating, from outside: huge pages that are partly used and stay so
//! are broken before memory runs out ("Understanding Transparent Superpage Management", section
//! "Superpage Management Designs", and its Table 1: deallocation "until the superpage is inactive").
//!
//! Deviations: what is accessed cannot be seen from outside, so a superpage counts as idle when the
//! part of it that was never used has stayed so for a while; and it is split where it is, not moved
//! elsewhere, which gives back the unused base pages and not the whole frame.

use crate::cooldown::CoolDown;
use crate::target::Target;
use std::collections::BTreeMap;
use superpage_kernel::Result;
use superpage_policy::debloat::ProcessKey;
use superpage_policy::region::Region;
use superpage_policy::units::Nanos;

/// Looks at a huge page that was found in use are at most this many times `idle` apart. Chosen, not
/// measured: at the default of 5 s some ten minutes.
const LONGEST: u32 = 128;

/// What is known of one huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// It is not looked at before this time.
    next: Nanos,
    /// How long after that look the next one is.
    then: Nanos,
}

/// Since when huge pages are there, and when each is looked at next.
#[derive(Clone, Debug, Default)]
pub struct TakeBack {
    processes: BTreeMap<ProcessKey, BTreeMap<Region, Seen>>,
}

impl TakeBack {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the huge pages of these processes at `now`; the others are forgotten. Returns how
    /// many are due: they are there for `idle` at least, and were not found in use lately.
    ///
    /// # Errors
    /// As [`Target::huge_pages`], where that is not about one process.
    pub fn see(&mut self, targets: &mut Vec<Target>, idle: Nanos, now: Nanos) -> Result<usize> {
        let mut processes = BTreeMap::new();
        let mut failed = None;
        targets.retain_mut(|target| match target.huge_pages() {
            Ok(regions) => {
                let before = self.processes.remove(&target.key()).unwrap_or_default();
                processes.insert(target.key(), merged(&before, regions, idle, now));
                true
            }
            Err(error) if crate::target::is_about_one_process(&error) => false,
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        self.processes = processes;
        let due = self.processes.values().flat_map(BTreeMap::values);
        failed.map_or(Ok(due.filter(|seen| seen.next <= now).count()), Err)
    }

    /// What a pass at `now` is to leave alone, besides what is in `cooling`.
    #[must_use]
    pub fn not_due(&self, cooling: &CoolDown, now: Nanos) -> CoolDown {
        let mut list = cooling.clone();
        for (key, regions) in &self.processes {
            for (region, seen) in regions.iter().filter(|(_, seen)| seen.next > now) {
                list.add(*key, *region, seen.next);
            }
        }
        list
    }

    /// A pass came by at `now`: what was due and is still huge was found in use, and is looked at
    /// later and later.
    pub fn looked(&mut self, idle: Nanos, now: Nanos) {
        for seen in self.processes.values_mut().flat_map(BTreeMap::values_mut) {
            if seen.next <= now {
                seen.next = now + seen.then;
                seen.then = (seen.then * 2).min(idle * u64::from(LONGEST));
            }
        }
    }
}

/// What was known, of those that are there still; the others are new.
fn merged(
    before: &BTreeMap<Region, Seen>,
    regions: Vec<Region>,
    idle: Nanos,
    now: Nanos,
) -> BTreeMap<Region, Seen> {
    let new = Seen { next: now + idle, then: idle };
    regions.into_iter().map(|region| (region, *before.get(&region).unwrap_or(&new))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_policy::units::{HUGE_PAGE_BYTES, VirtAddr};

    #[test]
    fn a_huge_page_is_due_when_it_is_old_enough_and_then_less_and_less_often() {
        let region = |index: u64| Region::containing(VirtAddr(index * HUGE_PAGE_BYTES));
        let (key, idle) = (ProcessKey(1), Nanos(5));
        let mut take_back = TakeBack::new();
        let mut seen = |now, regions: &[u64]| {
            let before = take_back.processes.remove(&key).unwrap_or_default();
            let regions = regions.iter().map(|index| region(*index)).collect();
            take_back.processes.insert(key, merged(&before, regions, idle, Nanos(now)));
            let list = take_back.not_due(&CoolDown::new(), Nanos(now));
            let due: Vec<u64> =
                (1..=2).filter(|index| !list.contains(key, region(*index), Nanos(now))).collect();
            take_back.looked(idle, Nanos(now));
            due
        };
        assert_eq!(seen(0, &[1]), [2], "2 is not there, and nothing holds it back");
        assert!(seen(4, &[1, 2]).is_empty());
        assert_eq!(seen(5, &[1, 2]), [1]);
        assert_eq!(seen(9, &[1, 2]), [2]);
        assert_eq!(seen(10, &[1, 2]), [1]);
        assert_eq!(seen(15, &[1, 2]), [2], "1 waits ten now");
        assert_eq!(seen(20, &[1, 2]), [1]);
        assert_eq!(seen(21, &[2]), [1], "1 was broken");
        assert!(seen(22, &[1, 2]).is_empty(), "and is new when it is back");
    }
}
