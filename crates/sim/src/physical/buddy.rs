//! A buddy allocator: free memory in chunks of 2^order frames, from a base page up to 1 GiB.
//!
//! It hands out the lowest chunk that is large enough and no larger than it must be, or the
//! highest, or one in a given range, or a given one: compaction needs all of these. Who uses what
//! is not its business.

use super::Frame;
use super::bits::Bits;
use std::ops::Range;
use superpage_policy::free_memory::{FreeMemory, ORDERS};
use superpage_units::BasePages;

/// The highest order: chunks of 1 GiB.
const TOP: u8 = 18;
const _: () = assert!(TOP as usize + 1 == ORDERS);

/// Which of several chunks to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The one at the lowest address.
    Bottom,
    /// The one at the highest address.
    Top,
}

/// Free memory.
#[derive(Clone, Debug)]
pub(super) struct Buddy {
    frames: u64,
    /// For each order: which aligned chunks are free, each in its largest free chunk only.
    free: Vec<Bits>,
    /// The sizes of these sets. What is zeroed and in the page cache [`super::Physical`] writes down there.
    pub(super) memory: FreeMemory,
}

impl Buddy {
    /// `frames` frames, all free.
    pub(super) fn new(frames: u64) -> Self {
        let bits = |order| Bits::new(super::index(frames >> order) + 1);
        let free = (0..=TOP).map(bits).collect();
        let mut buddy = Self {
            frames,
            free,
            memory: FreeMemory { total: BasePages(frames), ..FreeMemory::NONE },
        };
        let mut at = 0;
        while at < frames {
            let fits = (0..=TOP)
                .rev()
                .find(|order| at.is_multiple_of(1 << order) && at + (1 << order) <= frames);
            let order = fits.unwrap_or(0);
            buddy.mark(at, order);
            at += 1 << order;
        }
        buddy
    }

    fn mark(&mut self, start: u64, order: u8) {
        let order_index = usize::from(order);
        self.free[order_index].insert(super::index(start >> order));
        self.memory.chunks[order_index] += 1;
    }

    fn unmark(&mut self, start: u64, order: u8) -> bool {
        let order_index = usize::from(order);
        let was_free = self.free[order_index].remove(super::index(start >> order));
        self.memory.chunks[order_index] -= u64::from(was_free);
        was_free
    }

    /// The free chunk that holds this frame: its first frame and its order.
    pub(super) fn chunk_of(&self, frame: Frame) -> Option<(Frame, u8)> {
        (0..=TOP)
            .find(|order| self.free[usize::from(*order)].contains(super::index(frame.0 >> order)))
            .map(|order| (Frame(frame.0 >> order << order), order))
    }

    /// Takes a chunk of 2^`order` frames from one end of memory.
    pub(super) fn take(&mut self, order: u8, end: End) -> Option<Frame> {
        let large_enough = order..=TOP;
        let (start, found) = match end {
            End::Bottom => large_enough.clone().find_map(|from| Some((self.lowest(from)?, from))),
            // From the top the smallest chunk need not be the highest; take the highest.
            End::Top => large_enough
                .filter_map(|from| Some((self.highest(from)?, from)))
                .max_by_key(|(start, _)| *start),
        }?;
        Some(self.carve(start, found, order, end))
    }

    fn lowest(&self, order: u8) -> Option<u64> {
        Some((self.free[usize::from(order)].lowest()? as u64) << order)
    }

    fn highest(&self, order: u8) -> Option<u64> {
        Some((self.free[usize::from(order)].highest()? as u64) << order)
    }

    /// The highest chunk of 2^`order` frames that is free, by itself or in a larger one, and ends at or below `below`, which is
    /// aligned to such chunks.
    pub(super) fn highest_free(&self, order: u8, below: Frame) -> Option<Frame> {
        let in_chunks_of = |from: u8| {
            let before = super::index(below.0.div_ceil(1 << from));
            let start = (self.free[usize::from(from)].previous(before)? as u64) << from;
            Some((start + (1 << from)).min(below.0) - (1 << order))
        };
        (order..=TOP).filter_map(in_chunks_of).max().map(Frame)
    }

    /// Takes a chunk of 2^`order` frames that lies in `range`, the smallest that will do.
    pub(super) fn take_in(&mut self, order: u8, range: Range<Frame>) -> Option<Frame> {
        for from in order..=TOP {
            let first = range.start.0.div_ceil(1 << from);
            let found = self.free[usize::from(from)].next(super::index(first));
            let start = found.map(|chunk| (chunk as u64) << from);
            if let Some(start) = start.filter(|start| start + (1 << from) <= range.end.0) {
                return Some(self.carve(start, from, order, End::Bottom));
            }
        }
        None
    }

    /// Takes just this chunk, if it is free.
    pub(super) fn take_at(&mut self, frame: Frame, order: u8) -> bool {
        debug_assert!(frame.0.is_multiple_of(1 << order), "chunks are aligned");
        let Some((start, found)) = self.chunk_of(frame).filter(|(_, found)| *found >= order) else {
            return false;
        };
        self.unmark(start.0, found);
        let (mut start, mut size) = (start.0, found);
        while size > order {
            size -= 1;
            let upper = start + (1 << size);
            if frame.0 >= upper {
                self.mark(start, size);
                start = upper;
            } else {
                self.mark(upper, size);
            }
        }
        true
    }

    /// Cuts a chunk of `order` off one end of the free chunk at `start`.
    fn carve(&mut self, start: u64, from: u8, order: u8, end: End) -> Frame {
        let frame = match end {
            End::Bottom => Frame(start),
            End::Top => Frame(start + (1 << from) - (1 << order)),
        };
        let taken = self.take_at(frame, order);
        debug_assert!(taken, "a chunk that was found is free");
        frame
    }

    /// Gives a chunk back, and joins it with its free neighbours; the order of what it is in now.
    pub(super) fn give(&mut self, frame: Frame, order: u8) -> u8 {
        debug_assert!(self.chunk_of(frame).is_none(), "frame {frame:?} is free already");
        let (mut start, mut order) = (frame.0, order);
        while order < TOP && self.unmark(start ^ (1 << order), order) {
            start &= !(1 << order);
            order += 1;
        }
        self.mark(start, order);
        order
    }

    /// Asserts that free chunks do not overlap, lie in memory, and could not be joined further.
    pub(super) fn check(&self) {
        let mut chunks: Vec<(u64, u8)> = Vec::new();
        for order in 0..=TOP {
            let mut from = 0;
            while let Some(chunk) = self.free[usize::from(order)].next(from) {
                let start = (chunk as u64) << order;
                chunks.push((start, order));
                let buddy = chunk ^ 1;
                let joined = order < TOP && self.free[usize::from(order)].contains(buddy);
                assert!(!joined, "buddies at {start} of order {order} are both free");
                from = chunk + 1;
            }
        }
        chunks.sort_unstable();
        for pair in chunks.windows(2) {
            assert!(pair[0].0 + (1 << pair[0].1) <= pair[1].0, "{pair:?} overlap");
        }
        let last = chunks.last().map_or(0, |(start, order)| start + (1 << order));
        assert!(last <= self.frames, "a free chunk ends beyond memory");
    }

    /// All free frames.
    #[cfg(test)]
    pub(super) fn free_frames(&self) -> BasePages {
        self.memory.free()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn memory_of_any_size_is_whole() {
        for frames in [1, 511, 512, 513, 262_144, 262_145, 1_000_000] {
            let buddy = Buddy::new(frames);
            buddy.check();
            assert_eq!(buddy.free_frames(), BasePages(frames));
        }
    }

    #[test]
    fn ends_and_ranges() {
        let mut buddy = Buddy::new(4096);
        assert_eq!(buddy.take(9, End::Bottom), Some(Frame(0)));
        assert_eq!(buddy.take(0, End::Top), Some(Frame(4095)));
        assert_eq!(buddy.take(9, End::Top), Some(Frame(3072)));
        assert_eq!(buddy.take_in(0, Frame(1024)..Frame(2048)), Some(Frame(1024)));
        assert!(buddy.take_at(Frame(1536), 9) && !buddy.take_at(Frame(1536), 0));
        buddy.check();
    }

    proptest! {
        /// Random programs against the obvious model: a set of free frames.
        #[test]
        fn agrees_with_a_set_of_frames(
            frames in 1u64..3000,
            steps in prop::collection::vec((0u8..11, 0u8..4, any::<u64>()), 0..200)
        ) {
            let mut buddy = Buddy::new(frames);
            let mut free: BTreeSet<u64> = (0..frames).collect();
            let mut held: Vec<(Frame, u8)> = Vec::new();
            let fits = |free: &BTreeSet<u64>, start: u64, order: u8| (start..start + (1 << order)).all(|f| free.contains(&f));
            for (order, what, random) in steps {
                let taken = match what {
                    0 => buddy.take(order, End::Bottom),
                    1 => buddy.take(order, End::Top),
                    2 => {
                        let frame = Frame(((random % frames) >> order) << order);
                        let expected = fits(&free, frame.0, order);
                        prop_assert_eq!(buddy.take_at(frame, order), expected);
                        expected.then_some(frame)
                    }
                    _ => {
                        if let Some(at) = (!held.is_empty()).then(|| random as usize % held.len()) {
                            let (frame, order) = held.swap_remove(at);
                            buddy.give(frame, order);
                            free.extend(frame.0..frame.0 + (1 << order));
                        }
                        None
                    }
                };
                if let Some(frame) = taken {
                    prop_assert!(fits(&free, frame.0, order), "{:?} was not free", frame);
                    (frame.0..frame.0 + (1 << order)).for_each(|f| { free.remove(&f); });
                    held.push((frame, order));
                } else if what < 2 {
                    let any = (0..frames >> order).any(|chunk| fits(&free, chunk << order, order));
                    prop_assert!(!any, "there was a chunk of order {}", order);
                }
                buddy.check();
                prop_assert_eq!(buddy.free_frames(), BasePages(free.len() as u64));
            }
        }
    }
}
