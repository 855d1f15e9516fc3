//! The hash of each base page's content when it came to memory: a page was written to if it has changed.
//!
//! The paper's module reads the dirty bit. The first write to a page can be told instead, but that costs the program two
//! wake-ups (docs/results/own.md, heap-redis). So only pages that will not move, because the program may not write there, have
//! their writes told.

#![expect(unsafe_code, reason = "reads pages by their addresses")]

use crate::sys::PAGE;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use xxhash_rust::xxh3::xxh3_128;

/// The halves of the hash of a page's content.
///
/// # Safety
/// As of [`Hashes::note`].
unsafe fn hash(content: usize) -> [u64; 2] {
    // SAFETY: the caller's promise.
    let hash = xxh3_128(unsafe { core::slice::from_raw_parts(content as *const u8, PAGE) });
    let bytes = hash.to_ne_bytes();
    let (halves, _) = bytes.as_chunks();
    [0, 1].map(|half| halves.get(half).map_or(0, |half| u64::from_ne_bytes(*half)))
}

/// The two halves of the hash of each base page of the heap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashes(&'static [[AtomicU64; 2]]);

impl Hashes {
    /// Hashes of pages, none of which is known.
    pub(super) const fn new(pages: &'static [[AtomicU64; 2]]) -> Self {
        Self(pages)
    }

    /// Notes the hash of a page's content, which is at an address.
    ///
    /// # Safety
    /// The content must be there, and nobody may change it.
    pub(super) unsafe fn note(&self, page: usize, content: usize) {
        // SAFETY: the caller's promise.
        let (halves, hash) = (self.0.get(page).into_iter().flatten(), unsafe { hash(content) });
        halves.zip(hash).for_each(|(half, value)| half.store(value, Relaxed));
    }

    /// Whether the content of a page, which is at an address, is what was noted.
    ///
    /// # Safety
    /// As above.
    pub(super) unsafe fn is_same(&self, page: usize, content: usize) -> bool {
        let halves =
            self.0.get(page).map(|halves| halves.each_ref().map(|half| half.load(Relaxed)));
        // SAFETY: the caller's promise.
        halves == Some(unsafe { hash(content) })
    }
}
