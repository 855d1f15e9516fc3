//! Files of the kernel, opened, read and closed by system calls alone.
//!
//! std's descriptors are no good here: they are closed by libc's `close`, which is a cancellation point.

#![expect(unsafe_code, reason = "closes a descriptor")]

use crate::{Errno, Result};
use core::ffi::CStr;
use core::mem::{ManuallyDrop, take};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};

/// The longest line that is understood, in bytes. Lines of cgroups have some 300 bytes in a container; those of other
/// mounts may have more, and do not matter. Buffers of this size lie on stacks of the program's threads.
pub const LINE: usize = 1024;
/// The longest path that is understood, in bytes: a cgroup of Kubernetes inside a container has some 350.
pub const PATH: usize = 512; // tidy: allow(a length)

/// An open file or directory.
#[derive(Debug)]
pub struct File(ManuallyDrop<OwnedFd>);

impl File {
    /// Opens a file to read it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(path: &CStr) -> Result<Self> {
        open(CWD, path, OFlags::RDONLY)
    }

    /// Opens a directory to open files in it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn directory(path: &CStr) -> Result<Self> {
        open(CWD, path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// As [`File::open`], for a path below this directory.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open_below(&self, path: &CStr) -> Result<Self> {
        open(self.as_fd(), path, OFlags::RDONLY)
    }

    /// As [`File::directory`], for a path below this directory.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn directory_below(&self, path: &CStr) -> Result<Self> {
        open(self.as_fd(), path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Reads on, once.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn read(&self, into: &mut [u8]) -> Result<usize> {
        rustix::io::read(self, into)
    }

    /// Reads on, line by line, until `look` finds something in one. Lines longer than [`LINE`] are passed over.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn find_line<T>(&self, mut look: impl FnMut(&[u8]) -> Option<T>) -> Result<Option<T>> {
        let mut buffer = [0; LINE];
        let mut kept = 0; // The bytes of a line of which more is to come.
        let mut is_cut = false;
        loop {
            let filled = kept + self.read(&mut buffer[kept..])?;
            if filled == kept {
                let last = Some(&buffer[..kept]).filter(|last| !is_cut && !last.is_empty());
                return Ok(last.and_then(look));
            }
            let mut rest = &buffer[..filled];
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = &rest[..end];
                rest = &rest[end + 1..];
                if !take(&mut is_cut)
                    && let Some(found) = look(line)
                {
                    return Ok(Some(found));
                }
            }
            kept = rest.len();
            buffer.copy_within(filled - kept..filled, 0);
            if kept == LINE {
                is_cut = true;
                kept = 0;
            }
        }
    }

    /// The numbers that lines of the file state by these names, as `read` understands a line.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn numbers<const N: usize>(
        &self,
        names: [&str; N],
        read: impl Fn(&[u8], &str) -> Option<u64>,
    ) -> Result<[Option<u64>; N]> {
        let mut found = [None; N];
        self.find_line(|line| {
            for (name, number) in names.iter().zip(&mut found) {
                *number = number.or_else(|| read(line, name));
            }
            found.iter().all(Option::is_some).then_some(())
        })?;
        Ok(found)
    }
}

fn open(directory: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> Result<File> {
    let file = rustix::fs::openat(directory, path, flags | OFlags::CLOEXEC, Mode::empty())?;
    Ok(File(ManuallyDrop::new(file)))
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's alone, and nothing else closes it.
        unsafe { rustix::io::close(self.0.as_raw_fd()) };
    }
}

/// A path, with the zero behind it that system calls want.
#[derive(Debug)]
pub struct Path {
    bytes: [u8; PATH],
    length: usize,
}

impl Path {
    /// The path of these bytes.
    ///
    /// # Errors
    /// ENAMETOOLONG from [`PATH`] bytes on.
    pub fn of(bytes: impl IntoIterator<Item = u8>) -> Result<Self> {
        let mut path = Self { bytes: [0; PATH], length: 0 };
        path.push(bytes)?;
        Ok(path)
    }

    /// Adds to its end.
    ///
    /// # Errors
    /// As of [`Path::of`]; what there is room for has been added.
    pub fn push(&mut self, bytes: impl IntoIterator<Item = u8>) -> Result<()> {
        for byte in bytes {
            let (last, kept) = (PATH - 1, &mut self.bytes);
            *kept[..last].get_mut(self.length).ok_or(Errno::NAMETOOLONG)? = byte;
            self.length += 1;
        }
        Ok(())
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The path, up to a zero byte in it.
    #[must_use]
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::CString;
    use std::vec::Vec;

    fn file(content: &[u8]) -> File {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("file");
        std::fs::write(&path, content).expect("written");
        let path = CString::new(path.as_os_str().as_encoded_bytes()).expect("no zero");
        File::open(&path).expect("it is there")
    }

    #[test]
    fn a_number_is_found_on_any_line() {
        let file = file(b"a 1\nb 2\nb 3\nc 4");
        let found = file.numbers(["b", "d", "c"], crate::text::statistic);
        assert_eq!(found, Ok([Some(2), None, Some(4)]));
        assert_eq!(File::open(c"/nonexistent").err(), Some(Errno::NOENT));
    }

    #[test]
    fn a_path_has_an_end() {
        let mut path = Path::of(*b"/a").expect("short");
        path.push(*b"/b").expect("short");
        assert_eq!((path.as_c_str(), path.as_bytes()), (c"/a/b", &b"/a/b"[..]));
        assert_eq!(path.push([b'c'; PATH]), Err(Errno::NAMETOOLONG));
        assert_eq!(path.as_c_str().count_bytes(), PATH - 1);
    }

    proptest! {
        #[test]
        fn every_line_that_fits_is_seen(lengths in prop::collection::vec(0..2 * LINE, 0..8)) {
            let lines: Vec<Vec<u8>> = (b'a'..).zip(&lengths).map(|(b, n)| std::vec![b; *n]).collect();
            let mut seen = Vec::new();
            let found = file(&lines.join(&b'\n')).find_line(|line| {
                seen.push(line.to_vec());
                None::<()>
            });
            prop_assert_eq!(found, Ok(None));
            let is_seen = |line: &&Vec<u8>| line.len() < LINE;
            let mut expected: Vec<_> = lines.iter().filter(is_seen).cloned().collect();
            // An empty line without its end is none.
            if lines.last().is_some_and(Vec::is_empty) {
                expected.pop();
            }
            prop_assert_eq!(seen, expected);
        }
    }
}
