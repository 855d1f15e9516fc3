//! The trait [`Backing`]: pages by policy ([`gigantic`](crate::gigantic)), or a heap that lives in
//! a file ([`pager`](crate::pager)), stands behind the program's memory in the areas.
//!
//! The calls of the program ([`memory`](crate::memory)) know neither. They keep the [`Space`], and ask a backing to carry out what
//! it has a way of its own for. Unless it says otherwise, a function here is called with the lock of the space held, and about a
//! part of the areas in whole pages.

#![expect(unsafe_code, reason = "carries out the program's own changes to its memory")]

use crate::lock::Guard;
use crate::service::{Answer, Request};
use crate::space::Space;
use crate::sys::{Errno, Mmap, PAGE, Result, Span};
use crate::uffd::{Fault, Userfaultfd};
use libc::{MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};
use superpage_launch::symbols;

/// A protection as the kernel wants it, of memory that may be read and written.
pub(crate) const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Where a mapping is that the program asks for at a place in the areas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The whole mapping.
    pub(crate) span: Span,
    /// The part of the mapping that lies in the areas.
    pub(crate) inside: Span,
}

/// Arguments of mremap, in whole pages, as far as the kernel does not refuse them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remap {
    pub(crate) source: Span,
    pub(crate) length: usize,
    pub(crate) flags: i32,
    pub(crate) to: usize,
}

impl Remap {
    /// Whether it has this flag, or one of these.
    pub(crate) const fn has(self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    /// Refuses what the kernel refuses, before anything is changed.
    ///
    /// # Errors
    /// EINVAL.
    pub(crate) fn validate(self) -> Result<()> {
        let Self { source, length, to, .. } = self;
        let (is_fixed, keeps) = (self.has(MREMAP_FIXED), self.has(MREMAP_DONTUNMAP));
        let is_place = to.is_multiple_of(PAGE)
            && to.checked_add(length).is_some()
            && Span { start: to, length }.overlap(source).is_none();
        let is_wrong = (is_fixed || keeps) && !self.has(MREMAP_MAYMOVE)
            || keeps && length != source.length
            || is_fixed && !is_place;
        if is_wrong { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// The fixed place where it goes, if there is one.
    pub(crate) fn target(self) -> Option<Span> {
        let is_there = self.has(MREMAP_FIXED) && self.to.checked_add(self.length).is_some();
        is_there.then_some(Span { start: self.to, length: self.length })
    }
}

/// The cause for which a mapping is ordinary memory outside the areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    /// The areas have no room for it.
    NoRoom,
    /// The mapping is shared with other processes.
    Shared,
}

/// The ways in which the child of a fork may get memory that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    /// By threads of its own, or all of it is brought into memory before.
    Served,
    /// All of it is brought into memory before: the child may begin on a stack that lies in it, or share its descriptors.
    Whole,
}

/// A kind of memory that the program's mappings in the areas can be.
pub(crate) trait Backing: Sync {
    /// The place for a new mapping of `length` bytes; nothing if the mapping is to be ordinary memory outside.
    ///
    /// # Errors
    /// ENOMEM if a limit of the program's stands against `length` more bytes.
    fn find(&self, space: &Space, asked: &Mmap, length: usize) -> Result<Option<Span>>;

    /// A new mapping of this length in bytes becomes ordinary memory outside.
    fn note_outside(&self, _length: usize, _why: Outside) {}

    /// Makes free pages memory of the program's, with this protection, that holds zeroes.
    ///
    /// # Errors
    /// The error of mprotect; the pages are reserved memory then.
    fn open(&self, space: &Space, span: Span, protection: i32) -> Result<()>;

    /// The program has what is noted of a span since a moment ago: it was opened, or mapped anew.
    fn note_opened(&self, _space: &mut Space, _span: Span) {}

    /// Gives memory to all pages of a span that was opened, as far as there is any (MAP_POPULATE); a heap, which may be larger than
    /// memory, gives none. The lock of the space is not held.
    fn populate(&self, _span: Span) {}

    /// mmap at a place in the areas, over whatever is there.
    ///
    /// # Errors
    /// As of mmap.
    ///
    /// # Safety
    /// As of mmap.
    unsafe fn map_fixed(
        &self,
        space: &mut Guard<'_, Space>,
        asked: Mmap,
        place: Place,
    ) -> Result<usize>;

    /// Makes what the program has of a span reserved memory again.
    ///
    /// # Errors
    /// ENOMEM, with nothing lost.
    fn give_back(&self, space: &mut Guard<'_, Space>, span: Span) -> Result<()>;

    /// Gives memory of the program's another protection: `change` is the call.
    ///
    /// # Errors
    /// As of mprotect.
    fn protect(
        &self,
        space: &mut Guard<'_, Space>,
        place: Place,
        protection: i32,
        change: &dyn Fn() -> Result<usize>,
    ) -> Result<usize>;

    /// Makes memory of the program's ready for a call that the library does not follow.
    ///
    /// # Errors
    /// ENOMEM.
    fn before_special(&self, space: &Space, span: Span) -> Result<()>;

    /// The program is about to be able to use memory that may only be reserved so far.
    ///
    /// # Errors
    /// ENOMEM where there is no room for it.
    fn before_use(&self, _space: &Space, _span: Span) -> Result<()> {
        Ok(())
    }

    /// Notes that there was such a call.
    fn set_apart(&self, space: &mut Space, span: Span);

    /// Moves memory from outside to a place in the areas, over whatever is there, as mremap does; `inside` is what of the place lies in
    /// the areas. Where that fails nothing there is lost.
    ///
    /// # Errors
    /// As of mremap.
    ///
    /// # Safety
    /// As of mremap.
    unsafe fn take_over(&self, space: &mut Space, asked: Remap, inside: Span) -> Result<usize>;

    /// madvise of memory of the program's.
    ///
    /// # Errors
    /// As of madvise.
    fn advise(&self, space: Guard<'_, Space>, span: Span, advice: i32) -> Result<usize>;

    /// Moves memory of the program's to another place, as mremap does.
    ///
    /// # Errors
    /// As of mremap.
    ///
    /// # Safety
    /// As of mremap.
    unsafe fn relocate(&self, space: Guard<'_, Space>, asked: Remap) -> Result<usize>;

    /// The program is about to lock all its memory. The lock of the space is not held.
    ///
    /// # Errors
    /// ENOMEM where that cannot be.
    fn before_lock_all(&self) -> Result<()>;

    /// The program is about to limit its address space or its data for the first time. The lock of the space is not held.
    fn before_limit(&self);

    /// The program is about to have a second thread. The lock of the space is not held.
    fn before_second_thread(&self) {}

    /// The program is about to have a process that shares its memory, of which the kernel tells nothing. The lock of the space is
    /// not held.
    fn before_second_process(&self) {}

    /// The program has a userfaultfd of its own. The lock of the space is not held.
    fn leave_alone(&self) {}

    /// The program is about to have the kernel filter the calls of all threads (seccomp), of which the library's may make none that it
    /// does without. The lock of the space is not held.
    fn before_filter(&self) {}

    /// The program has mutexes that the kernel changes, in ways that do not wait for a page that is held.
    fn stop_promoting(&self) {}

    /// Has all memory of the program's be such as the child of a fork can have, until [`Backing::after_fork`].
    ///
    /// # Errors
    /// ENOMEM where that cannot be. [`Backing::after_fork`] is called all the same.
    fn before_fork(&self, space: &Space, child: Child) -> Result<()>;

    /// The fork is over that was prepared, or that could not be, or there was none.
    fn after_fork(&self, forked: Forked);

    /// Begins in the child, in its only thread; whether that can reach all of its memory then.
    fn begin_child(&self) -> bool {
        true
    }

    /// A fork has failed in the calling thread that [`Backing::after_fork`] was told to have made a child.
    fn forget_child(&self) {}

    /// The fault threads that it needs.
    fn fault_threads(&self) -> usize;

    /// Begins in the first of the library's threads, before that gives up its rights: with a userfaultfd, unless that could not be
    /// had. Closes all other descriptors, which are the program's.
    ///
    /// # Errors
    /// What the kernel says.
    fn begin(&self, uffd: Option<&'static Userfaultfd>) -> Result<()>;

    /// All threads run that serve what the userfaultfd tells.
    fn note_served(&self, _uffd: &'static Userfaultfd) {}

    /// The number of threads that work while nobody waits.
    fn workers(&self) -> usize;

    /// The work of such a thread, for ever.
    fn work(&self);

    /// Serves a fault. The lock of the space is not held.
    fn serve(&self, uffd: &Userfaultfd, fault: Fault);

    /// No fault can be served any more: the userfaultfd has failed, or one of the library's threads has ended.
    fn give_up_faults(&self);

    /// Carries out a request of a thread of the program, in the service thread.
    fn carry_out(&self, request: &Request) -> Answer;
}

/// The end of a fork, for the process that forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forked {
    /// The fork has made a child.
    Child,
    /// No child will come.
    Nobody,
}

/// The effect of a kind of advice on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The memory is to hold zeroes.
    Empties,
    /// Nothing that a program could see.
    Hint,
    /// The kernel follows the advice whatever stands behind the memory.
    AsItIs,
    /// Anything else.
    Special,
}

/// The effect of this advice.
pub(crate) fn effect(advice: i32) -> Effect {
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
