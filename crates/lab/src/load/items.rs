//! What is stored: keys by number, and values that follow from key, version and seed, so that every
//! value read can be checked. A value set anew is another value.

use crate::width::to_usize;
use crate::workload::rng::{Rng, mix, scale};
use superpage_units::Bytes;

/// How long values are: uniform between two lengths, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The shortest.
    pub least: Bytes,
    /// The longest.
    pub most: Bytes,
}

impl Sizes {
    /// All alike.
    #[must_use]
    pub const fn all(size: Bytes) -> Self {
        Self { least: size, most: size }
    }

    /// How long they are on average.
    #[must_use]
    pub const fn mean(self) -> Bytes {
        Bytes(u64::midpoint(self.least.0, self.most.0))
    }
}

/// A value: its word, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    word: [u8; 8],
    length: usize,
}

impl Value {
    /// Its length in bytes.
    pub(super) fn len(self) -> usize {
        self.length
    }

    /// Appends it.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let (start, end) = (out.len(), out.len() + self.length);
        out.reserve(self.length);
        out.extend(&self.word[..self.length.min(self.word.len())]);
        // Doubled until it is long enough; what is there is always whole words.
        while out.len() < end {
            let more = (out.len() - start).min(end - out.len());
            out.extend_from_within(start..start + more);
        }
    }

    /// Whether `found` is this value.
    pub(super) fn is(self, found: &[u8]) -> bool {
        let (words, rest) = found.as_chunks();
        found.len() == self.length
            && words.iter().all(|word| *word == self.word)
            && rest == &self.word[..rest.len()]
    }
}

/// What is stored now, and what would be stored next.
#[derive(Clone, Debug)]
pub struct Items {
    seed: u64,
    /// The lengths of values, each from a key on, in ascending order.
    sizes: Vec<(u32, Sizes)>,
    /// By key: 0, or which value it has had last.
    versions: Vec<u32>,
    /// The keys that have a value, in no order.
    live: Vec<u32>,
}

impl Items {
    /// None yet. The `seed` decides the values.
    #[must_use]
    pub fn new(sizes: Sizes, seed: u64) -> Self {
        Self { seed, sizes: vec![(0, sizes)], versions: Vec::new(), live: Vec::new() }
    }

    /// The keys that are new from now on have values of other lengths.
    pub(super) fn resize(&mut self, sizes: Sizes) {
        self.sizes.push((self.next_key(), sizes));
    }

    /// How many keys have a value.
    #[must_use]
    pub fn count(&self) -> usize {
        self.live.len()
    }

    /// A new key, to be given its first value.
    pub(super) fn add(&mut self) -> u32 {
        let key = self.next_key();
        self.versions.push(0);
        self.live.push(key);
        key
    }

    fn next_key(&self) -> u32 {
        u32::try_from(self.versions.len()).unwrap_or(u32::MAX)
    }

    /// Takes a random key out, if there is one: it will have no value any more.
    pub(super) fn remove(&mut self, rng: &mut Rng) -> Option<u32> {
        let at = to_usize(rng.below(self.live.len() as u64));
        (at < self.live.len()).then(|| self.live.swap_remove(at))
    }

    /// A random key that has a value.
    pub(super) fn draw(&self, rng: &mut Rng) -> Option<u32> {
        self.live.get(to_usize(rng.below(self.live.len() as u64))).copied()
    }

    /// All keys that have a value.
    pub(super) fn live(&self) -> &[u32] {
        &self.live
    }

    /// Gives `key` its next value.
    pub(super) fn renew(&mut self, key: u32) -> Option<Value> {
        let version = self.versions.get_mut(to_usize(key.into()))?;
        *version += 1;
        self.value(key)
    }

    /// The value that `key` had last.
    pub(super) fn value(&self, key: u32) -> Option<Value> {
        let version = *self.versions.get(to_usize(key.into()))?;
        let word = mix(self.seed ^ mix(u64::from(key) << 32 | u64::from(version)));
        let (_, sizes) = self.sizes.iter().rfind(|(first, _)| *first <= key)?;
        let span = sizes.most.saturating_sub(sizes.least).0 + 1;
        let length = to_usize(sizes.least.0 + scale(mix(word), span));
        let word = (word | 0x0101_0101_0101_0101).to_le_bytes();
        (version > 0).then_some(Value { word, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop_assert, proptest};

    fn items(least: u64, most: u64, seed: u64) -> Items {
        Items::new(Sizes { least: Bytes(least), most: Bytes(most) }, seed)
    }

    #[test]
    fn a_key_has_a_value_only_once_it_was_given_one() {
        let mut items = items(8, 8, 1);
        let key = items.add();
        assert_eq!(items.value(key), None);
        let first = items.renew(key);
        assert!(first.is_some() && items.value(key) == first);
        assert_ne!(items.renew(key), first, "another value each time");
        assert_eq!(items.remove(&mut Rng::new(1)), Some(key));
        assert_eq!((items.remove(&mut Rng::new(1)), items.draw(&mut Rng::new(1))), (None, None));
        assert_eq!(items.renew(77), None);
    }

    #[test]
    fn other_lengths_are_those_of_new_keys_only() {
        let mut items = items(8, 8, 1);
        let old = items.add();
        items.resize(Sizes::all(Bytes(99)));
        let new = items.add();
        let length = |value: Option<Value>| value.map(Value::len);
        assert_eq!((length(items.renew(old)), length(items.renew(new))), (Some(8), Some(99)));
    }

    proptest! {
        #[test]
        fn a_value_is_what_was_written_and_nothing_else(
            least in 0_u64..40, more in 0_u64..5000, seed in any::<u64>(), flip in any::<usize>(),
        ) {
            let mut items = items(least, least + more, seed);
            let key = items.add();
            let value = items.renew(key).expect("it has one");
            prop_assert!((least..=least + more).contains(&(value.len() as u64)));
            let mut written = vec![7];
            value.write(&mut written);
            prop_assert!(value.is(&written[1..]) && !value.is(&written));
            if value.len() > 0 {
                let at = 1 + flip % value.len();
                written[at] ^= 1;
                prop_assert!(!value.is(&written[1..]));
            }
        }
    }
}
