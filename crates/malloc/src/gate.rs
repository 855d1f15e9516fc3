//! A gate between forks and the holders of mimalloc's locks: a fork waits until no thread but its own is inside.
//!
//! | who waits | for whom | how long |
//! |---|---|---|
//! | a fork | a thread inside, or another fork | until it has left, as long as it is a thread of this process that runs |
//! | a thread that wants to enter | a fork | the same |
//! | a fork in a signal handler that interrupted its own thread inside | as a fork | a second: those inside may wait for what it holds |
//!
//! The kernel may end one thread alone (seccomp), which leaves nothing then. So who has waited for a second asks whether the
//! thread runs. A child whose parent called no handlers before the fork has its parent's threads inside, which are none of its
//! process, so it does not wait for them either.
//!
//! Nothing here knows what is inside.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU32, AtomicU64};
use core::time::Duration;
use std::time::Instant;

/// The kernel as the gate needs it: tests have another one.
pub(crate) trait Kernel {
    /// The number of the calling thread, which is not zero.
    fn thread(&self) -> u32;
    /// The number of this process.
    fn process(&self) -> u32;
    /// Whether a thread of this process has this number and has not ended.
    fn runs(&self, thread: u32) -> bool;
    /// Lets others run, also those of lower priority.
    fn give_way(&self);
}

/// The threads that can be inside at once; more wait for a place. 200 threads, each of which began and joined threads that allocate
/// once, began 25400 a second with one place, 36400 with 8, 37800 with 64, 34900 with 256 and 33300 with 2048, and forks without
/// other threads took 120 to 166 µs with any of them (medians of six interleaved runs on two CPUs). 64 and not 8, because more CPUs
/// have more threads inside at once.
const PLACES: usize = 64;

/// A thread that has waited for this time asks whether the other one runs. A fork in a handler that interrupted its own thread
/// inside waits no longer, so it is more than a thread is inside: one that writes to a gigantic page while that is copied is held, for
/// up to 467 ms. Where mmap(2) took 50 ms more, and signals had four threads that map fork in their handlers, the child found a lock
/// held and waited for ever after 29 of 39 forks without patience, after 3 of 12 with 10 ms, and after none of 10 with 100 ms or
/// with this (sums of five interleaved runs).
const PATIENCE: Duration = Duration::from_secs(1);

/// A thread, and how many times it is inside, or how many of its forks go on: a signal handler may fork while its thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim(u64);

impl Claim {
    const NONE: Self = Self(0);

    fn first(thread: u32) -> Self {
        Self(u64::from(thread) << u32::BITS | 1)
    }

    fn thread(self) -> u32 {
        (self.0 >> u32::BITS) as u32
    }

    fn more(self) -> Self {
        Self(self.0 + 1)
    }

    fn less(self) -> Self {
        if self.0 << u32::BITS == 1 << u32::BITS { Self::NONE } else { Self(self.0 - 1) }
    }

    /// The claim, if there is one, of a thread that has another number now.
    fn renamed(self, thread: u32) -> Self {
        let times = self.0 << u32::BITS >> u32::BITS;
        if times == 0 { Self::NONE } else { Self(u64::from(thread) << u32::BITS | times) }
    }
}

/// A place for a claim.
#[derive(Debug)]
struct Place(AtomicU64);

impl Place {
    const fn empty() -> Self {
        Self(AtomicU64::new(0))
    }

    fn get(&self) -> Claim {
        Claim(self.0.load(SeqCst))
    }

    fn set(&self, claim: Claim) {
        self.0.store(claim.0, SeqCst);
    }

    /// Puts another claim in place of one; whether it was there.
    fn exchange(&self, old: Claim, new: Claim) -> bool {
        self.0.compare_exchange(old.0, new.0, SeqCst, SeqCst).is_ok()
    }
}

/// A wait for other threads.
#[derive(Debug, Default)]
struct Wait {
    begun: Option<Instant>,
}

impl Wait {
    fn is_long(&mut self) -> bool {
        self.begun.get_or_insert_with(Instant::now).elapsed() > PATIENCE
    }
}

/// The gate.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The fork that goes on.
    fork: Place,
    /// The process in which it began.
    process: AtomicU32,
    /// The threads inside, of which each changes its own place; that of one that has ended stays taken.
    inside: [Place; PLACES],
}

impl Gate {
    pub(crate) const fn new() -> Self {
        let inside = [const { Place::empty() }; PLACES];
        Self { fork: Place::empty(), process: AtomicU32::new(0), inside }
    }

    /// The calling thread is inside from here on.
    pub(crate) fn enter(&self, kernel: &impl Kernel) {
        let caller = kernel.thread();
        // A fork waits for a thread that is inside already, which must not wait for the fork then.
        if let Some(place) = self.place_of(caller) {
            return place.set(place.get().more());
        }
        let mut wait = Wait::default();
        loop {
            let fork = self.fork.get();
            let is_closed = fork != Claim::NONE && fork.thread() != caller;
            if !is_closed && self.try_enter(caller) {
                return;
            }
            if is_closed && wait.is_long() && !kernel.runs(fork.thread()) {
                self.fork.exchange(fork, Claim::NONE);
            }
            kernel.give_way();
        }
    }

    /// Takes a place, unless there is none, or a fork has begun meanwhile.
    fn try_enter(&self, caller: u32) -> bool {
        let claim = Claim::first(caller);
        let Some(place) = self.inside.iter().find(|place| place.exchange(Claim::NONE, claim))
        else {
            return false;
        };
        // The order of all these accesses is one: either the fork finds the place taken, or this thread finds the fork.
        let fork = self.fork.get();
        let is_open = fork == Claim::NONE || fork.thread() == caller;
        if !is_open {
            place.set(Claim::NONE);
        }
        is_open
    }

    /// The calling thread leaves, once for each time that it has entered.
    pub(crate) fn leave(&self, kernel: &impl Kernel) {
        // A child whose parent called no handlers has another number, and so no place.
        if let Some(place) = self.place_of(kernel.thread()) {
            place.set(place.get().less());
        }
    }

    /// Before a fork of the calling thread: nobody else is inside from here on.
    pub(crate) fn close(&self, kernel: &impl Kernel) {
        let caller = kernel.thread();
        let is_inside = self.place_of(caller).is_some();
        let mut wait = Wait::default();
        if self.fork.get().thread() == caller {
            self.fork.set(self.fork.get().more());
        }
        loop {
            let fork = self.fork.get();
            let in_the_way = if fork.thread() != caller {
                let is_over = fork == Claim::NONE
                    || wait.is_long() && (is_inside || !kernel.runs(fork.thread()));
                if is_over && self.fork.exchange(fork, Claim::first(caller)) {
                    continue;
                }
                true
            } else {
                self.somebody_is_inside(caller, |thread| {
                    !wait.is_long() || kernel.runs(thread) && !is_inside
                })
            };
            if !in_the_way {
                self.process.store(kernel.process(), SeqCst);
                return;
            }
            kernel.give_way();
        }
    }

    /// Whether another thread is inside for which a fork waits.
    fn somebody_is_inside(&self, caller: u32, mut is_waited_for: impl FnMut(u32) -> bool) -> bool {
        self.inside.iter().any(|place| {
            let thread = place.get().thread();
            thread != 0 && thread != caller && is_waited_for(thread)
        })
    }

    /// After a fork, in the parent and in the child: in this, the calling thread is the one that forked, with another number.
    pub(crate) fn open(&self, kernel: &impl Kernel) {
        let (caller, fork) = (kernel.thread(), self.fork.get());
        if kernel.process() != self.process.load(SeqCst) {
            for place in &self.inside {
                let claim = place.get();
                let is_own = claim.thread() == fork.thread();
                place.set(if is_own { claim.renamed(caller) } else { Claim::NONE });
            }
            self.fork.set(fork.less().renamed(caller));
        } else if fork.thread() == caller {
            self.fork.set(fork.less());
        }
    }

    fn place_of(&self, thread: u32) -> Option<&Place> {
        self.inside.iter().find(|place| place.get().thread() == thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    /// A thread by its number, where these threads run.
    #[derive(Debug, Default)]
    struct Told {
        thread: u32,
        process: u32,
        run: &'static [u32],
        /// The rounds of all waits; a test that would wait for ever ends.
        rounds: Cell<u32>,
    }

    impl Told {
        fn thread(thread: u32) -> Self {
            Self { thread, process: 1, run: &[1, 2, 3], rounds: Cell::new(0) }
        }
    }

    impl Kernel for Told {
        fn thread(&self) -> u32 {
            self.thread
        }

        fn process(&self) -> u32 {
            self.process
        }

        fn runs(&self, thread: u32) -> bool {
            self.run.contains(&thread)
        }

        fn give_way(&self) {
            self.rounds.set(self.rounds.get() + 1);
            std::thread::sleep(Duration::from_millis(10));
            assert!(self.rounds.get() < 400, "a wait for ever");
        }
    }

    #[test]
    fn a_fork_waits_for_who_is_inside_longer_than_patience_lasts() {
        let (gate, has_left) = (Arc::new(Gate::new()), Arc::new(AtomicBool::new(false)));
        gate.enter(&Told::thread(1));
        let (theirs, left) = (Arc::clone(&gate), Arc::clone(&has_left));
        let inside = std::thread::spawn(move || {
            std::thread::sleep(PATIENCE * 3 / 2);
            left.store(true, SeqCst);
            theirs.leave(&Told::thread(1));
        });
        gate.close(&Told::thread(2));
        assert!(has_left.load(SeqCst));
        inside.join().expect("the thread that is inside");
        gate.open(&Told::thread(2));
        gate.enter(&Told::thread(1));
    }

    #[test]
    fn nobody_enters_while_a_fork_goes_on_but_its_own_thread() {
        let gate = Arc::new(Gate::new());
        let forker = Told::thread(2);
        gate.close(&forker);
        let (theirs, has_entered) = (Arc::clone(&gate), Arc::new(AtomicBool::new(false)));
        let entered = Arc::clone(&has_entered);
        let other = std::thread::spawn(move || {
            theirs.enter(&Told::thread(1));
            entered.store(true, SeqCst);
        });
        gate.enter(&forker);
        gate.leave(&forker);
        std::thread::sleep(PATIENCE * 3 / 2);
        assert!(!has_entered.load(SeqCst));
        gate.open(&forker);
        other.join().expect("the thread that enters");
        assert!(has_entered.load(SeqCst));
    }

    #[test]
    fn who_has_ended_is_not_waited_for() {
        let gate = Gate::new();
        gate.enter(&Told::thread(9)); // which does not run
        gate.close(&Told::thread(2));
        gate.open(&Told::thread(2));
        gate.close(&Told::thread(9));
        gate.enter(&Told::thread(1));
        gate.leave(&Told::thread(1));
        gate.close(&Told::thread(8));
        gate.close(&Told::thread(2));
    }

    #[test]
    fn a_fork_of_a_thread_inside_waits_for_nobody_for_ever() {
        let gate = Gate::new();
        gate.enter(&Told::thread(1));
        gate.enter(&Told::thread(2));
        gate.close(&Told::thread(1));
        gate.close(&Told::thread(2)); // in the place of the first
        gate.open(&Told::thread(1));
        gate.open(&Told::thread(2));
        assert_eq!(gate.fork.get(), Claim::NONE);
    }

    #[test]
    fn a_child_has_its_own_thread_inside_and_no_other() {
        let gate = Gate::new();
        let (parent, child) = (Told::thread(1), Told { process: 7, ..Told::thread(7) });
        gate.enter(&Told::thread(9));
        gate.enter(&parent);
        gate.enter(&parent);
        gate.close(&parent);
        gate.open(&child);
        assert!(gate.place_of(9).is_none() && gate.place_of(1).is_none());
        gate.leave(&child);
        assert!(gate.place_of(7).is_some());
        gate.leave(&child);
        assert!(gate.place_of(7).is_none());
        gate.leave(&child); // without a place
        assert_eq!(gate.fork.get(), Claim::NONE);
    }

    #[test]
    fn a_fork_in_a_fork_of_the_same_thread_leaves_the_gate_closed() {
        let (gate, forker) = (Gate::new(), Told::thread(1));
        gate.close(&forker);
        gate.close(&forker);
        gate.open(&forker);
        assert_eq!(gate.fork.get(), Claim::first(1));
        gate.open(&forker);
        assert_eq!(gate.fork.get(), Claim::NONE);
        assert_eq!(forker.rounds.get(), 0);
    }

    #[test]
    fn threads_and_forks_never_meet() {
        let gate = Arc::new(Gate::new());
        let (inside, forks) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let begin = |thread: u32| {
            let (gate, inside, forks) =
                (Arc::clone(&gate), Arc::clone(&inside), Arc::clone(&forks));
            std::thread::spawn(move || {
                for _ in 0..200 {
                    let told = Told::thread(thread);
                    if thread == 3 {
                        gate.close(&told);
                        forks.fetch_add(1, SeqCst);
                        assert_eq!(inside.load(SeqCst), 0);
                        forks.fetch_sub(1, SeqCst);
                        gate.open(&told);
                    } else {
                        gate.enter(&told);
                        inside.fetch_add(1, SeqCst);
                        assert_eq!(forks.load(SeqCst), 0);
                        inside.fetch_sub(1, SeqCst);
                        gate.leave(&told);
                    }
                }
            })
        };
        for thread in [1, 2, 3].map(begin) {
            thread.join().expect("a thread");
        }
    }
}
