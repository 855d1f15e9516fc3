//! A child of ours that is this program again, and the lines that it and we exchange. Not what the
//! lines say.

use super::protocol;
use super::{Error, Launcher, Result};
use crate::width::to_usize;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Serialize;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The child and our ends of its standard input and output. Dropping it kills the child.
#[derive(Debug)]
pub(crate) struct Pipe {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
    stderr: File,
}

impl Pipe {
    /// Starts the program with `envelope` as its last argument.
    pub(crate) fn spawn<T: Serialize>(launcher: &Launcher, envelope: &T) -> Result<Self> {
        let start = |error: &std::io::Error| Error::Start {
            program: launcher.program.clone(),
            detail: error.to_string(),
        };
        // A file in memory, not a pipe: nobody has to read along lest the worker blocks.
        let stderr = memfd_create("worker-stderr", MemfdFlags::CLOEXEC)
            .map(File::from)
            .map_err(|errno| start(&errno.into()))?;
        let mut child = Command::new(&launcher.program)
            .args(&launcher.leading_args)
            .arg(protocol::to_line(envelope))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone().map_err(|error| start(&error))?)
            .spawn()
            .map_err(|error| start(&error))?;
        let (Some(requests), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            let detail = "its standard input and output are missing".into();
            return Err(Error::Start { program: launcher.program.clone(), detail });
        };
        Ok(Self { child, requests, replies: BufReader::new(replies), stderr })
    }

    /// The child's pid.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Says something to the child.
    pub(crate) fn send<T: Serialize>(&mut self, request: &T) -> Result<()> {
        let line = protocol::to_line(request) + "\n";
        self.requests.write_all(line.as_bytes()).map_err(|_| self.died())
    }

    /// What the child says next, with the end of its line.
    pub(crate) fn line(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        // A line that was cut off by the worker's end is no reply.
        match self.replies.read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => Ok(line),
            _ => Err(self.died()),
        }
    }

    /// The error that `line` is not what was due.
    pub(crate) fn nonsense(&self, expected: &'static str, line: &[u8]) -> Error {
        const KEPT: usize = 120;
        let found = String::from_utf8_lossy(&line[..line.len().min(KEPT)]).trim_end().to_owned();
        Error::Nonsense { expected, found, stderr: self.stderr_tail() }
    }

    /// Waits for a child that was told to end.
    pub(crate) fn ended_well(&mut self) -> Result<()> {
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(self.died()),
        }
    }

    /// Kills the child, if it has not ended yet, and reaps it.
    pub(crate) fn kill(&mut self) {
        // Nothing can be done here if these fail, which they only do if it has gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
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

impl Drop for Pipe {
    fn drop(&mut self) {
        self.kill();
    }
}
