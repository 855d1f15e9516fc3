//! The arithmetic that every count of something has. Not the units themselves.

/// Implements the arithmetic that a count of something supports.
macro_rules! count {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// None at all.
            pub const ZERO: Self = Self(0);

            /// `self - other`, or zero where that would be negative.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// Whether there is none at all.
            #[must_use]
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }

            /// `self` as a share of `whole`, all of it if more; none where there is no whole.
            #[must_use]
            pub fn share_of(self, whole: Self) -> $crate::Share {
                match whole.0 {
                    0 => $crate::Share::NONE,
                    whole => $crate::Share::clamped(self.0 as f64 / whole as f64),
                }
            }
        }

        impl core::ops::Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl core::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl core::ops::Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl core::ops::SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }

        impl core::ops::Mul<u64> for $name {
            type Output = Self;
            fn mul(self, times: u64) -> Self {
                Self(self.0 * times)
            }
        }

        impl core::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::ZERO, core::ops::Add::add)
            }
        }
    };
}

pub(crate) use count;
