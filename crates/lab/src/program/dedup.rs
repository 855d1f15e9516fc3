//! Deduplication: text is cut into chunks by its content, chunks that came before are found by their hash, and the others
//! are compressed.
//!
//! After dedup of [PARSEC](https://doi.org/10.1145/1454115.1454128) (Bienia and others, PACT 2008), on text as in xHeap's
//! paper: the edges of a graph of the web, a line each. As there the text is in memory before the work begins, chunks are
//! hashed by SHA-1 and compressed by zlib. Unlike there a thread takes a stretch of text through all stages, where PARSEC
//! has a thread for each stage and queues between them, and what is compressed stays in memory instead of being written. The
//! text is drawn, and a quarter of it (assumed) came before.

use super::Work;
use crate::width::to_usize;
use crate::workload::rng::Rng;
use crate::workload::zipf::Zipf;
use fastcdc::v2020::FastCDC;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::{Digest, Sha1};
use std::collections::HashMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use superpage_units::Bytes;

/// The text that a thread takes at once. Chunks end with it.
const STRETCH: Bytes = Bytes::from_kib(256);
/// The least, the usual and the greatest size of a chunk. Chosen: what the library's authors use.
const CHUNK: [u32; 3] = [4 << 10, 16 << 10, 64 << 10];
/// The part of the size that text takes; the rest is for what is compressed.
const TEXT: f64 = 0.75;
/// The parts of the table, each with a lock.
const SHARDS: usize = 64;

type Hash = [u8; 20];
type Shard = Mutex<HashMap<Hash, Vec<u8>>>;

pub(super) struct Dedup {
    text: Vec<u8>,
    /// Chunks, compressed.
    table: Vec<Shard>,
}

impl Dedup {
    pub(super) fn build(size: Bytes) -> Self {
        let table = (0..SHARDS).map(|_| Shard::default()).collect();
        Self { text: edges(to_usize(size.scaled(TEXT).0)), table }
    }

    /// Deduplicates a stretch of text; a sum of the chunks that had not come before.
    fn take(&self, stretch: &[u8]) -> u64 {
        let [least, usual, most] = CHUNK;
        let chunks = FastCDC::new(stretch, least, usual, most);
        chunks.map(|chunk| self.add(&stretch[chunk.offset..][..chunk.length])).sum()
    }

    fn add(&self, chunk: &[u8]) -> u64 {
        let hash: Hash = Sha1::digest(chunk).into();
        let shard = &self.table[usize::from(hash[0]) % SHARDS];
        let locked = || shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Whoever comes first compresses.
        if locked().insert_if_missing(hash) {
            let compressed = compress(chunk);
            let sum = hash.iter().fold(compressed.len() as u64, |sum, byte| {
                sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
            });
            locked().insert(hash, compressed);
            return sum >> 8;
        }
        0
    }
}

/// A table of chunks.
trait Chunks {
    /// Whether the hash was missing, and holds nothing yet now.
    fn insert_if_missing(&mut self, hash: Hash) -> bool;
}

impl Chunks for HashMap<Hash, Vec<u8>> {
    fn insert_if_missing(&mut self, hash: Hash) -> bool {
        let is_missing = !self.contains_key(&hash);
        if is_missing {
            self.insert(hash, Vec::new());
        }
        is_missing
    }
}

fn compress(chunk: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder.write_all(chunk).and_then(|()| encoder.finish());
    let mut compressed = compressed.unwrap_or_default();
    compressed.shrink_to_fit();
    compressed
}

/// About so many bytes of edges, in the order of where they begin; some ends are popular.
fn edges(length: usize) -> Vec<u8> {
    const MOST_OF_A_HOST: u64 = 32;
    let hosts = (length as u64 / 64).max(2);
    let (mut rng, zipf) = (Rng::new(hosts), Zipf::new(hosts));
    let stretch = to_usize(STRETCH.0);
    let mut text = Vec::with_capacity(length + stretch);
    let mut from = 0_u64;
    while text.len() < length {
        let begun = text.len();
        if begun >= stretch && rng.below(4) == 0 {
            let stretches = (begun / stretch) as u64;
            let first = to_usize(rng.below(stretches)) * stretch;
            text.extend_from_within(first..first + stretch);
            continue;
        }
        while text.len() < begun + stretch {
            from += 1;
            for _ in 0..=rng.below(MOST_OF_A_HOST) {
                // Writing to memory does not fail.
                let _ = writeln!(text, "{from}\t{}", zipf.scattered(&mut rng));
            }
        }
        text.truncate(begun + stretch);
    }
    text
}

impl Work for Dedup {
    /// Deduplicates so many stretches of the text from its beginning on, or all of it, by as many threads as there are
    /// processors. The seed changes nothing.
    fn work(&mut self, operations: u64, _: u64) -> u64 {
        let operations = usize::try_from(operations).unwrap_or(usize::MAX);
        let stretches: Vec<&[u8]> =
            self.text.chunks(to_usize(STRETCH.0)).take(operations).collect();
        let next = AtomicUsize::new(0);
        let threads = available_parallelism().map_or(1, usize::from);
        let work = || {
            let mut sum = 0_u64;
            while let Some(stretch) = stretches.get(next.fetch_add(1, Ordering::Relaxed)) {
                sum += self.take(stretch);
            }
            sum
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
        })
    }

    /// All chunks are what their hashes say, once they are decompressed.
    #[cfg(test)]
    fn check(&mut self) -> Result<(), String> {
        for shard in &mut self.table {
            let shard = shard.get_mut().map_err(|error| error.to_string())?;
            for (hash, compressed) in shard {
                let mut chunk = Vec::new();
                std::io::copy(&mut flate2::read::ZlibDecoder::new(&compressed[..]), &mut chunk)
                    .map_err(|error| error.to_string())?;
                if Hash::from(Sha1::digest(&chunk)) != *hash {
                    return Err(format!("a chunk of {} bytes is another", chunk.len()));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_text_came_before() {
        let mut dedup = Dedup::build(Bytes::from_mib(16));
        let sum = dedup.work(u64::MAX, 0);
        let chunks: usize =
            dedup.table.iter().map(|shard| shard.lock().map_or(0, |s| s.len())).sum();
        let all = dedup
            .text
            .chunks(to_usize(STRETCH.0))
            .map(|stretch| FastCDC::new(stretch, CHUNK[0], CHUNK[1], CHUNK[2]).count());
        let all: usize = all.sum();
        assert!((all / 2..all * 9 / 10).contains(&chunks), "{chunks} of {all}");
        assert_eq!(dedup.check(), Ok(()));
        // The threads do not matter, and a second time everything came before.
        assert_eq!(Dedup::build(Bytes::from_mib(16)).work(u64::MAX, 1), sum);
        assert_eq!(dedup.work(u64::MAX, 0), 0);
    }
}
