//! What is known of real processes: what their page tables said at the last survey. Policies see it
//! through [`super::machine`].
//!
//! Where the kernel says less than a simulated machine does:
//! - Accesses cannot be seen, nor what a process spends on page walks.
//! - What a range shares with other processes is looked at when it is promoted, not before.
//! - Shared memory without a file counts as anonymous.

use super::runs::Runs;
use crate::process::{Memory, PromotableVma, Survey};
use std::collections::BTreeMap;
use superpage_kernel::pagemap::{Found, Survey as Seen};
use superpage_policy::free_memory::FreeMemory;
use superpage_policy::promotion::{Fault, Footprint, RangeView, View};
use superpage_units::{
    Advice, BasePages, Growth, HugePages, Mapping, PageSize, PmdRange, ProcessKey, Time, VirtAddr,
    Vma, VmaKind,
};

/// The processes under one policy, each as it was surveyed last.
#[derive(Clone, Debug)]
pub struct Snapshot {
    now: Time,
    free: FreeMemory,
    keys: Vec<ProcessKey>,
    processes: BTreeMap<ProcessKey, Mapped>,
}

/// What is mapped in a process.
#[derive(Clone, Debug, Default)]
struct Mapped {
    vmas: Vec<Vma>,
    /// Of each of those.
    memory: Vec<Memory>,
    /// What is mapped by base pages.
    base: BTreeMap<PmdRange, Counts>,
    /// Huge pages.
    huge: Runs,
    footprint: Footprint,
}

/// What was seen of a PMD range that is mapped by base pages, in a quarter of [`Seen`]'s size.
#[derive(Clone, Copy, Debug)]
struct Counts {
    present: u16,
    swapped: u16,
    zero_pages: u16,
}

impl From<Seen> for Counts {
    fn from(seen: Seen) -> Self {
        // A PMD range has 512 base pages.
        let count = |pages: BasePages| u16::try_from(pages.0).unwrap_or(u16::MAX);
        Self {
            present: count(seen.present),
            swapped: count(seen.swapped),
            zero_pages: count(seen.zero_pages),
        }
    }
}

impl From<Counts> for Seen {
    fn from(counts: Counts) -> Self {
        let [present, swapped, zero_pages] = [counts.present, counts.swapped, counts.zero_pages]
            .map(|count| BasePages(count.into()));
        Self { is_huge: false, present, swapped, zero_pages }
    }
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            now: Time::ZERO,
            free: FreeMemory::NONE,
            keys: Vec::new(),
            processes: BTreeMap::new(),
        }
    }
}

impl Snapshot {
    /// Sets the time.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Takes in what memory is free.
    pub fn set_free(&mut self, free: FreeMemory) {
        self.free = free;
    }

    /// Adds a process, of which nothing is known yet.
    pub fn add(&mut self, key: ProcessKey) {
        self.processes.entry(key).or_default();
        self.keys = self.processes.keys().copied().collect();
    }

    /// Takes a process out.
    pub fn remove(&mut self, key: ProcessKey) {
        self.processes.remove(&key);
        self.keys = self.processes.keys().copied().collect();
    }

    /// Whether there is no process.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Takes in what a survey found, in place of what was known of the process.
    pub fn take_in(&mut self, key: ProcessKey, survey: &Survey) {
        let Some(before) = self.processes.get(&key) else { return };
        let mut mapped = Mapped {
            vmas: survey.vmas.iter().map(|vma| before.vma(vma)).collect(),
            memory: survey.vmas.iter().map(|vma| vma.memory).collect(),
            ..Mapped::default()
        };
        for found in &survey.found {
            if let Found::Huge(first, count) = *found {
                mapped.add_huge(first, count);
            }
        }
        // Collected, because a tree that is made of sorted items at once is full, and one that grows by them half full.
        let base = survey.found.iter().filter_map(|found| match *found {
            Found::Base(range, seen) if mapped.touches(range.start(), range.end()) => {
                Some((range, seen.into()))
            }
            _ => None,
        });
        mapped.base = base.collect();
        let present = mapped.base.values().map(|seen: &Counts| u64::from(seen.present)).sum();
        mapped.footprint.base = BasePages(present);
        self.processes.insert(key, mapped);
    }

    /// A PMD range became a huge page since the survey.
    pub fn set_huge(&mut self, key: ProcessKey, range: PmdRange) {
        let Some(mapped) = self.processes.get_mut(&key) else { return };
        if let Some(seen) = mapped.base.remove(&range) {
            let present = BasePages(seen.present.into());
            mapped.footprint.base = mapped.footprint.base.saturating_sub(present);
        }
        mapped.huge.insert(range);
        mapped.footprint.huge += HugePages(1);
    }

    /// The PMD ranges that are mapped by base pages, with what was seen of each.
    pub fn base_mapped(&self, key: ProcessKey) -> impl Iterator<Item = (PmdRange, Seen)> {
        let mapped = self.processes.get(&key).into_iter();
        mapped.flat_map(|mapped| mapped.base.iter().map(|(range, seen)| (*range, (*seen).into())))
    }

    /// What was seen of a PMD range that is mapped by base pages.
    #[must_use]
    pub fn seen(&self, key: ProcessKey, range: PmdRange) -> Option<Seen> {
        self.processes.get(&key)?.base.get(&range).map(|seen| (*seen).into())
    }

    /// How many VMAs and PMD ranges with base pages are known of all processes, and of one of them.
    #[must_use]
    pub fn known(&self, key: ProcessKey) -> (usize, usize) {
        let known = |mapped: &Mapped| mapped.vmas.len() + mapped.base.len();
        let of_one = self.processes.get(&key).map_or(0, known);
        (self.processes.values().map(known).sum(), of_one)
    }

    /// Whether anything was mapped in a PMD range.
    #[must_use]
    pub fn is_mapped(&self, key: ProcessKey, range: PmdRange) -> bool {
        self.range(key, range).mapping != Mapping::Empty
            || self.seen(key, range).is_some_and(|seen| !seen.zero_pages.is_zero())
    }

    /// What kind of memory a PMD range is.
    #[must_use]
    pub fn memory(&self, key: ProcessKey, range: PmdRange) -> Memory {
        let mapped = self.processes.get(&key);
        let memory = mapped.and_then(|mapped| mapped.memory.get(mapped.index(range.start())?));
        memory.copied().unwrap_or(Memory::Private)
    }

    /// A PMD range as a policy would have heard of it, if the last of its pages had just been
    /// touched and the fault not been served yet; `None` where nothing can be promoted.
    #[must_use]
    pub fn fault(&self, process: ProcessKey, range: PmdRange) -> Option<Fault> {
        let mapped = self.processes.get(&process)?;
        let seen = Seen::from(*mapped.base.get(&range)?);
        // A heap may begin or end in the middle of a range.
        let vma = [range.start(), VirtAddr(range.end().0 - 1)]
            .into_iter()
            .find_map(|address| mapped.vmas.get(mapped.index(address)?))
            .copied()?;
        if seen.present.is_zero() {
            return None;
        }
        let before = Seen { present: seen.present.saturating_sub(BasePages(1)), ..seen };
        Some(Fault {
            process,
            address: range.start().max(vma.start),
            vma,
            range: RangeView {
                // Beyond the end of a VMA that does not grow no huge page will ever be.
                is_reserved: !before.present.is_zero()
                    && (vma.holds(range.into()) || vma.growth == Growth::Up),
                ..range_view(&before)
            },
            gigantic_is_empty: None,
        })
    }
}

impl Mapped {
    /// A VMA as policies see it.
    fn vma(&self, vma: &PromotableVma) -> Vma {
        let before = self.index(vma.start).and_then(|index| self.vmas.get(index));
        let same = before.filter(|before| before.start == vma.start);
        let has_grown = same.is_some_and(|b| b.growth == Growth::Up || b.end < vma.end);
        Vma {
            start: vma.start,
            end: vma.end,
            kind: VmaKind::Anonymous,
            growth: if vma.is_heap || has_grown { Growth::Up } else { Growth::Fixed },
            advice: Advice::None,
        }
    }

    /// Which of the VMAs an address lies in.
    fn index(&self, address: VirtAddr) -> Option<usize> {
        let index = self.vmas.partition_point(|vma| vma.end <= address);
        self.vmas.get(index).filter(|vma| vma.start <= address).map(|_| index)
    }

    /// Whether some of these addresses lie in a VMA.
    fn touches(&self, start: VirtAddr, end: VirtAddr) -> bool {
        let index = self.vmas.partition_point(|vma| vma.end <= start);
        self.vmas.get(index).is_some_and(|vma| vma.start < end)
    }

    fn add_huge(&mut self, first: PmdRange, count: HugePages) {
        let end = first.start().offset(count.bytes());
        // A file's huge pages may lie in a hole between two VMAs.
        if self.index(first.start()) == self.index(VirtAddr(end.0 - 1)) {
            if self.index(first.start()).is_some() {
                self.footprint.huge += count;
                self.huge.push(first, count);
            }
            return;
        }
        for range in PmdRange::within(first.start(), end) {
            if self.index(range.start()).is_some() {
                self.footprint.huge += HugePages(1);
                self.huge.push(range, HugePages(1));
            }
        }
    }

    /// The first PMD range at or after `from` with anything mapped in it.
    fn next(&self, from: PmdRange) -> Option<PmdRange> {
        let huge = self.huge.next(from);
        if huge == Some(from) {
            return huge;
        }
        // Where only the shared zero page is mapped, nothing is present.
        let base = self.base.range(from..).find(|(_, seen)| seen.present > 0);
        base.map(|(range, _)| *range).into_iter().chain(huge).min()
    }
}

fn range_view(seen: &Seen) -> RangeView {
    let mapping = if seen.present.is_zero() { Mapping::Empty } else { Mapping::Base };
    RangeView { mapping, present: seen.present, swapped: seen.swapped, ..RangeView::default() }
}

impl View for Snapshot {
    fn now(&self) -> Time {
        self.now
    }

    fn free_memory(&self) -> &FreeMemory {
        &self.free
    }

    fn processes(&self) -> &[ProcessKey] {
        &self.keys
    }

    fn footprint(&self, process: ProcessKey) -> Footprint {
        self.processes.get(&process).map(|mapped| mapped.footprint).unwrap_or_default()
    }

    fn vmas(&self, process: ProcessKey) -> &[Vma] {
        self.processes.get(&process).map_or(&[], |mapped| &mapped.vmas)
    }

    fn range(&self, process: ProcessKey, range: PmdRange) -> RangeView {
        let Some(mapped) = self.processes.get(&process) else { return RangeView::default() };
        if mapped.huge.contains(range) {
            let present = PageSize::Huge.base_pages();
            return RangeView { mapping: Mapping::Huge, present, ..RangeView::default() };
        }
        mapped.base.get(&range).map(|seen| range_view(&(*seen).into())).unwrap_or_default()
    }

    fn next_mapped(&self, process: ProcessKey, from: VirtAddr) -> Option<PmdRange> {
        // The first range that begins at or after it, or that it lies in.
        self.processes.get(&process)?.next(PmdRange::containing(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::HUGE_PAGE_BYTES;

    const KEY: ProcessKey = ProcessKey(1);

    fn range(index: u64) -> PmdRange {
        PmdRange::containing(VirtAddr(index * HUGE_PAGE_BYTES))
    }

    fn vma(start: u64, end: u64) -> PromotableVma {
        let [start, end] = [start, end].map(|index| VirtAddr(index * HUGE_PAGE_BYTES));
        PromotableVma { start, end, memory: Memory::Private, is_heap: false }
    }

    fn base(index: u64, present: u64) -> Found {
        let present = BasePages(present);
        Found::Base(range(index), Seen { present, ..Seen::default() })
    }

    fn snapshot(vmas: Vec<PromotableVma>, found: Vec<Found>) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.add(KEY);
        snapshot.take_in(KEY, &Survey { vmas, found, part: None, is_late: false });
        snapshot
    }

    #[test]
    fn ranges_come_in_address_order_whatever_maps_them() {
        let found = vec![base(1, 9), Found::Huge(range(3), HugePages(2)), base(7, 512)];
        let snapshot = snapshot(vec![vma(1, 5), vma(7, 9)], found);
        let all = std::iter::successors(snapshot.next_mapped(KEY, VirtAddr(0)), |range| {
            snapshot.next_mapped(KEY, range.end())
        });
        let all: Vec<PmdRange> = all.collect();
        assert_eq!(all, [1, 3, 4, 7].map(range));
        let mapping = |index| snapshot.range(KEY, range(index)).mapping;
        assert_eq!(
            [1, 2, 3, 4, 5].map(mapping),
            [Mapping::Base, Mapping::Empty, Mapping::Huge, Mapping::Huge, Mapping::Empty]
        );
        let footprint = snapshot.footprint(KEY);
        assert_eq!((footprint.base, footprint.huge), (BasePages(521), HugePages(2)));
    }

    #[test]
    fn huge_pages_between_two_vmas_are_somebody_elses() {
        let found = vec![Found::Huge(range(1), HugePages(4)), base(6, 3)];
        let snapshot = snapshot(vec![vma(1, 2), vma(4, 5)], found);
        let mapping = |index| snapshot.range(KEY, range(index)).mapping == Mapping::Huge;
        assert_eq!([1, 2, 3, 4].map(mapping), [true, false, false, true]);
        assert!(!snapshot.is_mapped(KEY, range(6)));
    }

    #[test]
    fn a_range_is_told_as_it_was_before_its_last_page() {
        let mut snapshot = snapshot(vec![vma(1, 3)], vec![base(1, 9)]);
        let fault = snapshot.fault(KEY, range(1)).expect("it is mapped");
        assert_eq!((fault.range.present, fault.range.mapping), (BasePages(8), Mapping::Base));
        assert!(fault.range.is_reserved && fault.vma.holds(range(1).into()));
        assert!(snapshot.fault(KEY, range(2)).is_none(), "nothing is there");
        snapshot.set_huge(KEY, range(1));
        assert!(snapshot.fault(KEY, range(1)).is_none(), "it is huge");
        assert_eq!(snapshot.footprint(KEY).base, BasePages::ZERO);
    }

    #[test]
    fn a_vma_that_became_longer_grows() {
        let mut snapshot = snapshot(vec![vma(1, 2)], Vec::new());
        assert_eq!(snapshot.vmas(KEY)[0].growth, Growth::Fixed);
        for _ in 0..2 {
            snapshot.take_in(KEY, &Survey { vmas: vec![vma(1, 3)], ..Survey::default() });
            assert_eq!(snapshot.vmas(KEY)[0].growth, Growth::Up);
        }
    }
}
