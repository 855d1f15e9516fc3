//! Lengths of time and points in time.

use crate::count::count;
use core::ops::{Add, AddAssign};

count! {
    /// A length of time, in nanoseconds.
    Nanos
}

impl Nanos {
    /// `seconds` seconds; negative and not-a-number become zero.
    #[must_use]
    pub fn from_secs_f64(seconds: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float to integer cast saturates, which is what a duration wants"
        )]
        Self((seconds * 1e9) as u64)
    }

    /// In seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// A point in time, in nanoseconds since the start of a clock that all who compare points share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// The last point that there is, for when nothing is to happen at any.
    pub const NEVER: Self = Self(u64::MAX);

    /// How long after `earlier` this is; no time if it is before.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Time {
    type Output = Self;
    /// That much later; [`Time::NEVER`] if there is no such point.
    fn add(self, length: Nanos) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl AddAssign<Nanos> for Time {
    fn add_assign(&mut self, length: Nanos) {
        *self = *self + length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_leads_from_a_point_to_a_later_one() {
        let (mut time, length) = (Time(5), Nanos(7));
        assert_eq!((time + length).since(time), length);
        assert_eq!(time.since(time + length), Nanos::ZERO);
        time += length;
        assert_eq!(time, Time(12));
        assert_eq!(Time::NEVER + length, Time::NEVER);
    }
}
