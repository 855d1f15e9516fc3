//! Pages that are compressed in memory on their way to the file: those that leave memory are compressed to a part of it, and
//! the oldest of them go on to the file.
//!
//! Ahead of the paper, whose pages go to the device at once; zswap is the same for swap. The memory is a part of the heap's,
//! so the pools are smaller by it.
//!
//! A page is compressed, in the file, or both. Whoever reads it, or changes where it lies, has taken its range over. One that
//! comes back to the heap is not compressed any more, so that there is room for others. A child of a fork has a copy of all.

#![expect(unsafe_code, reason = "is memory that compressed pages lie in")]

use super::file::{File, FilePage};
use super::serve::Buffer;
use super::table::{Hash, Range, State, Table};
use super::{PER_RANGE, Pager, bytes, integers};
use crate::allocator::{Kept, Source};
use crate::backing::READ_WRITE;
use crate::lock::OwnLock;
use crate::sys::{self, Errno, HUGE, Mmap, PAGE, Result, Span};
use alloc::boxed::Box;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use dlmalloc::Dlmalloc;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use superpage_launch::MOST_COMPRESSED;
use superpage_units::Bytes;

/// Entries begin at multiples of this: those of the allocator.
const UNIT: usize = 16; // tidy: allow(not derived from a size)
/// Base pages that are compressed to more than this go to the file. Chosen, not measured: three quarters.
const MOST: usize = PAGE / 4 * 3;
/// The part of the memory that is kept free, one in so many. Chosen, not measured.
const FREE: usize = 8;
/// The pages of a huge page, one of so many, that stand for all of them. Chosen, not measured.
const SAMPLED: usize = 32; // tidy: allow(not derived from a size)
/// Pages that leave the part before other work is done. Chosen: more than a worker brings in at a time.
const AT_A_TIME: usize = 64; // tidy: allow(not derived from a size)
/// The bytes that the allocator takes for itself with each entry.
const OVERHEAD: usize = 8;
/// The least that the allocator takes for an entry.
const LEAST: usize = 32;

/// Where a page of the heap lies that is not in memory as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// Nowhere: it holds zeroes.
    Nowhere,
    /// In the file.
    File(FilePage),
    /// In compressed memory, and maybe in the file as well.
    Compressed,
}

/// The content of the file for a page that leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InFile {
    /// The file has what the page held when it came to memory, or nothing.
    Older,
    /// The file has what the page holds.
    TheSame,
}

/// The beginning of each entry, before what the page was compressed to.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Header {
    /// The page of the heap.
    page: u32,
    /// The bytes that follow: those of a page mean that it is not compressed.
    length: u32,
    /// The entries that were made just before and after it.
    older: Entry,
    newer: Entry,
}

/// Where an entry is: the number of its unit, and one, so that zero says that there is none.
type Entry = u32;

const NONE: Entry = 0;

/// The entries and the memory that they lie in.
struct Entries {
    allocator: Dlmalloc<Kept<Part>>,
    oldest: Entry,
    newest: Entry,
    /// The bytes that all entries take.
    used: usize,
    /// Whether there was no room for one.
    is_full: bool,
}

/// The bytes that an entry of this size takes.
const fn taken(size: usize) -> usize {
    let taken = (size + OVERHEAD).next_multiple_of(UNIT);
    if taken < LEAST { LEAST } else { taken }
}

/// Memory of which this much was not taken yet.
struct Part(OwnLock<Span>);

impl Source for Part {
    fn take(&self, size: usize) -> Option<usize> {
        self.0.with(|left| {
            let Span { start, length } = *left;
            let rest = length.checked_sub(size)?;
            *left = Span { start: start + size, length: rest };
            Some(start)
        })
    }
}

/// Memory for compressed pages.
pub(super) struct Compressed {
    memory: Span,
    entries: OwnLock<Entries>,
    /// The entry of each page of the heap.
    of_page: &'static [AtomicU32],
}

impl core::fmt::Debug for Compressed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Compressed").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl Compressed {
    /// The memory for compressed pages of a heap of so many pages, which lives for ever; nothing if its size is zero.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn new(size: Bytes, pages: usize) -> Result<Option<&'static Self>> {
        let length = sys::to_usize(size.0.min(MOST_COMPRESSED.0)) / HUGE * HUGE;
        if length == 0 {
            return Ok(None);
        }
        // SAFETY: the kernel chooses an unused place.
        let start = unsafe { sys::mmap(Mmap::anywhere(length, READ_WRITE, libc::MAP_NORESERVE)) }?;
        let memory = Span { start, length };
        let entries = Entries {
            allocator: Dlmalloc::new_with_allocator(Kept(Part(OwnLock::new(memory)))),
            oldest: NONE,
            newest: NONE,
            used: 0,
            is_full: false,
        };
        let made = Self { memory, entries: OwnLock::new(entries), of_page: integers(pages)? };
        Ok(Some(Box::leak(Box::new(made))))
    }

    /// Whether a page is compressed.
    fn has(&self, page: usize) -> bool {
        self.entry(page) != NONE
    }

    fn entry(&self, page: usize) -> Entry {
        self.of_page.get(page).map_or(NONE, |entry| entry.load(Relaxed))
    }

    /// Notes the entry of a page; the one before.
    fn note(&self, page: usize, entry: Entry) -> Entry {
        self.of_page.get(page).map_or(NONE, |noted| noted.swap(entry, Relaxed))
    }

    /// The header of an entry, if that is one.
    fn header(&self, entry: Entry) -> Option<*mut Header> {
        let unit = entry.checked_sub(1)? as usize;
        Some((self.memory.start + unit * UNIT) as *mut Header)
    }

    /// Whether the oldest entries are to go to the file.
    fn is_high(&self) -> bool {
        let limit = self.memory.length - self.memory.length / FREE;
        self.entries.with(|entries| entries.is_full || entries.used > limit)
    }

    /// Keeps what a page was compressed to, instead of what it was before; whether there is room.
    fn put(&self, page: usize, content: &[u8]) -> bool {
        let (Ok(number), Ok(length)) = (u32::try_from(page), u32::try_from(content.len())) else {
            return false;
        };
        self.entries.with(|entries| {
            let size = size_of::<Header>() + content.len();
            // SAFETY: the size is not zero, and the alignment is that of words.
            let at = unsafe { entries.allocator.malloc(size, align_of::<Header>()) };
            let unit = (at.addr().wrapping_sub(self.memory.start)) / UNIT;
            let (false, Ok(entry)) = (at.is_null(), Entry::try_from(unit + 1)) else {
                entries.is_full = true;
                return false;
            };
            let header = Header { page: number, length, older: NONE, newer: NONE };
            // SAFETY: so much was just allocated.
            unsafe {
                at.cast::<Header>().write(header);
                let to = at.add(size_of::<Header>());
                core::ptr::copy_nonoverlapping(content.as_ptr(), to, content.len());
            }
            self.link(entries, entry);
            entries.used += taken(size);
            self.remove(entries, self.note(page, entry));
            true
        })
    }

    /// Forgets a page; whether it was compressed.
    pub(super) fn forget(&self, page: usize) -> bool {
        let entry = self.note(page, NONE);
        if entry != NONE {
            self.entries.with(|entries| self.remove(entries, entry));
        }
        entry != NONE
    }

    /// Puts an entry at the newest end of the list.
    fn link(&self, entries: &mut Entries, entry: Entry) {
        let older = entries.newest;
        if let Some(at) = self.header(entry) {
            // SAFETY: the entry is there, and the lock is held.
            unsafe { ((*at).older, (*at).newer) = (older, NONE) };
        }
        match self.header(older) {
            // SAFETY: an entry that is in the list is there.
            Some(older) => unsafe { (*older).newer = entry },
            None => entries.oldest = entry,
        }
        entries.newest = entry;
    }

    /// Takes an entry out of the list.
    fn unlink(&self, entries: &mut Entries, entry: Entry) {
        let Some(at) = self.header(entry) else { return };
        // SAFETY: the entry is there, and the lock is held.
        let Header { older, newer, .. } = unsafe { at.read() };
        match self.header(older) {
            // SAFETY: the entries beside it are there, and the lock is held.
            Some(older) => unsafe { (*older).newer = newer },
            None => entries.oldest = newer,
        }
        match self.header(newer) {
            // SAFETY: as above.
            Some(newer) => unsafe { (*newer).older = older },
            None => entries.newest = older,
        }
    }

    /// Makes a page the newest, which is compressed.
    fn renew(&self, page: usize) {
        let entry = self.entry(page);
        if entry != NONE {
            self.entries.with(|entries| {
                self.unlink(entries, entry);
                self.link(entries, entry);
            });
        }
    }

    /// Removes an entry that was noted.
    fn remove(&self, entries: &mut Entries, entry: Entry) {
        let Some(at) = self.header(entry) else { return };
        self.unlink(entries, entry);
        // SAFETY: the entry was noted, so it is there.
        let size = size_of::<Header>() + unsafe { (*at).length } as usize;
        entries.used -= taken(size);
        // SAFETY: it was allocated so.
        unsafe { entries.allocator.free(at.cast(), size, align_of::<Header>()) };
    }

    /// Reads a page.
    ///
    /// # Errors
    /// EIO where it is not compressed.
    ///
    /// # Safety
    /// The caller must have taken the range of the page over, and the memory must be a page of the caller's.
    unsafe fn read(&self, page: usize, to: usize) -> Result<()> {
        let at = self.header(self.entry(page)).ok_or(Errno::EIO)?;
        // SAFETY: the entry is there, and stays as long as nobody else has the range.
        let content = unsafe {
            let length = (&raw const (*at).length).read() as usize;
            core::slice::from_raw_parts(at.add(1).cast::<u8>(), length)
        };
        // SAFETY: the caller's promise.
        let page = unsafe { core::slice::from_raw_parts_mut(to as *mut u8, PAGE) };
        if content.len() == PAGE {
            page.copy_from_slice(content);
            return Ok(());
        }
        match decompress_into(content, page) {
            Ok(PAGE) => Ok(()),
            Ok(_) | Err(_) => Err(Errno::EIO),
        }
    }

    /// The page that was compressed first of all that are.
    fn oldest(&self) -> Option<usize> {
        self.entries.with(|entries| {
            // SAFETY: an entry that is in the list is there, and the lock is held.
            self.header(entries.oldest).map(|at| unsafe { (*at).page } as usize)
        })
    }
}

/// Room for what a page is compressed to.
struct Packed([u8; get_maximum_output_size(PAGE)]);

impl Packed {
    const fn new() -> Self {
        Self([0; get_maximum_output_size(PAGE)])
    }

    /// The bytes that a page is compressed to: its own, if it would not become smaller.
    fn compress<'a>(&'a mut self, page: &'a [u8]) -> &'a [u8] {
        let packed = compress_into(page, &mut self.0).ok();
        packed.filter(|length| *length < PAGE).and_then(|to| self.0.get(..to)).unwrap_or(page)
    }
}

/// The page at an address.
///
/// # Safety
/// It must be there, and nobody may change it for as long as it is used.
unsafe fn page_at<'a>(address: usize) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(address as *const u8, PAGE) }
}

impl Pager {
    /// Where a page of the heap lies that is not in memory as it is.
    pub(super) fn stored_at(&self, range: usize, index: usize) -> Stored {
        let page = range * PER_RANGE + index;
        match self.file_page(range, index) {
            _ if self.compressed.is_some_and(|compressed| compressed.has(page)) => {
                Stored::Compressed
            }
            0 => Stored::Nowhere,
            page => Stored::File(page),
        }
    }

    /// Where a page of a range lies for one that reads all of it: in the file if it does, because neighbours there are read
    /// at once, unless nothing of the range lies there only.
    pub(super) fn stored_for_all(&self, range: usize) -> impl Fn(usize) -> Stored {
        let is_in_file_only = |index| matches!(self.stored_at(range, index), Stored::File(_));
        let reads_file = (0..PER_RANGE).any(is_in_file_only);
        move |index| match (reads_file, self.file_page(range, index)) {
            (false, _) | (true, 0) => self.stored_at(range, index),
            (true, page) => Stored::File(page),
        }
    }

    /// Reads a page of the heap from where it lies, which was asked before; `file` is this process's.
    ///
    /// # Errors
    /// What the file says, and EIO where it lies nowhere.
    ///
    /// # Safety
    /// The caller must have taken the range over, and the memory must be a page of the caller's.
    pub(super) unsafe fn fetch(
        &self,
        file: &File,
        range: usize,
        index: usize,
        to: usize,
    ) -> Result<()> {
        match (self.stored_at(range, index), self.compressed) {
            // SAFETY: the caller's promise.
            (Stored::File(page), _) => unsafe { file.read(page, 1, to) },
            (Stored::Compressed, Some(compressed)) => {
                // SAFETY: the caller's promise.
                unsafe { compressed.read(range * PER_RANGE + index, to) }
            }
            (Stored::Compressed | Stored::Nowhere, _) => Err(Errno::EIO),
        }
    }

    /// Compresses a page that leaves memory; whether it is compressed now.
    pub(super) fn compress_page(
        &self,
        range: usize,
        index: usize,
        from: usize,
        file: InFile,
        after: &mut Range,
    ) -> bool {
        let Some(compressed) = self.compressed else { return false };
        let mut packed = Packed::new();
        // SAFETY: the caller's page holds what is to be kept, and nobody changes it.
        let content = packed.compress(unsafe { page_at(from) });
        content.len() <= MOST && self.put(compressed, (range, index), content, file, after)
    }

    /// Compresses a huge page that leaves memory; whether it is compressed now. If it is not, because it does not become
    /// smaller as a whole or there is no room, some of its pages may be.
    pub(super) fn compress_huge(
        &self,
        range: usize,
        from: usize,
        file: InFile,
        after: &mut Range,
    ) -> bool {
        let Some(compressed) = self.compressed else { return false };
        let mut packed = Packed::new();
        // SAFETY: as above.
        let page = |index: usize| unsafe { page_at(from + index * PAGE) };
        let sample = (0..PER_RANGE).step_by(SAMPLED);
        let most = sample.len() * MOST;
        if sample.map(|index| packed.compress(page(index)).len()).sum::<usize>() > most {
            return false;
        }
        (0..PER_RANGE).all(|index| {
            let content = packed.compress(page(index));
            self.put(compressed, (range, index), content, file, after)
        })
    }

    fn put(
        &self,
        compressed: &Compressed,
        (range, index): (usize, usize),
        content: &[u8],
        file: InFile,
        after: &mut Range,
    ) -> bool {
        let before = self.stored_at(range, index);
        // Zeroes, which lie nowhere, stay so.
        if file == InFile::TheSame && !matches!(before, Stored::File(_)) {
            return true;
        }
        if !compressed.put(range * PER_RANGE + index, content) {
            self.tell(1);
            return false;
        }
        if file == InFile::Older {
            self.free_file_page(range, index);
        }
        after.stored += u16::from(before == Stored::Nowhere);
        self.counters.heap.compressed.fetch_add(bytes(1).0, Relaxed);
        self.counters.heap.compressed_to.fetch_add(content.len() as u64, Relaxed);
        true
    }

    /// A page is in the heap that was compressed, or may have been: it is not any more. Whether it lies nowhere else.
    pub(super) fn forget_compressed(&self, range: usize, index: usize, after: &mut Range) -> bool {
        let page = range * PER_RANGE + index;
        let was_there = self.compressed.is_some_and(|compressed| compressed.forget(page));
        let is_nowhere = was_there && self.file_page(range, index) == 0;
        after.stored -= u16::from(is_nowhere);
        is_nowhere
    }

    /// The same, of all pages of a range.
    pub(super) fn forget_all_compressed(&self, range: usize, after: &mut Range) {
        if self.compressed.is_none() {
            return;
        }
        for index in 0..PER_RANGE {
            if self.forget_compressed(range, index, after) {
                after.hash = Hash::UNKNOWN;
            }
        }
    }

    /// Has the oldest compressed pages go to the file, if there is too little room; whether any did.
    pub(super) fn write_oldest(&self) -> bool {
        let high = self.compressed.filter(|compressed| compressed.is_high());
        let Some(compressed) = high else { return false };
        let mut left = 0;
        while left < AT_A_TIME && compressed.is_high() {
            match self.write_range_of_oldest(compressed) {
                0 => break,
                some => left += some,
            }
        }
        left > 0
    }

    /// Has the oldest pages go, as long as they are of one range that nobody waits for; how many did.
    fn write_range_of_oldest(&self, compressed: &Compressed) -> usize {
        let range = compressed.oldest().map(|page| page / PER_RANGE);
        // To meet somebody in the range is no sign of a fault.
        let take_over = |table: &mut Table, range: usize| {
            let is_free = table.range(range).is_some_and(|range| range.state != State::Busy);
            is_free.then(|| table.take_over(range)).flatten()
        };
        let taken = range
            .and_then(|range| Some((range, self.table.with(|table| take_over(table, range))?)));
        let Some((range, before)) = taken else { return 0 };
        let (mut after, mut left) = (before, 0);
        while let Some(page) = compressed.oldest()
            && page / PER_RANGE == range
            && left < AT_A_TIME
            && !self.table.with(|table| table.was_touched(range))
        {
            if self.write_back(range, page % PER_RANGE, &mut after).is_err() {
                self.counters.heap.errors.fetch_add(1, Relaxed);
                // Those behind it may be in the file.
                compressed.renew(page);
                break;
            }
            compressed.forget(page);
            left += 1;
        }
        compressed.entries.with(|entries| entries.is_full &= left == 0);
        self.settle(range, &before, after);
        left
    }

    /// Writes a compressed page to the file, unless it is there, and with it all of its range if nothing of that is.
    fn write_back(&self, range: usize, index: usize, after: &mut Range) -> Result<()> {
        if self.file_page(range, index) != 0 {
            return Ok(());
        }
        let is_compressed_only = |index: usize| {
            self.file_page(range, index) == 0 && self.stored_at(range, index) == Stored::Compressed
        };
        if (0..PER_RANGE).all(is_compressed_only) {
            return self.write_back_huge(range, after);
        }
        let mut buffer = Buffer::zeroes();
        // SAFETY: the range was taken over, and the buffer is this thread's.
        unsafe { self.fetch(&self.file, range, index, buffer.address()) }?;
        self.write_page_to_file(range, index, buffer.address(), after)?;
        self.count_written_base();
        self.counters.heap.written_back.fetch_add(bytes(1).0, Relaxed);
        Ok(())
    }

    fn write_back_huge(&self, range: usize, after: &mut Range) -> Result<()> {
        self.with_staging(|staging| {
            for index in 0..PER_RANGE {
                // SAFETY: the range was taken over, and the staging memory is this thread's.
                unsafe { self.fetch(&self.file, range, index, staging.start + index * PAGE) }?;
            }
            self.write_to_file(range, staging.start, after)?;
            self.counters.heap.written_back.fetch_add(bytes(PER_RANGE).0, Relaxed);
            Ok(())
        })
        .unwrap_or(Err(Errno::ENOMEM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const PAGES: usize = 4096; // tidy: allow(not a size)

    /// A part of so many huge pages' worth.
    fn part(huge: u64) -> &'static Compressed {
        let size = Bytes(huge * HUGE as u64);
        Compressed::new(size, PAGES).expect("there is memory").expect("some was asked for")
    }

    /// A page, another one for each seed. Of each four words so many differ from all others; with four, it does not become
    /// smaller.
    fn page(seed: u64, different: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let word = |index: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if index % 4 < different { state.to_ne_bytes() } else { seed.to_ne_bytes() }
        };
        (0..PAGE / 8).flat_map(word).collect()
    }

    fn put(part: &Compressed, page: usize, content: &[u8]) -> bool {
        part.put(page, Packed::new().compress(content))
    }

    fn read(part: &Compressed, page: usize) -> Option<Vec<u8>> {
        let mut content = vec![0; PAGE];
        // SAFETY: nobody else uses the part, and the memory is a page.
        unsafe { part.read(page, content.as_mut_ptr().addr()) }.ok().map(|()| content)
    }

    #[test]
    fn what_was_put_in_is_read() {
        let part = part(1);
        let random = page(2, 4);
        assert_eq!(Packed::new().compress(&random), random);
        for (number, content) in [page(1, 2), vec![0; PAGE], random].iter().enumerate() {
            assert!(put(part, number, content));
            assert_eq!(read(part, number).as_ref(), Some(content));
        }
        assert!(put(part, 1, &page(7, 2)));
        assert_eq!(read(part, 1), Some(page(7, 2)), "the later content");
        assert!(part.forget(1) && !part.forget(1) && !part.has(1));
        assert_eq!((read(part, 1), read(part, 3)), (None, None));
    }

    #[test]
    fn the_oldest_are_known() {
        let part = part(1);
        (0..4).for_each(|number| assert!(put(part, number, &page(number as u64, 2))));
        assert!(put(part, 0, &page(9, 2)), "it is the newest then");
        part.renew(1);
        let mut order = Vec::new();
        while let Some(oldest) = part.oldest() {
            order.push(oldest);
            part.forget(oldest);
        }
        assert_eq!(order, [2, 3, 0, 1]);
        assert_eq!(part.entries.with(|entries| (entries.used, entries.newest)), (0, NONE));
    }

    #[test]
    fn a_full_part_has_room_again() {
        let part = part(1);
        let fits =
            (0..PAGES).take_while(|number| put(part, *number, &page(*number as u64, 2))).count();
        assert!((700..1100).contains(&fits), "{fits} pages of half their size in 2 MiB");
        assert!(part.is_high() && !part.has(fits));
        assert!((0..fits).all(|number| read(part, number) == Some(page(number as u64, 2))));
        (0..fits / 2).for_each(|number| assert!(part.forget(number)));
        part.entries.with(|entries| entries.is_full = false);
        assert!(!part.is_high());
        assert!((0..fits / 2).all(|number| put(part, number, &page(number as u64, 2))));
    }
}
