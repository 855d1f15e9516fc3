//! The state that all threads share under either backing: the areas and whose their pages are, the policy, the counters, and whether
//! the library's threads run.
//!
//! | thread | what it does | what it waits for |
//! |---|---|---|
//! | a thread of the program, in an interposed function | changes the program's mappings ([`memory`](crate::memory)), one at a time, with the lock of the space | the service thread |
//! | `service` | does for them what needs the library's descriptors ([`service`](crate::service)) | nobody |
//! | two fault threads, eight of a heap | serve touches of memory that is not there ([`fault`](crate::fault)) | each other, for the policy; those of a heap for its file |
//! | `background`, or the four workers of a heap | what the policy wants done while nobody waits | nobody |
//!
//! A thread of the program may stop at any instruction, because its own stack may lie in memory that is held or not there. So
//! the library's threads never wait for one.

#![expect(unsafe_code, reason = "hands out the one value that all threads share")]

use crate::backing::Backing;
use crate::decider::Decider;
use crate::gigantic::Gigantic;
use crate::limited::Limited;
use crate::lock::Lock;
use crate::numbered::numbered;
use crate::pager::Heap;
use crate::service::Mailbox;
use crate::space::Space;
use crate::sys::Span;
use crate::thread;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use superpage_launch::Counters;
use superpage_units::Bytes;

/// The part of the state that does not depend on what stands behind the program's memory.
#[derive(Debug)]
pub(crate) struct Areas {
    /// The place of the areas.
    pub(crate) span: Span,
    /// The pages that are the program's.
    pub(crate) space: Lock<Space>,
    /// The longest mapping that is placed, in bytes.
    pub(crate) most_at_once: usize,
    /// The policy.
    pub(crate) decider: Decider,
    /// The limits that the program has set for itself.
    pub(crate) limited: Limited,
    /// The counters that `superpage run` reports.
    pub(crate) counters: &'static Counters,
    /// The request of a thread of the program to the service thread.
    pub(crate) mailbox: Mailbox,
    /// Whether the library's threads run, a [`Threads`].
    threads: AtomicU32,
    /// Zero in a child of a fork that the child has not noticed: the kernel wipes its page there.
    parent: &'static AtomicU32,
}

numbered! {
    /// Whether the library's threads run.
    pub(crate) enum Threads {
        /// The threads have not been needed: no slot is full of the program's memory, and nothing is in a heap. A program with one thread
        /// may do what one with several may not, such as entering a user namespace.
        NotYet,
        /// The threads run.
        Run,
        /// Not all threads could be started, so none runs.
        Failed,
        /// This is a child of a fork, which has none of its parent's threads.
        InParent,
    }
}

impl Areas {
    /// The areas of `space`, of which the program has nothing yet.
    pub(crate) fn new(
        space: Space,
        most_at_once: usize,
        decider: Decider,
        counters: &'static Counters,
        parent: &'static AtomicU32,
    ) -> Self {
        parent.store(1, Relaxed);
        Self {
            span: space.span(),
            space: Lock::new(space),
            most_at_once,
            decider,
            limited: Limited::new(),
            counters,
            mailbox: Mailbox::default(),
            threads: AtomicU32::new(Threads::NotYet as u32),
            parent,
        }
    }

    /// Whether the library's threads run.
    pub(crate) fn threads(&self) -> Threads {
        Threads::of(self.threads.load(Acquire)).unwrap_or(Threads::InParent)
    }

    /// Notes whether the library's threads run.
    pub(crate) fn set_threads(&self, threads: Threads) {
        self.threads.store(threads as u32, Release);
    }

    /// Notes how much memory the program has in the areas now.
    pub(crate) fn note_mapped(&self, space: &Space) {
        // A child of the program has the counters mapped too.
        if self.threads() != Threads::InParent {
            self.counters.mapped(Bytes((space.taken() - space.reserved()) as u64));
        }
    }
}

/// The program's areas, and what stands behind the memory in them.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) areas: &'static Areas,
    gigantic: Gigantic,
    /// The heap in which the program's memory is to live.
    heap: Option<Heap>,
}

impl Process {
    pub(crate) fn new(areas: &'static Areas, gigantic: Gigantic, heap: Option<Heap>) -> Self {
        Self { areas, gigantic, heap }
    }

    /// The backing of the program's memory now. A child of a fork that has no pager has all of its parent's heap in memory,
    /// as ordinary pages.
    pub(crate) fn backing(&self) -> &dyn Backing {
        match &self.heap {
            Some(heap) if self.areas.threads() != Threads::InParent => heap,
            _ => &self.gigantic,
        }
    }

    /// The backing for which the library's threads are started, also in the child of a fork.
    pub(crate) fn started_backing(&self) -> &dyn Backing {
        match &self.heap {
            Some(heap) => heap,
            None => &self.gigantic,
        }
    }

    /// Makes this the state of the child of a fork, which has none of the library's threads, and none of its memory is
    /// registered. Where nothing is in a heap yet, the child has one as its parent does: a server may fork first.
    pub(crate) fn in_child(&self) {
        thread::forget_all();
        self.areas.parent.store(1, Relaxed);
        self.areas.limited.in_child();
        if self.heap.is_none() || self.areas.threads() != Threads::NotYet {
            self.areas.set_threads(Threads::InParent);
        }
        self.gigantic.in_child();
    }
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());

/// The process, if it is managed.
pub(crate) fn managed() -> Option<&'static Process> {
    let process = shared()?;
    if process.areas.parent.load(Relaxed) == 0 {
        // A fork that nobody heard of. What was held by a thread of the parent is held by nobody.
        process.in_child();
        process.areas.space.forget_holder();
    }
    Some(process)
}

/// As [`managed`], in the middle of a fork.
pub(crate) fn shared() -> Option<&'static Process> {
    // SAFETY: it is null, or was made by `publish` and lives for ever.
    unsafe { PROCESS.load(Acquire).as_ref() }
}

/// Makes this the state of the process, from now on and for ever.
pub(crate) fn publish(process: &'static Process) {
    PROCESS.store(core::ptr::from_ref(process).cast_mut(), Release);
}
