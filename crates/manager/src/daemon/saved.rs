//! What the daemon knows and would be sorry to lose at a restart: where it stands between its
//! watermarks, which huge pages are to be left alone, which ranges were huge.
//!
//! Kept in `state.json` of the state directory. Times are of CLOCK_MONOTONIC and processes are named
//! by when they started, so that it means nothing after a reboot and is ignored then.

use crate::cooldown::{CoolDown, Cooldown};
use crate::ledger::{Readers, replace};
use crate::promote::Promoted;
use crate::promote::runs::Runs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use superpage_units::{HugePages, Nanos, PmdRange, ProcessKey, Time, VirtAddr};

const FILE: &str = "state.json";
/// Of what is written here; a file that another version wrote is ignored.
const VERSION: u32 = 2;

/// A range that is cooling down: its address, until when, after how many failures, for how long.
type Cooling = (u64, u64, u32, u64);

/// Neighbouring ranges: the first address and how many.
type Run = (u64, u64);

/// What is kept.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Saved {
    version: u32,
    boot: String,
    /// The watches that passed their high watermark and not yet the low one.
    pub(super) above: Vec<String>,
    cooling: BTreeMap<u64, Vec<Cooling>>,
    huge: BTreeMap<u64, Vec<Run>>,
}

impl Saved {
    /// What is to be kept.
    pub(super) fn of(above: Vec<String>, cooling: &CoolDown, remembered: &Promoted) -> Self {
        let mut kept: BTreeMap<u64, Vec<Cooling>> = BTreeMap::new();
        for (key, range, Cooldown { until, failures, length }) in cooling.iter() {
            let one = (range.start().0, until.0, failures, length.0);
            kept.entry(key.0).or_default().push(one);
        }
        let runs =
            |runs: &Runs| runs.runs().map(|(first, count)| (first.start().0, count.0)).collect();
        let huge = remembered.iter().map(|(key, ranges)| (key.0, runs(ranges))).collect();
        Self { version: VERSION, boot: boot(), above, cooling: kept, huge }
    }

    /// What was kept in `directory`; nothing if there is none of this boot.
    pub(super) fn read(directory: &Path) -> Self {
        let text = std::fs::read(directory.join(FILE)).unwrap_or_default();
        let saved: Self = serde_json::from_slice(&text).unwrap_or_default();
        let is_ours = saved.version == VERSION && saved.boot == boot();
        if is_ours { saved } else { Self::default() }
    }

    /// Keeps it in `directory`.
    pub(super) fn write(&self, directory: &Path) -> std::io::Result<()> {
        replace(&directory.join(FILE), &serde_json::to_vec(self)?, Readers::Owner)
    }

    /// What is cooling down.
    pub(super) fn cooling(&self) -> CoolDown {
        let mut cooling = CoolDown::new();
        for (key, ranges) in &self.cooling {
            for (start, until, failures, length) in ranges.iter().copied() {
                let range = PmdRange::containing(VirtAddr(start));
                let cooldown = Cooldown { until: Time(until), failures, length: Nanos(length) };
                cooling.insert(ProcessKey(*key), range, cooldown);
            }
        }
        cooling
    }

    /// Which ranges were huge.
    pub(super) fn remembered(&self) -> Promoted {
        let all = |runs: &Vec<Run>| runs.iter().flat_map(|run| ranges(*run)).collect();
        self.huge.iter().map(|(key, runs)| (ProcessKey(*key), all(runs))).collect()
    }
}

fn ranges((start, count): Run) -> impl Iterator<Item = PmdRange> {
    /// As many as an address space of 128 TiB has.
    const MOST: u64 = 1 << 26;
    let start = VirtAddr(start);
    PmdRange::within(start, start.offset(HugePages(count.min(MOST)).bytes()))
}

/// This boot's name; the same for all readers until the next.
fn boot() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::HUGE_PAGE_BYTES;

    #[test]
    fn what_is_kept_comes_back() {
        let range = |index: u64| PmdRange::containing(VirtAddr(index * HUGE_PAGE_BYTES));
        let directory = tempfile::tempdir().expect("a directory");
        let mut cooling = CoolDown::new();
        cooling.add(ProcessKey(3), range(9), Time(77));
        cooling.stayed_whole(ProcessKey(3), range(10), Time(70), Nanos(7));
        let remembered: Promoted =
            [(ProcessKey(5), [1, 2, 7].map(range).into_iter().collect())].into_iter().collect();
        let saved = Saved::of(vec!["machine".into()], &cooling, &remembered);
        assert_eq!(saved.huge[&5].len(), 2, "neighbours are one run");
        saved.write(directory.path()).expect("written");
        let read = Saved::read(directory.path());
        assert_eq!(read.above, ["machine"]);
        assert_eq!(read.remembered(), remembered);
        assert!(read.cooling().contains(ProcessKey(3), range(9), Time(76)));
        assert!(!read.cooling().contains(ProcessKey(3), range(9), Time(77)));
        let mut cooling = read.cooling();
        assert!(cooling.contains(ProcessKey(3), range(10), Time(76)));
        cooling.stayed_whole(ProcessKey(3), range(10), Time(77), Nanos(7));
        assert!(cooling.contains(ProcessKey(3), range(10), Time(90)), "it failed before");
    }

    #[test]
    fn what_cannot_be_used_is_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(Saved::read(directory.path()).above.is_empty());
        for text in [
            "",
            "{",
            r#"{"version":2,"boot":"another","above":["machine"],"cooling":{},"huge":{}}"#,
        ] {
            std::fs::write(directory.path().join(FILE), text).expect("written");
            assert!(Saved::read(directory.path()).above.is_empty(), "{text}");
        }
    }
}
