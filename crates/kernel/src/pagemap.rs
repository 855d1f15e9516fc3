//! What is mapped where in a process: the `PAGEMAP_SCAN` ioctl and the entries of
//! `/proc/PID/pagemap`.
//!
//! Finds the anonymous huge pages of a process, and says of a range whether it is still one huge
//! page and how many of its base pages are mapped to the shared zero page, which is how a split
//! is verified from outside. Nothing here changes anything.
//! [PAGEMAP_SCAN](https://docs.kernel.org/admin-guide/mm/pagemap.html), since Linux 6.7.
//!
//! What can go wrong: the kernel is older (`Unsupported`), the process belongs to somebody we may
//! not read (`Denied`), or it exits (`Gone`). The descriptor stays with the memory that the
//! process had when it was opened: after an `execve` it reads as empty.

use crate::error::{Error, Result};
use crate::maps::Vma;
use crate::process::{Process, explain};
use crate::width::to_usize;
use bitflags::bitflags;
use rustix::fd::OwnedFd;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use superpage_uapi::pagemap::{Categories, Filter, Region, Walk};
use superpage_units::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HUGE_PAGE_BYTES, HugePages, Pid,
    PmdRange, VirtAddr,
};

bitflags! {
    /// The flags of an entry of `/proc/PID/pagemap`, as far as they are used here.
    #[derive(Clone, Copy)]
    struct Entry: u64 {
        /// Mapped by this process alone.
        const EXCLUSIVE = 1 << 56;
        /// In memory.
        const PRESENT = 1 << 63;
    }
}

bitflags! {
    /// The bits of a page by which somebody finds out whether it is written to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Tracked: u64 {
        /// The page was written to since somebody cleared the soft-dirty bits of its process.
        const SOFT_DIRTY = 1 << 55;
        /// A userfaultfd is told of the next write to it.
        const WRITE_PROTECTED = 1 << 57;
    }
}

/// Ranges fetched with one ioctl. Chosen, not measured: 24 KiB of buffer.
const RANGES_PER_CALL: usize = 1024;
/// How much is scanned in a call: about a millisecond's work if all of it is base pages.
const STRIDE: Bytes = Bytes::from_mib(128);
/// A stride that took less than this is followed by one of twice the length, up to that of 4 GiB: some 6 ms where all of it is on
/// base pages, in which its process cannot map memory. Chosen, not measured.
const QUICK: Duration = Duration::from_micros(100);
const LONGEST_STRIDE: Bytes = Bytes::from_gib(4);

/// What a range looks like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Still one huge page.
    Huge,
    /// Base pages, or nothing; so many of them are mapped to the shared zero page.
    Split {
        /// Base pages mapped to the shared zero page: each of them gave its memory back.
        zero_pages: BasePages,
    },
}

/// One bit for each base page of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageBits([u64; 8]);

impl PageBits {
    /// How many are set.
    #[must_use]
    pub fn count(&self) -> BasePages {
        BasePages(self.0.iter().map(|word| u64::from(word.count_ones())).sum())
    }

    /// The indices (0 to 511) of those that are set, ascending.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        (0u16..).zip(self.0).flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
        })
    }

    /// Those that are set in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    fn set(&mut self, page: u64) {
        if let Some(word) = self.0.get_mut(to_usize(page / 64)) {
            *word |= 1 << (page % 64);
        }
    }
}

/// Which base pages of a range are present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Populated {
    /// Which range.
    pub range: PmdRange,
    /// Whether it is one huge page.
    pub is_huge: bool,
    /// Its base pages with anonymous memory in them, swapped-out ones included; not those that are
    /// mapped to the shared zero page, which take no memory.
    pub pages: PageBits,
}

/// The pages that are mapped in a PMD range, whatever kind of memory it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Whether it is one huge page.
    pub is_huge: bool,
    /// Base pages in memory or in swap, without those mapped to the shared zero page.
    pub present: BasePages,
    /// Of these, the ones in swap.
    pub swapped: BasePages,
    /// Base pages mapped to the shared zero page: a split freed them, or they were only read.
    pub zero_pages: BasePages,
}

impl Survey {
    /// Counts pages of one kind.
    fn add(&mut self, pages: BasePages, categories: Categories) {
        if categories.contains(Categories::ZERO) {
            self.zero_pages += pages;
            return;
        }
        self.is_huge |= categories.contains(Categories::HUGE);
        self.present += pages;
        if categories.contains(Categories::SWAPPED) {
            self.swapped += pages;
        }
    }
}

/// The memory that is mapped between two addresses, by the pages that map it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// The part that huge pages map, at the level of the page table where 2 MiB pages are, or above it.
    pub huge: Bytes,
    /// The part that smaller pages map, without those mapped to the shared zero page.
    pub base: Bytes,
    /// The part in swap.
    pub swapped: Bytes,
}

/// A part of what [`Pagemap::survey_span`] finds, in address order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// So many neighbouring ranges are huge pages.
    Huge(PmdRange, HugePages),
    /// Base pages are mapped, or in swap, or mapped to the shared zero page, in this range.
    Base(PmdRange, Survey),
}

impl Found {
    /// The first address after it.
    #[must_use]
    pub fn end(&self) -> VirtAddr {
        match self {
            Self::Huge(first, count) => first.start().offset(count.bytes()),
            Self::Base(range, _) => range.end(),
        }
    }
}

/// An open pagemap.
#[derive(Debug)]
pub struct Pagemap {
    file: OwnedFd,
    pid: Pid,
}

impl Pagemap {
    /// Opens the pagemap of `process`.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::Failed`].
    pub fn open(process: &Process) -> Result<Self> {
        Ok(Self { file: process.open_file("pagemap")?, pid: process.pid() })
    }

    /// The ranges that are anonymous huge pages now, in address order.
    ///
    /// `vmas` are the process's VMAs ([`crate::maps`]); only private anonymous ones count,
    /// which leaves out files, shared memory and hugetlb pools. The shared huge zero page does
    /// not count either: there is nothing in it to free.
    ///
    /// # Errors
    /// [`Error::Unsupported`] before Linux 6.7; [`Error::Gone`]; [`Error::Failed`].
    pub fn huge_pages(&self, vmas: &[Vma]) -> Result<Vec<PmdRange>> {
        self.huge_pages_in_strides(vmas, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`Pagemap::huge_pages`]; `after_stride` is called after each part of the walk, about a
    /// millisecond long, with the time that the part took, and may end the walk; then the huge pages that
    /// were found so far are returned.
    ///
    /// # Errors
    /// As [`Pagemap::huge_pages`].
    pub fn huge_pages_in_strides(
        &self,
        vmas: &[Vma],
        after_stride: &mut dyn FnMut(Duration) -> ControlFlow<()>,
    ) -> Result<Vec<PmdRange>> {
        let filter = Filter {
            all: Categories::HUGE | Categories::PRESENT,
            none: Categories::FILE | Categories::ZERO,
            report: Categories::HUGE,
            ..Filter::default()
        };
        let vmas: Vec<&Vma> = vmas.iter().filter(|vma| vma.is_private_anonymous()).collect();
        let mut found = Vec::new();
        for (start, end) in spans(&vmas) {
            let mut each = |start, end, _| found.extend(PmdRange::within(start, end));
            let flow = self.scan_in_strides(start, end, filter, &mut each, after_stride)?;
            if flow.is_break() {
                break;
            }
        }
        let mut vmas = vmas.into_iter().peekable();
        found.retain(|range| {
            while vmas.next_if(|vma| vma.end <= range.start()).is_some() {}
            vmas.peek().is_some_and(|a| a.start <= range.start() && range.end() <= a.end)
        });
        Ok(found)
    }

    /// Which base pages of the private anonymous `vmas` are present, in address order.
    ///
    /// # Errors
    /// As [`Pagemap::huge_pages`].
    pub fn populated(&self, vmas: &[Vma]) -> Result<Vec<Populated>> {
        let filter = Filter {
            none: Categories::FILE | Categories::ZERO,
            any: Categories::PRESENT | Categories::SWAPPED,
            report: Categories::HUGE,
            ..Filter::default()
        };
        let vmas: Vec<&Vma> = vmas.iter().filter(|vma| vma.is_private_anonymous()).collect();
        let mut found: Vec<Populated> = Vec::new();
        let spans = spans(&vmas);
        let mut vmas = vmas.iter().peekable();
        let mut each = |start, end: VirtAddr, categories| {
            let mut at = start;
            while at < end {
                while vmas.next_if(|vma| vma.end <= at).is_some() {}
                let Some(vma) = vmas.peek().filter(|vma| vma.start < end) else { return };
                let until = end.min(vma.end);
                add(&mut found, at.max(vma.start), until, categories);
                at = until;
            }
        };
        for (start, end) in spans {
            self.scan(start, end, filter, &mut each)?;
        }
        Ok(found)
    }

    /// Whether the memory that it is of is still there: not after the process has exited, nor after
    /// it runs another program (`execve`), which has memory of its own.
    #[must_use]
    pub fn is_current(&self) -> bool {
        // Entries are read whole, so one byte is refused (EINVAL) before any lock is taken, as long as
        // there is memory; without it there is nothing to read.
        matches!(rustix::io::pread(&self.file, &mut [0_u8], 0), Err(rustix::io::Errno::INVAL))
    }

    /// The pages that are mapped in `range`.
    ///
    /// # Errors
    /// As [`Pagemap::huge_pages`].
    pub fn survey(&self, range: PmdRange) -> Result<Survey> {
        const MOST: usize = to_usize(BASE_PAGES_PER_HUGE_PAGE);
        let kinds = Categories::HUGE | Categories::PRESENT | Categories::SWAPPED | Categories::ZERO;
        let filter = Filter {
            any: Categories::PRESENT | Categories::SWAPPED,
            report: kinds,
            ..Filter::default()
        };
        let mut regions = [Region::EMPTY; MOST];
        let mut walk = Walk::new(&self.file, range.start(), filter, &mut regions);
        let mut survey = Survey::default();
        for region in walk.step(range.end()).map_err(|errno| self.explain(errno))? {
            survey.add(region.end().since(region.start()).to_base_pages(), region.categories());
        }
        Ok(survey)
    }

    /// The pages that are mapped between two addresses, by range, whatever kind of memory they are.
    ///
    /// The kernel takes 1.6 ms for a GiB of base pages, and next to nothing for huge pages. What is found is added to
    /// `found`, in address order; when `most` have been found it ends, after the stride that it is in, and drops the others. It
    /// ends after the first stride that ends at `by` or later, too, if that is said. Where it ended before `end` is told.
    ///
    /// # Errors
    /// As [`Pagemap::huge_pages`].
    pub fn survey_span(
        &self,
        start: VirtAddr,
        end: VirtAddr,
        most: usize,
        by: Option<Instant>,
        found: &mut Vec<Found>,
    ) -> Result<ControlFlow<VirtAddr>> {
        let kinds = Categories::HUGE | Categories::SWAPPED | Categories::ZERO;
        let filter = Filter {
            any: Categories::PRESENT | Categories::SWAPPED,
            report: kinds,
            ..Filter::default()
        };
        let count = Cell::new(found.len());
        let mut each = |start, end, categories| {
            add_found(found, start, end, categories);
            count.set(found.len());
        };
        let is_late = || by.is_some_and(|by| by <= Instant::now());
        let mut after_stride = |_| match count.get() > most || is_late() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let flow = self.scan_in_strides(start, end, filter, &mut each, &mut after_stride)?;
        if found.len() > most {
            found.truncate(most);
            return Ok(ControlFlow::Break(found.last().map_or(start, Found::end)));
        }
        // A range is told whole or not at all; a stride is longer than one.
        Ok(flow.map_break(|at| {
            let at = at.huge_page_floor();
            found.truncate(found.partition_point(|one| one.end() <= at));
            at
        }))
    }

    /// The memory that is mapped between two addresses, whatever kind it is. Huge pages that lie there in part count in
    /// part. Pages mapped to the shared zero page, of either size, count as nothing.
    ///
    /// # Errors
    /// As [`Pagemap::huge_pages`].
    pub fn mapped(&self, start: VirtAddr, end: VirtAddr) -> Result<Mapped> {
        let filter = Filter {
            none: Categories::ZERO,
            any: Categories::PRESENT | Categories::SWAPPED,
            report: Categories::HUGE | Categories::SWAPPED,
            ..Filter::default()
        };
        let mut mapped = Mapped::default();
        self.scan(start, end, filter, |start, end, categories| {
            let size = match categories {
                swapped if swapped.contains(Categories::SWAPPED) => &mut mapped.swapped,
                huge if huge.contains(Categories::HUGE) => &mut mapped.huge,
                _ => &mut mapped.base,
            };
            *size += end.since(start);
        })?;
        Ok(mapped)
    }

    /// The base pages of `range` that are in memory and that this process alone maps, as far as
    /// the kernel says.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn exclusive(&self, range: PmdRange) -> Result<PageBits> {
        const ENTRY: usize = size_of::<u64>();
        let mut entries = [0; ENTRY * to_usize(BASE_PAGES_PER_HUGE_PAGE)];
        let offset = range.start().0 / BASE_PAGE_BYTES * ENTRY as u64;
        let read = rustix::io::pread(&self.file, &mut entries, offset)
            .map_err(|errno| explain(errno, self.pid, "read its pagemap"))?;
        let mut pages = PageBits::default();
        for (page, entry) in (0..).zip(entries[..read].as_chunks::<ENTRY>().0) {
            let entry = Entry::from_bits_retain(u64::from_ne_bytes(*entry));
            if entry.contains(Entry::PRESENT | Entry::EXCLUSIVE) {
                pages.set(page);
            }
        }
        Ok(pages)
    }

    /// How writes to the page at `address` are tracked.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn tracked(&self, address: VirtAddr) -> Result<Tracked> {
        let mut entry = [0; size_of::<u64>()];
        let offset = address.0 / BASE_PAGE_BYTES * size_of::<u64>() as u64;
        rustix::io::pread(&self.file, &mut entry, offset)
            .map_err(|errno| explain(errno, self.pid, "read its pagemap"))?;
        Ok(Tracked::from_bits_truncate(u64::from_ne_bytes(entry)))
    }

    /// How each of `ranges` (in address order) is mapped now.
    ///
    /// # Errors
    /// As [`Pagemap::huge_pages`].
    pub fn mappings(&self, ranges: &[PmdRange]) -> Result<Vec<Mapping>> {
        let mut mappings = Vec::with_capacity(ranges.len());
        for run in runs(ranges) {
            self.mappings_of_run(run, &mut mappings)?;
        }
        Ok(mappings)
    }

    fn mappings_of_run(&self, run: &[PmdRange], mappings: &mut Vec<Mapping>) -> Result<()> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
        let kinds = Categories::HUGE | Categories::ZERO;
        let filter = Filter { any: kinds, report: kinds, ..Filter::default() };
        let origin = first.start();
        let mut huge = vec![false; run.len()];
        let mut zero_bytes = vec![0; run.len()];
        self.scan(origin, last.end(), filter, |start, end, categories| {
            let (mut from, end) = (start.since(origin).0, end.since(origin).0);
            while from < end {
                let Ok(index) = usize::try_from(from / HUGE_PAGE_BYTES) else { return };
                let to = end.min((from / HUGE_PAGE_BYTES + 1) * HUGE_PAGE_BYTES);
                if categories.contains(Categories::HUGE) {
                    huge[index] = true;
                } else {
                    zero_bytes[index] += to - from;
                }
                from = to;
            }
        })?;
        mappings.extend(huge.iter().zip(zero_bytes).map(|(huge, bytes)| match huge {
            true => Mapping::Huge,
            false => Mapping::Split { zero_pages: BasePages(bytes / BASE_PAGE_BYTES) },
        }));
        Ok(())
    }

    /// Whether the page at `address` is mapped by this process alone, as far as the kernel says;
    /// `None` if nothing is mapped there.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn is_exclusive(&self, address: VirtAddr) -> Result<Option<bool>> {
        let mut entry = [0; size_of::<u64>()];
        let offset = address.0 / BASE_PAGE_BYTES * size_of::<u64>() as u64;
        let read = rustix::io::pread(&self.file, &mut entry, offset)
            .map_err(|errno| explain(errno, self.pid, "read its pagemap"))?;
        let entry = Entry::from_bits_retain(u64::from_ne_bytes(entry));
        let present = read == size_of::<u64>() && entry.contains(Entry::PRESENT);
        Ok(present.then_some(entry.contains(Entry::EXCLUSIVE)))
    }

    /// Calls `each` for every range between `start` and `end` that passes `filter`.
    ///
    /// A call holds the lock of the memory map all along; whoever wants to map or unmap waits, and
    /// then page faults behind him: 40 ms in a Redis of 4 GiB. So it is done in strides.
    fn scan(
        &self,
        start: VirtAddr,
        end: VirtAddr,
        filter: Filter,
        mut each: impl FnMut(VirtAddr, VirtAddr, Categories),
    ) -> Result<()> {
        let mut go_on = |_| ControlFlow::Continue(());
        self.scan_in_strides(start, end, filter, &mut each, &mut go_on).map(drop)
    }

    /// As [`Pagemap::scan`]; `after_stride` is called with the time that each stride took, and may end the
    /// scan.
    fn scan_in_strides(
        &self,
        start: VirtAddr,
        end: VirtAddr,
        filter: Filter,
        each: &mut dyn FnMut(VirtAddr, VirtAddr, Categories),
        after_stride: &mut dyn FnMut(Duration) -> ControlFlow<()>,
    ) -> Result<ControlFlow<VirtAddr>> {
        let mut regions = vec![Region::EMPTY; RANGES_PER_CALL];
        let mut walk = Walk::new(&self.file, start, filter, &mut regions);
        let mut stride = STRIDE;
        while walk.at() < end {
            // No huge page is cut in two.
            let until = end.min(walk.at().offset(stride).huge_page_floor());
            let began = Instant::now();
            let found = walk.step(until);
            let took = began.elapsed();
            for region in found.map_err(|errno| self.explain(errno))? {
                each(region.start(), region.end(), region.categories());
            }
            // A program may reserve any number of terabytes and map next to nothing there.
            stride = if took < QUICK { (stride * 2).min(LONGEST_STRIDE) } else { STRIDE };
            if after_stride(took).is_break() && walk.at() < end {
                return Ok(ControlFlow::Break(walk.at()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn explain(&self, errno: rustix::io::Errno) -> Error {
        let what = "find huge pages by PAGEMAP_SCAN (Linux 6.7 or later)";
        match errno {
            // The ioctl exists but knows a flag or size less than we ask for.
            rustix::io::Errno::INVAL => Error::Unsupported { what: what.to_owned(), errno },
            other => explain(other, self.pid, what),
        }
    }
}

/// Adds a run of present pages to the PMD ranges that it lies in.
fn add(found: &mut Vec<Populated>, start: VirtAddr, end: VirtAddr, categories: Categories) {
    let mut at = start;
    while at < end {
        let range = PmdRange::containing(at);
        let until = end.min(range.end());
        if found.last().is_none_or(|last| last.range != range) {
            found.push(Populated { range, is_huge: false, pages: PageBits::default() });
        }
        if let Some(last) = found.last_mut() {
            let is_whole = at == range.start() && until == range.end();
            last.is_huge |= is_whole && categories.contains(Categories::HUGE);
            let page = |address: VirtAddr| address.since(range.start()).0 / BASE_PAGE_BYTES;
            (page(at)..page(until)).for_each(|page| last.pages.set(page));
        }
        at = until;
    }
}

/// Adds a range of pages of one kind to what was found so far.
fn add_found(found: &mut Vec<Found>, start: VirtAddr, end: VirtAddr, categories: Categories) {
    // There is nothing in the shared huge zero page.
    let is_huge = categories.contains(Categories::HUGE) && !categories.contains(Categories::ZERO);
    let mut at = start;
    while at < end {
        let range = PmdRange::containing(at);
        let until = end.min(range.end());
        if is_huge && at == range.start() && until == range.end() {
            match found.last_mut() {
                Some(Found::Huge(first, count))
                    if first.start().offset(count.bytes()) == range.start() =>
                {
                    *count += HugePages(1);
                }
                _ => found.push(Found::Huge(range, HugePages(1))),
            }
        } else {
            let pages = until.since(at).to_base_pages();
            if !matches!(found.last(), Some(Found::Base(last, _)) if *last == range) {
                found.push(Found::Base(range, Survey::default()));
            }
            if let Some(Found::Base(_, survey)) = found.last_mut() {
                survey.add(pages, categories);
            }
        }
        at = until;
    }
}

/// The memory that VMAs (in address order) lie in, without its larger holes.
fn spans(vmas: &[&Vma]) -> Vec<(VirtAddr, VirtAddr)> {
    let mut spans: Vec<(VirtAddr, VirtAddr)> = Vec::new();
    for vma in vmas {
        match spans.last_mut() {
            Some((_, end)) if vma.start <= end.offset(STRIDE) => *end = vma.end,
            _ => spans.push((vma.start, vma.end)),
        }
    }
    spans
}

/// The longest runs of neighbouring ranges.
fn runs(ranges: &[PmdRange]) -> impl Iterator<Item = &[PmdRange]> {
    ranges.chunk_by(|range, next| range.end() == next.start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(index: u64) -> PmdRange {
        PmdRange::containing(VirtAddr(index * HUGE_PAGE_BYTES))
    }

    #[test]
    fn what_lies_far_apart_is_walked_apart() {
        let text = "1000-2000 rw-p 00000000 00:00 0 \n\
                    5000-6000 rw-p 00000000 00:00 0 \n\
                    7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n";
        let vmas = crate::maps::parse(text.as_bytes(), std::path::Path::new("maps"));
        let vmas = vmas.expect("vmas");
        let spans = spans(&vmas.iter().collect::<Vec<_>>());
        let far = VirtAddr(0x7f00_0000_0000);
        let one = |start: u64, end: u64| (VirtAddr(start), VirtAddr(end));
        assert_eq!(spans, [one(0x1000, 0x6000), (far, far.offset(Bytes(0x1000)))]);
    }

    #[test]
    fn runs_break_where_ranges_do_not_touch() {
        let ranges: Vec<PmdRange> = [1, 2, 3, 7, 9, 10].map(range).to_vec();
        let lengths: Vec<usize> = runs(&ranges).map(<[PmdRange]>::len).collect();
        assert_eq!(lengths, [3, 1, 2]);
        assert_eq!(runs(&[]).count(), 0);
    }

    #[test]
    fn our_own_pagemap_can_be_walked() {
        let me = Process::current().expect("we run");
        let pagemap = Pagemap::open(&me).expect("our pagemap opens");
        let vmas = crate::maps::of(&me).expect("our VMAs read");
        let vmas: Vec<&Vma> = vmas.iter().filter(|vma| vma.is_private_anonymous()).collect();
        let (first, last) = (vmas[0].start, vmas[vmas.len() - 1].end);
        let mut present = 0;
        let filter =
            Filter { all: Categories::PRESENT, report: Categories::PRESENT, ..Filter::default() };
        match pagemap.scan(first, last, filter, |start, end, _| present += end.since(start).0) {
            Ok(()) => assert!(present > HUGE_PAGE_BYTES / 4, "a running program has some pages"),
            Err(error) => assert!(matches!(error, Error::Unsupported { .. }), "{error}"),
        }
    }

    #[test]
    fn runs_of_present_pages_fall_into_pmd_ranges() {
        let mut found = Vec::new();
        let page = |index: u64| VirtAddr(HUGE_PAGE_BYTES + index * BASE_PAGE_BYTES);
        add(&mut found, page(3), page(5), Categories::default());
        add(&mut found, page(510), page(514), Categories::default());
        add(&mut found, page(1024), page(2048), Categories::HUGE);
        let seen = found.iter().map(|f| (f.range.start(), f.is_huge, f.pages.count().0));
        let seen: Vec<_> = seen.collect();
        let expected = [
            (page(0), false, 4),
            (page(512), false, 2),
            (page(1024), true, 512),
            (page(1536), true, 512),
        ];
        assert_eq!(seen, expected);
        assert_eq!(found[0].pages.iter().collect::<Vec<_>>(), [3, 4, 510, 511]);
    }

    #[test]
    fn what_is_populated_of_us_can_be_seen() {
        let me = Process::current().expect("we run");
        let mut memory = crate::own_memory::OwnMemory::map(
            superpage_units::HugePages(1),
            crate::own_memory::Wish::BasePages,
        )
        .expect("2 MiB");
        memory.bytes_mut()[..5 * 4096].fill(1);
        let range = memory.ranges().next().expect("one");
        let pagemap = Pagemap::open(&me).expect("our pagemap opens");
        let vmas = crate::maps::of(&me).expect("our VMAs read");
        match pagemap.populated(&vmas) {
            Ok(found) => {
                let found = found.iter().find(|found| found.range == range).expect("touched");
                assert_eq!((found.is_huge, found.pages.count().0), (false, 5));
                let ours = || pagemap.exclusive(range).expect("reads").and(found.pages);
                // Another test may fork for a moment, and its child shares these pages.
                let soon = std::time::Instant::now() + std::time::Duration::from_secs(5);
                while ours().count().0 < 5 && std::time::Instant::now() < soon {}
                assert_eq!(ours(), found.pages);
            }
            Err(error) => assert!(matches!(error, Error::Unsupported { .. }), "{error}"),
        }
    }

    #[test]
    fn a_pagemap_is_current_until_its_process_runs_another_program() {
        use std::io::{Read, Write};
        let mut child = std::process::Command::new("sh")
            .args(["-c", "echo; read line; exec cat"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("sh runs");
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut echoed = [0];
        output.read_exact(&mut echoed).expect("sh is there");
        let process = Process::open(Pid(child.id())).expect("it runs");
        let pagemap = Pagemap::open(&process).expect("readable");
        assert!(pagemap.is_current());
        input.write_all(b"go\nx").expect("told");
        output.read_exact(&mut echoed).expect("cat is there");
        assert!(!pagemap.is_current());
        assert!(Pagemap::open(&process).expect("readable").is_current());
        drop(input);
        child.wait().expect("it ends");
    }

    #[test]
    fn a_survey_of_one_range_counts_what_is_in_it() {
        let me = Process::current().expect("we run");
        let mut memory = crate::own_memory::OwnMemory::map(
            superpage_units::HugePages(2),
            crate::own_memory::Wish::BasePages,
        )
        .expect("4 MiB");
        memory.bytes_mut()[..7 * 4096].fill(1);
        let page = std::hint::black_box(&memory.bytes()[9 * 4096]);
        assert_eq!(*page, 0, "reading maps the zero page");
        let ranges: Vec<PmdRange> = memory.ranges().collect();
        let pagemap = Pagemap::open(&me).expect("our pagemap opens");
        match pagemap.survey(ranges[0]) {
            Ok(survey) => {
                let expected =
                    Survey { present: BasePages(7), zero_pages: BasePages(1), ..Survey::default() };
                assert_eq!(survey, expected);
            }
            Err(error) => assert!(matches!(error, Error::Unsupported { .. }), "{error}"),
        }
    }

    #[test]
    fn a_survey_without_time_tells_where_it_ended() {
        let me = Process::current().expect("we run");
        let size = superpage_units::HugePages(200);
        let wish = crate::own_memory::Wish::BasePages;
        let mut memory =
            crate::own_memory::OwnMemory::map(size, wish).expect("400 MiB of addresses");
        let ranges: Vec<PmdRange> = memory.ranges().collect();
        for index in [0, 100, 199] {
            memory.bytes_mut()[index * 512 * 4096] = 1;
        }
        let pagemap = Pagemap::open(&me).expect("our pagemap opens");
        let (mut at, end, mut found, mut parts) = (ranges[0].start(), ranges[199].end(), vec![], 0);
        while at < end {
            parts += 1;
            match pagemap.survey_span(at, end, usize::MAX, Some(Instant::now()), &mut found) {
                Ok(ControlFlow::Break(next)) => {
                    assert!(next > at && next < end && next == next.huge_page_floor(), "{next:?}");
                    at = next;
                }
                Ok(ControlFlow::Continue(())) => at = end,
                Err(error) => {
                    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
                    return;
                }
            }
        }
        let one = |index: usize| {
            Found::Base(ranges[index], Survey { present: BasePages(1), ..Survey::default() })
        };
        assert_eq!(found, [0, 100, 199].map(one));
        assert!(parts > 1, "it was made at once");
    }

    #[test]
    fn what_is_on_the_stack_is_ours_alone() {
        let me = Process::current().expect("we run");
        let pagemap = Pagemap::open(&me).expect("our pagemap opens");
        let here = 0u8;
        let address = VirtAddr((&raw const here).addr() as u64);
        // Another test may fork for a moment, and its child shares this page.
        let ours = || pagemap.is_exclusive(address) == Ok(Some(true));
        let soon = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while !ours() && std::time::Instant::now() < soon {}
        assert!(ours());
        assert_eq!(pagemap.is_exclusive(VirtAddr(0)), Ok(None));
    }
}
