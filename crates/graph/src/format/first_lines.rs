//! The first lines of a text file, one after the other, before the file is read by pieces: the header of a matrix, and the
//! line that says how many columns an edge list has. What the lines mean is not here.

use super::line::LONGEST;
use crate::direct::DirectFile;
use crate::error::{Error, Result};

/// The first bytes of files that are no plain text, and what to do with them.
const MARKS: [(&[u8], &str); 8] = [
    (b"\x1f\x8b", "it is compressed by gzip: unpack it first"),
    (b"BZh", "it is compressed by bzip2: unpack it first"),
    (b"\xfd7zXZ", "it is compressed by xz: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "it is compressed by zstd: unpack it first"),
    (b"PK\x03\x04", "it is a zip archive: unpack it first"),
    (b"\xef\xbb\xbf", "it begins with a byte order mark: write it as UTF-8 without one"),
    (b"\xff\xfe", "it is UTF-16: write it as ASCII or UTF-8"),
    (b"\xfe\xff", "it is UTF-16: write it as ASCII or UTF-8"),
];

/// The bytes of the longest of [`MARKS`].
const LONGEST_MARK: u64 = 5;

/// The bytes that are read at a time. Chosen: most headers have less.
pub(super) const CHUNK: u64 = 1 << 16;

/// The first lines of a file, one after the other.
pub(super) struct FirstLines<'a> {
    file: &'a DirectFile,
    /// The offset of the next line.
    pub(super) at: u64,
    /// A part of the file (`chunk`) and its offset (`begin`).
    chunk: Vec<u8>,
    begin: u64,
}

impl<'a> FirstLines<'a> {
    /// The lines of a file from its beginning on.
    ///
    /// # Errors
    /// [`Error::Broken`] where its first bytes say that it is no plain text.
    pub(super) fn of(file: &'a DirectFile) -> Result<Self> {
        let lines = Self { file, at: 0, chunk: Vec::new(), begin: 0 };
        let first = file.with(0..file.length().min(LONGEST_MARK), <[u8]>::to_vec)?;
        let Some((_, what)) = MARKS.iter().find(|(mark, _)| first.starts_with(mark)) else {
            return Ok(lines);
        };
        Err(Error::Broken { path: file.path().to_owned(), what: (*what).to_owned() })
    }

    /// The next line without its end, or as much of it as a line may have; nothing at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.at == self.file.length() {
            return Ok(None);
        }
        let rest = self.rest(LONGEST as u64)?;
        let end = newline(rest);
        let mut line = rest[..end.unwrap_or(rest.len().min(LONGEST))].to_vec();
        if line.ends_with(b"\r") {
            line.pop();
        }
        self.skip()?;
        Ok(Some(line))
    }

    /// Goes to the beginning of the next line.
    fn skip(&mut self) -> Result<()> {
        while self.at < self.file.length() {
            let rest = self.rest(1)?;
            let (found, length) = (newline(rest), rest.len());
            self.at += found.map_or(length, |end| end + 1) as u64;
            if found.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// The bytes of the chunk from `at` on: at least `least`, or all that the file has.
    fn rest(&mut self, least: u64) -> Result<&[u8]> {
        let length = self.file.length();
        if (self.at + least).min(length) > self.begin + self.chunk.len() as u64 {
            self.chunk = self.file.with(self.at..(self.at + CHUNK).min(length), <[u8]>::to_vec)?;
            self.begin = self.at;
        }
        Ok(&self.chunk[crate::width::to_usize(self.at - self.begin)..])
    }
}

fn newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}
