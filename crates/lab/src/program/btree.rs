//! Btree: random lookups in a B+ tree of many small allocations.
//!
//! As in the usual teaching programs a node, its keys, its pointers and each record are allocations of their
//! own. The records come in ascending order of keys, so leaves are built one after the other.

#![expect(clippy::vec_box, reason = "a node or record is to be an allocation of its own")]

use super::Work;
use crate::workload::rng::{Rng, mix, scale};
use superpage_units::Bytes;

/// Children of a node, and records of a leaf. Chosen: 16 keys fill two cache lines.
const FANOUT: usize = 16;
/// Between two keys, so that not every number is a key. Chosen.
const STEP: u64 = 16;
/// The allocations for a record in glibc's malloc: itself 32 bytes, its key and pointer 16, and a sixteenth of
/// a leaf (64 bytes and two headers of 8) and of the levels above.
const RECORD: Bytes = Bytes(55);

enum Node {
    /// The least key under each child, and the children.
    Inner(Vec<u64>, Vec<Box<Self>>),
    /// The records and their keys.
    Leaf(Vec<u64>, Vec<Box<u64>>),
}

pub(super) struct Btree {
    root: Box<Node>,
    records: u64,
}

const fn key(record: u64) -> u64 {
    record * STEP + 1
}

impl Node {
    fn leaf(records: std::ops::Range<u64>) -> Box<Self> {
        let keys: Vec<u64> = records.map(key).collect();
        let records = keys.iter().map(|key| Box::new(mix(*key))).collect();
        Box::new(Self::Leaf(keys, records))
    }

    fn inner(children: Vec<Box<Self>>) -> Box<Self> {
        Box::new(Self::Inner(children.iter().map(|child| child.least()).collect(), children))
    }

    fn least(&self) -> u64 {
        let (Self::Inner(keys, _) | Self::Leaf(keys, _)) = self;
        keys.first().copied().unwrap_or_default()
    }

    fn get(&self, wanted: u64) -> Option<u64> {
        let mut node = self;
        loop {
            match node {
                Self::Inner(keys, children) => {
                    let child = keys.partition_point(|key| *key <= wanted);
                    node = children.get(child.checked_sub(1)?)?;
                }
                Self::Leaf(keys, records) => {
                    return keys.binary_search(&wanted).ok().map(|at| *records[at]);
                }
            }
        }
    }
}

impl Btree {
    pub(super) fn build(size: Bytes) -> Self {
        let records = size.0 / RECORD.0;
        let leaf = |first| Node::leaf(first..records.min(first + FANOUT as u64));
        let mut level: Vec<Box<Node>> = (0..records).step_by(FANOUT).map(leaf).collect();
        while level.len() > 1 {
            let mut below = level.into_iter();
            let nodes = std::iter::from_fn(|| {
                let children: Vec<Box<Node>> = below.by_ref().take(FANOUT).collect();
                (!children.is_empty()).then(|| Node::inner(children))
            });
            level = nodes.collect();
        }
        Self { root: level.pop().unwrap_or_else(|| Node::leaf(0..0)), records }
    }
}

impl Work for Btree {
    /// Every other key is there.
    fn work(&mut self, operations: u64, seed: u64) -> u64 {
        let mut rng = Rng::new(mix(seed));
        (0..operations).fold(0, |sum: u64, _| {
            let random = rng.next();
            let record = scale(random, self.records);
            let found = self.root.get(key(record) + (random & 1));
            sum.wrapping_add(found.unwrap_or_default())
        })
    }

    #[cfg(test)]
    fn check(&mut self) -> Result<(), String> {
        let is_right = |record: u64| {
            let key = key(record);
            self.root.get(key) == Some(mix(key)) && self.root.get(key + 1).is_none()
        };
        let wrong = (0..self.records).find(|record| !is_right(*record));
        let is_empty_below = self.root.get(0).is_none();
        assert!(is_empty_below && self.records > FANOUT.pow(3) as u64);
        wrong.map_or(Ok(()), |record| Err(format!("record {record}")))
    }
}
