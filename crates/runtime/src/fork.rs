//! fork: gigantic pages are copied to smaller ones first, and all of a heap that lives in a file is brought into memory.
//!
//! A child would share them, and the first write on either side would take another one from the kernel's
//! pool, or kill the child where the pool is empty. vfork and posix_spawn share nothing and need nothing.

#![expect(unsafe_code, reason = "keeps a lock across fork, and tells libc what to call")]

use crate::areas::{Areas, shared};
use crate::lock::Lock;
use crate::service::Answer;
use crate::slot::State;
use crate::space::Space;
use crate::sys::{self, Errno, Result, SignalMask};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

/// The signals that were blocked before a fork, while the lock of the space is held across it. One thread forks at a
/// time, because it holds that lock.
static MASK: AtomicU64 = AtomicU64::new(0);

/// Whether a part of the heap is not in memory while a thread forks: a child would read zeroes there.
static LACKS_HEAP: AtomicBool = AtomicBool::new(false);

/// Has libc call the handlers at each fork, also of `daemon` and `forkpty`.
pub(crate) fn watch() -> Result<()> {
    // SAFETY: the handlers live as long as the library, which is never unloaded.
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
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

/// Before a fork.
pub(crate) extern "C" fn before() {
    call(&BEFORE);
    let Some(areas) = shared() else { return };
    let space = areas.space.take();
    areas.about_to_fork();
    // A gigantic page that cannot be demoted stays: this kind of fork cannot be refused. A child that lacks a part of the heap
    // must not go on.
    let is_ready = make_ready(areas, &space).is_ok();
    LACKS_HEAP.store(!is_ready && areas.pager().is_some(), Relaxed);
    MASK.store(Lock::keep(space), Relaxed);
}

/// After a fork, in the parent.
pub(crate) extern "C" fn in_parent() {
    if let Some(areas) = shared() {
        areas.forked();
        let_go(areas);
        give_back(areas);
    }
    call(&AFTER);
}

/// After a fork, in the child.
pub(crate) extern "C" fn in_child() {
    if let Some(areas) = shared() {
        if LACKS_HEAP.load(Relaxed) {
            sys::complain(
                "superpage: a child was ended, because not all of its memory could be brought into memory\n",
            );
            sys::end_process(1);
        }
        areas.in_child();
        give_back(areas);
    }
    call(&AFTER);
}

fn give_back(areas: &Areas) {
    let mask: SignalMask = MASK.load(Relaxed);
    areas.space.give_back_held(mask);
}

/// Leaves nothing that a child of a fork could not do with.
///
/// # Errors
/// ENOMEM if a gigantic page cannot be demoted, or if the heap does not fit in memory.
fn make_ready(areas: &Areas, space: &Space) -> Result<()> {
    if areas.pager().is_some() && areas.hold_heap() == Answer::Refused {
        return Err(Errno::ENOMEM);
    }
    demote_all(areas, space)
}

/// The heap may leave memory again. The caller holds the lock of the space.
fn let_go(areas: &Areas) {
    if areas.pager().is_some() {
        areas.let_heap_go();
    }
}

fn demote_all(areas: &Areas, space: &Space) -> Result<()> {
    for slot in 0..areas.slots.count() {
        if areas.slots.state(slot) == State::Gigantic
            && areas.make_ordinary(space, slot) == Answer::Refused
        {
            return Err(Errno::ENOMEM);
        }
    }
    Ok(())
}

/// Makes the process ready for a fork that libc's handlers hear of as well.
///
/// # Errors
/// ENOMEM if a gigantic page cannot be demoted.
pub(crate) fn prepare(areas: &Areas) -> Result<()> {
    let space = areas.space.take();
    areas.about_to_fork();
    let done = make_ready(areas, &space);
    areas.forked();
    // The fork may never come; it is made ready again then.
    let_go(areas);
    done
}

/// A fork that libc's handlers do not hear of: `fork` is the call.
///
/// # Errors
/// ENOMEM if a gigantic page cannot be demoted, and what the call answers.
pub(crate) fn unheard(areas: &Areas, fork: impl FnOnce() -> Result<usize>) -> Result<usize> {
    call(&BEFORE);
    let space = areas.space.take();
    areas.about_to_fork();
    let done = make_ready(areas, &space).and_then(|()| fork());
    if done == Ok(0) {
        areas.in_child();
    } else {
        areas.forked();
        let_go(areas);
    }
    drop(space);
    call(&AFTER);
    done
}
