//! Base pages where the program may not write. The kernel does not move them, so they leave memory in another way: their
//! writes are told from now on, and their content is read where it is.
//!
//! The paper has no such pages: its module unmaps what it likes.

#![expect(unsafe_code, reason = "drops what is in the file")]

use super::Pager;
use super::serve::Buffer;
use super::table::Range;
use crate::pins;
use crate::sys::{self, Errno, Result, Span};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use superpage_units::Nanos;

/// The time for which an answer holds that somebody may write to memory unseen: to find it out takes milliseconds where a
/// program has many descriptors: 0.2 ms of 100, 2.4 ms of 1,000, 21 ms of 10,000.
const BETWEEN_LOOKS: Nanos = Nanos(100_000_000);

impl Pager {
    /// Whether a page would not move because the program may not write there.
    pub(super) fn is_protected(&self, page: Span) -> bool {
        sys::is_writable(page.start) == Ok(false)
    }

    /// Whether somebody may write to the program's memory without its page tables. Where that is so, it holds for a while.
    pub(super) fn may_be_written_unseen(&self) -> bool {
        let now = sys::now().0;
        if now < self.unseen_writes.load(Relaxed) {
            return true;
        }
        let may_be = pins::may_be(sys::process());
        if may_be {
            self.unseen_writes.store(now + BETWEEN_LOOKS.0, Relaxed);
        }
        may_be
    }

    /// Drops a base page that is protected, after keeping what was changed of it and of the others of its range, so that those
    /// can be dropped later without a look at them.
    ///
    /// # Errors
    /// EBUSY where somebody may write to it without the page tables, and what the kernel says. It is in its place then.
    pub(super) fn drop_protected(
        &self,
        range: usize,
        index: usize,
        after: &mut Range,
    ) -> Result<()> {
        let page = self.page(range, index);
        let vma = sys::vma_at(page.start)?.overlap(self.span(range)).ok_or(Errno::EINVAL)?;
        let others = self.pages_of(range, vma).filter(|other| *other != index);
        let changed = |index: &usize| after.resident.has(*index) && after.dirty.has(*index);
        let others: Vec<usize> = others.filter(changed).collect();
        // Pages that are missing get no mark: it would be in the way of another, and of a promotion.
        for index in others.iter().chain([&index]) {
            self.uffd.protect(self.page(range, *index))?;
        }
        // It may have been given away for such writes while the program was allowed to write there.
        if self.may_be_written_unseen() {
            return Err(Errno::EBUSY);
        }
        self.keep_protected(range, index, after)?;
        for other in others {
            // A fault in the range waits for its end.
            if self.table.with(|table| table.was_touched(range))
                || self.keep_protected(range, other, after).is_err()
            {
                break;
            }
        }
        // SAFETY: the program finds it again.
        unsafe { sys::madvise(page, libc::MADV_DONTNEED) }.map(|_| ())
    }

    /// Keeps in the file what a page holds whose writes are told, if that was changed.
    fn keep_protected(&self, range: usize, index: usize, after: &mut Range) -> Result<()> {
        let mut buffer = Buffer::zeroes();
        sys::read_memory(self.page(range, index).start, buffer.content())?;
        // SAFETY: the buffer is a page of this thread's.
        if !unsafe { self.is_same(range, index, buffer.address(), after) } {
            self.write_base(range, index, buffer.address(), after).inspect_err(|_| {
                self.counters.heap.errors.fetch_add(1, Relaxed);
            })?;
        }
        after.dirty.remove(index);
        after.hashed.remove(index);
        Ok(())
    }
}
