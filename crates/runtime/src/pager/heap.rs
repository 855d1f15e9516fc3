//! A heap that lives in a file, as the backing of the program's memory: the program's calls are carried out so that the heap stays
//! whole, registered, and one VMA as far as possible.
//!
//! Memory that is given back is emptied and kept as reserved memory. Advice about page sizes is not passed on: it would cut
//! the heap into VMAs, across which no huge page moves.

#![expect(unsafe_code, reason = "carries out the program's own changes to its memory")]

use super::handover::{Finds, Handover};
use super::table::Advised;
use super::{FAULT_THREADS, Pager, WORKERS};
use crate::areas::{Areas, Process, Threads};
use crate::backing::{
    Backing, Child, Effect, Forked, Outside, Place, READ_WRITE, Remap, effect, leave_malloc,
};
use crate::end;
use crate::lock::Guard;
use crate::memory::{map, protect, unmap, used};
use crate::numbered::numbered;
use crate::service::{Answer, Request};
use crate::space::{Space, Use};
use crate::start::{end_without_heap, open_of};
use crate::sys::{self, Descriptor, Errno, Mmap, PAGE, Part, Result, Span};
use crate::thread;
use crate::uffd::{Fault, Userfaultfd};
use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize};
use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE,
    MAP_STACK, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_NONE,
};
use superpage_launch::{Heap as Config, OpenFile, SPARE};
use superpage_units::Pid;

/// The heap in which the program's memory lives.
#[derive(Debug)]
pub(crate) struct Heap {
    pub(super) areas: &'static Areas,
    config: Config,
    /// The process that has the heap's file open, and that of its counters.
    parent: Pid,
    counters: OpenFile,
    /// Set by the service thread, once all threads run; null before. In a child of a fork the copy of its parent's, until it has one of
    /// its own.
    pager: AtomicPtr<Pager>,
    /// The same, before the other threads run.
    made: AtomicPtr<Pager>,
    /// The bytes of the program's memory that there is room for in the file, as far as was asked.
    room: AtomicUsize,
    /// The advice that the service thread is to follow.
    advice: AtomicI32,
    /// The things that a fork prepares for the pager of its child.
    pub(super) handover: Handover,
}

numbered! {
    /// The requests to the service thread.
    pub(super) enum Wanted {
        /// Empty a part of the heap.
        Discard,
        /// Empty a part of the heap that another mapping takes the place of.
        Leave,
        /// Have all of the heap in memory, and keep it there.
        Hold,
        /// Let pages of the heap leave memory again, and have the pager go on.
        LetGo,
        /// Have a part of the areas, which was mapped anew, be heap again.
        Renew,
        /// Have the pager stand still, so that the child of a fork can have one of its own.
        StandStill,
        /// Make room in the file for the length of the part.
        MakeRoom,
        /// Empty a part of the heap that the program has unmapped.
        Unmap,
        /// Follow the advice of the program about a part of the heap.
        Advise,
    }
}

const NOTHING: Span = Span { start: 0, length: 0 };

/// The advice that the pager follows. Which page sizes there are is the policy's to say.
const FOLLOWED: [i32; 6] = [
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
    libc::MADV_SEQUENTIAL,
    libc::MADV_WILLNEED,
    libc::MADV_COLD,
    libc::MADV_PAGEOUT,
];

impl Heap {
    pub(crate) fn new(areas: &'static Areas, config: Config, parent: Pid, file: OpenFile) -> Self {
        let counters = &areas.counters.heap;
        counters.size.store(config.size.0, Relaxed);
        counters.memory.store(0, Relaxed);
        counters.most.store(0, Relaxed);
        Self {
            areas,
            config,
            parent,
            counters: file,
            pager: AtomicPtr::default(),
            made: AtomicPtr::default(),
            room: AtomicUsize::new(0),
            advice: AtomicI32::new(libc::MADV_NORMAL),
            handover: Handover::new(),
        }
    }

    /// The pager, once the library's threads run.
    pub(super) fn pager(&self) -> Option<&'static Pager> {
        // SAFETY: it is null, or was leaked by `set_made`.
        unsafe { self.pager.load(Acquire).as_ref() }
    }

    fn set_made(&self, pager: Pager) {
        self.made.store(Box::into_raw(Box::new(pager)), Release);
    }

    /// Starts the library's threads, if they have not been needed so far. The caller holds the lock of the space.
    fn start_threads(&self) {
        if self.areas.threads() == Threads::NotYet {
            let before = sys::address_space();
            self.areas.start_threads();
            self.areas.limited.note_own(before);
        }
    }

    /// Asks the service thread. The caller holds the lock of the space.
    pub(super) fn request(&self, wanted: Wanted, part: Span) -> Answer {
        let Some(pager) = self.pager() else { return Answer::Refused };
        let answer = self.areas.ask(wanted as u32, part);
        if self.areas.threads() == Threads::Failed {
            pager.end_without_threads();
        }
        answer
    }

    /// Makes room in the file for what a span is to hold; whether the heap may be so large. What is only reserved takes none.
    ///
    /// # Errors
    /// ENOMEM where the disk is full.
    fn make_room(&self, space: &Space, span: Span, protection: i32) -> Result<bool> {
        let more = span.length - space.used_in(span);
        let (needed, most) =
            (space.taken() - space.reserved() + more, sys::to_usize(self.config.size.0));
        if protection == PROT_NONE || more == 0 {
            return Ok(true);
        }
        if needed > most {
            return Ok(false);
        }
        if needed > self.room.load(Relaxed) {
            let step = sys::to_usize(SPARE.0);
            let made = |length: &usize| {
                self.request(Wanted::MakeRoom, Span { start: 0, length: *length }) == Answer::Done
            };
            let room = [needed.next_multiple_of(step).min(most), needed].into_iter().find(made);
            self.room.store(room.ok_or(Errno::ENOMEM)?, Relaxed);
        }
        Ok(true)
    }

    /// Whether `more` bytes in the heap would be past the limit of address space that the program has set for itself.
    fn is_past_limit(&self, space: &Space, more: usize) -> bool {
        self.areas.limited.address_space().is_some_and(|(limit, own)| {
            let others = sys::address_space().unwrap_or(0).saturating_sub(sys::to_usize(own));
            (space.taken() + more + others) as u64 > limit
        })
    }

    /// Empties a part of the heap, and makes it reserved memory.
    fn give_back_run(&self, space: &mut Guard<'_, Space>, part: Span) -> Result<()> {
        if space.is_plain(part) {
            self.request(Wanted::Discard, part);
            // SAFETY: the program has given it back.
            unsafe { sys::mprotect(part, PROT_NONE) }?;
            sys::leave_out_of_dumps(part);
            // Another thread may have touched it since.
            self.request(Wanted::Unmap, part);
        } else {
            // The memory may be locked, a file, or sealed, which the kernel refuses.
            // SAFETY: as above.
            unsafe { sys::reserve(part) }?;
            self.request(Wanted::Unmap, part);
            if self.request(Wanted::Renew, part) == Answer::Refused {
                space.set(part, Use::Special);
                return Ok(());
            }
        }
        space.set(part, Use::Free);
        Ok(())
    }

    /// Follows advice of the program about a part of the heap, one of [`FOLLOWED`].
    fn follow_advice(&self, pager: &Pager, part: Span) {
        match self.advice.load(Relaxed) {
            libc::MADV_NORMAL => pager.forget_advice(part),
            libc::MADV_RANDOM => pager.advise(part, Advised::Random),
            libc::MADV_SEQUENTIAL => pager.advise(part, Advised::Sequential),
            libc::MADV_WILLNEED => pager.will_need(part),
            libc::MADV_COLD | libc::MADV_PAGEOUT => pager.leave_first(part),
            _ => {}
        }
    }

    /// Makes the pager of the program.
    fn begin_program(&self, uffd: &'static Userfaultfd) -> Result<()> {
        // The program's descriptors are not ours to keep open.
        sys::close_all_but(&[uffd.descriptor()]);
        let file = self.file_of(self.parent, self.config.file.descriptor)?;
        let Areas { span, counters, .. } = *self.areas;
        let shared = open_of(self.parent, self.counters, libc::O_RDWR)?;
        self.set_made(Pager::new(span, uffd, file, &shared, &self.config, counters)?);
        Ok(())
    }

    /// The heap's file, which a process or a thread of this one has open under this number.
    ///
    /// # Errors
    /// ESTALE where it has another file open, and what the kernel says.
    pub(super) fn file_of(&self, holder: Pid, descriptor: u32) -> Result<Descriptor> {
        let file = OpenFile { descriptor, ..self.config.file };
        // Not every file system can do without the page cache.
        let open = |flags| open_of(holder, file, libc::O_RDWR | flags);
        open(libc::O_DIRECT).or_else(|_| open(0))
    }

    /// Makes the pager of a child of a fork.
    fn begin_in_child(&self, parents: &Pager, uffd: &'static Userfaultfd) -> Result<()> {
        let (file, claim) = self.handover.received().ok_or(Errno::ENOENT)?;
        if !parents.has_file(&file) {
            return Err(Errno::EBADF);
        }
        let mut kept = [uffd.descriptor(), &file];
        kept.sort_by_key(|kept| kept.0);
        sys::close_all_but(&kept);
        self.set_made(parents.of_child(uffd, file, claim)?);
        Ok(())
    }
}

impl Backing for Heap {
    fn find(&self, space: &Space, asked: &Mmap, length: usize) -> Result<Option<Span>> {
        self.start_threads();
        if self.areas.threads() != Threads::Run || self.pager().is_none() {
            end_without_heap(
                "the library's threads could not be started, or its file is another process's",
            );
        }
        let Some(span) = space.find(length, asked.hint(), &|_| true) else { return Ok(None) };
        if self.is_past_limit(space, length) {
            return Err(Errno::ENOMEM);
        }
        Ok(self.make_room(space, span, asked.protection)?.then_some(span))
    }

    /// Says it of the first one for which there is no room.
    fn note_outside(&self, length: usize, why: Outside) {
        let counters = &self.areas.counters.heap;
        let counter = match why {
            Outside::NoRoom => &counters.outside,
            Outside::Shared => &counters.shared,
        };
        if counter.fetch_add(length as u64, Relaxed) == 0 && why == Outside::NoRoom {
            sys::complain(
                "superpage: the heap has no room for a mapping, which becomes ordinary memory, as more may: give a larger --heap-size\n",
            );
        }
    }

    fn open(&self, _: &Space, span: Span, protection: i32) -> Result<()> {
        // SAFETY: free pages of the areas are reserved memory that nobody uses.
        unsafe { sys::open_reserved(span, protection) }
    }

    unsafe fn map_fixed(
        &self,
        space: &mut Guard<'_, Space>,
        asked: Mmap,
        Place { span, inside }: Place,
    ) -> Result<usize> {
        self.start_threads();
        if inside == span && is_heap(asked) {
            if !self.make_room(space, inside, asked.protection)? {
                return Err(Errno::ENOMEM);
            }
            self.give_back(space, inside)?;
            self.open(space, inside, asked.protection)?;
            space.set(inside, used(asked.protection));
            return Ok(inside.start);
        }
        // The pager loses the content of the place when it gives that up: so a mapping elsewhere shows first whether the kernel does it.
        let mut tried = Mmap { address: 0, length: PAGE, ..asked };
        tried.flags &= !(MAP_FIXED | MAP_POPULATE | libc::MAP_LOCKED);
        // SAFETY: the kernel chooses an unused place, and nothing is there yet. Huge pages of the kernel's pool stay for others.
        unsafe {
            if asked.flags & libc::MAP_HUGETLB == 0 {
                sys::mmap(tried).and_then(|place| sys::munmap(place, PAGE))?;
            }
        }
        self.request(Wanted::Leave, inside);
        space.set(inside, Use::Special);
        // SAFETY: the caller's promise.
        unsafe { sys::mmap(asked) }
    }

    fn give_back(&self, space: &mut Guard<'_, Space>, span: Span) -> Result<()> {
        let mut rest = span;
        while rest.length > 0
            && let Some(run) = space.first_run(rest)
        {
            self.give_back_run(space, run)?;
            rest = Span { start: run.end(), length: span.end() - run.end() };
        }
        Ok(())
    }

    fn protect(
        &self,
        space: &mut Guard<'_, Space>,
        Place { inside, .. }: Place,
        protection: i32,
        change: &dyn Fn() -> Result<usize>,
    ) -> Result<usize> {
        if !self.make_room(space, inside, protection)? {
            return Err(Errno::ENOMEM);
        }
        let done = change()?;
        space.protect(inside, used(protection));
        Ok(done)
    }

    fn before_special(&self, _: &Space, _: Span) -> Result<()> {
        Ok(())
    }

    fn before_use(&self, space: &Space, span: Span) -> Result<()> {
        if self.make_room(space, span, READ_WRITE)? { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// The memory stays heap, and is renewed when it is given back.
    fn set_apart(&self, space: &mut Space, span: Span) {
        space.set_apart(span);
    }

    /// By way of a place outside, because the pager loses the content of the place when it gives that up.
    unsafe fn take_over(&self, space: &mut Space, asked: Remap, inside: Span) -> Result<usize> {
        let Remap { source, length, flags, to } = asked;
        // SAFETY: the kernel chooses an unused place.
        let place = unsafe { sys::mmap(Mmap::anywhere(length, PROT_NONE, MAP_NORESERVE)) }?;
        // SAFETY: the caller's promise; nothing is in that place.
        if let Err(errno) = unsafe { sys::mremap(source, length, flags, place) } {
            // SAFETY: as above.
            let _ = unsafe { sys::munmap(place, length) };
            return Err(errno);
        }
        self.request(Wanted::Leave, inside);
        space.set(inside, Use::Special);
        let moved = Span { start: place, length };
        // SAFETY: the caller's promise.
        unsafe { sys::mremap(moved, length, MREMAP_MAYMOVE | MREMAP_FIXED, to) }
    }

    fn advise(&self, mut space: Guard<'_, Space>, span: Span, advice: i32) -> Result<usize> {
        // A page that comes in overwrites what the kernel marks a guard with (UFFDIO_COPY). Callers do without on a kernel before
        // 6.13, which answers the same.
        const GUARD_INSTALL: i32 = 102;
        const GUARD_REMOVE: i32 = 103;
        // SAFETY: the program gives this advice.
        let ask = || unsafe { sys::madvise(span, advice) };
        match (advice, effect(advice)) {
            (GUARD_INSTALL | GUARD_REMOVE, _) => return Err(Errno::EINVAL),
            (_, Effect::Empties) => {
                if !space.is_plain(span) {
                    ask()?; // the kernel refuses it of memory that is locked
                }
                self.request(Wanted::Discard, span);
                return Ok(0);
            }
            (libc::MADV_DODUMP | libc::MADV_DOFORK, _) => {}
            (libc::MADV_NOHUGEPAGE, _) | (_, Effect::Hint) => {
                if FOLLOWED.contains(&advice) {
                    self.advice.store(advice, Relaxed);
                    self.request(Wanted::Advise, span);
                }
                return Ok(0);
            }
            (_, Effect::AsItIs) => {
                drop(space);
                return ask();
            }
            (_, Effect::Special) => {}
        }
        if matches!(advice, libc::MADV_DONTFORK | libc::MADV_WIPEONFORK) {
            self.handover.rule_out();
        }
        let done = ask()?;
        self.set_apart(&mut space, span);
        Ok(done)
    }

    /// By a copy: the kernel would leave the heap's registration behind. What was asked of the kernel for the memory stays behind too,
    /// but for its protection, and that it is left out of dumps.
    unsafe fn relocate(&self, space: Guard<'_, Space>, asked: Remap) -> Result<usize> {
        let Remap { source, length, to, .. } = asked;
        let kept = Span { start: source.start, length: source.length.min(length) };
        let is_plain = space.is_plain(source);
        drop(space);
        if !is_plain {
            each_part(kept, |part| may_change(&part))?;
            let first = sys::first_part(source).map_err(|_| Errno::ENOMEM)?;
            // The kernel answers this where the source is more than one VMA.
            if length > source.length && first.span != source {
                return Err(Errno::EFAULT);
            }
        }
        let fixed = if asked.has(MREMAP_FIXED) { MAP_FIXED } else { 0 };
        let protection = if is_plain { READ_WRITE } else { PROT_NONE };
        let mut target = Mmap::anywhere(length, protection, MAP_NORESERVE | fixed);
        target.address = if fixed != 0 { to } else { 0 };
        let process = crate::areas::shared().ok_or(Errno::ENOMEM)?;
        // SAFETY: the caller's promise.
        let start = unsafe { map(process, target) }?;
        let target = Span { start, length };
        if is_plain {
            // SAFETY: both are the program's, may be read and written, and do not overlap.
            unsafe { copy(kept, start) };
        } else {
            let copied = each_part(kept, |part| self.copy_part(process, &part, source, target));
            if copied.is_err() {
                // SAFETY: the copy is nobody's.
                let _ = unsafe { unmap(process, start, length) };
                return Err(Errno::ENOMEM);
            }
            // Nobody can tell cheaply whether the program wanted it so.
            sys::leave_out_of_dumps(target);
        }
        let mut space = self.areas.space.take();
        if asked.has(MREMAP_DONTUNMAP) {
            self.request(Wanted::Discard, source);
        } else {
            self.give_back(&mut space, source)?;
        }
        Ok(start)
    }

    /// Memory that lives in a file is not locked as a whole: what the pager has ready for pages would be locked as well, several
    /// times what may be in memory.
    fn before_lock_all(&self) -> Result<()> {
        Err(Errno::ENOMEM)
    }

    /// The threads need address space, so they are started before. The memory of the heap goes on to be placed there, by exact sizes.
    fn before_limit(&self) {
        let space = self.areas.space.take();
        self.start_threads();
        drop(space);
        leave_malloc(NOTHING);
    }

    /// The threads would have the filter of the thread that starts them, so they are started before.
    fn before_filter(&self) {
        let _space = self.areas.space.take();
        self.start_threads();
    }

    /// A page of the heap that is not in memory would be zeroes to the child. So the child gets a pager of its own
    /// ([`handover`](super::handover)); where it cannot, all of the heap is brought into memory; and where that cannot be, the
    /// fork is refused.
    fn before_fork(&self, _: &Space, child: Child) -> Result<()> {
        let finds = match self.pager() {
            None => Finds::All,
            Some(pager) if child == Child::Served && self.prepare_child(pager).is_ok() => {
                Finds::Served
            }
            Some(_) => match self.request(Wanted::Hold, NOTHING) {
                Answer::Done => Finds::All,
                Answer::Refused => Finds::Part,
            },
        };
        self.handover.set_finds(finds);
        if finds == Finds::Part { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    fn after_fork(&self, forked: Forked) {
        if let Some(pager) = self.pager() {
            if forked == Forked::Nobody && self.handover.finds() == Finds::Served {
                self.handover.retract(pager);
            }
            self.handover.close_file();
            self.request(Wanted::LetGo, NOTHING);
        }
    }

    fn begin_child(&self) -> bool {
        match self.handover.finds() {
            Finds::All => true,
            Finds::Served => self.handover.begin(self.areas),
            Finds::Part => false,
        }
    }

    fn forget_child(&self) {
        if let Some(pager) = self.pager() {
            let _space = self.areas.space.take();
            self.handover.forget_failed(pager);
        }
    }

    fn fault_threads(&self) -> usize {
        FAULT_THREADS
    }

    fn begin(&self, uffd: Option<&'static Userfaultfd>) -> Result<()> {
        let uffd = uffd.ok_or(Errno::EPERM)?;
        match self.pager() {
            None => self.begin_program(uffd),
            Some(parents) => self.begin_in_child(parents, uffd),
        }
    }

    /// A fork asks nothing of threads that do not run.
    fn note_served(&self, _: &'static Userfaultfd) {
        self.pager.store(self.made.load(Acquire), Release);
        if self.areas.threads() == Threads::InParent {
            self.areas.set_threads(Threads::Run);
        }
    }

    fn workers(&self) -> usize {
        WORKERS
    }

    fn work(&self) {
        if let Some(pager) = self.pager() {
            pager.run(self.areas);
        }
    }

    fn serve(&self, _: &Userfaultfd, fault: Fault) {
        if let Some(pager) = self.pager() {
            pager.serve_always(self.areas, fault);
        }
    }

    /// Nobody else could bring back what is in the file, so the program is ended.
    fn give_up_faults(&self) {
        self.areas.counters.heap.failed.store(1, Relaxed);
        if thread::one_has_ended() {
            end::for_lack_of_a_thread();
        }
        sys::end_process(1);
    }

    fn carry_out(&self, request: &Request) -> Answer {
        let (Some(pager), Some(wanted)) = (self.pager(), Wanted::of(request.kind)) else {
            return Answer::Refused;
        };
        let part = request.part;
        let done = match wanted {
            Wanted::Hold => pager.hold_all(),
            Wanted::Renew => pager.renew(part),
            Wanted::MakeRoom => pager.make_room(part.length),
            Wanted::StandStill => pager.stand_still().map(|claim| self.handover.expect(claim)),
            Wanted::LetGo => {
                pager.go_on();
                pager.release();
                Ok(())
            }
            Wanted::Discard => {
                pager.discard(part);
                Ok(())
            }
            Wanted::Leave => {
                pager.leave(part);
                Ok(())
            }
            Wanted::Unmap => {
                pager.discard(part);
                pager.forget_advice(part);
                Ok(())
            }
            Wanted::Advise => {
                self.follow_advice(pager, part);
                Ok(())
            }
        };
        if done.is_ok() { Answer::Done } else { Answer::Refused }
    }
}

/// Whether a mapping at a fixed place is no more than memory of the heap with another protection.
const fn is_heap(asked: Mmap) -> bool {
    const WANTED: i32 = MAP_PRIVATE | MAP_ANONYMOUS;
    const ALLOWED: i32 =
        WANTED | MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_NORESERVE | MAP_POPULATE | MAP_STACK;
    asked.flags & WANTED == WANTED && asked.flags & !ALLOWED == 0
}

/// Does something with each part of memory of the program's.
fn each_part(of: Span, mut act: impl FnMut(Part) -> Result<()>) -> Result<()> {
    let mut rest = of;
    while rest.length > 0 {
        let part = sys::first_part(rest).map_err(|_| Errno::ENOMEM)?;
        act(part)?;
        rest = Span { start: part.span.end(), length: rest.end() - part.span.end() };
    }
    Ok(())
}

/// Asks the kernel whether the program may change what a part of its memory is: not where it is sealed.
fn may_change(part: &Part) -> Result<()> {
    // SAFETY: the part has this protection.
    unsafe { sys::mprotect(part.span, part.protection) }.map(|_| ())
}

/// Copies memory of the program's.
///
/// # Safety
/// The memory may be read, the place may be written to, and the two do not overlap.
unsafe fn copy(from: Span, to: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        core::ptr::copy_nonoverlapping(from.start as *const u8, to as *mut u8, from.length);
    }
}

impl Heap {
    /// Copies a part of `from` to its place in `to`, which is reserved memory, and gives the copy the same rights: of the last part
    /// all that follows. A part that the program may not read can be read meanwhile.
    fn copy_part(&self, process: &Process, part: &Part, from: Span, to: Span) -> Result<()> {
        let Part { span, protection } = *part;
        let start = to.start + (span.start - from.start);
        let is_last = span.end() == from.end() || start + span.length == to.end();
        let end = if is_last { to.end() } else { start + span.length };
        let whole = Span { start, length: end - start };
        let give = |protection| {
            // SAFETY: the copy is the program's.
            let change = || unsafe { sys::mprotect(whole, protection) };
            protect(process, whole.start, whole.length, protection, &change).map(|_| ())
        };
        let holds_nothing = self.areas.space.take().used_in(span) == 0;
        if !holds_nothing {
            // SAFETY: the part is the program's, which is about to lose it.
            let change = |protection| unsafe { sys::mprotect(span, protection) };
            let is_readable = protection & libc::PROT_READ != 0;
            if !is_readable {
                change(libc::PROT_READ)?;
            }
            let opened = give(READ_WRITE);
            if opened.is_ok() {
                // SAFETY: both are the program's, can be read and written now, and do not overlap.
                unsafe { copy(span, start) };
            }
            if !is_readable {
                change(protection)?;
            }
            opened?;
        }
        give(protection)
    }
}
