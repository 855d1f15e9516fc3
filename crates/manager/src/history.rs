//! What the daemon did, and why: entries, each with its cause.
//!
//! Everything that is told of the daemon's work comes from these entries: the log, the metrics, the
//! terminal view. So they tell the same story.
//!
//! [`History`] keeps them as JSON lines in [`FILE`], and when that is full in [`OLDER`], so the last
//! few megabytes of entries are there to be read. [`Tail`] reads them, and goes on reading as more
//! are written. What is not here: how an entry is shown.

mod tail;
mod write;

use crate::plain;
use serde::{Deserialize, Serialize};
use std::fmt;
use superpage_units::{BasePages, HugePages, Pid};

pub use tail::{Entries, Tail, read};
pub use write::{BOUND, History, Unwritten};

/// The file in the state directory that entries are added to.
pub const FILE: &str = "history.jsonl";
/// The file that the older entries are in.
pub const OLDER: &str = "history.1.jsonl";

/// How long entries of the same kind are added up before they are written, in milliseconds.
/// Chosen, not measured: a thousand promotions a second are one line, and nobody waits long.
pub const MERGED_MS: u64 = 1000;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The daemon started.
    Started,
    /// It left.
    Stopped,
    /// It read its configuration again.
    Reloaded,
    /// A setting of the kernel was changed or put back.
    Setting,
    /// Memory passed a watermark.
    Watermark,
    /// Ranges became huge pages.
    Promoted,
    /// The kernel or a limit said no to a promotion.
    Refused,
    /// Huge pages were split and gave memory back.
    Debloated,
    /// Huge pages that were to be split stayed whole.
    LeftAlone,
    /// Promotions wait for a while, because the kernel took long or had no huge page.
    BackedOff,
    /// A request to the kernel took longer than it may, or its worker was lost.
    Missed,
    /// A part of the daemon ended by itself and was started again.
    Restarted,
}

impl What {
    /// All of them, in the order to show them.
    pub const ALL: [Self; 12] = [
        Self::Started,
        Self::Stopped,
        Self::Reloaded,
        Self::Setting,
        Self::Watermark,
        Self::Promoted,
        Self::Refused,
        Self::Debloated,
        Self::LeftAlone,
        Self::BackedOff,
        Self::Missed,
        Self::Restarted,
    ];

    /// The name in the file and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Stopped => "stopped",
            Self::Reloaded => "reloaded",
            Self::Setting => "setting",
            Self::Watermark => "watermark",
            Self::Promoted => "promoted",
            Self::Refused => "refused",
            Self::Debloated => "debloated",
            Self::LeftAlone => "left-alone",
            Self::BackedOff => "backed-off",
            Self::Missed => "missed",
            Self::Restarted => "restarted",
        }
    }

    /// Whether it happens to many pages or often, so that entries are added up although their causes
    /// differ in their numbers. Of the others each is told.
    const fn adds_up(self) -> bool {
        match self {
            Self::Promoted
            | Self::Refused
            | Self::Debloated
            | Self::LeftAlone
            | Self::BackedOff
            | Self::Missed => true,
            Self::Started
            | Self::Stopped
            | Self::Reloaded
            | Self::Setting
            | Self::Watermark
            | Self::Restarted => false,
        }
    }

    /// What has this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|what| what.name() == name)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One thing that happened, or several of the same kind within [`MERGED_MS`]: then `at_ms` and
/// `cause` are those of the first, and the counts are sums.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What.
    pub what: What,
    /// The policy that decided, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The process's number.
    #[serde(with = "plain", default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// Its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The kind of cause: one word of a small fixed set, such as `threshold` or `densest`.
    pub kind: String,
    /// The cause in words.
    pub cause: String,
    /// Huge pages made, split, refused.
    #[serde(with = "plain", default)]
    pub huge_pages: HugePages,
    /// Base pages: filled with zeroes by a promotion, or freed by splitting.
    #[serde(with = "plain", default)]
    pub base_pages: BasePages,
}

impl Entry {
    /// An entry about the daemon itself, or to be filled in by struct update.
    #[must_use]
    pub fn new(at_ms: u64, what: What, kind: &str, cause: &str) -> Self {
        Self {
            at_ms,
            what,
            policy: None,
            pid: None,
            command: None,
            kind: kind.to_owned(),
            cause: cause.to_owned(),
            huge_pages: HugePages::ZERO,
            base_pages: BasePages::ZERO,
        }
    }

    /// Whether both say the same of the same process, so that they can be added up.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.pid == other.pid
            && self.what == other.what
            && self.kind == other.kind
            && self.policy == other.policy
            && (self.what.adds_up() || self.cause == other.cause)
    }
}

/// The time now, as entries have it: in milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
