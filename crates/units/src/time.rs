//! Times.

use crate::count::count;

count! {
    /// A length of time, or a point in time since some start, in nanoseconds.
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
