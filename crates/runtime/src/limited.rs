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

    /// Whether the calling thread is one of this process, and not a child that shares its memory until it becomes another program
    /// (vfork).
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.load(Relaxed) == sys::process()
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

    /// As [`set`], of the limits that are `wanted` of those of a resource.
    ///
    /// # Safety
    /// As of [`set`].
    unsafe fn ask(
        &self,
        set: &[AtomicU64; 2],
        wanted: Option<Limits>,
        new: *const libc::rlimit64,
        old: *mut libc::rlimit64,
        ask: impl FnOnce(*const libc::rlimit64) -> Result<usize>,
    ) -> Result<usize> {
        let before = loaded(set);
        let own = self.own.load(Relaxed);
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

    /// Of limits that the kernel has `now`, the one of two that is chosen: the one that was meant, or the higher one. Nothing where
    /// somebody else has set them.
    fn other(
        &self,
        set: &[AtomicU64; 2],
        now: Limits,
        choose: impl Fn(u64, u64) -> u64,
    ) -> Option<Limits> {
        let own = self.own.load(Relaxed);
        let [meant, most] = loaded(set);
        let (higher, most) = (meant.saturating_add(own), most.saturating_add(own));
        let is_ours = meant != UNSET && [meant, higher].contains(&now[0]) && now[1] == most;
        is_ours.then(|| [choose(meant, higher), most])
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
    // SAFETY: the caller's promise.
    unsafe { limited.ask(set, wanted, new, old, ask) }
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
    for (resource, set) in RESOURCES.into_iter().zip(&areas.limited.set) {
        let next = sys::limits(resource).map(|now| areas.limited.other(set, now, &choose));
        if let Ok(Some(next)) = next {
            sys::set_limit(resource, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Errno;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const UNLIMITED: Limits = [NONE; 2];

    /// A step of a random program. Limits are in MiB, none from 200 on.
    #[derive(Clone, Debug)]
    enum Step {
        /// Sets limits, and reads those from before.
        Set(Limits),
        Read,
        /// Another program is to take the place of this one, and does not.
        Execute,
        /// Another process sets the limit that holds, to an odd number of bytes.
        SetByOthers(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let bytes = |mib: u64| if mib < 200 { mib * MIB } else { NONE };
        prop_oneof![
            4 => (0_u64..220, 0_u64..220)
                .prop_map(move |limits| Step::Set([bytes(limits.0), bytes(limits.1)])),
            4 => Just(Step::Read),
            2 => Just(Step::Execute),
            1 => (0_u64..200).prop_map(|mib| Step::SetByOthers(mib * MIB + 1)),
        ]
    }

    /// The limits as the kernel has them, of a process that may not raise the one up to which a limit may be raised.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Kernel(Limits);

    impl Kernel {
        fn prlimit(&mut self, new: Option<Limits>) -> Result<Limits> {
            let before = self.0;
            match new {
                Some([current, most]) if current > most => return Err(Errno::EINVAL),
                Some([_, most]) if most > before[1] => return Err(Errno::EPERM),
                Some(new) => self.0 = new,
                None => {}
            }
            Ok(before)
        }
    }

    /// The limits from before, as the program reads them.
    fn ask(limited: &Limited, kernel: &mut Kernel, new: Option<Limits>) -> Result<Limits> {
        let set = &limited.set[0];
        let pair = |[rlim_cur, rlim_max]: Limits| libc::rlimit64 { rlim_cur, rlim_max };
        let given = new.map(pair);
        let given = given.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        let mut old = pair([0; 2]);
        let place = &raw mut old;
        let ask = |new: *const libc::rlimit64| {
            // SAFETY: it is null, or points to a pair.
            let new = unsafe { new.as_ref() }.map(|new| [new.rlim_cur, new.rlim_max]);
            let before = kernel.prlimit(new)?;
            // SAFETY: the pair lives.
            unsafe { *place = pair(before) };
            Ok(0)
        };
        let wanted = new.filter(|new| new[0] != NONE || loaded(set)[0] != UNSET);
        // SAFETY: both are null or point to pairs.
        unsafe { limited.ask(set, wanted, given, place, ask) }.map(|_| [old.rlim_cur, old.rlim_max])
    }

    proptest! {
        #[test]
        fn a_program_reads_the_limits_as_without_the_library(
            own in 1_u64..1000,
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let limited = Limited::new();
            let own = own << 12;
            limited.add_own(sys::to_usize(own));
            let (mut kernel, mut model) = (Kernel(UNLIMITED), Kernel(UNLIMITED));
            let (mut is_set, mut is_others) = (false, false);
            for step in steps {
                match step {
                    Step::Set(new) => {
                        let before = model.prlimit(Some(new));
                        assert_eq!(ask(&limited, &mut kernel, Some(new)), before);
                        if before.is_ok() {
                            is_set |= new[0] != NONE;
                            is_others = false;
                        }
                    }
                    Step::Read => {
                        assert_eq!(ask(&limited, &mut kernel, None), model.prlimit(None));
                    }
                    Step::Execute => {
                        let set = &limited.set[0];
                        let meant = limited.other(set, kernel.0, |meant, _| meant);
                        assert_eq!(meant.is_some(), is_set && !is_others);
                        if let Some(meant) = meant {
                            assert_eq!(meant, [model.0[0], model.0[1].saturating_add(own)]);
                            let again = limited.other(set, meant, |_, higher| higher);
                            assert_eq!(again, Some(kernel.0));
                        }
                    }
                    Step::SetByOthers(limit) if limit <= model.0[1] => {
                        (kernel.0[0], model.0[0], is_others) = (limit, limit, true);
                    }
                    Step::SetByOthers(_) => {}
                }
                let higher = |limit: u64| if is_set { limit.saturating_add(own) } else { limit };
                let current = if is_others { model.0[0] } else { higher(model.0[0]) };
                assert_eq!(kernel.0, [current, higher(model.0[1])]);
                let is_limited = is_set && loaded(&limited.set[0])[0] != NONE;
                let known = is_limited.then_some(own);
                assert_eq!(limited.address_space().map(|(_, own)| own), known);
            }
        }
    }

    #[test]
    fn only_limits_of_memory_of_this_process_are_the_librarys_matter() {
        let limited = Limited::new();
        let me = sys::int(sys::process() as usize);
        let [space, data] = RESOURCES.map(|resource| sys::int(resource as usize));
        let stack = sys::int(libc::RLIMIT_STACK as usize);
        let at = |process, resource| {
            let found = limited.of(process, resource).map(core::ptr::from_ref);
            limited.set.iter().position(|set| Some(core::ptr::from_ref(set)) == found)
        };
        assert_eq!([at(0, space), at(me, space), at(0, data)], [Some(0), Some(0), Some(1)]);
        assert_eq!([at(0, stack), at(1, space)], [None, None]);
        limited.process.store(sys::process() + 1, Relaxed);
        assert_eq!(at(0, space), None, "a child of vfork has limits of its own");
        limited.in_child();
        assert_eq!(at(0, space), Some(0));
    }
}
