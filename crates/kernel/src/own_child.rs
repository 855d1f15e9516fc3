//! A child of our own to try things on: a fork that does nothing but wait for its end.
//!
//! It shares all of our memory copy-on-write, huge pages too, and it is a process other than ours
//! that we may do with whatever we may do with others. Probes and tests use it.
//! While it lives, none of the memory that we had at the fork is ours alone.
//! [fork(2)](https://man7.org/linux/man-pages/man2/fork.2.html).

#![expect(unsafe_code, reason = "a fork, after which little is allowed")]

use crate::error::{Error, Result};
use crate::process::Process;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// The child, which ends when this is dropped or we end.
#[derive(Debug)]
pub struct OwnChild {
    pid: Pid,
    process: Process,
}

impl OwnChild {
    /// Forks.
    ///
    /// # Errors
    /// [`Error::Failed`] if there may be no more processes, and as [`Process::open`].
    pub fn fork() -> Result<Self> {
        let failed = |errno| Error::from_errno(errno, "fork a child to try things on");
        let parent = rustix::process::getpid();
        // SAFETY: in the child only `stay` runs, which makes system calls and nothing else, as is
        // allowed also in the child of a process with several threads.
        let number = unsafe { libc::fork() };
        if number == 0 {
            stay(parent);
        }
        let pid = Pid::from_raw(number).filter(|_| number > 0);
        let pid = pid.ok_or_else(|| failed(last_errno()))?;
        match Process::open(superpage_units::Pid(number.cast_unsigned())) {
            Ok(process) => Ok(Self { pid, process }),
            Err(error) => {
                end(pid);
                Err(error)
            }
        }
    }

    /// The child as a process like any other.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        end(self.pid);
    }
}

/// Kills and reaps a child that nobody else reaps.
fn end(pid: Pid) {
    let _ = kill_process(pid, Signal::KILL);
    while matches!(waitpid(Some(pid), WaitOptions::empty()), Err(Errno::INTR)) {}
}

/// All that the child does: see to it that it does not outlive us, and wait.
fn stay(parent: Pid) -> ! {
    let bound = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    while bound.is_ok() && rustix::process::getppid() == Some(parent) {
        // SAFETY: returns after a signal with a handler, of which the loop makes nothing.
        unsafe { libc::pause() };
    }
    // SAFETY: ends this process without running what our exit would run.
    unsafe { libc::_exit(0) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_lives_as_long_as_its_handle() {
        let child = OwnChild::fork().expect("forked");
        let again = Process::open(child.process().pid()).expect("a process like any other");
        assert!(again.is_alive() && again.pid() != crate::process::own_pid());
        drop(child);
        assert!(!again.is_alive());
    }
}
