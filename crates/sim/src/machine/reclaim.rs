//! The kernel keeps some memory free: where free memory falls below the low watermark, kswapd reclaims up to the high one.
//!
//! Here kswapd has a CPU of its own and reaches the high watermark at once: no program waits for it, and its work counts as the
//! background's. It drops file pages first, at random places; then it splits huge pages that were given back in part. What a policy
//! gives up, and with it what goes to swap, is left to the fault that finds no memory.
//!
//! Deviations: a fault may take the last frame, where the kernel keeps those below `min` back; only faults wake kswapd; the
//! watermarks are Linux's under FreeBSD and Quicksilver too, and those of a kernel with transparent huge pages under every policy.

use super::Machine;
use super::work::Work;
use superpage_units::{BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes};

/// The kernel raises the `min` watermark to so much where huge pages are on and there are three zones, but to a twentieth of memory at most:
/// `set_recommended_min_free_kbytes()` in mm/khugepaged.c.
const RECOMMENDED: BasePages = BasePages(BASE_PAGES_PER_HUGE_PAGE * 3 * (2 + 3 * 3));

/// Free memory below which kswapd begins to reclaim, and up to which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watermarks {
    pub(super) low: BasePages,
    pub(super) high: BasePages,
}

impl Watermarks {
    /// The kernel's watermarks of a machine with so much memory: `calculate_min_free_kbytes()` and `__setup_per_zone_wmarks()` in mm/page_alloc.c,
    /// with `vm.watermark_scale_factor` at its default and without the bounds of 128 KiB and 256 MiB.
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
        let Watermarks { low, high } = self.watermarks;
        if self.free_memory().free() >= low {
            return;
        }
        let mut work = Work::default();
        while self.free_memory().free() < high && self.reclaim(&mut work) {}
        self.reclaimed += work;
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

    /// Takes kswapd's work since this was called last.
    pub(crate) fn take_reclaimed(&mut self) -> Work {
        std::mem::take(&mut self.reclaimed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Backing, Content, Served, Setup};
    use superpage_policy::promotion::linux::{Linux, Options};
    use superpage_units::{Advice, Growth, VirtAddr, Vma, VmaKind};

    #[test]
    fn kswapd_drops_file_pages_up_to_the_high_watermark_and_no_fault_pays_for_it() {
        let memory = Bytes::from_mib(512);
        let setup = Setup { memory, pools: None, backing: Backing::None, seed: 1 };
        let mut machine = Machine::new(setup, Box::new(Linux::new(Options::NEVER)));
        let Watermarks { low, high } = machine.watermarks;
        machine.prepare(|physical, random| physical.fill_page_cache(low.bytes(), random));
        let process = machine.spawn();
        let start = VirtAddr(1 << 32);
        let (kind, growth, advice) = (VmaKind::Anonymous, Growth::Fixed, Advice::None);
        let end = start.offset(BasePages(2).bytes());
        machine.map(process, Vma { start, end, kind, growth, advice });
        machine.touch(process, start, Content::Data).unwrap();
        assert_eq!(machine.free_memory().free(), low - BasePages(1));
        let second = start.offset(BasePages(1).bytes());
        let served = machine.touch(process, second, Content::Data).unwrap();
        let Served::Fault { work, .. } = served else { panic!("it was not mapped before") };
        assert_eq!(work.dropped, BasePages::ZERO);
        assert_eq!(machine.free_memory().free(), high - BasePages(1));
        assert_eq!(machine.take_reclaimed().dropped, high - low + BasePages(1));
    }

    /// A machine of 23.5 GiB has 23,096 and 29,265 pages by its /proc/zoneinfo, in four zones; here memory is one zone.
    #[test]
    fn watermarks_are_those_of_a_kernel() {
        let marks = Watermarks::of(BasePages(6_171_024).bytes());
        assert_eq!((marks.low, marks.high), (BasePages(23_067), BasePages(29_238)));
    }
}
