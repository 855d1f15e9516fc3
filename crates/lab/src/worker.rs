//! A workload in a process of its own, and the handle on it.
//!
//! What is done to a workload's memory is done from outside, so the workload must be another
//! process. The program starts itself again with arguments that make it call [`worker_main`]; from
//! then on the two exchange JSON lines ([`protocol`]) over the child's standard input and output.
//!
//! A worker never outlives the thread that spawned it: the kernel kills it when that thread ends
//! (`PR_SET_PDEATHSIG` goes by thread, not by process). Spawn workers from a thread that stays.

mod child;
pub mod protocol;

pub use child::{ChildError, worker_main};

use crate::width::to_usize;
use crate::workload::{Checked, Populated, Timing, WorkloadSpec};
use protocol::{Envelope, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// How to start ourselves as a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The program, normally [`std::env::current_exe`].
    pub program: PathBuf,
    /// What to put before the specification, which is the last argument.
    pub leading_args: Vec<String>,
}

/// A running workload. Dropping it kills the process, and a server that it started, and waits
/// until their memory is free again.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
    stderr: File,
    populated: Populated,
    /// Of the process with the memory.
    pidfd: Option<OwnedFd>,
}

impl Worker {
    /// Starts the workload that `spec` describes and waits until it is populated.
    ///
    /// # Errors
    /// [`Error::Start`], [`Error::Unavailable`] where the workload needs a program that is not
    /// installed, [`Error::Failed`] if it could not be populated, [`Error::Died`],
    /// [`Error::Nonsense`].
    pub fn spawn(launcher: &Launcher, spec: &WorkloadSpec) -> Result<Self> {
        let start = |error: &std::io::Error| Error::Start {
            program: launcher.program.clone(),
            detail: error.to_string(),
        };
        let envelope = Envelope { parent: std::process::id(), workload: *spec };
        // A file in memory, not a pipe: nobody has to read along lest the worker blocks.
        let stderr = memfd_create("worker-stderr", MemfdFlags::CLOEXEC)
            .map(File::from)
            .map_err(|errno| start(&errno.into()))?;
        let mut child = Command::new(&launcher.program)
            .args(&launcher.leading_args)
            .arg(protocol::to_line(&envelope))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone().map_err(|error| start(&error))?)
            .spawn()
            .map_err(|error| start(&error))?;
        let (Some(requests), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            let detail = "its standard input and output are missing".into();
            return Err(Error::Start { program: launcher.program.clone(), detail });
        };
        let replies = BufReader::new(replies);
        let populated = Populated::default();
        let mut worker = Self { child, requests, replies, stderr, populated, pidfd: None };
        worker.populated = worker.expect("ready", |reply| match reply {
            Reply::Ready(populated) => Some(populated),
            _ => None,
        })?;
        let pid = i32::try_from(worker.populated.pid).ok().and_then(Pid::from_raw);
        worker.pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(worker)
    }

    /// The process whose memory the workload uses: the worker, or the server that it started.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.populated.pid
    }

    /// What the workload was like when it had been populated.
    #[must_use]
    pub fn populated(&self) -> &Populated {
        &self.populated
    }

    /// Does `operations` operations chosen by `seed` and waits for their end.
    ///
    /// # Errors
    /// [`Error::Failed`] if the workload finds its data wrong, [`Error::Died`],
    /// [`Error::Nonsense`].
    pub fn run(&mut self, operations: u64, seed: u64) -> Result<Timing> {
        self.start(operations, seed)?;
        self.finish()
    }

    /// Starts a run and does not wait, so that several workers can run at once.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn start(&mut self, operations: u64, seed: u64) -> Result<()> {
        self.send(&Request::Run { operations, seed })
    }

    /// Waits for the end of a run that was started.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub fn finish(&mut self) -> Result<Timing> {
        self.expect("done", |reply| match reply {
            Reply::Done(timing) => Some(timing),
            _ => None,
        })
    }

    /// Makes the workload compare all its data with what it wrote.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub fn check(&mut self) -> Result<Checked> {
        self.send(&Request::Check)?;
        self.expect("checked", |reply| match reply {
            Reply::Checked(checked) => Some(checked),
            _ => None,
        })
    }

    /// Ends the workload in good order and waits for it.
    ///
    /// # Errors
    /// [`Error::Died`] if it had already gone, or ends with an error.
    pub fn quit(mut self) -> Result<()> {
        self.send(&Request::Quit)?;
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(self.died()),
        }
    }

    fn send(&mut self, request: &Request) -> Result<()> {
        let line = protocol::to_line(request) + "\n";
        self.requests.write_all(line.as_bytes()).map_err(|_| self.died())
    }

    /// The next reply, which `pick` must accept.
    fn expect<T>(&mut self, expected: &'static str, pick: fn(Reply) -> Option<T>) -> Result<T> {
        let mut line = Vec::new();
        // A line that was cut off by the worker's end is no reply.
        match self.replies.read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => {}
            _ => return Err(self.died()),
        }
        match protocol::from_line(&line) {
            Ok(Reply::Failed { message }) => Err(Error::Failed { message }),
            Ok(Reply::Unavailable { message }) => Err(Error::Unavailable { message }),
            Ok(reply) => pick(reply).ok_or_else(|| self.nonsense(expected, &line)),
            Err(_) => Err(self.nonsense(expected, &line)),
        }
    }

    fn nonsense(&self, expected: &'static str, line: &[u8]) -> Error {
        const KEPT: usize = 120;
        let found = String::from_utf8_lossy(&line[..line.len().min(KEPT)]).trim_end().to_owned();
        Error::Nonsense { expected, found, stderr: self.stderr_tail() }
    }

    /// Reaps a worker that has closed its end, and tells how it ended.
    fn died(&mut self) -> Error {
        // One that is exiting keeps its own status; one that only closed its output is ended.
        let status = self.child.kill().and_then(|()| self.child.wait());
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        Error::Died { status, stderr: self.stderr_tail() }
    }

    /// The end of what the worker wrote to its standard error.
    fn stderr_tail(&self) -> String {
        const KEPT: u64 = 2000;
        let length = self.stderr.metadata().map_or(0, |metadata| metadata.len());
        let start = length.saturating_sub(KEPT);
        let mut tail = vec![0; to_usize(length - start)];
        let read = self.stderr.read_at(&mut tail, start).unwrap_or(0);
        String::from_utf8_lossy(&tail[..read]).trim().to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Nothing can be done here if these fail, which they only do if it has gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(pidfd) = self.pidfd.take() {
            wait_for_exit(&pidfd);
        }
    }
}

/// Waits until a process has given its memory back, but not for ever: a server is killed by the
/// kernel when its worker ends, and freeing 16 GiB takes about a second.
fn wait_for_exit(pidfd: &OwnedFd) {
    const LONGEST: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let _ = poll(&mut fds, Some(&LONGEST));
}

/// This module's result.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong with a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The program did not start.
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        detail: String,
    },
    /// The workload cannot run here, for instance because a program is not installed.
    Unavailable {
        /// What is missing and what to do.
        message: String,
    },
    /// The workload says that it failed.
    Failed {
        /// Why.
        message: String,
    },
    /// The worker ended when it should not have.
    Died {
        /// Its exit status or signal.
        status: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// The worker wrote something that is not the message that was due.
    Nonsense {
        /// The message that was due.
        expected: &'static str,
        /// The line, shortened.
        found: String,
        /// The end of its standard error.
        stderr: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |stderr: &str| match stderr {
            "" => String::new(),
            text => format!("; it said: {text}"),
        };
        match self {
            Self::Start { program, detail } => {
                write!(f, "could not start {} as a worker: {detail}", program.display())
            }
            Self::Unavailable { message } | Self::Failed { message } => f.write_str(message),
            Self::Died { status, stderr } => {
                write!(f, "the workload ended unexpectedly ({status}){}", said(stderr))
            }
            Self::Nonsense { expected, found, stderr } => {
                write!(f, "the workload answered {found:?} instead of {expected:?}{}", said(stderr))
            }
        }
    }
}

impl std::error::Error for Error {}
