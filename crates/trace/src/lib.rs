//! Traces of real programs: what a live process had mapped, from sample to sample.
//!
//! A trace is lines of JSON. The first says what it is, the following ones are a sample each and
//! hold only what changed since the one before, the last says how many samples there are, so that
//! a trace that was cut off is known as such:
//!
//! ```text
//! {"superpage":"trace","version":2,"command":"redis-server","base_page":4096,"interval":1000000000,"contents":"sampled"}
//! {"at":0,"resident":12582912,"minor":0,"major":0,"cpu":0,"VMAs":[["0x7f0000000000","0x7f0000400000","anonymous","fixed","none"]],"ranges":[["0x7f0000000000",2,"huge",512,300]]}
//! {"at":1000000000,"resident":10485760,"minor":12,"major":0,"cpu":250000000,"ranges":[["0x7f0000200000",1,"base",17,17]]}
//! {"samples":2}
//! ```
//!
//! | key | is |
//! |---|---|
//! | `at` | nanoseconds since the recording began |
//! | `resident` | bytes, as the kernel counts them: also files and shared memory, which `ranges` leave out |
//! | `minor`, `major`, `cpu` | page faults and nanoseconds of CPU time since the sample before |
//! | `vmas` | new or changed: start, end, `anonymous`, `stack` or `file`, `fixed` or `up` (grows at its end, as far as was seen), `none`, `huge` or `no-huge` (`madvise`) |
//! | `unmapped` | starts of VMAs that are gone |
//! | `ranges` | changed: first, how many alike, `empty`, `base`, `huge` or `gigantic`, base pages present, base pages that hold data |
//!
//! | file | what |
//! |---|---|
//! | `memory` | what a process has mapped, and what changed |
//! | `write`, `read` | the lines |
//!
//! It opens no files: text comes in, text goes out. Recording is the business of
//! another crate, and so is replaying.

mod memory;
mod read;
mod wire;
mod write;

pub use memory::{Changes, Memory, RangeState, Run};
pub use read::{Partial, read};
pub use write::{Writer, write};

use superpage_units::{Bytes, Nanos};

/// The version that is written, and the only one that is read.
pub const VERSION: u64 = 2;

/// How the recorder found out which base pages hold data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// It read a few base pages of each range.
    Sampled,
    /// It read all of them.
    Exact,
}

/// What a trace is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The program's command.
    pub command: String,
    /// The time from one sample to the next, as was asked for.
    pub interval: Nanos,
    /// How contents were looked at.
    pub contents: Contents,
}

/// What the kernel counted since the sample before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory now, files and shared memory included.
    pub resident: Bytes,
    /// Page faults served from memory.
    pub minor_faults: u64,
    /// Page faults that had to read.
    pub major_faults: u64,
    /// CPU time.
    pub cpu: Nanos,
}

/// One look at the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When, since the recording began.
    pub at: Nanos,
    /// What was counted.
    pub usage: Usage,
    /// What changed since the sample before.
    pub changes: Changes,
}

/// A recorded program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// What it is of.
    pub header: Header,
    /// At least one, each later than the one before.
    pub samples: Vec<Sample>,
    /// Whether its last line was there.
    pub is_whole: bool,
}

impl Trace {
    /// From the first sample to the last.
    #[must_use]
    pub fn duration(&self) -> Nanos {
        let first = self.samples.first().map_or(Nanos::ZERO, |sample| sample.at);
        self.samples.last().map_or(Nanos::ZERO, |sample| sample.at.saturating_sub(first))
    }
}

/// Why a trace cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is something else.
    #[error("this is not a trace; `superpage record PID -o FILE` makes one")]
    NotATrace,
    /// Its version is not the one we read.
    #[error(
        "this trace has version {found}, and this program reads version {VERSION}; record it again"
    )]
    OtherVersion {
        /// Its version.
        found: u64,
    },
    /// Its last line is missing.
    #[error("this trace is cut off {}", cut_off(*samples))]
    CutOff {
        /// The samples that are there.
        samples: usize,
    },
    /// A line is not as it should be.
    #[error("line {line} is malformed: {what}")]
    Malformed {
        /// Its number, counted from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// There is no sample in it.
    #[error("this trace has no samples; record for longer")]
    Empty,
}

fn cut_off(samples: usize) -> String {
    match samples {
        0 => "before its first sample; record it again".to_owned(),
        _ => format!(
            "after {samples} samples; replay those with --allow-partial, or record it again"
        ),
    }
}
