//! Several runs at once, and runs that several tables and figures look at, each made once.

use super::{Given, Progress, Rests, Result, Setting};
use crate::turn;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, mpsc};

/// Makes the runs of these cases, as many at once as may be; `run` keeps what came of each.
pub(super) fn each<C: Copy + Send + Sync>(
    cases: &[C],
    run: &(dyn Fn(C) -> Result<()> + Sync),
    name: &dyn Fn(C) -> String,
    progress: Progress<'_>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let threads = turn::limited_to().get().min(cases.len());
    let (sender, done) = mpsc::channel();
    let work = |sender: mpsc::Sender<(C, Result<()>)>| {
        let case = || {
            let _turn = turn::take();
            let case = cases.get(next.fetch_add(1, Ordering::Relaxed))?;
            Some((*case, run(*case)))
        };
        while let Some(done) = case() {
            if sender.send(done).is_err() {
                return;
            }
        }
    };
    turn::lend(|| {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let sender = sender.clone();
                scope.spawn(|| work(sender));
            }
            drop(sender);
            // An early return drops the receiver, and the others stop after the run they are at.
            let done = done;
            for (finished, (case, result)) in done.iter().enumerate() {
                result?;
                progress(&format!("{} of {} runs; {}", finished + 1, cases.len(), name(case)))?;
            }
            Ok(())
        })
    })
}

/// What came of runs, by what they follow from. Whoever asks for one that another thread is at waits
/// for it.
#[derive(Debug)]
pub(super) struct Known<K, V>(Mutex<Option<HashMap<K, Slot<V>>>>);

/// One of them; `None` until it is made. It is locked while it is made.
type Slot<V> = Arc<Mutex<Option<V>>>;

impl<K: Eq + Hash, V: Clone> Known<K, V> {
    /// Nothing yet.
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// What came of the run `key`, which `make` makes if nobody has.
    ///
    /// # Errors
    /// Those of `make`; then the next who asks tries again.
    pub(super) fn get(&self, key: K, make: impl FnOnce() -> Result<V>) -> Result<V> {
        let slot = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.get_or_insert_default().entry(key).or_default())
        };
        loop {
            match slot.try_lock() {
                Ok(mut known) => {
                    if let Some(known) = known.as_ref() {
                        return Ok(known.clone());
                    }
                    return Ok(known.insert(make()?).clone());
                }
                Err(TryLockError::Poisoned(poisoned)) => {
                    // Whoever was at it panicked, and left nothing.
                    drop(poisoned);
                    slot.clear_poison();
                }
                // Nothing is held while somebody else makes it, not even its lock afterwards.
                Err(TryLockError::WouldBlock) => turn::lend(|| drop(slot.lock())),
            }
        }
    }
}

/// The outcome of a run, which knows the constants that it rests on.
pub(super) trait Outcome: Clone {
    /// The constants that were read for it.
    fn rests(&self) -> &Rests;
}

impl<C: Copy + Eq + Hash, V: Outcome> Known<(C, Given), V> {
    /// The outcome of the run `case` under this setting. Where the setting changes a constant that the run
    /// does not read, the outcome without the change is taken.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn outcome(
        &self,
        case: C,
        setting: &Setting,
        make: impl Fn(&Setting) -> Result<V>,
    ) -> Result<V> {
        if let Some(scaled) = &setting.scaled {
            let plain = Setting { scaled: None, ..setting.clone() };
            let outcome = self.get((case, plain.given()), || make(&plain))?;
            if !outcome.rests().has(&scaled.name) {
                return Ok(outcome);
            }
        }
        self.get((case, setting.given()), || make(setting))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Error;
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_run_that_many_ask_for_is_made_once() {
        static KNOWN: Known<u32, u32> = Known::new();
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let make = |case: u32| {
            KNOWN.get(case % 3, || {
                MADE.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
                Ok(case % 3 * 10)
            })
        };
        let cases: Vec<u32> = (0..24).collect();
        let mut said = Vec::new();
        let mut progress = |what: &str| {
            said.push(what.to_owned());
            Ok(())
        };
        let run = |case: u32| make(case).map(|found| assert_eq!(found, case % 3 * 10));
        each(&cases, &run, &|case| format!("case {case}"), &mut progress).expect("they run");
        assert_eq!(MADE.load(Ordering::Relaxed), 3);
        assert!(said.len() == 24 && said[23].starts_with("24 of 24 runs; case "), "{said:?}");
    }

    #[test]
    fn what_failed_is_tried_again() {
        let known: Known<u32, u32> = Known::new();
        let failed = || Err(Error::Simulation("no memory".to_owned()));
        assert!(known.get(1, failed).is_err());
        assert_eq!(known.get(1, || Ok(5)).ok(), Some(5));
        assert_eq!(known.get(1, failed).ok(), Some(5));
    }

    #[test]
    fn the_first_failure_ends_them() {
        let cases: Vec<u32> = (0..1000).collect();
        let made = AtomicUsize::new(0);
        let run = |_| {
            made.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(2));
            Err(Error::Interrupted)
        };
        let ended = each(&cases, &run, &|case| case.to_string(), &mut |_| Ok(()));
        assert!(matches!(ended, Err(Error::Interrupted)));
        // Cases that were under way, and what they had begun before anybody heard of it.
        let made = made.into_inner();
        assert!((1..cases.len() / 2).contains(&made), "{made} of {} were made", cases.len());
    }
}
