//! The program's mappings: what its threads ask of the kernel, carried out so that the areas stay whole.
//!
//! Mappings that may become gigantic pages are placed in the areas. Every change to a part of the areas
//! passes here: a slot that is to be changed in part is made ordinary first, and memory that the program
//! gives back becomes reserved memory again, never a hole (the kernel would put another mapping there).
//! Everything else goes to the kernel as it is.

#![expect(unsafe_code, reason = "carries out the program's own changes to its memory")]

use crate::areas::{Areas, Threads};
use crate::lock::Guard;
use crate::machine::note_mapped;
use crate::pager::memory as paged;
use crate::service::Answer;
use crate::slot::State;
use crate::space::{SlotPages, Space, Use};
use crate::sys::{self, Errno, GIGANTIC, Mmap, PAGE, Result, Span};
use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE,
    MAP_STACK, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_NONE, PROT_READ, PROT_WRITE,
};
use superpage_launch::symbols;

/// The smallest mapping that is placed in the areas. CPython maps 1 MiB at a time and glibc 256 KiB from
/// where on it maps at all. Chosen, not measured.
const LEAST: usize = 256 * 1024;
pub(crate) const READ_WRITE: i32 = PROT_READ | PROT_WRITE;
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

/// mmap(2).
///
/// # Safety
/// As of mmap.
pub(crate) unsafe fn map(areas: &Areas, asked: Mmap) -> Result<usize> {
    let fixed = asked.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
    if fixed {
        if let Some((span, _)) = within(areas, asked.address, asked.length) {
            // SAFETY: the caller's promise.
            return unsafe { map_fixed(areas, asked, span) };
        }
    } else if let Some(length) = may_be_placed(areas, asked)
        && let Some(done) = place(areas, asked, length)
    {
        return done;
    }
    // SAFETY: the caller's promise.
    unsafe { sys::mmap(asked) }
}

/// Whether the areas are a heap that lives in a file.
fn has_heap(areas: &Areas) -> bool {
    areas.heap().is_some() && areas.threads() != Threads::InParent
}

/// The length of the mapping in whole pages, if it may go where the library likes and be what it likes.
pub(crate) fn may_be_placed(areas: &Areas, asked: Mmap) -> Option<usize> {
    const WANTED: i32 = MAP_PRIVATE | MAP_ANONYMOUS;
    const ALLOWED: i32 = WANTED | MAP_NORESERVE | MAP_POPULATE | MAP_STACK;
    let is_anonymous = asked.flags & !ALLOWED == 0 && asked.flags & WANTED == WANTED;
    let has_no_place = asked.address == 0 || areas.span.contains(asked.address);
    let is_usual = asked.protection & !ALL_RIGHTS == 0
        && asked.offset.unsigned_abs().is_multiple_of(PAGE as u64)
        && asked.length <= areas.most_at_once();
    let is_ours = is_anonymous && is_usual && has_no_place && asked.length >= LEAST;
    is_ours.then(|| asked.length.checked_next_multiple_of(PAGE)).flatten()
}

/// Places a new mapping; nothing if the areas have no room for it.
fn place(areas: &Areas, asked: Mmap, length: usize) -> Option<Result<usize>> {
    let mut space = areas.space.take();
    if has_heap(areas) {
        return paged::place(areas, &mut space, asked, length);
    }
    let hint = asked.address.next_multiple_of(PAGE);
    let may = |slot| may_hold(areas, slot, asked.protection);
    let span = space.find(length, hint, &may)?;
    if open(areas, &space, span, asked.protection).is_err() {
        // Where the kernel refuses it, it refuses the whole mapping with an error of its own.
        return None;
    }
    space.set(span, used(asked.protection));
    note_mapped(areas, space.taken());
    register_untouched(areas, &mut space, span);
    drop(space);
    if asked.flags & MAP_POPULATE != 0 && asked.protection & PROT_WRITE != 0 {
        // mmap says nothing of what could not be populated.
        // SAFETY: the memory is the program's and holds nothing yet.
        let _ = unsafe { sys::madvise(span, libc::MADV_POPULATE_WRITE) };
    }
    Some(Ok(span.start))
}

/// Whether a mapping may be placed in a slot beside others: nobody is changing it, and if a gigantic page maps it,
/// that is what the mapping may be. Of a gigantic page no part can be protected otherwise, and in a child of a fork
/// its parent has it too.
fn may_hold(areas: &Areas, slot: usize, protection: i32) -> bool {
    match areas.slots.state(slot) {
        State::Gigantic => protection == READ_WRITE && areas.threads() == Threads::Run,
        state => state.is_settled(),
    }
}

/// Makes free pages of the areas memory that holds zeroes.
///
/// # Errors
/// The error of mprotect; the pages are reserved memory then.
fn open(areas: &Areas, space: &Space, span: Span, protection: i32) -> Result<()> {
    let parts = || {
        space.slots_of(span).filter_map(|slot| {
            let part = areas.slots.span(slot).overlap(span)?;
            Some((part, areas.slots.wait(slot) == State::Gigantic))
        })
    };
    for (part, is_gigantic) in parts() {
        if is_gigantic {
            // Nobody has anything there, but a stray write may have gone to it.
            zero(part);
            continue;
        }
        let slot = areas.slots.containing(part.start);
        let is_free = space.slot(slot).is_some_and(SlotPages::is_free);
        if protection == READ_WRITE && is_free && areas.decider.map_at_once(areas, part) {
            continue;
        }
        // SAFETY: free pages of the areas are reserved memory that nobody uses.
        if let Err(errno) = unsafe { sys::open_reserved(part, protection) } {
            for (part, is_gigantic) in parts() {
                let slot = areas.slots.containing(part.start);
                if !is_gigantic {
                    let _ = reserve(part);
                } else if space.slot(slot).is_some_and(SlotPages::is_free) {
                    // The gigantic page was mapped for this mapping.
                    let _ = discard_gigantic(areas, space, slot, PROT_NONE);
                }
            }
            return Err(errno);
        }
        if protection != PROT_NONE {
            advise_huge(part);
        }
    }
    Ok(())
}

/// Has the first touch told of the slots that a change to this span has just made the program's plain
/// memory whole; and has the threads run that promote, once there is something to promote.
fn register_untouched(areas: &Areas, space: &mut Space, span: Span) {
    for slot in space.slots_of(span) {
        if areas.decider.promotes() && space.slot(slot).is_some_and(SlotPages::is_nearly_full) {
            areas.start_threads();
        }
        if space.take_untouched(slot) {
            areas.register(slot);
        }
    }
}

/// mmap(2) at a place in the areas.
///
/// # Safety
/// As of mmap.
unsafe fn map_fixed(areas: &Areas, asked: Mmap, span: Span) -> Result<usize> {
    let mut space = areas.space.take();
    let Some(inside) = areas.span.overlap(span) else { return Err(Errno::EINVAL) };
    let mut asked = asked;
    if asked.flags & MAP_FIXED_NOREPLACE != 0 {
        if inside != span || !space.is_free(span) {
            return Err(Errno::EEXIST);
        }
        // The reserved memory there is no mapping of the program's.
        asked.flags = asked.flags & !MAP_FIXED_NOREPLACE | MAP_FIXED;
    }
    if has_heap(areas) {
        // SAFETY: the caller's promise.
        return unsafe { paged::map_fixed(areas, &mut space, asked, span, inside) };
    }
    make_ordinary(areas, &space, inside)?;
    // SAFETY: the caller's promise.
    let start = unsafe { sys::mmap(asked) }?;
    let is_plain = asked.flags & (MAP_PRIVATE | MAP_ANONYMOUS) == MAP_PRIVATE | MAP_ANONYMOUS
        && asked.flags & libc::MAP_HUGETLB == 0;
    let used = if is_plain { used(asked.protection) } else { Use::Special };
    // New memory holds nothing, whatever was there.
    space.set(inside, Use::Free);
    space.set(inside, used);
    if is_plain {
        advise_huge(inside);
    }
    note_mapped(areas, space.taken());
    register_untouched(areas, &mut space, inside);
    Ok(start)
}

/// Makes all slots of a span ordinary.
///
/// # Errors
/// ENOMEM if a gigantic page could not be demoted.
pub(crate) fn make_ordinary(areas: &Areas, space: &Guard<'_, Space>, span: Span) -> Result<()> {
    areas.leave_to_others(span);
    for slot in space.slots_of(span) {
        if areas.make_ordinary(space, slot) == Answer::Refused {
            return Err(Errno::ENOMEM);
        }
    }
    Ok(())
}

/// Asks for huge pages, which new mappings do not have by themselves. Reserved memory has none, so that
/// khugepaged does not look through all of it.
fn advise_huge(span: Span) {
    // SAFETY: the advice concerns page sizes only.
    let _ = unsafe { sys::madvise(span, libc::MADV_HUGEPAGE) };
}

/// As [`advise_huge`], of memory that may have been reserved before: unless a part of it is special, for
/// which the program may have asked for none.
fn advise_reserved(space: &Space, span: Span) {
    if space.is_plain(span) {
        advise_huge(span);
    }
}

/// munmap(2).
///
/// # Safety
/// As of munmap.
pub(crate) unsafe fn unmap(areas: &Areas, address: usize, length: usize) -> Result<usize> {
    let Some((span, inside)) = within(areas, address, length) else {
        // SAFETY: the caller's promise.
        return unsafe { sys::munmap(address, length) };
    };
    for part in outside(span, inside) {
        // SAFETY: the caller's promise.
        unsafe { sys::munmap(part.start, part.length) }?;
    }
    let mut space = areas.space.take();
    if has_heap(areas) {
        return paged::unmap(areas, &mut space, inside);
    }
    for slot in space.slots_of(inside) {
        if let Some(part) = areas.slots.span(slot).overlap(inside) {
            give_back(areas, &mut space, slot, part)?;
        }
    }
    Ok(0)
}

/// Makes a part of a slot reserved memory again.
fn give_back(areas: &Areas, space: &mut Guard<'_, Space>, slot: usize, part: Span) -> Result<()> {
    // Nothing is copied where nothing is left.
    let is_whole = part.length == GIGANTIC || space.is_all_of(slot, part);
    if is_whole && areas.slots.wait(slot) == State::Gigantic {
        discard_gigantic(areas, space, slot, PROT_NONE)?;
    } else {
        if areas.make_ordinary(space, slot) == Answer::Refused {
            return keep_zeroed(space, part);
        }
        // Reserved memory is a VMA, of which there may be no more; a hole is none. What is sealed (mseal) can be neither.
        if reserve(part).is_err() {
            return lose(space, part);
        }
    }
    space.set(part, Use::Free);
    if space.is_closed() {
        return lose(space, part);
    }
    Ok(())
}

/// Gives the reserved memory of the areas up, and gigantic pages that are ready, and places nothing there any more: the
/// program limits its address space or its data or locks all its memory, and these would count.
pub(crate) fn close(areas: &Areas) {
    areas.space.take().close();
    let kept = leave_malloc(areas.span);
    give_up_free(areas);
    areas.limited.add_own(kept);
}

/// Has `libsuperpage_malloc.so`, where it is in the process, leave new blocks to the program's own malloc, or make no more arenas
/// if there are no areas; the bytes that it keeps for itself.
pub(crate) fn leave_malloc(areas: Span) -> usize {
    let leave = symbols::objects().find_map(|object| object.function(c"superpage_malloc_leave"));
    leave.map_or(0, |leave| {
        // SAFETY: it is that library's function, which has this type.
        unsafe {
            core::mem::transmute::<usize, extern "C" fn(usize, usize) -> usize>(leave)(
                areas.start,
                areas.length,
            )
        }
    })
}

/// Unmaps what is free of the areas.
fn give_up_free(areas: &Areas) {
    let mut space = areas.space.take();
    let (slots, entries) = space.give_up();
    for unused in [slots, entries].into_iter().filter(|unused| unused.length > 0) {
        // SAFETY: the program has nothing in the slots, and nothing is kept of them any more.
        let _ = unsafe { sys::munmap(unused.start, unused.length) };
    }
    areas.stop_promoting();
    areas.ready.close();
    for slot in 0..areas.slots.count() {
        // A gigantic page covers free pages of its slot as well.
        if areas.slots.wait(slot) == State::Gigantic {
            continue;
        }
        loop {
            let Some(part) = space.free_runs(slot).next() else { break };
            if lose(&mut space, part).is_err() {
                break;
            }
        }
    }
}

/// mlockall(2): `lock` is the call. Memory that lives in a file is not locked as a whole: what the pager has ready for pages
/// would be locked as well, several times what may be in memory.
///
/// # Errors
/// ENOMEM where there is a heap.
pub(crate) fn lock_all(areas: &Areas, lock: impl FnOnce() -> Result<usize>) -> Result<usize> {
    if has_heap(areas) {
        return Err(Errno::ENOMEM);
    }
    close(areas);
    lock()
}

/// Unmaps reserved memory. The kernel may use the place for anything.
fn lose(space: &mut Guard<'_, Space>, part: Span) -> Result<()> {
    // SAFETY: nobody uses it.
    unsafe { sys::munmap(part.start, part.length) }?;
    space.set(part, Use::Special);
    Ok(())
}

/// Reserved memory, over whatever is there.
fn reserve(part: Span) -> Result<()> {
    // SAFETY: the program has given it back, or never had it.
    unsafe { sys::reserve(part) }
}

/// A part of a gigantic page that cannot be demoted, and that the program gives back: it is emptied, and
/// not used again until all of its slot is given back.
fn keep_zeroed(space: &mut Guard<'_, Space>, part: Span) -> Result<()> {
    zero(part);
    space.set(part, Use::Special);
    Ok(())
}

fn zero(part: Span) {
    // SAFETY: a gigantic page of the program's may be written, and the program wants this part emptied.
    unsafe { core::ptr::write_bytes(part.start as *mut u8, 0, part.length) };
}

/// Gives the gigantic page of a slot back to the pool, and maps ordinary memory there. The caller holds the
/// lock of the space.
fn discard_gigantic(areas: &Areas, space: &Space, slot: usize, protection: i32) -> Result<()> {
    space.forget_emptied(slot);
    if !areas.slots.begin(slot, State::Gigantic, State::Changing) {
        return Err(Errno::ENOMEM);
    }
    let span = areas.slots.span(slot);
    // SAFETY: the program wants all of it gone.
    let done = unsafe { sys::mmap(Mmap::fixed(span, protection)) };
    if done.is_ok() {
        if protection != PROT_NONE {
            advise_huge(span);
        }
        areas.remove_gigantic();
    }
    areas.slots.settle(slot, if done.is_ok() { State::Ordinary } else { State::Gigantic });
    done.map(|_| ())
}

/// mprotect(2): `change` is the call.
pub(crate) fn protect(
    areas: &Areas,
    address: usize,
    length: usize,
    protection: i32,
    change: &dyn Fn() -> Result<usize>,
) -> Result<usize> {
    let Some((span, inside)) = within(areas, address, length) else { return change() };
    let mut space = areas.space.take();
    if space.has_free(inside) {
        let first = space.first_run(inside).filter(|run| run.start == span.start);
        drop(space);
        // The kernel changes what lies before the first hole.
        if let Some(run) = first {
            // SAFETY: the program asked for it.
            let change = || unsafe { sys::mprotect(run, protection) };
            protect(areas, run.start, run.length, protection, &change)?;
        }
        return Err(Errno::ENOMEM);
    }
    if has_heap(areas) {
        let done = change()?;
        space.protect(inside, used(protection));
        return Ok(done);
    }
    let is_plain = protection == READ_WRITE;
    let mut has_change = inside != span;
    for slot in space.slots_of(inside) {
        // Memory that is already as it is wanted is left alone.
        let is_as_wanted = is_plain
            && matches!(areas.slots.wait(slot), State::Gigantic | State::Fresh)
            && areas.slots.span(slot).overlap(inside).is_some_and(|part| space.is_plain(part));
        if !is_as_wanted {
            has_change = true;
            if areas.make_ordinary(&space, slot) == Answer::Refused {
                return Err(Errno::ENOMEM);
            }
        }
    }
    if !has_change {
        return Ok(0);
    }
    let done = change()?;
    space.protect(inside, used(protection));
    if is_plain {
        advise_reserved(&space, inside);
        register_untouched(areas, &mut space, inside);
    }
    Ok(done)
}

/// A range as whole pages, and what of it lies in the areas; nothing if none does.
pub(crate) fn within(areas: &Areas, address: usize, length: usize) -> Option<(Span, Span)> {
    let span = pages(address, length)?;
    Some((span, areas.span.overlap(span)?))
}

/// The parts of a span before and behind what of it lies in the areas.
fn outside(span: Span, inside: Span) -> impl Iterator<Item = Span> {
    let ends = [(span.start, inside.start), (inside.end(), span.end())];
    let parts = ends.into_iter().map(|(start, end)| Span { start, length: end - start });
    parts.filter(|part| part.length > 0)
}

/// Any call that changes what a range of memory is, in a way that a gigantic page does not allow or that
/// the library does not follow: its slots become ordinary and stay so.
pub(crate) fn special(
    areas: &Areas,
    address: usize,
    length: usize,
    change: impl FnOnce() -> Result<usize>,
) -> Result<usize> {
    let floor = address & !(PAGE - 1);
    let Some((_, inside)) = within(areas, floor, length.saturating_add(address - floor)) else {
        return change();
    };
    let mut space = areas.space.take();
    if space.has_free(inside) {
        return Err(Errno::ENOMEM);
    }
    if has_heap(areas) {
        return paged::special(space, inside, change);
    }
    make_ordinary(areas, &space, inside)?;
    let done = change()?;
    space.set(inside, Use::Special);
    Ok(done)
}

/// As [`special`], of a call that may take long, or wait for a thread of the program: the lock is not held meanwhile.
pub(crate) fn special_and_slow(
    areas: &Areas,
    address: usize,
    length: usize,
    change: impl FnOnce() -> Result<usize>,
) -> Result<usize> {
    special(areas, address, length, || Ok(0))?;
    change()
}

/// The effect of a kind of advice on a gigantic page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The memory is to hold zeroes.
    Empties,
    /// Nothing that a program could see; a gigantic page does not take it.
    Hint,
    /// The advice works on gigantic pages as on others.
    AsItIs,
    /// Anything else.
    Special,
}

fn effect(advice: i32) -> Effect {
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_DONTNEED_LOCKED => Effect::Empties,
        libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_WILLNEED
        | libc::MADV_HUGEPAGE
        | libc::MADV_COLLAPSE
        | libc::MADV_COLD
        | libc::MADV_PAGEOUT
        | libc::MADV_MERGEABLE
        | libc::MADV_UNMERGEABLE
        | libc::MADV_DODUMP
        | libc::MADV_DOFORK => Effect::Hint,
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => Effect::AsItIs,
        _ => Effect::Special,
    }
}

/// madvise(2).
///
/// # Safety
/// As of madvise.
pub(crate) unsafe fn advise(
    areas: &Areas,
    address: usize,
    length: usize,
    advice: i32,
) -> Result<usize> {
    // SAFETY: the caller's promise.
    let ask = |span: Span| unsafe { sys::madvise(span, advice) };
    let Some((span, inside)) = within(areas, address, length) else {
        return ask(Span { start: address, length });
    };
    if areas.space.take().has_free(inside) {
        // SAFETY: the caller's promise.
        return around_holes(areas, inside, |run| unsafe {
            self::advise(areas, run.start, run.length, advice)
        });
    }
    if has_heap(areas) {
        for part in outside(span, inside) {
            ask(part)?;
        }
        return paged::advise(areas, inside, advice, || ask(inside));
    }
    match effect(advice) {
        Effect::Special => return special(areas, address, length, || ask(span)),
        Effect::AsItIs => return ask(span),
        Effect::Empties | Effect::Hint => {}
    }
    let mut space = areas.space.take();
    if space.has_free(inside) {
        return Err(Errno::ENOMEM);
    }
    for part in outside(span, inside) {
        ask(part)?;
    }
    for slot in space.slots_of(inside) {
        let Some(part) = areas.slots.span(slot).overlap(inside) else { continue };
        match (areas.slots.wait(slot), effect(advice)) {
            (State::Gigantic, Effect::Hint) | (State::Fresh, _) => {}
            (State::Ordinary, _)
                if advice == libc::MADV_COLLAPSE
                    && space.slot(slot).is_some_and(SlotPages::is_plain)
                    && part.length == GIGANTIC
                    && areas.promote(slot) == Answer::Done => {}
            (State::Gigantic, _) if part.length == GIGANTIC => {
                discard_gigantic(areas, &space, slot, READ_WRITE)?;
                space.set(part, Use::Free);
                space.set(part, Use::Plain);
                register_untouched(areas, &mut space, part);
            }
            // Emptied memory will mostly be used again, so the gigantic page stays until half of it was.
            (State::Gigantic, _) => match space.note_emptied(slot, part) {
                true if areas.make_ordinary(&space, slot) == Answer::Done => {
                    ask(part).map(|_| ())?
                }
                _ => zero(part),
            },
            _ => ask(part).map(|_| ())?,
        }
    }
    Ok(0)
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
    areas: &Areas,
    old: usize,
    old_length: usize,
    length: usize,
    flags: i32,
    to: usize,
) -> Result<usize> {
    let plain = Span { start: old, length: old_length };
    // SAFETY: the caller's promise.
    let ask = || unsafe { sys::mremap(plain, length, flags, to) };
    let is_known = flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) == 0;
    let Some(length) = length.checked_next_multiple_of(PAGE).filter(|_| is_known && length > 0)
    else {
        return ask();
    };
    let source = pages(old, old_length);
    let target = (flags & MREMAP_FIXED != 0).then(|| pages(to, length)).flatten();
    let touches = |span: Option<Span>| span.and_then(|span| areas.span.overlap(span));
    if touches(source).is_none() && touches(target).is_none() {
        return ask();
    }
    if has_heap(areas)
        && let Some(source) = source
    {
        // SAFETY: the caller's promise.
        return unsafe { paged::remap(areas, paged::Remap { source, length, flags, to }) };
    }
    let mut space = areas.space.take();
    if let Some(inside) = touches(source) {
        if source != Some(inside) || space.has_free(inside) {
            return Err(Errno::EFAULT);
        }
        make_ordinary(areas, &space, inside)?;
        if flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) == 0 {
            if length <= inside.length {
                return shrink(areas, &mut space, inside, length);
            }
            if flags & MREMAP_MAYMOVE == 0 {
                return Err(Errno::ENOMEM);
            }
            if space.is_plain(inside)
                && let Some(to) = space.find(length, 0, &|slot| may_hold(areas, slot, PROT_NONE))
            {
                return grow(&mut space, inside, to);
            }
        }
    }
    if let Some(inside) = touches(target) {
        make_ordinary(areas, &space, inside)?;
    }
    let done = ask()?;
    if let Some(inside) = touches(source).filter(|_| flags & MREMAP_DONTUNMAP == 0) {
        let moved = Span { start: done, length };
        if moved.overlap(inside).is_none() {
            reserve_hole(&mut space, inside);
        }
    }
    if let Some(inside) = touches(target) {
        space.set(inside, Use::Special);
    }
    Ok(done)
}

fn shrink(areas: &Areas, space: &mut Guard<'_, Space>, from: Span, length: usize) -> Result<usize> {
    let tail = Span { start: from.start + length, length: from.length - length };
    if tail.length > 0 {
        for slot in space.slots_of(tail) {
            if let Some(part) = areas.slots.span(slot).overlap(tail) {
                give_back(areas, space, slot, part)?;
            }
        }
    }
    Ok(from.start)
}

/// Moves a plain mapping to a larger place in the areas. The old place stays mapped all the time.
fn grow(space: &mut Guard<'_, Space>, from: Span, to: Span) -> Result<usize> {
    let tail = Span { start: to.start + from.length, length: to.length - from.length };
    // SAFETY: free pages of the areas are reserved memory that nobody uses.
    unsafe { sys::open_reserved(tail, READ_WRITE) }?;
    advise_huge(tail);
    let flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    // SAFETY: the program asked for the move; the new place is free.
    match unsafe { sys::mremap(from, from.length, flags, to.start) } {
        Ok(_) => {}
        // Kernels before 6.17 move one VMA at a time.
        Err(Errno::EFAULT) => copy(from, to)?,
        Err(errno) => {
            reserve(to)?;
            return Err(errno);
        }
    }
    space.set(to, Use::Plain);
    for slot in space.slots_of(to) {
        space.take_untouched(slot); // it holds what was moved
    }
    reserve(from)?;
    space.set(from, Use::Free);
    Ok(to.start)
}

/// Copies a plain mapping to a place in the areas.
fn copy(from: Span, to: Span) -> Result<()> {
    let target = Span { length: from.length, ..to };
    // SAFETY: free pages of the areas are reserved memory that nobody uses.
    unsafe { sys::open_reserved(target, READ_WRITE) }?;
    advise_huge(target);
    let (source, place) = (from.start as *const u8, to.start as *mut u8);
    // SAFETY: both may be read and written, and do not overlap; the program uses neither during the call.
    unsafe { core::ptr::copy_nonoverlapping(source, place, from.length) };
    Ok(())
}

/// Reserves a place that the kernel has just unmapped. If it has put another mapping there meanwhile, the
/// place is lost to the areas.
pub(crate) fn reserve_hole(space: &mut Guard<'_, Space>, hole: Span) {
    let mut again = Mmap::fixed(hole, PROT_NONE);
    again.flags = again.flags & !MAP_FIXED | MAP_FIXED_NOREPLACE;
    // SAFETY: it replaces nothing.
    let used = match unsafe { sys::mmap(again) } {
        Ok(_) => Use::Free,
        Err(_) => Use::Special,
    };
    space.set(hole, used);
}
