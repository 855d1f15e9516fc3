//! A B+ tree whose nodes lie in arenas of huge pages, and random lookups in it.
//!
//! The BTree workload of EMD (ISMM 2025, Table 2: 10 GB on base pages, 44 GB on huge pages; Figure
//! 4(b): three kinds of huge pages, with nearly all, about half and none of their base pages
//! zero-filled). The paper used another program; ours has the same three kinds for these reasons:
//! - each level of the tree has its own arena, in which nodes are slots of 64 KiB. A slot holds a
//!   prefix of records, so the base pages behind the last record are zero-filled;
//! - the keys are a time series in three ranges, in this order of address. **Appended**: records
//!   came in ascending order, and a leaf that splits and is never inserted into again stays half
//!   full. **Reserved**: leaves made ahead of the records to come, each with a first few records.
//!   **Archived**: rewritten in bulk, leaf by leaf full.
//!
//! By the shares of the ranges three quarters of the footprint are bloat, as in the paper. Lookups
//! are uniform over all records, so they fall mostly into the appended and the archived range.
//!
//! What the tree does not do: remove records, or share anything between threads.

use super::arena::{Arena, WORD_BYTES};
use super::clock::Stopwatch;
use super::rng::{Rng, mix};
use super::{Checked, Error, PageSize, Result, Timing, Workload};
use crate::width::to_usize;
use superpage_kernel::process::own_pid;
use superpage_units::{BASE_PAGE_BYTES, BasePages, Bytes, HugePages, Pid};

/// A key and its value.
type Pair = [u64; 2];

/// Words at the start of a slot: the number of pairs, and the greatest key, which lies on the
/// same cache line as the least one and so makes interpolation cheap.
const HEADER: usize = 2;

/// The slots of one level. An inner node's pairs are the least key under a child, and the child's
/// slot in the level below. The first of a level is 0, for no key is less.
#[derive(Debug)]
struct Level {
    arena: Arena,
    slot_words: usize,
    slots: usize,
}

impl Level {
    fn reserve(size: HugePages, pages: PageSize, slot: Bytes) -> Result<Self> {
        let slot_words = to_usize(slot.0 / WORD_BYTES);
        Ok(Self { arena: Arena::reserve(size, pages)?, slot_words, slots: 0 })
    }

    /// How many pairs a slot has room for.
    fn room(&self) -> usize {
        (self.slot_words - HEADER) / 2
    }

    fn slot(&self, slot: usize) -> &[u64] {
        &self.arena.words()[slot * self.slot_words..][..self.slot_words]
    }

    fn slot_mut(&mut self, slot: usize) -> &mut [u64] {
        let words = self.slot_words;
        &mut self.arena.words_mut()[slot * words..][..words]
    }

    /// The pairs of a node, in ascending order of keys.
    #[inline]
    fn pairs(&self, slot: usize) -> &[Pair] {
        let words = self.slot(slot);
        let pairs = words[HEADER..].as_chunks().0;
        &pairs[..to_usize(words[0])]
    }

    /// The least index of a node whose key is at least `key`; the number of pairs if there is none.
    ///
    /// Interpolates first: keys of a time series are nearly evenly spaced, and a binary search
    /// would touch ten cold cache lines where this touches two.
    #[inline]
    fn seek(&self, slot: usize, key: u64) -> usize {
        let pairs = self.pairs(slot);
        let greatest = self.slot(slot)[1];
        match pairs.first() {
            Some([least, _]) if key > *least && key <= greatest => {
                let share = (key - least) as f64 / (greatest - least) as f64;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a share of the number of pairs is a positive index"
                )]
                let guess = (share * (pairs.len() - 1) as f64) as usize;
                gallop(pairs, guess.min(pairs.len() - 1), key)
            }
            Some([least, _]) if key > *least => pairs.len(),
            _ => 0,
        }
    }

    /// Which child of an inner node `key` belongs to.
    #[inline]
    fn child_of(&self, slot: usize, key: u64) -> usize {
        let above =
            key.checked_add(1).map_or_else(|| self.pairs(slot).len(), |next| self.seek(slot, next));
        above.saturating_sub(1)
    }

    /// A new node with these pairs.
    ///
    /// # Errors
    /// [`Error::TooSmall`] if the arena is full.
    fn add(&mut self, pairs: impl Iterator<Item = Pair>) -> Result<usize> {
        let slot = self.slots;
        let end = (slot + 1) * self.slot_words;
        if end > self.arena.words().len() {
            let size = self.arena.size();
            return Err(Error::TooSmall { size, least: Bytes(end as u64 * WORD_BYTES) });
        }
        let words = self.slot_mut(slot);
        let mut count = 0;
        for (place, pair) in words[HEADER..].as_chunks_mut().0.iter_mut().zip(pairs) {
            *place = pair;
            count += 1;
        }
        words[0] = count;
        set_greatest(words);
        self.slots += 1;
        Ok(slot)
    }

    /// Puts `pair` at `index` of a node that has room.
    fn insert(&mut self, slot: usize, index: usize, pair: Pair) {
        let words = self.slot_mut(slot);
        let count = to_usize(words[0]);
        let pairs = words[HEADER..].as_chunks_mut().0;
        pairs.copy_within(index..count, index + 1);
        pairs[index] = pair;
        words[0] += 1;
        set_greatest(words);
    }

    /// Moves the upper half of a full node to a new one, and wipes where it was, so that the
    /// pages behind the last record are zero again.
    fn split(&mut self, slot: usize) -> Result<usize> {
        let half = self.room() / 2;
        let upper = self.pairs(slot)[half..].to_vec();
        let new = self.add(upper.into_iter())?;
        let words = self.slot_mut(slot);
        words[0] = half as u64;
        words[HEADER + 2 * half..].fill(0);
        set_greatest(words);
        Ok(new)
    }

    /// The least key of a node; the greatest number if it is empty.
    fn least(&self, slot: usize) -> u64 {
        self.pairs(slot).first().map_or(u64::MAX, |pair| pair[0])
    }

    fn header_is_right(&self, slot: usize) -> bool {
        self.slot(slot)[1] == self.pairs(slot).last().map_or(0, |pair| pair[0])
    }

    /// The base pages that the node's records lie on.
    fn used(&self, slot: usize) -> BasePages {
        let words = HEADER + 2 * self.pairs(slot).len();
        Bytes(words as u64 * WORD_BYTES).to_base_pages()
    }
}

/// Puts the greatest key of a node into its header.
fn set_greatest(words: &mut [u64]) {
    let count = to_usize(words[0]);
    words[1] = if count == 0 { 0 } else { words[HEADER + 2 * (count - 1)] };
}

/// The least index whose key is at least `key`, looked for from `guess` on in growing steps.
#[inline]
fn gallop(pairs: &[Pair], guess: usize, key: u64) -> usize {
    let is_less = |pair: &Pair| pair[0] < key;
    let mut step = 1;
    let (low, high) = if is_less(&pairs[guess]) {
        let mut low = guess + 1;
        while pairs.get(low + step - 1).is_some_and(is_less) {
            low += step;
            step *= 2;
        }
        (low, pairs.len().min(low + step))
    } else {
        let mut high = guess;
        while high >= step && !is_less(&pairs[high - step]) {
            high -= step;
            step *= 2;
        }
        (high.saturating_sub(step), high)
    };
    low + pairs[low..high].partition_point(is_less)
}

/// The sizes of a tree's nodes and the memory that it may take.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// A node of any level. At least 64 bytes, a divisor of a huge page.
    pub slot: Bytes,
    /// The arena of the leaves.
    pub leaves: HugePages,
    /// The arena of each level above them.
    pub inner: HugePages,
    /// The page size of all arenas.
    pub pages: PageSize,
}

/// A map from `u64` to `u64` in ascending order of keys.
#[derive(Debug)]
pub struct BPlusTree {
    shape: Shape,
    /// The leaves first, the level of the root last.
    levels: Vec<Level>,
    records: u64,
}

impl BPlusTree {
    /// An empty tree.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn new(shape: Shape) -> Result<Self> {
        let mut leaves = Level::reserve(shape.leaves, shape.pages, shape.slot)?;
        leaves.add(std::iter::empty())?;
        Ok(Self { shape, levels: vec![leaves], records: 0 })
    }

    /// A tree of the records of `leaves`, each an iterator over one leaf's records, all in
    /// ascending order. A leaf takes no more records than it has room for; the rest is dropped.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::TooSmall`] if they do not fit into the arenas.
    pub fn bulk_load<L: Iterator<Item = Pair>>(
        shape: Shape,
        leaves: impl Iterator<Item = L>,
    ) -> Result<Self> {
        let mut level = Level::reserve(shape.leaves, shape.pages, shape.slot)?;
        let mut records = 0;
        for leaf in leaves {
            let slot = level.add(leaf)?;
            records += level.pairs(slot).len() as u64;
        }
        if level.slots == 0 {
            level.add(std::iter::empty())?;
        }
        let mut tree = Self { shape, levels: vec![level], records };
        while tree.top().slots > 1 {
            tree.add_level()?;
        }
        Ok(tree)
    }

    /// Adds a level of full nodes above the top one.
    fn add_level(&mut self) -> Result<()> {
        let mut level = Level::reserve(self.shape.inner, self.shape.pages, self.shape.slot)?;
        let below = self.top();
        for first in (0..below.slots).step_by(level.room()) {
            let children = first..below.slots.min(first + level.room());
            // Whatever is less than all keys so far belongs to the first child too.
            let separator = |child| if child == 0 { 0 } else { below.least(child) };
            level.add(children.map(|child| [separator(child), child as u64]))?;
        }
        self.levels.push(level);
        Ok(())
    }

    fn top(&self) -> &Level {
        &self.levels[self.levels.len() - 1]
    }

    /// The number of records.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.records
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: u64) -> Option<u64> {
        let slot = self.levels[1..]
            .iter()
            .rev()
            .fold(0, |slot, level| to_usize(level.pairs(slot)[level.child_of(slot, key)][1]));
        let leaves = &self.levels[0];
        leaves
            .pairs(slot)
            .get(leaves.seek(slot, key))
            .filter(|pair| pair[0] == key)
            .map(|pair| pair[1])
    }

    /// Sets the value of `key` and returns the one it had.
    ///
    /// # Errors
    /// [`Error::TooSmall`] if an arena is full, and then nothing has changed but the shape of the
    /// tree; [`Error::Memory`].
    pub fn insert(&mut self, key: u64, value: u64) -> Result<Option<u64>> {
        if self.is_full(self.levels.len() - 1, 0) {
            self.grow_root()?;
        }
        let mut slot = 0;
        for level in (1..self.levels.len()).rev() {
            slot = self.descend(level, slot, key)?;
        }
        let index = self.levels[0].seek(slot, key);
        if let Some(&[found, old]) = self.levels[0].pairs(slot).get(index)
            && found == key
        {
            let at = HEADER + 2 * index + 1;
            self.levels[0].slot_mut(slot)[at] = value;
            return Ok(Some(old));
        }
        self.levels[0].insert(slot, index, [key, value]);
        self.records += 1;
        Ok(None)
    }

    /// The child of `slot` that `key` belongs to, split first if it is full; `slot` has room.
    fn descend(&mut self, level: usize, slot: usize, key: u64) -> Result<usize> {
        let index = self.levels[level].child_of(slot, key);
        let child = to_usize(self.levels[level].pairs(slot)[index][1]);
        if !self.is_full(level - 1, child) {
            return Ok(child);
        }
        let new = self.levels[level - 1].split(child)?;
        let least = self.levels[level - 1].least(new);
        self.levels[level].insert(slot, index + 1, [least, new as u64]);
        Ok(if key < least { child } else { new })
    }

    fn is_full(&self, level: usize, slot: usize) -> bool {
        let level = &self.levels[level];
        level.pairs(slot).len() == level.room()
    }

    /// Puts a root with one child above the old root, whose slot is 0 as that of every root.
    fn grow_root(&mut self) -> Result<()> {
        let mut level = Level::reserve(self.shape.inner, self.shape.pages, self.shape.slot)?;
        level.add(std::iter::once([0, 0]))?;
        self.levels.push(level);
        Ok(())
    }

    /// All records in ascending order of keys.
    pub fn iter(&self) -> impl Iterator<Item = Pair> {
        self.leaves_under(self.levels.len() - 1, 0)
            .flat_map(|leaf| self.levels[0].pairs(leaf).iter().copied())
    }

    /// The leaves under a node, from left to right.
    fn leaves_under(&self, level: usize, slot: usize) -> Box<dyn Iterator<Item = usize> + '_> {
        if level == 0 {
            return Box::new(std::iter::once(slot));
        }
        let children = self.levels[level].pairs(slot).iter();
        Box::new(children.flat_map(move |pair| self.leaves_under(level - 1, to_usize(pair[1]))))
    }

    /// The footprint on huge pages, and the base pages that records lie on. Exact for slots of
    /// whole base pages.
    #[must_use]
    pub fn memory(&self) -> (Bytes, BasePages) {
        let touched = |level: &Level| {
            let bytes = Bytes((level.slots * level.slot_words) as u64 * WORD_BYTES);
            HugePages(bytes.0.div_ceil(HugePages(1).bytes().0)).bytes()
        };
        let used = |level: &Level| (0..level.slots).map(|slot| level.used(slot)).sum::<BasePages>();
        (self.levels.iter().map(touched).sum(), self.levels.iter().map(used).sum())
    }

    /// Checks every invariant: order within and between nodes, headers, separators, the number of
    /// records.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the first that does not hold.
    pub fn check(&self) -> Result<()> {
        let corrupt = |what: String| Err(Error::Corrupt { what });
        for (height, level) in self.levels.iter().enumerate().skip(1) {
            for slot in 0..level.slots {
                let pairs = level.pairs(slot);
                if pairs.is_empty() || pairs.len() > level.room() {
                    return corrupt(format!("node {slot} of level {height} has no child"));
                }
                if !level.header_is_right(slot) {
                    return corrupt(format!("the header of node {slot} of level {height}"));
                }
                let below = &self.levels[height - 1];
                let wrong = |pair: &Pair| below.least(to_usize(pair[1])) < pair[0];
                if pairs.iter().any(wrong) || !pairs.is_sorted_by_key(|pair| pair[0]) {
                    return corrupt(format!("a separator in node {slot} of level {height}"));
                }
            }
        }
        let leaves = &self.levels[0];
        if let Some(slot) = (0..leaves.slots).find(|slot| !leaves.header_is_right(*slot)) {
            return corrupt(format!("the header of leaf {slot}"));
        }
        let (mut count, mut last) = (0, None);
        for [key, _] in self.iter() {
            if last.is_some_and(|last| last >= key) {
                return corrupt(format!("key {key} is out of order"));
            }
            (count, last) = (count + 1, Some(key));
        }
        if count == self.records { Ok(()) } else { corrupt(format!("{count} records")) }
    }
}

/// A node of the workload: 16 base pages, so that a leaf with one page of records has 94 % bloat.
const SLOT: Bytes = Bytes::from_kib(64);
/// Between two keys, so that not every number is a key. Chosen, not measured.
const KEY_STEP: u64 = 16;

/// A range of keys whose leaves are equally full.
#[derive(Clone, Copy, Debug)]
struct Range {
    /// Its share of the leaves, in percent.
    percent: u64,
    /// Base pages with records in each leaf.
    pages: u64,
}

/// Appended, reserved, archived: the shares make three quarters of all base pages zero-filled.
const RANGES: [Range; 3] = [
    Range { percent: 20, pages: 8 },
    Range { percent: 70, pages: 1 },
    Range { percent: 10, pages: 16 },
];

/// How many records fit on the first `pages` base pages of a leaf.
const fn records_on(pages: u64) -> u64 {
    (pages * BASE_PAGE_BYTES / WORD_BYTES - HEADER as u64) / 2
}

/// The arenas of a tree whose footprint is `size`: leaves, a level above them, and a root above
/// that if one node is not enough.
fn shape(size: HugePages, pages: PageSize) -> Shape {
    let room = records_on(SLOT.to_base_pages().0);
    // A huge page holds as many inner nodes as leaves, each of which has this many children.
    let inner = HugePages(size.0.div_ceil(room + 1));
    let leaves = size.saturating_sub(inner);
    let roots = HugePages(u64::from(leaves.bytes().0 / SLOT.0 > room));
    Shape { slot: SLOT, leaves: leaves.saturating_sub(roots), inner, pages }
}

/// The workload: a tree and lookups in it.
#[derive(Debug)]
pub struct Lookups {
    tree: BPlusTree,
}

impl Lookups {
    /// Bulk-loads a tree with a footprint of `size`.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn populate(size: Bytes, pages: PageSize) -> Result<Self> {
        let shape = shape(size.to_huge_pages(), pages);
        let count = shape.leaves.bytes().0 / SLOT.0;
        let mut next = 0;
        let fills = RANGES.into_iter().enumerate().flat_map(|(i, range)| {
            let before: u64 = RANGES[..i].iter().map(|range| range.percent).sum();
            let from = count * before / 100;
            let to = count * (before + range.percent) / 100;
            (from..to).map(move |_| records_on(range.pages))
        });
        let tree = BPlusTree::bulk_load(
            shape,
            fills.map(|records| {
                let first = next;
                next += records;
                (first..next).map(|record| [key(record), value(key(record))])
            }),
        )?;
        Ok(Self { tree })
    }
}

/// The key of a record, by its number.
#[inline]
fn key(record: u64) -> u64 {
    record * KEY_STEP + 1
}

/// The value that belongs to a key; never zero.
#[inline]
fn value(key: u64) -> u64 {
    mix(key) | 1
}

impl Workload for Lookups {
    fn pid(&self) -> Pid {
        own_pid()
    }

    fn memory(&self) -> (Bytes, BasePages) {
        self.tree.memory()
    }

    fn run(&mut self, operations: u64, seed: u64) -> Result<Timing> {
        let records = self.tree.len();
        let mut rng = Rng::new(mix(seed));
        let (mut checksum, mut wrong) = (0_u64, None);
        let watch = Stopwatch::start(self.pid())?;
        for _ in 0..operations {
            let key = key(rng.below(records));
            match self.tree.get(key) {
                Some(found) if found == value(key) => checksum = checksum.wrapping_add(found),
                _ => wrong = Some(key),
            }
        }
        let timing = watch.stop(operations, checksum)?;
        match wrong {
            None => Ok(timing),
            Some(key) => Err(Error::Corrupt { what: format!("the value of key {key}") }),
        }
    }

    /// Walks through the whole tree: its invariants, and every key and value.
    fn check(&mut self) -> Result<Checked> {
        self.tree.check()?;
        let expected = (0..self.tree.len()).map(key).map(|key| [key, value(key)]);
        if self.tree.iter().eq(expected) {
            Ok(Checked { items: self.tree.len() })
        } else {
            Err(Error::Corrupt { what: "a record of the tree".into() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Nodes of 7 records: deep trees from few keys.
    fn narrow() -> Shape {
        let one = HugePages(1);
        Shape { slot: Bytes(128), leaves: one, inner: one, pages: PageSize::Base }
    }

    fn assert_same(tree: &BPlusTree, model: &BTreeMap<u64, u64>) {
        assert_eq!(tree.check(), Ok(()));
        assert_eq!(tree.len(), model.len() as u64);
        assert!(tree.iter().eq(model.iter().map(|(key, value)| [*key, *value])));
        for (key, value) in model {
            assert_eq!(tree.get(*key), Some(*value));
        }
    }

    #[test]
    fn an_empty_tree_has_nothing() {
        let tree = BPlusTree::new(narrow()).expect("made");
        assert!(tree.is_empty());
        assert_eq!(tree.get(0), None);
        assert_eq!(tree.iter().count(), 0);
        let tree = BPlusTree::bulk_load(narrow(), std::iter::empty::<std::vec::IntoIter<Pair>>());
        assert_eq!(tree.expect("made").get(5), None);
    }

    #[test]
    fn ascending_inserts_leave_leaves_half_full_and_wiped() {
        let mut tree = BPlusTree::new(narrow()).expect("made");
        for key in 1..2000 {
            tree.insert(key, key).expect("inserted");
        }
        assert!(tree.levels.len() > 3, "several levels");
        let leaves = &tree.levels[0];
        for slot in 0..leaves.slots - 1 {
            let half = leaves.room() / 2;
            assert_eq!(leaves.pairs(slot).len(), half);
            assert!(leaves.slot(slot)[HEADER + 2 * half..].iter().all(|word| *word == 0));
        }
    }

    /// Found by the property test: the first child once had its least key as separator, and a
    /// split of it after smaller keys had come put a smaller separator behind that.
    #[test]
    fn keys_below_all_loaded_ones_survive_a_split() {
        let leaves = [vec![[5, 0], [10, 0], [15, 0], [20, 0], [25, 0], [30, 0]], vec![[35, 0]]];
        let leaves = leaves.into_iter().map(Vec::into_iter);
        let mut tree = BPlusTree::bulk_load(narrow(), leaves).expect("loaded");
        for key in [6, 3, 1, 2, 0] {
            assert_eq!(tree.insert(key, 7), Ok(None));
            assert_eq!(tree.check(), Ok(()));
        }
        assert_eq!(tree.insert(0, 8), Ok(Some(7)));
    }

    #[test]
    fn a_full_arena_is_an_error_and_loses_nothing() {
        let mut tree = BPlusTree::new(narrow()).expect("made");
        let mut model = BTreeMap::new();
        let error = loop {
            let key = model.len() as u64 * 3;
            match tree.insert(key, key + 1) {
                Ok(_) => model.insert(key, key + 1),
                Err(error) => break error,
            };
        };
        assert!(matches!(error, Error::TooSmall { .. }));
        assert_same(&tree, &model);
    }

    #[test]
    fn a_wrong_record_is_found() {
        let mut lookups = Lookups::populate(Bytes::from_mib(16), PageSize::Base).expect("loaded");
        assert_eq!(lookups.check(), Ok(Checked { items: lookups.tree.len() }));
        lookups.tree.levels[0].slot_mut(3)[HEADER + 1] ^= 2;
        assert!(matches!(lookups.check(), Err(Error::Corrupt { .. })));
        assert!(matches!(lookups.run(200_000, 1), Err(Error::Corrupt { .. })));
        lookups.tree.levels[0].slot_mut(3)[HEADER + 1] ^= 2;
        assert!(lookups.run(200_000, 1).is_ok());
        lookups.tree.levels[0].slot_mut(3).fill(0);
        assert!(matches!(lookups.check(), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn three_quarters_are_bloat_of_three_kinds() {
        let lookups = Lookups::populate(Bytes::from_mib(256), PageSize::Base).expect("loaded");
        let (footprint, used) = lookups.memory();
        assert_eq!(footprint, Bytes::from_mib(256));
        let bloat = used.share_of(footprint.to_base_pages()).rest().get();
        assert!((0.74..0.77).contains(&bloat), "{bloat}");
        let leaves = &lookups.tree.levels[0];
        let pages: std::collections::BTreeSet<u64> =
            (0..leaves.slots).map(|slot| leaves.used(slot).0).collect();
        assert!(pages.into_iter().eq([1, 8, 16]));
    }

    /// Close together, far apart, and the two ends.
    fn any_key() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0_u64..500, 2 => 1000_u64.., 1 => Just(u64::MAX), 1 => Just(0)]
    }

    proptest! {
        #[test]
        fn a_tree_below_a_tebibyte_fits_its_arenas(size in 8_u64..500_000) {
            let shape = shape(HugePages(size), PageSize::Huge);
            let room = records_on(SLOT.to_base_pages().0);
            let nodes = (shape.leaves.bytes().0 / SLOT.0).div_ceil(room);
            prop_assert!(SLOT.0 * nodes <= shape.inner.bytes().0);
            prop_assert!(nodes <= room, "one root is enough");
            let root = HugePages(u64::from(nodes > 1));
            let whole = shape.leaves + shape.inner + root;
            prop_assert!(whole.0 == size || whole.0 + 1 == size, "{:?}", shape);
        }

        #[test]
        fn inserts_and_lookups_agree_with_a_map(
            inserts in prop::collection::vec((any_key(), any::<u64>()), 0..400),
            absent in 500_u64..1000,
        ) {
            let mut tree = BPlusTree::new(narrow()).expect("made");
            let mut model = BTreeMap::new();
            for (key, value) in inserts {
                prop_assert_eq!(tree.insert(key, value).expect("room"), model.insert(key, value));
            }
            assert_same(&tree, &model);
            prop_assert_eq!(tree.get(absent), None);
        }

        #[test]
        fn a_bulk_loaded_tree_takes_inserts(
            fills in prop::collection::vec(1_usize..8, 0..60),
            inserts in prop::collection::vec(any_key(), 0..200),
        ) {
            let mut model = BTreeMap::new();
            let mut next = 0;
            let leaves: Vec<Vec<Pair>> = fills.iter().map(|fill| (0..*fill).map(|_| {
                next += 5;
                model.insert(next, next + 1);
                [next, next + 1]
            }).collect()).collect();
            let leaves = leaves.into_iter().map(Vec::into_iter);
            let mut tree = BPlusTree::bulk_load(narrow(), leaves).expect("loaded");
            assert_same(&tree, &model);
            for key in inserts {
                prop_assert_eq!(tree.insert(key, 7).expect("room"), model.insert(key, 7));
            }
            assert_same(&tree, &model);
        }
    }
}
