//! How fast to promote: a CPU budget that may be saved up for a moment, and a pause between calls
//! that grows while the kernel takes long.
//!
//! A collapse that has to reclaim or compact first takes tens of milliseconds, and others wait for
//! the same locks. tcmalloc's rule for its own collapses is used here: a call of over 30 ms doubles
//! the delay, one of under 15 ms halves it (`HugePageFiller`, `UpdateMaxBackoffDelay`). A call that
//! finds no huge page at all doubles it too.

use crate::budget::CpuBudget;
use std::time::{Duration, Instant};
use superpage_policy::units::Nanos;

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

/// CPU time to spend: a share of one core, saved up for at most ten seconds.
#[derive(Clone, Copy, Debug)]
pub struct Purse {
    share: f64,
    /// In nanoseconds; below zero after work that took more than there was.
    saved: f64,
    filled: Instant,
}

/// Time of which the share can be saved up, in nanoseconds. Chosen, not measured: a heap that is
/// filled at once is promoted at once, up to some thousands of huge pages.
const SAVINGS: f64 = 10e9;

impl Purse {
    /// Full, as of `now`.
    #[must_use]
    pub fn new(budget: CpuBudget, now: Instant) -> Self {
        Self { share: budget.share(), saved: SAVINGS * budget.share(), filled: now }
    }

    /// Fills up by what time has brought.
    fn fill(&mut self, now: Instant) {
        let earned = now.saturating_duration_since(self.filled).as_secs_f64() * 1e9 * self.share;
        self.saved = (self.saved + earned).min(SAVINGS * self.share);
        self.filled = now;
    }

    /// Takes out what work has cost.
    pub fn spend(&mut self, cost: Nanos) {
        // What looking around costs meanwhile is not owed for ever.
        let spent = self.saved - cost.as_secs_f64() * 1e9;
        self.saved = spent.max(-SAVINGS * self.share);
    }

    /// How long until there is something to spend.
    pub fn wait(&mut self, now: Instant) -> Duration {
        self.fill(now);
        if self.saved > 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64((1e5 - self.saved) / 1e9 / self.share)
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
    fn a_share_of_time_is_there_to_be_spent() {
        let begin = Instant::now();
        let mut purse = Purse::new(CpuBudget::new(0.10).expect("a share"), begin);
        assert_eq!(purse.wait(begin), Duration::ZERO);
        purse.spend(Nanos(1_100_000_000));
        // A second was saved up; the other 100 ms take a second.
        let wait = purse.wait(begin).as_secs_f64();
        assert!((1.0..1.01).contains(&wait), "{wait}");
        assert_eq!(purse.wait(begin + Duration::from_millis(1100)), Duration::ZERO);
        assert_eq!(purse.wait(begin + Duration::from_secs(100)), Duration::ZERO);
        purse.spend(Nanos(999_000_000));
        assert_eq!(purse.wait(begin + Duration::from_secs(100)), Duration::ZERO, "as saved up");
        purse.spend(Nanos(2_000_000));
        assert!(!purse.wait(begin + Duration::from_secs(100)).is_zero(), "no more");
    }
}
