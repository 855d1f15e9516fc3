//! A program that limits its own address space or data (RLIMIT_AS, RLIMIT_DATA): what the library has mapped counts as well, so
//! the limit that the kernel gets is higher by that. The program reads what it has set, and a program that takes its place, or
//! that a child becomes, has the limit that was meant.
//!
//! posix_spawn runs no code of ours in the child, so a program that is started so has the higher limit.

#![expect(unsafe_code, reason = "reads and writes what the program's pointers to limits point to")]

use crate::areas::{Areas, Process};
use crate::sys::{self, Result};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// A pair of limits, as the kernel has them: the one that holds, and the one up to which that may be raised.
pub(crate) type Limits = [u64; 2];

/// The limits that the program has set for itself, and what is the library's.
#[derive(Debug)]
pub(crate) struct Limited {
    /// The process; a child that shares its memory until it becomes another program (vfork) has limits of its own.
    process: AtomicU32,
    /// The bytes of address space that the library has mapped for itself.
    own: AtomicU64,
    /// The limits that the program has set, for each of [`RESOURCES`]; [`UNSET`] before it has.
    set: [[AtomicU64; 2]; 2],
}

const RESOURCES: [u32; 2] = [libc::RLIMIT_AS, libc::RLIMIT_DATA];
const NONE: u64 = u64::MAX;
/// No limit that a program sets, in bytes.
const UNSET: u64 = u64::MAX - 1;

impl Limited {
    pub(crate) fn new() -> Self {
        Self {
            process: AtomicU32::new(sys::process()),
            own: AtomicU64::new(0),
            set: [const { [const { AtomicU64::new(UNSET) }; 2] }; 2],
        }
    }

    /// This is the child of a fork.
    pub(crate) fn in_child(&self) {
        self.process.store(sys::process(), Relaxed);
    }

    /// Notes the address space that the library has mapped since there was `before`.
    pub(crate) fn note_own(&self, before: Option<usize>) {
        if let (Some(before), Some(now)) = (before, sys::address_space()) {
            self.add_own(now.saturating_sub(before));
        }
    }

    /// Notes that the library has mapped this much more for itself.
    pub(crate) fn add_own(&self, bytes: usize) {
        self.own.fetch_add(bytes as u64, Relaxed);
    }

    /// The limit of address space that the program has set, and what the library has mapped; nothing without one.
    pub(crate) fn address_space(&self) -> Option<(u64, u64)> {
        let set = self.set[0][0].load(Relaxed);
        (set < UNSET).then(|| (set, self.own.load(Relaxed)))
    }

    /// The limits that the program has set of a resource, if it is one of these and the process is this one.
    fn of(&self, process: i32, resource: i32) -> Option<&[AtomicU64; 2]> {
        let me = self.process.load(Relaxed);
        let is_ours = me == sys::process() && (process == 0 || process.unsigned_abs() == me);
        let at = RESOURCES.iter().position(|known| resource == sys::int(*known as usize))?;
        self.set.get(at).filter(|_| is_ours)
    }
}

fn loaded(set: &[AtomicU64; 2]) -> Limits {
    set.each_ref().map(|place| place.load(Relaxed))
}

/// Has `ask` set limits and read those from before, as prlimit does; it gets those for the kernel.
///
/// # Errors
/// The errors of `ask`; no limit has changed then.
///
/// # Safety
/// `new` and `old` must be null or point to limits.
pub(crate) unsafe fn set(
    managed: &Process,
    process: i32,
    resource: i32,
    new: *const libc::rlimit64,
    old: *mut libc::rlimit64,
    ask: impl FnOnce(*const libc::rlimit64) -> Result<usize>,
) -> Result<usize> {
    let limited = &managed.areas.limited;
    let Some(set) = limited.of(process, resource) else { return ask(new) };
    let before = loaded(set);
    // SAFETY: the caller's promise.
    let wanted = (!new.is_null()).then(|| unsafe { [(*new).rlim_cur, (*new).rlim_max] });
    // A limit that is none need not be followed, unless there was one.
    let wanted = wanted.filter(|wanted| wanted[0] != NONE || before[0] != UNSET);
    let is_first = limited.set.iter().all(|set| set[0].load(Relaxed) == UNSET);
    if wanted.is_some() && is_first {
        managed.backing().before_limit();
    }
    let own = limited.own.load(Relaxed);
    let higher = |value: u64| value.saturating_add(own);
    let for_kernel = wanted.map(|[current, most]| libc::rlimit64 {
        rlim_cur: higher(current),
        rlim_max: higher(most),
    });
    let done = ask(for_kernel.as_ref().map_or(new, core::ptr::from_ref))?;
    for (place, value) in set.iter().zip(wanted.into_iter().flatten()) {
        place.store(value, Relaxed);
    }
    if !old.is_null() && before[0] != UNSET {
        // SAFETY: the caller's promise.
        let old = unsafe { &mut *old };
        for (read, set) in [(&mut old.rlim_cur, before[0]), (&mut old.rlim_max, before[1])] {
            if *read == higher(set) {
                *read = set;
            }
        }
    }
    Ok(done)
}

/// Has the kernel keep the limits that were meant: the process is to become another program. The one up to which a limit may be
/// raised stays higher, so that it can be raised again if there is no such program.
pub(crate) fn before_another_program(areas: &Areas) {
    change(areas, |meant, _| meant);
}

/// The program goes on, because there was no other to become.
pub(crate) fn no_other_program(areas: &Areas) {
    change(areas, |_, higher| higher);
}

/// Has the kernel have one of two limits that hold: the one that was meant, or the higher one. A limit that is neither of them was
/// set by somebody else, or by a child of vfork for itself, and stays.
fn change(areas: &Areas, choose: impl Fn(u64, u64) -> u64) {
    let own = areas.limited.own.load(Relaxed);
    for (resource, set) in RESOURCES.into_iter().zip(&areas.limited.set) {
        let [meant, most] = loaded(set);
        if meant == UNSET {
            continue;
        }
        let (higher, most) = (meant.saturating_add(own), most.saturating_add(own));
        let is_ours =
            |[current, up_to]: Limits| [meant, higher].contains(&current) && up_to == most;
        if sys::limits(resource).is_ok_and(is_ours) {
            sys::set_limit(resource, [choose(meant, higher), most]);
        }
    }
}
