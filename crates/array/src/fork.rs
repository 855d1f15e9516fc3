//! Forks: what is on gigantic pages is not inherited, but copied to smaller pages for the child.
//!
//! The kernel copies private gigantic pages as wholes, once either process writes, and kills a process for which there is no
//! free one. So they are left out of a fork (MADV_DONTFORK); a handler of `pthread_atfork` copies them before it, and the child
//! puts the copies in their places. Where there is no memory for a copy the child has a mapping there that nobody may touch: a
//! touch is SIGSEGV, and never a page of zeroes. `posix_spawn`, `vfork` and raw system calls call no handlers.
//!
//! The child may see a part of what other threads write during the fork, as it may without gigantic pages. The handlers go
//! with this library, should it be closed.
//! [pthread_atfork(3)](https://man7.org/linux/man-pages/man3/pthread_atfork.3.html).

#![expect(unsafe_code, reason = "registers handlers")]

use crate::memory::{self, Span};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The parts of arrays that this module knows.
#[derive(Debug)]
struct Parts {
    /// Parts on gigantic pages.
    gigantic: Vec<Span>,
    /// Parts whose addresses somebody else had mapped in this child before the handler could: they are not the array's.
    lost: Vec<Span>,
}

static PARTS: Mutex<Parts> = Mutex::new(Parts { gigantic: Vec::new(), lost: Vec::new() });

/// A fork that goes on.
#[derive(Debug)]
struct Fork {
    /// Held, so that no array comes or goes meanwhile.
    parts: MutexGuard<'static, Parts>,
    /// Copies of the parts on gigantic pages, where there is memory for one.
    copies: Vec<Option<Span>>,
}

thread_local! {
    /// The fork of this thread, boxed. In the child it is the only thread. Without a destructor, so that it is there as long as
    /// the thread is.
    static FORK: Cell<*mut Fork> = const { Cell::new(std::ptr::null_mut()) };
}

fn parts() -> MutexGuard<'static, Parts> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether forks are told to this module: without that no array may have gigantic pages.
pub(crate) fn is_told() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        // SAFETY: the handlers are functions of this library, with which libc forgets them.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) == 0 }
    })
}

/// Notes that a part of an array is on gigantic pages.
pub(crate) fn note(part: Span) {
    parts().gigantic.push(part);
}

/// Whether a part of a span is on gigantic pages.
pub(crate) fn is_gigantic(span: Span) -> bool {
    parts().gigantic.iter().any(|part| part.start < span.end() && span.start < part.end())
}

/// Forgets what lies in a span; whether all of it is this process's to unmap.
pub(crate) fn forget(span: Span) -> bool {
    let mut parts = parts();
    let is_outside = |part: &Span| part.start < span.start || part.start >= span.end();
    parts.gigantic.retain(is_outside);
    parts.lost.iter().all(is_outside)
}

extern "C" fn before() {
    let parts = parts();
    let copies = parts.gigantic.iter().map(|part| copy_of(*part)).collect();
    FORK.set(Box::into_raw(Box::new(Fork { parts, copies })));
}

fn copy_of(part: Span) -> Option<Span> {
    let copy = memory::map_copy(part.length).ok()?;
    memory::copy(part, copy);
    Some(copy)
}

/// The fork of this thread, which is over.
fn take() -> Option<Box<Fork>> {
    let fork = FORK.replace(std::ptr::null_mut());
    // SAFETY: only `before` puts something there, a box that nobody else has.
    (!fork.is_null()).then(|| unsafe { Box::from_raw(fork) })
}

extern "C" fn in_parent() {
    let fork = take();
    fork.iter().flat_map(|fork| &fork.copies).flatten().for_each(|copy| memory::unmap(*copy));
}

extern "C" fn in_child() {
    let Some(mut fork) = take() else { return };
    let gigantic = std::mem::take(&mut fork.parts.gigantic);
    for (part, copy) in gigantic.into_iter().zip(&fork.copies) {
        if memory::guard(part).is_err() {
            fork.parts.lost.push(part);
        } else if let Some(copy) = copy {
            // Where mremap fails, the guard stays: nobody may touch the part.
            let _ = memory::move_to(*copy, part);
        }
    }
}
