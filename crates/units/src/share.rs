//! A share of a whole. Not a ratio, which may exceed one, and not a chance.

use crate::size::Bytes;
use core::fmt;

/// A part of a whole: 0 (none of it) to 1 (all of it), and always a number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share(f64);

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0.0);
    /// The whole.
    pub const ALL: Self = Self(1.0);

    /// The share `part` if that lies between 0 and 1.
    #[must_use]
    pub const fn new(part: f64) -> Option<Self> {
        // Adding makes a negative zero positive.
        if part >= 0.0 && part <= 1.0 { Some(Self(part + 0.0)) } else { None }
    }

    /// The share nearest to `part`; not-a-number becomes [`Self::NONE`].
    #[must_use]
    pub const fn clamped(part: f64) -> Self {
        match Self::new(part) {
            Some(share) => share,
            None if part > 1.0 => Self::ALL,
            None => Self::NONE,
        }
    }

    /// `percent` hundredths; more than 100 are all.
    #[must_use]
    pub const fn percent(percent: u8) -> Self {
        Self::clamped(percent as f64 / 100.0)
    }

    /// As a plain number for arithmetic, 0 to 1.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// The remaining share of the whole.
    #[must_use]
    pub const fn rest(self) -> Self {
        Self(1.0 - self.0)
    }

    /// This share of a size, rounded to the nearest byte.
    #[must_use]
    pub fn of(self, whole: Bytes) -> Bytes {
        whole.scaled(self.0)
    }
}

impl Eq for Share {}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// In percent with one decimal, `42.1 %`, or with as many as the format says.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.*} %", f.precision().unwrap_or(1), self.0 * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn only_parts_of_a_whole_are_shares() {
        assert_eq!(Share::new(0.0), Some(Share::NONE));
        assert_eq!(Share::new(1.0), Some(Share::ALL));
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::new(bad), None, "{bad}");
        }
        assert_eq!([-0.1, 1.1, f64::NAN].map(|part| Share::clamped(part).get()), [0.0, 1.0, 0.0]);
        assert_eq!(Share::percent(80).get(), 0.8);
        assert_eq!(Share::percent(101), Share::ALL);
    }

    #[test]
    fn a_share_and_the_rest_are_all() {
        assert_eq!(Share::percent(25).rest(), Share::percent(75));
        assert_eq!(Share::percent(25).of(Bytes(10)), Bytes(3));
    }

    #[test]
    fn shares_print_in_percent() {
        assert_eq!(format!("{}", Share::clamped(0.4213)), "42.1 %");
        assert_eq!(format!("{:.0}", Share::percent(80)), "80 %");
    }
}
