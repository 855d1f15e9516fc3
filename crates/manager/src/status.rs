//! How the daemon stands now: what it watches, what it has seen and done, what it costs.
//!
//! Written to the state directory at every look, for those who ask (`superpage top`, the metrics).

use crate::plain;
use serde::{Deserialize, Serialize};
use std::path::Path;
use superpage_kernel::{Error, Result, hugetlb, meminfo};
use superpage_units::{Bytes, HugePages, PageSize, Pid, Share};

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
    /// The anonymous memory of all programs, by the size of pages.
    pub anonymous: AnonymousMemory,
    /// Processes under each promotion policy, by its name.
    pub policies: Vec<(String, u64)>,
    /// Surveys of processes: how often what is mapped in one was looked at.
    pub surveys: u64,
    /// Requests to the kernel that took longer than they may.
    pub requests_timed_out: u64,
    /// Workers that ended in the middle of a request.
    pub workers_lost: u64,
    /// Processes that are passed over because a file of their `/proc` directories is longer than what is read of one.
    #[serde(default)]
    pub too_long: u64,
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

/// The anonymous memory of all programs on the machine, by the size of the pages that map it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnonymousMemory {
    /// By base pages.
    #[serde(rename = "base_bytes", with = "plain")]
    pub base: Bytes,
    /// By huge pages, and those of the kernel's pool that are not free.
    #[serde(rename = "huge_bytes", with = "plain")]
    pub huge: Bytes,
    /// By gigantic pages: those of the kernel's pool that are not free, also if programs share them.
    #[serde(rename = "gigantic_bytes", with = "plain")]
    pub gigantic: Bytes,
}

impl AnonymousMemory {
    /// The memory now, from `meminfo` in `proc_root` (normally `/proc`) and the pools in `sys_root` (normally
    /// `/sys`). Only sums that the kernel keeps are read: to ask each process would take 16 ms for each GiB on base
    /// pages.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Denied`] or [`Error::Malformed`].
    pub fn read(proc_root: &Path, sys_root: &Path) -> Result<Self> {
        let memory = meminfo::read(proc_root)?;
        let huge = memory.anon_huge_pages.unwrap_or_default();
        let in_pool = |size: PageSize| match hugetlb::read(sys_root, size) {
            Ok(pool) => Ok(size.bytes() * pool.used),
            // The processor has none.
            Err(Error::Missing { .. }) => Ok(Bytes::ZERO),
            Err(error) => Err(error),
        };
        Ok(Self {
            base: memory.anonymous.saturating_sub(huge),
            huge: huge + in_pool(PageSize::Huge)?,
            gigantic: in_pool(PageSize::Gigantic)?,
        })
    }
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
    fn anonymous_memory_is_told_by_the_size_of_pages() {
        let root = tempfile::tempdir().expect("there is room");
        let text = "MemTotal: 9 kB\nMemFree: 9 kB\nMemAvailable: 9 kB\nAnonPages: 5120 kB\n\
                    SwapTotal: 0 kB\nSwapFree: 0 kB\nAnonHugePages: 2048 kB\n";
        std::fs::write(root.path().join("meminfo"), text).expect("there is room");
        let read = || AnonymousMemory::read(root.path(), root.path()).expect("good");
        let (base, huge) = (Bytes::from_mib(3), Bytes::from_mib(2));
        assert_eq!(read(), AnonymousMemory { base, huge, gigantic: Bytes::ZERO }, "no pool");
        for size in [PageSize::Gigantic, PageSize::Huge] {
            let pool = hugetlb::setting(root.path(), size);
            let pool = pool.parent().expect("a directory");
            std::fs::create_dir_all(pool).expect("there is room");
            let numbers = [("nr", 5), ("free", 2), ("surplus", 1), ("resv", 1)];
            for (name, count) in numbers {
                let file = pool.join(format!("{name}_hugepages"));
                std::fs::write(file, format!("{count}\n")).expect("there is room");
            }
        }
        let (huge, gigantic) = (huge + Bytes::from_mib(6), Bytes::from_gib(3));
        assert_eq!(read(), AnonymousMemory { base, huge, gigantic });
    }

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
