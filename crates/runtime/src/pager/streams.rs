//! Streams: ranges that the program goes through in order, forwards, backwards or in equal steps.
//!
//! The paper has none. A range that comes next in a stream is worth a huge page, whatever it takes to have one free; the
//! ranges after it are read before they are touched; and those before it leave memory first, the last one at first, because
//! a program that begins again comes to that after all others. So of data that is passed over again and again as much stays
//! as memory has room for, where the paper's clock would drop each range just before it is needed.
//!
//! Of the ranges that were left behind last, those that lie apart leave memory first: then the next pass reads one while the
//! program is at what lies between. A range that waits, and was not touched while streams went over as many ranges as hold
//! anything, leaves before all others ([`take_unused`](super::table::Table::take_unused)).

use super::PER_RANGE;

/// The streams that are followed at once. Chosen, not measured.
const STREAMS: usize = 16;
/// The touches outside streams after which one that came to no other range has ended. Chosen, not measured.
const LONGEST_PAUSE: u64 = 128; // tidy: allow(not derived from a size)
/// The last touches outside streams, with which one may begin. Chosen, not measured.
const TOUCHES: usize = 16;
/// The longest step of a stream, in ranges. Chosen, not measured.
const LONGEST_STEP: i64 = 8;
/// The longest way of a stream over ranges that are in memory, in steps. Chosen: 2 GiB.
const LONGEST_GAP: i64 = 1024;
/// The equal steps from page to page that begin a stream: touches at random take none. Chosen, not measured.
pub(super) const RUN: i64 = 4;
/// The same while memory has turned to base pages, where a stream costs what it turns back (docs/results/own.md, heap-redis).
pub(super) const RUN_ON_BASE: i64 = 16;
/// The longest way to the next page that is missing, over pages that are in memory, which counts as an equal step. Chosen,
/// not measured.
const LONGEST_PAGE_GAP: i64 = 8;
/// The touches at the near ends of ranges, each further than the last, that begin a stream as well: a program that goes over
/// ranges most of which are in memory is seen nowhere else.
///
/// Chosen, not measured.
const HOPS: i64 = 4;
/// The longest way between two such touches, in ranges, all of which are in memory. Chosen, not measured.
const LONGEST_HOP: i64 = 64;
/// The pages at the near end of a range, in one of which a stream comes in. Chosen, not measured.
const EDGE: i64 = PER_RANGE as i64 / 8;
/// The ranges that are read ahead in a stream at the most. Chosen: 16 MiB.
pub(super) const MOST_AHEAD: i64 = 8;

/// The furthest range that is read ahead where those before it are in memory. Chosen, not measured.
const LONGEST_LOOK: i64 = 64;

/// The ranges behind the one that was touched last that a stream may come back to. Chosen: 8 MiB, which programs that
/// work block by block have in the caches of the processor.
const KEPT: i64 = 4;

/// A stream of the program.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The last range that was touched.
    last: i64,
    /// The step to the next; 0 for none.
    step: i64,
    /// The ranges that came as foreseen, from the one on where it began.
    length: i64,
    /// The furthest step from `last` that was read ahead.
    ahead: i64,
    /// When it came to a range last, by a count of touches outside streams.
    used: u64,
}

/// A touch outside streams, with which one may begin.
#[derive(Clone, Copy, Debug, Default)]
struct Touch {
    /// The page of the heap.
    page: i64,
    /// How far it was from the touch that it is counted from; 0 for none.
    distance: i64,
    /// How many equal steps led to it.
    run: i64,
    /// How many touches led to it that were at the near ends of ranges further on, over ranges that are in memory.
    hops: i64,
    /// When it was, by a count of touches outside streams; 0 for never.
    used: u64,
}

/// The streams that are followed.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: [Stream; STREAMS],
    others: [Touch; TOUCHES],
    /// The touches outside streams.
    touches: u64,
}

/// Which pages and ranges of the heap are in memory, so that a touch of them would not have been told.
pub(super) trait InMemory {
    fn has_page(&self, page: i64) -> bool;
    fn has_range(&self, range: i64) -> bool;
}

/// Ranges at equal steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    first: i64,
    step: i64,
    count: i64,
}

impl Ranges {
    /// The number of each, as far as there are such.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..self.count).filter_map(move |at| usize::try_from(self.first + at * self.step).ok())
    }

    /// Whether there are none.
    pub(super) const fn is_empty(self) -> bool {
        self.count <= 0
    }
}

/// A range in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Touched {
    /// The ranges of the stream that came as foreseen before this.
    pub(super) length: i64,
    /// What is to be read ahead.
    pub(super) ahead: Ranges,
    /// The ranges that the stream comes to next, and those after them: if all of the former are mapped, so that no touch of
    /// them is told, the first of the latter that has left memory is to be read ahead too.
    pub(super) next: Ranges,
    pub(super) beyond: Ranges,
    /// What the stream has left behind, the last one last.
    pub(super) passed: Ranges,
}

impl Streams {
    /// Notes that a page of a range was touched. `run` equal steps begin a stream: [`RUN`] or [`RUN_ON_BASE`].
    pub(super) fn touch(
        &mut self,
        range: usize,
        index: usize,
        run: i64,
        memory: &impl InMemory,
    ) -> Touched {
        let now = self.touches;
        let (range, page) = (range as i64, (range * PER_RANGE + index) as i64);
        let is_alive = |s: &&mut Stream| s.length > 0 && now - s.used <= LONGEST_PAUSE;
        let mut alive = self.streams.iter_mut().filter(is_alive);
        if let Some(stream) = alive.find(|s| s.last == range) {
            return Touched { length: stream.length, ..Touched::default() };
        }
        let steps = |s: &Stream| {
            s.steps_to(range).filter(|steps| {
                is_at_edge(index as i64, s.step)
                    && (1..*steps).all(|at| memory.has_range(s.last + at * s.step))
            })
        };
        let mut alive = self.streams.iter_mut().filter(is_alive);
        let next = alive.find_map(|s| steps(s).map(|steps| (s, steps)));
        if let Some((stream, steps)) = next {
            stream.last = range;
            stream.length += 1;
            stream.ahead = (stream.ahead - steps).max(0);
            stream.used = now;
            return stream.look_around(steps);
        }
        self.touches += 1;
        let used = self.touches;
        let (touch, before) = self.touch_outside(page, used, memory);
        if touch.run < run && touch.hops < HOPS {
            return Touched::default();
        }
        let Some(oldest) = self.streams.iter_mut().min_by_key(|s| s.used) else {
            return Touched::default();
        };
        let (step, ranges) = (touch.distance.signum(), touch.distance / PER_RANGE as i64);
        let begun = Stream { last: range, step, used, ..Stream::default() };
        if touch.run >= run {
            let step = if ranges == 0 { step } else { ranges };
            *oldest = Stream { step, length: 1, ..begun };
            oldest.look_around(1)
        } else {
            // It has come over as many ranges as a stream keeps.
            *oldest = Stream { length: KEPT, ..begun };
            oldest.look_around((range - before / PER_RANGE as i64).abs())
        }
    }

    /// Notes a touch of a page outside streams; the touch, and the page of the one that it is counted from.
    ///
    /// A touch that goes on from another takes its place. All others leave those before them as they are, so that what the
    /// program touches elsewhere meanwhile is in no stream's way.
    fn touch_outside(&mut self, page: i64, used: u64, memory: &impl InMemory) -> (Touch, i64) {
        let distance = |from: &Touch| (page - from.page).abs();
        let is_near = |from: &&mut Touch| {
            let is_close = distance(from) <= LONGEST_STEP * PER_RANGE as i64;
            from.used > 0 && (is_close || from.is_hop_to(page, memory))
        };
        let near = self.others.iter_mut().filter(is_near);
        let onward = near.filter_map(|from| from.then(page, memory).map(|touch| (from, touch)));
        if let Some((from, touch)) = onward.min_by_key(|(from, _)| distance(from)) {
            let before = core::mem::replace(from, Touch { used, ..touch });
            return (*from, before.page);
        }
        let nearest = self.others.iter_mut().filter(is_near).min_by_key(|from| distance(from));
        let from = nearest.map_or(Touch { page, ..Touch::default() }, |from| *from);
        let hops = from.is_hop_to(page, memory).into();
        let touch = Touch { page, distance: page - from.page, run: 1, hops, used };
        if let Some(oldest) = self.others.iter_mut().min_by_key(|touch| touch.used) {
            *oldest = touch;
        }
        (touch, from.page)
    }
}

/// Whether a page is at the near end of its range, for a stream in this direction.
const fn is_at_edge(index: i64, step: i64) -> bool {
    match step {
        1.. => index < EDGE,
        _ => index >= PER_RANGE as i64 - EDGE,
    }
}

impl Touch {
    /// The touch of a page as the next after this, if it is so far from it as this was from the one before, or at the next
    /// page that is missing, or at the near end of another range as this was. Steps of so many bytes are equal numbers of
    /// pages, or one more.
    fn then(&self, page: i64, memory: &impl InMemory) -> Option<Self> {
        let distance = page - self.page;
        if distance.signum() != self.distance.signum() || distance == 0 {
            return None;
        }
        let is_equal = (distance - self.distance).abs() <= 1 || self.is_next_missing(page, memory);
        let is_hop = self.hops > 0 && self.is_hop_to(page, memory);
        let run = if is_equal { self.run + 1 } else { 1 };
        let hops = if is_hop { self.hops + 1 } else { 0 };
        (is_equal || is_hop).then_some(Self { page, distance, run, hops, ..*self })
    }

    /// Whether all pages on the way to another are in memory.
    fn is_next_missing(&self, page: i64, memory: &impl InMemory) -> bool {
        let distance = page - self.page;
        distance.abs() <= LONGEST_PAGE_GAP
            && (1..distance.abs()).all(|at| memory.has_page(self.page + at * distance.signum()))
    }

    /// Whether a page is at the near end of another range, over ranges that are in memory.
    fn is_hop_to(&self, page: i64, memory: &impl InMemory) -> bool {
        let (from, step) = (self.page / PER_RANGE as i64, (page - self.page).signum());
        let ranges = (page / PER_RANGE as i64 - from).abs();
        (1..=LONGEST_HOP).contains(&ranges)
            && is_at_edge(page % PER_RANGE as i64, step)
            && (1..ranges).all(|at| memory.has_range(from + at * step))
    }
}

impl Stream {
    /// The steps of the stream to a range, if it comes to it soon.
    fn steps_to(&self, range: i64) -> Option<i64> {
        let steps = (range - self.last).checked_div(self.step)?;
        let is_on_it = self.last + steps * self.step == range;
        (is_on_it && (1..=LONGEST_GAP).contains(&steps)).then_some(steps)
    }

    /// What is to be read, and what was left behind, after so many steps.
    fn look_around(&mut self, steps: i64) -> Touched {
        let step = self.step;
        let wanted = (2 * self.length).min(MOST_AHEAD);
        let first = self.last + (self.ahead + 1) * step;
        let ahead = Ranges { first, step, count: (wanted - self.ahead).max(0) };
        self.ahead = self.ahead.max(wanted);
        let count = if self.length >= KEPT { steps } else { 0 };
        let passed = Ranges { first: self.last - (KEPT + steps - 1) * step, step, count };
        let next = Ranges { first: self.last + step, step, count: wanted };
        let first = self.last + (wanted + 1) * step;
        let beyond = Ranges { first, step, count: LONGEST_LOOK - wanted };
        Touched { length: self.length, ahead, next, beyond, passed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No page is in memory.
    struct Nothing;

    impl InMemory for Nothing {
        fn has_page(&self, _: i64) -> bool {
            false
        }

        fn has_range(&self, _: i64) -> bool {
            false
        }
    }

    /// The ranges for which this holds are in memory.
    struct Where<F>(F);

    impl<F: Fn(i64) -> bool> InMemory for Where<F> {
        fn has_page(&self, page: i64) -> bool {
            self.0(page / PER_RANGE as i64)
        }

        fn has_range(&self, range: i64) -> bool {
            self.0(range)
        }
    }

    /// Touches of the first page of each of these ranges.
    fn touch_all(
        streams: &mut Streams,
        ranges: impl IntoIterator<Item = usize>,
    ) -> std::vec::Vec<Touched> {
        ranges.into_iter().map(|range| streams.touch(range, 0, RUN, &Nothing)).collect()
    }

    #[test]
    fn each_range_of_a_stream_is_read_ahead_once() {
        for step in [1, -1, 3] {
            let mut streams = Streams::default();
            let mut ahead = std::vec::Vec::new();
            for index in 0..20 {
                let touched = streams.touch(
                    usize::try_from(500 + index * step).expect("positive"),
                    if step < 0 { 511 } else { 0 },
                    RUN,
                    &Nothing,
                );
                assert_eq!(touched.length, (index - RUN + 1).max(0));
                ahead.extend(touched.ahead.iter());
            }
            let mut once = ahead.clone();
            once.dedup();
            assert_eq!(ahead, once);
            let expected = (5..28).map(|index| usize::try_from(500 + index * step));
            assert_eq!(ahead, expected.collect::<Result<std::vec::Vec<_>, _>>().expect("positive"));
        }
    }

    #[test]
    fn a_stream_leaves_ranges_behind() {
        let mut streams = Streams::default();
        let mut passed: std::vec::Vec<_> = touch_all(&mut streams, 500..512)
            .into_iter()
            .flat_map(|touched| touched.passed.iter())
            .collect();
        // It goes over those that are in memory.
        passed.extend(streams.touch(515, 0, RUN, &Where(|_| true)).passed.iter());
        assert_eq!(passed, [503, 504, 505, 506, 507, 508, 509, 510, 511]);
    }

    #[test]
    fn a_stream_goes_on_after_ranges_that_are_in_memory() {
        let is_there = |range| (506..600).contains(&range);
        for (there, lengths) in [(true, [2, 3, 4]), (false, [2, 0, 0])] {
            let mut streams = Streams::default();
            touch_all(&mut streams, 500..505);
            let touched = [505, 600, 601].map(|range| {
                streams.touch(range, 0, RUN, &Where(|range| there && is_there(range))).length
            });
            assert_eq!(touched, lengths);
        }
    }

    #[test]
    fn a_stream_begins_with_equal_steps() {
        let begins = |pages: [usize; 6]| {
            let mut streams = Streams::default();
            pages
                .map(|page| streams.touch(page / PER_RANGE, page % PER_RANGE, RUN, &Nothing).length)
        };
        assert_eq!(begins([7, 8, 9, 10, 11, 12]), [0, 0, 0, 0, 1, 1]);
        assert_eq!(begins([7, 7, 8, 9, 10, 11]), [0, 0, 0, 0, 0, 1]);
        // A touch elsewhere is not in its way.
        assert_eq!(begins([7, 8, 9, 3, 10, 11]), [0, 0, 0, 0, 0, 1]);
        assert_eq!(begins([7, 8, 9, 3, 11, 15]), [0; 6]);
        // 10,000 bytes, backwards, and 1.5 ranges.
        assert_eq!(begins([0, 2, 4, 7, 9, 12]), [0, 0, 0, 0, 1, 1]);
        assert_eq!(begins([900, 800, 700, 600, 500, 400]), [0, 0, 0, 0, 1, 1]);
        assert_eq!(begins([0, 768, 1536, 2304, 3072, 3840])[..5], [0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_stream_begins_with_steps_to_the_next_missing_page() {
        /// Two pages of three are in memory.
        struct Most;
        impl InMemory for Most {
            fn has_page(&self, page: i64) -> bool {
                page % 3 != 0
            }

            fn has_range(&self, _: i64) -> bool {
                false
            }
        }
        let begins = |pages: [usize; 6]| {
            let mut streams = Streams::default();
            pages.map(|page| streams.touch(0, page, RUN, &Most).length)
        };
        assert_eq!(begins([3, 4, 6, 7, 9, 10]), [0, 0, 0, 0, 1, 1]);
        assert_eq!(begins([3, 4, 6, 10, 12, 13]), [0; 6], "page 9 is missing");
    }

    #[test]
    fn a_stream_begins_with_touches_on_the_way_over_ranges_in_memory() {
        let begins = |ranges: [usize; 6], index: usize, missing: i64| {
            let mut streams = Streams::default();
            ranges.map(|range| {
                streams.touch(range, index, RUN, &Where(|range| range != missing)).length
            })
        };
        let (on, back) = ([10, 20, 31, 37, 50, 52], [90, 80, 71, 67, 50, 48]);
        assert_eq!(begins(on, 0, -1), [0, 0, 0, 0, 4, 5]);
        assert_eq!(begins(back, 511, -1), [0, 0, 0, 0, 4, 5]);
        // A touch elsewhere is not in its way.
        assert_eq!(begins([10, 20, 31, 25, 37, 50], 0, -1), [0, 0, 0, 0, 0, 4]);
        // Not at the near end; over one that is missing; with turns.
        assert_eq!(begins(on, 300, -1), [0; 6]);
        assert_eq!(begins(on, 0, 33), [0; 6]);
        assert_eq!(begins([10, 20, 31, 25, 20, 50], 0, -1), [0; 6]);
    }

    #[test]
    fn a_stream_begins_later_where_memory_is_for_base_pages() {
        let begins = |run| {
            let mut streams = Streams::default();
            (0..100).position(|page| streams.touch(0, page, run, &Nothing).length > 0)
        };
        assert_eq!((begins(RUN), begins(RUN_ON_BASE)), (Some(4), Some(16)));
    }

    #[test]
    fn a_stream_that_comes_to_nothing_ends() {
        for (pause, length) in [(128, 2), (129, 0)] {
            let mut streams = Streams::default();
            touch_all(&mut streams, 500..505);
            // Far apart, each further on than the last.
            for at in (1_usize..).take(pause) {
                streams.touch(at * 10_000, 100, RUN, &Nothing);
                streams.touch(504, 200, RUN, &Nothing);
            }
            assert_eq!(streams.touch(505, 0, RUN, &Nothing).length, length);
        }
    }

    #[test]
    fn touches_at_random_are_no_stream() {
        let mut streams = Streams::default();
        let mut place = 7_usize;
        let mut ahead = 0;
        for _ in 0..100_000 {
            place = (place * 1_103_515_245 + 12_345) % 524_288;
            ahead += streams.touch(place / 512, place % 512, RUN, &Nothing).ahead.iter().count();
        }
        assert_eq!(ahead, 0);
    }

    #[test]
    fn several_streams_are_followed_at_once() {
        let mut streams = Streams::default();
        for index in 0..10 {
            for stream in 0..4 {
                let touched = streams.touch(stream * 1000 + index, 0, RUN, &Nothing);
                assert_eq!(touched.length, (index as i64 - RUN + 1).max(0));
            }
        }
    }
}
