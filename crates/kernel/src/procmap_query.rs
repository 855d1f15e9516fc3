//! A VMA of our own process is found by its address: the `PROCMAP_QUERY` ioctl on `/proc/self/maps`.
//!
//! [`crate::maps`] reads all VMAs of a process as text. [proc_pid_maps](https://docs.kernel.org/filesystems/proc.html),
//! since Linux 6.11.

#![expect(unsafe_code, reason = "one ioctl that the kernel crates do not wrap")]

use crate::error::{Error, Result};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use superpage_units::{Bytes, VirtAddr};

/// The argument, `struct procmap_query` of linux/fs.h.
#[repr(C)]
#[derive(Debug, Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    rights: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    others: [u64; 4],
}

const _: () = assert!(size_of::<Query>() == 104);

const PROCMAP_QUERY: libc::Ioctl = 0xC068_6611; // _IOWR('f', 17, struct procmap_query)
/// The VMA at the address, or the next one above it.
const COVERING_OR_NEXT: u64 = 0x10;

/// The right of a VMA that shares what is written to it with other processes.
const SHARED: u64 = 8;

/// A VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnVmaFound {
    /// Its first address.
    pub start: VirtAddr,
    /// The address behind its last.
    pub end: VirtAddr,
    /// The size of pages that it is made of: of huge or gigantic pages only where they are of the kernel's pools (hugetlb).
    pub page_size: Bytes,
    /// Whether it is private anonymous memory.
    pub is_private_anonymous: bool,
}

/// The VMAs of our own process, as they are when they are asked for.
#[derive(Debug)]
pub struct OwnMaps(File);

impl OwnMaps {
    /// Opens `/proc/self/maps`.
    ///
    /// # Errors
    /// [`Error::Failed`] without `/proc`.
    pub fn open() -> Result<Self> {
        File::open("/proc/self/maps").map(Self).map_err(|error| failed(&error))
    }

    /// The VMA that holds `address`, or the next one above it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] before Linux 6.11, [`Error::Failed`].
    pub fn vma_from(&self, address: VirtAddr) -> Result<Option<OwnVmaFound>> {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            flags: COVERING_OR_NEXT,
            address: address.0,
            ..Query::default()
        };
        // SAFETY: the structure is the request's, and says how large it is.
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
        if answer != 0 {
            let error = std::io::Error::last_os_error();
            let is_none = error.raw_os_error() == Some(libc::ENOENT);
            return if is_none { Ok(None) } else { Err(failed(&error)) };
        }
        Ok(Some(OwnVmaFound {
            start: VirtAddr(query.start),
            end: VirtAddr(query.end),
            page_size: Bytes(query.page_size),
            is_private_anonymous: query.inode == 0 && query.rights & SHARED == 0,
        }))
    }
}

fn failed(error: &std::io::Error) -> Error {
    let what = "find a VMA by PROCMAP_QUERY (Linux 6.11 or later)";
    match Errno::from_io_error(error).unwrap_or(Errno::IO) {
        errno @ (Errno::NOTTY | Errno::INVAL) => {
            Error::Unsupported { what: what.to_owned(), errno }
        }
        errno => Error::from_errno(errno, what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_memory::{OwnMemory, Wish};
    use superpage_units::{BASE_PAGE_BYTES, HugePages};

    #[test]
    fn memory_of_our_own_is_found_and_the_top_is_free() {
        let memory = OwnMemory::map(HugePages(2), Wish::BasePages).expect("4 MiB");
        let place = VirtAddr(memory.bytes().as_ptr().addr() as u64);
        let maps = OwnMaps::open().expect("/proc");
        let found = maps
            .vma_from(place.offset(Bytes(100)))
            .expect("a kernel that says so")
            .expect("it is mapped");
        assert!(found.start <= place && found.end >= place.offset(memory.size()));
        assert_eq!((found.page_size, found.is_private_anonymous), (Bytes(BASE_PAGE_BYTES), true));
        assert_eq!(maps.vma_from(VirtAddr(u64::MAX - 4096)), Ok(None));
    }
}
