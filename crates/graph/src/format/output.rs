//! A file that appears whole or not at all: it is written under another name beside its place, and takes its place when
//! all of it is on the disk. Writing leaves nothing in the page cache.

use crate::build::Edge;
use crate::error::{Error, Result};
use crate::graph::{Adjacency, number};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The bytes that are written at a time. Chosen, not measured.
const BUFFER: usize = 1 << 20;

/// A file that is being written.
pub(super) struct Output {
    path: PathBuf,
    /// The temporary file; it is removed on drop.
    beside: Beside,
    file: BufWriter<File>,
}

/// The path of a temporary file beside the target.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        // After the rename there is no such file, and removal fails.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The number of temporary files so far, for distinct names.
static NAMES: AtomicU64 = AtomicU64::new(0);

impl Output {
    /// Begins a file that is to be at `path`, where a regular file may be already.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn create(path: &Path) -> Result<Self> {
        // The target of a link is replaced, not the link.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if std::fs::metadata(&target).is_ok_and(|found| !found.is_file()) {
            let source = std::io::Error::other("it is no regular file");
            return Err(Error::File { path: path.to_owned(), what: "replace", source });
        }
        let name =
            format!(".superpage-{}-{}.part", std::process::id(), NAMES.fetch_add(1, Relaxed));
        let beside = target.with_file_name(name);
        let failed = |source| Error::File { path: beside.clone(), what: "create", source };
        let file = File::create_new(&beside).map_err(failed)?;
        Ok(Self {
            path: target,
            beside: Beside(beside),
            file: BufWriter::with_capacity(BUFFER, file),
        })
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|source| self.failed("write", source))
    }

    /// Writes at most three numbers on a line, with a space between two of them.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn line(&mut self, numbers: &[u64]) -> Result<()> {
        // A number has at most 20 digits.
        let mut text = [b' '; 3 * 21];
        let mut at = text.len();
        for (index, number) in numbers.iter().enumerate().rev() {
            at -= 1;
            text[at] = if index + 1 == numbers.len() { b'\n' } else { b' ' };
            let mut left = *number;
            loop {
                at -= 1;
                text[at] = b'0' + (left % 10) as u8;
                left /= 10;
                if left == 0 {
                    break;
                }
            }
        }
        self.bytes(&text[at..])
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn finish(mut self) -> Result<()> {
        self.file.flush().map_err(|source| self.failed("write", source))?;
        self.file.get_ref().sync_all().map_err(|source| self.failed("write", source))?;
        let _ = fadvise(self.file.get_ref(), 0, None, Advice::DontNeed);
        std::fs::rename(&self.beside.0, &self.path).map_err(|source| self.failed("replace", source))
    }

    fn failed(&self, what: &'static str, source: std::io::Error) -> Error {
        Error::File { path: self.path.clone(), what, source }
    }
}

/// The edges of an adjacency, by vertex.
pub(super) fn edges(adjacency: &Adjacency) -> impl Iterator<Item = Edge> {
    (0..number(adjacency.vertices())).flat_map(|from| adjacency.edges_of(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name().display().to_string()).collect()
    }

    #[test]
    fn a_file_appears_when_it_is_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("new");
        let mut output = Output::create(&path).expect("created");
        output.line(&[0, 1, u64::MAX]).expect("written");
        output.line(&[10, 205]).expect("written");
        assert!(!path.exists());
        output.finish().expect("finished");
        assert_eq!(
            std::fs::read_to_string(&path).expect("read"),
            "0 1 18446744073709551615\n10 205\n"
        );
        assert_eq!(names(directory.path()), ["new"]);
    }

    #[test]
    fn a_file_that_is_not_finished_leaves_what_was_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("old");
        std::fs::write(&path, "old").expect("written");
        let mut output = Output::create(&path).expect("created");
        output.bytes(b"new").expect("written");
        drop(output);
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "old");
        assert_eq!(names(directory.path()), ["old"]);
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, link) = (directory.path().join("real"), directory.path().join("link"));
        std::fs::write(&path, "old").expect("written");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let mut output = Output::create(&link).expect("created");
        output.bytes(b"new").expect("written");
        output.finish().expect("finished");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "new");
        assert!(link.is_symlink());
    }

    #[test]
    fn what_is_no_regular_file_is_not_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        for path in [directory.path(), Path::new("/dev/null")] {
            let error = Output::create(path).map(|_| ()).expect_err("refused").to_string();
            assert_eq!(
                error,
                format!("{}: could not replace: it is no regular file", path.display())
            );
        }
        let missing = directory.path().join("missing/graph.el");
        let error = Output::create(&missing).map(|_| ()).expect_err("refused").to_string();
        assert!(error.contains("could not create: No such file"), "{error}");
    }
}
