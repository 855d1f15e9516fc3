//! The service thread: does for threads of the program what needs the library's descriptors, or what may
//! not be done on a stack whose writes are held.
//!
//! A thread of the program asks with the lock of the space held, so there is one request at a time.

#![expect(unsafe_code, reason = "reserves what nobody uses")]

use crate::areas::{Areas, Threads};
use crate::demote::{self, Writes};
use crate::end;
use crate::pager::Pager;
use crate::promote;
use crate::slot::State;
use crate::space::Space;
use crate::start;
use crate::sys::{self, GIGANTIC, PAGE, Span};
use crate::thread;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};
use superpage_launch::Cause;
use superpage_units::Bytes;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    /// Register an ordinary slot that holds nothing: it becomes fresh.
    Register = 1,
    /// Leave a fresh slot to the kernel.
    Release = 2,
    /// Copy a gigantic page to smaller ones.
    Demote = 3,
    /// Copy the smaller pages of a slot to a gigantic one.
    Promote = 4,
    /// Empty a part of the heap.
    Discard = 5,
    /// Empty a part of the heap that another mapping takes the place of.
    Leave = 6,
    /// Have all of the heap in memory, and keep it there.
    Hold = 7,
    /// Let pages of the heap leave memory again.
    LetGo = 8,
    /// Have a part of the areas, which was mapped anew, be heap again.
    Renew = 9,
    /// Have the pager stand still, so that the child of a fork can have one of its own.
    StandStill = 10,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Register,
        Self::Release,
        Self::Demote,
        Self::Promote,
        Self::Discard,
        Self::Leave,
        Self::Hold,
        Self::LetGo,
        Self::Renew,
        Self::StandStill,
    ];
}

/// The stack of a thread that asks lies within this around its request.
const NEAR: usize = 16 * PAGE;

const IDLE: u32 = 0;
const DONE: u32 = 11;
const REFUSED: u32 = 12;

/// One request and its answer.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    /// [`IDLE`], a [`Kind`], [`DONE`], or [`REFUSED`].
    state: AtomicU32,
    slot: AtomicUsize,
    /// A part of the heap.
    part: [AtomicUsize; 2],
    /// The thread that asks.
    asking: AtomicU32,
    /// An address on its stack.
    stack: AtomicUsize,
}

/// Whether a request was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The request was carried out.
    Done,
    /// The request was refused, and nothing was changed.
    Refused,
}

impl Mailbox {
    fn ask(&self, kind: Kind, slot: usize) -> Answer {
        self.ask_about(kind, slot, Span { start: 0, length: 0 })
    }

    fn ask_about(&self, kind: Kind, slot: usize, part: Span) -> Answer {
        self.slot.store(slot, Relaxed);
        self.part[0].store(part.start, Relaxed);
        self.part[1].store(part.length, Relaxed);
        self.asking.store(sys::thread(), Relaxed);
        self.stack.store(core::ptr::from_ref(&slot).addr(), Relaxed);
        self.state.store(kind as u32, Release);
        sys::futex_wake(&self.state);
        loop {
            match self.state.load(Acquire) {
                DONE | REFUSED => break,
                state => sys::futex_wait_for(&self.state, state, sys::LOOK),
            }
            // Its answer may have come between the look and its end.
            if thread::service_has_ended() && !matches!(self.state.load(Acquire), DONE | REFUSED) {
                return Answer::Refused;
            }
        }
        match self.state.swap(IDLE, Acquire) {
            DONE => Answer::Done,
            _ => Answer::Refused,
        }
    }

    /// The next request. The end of the program, and that of a thread without which there is no heap, is seen meanwhile.
    fn next(&self, areas: &Areas) -> (Kind, usize) {
        loop {
            let state = self.state.load(Acquire);
            if let Some(kind) = Kind::ALL.into_iter().find(|kind| *kind as u32 == state) {
                return (kind, self.slot.load(Relaxed));
            }
            sys::futex_wait_for(&self.state, state, sys::LOOK);
            end::with_the_program();
            areas.look_after_threads();
        }
    }

    fn answer(&self, answer: Answer) {
        let word = if answer == Answer::Done { DONE } else { REFUSED };
        self.state.store(word, Release);
        sys::futex_wake(&self.state);
    }
}

impl Areas {
    /// Has the first touch of a slot told. It must be ordinary, the program's plain memory, and
    /// hold nothing; the caller holds the lock of the space.
    pub(crate) fn register(&self, slot: usize) -> Answer {
        self.start_threads();
        if self.threads() == Threads::Run && self.may_register() && self.uffd().is_some() {
            let answer = self.mailbox.ask(Kind::Register, slot);
            self.note_end_of_service();
            return answer;
        }
        Answer::Refused
    }

    /// Starts the library's threads, if they have not been needed so far. The caller holds the lock of the space.
    pub(crate) fn start_threads(&self) {
        if self.threads() == Threads::NotYet {
            let do_run = start::start_threads(self);
            self.set_threads(if do_run { Threads::Run } else { Threads::Failed });
        }
    }

    /// Has a slot promoted that is full of plain memory, if the policy promotes at all. The caller holds the lock
    /// of the space.
    pub(crate) fn promote(&self, slot: usize) -> Answer {
        if self.threads() == Threads::Run && self.decider.promotes() {
            let answer = self.mailbox.ask(Kind::Promote, slot);
            self.note_end_of_service();
            return answer;
        }
        Answer::Refused
    }

    /// Empties a part of the heap. The caller holds the lock of the space.
    pub(crate) fn discard(&self, part: Span) {
        if self.pager().is_some() {
            self.mailbox.ask_about(Kind::Discard, 0, part);
            self.note_end_of_service();
        }
    }

    /// As [`Areas::discard`], of a part that another mapping of the program's takes the place of.
    pub(crate) fn leave_to_others(&self, part: Span) {
        if self.pager().is_some() {
            self.mailbox.ask_about(Kind::Leave, 0, part);
            self.note_end_of_service();
        }
    }

    /// Has all of the heap in memory, and keeps it there. The caller holds the lock of the space.
    pub(crate) fn hold_heap(&self) -> Answer {
        let answer = self.mailbox.ask(Kind::Hold, 0);
        self.note_end_of_service();
        answer
    }

    /// Has the pager stand still for a fork, with a reference to the file for the child. The caller holds the lock of the
    /// space.
    pub(crate) fn stand_still(&self) -> Answer {
        let answer = self.mailbox.ask(Kind::StandStill, 0);
        self.note_end_of_service();
        answer
    }

    /// Has the pager go on, and lets pages of the heap leave memory again. The caller holds the lock of the space.
    pub(crate) fn let_heap_go(&self) {
        self.mailbox.ask(Kind::LetGo, 0);
        self.note_end_of_service();
    }

    /// Has a part of the areas be heap that was mapped anew. The caller holds the lock of the space.
    pub(crate) fn renew(&self, part: Span) -> Answer {
        match self.pager() {
            Some(_) => self.mailbox.ask_about(Kind::Renew, 0, part),
            None => Answer::Refused,
        }
    }

    /// Looks whether the kernel has ended one of the library's threads alone (seccomp). A heap cannot be served then, and the
    /// program is ended; otherwise faults are left to the kernel from then on. Called by the library's threads.
    pub(crate) fn look_after_threads(&self) {
        if !thread::one_has_ended() {
            return;
        }
        match (self.pager(), self.uffd()) {
            (Some(pager), _) => pager.end_without_threads(),
            (None, Some(_)) => self.give_up_faults(),
            (None, None) => {}
        }
        if let Some(uffd) = start::opened() {
            uffd.close_without(thread::ended_of_faults(uffd.fault_threads()));
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

    /// The threads run no more, as far as the program's threads may ask for anything. The caller holds the lock of the space.
    fn note_end_of_service(&self) {
        if thread::service_has_ended() {
            if let Some(pager) = self.pager() {
                pager.end_without_threads();
            }
            self.set_threads(Threads::Failed);
        }
    }

    /// Makes a slot ordinary, whatever it is. The caller holds the lock of the space, so it stays so.
    pub(crate) fn make_ordinary(&self, space: &Space, slot: usize) -> Answer {
        loop {
            let kind = match self.slots.wait(slot) {
                State::Ordinary => return Answer::Done,
                State::Fresh => Kind::Release,
                State::Gigantic => Kind::Demote,
                State::Serving | State::Changing => continue,
            };
            if self.threads() == Threads::Failed && self.without_service(slot) == State::Ordinary {
                return Answer::Done;
            }
            if self.threads() != Threads::Run {
                return Answer::Refused;
            }
            let answer = self.mailbox.ask(kind, slot);
            self.note_end_of_service();
            match (kind, answer) {
                (Kind::Demote, Answer::Refused) => return Answer::Refused,
                (Kind::Demote, Answer::Done) => self.was_demoted(space, slot),
                _ => {}
            }
        }
    }

    /// A slot was demoted, with the lock of the space held.
    pub(crate) fn was_demoted(&self, space: &Space, slot: usize) {
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
}

/// Carries out requests for ever.
pub(crate) fn run(areas: &Areas) {
    areas.child.note_service();
    loop {
        let (kind, slot) = areas.mailbox.next(areas);
        let answer = match kind {
            Kind::Register => register(areas, slot),
            Kind::Release => release(areas, slot),
            Kind::Demote => demote(areas, slot),
            Kind::Promote => promote(areas, slot),
            Kind::Discard => in_heap(areas, |pager, part| {
                pager.discard(part);
                Ok(())
            }),
            Kind::Leave => in_heap(areas, |pager, part| {
                pager.leave(part);
                Ok(())
            }),
            Kind::Hold => in_heap(areas, |pager, _| pager.hold_all()),
            Kind::LetGo => in_heap(areas, |pager, _| {
                pager.go_on();
                pager.release();
                Ok(())
            }),
            Kind::Renew => in_heap(areas, Pager::renew),
            Kind::StandStill => in_heap(areas, |pager, _| {
                pager.stand_still().map(|claim| areas.child.expect(claim))
            }),
        };
        areas.mailbox.answer(answer);
    }
}

/// Has the pager do something to the part of the heap that was asked about.
fn in_heap(areas: &Areas, work: impl FnOnce(&Pager, Span) -> sys::Result<()>) -> Answer {
    let [start, length] = areas.mailbox.part.each_ref().map(|word| word.load(Relaxed));
    match areas.pager().map(|pager| work(pager, Span { start, length })) {
        Some(Ok(())) => Answer::Done,
        Some(Err(_)) | None => Answer::Refused,
    }
}

fn register(areas: &Areas, slot: usize) -> Answer {
    let Some(uffd) = areas.uffd() else { return Answer::Refused };
    let span = areas.slots.span(slot);
    if uffd.register(span).is_err() {
        areas.counters.refused.add(Cause::Kernel);
        return Answer::Refused;
    }
    // Another thread, or the kernel (MAP_POPULATE, mlockall), may have touched the slot before it was
    // registered. From here on nothing can come unseen.
    if sys::Pagemap::open().and_then(|pagemap| pagemap.is_empty(span)) == Ok(true) {
        areas.slots.begin(slot, State::Ordinary, State::Fresh);
        // Faults may have been given up since.
        if areas.uffd().is_none() {
            areas.slots.begin(slot, State::Fresh, State::Ordinary);
        }
    } else {
        let _ = uffd.unregister(span);
    }
    // A thread that faulted in between has to fault again.
    uffd.wake(span);
    Answer::Done
}

fn release(areas: &Areas, slot: usize) -> Answer {
    let Some(uffd) = areas.uffd() else { return Answer::Refused };
    if !areas.slots.begin(slot, State::Fresh, State::Changing) {
        return Answer::Refused;
    }
    let span = areas.slots.span(slot);
    let _ = uffd.unregister(span);
    areas.slots.settle(slot, State::Ordinary);
    uffd.wake(span);
    Answer::Done
}

fn promote(areas: &Areas, slot: usize) -> Answer {
    match promote::promote_asked(areas, slot) {
        Ok(()) => Answer::Done,
        Err(_) => Answer::Refused,
    }
}

fn demote(areas: &Areas, slot: usize) -> Answer {
    let mailbox = &areas.mailbox;
    // The thread that asks waits, but it may write to its stack until it does.
    let stack = mailbox.stack.load(Relaxed);
    let its_stack = Span { start: stack.saturating_sub(NEAR), length: 2 * NEAR };
    let is_near = areas.slots.span(slot).overlap(its_stack).is_some();
    let may_refuse = || !is_near && areas.program_has_one_thread();
    let otherwise = (areas.uffd().is_none() && may_refuse()).then_some(Writes::Refused);
    let all = Bytes(GIGANTIC as u64);
    match demote_for(areas, slot, mailbox.asking.load(Relaxed), all, otherwise) {
        Ok(()) => Answer::Done,
        Err(_) => Answer::Refused,
    }
}

/// Copies the gigantic page of a slot to smaller ones, for a thread of the program; of the page `needed` is not zero.
/// The lock of the space is held. `otherwise` is how writes are held where a userfaultfd cannot hold them.
///
/// # Errors
/// The cause, which is counted; nothing has changed then.
pub(crate) fn demote_for(
    areas: &Areas,
    slot: usize,
    asking: u32,
    needed: Bytes,
    otherwise: Option<Writes>,
) -> Result<(), Cause> {
    if !areas.slots.begin(slot, State::Gigantic, State::Changing) {
        return Err(Cause::Kernel);
    }
    let span = areas.slots.span(slot);
    let uffd = areas.uffd();
    let writes = uffd.map(Writes::Wait).or(otherwise).ok_or(areas.cause_of_no_uffd());
    let done = writes.and_then(|writes| demote::demote(areas, writes, span, asking, needed));
    if let Err(cause) = done {
        areas.counters.refused.add(cause);
    }
    areas.slots.settle(slot, if done.is_ok() { State::Ordinary } else { State::Gigantic });
    if let Some(uffd) = uffd {
        uffd.wake(span);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};
    use std::vec::Vec;

    /// As [`Mailbox::next`], for threads that the program does not have.
    fn next(mailbox: &Mailbox) -> Kind {
        loop {
            let state = mailbox.state.load(Acquire);
            if let Some(kind) = Kind::ALL.into_iter().find(|kind| *kind as u32 == state) {
                return kind;
            }
            std::thread::yield_now();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn each_request_is_carried_out_once_and_gets_its_own_answer(
            requests in prop::collection::vec(
                (prop::sample::select(Kind::ALL.to_vec()), 0_usize..9, (0_usize..99, 0_usize..99),
                 prop::sample::select(std::vec![Answer::Done, Answer::Refused])),
                1..20,
            ),
        ) {
            let mailbox = Mailbox::default();
            let serve = || {
                let answer = |(.., answer): &(Kind, usize, (usize, usize), Answer)| {
                    let kind = next(&mailbox);
                    let part = mailbox.part.each_ref().map(|word| word.load(Relaxed));
                    let [slot, stack] =
                        [&mailbox.slot, &mailbox.stack].map(|word| word.load(Relaxed));
                    let asking = mailbox.asking.load(Relaxed);
                    mailbox.answer(*answer);
                    (kind, slot, part, asking, stack)
                };
                requests.iter().map(answer).collect::<Vec<_>>()
            };
            let asked: Vec<_> = std::thread::scope(|scope| {
                let service = scope.spawn(serve);
                for (kind, slot, (start, length), answer) in requests.iter().copied() {
                    let part = Span { start, length };
                    assert_eq!(mailbox.ask_about(kind, slot, part), answer);
                    assert_eq!(mailbox.state.load(Relaxed), IDLE, "the next one may ask");
                }
                service.join().expect("it does not panic")
            });
            let here = 0_u8;
            for ((kind, slot, (start, length), _), asked) in requests.iter().zip(&asked) {
                let (told_kind, told_slot, part, asking, stack) = *asked;
                assert_eq!((told_kind, told_slot, part), (*kind, *slot, [*start, *length]));
                assert_eq!(asking, sys::thread());
                assert!(stack.abs_diff(core::ptr::from_ref(&here).addr()) < NEAR);
            }
        }
    }

    #[test]
    fn no_request_is_taken_for_an_answer() {
        let words = Kind::ALL.map(|kind| kind as u32);
        let mut all: Vec<u32> = words.into_iter().chain([IDLE, DONE, REFUSED]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), Kind::ALL.len() + 3);
    }

    #[test]
    fn who_asks_is_woken_by_the_answer_and_does_not_look_again_first() {
        let mailbox = Mailbox::default();
        let woken_after = || {
            std::thread::scope(|scope| {
                let asking = scope.spawn(|| {
                    assert_eq!(mailbox.ask(Kind::Register, 1), Answer::Done);
                    Instant::now()
                });
                next(&mailbox);
                std::thread::sleep(Duration::from_millis(20));
                let answered = Instant::now();
                mailbox.answer(Answer::Done);
                asking.join().expect("it does not panic") - answered
            })
        };
        let fastest = (0..3).map(|_| woken_after()).min().expect("there were some");
        assert!(fastest < Duration::from_nanos(sys::LOOK.0 / 2), "{fastest:?}");
    }
}
