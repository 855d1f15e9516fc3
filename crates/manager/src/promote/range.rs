//! One PMD range of a managed process: its one state, what it has been through, and why it is not
//! promoted now.

use super::RequestId;
use std::fmt;
use superpage_policy::promotion::{Action, Cause};
use superpage_units::{Nanos, Time};

/// Why a PMD range is not promoted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It would take memory that is short, on the machine or in the cgroup.
    Memory,
    /// Free memory is fragmented: the kernel would have to compact for a huge page.
    Fragmentation,
    /// It was huge before, or its bloat was reclaimed, and too much of it is missing.
    BloatAgain,
    /// Other processes map some of it, as after a fork: promoting would copy it.
    Shared,
    /// Too much of it is in swap.
    Swapped,
    /// The kernel had no huge page (ENOMEM).
    NoHugePage,
    /// The cgroup is at its limit (EBUSY).
    CgroupLimit,
    /// The kernel was using one of its pages just then, or one is pinned (EAGAIN).
    Busy,
    /// The kernel does not do it there: advised against, watched by userfaultfd, locked, or not
    /// mapped any more (EINVAL).
    NotPossible,
    /// Less of it is present than when it was surveyed: its program has freed some.
    Changed,
    /// The process has gone or is out of reach.
    Gone,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Memory,
        Self::Fragmentation,
        Self::BloatAgain,
        Self::Shared,
        Self::Swapped,
        Self::NoHugePage,
        Self::CgroupLimit,
        Self::Busy,
        Self::NotPossible,
        Self::Changed,
        Self::Gone,
    ];

    /// Its kind in a word.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Memory => "memory-short",
            Self::Fragmentation => "fragmented",
            Self::BloatAgain => "would-bloat-again",
            Self::Shared => "shared",
            Self::Swapped => "swapped",
            Self::NoHugePage => "no-huge-page",
            Self::CgroupLimit => "cgroup-limit",
            Self::Busy => "busy",
            Self::NotPossible => "not-possible",
            Self::Changed => "changed",
            Self::Gone => "gone",
        }
    }

    /// In words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Memory => "it would take memory that is short",
            Self::Fragmentation => "free memory is fragmented",
            Self::BloatAgain => "its bloat was reclaimed before, and it is not full enough",
            Self::Shared => "another process maps it too",
            Self::Swapped => "too much of it is in swap",
            Self::NoHugePage => "the kernel had no huge page",
            Self::CgroupLimit => "its cgroup is at its limit",
            Self::Busy => "the kernel was using one of its pages",
            Self::NotPossible => "the kernel does not do it there",
            Self::Changed => "its program has freed some of it meanwhile",
            Self::Gone => "its process has gone",
        }
    }

    /// The first and the longest cooldown after it.
    const fn cooldowns(self) -> (Nanos, Nanos) {
        match self {
            // A page on its way to a list is there for a moment, a pinned one for hours.
            Self::Busy => (MOMENT, LONGEST),
            Self::NotPossible => (FIRST, LONGEST),
            // What stood in the way may be over soon.
            Self::Memory
            | Self::Fragmentation
            | Self::BloatAgain
            | Self::Shared
            | Self::Swapped
            | Self::NoHugePage
            | Self::CgroupLimit
            | Self::Changed
            | Self::Gone => (FIRST, LONGEST_PASSING),
        }
    }
}

// Cooldowns. Chosen, not measured: the first ones let a survey see something new, the longest ones
// keep what is refused for ever below 0.1 % of a core.
const MOMENT: Nanos = Nanos(50_000_000);
const FIRST: Nanos = Nanos(4_000_000_000);
const LONGEST_PASSING: Nanos = Nanos(64_000_000_000); // tidy: allow(64 s)
const LONGEST: Nanos = Nanos(1_024_000_000_000); // tidy: allow(1,024 s)
/// Each cooldown of a range is so many times longer than the one before.
const LONGER: u64 = 4;
/// A PMD range that was promoted and came apart is promoted again after this time. An allocator that
/// gives back pieces of huge pages and fills them again would otherwise be copied after without end.
const CAME_APART: Nanos = Nanos(30_000_000_000); // tidy: allow(30 s)

/// Why a PMD range cools down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// It was promoted.
    Promoted,
    /// It was refused.
    Refused(Refusal),
}

impl Because {
    /// How long it cools down, the first time and after `before` cooldowns in a row.
    #[must_use]
    pub fn cooldown(self, before: u32) -> Nanos {
        let (first, longest) = match self {
            Self::Promoted => (CAME_APART, LONGEST),
            Self::Refused(why) => why.cooldowns(),
        };
        let times = LONGER.saturating_pow(before);
        Nanos(first.0.saturating_mul(times)).min(longest)
    }
}

/// Why something is promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The policy's cause.
    Policy(Cause),
    /// The range was touched for the first time, and a huge page fits there.
    FirstTouch,
}

impl Reason {
    /// Its kind in a word.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Policy(cause) => cause.kind(),
            Self::FirstTouch => "first-touch",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(cause) => cause.fmt(f),
            Self::FirstTouch => f.write_str("the first touch of a range that it fits"),
        }
    }
}

/// A promotion that a policy wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Why.
    pub reason: Reason,
    /// The action of the policy that it carries out, if it is one.
    pub action: Option<Action>,
    /// When a survey found it.
    pub since: Time,
}

/// What is being done about a PMD range.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Nobody wants the range promoted, and nothing keeps a policy from wanting it.
    Idle,
    /// A policy wants it promoted, and it waits for its turn. In a box, because few of the ranges that are known do.
    Queued(Box<Wanted>),
    /// A collapse request with it is under way.
    InFlight(RequestId),
    /// The range is left alone until a time.
    CoolingDown {
        /// Until when.
        until: Time,
        /// Why.
        because: Because,
    },
}

/// A PMD range of which something is known beyond what is mapped in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// What is being done about it.
    pub state: State,
    /// Why it cooled down last, and how often for that one shortly after the other.
    cooled: Option<(Because, u32)>,
}

impl Known {
    /// One that has been through nothing.
    pub const NEW: Self = Self { state: State::Idle, cooled: None };

    /// Whether nothing would be lost by forgetting it at `now`.
    #[must_use]
    pub fn is_forgotten(&self, now: Time) -> bool {
        match self.state {
            State::Idle => true,
            State::CoolingDown { until, .. } => self.is_over(until, now),
            State::Queued(_) | State::InFlight(_) => false,
        }
    }

    /// Whether it may be queued at `now`.
    #[must_use]
    pub fn is_free(&self, now: Time) -> bool {
        match self.state {
            State::Idle => true,
            State::CoolingDown { until, .. } => until <= now,
            State::Queued(_) | State::InFlight(_) => false,
        }
    }

    /// Until when it cools down after it was refused, if it does at `now`.
    #[must_use]
    pub fn refused_until(&self, now: Time) -> Option<Time> {
        match self.state {
            State::CoolingDown { until, because: Because::Refused(_) } if until > now => {
                Some(until)
            }
            _ => None,
        }
    }

    /// Whether a cooldown until then ended so long before `now` that it does not make the next longer.
    fn is_over(&self, until: Time, now: Time) -> bool {
        let length = self.cooled.map(|(because, times)| because.cooldown(times.saturating_sub(1)));
        now > until + length.unwrap_or_default()
    }

    /// Leaves it alone from `now` on, each time for longer. Returns until when.
    pub fn cool_down(&mut self, because: Because, now: Time) -> Time {
        let before = self.cooled.filter(|(before, _)| *before == because);
        let times = before.map_or(0, |(_, times)| times);
        let until = now + because.cooldown(times);
        self.cooled = Some((because, times + 1));
        self.state = State::CoolingDown { until, because };
        until
    }

    /// A policy wants it promoted, which it may be ([`Known::is_free`]).
    pub fn queue(&mut self, wanted: Wanted) {
        if let State::CoolingDown { until, .. } = self.state
            && self.is_over(until, wanted.since)
        {
            self.cooled = None;
        }
        self.state = State::Queued(Box::new(wanted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos(1_000_000_000); // tidy: allow(1 s)

    fn wanted(since: Time) -> Wanted {
        Wanted { reason: Reason::FirstTouch, action: None, since }
    }

    #[test]
    fn each_cooldown_in_a_row_is_longer_up_to_a_bound() {
        let (mut range, mut now) = (Known::NEW, Time::ZERO);
        let mut lengths = Vec::new();
        for _ in 0..4 {
            let until = range.cool_down(Because::Promoted, now);
            lengths.push(until.since(now).0 / SECOND.0);
            assert!(!range.is_free(Time(until.0 - 1)) && range.is_free(until));
            now = until;
            range.queue(wanted(now));
        }
        assert_eq!(lengths, [30, 120, 480, 1024]);
    }

    #[test]
    fn a_cooldown_long_ago_or_for_another_reason_does_not_count() {
        let mut range = Known::NEW;
        let busy = Because::Refused(Refusal::Busy);
        let first = range.cool_down(busy, Time::ZERO);
        let second = range.cool_down(busy, first);
        assert_eq!(second.since(first), Nanos(200_000_000));
        let later = range.cool_down(Because::Promoted, second);
        assert_eq!(later, second + CAME_APART);
        let long_after = later + CAME_APART + SECOND;
        range.queue(wanted(long_after));
        assert_eq!(range.cool_down(Because::Promoted, long_after), long_after + CAME_APART);
    }

    #[test]
    fn what_was_refused_is_forgotten_after_a_while() {
        let mut range = Known::NEW;
        let until = range.cool_down(Because::Refused(Refusal::Shared), Time::ZERO);
        assert!(!range.is_forgotten(until));
        assert!(range.is_forgotten(until + FIRST + SECOND));
        range.queue(wanted(until + LONGEST));
        assert!(!range.is_forgotten(until + LONGEST));
    }
}
