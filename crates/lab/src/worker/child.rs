//! The child's side of a worker: build the workload, then do as told.

use super::protocol::{self, Envelope, Reply, Request};
use crate::helper;
use crate::workload::{self, Workload, WorkloadSpec};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;
use std::io::{self, BufRead, Write};

/// What the program does when it was started as a worker: populates the workload that
/// `spec_json` (written by [`super::Worker::spawn`]) describes and serves its parent over standard
/// input and output until told to quit.
///
/// # Errors
/// [`ChildError`]; the parent has been told as far as it can be.
pub fn worker_main(spec_json: &str) -> Result<(), ChildError> {
    if let Ok(casting) = protocol::from_line::<helper::Casting>(spec_json.as_bytes()) {
        die_with(casting.parent)?;
        return helper::play(casting.part, io::stdin().lock(), parents_ear());
    }
    let envelope: Envelope = protocol::from_line(spec_json.as_bytes())
        .map_err(|error| ChildError::Message { detail: error.to_string() })?;
    die_with(envelope.parent)?;
    let mut output = parents_ear();
    let mut workload = match prepare(&envelope.workload) {
        Ok((workload, populated)) => {
            tell(&mut output, &Reply::Ready(populated))?;
            workload
        }
        Err(error) => return Err(give_up(&mut output, error)),
    };
    serve(workload.as_mut(), io::stdin().lock(), output)
}

fn parents_ear() -> impl Write {
    io::stdout().lock() // tidy: allow(what we say is the parent's to read)
}

/// Asks the kernel to kill us when the thread that started us ends; a parent of 0 stands for any.
fn die_with(parent: u32) -> Result<(), ChildError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| ChildError::Pipe { detail: errno.to_string() })?;
    // The parent may have ended before we asked; then we have another parent now.
    if parent == 0 {
        return Ok(());
    }
    let now = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if u32::try_from(now) == Ok(parent) { Ok(()) } else { Err(ChildError::Orphaned) }
}

fn prepare(
    spec: &WorkloadSpec,
) -> Result<(Box<dyn Workload>, workload::Populated), workload::Error> {
    if let Some(cpu) = spec.cpu {
        pin(cpu)?;
    }
    workload::populate(spec)
}

/// Keeps this thread, and all it will start, on one core.
fn pin(cpu: u32) -> Result<(), workload::Error> {
    let explain = |errno| workload::Error::Memory { what: "stay on the core asked for", errno };
    let cpu = usize::try_from(cpu).unwrap_or(usize::MAX);
    if cpu >= CpuSet::MAX_CPU {
        return Err(explain(rustix::io::Errno::INVAL));
    }
    let mut cores = CpuSet::new();
    cores.set(cpu);
    sched_setaffinity(None, &cores).map_err(explain)
}

/// Answers requests until told to quit or the input ends.
fn serve(
    workload: &mut dyn Workload,
    mut requests: impl BufRead,
    mut replies: impl Write,
) -> Result<(), ChildError> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = requests.read_until(b'\n', &mut line);
        if read.map_err(|error| ChildError::Pipe { detail: error.to_string() })? == 0 {
            return Ok(());
        }
        let reply = match protocol::from_line(&line) {
            Ok(Request::Quit) => return Ok(()),
            Ok(Request::Run { operations, seed }) => {
                workload.run(operations, seed).map(Reply::Done)
            }
            Ok(Request::Check) => workload.check().map(Reply::Checked),
            Err(error) => return Err(ChildError::Message { detail: error.to_string() }),
        };
        match reply {
            Ok(reply) => tell(&mut replies, &reply)?,
            Err(error) => return Err(give_up(&mut replies, error)),
        }
    }
}

/// Tells the parent about `error` and makes it ours.
fn give_up(output: &mut impl Write, error: workload::Error) -> ChildError {
    let message = error.to_string();
    let reply = match error {
        workload::Error::MissingProgram { .. } => Reply::Unavailable { message },
        _ => Reply::Failed { message },
    };
    // If the parent no longer listens, the workload's error is still the one to report.
    let _ = tell(output, &reply);
    ChildError::Workload(error)
}

pub(crate) fn tell<T: Serialize>(output: &mut impl Write, reply: &T) -> Result<(), ChildError> {
    let line = protocol::to_line(reply) + "\n";
    output
        .write_all(line.as_bytes())
        .and_then(|()| output.flush())
        .map_err(|error| ChildError::Pipe { detail: error.to_string() })
}

/// What ends a worker early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChildError {
    /// The workload failed.
    #[error(transparent)]
    Workload(workload::Error),
    /// The parent's specification or message does not read.
    #[error("a worker was told nonsense: {detail}")]
    Message {
        /// Why.
        detail: String,
    },
    /// The parent had gone when the worker started, or somebody else started it.
    #[error("a worker is started by the program itself and ends with it; nobody is waiting")]
    Orphaned,
    /// The kernel or the parent's pipe refused something.
    #[error("a worker cannot go on: {detail}")]
    Pipe {
        /// What.
        detail: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Checked, Timing};
    use superpage_units::{BasePages, Bytes, Pid};

    /// A workload that counts, and fails its check.
    struct Fake;

    impl Workload for Fake {
        fn pid(&self) -> Pid {
            Pid(1)
        }
        fn memory(&self) -> (Bytes, BasePages) {
            (Bytes::ZERO, BasePages::ZERO)
        }
        fn run(&mut self, operations: u64, seed: u64) -> workload::Result<Timing> {
            Ok(Timing { operations, checksum: seed, ..Timing::default() })
        }
        fn check(&mut self) -> workload::Result<Checked> {
            Err(workload::Error::Corrupt { what: "on purpose".into() })
        }
    }

    fn talk(requests: &str) -> (Result<(), ChildError>, String) {
        let mut replies = Vec::new();
        let result = serve(&mut Fake, requests.as_bytes(), &mut replies);
        (result, String::from_utf8(replies).expect("replies are text"))
    }

    #[test]
    fn requests_are_answered_until_quit_or_the_end() {
        let run = "{\"do\":\"run\",\"operations\":3,\"seed\":9}\n";
        let done = "{\"is\":\"done\",\"wall_ns\":0,\"cpu_ns\":0,\"operations\":3,\"checksum\":9}\n";
        assert_eq!(talk(&format!("{run}{run}")), (Ok(()), done.repeat(2)));
        assert_eq!(talk(&format!("{{\"do\":\"quit\"}}\n{run}")), (Ok(()), String::new()));
    }

    #[test]
    fn a_failure_is_told_and_ends_the_worker() {
        let (result, replies) = talk("{\"do\":\"check\"}\n");
        assert!(matches!(result, Err(ChildError::Workload(_))));
        let told = "{\"is\":\"failed\",\"message\":\"the workload's data is wrong: on purpose\"}\n";
        assert_eq!(replies, told);
    }

    #[test]
    fn nonsense_ends_the_worker() {
        for line in ["run\n", "{\"do\":\"dance\"}\n", "\n"] {
            assert!(matches!(talk(line).0, Err(ChildError::Message { .. })), "{line}");
        }
        assert!(matches!(worker_main("{}"), Err(ChildError::Message { .. })));
    }

    #[test]
    fn a_core_that_is_not_there_is_an_error() {
        assert!(pin(u32::MAX).is_err());
        assert!(pin(1023).is_err());
    }
}
