//! shmat and shmdt: System V shared memory at a place in the areas.
//!
//! The calls do not say how long a segment is, so the kernel attaches it elsewhere first, and its VMA tells. Without an
//! address the kernel chooses the place, which is outside the areas.

#![expect(unsafe_code, reason = "carries out the program's own changes to its memory")]

use crate::areas::Areas;
use crate::memory::{make_ordinary, reserve_hole};
use crate::space::Use;
use crate::sys::{self, Errno, PAGE, Result, Span};
use libc::{MREMAP_FIXED, MREMAP_MAYMOVE, SHM_REMAP, SHM_RND};

/// The mappings that a segment may take the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// Nothing: the program may have nothing there.
    Nothing,
    /// Whatever is there (SHM_REMAP).
    Anything,
}

/// shmat(2).
///
/// # Safety
/// As of shmat.
pub(crate) unsafe fn attach(
    areas: &Areas,
    segment: i32,
    address: usize,
    flags: i32,
) -> Result<usize> {
    let place = if flags & SHM_RND != 0 { address & !(PAGE - 1) } else { address };
    let over = if flags & SHM_REMAP != 0 { Over::Anything } else { Over::Nothing };
    // A segment that begins below the areas may reach into them; the kernel refuses it if it may replace nothing.
    let is_near = areas.span.contains(place)
        || over == Over::Anything && place > 0 && place < areas.span.start;
    if !is_near || !place.is_multiple_of(PAGE) {
        // SAFETY: the caller's promise.
        return unsafe { sys::shmat(segment, address, flags) };
    }
    // SAFETY: the kernel chooses an unused place.
    let elsewhere = unsafe { sys::shmat(segment, 0, flags & !(SHM_RND | SHM_REMAP)) }?;
    // SAFETY: the caller's promise.
    let done = unsafe { move_from(areas, elsewhere, place, over) };
    if done.is_err() {
        // SAFETY: nobody has heard of it there.
        let _ = unsafe { sys::shmdt(elsewhere) };
    }
    done
}

/// Moves a segment that was attached elsewhere to its place.
///
/// # Safety
/// As of shmat at that place.
unsafe fn move_from(areas: &Areas, elsewhere: usize, place: usize, over: Over) -> Result<usize> {
    let from = sys::vma_at(elsewhere).map_err(|_| Errno::ENOMEM)?;
    place.checked_add(from.length).ok_or(Errno::EINVAL)?;
    let to = Span { start: place, length: from.length };
    let mut space = areas.space.take();
    let inside = areas.span.overlap(to);
    if let Some(inside) = inside {
        if over == Over::Nothing && !space.is_free(to) {
            return Err(Errno::EINVAL);
        }
        make_ordinary(areas, &space, inside)?;
    }
    // SAFETY: the caller's promise; where the program has nothing, the memory is reserved and nobody uses it.
    unsafe { sys::mremap(from, from.length, MREMAP_MAYMOVE | MREMAP_FIXED, place) }?;
    if let Some(inside) = inside {
        space.set(inside, Use::Special);
    }
    Ok(place)
}

/// shmdt(2). The place is reserved again, because the kernel would put another mapping into the hole.
///
/// # Safety
/// As of shmdt.
pub(crate) unsafe fn detach(areas: &Areas, address: usize) -> Result<usize> {
    if !areas.span.contains(address) {
        // SAFETY: the caller's promise.
        return unsafe { sys::shmdt(address) };
    }
    let mut space = areas.space.take();
    let vma = sys::vma_at(address).ok().filter(|vma| vma.start == address);
    let place = vma.and_then(|vma| areas.span.overlap(vma));
    // SAFETY: the caller's promise.
    let done = unsafe { sys::shmdt(address) }?;
    // A place that is not known, because the program has unmapped parts of it, is not used again.
    if let Some(place) = place {
        reserve_hole(&mut space, place);
    }
    Ok(done)
}
