//! When to start and stop reclaiming bloat: two watermarks with hysteresis (EMD, section 4.5).
//!
//! De-bloating starts when used memory exceeds the high watermark and goes on until it is below
//! the low one; when nothing was left to free, whoever frees waits before it looks again. Where the
//! used memory is read, and of what (the machine, a cgroup), is the caller's business.
//!
//! Deviation: the paper watches "allocated memory". Callers pass what cannot be reclaimed without
//! cost (on Linux, total minus `MemAvailable`), because memory full of droppable page cache is
//! not a reason to split huge pages.

use core::fmt;
use superpage_units::{BasePages, Bytes, Nanos, Share, Time};

/// A high and a low watermark, as shares of the total.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    high: Share,
    low: Share,
}

/// Two shares do not make watermarks: the low one is not below the high one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowNotBelowHigh;

impl fmt::Display for LowNotBelowHigh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the low watermark must lie below the high one")
    }
}

impl core::error::Error for LowNotBelowHigh {}

impl Default for Watermarks {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Watermarks {
    /// 80 % and 65 %, as in the paper's prototype.
    pub const DEFAULT: Self = Self { high: Share::percent(80), low: Share::percent(65) };

    /// Marks that are never passed.
    pub const NEVER: Self = Self { high: Share::ALL, low: Share::clamped(0.999) };

    /// Watermarks at these shares.
    ///
    /// # Errors
    /// [`LowNotBelowHigh`].
    pub fn new(high: Share, low: Share) -> Result<Self, LowNotBelowHigh> {
        if low < high { Ok(Self { high, low }) } else { Err(LowNotBelowHigh) }
    }

    /// Above this share de-bloating starts.
    #[must_use]
    pub fn high(self) -> Share {
        self.high
    }

    /// Below this share de-bloating stops.
    #[must_use]
    pub fn low(self) -> Share {
        self.low
    }
}

/// How much of the total is used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Memory in use.
    pub used: Bytes,
    /// Memory that there is.
    pub total: Bytes,
}

impl Usage {
    /// Used over total.
    #[must_use]
    pub fn share(self) -> Share {
        self.used.share_of(self.total)
    }
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Nothing: `share` is in use, and `limit` has not been passed.
    Rest {
        /// Share in use.
        share: Share,
        /// The high watermark.
        limit: Share,
    },
    /// Free `need` base pages: `share` is in use and the low watermark lies at `limit`.
    Free {
        /// How much, to reach the low watermark.
        need: BasePages,
        /// Share in use.
        share: Share,
        /// The low watermark.
        limit: Share,
    },
}

/// The state between two looks at the used memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hysteresis {
    /// Below the high watermark since the last time below the low one.
    #[default]
    Resting,
    /// Passed the high watermark and not yet below the low one.
    Debloating,
}

impl Hysteresis {
    /// Takes in the usage now and says what to do.
    pub fn step(&mut self, marks: Watermarks, now: Usage) -> Order {
        let share = now.share();
        *self = match *self {
            Self::Resting if share > marks.high => Self::Debloating,
            Self::Debloating if share <= marks.low => Self::Resting,
            unchanged => unchanged,
        };
        match *self {
            Self::Resting => Order::Rest { share, limit: marks.high },
            Self::Debloating => {
                let excess = now.used.saturating_sub(marks.low.of(now.total));
                Order::Free { need: excess.to_base_pages(), share, limit: marks.low }
            }
        }
    }
}

/// The longest wait is this many times the first.
const LONGEST_BACK_OFF: u32 = 16;

/// A share of memory in use that grew by this much since nothing was left to free may have brought
/// new bloat with it. Chosen, not measured.
const WORTH_ANOTHER_LOOK: Share = Share::percent(2);

/// Guards one memory: where it stands between its watermarks, and until when it is left alone
/// because nothing was left to free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    marks: Watermarks,
    state: Hysteresis,
    /// Not before this time; and how often in a row there was nothing to free.
    not_before: Time,
    fruitless: u32,
    /// The share in use at the last look, and when nothing was left to free.
    share: Share,
    fruitless_share: Share,
}

impl Guard {
    /// Resting, until the first look.
    #[must_use]
    pub fn new(marks: Watermarks) -> Self {
        let state = Hysteresis::default();
        let share = Share::NONE;
        Self { marks, state, not_before: Time::ZERO, fruitless: 0, share, fruitless_share: share }
    }

    /// The watermarks.
    #[must_use]
    pub fn marks(&self) -> Watermarks {
        self.marks
    }

    /// Goes on from where an earlier guard of the same memory stood, its waits included.
    pub fn resume(&mut self, earlier: &Self) {
        let marks = self.marks;
        *self = Self { marks, ..*earlier };
    }

    /// Where it stands between its watermarks.
    #[must_use]
    pub fn state(&self) -> Hysteresis {
        self.state
    }

    /// Stands there from now on, as an earlier guard of the same memory did.
    pub fn stand(&mut self, state: Hysteresis) {
        self.state = state;
    }

    /// Until when it waits, if it does.
    #[must_use]
    pub fn waits_until(&self) -> Time {
        self.not_before
    }

    /// What to do now; `None` while waiting.
    pub fn step(&mut self, now: Time, usage: Usage) -> Option<Order> {
        let order = self.state.step(self.marks, usage);
        self.share = usage.share();
        let grew = self.share.get() > self.fruitless_share.get() + WORTH_ANOTHER_LOOK.get();
        if grew || matches!(order, Order::Rest { .. }) {
            self.freed_enough();
        }
        (now >= self.not_before).then_some(order)
    }

    /// Whether so much in use is no more than the low watermark: enough has been freed.
    #[must_use]
    pub fn is_relieved(&self, usage: Usage) -> bool {
        usage.share() <= self.marks.low()
    }

    /// A pass ended, and not because nothing was left to free.
    pub fn freed_enough(&mut self) {
        self.fruitless = 0;
        self.not_before = Time::ZERO;
    }

    /// A pass ended because nothing was left to free: waits `first`, twice that the next time in a
    /// row, and so on up to 16 times that. Returns how long it waits.
    pub fn nothing_left(&mut self, now: Time, first: Nanos) -> Nanos {
        let times =
            1_u32.checked_shl(self.fruitless).unwrap_or(LONGEST_BACK_OFF).min(LONGEST_BACK_OFF);
        self.fruitless += 1;
        self.fruitless_share = self.share;
        let wait = first * u64::from(times);
        self.not_before = now + wait;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(percent: u64) -> Usage {
        Usage { used: Bytes::from_mib(percent), total: Bytes::from_mib(100) }
    }

    #[test]
    fn starts_above_high_and_stops_at_low() {
        let mut state = Hysteresis::default();
        let marks = Watermarks::default();
        let frees: [bool; 8] = [70, 80, 81, 79, 66, 65, 79, 90]
            .map(|percent| matches!(state.step(marks, usage(percent)), Order::Free { .. }));
        assert_eq!(frees, [false, false, true, true, true, false, false, true]);
    }

    #[test]
    fn needs_what_lies_above_the_low_watermark() {
        let order = Hysteresis::default().step(Watermarks::default(), usage(85));
        let Order::Free { need, .. } = order else { panic!("{order:?}") };
        assert_eq!(need, Bytes::from_mib(20).to_base_pages());
    }

    #[test]
    fn refuses_watermarks_that_make_no_sense() {
        let half = Share::percent(50);
        assert_eq!(Watermarks::new(half, half), Err(LowNotBelowHigh));
        assert_eq!(Watermarks::new(half, Share::percent(51)), Err(LowNotBelowHigh));
    }

    #[test]
    fn waits_double_up_to_a_limit_and_start_over_after_success() {
        let mut guard = Guard::new(Watermarks::default());
        let waits = [(); 7].map(|()| guard.nothing_left(Time::ZERO, Nanos(10)).0);
        assert_eq!(waits, [10, 20, 40, 80, 160, 160, 160]);
        assert_eq!(guard.waits_until(), Time(160));
        guard.freed_enough();
        assert_eq!(guard.nothing_left(Time(5), Nanos(10)), Nanos(10));
        assert_eq!(guard.waits_until(), Time(15));
    }

    #[test]
    fn growth_or_relief_ends_a_wait_and_time_does() {
        let waiting = || {
            let mut guard = Guard::new(Watermarks::default());
            assert!(matches!(guard.step(Time(1), usage(85)), Some(Order::Free { .. })));
            guard.nothing_left(Time(1), Nanos(100));
            assert_eq!(guard.step(Time(50), usage(86)), None);
            guard
        };
        assert!(waiting().step(Time(101), usage(86)).is_some());
        assert!(matches!(waiting().step(Time(51), usage(88)), Some(Order::Free { .. })));
        assert!(matches!(waiting().step(Time(51), usage(60)), Some(Order::Rest { .. })));
        assert!(waiting().is_relieved(usage(65)) && !waiting().is_relieved(usage(66)));
    }
}
