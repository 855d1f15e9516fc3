//! Where jemalloc puts what a program allocates, page by page: runs of pages in chunks, by best fit.
//!
//! As in jemalloc 4, which Redis 4 brings along: chunks of 2 MiB with a header; size classes of
//! four to a doubling; a padding page after each large run; of the free runs the smallest that is
//! large enough, at the lowest address; freed pages stay mapped until there are more of them than an
//! eighth of what is in use, then the oldest are given back. Not here: threads, caches, and objects
//! smaller than a page, which fill their runs densely.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use superpage_units::{BASE_PAGE_BYTES, BasePages, Bytes, HUGE_PAGE_BYTES};

/// Pages in a chunk (`opt.lg_chunk`: 2 MiB).
const CHUNK: u64 = HUGE_PAGE_BYTES / BASE_PAGE_BYTES;
/// From this size on a run holds one object.
const LARGE: Bytes = Bytes::from_kib(16);
/// One page in use lets this share of a page stay freed and mapped (`opt.lg_dirty_mult`: 3).
const DIRTY_SHARE: u64 = 8;

/// Pages in a row, by number from the start of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The first.
    pub start: BasePages,
    /// How many.
    pub pages: BasePages,
}

impl Run {
    const fn new(start: u64, pages: u64) -> Self {
        Self { start: BasePages(start), pages: BasePages(pages) }
    }

    const fn end(self) -> u64 {
        self.start.0 + self.pages.0
    }
}

/// The size class of an object, at least a page.
#[must_use]
pub fn size_class(size: Bytes) -> BasePages {
    let pages = size.to_base_pages();
    if size <= LARGE {
        return pages;
    }
    let doubling = (size.0 - 1).ilog2();
    let step = 1u64 << (doubling - 2);
    Bytes(size.0.div_ceil(step) * step).to_base_pages()
}

/// A heap.
#[derive(Clone, Debug)]
pub struct Arena {
    /// Pages at the start of a chunk that describe the others.
    header: u64,
    chunks: u64,
    /// Free runs by size, then by address; and by address.
    by_size: BTreeSet<(u64, u64)>,
    by_start: BTreeMap<u64, u64>,
    /// Pages that were freed and not given back, and the runs they were freed in, oldest first.
    is_dirty: Vec<bool>,
    freed: VecDeque<Run>,
    dirty: u64,
    active: u64,
}

impl Arena {
    /// Nothing in it. `header`: the pages at the start of a chunk that describe the others, less than a chunk.
    #[must_use]
    pub fn new(header: BasePages) -> Self {
        Self {
            header: header.0,
            chunks: 0,
            by_size: BTreeSet::new(),
            by_start: BTreeMap::new(),
            is_dirty: Vec::new(),
            freed: VecDeque::new(),
            dirty: 0,
            active: 0,
        }
    }

    /// All pages of its chunks.
    #[must_use]
    pub fn size(&self) -> BasePages {
        BasePages(self.chunks * CHUNK)
    }

    /// A run for an object of this size, with its padding; of several chunks if it does not fit
    /// one.
    pub fn large(&mut self, size: Bytes) -> Run {
        let class = size_class(size).0;
        if class < CHUNK - self.header {
            return self.run(BasePages(class + 1));
        }
        let chunks = class.div_ceil(CHUNK);
        let start = self.chunks * CHUNK;
        self.chunks += chunks;
        self.is_dirty.resize((self.chunks * CHUNK).try_into().unwrap_or(usize::MAX), false);
        self.active += class;
        Run::new(start, class)
    }

    /// A run of so many pages, less than a chunk.
    pub fn run(&mut self, pages: BasePages) -> Run {
        debug_assert!(pages.0 <= CHUNK - self.header, "a run lies in a chunk");
        let fitting = self.by_size.range((pages.0, 0)..).next().copied();
        let (length, start) = fitting.unwrap_or_else(|| self.grow());
        self.remove(start, length);
        if length > pages.0 {
            self.insert(start + pages.0, length - pages.0);
        }
        let run = Run::new(start, pages.0);
        self.clean(run);
        self.active += pages.0;
        run
    }

    /// Frees a run; what is to be given back to the kernel because of that.
    pub fn free(&mut self, run: Run) -> Vec<Run> {
        self.active -= run.pages.0;
        for page in run.start.0..run.end() {
            self.dirty += u64::from(!std::mem::replace(&mut self.is_dirty[index(page)], true));
        }
        self.freed.push_back(run);
        let (mut start, mut end) = (run.start.0, run.end());
        let before = self.by_start.range(..start).next_back().map(|(at, length)| (*at, *length));
        if let Some((at, length)) = before.filter(|(at, length)| at + length == start)
            && at / CHUNK == start / CHUNK
        {
            self.remove(at, length);
            start = at;
        }
        if let Some(length) = self.by_start.get(&end).copied()
            && end / CHUNK == run.start.0 / CHUNK
        {
            self.remove(end, length);
            end += length;
        }
        self.insert(start, end - start);
        self.purge()
    }

    fn grow(&mut self) -> (u64, u64) {
        let start = self.chunks * CHUNK + self.header;
        self.chunks += 1;
        self.is_dirty.resize(index(self.chunks * CHUNK), false);
        self.insert(start, CHUNK - self.header);
        (CHUNK - self.header, start)
    }

    fn insert(&mut self, start: u64, length: u64) {
        self.by_size.insert((length, start));
        self.by_start.insert(start, length);
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.by_size.remove(&(length, start));
        self.by_start.remove(&start);
    }

    fn clean(&mut self, run: Run) {
        for page in run.start.0..run.end() {
            self.dirty -= u64::from(std::mem::take(&mut self.is_dirty[index(page)]));
        }
    }

    fn purge(&mut self) -> Vec<Run> {
        let mut given = Vec::new();
        while self.dirty * DIRTY_SHARE > self.active
            && let Some(run) = self.freed.pop_front()
        {
            let mut at = run.start.0;
            while at < run.end() {
                let length = (at..run.end()).take_while(|page| self.is_dirty[index(*page)]).count();
                if length > 0 {
                    given.push(Run::new(at, length as u64));
                }
                at += length as u64 + 1;
            }
            self.clean(run);
        }
        given
    }

    /// Asserts that free runs lie in chunks, do not touch each other, and that counts are right.
    ///
    /// # Panics
    /// If something is wrong. For tests.
    pub fn check(&self) {
        let mut last = 0;
        let mut free = 0;
        for (start, length) in &self.by_start {
            assert!(*start >= last, "free runs overlap");
            assert!(start % CHUNK >= self.header && start % CHUNK + length <= CHUNK, "in a chunk");
            assert!(self.by_size.contains(&(*length, *start)), "in both orders");
            last = start + length;
            free += length;
        }
        assert_eq!(self.by_size.len(), self.by_start.len());
        assert!(self.active + free <= self.chunks * CHUNK, "pages are used or free");
        let dirty = self.is_dirty.iter().filter(|is_dirty| **is_dirty).count();
        assert_eq!(dirty as u64, self.dirty, "freed and not given back");
    }
}

fn index(page: u64) -> usize {
    usize::try_from(page).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn classes_are_four_to_a_doubling() {
        for (kib, class) in [(4, 4), (10, 12), (16, 16), (17, 20), (33, 40), (65, 80), (600, 640)] {
            assert_eq!(size_class(Bytes::from_kib(kib)).bytes(), Bytes::from_kib(class), "{kib}");
        }
        assert_eq!(size_class(Bytes::from_kib(1024)).bytes(), Bytes::from_mib(1));
        assert_eq!(size_class(Bytes::from_kib(1025)).bytes(), Bytes::from_kib(1280));
    }

    #[test]
    fn the_smallest_hole_that_is_large_enough_is_filled() {
        let mut arena = Arena::new(BasePages(13));
        let runs = [20, 1, 10, 1, 15, 1].map(|pages| arena.run(BasePages(pages)));
        for at in [0, 2, 4] {
            arena.free(runs[at]);
        }
        assert_eq!(arena.run(BasePages(11)).start, runs[4].start);
        assert_eq!(arena.run(BasePages(10)).start, runs[2].start);
        arena.check();
    }

    #[test]
    fn little_stays_freed_and_mapped() {
        let mut arena = Arena::new(BasePages(13));
        let mut random = Random::new(1);
        let mut live = Vec::new();
        let mut mapped: BTreeSet<u64> = BTreeSet::new();
        for _ in 0..3000 {
            if live.len() < 400 || random.share() < 0.4 {
                let run = arena.run(BasePages(1 + random.below(60)));
                mapped.extend(run.start.0..run.end());
                live.push(run);
            } else {
                let at = usize::try_from(random.below(live.len() as u64)).unwrap();
                for given in arena.free(live.swap_remove(at)) {
                    for page in given.start.0..given.end() {
                        assert!(mapped.remove(&page), "{page} was given back twice");
                    }
                }
            }
            arena.check();
            let used: u64 = live.iter().map(|run| run.pages.0).sum();
            for run in &live {
                assert!((run.start.0..run.end()).all(|page| mapped.contains(&page)));
            }
            assert!(mapped.len() as u64 <= used + used / DIRTY_SHARE);
        }
    }

    #[test]
    fn what_does_not_fit_a_chunk_gets_its_own() {
        let mut arena = Arena::new(BasePages(13));
        let small = arena.run(BasePages(3));
        let large = arena.large(Bytes::from_mib(2));
        assert_eq!(large, Run::new(CHUNK, CHUNK));
        assert_eq!(arena.run(BasePages(3)).start.0, small.end());
        assert_eq!(arena.size(), BasePages(2 * CHUNK));
        arena.check();
    }
}
