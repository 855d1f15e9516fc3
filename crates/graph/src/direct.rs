//! Reading a regular file past the page cache: a graph is read once and kept in arrays, so that a second copy of it in
//! the cache takes memory that the arrays' huge pages want ("single-use memory" in section 4.3 of "The Implications of
//! Page Size Management on Graph Analytics").
//!
//! [open(2), `O_DIRECT`](https://man7.org/linux/man-pages/man2/open.2.html): offset, length and memory of a request are
//! whole pages. A file system that refuses it (EINVAL when the flag is set, or at the first request) is read through
//! the cache, and [posix_fadvise(2)](https://man7.org/linux/man-pages/man2/posix_fadvise.2.html) drops from it what was
//! read. [`PageCache::Filled`] asks for the cache, to measure what that costs.
//!
//! Not here: what the bytes mean.

use crate::error::{Error, Result};
use crate::width::to_usize;
use rayon::prelude::*;
use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, pread, retry_on_intr};
use std::fs::{File, FileType, Metadata};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use superpage_array::{PageArray, Pages};
use superpage_units::{BASE_PAGE_BYTES, Bytes};

/// The bytes that one request asks for. Chosen, not measured: disks reach their rate with less, and each thread has one
/// buffer of it.
pub(crate) const PIECE: u64 = 4 << 20;

/// The pieces that are read before a thread takes them. Chosen, not measured: one is read while the other waits.
const AHEAD: usize = 1;

/// The alignment of a direct request's offset, length and buffer. More than 4 KiB is asked for by no disk that is
/// common; one that does refuses the first request, and is read through the cache.
const ALIGNED: u64 = BASE_PAGE_BYTES;

/// The size of a buffer: a piece, whose ends may lie within pages, and the line that goes on behind it.
const PIECE_BUFFER: usize = to_usize(PIECE + 4 * ALIGNED);

/// The use that reading a file makes of the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageCache {
    /// The cache has no more of the file afterwards than before.
    #[default]
    Avoided,
    /// The file is read through the cache and stays there, as with most programs.
    Filled,
}

/// Bytes of a file.
struct Piece {
    buffer: PageArray<u8>,
    wanted: Range<usize>,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.wanted.clone()]
    }
}

/// A regular file that is read past the page cache, unless [`PageCache::Filled`] is wanted.
pub(crate) struct DirectFile {
    path: PathBuf,
    file: File,
    cache: PageCache,
    /// The file's metadata when it was opened.
    opened: Metadata,
    /// Whether requests are direct; else they go through the page cache.
    is_direct: AtomicBool,
    /// Buffers that no request has now.
    buffers: Mutex<Vec<PageArray<u8>>>,
}

impl DirectFile {
    /// Opens a regular file.
    ///
    /// # Errors
    /// [`Error::NoFile`] for anything else, such as a directory or a pipe, and [`Error::File`].
    pub(crate) fn open(path: &Path, cache: PageCache) -> Result<Self> {
        let failed = |source| Error::File { path: path.to_owned(), what: "open", source };
        // A pipe must not be opened: that waits for whoever writes to it.
        check_regular(path, std::fs::metadata(path).map_err(failed)?.file_type())?;
        let file = File::open(path).map_err(failed)?;
        let opened = file.metadata().map_err(failed)?;
        check_regular(path, opened.file_type())?;
        let set = || fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::DIRECT);
        let is_direct = AtomicBool::new(cache == PageCache::Avoided && set().is_ok());
        let path = path.to_owned();
        Ok(Self { path, file, cache, opened, is_direct, buffers: Mutex::default() })
    }

    /// The file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file's length when it was opened.
    pub(crate) fn length(&self) -> u64 {
        self.opened.len()
    }

    /// The memory of all buffers at once: one for each thread, one that is being filled, and those that wait.
    pub(crate) fn buffers(&self) -> Bytes {
        let most = (rayon::current_num_threads() + AHEAD + 1) * PIECE_BUFFER;
        // Of a buffer that is larger than the file the rest is never touched.
        Bytes(self.length().next_multiple_of(ALIGNED).min(most as u64))
    }

    /// Reads the bytes of `range`, all of which the file has, and hands them to `take`.
    ///
    /// # Errors
    /// [`Error::File`], also where the file has become shorter; [`Error::Array`] where there is no memory for a buffer.
    pub(crate) fn with<T>(&self, range: Range<u64>, take: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let piece = self.read(range)?;
        let taken = take(piece.bytes());
        self.give_back(piece);
        Ok(taken)
    }

    /// Reads ranges one after the other, and hands the bytes of each to `take`, with what comes with the range. The
    /// threads of the caller's pool take them, in order; one more thread, which is little more than a request at a
    /// time, reads meanwhile what comes next. So the disk is busy while bytes are decoded, even by one thread.
    ///
    /// # Errors
    /// As [`DirectFile::with`], and the errors of `take`; then no more is read.
    pub(crate) fn each<T: Send>(
        &self,
        parts: impl Iterator<Item = (T, Range<u64>)> + Send,
        take: impl Fn(T, &[u8]) -> Result<()> + Sync,
    ) -> Result<()> {
        let (sender, receiver) = sync_channel(AHEAD);
        let read_ahead = move || {
            for (part, range) in parts {
                // Nobody receives any more after an error.
                if sender.send((part, self.read(range))).is_err() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            let started = std::thread::Builder::new()
                .name("read-ahead".to_owned())
                .spawn_scoped(scope, read_ahead);
            started.map_err(|source| self.failed("start a thread for", source))?;
            receiver.into_iter().par_bridge().try_for_each(|(part, read)| {
                let piece = read?;
                take(part, piece.bytes())?;
                self.give_back(piece);
                Ok(())
            })
        })
    }

    /// Fails where somebody has written to the file since it was opened, as far as its length and its time say.
    ///
    /// # Errors
    /// [`Error::Broken`], [`Error::File`].
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let now = self.file.metadata().map_err(|source| self.failed("look at", source))?;
        if now.len() == self.length() && now.modified().ok() == self.opened.modified().ok() {
            return Ok(());
        }
        Err(Error::Broken {
            path: self.path.clone(),
            what: "it was changed while it was read".to_owned(),
        })
    }

    fn failed(&self, what: &'static str, source: std::io::Error) -> Error {
        Error::File { path: self.path.clone(), what, source }
    }

    fn read(&self, range: Range<u64>) -> Result<Piece> {
        let begin = range.start - range.start % ALIGNED;
        let wanted = to_usize(range.start - begin)..to_usize(range.end - begin);
        let mut buffer = self.buffer(wanted.end)?;
        if !wanted.is_empty() {
            let whole_pages = wanted.end.next_multiple_of(to_usize(ALIGNED));
            let filled = self.fill(begin, &mut buffer[..whole_pages], wanted.end);
            filled.map_err(|source| self.failed("read", source))?;
        }
        Ok(Piece { buffer, wanted })
    }

    /// A buffer with room for `bytes`.
    fn buffer(&self, bytes: usize) -> Result<PageArray<u8>> {
        let free = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match free {
            Some(buffer) if buffer.len() >= bytes => Ok(buffer),
            _ => Ok(PageArray::zeroed(
                bytes.max(PIECE_BUFFER).next_multiple_of(to_usize(ALIGNED)),
                Pages::BASE,
            )?),
        }
    }

    fn give_back(&self, piece: Piece) {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(piece.buffer);
    }

    /// Reads from `begin`, the beginning of a page, until at least `wanted` bytes are in `buffer`.
    fn fill(&self, begin: u64, buffer: &mut [u8], wanted: usize) -> std::io::Result<()> {
        let mut filled = 0;
        while filled < wanted {
            let got = self.request(begin + filled as u64, &mut buffer[filled..])?;
            let end = filled + got;
            // A direct request begins at a page, so a partly filled page is read again.
            let next = if end < wanted && self.is_direct.load(Relaxed) {
                end - end % to_usize(ALIGNED)
            } else {
                end
            };
            if next <= filled {
                return Err(std::io::Error::new(
                    std::io::ErrorKind::UnexpectedEof,
                    "the file has become shorter",
                ));
            }
            filled = next;
        }
        if !self.is_direct.load(Relaxed) {
            self.drop_cached(begin, buffer.len() as u64);
        }
        Ok(())
    }

    /// One request; the file system may refuse it as direct.
    fn request(&self, offset: u64, into: &mut [u8]) -> std::result::Result<usize, Errno> {
        let was_direct = self.is_direct.load(Relaxed);
        match retry_on_intr(|| pread(&self.file, &mut *into, offset)) {
            Err(Errno::INVAL | Errno::OPNOTSUPP) if was_direct => {
                self.use_cache()?;
                retry_on_intr(|| pread(&self.file, &mut *into, offset))
            }
            answer => answer,
        }
    }

    /// From here on, requests go through the page cache.
    fn use_cache(&self) -> std::result::Result<(), Errno> {
        fcntl_setfl(&self.file, fcntl_getfl(&self.file)? - OFlags::DIRECT)?;
        self.is_direct.store(false, Relaxed);
        Ok(())
    }

    /// Drops pages from the cache, unless they are to stay. A failure does no harm.
    fn drop_cached(&self, offset: u64, length: u64) {
        if self.cache == PageCache::Filled {
            return;
        }
        let _ = fadvise(&self.file, offset, NonZeroU64::new(length), Advice::DontNeed);
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        if !self.is_direct.load(Relaxed) {
            // Drops the pages that the kernel read ahead.
            self.drop_cached(0, 0);
        }
    }
}

fn check_regular(path: &Path, found: FileType) -> Result<()> {
    let found = match found {
        found if found.is_file() => return Ok(()),
        found if found.is_dir() => "a directory",
        found if found.is_fifo() => "a pipe",
        found if found.is_socket() => "a socket",
        _ => "a device",
    };
    Err(Error::NoFile { path: path.to_owned(), found })
}

/// A range of bytes in pieces of `size`, in order; the last one may be shorter.
pub(crate) fn pieces(range: Range<u64>, size: u64) -> impl Iterator<Item = Range<u64>> + Send {
    let Range { start, end } = range;
    let count = end.saturating_sub(start).div_ceil(size);
    (0..count).map(move |index| start + index * size..(start + index * size + size).min(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicUsize;

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at * 7 % 251).expect("a byte")).collect()
    }

    fn written(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), content).expect("written");
        file.as_file().sync_all().expect("synchronized");
        file
    }

    /// The file by direct requests, and through the cache.
    fn both(path: &Path) -> [DirectFile; 2] {
        let cached = DirectFile::open(path, PageCache::Avoided).expect("opened");
        cached.use_cache().expect("through the cache");
        [DirectFile::open(path, PageCache::Avoided).expect("opened"), cached]
    }

    proptest! {
        #[test]
        fn any_range_is_what_the_file_has(length in 1..40_000_usize, ends: [prop::sample::Index; 2]) {
            let content = content(length);
            let file = written(&content);
            let mut ends = ends.map(|end| end.index(length + 1));
            ends.sort_unstable();
            let range = ends[0]..ends[1];
            for direct in both(file.path()) {
                let found = direct.with(range.start as u64..range.end as u64, <[u8]>::to_vec).expect("read");
                prop_assert_eq!(&found, &content[range.clone()]);
            }
        }

        #[test]
        fn pieces_are_the_range(start in 0..100_u64, length in 0..100_u64, size in 1..50_u64) {
            let bytes: Vec<u64> = pieces(start..start + length, size).flatten().collect();
            prop_assert_eq!(bytes, (start..start + length).collect::<Vec<u64>>());
            let is_small = |piece: Range<u64>| !piece.is_empty() && piece.end - piece.start <= size;
            prop_assert!(pieces(start..start + length, size).all(is_small));
        }
    }

    #[test]
    fn threads_take_the_pieces_of_a_large_file_in_order() {
        let content = content(to_usize(3 * PIECE) + 12_345);
        let file = written(&content);
        for direct in both(file.path()) {
            assert_eq!(direct.length(), content.len() as u64);
            for threads in [1, 3] {
                let pool =
                    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
                let parts =
                    pieces(17..direct.length(), 100_000).map(|range| (range.clone(), range));
                let sum = AtomicUsize::new(0);
                let read = pool.install(|| {
                    direct.each(parts, |range, found| {
                        assert!(found == &content[to_usize(range.start)..to_usize(range.end)]);
                        sum.fetch_add(found.len(), Relaxed);
                        Ok(())
                    })
                });
                read.expect("read");
                assert_eq!(sum.into_inner(), content.len() - 17);
            }
            direct.check_unchanged().expect("unchanged");
        }
    }

    #[test]
    fn reading_ends_with_the_first_error() {
        let file = written(&content(1_000_000));
        for direct in both(file.path()) {
            let sought = AtomicUsize::new(0);
            let parts = pieces(0..direct.length(), 100).inspect(|_| {
                sought.fetch_add(1, Relaxed);
            });
            let parts = parts.enumerate();
            let read = direct.each(parts, |index, _| match index {
                30 => Err(Error::Usage("enough".to_owned())),
                _ => Ok(()),
            });
            assert_eq!(read.expect_err("an error").to_string(), "enough");
            assert!(sought.into_inner() < 1000, "of 10,000 pieces");
            let parts = pieces(900_000..1_100_000, 10_000).enumerate();
            let read = direct.each(parts, |_, _| Ok(())).expect_err("behind the end").to_string();
            assert!(read.ends_with("the file has become shorter"), "{read}");
        }
    }

    /// The bytes of a file that are in the page cache, as `fincore` says; nothing where there is none.
    fn cached(path: &Path) -> Option<u64> {
        let mut fincore = std::process::Command::new("fincore");
        let answer =
            fincore.args(["--bytes", "--noheadings", "--output", "RES"]).arg(path).output().ok()?;
        String::from_utf8(answer.stdout).ok()?.trim().parse().ok()
    }

    #[test]
    fn nothing_stays_in_the_page_cache() {
        let length = 10 << 20;
        let file = written(&content(length));
        fadvise(file.as_file(), 0, None, Advice::DontNeed).expect("dropped");
        if cached(file.path()) != Some(0) {
            eprintln!("skipped: there is no fincore, or temporary files are in memory");
            return;
        }
        for direct in both(file.path()) {
            pieces(0..direct.length(), PIECE)
                .for_each(|piece| direct.with(piece, |_| ()).expect("read"));
            let kept = cached(file.path()).expect("a size");
            assert!(kept <= length as u64 / 4, "{kept} bytes while it is open");
            drop(direct);
            assert_eq!(cached(file.path()), Some(0));
        }
        let filling = DirectFile::open(file.path(), PageCache::Filled).expect("opened");
        filling.with(0..length as u64, |_| ()).expect("read");
        drop(filling);
        assert_eq!(cached(file.path()), Some(length as u64));
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("pipe.el");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a pipe");
        let socket = directory.path().join("socket.el");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        let bad = [
            (directory.path(), "a directory"),
            (&pipe, "a pipe"),
            (&socket, "a socket"),
            (Path::new("/dev/null"), "a device"),
        ];
        for (path, expected) in bad {
            let found =
                DirectFile::open(path, PageCache::Avoided).map(|_| ()).expect_err("refused");
            let says =
                format!("{} is {expected}, and a graph is read from a file, twice", path.display());
            assert_eq!(found.to_string(), says);
        }
        let missing =
            DirectFile::open(&directory.path().join("missing"), PageCache::Avoided).map(|_| ());
        assert!(matches!(missing, Err(Error::File { what: "open", .. })));
    }

    #[test]
    fn a_file_that_changes_is_noticed() {
        let file = written(&content(100_000));
        for direct in both(file.path()) {
            file.as_file().set_len(50_000).expect("shorter");
            let found = direct.with(0..100_000, |_| ()).expect_err("refused");
            assert!(
                found.to_string().ends_with("could not read: the file has become shorter"),
                "{found}"
            );
            let found = direct.check_unchanged().expect_err("changed").to_string();
            assert!(found.ends_with("it was changed while it was read"), "{found}");
            file.as_file().set_len(100_000).expect("longer");
        }
    }
}
