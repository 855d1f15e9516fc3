//! The times at which huge pages are looked at, for Quicksilver's background de-bloating from outside: huge
//! pages that are partly used and stay so are split before memory runs out ("Understanding Transparent
//! Superpage Management", section "Superpage Management Designs", and its Table 1: deallocation "until the
//! superpage is inactive").
//!
//! Deviations: what is accessed cannot be seen from outside, so a superpage counts as idle when the
//! part of it that was never used has stayed so for a while; and it is split where it is, not moved
//! elsewhere, which frees the unused base pages and not the whole frame. One that is little bloated may
//! be taken for one in use once in a while ([`superpage_policy::sampling::FILTER`]), until the next look.

use crate::process::ManagedProcess;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use superpage_policy::bloat::Knowledge;
use superpage_policy::debloat::BloatMaps;
use superpage_units::{Nanos, PmdRange, ProcessKey, Time};

/// Looks at a huge page that was found in use are at most this many times `idle` of the process's own CPU
/// time apart. Chosen, not measured: at the default of 5 s some ten minutes of work.
const LONGEST: u32 = 128;

/// When a huge page is looked at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// For the first time, at this time.
    First(Time),
    /// It was found in use. It is looked at again when its process, which alone can change what is in it,
    /// has used so much CPU time altogether; and then after so much more.
    Again { at: Nanos, then: Nanos },
}

impl Next {
    /// Whether its time has come at `now`, when its process has used so much CPU time.
    fn is_due(self, now: Time, used: Nanos) -> bool {
        match self {
            Self::First(at) => at <= now,
            Self::Again { at, .. } => at <= used,
        }
    }
}

/// When the huge pages of one process are looked at next.
#[derive(Clone, Debug, Default)]
struct Schedule {
    /// In address order.
    next: Vec<(PmdRange, Next)>,
    /// What CPU time the process had used when they were found.
    used: Nanos,
}

/// What was found of a process.
pub(super) struct Seen {
    pub(super) process: Arc<ManagedProcess>,
    /// In address order.
    pub(super) huge_pages: Vec<PmdRange>,
    /// The CPU time that it has used.
    pub(super) used: Nanos,
}

/// When each huge page is looked at next: each once, and then as its process works, less and less often.
/// A process that rests is not looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Looks {
    processes: BTreeMap<ProcessKey, Schedule>,
}

impl Looks {
    /// Takes in the huge pages of these processes at `now`; the others are forgotten, but for those in
    /// `kept`. Returns those that are due, with whose they are: they are there for `idle` at least, and
    /// were not found in use lately.
    pub(super) fn see(
        &mut self,
        found: Vec<Seen>,
        kept: &BTreeSet<ProcessKey>,
        idle: Nanos,
        now: Time,
    ) -> Vec<(Arc<ManagedProcess>, Vec<PmdRange>)> {
        let mut before = std::mem::take(&mut self.processes);
        let mut due = Vec::new();
        for Seen { process, huge_pages, used } in found {
            let mut known = before.remove(&process.key).unwrap_or_default();
            known.take_in(huge_pages, used, now + idle);
            let of_process = known.due(now);
            self.processes.insert(process.key, known);
            if !of_process.is_empty() {
                due.push((process, of_process));
            }
        }
        self.processes.extend(before.into_iter().filter(|(key, _)| kept.contains(key)));
        due
    }

    /// A pass over the huge pages that were due at `now` has ended with these maps: a page that is still
    /// huge was found in use, or is left alone for another reason. A page that the pass did not come to
    /// stays due.
    pub(super) fn looked(&mut self, maps: &BloatMaps, idle: Nanos, now: Time) {
        for (key, map) in maps {
            let Some(process) = self.processes.get_mut(key) else { continue };
            process.looked(|range| map.get(range) != Some(Knowledge::Unknown), idle, now);
        }
    }
}

impl Schedule {
    /// Takes in which there are (in address order), and the CPU time used; what was not there before is
    /// looked at from `first` on.
    fn take_in(&mut self, ranges: Vec<PmdRange>, used: Nanos, first: Time) {
        let mut before = std::mem::take(&mut self.next).into_iter().peekable();
        let with_next = |range| {
            while before.next_if(|(earlier, _)| *earlier < range).is_some() {}
            let known = before.next_if(|(same, _)| *same == range);
            known.unwrap_or((range, Next::First(first)))
        };
        self.next = ranges.into_iter().map(with_next).collect();
        self.used = used;
    }

    /// Those whose time it is.
    fn due(&self, now: Time) -> Vec<PmdRange> {
        let due = self.next.iter().filter(|(_, next)| next.is_due(now, self.used));
        due.map(|(range, _)| *range).collect()
    }

    /// Those that were due and `was_looked_at` wait for their next time.
    fn looked(&mut self, was_looked_at: impl Fn(PmdRange) -> bool, idle: Nanos, now: Time) {
        let used = self.used;
        let due = self.next.iter_mut().filter(|(_, next)| next.is_due(now, used));
        for (_, next) in due.filter(|(range, _)| was_looked_at(*range)) {
            let wait = match *next {
                Next::First(_) => idle,
                Next::Again { then, .. } => then,
            };
            let then = (wait * 2).min(idle * u64::from(LONGEST));
            *next = Next::Again { at: used + wait, then };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_policy::bloat::BloatMap;
    use superpage_policy::sampling::Sample;
    use superpage_units::{HUGE_PAGE_BYTES, VirtAddr};

    fn range(index: u64) -> PmdRange {
        PmdRange::containing(VirtAddr(index * HUGE_PAGE_BYTES))
    }

    /// A process that has used so much CPU time at such a time, and the numbers of its huge pages. Which
    /// are due, and all of those are found in use.
    fn round(known: &mut Schedule, now: u64, used: u64, ranges: &[u64]) -> Vec<u64> {
        let idle = Nanos(5);
        let ranges = ranges.iter().map(|index| range(*index)).collect();
        known.take_in(ranges, Nanos(used), Time(now) + idle);
        let due = known.due(Time(now));
        known.looked(|_| true, idle, Time(now));
        due.iter().map(|range| range.start().0 / HUGE_PAGE_BYTES).collect()
    }

    #[test]
    fn a_huge_page_is_due_when_it_is_old_enough_and_then_less_and_less_often() {
        let mut known = Schedule::default();
        let mut seen = |now, ranges: &[u64]| round(&mut known, now, now, ranges);
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

    #[test]
    fn a_process_that_rests_is_looked_at_once() {
        let mut known = Schedule::default();
        assert!(round(&mut known, 0, 100, &[1]).is_empty());
        assert_eq!(round(&mut known, 5, 100, &[1]), [1]);
        assert!(round(&mut known, 1_000_000, 104, &[1]).is_empty());
        assert_eq!(round(&mut known, 1_000_001, 105, &[1]), [1]);
    }

    #[test]
    fn what_a_pass_did_not_come_to_stays_due() {
        let (key, idle, now) = (ProcessKey(1), Nanos(5), Time(5));
        let mut looks = Looks::default();
        let known = looks.processes.entry(key).or_default();
        known.take_in((1..=3).map(range).collect(), Nanos(0), now);
        let mut map = BloatMap::new();
        map.insert(range(1), Knowledge::Unknown);
        let used = Sample::new(64, 0).expect("64 base pages in use");
        map.insert(range(2), Knowledge::Sampled(used));
        // The third was taken out of the pass.
        looks.looked(&BloatMaps::from([(key, map)]), idle, now);
        assert_eq!(looks.processes[&key].due(now), [range(1)]);
    }
}
