//! A lock of the program's threads, with all signals blocked while it is held.
//!
//! A signal handler of the program may map memory, and so may come here while the thread it interrupted
//! is here: with signals blocked it cannot. The library's own threads never wait for such a lock (a thread of
//! the program may hold it while it waits for them).

#![expect(unsafe_code, reason = "hands out what the lock protects")]

use crate::sys::{self, SignalMask};
use crate::{end, thread};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

const FREE: u32 = 0;
/// The holder of an [`OwnLock`]. No thread has this number: the kernel's are lower.
const OURS: u32 = 1 << 30;
/// The bit that says that threads wait, beside the number of the thread that holds the lock: the kernel's numbers are lower.
const WAITED_FOR: u32 = 1 << 31;

/// A futex.
#[derive(Debug, Default)]
pub(crate) struct RawLock(AtomicU32);

impl RawLock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes it. Who waits asks once a second whether the holder has ended: the kernel may end one thread alone (seccomp).
    pub(crate) fn take(&self) {
        self.take_as(sys::thread());
    }

    fn take_as(&self, mut held_by: u32) {
        loop {
            match self.0.compare_exchange(FREE, held_by, Acquire, Relaxed) {
                Ok(_) => return,
                Err(word) => self.wait_while(word),
            }
            // Others may wait as well, which nobody has counted.
            held_by |= WAITED_FOR;
        }
    }

    /// Waits while the lock is held as `word` says, for a while.
    fn wait_while(&self, word: u32) {
        let waited_for = word | WAITED_FOR;
        if word != waited_for
            && self.0.compare_exchange(word, waited_for, Relaxed, Relaxed).is_err()
        {
            return;
        }
        sys::futex_wait_for(&self.0, waited_for, sys::LOOK);
        if self.0.load(SeqCst) == waited_for && self.is_left_held(has_ended) {
            end::for_lack_of_a_thread();
        }
    }

    /// Whether a thread that `has_ended` holds the lock. One that gave it back and ended while it was asked about holds it no more.
    fn is_left_held(&self, has_ended: impl FnOnce(u32) -> bool) -> bool {
        let word = self.0.load(SeqCst);
        word != FREE && has_ended(word & !WAITED_FOR) && self.0.load(SeqCst) == word
    }

    /// Takes it if it is free; whether it was.
    pub(crate) fn try_take(&self) -> bool {
        self.0.compare_exchange(FREE, sys::thread(), Acquire, Relaxed).is_ok()
    }

    pub(crate) fn give_back(&self) {
        if self.0.swap(FREE, Release) & WAITED_FOR != 0 {
            sys::futex_wake(&self.0);
        }
    }
}

/// Whether the holder of a lock has ended.
fn has_ended(holder: u32) -> bool {
    if holder == OURS { thread::one_has_ended() } else { thread::has_ended(holder) }
}

/// A value of the pager's that one thread uses at a time. For the library's own threads, whose signals are blocked, and for moments in
/// which nothing can fault.
#[derive(Debug)]
pub(crate) struct OwnLock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the lock only.
unsafe impl<T: Send> Sync for OwnLock<T> {}

impl<T> OwnLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    /// Works on the value, which nobody else does meanwhile.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // The thread's number would take a system call. Who waits asks whether any of the library's threads has ended, and then
        // ends the program, as the pager does.
        self.raw.take_as(OURS);
        // SAFETY: the lock is held.
        let done = work(unsafe { &mut *self.value.get() });
        self.raw.give_back();
        done
    }

    /// Gives the lock back for a thread of the parent that held it at a fork, and changed nothing of the value.
    pub(crate) fn forget_holder(&self) {
        self.raw.give_back();
    }
}

/// All signals.
const ALL: SignalMask = SignalMask::MAX;

/// The calling thread has all signals blocked while this lives.
#[derive(Debug)]
pub(crate) struct SignalsBlocked(SignalMask);

impl SignalsBlocked {
    pub(crate) fn now() -> Self {
        Self(sys::set_signal_mask(ALL))
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        sys::set_signal_mask(self.0);
    }
}

/// A value that one thread of the program uses at a time, with all signals blocked.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the lock only.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    pub(crate) fn take(&self) -> Guard<'_, T> {
        let signals = SignalsBlocked::now();
        self.raw.take();
        Guard { lock: self, _signals: signals }
    }

    /// The value, if nobody has it.
    pub(crate) fn try_take(&self) -> Option<Guard<'_, T>> {
        let signals = SignalsBlocked::now();
        let is_taken = self.raw.try_take();
        is_taken.then(|| Guard { lock: self, _signals: signals })
    }

    /// Leaves the lock held, past the end of `guard`: until [`Lock::give_back_held`].
    pub(crate) fn keep(guard: Guard<'_, T>) -> SignalMask {
        let mask = guard._signals.0;
        core::mem::forget(guard);
        mask
    }

    /// Gives the lock back for a thread of the parent that held it at a fork.
    pub(crate) fn forget_holder(&self) {
        self.raw.give_back();
    }

    /// Gives a lock back that [`Lock::keep`] left held. In the child of a fork nobody waits for it.
    pub(crate) fn give_back_held(&self, mask: SignalMask) {
        self.raw.give_back();
        sys::set_signal_mask(mask);
    }
}

/// The value, while the lock is held.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    _signals: SignalsBlocked,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and `self` is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // The lock goes first, then the signals are let in.
        self.lock.raw.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    #[test]
    fn who_gave_it_back_and_ended_left_nothing_held() {
        let lock = Lock::new(());
        assert!(!lock.raw.is_left_held(|_| true), "nobody holds it");
        let guard = lock.take();
        assert!(!lock.raw.is_left_held(|_| false), "its holder runs");
        assert!(lock.raw.is_left_held(|holder| holder == sys::thread()), "its holder has ended");
        assert!(!lock.raw.is_left_held(|_| {
            drop(guard);
            true
        }));
    }

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        const TIMES: u64 = 2_000;
        let (lock, own) = (Lock::new(0_u64), OwnLock::new(0_u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        *lock.take() += 1;
                        own.with(|value| *value += 1);
                    }
                });
            }
        });
        assert_eq!((*lock.take(), own.with(|value| *value)), (4 * TIMES, 4 * TIMES));
        assert_eq!(lock.raw.0.load(Relaxed), FREE, "nobody waits any more");
    }

    #[test]
    fn who_waits_for_a_lock_is_woken_and_does_not_look_again_first() {
        let lock = Lock::new(());
        let woken_after = || {
            let guard = lock.take();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| {
                    drop(lock.take());
                    Instant::now()
                });
                let is_waited_for = (0..200).any(|_| {
                    std::thread::sleep(Duration::from_millis(10));
                    lock.raw.0.load(Relaxed) & WAITED_FOR != 0
                });
                assert!(is_waited_for, "who waits says so, and sleeps");
                let given_back = Instant::now();
                drop(guard);
                waiting.join().expect("it does not panic") - given_back
            })
        };
        let fastest = (0..3).map(|_| woken_after()).min().expect("there were some");
        assert!(fastest < Duration::from_nanos(sys::LOOK.0 / 2), "{fastest:?}");
    }

    /// A step of a random program.
    #[derive(Clone, Debug)]
    enum Step {
        TryTake,
        /// Takes the lock if nobody has it.
        Take,
        Drop,
        Keep,
        GiveBackHeld,
        /// The thread that holds it stays in the parent of a fork.
        Forget,
    }

    /// The holder of the lock.
    #[derive(Debug)]
    enum Holder<'a> {
        Nobody,
        Guard(Guard<'a, u64>),
        Kept(SignalMask),
    }

    fn run<'a>(lock: &'a Lock<u64>, holder: Holder<'a>, step: &Step) -> Holder<'a> {
        match (step, holder) {
            (Step::TryTake, Holder::Nobody) => {
                Holder::Guard(lock.try_take().expect("nobody has it"))
            }
            (Step::Take, Holder::Nobody) => Holder::Guard(lock.take()),
            (Step::TryTake, holder) => {
                assert!(lock.try_take().is_none(), "somebody has it");
                holder
            }
            (Step::Drop, Holder::Guard(_)) => Holder::Nobody,
            (Step::Keep, Holder::Guard(guard)) => Holder::Kept(Lock::keep(guard)),
            (Step::GiveBackHeld, Holder::Kept(mask)) => {
                lock.give_back_held(mask);
                Holder::Nobody
            }
            (Step::Forget, Holder::Guard(guard)) => {
                let mask = Lock::keep(guard);
                lock.forget_holder();
                sys::set_signal_mask(mask);
                Holder::Nobody
            }
            (_, holder) => holder,
        }
    }

    proptest! {
        #[test]
        fn a_lock_is_held_and_signals_blocked_while_somebody_has_it(
            steps in prop::collection::vec(prop::sample::select(std::vec![
                Step::TryTake, Step::Take, Step::Drop, Step::Keep, Step::GiveBackHeld, Step::Forget,
            ]), 1..60),
        ) {
            let mask = || {
                let mask = sys::set_signal_mask(ALL);
                sys::set_signal_mask(mask);
                mask
            };
            let before = mask();
            let lock = Lock::new(0_u64);
            let mut holder = Holder::Nobody;
            for step in steps {
                holder = run(&lock, holder, &step);
                let is_held = !matches!(holder, Holder::Nobody);
                assert_eq!(lock.raw.0.load(SeqCst) != FREE, is_held);
                assert_eq!(lock.raw.0.load(SeqCst), if is_held { sys::thread() } else { FREE });
                assert_eq!(mask() != before, is_held, "all signals are blocked meanwhile");
            }
            if let Holder::Kept(mask) = holder {
                lock.give_back_held(mask);
            }
        }
    }
}
