//! How far a pass is: shared by its thread, which notes each thing that may wait for the kernel, and the
//! daemon's thread, which sees whether one takes too long.

use crate::left_behind::Owner;
use crate::process::ManagedProcess;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use superpage_units::{Pid, ProcessKey};

/// A process that a step is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) key: ProcessKey,
    pub(super) pid: Pid,
    pub(super) command: String,
    pub(super) owner: Owner,
}

/// A step: since when, and about which process; `None`: about all.
#[derive(Clone, Debug)]
struct Step {
    since: Instant,
    subject: Option<Subject>,
}

/// How far a pass is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    step: Mutex<Option<Step>>,
    is_to_end: AtomicBool,
    /// The pass has to end at this time.
    by: Option<Instant>,
}

impl Progress {
    /// The progress of a pass that has to end at `by`, if there is such a time.
    pub(super) fn until(by: Option<Instant>) -> Self {
        Self { by, ..Self::default() }
    }

    fn step(&self) -> MutexGuard<'_, Option<Step>> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step begins that may have to wait for this process.
    pub(super) fn begins(&self, process: &ManagedProcess) {
        let mut step = self.step();
        let since = Instant::now();
        match step.as_mut() {
            Some(Step { since: earlier, subject: Some(same) }) if same.key == process.key => {
                *earlier = since;
            }
            _ => {
                let (key, pid) = (process.key, process.pid());
                let (command, owner) = (process.command().to_owned(), Owner::of(&process.identity));
                let subject = Subject { key, pid, command, owner };
                *step = Some(Step { since, subject: Some(subject) });
            }
        }
    }

    /// A step begins that goes through all processes.
    pub(super) fn begins_with_all(&self) {
        *self.step() = Some(Step { since: Instant::now(), subject: None });
    }

    /// The step is over.
    pub(super) fn is_over(&self) {
        *self.step() = None;
    }

    /// If the step takes longer than `limit`: about which process.
    pub(super) fn overdue(&self, limit: Duration) -> Option<Option<Subject>> {
        let step = self.step();
        let late = step.as_ref().filter(|step| step.since.elapsed() > limit)?;
        Some(late.subject.clone())
    }

    /// Has the pass end after the step under way.
    pub(super) fn end(&self) {
        self.is_to_end.store(true, Ordering::Relaxed);
    }

    /// Whether the pass is to end.
    pub(super) fn is_to_end(&self) -> bool {
        self.is_to_end.load(Ordering::Relaxed) || self.by.is_some_and(|by| by <= Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_ends_when_it_is_told_to_or_its_time_is_over() {
        let now = Instant::now();
        assert!(Progress::until(Some(now)).is_to_end());
        let progress = Progress::until(Some(now + Duration::from_secs(60)));
        assert!(!progress.is_to_end() && !Progress::until(None).is_to_end());
        progress.end();
        assert!(progress.is_to_end());
    }

    #[test]
    fn a_step_is_overdue_from_its_own_beginning() {
        let progress = Progress::default();
        assert!(progress.overdue(Duration::ZERO).is_none(), "nothing is under way");
        progress.begins_with_all();
        assert_eq!(progress.overdue(Duration::ZERO), Some(None));
        assert!(progress.overdue(Duration::from_secs(60)).is_none());
        progress.is_over();
        assert!(progress.overdue(Duration::ZERO).is_none());
    }
}
