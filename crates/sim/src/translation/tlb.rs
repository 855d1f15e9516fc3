//! A set-associative table with exact LRU replacement: what TLBs and page-walk caches
//! are. It holds keys only; what they stand for is the caller's.
//!
//! One flat array and no allocation after the construction. The order of use is the order of the
//! keys within a set, so that looking up, replacing and ageing are one pass over a few neighbouring
//! words, and nothing else has to be kept.

/// Ways that a set can have. Chosen, not measured: a look-up is one pass over them.
pub const MOST_WAYS: u32 = 256;
/// Entries that a table can have. Chosen, not measured: no processor comes near it, and a typing
/// error must not take the host's memory.
pub const MOST_ENTRIES: u32 = 1 << 24;

/// The shape of a set-associative table: entries, and ways of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbGeometry {
    entries: u32,
    ways: u32,
}

/// Why a table cannot have that shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// No entries.
    #[error("a TLB without entries; leave it out instead")]
    NoEntries,
    /// More than [`MOST_ENTRIES`].
    #[error("a TLB of {0} entries; the most is {MOST_ENTRIES}")]
    TooManyEntries(u32),
    /// No ways.
    #[error("a TLB without ways; it has at least 1")]
    NoWays,
    /// More than [`MOST_WAYS`].
    #[error("a TLB of {0} ways; the most is {MOST_WAYS}")]
    TooManyWays(u32),
    /// The sets would not all have the same number of ways.
    #[error("{entries} TLB entries cannot be divided into sets of {ways} ways")]
    Uneven {
        /// As asked for.
        entries: u32,
        /// As asked for.
        ways: u32,
    },
    /// No bits of an address could choose the set.
    #[error(
        "{entries} TLB entries in {ways} ways make {} sets, which is not a power of two",
        entries / ways
    )]
    SetsNotPowerOfTwo {
        /// As asked for.
        entries: u32,
        /// As asked for.
        ways: u32,
    },
}

impl TlbGeometry {
    /// A table of `entries` in sets of `ways`.
    ///
    /// # Errors
    /// [`GeometryError`] if there can be no such table.
    pub const fn new(entries: u32, ways: u32) -> Result<Self, GeometryError> {
        if entries == 0 {
            return Err(GeometryError::NoEntries);
        }
        if entries > MOST_ENTRIES {
            return Err(GeometryError::TooManyEntries(entries));
        }
        if ways == 0 {
            return Err(GeometryError::NoWays);
        }
        if ways > MOST_WAYS {
            return Err(GeometryError::TooManyWays(ways));
        }
        if !entries.is_multiple_of(ways) {
            return Err(GeometryError::Uneven { entries, ways });
        }
        if !(entries / ways).is_power_of_two() {
            return Err(GeometryError::SetsNotPowerOfTwo { entries, ways });
        }
        Ok(Self { entries, ways })
    }

    /// All entries.
    #[must_use]
    pub const fn entries(self) -> u32 {
        self.entries
    }

    /// Entries of a set.
    #[must_use]
    pub const fn ways(self) -> u32 {
        self.ways
    }

    /// Sets.
    #[must_use]
    pub const fn sets(self) -> u32 {
        self.entries / self.ways
    }
}

/// Whether a key was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Hit,
    Miss,
}

/// A way that holds nothing. No key looks like this: see [`super::walk`] for their layout.
const EMPTY: u64 = u64::MAX;

/// The table. The low bits of a key choose its set.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// The keys, set after set; within a set the one used last comes first, empty ways come last.
    keys: Box<[u64]>,
    ways: usize,
    mask: u64,
}

impl Table {
    /// An empty table of that shape.
    pub(super) fn new(geometry: TlbGeometry) -> Self {
        let keys = vec![EMPTY; geometry.entries() as usize].into_boxed_slice();
        let mask = u64::from(geometry.sets()) - 1;
        Self { keys, ways: geometry.ways() as usize, mask }
    }

    /// The ways of the set that `key` belongs to.
    #[inline]
    fn set(&mut self, key: u64) -> &mut [u64] {
        #[expect(clippy::cast_possible_truncation, reason = "sets are counted in 24 bits")]
        let first = (key & self.mask) as usize * self.ways;
        &mut self.keys[first..first + self.ways]
    }

    /// Looks for `key` and makes it the one used last; puts it in, for the one used longest ago,
    /// if it is not there.
    #[inline]
    pub(super) fn touch(&mut self, key: u64) -> Found {
        let set = self.set(key);
        // The numbers of ways that processors have, so that the compiler knows them.
        if let Ok(set) = <&mut [u64; 4]>::try_from(&mut *set) {
            return touch(set, key);
        }
        if let Ok(set) = <&mut [u64; 12]>::try_from(&mut *set) {
            return touch(set, key);
        }
        if let Ok(set) = <&mut [u64; 8]>::try_from(&mut *set) {
            return touch(set, key);
        }
        touch(set, key)
    }

    /// Asserts what always holds: keys in their sets and only once, empty ways last.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for (number, set) in (0..).zip(self.keys.chunks_exact(self.ways)) {
            let full = set.iter().take_while(|key| **key != EMPTY).count();
            assert!(set[full..].iter().all(|key| *key == EMPTY), "holes in set {number}");
            assert!(set[..full].iter().all(|key| key & self.mask == number), "set {number}");
            let mut keys = set[..full].to_vec();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), full, "a key twice in set {number}");
        }
    }
}

/// Searches, and moves what is passed back by one way, both in one go.
#[inline(always)]
fn touch<'a>(set: impl IntoIterator<Item = &'a mut u64>, key: u64) -> Found {
    let mut newer = key;
    for way in set {
        let held = core::mem::replace(way, newer);
        if held == key {
            return Found::Hit;
        }
        newer = held;
    }
    Found::Miss
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same, slow and obvious: each set a list, the one used last in front.
    struct Model {
        sets: Vec<Vec<u64>>,
        ways: usize,
    }

    impl Model {
        fn touch(&mut self, key: u64) -> Found {
            let (count, ways) = (self.sets.len() as u64, self.ways);
            let set = &mut self.sets[(key % count) as usize];
            let found = set.iter().position(|held| *held == key).map(|at| set.remove(at));
            set.insert(0, key);
            set.truncate(ways);
            if found.is_some() { Found::Hit } else { Found::Miss }
        }
    }

    proptest! {
        #[test]
        fn it_does_what_the_slow_model_does(
            ways in prop_oneof![Just(1u32), Just(2), Just(3), Just(4), Just(8), Just(12), Just(72)],
            sets in prop_oneof![Just(1u32), Just(2), Just(8)],
            keys in prop::collection::vec(0..200u64, 0..400),
        ) {
            let geometry = TlbGeometry::new(ways * sets, ways).expect("possible");
            let mut table = Table::new(geometry);
            let mut model = Model { sets: vec![vec![]; sets as usize], ways: ways as usize };
            for key in keys {
                prop_assert_eq!(table.touch(key), model.touch(key));
                table.check();
            }
        }
    }

    #[test]
    fn as_many_as_fit_stay_and_one_more_pushes_out_the_oldest() {
        let mut table = Table::new(TlbGeometry::new(256, 256).expect("possible"));
        assert!((0..256).all(|key| table.touch(key) == Found::Miss));
        assert!((0..256).all(|key| table.touch(key) == Found::Hit));
        assert_eq!(table.touch(256), Found::Miss);
        assert_eq!(table.touch(1), Found::Hit);
        assert_eq!(table.touch(0), Found::Miss);
        table.check();
    }

    #[test]
    fn impossible_shapes_are_refused_in_a_sentence() {
        let said = |entries, ways| TlbGeometry::new(entries, ways).map_err(|e| e.to_string());
        assert_eq!(TlbGeometry::new(1536, 12).map(TlbGeometry::sets), Ok(128));
        for (entries, ways, words) in [
            (0, 4, "a TLB without entries; leave it out instead"),
            (1 << 25, 4, "a TLB of 33554432 entries; the most is 16777216"),
            (64, 0, "a TLB without ways; it has at least 1"),
            (1024, 512, "a TLB of 512 ways; the most is 256"),
            (64, 5, "64 TLB entries cannot be divided into sets of 5 ways"),
            (4, 8, "4 TLB entries cannot be divided into sets of 8 ways"),
            (48, 4, "48 TLB entries in 4 ways make 12 sets, which is not a power of two"),
        ] {
            assert_eq!(said(entries, ways), Err(words.to_owned()));
        }
    }
}
