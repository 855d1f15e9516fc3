//! Being woken when a memory cgroup gets near its limit.
//!
//! In v1 the kernel signals an event when the memory in use passes a threshold (`cgroup.event_control`); in v2 it says that a
//! cgroup has come to its limit (`memory.events`), and nothing before. An [`Alarm`] lives as long as its file descriptor and
//! changes nothing for anybody else, so it does not pass the gate for settings.
//! [Memory Resource Controller](https://docs.kernel.org/admin-guide/cgroup-v1/memory.html),
//! [Control Group v2](https://docs.kernel.org/admin-guide/cgroup-v2.html).
//!
//! Events are no proof that usage is high: the kernel signals a v1 event when usage crosses the threshold in either direction, and once more when the
//! cgroup is removed.

use crate::cgroup::{Group, Version};
use crate::error::{Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::fs::File;
use superpage_units::Bytes;

/// A request to be woken; withdrawn when dropped.
#[derive(Debug)]
pub struct Alarm {
    file: OwnedFd,
    version: Version,
}

impl Alarm {
    /// Has us woken when `group` uses more than `threshold`, its file cache included (v1), or has come to its limit (v2).
    ///
    /// # Errors
    /// [`Error::Denied`] without the right to ask for it, [`Error::Missing`] if the group was removed, [`Error::Failed`].
    pub fn arm(group: &Group, threshold: Bytes) -> Result<Self> {
        let version = group.version();
        let file = match version {
            Version::V1 => over_threshold(group, threshold)?,
            Version::V2 => open(group, "memory.events")?.into(),
        };
        let alarm = Self { file, version };
        // Events from before the alarm are dropped.
        alarm.clear();
        Ok(alarm)
    }

    /// The descriptor to wait for, with what is to be waited for.
    #[must_use]
    pub fn poll(&self) -> PollFd<'_> {
        let flags = if self.version == Version::V1 { PollFlags::IN } else { PollFlags::PRI };
        PollFd::from_borrowed_fd(self.file.as_fd(), flags)
    }

    /// Drops the events so far, so that only later ones wake us.
    pub fn clear(&self) {
        let mut bytes = [0; 256];
        // A read fails where there is no event, or the group is gone: then none will come.
        match self.version {
            Version::V1 => drop(rustix::io::read(&self.file, &mut bytes)),
            Version::V2 => drop(rustix::io::pread(&self.file, &mut bytes, 0)),
        }
    }
}

fn open(group: &Group, name: &str) -> Result<File> {
    let path = group.path().join(name);
    File::open(&path).map_err(|error| Error::from_io(&error, "open", &path))
}

fn over_threshold(group: &Group, threshold: Bytes) -> Result<OwnedFd> {
    let usage = open(group, "memory.usage_in_bytes")?;
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|errno| Error::from_errno(errno, "make an event"))?;
    let path = group.path().join("cgroup.event_control");
    let raw = |file: BorrowedFd<'_>| file.as_raw_fd();
    let request = format!("{} {} {}", raw(event.as_fd()), raw(usage.as_fd()), threshold.0);
    std::fs::write(&path, request).map_err(|error| Error::from_io(&error, "write", &path))?;
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::{Hierarchy, Scratch};
    use crate::own_memory::{OwnMemory, Wish};
    use rustix::event::poll;
    use std::path::Path;
    use superpage_units::HugePages;

    fn is_due(alarm: &Alarm) -> bool {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [alarm.poll()], Some(&now)) == Ok(1)
    }

    /// Needs root and a memory cgroup; elsewhere there is nothing to be seen.
    #[test]
    fn a_group_that_grows_wakes_us() {
        let hierarchy = Hierarchy::find(Path::new("/")).expect("readable");
        let Some(hierarchy) = hierarchy else { return };
        let name = format!("superpage-alarm-{}", std::process::id());
        let Ok(group) = Scratch::create(&hierarchy, &name) else { return };
        group.limit(Bytes::from_mib(64)).expect("an empty group");
        let alarm = Alarm::arm(group.group(), Bytes::from_mib(16)).expect("it is ours");
        assert!(!is_due(&alarm));
        // A group of version 2 says nothing before its limit, which is not for a test's own process to come to.
        if group.group().version() == Version::V1 {
            let _memory = group
                .while_in(|| {
                    let mut memory =
                        OwnMemory::map(HugePages(16), Wish::BasePages).expect("32 MiB");
                    memory.bytes_mut().fill(1);
                    memory
                })
                .expect("we can move");
            assert!(is_due(&alarm));
            alarm.clear();
            assert!(!is_due(&alarm));
        }
    }
}
