//! The memory cgroups with a limit in which managed processes are: found as they come and go, and looked at again before they
//! could come to their limit.
//!
//! In version 1 the kernel wakes the daemon when such a group passes its high watermark; in version 2 only when the group has
//! come to its limit, so it is also looked at by the clock: when what is left below its high watermark could be gone at twice
//! the fastest rate at which it was seen to grow.

use super::watch::Watch;
use crate::config::{CgroupMarks, CgroupsConfig};
use crate::registry::Registry;
use rustix::event::PollFd;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use superpage_kernel::cgroup::{Group, Version};
use superpage_kernel::cgroup_alarm::Alarm;
use superpage_policy::watermark::Watermarks;
use superpage_units::Bytes;
use tracing::debug;

/// The daemon looks this often which groups there are, and at those that are above their high watermark. Chosen, not measured: a
/// group is known before its program has touched a GiB.
const SEARCH: Duration = Duration::from_millis(250);
/// A group is looked at this often at the most. Chosen, not measured.
const SOONEST: Duration = Duration::from_millis(20);
/// A group is looked at this often at the least, and its limit read again. Chosen, not measured.
const LATEST: Duration = Duration::from_secs(5);
/// A group that was just found is taken to grow so fast in a second until it is known how fast it does. Chosen, not measured.
const AT_FIRST: Bytes = Bytes::from_gib(1);
/// A group is new for so long. Chosen, not measured.
const NEW: Duration = Duration::from_secs(5);
/// Groups that are watched at the most: who makes more by the thousand gets no more than that of our time.
const MOST: usize = 1000; // tidy: allow(groups)

/// A group.
#[derive(Debug)]
struct Limited {
    group: Group,
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
    fn new(group: Group, limit: Bytes, marks: Watermarks) -> Self {
        let now = Instant::now();
        let alarm = Alarm::arm(&group, marks.high().of(limit))
            .inspect_err(|error| debug!("{}: {error}", group.path().display()))
            .ok();
        Self { group, limit, marks, alarm, found: now, seen: None, fastest: 0.0, next: now }
    }

    /// Looks at the group; whether it is above its high watermark.
    fn look(&mut self, now: Instant) -> bool {
        let Ok(current) = self.group.current() else {
            // The group has gone, and will not be there at the next search. Its alarm would go off until then.
            self.alarm = None;
            self.next = now + LATEST;
            return false;
        };
        let high = self.marks.high().of(self.limit);
        // The file cache fills any group that reads files, and can be dropped; to tell it apart has the kernel sum its accounts up.
        let used = match current > high {
            true => self.group.usage().map_or(current, |usage| usage.working),
            false => current,
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

    /// The time in which the group could use up so much.
    fn wait(&self, left: Bytes, now: Instant) -> Duration {
        if self.alarm.is_some() && self.group.version() == Version::V1 {
            return LATEST;
        }
        let is_new = now.saturating_duration_since(self.found) < NEW;
        let assumed = if is_new { AT_FIRST.0 as f64 } else { 0.0 };
        let rate = (2.0 * self.fastest).max(assumed).max(self.limit.0 as f64 / 60.0);
        Duration::from_secs_f64((left.0 as f64 / rate).min(LATEST.as_secs_f64())).max(SOONEST)
    }
}

/// All cgroups with a limit that are watched.
#[derive(Debug)]
pub(super) struct Limits {
    groups: BTreeMap<PathBuf, Limited>,
    next_search: Instant,
    /// The directories of the cgroups in which managed processes were, and of those above them, when their limits were read.
    directories: BTreeSet<PathBuf>,
    /// Limits are read again at this time, also where the directories are the same.
    next_reading: Instant,
}

impl Limits {
    /// No cgroup is known yet.
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let (groups, directories) = (BTreeMap::new(), BTreeSet::new());
        Self { groups, next_search: now, directories, next_reading: now }
    }

    /// The time of the next search or look.
    pub(super) fn next(&self) -> Instant {
        let groups = self.groups.values().map(|limited| limited.next);
        groups.chain([self.next_search]).min().unwrap_or(self.next_search)
    }

    /// The descriptors of the alarms, for a poll.
    pub(super) fn alarms(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.groups.values().filter_map(|limited| Some(limited.alarm.as_ref()?.poll()))
    }

    /// Some alarm has gone off: every group is looked at.
    pub(super) fn alarmed(&mut self) {
        let now = Instant::now();
        for limited in self.groups.values_mut() {
            limited.alarm.iter().for_each(Alarm::clear);
            limited.next = now;
        }
    }

    /// Takes in which groups there are, if it is time; whether others are watched now. Those with watermarks of their own are
    /// watched for themselves.
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
            self.directories.clear();
            return !std::mem::take(&mut self.groups).is_empty();
        }
        let marks = config.marks;
        let mut there = BTreeSet::new();
        for process in registry.processes() {
            for path in process.cgroup().into_iter().flat_map(Path::ancestors) {
                if there.contains(path) || there.len() >= MOST {
                    break;
                }
                there.insert(path.to_owned());
            }
        }
        if there == self.directories && now < self.next_reading {
            return false;
        }
        self.next_reading = now + LATEST;
        self.directories.clone_from(&there);
        let mut limited = BTreeMap::new();
        for path in there.into_iter().filter(|path| own.iter().all(|group| group.path != *path)) {
            let Ok(group) = Group::open(&path) else { continue };
            let Ok(Some(limit)) = group.least_limit() else { continue };
            limited.insert(path, (group, limit));
        }
        let is_same = |(path, (_, limit)): (&PathBuf, &(Group, Bytes))| {
            let known = self.groups.get(path);
            known.is_some_and(|known| known.limit == *limit && known.marks == marks)
        };
        if limited.len() == self.groups.len() && limited.iter().all(is_same) {
            return false;
        }
        let mut before = std::mem::take(&mut self.groups);
        for (path, (group, limit)) in limited {
            let same = before.remove(&path).filter(|one| one.limit == limit && one.marks == marks);
            let limited = same.unwrap_or_else(|| Limited::new(group, limit, marks));
            self.groups.insert(path, limited);
        }
        true
    }

    /// The groups that are watched.
    pub(super) fn watches(&self) -> impl Iterator<Item = Watch> {
        self.groups.iter().map(|(path, limited)| Watch::found(path.clone(), limited.marks))
    }

    /// Looks at the groups whose time has come; those that are above their high watermark.
    pub(super) fn endangered(&mut self) -> Vec<PathBuf> {
        let now = Instant::now();
        let due = self.groups.iter_mut().filter(|(_, limited)| limited.next <= now);
        let above = due.filter_map(|(path, limited)| limited.look(now).then(|| path.clone()));
        above.collect()
    }
}
