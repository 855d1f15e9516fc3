//! The requests about slots that the service thread carries out for threads of the program.

#![expect(unsafe_code, reason = "reserves what nobody uses")]

use super::Gigantic;
use super::demote::{self, Holding};
use super::promote;
use super::slot::State;
use crate::areas::Threads;
use crate::numbered::numbered;
use crate::service::{Answer, Request};
use crate::space::Space;
use crate::sys::{self, GIGANTIC, PAGE, Span};
use crate::thread;
use core::sync::atomic::AtomicU32;
use superpage_launch::Cause;
use superpage_units::Bytes;

numbered! {
    /// The requests about a slot.
    pub(super) enum Wanted {
        /// Register an ordinary slot that holds nothing: it becomes fresh.
        Register,
        /// Leave a fresh slot to the kernel.
        Release,
        /// Copy a gigantic page to smaller ones.
        Demote,
        /// Copy the smaller pages of a slot to a gigantic one.
        Promote,
    }
}

/// The stack of a thread that asks lies within this around its request.
const NEAR: usize = 16 * PAGE;

impl Gigantic {
    /// Asks the service thread. The caller holds the lock of the space.
    fn request(&self, wanted: Wanted, slot: usize) -> Answer {
        self.areas.ask(wanted as u32, self.slots.span(slot))
    }

    /// Has the first touch of a slot told. It must be ordinary, the program's plain memory, and
    /// hold nothing; the caller holds the lock of the space.
    pub(super) fn register(&self, slot: usize) {
        self.areas.start_threads();
        if self.areas.threads() == Threads::Run && self.may_register() && self.uffd().is_some() {
            self.request(Wanted::Register, slot);
        }
    }

    /// Has a slot promoted that is full of plain memory, if the policy promotes at all. The caller holds the lock
    /// of the space.
    pub(super) fn promote(&self, slot: usize) -> Answer {
        if self.areas.threads() == Threads::Run && self.areas.decider.promotes() {
            return self.request(Wanted::Promote, slot);
        }
        Answer::Refused
    }

    /// Makes a slot ordinary, whatever it is. The caller holds the lock of the space, so it stays so.
    pub(super) fn make_ordinary(&self, space: &Space, slot: usize) -> Answer {
        loop {
            let wanted = match self.slots.wait(slot) {
                State::Ordinary => return Answer::Done,
                State::Fresh => Wanted::Release,
                State::Gigantic => Wanted::Demote,
                State::Serving | State::Changing => continue,
            };
            if self.areas.threads() == Threads::Failed
                && self.without_service(slot) == State::Ordinary
            {
                return Answer::Done;
            }
            if self.areas.threads() != Threads::Run {
                return Answer::Refused;
            }
            match (wanted, self.request(wanted, slot)) {
                (Wanted::Demote, Answer::Refused) => return Answer::Refused,
                (Wanted::Demote, Answer::Done) => self.was_demoted(space, slot),
                _ => {}
            }
        }
    }

    /// The state of a slot, where the service thread has ended: a fresh one becomes ordinary as soon as no first touch of it is
    /// told to anybody any more. The caller holds the lock of the space.
    fn without_service(&self, slot: usize) -> State {
        loop {
            let state = self.slots.wait(slot);
            if state != State::Fresh {
                return state;
            }
            if thread::all_have_ended() {
                self.slots.begin(slot, State::Fresh, State::Ordinary);
            } else {
                sys::futex_wait_for(&AtomicU32::new(0), 0, sys::LOOK);
            }
        }
    }

    /// A slot was demoted, with the lock of the space held.
    pub(super) fn was_demoted(&self, space: &Space, slot: usize) {
        space.forget_emptied(slot);
        // A gigantic page covers free pages of its slot as well.
        for run in space.free_runs(slot) {
            // SAFETY: nobody has anything there.
            let _ = unsafe { sys::reserve(run) };
        }
        // The cause of the demotion will mostly come again.
        if let Some(cooldown) = self.cooldown(slot) {
            cooldown.begin();
        }
    }

    /// Carries out a request, in the service thread.
    pub(super) fn answer(&self, request: &Request) -> Answer {
        let slot = self.slots.containing(request.part.start);
        let is_done = match Wanted::of(request.kind) {
            Some(Wanted::Register) => self.registered(slot),
            Some(Wanted::Release) => self.released(slot),
            Some(Wanted::Demote) => self.demoted(slot, request),
            Some(Wanted::Promote) => promote::promote_asked(self, slot).is_ok(),
            None => false,
        };
        if is_done { Answer::Done } else { Answer::Refused }
    }

    fn registered(&self, slot: usize) -> bool {
        let Some(uffd) = self.uffd() else { return false };
        let span = self.slots.span(slot);
        if uffd.register(span).is_err() {
            self.areas.counters.refused.add(Cause::Kernel);
            return false;
        }
        // Another thread, or the kernel (MAP_POPULATE, mlockall), may have touched the slot before it was
        // registered. From here on nothing can come unseen.
        if sys::Pagemap::open().and_then(|pagemap| pagemap.is_empty(span)) == Ok(true) {
            self.slots.begin(slot, State::Ordinary, State::Fresh);
            // Faults may have been given up since.
            if self.uffd().is_none() {
                self.slots.begin(slot, State::Fresh, State::Ordinary);
            }
        } else {
            let _ = uffd.unregister(span);
        }
        // A thread that faulted in between has to fault again.
        uffd.wake(span);
        true
    }

    fn released(&self, slot: usize) -> bool {
        let Some(uffd) = self.uffd() else { return false };
        if !self.slots.begin(slot, State::Fresh, State::Changing) {
            return false;
        }
        let span = self.slots.span(slot);
        let _ = uffd.unregister(span);
        self.slots.settle(slot, State::Ordinary);
        uffd.wake(span);
        true
    }

    fn demoted(&self, slot: usize, request: &Request) -> bool {
        // The thread that asks waits, but it may write to its stack until it does.
        let its_stack = Span { start: request.stack.saturating_sub(NEAR), length: 2 * NEAR };
        let is_near = self.slots.span(slot).overlap(its_stack).is_some();
        let may_refuse = || !is_near && self.program_has_one_thread();
        let otherwise = (self.uffd().is_none() && may_refuse()).then_some(Holding::Refused);
        let all = Bytes(GIGANTIC as u64);
        self.demote_for(slot, request.asking, all, otherwise).is_ok()
    }

    /// Copies the gigantic page of a slot to smaller ones, for a thread of the program; of the page `needed` is not zero.
    /// The lock of the space is held. `otherwise` is how writes are held where a userfaultfd cannot hold them.
    ///
    /// # Errors
    /// The cause, which is counted; nothing has changed then.
    pub(super) fn demote_for(
        &self,
        slot: usize,
        asking: u32,
        needed: Bytes,
        otherwise: Option<Holding>,
    ) -> Result<(), Cause> {
        if !self.slots.begin(slot, State::Gigantic, State::Changing) {
            return Err(Cause::Kernel);
        }
        let span = self.slots.span(slot);
        let uffd = self.uffd();
        let writes = uffd.map(Holding::Wait).or(otherwise).ok_or(self.cause_of_no_uffd());
        let done = writes.and_then(|writes| demote::demote(self, writes, span, asking, needed));
        if let Err(cause) = done {
            self.areas.counters.refused.add(cause);
        }
        self.slots.settle(slot, if done.is_ok() { State::Ordinary } else { State::Gigantic });
        if let Some(uffd) = uffd {
            uffd.wake(span);
        }
        done
    }
}
