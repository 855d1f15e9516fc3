//! A token bucket of CPU time. Nothing else is limited here.

use superpage_units::{Nanos, Share, Time};

/// CPU time to spend: a share of one core, with a burst.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Seconds of CPU time that come in each second.
    rate: f64,
    /// The most that it holds, in seconds; also the largest deficit.
    burst: f64,
    /// What it holds, in seconds; below zero after work that took more than there was.
    tokens: f64,
    filled: Time,
}

impl TokenBucket {
    /// A full one, as of `now`, for a share of one core, that holds what `burst` brings.
    #[must_use]
    pub fn new(share: Share, burst: Nanos, now: Time) -> Self {
        let burst = share.get() * burst.as_secs_f64();
        Self { rate: share.get(), burst, tokens: burst, filled: now }
    }

    /// Takes out what work has cost.
    pub fn spend(&mut self, cost: Nanos, now: Time) {
        let tokens = self.held(now) - cost.as_secs_f64();
        // What cannot be helped, such as looking around, is not owed for ever.
        self.tokens = tokens.max(-self.burst);
        self.filled = now;
    }

    /// The time that can be spent at `now`.
    #[must_use]
    pub fn at(&self, now: Time) -> Nanos {
        Nanos::from_secs_f64(self.held(now).max(0.0))
    }

    /// The seconds that the bucket holds at `now`; below zero after work that took more than there was.
    fn held(&self, now: Time) -> f64 {
        let earned = now.since(self.filled).as_secs_f64() * self.rate;
        (self.tokens + earned).min(self.burst)
    }

    /// The first time at which there is something to spend.
    #[must_use]
    pub fn ready_at(&self) -> Time {
        if self.tokens > 0.0 {
            return self.filled;
        }
        // One nanosecond later there is something.
        self.filled + Nanos::from_secs_f64(-self.tokens / self.rate) + Nanos(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos(1_000_000_000); // tidy: allow(1 s)

    fn at_second(seconds: u64) -> Time {
        Time::ZERO + SECOND * seconds
    }

    #[test]
    fn a_burst_can_be_saved_up_and_a_deficit_is_waited_for() {
        let mut bucket = TokenBucket::new(Share::percent(10), SECOND * 10, at_second(1));
        assert_eq!(bucket.ready_at(), at_second(1));
        assert_eq!(bucket.at(at_second(1)), SECOND);
        bucket.spend(SECOND + SECOND, at_second(1));
        assert_eq!(bucket.at(at_second(5)), Nanos::ZERO);
        // A second over what there was comes in within ten.
        assert_eq!(bucket.ready_at().0 / SECOND.0, 11);
        bucket.spend(Nanos::ZERO, at_second(12));
        assert!(bucket.ready_at() <= at_second(12));
    }

    #[test]
    fn a_deficit_has_a_bound() {
        let mut bucket = TokenBucket::new(Share::percent(1), SECOND * 10, Time::ZERO);
        bucket.spend(SECOND * 1000, Time::ZERO);
        assert_eq!(bucket.ready_at().0 / SECOND.0, 10);
    }
}
