//! fork: the one way of each fork, before and after.
//!
//! The backing makes the program's memory ready for a child before, with the lock of the space held, which is kept until the fork is
//! over. vfork and posix_spawn share nothing and need nothing.
//!
//! libc calls the handlers of `pthread_atfork` at most forks, and they cannot refuse one. So a fork that the program asks the library
//! for is tried first ([`heard`]), without keeping the lock: handlers of the program's, which libc calls in between, may wait for
//! threads that wait for it. Forks of which the handlers do not hear go by [`unheard`].

#![expect(unsafe_code, reason = "keeps a lock across fork, and tells libc what to call")]

use crate::areas::{Process, shared};
use crate::backing::{Child, Forked};
use crate::lock::Lock;
use crate::sys::{self, Errno, Result, SignalMask};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU64};
use libc::c_int;

/// The signals that were blocked before a fork, while the lock of the space is held across it. One thread forks at a
/// time, because it holds that lock.
static MASK: AtomicU64 = AtomicU64::new(0);

/// Has libc call the handlers at each fork, also of `daemon` and `forkpty`.
pub(crate) fn watch() -> Result<()> {
    // SAFETY: the handlers live as long as the library, which is never unloaded.
    match unsafe { libc::pthread_atfork(Some(before_heard), Some(in_parent), Some(in_child)) } {
        0 => Ok(()),
        error => Err(Errno::new(error)),
    }
}

/// The functions that `libsuperpage_malloc.so` wants called: it may hold no lock while a fork copies memory.
static BEFORE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static AFTER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Has these called before each fork and after it, in the parent and in the child: the one as the last, the other as
/// the first.
pub(crate) fn add(before: extern "C" fn(), after: extern "C" fn()) {
    BEFORE.store(before as *mut (), Relaxed);
    AFTER.store(after as *mut (), Relaxed);
}

fn call(added: &AtomicPtr<()>) {
    let function = added.load(Relaxed);
    if !function.is_null() {
        // SAFETY: `add` stored it, and is given functions of this type that live for ever.
        unsafe { core::mem::transmute::<*mut (), extern "C" fn()>(function)() };
    }
}

/// Makes the process ready for a fork, and keeps the lock of the space until [`after`] or [`in_child`].
///
/// # Errors
/// ENOMEM where a child cannot have all of its memory. The lock is kept all the same.
fn before(child: Child) -> Result<()> {
    call(&BEFORE);
    let Some(process) = shared() else { return Ok(()) };
    let space = process.areas.space.take();
    let done = process.backing().before_fork(&space, child);
    MASK.store(Lock::keep(space), Relaxed);
    done
}

/// After a fork, or where there was none, in the process that wanted it.
fn after(forked: Forked) {
    if let Some(process) = shared() {
        process.backing().after_fork(forked);
        give_back(process);
    }
    call(&AFTER);
}

fn give_back(process: &Process) {
    let mask: SignalMask = MASK.load(Relaxed);
    process.areas.space.give_back_held(mask);
}

/// libc is about to fork. This cannot be refused: a child that lacks a part of its memory ends at once.
extern "C" fn before_heard() {
    let _ = before(Child::Served);
}

/// libc has forked, or has failed to, which [`heard`] sees.
extern "C" fn in_parent() {
    after(Forked::Child);
}

/// After a fork, in the child, which can reach all of its memory then.
pub(crate) extern "C" fn in_child() {
    if let Some(process) = shared() {
        // The one that was asked before the fork.
        let backing = process.backing();
        process.in_child();
        if !backing.begin_child() {
            sys::complain(
                "superpage: a child was ended, because a part of its memory was out of reach\n",
            );
            sys::end_process(1);
        }
        give_back(process);
    }
    call(&AFTER);
}

/// A function of libc that forks, of which the handlers hear: `fork` calls it, and answers -1 where it has failed.
///
/// # Errors
/// ENOMEM where a child cannot have all of its memory; nothing has forked then.
pub(crate) fn heard(process: Option<&Process>, fork: impl FnOnce() -> c_int) -> Result<c_int> {
    let Some(process) = process else { return Ok(fork()) };
    let space = process.areas.space.take();
    let tried = process.backing().before_fork(&space, Child::Served);
    process.backing().after_fork(Forked::Nobody);
    drop(space);
    tried?;
    let answer = fork();
    if answer == -1 {
        process.backing().forget_child();
    }
    Ok(answer)
}

/// A fork that libc's handlers do not hear of: `fork` is the call. A child that does not return from it calls [`in_child`] itself.
///
/// # Errors
/// ENOMEM where a child cannot have all of its memory, and what the call answers.
pub(crate) fn unheard(child: Child, fork: impl FnOnce() -> Result<usize>) -> Result<usize> {
    let done = before(child).and_then(|()| fork());
    match done {
        Ok(0) => in_child(),
        Ok(_) => after(Forked::Child),
        Err(_) => after(Forked::Nobody),
    }
    done
}
