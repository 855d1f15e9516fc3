//! Looking into another process's base pages: zero-filled or not. `process_vm_readv(2)`.
//!
//! Which pages to look at, and whether whole or in an excerpt, is the caller's affair: a page is
//! zero-filled only if all of it is, but an excerpt can show that it is not. Reading needs the
//! right to ptrace-attach to the process.
//! [process_vm_readv(2)](https://man7.org/linux/man-pages/man2/process_vm_readv.2.html).
//!
//! **Do not read what is shared with another process** ([`crate::pagemap::Pagemap::is_exclusive`]).
//! The call pins pages, and before the kernel pins an anonymous page that is not the process's
//! alone, as after a fork, it gives the process a copy of it, and splits its huge page for that
//! (seen on 6.18: one page read of each of 32 shared huge pages left none of them).
//!
//! What can go wrong: pages that went away since they were found read as [`Content::Unreadable`].
//! The call takes a pid; that the number still meant the same process is checked through the
//! pidfd after each call, and what was read is dropped if it did not.

#![expect(unsafe_code, reason = "a system call that takes iovecs of another process")]

use crate::error::Result;
use crate::process::{Process, explain};
use crate::width::to_usize;
use rustix::io::Errno;
use superpage_units::{BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, Bytes, PmdRange, VirtAddr};

/// Pages read with one call. Measured: beyond 64 the buffer leaves the cache and calls no longer
/// get cheaper by sharing.
const PAGES_PER_CALL: usize = 64;

const PAGES_PER_REGION: u16 = 512; // tidy: allow(as u16; asserted below)
const _: () = assert!(PAGES_PER_REGION as u64 == BASE_PAGES_PER_HUGE_PAGE);
const _: () = assert!((PAGES_PER_REGION as usize).is_multiple_of(PAGES_PER_CALL));

const PAGE: usize = to_usize(BASE_PAGE_BYTES);

/// What a base page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeroes only.
    Zero,
    /// Anything else.
    Used,
    /// Not mapped any more, or not readable.
    Unreadable,
}

/// The zero-filled base pages of a range that was read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroPages {
    /// How many there are.
    pub count: u16,
    /// The index of the first one.
    pub first: Option<u16>,
}

/// Reads base pages; owns the buffer they are read into.
#[derive(Debug)]
pub struct Sampler {
    buffer: Vec<u8>,
    read: Bytes,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { buffer: vec![0; PAGES_PER_CALL * PAGE], read: Bytes::ZERO }
    }
}

impl Sampler {
    /// A reader that has read nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What has been read so far.
    #[must_use]
    pub fn bytes_read(&self) -> Bytes {
        self.read
    }

    /// What `piece` bytes (at most a base page, and not across its end) of `process` at each of
    /// `addresses` hold, one answer each.
    ///
    /// # Errors
    /// [`crate::Error::Gone`], [`crate::Error::Denied`].
    pub fn contents(
        &mut self,
        process: &Process,
        addresses: &[VirtAddr],
        piece: Bytes,
    ) -> Result<Vec<Content>> {
        let piece = to_usize(piece.0).clamp(1, PAGE);
        let mut contents = Vec::with_capacity(addresses.len());
        for batch in addresses.chunks(PAGES_PER_CALL) {
            let mut done = 0;
            while done < batch.len() {
                let rest = &batch[done..];
                let pieces = rest.iter().map(|start| (*start, piece));
                let pages = self.read(process, pieces)? / piece;
                contents.extend(self.judge(pages, piece));
                done += pages;
                if pages < rest.len() {
                    contents.push(Content::Unreadable);
                    done += 1;
                }
            }
        }
        process.check_alive()?;
        Ok(contents)
    }

    /// The zero-filled base pages of `range`, every one of which is read; `None` if the range
    /// cannot be read whole.
    ///
    /// # Errors
    /// As [`Sampler::contents`].
    pub fn zero_pages(&mut self, process: &Process, range: PmdRange) -> Result<Option<ZeroPages>> {
        let mut found = ZeroPages { count: 0, first: None };
        for at in (0..PAGES_PER_REGION).step_by(PAGES_PER_CALL) {
            let part = (range.base_page(at), PAGES_PER_CALL * PAGE);
            let pages = self.read(process, std::iter::once(part))? / PAGE;
            if pages < PAGES_PER_CALL {
                process.check_alive()?;
                return Ok(None);
            }
            for (index, _) in
                (at..).zip(self.judge(pages, PAGE)).filter(|(_, c)| *c == Content::Zero)
            {
                found.count += 1;
                found.first.get_or_insert(index);
            }
        }
        process.check_alive()?;
        Ok(Some(found))
    }

    fn judge(&self, pages: usize, piece: usize) -> impl Iterator<Item = Content> {
        self.buffer
            .chunks_exact(piece)
            .take(pages)
            .map(|page| if is_zero(page) { Content::Zero } else { Content::Used })
    }

    /// Reads the given ranges one after the other into the buffer, as far as they fit and can be
    /// read; returns the bytes read.
    fn read(
        &mut self,
        process: &Process,
        ranges: impl Iterator<Item = (VirtAddr, usize)>,
    ) -> Result<usize> {
        let remote: Vec<libc::iovec> = ranges
            .map(|(start, length)| libc::iovec {
                iov_base: std::ptr::without_provenance_mut(to_usize(start.0)),
                iov_len: length,
            })
            .collect();
        let local =
            libc::iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: self.buffer.len() };
        // SAFETY: the kernel writes at most `local.iov_len` bytes into our own buffer, and reads
        // `remote.len()` iovecs; the addresses in them are never used in this process.
        let read = unsafe {
            libc::process_vm_readv(
                process.pid().0.cast_signed(),
                &raw const local,
                1,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        match usize::try_from(read) {
            Ok(bytes) => {
                self.read += Bytes(bytes as u64);
                Ok(bytes)
            }
            Err(_) => none_read(process),
        }
    }
}

/// Nothing could be read: the first page is not there, or it is the process's or our fault.
fn none_read(process: &Process) -> Result<usize> {
    match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
        Errno::FAULT | Errno::NOMEM | Errno::IO => Ok(0),
        errno => Err(explain(errno, process.pid(), "read its memory")),
    }
}

/// Whether a page is zeroes only. Most used pages say so in their first words.
fn is_zero(page: &[u8]) -> bool {
    const STRIDE: usize = 256;
    page.chunks(STRIDE).all(|chunk| chunk.iter().fold(0, |any, byte| any | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_anywhere_makes_a_page_used() {
        let mut page = vec![0; PAGE];
        assert!(is_zero(&page));
        for at in [0, 1, 63, 255, 256, 2048, PAGE - 1] {
            page[at] = 1;
            assert!(!is_zero(&page), "byte {at}");
            page[at] = 0;
        }
    }

    #[test]
    fn our_own_pages_are_judged_and_missing_ones_are_unreadable() {
        let me = Process::current().expect("we run");
        let memory = vec![0u8; 4 * PAGE];
        let mut first = vec![1u8; 4 * PAGE];
        first[0] = 7;
        let page_of =
            |data: &[u8]| VirtAddr((data.as_ptr().addr() as u64).next_multiple_of(BASE_PAGE_BYTES));
        let addresses = [page_of(&memory), VirtAddr(BASE_PAGE_BYTES), page_of(&first)];
        let mut sampler = Sampler::new();
        let whole = Bytes(BASE_PAGE_BYTES);
        let contents = sampler.contents(&me, &addresses, whole).expect("we may read ourselves");
        assert_eq!(contents, [Content::Zero, Content::Unreadable, Content::Used]);
        assert_eq!(sampler.bytes_read(), whole * 2);
        let excerpt = sampler.contents(&me, &addresses, Bytes(64)).expect("we may read ourselves");
        assert_eq!(excerpt, contents);
    }
}
