//! The clock that the manager's points in time are on. CPU time is not read here.

use superpage_units::{Nanos, Time};

/// The time by CLOCK_MONOTONIC.
#[must_use]
pub fn now() -> Time {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Time::ZERO + Nanos(seconds * 1_000_000_000 + nanos)
}
