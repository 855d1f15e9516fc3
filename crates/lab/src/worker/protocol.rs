//! What a worker and its parent say to each other: one JSON object per line.
//!
//! The worker says `ready` once, or `failed` or `unavailable` and ends. Then it answers each `run`
//! with `done` and each `check` with `checked`, or either with `failed`, until it reads `quit` or
//! the end of its input.
//!
//! Both sides are the same program, so there are no versions: an unknown message is an error.

use crate::workload::{Checked, Populated, Timing, WorkloadSpec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The argument that a worker is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// The pid of the process that starts it: the worker ends if that has gone.
    pub parent: u32,
    /// What to run.
    pub workload: WorkloadSpec,
}

/// From parent to worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Do this many operations.
    Run {
        /// How many.
        operations: u64,
        /// What chooses them.
        seed: u64,
    },
    /// Compare all data with what was written.
    Check,
    /// End.
    Quit,
}

/// From worker to parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Reply {
    /// The workload is populated.
    Ready(Populated),
    /// A run has ended.
    Done(Timing),
    /// The data is right.
    Checked(Checked),
    /// The request failed.
    Failed {
        /// Why, in a sentence.
        message: String,
    },
    /// The workload cannot run here.
    Unavailable {
        /// What is missing and what to do, in a sentence.
        message: String,
    },
}

/// A message as one line, without its end.
///
/// # Panics
/// Never: the messages hold only numbers, strings and enums.
#[must_use]
pub fn to_line<T: Serialize>(message: &T) -> String {
    serde_json::to_string(message).unwrap_or_else(|_| unreachable!("messages have string keys"))
}

/// Reads a message from one line.
///
/// # Errors
/// What `serde_json` says about the line.
pub fn from_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{PageSize, WorkloadKind};
    use proptest::prelude::*;
    use superpage_units::{BasePages, Bytes, HugePages, Nanos};

    #[test]
    fn messages_read_as_documented() {
        let run = Request::Run { operations: 5, seed: 7 };
        assert_eq!(to_line(&run), r#"{"do":"run","operations":5,"seed":7}"#);
        assert_eq!(to_line(&Request::Quit), r#"{"do":"quit"}"#);
        let timing = Timing { wall: Nanos(1), cpu: Nanos(2), operations: 3, checksum: 4 };
        let done = r#"{"is":"done","wall_ns":1,"cpu_ns":2,"operations":3,"checksum":4}"#;
        assert_eq!(to_line(&Reply::Done(timing)), done);
        assert_eq!(from_line::<Reply>(done.as_bytes()).ok(), Some(Reply::Done(timing)));
    }

    #[test]
    fn a_specification_survives_the_command_line() {
        for kind in WorkloadKind::ALL {
            let size = Bytes::from_gib(1);
            let workload = WorkloadSpec { kind, size, pages: PageSize::Huge, cpu: Some(1) };
            let envelope = Envelope { parent: 12, workload };
            let line = to_line(&envelope);
            assert_eq!(from_line::<Envelope>(line.as_bytes()).ok(), Some(envelope), "{line}");
        }
    }

    #[test]
    fn malformed_lines_are_errors() {
        let lines: [&[u8]; 9] = [
            b"",
            b"ready",
            b"{}",
            br#"{"is":"done"}"#,
            br#"{"is":"done","wall_ns":-1,"cpu_ns":2,"operations":3,"checksum":4}"#,
            br#"{"is":"done","wall_ns":1.5,"cpu_ns":2,"operations":3,"checksum":4}"#,
            br#"{"is":"finished"}"#,
            br#"{"is":"checked","items":1} trailing"#,
            b"\xff\xfe",
        ];
        for line in lines {
            assert!(from_line::<Reply>(line).is_err(), "{}", String::from_utf8_lossy(line));
        }
        assert!(from_line::<Request>(br#"{"do":"run","operations":5}"#).is_err());
        assert!(from_line::<Request>(br#"{"do":"run","operations":5,"seed":1,"x":1}"#).is_err());
    }

    proptest! {
        #[test]
        fn any_reply_reads_back(a in any::<u64>(), b in any::<u64>(), text in ".*") {
            let populated = Populated {
                pid: superpage_units::Pid(5),
                footprint: Bytes(a),
                used_base_pages: BasePages(b),
                resident: Bytes(b),
                huge_pages: HugePages(a),
                populate: Nanos(b),
            };
            for reply in [
                Reply::Ready(populated),
                Reply::Checked(Checked { items: a }),
                Reply::Failed { message: text.clone() },
                Reply::Unavailable { message: text.clone() },
            ] {
                let line = to_line(&reply);
                prop_assert!(!line.contains('\n'));
                prop_assert_eq!(from_line::<Reply>(line.as_bytes()).ok(), Some(reply));
            }
        }

        #[test]
        fn no_line_makes_us_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = from_line::<Reply>(&line);
            let _ = from_line::<Request>(&line);
        }
    }
}
