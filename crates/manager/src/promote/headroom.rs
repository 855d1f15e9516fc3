//! What memory promotions may still add, between two looks at how much is used.
//!
//! Hundreds of promotions are made in the time between two looks, and each may add nearly 2 MiB: a
//! small cgroup would be over its limit, and its program killed, before anybody looked again. So what
//! was promised since the last look counts as used, and much of it brings the next look forward.

use super::limits::Room;
use std::time::{Duration, Instant};
use superpage_policy::watermark::{Usage, Watermarks};
use superpage_units::HugePages;

/// How long a look is believed, where nothing is promoted.
const HOLDS: Duration = Duration::from_millis(500);
/// The share of all memory that may be promised before the next look. Chosen, not measured: a look
/// takes some 50 us, and 1 % is far less than lies between two watermarks.
const PROMISED: f64 = 0.01;

/// What was used at the last look, and what was promised since.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headroom {
    seen: Option<(Instant, Option<Usage>)>,
    promised: HugePages,
    under_way: HugePages,
}

impl Headroom {
    /// What is left below `marks` at `now`. `look` says what is used, if that matters; it is asked
    /// when the last answer is old, or much was promised since.
    pub fn room(
        &mut self,
        marks: Watermarks,
        now: Instant,
        look: impl FnOnce() -> Option<Usage>,
    ) -> Room {
        let is_fresh = self.seen.is_some_and(|(at, usage)| {
            let is_young = now.saturating_duration_since(at) < HOLDS;
            let is_little = |usage: Usage| self.promised.bytes().share_of(usage.total) < PROMISED;
            is_young && usage.is_none_or(is_little)
        });
        if !is_fresh {
            self.seen = Some((now, look()));
            // What is under way may be in the answer or not.
            self.promised = self.under_way;
        }
        let Some((_, Some(usage))) = self.seen else { return Room::Plenty };
        Room::below(marks, Usage { used: usage.used + self.promised.bytes(), ..usage })
    }

    /// A huge page is going to be made.
    pub fn promise(&mut self) {
        self.promised += HugePages(1);
        self.under_way += HugePages(1);
    }

    /// One that was promised has been made, or was not.
    pub fn settle(&mut self) {
        self.under_way = self.under_way.saturating_sub(HugePages(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::Bytes;

    const MARKS: (f64, f64) = (0.8, 0.65);

    fn used(percent: u64) -> Option<Usage> {
        Some(Usage { used: HugePages(percent).bytes(), total: HugePages(100).bytes() })
    }

    #[test]
    fn what_was_promised_counts_as_used() {
        let marks = Watermarks::new(MARKS.0, MARKS.1).expect("marks");
        let now = Instant::now();
        let mut headroom = Headroom::default();
        assert_eq!(headroom.room(marks, now, || used(64)), Room::Plenty);
        headroom.promise();
        // One of 100 asks for a look, and what it says is without what is under way.
        assert_eq!(headroom.room(marks, now, || used(64)), Room::Little);
        headroom.settle();
        assert_eq!(headroom.room(marks, now, || used(63)), Room::Plenty);
    }

    #[test]
    fn a_look_is_believed_for_a_while() {
        let marks = Watermarks::default();
        let now = Instant::now();
        let mut headroom = Headroom::default();
        let total = Bytes(1 << 40);
        let usage = |used| Some(Usage { used: total.scaled(used), total });
        assert_eq!(headroom.room(marks, now, || usage(0.1)), Room::Plenty);
        headroom.promise();
        assert_eq!(headroom.room(marks, now + HOLDS / 2, || usage(0.9)), Room::Plenty);
        assert_eq!(headroom.room(marks, now + HOLDS, || usage(0.9)), Room::None);
    }

    #[test]
    fn where_there_is_no_limit_there_is_plenty() {
        let mut headroom = Headroom::default();
        headroom.promise();
        let room = headroom.room(Watermarks::default(), Instant::now(), || None);
        assert_eq!(room, Room::Plenty);
    }
}
