//! The service thread: does for threads of the program what needs the library's descriptors, or what may
//! not be done on a stack whose writes are held.
//!
//! A thread of the program asks with the lock of the space held, so there is one request at a time.

use crate::areas::{Areas, Process, Threads};
use crate::end::Stat;
use crate::start;
use crate::sys::{self, Span};
use crate::thread;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// A request of a thread of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The kind of request, a number of the backing's.
    pub(crate) kind: u32,
    /// The part of the areas that it is about.
    pub(crate) part: Span,
    /// The thread that asks.
    pub(crate) asking: u32,
    /// An address on its stack.
    pub(crate) stack: usize,
}

/// Whether a request was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The request was carried out.
    Done,
    /// The request was refused, and nothing was changed.
    Refused,
}

const IDLE: u32 = 0;
const DONE: u32 = 1;
const REFUSED: u32 = 2;
/// The first kind of request is this, and the others follow.
const FIRST: u32 = 3;

/// One request and its answer.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    /// [`IDLE`], [`DONE`], [`REFUSED`], or the kind of a request and [`FIRST`].
    state: AtomicU32,
    part: [AtomicUsize; 2],
    asking: AtomicU32,
    stack: AtomicUsize,
}

impl Mailbox {
    fn ask(&self, kind: u32, part: Span) -> Answer {
        self.part[0].store(part.start, Relaxed);
        self.part[1].store(part.length, Relaxed);
        self.asking.store(sys::thread(), Relaxed);
        self.stack.store(core::ptr::from_ref(&part).addr(), Relaxed);
        self.state.store(FIRST + kind, Release);
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
    fn next(&self, process: &Process, stat: Option<&Stat>) -> Request {
        loop {
            let state = self.state.load(Acquire);
            if let Some(request) = self.request() {
                return request;
            }
            sys::futex_wait_for(&self.state, state, sys::LOOK);
            if let Some(stat) = stat {
                stat.end_with_the_program();
            }
            look_after_threads(process);
        }
    }

    /// The request that there is now.
    fn request(&self) -> Option<Request> {
        let kind = self.state.load(Acquire).checked_sub(FIRST)?;
        let [start, length] = self.part.each_ref().map(|word| word.load(Relaxed));
        Some(Request {
            kind,
            part: Span { start, length },
            asking: self.asking.load(Relaxed),
            stack: self.stack.load(Relaxed),
        })
    }

    fn answer(&self, answer: Answer) {
        let word = if answer == Answer::Done { DONE } else { REFUSED };
        self.state.store(word, Release);
        sys::futex_wake(&self.state);
    }
}

impl Areas {
    /// Starts the library's threads, if they have not been needed so far. The caller holds the lock of the space.
    pub(crate) fn start_threads(&self) {
        if self.threads() == Threads::NotYet {
            let do_run = start::start_threads(self);
            self.set_threads(if do_run { Threads::Run } else { Threads::Failed });
        }
    }

    /// Has the service thread carry out a request. The caller holds the lock of the space.
    pub(crate) fn ask(&self, kind: u32, part: Span) -> Answer {
        let answer = self.mailbox.ask(kind, part);
        // The threads run no more, as far as the program's threads may ask for anything.
        if thread::service_has_ended() {
            self.set_threads(Threads::Failed);
        }
        answer
    }
}

/// Looks whether the kernel has ended one of the library's threads alone (seccomp). A heap cannot be served then, and the
/// program is ended; otherwise faults are left to the kernel from then on.
fn look_after_threads(process: &Process) {
    if !thread::one_has_ended() {
        return;
    }
    process.backing().give_up_faults();
    if let Some(uffd) = start::opened() {
        uffd.close_without(thread::ended_of_faults(uffd.fault_threads()));
    }
}

/// Carries out requests for ever. `stat` is open already: the program may have the kernel refuse to open it from now on.
pub(crate) fn run(process: &Process, stat: Option<&Stat>) {
    loop {
        let request = process.areas.mailbox.next(process, stat);
        process.areas.mailbox.answer(process.backing().carry_out(&request));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};
    use std::vec::Vec;

    /// As [`Mailbox::next`], for threads that the program does not have.
    fn next(mailbox: &Mailbox) -> Request {
        loop {
            if let Some(request) = mailbox.request() {
                return request;
            }
            std::thread::yield_now();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn each_request_is_carried_out_once_and_gets_its_own_answer(
            requests in prop::collection::vec(
                (0_u32..9, (0_usize..99, 0_usize..99),
                 prop::sample::select(std::vec![Answer::Done, Answer::Refused])),
                1..20,
            ),
        ) {
            let mailbox = Mailbox::default();
            let serve = || {
                let answer = |(.., answer): &(u32, (usize, usize), Answer)| {
                    let request = next(&mailbox);
                    mailbox.answer(*answer);
                    request
                };
                requests.iter().map(answer).collect::<Vec<_>>()
            };
            let asked: Vec<_> = std::thread::scope(|scope| {
                let service = scope.spawn(serve);
                for (kind, (start, length), answer) in requests.iter().copied() {
                    assert_eq!(mailbox.ask(kind, Span { start, length }), answer);
                    assert_eq!(mailbox.state.load(Relaxed), IDLE, "the next one may ask");
                }
                service.join().expect("it does not panic")
            });
            let here = 0_u8;
            for ((kind, (start, length), _), asked) in requests.iter().zip(&asked) {
                let part = Span { start: *start, length: *length };
                assert_eq!((asked.kind, asked.part), (*kind, part));
                assert_eq!(asked.asking, sys::thread());
                assert!(asked.stack.abs_diff(core::ptr::from_ref(&here).addr()) < 16 * sys::PAGE);
            }
        }
    }

    #[test]
    fn who_asks_is_woken_by_the_answer_and_does_not_look_again_first() {
        let mailbox = Mailbox::default();
        let woken_after = || {
            std::thread::scope(|scope| {
                let asking = scope.spawn(|| {
                    assert_eq!(mailbox.ask(1, Span { start: 0, length: 0 }), Answer::Done);
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
