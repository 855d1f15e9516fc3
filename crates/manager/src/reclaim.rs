//! Quicksilver's background de-bloating, from outside: huge pages that are partly used and stay so
//! are split before memory runs out ("Understanding Transparent Superpage Management", section
//! "Superpage Management Designs", and its Table 1: deallocation "until the superpage is inactive").
//!
//! Deviations: what is accessed cannot be seen from outside, so a superpage counts as idle when the
//! part of it that was never used has stayed so for a while; and it is split where it is, not moved
//! elsewhere, which frees the unused base pages and not the whole frame. One that is little bloated may
//! be taken for one in use once in a while ([`superpage_policy::sampling::SIEVE`]), until the next look.

use crate::target::Target;
use std::collections::BTreeMap;
use superpage_kernel::Result;
use superpage_units::{Nanos, ProcessKey, Region};

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
pub struct Looks {
    processes: BTreeMap<ProcessKey, BTreeMap<Region, Seen>>,
}

impl Looks {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the huge pages of these processes at `now`; the others are forgotten. Returns those
    /// that are due, with whose they are: they are there for `idle` at least, and were not found in
    /// use lately.
    ///
    /// # Errors
    /// As [`Target::huge_pages`], where that is not about one process.
    pub fn see(
        &mut self,
        targets: Vec<Target>,
        idle: Nanos,
        now: Nanos,
    ) -> Result<Vec<(Target, Vec<Region>)>> {
        let mut before = std::mem::take(&mut self.processes);
        let (mut due, mut failed) = (Vec::new(), None);
        for mut target in targets {
            let known = before.remove(&target.key()).unwrap_or_default();
            let regions = match target.huge_pages() {
                Ok(regions) => regions,
                Err(error) if crate::target::is_about_one_process(&error) => continue,
                Err(error) => {
                    failed = Some(error);
                    self.processes.insert(target.key(), known);
                    continue;
                }
            };
            let known = merged(&known, regions, idle, now);
            let of_target = due_at(&known, now);
            self.processes.insert(target.key(), known);
            if !of_target.is_empty() {
                due.push((target, of_target));
            }
        }
        failed.map_or(Ok(due), Err)
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

/// Those whose time it is.
fn due_at(regions: &BTreeMap<Region, Seen>, now: Nanos) -> Vec<Region> {
    let due = regions.iter().filter(|(_, seen)| seen.next <= now);
    due.map(|(region, _)| *region).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::{HUGE_PAGE_BYTES, VirtAddr};

    #[test]
    fn a_huge_page_is_due_when_it_is_old_enough_and_then_less_and_less_often() {
        let region = |index: u64| Region::containing(VirtAddr(index * HUGE_PAGE_BYTES));
        let (key, idle) = (ProcessKey(1), Nanos(5));
        let mut looks = Looks::new();
        let mut seen = |now, regions: &[u64]| {
            let before = looks.processes.remove(&key).unwrap_or_default();
            let regions = regions.iter().map(|index| region(*index)).collect();
            let known = merged(&before, regions, idle, Nanos(now));
            let due = due_at(&known, Nanos(now));
            looks.processes.insert(key, known);
            looks.looked(idle, Nanos(now));
            due.iter().map(|region| region.start().0 / HUGE_PAGE_BYTES).collect::<Vec<_>>()
        };
        assert!(seen(0, &[1]).is_empty());
        assert!(seen(4, &[1, 2]).is_empty());
        assert_eq!(seen(5, &[1, 2]), [1]);
        assert_eq!(seen(9, &[1, 2]), [2]);
        assert_eq!(seen(10, &[1, 2]), [1]);
        assert_eq!(seen(15, &[1, 2]), [2], "1 waits ten now");
        assert_eq!(seen(20, &[1, 2]), [1]);
        assert!(seen(21, &[2]).is_empty(), "1 was split");
        assert!(seen(22, &[1, 2]).is_empty(), "and is new when it is back");
    }
}
