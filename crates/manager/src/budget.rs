//! A CPU budget: how long to pause so that work takes no more than its share of one core.

use std::time::Duration;
use superpage_units::{Nanos, Share};

/// A share of one core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuBudget {
    share: Share,
}

impl CpuBudget {
    /// All of one core: no pauses.
    pub const UNLIMITED: Self = Self { share: Share::ALL };

    /// `share` of one core; `None` if that is nothing.
    #[must_use]
    pub fn new(share: Share) -> Option<Self> {
        (share > Share::NONE).then_some(Self { share })
    }

    /// The share.
    #[must_use]
    pub fn share(self) -> Share {
        self.share
    }

    /// How long to pause after `cpu` of work in the last `wall`, so that their quotient falls to
    /// the share.
    #[must_use]
    pub fn pause(self, cpu: Nanos, wall: Nanos) -> Duration {
        let due = cpu.as_secs_f64() / self.share.get();
        Duration::from_secs_f64((due - wall.as_secs_f64()).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_make_up_for_work() {
        let budget = CpuBudget::new(Share::percent(5)).expect("a share");
        let pause = budget.pause(Nanos(5_000_000), Nanos(5_000_000));
        assert_eq!(pause, Duration::from_millis(95));
        assert_eq!(budget.pause(Nanos(1_000_000), Nanos(1_000_000_000)), Duration::ZERO);
        assert_eq!(CpuBudget::UNLIMITED.pause(Nanos(7), Nanos(7)), Duration::ZERO);
    }

    #[test]
    fn without_a_share_there_is_no_budget() {
        assert_eq!(CpuBudget::new(Share::NONE), None);
        assert_eq!(CpuBudget::new(Share::ALL), Some(CpuBudget::UNLIMITED));
    }
}
