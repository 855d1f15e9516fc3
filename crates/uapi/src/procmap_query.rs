//! A VMA is found by an address: the `PROCMAP_QUERY` ioctl on `/proc/PID/maps`.
//! [proc_pid_maps](https://docs.kernel.org/filesystems/proc.html), since Linux 6.11.

#![expect(unsafe_code, reason = "one ioctl that the kernel crates do not wrap")]

use crate::Result;
use linux_raw_sys::general::{procmap_query, procmap_query_flags as Flag};
use rustix::fd::AsFd;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use superpage_units::{Bytes, VirtAddr};

const _: () = assert!(size_of::<procmap_query>() == 104);
const PROCMAP_QUERY: Opcode = opcode::read_write::<procmap_query>(b'f', 17);

/// A VMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vma {
    /// Its first address.
    pub start: VirtAddr,
    /// The address behind its last.
    pub end: VirtAddr,
    /// The size of pages that it is made of: of huge or gigantic pages only where they are of the kernel's pools (hugetlb).
    pub page_size: Bytes,
    /// Whether it is private anonymous memory.
    pub is_private_anonymous: bool,
    /// Whether its process may read it.
    pub is_readable: bool,
    /// Whether its process may write to it.
    pub is_writable: bool,
    /// Whether its process may run it.
    pub is_executable: bool,
}

/// The VMA that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that holds the address.
    Holding,
    /// The one that holds the address, or the next one above it.
    HoldingOrNext,
}

/// A VMA of the process whose `maps` file is open.
///
/// # Errors
/// ENOENT if there is none, ENOTTY or EINVAL before Linux 6.11, and what the kernel says.
pub fn vma(maps: impl AsFd, address: VirtAddr, which: Which) -> Result<Vma> {
    // SAFETY: zeroes ask for the VMA that holds the address 0, and for no name.
    let mut query: procmap_query = unsafe { core::mem::zeroed() };
    query.size = size_of::<procmap_query>() as u64;
    query.query_addr = address.0;
    query.query_flags = match which {
        Which::Holding => 0,
        Which::HoldingOrNext => Flag::PROCMAP_QUERY_COVERING_OR_NEXT_VMA as u64,
    };
    // SAFETY: the structure is the request's, and says how large it is.
    unsafe { ioctl(maps, Updater::<PROCMAP_QUERY, procmap_query>::new(&mut query)) }?;
    let has = |flag: Flag| query.vma_flags & flag as u64 != 0;
    Ok(Vma {
        start: VirtAddr(query.vma_start),
        end: VirtAddr(query.vma_end),
        page_size: Bytes(query.vma_page_size),
        is_private_anonymous: query.inode == 0 && !has(Flag::PROCMAP_QUERY_VMA_SHARED),
        is_readable: has(Flag::PROCMAP_QUERY_VMA_READABLE),
        is_writable: has(Flag::PROCMAP_QUERY_VMA_WRITABLE),
        is_executable: has(Flag::PROCMAP_QUERY_VMA_EXECUTABLE),
    })
}
