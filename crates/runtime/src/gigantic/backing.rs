//! The program's calls, as slots carry them out: a slot that is to be changed in part is made ordinary first, and memory that the
//! program gives back becomes reserved memory again, never a hole (the kernel would put another mapping there).

#![expect(unsafe_code, reason = "carries out the program's own changes to its memory")]

use super::Gigantic;
use super::background;
use super::slot::State;
use crate::areas::Threads;
use crate::backing::{
    Backing, Child, Effect, Forked, Place, READ_WRITE, Remap, effect, leave_malloc,
};
use crate::lock::Guard;
use crate::memory::used;
use crate::service::{Answer, Request};
use crate::space::{SlotPages, Space, Use};
use crate::sys::{self, Errno, GIGANTIC, Mmap, Result, Span};
use crate::uffd::{Fault, Kind, Userfaultfd};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use libc::{MAP_ANONYMOUS, MAP_PRIVATE, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_NONE};
use superpage_launch::{Cause, Counters};
use superpage_units::Nanos;

impl Backing for Gigantic {
    fn find(&self, space: &Space, asked: &Mmap, length: usize) -> Result<Option<Span>> {
        Ok(space.find(length, asked.hint(), &|slot| self.may_hold(slot, asked.protection)))
    }

    fn open(&self, space: &Space, span: Span, protection: i32) -> Result<()> {
        for (part, slot) in self.parts(span) {
            if self.slots.wait(slot) == State::Gigantic {
                // Nobody has anything there, but a stray write may have gone to it.
                zero(part);
                continue;
            }
            let is_free = space.slot(slot).is_some_and(SlotPages::is_free);
            if protection == READ_WRITE && is_free && self.map_at_once(part) {
                continue;
            }
            // SAFETY: free pages of the areas are reserved memory that nobody uses.
            if let Err(errno) = unsafe { sys::open_reserved(part, protection) } {
                self.close(space, span);
                return Err(errno);
            }
            if protection != PROT_NONE {
                advise_huge(part);
            }
        }
        Ok(())
    }

    /// Has the first touch told of the slots that have just become the program's plain memory as a whole; and has the threads run
    /// that promote, once there is something to promote.
    fn note_opened(&self, space: &mut Space, span: Span) {
        if !self.may_register() {
            return;
        }
        if space.taken() - space.reserved() >= GIGANTIC && !self.is_large.swap(true, Relaxed) {
            self.tell_background();
        }
        for slot in space.slots_of(span) {
            if self.areas.decider.promotes()
                && space.slot(slot).is_some_and(SlotPages::is_nearly_full)
            {
                self.areas.start_threads();
            }
            if space.take_untouched(slot) {
                self.register(slot);
            }
        }
    }

    /// mmap says nothing of what could not be populated.
    fn populate(&self, span: Span) {
        // SAFETY: the memory is the program's and holds nothing yet.
        let _ = unsafe { sys::madvise(span, libc::MADV_POPULATE_WRITE) };
    }

    unsafe fn map_fixed(
        &self,
        space: &mut Guard<'_, Space>,
        asked: Mmap,
        Place { inside, .. }: Place,
    ) -> Result<usize> {
        self.before_special(space, inside)?;
        // SAFETY: the caller's promise.
        let start = unsafe { sys::mmap(asked) }?;
        let is_plain = asked.flags & (MAP_PRIVATE | MAP_ANONYMOUS) == MAP_PRIVATE | MAP_ANONYMOUS
            && asked.flags & libc::MAP_HUGETLB == 0;
        // New memory holds nothing, whatever was there.
        space.set(inside, Use::Free);
        space.set(inside, if is_plain { used(asked.protection) } else { Use::Special });
        if is_plain {
            advise_huge(inside);
        }
        Ok(start)
    }

    fn give_back(&self, space: &mut Guard<'_, Space>, span: Span) -> Result<()> {
        for (part, slot) in self.parts(span) {
            self.give_back_part(space, slot, part)?;
        }
        Ok(())
    }

    fn protect(
        &self,
        space: &mut Guard<'_, Space>,
        Place { span, inside }: Place,
        protection: i32,
        change: &dyn Fn() -> Result<usize>,
    ) -> Result<usize> {
        let is_plain = protection == READ_WRITE;
        let mut has_change = inside != span;
        for (part, slot) in self.parts(inside) {
            // Memory that is already as it is wanted is left alone.
            let is_as_wanted = is_plain
                && matches!(self.slots.wait(slot), State::Gigantic | State::Fresh)
                && space.is_plain(part);
            if !is_as_wanted {
                has_change = true;
                if self.make_ordinary(space, slot) == Answer::Refused {
                    return Err(Errno::ENOMEM);
                }
            }
        }
        if !has_change {
            return Ok(0);
        }
        let done = change()?;
        space.protect(inside, used(protection));
        if is_plain {
            // Of special memory the program may have asked for no huge pages.
            if space.is_plain(inside) {
                advise_huge(inside);
            }
            self.note_opened(space, inside);
        }
        Ok(done)
    }

    /// Makes all slots of the span ordinary.
    fn before_special(&self, space: &Space, span: Span) -> Result<()> {
        for slot in space.slots_of(span) {
            if self.make_ordinary(space, slot) == Answer::Refused {
                return Err(Errno::ENOMEM);
            }
        }
        Ok(())
    }

    fn set_apart(&self, space: &mut Space, span: Span) {
        space.set(span, Use::Special);
    }

    unsafe fn take_over(&self, space: &mut Space, asked: Remap, inside: Span) -> Result<usize> {
        self.before_special(space, inside)?;
        let Remap { source, length, flags, to } = asked;
        // SAFETY: the caller's promise.
        let done = unsafe { sys::mremap(source, length, flags, to) }?;
        space.set(inside, Use::Special);
        Ok(done)
    }

    fn advise(&self, mut space: Guard<'_, Space>, span: Span, advice: i32) -> Result<usize> {
        // SAFETY: the program gives this advice.
        let ask = |part: Span| unsafe { sys::madvise(part, advice) };
        match effect(advice) {
            Effect::Special => {
                self.before_special(&space, span)?;
                let done = ask(span)?;
                self.set_apart(&mut space, span);
                return Ok(done);
            }
            Effect::AsItIs => {
                drop(space);
                return ask(span);
            }
            Effect::Empties | Effect::Hint => {}
        }
        for (part, slot) in self.parts(span) {
            let is_whole = part.length == GIGANTIC;
            match (self.slots.wait(slot), effect(advice)) {
                (State::Gigantic, Effect::Hint) | (State::Fresh, _) => {}
                (State::Ordinary, _)
                    if advice == libc::MADV_COLLAPSE
                        && is_whole
                        && space.slot(slot).is_some_and(SlotPages::is_plain)
                        && self.promote(slot) == Answer::Done => {}
                (State::Gigantic, _) if is_whole => {
                    self.discard_gigantic(&space, slot, READ_WRITE)?;
                    space.set(part, Use::Free);
                    space.set(part, Use::Plain);
                    self.note_opened(&mut space, part);
                }
                // Emptied memory will mostly be used again, so the gigantic page stays until half of it was.
                (State::Gigantic, _) => match space.note_emptied(slot, part) {
                    true if self.make_ordinary(&space, slot) == Answer::Done => {
                        ask(part).map(|_| ())?
                    }
                    _ => zero(part),
                },
                _ => ask(part).map(|_| ())?,
            }
        }
        Ok(0)
    }

    unsafe fn relocate(&self, mut space: Guard<'_, Space>, asked: Remap) -> Result<usize> {
        let Remap { source, length, flags, to } = asked;
        self.before_special(&space, source)?;
        if !asked.has(MREMAP_FIXED | MREMAP_DONTUNMAP)
            && space.is_plain(source)
            && let Some(to) = space.find(length, 0, &|slot| self.may_hold(slot, PROT_NONE))
        {
            let start = grow(&mut space, source, to)?;
            self.areas.note_mapped(&space);
            self.note_opened(&mut space, to);
            return Ok(start);
        }
        let inside = asked.target().and_then(|target| self.areas.span.overlap(target));
        if let Some(inside) = inside {
            self.before_special(&space, inside)?;
        }
        // SAFETY: the caller's promise.
        let done = unsafe { sys::mremap(source, length, flags, to) }?;
        let moved = Span { start: done, length };
        if !asked.has(MREMAP_DONTUNMAP) && moved.overlap(source).is_none() {
            reserve_hole(&mut space, source);
        }
        if let Some(inside) = inside {
            space.set(inside, Use::Special);
        }
        Ok(done)
    }

    fn before_lock_all(&self) -> Result<()> {
        self.give_up_areas();
        Ok(())
    }

    fn before_limit(&self) {
        self.give_up_areas();
    }

    /// Without the right to hold writes no gigantic page could be demoted in a program with two threads.
    fn before_second_thread(&self) {
        let has_none = self.count() == 0 || self.uffd().is_some();
        if has_none && self.had_second_thread.load(SeqCst) {
            return;
        }
        let space = self.areas.space.take();
        if self.areas.threads() == Threads::Run && self.uffd().is_none() {
            for slot in 0..self.slots.count() {
                if self.slots.state(slot) == State::Gigantic {
                    let _ = self.make_ordinary(&space, slot);
                }
            }
        }
        self.had_second_thread.store(true, SeqCst);
    }

    fn before_second_process(&self) {
        self.before_second_thread();
        self.shares_memory.store(true, SeqCst);
    }

    /// Fresh slots are released, gigantic ones demoted where that can be.
    fn leave_alone(&self) {
        let space = self.areas.space.take();
        self.is_left_alone.store(true, SeqCst);
        for slot in 0..self.slots.count() {
            if self.slots.state(slot) != State::Ordinary {
                let _ = self.make_ordinary(&space, slot);
            }
        }
    }

    /// The kernel has the memory from now on, and no thread of the library is in the middle of a call that may be refused.
    fn before_filter(&self) {
        self.leave_alone();
        self.wait_for_background();
        self.ready.close();
    }

    fn stop_promoting(&self) {
        self.has_stopped_promoting.store(true, Relaxed);
    }

    /// A child would share gigantic pages, and the first write on either side would take another one from the kernel's pool, or kill
    /// the child where the pool is empty. So all are demoted, and no slot gets one until the fork is over.
    fn before_fork(&self, space: &Space, _: Child) -> Result<()> {
        self.forks.fetch_add(1, SeqCst);
        let mut done = Ok(());
        // Also after a refusal: nobody may be copying a slot when the fork comes.
        for slot in 0..self.slots.count() {
            if self.slots.wait(slot) == State::Gigantic
                && self.make_ordinary(space, slot) == Answer::Refused
            {
                done = Err(Errno::ENOMEM);
            }
        }
        done
    }

    fn after_fork(&self, _: Forked) {
        self.forked.begin_or_extend();
        self.forks.fetch_sub(1, SeqCst);
    }

    /// Two, because one may wait for memory that the other has to serve.
    fn fault_threads(&self) -> usize {
        2
    }

    /// Without a userfaultfd the service thread alone can do what a program with one thread needs.
    fn begin(&self, uffd: Option<&'static Userfaultfd>) -> Result<()> {
        match uffd {
            Some(uffd) => sys::close_all_but(&[uffd.descriptor()]),
            None => sys::close_all(),
        }
        Ok(())
    }

    /// Slots are registered only once the threads that serve them run.
    fn note_served(&self, uffd: &'static Userfaultfd) {
        self.uffd.store(core::ptr::from_ref(uffd).cast_mut(), SeqCst);
    }

    fn workers(&self) -> usize {
        1
    }

    fn work(&self) {
        background::run(self);
    }

    /// Many threads may touch one slot at once, and each is told. The first is served; the others only have to
    /// be woken, and a second page moved over the slot would destroy what the first thread has written. So the
    /// state of the slot decides, by one compare-and-exchange.
    fn serve(&self, uffd: &Userfaultfd, fault: Fault) {
        let slot = self.slots.containing(fault.address);
        let span = self.slots.span(slot);
        if fault.kind == Kind::Missing && self.slots.begin(slot, State::Fresh, State::Serving) {
            let begun = sys::now();
            let state = self.serve_first_touch(span, fault.address);
            // The program may end as soon as its thread goes on.
            let time = Nanos(sys::now().0 - begun.0);
            if state == State::Gigantic {
                Counters::waited(&self.areas.counters.longest_first_touch, time);
            }
            self.slots.settle(slot, state);
            uffd.wake(span);
            self.tell_background();
            return;
        }
        // The thread at work in the slot wakes all waiters at its end; in a settled slot the work was done before
        // this fault was read.
        if self.slots.state(slot).is_settled() {
            uffd.wake(span);
        }
    }

    /// Faults are left to the kernel from now on; each of the fault threads says so, and leaves the userfaultfd then.
    /// Gigantic pages stay, and cannot be demoted while the program has more than one thread.
    fn give_up_faults(&self) {
        if !self.has_given_up_faults.swap(true, SeqCst) {
            self.areas.counters.refused.add(Cause::Failed);
        }
        self.uffd.store(core::ptr::null_mut(), SeqCst);
        for slot in 0..self.slots.count() {
            self.slots.begin(slot, State::Fresh, State::Ordinary);
        }
        // When it is closed, accesses that are held go on: nobody may be at work in a slot then, or begin to be.
        for slot in 0..self.slots.count() {
            while self.slots.wait(slot) == State::Fresh {
                self.slots.begin(slot, State::Fresh, State::Ordinary);
            }
        }
    }

    fn carry_out(&self, request: &Request) -> Answer {
        self.answer(request)
    }
}

impl Gigantic {
    /// The parts of a span in its slots.
    fn parts(&self, span: Span) -> impl Iterator<Item = (Span, usize)> {
        let slots = self.slots.containing(span.start)..=self.slots.containing(span.end() - 1);
        slots.filter_map(move |slot| Some((self.slots.span(slot).overlap(span)?, slot)))
    }

    /// Makes pages that were opened for a mapping reserved memory again: the mapping cannot be.
    fn close(&self, space: &Space, span: Span) {
        for (part, slot) in self.parts(span) {
            if self.slots.wait(slot) != State::Gigantic {
                let _ = reserve(part);
            } else if space.slot(slot).is_some_and(SlotPages::is_free) {
                // The gigantic page was mapped for this mapping.
                let _ = self.discard_gigantic(space, slot, PROT_NONE);
            }
        }
    }

    /// Makes a part of a slot reserved memory again.
    fn give_back_part(&self, space: &mut Guard<'_, Space>, slot: usize, part: Span) -> Result<()> {
        // Nothing is copied where nothing is left.
        let is_whole = part.length == GIGANTIC || space.is_all_of(slot, part);
        if is_whole && self.slots.wait(slot) == State::Gigantic {
            self.discard_gigantic(space, slot, PROT_NONE)?;
        } else {
            if self.make_ordinary(space, slot) == Answer::Refused {
                // The part is emptied, and not used again until all of its slot is given back.
                zero(part);
                space.set(part, Use::Special);
                return Ok(());
            }
            // Reserved memory is a VMA, of which there may be no more; a hole is none. What is sealed (mseal) can be neither.
            if reserve(part).is_err() {
                return lose(space, part);
            }
        }
        space.set(part, Use::Free);
        if space.is_closed() {
            return lose(space, part);
        }
        Ok(())
    }

    /// Gives the gigantic page of a slot back to the pool, and maps ordinary memory there. The caller holds the
    /// lock of the space.
    fn discard_gigantic(&self, space: &Space, slot: usize, protection: i32) -> Result<()> {
        space.forget_emptied(slot);
        if !self.slots.begin(slot, State::Gigantic, State::Changing) {
            return Err(Errno::ENOMEM);
        }
        let span = self.slots.span(slot);
        // SAFETY: the program wants all of it gone.
        let done = unsafe { sys::mmap(Mmap::fixed(span, protection)) };
        if done.is_ok() {
            if protection != PROT_NONE {
                advise_huge(span);
            }
            self.remove_gigantic();
        }
        self.slots.settle(slot, if done.is_ok() { State::Ordinary } else { State::Gigantic });
        done.map(|_| ())
    }

    /// Gives the reserved memory of the areas up, and gigantic pages that are ready, and places nothing there any more: the
    /// program limits its address space or its data or locks all its memory, and these would count.
    fn give_up_areas(&self) {
        self.areas.space.take().close();
        let kept = leave_malloc(self.areas.span);
        self.give_up_free();
        self.areas.limited.add_own(kept);
    }

    /// Unmaps what is free of the areas.
    fn give_up_free(&self) {
        let mut space = self.areas.space.take();
        let (slots, entries) = space.give_up();
        for unused in [slots, entries].into_iter().filter(|unused| unused.length > 0) {
            // SAFETY: the program has nothing in the slots, and nothing is kept of them any more.
            let _ = unsafe { sys::munmap(unused.start, unused.length) };
        }
        self.stop_promoting();
        self.ready.close();
        for slot in 0..self.slots.count() {
            // A gigantic page covers free pages of its slot as well.
            if self.slots.wait(slot) == State::Gigantic {
                continue;
            }
            loop {
                let Some(part) = space.free_runs(slot).next() else { break };
                if lose(&mut space, part).is_err() {
                    break;
                }
            }
        }
    }
}

/// Asks for huge pages, which new mappings do not have by themselves. Reserved memory has none, so that
/// khugepaged does not look through all of it.
fn advise_huge(span: Span) {
    // SAFETY: the advice concerns page sizes only.
    let _ = unsafe { sys::madvise(span, libc::MADV_HUGEPAGE) };
}

/// Unmaps reserved memory. The kernel may use the place for anything.
fn lose(space: &mut Guard<'_, Space>, part: Span) -> Result<()> {
    // SAFETY: nobody uses it.
    unsafe { sys::munmap(part.start, part.length) }?;
    space.set(part, Use::Special);
    Ok(())
}

/// Reserved memory, over whatever is there.
fn reserve(part: Span) -> Result<()> {
    // SAFETY: the program has given it back, or never had it.
    unsafe { sys::reserve(part) }
}

fn zero(part: Span) {
    // SAFETY: a gigantic page of the program's may be written, and the program wants this part emptied.
    unsafe { core::ptr::write_bytes(part.start as *mut u8, 0, part.length) };
}

/// Moves a plain mapping to a larger place in the areas. The old place stays mapped all the time.
fn grow(space: &mut Guard<'_, Space>, from: Span, to: Span) -> Result<usize> {
    let tail = Span { start: to.start + from.length, length: to.length - from.length };
    // SAFETY: free pages of the areas are reserved memory that nobody uses.
    unsafe { sys::open_reserved(tail, READ_WRITE) }?;
    advise_huge(tail);
    let flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    // SAFETY: the program asked for the move; the new place is free.
    match unsafe { sys::mremap(from, from.length, flags, to.start) } {
        Ok(_) => {}
        // Kernels before 6.17 move one VMA at a time.
        Err(Errno::EFAULT) => copy(from, to)?,
        Err(errno) => {
            reserve(to)?;
            return Err(errno);
        }
    }
    space.set(to, Use::Plain);
    for slot in space.slots_of(to) {
        space.take_untouched(slot); // it holds what was moved
    }
    reserve(from)?;
    space.set(from, Use::Free);
    Ok(to.start)
}

/// Copies a plain mapping to a place in the areas.
fn copy(from: Span, to: Span) -> Result<()> {
    let target = Span { length: from.length, ..to };
    // SAFETY: free pages of the areas are reserved memory that nobody uses.
    unsafe { sys::open_reserved(target, READ_WRITE) }?;
    advise_huge(target);
    let (source, place) = (from.start as *const u8, to.start as *mut u8);
    // SAFETY: both may be read and written, and do not overlap; the program uses neither during the call.
    unsafe { core::ptr::copy_nonoverlapping(source, place, from.length) };
    Ok(())
}

/// Reserves a place that the kernel has just unmapped. If it has put another mapping there meanwhile, the
/// place is lost to the areas.
fn reserve_hole(space: &mut Guard<'_, Space>, hole: Span) {
    let mut again = Mmap::fixed(hole, PROT_NONE);
    again.flags = again.flags & !libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: it replaces nothing.
    let used = match unsafe { sys::mmap(again) } {
        Ok(_) => Use::Free,
        Err(_) => Use::Special,
    };
    space.set(hole, used);
}
