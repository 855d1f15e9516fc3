//! The rate of the disk below a directory: how long a file takes to be written and read in order, past the page cache; and
//! beside it how long as much memory takes to be hashed as the library does that keeps a heap in a file.
//! [open(2), O_DIRECT](https://man7.org/linux/man-pages/man2/open.2.html)

use super::{Error, Result};
use crate::width::to_usize;
use crate::workload::rng::Rng;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
use superpage_units::{BASE_PAGE_BYTES, Bytes, HUGE_PAGE_BYTES};
use xxhash_rust::xxh3::xxh3_128;

/// The size of a request; one is made at a time.
pub(super) const PIECE: Bytes = Bytes::from_mib(1);

/// The memory that is hashed, again and again. Chosen: more than a cache has.
const HASHED: Bytes = Bytes::from_mib(128);

/// The time that a file of the size of the data took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disk {
    pub(super) write: Duration,
    pub(super) read: Duration,
    /// The time that as many bytes take to be hashed by XXH3, a huge page at a time.
    pub(super) hash: Duration,
}

/// Writes a file of `size` below `directory`, reads it, and removes it.
pub(super) fn measure(directory: &Path, size: Bytes) -> Result<Disk> {
    let explain = |error: std::io::Error| {
        Error::NotPossible(format!("a file of {size} in {}: {error}", directory.display()))
    };
    let file = tempfile::NamedTempFile::new_in(directory).map_err(explain)?;
    let direct = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(file.path())
        .map_err(explain)?;
    // A file that was never written would not be read from the disk.
    let write = timed(|| write(&direct, size)).map_err(explain)?;
    let read = timed(|| read(&direct, size)).map_err(explain)?;
    let hash = hash(size);
    Ok(Disk { write, read, hash })
}

fn timed(work: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<Duration> {
    let start = Instant::now();
    work().map(|()| start.elapsed())
}

fn write(file: &File, size: Bytes) -> std::io::Result<()> {
    let mut rng = Rng::new(1);
    with_piece(|piece| {
        piece.chunks_mut(size_of::<u64>()).for_each(|word| {
            word.copy_from_slice(&rng.next().to_ne_bytes());
        });
        places(size).try_for_each(|at| file.write_all_at(piece, at))
    })?;
    file.sync_all()
}

fn read(file: &File, size: Bytes) -> std::io::Result<()> {
    with_piece(|piece| places(size).try_for_each(|at| file.read_exact_at(piece, at)))
}

/// The time that so many bytes of memory, more than a processor keeps, take to be hashed.
fn hash(size: Bytes) -> Duration {
    let memory = vec![1_u8; to_usize(size.0.min(HASHED.0))];
    let pages = memory.chunks(to_usize(HUGE_PAGE_BYTES)).cycle();
    let start = Instant::now();
    let hashes = pages.take(to_usize(size.0.div_ceil(HUGE_PAGE_BYTES))).map(xxh3_128);
    // The result is what the compiler must not leave out.
    std::hint::black_box(hashes.fold(0, |all, hash| all ^ hash));
    start.elapsed()
}

/// The places of the pieces; what is left over at the end is left out.
fn places(size: Bytes) -> impl Iterator<Item = u64> {
    (0..size.0 / PIECE.0).map(|piece| piece * PIECE.0)
}

/// Memory for a piece, aligned as O_DIRECT needs it.
fn with_piece<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    let (page, length) = (to_usize(BASE_PAGE_BYTES), to_usize(PIECE.0));
    let mut memory = vec![1_u8; length + page];
    let first = memory.as_ptr().align_offset(page);
    work(&mut memory[first..first + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_aligned_and_a_file_has_whole_pieces() {
        with_piece(|piece| {
            assert_eq!(piece.as_ptr().addr() % to_usize(BASE_PAGE_BYTES), 0);
            assert_eq!(piece.len() as u64, PIECE.0);
        });
        let places: Vec<u64> = places(Bytes::from_kib(2500)).collect();
        assert_eq!(places, [0, PIECE.0]);
    }
}
