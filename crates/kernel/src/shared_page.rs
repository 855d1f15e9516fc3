//! A page of memory that another process shares, through a file that both have mapped.
//!
//! [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html).

#![expect(unsafe_code, reason = "maps a file and hands out what is in it")]

use crate::error::{Error, Result};
use crate::maps::{self, Sharing, Vma};
use crate::process::Process;
use crate::width::to_usize;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
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
        Self::map(&file, path)
    }

    fn map(file: &File, path: &Path) -> Result<Self> {
        let length = to_usize(BASE_PAGE_BYTES);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let anywhere = std::ptr::null_mut();
        // SAFETY: the kernel chooses an unused place.
        let start = unsafe { mmap(anywhere, length, protection, MapFlags::SHARED, file, 0) }
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

/// A page that another process has mapped so that it can write to it.
///
/// Whoever may write to the file may also make it shorter, and then touching the mapping is a signal. So it is read as a
/// file, and only who wants to change a word touches the mapping.
#[derive(Debug)]
pub struct PeersPage {
    file: File,
    page: SharedPage,
}

impl PeersPage {
    /// The page of a file that `process` has mapped and whose path `is_wanted`; `None` if it has none such. It is the file
    /// that is mapped, and not another one that lies at that path by now.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`] if the process or the file is somebody else's, [`Error::Failed`].
    pub fn of(process: &Process, is_wanted: fn(&Path) -> bool) -> Result<Option<Self>> {
        for vma in maps::of(process)? {
            let path = Path::new(OsStr::from_bytes(&vma.name));
            let is_page = vma.size().0 == BASE_PAGE_BYTES && vma.sharing == Sharing::Shared;
            if is_page && vma.permissions.write && is_wanted(path) {
                let found = Self::open(process, path)?;
                if let Some(found) = found
                    && found.is_mapped_as(&vma)?
                {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    fn open(process: &Process, path: &Path) -> Result<Option<Self>> {
        let Some(file) = process.open_seen(path)?.map(File::from) else { return Ok(None) };
        let status = file.metadata().map_err(|error| Error::from_io(&error, "look at", path))?;
        if !status.is_file() || status.len() != BASE_PAGE_BYTES {
            return Ok(None);
        }
        let page = SharedPage::map(&file, path)?;
        Ok(Some(Self { file, page }))
    }

    /// Whether it is the same file. What the kernel says of a mapping is compared with what it says of a mapping: some file
    /// systems have another number for what is mapped than for what is open.
    fn is_mapped_as(&self, vma: &Vma) -> Result<bool> {
        let ours = maps::of(&Process::current()?)?;
        let start = self.page.words.addr() as u64;
        let ours = ours.iter().find(|ours| ours.start.0 == start);
        Ok(ours.is_some_and(|ours| (ours.device, ours.inode) == (vma.device, vma.inode)))
    }

    /// The words of the page as they are now.
    ///
    /// # Errors
    /// [`Error::Failed`] if the file has become shorter.
    pub fn read(&self) -> Result<Box<[AtomicU64; WORDS]>> {
        let mut bytes = [0; to_usize(BASE_PAGE_BYTES)];
        self.file.read_exact_at(&mut bytes, 0).map_err(|error| {
            let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
            Error::from_errno(errno, "read a page that another process has mapped")
        })?;
        let (chunks, _) = bytes.as_chunks();
        let words = Box::new([const { AtomicU64::new(0) }; WORDS]);
        for (word, chunk) in words.iter().zip(chunks) {
            word.store(u64::from_ne_bytes(*chunk), Relaxed);
        }
        Ok(words)
    }

    /// The page itself, to be changed.
    #[must_use]
    pub fn page(&self) -> &SharedPage {
        &self.page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_process_is_found_by_what_it_maps() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("page-of-a-peer");
        let is_wanted = |path: &Path| path.ends_with("page-of-a-peer");
        let us = Process::current().expect("our own process opens");
        let find = || PeersPage::of(&us, is_wanted).expect("our maps are readable");
        assert!(find().is_none(), "nothing is mapped");
        let page = SharedPage::create(&path).expect("it is new");
        let found = find().expect("it is mapped");
        found.page().words()[3].store(7, Relaxed);
        assert_eq!(page.words()[3].load(Relaxed), 7);
        assert_eq!(found.read().expect("it is whole")[3].load(Relaxed), 7);
        drop(found);
        // Another file at the path is not what is mapped.
        let other = directory.path().join("other");
        let bytes = [0; to_usize(BASE_PAGE_BYTES)];
        std::fs::write(&other, bytes).expect("there is room");
        std::fs::rename(&other, &path).expect("it is replaced");
        assert!(find().is_none(), "it is another file");
    }

    #[test]
    fn a_page_that_was_cut_off_is_an_error_and_no_signal() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("page-that-is-cut-off");
        let _page = SharedPage::create(&path).expect("it is new");
        let us = Process::current().expect("our own process opens");
        let found = PeersPage::of(&us, |path| path.ends_with("page-that-is-cut-off"));
        let found = found.expect("our maps are readable").expect("it is mapped");
        std::fs::write(&path, "short").expect("there is room");
        assert!(found.read().is_err());
    }

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
