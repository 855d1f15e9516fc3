//! The program's mappings: the one way that each of its calls goes.
//!
//! Mappings that may be placed anywhere are placed in the areas. A call that concerns a part of the areas keeps the [`Space`], and
//! has the [`Backing`](crate::backing::Backing) do what depends on what stands behind the memory there. Everything else goes to
//! the kernel as it is.

#![expect(unsafe_code, reason = "carries out the program's own changes to its memory")]

use crate::areas::{Areas, Process};
use crate::backing::{Outside, Place, READ_WRITE, Remap};
use crate::lock::Guard;
use crate::space::{Space, Use};
use crate::sys::{self, Errno, Mmap, PAGE, Result, Span};
use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE,
    MAP_STACK, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_NONE, PROT_WRITE,
};

/// The smallest mapping that is placed in the areas. CPython maps 1 MiB at a time. To map a page, touch it and unmap it takes 9 us outside
/// and 18 us in the areas (medians of five interleaved rounds), and small mappings gain nothing there.
const LEAST: usize = 256 * 1024;
const ALL_RIGHTS: i32 = READ_WRITE | libc::PROT_EXEC;

/// The use of pages with this protection in the areas.
pub(crate) const fn used(protection: i32) -> Use {
    match protection {
        READ_WRITE => Use::Plain,
        PROT_NONE => Use::Reserved,
        _ => Use::Protected,
    }
}

/// The whole pages of a range; nothing if it does not begin with a page, is empty, or has no end.
fn pages(address: usize, length: usize) -> Option<Span> {
    let length = length.checked_next_multiple_of(PAGE)?;
    address.checked_add(length)?;
    (address.is_multiple_of(PAGE) && length > 0).then_some(Span { start: address, length })
}

/// A range as whole pages, and what of it lies in the areas; nothing if none does.
fn place_of(areas: &Areas, address: usize, length: usize) -> Option<Place> {
    let span = pages(address, length)?;
    Some(Place { span, inside: areas.span.overlap(span)? })
}

impl Place {
    /// The parts of the span before and behind what of it lies in the areas.
    fn outside(self) -> impl Iterator<Item = Span> {
        let ends = [(self.span.start, self.inside.start), (self.inside.end(), self.span.end())];
        let parts = ends.into_iter().map(|(start, end)| Span { start, length: end - start });
        parts.filter(|part| part.length > 0)
    }
}

/// mmap(2).
///
/// # Safety
/// As of mmap.
pub(crate) unsafe fn map(process: &Process, asked: Mmap) -> Result<usize> {
    if asked.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
        if let Some(place) = place_of(process.areas, asked.address, asked.length) {
            // SAFETY: the caller's promise.
            return unsafe { map_fixed(process, asked, place) };
        }
    } else if let Some(length) = may_be_placed(process.areas, asked)
        && let Some(start) = place(process, asked, length)?
    {
        return Ok(start);
    }
    // SAFETY: the caller's promise.
    let start = unsafe { sys::mmap(asked) }?;
    if asked.flags & MAP_ANONYMOUS != 0 && asked.flags & MAP_PRIVATE == 0 && asked.length >= LEAST {
        process.backing().note_outside(asked.length, Outside::Shared);
    }
    Ok(start)
}

/// The length of the mapping in whole pages, if it may go where the library likes and be what it likes.
fn may_be_placed(areas: &Areas, asked: Mmap) -> Option<usize> {
    const WANTED: i32 = MAP_PRIVATE | MAP_ANONYMOUS;
    const ALLOWED: i32 = WANTED | MAP_NORESERVE | MAP_POPULATE | MAP_STACK;
    let is_anonymous = asked.flags & !ALLOWED == 0 && asked.flags & WANTED == WANTED;
    let has_no_place = asked.address == 0 || areas.span.contains(asked.address);
    let is_usual = asked.protection & !ALL_RIGHTS == 0
        && asked.offset.unsigned_abs().is_multiple_of(PAGE as u64)
        && asked.length <= areas.most_at_once;
    let is_ours = is_anonymous && is_usual && has_no_place && asked.length >= LEAST;
    is_ours.then(|| asked.length.checked_next_multiple_of(PAGE)).flatten()
}

/// Places a new mapping; nothing if that is to be ordinary memory outside.
fn place(process: &Process, asked: Mmap, length: usize) -> Result<Option<usize>> {
    let mut space = process.areas.space.take();
    let backing = process.backing();
    // Reservations may have half of the areas, so that there is room for memory that is used.
    let is_too_much =
        asked.protection == PROT_NONE && space.reserved() + length > process.areas.span.length / 2;
    let found = if is_too_much { None } else { backing.find(&space, &asked, length)? };
    let Some(span) = found else {
        backing.note_outside(length, Outside::NoRoom);
        return Ok(None);
    };
    if backing.open(&space, span, asked.protection).is_err() {
        // Where the kernel refuses it, it refuses the whole mapping with an error of its own.
        return Ok(None);
    }
    opened(process, &mut space, span, used(asked.protection));
    drop(space);
    if asked.flags & MAP_POPULATE != 0 && asked.protection & PROT_WRITE != 0 {
        backing.populate(span);
    }
    Ok(Some(span.start))
}

/// The program has these pages from now on.
fn opened(process: &Process, space: &mut Space, span: Span, used: Use) {
    space.set(span, used);
    process.areas.note_mapped(space);
    process.backing().note_opened(space, span);
}

/// mmap(2) at a place in the areas.
///
/// # Safety
/// As of mmap.
unsafe fn map_fixed(process: &Process, asked: Mmap, place: Place) -> Result<usize> {
    let mut space = process.areas.space.take();
    let mut asked = asked;
    if asked.flags & MAP_FIXED_NOREPLACE != 0 {
        if place.inside != place.span || !space.is_free(place.span) {
            return Err(Errno::EEXIST);
        }
        // The reserved memory there is no mapping of the program's.
        asked.flags = asked.flags & !MAP_FIXED_NOREPLACE | MAP_FIXED;
    }
    // SAFETY: the caller's promise.
    let start = unsafe { process.backing().map_fixed(&mut space, asked, place) }?;
    process.areas.note_mapped(&space);
    process.backing().note_opened(&mut space, place.inside);
    Ok(start)
}

/// munmap(2).
///
/// # Safety
/// As of munmap.
pub(crate) unsafe fn unmap(process: &Process, address: usize, length: usize) -> Result<usize> {
    let Some(place) = place_of(process.areas, address, length) else {
        // SAFETY: the caller's promise.
        return unsafe { sys::munmap(address, length) };
    };
    for part in place.outside() {
        // SAFETY: the caller's promise.
        unsafe { sys::munmap(part.start, part.length) }?;
    }
    let mut space = process.areas.space.take();
    process.backing().give_back(&mut space, place.inside).map(|()| 0)
}

/// mlockall(2): `lock` is the call.
///
/// # Errors
/// ENOMEM where not all memory can be locked.
pub(crate) fn lock_all(process: &Process, lock: impl FnOnce() -> Result<usize>) -> Result<usize> {
    process.backing().before_lock_all()?;
    lock()
}

/// mprotect(2): `change` is the call.
pub(crate) fn protect(
    process: &Process,
    address: usize,
    length: usize,
    protection: i32,
    change: &dyn Fn() -> Result<usize>,
) -> Result<usize> {
    let Some(place) = place_of(process.areas, address, length) else { return change() };
    let mut space = process.areas.space.take();
    if !space.has_free(place.inside) {
        let done = process.backing().protect(&mut space, place, protection, change)?;
        process.areas.note_mapped(&space);
        return Ok(done);
    }
    let first = space.first_run(place.inside).filter(|run| run.start == place.span.start);
    drop(space);
    // The kernel changes what lies before the first hole.
    if let Some(run) = first {
        // SAFETY: the program asked for it.
        let change = || unsafe { sys::mprotect(run, protection) };
        protect(process, run.start, run.length, protection, &change)?;
    }
    Err(Errno::ENOMEM)
}

/// Whether the lock is held during a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum During {
    /// Nobody else changes the memory meanwhile, and a call that fails changes nothing.
    Held,
    /// The call may take long, or wait for a thread of the program.
    Free,
}

/// A call that answers whether memory is mapped, such as mincore(2): for the kernel it is also where the program has nothing of the
/// areas. What else is wrong the kernel says first.
pub(crate) fn look(
    process: &Process,
    address: usize,
    length: usize,
    call: impl FnOnce() -> Result<usize>,
) -> Result<usize> {
    let done = call()?;
    let inside = place_of(process.areas, address, length).map(|place| place.inside);
    let has_hole = inside.is_some_and(|inside| process.areas.space.take().has_free(inside));
    if has_hole { Err(Errno::ENOMEM) } else { Ok(done) }
}

/// Any call that changes what a range of memory is, in a way that the library does not follow: the memory is set apart and stays so.
pub(crate) fn special(
    process: &Process,
    address: usize,
    length: usize,
    during: During,
    change: impl FnOnce() -> Result<usize>,
) -> Result<usize> {
    let floor = address & !(PAGE - 1);
    let place = place_of(process.areas, floor, length.saturating_add(address - floor));
    let Some(Place { inside, .. }) = place else { return change() };
    let mut space = process.areas.space.take();
    if space.has_free(inside) {
        return Err(Errno::ENOMEM);
    }
    process.backing().before_special(&space, inside)?;
    if during == During::Free {
        process.backing().set_apart(&mut space, inside);
        drop(space);
        return change();
    }
    let done = change()?;
    process.backing().set_apart(&mut space, inside);
    Ok(done)
}

/// pkey_mprotect(2): `change` is the call.
pub(crate) fn protect_by_key(
    process: &Process,
    address: usize,
    length: usize,
    protection: i32,
    change: impl FnOnce() -> Result<usize>,
) -> Result<usize> {
    // Pages that are only reserved can be used afterwards.
    let used = place_of(process.areas, address, length).filter(|_| protection != PROT_NONE);
    if let Some(place) = used {
        let space = process.areas.space.take();
        if !space.has_free(place.inside) {
            process.backing().before_use(&space, place.inside)?;
        }
    }
    let done = special(process, address, length, During::Held, change)?;
    if let Some(place) = used {
        process.areas.space.take().protect(place.inside, Use::Protected);
    }
    Ok(done)
}

/// madvise(2).
///
/// # Safety
/// As of madvise.
pub(crate) unsafe fn advise(
    process: &Process,
    address: usize,
    length: usize,
    advice: i32,
) -> Result<usize> {
    // SAFETY: the caller's promise.
    let ask = |span: Span| unsafe { sys::madvise(span, advice) };
    let Some(place) = place_of(process.areas, address, length) else {
        return ask(Span { start: address, length });
    };
    // Without the lock: the advice may wait for a thread of the program.
    for part in place.outside() {
        ask(part)?;
    }
    let space = process.areas.space.take();
    if space.has_free(place.inside) {
        drop(space);
        // SAFETY: the caller's promise.
        return around_holes(process.areas, place.inside, |run| unsafe {
            self::advise(process, run.start, run.length, advice)
        });
    }
    process.backing().advise(space, place.inside, advice)
}

/// Advises what the program has of a span with holes in it, and then says, as the kernel does, that there
/// were some.
fn around_holes(
    areas: &Areas,
    span: Span,
    advise: impl Fn(Span) -> Result<usize>,
) -> Result<usize> {
    let mut rest = span;
    loop {
        // In a statement of its own, so that the lock is given back before the run is advised.
        let run = areas.space.take().first_run(rest);
        let Some(run) = run else { return Err(Errno::ENOMEM) };
        advise(run)?;
        rest = Span { start: run.end(), length: span.end() - run.end() };
    }
}

/// mremap(2).
///
/// # Safety
/// As of mremap.
pub(crate) unsafe fn remap(
    process: &Process,
    old: usize,
    old_length: usize,
    length: usize,
    flags: i32,
    to: usize,
) -> Result<usize> {
    let areas = process.areas;
    let is_known = flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) == 0;
    let whole = length.checked_next_multiple_of(PAGE).filter(|_| is_known && length > 0);
    // A mapping of which nothing moves is copied.
    let none = || old.is_multiple_of(PAGE).then_some(Span { start: old, length: 0 });
    let source = if old_length == 0 { none() } else { pages(old, old_length) };
    let asked = source.zip(whole).map(|(source, length)| Remap { source, length, flags, to });
    let concerns = |span: Span| areas.span.overlap(span).is_some();
    let concerned =
        asked.filter(|asked| concerns(asked.source) || asked.target().is_some_and(concerns));
    let Some(asked) = concerned else {
        // SAFETY: the caller's promise.
        return unsafe { sys::mremap(Span { start: old, length: old_length }, length, flags, to) };
    };
    asked.validate()?;
    let Remap { source, length, .. } = asked;
    let mut space = areas.space.take();
    if !concerns(source) {
        let inside = asked.target().and_then(|target| areas.span.overlap(target));
        let inside = inside.ok_or(Errno::EINVAL)?;
        // SAFETY: the caller's promise.
        return unsafe { process.backing().take_over(&mut space, asked, inside) };
    }
    if areas.span.overlap(source) != Some(source) || space.has_free(source) {
        return Err(Errno::EFAULT);
    }
    if !asked.has(MREMAP_FIXED | MREMAP_DONTUNMAP) {
        if length <= source.length {
            let rest = Span { start: source.start + length, length: source.length - length };
            if rest.length > 0 {
                process.backing().give_back(&mut space, rest)?;
            }
            return Ok(source.start);
        }
        if grow_in_place(process, &mut space, source, length) {
            return Ok(source.start);
        }
        if !asked.has(MREMAP_MAYMOVE) {
            return Err(Errno::ENOMEM);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { process.backing().relocate(space, asked) }
}

/// Makes a plain mapping longer where it is; whether that can be.
fn grow_in_place(
    process: &Process,
    space: &mut Guard<'_, Space>,
    source: Span,
    length: usize,
) -> bool {
    let tail = Span { start: source.end(), length: length - source.length };
    let mut wanted = Mmap::anywhere(tail.length, READ_WRITE, 0);
    wanted.address = tail.start;
    let backing = process.backing();
    let is_open = space.is_plain(source)
        && space.is_free(tail)
        && backing.find(space, &wanted, tail.length) == Ok(Some(tail))
        && backing.open(space, tail, READ_WRITE).is_ok();
    if is_open {
        opened(process, space, tail, Use::Plain);
    }
    is_open
}
