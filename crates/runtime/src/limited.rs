//! A program that limits its own address space or data (RLIMIT_AS, RLIMIT_DATA): what the library has mapped counts as well, so
//! the limit that the kernel gets is higher by that. The program reads what it has set, and a program that takes its place, or
//! that a child of a fork becomes, has the limit that was meant.
//!
//! posix_spawn and vfork run no code of ours in the child, so a program that is started so has the higher limit.

#![expect(unsafe_code, reason = "reads and writes what the program's pointers to limits point to")]

use crate::areas::Areas;
use crate::memory;
use crate::sys::{self, Span};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// A pair of limits, as the kernel has them: the one that holds, and the one up to which that may be raised.
pub(crate) type Limits = [u64; 2];

/// The limits that the program has set for itself, and what is the library's.
#[derive(Debug)]
pub(crate) struct Limited {
    /// The bytes of address space that the library has mapped for itself.
    own: AtomicU64,
    /// What the program has set, for each of [`RESOURCES`]; zero before it has.
    set: [[AtomicU64; 2]; 2],
}

const RESOURCES: [u32; 2] = [libc::RLIMIT_AS, libc::RLIMIT_DATA];
const NONE: u64 = u64::MAX;

impl Limited {
    pub(crate) const fn new() -> Self {
        Self { own: AtomicU64::new(0), set: [const { [const { AtomicU64::new(0) }; 2] }; 2] }
    }

    /// The library has mapped so much more for itself.
    pub(crate) fn add_own(&self, bytes: usize) {
        self.own.fetch_add(bytes as u64, Relaxed);
    }

    /// The limit of address space that the program has set, and what the library has mapped; nothing without one.
    pub(crate) fn address_space(&self) -> Option<(u64, u64)> {
        let set = self.set[0][0].load(Relaxed);
        (set != 0 && set != NONE).then(|| (set, self.own.load(Relaxed)))
    }

    fn of(&self, resource: i32) -> Option<&[AtomicU64; 2]> {
        let at = RESOURCES.iter().position(|known| resource == sys::int(*known as usize))?;
        self.set.get(at)
    }
}

/// The limits for the kernel where the program sets some for itself: `new`, or higher ones.
///
/// # Safety
/// `new` must be null or point to limits.
pub(crate) unsafe fn about_to_set(
    areas: &Areas,
    process: i32,
    resource: i32,
    new: *const libc::rlimit64,
) -> Option<Limits> {
    let is_ours = process == 0 || process.unsigned_abs() == sys::process();
    let set = areas.limited.of(resource).filter(|_| is_ours && !new.is_null())?;
    // SAFETY: the caller's promise.
    let new = unsafe { [(*new).rlim_cur, (*new).rlim_max] };
    if new[0] == NONE && set[0].load(Relaxed) == 0 {
        return None;
    }
    if set[0].load(Relaxed) == 0 {
        match areas.pager() {
            None => memory::close(areas),
            // The memory of a heap goes on to be placed there, by exact sizes.
            Some(_) => drop(memory::leave_malloc(Span { start: 0, length: 0 })),
        }
    }
    set.iter().zip(new).for_each(|(place, value)| place.store(value, Relaxed));
    let own = areas.limited.own.load(Relaxed);
    Some(new.map(|value| value.saturating_add(own)))
}

/// Writes what the program has set where it reads limits of its own.
///
/// # Safety
/// `old` must be null or point to limits that the kernel has written.
pub(crate) unsafe fn was_read(
    areas: &Areas,
    process: i32,
    resource: i32,
    old: *mut libc::rlimit64,
) {
    let is_ours = process == 0 || process.unsigned_abs() == sys::process();
    let Some(set) = areas.limited.of(resource).filter(|_| is_ours && !old.is_null()) else {
        return;
    };
    let own = areas.limited.own.load(Relaxed);
    let [current, most] = set.each_ref().map(|place| place.load(Relaxed));
    // SAFETY: the caller's promise.
    let old = unsafe { &mut *old };
    for (read, set) in [(&mut old.rlim_cur, current), (&mut old.rlim_max, most)] {
        if set != 0 && *read == set.saturating_add(own) {
            *read = set;
        }
    }
}

/// Has the kernel keep the limits that were meant: the process is to become another program.
pub(crate) fn before_another_program(areas: &Areas) {
    for (resource, set) in RESOURCES.into_iter().zip(&areas.limited.set) {
        let [current, most] = set.each_ref().map(|place| place.load(Relaxed));
        if current != 0 {
            sys::set_limit(resource, [current, most]);
        }
    }
}

/// The program goes on, because there was no other to become.
pub(crate) fn no_other_program(areas: &Areas) {
    let own = areas.limited.own.load(Relaxed);
    for (resource, set) in RESOURCES.into_iter().zip(&areas.limited.set) {
        let [current, most] = set.each_ref().map(|place| place.load(Relaxed));
        if current != 0 {
            // Only who has the right may raise it again.
            sys::set_limit(resource, [current, most].map(|value| value.saturating_add(own)));
        }
    }
}
