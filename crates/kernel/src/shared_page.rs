//! A page of memory that another process shares, through a file in memory (memfd) that both have mapped. It has no name in any
//! file system, so it needs no directory, and nothing is left of it when the last process has ended.
//!
//! [memfd_create(2)](https://man7.org/linux/man-pages/man2/memfd_create.2.html),
//! [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html).

#![expect(unsafe_code, reason = "maps a file and hands out what is in it")]

use crate::error::{Error, Result};
use crate::maps::{self, Sharing, Vma};
use crate::process::Process;
use crate::status;
use crate::width::to_usize;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use superpage_units::BASE_PAGE_BYTES;

/// Words in a page.
const WORDS: usize = to_usize(BASE_PAGE_BYTES) / size_of::<u64>();

/// The first page of a file in memory, open and mapped until it is dropped.
#[derive(Debug)]
pub struct SharedPage {
    words: *mut [AtomicU64; WORDS],
    file: File,
}

// SAFETY: the words are atomic, and the mapping belongs to this value.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// Creates a file in memory with one page of zeroes, and maps it. `name` is what others see of it
    /// ([`PeersPage::of`]).
    ///
    /// # Errors
    /// [`Error::Failed`] if it cannot be created or mapped.
    pub fn create(name: &str) -> Result<Self> {
        let failed = |errno| Error::from_errno(errno, format!("create a memfd for {name}"));
        // Some machines refuse files in memory that could be executed (vm.memfd_noexec).
        let made = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL);
        let file = made.or_else(|_| memfd_create(name, MemfdFlags::CLOEXEC)).map_err(failed)?;
        // Past such a limit the kernel would send a signal that ends the process.
        let limit = getrlimit(Resource::Fsize).current;
        if limit.is_some_and(|limit| limit < BASE_PAGE_BYTES) {
            return Err(failed(rustix::io::Errno::FBIG));
        }
        // Where there is no room for it, writing to the mapping would be a signal.
        fallocate(&file, FallocateFlags::empty(), 0, BASE_PAGE_BYTES).map_err(failed)?;
        Self::map(file.into())
    }

    fn map(file: File) -> Result<Self> {
        let length = to_usize(BASE_PAGE_BYTES);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let anywhere = std::ptr::null_mut();
        // SAFETY: the kernel chooses an unused place.
        let start = unsafe { mmap(anywhere, length, protection, MapFlags::SHARED, &file, 0) }
            .map_err(|errno| Error::from_errno(errno, "map a page to share"))?;
        Ok(Self { words: start.cast(), file })
    }

    /// Its file, which others open among the descriptors of this process (`/proc/PID/fd`).
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
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
    page: SharedPage,
}

impl PeersPage {
    /// The page in a memfd of this name that `process` has mapped, and that `process` itself or its parent has open; `None`
    /// if there is none such.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`] if the process or its parent is somebody else's, [`Error::Failed`].
    pub fn of(process: &Process, name: &str) -> Result<Option<Self>> {
        let seen = format!("/memfd:{name} (deleted)").into_bytes();
        let mapped: Vec<Vma> = maps::of(process)?
            .into_iter()
            .filter(|vma| vma.size().0 == BASE_PAGE_BYTES && vma.sharing == Sharing::Shared)
            .filter(|vma| vma.permissions.write && vma.name == seen)
            .collect();
        if mapped.is_empty() {
            return Ok(None);
        }
        if let Some(found) = Self::open_in(process, &seen, &mapped)? {
            return Ok(Some(found));
        }
        let parent = Process::open(status::parent(process)?)?;
        Self::open_in(&parent, &seen, &mapped)
    }

    /// The page of whichever descriptor of `holder` is for a file that is mapped so.
    fn open_in(holder: &Process, seen: &[u8], mapped: &[Vma]) -> Result<Option<Self>> {
        for file in holder.descriptors_of(seen)? {
            let file = File::from(file);
            // The page is the first of the file.
            if file.metadata().is_ok_and(|status| status.len() < BASE_PAGE_BYTES) {
                continue;
            }
            let found = Self { page: SharedPage::map(file)? };
            for vma in mapped {
                if found.is_mapped_as(vma)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Whether it is the same file. What the kernel says of a mapping is compared with what it says of a mapping.
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
        self.page.file.read_exact_at(&mut bytes, 0).map_err(|error| {
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
    use std::os::fd::AsRawFd;

    #[test]
    fn a_page_of_another_process_is_found_by_what_it_maps() {
        const NAME: &str = "page-of-a-peer";
        let us = Process::current().expect("our own process opens");
        let find = || PeersPage::of(&us, NAME).expect("our maps are readable");
        assert!(find().is_none(), "nothing is mapped");
        let page = SharedPage::create(NAME).expect("there is memory");
        let found = find().expect("it is mapped");
        found.page().words()[3].store(7, Relaxed);
        assert_eq!(page.words()[3].load(Relaxed), 7);
        assert_eq!(found.read().expect("it is whole")[3].load(Relaxed), 7);
        drop((found, page));
        // Another file of this name is not what is mapped.
        let _other = memfd_create(NAME, MemfdFlags::CLOEXEC).expect("there is memory");
        assert!(find().is_none(), "it is another file");
    }

    #[test]
    fn a_page_that_was_cut_off_is_an_error_and_no_signal() {
        const NAME: &str = "page-that-is-cut-off";
        let page = SharedPage::create(NAME).expect("there is memory");
        let us = Process::current().expect("our own process opens");
        let found = PeersPage::of(&us, NAME).expect("our maps are readable");
        let found = found.expect("it is mapped");
        page.file.set_len(5).expect("it is ours");
        assert!(found.read().is_err());
    }

    #[test]
    fn what_is_written_is_in_the_file() {
        let page = SharedPage::create("page").expect("there is memory");
        page.words()[1].store(0x0102, Relaxed);
        let path = format!("/proc/self/fd/{}", page.file().as_raw_fd());
        let bytes = std::fs::read(path).expect("it is there");
        assert_eq!((bytes.len(), bytes[8], bytes[9]), (4096, 2, 1));
    }
}
