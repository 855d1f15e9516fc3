//! The time for which a slot is left on smaller pages.

use crate::sys;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use superpage_units::Nanos;

/// The time for which a slot is not promoted after a promotion was refused, or after a demotion: twice as long each
/// time. Zero bytes are the cooldown of a slot that never had one.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Cooldown {
    /// The end of the last one on the monotonic clock, in nanoseconds.
    until: AtomicU64,
    /// The length of the last one, in nanoseconds.
    length: AtomicU64,
}

impl Cooldown {
    // Chosen, not measured: a refusal may have held the program for some 100 ms.
    const FIRST: Nanos = Nanos(20_000_000_000);
    const LONGEST: Nanos = Nanos(1_280_000_000_000);

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        sys::now() >= Nanos(self.until.load(Relaxed))
    }

    /// A promotion was refused, or what was promoted was demoted.
    pub(crate) fn begin(&self) {
        let length = (2 * self.length.load(Relaxed)).clamp(Self::FIRST.0, Self::LONGEST.0);
        self.length.store(length, Relaxed);
        self.until.store(sys::now().0 + length, Relaxed);
    }

    /// A promotion was made.
    pub(crate) fn forget(&self) {
        self.length.store(0, Relaxed);
    }
}
