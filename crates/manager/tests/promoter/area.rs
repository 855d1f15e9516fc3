//! Memory of the program under test: areas of whole regions, and what was written to them.

#![expect(unsafe_code, reason = "maps memory, and hands out bytes of it")]

use crate::{Ended, ensure};
use libtest_mimic::Failed;
use rustix::fd::{AsFd, IntoRawFd, OwnedFd};
use rustix::mm::{Advice, MapFlags, ProtFlags, UserfaultfdFlags};
use rustix::mm::{madvise, mmap, mmap_anonymous, munmap, userfaultfd};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use superpage_policy::units::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};

const PAGE: usize = 4096;
const REGION: usize = 2 << 20;
const _: () = assert!(PAGE as u64 == BASE_PAGE_BYTES && REGION as u64 == HUGE_PAGE_BYTES);

/// An area, and what each base page of it that was touched should be full of.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) start: usize,
    pub(crate) length: usize,
    written: BTreeMap<usize, u8>,
    file: Option<OwnedFd>,
}

impl Area {
    fn at(start: usize, length: usize) -> Self {
        Self { start, length, written: BTreeMap::new(), file: None }
    }

    /// So many regions of private anonymous memory, aligned.
    pub(crate) fn private(regions: usize) -> Result<Self, Failed> {
        let length = regions * REGION;
        let start = reserve(length)?;
        Self::at(start, length).map_private()
    }

    fn map_private(self) -> Result<Self, Failed> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let place = std::ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: the range was reserved for this area, or was this area.
        unsafe { mmap_anonymous(place, self.length, READ_WRITE, flags)? };
        Ok(self)
    }

    /// So many regions of a new memfd.
    pub(crate) fn memfd(regions: usize) -> Result<Self, Failed> {
        let length = regions * REGION;
        let file = rustix::fs::memfd_create("promoted", rustix::fs::MemfdFlags::empty())?;
        rustix::fs::ftruncate(&file, length as u64)?;
        Self::of_file(file, length)
    }

    /// A file that somebody else has mapped too, as it is, or as it is there after some writes.
    pub(crate) fn of_file(file: OwnedFd, length: usize) -> Result<Self, Failed> {
        let start = reserve(length)?;
        let place = std::ptr::with_exposed_provenance_mut(start);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range was reserved for it.
        unsafe { mmap(place, length, READ_WRITE, flags, &file, 0)? };
        Ok(Self { file: Some(file), ..Self::at(start, length) })
    }

    /// What the heap holds when it has grown by `length`, which follows on what it had.
    pub(crate) fn heap(length: usize) -> Result<Self, Failed> {
        // SAFETY: an allocator that uses the break too finds that somebody else moved it, as it
        // must expect.
        let end = unsafe { libc::sbrk(isize::try_from(length)?) };
        ensure!(end.addr() != usize::MAX, "the heap does not grow");
        Ok(Self::at(end.expose_provenance(), length))
    }

    /// The descriptor of its file.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.file.as_ref().map(|file| file.as_fd().as_raw_fd())
    }

    fn bytes(&mut self, page: usize) -> Result<&mut [u8], Failed> {
        ensure!((page + 1) * PAGE <= self.length, "no page {page}");
        let place = std::ptr::with_exposed_provenance_mut::<u8>(self.start + page * PAGE);
        // SAFETY: it lies in this area, which is mapped for reading and writing, and nobody else
        // has a slice of it.
        Ok(unsafe { std::slice::from_raw_parts_mut(place, PAGE) })
    }

    /// Fills pages with something that is unlike their neighbours, and never zero.
    pub(crate) fn touch(&mut self, first: usize, count: usize) -> Ended {
        for page in first..first + count {
            let before = self.written.get(&page).copied().unwrap_or_default();
            let value = (page % 251) as u8;
            let value = value.wrapping_add(before).wrapping_mul(2) | 1;
            self.bytes(page)?.fill(value);
            self.written.insert(page, value);
        }
        Ok(())
    }

    /// Gives pages back.
    pub(crate) fn release(&mut self, first: usize, count: usize) -> Ended {
        self.advise(Advice::LinuxDontNeed, first, count)?;
        self.written.retain(|page, _| !(first..first + count).contains(page));
        Ok(())
    }

    fn advise(&mut self, advice: Advice, first: usize, count: usize) -> Ended {
        let place = self.bytes(first)?.as_mut_ptr();
        self.bytes(first + count - 1)?;
        // SAFETY: the range lies in this area, of which nobody holds a slice; contents change only
        // where it is given back.
        Ok(unsafe { madvise(place.cast(), count * PAGE, advice)? })
    }

    /// Equal pages of it may be merged.
    pub(crate) fn merge(&mut self) -> Ended {
        self.advise(Advice::LinuxMergeable, 0, self.length / PAGE)
    }

    /// Makes every other region unlike its neighbours, so that each is an area of its own.
    pub(crate) fn divide(&mut self) -> Ended {
        let pages = REGION / PAGE;
        let mut every_other = (0..self.length / REGION).step_by(2);
        every_other.try_for_each(|region| self.advise(Advice::LinuxDontDump, region * pages, pages))
    }

    /// Unmaps it, and maps it anew at the same place.
    pub(crate) fn renew(&mut self) -> Ended {
        // SAFETY: exactly this area; it is mapped again before anybody uses it.
        unsafe { munmap(std::ptr::with_exposed_provenance_mut(self.start), self.length)? };
        *self = Self::at(self.start, self.length).map_private()?;
        Ok(())
    }

    /// The first page that is not as it was written, or was not written and is not empty.
    pub(crate) fn wrong(&mut self) -> Result<Option<String>, Failed> {
        for (page, value) in self.written.clone() {
            let found = self.bytes(page)?.iter().find(|byte| **byte != value).copied();
            if let Some(found) = found {
                return Ok(Some(format!("page {page} holds {found}, not {value}")));
            }
        }
        Ok(None)
    }

    /// Has writes to it watched by a userfaultfd, which stays open as long as we run.
    pub(crate) fn watch_writes(&mut self) -> Ended {
        #[repr(C)]
        struct Api {
            api: u64,
            features: u64,
            ioctls: u64,
        }
        #[repr(C)]
        struct Register {
            start: u64,
            length: u64,
            mode: u64,
            ioctls: u64,
        }
        // From the kernel's linux/userfaultfd.h; `libc` does not have them.
        const UFFDIO_API: libc::Ioctl = 0xc018_aa3f;
        const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00;
        const MODE_WP: u64 = 2;
        // SAFETY: only makes a descriptor.
        let file = unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC)? };
        let mut api = Api { api: 0xaa, features: 0, ioctls: 0 };
        let (start, length) = (self.start as u64, self.length as u64);
        let mut register = Register { start, length, mode: MODE_WP, ioctls: 0 };
        // Kept: its end would end the watching.
        let number = file.into_raw_fd();
        // SAFETY: both structures are what the kernel expects, and live as long as the calls.
        let done = unsafe {
            libc::ioctl(number, UFFDIO_API, &raw mut api) == 0
                && libc::ioctl(number, UFFDIO_REGISTER, &raw mut register) == 0
        };
        let error = std::io::Error::last_os_error();
        ensure!(done, "writes cannot be watched: {error}");
        Ok(())
    }
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// An aligned range of addresses that nobody else gets, with a hole on each side.
fn reserve(length: usize) -> Result<usize, Failed> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let whole = length + 2 * REGION;
    // SAFETY: the kernel chooses an unused place.
    let place = unsafe { mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), flags)? };
    Ok((place.expose_provenance() + 1).next_multiple_of(REGION))
}

/// The file behind a descriptor of process `pid`.
pub(crate) fn file_of(pid: u32, descriptor: i32) -> Result<OwnedFd, Failed> {
    let path = format!("/proc/{pid}/fd/{descriptor}");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
    Ok(file.into())
}

/// A child that shares all our memory, and waits for its end; its number.
pub(crate) fn fork() -> Result<i32, Failed> {
    let parent = rustix::process::getpid();
    // SAFETY: the child makes system calls and nothing else.
    let number = unsafe { libc::fork() };
    ensure!(number >= 0, "no child: {}", std::io::Error::last_os_error());
    if number == 0 {
        let signal = Some(rustix::process::Signal::KILL);
        let bound = rustix::process::set_parent_process_death_signal(signal);
        while bound.is_ok() && rustix::process::getppid() == Some(parent) {
            // SAFETY: returns after a signal, of which the loop makes nothing.
            unsafe { libc::pause() };
        }
        // SAFETY: ends this process without running what our exit would run.
        unsafe { libc::_exit(0) }
    }
    Ok(number)
}
