//! Fragmentation, put in on purpose, as the papers do it.
//!
//! | how | who | what |
//! |---|---|---|
//! | [`Physical::pin_blocks`] | graph paper, section 4.4.1 | one unmovable page in each 2 MiB of a share of the free memory |
//! | [`Physical::fill_page_cache`] | Trident, section 3; Quicksilver's Frag-X | free memory is full of file pages, which are dropped at random places |
//! | [`Physical::scatter_unmovable`] | any long-running kernel | unmovable pages at random places |
//! | [`Physical::hog`] | graph paper, section 4.3.1 (`memhog`) | memory that is simply gone |

use super::{BLOCK, Frame, Owner, Physical};
use crate::random::Random;
use superpage_units::{BasePages, Bytes, PageSize, Share};

impl Physical {
    /// Makes the first frame of each huge frame unmovable, in this share of the huge
    /// frames that are free, from the bottom of memory up.
    pub fn pin_blocks(&mut self, share: Share) {
        let blocks = self.free_memory().huge_pages().0;
        let pinned = share.of(BasePages(blocks).bytes()).to_base_pages().0;
        let mut left = pinned;
        for block in 0..self.frames / BLOCK {
            if left == 0 {
                return;
            }
            let frame = Frame(block * BLOCK);
            let is_free = self.buddy.chunk_of(frame).is_some_and(|(_, order)| order >= 9);
            if is_free && self.buddy.take_at(frame, 0) {
                self.settle(frame, PageSize::Base, Owner::Unmovable);
                left -= 1;
            }
        }
    }

    /// Puts `pages` unmovable base pages into free frames at random places.
    pub fn scatter_unmovable(&mut self, pages: BasePages, random: &mut Random) {
        for _ in 0..pages.0.min(self.free_memory().free().0) {
            let frame = self.random_free(random);
            if let Some(frame) = frame.filter(|frame| self.buddy.take_at(*frame, 0)) {
                self.settle(frame, PageSize::Base, Owner::Unmovable);
            }
        }
    }

    /// A free frame: the next one from a random place on.
    fn random_free(&self, random: &mut Random) -> Option<Frame> {
        let from = random.below(self.frames);
        (from..self.frames).chain(0..from).map(Frame).find(|f| self.buddy.chunk_of(*f).is_some())
    }

    /// Fills free memory with file pages, but for `leave`, which is then freed page by page at
    /// random places.
    ///
    /// Every choice of places is as likely as any other. They are freed in order of address, each
    /// with the probability that makes the count come out: memory is visited once, and in order.
    pub fn fill_page_cache(&mut self, leave: Bytes, random: &mut Random) {
        for size in [PageSize::Huge, PageSize::Base] {
            while self.take(size, Owner::PageCache).is_some() {}
        }
        let mut wanted = leave.to_base_pages().0;
        let mut left = self.page_cache().0;
        let mut from = 0;
        while let Some(found) = self.cached.next(from).filter(|_| wanted > 0) {
            if random.below(left) < wanted {
                self.give(Frame(found as u64), PageSize::Base);
                wanted -= 1;
            }
            left -= 1;
            from = found + 1;
        }
    }

    /// Drops one file page at a random place, as the kernel does when memory is short; whether
    /// there was one.
    pub fn drop_page_cache(&mut self, random: &mut Random) -> bool {
        let Some(frame) = self.random_page_cache(random) else { return false };
        // The block may hold file pages as one: freeing one page of it makes it mixed.
        self.give(frame, PageSize::Base);
        true
    }

    fn random_page_cache(&self, random: &mut Random) -> Option<Frame> {
        if self.page_cache().is_zero() {
            return None;
        }
        let from = crate::physical::index(random.below(self.frames));
        let found = self.cached.next(from).or_else(|| self.cached.next(0))?;
        Some(Frame(found as u64))
    }

    /// Takes so much memory for ever, in huge frames from the bottom up, then in base pages.
    pub fn hog(&mut self, size: Bytes) {
        let mut left = size.to_base_pages().0;
        for size in [PageSize::Huge, PageSize::Base] {
            let pages = size.base_pages().0;
            while left >= pages && self.take(size, Owner::Unmovable).is_some() {
                left -= pages;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trident's state of memory: what is free lies evenly in base pages between file pages.
    #[test]
    fn page_cache_leaves_just_so_much_in_base_pages_all_over() {
        let mut physical = Physical::new(Bytes::from_gib(2));
        let leave = Bytes::from_mib(512);
        physical.fill_page_cache(leave, &mut Random::new(1));
        physical.check();
        assert_eq!(physical.free_memory().free(), leave.to_base_pages());
        assert_eq!(physical.free_memory().fmfi(PageSize::Huge), Share::ALL);
        let half = leave.to_base_pages().0 as f64 / 2.0;
        for chunk in physical.chunks() {
            assert!((chunk.free.0 as f64 / half - 1.0).abs() < 0.02, "{chunk:?}");
        }
    }

    #[test]
    fn page_cache_can_leave_nothing_or_all() {
        for (leave, free) in [(Bytes::ZERO, 0), (Bytes::from_gib(9), 512)] {
            let mut physical = Physical::new(Bytes::from_mib(2));
            physical.fill_page_cache(leave, &mut Random::new(1));
            assert_eq!(physical.free_memory().free(), BasePages(free));
            physical.check();
        }
    }
}
