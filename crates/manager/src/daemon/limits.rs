//! Memory that is smaller than the machine's and that managed processes have to live in: memory cgroups with a limit, and the nodes
//! to which processes are bound. It is found as it comes and goes, and looked at again before all of it could be in use.
//!
//! In version 1 the kernel wakes the daemon when a group passes its high watermark; in version 2 only when the group has
//! come to its limit, and never for nodes. So they are also looked at by the clock: when what is left below the high watermark
//! could be gone at twice the fastest rate at which its use was seen to grow.

use super::watch::{Subject, Watch};
use crate::config::{CgroupMarks, CgroupsConfig};
use crate::free_memory::Nodes;
use crate::registry::Registry;
use rustix::event::PollFd;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use superpage_kernel::Result;
use superpage_kernel::cgroup::{Group, Version};
use superpage_kernel::cgroup_alarm::Alarm;
use superpage_kernel::node::NodeSet;
use superpage_policy::watermark::Watermarks;
use superpage_units::Bytes;
use tracing::debug;

/// The daemon looks this often which cgroups and sets of nodes there are, and at those that are above their high watermark. Chosen, not measured: a
/// group is known before its program has touched a GiB.
const SEARCH: Duration = Duration::from_millis(250);
/// A cgroup, or a set of nodes, is looked at this often at the most. Chosen, not measured.
const SOONEST: Duration = Duration::from_millis(20);
/// A cgroup, or a set of nodes, is looked at this often at the least, and its limit read again. Chosen, not measured.
const LATEST: Duration = Duration::from_secs(5);
/// The use of one that was just found is taken to grow so fast in a second until it is known how fast it does. Chosen, not measured.
const AT_FIRST: Bytes = Bytes::from_gib(1);
/// A cgroup, or a set of nodes, is new for so long. Chosen, not measured.
const NEW: Duration = Duration::from_secs(5);
/// The most cgroups that are watched: who makes more by the thousand gets no more than that of our time.
const MOST: usize = 1000; // tidy: allow(groups)
/// The most sets of nodes that are watched, besides the cgroups: all that six nodes have. Who binds programs to all sets of
/// more nodes gets no more than that of our time.
const MOST_NODE_SETS: usize = 64;

/// The cgroup or the nodes whose memory is limited.
#[derive(Debug)]
enum Source {
    Group(Group),
    Nodes(NodeSet),
}

impl Source {
    /// The memory of a cgroup with a limit, or of nodes, and how much that is; `None` where there is no limit or no such memory.
    fn open(subject: &Subject, read: &mut Nodes) -> Option<(Self, Bytes)> {
        match subject {
            Subject::Machine => None,
            Subject::Cgroup(path) => {
                let group = Group::open(path).ok()?;
                let limit = group.least_limit().ok()??;
                Some((Self::Group(group), limit))
            }
            Subject::Nodes(nodes) => {
                let usage = read.usage(nodes).ok()?;
                Some((Self::Nodes(nodes.clone()), usage.total))
            }
        }
    }

    /// The memory in use; of a cgroup that has no more than `high`, with the file cache.
    fn used(&self, high: Bytes, read: &mut Nodes) -> Result<Bytes> {
        match self {
            // The file cache fills any group that reads files, and can be dropped; to tell it apart has the kernel sum its accounts up.
            Self::Group(group) => match group.current()? {
                current if current > high => {
                    Ok(group.usage().map_or(current, |usage| usage.working))
                }
                current => Ok(current),
            },
            Self::Nodes(nodes) => Ok(read.usage(nodes)?.used),
        }
    }

    /// An alarm that wakes us, where the kernel has one.
    fn alarm(&self, high: Bytes) -> Option<Alarm> {
        let Self::Group(group) = self else { return None };
        let failed = |error: &_| debug!("{}: {error}", group.path().display());
        Alarm::arm(group, high).inspect_err(failed).ok()
    }

    /// Whether its alarm goes off at the high watermark, and not only where nothing is left.
    fn has_early_alarm(&self) -> bool {
        matches!(self, Self::Group(group) if group.version() == Version::V1)
    }
}

/// Memory that was found.
#[derive(Debug)]
struct Limited {
    source: Source,
    limit: Bytes,
    marks: Watermarks,
    /// Wakes us, where the kernel does.
    alarm: Option<Alarm>,
    found: Instant,
    /// The time of the last look, and the memory in use then; below the high watermark with the file cache.
    seen: Option<(Instant, Bytes)>,
    /// The fastest that it was seen to grow, in bytes a second.
    fastest: f64,
    next: Instant,
}

impl Limited {
    fn new(source: Source, limit: Bytes, marks: Watermarks) -> Self {
        let now = Instant::now();
        let alarm = source.alarm(marks.high().of(limit));
        Self { source, limit, marks, alarm, found: now, seen: None, fastest: 0.0, next: now }
    }

    /// Looks at the memory; whether it is above its high watermark.
    fn look(&mut self, now: Instant, nodes: &mut Nodes) -> bool {
        let high = self.marks.high().of(self.limit);
        let Ok(used) = self.source.used(high, nodes) else {
            // The cgroup or node has gone, and will not be there at the next search. Its alarm would go off until then.
            self.alarm = None;
            self.next = now + LATEST;
            return false;
        };
        if let Some((at, before)) = self.seen {
            let grown = used.saturating_sub(before).0 as f64;
            let time = now.saturating_duration_since(at).max(Duration::from_millis(1));
            self.fastest = self.fastest.max(grown / time.as_secs_f64());
        }
        self.seen = Some((now, used));
        let is_above = used > high;
        // A pass is under way then, or has found nothing to free.
        let wait = if is_above { SEARCH } else { self.wait(high.saturating_sub(used), now) };
        self.next = now + wait;
        is_above
    }

    /// The time in which so much could be used up.
    fn wait(&self, left: Bytes, now: Instant) -> Duration {
        if self.alarm.is_some() && self.source.has_early_alarm() {
            return LATEST;
        }
        let is_new = now.saturating_duration_since(self.found) < NEW;
        let assumed = if is_new { AT_FIRST.0 as f64 } else { 0.0 };
        let rate = (2.0 * self.fastest).max(assumed).max(self.limit.0 as f64 / 60.0);
        Duration::from_secs_f64((left.0 as f64 / rate).min(LATEST.as_secs_f64())).max(SOONEST)
    }
}

/// All cgroups with a limit, and all nodes, that are watched.
#[derive(Debug)]
pub(super) struct Limits {
    limited: BTreeMap<Subject, Limited>,
    next_search: Instant,
    /// The cgroups in which managed processes were, and those above them, and the nodes to which processes were bound, when limits
    /// were read.
    candidates: BTreeSet<Subject>,
    /// Limits are read again at this time, also where the candidates are the same.
    next_reading: Instant,
}

impl Limits {
    /// No cgroup and no set of nodes is known yet.
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let (limited, candidates) = (BTreeMap::new(), BTreeSet::new());
        Self { limited, next_search: now, candidates, next_reading: now }
    }

    /// The time of the next search or look.
    pub(super) fn next(&self) -> Instant {
        let looks = self.limited.values().map(|limited| limited.next);
        looks.chain([self.next_search]).min().unwrap_or(self.next_search)
    }

    /// The descriptors of the alarms, for a poll.
    pub(super) fn alarms(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.limited.values().filter_map(|limited| Some(limited.alarm.as_ref()?.poll()))
    }

    /// An alarm has gone off: all cgroups are looked at.
    pub(super) fn alarmed(&mut self) {
        let now = Instant::now();
        for limited in self.limited.values_mut() {
            limited.alarm.iter().for_each(Alarm::clear);
            limited.next = now;
        }
    }

    /// Takes in which there are, if it is time; whether others are watched now. Cgroups with watermarks of their own are watched
    /// for themselves.
    pub(super) fn search(
        &mut self,
        registry: &Registry,
        config: CgroupsConfig,
        own: &[CgroupMarks],
    ) -> bool {
        let now = Instant::now();
        if now < self.next_search {
            return false;
        }
        self.next_search = now + SEARCH;
        if !config.is_watched {
            self.candidates.clear();
            return !std::mem::take(&mut self.limited).is_empty();
        }
        let marks = config.marks;
        let processes = registry.processes();
        let there = candidates(processes.iter().map(|process| (process.cgroup(), process.nodes())));
        if there == self.candidates && now < self.next_reading {
            return false;
        }
        self.next_reading = now + LATEST;
        self.candidates.clone_from(&there);
        let is_own = |subject: &Subject| own.iter().any(|group| is_of(group, subject));
        let others = there.into_iter().filter(|subject| !is_own(subject));
        let mut nodes = Nodes::now();
        let found = others
            .filter_map(|subject| Source::open(&subject, &mut nodes).map(|open| (subject, open)));
        self.take_in(found.collect(), marks)
    }

    /// Has these watched, each with its limit; whether they are others than before.
    fn take_in(&mut self, found: BTreeMap<Subject, (Source, Bytes)>, marks: Watermarks) -> bool {
        let is_same = |(subject, (_, limit)): (&Subject, &(Source, Bytes))| {
            let known = self.limited.get(subject);
            known.is_some_and(|known| known.limit == *limit && known.marks == marks)
        };
        if found.len() == self.limited.len() && found.iter().all(is_same) {
            return false;
        }
        let mut before = std::mem::take(&mut self.limited);
        for (subject, (source, limit)) in found {
            let same = before.remove(&subject);
            let same = same.filter(|one| one.limit == limit && one.marks == marks);
            let limited = same.unwrap_or_else(|| Limited::new(source, limit, marks));
            self.limited.insert(subject, limited);
        }
        true
    }

    /// A watch for each cgroup and each set of nodes that is known.
    pub(super) fn watches(&self) -> impl Iterator<Item = Watch> {
        self.limited.iter().map(|(subject, limited)| Watch::found(subject.clone(), limited.marks))
    }

    /// Looks at those whose time has come; those that are above their high watermark.
    pub(super) fn endangered(&mut self, nodes: &mut Nodes) -> Vec<Subject> {
        let now = Instant::now();
        let due = self.limited.iter_mut().filter(|(_, limited)| limited.next <= now);
        due.filter_map(|(subject, limited)| limited.look(now, nodes).then(|| subject.clone()))
            .collect()
    }
}

/// The cgroups in which these processes are, and those above them, and the nodes to which they are bound.
fn candidates<'a>(
    processes: impl Iterator<Item = (Option<&'a Path>, Option<NodeSet>)>,
) -> BTreeSet<Subject> {
    let (mut cgroups, mut sets) = (BTreeSet::new(), BTreeSet::new());
    for (cgroup, nodes) in processes {
        if sets.len() < MOST_NODE_SETS {
            sets.extend(nodes.map(Subject::Nodes));
        }
        for path in cgroup.into_iter().flat_map(Path::ancestors) {
            if cgroups.len() >= MOST || !cgroups.insert(Subject::Cgroup(path.to_owned())) {
                break;
            }
        }
    }
    cgroups.append(&mut sets);
    cgroups
}

/// Whether it is this cgroup.
fn is_of(group: &CgroupMarks, subject: &Subject) -> bool {
    matches!(subject, Subject::Cgroup(path) if *path == group.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::free_memory::tests::write_node;
    use superpage_units::Share;

    #[test]
    fn nodes_are_looked_at_by_the_clock() {
        let root = tempfile::tempdir().expect("there is room");
        write_node(root.path(), 1, Bytes::from_mib(1), 0);
        let subject = Subject::Nodes(NodeSet::parse(b"1").expect("a list"));
        let read = || Nodes::under(root.path(), root.path());
        let open = || Source::open(&subject, &mut read()).map(|open| (subject.clone(), open));
        let found = || open().into_iter().collect();
        let passed =
            Watermarks::new(Share::clamped(0.0001), Share::NONE).expect("low is below high");
        let mut limits = Limits::new();
        assert!(limits.take_in(found(), passed) && !limits.take_in(found(), passed));
        let names: Vec<String> = limits.watches().map(|watch| watch.name()).collect();
        assert_eq!(names, ["nodes 1"]);
        assert!(limits.watches().all(|watch| watch.is_found()) && limits.alarms().next().is_none());
        assert_eq!(limits.endangered(&mut read()), std::slice::from_ref(&subject));
        assert!(limits.endangered(&mut read()).is_empty(), "it is not time");
        assert!(limits.next() <= Instant::now() + SEARCH);
        assert!(limits.take_in(found(), Watermarks::NEVER), "other watermarks");
        assert!(limits.endangered(&mut read()).is_empty(), "they are not passed");
        assert!(limits.take_in(BTreeMap::new(), passed) && limits.watches().next().is_none());
        write_node(root.path(), 1, Bytes::ZERO, 1);
        assert!(open().is_none(), "all of it is hugetlb");
    }

    #[test]
    fn who_binds_programs_to_many_sets_of_nodes_pushes_out_no_cgroup() {
        let sets = (0..MOST).map(|set| {
            let nodes: Vec<String> =
                (0..10).filter(|node| set >> node & 1 == 1).map(|node| node.to_string()).collect();
            NodeSet::parse(nodes.join(",").as_bytes())
        });
        let last = (Some(Path::new("/last")), None);
        let there = candidates(sets.map(|set| (None, set)).chain([last]));
        let is_set = |subject: &&Subject| matches!(subject, Subject::Nodes(_));
        assert_eq!(there.iter().filter(is_set).count(), MOST_NODE_SETS);
        assert!(there.contains(&Subject::Cgroup("/last".into())));
    }
}
