//! The file behind the heap: which of its pages are taken, and the reads and writes.
//!
//! A page that leaves memory goes to a fresh place in the file, and the old one is free then. So what a write that fails
//! leaves behind is nobody's data.
//!
//! Somebody may truncate the file. A write would make it long again, and what was lost would read as zeroes: so its last
//! page is never used, and a file that is shorter than it was is read no more.

#![expect(unsafe_code, reason = "system calls on memory that the caller names")]

use super::family::{Family, PER_WORD};
use super::{PER_RANGE, WORDS};
use crate::sys::{self, Descriptor, Errno, PAGE, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;
use syscalls::{Sysno, syscall};

/// A page of the file. The first is never used, so that zero says that there is none.
pub(super) type FilePage = u32;

/// The page so many behind another.
pub(super) fn behind(first: FilePage, count: usize) -> FilePage {
    first.saturating_add(FilePage::try_from(count).unwrap_or(FilePage::MAX))
}

/// The file, whose pages are read and written past the page cache.
#[derive(Debug)]
pub(super) struct File {
    descriptor: Descriptor,
    /// The length of a regular file, which becomes longer with what is mapped, and at a fork; zero of a device.
    length: &'static AtomicU64,
}

impl File {
    /// The file that a descriptor refers to, of this length.
    pub(super) const fn new(descriptor: Descriptor, length: &'static AtomicU64) -> Self {
        Self { descriptor, length }
    }

    /// Its descriptor.
    pub(super) const fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Reads pages of the file to memory.
    ///
    /// # Errors
    /// What the kernel says; EIO where the file is shorter.
    ///
    /// # Safety
    /// The memory must be the caller's to write, and hold so many pages.
    pub(super) unsafe fn read(&self, first: FilePage, count: usize, to: usize) -> Result<()> {
        let length = self.length.load(SeqCst);
        // SAFETY: the caller's promise.
        unsafe { self.transfer(Sysno::pread64, first, count, to) }?;
        // The file was whole when it was read if it is now.
        if sys::file_length(&self.descriptor)? < length { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Writes memory to pages of the file.
    ///
    /// # Errors
    /// As of [`File::read`].
    ///
    /// # Safety
    /// The memory must hold so many pages.
    pub(super) unsafe fn write(&self, first: FilePage, count: usize, from: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer(Sysno::pwrite64, first, count, from) }
    }

    /// # Safety
    /// As of the two above.
    unsafe fn transfer(
        &self,
        call: Sysno,
        first: FilePage,
        count: usize,
        memory: usize,
    ) -> Result<()> {
        let (mut done, length) = (0, count * PAGE);
        let offset = first as usize * PAGE;
        while done < length {
            // SAFETY: the caller's promise.
            let answer = unsafe {
                syscall!(call, self.descriptor.0, memory + done, length - done, offset + done)
            };
            match answer {
                Ok(0) => return Err(Errno::EIO),
                Ok(some) => done += some,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// Room in the file for pages of this process.
#[derive(Debug)]
pub(super) struct FileSpace {
    family: Family,
    /// Where the search for a free range's worth, and for a free page, goes on.
    next_range: usize,
    next_page: usize,
}

impl FileSpace {
    /// A file of which nothing is taken but its first page and its last, which is another after the file has grown.
    pub(super) fn new(family: Family) -> Self {
        family.take_for_nobody(0);
        Self::of(family)
    }

    /// The room that a member of the family has, of whose pages some are taken.
    pub(super) const fn of(family: Family) -> Self {
        Self { family, next_range: 0, next_page: 0 }
    }

    /// The processes that share the file.
    pub(super) const fn family(&self) -> &Family {
        &self.family
    }

    /// The pages of a word that may not be taken.
    fn taken(&self, word: usize) -> u64 {
        let is_last = (word + 1) * PER_WORD >= self.family.pages();
        self.family.taken(word) | if is_last { 1 << (PER_WORD - 1) } else { 0 }
    }

    /// Asserts that the first page is taken and the last is not, and what [`Family::check`] does.
    #[cfg(test)]
    fn check(&self) {
        self.family.check();
        let last = self.family.pages() - 1;
        assert!(self.family.own(0) & 1 != 0, "the first page is never used");
        let in_last = self.family.taken(last / PER_WORD);
        assert!(in_last >> (last % PER_WORD) & 1 == 0, "the last page is never used");
        assert!(self.next_range <= self.family.pages() / PER_RANGE);
        assert!(self.next_page < self.family.pages());
    }

    /// Takes pages for a whole range, side by side.
    pub(super) fn take_range(&mut self) -> Option<FilePage> {
        let count = self.family.pages() / PER_RANGE;
        let mut all = (0..count).map(|at| (self.next_range + at) % count);
        let range = all.find(|range| self.take_all_of(*range))?;
        self.next_range = range + 1;
        FilePage::try_from(range * PER_RANGE).ok()
    }

    /// Takes all pages of a range's worth, or none.
    fn take_all_of(&self, range: usize) -> bool {
        let words = range * WORDS..(range + 1) * WORDS;
        if words.clone().any(|word| self.taken(word) != 0) {
            return false;
        }
        let refused = words.clone().find(|word| !self.family.take(*word, u64::MAX));
        if let Some(refused) = refused {
            (words.start..refused).for_each(|word| self.family.free(word, u64::MAX));
        }
        refused.is_none()
    }

    /// Takes a page.
    pub(super) fn take_page(&mut self) -> Option<FilePage> {
        let count = self.family.pages() / PER_WORD;
        let from = self.next_page / PER_WORD;
        let page = (0..count).map(|at| (from + at) % count).find_map(|word| {
            let taken = self.taken(word);
            let bit = taken.trailing_ones() as usize;
            (taken != u64::MAX && self.family.take(word, 1 << bit)).then_some(word * PER_WORD + bit)
        })?;
        self.next_page = page;
        FilePage::try_from(page).ok()
    }

    /// Gives a page back.
    pub(super) fn free(&mut self, page: FilePage) {
        let page = page as usize;
        if page > 0 {
            self.family.free(page / PER_WORD, 1 << (page % PER_WORD));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::sync::atomic::AtomicU32;
    use proptest::prelude::*;
    use superpage_units::{Bytes, HUGE_PAGE_BYTES};

    #[test]
    fn no_page_is_taken_twice() {
        let family = Family::new(&in_memory(PAGE), Bytes(4 * HUGE_PAGE_BYTES));
        let file = in_memory(4 * PER_RANGE * PAGE);
        let family = family.and_then(|family| family.begin(&file)).expect("nobody has the file");
        let mut space = FileSpace::new(family);
        let range = space.take_range().expect("there is room");
        assert_eq!(range, behind(0, PER_RANGE), "the first page is never used");
        let end = behind(range, PER_RANGE);
        let mut pages: Vec<FilePage> = core::iter::from_fn(|| space.take_page()).collect();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), 3 * PER_RANGE - 2);
        assert!(!pages.contains(&behind(0, 4 * PER_RANGE - 1)), "nor the last");
        assert!(pages.iter().all(|page| !(range..end).contains(page)));
        assert!(!pages.contains(&0) && space.take_range().is_none());
        for page in range..end {
            space.free(page);
            space.free(page);
        }
        let taken: u32 = (0..4 * WORDS).map(|word| space.taken(word).count_ones()).sum();
        assert_eq!(taken as usize, 3 * PER_RANGE);
        assert_eq!(space.take_range(), Some(range));
    }

    /// The pages that a heap of the tests has.
    const SHARE: usize = 2 * PER_RANGE;
    /// The most members that a family of the tests has.
    const MOST: usize = 5;

    /// A file in memory of this length.
    fn in_memory(length: usize) -> Descriptor {
        // SAFETY: the name is a text.
        let file = Descriptor(unsafe { libc::memfd_create(c"heap".as_ptr(), libc::MFD_CLOEXEC) });
        sys::make_longer(&file, length as u64).expect("there is memory");
        file
    }

    /// A file in memory for a heap, and its first member.
    fn begun() -> (Descriptor, FileSpace) {
        let file = in_memory(SHARE * PAGE);
        let family = Family::new(&in_memory(PAGE), Bytes((SHARE * PAGE) as u64));
        let family = family.and_then(|family| family.begin(&file)).expect("nobody has the file");
        (file, FileSpace::new(family))
    }

    /// A step of a random program. Members and pages are chosen among those that there are.
    #[derive(Clone, Debug)]
    enum Step {
        TakePages(usize),
        TakeRange,
        FreePages { first: usize, count: usize },
        Fork,
        ForkInVain,
        End,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => prop_oneof![1_usize..100, 400_usize..1200].prop_map(Step::TakePages),
            6 => Just(Step::TakeRange),
            6 => (0..MOST * SHARE, 1_usize..1000)
                .prop_map(|(first, count)| Step::FreePages { first, count }),
            3 => Just(Step::Fork),
            1 => Just(Step::ForkInVain),
            2 => Just(Step::End),
        ]
    }

    /// For each page of the file the members that need it, a bit for each, and the members.
    struct Model {
        needed: Vec<u32>,
        members: Vec<FileSpace>,
    }

    impl Model {
        fn is_free(&self, page: usize) -> bool {
            page > 0 && page + 1 < self.needed.len() && self.needed[page] == 0
        }

        fn has_free_range(&self) -> bool {
            let mut ranges = (0..self.needed.len()).step_by(PER_RANGE);
            ranges.any(|first| (first..first + PER_RANGE).all(|page| self.is_free(page)))
        }

        fn take(&mut self, at: usize, first: Option<FilePage>, count: usize) {
            let Some(first) = first else { return };
            for page in first as usize..first as usize + count {
                assert!(self.is_free(page), "page {page} is somebody's");
                self.needed[page] |= 1 << self.members[at].family.number();
            }
        }

        fn fork(&mut self, at: usize, file: &Descriptor, step: &Step) {
            if self.members.len() == MOST {
                return;
            }
            let parent = &self.members[at];
            let claim = parent.family.expect_one_more(file).expect("the file grows");
            self.needed.resize(self.needed.len().max((self.members.len() + 1) * SHARE), 0);
            if matches!(step, Step::ForkInVain) {
                parent.family.retract(claim);
                return;
            }
            let child = FileSpace::of(parent.family.join(claim, file).expect("it is expected"));
            let [before, new] = [parent, &child].map(|space| 1 << space.family.number());
            for members in self.needed.iter_mut().filter(|members| **members & before != 0) {
                *members |= new;
            }
            self.members.push(child);
        }

        fn run(&mut self, at: usize, file: &Descriptor, step: &Step) {
            let bit = 1 << self.members[at].family.number();
            match *step {
                Step::TakePages(count) => {
                    for _ in 0..count {
                        let page = self.members[at].take_page();
                        let has_one = || (0..self.needed.len()).any(|page| self.is_free(page));
                        assert!(page.is_some() || !has_one(), "a free page is not found");
                        self.take(at, page, 1);
                        if page.is_none() {
                            break;
                        }
                    }
                }
                Step::TakeRange => {
                    let range = self.members[at].take_range();
                    assert_eq!(range.is_some(), self.has_free_range());
                    assert_eq!(range.unwrap_or(0) as usize % PER_RANGE, 0);
                    self.take(at, range, PER_RANGE);
                }
                Step::FreePages { first, count } => {
                    for at_page in first..first + count {
                        let page = at_page % self.needed.len();
                        self.members[at].free(behind(0, page));
                        self.needed[page] &= if page > 0 { !bit } else { u32::MAX };
                    }
                }
                Step::Fork | Step::ForkInVain => self.fork(at, file, step),
                Step::End if self.members.len() > 1 => {
                    self.members.swap_remove(at).family.end();
                    self.needed.iter_mut().for_each(|members| *members &= !bit);
                }
                Step::End => {}
            }
        }

        fn compare(&self) {
            for space in &self.members {
                space.check();
                assert_eq!(space.family.pages(), self.needed.len());
                let bit = 1 << space.family.number();
                for (word, needed) in self.needed.chunks(PER_WORD).enumerate() {
                    let bits = |wanted: u32| {
                        let pages = needed.iter().rev();
                        pages.fold(0, |bits, page| bits << 1 | u64::from(page & wanted != 0))
                    };
                    assert_eq!(space.family.own(word), bits(bit));
                    assert_eq!(space.family.taken(word), bits(u32::MAX));
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn members_take_what_no_member_needs_and_find_what_is_free(
            steps in prop::collection::vec((step(), any::<prop::sample::Index>()), 1..40),
        ) {
            let (file, space) = begun();
            let mut model = Model { needed: std::vec![0; SHARE], members: std::vec![space] };
            model.needed[0] = 1;
            for (step, member) in steps {
                model.run(member.index(model.members.len()), &file, &step);
                model.compare();
            }
        }
    }

    #[test]
    fn a_page_is_never_two_members_where_they_take_at_once_and_fork() {
        let (file, mut first) = begun();
        let needed: Vec<AtomicU32> = (0..4 * SHARE).map(|_| AtomicU32::new(0)).collect();
        let take = |page: FilePage, count: usize| {
            for page in &needed[page as usize..page as usize + count] {
                assert_eq!(page.fetch_add(1, SeqCst), 0, "the page is somebody's");
            }
            (page, count)
        };
        let work = |space: &mut FileSpace, times: usize, mut has: Vec<(FilePage, usize)>| {
            for time in 0..times {
                let range = (time % 8 == 0).then(|| space.take_range()).flatten();
                has.extend(range.map(|range| take(range, PER_RANGE)));
                has.extend(space.take_page().map(|page| take(page, 1)));
                if time % 2 == 0 || has.len() > 4 {
                    let (first, count) = has.swap_remove(time * 7 % has.len());
                    for page in first..behind(first, count) {
                        needed[page as usize].fetch_sub(1, SeqCst);
                        space.free(page);
                    }
                }
            }
            has
        };
        let join = |parent: &FileSpace, has: &[(FilePage, usize)]| {
            for (first, count) in has.iter().copied() {
                let pages = &needed[first as usize..first as usize + count];
                pages.iter().for_each(|page| assert!(page.fetch_add(1, SeqCst) > 0));
            }
            let claim = parent.family.expect_one_more(&file).expect("the file grows");
            FileSpace::of(parent.family.join(claim, &file).expect("it is expected"))
        };
        let mut second = join(&first, &[]);
        std::thread::scope(|scope| {
            scope.spawn(|| work(&mut second, 4_000, Vec::new()));
            let mut has = work(&mut first, 500, Vec::new());
            for _ in 0..2 {
                let mut child = join(&first, &has);
                let copied = has.clone();
                scope.spawn(move || work(&mut child, 1_000, copied));
                has = work(&mut first, 500, has);
            }
        });
        first.check();
        second.check();
    }
}
