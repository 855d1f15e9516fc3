//! The memory of an array: mapped, advised, and put on the pages that were asked for.
//!
//! The pages that are asked for are tried in this order, each part from the beginning of the memory on:
//!
//! 1. Gigantic pages, one by one, from the kernel's pool, until it has no more. Each is mapped apart and moved in place, so
//!    that a pool without free pages is an error here and no SIGBUS at the first touch.
//! 2. Huge pages for what was asked on huge or gigantic pages: MADV_HUGEPAGE, a first touch (MADV_POPULATE_WRITE), and
//!    MADV_COLLAPSE where that found none.
//! 3. Base pages for the rest: MADV_NOHUGEPAGE, and no first touch.
//!
//! Memory for which nothing is asked ([`Pages::DEFAULT`](crate::Pages::DEFAULT)) is mapped by libc's mmap, so that a library that
//! stands in its place, as `superpage run` has, manages it as it does any other memory of the program. All other memory is
//! mapped by system calls, so that the choice is the caller's.
//!
//! The advice stays, so khugepaged and Superpage's daemon leave the rest on base pages; the daemon takes memory that asked for
//! huge pages for bloat only when memory is nearly full.
//! [madvise(2)](https://man7.org/linux/man-pages/man2/madvise.2.html),
//! [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html).

#![expect(unsafe_code, reason = "maps memory, moves it and gives it back")]

use crate::array::{Request, Shortfall};
use crate::error::{Error, Result};
use crate::fork;
use crate::placement::{self, Placement};
use crate::width::to_usize;
use rustix::io::Errno;
use rustix::mm::{
    MapFlags, MprotectFlags, MremapFlags, ProtFlags, mmap_anonymous, mprotect, mremap_fixed,
};
use std::ffi::c_void;
use std::path::Path;
use std::ptr::NonNull;
use superpage_kernel::procmap_query::OwnMaps;
use superpage_units::{
    BASE_PAGE_BYTES, Bytes, GIGANTIC_PAGE_BYTES, HUGE_PAGE_BYTES, PageSize, VirtAddr,
};

const BASE: usize = to_usize(BASE_PAGE_BYTES);
const HUGE: usize = to_usize(HUGE_PAGE_BYTES);
const GIGANTIC: usize = to_usize(GIGANTIC_PAGE_BYTES);

/// A part of the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) length: usize,
}

impl Span {
    fn pointer(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.start)
    }

    pub(crate) fn end(self) -> usize {
        self.start + self.length
    }

    /// The parts of a size that it consists of; less than that at its end is left out.
    fn parts(self, length: usize) -> impl Iterator<Item = Self> {
        (0..self.length / length)
            .map(move |index| Self { start: self.start + index * length, length })
    }
}

/// Memory of an array, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, which hands out nothing but its address.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Whether the kernel is to count memory as used before it is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accounting {
    /// The kernel refuses memory that it could never give.
    Counted,
    /// The kernel does not count the memory, of which hardly any will be touched.
    Sparse,
}

impl Memory {
    /// Maps `length` bytes, and what is left of the last page, at a border of its pages and of `alignment`, a power of two.
    pub(crate) fn map(
        length: usize,
        request: Request,
        accounting: Accounting,
        alignment: usize,
    ) -> Result<Self> {
        if length == 0 {
            // No page: an address that is aligned for all elements.
            let start = NonNull::without_provenance(nonzero(BASE));
            return Ok(Self { start, length: 0 });
        }
        let asked = to_usize(request.pages.asked(Bytes(length as u64)).0);
        let whole = length.checked_next_multiple_of(BASE).ok_or(NO_ROOM)?.max(asked);
        let size = request.pages.size();
        let span = match size {
            Some(size) => {
                let alignment = to_usize(size.bytes().0).max(HUGE).max(alignment);
                reserve(whole, alignment, accounting)?
            }
            None if alignment > BASE => map_aligned_by_libc(whole, alignment)?,
            None => map_by_libc(whole)?,
        };
        let start = NonNull::new(span.pointer().cast()).ok_or(NO_ROOM)?;
        let memory = Self { start, length: span.length };
        if let Some(size) = size {
            memory.place(request, size, length, asked)?;
        }
        Ok(memory)
    }

    /// Puts the first part of it on pages of a size, as far as there are any, and the rest on base pages.
    fn place(&self, request: Request, size: PageSize, length: usize, asked: usize) -> Result<()> {
        let span = self.span();
        let gigantic = match size {
            PageSize::Gigantic => take_gigantic(Span { length: asked, ..span }),
            PageSize::Huge | PageSize::Base => 0,
        };
        let refused = |got| {
            let (pages, asked) = (request.pages, Bytes(asked as u64));
            let is_refused = request.shortfall == Shortfall::Refused && got < asked;
            if is_refused { Err(Error::Missing { pages, asked, got }) } else { Ok(()) }
        };
        if size == PageSize::Gigantic {
            refused(Bytes(gigantic as u64))?;
        }
        // Behind gigantic pages huge ones are enough for what the array has.
        let part = to_usize(request.pages.share().of(Bytes(length as u64)).0);
        let large = match size {
            PageSize::Base => 0,
            PageSize::Huge | PageSize::Gigantic => part.next_multiple_of(HUGE).max(gigantic),
        };
        put_on_base_pages(Span { start: span.start + large, length: span.length - large })?;
        put_on_huge_pages(Span { start: span.start + gigantic, length: large - gigantic })?;
        if size == PageSize::Huge { refused(self.placement()?.huge) } else { Ok(()) }
    }

    /// Gives the whole PMD ranges behind the first `used` bytes back, but the first range, and none on gigantic pages.
    pub(crate) fn release_behind(&mut self, used: usize) {
        let Span { start, length } = self.span();
        let kept = (start + used.max(1)).next_multiple_of(HUGE) - start;
        if kept >= length {
            return;
        }
        let behind = Span { start: start + kept, length: length - kept };
        if !fork::is_gigantic(behind) {
            unmap(behind);
            self.length = kept;
        }
    }

    /// The address of its first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The pages that the kernel has put it on.
    pub(crate) fn placement(&self) -> Result<Placement> {
        placement::of_span(self.span())
    }

    fn span(&self) -> Span {
        Span { start: self.start.as_ptr().expose_provenance(), length: self.length }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.length == 0 {
            return;
        }
        if !fork::forget(self.span()) {
            return;
        }
        // The mapping is this value's alone, and nobody has a slice of it any more.
        unmap(self.span());
    }
}

const NO_ROOM: Error = Error::Memory { what: "map the memory of an array", errno: Errno::NOMEM };

/// Puts memory on huge pages where it lies: each PMD range that lies in it as a whole, is private anonymous memory, and of which
/// something is in memory. Ranges for which the kernel finds no huge page stay as they are: [`Placement::of`] says. Other
/// threads may use the memory meanwhile.
///
/// # Errors
/// As [`collapse_at`].
pub fn collapse<T>(elements: &mut [T]) -> Result<()> {
    collapse_at(elements.as_ptr().expose_provenance(), size_of_val(elements))
}

/// As [`collapse`], of any addresses of this process. Nothing there is read or written.
///
/// # Errors
/// [`Error::Memory`] if they go beyond the last address, [`Error::Unknown`] if the kernel does not tell VMAs.
pub fn collapse_at(address: usize, length: usize) -> Result<()> {
    let end = address.checked_add(length).filter(|end| *end <= LAST).ok_or(BEYOND)?;
    let (mut at, end) = (address.next_multiple_of(HUGE), end / HUGE * HUGE);
    let maps = OwnMaps::open()?;
    while at < end {
        let vma = maps.vma_from(VirtAddr(at as u64))?;
        let Some(vma) = vma.filter(|vma| vma.start < VirtAddr(end as u64)) else { break };
        let until = to_usize(vma.end.0).min(end) / HUGE * HUGE;
        at = at.max(to_usize(vma.start.0)).next_multiple_of(HUGE);
        let part = Span { start: at, length: until.saturating_sub(at) };
        if vma.is_private_anonymous {
            let _ = advise(part, libc::MADV_HUGEPAGE);
            // A range without memory would end a call for all ranges.
            for range in part.parts(HUGE) {
                let _ = advise(range, libc::MADV_COLLAPSE);
            }
        }
        at = to_usize(vma.end.0).next_multiple_of(HUGE);
    }
    Ok(())
}

/// How a program will use memory: for the kernel, and for a heap that may be larger than memory (`superpage run --heap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// In no way that is known.
    Normal,
    /// Here and there, so that nothing is worth reading ahead.
    Random,
    /// In order, so that what comes next is worth reading ahead.
    Sequential,
    /// Soon: it is read ahead now.
    WillNeed,
    /// Not soon: it leaves memory before other memory does.
    Cold,
}

impl Advice {
    /// Each kind with its name.
    pub const ALL: [(&str, Self); 5] = [
        ("normal", Self::Normal),
        ("random", Self::Random),
        ("sequential", Self::Sequential),
        ("willneed", Self::WillNeed),
        ("cold", Self::Cold),
    ];

    const fn of_kernel(self) -> i32 {
        match self {
            Self::Normal => libc::MADV_NORMAL,
            Self::Random => libc::MADV_RANDOM,
            Self::Sequential => libc::MADV_SEQUENTIAL,
            Self::WillNeed => libc::MADV_WILLNEED,
            Self::Cold => libc::MADV_COLD,
        }
    }
}

/// Says how the base pages will be used that lie as a whole between two addresses of this process. Nothing there is read or written.
///
/// # Errors
/// [`Error::Memory`] if they go beyond the last address, or something of it is not mapped.
pub fn advise_at(address: usize, length: usize, how: Advice) -> Result<()> {
    let end = address.checked_add(length).filter(|end| *end <= LAST).ok_or(BEYOND)?;
    let page = to_usize(BASE_PAGE_BYTES);
    let (start, end) = (address.next_multiple_of(page), end / page * page);
    let pages = Span { start, length: end.saturating_sub(start) };
    advise(pages, how.of_kernel())
        .map_err(|errno| Error::Memory { what: "say how memory will be used", errno })
}

/// The end of the addresses that a process may have.
pub(crate) const LAST: usize = 1 << 47;
/// Addresses that no process has.
pub(crate) const BEYOND: Error =
    Error::Memory { what: "look beyond the last address", errno: Errno::FAULT };

/// Reserves so much memory, aligned. Nothing of it is touched.
fn reserve(length: usize, alignment: usize, accounting: Accounting) -> Result<Span> {
    let mapped = length.checked_add(alignment).ok_or(NO_ROOM)?;
    let flags = match accounting {
        Accounting::Counted => MapFlags::empty(),
        Accounting::Sparse => MapFlags::NORESERVE,
    };
    let start = map(mapped, ProtFlags::empty(), flags)?.start;
    let span = cut(Span { start, length: mapped }, length, alignment);
    // The kernel counts memory from when it may be written to.
    // SAFETY: it was just mapped, and nobody knows of it.
    unsafe { mprotect(span.pointer(), span.length, MprotectFlags::READ | MprotectFlags::WRITE) }
        .map_err(|errno| {
            unmap(span);
            Error::Memory { what: "map the memory of an array", errno }
        })?;
    Ok(span)
}

/// The part of a new mapping that is aligned and has a length; what is left over on both sides is unmapped.
fn cut(mapped: Span, length: usize, alignment: usize) -> Span {
    let span = Span { start: mapped.start.next_multiple_of(alignment), length };
    let before = Span { start: mapped.start, length: span.start - mapped.start };
    let behind = Span { start: span.end(), length: mapped.end() - span.end() };
    for part in [before, behind] {
        unmap(part);
    }
    span
}

/// Unmaps memory that this crate has mapped and that nobody uses. By libc's munmap, because [`map_by_libc`] may have mapped it.
pub(crate) fn unmap(span: Span) {
    if span.length > 0 {
        // SAFETY: the caller's own.
        let unmapped = unsafe { libc::munmap(span.pointer(), span.length) };
        debug_assert_eq!(unmapped, 0, "an array's own mapping unmaps");
    }
}

/// Private memory for which nothing is asked: counted (no MAP_NORESERVE), and aligned as libc has it.
fn map_by_libc(length: usize) -> Result<Span> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: an unused place is chosen.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(Error::Memory { what: "map the memory of an array", errno: last_errno() });
    }
    Ok(Span { start: start.expose_provenance(), length })
}

/// As [`map_by_libc`], aligned.
fn map_aligned_by_libc(length: usize, alignment: usize) -> Result<Span> {
    let mapped = map_by_libc(length.checked_add(alignment).ok_or(NO_ROOM)?)?;
    Ok(cut(mapped, length, alignment))
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Private memory, where the kernel finds room.
fn map(length: usize, protection: ProtFlags, flags: MapFlags) -> Result<Span> {
    // SAFETY: the kernel chooses an unused place.
    let mapped = unsafe {
        mmap_anonymous(std::ptr::null_mut(), length, protection, flags | MapFlags::PRIVATE)
    };
    let start =
        mapped.map_err(|errno| Error::Memory { what: "map the memory of an array", errno })?;
    Ok(Span { start: start.expose_provenance(), length })
}

/// Maps memory that nobody may touch at a place where nothing is.
pub(crate) fn guard(place: Span) -> rustix::io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: the kernel refuses where something is.
    unsafe { mmap_anonymous(place.pointer(), place.length, ProtFlags::empty(), flags) }.map(drop)
}

/// Puts gigantic pages in place, from the beginning on, as many as the kernel has; returns how many bytes they have.
fn take_gigantic(span: Span) -> usize {
    if !fork::is_told() {
        return 0;
    }
    let taken = span.parts(GIGANTIC).take_while(|slot| put_gigantic(*slot).is_ok()).count();
    let taken = taken * GIGANTIC;
    if taken > 0 {
        fork::note(Span { length: taken, ..span });
    }
    taken
}

/// Puts a gigantic page in a place where nothing is.
fn put_gigantic(slot: Span) -> Result<()> {
    let size = MapFlags::from_bits_retain(libc::MAP_HUGE_1GB.cast_unsigned());
    let page = map(GIGANTIC, ProtFlags::READ | ProtFlags::WRITE, MapFlags::HUGETLB | size)?;
    // Private gigantic pages would be copied as wholes after a fork, and a process for which there is none is killed.
    let placed = advise(page, libc::MADV_POPULATE_WRITE)
        .and_then(|()| advise(page, libc::MADV_DONTFORK))
        .and_then(|()| move_to(page, slot));
    if placed.is_err() {
        unmap(page);
    }
    placed.map_err(|errno| Error::Memory { what: "have a gigantic page", errno })
}

/// Moves memory to a place, instead of what is there.
pub(crate) fn move_to(from: Span, to: Span) -> rustix::io::Result<()> {
    let (length, flags) = (from.length, MremapFlags::MAYMOVE);
    // SAFETY: both are the caller's: nobody uses what is at `to`, or the address `from` any more.
    unsafe { mremap_fixed(from.pointer(), length, length, flags, to.pointer()) }.map(drop)
}

fn put_on_base_pages(span: Span) -> Result<()> {
    // A kernel without huge pages has base pages only.
    match advise(span, libc::MADV_NOHUGEPAGE) {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(Error::Memory { what: "ask for base pages", errno }),
    }
}

/// Puts whole PMD ranges on huge pages as far as there are any, all of it with memory.
fn put_on_huge_pages(span: Span) -> Result<()> {
    if span.length == 0 {
        return Ok(());
    }
    check_available(span.length)?;
    // A kernel without huge pages refuses the advice; base pages it is then.
    let _ = advise(span, libc::MADV_HUGEPAGE);
    advise(span, libc::MADV_POPULATE_WRITE)
        .map_err(|errno| Error::Memory { what: "have the memory of an array", errno })?;
    // A range that is on a huge page stays as it is. The kernel stops at the first range for which it finds none, and what is
    // left stays on base pages.
    let _ = advise(span, libc::MADV_COLLAPSE);
    Ok(())
}

/// Fails where less memory is available: the kernel would kill somebody to make room.
fn check_available(length: usize) -> Result<()> {
    match superpage_kernel::own_room::now(Path::new("/")) {
        Ok(room) if room.left < Bytes(length as u64) => {
            Err(Error::Memory { what: "have the memory of an array", errno: Errno::NOMEM })
        }
        // Without /proc/meminfo the kernel is asked for the memory itself.
        _ => Ok(()),
    }
}

/// Private memory that is all there, on huge pages as far as there are any.
pub(crate) fn map_copy(length: usize) -> Result<Span> {
    let span = reserve(length, HUGE, Accounting::Counted)?;
    put_on_huge_pages(span).inspect_err(|_| unmap(span))?;
    Ok(span)
}

/// Copies all of a span.
pub(crate) fn copy(from: Span, to: Span) {
    let (source, target) = (from.pointer().cast::<u8>(), to.pointer().cast::<u8>());
    // SAFETY: both are mapped and of one length. Other threads may write to `from` meanwhile, as they may during a fork.
    unsafe { std::ptr::copy_nonoverlapping(source, target, from.length) };
}

fn advise(span: Span, advice: i32) -> rustix::io::Result<()> {
    if span.length == 0 {
        return Ok(());
    }
    // SAFETY: no advice that is used here changes what memory holds.
    let done = unsafe { libc::madvise(span.pointer(), span.length, advice) };
    match done {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// An address that is not zero, of memory that is never touched.
const fn nonzero(address: usize) -> std::num::NonZero<usize> {
    match std::num::NonZero::new(address) {
        Some(address) => address,
        None => std::num::NonZero::<usize>::MIN,
    }
}
