//! The time for which something is not tried again that was of no use.

use crate::sys;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use superpage_units::Nanos;

/// The time for which a slot is not promoted after a promotion was refused, or after a demotion, for which no page is asked for
/// after none was found, and for which first touches are left to smaller pages after a fork: twice as long each time. Zero bytes are
/// the cooldown of what never had one.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Cooldown {
    /// The end of the last one on the monotonic clock, in nanoseconds.
    until: AtomicU64,
    /// The length of the last one, in nanoseconds.
    length: AtomicU64,
}

impl Cooldown {
    // Promotions held programs for 124 to 311 ms: one that is refused each time takes 1.6 % of their time at first, and 0.02 % at last.
    const FIRST: Nanos = Nanos(20_000_000_000);
    const LONGEST: Nanos = Nanos(1_280_000_000_000);

    /// Asserts that the length is one of those that doubling gives.
    #[cfg(test)]
    fn check(&self) {
        let length = self.length.load(Relaxed);
        let times = length / Self::FIRST.0;
        assert!(length == times * Self::FIRST.0 && length <= Self::LONGEST.0);
        assert!(times == 0 || times.is_power_of_two(), "the first one was doubled");
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        sys::now() >= Nanos(self.until.load(Relaxed))
    }

    /// Begins a cooldown: the attempt was of no use.
    pub(crate) fn begin(&self) {
        let length = (2 * self.length.load(Relaxed)).clamp(Self::FIRST.0, Self::LONGEST.0);
        self.length.store(length, Relaxed);
        self.until.store(sys::now().0 + length, Relaxed);
    }

    /// Begins a cooldown if the last one is over; otherwise that one ends [`FIRST`](Self::FIRST) from now at the earliest. Of many forks at
    /// once, as a program makes for its workers, one doubles it.
    pub(crate) fn begin_or_extend(&self) {
        match self.is_over() {
            true => self.begin(),
            false => {
                self.until.fetch_max(sys::now().0 + Self::FIRST.0, Relaxed);
            }
        }
    }

    /// Forgets the length of the last one: an attempt was of use.
    pub(crate) fn forget(&self) {
        self.length.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A step of a random program.
    #[derive(Clone, Debug)]
    enum Step {
        Begin,
        Forget,
        /// So many times ten seconds pass.
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Begin),
            1 => Just(Step::Forget),
            4 => (1_u64..70).prop_map(Step::Pass),
        ]
    }

    proptest! {
        #[test]
        fn each_cooldown_in_a_row_is_twice_as_long_as_the_last(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            const SECOND: u64 = 1_000_000_000;
            const LENGTHS: [u64; 7] = [20, 40, 80, 160, 320, 640, 1280];
            let cooldown = Cooldown { until: AtomicU64::new(0), length: AtomicU64::new(0) };
            let (mut in_a_row, mut rest) = (0, 0);
            for step in steps {
                match step {
                    Step::Begin => {
                        let before = sys::now().0;
                        cooldown.begin();
                        rest = LENGTHS[in_a_row];
                        in_a_row = (in_a_row + 1).min(LENGTHS.len() - 1);
                        let begun = cooldown.until.load(Relaxed) - rest * SECOND;
                        assert!((before..=sys::now().0).contains(&begun));
                    }
                    Step::Forget => {
                        cooldown.forget();
                        in_a_row = 0;
                    }
                    Step::Pass(times) => {
                        rest = rest.saturating_sub(10 * times);
                        let passed = 10 * times * SECOND;
                        let until = cooldown.until.load(Relaxed).saturating_sub(passed);
                        cooldown.until.store(until, Relaxed);
                    }
                }
                cooldown.check();
                assert_eq!(cooldown.is_over(), rest == 0);
            }
        }
    }
}
