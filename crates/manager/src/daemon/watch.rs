//! One thing the daemon watches: the machine's memory, a cgroup's or some nodes', with its watermarks, where it
//! stands between them, and until when it is not to be bothered.

use crate::config::Config;
use crate::free_memory::{self, Nodes};
use crate::pass::End;
use crate::select::Selection;
use crate::status::Memory;
use std::path::{Path, PathBuf};
use std::time::Duration;
use superpage_kernel::node::NodeSet;
use superpage_kernel::{Error, Result};
use superpage_policy::debloat::DoneCause;
use superpage_policy::watermark::{Guard, Hysteresis, Order, Usage, Watermarks};
use superpage_units::{HugePages, Nanos, Time};

/// Whose memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Machine,
    /// A memory cgroup, by its directory.
    Cgroup(PathBuf),
    /// The nodes to which some processes are bound.
    Nodes(NodeSet),
}

/// Where used memory stands between two watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// At the low one or below.
    Low,
    /// Above the low one.
    Between,
    /// Above the high one.
    High,
}

/// A watch.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    subject: Subject,
    /// Nobody named it: it is a cgroup with a limit that was found, or nodes.
    is_found: bool,
    guard: Guard,
    /// Nothing was left to free but memory that programs asked huge pages for.
    has_spared: bool,
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
        Self { subject, is_found: false, guard: Guard::new(marks), has_spared: false }
    }

    /// Memory that nobody named: that of a cgroup with a limit, or of nodes.
    pub(super) fn found(subject: Subject, marks: Watermarks) -> Self {
        Self { is_found: true, ..Self::new(subject, marks) }
    }

    /// Whether this is whose memory it watches.
    pub(super) fn is_of(&self, subject: &Subject) -> bool {
        self.subject == *subject
    }

    /// Whether nobody named it.
    pub(super) fn is_found(&self) -> bool {
        self.is_found
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

    /// Where its memory stands now; `None` if that cannot be told.
    pub(super) fn level(&self, nodes: &mut Nodes) -> Option<Level> {
        self.subject.usage(nodes).ok().map(|usage| level(self.guard.marks(), usage))
    }

    /// Whether a process in this cgroup, bound to these nodes if to any, uses its memory and no other.
    pub(super) fn covers(&self, cgroup: Option<&Path>, nodes: Option<&NodeSet>) -> bool {
        match &self.subject {
            Subject::Machine => true,
            Subject::Cgroup(path) => cgroup.is_some_and(|cgroup| cgroup.starts_with(path)),
            Subject::Nodes(watched) => nodes.is_some_and(|nodes| nodes.is_within(watched)),
        }
    }

    /// Goes on from where an earlier daemon stood.
    pub(super) fn stand_above(&mut self) {
        self.guard.stand(Hysteresis::Debloating);
    }

    /// How its memory stands.
    pub(super) fn memory(&self, nodes: &mut Nodes) -> Result<Memory> {
        let usage = self.subject.usage(nodes)?;
        let marks = self.guard.marks();
        Ok(Memory {
            name: self.name(),
            used: usage.used,
            total: usage.total,
            high: marks.high(),
            low: marks.low(),
        })
    }

    pub(super) fn name(&self) -> String {
        match &self.subject {
            Subject::Machine => "machine".to_owned(),
            Subject::Cgroup(path) => path.display().to_string(),
            Subject::Nodes(nodes) => format!("nodes {nodes}"),
        }
    }

    /// What to do now; `None` while backing off.
    pub(super) fn step(&mut self, nodes: &mut Nodes, now: Time) -> Result<Option<Order>> {
        let usage = self.subject.usage(nodes)?;
        if self.has_spared && level(self.guard.marks(), usage) == Level::High {
            // What was spared is not any more.
            self.has_spared = false;
            self.guard.freed_enough();
        }
        Ok(self.guard.step(now, usage))
    }

    /// Takes note of how a pass ended that spared so many huge pages; returns how long to wait if there
    /// was nothing left.
    pub(super) fn after_pass(
        &mut self,
        end: End,
        spared: HugePages,
        now: Time,
        wait: Duration,
    ) -> Option<Duration> {
        self.has_spared = !spared.is_zero();
        if end != End::Done(DoneCause::NothingLeft) {
            self.guard.freed_enough();
            return None;
        }
        let wait = self.guard.nothing_left(now, Nanos::from_secs_f64(wait.as_secs_f64()));
        Some(Duration::from_nanos(wait.0))
    }

    /// Which processes can help: for a cgroup, only those in it. Which are bound to which nodes no selection knows, but
    /// [`Self::covers`].
    pub(super) fn selection(&self, configured: &Selection) -> Selection {
        let mut selection = configured.clone();
        if let Subject::Cgroup(path) = &self.subject {
            selection.within = Some(path.clone());
        }
        selection
    }
}

fn level(marks: Watermarks, usage: Usage) -> Level {
    match usage.share() {
        share if share > marks.high() => Level::High,
        share if share > marks.low() => Level::Between,
        _ => Level::Low,
    }
}

impl Subject {
    fn usage(&self, read: &mut Nodes) -> Result<Usage> {
        match self {
            Self::Machine => free_memory::usage_of_machine(Path::new("/proc")),
            Self::Cgroup(path) => {
                let reason = "it has no memory limit to take a share of";
                let no_limit = || Error::Refused { path: path.clone(), reason };
                free_memory::usage_of_cgroup(path)?.ok_or_else(no_limit)
            }
            Self::Nodes(nodes) => read.usage(nodes),
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
        let none = HugePages::default();
        let after =
            |watch: &mut Watch, done| watch.after_pass(End::Done(done), none, Time::ZERO, wait);
        assert_eq!(after(&mut watch, DoneCause::NothingLeft), Some(wait));
        assert_eq!(after(&mut watch, DoneCause::NothingLeft), Some(wait * 2));
        assert_eq!(after(&mut watch, DoneCause::NeedMet), None);
        assert_eq!(after(&mut watch, DoneCause::NothingLeft), Some(wait));
    }

    #[test]
    fn levels_are_those_between_which_passes_begin_and_end() {
        use superpage_units::Bytes;
        let at = |used| {
            let usage = Usage { used: Bytes(used), total: Bytes(100) };
            (
                level(Watermarks::default(), usage),
                Guard::new(Watermarks::default()).is_relieved(usage),
            )
        };
        assert_eq!([65, 66].map(at), [(Level::Low, true), (Level::Between, false)]);
        assert_eq!([80, 81].map(at), [(Level::Between, false), (Level::High, false)]);
    }

    #[test]
    fn nodes_cover_whoever_is_bound_to_some_of_them() {
        let set = |list: &str| NodeSet::parse(list.as_bytes()).expect("a list");
        let watch = Watch::found(Subject::Nodes(set("0-1")), Watermarks::default());
        assert_eq!(watch.name(), "nodes 0-1");
        for (bound, is_covered) in [(Some("1"), true), (Some("0-1"), true), (Some("1-2"), false)] {
            assert_eq!(watch.covers(None, bound.map(set).as_ref()), is_covered, "{bound:?}");
        }
        assert!(!watch.covers(None, None), "who may use all nodes is bound to none");
        let machine = Watch::new(Subject::Machine, Watermarks::default());
        assert!(machine.covers(None, None) && machine.covers(None, Some(&set("1"))));
    }

    #[test]
    fn a_cgroup_that_is_not_there_is_an_error_not_a_number() {
        let subject = Subject::Cgroup("/sys/fs/cgroup/no such group".into());
        assert!(subject.usage(&mut Nodes::now()).is_err());
    }
}
