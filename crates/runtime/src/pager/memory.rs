//! The program's mappings where they live in a heap: what its threads ask of the kernel, carried out so that the heap stays
//! whole, registered, and one VMA as far as possible.
//!
//! What is given back is emptied and kept as reserved memory. Advice about page sizes is not passed on: it would cut
//! the heap into VMAs, across which no huge page moves.

#![expect(unsafe_code, reason = "carries out the program's own changes to its memory")]

use crate::areas::{Areas, Threads};
use crate::lock::Guard;
use crate::machine::note_mapped;
use crate::memory::{READ_WRITE, map, used};
use crate::service::Answer;
use crate::space::{Space, Use};
use crate::start;
use crate::sys::{self, Errno, Mmap, PAGE, Result, Span};
use core::sync::atomic::Ordering::Relaxed;
use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE,
    MAP_STACK, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_NONE,
};

/// Places a new mapping; nothing if the heap has no room for it, or none can be had. The caller holds the lock of the
/// space.
pub(crate) fn place(
    areas: &Areas,
    space: &mut Guard<'_, Space>,
    asked: Mmap,
    length: usize,
) -> Option<Result<usize>> {
    areas.start_threads();
    if areas.threads() != Threads::Run || areas.pager().is_none() {
        start::end_without_heap(
            "the library's threads could not be started, or its file is another process's",
        );
    }
    let has_room = has_room(areas, space, length);
    let find = || space.find(length, asked.address.next_multiple_of(PAGE), &|_| true);
    let Some(span) = has_room.then(find).flatten() else {
        note_outside(areas, length);
        return None;
    };
    if is_past_limit(areas, space, length) {
        return Some(Err(Errno::ENOMEM));
    }
    // SAFETY: free pages of the areas are reserved memory that nobody uses.
    unsafe { sys::open_reserved(span, asked.protection) }.ok()?;
    space.set(span, used(asked.protection));
    note_mapped(areas, space.taken());
    Some(Ok(span.start))
}

/// Whether `more` bytes in the heap would be past the limit of address space that the program has set for itself.
fn is_past_limit(areas: &Areas, space: &Space, more: usize) -> bool {
    areas.limited.address_space().is_some_and(|(limit, own)| {
        let others = sys::address_space().unwrap_or(0).saturating_sub(sys::to_usize(own));
        (space.taken() + more + others) as u64 > limit
    })
}

/// Counts a mapping that becomes ordinary memory, because the heap has no room for it, and says it of the first one.
fn note_outside(areas: &Areas, length: usize) {
    if areas.counters.heap.outside.fetch_add(length as u64, Relaxed) == 0 {
        sys::complain(
            "superpage: the heap has no room for a mapping, which becomes ordinary memory, as more may: give a larger --heap-size\n",
        );
    }
}

/// Whether the program may have so much more in the heap.
fn has_room(areas: &Areas, space: &Space, more: usize) -> bool {
    areas.heap().is_some_and(|(heap, _)| space.taken() + more <= sys::to_usize(heap.size.0))
}

/// Whether a mapping at a fixed place is no more than memory of the heap with another protection.
const fn is_heap(asked: Mmap) -> bool {
    const WANTED: i32 = MAP_PRIVATE | MAP_ANONYMOUS;
    const ALLOWED: i32 =
        WANTED | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_NORESERVE | MAP_POPULATE | MAP_STACK;
    asked.flags & WANTED == WANTED && asked.flags & !ALLOWED == 0
}

/// mmap(2) at a place in the heap, over whatever is there. The caller holds the lock of the space.
///
/// # Safety
/// As of mmap.
pub(crate) unsafe fn map_fixed(
    areas: &Areas,
    space: &mut Guard<'_, Space>,
    asked: Mmap,
    span: Span,
    inside: Span,
) -> Result<usize> {
    if inside == span && is_heap(asked) {
        give_back(areas, space, inside)?;
        // SAFETY: the program wants memory that holds nothing there.
        unsafe { sys::open_reserved(inside, asked.protection) }?;
        space.set(inside, used(asked.protection));
        note_mapped(areas, space.taken());
        return Ok(inside.start);
    }
    areas.leave_to_others(inside);
    // SAFETY: the caller's promise.
    let start = unsafe { sys::mmap(asked) }?;
    space.set(inside, Use::Special);
    Ok(start)
}

/// Empties a part of the heap, and makes it reserved memory.
fn give_back(areas: &Areas, space: &mut Guard<'_, Space>, part: Span) -> Result<()> {
    areas.discard(part);
    if space.is_plain(part) {
        // SAFETY: the program has given it back.
        unsafe { sys::mprotect(part, PROT_NONE) }?;
        sys::leave_out_of_dumps(part);
        // Another thread may have touched it since.
        areas.discard(part);
    } else {
        // The memory may be locked, or a file.
        // SAFETY: as above.
        unsafe { sys::reserve(part) }?;
        if areas.renew(part) == Answer::Refused {
            space.set(part, Use::Special);
            return Ok(());
        }
    }
    space.set(part, Use::Free);
    Ok(())
}

/// munmap(2) of a part of the heap. The caller holds the lock of the space.
pub(crate) fn unmap(areas: &Areas, space: &mut Guard<'_, Space>, inside: Span) -> Result<usize> {
    let mut rest = inside;
    while rest.length > 0
        && let Some(run) = space.first_run(rest)
    {
        give_back(areas, space, run)?;
        rest = Span { start: run.end(), length: inside.end() - run.end() };
    }
    Ok(0)
}

/// Any call that changes what a range of the heap is: its memory is renewed when it is given back.
pub(crate) fn special(
    mut space: Guard<'_, Space>,
    inside: Span,
    change: impl FnOnce() -> Result<usize>,
) -> Result<usize> {
    space.protect(inside, Use::Protected);
    drop(space);
    change()
}

/// madvise(2) of a part of the heap: `ask` is the call.
pub(crate) fn advise(
    areas: &Areas,
    inside: Span,
    advice: i32,
    ask: impl FnOnce() -> Result<usize>,
) -> Result<usize> {
    // A page that comes in overwrites what the kernel marks a guard with (UFFDIO_COPY). Callers do without on a kernel before
    // 6.13, which answers the same.
    const GUARD_INSTALL: i32 = 102;
    const GUARD_REMOVE: i32 = 103;
    let space = areas.space.take();
    if space.has_free(inside) {
        return Err(Errno::ENOMEM);
    }
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_DONTNEED_LOCKED => {
            if !space.is_plain(inside) {
                ask()?; // the kernel refuses it of memory that is locked
            }
            areas.discard(inside);
            Ok(0)
        }
        libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_WILLNEED
        | libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_COLLAPSE
        | libc::MADV_COLD
        | libc::MADV_PAGEOUT
        | libc::MADV_MERGEABLE
        | libc::MADV_UNMERGEABLE => Ok(0),
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => {
            drop(space);
            ask()
        }
        GUARD_INSTALL | GUARD_REMOVE => Err(Errno::EINVAL),
        libc::MADV_DONTFORK | libc::MADV_WIPEONFORK => {
            areas.child.rule_out();
            special(space, inside, ask)
        }
        _ => special(space, inside, ask),
    }
}

/// Arguments of mremap, in whole pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remap {
    pub(crate) source: Span,
    pub(crate) length: usize,
    pub(crate) flags: i32,
    pub(crate) to: usize,
}

impl Remap {
    const fn has(self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    /// Refuses what the kernel refuses, before anything is changed.
    fn check(self) -> Result<()> {
        let Self { source, length, to, .. } = self;
        let (is_fixed, keeps) = (self.has(MREMAP_FIXED), self.has(MREMAP_DONTUNMAP));
        let target = Span { start: to, length };
        let is_wrong = (is_fixed || keeps) && !self.has(MREMAP_MAYMOVE)
            || keeps && length != source.length
            || is_fixed && (!to.is_multiple_of(PAGE) || target.overlap(source).is_some());
        if is_wrong { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

/// mremap(2) of a part of the heap, or to one.
///
/// # Safety
/// As of mremap.
pub(crate) unsafe fn remap(areas: &Areas, asked: Remap) -> Result<usize> {
    asked.check()?;
    let Remap { source, length, to, .. } = asked;
    if areas.span.overlap(source).is_none() {
        // SAFETY: the caller's promise.
        return unsafe { remap_from_elsewhere(areas, asked) };
    }
    let is_ours = areas.span.overlap(source) == Some(source);
    let is_plain = {
        let space = areas.space.take();
        is_ours && !space.has_free(source) && space.is_plain(source)
    };
    if !is_plain {
        // The kernel would leave the heap's registration behind.
        return Err(if is_ours { Errno::ENOMEM } else { Errno::EFAULT });
    }
    if !asked.has(MREMAP_FIXED | MREMAP_DONTUNMAP) {
        if length <= source.length {
            let rest = Span { start: source.start + length, length: source.length - length };
            unmap(areas, &mut areas.space.take(), rest)?;
            return Ok(source.start);
        }
        if grow_in_place(areas, source, length) {
            return Ok(source.start);
        }
        if !asked.has(MREMAP_MAYMOVE) {
            return Err(Errno::ENOMEM);
        }
    }
    let fixed = if asked.has(MREMAP_FIXED) { MAP_FIXED } else { 0 };
    let mut target = Mmap::anywhere(length, READ_WRITE, MAP_NORESERVE | fixed);
    target.address = if fixed != 0 { to } else { 0 };
    // SAFETY: the caller's promise.
    let start = unsafe { map(areas, target) }?;
    let kept = source.length.min(length);
    // SAFETY: both are the program's, may be read and written, and do not overlap.
    unsafe { core::ptr::copy_nonoverlapping(source.start as *const u8, start as *mut u8, kept) };
    let mut space = areas.space.take();
    if asked.has(MREMAP_DONTUNMAP) {
        areas.discard(source);
    } else {
        unmap(areas, &mut space, source)?;
    }
    Ok(start)
}

/// mremap(2) of a mapping outside to a place in the heap.
///
/// # Safety
/// As of mremap.
unsafe fn remap_from_elsewhere(areas: &Areas, asked: Remap) -> Result<usize> {
    let Remap { source, length, flags, to } = asked;
    let mut space = areas.space.take();
    let inside = areas.span.overlap(Span { start: to, length });
    if let Some(inside) = inside {
        areas.leave_to_others(inside);
    }
    // SAFETY: the caller's promise.
    let done = unsafe { sys::mremap(source, length, flags, to) }?;
    if let Some(inside) = inside {
        space.set(inside, Use::Special);
    }
    Ok(done)
}

fn grow_in_place(areas: &Areas, source: Span, length: usize) -> bool {
    let mut space = areas.space.take();
    let tail = Span { start: source.end(), length: length - source.length };
    let may_grow = has_room(areas, &space, tail.length) && space.is_free(tail);
    // SAFETY: free pages of the areas are reserved memory that nobody uses.
    let is_open = may_grow && unsafe { sys::open_reserved(tail, READ_WRITE) }.is_ok();
    if is_open {
        space.set(tail, Use::Plain);
        note_mapped(areas, space.taken());
    }
    is_open
}
