//! A workload in a process of its own, and the handle on it.
//!
//! What is done to a workload's memory is done from outside, so the workload must be another
//! process. The program starts itself again with arguments that make it call [`worker_main`]; from
//! then on the two exchange JSON lines ([`protocol`]) over the child's standard input and output.
//!
//! A worker never outlives the thread that spawned it: the kernel kills it when that thread ends
//! (`PR_SET_PDEATHSIG` goes by thread, not by process). Spawn workers from a thread that stays.

mod child;
mod pipe;
pub mod protocol;

pub(crate) use child::tell;
pub use child::{ChildError, worker_main};
pub(crate) use pipe::Pipe;

use crate::workload::{Checked, Populated, Timing, WorkloadSpec};
use protocol::{Envelope, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{PidfdFlags, pidfd_open};
use std::path::PathBuf;
use superpage_units::Pid;

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
    pipe: Pipe,
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
        let envelope = Envelope { parent: std::process::id(), workload: *spec };
        let pipe = Pipe::spawn(launcher, &envelope)?;
        let mut worker = Self { pipe, populated: Populated::default(), pidfd: None };
        worker.populated = worker.expect("ready", |reply| match reply {
            Reply::Ready(populated) => Some(populated),
            _ => None,
        })?;
        let pid =
            i32::try_from(worker.populated.pid.0).ok().and_then(rustix::process::Pid::from_raw);
        worker.pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(worker)
    }

    /// The process whose memory the workload uses: the worker, or the server that it started.
    #[must_use]
    pub fn pid(&self) -> Pid {
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
        self.pipe.send(&Request::Run { operations, seed })
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
        self.pipe.send(&Request::Check)?;
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
        self.pipe.send(&Request::Quit)?;
        self.pipe.ended_well()
    }

    /// The next reply, which `pick` must accept.
    fn expect<T>(&mut self, expected: &'static str, pick: fn(Reply) -> Option<T>) -> Result<T> {
        let line = self.pipe.line()?;
        match protocol::from_line(&line) {
            Ok(Reply::Failed { message }) => Err(Error::Failed { message }),
            Ok(Reply::Unavailable { message }) => Err(Error::Unavailable { message }),
            Ok(reply) => pick(reply).ok_or_else(|| self.pipe.nonsense(expected, &line)),
            Err(_) => Err(self.pipe.nonsense(expected, &line)),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.pipe.kill();
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The program did not start.
    #[error("could not start {program} as a worker: {detail}")]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        detail: String,
    },
    /// The workload cannot run here, for instance because a program is not installed.
    #[error("{message}")]
    Unavailable {
        /// What is missing and what to do.
        message: String,
    },
    /// The workload says that it failed.
    #[error("{message}")]
    Failed {
        /// Why.
        message: String,
    },
    /// The worker ended when it should not have.
    #[error("the workload ended unexpectedly ({status}){}", said(stderr))]
    Died {
        /// Its exit status or signal.
        status: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// The worker wrote something that is not the message that was due.
    #[error("the workload answered {found:?} instead of {expected:?}{}", said(stderr))]
    Nonsense {
        /// The message that was due.
        expected: &'static str,
        /// The line, shortened.
        found: String,
        /// The end of its standard error.
        stderr: String,
    },
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; it said: {stderr}") }
}
