//! The handover from a fork to the pager of its child, which has threads, a userfaultfd and descriptors of its own.
//!
//! | where | what |
//! |---|---|
//! | the thread that forks, before | tries whether it may have a userfaultfd; has the pager stand still ([`Pager::stand_still`]); takes the file of the heap into its table of descriptors, which the child will have a copy of; touches what libc touches in the child before the child comes here |
//! | the same thread, after | has the pager go on, and closes the file |
//! | the child's thread | starts the first thread of its library, with a table of descriptors of its own, waits, and closes the file; only then may it touch the heap |
//! | that thread | makes the pager ([`Pager::of_child`]) and starts the others |
//!
//! If any step of the first row fails, all of the heap is brought into memory instead, or the fork refused. Where the child fails,
//! it ends with a message: it would read zeroes for data.

#![expect(unsafe_code, reason = "takes a descriptor over, and touches what libc will touch")]

use super::heap::{Heap, Wanted};
use super::{Claim, Pager};
use crate::areas::Areas;
use crate::lock::OwnLock;
use crate::next::{Next, next};
use crate::numbered::numbered;
use crate::service::Answer;
use crate::start;
use crate::sys::{self, Descriptor, Errno, PAGE, Result, Span};
use crate::thread;
use crate::uffd::Userfaultfd;
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};
use superpage_units::Pid;

numbered! {
    /// The part of the heap that the child of a fork will find.
    pub(super) enum Finds {
        /// All of it in memory.
        All,
        /// A part in memory, and the rest in the file, for a pager of its own.
        Served,
        /// A part only: it must not go on.
        Part,
    }
}

/// The things that a thread prepares before it forks.
#[derive(Debug)]
pub(super) struct Handover {
    /// A [`Finds`].
    finds: AtomicU32,
    /// The file, in the table of the thread that forks.
    file: AtomicI32,
    /// The child's reference to the pages of the file.
    claim: OwnLock<Option<Claim>>,
    /// The thread that forks, once all is prepared; zero if none does.
    forker: AtomicU32,
    /// Whether a part of the heap is not to be the child's, as the program has told the kernel.
    is_ruled_out: AtomicBool,
}

/// No file.
const NONE: i32 = -1;

impl Handover {
    pub(super) const fn new() -> Self {
        Self {
            finds: AtomicU32::new(Finds::All as u32),
            file: AtomicI32::new(NONE),
            claim: OwnLock::new(None),
            forker: AtomicU32::new(0),
            is_ruled_out: AtomicBool::new(false),
        }
    }

    /// The part of the heap that the child of the fork will find which was prepared last.
    pub(super) fn finds(&self) -> Finds {
        Finds::of(self.finds.load(Relaxed)).unwrap_or(Finds::Part)
    }

    /// Notes it.
    pub(super) fn set_finds(&self, finds: Finds) {
        self.finds.store(finds as u32, Relaxed);
    }

    /// The program has asked of the kernel that a child gets no copy of some memory: no child has a pager from now on.
    pub(super) fn rule_out(&self) {
        self.is_ruled_out.store(true, Relaxed);
    }

    /// The child begins with this reference.
    pub(super) fn expect(&self, claim: Claim) {
        self.claim.with(|place| *place = Some(claim));
    }

    /// In the child: the file, in a table of descriptors that is a copy of that of the thread which forked, and the reference to its
    /// pages.
    pub(super) fn received(&self) -> Option<(Descriptor, Claim)> {
        let claim = self.claim.with(|claim| *claim)?;
        Some((Descriptor(self.file.load(Relaxed)), claim))
    }

    /// Closes the file in the thread that has prepared a fork: it has forked, or will not.
    pub(super) fn close_file(&self) {
        let file = self.file.swap(NONE, Relaxed);
        if file != NONE {
            drop(Descriptor(file));
        }
    }

    /// Gives the claim up of a child that will not come.
    pub(super) fn retract(&self, pager: &Pager) {
        self.forker.store(0, Relaxed);
        if let Some(claim) = self.claim.with(|claim| *claim) {
            pager.forget_child(claim);
        }
    }

    /// Gives the claim up that the calling thread has prepared, because libc's fork has failed in it: libc's handlers are not told.
    /// The caller holds the lock of the space.
    pub(super) fn forget_failed(&self, pager: &Pager) {
        if self.forker.load(Relaxed) == sys::thread() {
            self.retract(pager);
        }
    }

    /// Begins in the child, in its only thread; whether there is a pager. It holds the lock of the space.
    pub(super) fn begin(&self, areas: &Areas) -> bool {
        let has_begun = start::start_threads(areas);
        self.close_file();
        has_begun
    }
}

impl Heap {
    /// Has the pager stand still, with all that a child needs for its own. The caller holds the lock of the space.
    ///
    /// # Errors
    /// The cause for which a child can have none; the pager goes on then.
    pub(super) fn prepare_child(&self, pager: &Pager) -> Result<()> {
        let handover = &self.handover;
        handover.forker.store(0, Relaxed);
        let here = PAGE;
        // A thread whose stack lies in the heap would touch it before there is a pager.
        let is_stack_in_heap = self.areas.span.contains(core::ptr::from_ref(&here).addr());
        if handover.is_ruled_out.load(Relaxed) || is_stack_in_heap || has_many_keys() {
            return Err(Errno::EBUSY);
        }
        drop(Userfaultfd::open(1)?);
        let nothing = Span { start: 0, length: 0 };
        if self.request(Wanted::StandStill, nothing) == Answer::Refused {
            return Err(Errno::ENOMEM);
        }
        // A unit's filter of system calls (SystemCallFilter=@system-service) kills for pidfd_getfd, which only a program needs that
        // may not be looked at (PR_SET_DUMPABLE).
        let (holder, number) = (thread::service(), pager.descriptor());
        let opened = self.file_of(Pid(holder), number.unsigned_abs());
        let file = opened.or_else(|_| sys::descriptor_of(holder, number)).inspect_err(|_| {
            handover.retract(pager);
            self.request(Wanted::LetGo, nothing);
        })?;
        handover.file.store(file.0, Relaxed);
        core::mem::forget(file);
        touch_files();
        touch_thread();
        handover.forker.store(sys::thread(), Relaxed);
        Ok(())
    }
}

/// Whether the program has more keys of thread-specific data than glibc has room for in a thread itself. It allocates the
/// rest, and clears that of all other threads in the child.
fn has_many_keys() -> bool {
    const ROOM: libc::pthread_key_t = 32; // glibc's PTHREAD_KEY_2NDLEVEL_SIZE
    let mut key = 0;
    // SAFETY: libc writes the key, which nobody else knows.
    unsafe {
        libc::pthread_key_create(&raw mut key, None) != 0 || {
            libc::pthread_key_delete(key);
            key >= ROOM
        }
    }
}

type Act = extern "C" fn();
type Walk = extern "C" fn(*mut c_void) -> *mut c_void;

next! {
    LOCK, c"_IO_list_lock": Act;
    UNLOCK, c"_IO_list_unlock": Act;
    FIRST, c"_IO_iter_begin": extern "C" fn() -> *mut c_void;
    NEXT, c"_IO_iter_next": Walk;
    FILE, c"_IO_iter_file": Walk;
}

/// The places in glibc's `FILE` of its flags, of the next one and of its lock. They are part of its binary interface.
const FLAGS_AT: usize = 0;
const CHAIN_AT: usize = 104;
const LOCK_AT: usize = 136;

/// Touches the open files of libc, whose locks it resets in the child of a program with several threads.
fn touch_files() {
    let all = (LOCK.get(), UNLOCK.get(), FIRST.get(), NEXT.get(), FILE.get());
    let (Some(lock), Some(unlock), Some(first), Some(next), Some(file)) = all else { return };
    lock();
    let mut at = first();
    while !at.is_null() {
        touch_file(file(at).addr());
        at = next(at);
    }
    unlock();
}

/// Touches the table through which the calling thread's thread-local variables are found: libc allocates it, so it may lie in
/// the heap, and the child reads it before it has a pager.
fn touch_thread() {
    const ENTRY: usize = 2 * size_of::<usize>();
    let table: usize;
    // SAFETY: glibc keeps the table's address at this place of each thread.
    unsafe { core::arch::asm!("mov {}, fs:[8]", out(reg) table, options(nostack, readonly)) };
    let first = table - ENTRY;
    // SAFETY: the entry before the first is the number of entries; the table lives as long as the thread.
    let count = unsafe { (first as *const usize).read_volatile() };
    let end = table + (count + 1) * ENTRY;
    for address in (first..end).step_by(PAGE).chain([end - 1]) {
        // SAFETY: as above.
        unsafe { (address as *const u8).read_volatile() };
    }
}

fn touch_file(file: usize) {
    let touch = |address: usize| {
        // SAFETY: the file is in libc's list, which is locked, and its lock lives as long as it.
        unsafe { (address as *const usize).read_volatile() }
    };
    touch(file + FLAGS_AT);
    touch(file + CHAIN_AT);
    let lock = touch(file + LOCK_AT);
    if lock != 0 {
        touch(lock);
        touch(lock + size_of::<usize>());
    }
}
