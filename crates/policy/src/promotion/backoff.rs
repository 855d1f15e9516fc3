//! Leaving something alone for a while after it failed. Policies learn of a failure at no known
//! time ([`super::Policy::learn`]), so the while begins when they are asked next.

use superpage_units::{Nanos, Time};

/// Whether something may be tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BackOff {
    /// Yes.
    #[default]
    Ready,
    /// No: it has just failed.
    Failed,
    /// Not before this time.
    Until(Time),
}

impl BackOff {
    /// It failed.
    pub(super) fn fail(&mut self) {
        *self = Self::Failed;
    }

    /// Until when it must not be tried, `pause` after a failure was noticed; `None`: try it.
    pub(super) fn until(&mut self, now: Time, pause: Nanos) -> Option<Time> {
        if *self == Self::Failed {
            *self = Self::Until(now + pause);
        }
        match *self {
            Self::Until(at) if now < at => Some(at),
            _ => {
                *self = Self::Ready;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_begins_when_it_is_asked_for() {
        let mut back_off = BackOff::default();
        assert_eq!(back_off.until(Time(5), Nanos(10)), None);
        back_off.fail();
        assert_eq!(back_off.until(Time(7), Nanos(10)), Some(Time(17)));
        assert_eq!(back_off.until(Time(16), Nanos(10)), Some(Time(17)));
        assert_eq!(back_off.until(Time(17), Nanos(10)), None);
    }
}
