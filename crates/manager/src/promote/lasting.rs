//! Whether what is promoted in a process lasts, and what may be spent where it does not.
//!
//! A program that frees and fills memory all the time takes huge pages apart soon after they were made:
//! an allocator gives back pieces of them. Promoting is worth it there only as long as it costs less
//! than huge pages gain, and while it is done the process waits ([`super::pace`]). So where most of
//! what was promoted has come apart some seconds later, a process has a small budget of its own.

use super::pace::Purse;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use superpage_units::{Nanos, Region};

/// When it is looked whether a region is still huge. jemalloc gives back what is not used after ten
/// seconds.
const AGE: Nanos = Nanos(10_000_000_000); // tidy: allow(10 s)
/// Regions that are looked at each time, the first of those that are due: each takes some
/// microseconds.
const LOOKS: usize = 16;
/// How much each look counts beside all those before.
const WEIGHT: f64 = 1.0 / 16.0;
/// Below this share of regions that last, promoting costs more than it gains. Chosen, not measured.
const ENOUGH: f64 = 0.5;
/// So large a share is taken to last at least, so that now and then one is tried.
const LEAST: f64 = 0.05;
/// The share of a core for promotions of which all would last. Chosen: less than huge pages gain
/// nearly anywhere.
const SHARE: f64 = 0.02;
/// For so long it can be saved up.
const SAVINGS: Duration = Duration::from_millis(500);

/// What became of what was promoted in a process.
#[derive(Debug)]
pub(super) struct Lasting {
    /// The share that lasted, lately.
    share: f64,
    /// Promoted regions, and when they are looked at.
    due: VecDeque<(Nanos, Region)>,
    purse: Purse,
}

impl Lasting {
    /// Nothing was promoted yet.
    pub(super) fn new(time: Instant) -> Self {
        let purse = Purse::of_share(SHARE, SAVINGS, time);
        Self { share: 1.0, due: VecDeque::new(), purse }
    }

    /// A region became huge.
    pub(super) fn promoted(&mut self, region: Region, now: Nanos) {
        self.due.push_back((now + AGE, region));
    }

    /// Looks at some of those that were promoted some time ago: whether they are huge, if that can be
    /// said.
    pub(super) fn look(&mut self, now: Nanos, is_huge: impl Fn(Region) -> Option<bool>) {
        let due = self.due.partition_point(|(at, _)| *at <= now);
        let looked = self.due.drain(..due).take(LOOKS).filter_map(|(_, region)| is_huge(region));
        for is_huge in looked {
            let lasted = if is_huge { 1.0 } else { 0.0 };
            self.share += (lasted - self.share) * WEIGHT;
        }
    }

    /// Whether most of what is promoted lasts.
    fn is_lasting(&self) -> bool {
        self.share >= ENOUGH
    }

    /// How long it is until something may be promoted: no time where that lasts.
    pub(super) fn wait(&self, time: Instant) -> Duration {
        if self.is_lasting() { Duration::ZERO } else { self.purse.wait(time) }
    }

    /// Promoting has cost so much CPU time. What counts is what one costs that lasts.
    pub(super) fn spend(&mut self, cost: Nanos, time: Instant) {
        if self.is_lasting() {
            return;
        }
        let each = cost.as_secs_f64() / self.share.max(LEAST);
        self.purse.spend(Nanos::from_secs_f64(each), time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::{HUGE_PAGE_BYTES, VirtAddr};

    const SECOND: Nanos = Nanos(1_000_000_000); // tidy: allow(1 s)

    fn promote(lasting: &mut Lasting, count: u64, now: Nanos) {
        for index in 0..count {
            lasting.promoted(Region::containing(VirtAddr(index * HUGE_PAGE_BYTES)), now);
        }
    }

    #[test]
    fn what_comes_apart_within_seconds_is_noticed_and_what_lasts_again_too() {
        let mut lasting = Lasting::new(Instant::now());
        promote(&mut lasting, 100, SECOND);
        lasting.look(SECOND * 10, |_| Some(false));
        assert!(lasting.is_lasting(), "it is not time yet");
        lasting.look(SECOND * 11, |_| Some(false));
        assert!(!lasting.is_lasting() && lasting.due.is_empty());
        promote(&mut lasting, 100, SECOND * 20);
        lasting.look(SECOND * 30, |_| Some(true));
        assert!(lasting.is_lasting());
        // One of four comes apart, and of others nothing can be said.
        for round in 4..20 {
            promote(&mut lasting, 16, SECOND * 10 * round);
            lasting.look(SECOND * 10 * (round + 1), |region| {
                match region.start().0 / HUGE_PAGE_BYTES % 4 {
                    0 => Some(false),
                    1 => None,
                    _ => Some(true),
                }
            });
            assert!(lasting.is_lasting(), "round {round}");
        }
    }

    #[test]
    fn where_nothing_lasts_a_little_may_be_spent() {
        let time = Instant::now();
        let mut lasting = Lasting::new(time);
        lasting.spend(SECOND, time);
        assert!(lasting.wait(time).is_zero(), "it lasts as far as we know");
        for round in 0..4 {
            promote(&mut lasting, 16, SECOND * round);
            lasting.look(SECOND * (round + 10), |_| Some(false));
        }
        assert!(lasting.wait(time).is_zero(), "something was saved up");
        // Four huge pages of a millisecond each: as if they had cost 20 each.
        lasting.spend(Nanos(4_000_000), time);
        let wait = lasting.wait(time).as_secs_f64();
        assert!((3.0..4.0).contains(&wait), "{wait}");
        assert!(lasting.wait(time + Duration::from_secs(4)).is_zero());
    }
}
