//! What a new page is filled with, wherever it comes from: a fault, a promotion, a reservation.

use super::work::{Transfers, Work};
use super::{Backing, Machine};
use crate::physical::Taken;
use crate::virtual_memory::page_index;
use superpage_units::{BasePages, Page, PageSize, PmdRange, ProcessKey};

/// What of a new page was not in memory before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// So many base pages.
    pub(super) pages: BasePages,
    /// Of those, so many were written to the backing store.
    pub(super) swapped: BasePages,
}

impl Machine {
    /// Fills what is missing of a page, in one request where it is read.
    ///
    /// From a file all of it is read. From swap what was written there is; the rest is zeroed, as
    /// everything is where there is no backing store, unless the frame was zeroed ahead of time.
    pub(super) fn fill(&self, missing: Missing, taken: Taken, work: &mut Work) {
        let read = match self.backing {
            Backing::File => missing.pages,
            Backing::Swap => missing.swapped,
            Backing::None => BasePages::ZERO,
        };
        if !read.is_zero() {
            work.reads += Transfers::one(read);
        }
        if !taken.is_zeroed {
            work.zeroed += missing.pages - read;
        }
    }

    /// What is missing of a page of which nothing is mapped.
    pub(super) fn missing_whole(&self, key: ProcessKey, page: Page) -> Missing {
        let swapped = |range| {
            let slot = self.processes.get(key).and_then(|process| process.slot(range));
            slot.map(|slot| slot.swapped()).unwrap_or_default()
        };
        let swapped = match page.size() {
            PageSize::Base => {
                let set = swapped(PmdRange::containing(page.start()));
                u64::from(set.contains(page_index(page.start())))
            }
            PageSize::Huge | PageSize::Gigantic => {
                page.ranges().map(|range| u64::from(swapped(range).len())).sum()
            }
        };
        Missing { pages: page.size().base_pages(), swapped: BasePages(swapped) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Content, Served, Setup};
    use superpage_policy::promotion::freebsd::{self, FreeBsd};
    use superpage_policy::promotion::hugetlb::{self, Hugetlb};
    use superpage_policy::promotion::linux::{self, Linux};
    use superpage_policy::promotion::{Act, Action, Cause, How, Outcome, Policy};
    use superpage_units::{Advice, Bytes, Growth, VirtAddr, Vma, VmaKind};

    const START: VirtAddr = VirtAddr(1 << 32);

    fn address(page: u64) -> VirtAddr {
        START.offset(BasePages(page).bytes())
    }

    fn huge() -> Page {
        Page::containing(START, PageSize::Huge)
    }

    /// A machine with a process that has a VMA of one huge page.
    fn machine(backing: Backing, policy: Box<dyn Policy>) -> (Machine, ProcessKey) {
        let setup = Setup { memory: Bytes::from_mib(16), pools: None, backing, seed: 1 };
        let mut machine = Machine::new(setup, policy);
        let key = machine.spawn();
        let (kind, growth) = (VmaKind::Anonymous, Growth::Fixed);
        let end = address(512);
        machine.map(key, Vma { start: START, end, kind, growth, advice: Advice::None });
        (machine, key)
    }

    fn whole() -> Box<dyn Policy> {
        Box::new(Hugetlb::new(hugetlb::Options::HUGE))
    }

    fn base() -> Box<dyn Policy> {
        Box::new(Linux::new(linux::Options::NEVER))
    }

    #[track_caller]
    fn touch(machine: &mut Machine, key: ProcessKey, page: u64) -> Work {
        let served = machine.touch(key, address(page), Content::Data).unwrap();
        machine.check();
        let Served::Fault { work, .. } = served else { panic!("page {page} was mapped") };
        work
    }

    #[track_caller]
    fn act(machine: &mut Machine, act: Act) -> Work {
        let mut work = Work::default();
        let outcome = machine.apply(&Action { act, cause: Cause::Clock }, &mut work);
        assert_eq!(outcome, Outcome::Done, "{act:?}");
        machine.check();
        work
    }

    fn evict(machine: &mut Machine, process: ProcessKey, page: Page) {
        act(machine, Act::Evict { process, page });
    }

    /// Base pages read in so many requests, and zeroed.
    fn filled(work: Work) -> (u64, u64, u64) {
        (work.reads.requests, work.reads.pages.0, work.zeroed.0)
    }

    #[test]
    fn new_pages_are_zeroed_unless_that_was_done_ahead() {
        let (mut machine, key) = machine(Backing::None, whole());
        assert_eq!(filled(touch(&mut machine, key, 3)), (0, 0, 512));
        machine.discard(key, START, address(512));
        act(&mut machine, Act::Zero(PageSize::Huge));
        assert_eq!(filled(touch(&mut machine, key, 3)), (0, 0, 0));
    }

    #[test]
    fn a_page_of_a_file_is_read_whole_even_onto_zeroes() {
        let (mut machine, key) = machine(Backing::File, whole());
        act(&mut machine, Act::Zero(PageSize::Huge));
        assert_eq!(filled(touch(&mut machine, key, 3)), (1, 512, 0));
        // Written out and taken in again: once.
        evict(&mut machine, key, huge());
        assert_eq!(filled(touch(&mut machine, key, 3)), (1, 512, 0));
    }

    #[test]
    fn from_swap_comes_what_was_written_there() {
        for (page, ahead, zeroed) in [(1, false, 509), (9, false, 509), (1, true, 0)] {
            let (mut machine, key) = machine(Backing::Swap, whole());
            touch(&mut machine, key, 0);
            (1..3).for_each(|page| {
                machine.touch(key, address(page), Content::Data).unwrap();
            });
            evict(&mut machine, key, huge());
            if ahead {
                act(&mut machine, Act::Zero(PageSize::Huge));
            }
            assert_eq!(filled(touch(&mut machine, key, page)), (1, 3, zeroed));
            assert!(machine.holds_data(key, address(2)) && !machine.holds_data(key, address(3)));
        }
    }

    #[test]
    fn a_base_page_is_read_only_if_it_was_written() {
        let (mut machine, key) = machine(Backing::Swap, base());
        assert_eq!(filled(touch(&mut machine, key, 0)), (0, 0, 1));
        evict(&mut machine, key, Page::containing(START, PageSize::Base));
        assert_eq!(filled(touch(&mut machine, key, 1)), (0, 0, 1));
        assert_eq!(filled(touch(&mut machine, key, 0)), (1, 1, 0));
    }

    /// Ten base pages, four of which were written out, become a huge page.
    #[test]
    fn promotion_fills_what_is_not_populated() {
        let cases = [
            (Backing::Swap, false, (1, 4, 502)),
            (Backing::Swap, true, (1, 4, 0)),
            (Backing::File, true, (1, 506, 0)),
        ];
        for (backing, ahead, expected) in cases {
            let (mut machine, process) = machine(backing, base());
            (0..10).for_each(|page| _ = touch(&mut machine, process, page));
            for page in 0..4 {
                evict(&mut machine, process, Page::containing(address(page), PageSize::Base));
            }
            if ahead {
                act(&mut machine, Act::Zero(PageSize::Huge));
            }
            let promote = Act::Promote { process, page: huge(), how: How::Copy(None) };
            let work = act(&mut machine, promote);
            assert_eq!((filled(work), work.copied), (expected, BasePages(6)), "{backing:?}");
        }
    }

    /// A huge page of three written base pages goes to swap, and is prepared in place again.
    #[test]
    fn a_reservation_is_filled_page_by_page_and_then_at_once() {
        let policy = FreeBsd::new(freebsd::Options::default());
        let (mut machine, process) = machine(Backing::Swap, Box::new(policy));
        (0..3).for_each(|page| _ = touch(&mut machine, process, page));
        let promote = Act::Promote { process, page: huge(), how: How::InPlace };
        assert_eq!(filled(act(&mut machine, promote)), (0, 0, 509));
        evict(&mut machine, process, huge());
        assert_eq!(filled(touch(&mut machine, process, 1)), (1, 1, 0));
        assert_eq!(filled(touch(&mut machine, process, 9)), (0, 0, 1));
        assert_eq!(filled(act(&mut machine, promote)), (1, 2, 508));
    }
}
