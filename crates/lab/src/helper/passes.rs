//! A program that has one large mapping, fills it, and then passes over it in a pattern, for memory that is smaller
//! than its data. It compares every word that it reads with the one that it wrote there.
//!
//! The program's memory comes from libc, whose functions a library may take the place of. The program knows nothing of
//! where its data goes when memory is short, nor on which pages it lies.

#![expect(unsafe_code, reason = "maps its data by libc")]

use super::{Answer, Order, Play, refused};
use crate::width::to_usize;
use crate::workload::rng::{GOLDEN, Rng};
use crate::workload::zipf::Zipf;
use serde::{Deserialize, Serialize};
use std::time::Instant;
use superpage_units::{BASE_PAGE_BYTES, Bytes, HugePages};

/// The order in which a pass visits the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pattern {
    /// The program reads every word in order.
    SequentialRead,
    /// The program writes every word in order.
    SequentialWrite,
    /// The program reads a word of every third base page in order, and goes on so from the second base page and from the third.
    Strided,
    /// Four threads read a quarter of the words each, in order.
    FourStreams,
    /// The program reads as many words at random as there are base pages.
    Uniform,
    /// The program reads eight times as many words, of base pages that are popular by Zipf's law.
    Zipf,
}

impl Pattern {
    /// All patterns.
    #[cfg(test)]
    pub(super) const ALL: [Self; 6] = [
        Self::SequentialRead,
        Self::SequentialWrite,
        Self::Strided,
        Self::FourStreams,
        Self::Uniform,
        Self::Zipf,
    ];
}

/// The data as it was filled last, by the number of that filling.
#[derive(Clone, Copy, Debug)]
struct Content(u64);

impl Content {
    /// The word at a place. Each differs from all others, by no rule that a compressor finds.
    const fn at(self, place: usize) -> u64 {
        (place as u64 ^ self.0 << 48).wrapping_mul(GOLDEN)
    }

    /// Reads words, the first of which is at `first`. The loop has no branch, so that it is as fast as memory.
    fn compare(self, first: usize, words: &[u64]) -> Result<(), String> {
        let differ = |(place, word): &(usize, &u64)| **word != self.at(first + *place);
        let differing: u64 = words.iter().enumerate().map(|of| u64::from(differ(&of))).sum();
        match differing {
            0 => Ok(()),
            _ => Err(words.iter().enumerate().find(differ).map_or_else(
                || format!("{differing} words were wrong and no longer are"),
                |(place, word)| self.wrong(first + place, *word),
            )),
        }
    }

    fn wrong(self, place: usize, found: u64) -> String {
        let expected = self.at(place);
        format!("word {place} of the data is {found:#x} instead of {expected:#x}")
    }
}

/// Words on a base page.
const WORDS: usize = to_usize(BASE_PAGE_BYTES) / size_of::<u64>();
const STRIDE: usize = 3;
const STREAMS: usize = 4;
/// The words that are read of each base page on average where some are popular. Chosen: about 2 % of such reads are of
/// the least popular quarter, so that a pass has as many misses as one of [`Pattern::Uniform`], about.
const POPULAR_READS: usize = 8;

/// The program.
pub(super) struct Passes {
    data: Data,
    pattern: Pattern,
    content: Content,
    /// Chooses base pages for [`Pattern::Zipf`].
    zipf: Zipf,
}

impl Passes {
    /// Maps the data; nothing of it is touched.
    pub(super) fn new(pattern: Pattern, size: HugePages) -> Result<Self, String> {
        let data = Data::map(size.bytes())?;
        Ok(Self { data, pattern, content: Content(0), zipf: Zipf::new(size.base_pages().0) })
    }

    fn fill(&mut self) {
        self.content.0 += 1;
        let content = self.content;
        for (place, word) in self.data.words_mut().iter_mut().enumerate() {
            *word = content.at(place);
        }
    }

    fn pass(&mut self, seed: u64) -> Result<(), String> {
        let pages = self.data.words().len() / WORDS;
        match self.pattern {
            Pattern::SequentialRead => self.check(),
            Pattern::SequentialWrite => {
                self.fill();
                Ok(())
            }
            Pattern::Strided => {
                let places = (0..STRIDE).flat_map(|first| (first..pages).step_by(STRIDE));
                self.read(places.map(|page| page * WORDS + page % WORDS))
            }
            Pattern::FourStreams => self.streams(),
            Pattern::Uniform => {
                let (mut rng, words) = (Rng::new(seed), (pages * WORDS) as u64);
                self.read((0..pages).map(|_| to_usize(rng.below(words))))
            }
            Pattern::Zipf => {
                let mut rng = Rng::new(seed);
                let place = |_| {
                    let page = to_usize(self.zipf.scattered(&mut rng));
                    page * WORDS + to_usize(rng.below(WORDS as u64))
                };
                self.read((0..pages * POPULAR_READS).map(place))
            }
        }
    }

    /// Reads all of the data in order.
    fn check(&self) -> Result<(), String> {
        self.content.compare(0, self.data.words())
    }

    fn streams(&self) -> Result<(), String> {
        let (words, content) = (self.data.words(), self.content);
        let part = words.len().div_ceil(STREAMS);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (words.chunks(part).enumerate())
                .map(|(stream, words)| scope.spawn(move || content.compare(stream * part, words)))
                .collect();
            let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<(), String>>| {
                thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
            };
            threads.into_iter().try_for_each(ended)
        })
    }

    /// Reads the words at these places.
    fn read(&self, places: impl Iterator<Item = usize>) -> Result<(), String> {
        let words = self.data.words();
        for place in places {
            if words[place] != self.content.at(place) {
                return Err(self.content.wrong(place, words[place]));
            }
        }
        Ok(())
    }
}

impl Play for Passes {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        let start = Instant::now();
        match order {
            Order::Go => self.fill(),
            Order::Check => self.check()?,
            Order::Pass { seed } => self.pass(seed)?,
            _ => return refused(order),
        }
        Ok(Answer::Done { nanos: u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX) })
    }
}

/// A private anonymous mapping, until the process ends.
struct Data {
    first: *mut u64,
    words: usize,
}

impl Data {
    fn map(size: Bytes) -> Result<Self, String> {
        let (access, length) = (libc::PROT_READ | libc::PROT_WRITE, to_usize(size.0));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping touches nothing of ours.
        let first = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0) };
        if first == libc::MAP_FAILED {
            return Err(format!("map {size}: {}", std::io::Error::last_os_error()));
        }
        Ok(Self { first: first.cast(), words: length / size_of::<u64>() })
    }

    fn words(&self) -> &[u64] {
        // SAFETY: the mapping is never unmapped, a page's start is aligned for words, and any bytes are words.
        unsafe { std::slice::from_raw_parts(self.first, self.words) }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`; nobody else has a slice while `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.words) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_word_is_named() {
        for pattern in [Pattern::SequentialRead, Pattern::FourStreams, Pattern::Strided] {
            let mut passes = Passes::new(pattern, HugePages(1)).expect("2 MiB");
            passes.fill();
            assert_eq!(passes.pass(1), Ok(()));
            // A place that also the strided pass reads.
            let place = 7 * WORDS + 7;
            passes.data.words_mut()[place] ^= 1;
            let said = passes.pass(1).expect_err("a wrong word");
            assert!(said.starts_with(&format!("word {place} of")), "{said}");
        }
    }

    #[test]
    fn a_filling_changes_every_word() {
        let mut passes = Passes::new(Pattern::SequentialWrite, HugePages(1)).expect("2 MiB");
        passes.fill();
        let before = passes.data.words().to_vec();
        assert_eq!(passes.pass(1), Ok(()));
        assert!(before.iter().zip(passes.data.words()).all(|(one, other)| one != other));
        assert_eq!(passes.check(), Ok(()));
    }
}
