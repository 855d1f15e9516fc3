//! How the daemon stands now: what it watches, what it has seen and done, what it costs.
//!
//! Written to the state directory at every look, for those who ask (`superpage top`, the metrics).

use crate::plain;
use serde::{Deserialize, Serialize};
use superpage_units::{Bytes, HugePages, Pid, Share};

/// How it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// When this was, in milliseconds since 1970.
    pub at_ms: u64,
    /// The daemon's process number.
    #[serde(with = "plain")]
    pub pid: Pid,
    /// What it watches.
    pub watches: Vec<Memory>,
    /// Free huge pages that could be had at once.
    #[serde(with = "plain")]
    pub free_huge_pages: HugePages,
    /// The share of free memory that lies in smaller pieces (FMFI).
    #[serde(with = "plain")]
    pub fragmentation: Share,
    /// Processes under each promotion policy, by its name.
    pub policies: Vec<(String, u64)>,
    /// Surveys of processes: how often what is mapped in one was looked at.
    pub surveys: u64,
    /// Requests to the kernel that took longer than they may.
    pub requests_timed_out: u64,
    /// Workers that ended in the middle of a request.
    pub workers_lost: u64,
    /// Promotions that wait or are under way.
    pub waiting: u64,
    /// How long promotions pause after each other, because the kernel took long, in milliseconds.
    pub pause_ms: f64,
    /// CPU time the daemon has used, in seconds.
    pub cpu_s: f64,
    /// Memory the daemon uses.
    #[serde(rename = "resident_bytes", with = "plain")]
    pub resident: Bytes,
}

/// Watched memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// `machine`, or the cgroup's directory.
    pub name: String,
    /// The used part of it.
    #[serde(with = "plain")]
    pub used: Bytes,
    /// All of it.
    #[serde(with = "plain")]
    pub total: Bytes,
    /// The watermarks, as shares of `total`.
    #[serde(with = "plain")]
    pub high: Share,
    /// Below this de-bloating ends.
    #[serde(with = "plain")]
    pub low: Share,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_plain_numbers_of_bytes_in_the_file() {
        let memory = Memory { used: Bytes(600), total: Bytes(1000), ..Memory::default() };
        let status = Status { watches: vec![memory], resident: Bytes(700), ..Status::default() };
        let written = serde_json::to_value(&status).expect("JSON");
        assert_eq!(written["resident_bytes"], 700);
        let watch = &written["watches"][0];
        assert_eq!((&watch["used"], &watch["total"]), (&600.into(), &1000.into()));
        assert_eq!(serde_json::from_value::<Status>(written).expect("a status"), status);
    }
}
