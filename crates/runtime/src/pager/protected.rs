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
use core::sync::atomic::Ordering::Relaxed;

impl Pager {
    /// Whether a page would not move because the program may not write there.
    pub(super) fn is_protected(&self, page: Span) -> bool {
        sys::is_writable(page.start) == Ok(false)
    }

    /// Drops a base page that is protected, after writing it if it was changed.
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
        if !self.is_protected(page) {
            return Err(Errno::EINVAL);
        }
        self.uffd.protect(page)?;
        // It may have been given away for such writes while the program was allowed to write there.
        if pins::may_be(sys::process()) {
            return Err(Errno::EBUSY);
        }
        let mut buffer = Buffer::zeroes();
        sys::read_memory(page.start, buffer.content())?;
        // SAFETY: the buffer is a page of this thread's.
        if !unsafe { self.is_same(range, index, buffer.address(), after) } {
            self.write_page(range, index, buffer.address(), after).inspect_err(|_| {
                self.counters.heap.errors.fetch_add(1, Relaxed);
            })?;
            self.count_written_base();
        }
        after.dirty.remove(index);
        after.hashed.remove(index);
        // SAFETY: the program finds it again.
        unsafe { sys::madvise(page, libc::MADV_DONTNEED) }.map(|_| ())
    }
}
