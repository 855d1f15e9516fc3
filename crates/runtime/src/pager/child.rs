//! The pager of the child of a fork, made from its parent's, which stood still.
//!
//! The fork has copied the state: which pages are in the heap, and where in the file the others are. The table and
//! that map are used as they are. Anew are the userfaultfd, in whose name the heap is registered once more, the places that
//! pages are moved to (a child has nothing of its parent's), and the descriptor of the file, whose pages the child has
//! references of its own to ([`family`](super::family)).
//!
//! Two things a fork does not copy. That writes to a base page are told: a base page counts as written unless its hash says
//! that it was not. And the registration: until there is a new one, a touch of a page that is not in memory finds zeroes. Only
//! the one thread of the child could touch one, in libc's fork and in handlers that libc calls before the library's. What libc
//! is known to touch was brought into memory before ([`handover`](super::handover)). Whether it touched anything else can be seen in the page
//! tables: such a child does not go on, and no other one of the family gets a pager.

#![expect(unsafe_code, reason = "reads and drops pages of a heap that nobody uses yet")]

use super::family::Claim;
use super::file::{File, FilePage, FileSpace};
use super::fork::Gate;
use super::resize::PoolSizes;
use super::serve::Buffer;
use super::table::{State, Table};
use super::{PER_RANGE, Pager, Whose, places_of_own};
use crate::lock::OwnLock;
use crate::sys::{
    self, Descriptor, Errno, HUGE, PAGE, PRESENT, Pagemap, Result, SWAPPED, Span, ZERO,
};
use crate::uffd::Userfaultfd;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use superpage_units::Bytes;

impl Pager {
    /// The child's pager, of `self`, a copy of its parent's. The file is what the parent's thread has passed on. Nobody else
    /// runs in the child yet.
    ///
    /// # Errors
    /// EFAULT where memory has changed since the fork, EBADF where the file is another, and what the kernel says. The child
    /// cannot go on then.
    pub(crate) fn of_child(
        &self,
        uffd: &'static Userfaultfd,
        file: Descriptor,
        claim: Claim,
    ) -> Result<Self> {
        self.table.forget_holder();
        let family = self.space.with(|space| space.family().join(claim, &file))?;
        uffd.register_all(self.heap)?;
        let places = u32::try_from(self.heap.length / HUGE + 64).map_err(|_| Errno::EINVAL)?;
        let (pool, staging) = places_of_own(uffd, places)?;
        let file = File::new(file, family.length());
        let touched = self.touched(&file)?;
        let table = self.table.with(|table| {
            table.pass_to_child(places);
            core::mem::replace(table, Table::new(&mut [], PoolSizes::of(Bytes::ZERO), 0))
        });
        let child = Self {
            file,
            space: OwnLock::new(FileSpace::of(family)),
            uffd,
            places: pool.start,
            staging: OwnLock::new(staging),
            table: OwnLock::new(table),
            news: AtomicU32::new(0),
            settled: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            gate: Gate::new(self.stored.len())?,
            unseen_writes: AtomicU64::new(0),
            base_stuck_until: AtomicU64::new(0),
            has_marks: AtomicBool::new(self.has_marks.load(Relaxed)),
            rounds: self.rounds.copied(),
            memory: self.memory.copied(),
            whose: Whose::Childs,
            ..*self
        };
        touched.into_iter().for_each(|page| child.take_in(page));
        Ok(child)
    }

    /// Whether the file is the one that the heap lives in.
    pub(crate) fn has_file(&self, file: &Descriptor) -> bool {
        sys::file_identity(file).is_ok_and(|identity| identity == self.identity)
    }

    /// The pages that are in the heap and not in the table: some came while the program forked.
    ///
    /// # Errors
    /// EFAULT where a page holds zeroes that should not.
    fn touched(&self, file: &File) -> Result<Vec<usize>> {
        let (mut touched, mut is_wrong) = (Vec::new(), false);
        Pagemap::open()?.scan(self.heap, PRESENT | SWAPPED, |found| {
            for page in self.pages_in(found.span()) {
                if self.is_known(page) {
                    continue;
                }
                let place = self.page(page / PER_RANGE, page % PER_RANGE);
                let stored = self.file_page(page / PER_RANGE, page % PER_RANGE);
                let is_right = || {
                    // The program may have written zeroes to a page that is in place.
                    let was_put = self.gate.put.has(page) && !found.is(ZERO);
                    let was_coming =
                        self.gate.coming.has(page) && !found.is(ZERO) && !is_blank(place);
                    // A page of zeroes is right if the file has zeroes too: ranges are written as a whole.
                    was_put || was_coming || is_blank(place) && is_blank_in(file, stored)
                };
                if stored == 0 && found.is(ZERO) {
                    // SAFETY: it holds zeroes as it did before.
                    let _ = unsafe { sys::madvise(place, libc::MADV_DONTNEED) };
                } else if stored != 0 && !is_right() {
                    is_wrong = true;
                    return;
                } else {
                    touched.push(page);
                }
            }
        })?;
        if is_wrong {
            self.space.with(|space| space.family().give_up());
            return Err(Errno::EFAULT);
        }
        Ok(touched)
    }

    /// The pages of the heap in a part of it, but for those in ranges that a huge page maps.
    fn pages_in(&self, part: Span) -> impl Iterator<Item = usize> {
        let page = |address: usize| (address - self.heap.start) / PAGE;
        let ranges = page(part.start) / PER_RANGE..page(part.end()).div_ceil(PER_RANGE);
        let is_huge =
            |range: &usize| self.entry(*range).is_some_and(|entry| entry.state == State::Huge);
        ranges.filter(move |range| !is_huge(range)).flat_map(move |range| {
            let (first, behind) = (range * PER_RANGE, (range + 1) * PER_RANGE);
            first.max(page(part.start))..behind.min(page(part.end()))
        })
    }

    fn is_known(&self, page: usize) -> bool {
        self.entry(page / PER_RANGE).is_some_and(|entry| match entry.state {
            State::Huge => true,
            State::Base => entry.resident.has(page % PER_RANGE),
            State::Out | State::Waiting | State::Busy => false,
        })
    }
}

/// Whether a page of the file can be read and holds zeroes.
fn is_blank_in(file: &File, page: FilePage) -> bool {
    let mut buffer = Buffer::zeroes();
    let to = buffer.address();
    // SAFETY: the buffer is a page, and nobody else runs.
    let read = unsafe { file.read(page, 1, to) };
    read.is_ok() && is_blank(Span { start: to, length: PAGE })
}

/// Whether a page, which is in memory, holds zeroes.
fn is_blank(page: Span) -> bool {
    // SAFETY: it is there, and may be read where the heap may; nobody else runs.
    let words = unsafe { core::slice::from_raw_parts(page.start as *const u64, PAGE / 8) };
    words.iter().all(|word| *word == 0)
}
