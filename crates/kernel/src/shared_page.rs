//! A page of memory that another process shares, through a file that both have mapped.
//!
//! [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html).

#![expect(unsafe_code, reason = "maps a file and hands out what is in it")]

use crate::error::{Error, Result};
use crate::width::to_usize;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use superpage_units::BASE_PAGE_BYTES;

/// Words in a page.
const WORDS: usize = to_usize(BASE_PAGE_BYTES) / size_of::<u64>();

/// The first page of a file, mapped until it is dropped.
#[derive(Debug)]
pub struct SharedPage {
    words: *mut [AtomicU64; WORDS],
}

// SAFETY: the words are atomic, and the mapping belongs to this value.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// Creates a file of one page of zeroes, for this user alone, and maps it.
    ///
    /// # Errors
    /// [`Error::Failed`] if the file exists already, or cannot be created or mapped.
    pub fn create(path: &Path) -> Result<Self> {
        let failed = |error: &std::io::Error| Error::from_io(error, "create", path);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| failed(&error))?;
        // Where there is no room for it, writing to the mapping would be a signal.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, BASE_PAGE_BYTES)
            .map_err(|errno| failed(&errno.into()))?;
        let length = to_usize(BASE_PAGE_BYTES);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let anywhere = std::ptr::null_mut();
        // SAFETY: the kernel chooses an unused place.
        let start = unsafe { mmap(anywhere, length, protection, MapFlags::SHARED, &file, 0) }
            .map_err(|errno| Error::from_errno(errno, format!("map {}", path.display())))?;
        Ok(Self { words: start.cast() })
    }

    /// Its words. The other process may change them at any time.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64; WORDS] {
        // SAFETY: the page is mapped for as long as `self` lives, and any bytes are words.
        unsafe { &*self.words }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: it is what `create` mapped, and no reference to it outlives `self`.
        let unmapped = unsafe { munmap(self.words.cast(), to_usize(BASE_PAGE_BYTES)) };
        debug_assert!(unmapped.is_ok(), "our own mapping unmaps");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn what_is_written_is_in_the_file() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("page");
        let page = SharedPage::create(&path).expect("it is new");
        page.words()[1].store(0x0102, Relaxed);
        let bytes = std::fs::read(&path).expect("it is there");
        assert_eq!((bytes.len(), bytes[8], bytes[9]), (4096, 2, 1));
        assert!(SharedPage::create(&path).is_err(), "it exists");
    }
}
