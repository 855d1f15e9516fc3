//! Fork with copy-on-write, as Linux has it for anonymous memory.
//!
//! The child maps what its parent has mapped, both read-only. Whoever writes first takes a fault: of
//! a shared base page it gets a copy; a shared huge page it maps by base pages from then on, and gets
//! a copy of one of them (`do_huge_pmd_wp_page()` in mm/huge_memory.c), while the others keep the
//! huge page. A page that nobody shares any more is just made writable. What is in swap is in swap
//! for both.
//!
//! Deviations:
//! - A gigantic page is mapped by huge pages first: Linux has none of anonymous memory, and the papers
//!   with gigantic pages do not say what a fork does to them.
//! - A reservation is split, with its base pages left in place. FreeBSD would keep it for the object
//!   that both shadow.
//! - What two read from swap after a fork is two pages; Linux finds the second in the swap cache.
//! - Memory of mapped files and of pools is not copied by a fork but shared; such a machine has none.

use super::work::Work;
use super::{Backing, Machine, OutOfMemory};
use crate::physical::Owner;
use crate::virtual_memory::page_index;
use superpage_units::{BasePages, Mapping, Page, PageSize, PmdRange, ProcessKey, VirtAddr};

impl Machine {
    /// Forks a process: its child, and what it took. `None` if there is no such process, or its
    /// memory is that of a mapped file.
    pub fn fork(&mut self, parent: ProcessKey) -> Option<(ProcessKey, Work)> {
        let mut work = Work::default();
        if self.pools.is_some() || self.backing == Backing::File {
            return None;
        }
        self.make_sharable(parent, &mut work)?;
        let process = self.processes.get_mut(parent)?;
        let family = process.family();
        work.entries += process.protect();
        work.shootdowns += self.threads(parent);
        let child = self.processes.fork(parent)?;
        // PmdRange by range: all frames at once would need more memory than the machine's own tables.
        let mapped = self.processes.get(child)?.mapped_slots(VirtAddr::default());
        for range in mapped.map(|(range, _)| range).collect::<Vec<PmdRange>>() {
            work.entries += self.share_range(child, family, range);
        }
        self.inherit(parent, child);
        self.counts.forks += 1;
        Some((child, work))
    }

    /// The child's memory is given back lazily where its parent's was, and what was split stays so.
    fn inherit(&mut self, parent: ProcessKey, child: ProcessKey) {
        let of =
            |(key, range): &(ProcessKey, PmdRange)| (*key == parent).then_some((child, *range));
        let lazily: Vec<_> = self.partly_unmapped.iter().filter_map(of).collect();
        self.partly_unmapped.extend(lazily);
        let split: Vec<_> = self.split.iter().filter_map(of).collect();
        self.split.extend(split);
    }

    /// Gives what a child has mapped in a range to its family; how many pages that is.
    fn share_range(&mut self, child: ProcessKey, family: ProcessKey, range: PmdRange) -> u64 {
        let slot = self.processes.get(child).and_then(|process| process.slot(range));
        let frames: Vec<_> = slot.map(|slot| slot.frames(range)).unwrap_or_default();
        for (address, frame, size) in &frames {
            if self.family_sharing(*frame).is_none() {
                self.physical.reown(*frame, *size, Owner::Shared(family, *address));
            }
        }
        frames.len() as u64
    }

    /// Leaves only base and huge pages of a process.
    fn make_sharable(&mut self, key: ProcessKey, work: &mut Work) -> Option<()> {
        let process = self.processes.get(key)?;
        let of = |wanted: fn(&crate::virtual_memory::slot::Slot) -> bool| {
            let slots = process.slots().filter(move |(_, slot)| wanted(slot));
            slots.map(|(range, _)| range).collect::<Vec<PmdRange>>()
        };
        let gigantic = of(|slot| slot.mapping == Mapping::Gigantic);
        let reserved = of(|slot| slot.is_reserved);
        for range in gigantic {
            let page = Page::containing(range.start(), PageSize::Gigantic);
            if page.start() == range.start() {
                self.split_gigantic(key, page, work);
            }
        }
        for range in reserved {
            self.unreserve(key, range, work);
        }
        Some(())
    }

    /// Serves a write to a page that is mapped read-only: the size of the page that maps it now.
    /// `None` if it went away while memory for a copy was sought.
    ///
    /// # Errors
    /// [`OutOfMemory`] if no memory could be found for it.
    pub(super) fn write_fault(
        &mut self,
        key: ProcessKey,
        address: VirtAddr,
        work: &mut Work,
    ) -> Result<Option<PageSize>, OutOfMemory> {
        let range = PmdRange::containing(address);
        self.wake_kswapd();
        let slot = self.processes.get(key).and_then(|process| process.slot(range));
        let Some(slot) = slot.filter(|slot| slot.is_read_only(page_index(address))) else {
            return Ok(None);
        };
        let is_shared = self.is_shared_huge(slot);
        let size = match slot.mapping {
            Mapping::Huge | Mapping::Gigantic if !is_shared => {
                self.make_writable(key, range);
                work.entries += 1;
                Some(PageSize::Huge)
            }
            mapping => {
                if mapping == Mapping::Huge {
                    self.demote(key, range, work);
                }
                self.copy_on_write(key, address, work)?.then_some(PageSize::Base)
            }
        };
        if let Some(size) = size {
            work.faults[size.index()] += 1;
        }
        Ok(size)
    }

    fn make_writable(&mut self, key: ProcessKey, range: PmdRange) {
        if let Some(process) = self.processes.get_mut(key) {
            process.slot_mut(range).is_protected = false;
        }
    }

    /// Gives a process a copy of a base page, unless nobody else has it; `false` if the page went
    /// away while memory was sought.
    fn copy_on_write(
        &mut self,
        key: ProcessKey,
        address: VirtAddr,
        work: &mut Work,
    ) -> Result<bool, OutOfMemory> {
        let out = OutOfMemory { process: key };
        let (range, page) = (PmdRange::containing(address), page_index(address));
        let start = range.base_page(page);
        let is_shared = |machine: &Self| {
            let slot = machine.processes.get(key).and_then(|process| process.slot(range))?;
            let is_protected = slot.mapping == Mapping::Base && slot.is_read_only(page);
            is_protected.then(|| machine.family_sharing(slot.frame_of(page)).is_some())
        };
        let taken = match is_shared(self) {
            Some(true) => {
                let owner = Owner::Process(key, start);
                self.with_policy(|machine, policy| machine.take_base(owner, policy, work))
                    .flatten()
                    .ok_or(out)?
            }
            Some(false) => {
                self.processes
                    .get_mut(key)
                    .ok_or(out)?
                    .slot_mut(range)
                    .detail()
                    .protected
                    .remove(page);
                work.entries += 1;
                return Ok(true);
            }
            None => return Ok(false),
        };
        if is_shared(self) != Some(true) {
            self.give(taken.frame, PageSize::Base);
            return Ok(false);
        }
        let slot = self.processes.get_mut(key).ok_or(out)?.slot_mut(range);
        let old = slot.frame_of(page);
        let detail = slot.detail();
        detail.place(page, taken.frame);
        detail.protected.remove(page);
        self.put(key, start, (old, PageSize::Base), None);
        work.copied += BasePages(1);
        work.entries += 1;
        work.shootdowns += self.threads(key);
        self.counts.copied_on_write += BasePages(1);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Content, Served, Setup};
    use superpage_policy::compaction::Compaction;
    use superpage_policy::debloat::emd::{self, Emd};
    use superpage_policy::promotion::hugetlb::{self, Hugetlb};
    use superpage_policy::promotion::linux::{Linux, Options};
    use superpage_policy::promotion::quicksilver::{self, Quicksilver};
    use superpage_policy::promotion::{Act, Action, Batching, Cause, How, Outcome, Policy, View};
    use superpage_units::{Advice, Bytes, Growth, HugePages, Vma, VmaKind};

    /// A gigantic page's border.
    const START: VirtAddr = VirtAddr(4 << 30);

    fn address(page: u64) -> VirtAddr {
        START.offset(BasePages(page).bytes())
    }

    fn range(at: u64) -> PmdRange {
        PmdRange::containing(address(at * 512))
    }

    /// A parent that has written its first `pages` base pages.
    fn parent(
        policy: Box<dyn Policy>,
        backing: Backing,
        memory: Bytes,
        pages: u64,
    ) -> (Machine, ProcessKey) {
        let setup = Setup { memory, pools: None, backing, seed: 1 };
        let mut machine = Machine::new(setup, policy);
        let key = machine.spawn();
        let (kind, growth) = (VmaKind::Anonymous, Growth::Fixed);
        let end = START.offset(memory);
        machine.map(key, Vma { start: START, end, kind, growth, advice: Advice::None });
        (0..pages).for_each(|page| _ = write(&mut machine, key, page));
        (machine, key)
    }

    fn on_linux(options: Options, pages: u64) -> (Machine, ProcessKey) {
        let memory = Bytes::from_mib(16);
        parent(Box::new(Linux::new(options)), Backing::Swap, memory, pages)
    }

    #[track_caller]
    fn write(machine: &mut Machine, key: ProcessKey, page: u64) -> Work {
        match machine.touch(key, address(page), Content::Data).unwrap() {
            Served::Mapped(_) => Work::default(),
            Served::Fault { work, .. } => work,
        }
    }

    fn fork(machine: &mut Machine, key: ProcessKey) -> (ProcessKey, Work) {
        let forked = machine.fork(key).unwrap();
        machine.check();
        forked
    }

    fn act(machine: &mut Machine, act: Act) -> (Outcome, Work) {
        let mut work = Work::default();
        let outcome = machine.apply(&Action { act, cause: Cause::Clock }, &mut work);
        machine.check();
        (outcome, work)
    }

    fn promote(process: ProcessKey, page: Page, how: How) -> Act {
        Act::Promote { process, page, how }
    }

    fn evict(process: ProcessKey, page: u64, size: PageSize) -> Act {
        Act::Evict { process, page: Page::containing(address(page), size) }
    }

    fn footprint(machine: &Machine, key: ProcessKey) -> (u64, u64) {
        let footprint = machine.process(key).unwrap().footprint();
        (footprint.base.0, footprint.huge.0)
    }

    #[test]
    fn a_fork_costs_entries_and_a_write_a_page() {
        let (mut machine, key) = on_linux(Options::NEVER, 100);
        machine.set_threads(key, 4);
        let (child, work) = fork(&mut machine, key);
        // A hundred entries of the parent's made read-only, as many of the child's; other CPUs once.
        assert_eq!((work.entries, work.shootdowns, work.copied), (200, 4, BasePages::ZERO));
        assert_eq!(machine.used(), BasePages(100));
        // Reading needs nothing; the first write a copy, the second nothing.
        let read = machine.touch(child, address(3), Content::Zeroes).unwrap();
        assert_eq!(read, Served::Mapped(PageSize::Base));
        let copied = write(&mut machine, key, 3);
        assert_eq!(
            (copied.faults, copied.copied, copied.zeroed),
            ([1, 0, 0], BasePages(1), BasePages(0))
        );
        assert_eq!((copied.entries, copied.shootdowns), (1, 4));
        assert_eq!(write(&mut machine, key, 3), Work::default());
        // The child has the page alone now: it is made writable.
        let alone = write(&mut machine, child, 3);
        assert_eq!((alone.faults, alone.copied, alone.entries), ([1, 0, 0], BasePages(0), 1));
        machine.check();
        assert_eq!(machine.used(), BasePages(101));
        assert_eq!(machine.counts().copied_on_write, BasePages(1));
        // What is new to one is nobody else's.
        write(&mut machine, child, 200);
        assert!(machine.holds_data(child, address(200)) && !machine.holds_data(key, address(200)));
        machine.exit(key);
        machine.check();
        assert_eq!(machine.used(), BasePages(101));
        machine.exit(child);
        assert_eq!(machine.used(), BasePages::ZERO);
    }

    #[test]
    fn a_shared_huge_page_is_split_for_the_writer_alone() {
        let (mut machine, key) = on_linux(Options::NO_KHUGEPAGED, 1024);
        let (child, work) = fork(&mut machine, key);
        assert_eq!(work.entries, 4);
        let first = write(&mut machine, key, 5);
        assert_eq!((first.faults, first.copied), ([1, 0, 0], BasePages(1)));
        assert_eq!(first.entries, 512 + 1);
        assert_eq!(write(&mut machine, key, 6).entries, 1);
        machine.check();
        assert_eq!((footprint(&machine, key), footprint(&machine, child)), ((512, 1), (0, 2)));
        assert_eq!(machine.used(), BasePages(1024 + 2));
        // The frame is whole while the child has it; then what the parent copied is free.
        machine.exit(child);
        machine.check();
        assert_eq!(machine.used(), BasePages(1024));
        // The other one is the parent's alone, and stays whole.
        let reused = write(&mut machine, key, 512);
        assert_eq!((reused.faults, reused.copied), ([0, 1, 0], BasePages::ZERO));
        assert_eq!(footprint(&machine, key), (512, 1));
        assert_eq!(write(&mut machine, key, 7).copied, BasePages::ZERO);
        machine.check();
    }

    #[test]
    fn the_last_one_left_has_a_huge_page_for_itself() {
        let (mut machine, key) = on_linux(Options::NO_KHUGEPAGED, 512);
        let (child, _) = fork(&mut machine, key);
        let (grandchild, _) = fork(&mut machine, child);
        write(&mut machine, child, 9);
        machine.exit(key);
        machine.check();
        machine.exit(child);
        machine.check();
        assert_eq!(machine.used(), BasePages(512));
        assert_eq!(write(&mut machine, grandchild, 9).faults, [0, 1, 0]);
        machine.check();
    }

    #[test]
    fn zeroes_stay_zeroes_on_both_sides() {
        let (mut machine, key) = on_linux(Options::NO_KHUGEPAGED, 10);
        let (child, _) = fork(&mut machine, key);
        assert_eq!(machine.bloat(child), BasePages(502));
        write(&mut machine, key, 20);
        assert!(machine.holds_data(key, address(20)) && !machine.holds_data(child, address(20)));
        assert!(!machine.holds_data(key, address(30)));
        assert_eq!(machine.bloat(child), BasePages(502));
    }

    /// The kernel does nothing to a shared huge page, and a pass comes to its end.
    #[test]
    fn bloat_of_shared_huge_pages_is_left_alone() {
        let (mut machine, key) = on_linux(Options::NO_KHUGEPAGED, 1);
        write(&mut machine, key, 512);
        let (child, _) = fork(&mut machine, key);
        write(&mut machine, child, 1024);
        let free = |machine: &mut Machine| {
            let mut policy = Emd::new(emd::Options::default());
            let (need, mut work) = (BasePages(5000), Work::default());
            let freed = machine.debloat(&mut policy, &[key, child], need, &mut work);
            machine.check();
            freed
        };
        assert_eq!(free(&mut machine), BasePages(511));
        machine.exit(child);
        assert_eq!(free(&mut machine), BasePages(2 * 511));
    }

    #[test]
    fn khugepaged_leaves_ranges_of_which_more_than_half_is_shared() {
        for (unshared, expected) in [(255, 0), (256, 1)] {
            let (mut machine, key) = on_linux(Options::NEVER, 512);
            fork(&mut machine, key);
            (0..unshared).for_each(|page| _ = write(&mut machine, key, page));
            assert_eq!(machine.range(key, range(0)).shared, BasePages(512 - unshared));
            machine.change_policy(Box::new(Linux::new(Options::ALWAYS)));
            while let crate::machine::Stepped::Worked(_) = machine.step() {}
            machine.check();
            assert_eq!(footprint(&machine, key).1, expected, "{unshared}");
        }
    }

    /// A collapse copies what is shared, and leaves it to the other.
    #[test]
    fn promotion_copies_shared_pages() {
        let (mut machine, key) = on_linux(Options::NEVER, 512);
        let (child, _) = fork(&mut machine, key);
        let (outcome, work) = act(&mut machine, promote(key, range(0).into(), How::Copy(None)));
        assert_eq!((outcome, work.copied), (Outcome::Done, BasePages(512)));
        assert_eq!((footprint(&machine, key), footprint(&machine, child)), ((0, 1), (512, 0)));
        assert_eq!(write(&mut machine, key, 3), Work::default());
        assert_eq!(write(&mut machine, child, 3).copied, BasePages::ZERO);
    }

    #[test]
    fn what_others_map_is_not_exchanged() {
        let memory = Bytes::from_gib(2);
        let linux = Linux::new(Options::NO_KHUGEPAGED);
        let (mut machine, key) = parent(Box::new(linux), Backing::None, memory, 1024);
        let gigantic = Page::containing(START, PageSize::Gigantic);
        fork(&mut machine, key);
        write(&mut machine, key, 1024);
        let exchange = promote(key, gigantic, How::Exchange(Batching::Whole, None));
        let (outcome, work) = act(&mut machine, exchange);
        assert_eq!((outcome, work.exchanged, work.copied), (Outcome::Done, 1, BasePages(1024)));
    }

    #[test]
    fn a_fork_breaks_gigantic_pages_and_reservations() {
        let gigantic = Hugetlb::new(hugetlb::Options::GIGANTIC);
        let (mut machine, key) = parent(Box::new(gigantic), Backing::None, Bytes::from_gib(1), 1);
        let (child, work) = fork(&mut machine, key);
        assert_eq!(work.entries, 512 * 3);
        assert_eq!((footprint(&machine, key), footprint(&machine, child)), ((0, 512), (0, 512)));
        let policy = Quicksilver::new(quicksilver::Options::SYNC_64);
        let (mut machine, key) = parent(Box::new(policy), Backing::None, Bytes::from_mib(4), 10);
        assert_eq!(machine.used(), BasePages(512));
        let (child, _) = fork(&mut machine, key);
        assert_eq!((machine.used(), footprint(&machine, child)), (BasePages(10), (10, 0)));
    }

    #[test]
    fn compaction_moves_what_is_shared_for_all() {
        for kind in [Compaction::Sequential, Compaction::Smart] {
            let (mut machine, key) = on_linux(Options::NO_KHUGEPAGED, 1024);
            machine.change_policy(Box::new(Linux::new(Options::NEVER)));
            (1024..1040).for_each(|page| _ = write(&mut machine, key, page));
            let (child, _) = fork(&mut machine, key);
            // Of the first huge page the parent has all but one in place, of the second the child.
            write(&mut machine, key, 5);
            write(&mut machine, child, 600);
            for _ in 0..6 {
                act(&mut machine, Act::Compact(PageSize::Huge, kind));
            }
            assert_eq!(
                (footprint(&machine, key), footprint(&machine, child)),
                ((528, 1), (528, 1))
            );
        }
    }

    #[test]
    fn eviction_takes_a_page_from_all_that_map_it() {
        let (mut machine, key) = on_linux(Options::NEVER, 10);
        let (child, _) = fork(&mut machine, key);
        let (outcome, work) = act(&mut machine, evict(key, 4, PageSize::Base));
        assert_eq!((outcome, work.writes.pages), (Outcome::Done, BasePages(1)));
        assert_eq!((footprint(&machine, key), footprint(&machine, child)), ((9, 0), (9, 0)));
        assert_eq!(machine.used(), BasePages(9));
        // Each reads its own.
        for process in [key, child] {
            assert_eq!(write(&mut machine, process, 4).reads.pages, BasePages(1));
        }
        assert_eq!(machine.used(), BasePages(11));
        machine.check();
    }

    #[test]
    fn eviction_of_a_huge_page_takes_its_parts_too() {
        let (mut machine, key) = on_linux(Options::NO_KHUGEPAGED, 512);
        let (child, _) = fork(&mut machine, key);
        write(&mut machine, key, 5);
        let (outcome, work) = act(&mut machine, evict(child, 0, PageSize::Huge));
        assert_eq!((outcome, work.writes.pages), (Outcome::Done, BasePages(512)));
        assert_eq!(machine.used(), BasePages(1));
        assert!(machine.holds_data(child, address(5)) && machine.holds_data(key, address(6)));
        // The same, one base page at a time.
        let (mut machine, key) = on_linux(Options::NO_KHUGEPAGED, 512);
        let (child, _) = fork(&mut machine, key);
        write(&mut machine, key, 5);
        act(&mut machine, evict(key, 8, PageSize::Base));
        assert_eq!((footprint(&machine, key), footprint(&machine, child)), ((511, 0), (511, 0)));
        assert_eq!(machine.used(), BasePages(512));
    }

    /// The page that is written to may be what is given up for its own copy.
    #[test]
    fn copies_find_room_or_say_that_there_is_none() {
        let pages = Bytes::from_mib(16).to_base_pages().0;
        let (mut machine, key) = on_linux(Options::NEVER, pages);
        let (child, _) = fork(&mut machine, key);
        for page in (0..pages).step_by(97) {
            write(&mut machine, child, page);
            assert!(machine.holds_data(key, address(page)));
        }
        machine.check();
        let memory = Bytes::from_mib(2);
        let (mut machine, key) =
            parent(Box::new(Linux::new(Options::NEVER)), Backing::None, memory, 512);
        fork(&mut machine, key);
        assert_eq!(machine.touch(key, START, Content::Data), Err(OutOfMemory { process: key }));
        machine.check();
        assert_eq!(machine.process(key).unwrap().footprint().total(), HugePages(1).base_pages());
    }

    #[test]
    fn mapped_files_are_not_forked() {
        let linux = Box::new(Linux::new(Options::NEVER));
        let (mut machine, key) = parent(linux, Backing::File, Bytes::from_mib(2), 1);
        assert_eq!(machine.fork(key), None);
        assert_eq!(machine.fork(ProcessKey(9)), None);
    }
}
