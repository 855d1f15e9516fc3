//! RandomAccess: random updates of a big buffer with a known amount of bloat in each huge page.
//!
//! Gangar, Panwar and Gopinath, "EMD: Fair and Efficient Dynamic Memory De-bloating of Transparent
//! Huge Pages" (ISMM 2025), section 3.1, after the HPC Challenge benchmark GUPS. Half of the huge
//! pages have 80 % bloat (102 base pages are used), half have 20 % (410 are used). In
//! RandomAccess-L the bloated half comes first, in RandomAccess-R last.
//!
//! Where we differ from the paper, which says no more than the above:
//! - the used base pages of a huge page are scattered, not a prefix, and differently in each huge
//!   page, so that whoever samples the memory is tested honestly;
//! - the place of an update depends on the word read by the one before, in two independent
//!   chains. Without that the processor overlaps a dozen updates and with them their TLB misses:
//!   at 8 GiB, base pages were 1.33 times slower than huge pages with independent updates and 1.50
//!   times with two chains (medians of nine alternated runs, AMD EPYC virtual machine);
//! - the first word of each used page is a guard that no update touches. A used page therefore
//!   never becomes zero-filled, and the guards show whether a page was lost.

use super::arena::{Arena, WORD_BYTES};
use super::clock::Stopwatch;
use super::rng::{GOLDEN, Rng, mix};
use super::{Checked, Error, PageSize, Result, Timing, Workload};
use crate::width::to_usize;
use std::hint::black_box;
use superpage_kernel::process::own_pid;
use superpage_units::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HugePages, Pid,
};

/// Used base pages of a huge page with 80 % bloat.
pub const USED_OF_HIGH_BLOAT: u64 = 102;
/// Used base pages of a huge page with 20 % bloat.
pub const USED_OF_LOW_BLOAT: u64 = 410;
/// Chains of dependent updates in flight: two were slowed most by base pages (see above).
const STREAMS: usize = 2;

const WORDS_PER_PAGE: u64 = BASE_PAGE_BYTES / WORD_BYTES;
/// The same, to index with.
const PAGE: usize = to_usize(WORDS_PER_PAGE);

/// Where the bloat is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bloat {
    /// 80 % in the first half, 20 % in the second: RandomAccess-L.
    HighFirst,
    /// 20 % in the first half, 80 % in the second: RandomAccess-R.
    LowFirst,
    /// Every base page is used.
    None,
}

/// A run of huge pages with the same number of used base pages.
#[derive(Clone, Copy, Debug)]
struct Side {
    first: u64,
    ranges: u64,
    used: u64,
}

/// Which base pages of which huge pages are used.
#[derive(Clone, Debug)]
struct Layout {
    sides: [Side; 2],
    /// A random number below this one goes to the first side, so that all used pages are equal.
    threshold: u64,
}

impl Layout {
    fn new(size: HugePages, bloat: Bloat) -> Self {
        let (first, second) = match bloat {
            Bloat::HighFirst => (USED_OF_HIGH_BLOAT, USED_OF_LOW_BLOAT),
            Bloat::LowFirst => (USED_OF_LOW_BLOAT, USED_OF_HIGH_BLOAT),
            Bloat::None => (BASE_PAGES_PER_HUGE_PAGE, BASE_PAGES_PER_HUGE_PAGE),
        };
        let half = size.0 / 2;
        let sides = [
            Side { first: 0, ranges: half, used: first },
            Side { first: half, ranges: size.0 - half, used: second },
        ];
        let share = u128::from(half * first) << 64;
        let total = u128::from((half * first + sides[1].ranges * second).max(1));
        let threshold = u64::try_from(share / total).unwrap_or(u64::MAX);
        Self { sides, threshold }
    }

    fn used(&self) -> BasePages {
        self.sides.iter().map(|side| BasePages(side.ranges * side.used)).sum()
    }

    /// The first words of all used pages, huge page by huge page.
    fn pages(&self) -> impl Iterator<Item = usize> + use<> {
        self.sides.into_iter().flat_map(|side| {
            (side.first..side.first + side.ranges)
                .flat_map(move |range| (0..side.used).map(move |slot| first_word(range, slot)))
        })
    }

    /// The word that the random number `x` means: any but the guard of any used page.
    ///
    /// Multiplications and shifts only, because their time must vanish beside a TLB miss. 23 bits
    /// choose the page within its huge page, so no page is favoured by more than 1 in 20,000.
    #[inline]
    fn word(&self, x: u64) -> usize {
        let side = &self.sides[usize::from(x >= self.threshold)];
        let y = (x ^ x.rotate_left(32)).wrapping_mul(GOLDEN);
        let y = y ^ y >> 32;
        let range = side.first + (((y >> 32) * side.ranges) >> 32);
        let slot = ((y & 0x7f_ffff) * side.used) >> 23;
        let word = (y >> 23) % WORDS_PER_PAGE;
        first_word(range, slot) + to_usize(word | u64::from(word == 0))
    }
}

/// The first word of used page `slot` of huge page `range`.
#[inline]
fn first_word(range: u64, slot: u64) -> usize {
    to_usize((range * BASE_PAGES_PER_HUGE_PAGE + scatter(range, slot)) * WORDS_PER_PAGE)
}

/// A permutation of the 512 base pages of each huge page, another one for each `range`.
///
/// Every step is a bijection on nine bits: an odd factor, a sum, a shift-and-xor.
#[inline]
fn scatter(range: u64, slot: u64) -> u64 {
    const LAST: u64 = BASE_PAGES_PER_HUGE_PAGE - 1;
    let key = range.wrapping_mul(GOLDEN) >> 40;
    let page = slot.wrapping_mul(key | 1).wrapping_add(key >> 9) & LAST;
    let page = page ^ page >> 5;
    let page = page.wrapping_mul(0x1b5) & LAST;
    page ^ page >> 4
}

/// What the guard of the page that starts at `word` holds; never zero.
fn guard(word: usize) -> u64 {
    mix(word as u64) | 1
}

/// The buffer, populated.
#[derive(Debug)]
pub struct RandomAccess {
    arena: Arena,
    layout: Layout,
    /// The xor of all words that are not guards, as it should be.
    xor: u64,
}

impl RandomAccess {
    /// Maps a buffer of `size` and touches the base pages that `bloat` leaves used.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn populate(size: Bytes, pages: PageSize, bloat: Bloat) -> Result<Self> {
        let size = size.to_huge_pages();
        let mut arena = Arena::reserve(size, pages)?;
        let layout = Layout::new(size, bloat);
        let words = arena.words_mut();
        for word in layout.pages() {
            words[word] = guard(word);
        }
        Ok(Self { arena, layout, xor: 0 })
    }
}

/// The timed loop. Returns the xor of all values written in.
fn update(words: &mut [u64], layout: &Layout, rounds: u64, seed: u64) -> u64 {
    // A zero that the compiler cannot know: it ties each address to the word read before it
    // without changing it, so that the same seed always visits the same words.
    let nothing = black_box(0_u64);
    let mut rngs: [Rng; STREAMS] = std::array::from_fn(|i| Rng::new(mix(seed) ^ i as u64));
    let mut seen = [0_u64; STREAMS];
    let mut xor = 0;
    for _ in 0..rounds {
        for (rng, seen) in rngs.iter_mut().zip(&mut seen) {
            let value = rng.next();
            let word = &mut words[layout.word(value ^ (*seen & nothing))];
            *word ^= value;
            *seen = *word;
            xor ^= value;
        }
    }
    xor
}

impl Workload for RandomAccess {
    fn pid(&self) -> Pid {
        own_pid()
    }

    fn memory(&self) -> (Bytes, BasePages) {
        (self.arena.size(), self.layout.used())
    }

    fn run(&mut self, operations: u64, seed: u64) -> Result<Timing> {
        let rounds = operations.div_ceil(STREAMS as u64);
        let watch = Stopwatch::start(self.pid())?;
        let xor = update(self.arena.words_mut(), &self.layout, rounds, seed);
        let timing = watch.stop(rounds * STREAMS as u64, xor)?;
        self.xor ^= xor;
        Ok(timing)
    }

    /// Every guard must be in place, and the xor of all other words must be that of all updates.
    fn check(&mut self) -> Result<Checked> {
        let words = self.arena.words();
        let mut xor = 0;
        for first in self.layout.pages() {
            let page = &words[first..first + PAGE];
            if page[0] != guard(first) {
                let what = format!("the guard of base page {}", first as u64 / WORDS_PER_PAGE);
                return Err(Error::Corrupt { what });
            }
            xor ^= page[1..].iter().fold(0, |xor, word| xor ^ word);
        }
        if xor != self.xor {
            return Err(Error::Corrupt { what: "the xor of all words".into() });
        }
        Ok(Checked { items: self.layout.used().0 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::rng::Rng;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const SMALL: Bytes = Bytes::from_mib(14);

    fn small(bloat: Bloat) -> RandomAccess {
        RandomAccess::populate(SMALL, PageSize::Base, bloat).expect("populated")
    }

    #[test]
    fn the_used_pages_are_as_many_as_the_paper_says() {
        let size = HugePages(4096);
        let left = Layout::new(size, Bloat::HighFirst);
        assert_eq!(left.used(), HugePages(2048).base_pages());
        assert_eq!(Layout::new(size, Bloat::None).used(), size.base_pages());
        let second_half = to_usize(HugePages(2048).base_pages().0) * PAGE;
        let first_half = left.pages().filter(|word| *word < second_half).count();
        assert_eq!(first_half, 2048 * 102);
    }

    #[test]
    fn used_pages_are_not_a_prefix() {
        let in_front = (0..1000_u64)
            .map(|range| (0..102).filter(|slot| scatter(range, *slot) < 102).count())
            .sum::<usize>();
        // A random choice would have a fifth of them, 20.3, in front.
        assert!((15_000..26_000).contains(&in_front), "{in_front}");
    }

    #[test]
    fn updates_reach_every_used_page_evenly_and_nothing_else() {
        let layout = Layout::new(HugePages(7), Bloat::LowFirst);
        let used: BTreeSet<usize> = layout.pages().collect();
        let mut counts = std::collections::BTreeMap::new();
        let mut rng = Rng::new(3);
        let per_page = 200;
        for _ in 0..per_page * used.len() {
            let word = layout.word(rng.next());
            assert_ne!(word % PAGE, 0, "a guard is never updated");
            *counts.entry(word / PAGE * PAGE).or_insert(0) += 1;
        }
        assert_eq!(counts.keys().copied().collect::<BTreeSet<_>>(), used);
        // Seven standard deviations of a binomial distribution with mean 200.
        assert!(counts.values().all(|n| (100..300).contains(n)), "{:?}", counts.values().max());
    }

    #[test]
    fn the_same_seed_gives_the_same_run_and_twice_is_nothing() {
        let mut one = small(Bloat::HighFirst);
        let mut two = small(Bloat::HighFirst);
        let untouched = one.arena.words().to_vec();
        let first = one.run(9_999, 5).expect("runs");
        assert_eq!(first.operations, 10_000);
        assert_eq!(first.checksum, two.run(9_999, 5).expect("runs").checksum);
        assert_eq!(one.arena.words(), two.arena.words());
        assert_ne!(one.arena.words(), untouched);
        one.run(9_999, 5).expect("runs");
        assert_eq!(one.arena.words(), untouched, "xor undoes itself");
    }

    #[test]
    fn a_lost_word_and_a_lost_page_are_found() {
        let mut buffer = small(Bloat::HighFirst);
        buffer.run(10_000, 1).expect("runs");
        assert_eq!(buffer.check(), Ok(Checked { items: buffer.layout.used().0 }));
        let page = buffer.layout.pages().nth(200).expect("a used page");
        buffer.arena.words_mut()[page + 9] ^= 64;
        assert!(matches!(buffer.check(), Err(Error::Corrupt { .. })));
        buffer.arena.words_mut()[page + 9] ^= 64;
        assert!(buffer.check().is_ok());
        buffer.arena.words_mut()[page..page + PAGE].fill(0);
        assert!(matches!(buffer.check(), Err(Error::Corrupt { .. })));
    }

    proptest! {
        #[test]
        fn scatter_is_a_permutation(range in any::<u64>()) {
            let pages: BTreeSet<u64> = (0..BASE_PAGES_PER_HUGE_PAGE)
                .map(|slot| scatter(range, slot)).collect();
            prop_assert_eq!(pages.len() as u64, BASE_PAGES_PER_HUGE_PAGE);
            prop_assert_eq!(pages.last(), Some(&(BASE_PAGES_PER_HUGE_PAGE - 1)));
        }

        #[test]
        fn every_random_number_means_a_word_of_the_buffer(
            x in any::<u64>(), size in 1_u64..9000, dense in any::<bool>(),
        ) {
            let bloat = if dense { Bloat::None } else { Bloat::LowFirst };
            let word = Layout::new(HugePages(size), bloat).word(x) as u64;
            prop_assert!(word * WORD_BYTES < HugePages(size).bytes().0);
        }
    }
}
