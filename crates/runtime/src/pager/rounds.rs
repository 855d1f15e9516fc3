//! How often the clock of base pages spares each page: the more often, the sooner it was touched again after it left memory
//! the last time.
//!
//! The paper's clock spares a page that was accessed since the hand came by. A stock kernel shows user space no accessed
//! bits, and to take a page out of the heap in order to see whether it is touched costs as much as to read it from a fast
//! disk: two wake-ups. The clock without any such sign drops the pages that are touched most as often as all others. So the
//! time that a page was missed for stands for how popular it is.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Rounds that a page is spared at the most, so that one that was popular once does leave (docs/results/own.md, heap-random).
const MOST: u32 = 31;

/// A page gets one round for each time that it could have come back while so large a part of the pages in memory left it.
/// Reads by Zipf's law with half of the pages in memory take four threads 0.61 s with 4, 0.81 s with 1, 0.80 s with 2, and 0.71 s
/// with 16 (medians of three rounds); one thread's reads, and those of all words alike, are not told apart.
const PART: usize = 4;

/// Pages that are spared one after the other at the most: whoever looks for a page to evict holds the policy's lock meanwhile, for a
/// fraction of a millisecond, and a worker looks for up to 32 in a row. Reads with 64 and 65,536 are not told apart from it (three rounds).
const IN_A_ROW: u32 = 4096; // tidy: allow(not derived from a size)

/// The bit of a page that has left memory; the others are then when that was.
const OUT: u32 = 1 << 31;

/// The rounds of each base page of the heap.
#[derive(Debug)]
pub(super) struct Rounds {
    /// The rounds that are left to a page in memory; the time when a page left memory, with [`OUT`]; zero for a page that
    /// never was in memory.
    pages: &'static [AtomicU32],
    /// The pages that have left memory so far.
    now: AtomicU32,
    /// The pages that were spared since one was not.
    in_a_row: AtomicU32,
}

impl Rounds {
    /// The clock of these pages, which are zero: none has been in memory.
    pub(super) const fn new(pages: &'static [AtomicU32]) -> Self {
        Self { pages, now: AtomicU32::new(0), in_a_row: AtomicU32::new(0) }
    }

    /// The same, for the child of a fork.
    pub(super) fn copied(&self) -> Self {
        Self { now: AtomicU32::new(self.now.load(Relaxed)), ..Self::new(self.pages) }
    }

    /// A page came to memory, where there is room for so many.
    pub(super) fn came(&self, page: usize, room: usize) {
        let Some(state) = self.pages.get(page) else { return };
        let before = state.load(Relaxed);
        let rounds = if before & OUT == 0 {
            0
        } else {
            let missed = self.now.load(Relaxed).wrapping_sub(before) & !OUT;
            let part = u32::try_from(room / PART).unwrap_or(u32::MAX);
            (part / missed.max(1)).min(MOST)
        };
        state.store(rounds, Relaxed);
    }

    /// A page is to leave memory before others.
    pub(super) fn cool(&self, page: usize) {
        let Some(state) = self.pages.get(page) else { return };
        let _ = state.fetch_update(Relaxed, Relaxed, |state| (state & OUT == 0).then_some(0));
    }

    /// A page left memory.
    pub(super) fn left(&self, page: usize) {
        let Some(state) = self.pages.get(page) else { return };
        state.store(self.now.fetch_add(1, Relaxed) | OUT, Relaxed);
    }

    /// Whether a page is spared in this round.
    pub(super) fn spare(&self, page: usize) -> bool {
        let Some(state) = self.pages.get(page) else { return false };
        let rounds = state.load(Relaxed);
        let is_spared = rounds & OUT == 0 && rounds > 0 && self.in_a_row.load(Relaxed) < IN_A_ROW;
        if is_spared {
            state.store(rounds - 1, Relaxed);
            self.in_a_row.fetch_add(1, Relaxed);
        } else {
            self.in_a_row.store(0, Relaxed);
        }
        is_spared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    #[test]
    fn a_page_is_spared_the_more_often_the_sooner_it_came_back() {
        let pages = (0..1000).map(|_| AtomicU32::new(0)).collect::<std::vec::Vec<_>>();
        let rounds = Rounds::new(Box::leak(pages.into_boxed_slice()));
        let spared_after = |missed: usize| {
            rounds.left(0);
            (1..=missed).for_each(|page| rounds.left(page));
            rounds.came(0, 400);
            (0..100).take_while(|_| rounds.spare(0)).count()
        };
        assert_eq!([1, 10, 20, 40, 60, 900].map(spared_after), [31, 9, 4, 2, 1, 0]);
    }

    #[test]
    fn some_page_leaves_soon() {
        let pages = (0..2 * IN_A_ROW).map(|_| AtomicU32::new(MOST)).collect::<std::vec::Vec<_>>();
        let rounds = Rounds::new(Box::leak(pages.into_boxed_slice()));
        let mut spared = (0..2 * IN_A_ROW as usize).map(|page| rounds.spare(page));
        assert_eq!(spared.position(|is_spared| !is_spared), Some(IN_A_ROW as usize));
        assert!(spared.all(|is_spared| is_spared));
    }

    #[test]
    fn a_page_that_was_never_out_is_not_spared() {
        let pages = (0..2).map(|_| AtomicU32::new(0)).collect::<std::vec::Vec<_>>();
        let rounds = Rounds::new(Box::leak(pages.into_boxed_slice()));
        rounds.came(0, 100);
        assert!(!rounds.spare(0));
        rounds.left(1);
        assert!(!rounds.spare(1), "nor one that is out");
    }

    /// The misses of reads by Zipf's law (exponent 0.99) with memory for three quarters of the pages, in the second half of
    /// them, by a clock that asks whether a page is spared.
    fn misses(is_spared: impl Fn(&Rounds, usize) -> bool) -> usize {
        const PAGES: usize = 4096; // tidy: allow(a number of pages)
        const ROOM: usize = PAGES * 3 / 4;
        let pages = (0..PAGES).map(|_| AtomicU32::new(0)).collect::<std::vec::Vec<_>>();
        let rounds = Rounds::new(Box::leak(pages.into_boxed_slice()));
        let mut weight = 0.0;
        let weights = (1..=PAGES).map(|rank| {
            weight += (rank as f64).powf(-0.99);
            weight
        });
        let weights: std::vec::Vec<f64> = weights.collect();
        let mut clock: std::collections::VecDeque<usize> = (0..ROOM).collect();
        let mut is_there: std::vec::Vec<bool> = (0..PAGES).map(|page| page < ROOM).collect();
        let (mut random, mut missed) = (88_172_645_463_325_252_u64, 0);
        for reads in 0..40 * PAGES {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = (random >> 11) as f64 / (1_u64 << 53) as f64 * weight;
            let page = weights.partition_point(|weight| *weight < at) * 2039 % PAGES;
            if is_there[page] {
                continue;
            }
            // It takes a while until pages have been out.
            missed += usize::from(reads > 20 * PAGES);
            while let Some(oldest) = clock.pop_front() {
                if !is_spared(&rounds, oldest) {
                    rounds.left(oldest);
                    is_there[oldest] = false;
                    break;
                }
                clock.push_back(oldest);
            }
            rounds.came(page, ROOM);
            is_there[page] = true;
            clock.push_back(page);
        }
        missed
    }

    #[test]
    fn popular_pages_are_missed_less_often() {
        let (plain, spared) = (misses(|_, _| false), misses(Rounds::spare));
        assert!(spared * 100 < plain * 93, "{spared} misses, {plain} by a plain clock");
    }
}
