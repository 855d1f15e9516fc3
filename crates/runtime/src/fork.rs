//! fork: gigantic pages are copied to smaller ones first, and the child gets what it needs of a heap that lives in a file.
//!
//! A child would share gigantic pages, and the first write on either side would take another one from the kernel's
//! pool, or kill the child where the pool is empty. vfork and posix_spawn share nothing and need nothing.
//!
//! A page of the heap that is not in memory would be zeroes to the child. So the child gets a pager of its own
//! ([`child`]); where it cannot, all of the heap is brought into memory; and where that cannot be, fork is refused.

#![expect(unsafe_code, reason = "keeps a lock across fork, and tells libc what to call")]

use crate::areas::{Areas, shared};
use crate::child;
use crate::lock::Lock;
use crate::service::Answer;
use crate::slot::State;
use crate::space::Space;
use crate::sys::{self, Errno, Result, SignalMask};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// The signals that were blocked before a fork, while the lock of the space is held across it. One thread forks at a
/// time, because it holds that lock.
static MASK: AtomicU64 = AtomicU64::new(0);

/// The ways in which a child may get the memory of a heap that lives in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heap {
    /// A pager of its own, or all of the heap in memory.
    Paged,
    /// All of the heap in memory: the child may begin on a stack that lies in the heap, or share its descriptors.
    Whole,
}

/// The part of its memory that the child of a fork will find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Finds {
    /// All of it in memory.
    All = 0,
    /// A part in memory, and the rest in a file, for a pager of its own.
    Paged,
    /// A part only: it must not go on.
    Part,
}

/// A [`Finds`], while a thread forks.
static FINDS: AtomicU32 = AtomicU32::new(Finds::All as u32);

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
extern "C" fn before() {
    before_with(Heap::Paged);
}

/// Makes the process ready for a fork, whose child gets the heap in this way.
pub(crate) fn before_with(heap: Heap) {
    call(&BEFORE);
    let Some(areas) = shared() else { return };
    let space = areas.space.take();
    areas.about_to_fork();
    // A gigantic page that cannot be demoted stays: this kind of fork cannot be refused. A child that lacks a part of the heap
    // must not go on.
    if make_ready(areas, &space, heap).is_err() && areas.pager().is_some() {
        FINDS.store(Finds::Part as u32, Relaxed);
    }
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
        begin_child(areas);
        give_back(areas);
    }
    call(&AFTER);
}

/// Makes this process the child, which can reach all of its memory then.
fn begin_child(areas: &Areas) {
    let finds = FINDS.load(Relaxed);
    areas.in_child();
    if finds == Finds::Part as u32 || finds == Finds::Paged as u32 && !child::begin(areas) {
        sys::complain(
            "superpage: a child was ended, because a part of its memory was out of reach\n",
        );
        sys::end_process(1);
    }
}

fn give_back(areas: &Areas) {
    let mask: SignalMask = MASK.load(Relaxed);
    areas.space.give_back_held(mask);
}

/// Leaves nothing that a child of a fork could not do with.
///
/// # Errors
/// ENOMEM if a gigantic page cannot be demoted, or if the child can have no pager and the heap does not fit in memory.
fn make_ready(areas: &Areas, space: &Space, heap: Heap) -> Result<()> {
    FINDS.store(Finds::All as u32, Relaxed);
    if areas.pager().is_some() {
        if heap == Heap::Paged && child::prepare(areas).is_ok() {
            FINDS.store(Finds::Paged as u32, Relaxed);
        } else if areas.hold_heap() == Answer::Refused {
            return Err(Errno::ENOMEM);
        }
    }
    demote_all(areas, space)
}

/// The heap may leave memory again. The caller holds the lock of the space.
fn let_go(areas: &Areas) {
    if areas.pager().is_some() {
        child::close_file(areas);
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
/// ENOMEM if a gigantic page cannot be demoted, or the heap is too large for a child without a pager.
pub(crate) fn prepare(areas: &Areas, heap: Heap) -> Result<()> {
    let space = areas.space.take();
    areas.about_to_fork();
    let done = make_ready(areas, &space, heap);
    areas.forked();
    // The fork may never come; it is made ready again then.
    unmake(areas);
    done
}

/// Lets the process go on as before: no child will come.
fn unmake(areas: &Areas) {
    if FINDS.load(Relaxed) == Finds::Paged as u32 {
        child::retract(areas);
    }
    let_go(areas);
}

/// Passes an answer of libc's fork on. If it is that the fork has failed, the claim for the child is given up, because libc's
/// handlers are not told.
pub(crate) fn answered(areas: Option<&Areas>, answer: libc::c_int) -> libc::c_int {
    if let Some(areas) = areas.filter(|areas| answer == -1 && areas.pager().is_some()) {
        let _space = areas.space.take();
        child::forget_failed(areas);
    }
    answer
}

/// A fork that libc's handlers do not hear of: `fork` is the call.
///
/// # Errors
/// ENOMEM as of [`prepare`], and what the call answers.
pub(crate) fn unheard(
    areas: &Areas,
    heap: Heap,
    fork: impl FnOnce() -> Result<usize>,
) -> Result<usize> {
    call(&BEFORE);
    let space = areas.space.take();
    areas.about_to_fork();
    let done = make_ready(areas, &space, heap).and_then(|()| fork());
    match done {
        Ok(0) => begin_child(areas),
        Ok(_) => {
            areas.forked();
            let_go(areas);
        }
        Err(_) => {
            areas.forked();
            unmake(areas);
        }
    }
    drop(space);
    call(&AFTER);
    done
}
