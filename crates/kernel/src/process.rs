//! A process that cannot be confused with another: pidfd and `/proc/PID`.
//!
//! A pid is only a number, and a number is reused. A [`Process`] therefore holds a pidfd, which
//! names one process for ever, and a descriptor of its `/proc/PID` directory, opened while the
//! pidfd showed it alive. Everything else about it is reached through these two.
//! [pidfd_open(2)](https://man7.org/linux/man-pages/man2/pidfd_open.2.html),
//! [proc(5)](https://man7.org/linux/man-pages/man5/proc.5.html).

use crate::error::{Error, Result};
use crate::habits::MOST_DESCRIPTORS;
use crate::text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Dir, DirEntry, Mode, OFlags, PROC_SUPER_MAGIC, openat, readlinkat, statfs};
use rustix::io::Errno;
use rustix::process::{self, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use superpage_units::{Bytes, Pid};

/// The most that is read of a small file at once. Most have less than 4 KiB; `status` has more where a process is in thousands
/// of groups.
const SMALL: Bytes = Bytes::from_mib(1);
/// How much of a long file is read with a call: the kernel makes whole pages of text.
const PIECE: usize = 64 << 10;

/// A live (or just exited) process, pinned so that its number cannot come to mean another.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    pidfd: OwnedFd,
    directory: OwnedFd,
}

impl Process {
    /// Takes hold of the process that has number `pid` now.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is none, [`Error::Denied`] if `/proc` hides it, [`Error::Refused`] if `/proc` shows other
    /// processes than ours.
    pub fn open(pid: Pid) -> Result<Self> {
        check_proc()?;
        let number = i32::try_from(pid.0).ok().and_then(process::Pid::from_raw);
        let number = number.ok_or(Error::Gone { pid })?;
        let pidfd = pidfd_open(number, PidfdFlags::empty())
            .map_err(|errno| explain(errno, pid, "open a pidfd"))?;
        let path = format!("/proc/{pid}");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(rustix::fs::CWD, path, flags, Mode::empty())
            .map_err(|errno| explain(errno, pid, "open its /proc directory"))?;
        let process = Self { pid, pidfd, directory };
        // The directory was opened by number; alive now means it was this process's.
        process.check_alive()?;
        Ok(process)
    }

    /// Our own process.
    ///
    /// # Errors
    /// [`Error::Denied`] where `/proc` is not mounted or hidden.
    pub fn current() -> Result<Self> {
        Self::open(own_pid())
    }

    /// The number it had when it was opened. For showing, never for acting.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The pidfd, for calls that take one.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Whether it still runs (a zombie does not).
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }

    /// `Ok` if it still runs.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn check_alive(&self) -> Result<()> {
        if self.is_alive() { Ok(()) } else { Err(Error::Gone { pid: self.pid }) }
    }

    /// Opens the file `name` of its `/proc` directory for reading.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::Failed`].
    pub fn open_file(&self, name: &str) -> Result<OwnedFd> {
        openat(&self.directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| explain(errno, self.pid, &format!("open its {name} file")))
    }

    /// The whole file `name` of its `/proc` directory, which is a small one.
    ///
    /// # Errors
    /// As [`Process::open_file`]; [`Error::TooLong`] beyond a MiB.
    pub fn read_file(&self, name: &str) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let file = File::from(self.open_file(name)?);
        let read = file.take(SMALL.0 + 1).read_to_end(&mut text);
        read.map_err(|error| self.unread(name, &error))?;
        if text.len() as u64 > SMALL.0 {
            return Err(self.too_long(name, SMALL));
        }
        Ok(text)
    }

    /// Calls `each` with the lines of the file `name` of its `/proc` directory and their numbers, counted from 1. Whoever
    /// made the process may make the file as long as they like, so no more than a line of it is held.
    ///
    /// # Errors
    /// As [`Process::open_file`]; [`Error::TooLong`] beyond `limit`; and what `each` fails with.
    pub fn for_each_line(
        &self,
        name: &str,
        limit: Bytes,
        mut each: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut file = BufReader::with_capacity(PIECE, File::from(self.open_file(name)?));
        let (mut line, mut read) = (Vec::new(), Bytes::ZERO);
        for number in 1.. {
            line.clear();
            let rest = limit.saturating_sub(read).0 + 1;
            let count = (&mut file).take(rest).read_until(b'\n', &mut line);
            let count = count.map_err(|error| self.unread(name, &error))?;
            if count == 0 {
                break;
            }
            read += Bytes(count as u64);
            if read > limit {
                return Err(self.too_long(name, limit));
            }
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            if !text.is_empty() {
                each(number, text)?;
            }
        }
        Ok(())
    }

    /// The error for a file of its `/proc` directory that cannot be read.
    pub(crate) fn unread(&self, name: &str, error: &std::io::Error) -> Error {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        explain(errno, self.pid, &format!("read its {name} file"))
    }

    fn too_long(&self, name: &str, limit: Bytes) -> Error {
        Error::TooLong { pid: self.pid, file: name.to_owned(), limit }
    }

    /// Opens to read and write whatever it has open of which the kernel says `target`, the text behind the link in its
    /// directory `fd`. No more of them are looked at than for its habits
    /// ([`habits::of`](crate::habits::of)).
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::Failed`].
    pub fn descriptors_of(&self, target: &[u8]) -> Result<Vec<OwnedFd>> {
        let fail = |errno| explain(errno, self.pid, "open what it has open");
        let directory = self.open_file("fd")?;
        let entries = Dir::read_from(&directory).map_err(fail)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |entry: DirEntry| {
            let found = readlinkat(&directory, entry.file_name(), Vec::new()).ok()?;
            let is_wanted = found.as_bytes() == target;
            is_wanted.then(|| openat(&directory, entry.file_name(), flags, Mode::empty()))
        };
        let found = entries.take(MOST_DESCRIPTORS).filter_map(|entry| open(entry.ok()?));
        found.map(|opened| opened.map_err(fail)).collect()
    }

    /// The numbers of its threads, those that are ending too.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`], [`Error::Failed`].
    pub fn threads(&self) -> Result<Vec<Pid>> {
        let fail = |errno| explain(errno, self.pid, "list its threads");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&self.directory, "task", flags, Mode::empty()).map_err(fail)?;
        let mut threads = Vec::new();
        for entry in Dir::new(directory).map_err(fail)? {
            let number = text::decimal(entry.map_err(fail)?.file_name().to_bytes());
            threads.extend(number.and_then(|number| u32::try_from(number).ok()).map(Pid));
        }
        Ok(threads)
    }

    /// The path of a file of its `/proc` directory, for messages.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.pid.to_string()).join(name)
    }
}

/// Fails where `/proc` is not the kernel's, or shows the processes of another namespace, whose numbers mean others there than
/// to `pidfd_open`. Looks once.
fn check_proc() -> Result<()> {
    static FOUND: OnceLock<Option<&str>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let found = statfs("/proc").map(|found| found.f_type == PROC_SUPER_MAGIC);
        let is_us = |own: &Path| own == Path::new(&own_pid().to_string());
        match (found, std::fs::read_link("/proc/self")) {
            (Ok(true), Ok(own)) if is_us(&own) => None,
            // Where we are no process of its namespace, it has no number for us.
            (Ok(true), _) => {
                Some("it shows the processes of another namespace: mount procfs anew in this one")
            }
            (Ok(false), _) => Some("it is not the kernel's (procfs): mount procfs there"),
            (Err(_), _) => Some("nothing can be seen of it: mount procfs there"),
        }
    });
    match found {
        None => Ok(()),
        Some(reason) => Err(Error::Refused { path: "/proc".into(), reason }),
    }
}

/// Our own number.
#[must_use]
pub fn own_pid() -> Pid {
    Pid(std::process::id())
}

/// The error for `errno` while doing `what` with process `pid`.
pub(crate) fn explain(errno: Errno, pid: Pid, what: &str) -> Error {
    match errno {
        // ESRCH and ENOENT: the number means nobody; EINVAL: it is a thread of somebody.
        Errno::SRCH | Errno::NOENT | Errno::INVAL => Error::Gone { pid },
        other => Error::from_errno(other, format!("{what} (process {pid})")),
    }
}

/// The numbers of all processes that `proc_root` (normally `/proc`) shows, in ascending order.
///
/// # Errors
/// [`Error::Missing`] or [`Error::Denied`] if the directory cannot be read; [`Error::Refused`] if `/proc` shows other processes
/// than ours.
pub fn list(proc_root: &Path) -> Result<Vec<Pid>> {
    if proc_root == Path::new("/proc") {
        check_proc()?;
    }
    let entries =
        std::fs::read_dir(proc_root).map_err(|error| Error::from_io(&error, "list", proc_root))?;
    let mut pids: Vec<Pid> = entries
        .filter_map(|entry| text::decimal(entry.ok()?.file_name().as_encoded_bytes()))
        .filter_map(|pid| u32::try_from(pid).ok().map(Pid))
        .collect();
    pids.sort_unstable();
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_alive_and_listed() {
        let me = Process::current().expect("our own process opens");
        assert!(me.is_alive());
        assert!(list(Path::new("/proc")).expect("/proc lists").contains(&me.pid()));
        assert!(!me.read_file("comm").expect("comm reads").is_empty());
        assert!(me.threads().expect("threads are listed").contains(&me.pid()));
    }

    #[test]
    fn a_file_is_read_line_by_line_up_to_a_limit() {
        let me = Process::current().expect("our own process opens");
        let (mut lines, mut length) = (Vec::new(), 0);
        let mut keep = |number, line: &[u8]| {
            length += line.len() as u64 + 1;
            lines.push((number, line.to_vec()));
            Ok(())
        };
        me.for_each_line("limits", Bytes::from_mib(1), &mut keep).expect("limits reads");
        let whole = me.read_file("limits").expect("limits reads");
        let expected = text::lines(&whole).map(|(number, line)| (number, line.to_vec()));
        assert_eq!((lines, length), (expected.collect::<Vec<_>>(), whole.len() as u64));
        let exact = me.for_each_line("limits", Bytes(length), |_, _| Ok(()));
        assert_eq!(exact, Ok(()));
        let short = me.for_each_line("limits", Bytes(length - 1), |_, _| Ok(()));
        assert!(matches!(short, Err(Error::TooLong { .. })), "{short:?}");
    }

    #[test]
    fn a_number_nobody_has_is_gone() {
        for pid in [0, u32::MAX, i32::MAX as u32].map(Pid) {
            assert_eq!(Process::open(pid).err(), Some(Error::Gone { pid }));
        }
    }

    #[test]
    fn an_exited_child_is_gone_even_before_it_is_reaped() {
        let mut child = std::process::Command::new("true").spawn().expect("true runs");
        let pid = Pid(child.id());
        let process = Process::open(pid);
        child.wait().expect("the child ends");
        if let Ok(process) = process {
            assert_eq!(process.check_alive(), Err(Error::Gone { pid }));
            assert!(process.read_file("maps").is_err());
        }
    }
}
