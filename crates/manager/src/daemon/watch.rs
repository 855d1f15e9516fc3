//! One thing the daemon watches: the machine's memory or a cgroup's, with its watermarks, where it
//! stands between them, and until when it is not to be bothered.

use crate::config::Config;
use crate::pass::End;
use crate::select::Selection;
use crate::status::Memory;
use crate::supply;
use std::path::Path;
use std::time::Duration;
use superpage_kernel::{Error, Result};
use superpage_policy::debloat::DoneCause;
use superpage_policy::watermark::{Guard, Hysteresis, Order, Usage, Watermarks};
use superpage_units::Nanos;

/// Whose memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Machine,
    Cgroup(std::path::PathBuf),
}

/// A watch.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    subject: Subject,
    guard: Guard,
}

/// The watches that a configuration asks for.
pub(super) fn all(config: &Config) -> Vec<Watch> {
    let machine = config.machine.map(|marks| Watch::new(Subject::Machine, marks));
    let cgroups =
        config.cgroups.iter().map(|c| Watch::new(Subject::Cgroup(c.path.clone()), c.marks));
    machine.into_iter().chain(cgroups).collect()
}

impl Watch {
    fn new(subject: Subject, marks: Watermarks) -> Self {
        Self { subject, guard: Guard::new(marks) }
    }

    /// Takes over where an earlier watch of the same memory stands between its watermarks.
    pub(super) fn resume(&mut self, earlier: &[Self]) {
        if let Some(same) = earlier.iter().find(|watch| watch.subject == self.subject) {
            self.guard.resume(&same.guard);
        }
    }

    /// Whether the high watermark was passed and the low one not reached yet.
    pub(super) fn is_above(&self) -> bool {
        self.guard.state() == Hysteresis::Debloating
    }

    /// Whether the memory is above the high watermark now.
    pub(super) fn is_passed(&self) -> bool {
        self.subject.usage().is_ok_and(|usage| usage.share() > self.guard.marks().high())
    }

    /// Goes on from where an earlier daemon stood.
    pub(super) fn stand_above(&mut self) {
        self.guard.stand(Hysteresis::Debloating);
    }

    /// How its memory stands.
    pub(super) fn memory(&self) -> Result<Memory> {
        let usage = self.subject.usage()?;
        let marks = self.guard.marks();
        Ok(Memory {
            name: self.name(),
            used: usage.used.0,
            total: usage.total.0,
            high: marks.high(),
            low: marks.low(),
        })
    }

    /// Whether the memory is at or below the low watermark now, so that enough has been freed.
    pub(super) fn is_relieved(&self) -> bool {
        self.subject.usage().is_ok_and(|usage| self.guard.is_relieved(usage))
    }

    pub(super) fn name(&self) -> String {
        match &self.subject {
            Subject::Machine => "machine".to_owned(),
            Subject::Cgroup(path) => path.display().to_string(),
        }
    }

    /// What to do now; `None` while backing off.
    pub(super) fn step(&mut self, now: Nanos) -> Result<Option<Order>> {
        Ok(self.guard.step(now, self.subject.usage()?))
    }

    /// Takes note of how a pass ended; returns how long to wait if there was nothing left.
    pub(super) fn after_pass(&mut self, end: End, now: Nanos, wait: Duration) -> Option<Duration> {
        if end != End::Done(DoneCause::NothingLeft) {
            self.guard.freed_enough();
            return None;
        }
        let wait = self.guard.nothing_left(now, Nanos::from_secs_f64(wait.as_secs_f64()));
        Some(Duration::from_nanos(wait.0))
    }

    /// Which processes can help: for a cgroup, only those in it.
    pub(super) fn selection(&self, configured: &Selection) -> Selection {
        let mut selection = configured.clone();
        if let Subject::Cgroup(path) = &self.subject {
            selection.within = Some(path.clone());
        }
        selection
    }
}

impl Subject {
    fn usage(&self) -> Result<Usage> {
        match self {
            Self::Machine => supply::usage_of_machine(Path::new("/proc")),
            Self::Cgroup(path) => {
                let reason = "it has no memory limit to take a share of";
                let no_limit = || Error::Refused { path: path.clone(), reason };
                supply::usage_of_cgroup(path)?.ok_or_else(no_limit)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_only_when_nothing_was_left() {
        let mut watch = Watch::new(Subject::Machine, Watermarks::default());
        let wait = Duration::from_secs(1);
        let after = |watch: &mut Watch, done| watch.after_pass(End::Done(done), Nanos::ZERO, wait);
        assert_eq!(after(&mut watch, DoneCause::NothingLeft), Some(wait));
        assert_eq!(after(&mut watch, DoneCause::NothingLeft), Some(wait * 2));
        assert_eq!(after(&mut watch, DoneCause::NeedMet), None);
        assert_eq!(after(&mut watch, DoneCause::NothingLeft), Some(wait));
    }

    #[test]
    fn a_cgroup_that_is_not_there_is_an_error_not_a_number() {
        let subject = Subject::Cgroup("/sys/fs/cgroup/no such group".into());
        assert!(subject.usage().is_err());
    }
}
