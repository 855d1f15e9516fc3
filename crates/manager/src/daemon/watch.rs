//! One thing the daemon watches: the machine's memory or a cgroup's, with its watermarks, where it
//! stands between them, and until when it is not to be bothered.

use crate::config::Config;
use crate::pass::End;
use crate::select::Selection;
use std::path::Path;
use std::time::Duration;
use superpage_kernel::cgroup::Group;
use superpage_kernel::meminfo;
use superpage_kernel::{Error, Result};
use superpage_policy::debloat::DoneCause;
use superpage_policy::units::Nanos;
use superpage_policy::watermark::{Hysteresis, Order, Usage, Watermarks};

/// The longest wait is this many times the configured one.
const LONGEST_BACK_OFF: u32 = 16;

/// A share of memory in use that grew by this much since nothing was left to free may have brought
/// new bloat with it. Chosen, not measured.
const WORTH_ANOTHER_LOOK: f64 = 0.02;

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
    marks: Watermarks,
    state: Hysteresis,
    /// Not before this time; and how often in a row there was nothing to free.
    not_before: Nanos,
    vain: u32,
    /// The share in use at the last look, and when nothing was left to free.
    share: f64,
    vain_share: f64,
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
        let state = Hysteresis::default();
        let not_before = Nanos::ZERO;
        Self { subject, marks, state, not_before, vain: 0, share: 0.0, vain_share: 0.0 }
    }

    /// Takes over where an earlier watch of the same memory stands between its watermarks.
    pub(super) fn resume(&mut self, earlier: &[Self]) {
        if let Some(same) = earlier.iter().find(|watch| watch.subject == self.subject) {
            self.state = same.state;
        }
    }

    /// Whether the memory is at or below the low watermark now, so that enough has been freed.
    pub(super) fn is_relieved(&self) -> bool {
        self.subject.usage().is_ok_and(|usage| usage.share() <= self.marks.low())
    }

    pub(super) fn name(&self) -> String {
        match &self.subject {
            Subject::Machine => "machine".to_owned(),
            Subject::Cgroup(path) => path.display().to_string(),
        }
    }

    /// What to do now; `None` while backing off.
    pub(super) fn step(&mut self, now: Nanos) -> Result<Option<Order>> {
        let usage = self.subject.usage()?;
        let order = self.state.step(self.marks, usage);
        self.share = usage.share();
        let grew = self.share > self.vain_share + WORTH_ANOTHER_LOOK;
        if grew || matches!(order, Order::Rest { .. }) {
            self.vain = 0;
            self.not_before = Nanos::ZERO;
        }
        Ok((now >= self.not_before).then_some(order))
    }

    /// Takes note of how a pass ended; returns how long to wait if there was nothing left.
    pub(super) fn after_pass(&mut self, end: End, now: Nanos, wait: Duration) -> Option<Duration> {
        if end != End::Done(DoneCause::NothingLeft) {
            self.vain = 0;
            return None;
        }
        let times = 1_u32.checked_shl(self.vain).unwrap_or(LONGEST_BACK_OFF).min(LONGEST_BACK_OFF);
        self.vain += 1;
        self.vain_share = self.share;
        let wait = wait * times;
        self.not_before = now + Nanos::from_secs_f64(wait.as_secs_f64());
        Some(wait)
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
            Self::Machine => {
                let memory = meminfo::read(Path::new("/proc"))?;
                Ok(Usage { used: memory.used(), total: memory.total })
            }
            Self::Cgroup(path) => {
                let usage = Group::open(path)?.usage()?;
                let reason = "it has no memory limit to take a share of";
                let no_limit = || Error::Refused { path: path.clone(), reason };
                let total = usage.limit.into_iter().chain(usage.high).min().ok_or_else(no_limit)?;
                Ok(Usage { used: usage.working, total })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: End = End::Done(DoneCause::NothingLeft);

    #[test]
    fn waits_double_up_to_a_limit_and_start_over_after_success() {
        let mut watch = Watch::new(Subject::Machine, Watermarks::default());
        let base = Duration::from_secs(1);
        let waits: Vec<u64> = (0..7)
            .filter_map(|_| watch.after_pass(NOTHING, Nanos::ZERO, base))
            .map(|wait| wait.as_secs())
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 16, 16]);
        assert_eq!(watch.after_pass(End::Done(DoneCause::NeedMet), Nanos::ZERO, base), None);
        assert_eq!(watch.after_pass(NOTHING, Nanos::ZERO, base), Some(base));
    }

    #[test]
    fn a_cgroup_that_is_not_there_is_an_error_not_a_number() {
        let subject = Subject::Cgroup("/sys/fs/cgroup/no such group".into());
        assert!(subject.usage().is_err());
    }
}
