//! Page faults of unmodified processes, with their addresses: perf software events in rings.
//!
//! A [`FaultEvents`] owns one ring buffer for each CPU that is online when it is made;
//! [`FaultEvents::watch`] has the faults of a process, of a cgroup or of the whole machine
//! written into them, one of so many, with the forks, execs and exits that belong to them. No
//! file system, no BPF and no help from the process is needed. What the faults mean is not
//! decided here.
//!
//! What can go wrong:
//! - A ring is full: the kernel drops what comes and says how much with the next record that
//!   fits. That is counted ([`Counts::lost`], and at once in [`Watched::totals`]), never silent.
//! - Faults that the kernel takes on a process's behalf without its registers (pinning for
//!   direct I/O, a VM's guest) are no such events: nobody sees them here.
//! - Without rights over the kernel, faults inside system calls are left out
//!   ([`Watched::kernel_faults`]).
//! - A CPU that comes online later has no ring, and what faults there is not seen.
//! - A process that becomes undumpable by an exec loses its events (the kernel removes them).
//!
//! [perf_event_open(2)](https://man7.org/linux/man-pages/man2/perf_event_open.2.html).

mod open;
mod record;
mod ring;

pub use record::Event;

use crate::error::{Error, Result};
use crate::process::Process;
use crate::text;
use open::{Owner, Target};
use ring::Ring;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::Path;
use superpage_units::Bytes;

/// The size of each CPU's ring where nothing else is asked for: 6,500 faults of 40 bytes, so at
/// a period of 64 some 400,000 faults between two looks. With its control page it fits into what
/// a user without rights may lock for each CPU (`perf_event_mlock_kb`, 516 by default).
pub const DEFAULT_RING: Bytes = Bytes::from_kib(256);

/// How often opening the events of a process starts again because a thread began meanwhile.
/// Chosen, not measured: opening takes about 10 us per thread and CPU.
const TRIES: usize = 4;

/// When who polls the descriptors of the rings is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// At each record. A wake-up costs the program that faults some 15 us in a virtual machine
    /// (an interrupt to itself and one to the reader's CPU): a fifth of a fault loop's time at a
    /// period of 64. For few events that matter, not for faults.
    EachRecord,
    /// Whenever so much has been written to a ring since the last time. Who wants to know sooner
    /// looks by a timer: that costs the program nothing.
    Filled(Bytes),
}

/// When [`FaultEvents::new`] has us woken: after some 100 records, 6,400 faults at a period of
/// 64, about 10 ms of a program that does nothing but fault. That is early enough for a ring not
/// to fill up, and about 0.1 % of that program's time.
pub const DEFAULT_WAKEUP: Wakeup = Wakeup::Filled(Bytes::from_kib(4));

/// Whose faults to watch.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// All threads of a process, and all threads and processes that they start from now on.
    Process(&'a Process),
    /// Whoever is in this cgroup or below it while it faults. The directory is one of the
    /// hierarchy that has the `perf_event` controller: its v1 hierarchy where one is mounted,
    /// else the v2 hierarchy, also where memory is accounted by version 1.
    Cgroup(&'a Path),
    /// Everybody.
    Machine,
}

/// Whether faults that a process takes inside a system call are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelFaults {
    /// They are: a `read` into fresh memory counts.
    Seen,
    /// They are not: CAP_PERFMON is missing and `perf_event_paranoid` is above 1.
    NotSeen,
}

/// What came through the rings so far, all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Fault records that were handed on; each stands for a period of faults.
    pub seen: u64,
    /// Records that did not fit into a ring, as far as the kernel has said so yet.
    pub lost: u64,
    /// How often the kernel paused an event because it came too often.
    pub throttled: u64,
    /// Times that a ring held what is no record and was emptied.
    pub unreadable: u64,
}

/// What a [`Watched`] counted, also what never reached a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// All faults, whatever the period.
    pub faults: u64,
    /// Records of any kind that did not fit into a ring.
    pub lost: u64,
}

/// Rings of fault events, one for each CPU.
///
/// Drop it after what was made by [`FaultEvents::watch`], or those events go nowhere.
#[derive(Debug)]
pub struct FaultEvents {
    rings: Vec<Ring>,
    counts: Counts,
}

/// Faults being watched; dropping it ends that. What is in the rings by then stays there.
#[derive(Debug)]
pub struct Watched {
    /// The thread it is about, or 0 where it is not about one.
    events: Vec<(u32, OwnedFd)>,
    kernel_faults: KernelFaults,
}

impl FaultEvents {
    /// Makes a ring of `size` (rounded up to a power of two of base pages) for each online CPU,
    /// with the [`DEFAULT_WAKEUP`].
    ///
    /// # Errors
    /// As [`FaultEvents::with_wakeup`].
    pub fn new(size: Bytes) -> Result<Self> {
        Self::with_wakeup(size, DEFAULT_WAKEUP)
    }

    /// Makes a ring of `size` (rounded up to a power of two of base pages) for each online CPU.
    ///
    /// A ring belongs to an event that never comes. Where we may watch the whole machine, it is
    /// the CPU's own; where not, that of the calling thread on that CPU, which works as long as
    /// the thread lives: without rights, make it in the thread that reads it.
    ///
    /// # Errors
    /// [`Error::Denied`] if `perf_event_paranoid` keeps us out altogether or we may not lock so
    /// much memory, [`Error::Unsupported`] if the kernel has no perf events, [`Error::Failed`].
    pub fn with_wakeup(size: Bytes, wakeup: Wakeup) -> Result<Self> {
        let mut rings = Vec::new();
        for cpu in online_cpus(Path::new("/sys"))? {
            let opened = match open::owner(cpu, Owner::Cpu, wakeup) {
                Err(Errno::ACCESS | Errno::PERM) => open::owner(cpu, Owner::Thread, wakeup),
                opened => opened,
            };
            match opened {
                Ok(file) => rings.push(Ring::map(file, cpu, size)?),
                Err(Errno::NODEV) => {} // It went offline.
                Err(errno) => return Err(explain(errno, "make a ring of fault events", LOCAL)),
            }
        }
        Ok(Self { rings, counts: Counts::default() })
    }

    /// Watches the page faults in `scope`, every `period`th of each thread (on each CPU).
    ///
    /// A process is followed from the threads it has: where threads begin while we look, we start
    /// again. If they never stop doing so, those of the last moment may be counted twice, and a
    /// child process that is forked in this moment may be followed in part.
    ///
    /// # Errors
    /// [`Error::Denied`] says which right is missing, [`Error::Gone`], [`Error::Unsupported`],
    /// [`Error::Failed`] with EMFILE where descriptors run out: it takes one for each thread and
    /// CPU.
    pub fn watch(&self, scope: Scope<'_>, period: NonZeroU64) -> Result<Watched> {
        match scope {
            Scope::Process(process) => self.watch_process(process, period),
            Scope::Cgroup(directory) => self.watch_cgroup(directory, period),
            Scope::Machine => self.open_all(0, Target::Machine, period).and_then(|watched| {
                watched
                    .ok_or(Error::Failed { what: "watch page faults".into(), errno: Errno::NODEV })
            }),
        }
    }

    /// The descriptors that become readable as the [`Wakeup`] says; there may be something in a
    /// ring before that.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(|ring| ring.file().as_fd())
    }

    /// Hands on all that is in the rings: in order of time for each CPU, one CPU after the other.
    pub fn drain(&mut self, mut each: impl FnMut(Event)) {
        for ring in &mut self.rings {
            ring.drain(&mut self.counts, &mut each);
        }
    }

    /// What came through so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn watch_process(&self, process: &Process, period: NonZeroU64) -> Result<Watched> {
        let mut watched = Watched::none();
        for last in (0..TRIES).rev() {
            watched = Watched::none(); // What an earlier try opened is closed first.
            let mut known = BTreeSet::new();
            loop {
                let threads: BTreeSet<u32> = process.threads()?.into_iter().collect();
                // A number that is no longer this process's may be somebody else's by now.
                watched.events.retain(|(thread, _)| threads.contains(thread));
                let new: Vec<u32> = threads.difference(&known).copied().collect();
                if new.is_empty() {
                    process.check_alive()?;
                    return Ok(watched);
                }
                if last > 0 && !known.is_empty() {
                    break;
                }
                for thread in new {
                    if let Some(more) = self.open_all(thread, Target::Thread(thread), period)? {
                        watched.join(more);
                    }
                    known.insert(thread);
                }
            }
        }
        Ok(watched)
    }

    fn watch_cgroup(&self, directory: &Path, period: NonZeroU64) -> Result<Watched> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let group = openat(CWD, directory, flags, Mode::empty())
            .map_err(|errno| Error::from_io(&errno.into(), "open", directory))?;
        match self.open_all(0, Target::Cgroup(group.as_fd()), period) {
            Err(Error::Failed { errno: Errno::BADF | Errno::INVAL, .. }) => Err(Error::Refused {
                path: directory.to_owned(),
                reason: "it is not a group of the hierarchy with the perf_event controller",
            }),
            Ok(None) => Err(Error::Missing { path: directory.to_owned() }),
            other => Ok(other?.unwrap_or_else(Watched::none)),
        }
    }

    /// The event on every CPU, or `None` if the thread is gone.
    fn open_all(
        &self,
        thread: u32,
        target: Target<'_>,
        period: NonZeroU64,
    ) -> Result<Option<Watched>> {
        let mut watched = Watched::none();
        for ring in &self.rings {
            match open::faults(target, ring.cpu(), period, ring.file().as_fd()) {
                Ok((event, kernel_faults)) => {
                    watched.events.push((thread, event));
                    if kernel_faults == KernelFaults::NotSeen {
                        watched.kernel_faults = kernel_faults;
                    }
                }
                Err(Errno::SRCH) => return Ok(None),
                Err(Errno::NODEV) => {} // The CPU went offline.
                Err(errno) => {
                    return Err(explain(errno, "watch page faults", target.missing_right()));
                }
            }
        }
        Ok(Some(watched))
    }
}

impl Watched {
    fn none() -> Self {
        Self { events: Vec::new(), kernel_faults: KernelFaults::Seen }
    }

    fn join(&mut self, more: Self) {
        self.events.extend(more.events);
        if more.kernel_faults == KernelFaults::NotSeen {
            self.kernel_faults = KernelFaults::NotSeen;
        }
    }

    /// Whether faults inside system calls are seen.
    #[must_use]
    pub fn kernel_faults(&self) -> KernelFaults {
        self.kernel_faults
    }

    /// How many descriptors it holds.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.events.len()
    }

    /// What it counted so far, exactly; one system call for each descriptor.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn totals(&self) -> Result<Totals> {
        let mut totals = Totals::default();
        for (_, event) in &self.events {
            let read = open::read_totals(event.as_fd());
            let one = read.map_err(|errno| Error::from_errno(errno, "count page faults"))?;
            totals.faults += one.faults;
            totals.lost += one.lost;
        }
        Ok(totals)
    }
}

/// What a ring of our own takes.
const LOCAL: &str = "CAP_PERFMON, or kernel.perf_event_paranoid of at most 2";

/// The error for `errno` while doing `what`, for which `right` is needed.
fn explain(errno: Errno, what: &str, right: &str) -> Error {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            Error::Denied { what: format!("{what}: it takes {right}"), errno }
        }
        Errno::NOENT | Errno::NOSYS | Errno::OPNOTSUPP => {
            Error::Unsupported { what: what.into(), errno }
        }
        Errno::MFILE => {
            let what = format!(
                "{what}: it takes a descriptor for each thread and CPU, and this process may \
                 have no more (RLIMIT_NOFILE, LimitNOFILE= of a systemd unit)"
            );
            Error::Failed { what, errno }
        }
        errno => Error::from_errno(errno, what),
    }
}

/// The numbers of the CPUs that are online, according to `sys_root` (normally `/sys`).
fn online_cpus(sys_root: &Path) -> Result<Vec<u32>> {
    let path = sys_root.join("devices/system/cpu/online");
    let text = text::read(&path)?;
    let list = text.trim_ascii();
    cpu_list(list).ok_or_else(|| Error::malformed(&path, 1, "a list such as 0-3,5", list))
}

/// Understands `0-3,5`.
fn cpu_list(list: &[u8]) -> Option<Vec<u32>> {
    /// More CPUs than Linux can have: what says so is damaged.
    const MOST: u32 = 1 << 16;
    let number = |word: &[u8]| u32::try_from(text::decimal(word)?).ok().filter(|cpu| *cpu < MOST);
    let mut cpus = Vec::new();
    for range in list.split(|byte| *byte == b',') {
        let mut ends = range.splitn(2, |byte| *byte == b'-');
        let first = number(ends.next()?)?;
        let last = ends.next().map_or(Some(first), number)?;
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_read() {
        assert_eq!(cpu_list(b"0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(cpu_list(b"7"), Some(vec![7]));
        for bad in [&b""[..], b"0-", b"a", b"1,,2", b"0-99999999"] {
            assert_eq!(cpu_list(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let denied = explain(Errno::ACCESS, "watch page faults", Target::Machine.missing_right());
        assert!(matches!(denied, Error::Denied { .. }));
        assert!(denied.to_string().contains("CAP_PERFMON"), "{denied}");
        let full = explain(Errno::MFILE, "watch page faults", LOCAL);
        assert!(full.to_string().contains("LimitNOFILE"), "{full}");
        let none = explain(Errno::NOSYS, "watch page faults", LOCAL);
        assert!(matches!(none, Error::Unsupported { .. }));
    }
}
