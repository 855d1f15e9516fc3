//! How fast to promote: a CPU budget that may be saved up for a moment, a pause between calls that
//! grows while the kernel takes long, and turns in which each process is left to itself.
//!
//! A collapse that has to reclaim or compact first takes tens of milliseconds, and others wait for
//! the same locks. tcmalloc's rule for its own collapses is used here: a call of over 30 ms doubles
//! the delay, one of under 15 ms halves it (`HugePageFiller`, `UpdateMaxBackoffDelay`). A call that
//! finds no huge page at all doubles it too.
//!
//! While a region is collapsed the kernel holds the lock of the process's memory map, and copies under
//! it: all page faults of the process wait, half a millisecond for each huge page and often more. A
//! Redis that writes large values stood still for hundreds of milliseconds while promotions followed
//! one another. So there is one call at a time in a process, and after it the process has a turn.

use crate::budget::CpuBudget;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use superpage_units::{Nanos, ProcessKey};

/// A call that takes longer than this for each huge page slows down the next ones.
pub const SLOW: Duration = Duration::from_millis(30);
/// A call that takes less than this for each speeds the next ones up.
pub const FAST: Duration = Duration::from_millis(15);
/// The first delay. Chosen, not measured.
const LEAST: Duration = Duration::from_millis(10);
/// The longest delay after slow calls, which do get something done. Chosen, not measured.
const MOST_SLOW: Duration = Duration::from_secs(1);
/// The longest delay where there is no huge page: khugepaged's (`alloc_sleep_millisecs`).
const MOST: Duration = Duration::from_secs(60);

/// The delay between calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackOff {
    delay: Duration,
    until: Option<Instant>,
}

impl BackOff {
    /// A call ended now, after this time for each huge page.
    pub fn took(&mut self, time: Duration, now: Instant) {
        if time > SLOW {
            self.slow_down(now, MOST_SLOW.max(self.delay));
        } else if time < FAST {
            self.delay = if self.delay <= LEAST { Duration::ZERO } else { self.delay / 2 };
        }
    }

    /// There was no huge page to be had.
    pub fn found_none(&mut self, now: Instant) {
        self.slow_down(now, MOST);
    }

    fn slow_down(&mut self, now: Instant, most: Duration) {
        self.delay = (self.delay * 2).clamp(LEAST, most);
        self.until = Some(now + self.delay);
    }

    /// How long to wait from `now` before the next call.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// The delay after a slow call.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }
}

/// Whose turn it is in each process, ours or its own.
#[derive(Debug, Default)]
pub struct Turns {
    ours: BTreeMap<ProcessKey, u32>,
    theirs: BTreeMap<ProcessKey, Instant>,
}

/// Why a promotion is made, as far as its process has to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// A fault called for it: the process is filling the region now.
    Now,
    /// It was found in the background.
    Whenever,
}

impl Haste {
    /// How many times longer than a call the process is left to itself after it. Chosen: what a fault
    /// calls for has to keep up with a program that fills memory, some 2 ms for each huge page.
    const fn turns(self) -> u32 {
        match self {
            Self::Now => 1,
            Self::Whenever => 4,
        }
    }
}

impl Turns {
    /// A job begins in this process.
    pub fn begin(&mut self, process: ProcessKey) {
        *self.ours.entry(process).or_default() += 1;
    }

    /// A job that had begun is over at `now`, and the kernel worked for `time` at it.
    pub fn end(&mut self, process: ProcessKey, time: Duration, haste: Haste, now: Instant) {
        if let Some(jobs) = self.ours.get_mut(&process) {
            *jobs -= 1;
            if *jobs == 0 {
                self.ours.remove(&process);
            }
        }
        let until = now + time * haste.turns();
        let theirs = self.theirs.entry(process).or_insert(until);
        *theirs = until.max(*theirs);
    }

    /// How long from `now` nothing more is to be done in the process. While something is being done
    /// there, that cannot be known.
    #[must_use]
    pub fn wait(&self, process: ProcessKey, now: Instant) -> Duration {
        if self.ours.contains_key(&process) {
            return Duration::MAX;
        }
        let until = self.theirs.get(&process);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Forgets turns that are over.
    pub fn expire(&mut self, now: Instant) {
        self.theirs.retain(|_, until| *until > now);
    }
}

/// CPU time to spend: a share of one core, saved up for some time, and owed for some.
#[derive(Clone, Copy, Debug)]
pub struct Purse {
    share: f64,
    /// What it holds at most, in seconds.
    most: f64,
    /// In seconds; below zero after work that took more than there was.
    saved: f64,
    filled: Instant,
}

/// Time of which the share can be saved up. Chosen, not measured: a heap that is filled at once is
/// promoted at once, up to some thousands of huge pages.
const SAVINGS: Duration = Duration::from_secs(10);
/// The longest that is waited until what was spent has come in. Chosen, not measured.
const DEBT: Duration = Duration::from_secs(10);

impl Purse {
    /// Full, as of `now`.
    #[must_use]
    pub fn new(budget: CpuBudget, now: Instant) -> Self {
        Self::of_share(budget.share(), SAVINGS, now)
    }

    /// Full, as of `now`, with a share of what so long a time brings.
    #[must_use]
    pub fn of_share(share: f64, savings: Duration, now: Instant) -> Self {
        let most = savings.as_secs_f64() * share;
        Self { share, most, saved: most, filled: now }
    }

    /// What there is, with what time has brought.
    fn saved(&self, now: Instant) -> f64 {
        let earned = now.saturating_duration_since(self.filled).as_secs_f64() * self.share;
        (self.saved + earned).min(self.most)
    }

    /// Takes out what work has cost.
    pub fn spend(&mut self, cost: Nanos, now: Instant) {
        // What looking around costs meanwhile is not owed for ever.
        self.saved = (self.saved(now) - cost.as_secs_f64()).max(-DEBT.as_secs_f64() * self.share);
        self.filled = now;
    }

    /// How long until there is something to spend.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Duration {
        /// So that what has come by then is more than nothing.
        const SOMETHING: f64 = 1e-4;
        match self.saved(now) {
            saved if saved > 0.0 => Duration::ZERO,
            owed => Duration::from_secs_f64((SOMETHING - owed) / self.share),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn long_calls_slow_down_and_short_ones_speed_up() {
        let now = Instant::now();
        let mut pace = BackOff::default();
        pace.took(10 * MS, now);
        assert_eq!(pace.wait(now), Duration::ZERO);
        for delay in [10, 20, 40] {
            pace.took(31 * MS, now);
            assert_eq!(pace.wait(now), delay * MS);
        }
        pace.took(20 * MS, now);
        assert_eq!(pace.delay(), 40 * MS, "in between nothing changes");
        assert_eq!(pace.wait(now + 40 * MS), Duration::ZERO);
        for delay in [20, 10, 0] {
            pace.took(14 * MS, now);
            assert_eq!(pace.delay(), delay * MS);
        }
        for _ in 0..30 {
            pace.took(31 * MS, now);
        }
        assert_eq!(pace.wait(now), MOST_SLOW);
        for _ in 0..30 {
            pace.found_none(now);
        }
        assert_eq!(pace.wait(now), MOST);
    }

    #[test]
    fn after_a_call_the_process_has_its_turn() {
        let (one, other, now) = (ProcessKey(1), ProcessKey(2), Instant::now());
        let mut turns = Turns::default();
        turns.begin(one);
        turns.begin(one);
        assert_eq!((turns.wait(one, now), turns.wait(other, now)), (Duration::MAX, Duration::ZERO));
        turns.end(one, 2 * MS, Haste::Whenever, now);
        assert_eq!(turns.wait(one, now), Duration::MAX, "there is another one");
        turns.end(one, 2 * MS, Haste::Now, now);
        assert_eq!(turns.wait(one, now), 8 * MS, "the longest counts");
        turns.expire(now + 8 * MS);
        assert_eq!(turns.wait(one, now), Duration::ZERO);
    }

    #[test]
    fn a_share_of_time_is_there_to_be_spent() {
        let begin = Instant::now();
        let mut purse = Purse::new(CpuBudget::new(0.10).expect("a share"), begin);
        assert_eq!(purse.wait(begin), Duration::ZERO);
        purse.spend(Nanos(1_100_000_000), begin);
        // A second was saved up; the other 100 ms take a second.
        let wait = purse.wait(begin).as_secs_f64();
        assert!((1.0..1.01).contains(&wait), "{wait}");
        assert_eq!(purse.wait(begin + Duration::from_millis(1100)), Duration::ZERO);
        assert_eq!(purse.wait(begin + Duration::from_secs(100)), Duration::ZERO);
        let later = begin + Duration::from_secs(100);
        purse.spend(Nanos(999_000_000), later);
        assert_eq!(purse.wait(later), Duration::ZERO, "as saved up");
        purse.spend(Nanos(2_000_000), later);
        assert!(!purse.wait(later).is_zero(), "no more");
    }
}
