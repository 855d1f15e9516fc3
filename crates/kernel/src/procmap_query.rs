//! A VMA of our own process is found by its address: the `PROCMAP_QUERY` ioctl on `/proc/self/maps`.
//!
//! [`crate::maps`] reads all VMAs of a process as text. [proc_pid_maps](https://docs.kernel.org/filesystems/proc.html),
//! since Linux 6.11.

use crate::error::{Error, Result};
use rustix::io::Errno;
use std::fs::File;
use superpage_uapi::procmap_query::{Vma, Which, vma};
use superpage_units::VirtAddr;

/// The VMAs of our own process, as they are when they are asked for.
#[derive(Debug)]
pub struct OwnMaps(File);

impl OwnMaps {
    /// Opens `/proc/self/maps`.
    ///
    /// # Errors
    /// [`Error::Failed`] without `/proc`.
    pub fn open() -> Result<Self> {
        let open =
            |error: std::io::Error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        File::open("/proc/self/maps").map(Self).map_err(open)
    }

    /// The VMA that holds `address`, or the next one above it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] before Linux 6.11, [`Error::Failed`].
    pub fn vma_from(&self, address: VirtAddr) -> Result<Option<Vma>> {
        match vma(&self.0, address, Which::HoldingOrNext) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }
}

fn failed(errno: Errno) -> Error {
    let what = "find a VMA by PROCMAP_QUERY (Linux 6.11 or later)";
    match errno {
        Errno::INVAL => Error::Unsupported { what: what.to_owned(), errno },
        errno => Error::from_errno(errno, what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_memory::{OwnMemory, Wish};
    use superpage_units::{BASE_PAGE_BYTES, Bytes, HugePages};

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
