//! The VMAs of the process: [`superpage_uapi::procmap_query`].

use super::pagemap::{errno, span};
use super::{Errno, Result, Span};
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

/// Private anonymous memory that the program may use in one way: a VMA, or what lies in a span of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) span: Span,
    /// What mprotect takes.
    pub(crate) protection: i32,
}

/// The first part of a span.
///
/// # Errors
/// EINVAL where it is not private anonymous memory, and as of [`vma_at`].
pub(crate) fn first_part(of: Span) -> Result<Part> {
    let vma = query(of.start)?;
    let rights = [
        (vma.is_readable, libc::PROT_READ),
        (vma.is_writable, libc::PROT_WRITE),
        (vma.is_executable, libc::PROT_EXEC),
    ];
    let protection = rights.iter().filter(|(has, _)| *has).map(|(_, right)| right).sum();
    let span = span(vma.start, vma.end).overlap(of).filter(|_| vma.is_private_anonymous);
    span.map(|span| Part { span, protection }).ok_or(Errno::EINVAL)
}

fn query(address: usize) -> Result<Vma> {
    let maps = File::open(c"/proc/thread-self/maps");
    maps.and_then(|maps| vma(maps, VirtAddr(address as u64), Which::Holding)).map_err(errno)
}
