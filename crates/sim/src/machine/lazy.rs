//! Huge pages that a program has given back in part, and that stay whole until memory is short.
//!
//! Since 4.5 Linux only unmaps that part; the frame is split, and the part freed, when memory is
//! short (`deferred_split_huge_page()` in mm/huge_memory.c). So a few base pages hold a whole huge
//! frame, which counts as used and which compaction does not touch.

use super::Machine;
use super::work::Work;
use crate::virtual_memory::page_index;
use superpage_units::{BasePages, Mapping, PmdRange, ProcessKey, VirtAddr};

impl Machine {
    /// As [`Machine::discard`], but a huge page that is only partly between the two addresses keeps
    /// its frame until memory is short, whatever the policy does at [`Machine::discard`]; where the policy keeps frames anyway, this
    /// is the same. The program must not touch that part again.
    pub fn discard_lazily(&mut self, key: ProcessKey, start: VirtAddr, end: VirtAddr) -> Work {
        if self.keeps_frames() {
            return self.discard(key, start, end);
        }
        let mut work = Work::default();
        let mut at = start;
        while at < end {
            let range = PmdRange::containing(at);
            let until = range.end().min(end);
            let is_whole = at == range.start() && until == range.end();
            if is_whole || !self.unmap_part(key, range, at, until) {
                work += self.discard(key, at, until);
            }
            at = until;
        }
        work
    }

    /// Notes that nothing is used in a part of a huge page; `false` if none is mapped there that is
    /// the process's alone.
    fn unmap_part(
        &mut self,
        key: ProcessKey,
        range: PmdRange,
        start: VirtAddr,
        end: VirtAddr,
    ) -> bool {
        let slot = self.processes.get(key).and_then(|p| p.slot(range));
        if slot.is_none_or(|slot| slot.mapping != Mapping::Huge || self.is_shared_huge(slot)) {
            return false;
        }
        let slot = self.processes.get_mut(key).and_then(|p| p.existing_slot_mut(range));
        let Some(slot) = slot else { return false };
        let mut used = slot.used();
        let last = page_index(VirtAddr(end.0 - 1));
        (page_index(start)..=last).for_each(|page| used.remove(page));
        slot.detail().used = used;
        self.partly_unmapped.push_back((key, range));
        true
    }

    /// Splits the huge page that was given back in part longest ago; whether there was one. Those that
    /// a fork has shared since have to wait.
    pub(super) fn split_partly_unmapped(&mut self, work: &mut Work) -> bool {
        for _ in 0..self.partly_unmapped.len() {
            let Some((key, range)) = self.partly_unmapped.pop_front() else { return false };
            let slot = self.processes.get(key).and_then(|process| process.slot(range));
            if slot.is_some_and(|slot| self.is_shared_huge(slot)) {
                self.partly_unmapped.push_back((key, range));
            } else if self.split(key, range, work).is_some() || self.forget_unused(key, range, work)
            {
                return true;
            }
        }
        false
    }

    /// Gives back what was unused in a huge page that is mapped by base pages since; whether there was
    /// anything.
    fn forget_unused(&mut self, key: ProcessKey, range: PmdRange, work: &mut Work) -> bool {
        let slot = self.processes.get(key).and_then(|process| process.slot(range));
        let Some(slot) = slot.filter(|slot| slot.mapping == Mapping::Base && !slot.is_reserved)
        else {
            return false;
        };
        let unused = slot.present().without(slot.used());
        for page in unused.iter() {
            let start = range.base_page(page);
            *work += self.discard(key, start, start.offset(BasePages(1).bytes()));
        }
        !unused.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Work;
    use crate::machine::{Backing, Content, Machine, Setup};
    use superpage_policy::promotion::Policy;
    use superpage_policy::promotion::freebsd::{self, FreeBsd};
    use superpage_policy::promotion::linux::{Linux, Options};
    use superpage_policy::promotion::quicksilver::{self, Quicksilver};
    use superpage_units::{
        Advice, BASE_PAGE_BYTES, BasePages, Bytes, Growth, HugePages, VirtAddr, Vma, VmaKind,
    };

    const START: VirtAddr = VirtAddr(1 << 32);

    fn page(index: u64) -> VirtAddr {
        VirtAddr(START.0 + index * BASE_PAGE_BYTES)
    }

    #[test]
    fn what_is_given_back_in_part_is_freed_when_memory_is_short() {
        let setup =
            Setup { memory: Bytes::from_mib(8), pools: None, backing: Backing::None, seed: 1 };
        let mut machine = Machine::new(setup, Box::new(Linux::new(Options::NO_KHUGEPAGED)));
        let key = machine.spawn();
        let end = page(5 * 512);
        let (kind, growth) = (VmaKind::Anonymous, Growth::Fixed);
        machine.map(key, Vma { start: START, end, kind, growth, advice: Advice::None });
        for index in 0..3 * 512 {
            machine.touch(key, page(index), Content::Data).unwrap();
        }
        // All of the first huge page, most of the second.
        machine.discard_lazily(key, page(0), page(1000));
        machine.check();
        let footprint = |machine: &Machine| machine.process(key).unwrap().footprint();
        assert_eq!(footprint(&machine).huge, HugePages(2));
        assert_eq!(machine.physical().free_memory().free(), BasePages(1024));
        for index in 3 * 512..5 * 512 {
            machine.touch(key, page(index), Content::Data).unwrap();
        }
        assert_eq!(machine.physical().free_memory().free(), BasePages(0));
        machine.touch(key, page(0), Content::Data).unwrap();
        machine.check();
        assert_eq!(footprint(&machine).huge, HugePages(3));
        assert_eq!(footprint(&machine).base, BasePages(24 + 1));
        assert!(machine.holds_data(key, page(1000)) && !machine.holds_data(key, page(999)));
    }

    #[test]
    fn what_is_given_back_in_part_is_freed_though_a_fork_came_between() {
        let setup =
            Setup { memory: Bytes::from_mib(8), pools: None, backing: Backing::None, seed: 1 };
        let mut machine = Machine::new(setup, Box::new(Linux::new(Options::NO_KHUGEPAGED)));
        let parent = machine.spawn();
        let (kind, growth) = (VmaKind::Anonymous, Growth::Fixed);
        let vma = Vma { start: START, end: page(512), kind, growth, advice: Advice::None };
        machine.map(parent, vma);
        for index in 0..512 {
            machine.touch(parent, page(index), Content::Data).unwrap();
        }
        machine.discard_lazily(parent, page(0), page(400));
        let (child, _) = machine.fork(parent).unwrap();
        // The parent maps its memory by base pages from here on, the child keeps the huge page.
        machine.touch(parent, page(500), Content::Data).unwrap();
        machine.exit(parent);
        let mut work = Work::default();
        assert!(machine.split_partly_unmapped(&mut work));
        machine.check();
        assert_eq!(machine.resident(child), BasePages(112));
        // The same with the child gone first.
        let (grandchild, _) = machine.fork(child).unwrap();
        machine.discard_lazily(child, page(400), page(450));
        machine.exit(grandchild);
        machine.check();
        assert_eq!(machine.resident(child), BasePages(62));
    }

    #[test]
    fn a_superpage_that_is_freed_in_part_is_a_reservation_again_where_the_policy_defers_that() {
        let setup =
            Setup { memory: Bytes::from_mib(8), pools: None, backing: Backing::None, seed: 1 };
        let freebsd = Box::new(FreeBsd::new(freebsd::Options::default()));
        let quicksilver = Box::new(Quicksilver::new(quicksilver::Options::SYNC_1));
        for policy in [freebsd as Box<dyn Policy>, quicksilver] {
            is_a_reservation_again(Machine::new(setup, policy));
        }
    }

    fn is_a_reservation_again(mut machine: Machine) {
        let key = machine.spawn();
        let (kind, growth) = (VmaKind::Anonymous, Growth::Fixed);
        let vma = Vma { start: START, end: page(5 * 512), kind, growth, advice: Advice::None };
        machine.map(key, vma);
        let fill = |machine: &mut Machine, pages: std::ops::Range<u64>| {
            pages.for_each(|index| {
                machine.touch(key, page(index), Content::Data).unwrap();
            });
            machine.check();
        };
        let footprint = |machine: &Machine| machine.process(key).unwrap().footprint();
        fill(&mut machine, 0..512);
        assert_eq!(footprint(&machine).huge, HugePages(1));
        machine.discard(key, page(0), page(100));
        machine.check();
        assert_eq!(
            (footprint(&machine).huge, footprint(&machine).base),
            (HugePages(0), BasePages(412))
        );
        assert_eq!(machine.physical().free_memory().free(), BasePages(3 * 512));
        fill(&mut machine, 0..100);
        assert_eq!(footprint(&machine).huge, HugePages(1), "filled again in its place");
        machine.discard(key, page(0), page(100));
        fill(&mut machine, 512..4 * 512 + 1);
        assert_eq!(machine.physical().free_memory().free(), BasePages(99));
        assert_eq!(
            (footprint(&machine).huge, footprint(&machine).base),
            (HugePages(3), BasePages(413))
        );
    }
}
