//! The VMAs of the process: [`superpage_uapi::procmap_query`].

use super::pagemap::{errno, span};
use super::{Result, Span};
use superpage_uapi::file::File;
use superpage_uapi::procmap_query::{Vma, Which, vma};
use superpage_units::VirtAddr;

/// The VMA that holds this address.
///
/// # Errors
/// ENOENT if nothing is mapped there, and what the kernel says where it cannot tell.
pub(crate) fn vma_at(address: usize) -> Result<Span> {
    query(address).map(|vma| span(vma.start, vma.end))
}

/// Whether the program may write at this address.
///
/// # Errors
/// As of [`vma_at`].
pub(crate) fn is_writable(address: usize) -> Result<bool> {
    query(address).map(|vma| vma.is_writable)
}

fn query(address: usize) -> Result<Vma> {
    let maps = File::open(c"/proc/thread-self/maps");
    maps.and_then(|maps| vma(maps, VirtAddr(address as u64), Which::Holding)).map_err(errno)
}
