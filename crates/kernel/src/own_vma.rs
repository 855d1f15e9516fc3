//! Memory of our own of every kind that programs have, to try things on: private, a memfd, the heap,
//! in other hands.
//!
//! Tests use it; nothing of another process is ever reached through it. [`crate::own_memory`] is the
//! simple kind, which is unmapped in the end; a VMA stays mapped as long as its process.
//! [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html),
//! [memfd_create(2)](https://man7.org/linux/man-pages/man2/memfd_create.2.html),
//! [brk(2)](https://man7.org/linux/man-pages/man2/brk.2.html),
//! [ioctl_userfaultfd(2)](https://man7.org/linux/man-pages/man2/ioctl_userfaultfd.2.html).

#![expect(unsafe_code, reason = "maps memory and hands out bytes of it")]

use crate::error::{Error, Result};
use crate::width::to_usize;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, UserfaultfdFlags};
use rustix::mm::{madvise, mmap, mmap_anonymous, munmap, userfaultfd};
use superpage_units::{BasePages, Bytes, HUGE_PAGE_BYTES, HugePages, PmdRange, VirtAddr};

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A VMA, mapped for reading and writing until our process ends.
#[derive(Debug)]
pub struct OwnVma {
    first: *mut u8,
    length: usize,
    file: Option<OwnedFd>,
    /// An open one watches the VMA.
    userfaultfd: Option<OwnedFd>,
}

// SAFETY: the mapping belongs to this value alone, and every write takes `&mut self`.
unsafe impl Send for OwnVma {}

impl OwnVma {
    fn at(first: *mut u8, length: usize) -> Self {
        Self { first, length, file: None, userfaultfd: None }
    }

    /// Private anonymous memory: whole ranges, aligned, with a hole on each side.
    ///
    /// # Errors
    /// [`Error::Failed`] if there is no room.
    pub fn private(size: HugePages) -> Result<Self> {
        let length = to_usize(size.bytes().0);
        let vma = Self::at(reserve(length)?, length);
        vma.map_private()?;
        Ok(vma)
    }

    fn map_private(&self) -> Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range was reserved for this VMA, or was this VMA.
        unsafe { mmap_anonymous(self.first.cast(), self.length, READ_WRITE, flags) }
            .map_err(|errno| Error::from_errno(errno, "map a VMA"))?;
        Ok(())
    }

    /// Shared memory of a new memfd: whole ranges, aligned.
    ///
    /// # Errors
    /// [`Error::Failed`] if there is no room, or no descriptor to be had.
    pub fn memfd(size: HugePages) -> Result<Self> {
        let failed = |errno| Error::from_errno(errno, "make a memfd");
        let flags = rustix::fs::MemfdFlags::empty();
        let file = rustix::fs::memfd_create("superpage-own-vma", flags).map_err(failed)?;
        rustix::fs::ftruncate(&file, size.bytes().0).map_err(failed)?;
        Self::of_file(file, size)
    }

    /// Shared memory of a file that others map too.
    ///
    /// # Errors
    /// [`Error::Failed`] if there is no room, or the file cannot be mapped.
    pub fn of_file(file: OwnedFd, size: HugePages) -> Result<Self> {
        let length = to_usize(size.bytes().0);
        let first = reserve(length)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range was reserved for it.
        unsafe { mmap(first.cast(), length, READ_WRITE, flags, &file, 0) }
            .map_err(|errno| Error::from_errno(errno, "map a file"))?;
        Ok(Self { file: Some(file), ..Self::at(first, length) })
    }

    /// What the heap gets by growing so far now; not aligned.
    ///
    /// # Errors
    /// [`Error::Failed`] if it does not grow.
    pub fn heap(growth: Bytes) -> Result<Self> {
        let failed = || Error::from_errno(Errno::NOMEM, format!("grow the heap by {growth}"));
        let increment = isize::try_from(growth.0).map_err(|_| failed())?;
        // SAFETY: only adds memory at the end; an allocator that uses the break too must expect
        // that others move it.
        let first = unsafe { libc::sbrk(increment) };
        if first.addr() == usize::MAX {
            return Err(failed());
        }
        Ok(Self::at(first.cast(), to_usize(growth.0)))
    }

    /// Where it begins.
    #[must_use]
    pub fn start(&self) -> VirtAddr {
        VirtAddr(self.first.addr() as u64)
    }

    /// Its size.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes(self.length as u64)
    }

    /// Its whole ranges.
    pub fn ranges(&self) -> impl Iterator<Item = PmdRange> + use<> {
        PmdRange::within(self.start(), self.start().offset(self.size()))
    }

    /// Its file, if it has one.
    #[must_use]
    pub fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }

    /// All of its bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped for reading and writing as long as we run, and borrowed from us alone.
        // Who else maps the file of a shared VMA writes at other times, as tests see to.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.length) }
    }

    /// Gives base pages back; of private memory they read as zeroes from then on.
    ///
    /// # Errors
    /// [`Error::Failed`] if they do not all lie in here.
    pub fn discard(&mut self, first: BasePages, count: BasePages) -> Result<()> {
        self.advise(Advice::LinuxDontNeed, first.bytes(), count.bytes())
    }

    /// Asks for huge pages at first touches (`MADV_HUGEPAGE`).
    ///
    /// # Errors
    /// [`Error::Failed`] where the kernel has no huge pages.
    pub fn use_huge_pages(&mut self) -> Result<()> {
        self.advise(Advice::LinuxHugepage, Bytes::ZERO, self.size())
    }

    /// Lets equal pages of it be merged (KSM).
    ///
    /// # Errors
    /// [`Error::Failed`] where the kernel has no KSM.
    pub fn merge(&mut self) -> Result<()> {
        self.advise(Advice::LinuxMergeable, Bytes::ZERO, self.size())
    }

    /// Gives base pages back lazily (`MADV_FREE`): the kernel takes them when it needs memory, and until then they read as
    /// before.
    ///
    /// # Errors
    /// [`Error::Failed`] if they do not all lie in here.
    pub fn free_lazily(&mut self, first: BasePages, count: BasePages) -> Result<()> {
        self.advise(Advice::LinuxFree, first.bytes(), count.bytes())
    }

    /// Locks it in memory, which makes all of it present.
    ///
    /// # Errors
    /// [`Error::Failed`] where so much may not be locked.
    pub fn lock(&mut self) -> Result<()> {
        // SAFETY: locking changes no contents, and the range is this VMA.
        unsafe { rustix::mm::mlock(self.first.cast(), self.length) }
            .map_err(|errno| Error::from_errno(errno, "lock a VMA"))
    }

    /// Makes each range a VMA of its own, unlike its neighbours.
    ///
    /// # Errors
    /// [`Error::Failed`] if there may be no more VMAs.
    pub fn divide(&mut self) -> Result<()> {
        let size = HugePages(1).bytes();
        let mut every_other = (0..self.size().0 / HUGE_PAGE_BYTES).step_by(2);
        every_other.try_for_each(|index| {
            self.advise(Advice::LinuxDontDump, HugePages(index).bytes(), size)
        })
    }

    fn advise(&mut self, advice: Advice, offset: Bytes, size: Bytes) -> Result<()> {
        let failed = |errno| Error::from_errno(errno, format!("advise on a VMA: {advice:?}"));
        let end = offset.0.checked_add(size.0).filter(|end| *end <= self.size().0);
        end.ok_or_else(|| failed(Errno::INVAL))?;
        // SAFETY: it lies in this VMA, so the place is in it too.
        let place = unsafe { self.first.add(to_usize(offset.0)) };
        // SAFETY: the range lies in this VMA, of which nobody has a slice.
        unsafe { madvise(place.cast(), to_usize(size.0), advice) }.map_err(failed)
    }

    /// Unmaps it, and maps private memory at the same place.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn renew(&mut self) -> Result<()> {
        // A reader that waits for a page of the VMA goes on when the userfaultfd is closed.
        self.userfaultfd = None;
        // SAFETY: exactly this VMA, of which nobody has a slice; it is mapped again before anybody
        // uses it.
        unsafe { munmap(self.first.cast(), self.length) }
            .map_err(|errno| Error::from_errno(errno, "unmap a VMA"))?;
        self.map_private()
    }

    /// Registers it with a userfaultfd, for write-protection of which no use is made.
    ///
    /// # Errors
    /// [`Error::Denied`] without the right to use one, [`Error::Failed`].
    pub fn watch_writes(&mut self) -> Result<()> {
        const MODE_WP: u64 = 2;
        self.register(MODE_WP)
    }

    /// Registers it with a userfaultfd and write-protects all of it. Who writes to it waits until this is renewed.
    ///
    /// # Errors
    /// As [`OwnVma::watch_writes`].
    pub fn protect_writes(&mut self) -> Result<()> {
        #[repr(C)]
        struct WriteProtect {
            start: u64,
            length: u64,
            mode: u64,
        }
        // From the kernel's linux/userfaultfd.h; `libc` does not have it.
        const UFFDIO_WRITEPROTECT: libc::Ioctl = 0xc018_aa06;
        const MODE_WP: u64 = 1;
        self.watch_writes()?;
        let failed = |errno| Error::from_errno(errno, "write-protect a VMA");
        let file = self.userfaultfd.as_ref().ok_or_else(|| failed(Errno::BADF))?;
        let mut protect =
            WriteProtect { start: self.start().0, length: self.size().0, mode: MODE_WP };
        // SAFETY: the structure is what the kernel expects, and outlives the call.
        let done =
            unsafe { libc::ioctl(file.as_raw_fd(), UFFDIO_WRITEPROTECT, &raw mut protect) == 0 };
        if done {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        Err(failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }

    /// Registers it with a userfaultfd for missing pages, which nobody ever fills: who touches one waits until this is renewed.
    ///
    /// # Errors
    /// As [`OwnVma::watch_writes`].
    pub fn leave_missing(&mut self) -> Result<()> {
        const MODE_MISSING: u64 = 1;
        self.register(MODE_MISSING)
    }

    fn register(&mut self, mode: u64) -> Result<()> {
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
        let failed = |errno| Error::from_errno(errno, "register a VMA with a userfaultfd");
        // SAFETY: only makes a descriptor.
        let file = unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC) }.map_err(failed)?;
        let mut api = Api { api: 0xaa, features: 0, ioctls: 0 };
        let (start, length) = (self.start().0, self.size().0);
        let mut register = Register { start, length, mode, ioctls: 0 };
        // SAFETY: both structures are what the kernel expects, and outlive the calls.
        let done = unsafe {
            libc::ioctl(file.as_raw_fd(), UFFDIO_API, &raw mut api) == 0
                && libc::ioctl(file.as_raw_fd(), UFFDIO_REGISTER, &raw mut register) == 0
        };
        if !done {
            let error = std::io::Error::last_os_error();
            return Err(failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)));
        }
        self.userfaultfd = Some(file);
        Ok(())
    }
}

/// An aligned range of addresses that nobody else gets, with a hole on each side.
fn reserve(length: usize) -> Result<*mut u8> {
    let range = to_usize(HUGE_PAGE_BYTES);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let whole = length.saturating_add(2 * range);
    // SAFETY: the kernel chooses an unused place.
    let place = unsafe { mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), flags) }
        .map_err(|errno| Error::from_errno(errno, "reserve addresses"))?;
    let place = place.cast::<u8>();
    // SAFETY: at most a range further on, of two that are there besides the VMA.
    Ok(unsafe { place.add(1 + place.add(1).align_offset(range)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vmas_are_aligned_and_hold_what_is_written() {
        for made in [OwnVma::private(HugePages(2)), OwnVma::memfd(HugePages(2))] {
            let mut vma = made.expect("4 MiB");
            assert_eq!(vma.ranges().count(), 2);
            vma.bytes_mut().fill(7);
            vma.divide().expect("vmas");
            assert!(vma.bytes_mut().iter().all(|byte| *byte == 7));
            assert!(vma.discard(BasePages(1023), BasePages(2)).is_err());
        }
    }

    #[test]
    fn what_is_renewed_is_empty() {
        let mut vma = OwnVma::private(HugePages(1)).expect("2 MiB");
        vma.bytes_mut().fill(7);
        vma.renew().expect("mapped anew");
        assert!(vma.bytes_mut().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn the_heap_follows_on_itself() {
        let mut vma = OwnVma::heap(Bytes(4096)).expect("a page");
        vma.bytes_mut().fill(7);
        assert_eq!(vma.size(), Bytes(4096));
    }
}
