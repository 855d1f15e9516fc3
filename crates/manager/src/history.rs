//! What the daemon did, and why: entries, each with its cause.
//!
//! Everything that is told of the daemon's work comes from these entries: the log, the metrics, the
//! terminal view. So they tell the same story.

use serde::{Deserialize, Serialize};

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
    /// Regions became huge pages.
    Promoted,
    /// The kernel or a limit said no to a promotion.
    Refused,
    /// Huge pages were broken and gave memory back.
    Debloated,
    /// Huge pages that were to be broken stayed whole.
    LeftAlone,
    /// Promotions wait for a while, because the kernel took long or had no huge page.
    BackedOff,
    /// Page faults were not seen, because a buffer was full or the kernel throttled them.
    Missed,
}

/// One thing that happened, or several of the same kind within a second.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The kind of cause: one word of a small fixed set, such as `threshold` or `densest`.
    pub kind: String,
    /// The cause in words.
    pub cause: String,
    /// Huge pages made, broken, refused.
    #[serde(default)]
    pub huge_pages: u64,
    /// Base pages: filled with zeroes by a promotion, or freed by breaking.
    #[serde(default)]
    pub base_pages: u64,
}
