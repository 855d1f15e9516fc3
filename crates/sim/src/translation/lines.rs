//! Page-table lines in a data cache: which lines of eight page-table entries are there.
//!
//! A machine's caches have hundreds of thousands of lines, looked up at random several times in
//! each walk, so what counts here is the host's memory: a set is a single word of four 16-bit
//! tags, the one used last in the lowest bits. A look-up compares all four and moves the order on
//! by arithmetic, without a branch on what is found. Real caches have more ways, and lose a little
//! less by conflicts.

use super::tlb::{Found, GeometryError, TlbGeometry};

/// Ways of a set: the tags in a word.
pub const LINE_WAYS: u32 = u64::BITS / TAG_BITS;

const TAG_BITS: u32 = u16::BITS;
/// Bits of a tag for the line's number; the three above are for its kind.
const NUMBER_BITS: u32 = TAG_BITS - 3;
/// The tag of a way that holds nothing.
const EMPTY: u16 = u16::MAX;
/// The lowest bit of every tag in a word, and the highest.
const LOW: u64 = 0x0001_0001_0001_0001;
const HIGH: u64 = LOW << (TAG_BITS - 1);
/// 2^64 divided by the golden ratio: spreads what it is multiplied with (Knuth, volume 3, 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The size of the part of a data cache that page-table lines lie in, in sets of [`LINE_WAYS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineGeometry(TlbGeometry);

impl LineGeometry {
    /// So many lines.
    ///
    /// # Errors
    /// [`GeometryError`] if there can be no such table.
    pub const fn new(lines: u32) -> Result<Self, GeometryError> {
        match TlbGeometry::new(lines, LINE_WAYS) {
            Ok(geometry) => Ok(Self(geometry)),
            Err(error) => Err(error),
        }
    }

    /// The same as a table of any kind.
    #[must_use]
    pub const fn table(self) -> TlbGeometry {
        self.0
    }
}

/// A line of eight page-table entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Which one of its kind.
    pub(super) number: u64,
    /// Its level, and whose table it is of; below 8.
    pub(super) kind: usize,
}

/// The lines in a data cache.
///
/// Within one kind and an aligned range of addresses (256 GiB where there are 1024 sets, more
/// where there are more) tags are unique. Beyond that, one in some thousands is like another's,
/// and such a line may be found where it should not have been.
#[derive(Clone, Debug)]
pub(super) struct LineCache {
    sets: Box<[u64]>,
    set_bits: u32,
}

impl LineCache {
    /// An empty one of that size.
    pub(super) fn new(LineGeometry(geometry): LineGeometry) -> Self {
        let sets = vec![u64::MAX; geometry.sets() as usize].into_boxed_slice();
        Self { sets, set_bits: geometry.sets().ilog2() }
    }

    /// The set and the tag of a line.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked, or shifted down, just before")]
    pub(super) const fn place(&self, line: Line) -> (usize, u16) {
        let set = line.number & ((1 << self.set_bits) - 1);
        let rest = line.number >> self.set_bits;
        let folded = (rest >> NUMBER_BITS).wrapping_mul(GOLDEN) >> (u64::BITS - NUMBER_BITS);
        let number = (rest ^ folded) & ((1 << NUMBER_BITS) - 1);
        let tag = ((line.kind as u64) << NUMBER_BITS | number) as u16;
        // The tag of an empty way is taken. It would be that of a line of a host's top table, of
        // which only the first few exist.
        (set as usize, if tag == EMPTY { tag - 1 } else { tag })
    }

    /// Looks for a line and makes it the one used last in its set; puts it in, for the one used
    /// longest ago, if it is not there.
    #[inline]
    pub(super) fn touch(&mut self, line: Line) -> Found {
        let (set, tag) = self.place(line);
        let old = self.sets[set];
        // The highest bit of the lowest tag that is all zeroes in `differences`.
        let differences = old ^ (u64::from(tag) * LOW);
        let equal = differences.wrapping_sub(LOW) & !differences & HIGH;
        let first = equal & equal.wrapping_neg();
        // All tags up to the one found, or all there are, move on by one.
        let moved = (first << 1).wrapping_sub(1);
        self.sets[set] = old & !moved | (old << TAG_BITS | u64::from(tag)) & moved;
        if equal == 0 { Found::Miss } else { Found::Hit }
    }

    /// Asserts what always holds: each tag once in its set, empty ways last.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for (number, set) in self.sets.iter().enumerate() {
            let tags: Vec<u16> =
                (0..LINE_WAYS).map(|way| (set >> (way * TAG_BITS)) as u16).collect();
            let full = tags.iter().take_while(|tag| **tag != EMPTY).count();
            assert!(tags[full..].iter().all(|tag| *tag == EMPTY), "holes in set {number}");
            let held: std::collections::BTreeSet<_> = tags[..full].iter().collect();
            assert_eq!(held.len(), full, "a tag twice in set {number}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn cache(lines: u32) -> LineCache {
        LineCache::new(LineGeometry::new(lines).expect("possible"))
    }

    fn line(number: u64, kind: usize) -> Line {
        Line { number, kind }
    }

    proptest! {
        #[test]
        fn it_does_what_a_list_does(
            sets in prop_oneof![Just(1u32), Just(4)],
            numbers in prop::collection::vec((0..40u64, 0..8usize), 0..400),
        ) {
            let mut cache = cache(sets * LINE_WAYS);
            let mut model = vec![vec![]; sets as usize];
            for (number, kind) in numbers {
                let set = &mut model[(number % u64::from(sets)) as usize];
                let at = set.iter().position(|held| *held == (number, kind));
                at.map(|at| set.remove(at));
                set.insert(0, (number, kind));
                set.truncate(LINE_WAYS as usize);
                let expected = if at.is_some() { Found::Hit } else { Found::Miss };
                prop_assert_eq!(cache.touch(line(number, kind)), expected);
                cache.check();
            }
        }
    }

    #[test]
    fn lines_that_are_near_each_other_are_never_mistaken() {
        let cache = cache(LINE_WAYS << 10);
        for high in [0, 0x7f00_0000_0000_u64 >> 15] {
            // All lines of a set that map 256 GiB, of every level, own and host's but the top.
            let of_level = |kind| (0..1 << 13).map(move |rest| line(high + (rest << 10), kind));
            let places: BTreeSet<_> =
                (0..7).flat_map(of_level).map(|line| cache.place(line)).collect();
            assert_eq!(places.len(), 7 << 13);
        }
        // Of the same set, each in another 256 GiB.
        let apart = (0..1000).map(|beyond| cache.place(line(5 + (beyond << 23), 0)));
        let places: BTreeSet<_> = apart.collect();
        assert!(places.len() > 900, "{}", places.len());
    }

    #[test]
    fn sizes_that_make_no_sets_are_refused() {
        let said = |lines| LineGeometry::new(lines).map_err(|e| e.to_string());
        assert!(said(8 << 10).is_ok());
        assert_eq!(said(0), Err("a TLB without entries; leave it out instead".to_owned()));
        assert!(said(6).is_err() && said(24).is_err());
    }
}
