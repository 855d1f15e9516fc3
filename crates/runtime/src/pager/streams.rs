//! Streams: ranges that the program goes through in order, forwards, backwards or in equal steps.
//!
//! The paper has none. A range that comes next in a stream is worth a huge page, whatever it takes to have one free, and
//! the ranges behind it are read before they are touched.

use super::PER_RANGE;

/// The streams that are followed at once. Chosen, not measured.
const STREAMS: usize = 16;
/// The longest step of a stream, in ranges. Chosen, not measured.
const LONGEST_STEP: i64 = 8;
/// The pages at the near end of a range, in one of which a stream comes in: so touches at random are seldom taken for a
/// stream. Chosen, not measured.
const EDGE: usize = PER_RANGE / 8;
/// The ranges that are read ahead in a stream at the most. Chosen: 16 MiB.
const MOST_AHEAD: i64 = 8;

/// A stream of the program.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The last range that was touched.
    last: i64,
    /// The step to the next; 0 of a stream that has had one range only.
    step: i64,
    /// The ranges that came as foreseen.
    length: i64,
    /// The furthest step from `last` that was read ahead.
    ahead: i64,
    /// When it was touched last, by a count of touches.
    used: u64,
}

/// The streams that are followed.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: [Stream; STREAMS],
    touches: u64,
}

/// A range in a stream, and what is to be read ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Touched {
    /// The ranges of the stream that came as foreseen before this.
    pub(super) length: i64,
    /// The first range to read ahead.
    pub(super) first: i64,
    /// The step to the next.
    pub(super) step: i64,
    /// The number of ranges to read ahead.
    pub(super) count: i64,
}

impl Streams {
    /// Notes that a page of a range was touched.
    pub(super) fn touch(&mut self, range: usize, index: usize) -> Touched {
        self.touches += 1;
        let used = self.touches;
        let range = range as i64;
        let on_it = |s: &&mut Stream| s.used > 0 && s.last == range;
        if let Some(stream) = self.streams.iter_mut().find(on_it) {
            stream.used = used;
            return Touched { length: stream.length, ..Touched::default() };
        }
        let is_at_edge = |step: i64| match step {
            1.. => index < EDGE,
            _ => index >= PER_RANGE - EDGE,
        };
        let next = |s: &&mut Stream| s.step != 0 && s.last + s.step == range && is_at_edge(s.step);
        if let Some(stream) = self.streams.iter_mut().find(next) {
            stream.last = range;
            stream.length += 1;
            stream.ahead = (stream.ahead - 1).max(0);
            stream.used = used;
            return stream.look_ahead();
        }
        let near = |s: &&mut Stream| {
            let step = range - s.last;
            s.used > 0 && s.length == 0 && step.abs() <= LONGEST_STEP && is_at_edge(step)
        };
        if let Some(stream) = self.streams.iter_mut().find(near) {
            *stream = Stream { last: range, step: range - stream.last, length: 0, ahead: 0, used };
            return Touched::default();
        }
        if let Some(oldest) = self.streams.iter_mut().min_by_key(|s| s.used) {
            *oldest = Stream { last: range, step: 0, length: 0, ahead: 0, used };
        }
        Touched::default()
    }
}

impl Stream {
    fn look_ahead(&mut self) -> Touched {
        let wanted = (2 * self.length).min(MOST_AHEAD);
        let count = wanted - self.ahead;
        let first = self.last + (self.ahead + 1) * self.step;
        self.ahead = self.ahead.max(wanted);
        Touched { length: self.length, first, step: self.step, count: count.max(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_of_a_stream_is_read_ahead_once() {
        for step in [1, -1, 3] {
            let mut streams = Streams::default();
            let mut ahead = std::vec::Vec::new();
            for index in 0..20 {
                let touched = streams.touch(
                    usize::try_from(500 + index * step).expect("positive"),
                    if step < 0 { 511 } else { 0 },
                );
                assert!(touched.length == index - 1 || index == 0, "{touched:?}");
                ahead.extend((0..touched.count).map(|at| touched.first + at * touched.step));
            }
            let mut once = ahead.clone();
            once.dedup();
            assert_eq!(ahead, once);
            let expected: std::vec::Vec<i64> = (3..28).map(|index| 500 + index * step).collect();
            assert_eq!(ahead, expected);
        }
    }

    #[test]
    fn touches_at_random_are_no_stream() {
        let mut streams = Streams::default();
        let mut place = 7_usize;
        let mut ahead = 0;
        for _ in 0..10_000 {
            place = (place * 1_103_515_245 + 12_345) % 524_288;
            ahead += streams.touch(place / 512, place % 512).count;
        }
        assert!(ahead < 200, "{ahead}");
    }

    #[test]
    fn several_streams_are_followed_at_once() {
        let mut streams = Streams::default();
        for index in 0..10 {
            for stream in 0..4 {
                let touched = streams.touch(stream * 1000 + index, 0);
                assert!(index < 2 || touched.length == index as i64 - 1);
            }
        }
    }
}
