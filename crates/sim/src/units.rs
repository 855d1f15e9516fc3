//! Units that only a machine needs: cycles, rates, counts. Sizes and times are those of
//! [`superpage_units`].

use core::iter::Sum;
use core::ops::{Add, AddAssign};
use superpage_units::{Bytes, Nanos};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Processor cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cycles(pub u64);

impl Cycles {
    /// None at all.
    pub const ZERO: Self = Self(0);
}

impl Add for Cycles {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Cycles {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sum for Cycles {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::ZERO, Add::add)
    }
}

/// Cycles per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hertz(pub u64);

impl Hertz {
    /// How long so many cycles take, to the nearest nanosecond; nothing at no frequency.
    #[must_use]
    pub fn time(self, cycles: Cycles) -> Nanos {
        Nanos(nearest(u128::from(cycles.0) * NANOS_PER_SECOND, self.0))
    }

    /// The cycles in so much time, a part of one counting as one.
    #[must_use]
    pub fn cycles(self, time: Nanos) -> Cycles {
        Cycles(narrow((u128::from(time.0) * u128::from(self.0)).div_ceil(NANOS_PER_SECOND)))
    }
}

/// A rate at which bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BytesPerSecond(pub u64);

impl BytesPerSecond {
    /// How long so many bytes take, to the nearest nanosecond; nothing at no rate.
    #[must_use]
    pub fn time(self, bytes: Bytes) -> Nanos {
        Nanos(nearest(u128::from(bytes.0) * NANOS_PER_SECOND, self.0))
    }
}

/// A number of things: threads, sockets, requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count(pub u64);

/// `number / by`, rounded to the nearest; 0 where `by` is.
fn nearest(number: u128, by: u64) -> u64 {
    let by = u128::from(by);
    (number + by / 2).checked_div(by).map_or(0, narrow)
}

fn narrow(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_become_times() {
        assert_eq!(Hertz(2_000_000_000).time(Cycles(7)), Nanos(4));
        assert_eq!(Hertz(2_300_000_000).cycles(Nanos(89)), Cycles(205));
        assert_eq!(BytesPerSecond(1 << 30).time(Bytes::from_gib(3)), Nanos(3_000_000_000));
        assert_eq!(BytesPerSecond(0).time(Bytes(1)), Nanos(0));
        assert_eq!(BytesPerSecond(1).time(Bytes(u64::MAX)), Nanos(u64::MAX));
    }
}
