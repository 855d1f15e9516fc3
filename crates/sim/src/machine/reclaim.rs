//! What the kernel keeps free: its watermarks, and kswapd, which reclaims from the low one up to the high one.
//!
//! kswapd has a CPU of its own here and is at once as far as it would come: no program waits for it, and its work counts as the background's.
//! File pages go first, at random places; then huge pages that were given back in part are split. Policies that reserve frames give
//! back reservations, as FreeBSD's page daemon does. What other policies give up, and with it swap, is not kswapd's here but the
//! fault's.

use super::Machine;
use super::work::Work;
use superpage_policy::promotion::{Act, Policy, Shortage, drive};
use superpage_units::{BasePages, Bytes, PageSize};

/// What the kernel sets aside for huge pages on a machine of three zones, at most a twentieth of it:
/// `set_recommended_min_free_kbytes()` in mm/khugepaged.c.
const RECOMMENDED: BasePages = BasePages(512 * 3 * (2 + 3 * 3));

/// Free memory below and up to which kswapd reclaims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watermarks {
    pub(super) low: BasePages,
    pub(super) high: BasePages,
}

impl Watermarks {
    /// Those of a machine with so much memory: `calculate_min_free_kbytes()` and `__setup_per_zone_wmarks()` in mm/page_alloc.c,
    /// with `vm.watermark_scale_factor` at its default.
    pub(super) fn of(memory: Bytes) -> Self {
        let pages = memory.to_base_pages();
        let root = Bytes::from_kib((memory.0 / 1024 * 16).isqrt()).to_base_pages();
        let least = root.max(RECOMMENDED.min(BasePages(pages.0 / 20)));
        let step = BasePages((least.0 / 4).max(pages.0 / 1000));
        Self { low: least + step, high: least + step * 2 }
    }
}

impl Machine {
    /// Wakes kswapd if free memory is below the low watermark.
    pub(super) fn wake_kswapd(&mut self) {
        let Watermarks { low, high } = self.watermarks();
        if self.free_memory().free() >= low {
            return;
        }
        let mut work = Work::default();
        while self.free_memory().free() < high
            && (self.reclaim(&mut work) || self.give_back_reservation(&mut work))
        {}
        self.reclaimed += work;
    }

    /// The watermarks.
    pub(super) fn watermarks(&self) -> Watermarks {
        Watermarks::of(self.physical.total().bytes())
    }

    /// Drops a file page or splits a huge page that was given back in part; whether there was one.
    pub(super) fn reclaim(&mut self, work: &mut Work) -> bool {
        let mut random = self.random.fork();
        if self.pools.is_none() && self.physical.drop_page_cache(&mut random) {
            work.dropped += BasePages(1);
            return true;
        }
        self.split_partly_unmapped(work)
    }

    /// Has the policy give back a reservation, if it has any; whether it did.
    fn give_back_reservation(&mut self, work: &mut Work) -> bool {
        if !self.keeps_frames() {
            return false;
        }
        let shortage = Shortage { size: PageSize::Base, pages: 1 };
        let relieve =
            |machine: &mut Self, policy: &mut dyn Policy| drive::relieve(policy, machine, shortage);
        let relieved = self.with_policy(relieve).flatten();
        *work += self.take_work();
        relieved.is_some_and(|(action, _)| matches!(action.act, Act::Unreserve { .. }))
    }

    /// What kswapd did since this was asked last.
    pub(crate) fn take_reclaimed(&mut self) -> Work {
        std::mem::take(&mut self.reclaimed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of 23.5 GiB, by its /proc/zoneinfo: 23,083 and 29,253 pages.
    #[test]
    fn watermarks_are_those_of_a_kernel() {
        let marks = Watermarks::of(BasePages(6_171_024).bytes());
        assert_eq!((marks.low, marks.high), (BasePages(23_067), BasePages(29_238)));
    }
}
