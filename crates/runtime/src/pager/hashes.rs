//! The hash of each base page's content when it came to memory: a page was written to if it has changed.
//!
//! The hash has a secret of the process's own. With the one that is built into XXH3, which everybody knows, two chosen words
//! change without the hash.
//!
//! The paper's module reads the dirty bit. The first write to a page can be told instead, but that costs the program two
//! wake-ups (docs/results/own.md, heap-redis). So only pages that will not move, because the program may not write there, have
//! their writes told.

#![expect(unsafe_code, reason = "reads pages by their addresses")]

use crate::sys::{self, PAGE, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use xxhash_rust::xxh3::xxh3_128_with_secret;

/// The length of XXH3's secret in bytes, that of the one which is built into it.
const SECRET: usize = 192;

/// The two halves of the hash of each base page of the heap, and the secret of all hashes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashes {
    pages: &'static [[AtomicU64; 2]],
    secret: [u8; SECRET],
}

impl Hashes {
    /// Hashes of pages, none of which is known.
    ///
    /// # Errors
    /// The error of the kernel where it has no random bytes.
    pub(super) fn new(pages: &'static [[AtomicU64; 2]]) -> Result<Self> {
        let mut secret = [0; SECRET];
        sys::random(&mut secret)?;
        Ok(Self { pages, secret })
    }

    /// The hash of some bytes.
    pub(super) fn of(&self, content: &[u8]) -> u128 {
        xxh3_128_with_secret(content, &self.secret)
    }

    /// The halves of the hash of a page's content.
    ///
    /// # Safety
    /// As of [`Hashes::note`].
    unsafe fn halves(&self, content: usize) -> [u64; 2] {
        // SAFETY: the caller's promise.
        let hash = self.of(unsafe { core::slice::from_raw_parts(content as *const u8, PAGE) });
        let bytes = hash.to_ne_bytes();
        let (halves, _) = bytes.as_chunks();
        [0, 1].map(|half| halves.get(half).map_or(0, |half| u64::from_ne_bytes(*half)))
    }

    /// Notes the hash of a page's content, which is at an address.
    ///
    /// # Safety
    /// The content must be there, and nobody may change it.
    pub(super) unsafe fn note(&self, page: usize, content: usize) {
        // SAFETY: the caller's promise.
        let (halves, hash) =
            (self.pages.get(page).into_iter().flatten(), unsafe { self.halves(content) });
        halves.zip(hash).for_each(|(half, value)| half.store(value, Relaxed));
    }

    /// Whether the content of a page, which is at an address, is what was noted.
    ///
    /// # Safety
    /// As above.
    pub(super) unsafe fn is_same(&self, page: usize, content: usize) -> bool {
        let halves =
            self.pages.get(page).map(|halves| halves.each_ref().map(|half| half.load(Relaxed)));
        // SAFETY: the caller's promise.
        halves == Some(unsafe { self.halves(content) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two words whose products are zero with the secret that is built into XXH3: what one gains in its upper half and the other
    /// loses leaves that hash as it was.
    #[test]
    fn words_that_were_chosen_for_the_known_secret_change_the_hash() {
        let page = |first: u64, second: u64| {
            let mut page = [0_u8; PAGE];
            let words = [(0, 0x396c_feb8 | first << 32), (64, 0x2c81_017c | second << 32)];
            for (at, word) in words {
                page[at..at + 8].copy_from_slice(&word.to_ne_bytes());
            }
            page
        };
        let (before, after) = (page(1000, 5000), page(1001, 4999));
        let known = xxhash_rust::xxh3::xxh3_128;
        assert_eq!(known(&before), known(&after), "the words are those of the known secret");
        let hashes = Hashes::new(&[]).expect("the kernel has random bytes");
        assert_ne!(hashes.of(&before), hashes.of(&after));
        let others = Hashes::new(&[]).expect("the kernel has random bytes");
        assert_ne!(hashes.of(&before), others.of(&before), "each process has a secret of its own");
    }
}
