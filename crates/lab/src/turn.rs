//! Turns on the CPUs: however many threads there are, no more of them simulate at once than was
//! said. A thread that waits for others lends its turn to them.
//!
//! A lock may be waited for without lending one's turn if whoever holds it has a turn and waits for
//! nothing. So among those who have a turn there is always somebody who goes on.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// How many there are; `None`: as many as CPUs.
struct Turns {
    all: Option<usize>,
    taken: usize,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns { all: None, taken: 0 });
static FREED: Condvar = Condvar::new();

thread_local! {
    static HAS_ONE: Cell<bool> = const { Cell::new(false) };
}

fn turns() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says how many threads of this process may simulate at once.
pub fn limit(all: NonZero<usize>) {
    turns().all = Some(all.get());
    FREED.notify_all();
}

/// How many threads may simulate at once.
#[must_use]
pub fn limited_to() -> NonZero<usize> {
    let all = turns().all.and_then(NonZero::new);
    all.or_else(|| available_parallelism().ok()).unwrap_or(NonZero::<usize>::MIN)
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(());

/// Waits for a turn. A thread that has one must not ask for another.
pub(crate) fn take() -> Turn {
    let all = limited_to().get();
    let mut turns = turns();
    while turns.taken >= turns.all.unwrap_or(all) {
        turns = FREED.wait(turns).unwrap_or_else(PoisonError::into_inner);
    }
    turns.taken += 1;
    HAS_ONE.set(true);
    Turn(())
}

impl Drop for Turn {
    fn drop(&mut self) {
        turns().taken -= 1;
        HAS_ONE.set(false);
        FREED.notify_one();
    }
}

/// Does something that waits for other threads, and lets them have this thread's turn meanwhile, if
/// it has one.
pub(crate) fn lend<T>(wait: impl FnOnce() -> T) -> T {
    if !HAS_ONE.get() {
        return wait();
    }
    let _back = Lent::now();
    wait()
}

/// A turn that was lent, to be reclaimed when this is dropped.
struct Lent;

impl Lent {
    fn now() -> Self {
        drop(Turn(()));
        Self
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        std::mem::forget(take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// Other tests of this program take turns meanwhile; so this counts only its own.
    #[test]
    fn no_more_work_at_once_than_may_and_who_waits_lends() {
        let [at_once, most] = [(); 2].map(|()| AtomicUsize::new(0));
        let all = limited_to().get();
        let work = || {
            let _turn = take();
            most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(2));
            at_once.fetch_sub(1, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            // As many as there are turns wait for others, which would never get one.
            for _ in 0..all {
                scope.spawn(|| {
                    let _turn = take();
                    lend(|| {
                        std::thread::scope(|inner| {
                            (0..4).for_each(|_| {
                                inner.spawn(work);
                            });
                        });
                    });
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= all);
        // Who has none has none to lend.
        assert_eq!(lend(|| 3), 3);
    }
}
