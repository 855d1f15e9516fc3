//! Virtual memory: processes, their VMAs, and page tables with three page sizes.
//!
//! A [`Process`] says what is mapped where; it takes no frames and gives none back. That, and
//! what a fault costs, is the machine's business ([`crate::machine`]).

pub(crate) mod slot;
mod tables;

use crate::physical::{Frame, Mover, Owner};
use slot::Slot;
use std::collections::BTreeMap;
use superpage_policy::promotion::Footprint;
use superpage_units::{
    BASE_PAGE_BYTES, BasePages, GIGANTIC_PAGE_BYTES, HUGE_PAGE_BYTES, HugePages, Mapping, Page,
    PageSize, PmdRange, ProcessKey, Share, VirtAddr, Vma,
};
use tables::{SLOTS, Tables};

/// A process's memory.
#[derive(Clone, Debug)]
pub struct Process {
    key: ProcessKey,
    /// The process that it comes from by forks, or itself.
    family: ProcessKey,
    vmas: Vec<Vma>,
    tables: Tables,
    /// What is mapped by each size, in pages of it.
    mapped: [u64; 3],
    /// The share of cycles spent on page walks lately.
    pub(crate) walk_share: Share,
    /// Its threads.
    pub(crate) threads: u32,
}

/// The index of a range in its table.
const fn slot_index(address: VirtAddr) -> usize {
    (address.0 % GIGANTIC_PAGE_BYTES / HUGE_PAGE_BYTES) as usize
}

/// The index of a base page in its range.
pub(crate) const fn page_index(address: VirtAddr) -> u16 {
    (address.0 % HUGE_PAGE_BYTES / BASE_PAGE_BYTES) as u16
}

impl Process {
    /// A process without memory.
    #[must_use]
    pub(crate) fn new(key: ProcessKey) -> Self {
        Self {
            key,
            family: key,
            vmas: Vec::new(),
            tables: Tables::default(),
            mapped: [0; 3],
            walk_share: Share::NONE,
            threads: 1,
        }
    }

    /// Its name.
    #[must_use]
    pub fn key(&self) -> ProcessKey {
        self.key
    }

    /// The process that it comes from by forks, itself if it was not forked. What is shared by its
    /// family lies at the same address in all of it.
    #[must_use]
    pub fn family(&self) -> ProcessKey {
        self.family
    }

    /// Maps all that it has mapped read-only; how many entries had to be written.
    pub(crate) fn protect(&mut self) -> u64 {
        self.tables.slots_mut().map(Slot::protect).sum()
    }

    /// A child that has mapped what it has, in the same frames.
    fn fork(&self, key: ProcessKey) -> Self {
        let mut child = Self { key, threads: 1, walk_share: Share::NONE, ..self.clone() };
        for slot in child.tables.slots_mut() {
            slot.is_accessed = false;
            slot.coverage = 0;
            if let Some(detail) = &mut slot.detail {
                detail.accessed = slot::PageSet::default();
            }
        }
        child
    }

    /// Its VMAs, in address order.
    #[must_use]
    pub fn vmas(&self) -> &[Vma] {
        &self.vmas
    }

    pub(crate) fn add_vma(&mut self, vma: Vma) {
        let at = self.vmas.partition_point(|other| other.start < vma.start);
        self.vmas.insert(at, vma);
    }

    /// Replaces its VMAs; they are in address order.
    pub(crate) fn set_vmas(&mut self, vmas: Vec<Vma>) {
        self.vmas = vmas;
    }

    pub(crate) fn vma_mut(&mut self, start: VirtAddr) -> Option<&mut Vma> {
        self.vmas.iter_mut().find(|vma| vma.start == start)
    }

    /// The VMA that an address lies in.
    #[must_use]
    pub fn vma_at(&self, address: VirtAddr) -> Option<Vma> {
        let after = self.vmas.partition_point(|vma| vma.start <= address);
        self.vmas.get(after.checked_sub(1)?).copied().filter(|vma| address < vma.end)
    }

    /// What it has mapped.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        Footprint {
            base: BasePages(self.mapped[0]),
            huge: HugePages(self.mapped[1]),
            gigantic: Some(self.mapped[2]),
            walk_share: Some(self.walk_share),
        }
    }

    /// Changes what is counted as mapped by pages of this size.
    pub(crate) fn count(&mut self, size: PageSize, more: u64, fewer: u64) {
        let mapped = &mut self.mapped[size.index()];
        *mapped = *mapped + more - fewer;
    }

    pub(crate) fn slot(&self, range: PmdRange) -> Option<&Slot> {
        let table = self.tables.get(range.start().0 / GIGANTIC_PAGE_BYTES)?;
        Some(&table[slot_index(range.start())])
    }

    pub(crate) fn slot_mut(&mut self, range: PmdRange) -> &mut Slot {
        let table = self.tables.make(range.start().0 / GIGANTIC_PAGE_BYTES);
        &mut table[slot_index(range.start())]
    }

    /// The slot of a range that may not exist, without making one.
    pub(crate) fn existing_slot_mut(&mut self, range: PmdRange) -> Option<&mut Slot> {
        let table = self.tables.get_mut(range.start().0 / GIGANTIC_PAGE_BYTES)?;
        Some(&mut table[slot_index(range.start())])
    }

    /// Whether nothing is mapped or reserved in this gigantic page's range.
    #[must_use]
    pub(crate) fn is_empty_gigantic(&self, page: Page) -> bool {
        self.tables.get(page.start().0 / GIGANTIC_PAGE_BYTES).is_none_or(|table| {
            table.iter().all(|slot| slot.mapping == Mapping::Empty && !slot.is_reserved)
        })
    }

    /// The slots with anything mapped, at or after `from`.
    pub(crate) fn mapped_slots(&self, from: VirtAddr) -> impl Iterator<Item = (PmdRange, &Slot)> {
        let first = from.0 / GIGANTIC_PAGE_BYTES;
        self.tables.from(first).flat_map(move |(number, table)| {
            let skip = if number == first { slot_index(from) } else { 0 };
            table
                .iter()
                .enumerate()
                .skip(skip)
                .filter(|(_, slot)| slot.mapping != Mapping::Empty)
                .map(move |(at, slot)| {
                    let start = number * GIGANTIC_PAGE_BYTES + at as u64 * HUGE_PAGE_BYTES;
                    (PmdRange::containing(VirtAddr(start)), slot)
                })
        })
    }

    /// Frames reserved for it that are not populated.
    pub(crate) fn unpopulated(&self) -> BasePages {
        let slots = self.tables.from(0).flat_map(|(_, table)| table.iter());
        let reserved = slots.filter(|slot| slot.is_reserved);
        reserved.map(|slot| PageSize::Huge.base_pages() - slot.populated()).sum()
    }

    /// What is in the backing store and not in memory.
    #[must_use]
    pub fn swapped(&self) -> BasePages {
        let slots = self.tables.from(0).flat_map(|(_, table)| table.iter());
        slots.map(|slot| BasePages(u64::from(slot.swapped().len()))).sum()
    }

    /// The ranges with base pages that hold data, in memory or in the backing store, each with
    /// how many there are in all ranges up to it.
    pub(crate) fn data(&self) -> Vec<(u64, PmdRange)> {
        let mut total = 0;
        let mut found = Vec::new();
        for (number, table) in self.tables.from(0) {
            for (at, slot) in table.iter().enumerate() {
                let pages = slot.data().len();
                if pages > 0 {
                    total += u64::from(pages);
                    let start = number * GIGANTIC_PAGE_BYTES + at as u64 * HUGE_PAGE_BYTES;
                    found.push((total, PmdRange::containing(VirtAddr(start))));
                }
            }
        }
        found
    }

    /// The base page with data in `range` that `before` others come before.
    pub(crate) fn data_page(&self, range: PmdRange, before: u32) -> Option<VirtAddr> {
        Some(range.base_page(self.slot(range)?.data().nth(before)?))
    }

    /// The first page at or after `from` that is mapped, in its size.
    pub(crate) fn next_page(&self, from: VirtAddr) -> Option<Page> {
        self.mapped_slots(from).find_map(|(range, slot)| match slot.mapping {
            Mapping::Empty => None,
            Mapping::Gigantic => Some(Page::containing(range.start(), PageSize::Gigantic)),
            Mapping::Huge => Some(range.into()),
            Mapping::Base => {
                let first = if range.start() < from { page_index(from) } else { 0 };
                let page = slot.detail.as_ref()?.present.next(first)?;
                Some(Page::containing(range.base_page(page), PageSize::Base))
            }
        })
    }

    /// Asserts that what is counted is what is mapped.
    ///
    /// # Panics
    /// If it is not.
    pub fn check(&self) {
        let mut mapped = [0; 3];
        let mut gigantic_slots = 0;
        for (range, slot) in self.mapped_slots(VirtAddr::default()) {
            match slot.mapping {
                Mapping::Empty => {}
                Mapping::Base => mapped[0] += u64::from(slot.present),
                Mapping::Huge => mapped[1] += 1,
                Mapping::Gigantic => gigantic_slots += 1,
            }
            assert_eq!(slot.present, slot.present().len(), "present of {range}");
            let protected = slot.protected();
            assert_eq!(protected.intersection(slot.present()), protected, "{range} is protected");
            assert!(!slot.is_reserved || protected.is_empty(), "{range} is reserved and shared");
            let absent = slot.stored().without(slot.present().intersection(slot.used()));
            assert_eq!(absent.len(), 0, "what is stored and mapped holds data: {range}");
            if slot.mapping == Mapping::Base {
                let detail = slot.detail.as_ref().expect("base pages have a detail");
                assert_ne!(slot.is_reserved, detail.frames.is_some(), "frames of {range}");
            }
        }
        mapped[2] = gigantic_slots / SLOTS as u64;
        assert_eq!(mapped, self.mapped, "what is counted is what is mapped");
    }

    /// Every frame it has, where it is mapped or reserved, and the size it was taken in.
    pub(crate) fn frames(&self) -> impl Iterator<Item = (VirtAddr, Frame, PageSize)> {
        self.slots().flat_map(|(range, slot)| slot.frames(range))
    }

    /// All slots that there are.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (PmdRange, &Slot)> {
        self.tables.from(0).flat_map(|(number, table)| {
            table.iter().enumerate().map(move |(at, slot)| {
                let start = number * GIGANTIC_PAGE_BYTES + at as u64 * HUGE_PAGE_BYTES;
                (PmdRange::containing(VirtAddr(start)), slot)
            })
        })
    }
}

/// The processes of a machine.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    keys: Vec<ProcessKey>,
    /// The number of the last one that was added.
    last: u64,
    processes: BTreeMap<ProcessKey, Process>,
}

impl Processes {
    /// Adds one; its key is higher than all before it.
    pub(crate) fn spawn(&mut self) -> ProcessKey {
        self.last += 1;
        let key = ProcessKey(self.last);
        self.keys.push(key);
        self.processes.insert(key, Process::new(key));
        key
    }

    /// Adds a child of one that is there.
    pub(crate) fn fork(&mut self, parent: ProcessKey) -> Option<ProcessKey> {
        let parent = self.processes.get(&parent)?;
        let key = ProcessKey(self.last + 1);
        let child = parent.fork(key);
        self.last = key.0;
        self.keys.push(key);
        self.processes.insert(key, child);
        Some(key)
    }

    /// Takes one out.
    pub(crate) fn remove(&mut self, key: ProcessKey) -> Option<Process> {
        self.keys.retain(|other| *other != key);
        self.processes.remove(&key)
    }

    /// Their keys, in the order of their creation.
    #[must_use]
    pub fn keys(&self) -> &[ProcessKey] {
        &self.keys
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, key: ProcessKey) -> Option<&Process> {
        self.processes.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: ProcessKey) -> Option<&mut Process> {
        self.processes.get_mut(&key)
    }

    /// The processes that come from `family` by forks, and itself.
    pub(crate) fn family(&self, family: ProcessKey) -> impl Iterator<Item = &Process> {
        self.iter().filter(move |process| process.family == family)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }
}

impl Mover for Processes {
    fn moved(&mut self, owner: Owner, from: Frame, to: Frame, size: PageSize) {
        match owner {
            Owner::Process(key, address) | Owner::Reserved(key, address) => {
                let process = self.processes.get_mut(&key);
                process.into_iter().for_each(|process| process.follow(address, from, to, size));
            }
            Owner::Shared(family, address) => {
                let members = self.processes.values_mut().filter(|p| p.family == family);
                members.for_each(|process| process.follow(address, from, to, size));
            }
            Owner::Unmovable | Owner::PageCache | Owner::Gigantic(..) => {}
        }
    }
}

impl Process {
    /// What it may have mapped of the page at `from` is at `to` now.
    fn follow(&mut self, address: VirtAddr, from: Frame, to: Frame, size: PageSize) {
        let Some(slot) = self.existing_slot_mut(PmdRange::containing(address)) else { return };
        match (size, slot.mapping) {
            (PageSize::Base, _) => {
                let page = page_index(address);
                if slot.is_present(page) && slot.frame_of(page) == from {
                    slot.detail().place(page, to);
                }
            }
            // The process shares a huge frame that it maps by base pages.
            (PageSize::Huge | PageSize::Gigantic, Mapping::Base) if !slot.is_reserved => {
                let pages = slot.in_place(from);
                let detail = slot.detail();
                pages.iter().for_each(|page| detail.place(page, to.offset(u64::from(page))));
            }
            (PageSize::Huge | PageSize::Gigantic, _) => {
                if slot.frame == from {
                    slot.frame = to;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy remembers processes by their keys, khugepaged where it was in one: a new process
    /// must not be taken for one that is gone.
    #[test]
    fn keys_of_processes_that_are_gone_are_not_used_again() {
        let mut processes = Processes::default();
        let [first, second] = [processes.spawn(), processes.spawn()];
        processes.remove(second);
        let child = processes.fork(first).expect("it is there");
        processes.remove(child);
        let last = processes.spawn();
        assert!(first < second && second < child && child < last);
        assert_eq!(processes.keys(), [first, last]);
    }
}
