//! Free memory of which a share is fragmented for good, for an experiment; and how much of it is in
//! pieces that a huge page could be had from.

use super::support_bench::Bench;
use super::support_regime::set_enabled;
use super::{Error, Result, Setting};
use crate::helper::{Helper, Part};
use std::path::Path;
use superpage_kernel::meminfo;
use superpage_kernel::thp::Enabled;
use superpage_policy::units::{BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HugePages};

/// Free memory that is left to the rest of the machine, at least.
const HEADROOM: Bytes = Bytes::from_mib(2048); // tidy: allow(megabytes, not base pages)

/// The smallest order of the buddy allocator that holds a huge page.
const HUGE_ORDER: usize = BASE_PAGES_PER_HUGE_PAGE.ilog2() as usize;

/// Memory that is out of the way. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Fragments {
    _helper: Option<Helper>,
    /// Of the free memory, the share (0 to 1) that no huge page can be had from.
    pub(super) found: f64,
}

impl Fragments {
    /// Leaves `room` and the headroom free. The share `fragmented` (0 to 1) of the room is pinned
    /// apart, and all of the headroom, which would otherwise be where huge pages come from.
    pub(super) fn make(
        bench: &mut Bench,
        setting: &Setting,
        room: Bytes,
        fragmented: f64,
    ) -> Result<Self> {
        if fragmented <= 0.0 {
            return Ok(Self { _helper: None, found: 1.0 - free()?.huge_share() });
        }
        set_enabled(bench, Enabled::Madvise)?;
        let free_before = meminfo::read(Path::new("/proc"))?.free;
        let keep = room + HEADROOM;
        if free_before < keep {
            return Err(Error::NotPossible(format!(
                "{free_before} of memory are free, {keep} are needed to be fragmented in part"
            )));
        }
        let ballast = free_before.saturating_sub(keep).to_huge_pages();
        let pinned = (HEADROOM + room.scaled(fragmented)).to_huge_pages();
        let helper = Helper::start(&setting.launcher, Part::Fragmenter { ballast, pinned })?;
        let found = 1.0 - free()?.huge_share();
        if found < fragmented {
            return Err(Error::Child(format!(
                "only {:.0} % of the free memory became fragmented, not {:.0} %",
                100.0 * found,
                100.0 * fragmented
            )));
        }
        Ok(Self { _helper: Some(helper), found })
    }
}

/// What is free, by `/proc/buddyinfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Free {
    all: BasePages,
    /// In pieces of a huge page or more.
    huge: HugePages,
}

impl Free {
    fn huge_share(self) -> f64 {
        self.huge.bytes().to_base_pages().share_of(BasePages(self.all.0.max(1)))
    }

    fn parse(buddyinfo: &str) -> Self {
        let mut free = Self::default();
        for line in buddyinfo.lines() {
            // After the words `Node 0, zone Normal`.
            let counts =
                line.split_whitespace().skip(4).filter_map(|word| word.parse::<u64>().ok());
            for (order, count) in counts.enumerate() {
                free.all.0 += count << order;
                free.huge.0 += order.checked_sub(HUGE_ORDER).map_or(0, |above| count << above);
            }
        }
        free
    }
}

fn free() -> Result<Free> {
    let path = "/proc/buddyinfo";
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::NotPossible(format!("{path}: {error}")))?;
    Ok(Free::parse(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_added_up() {
        let text = "Node 0, zone      DMA      1      0      0      0      0      0      0      0      0      1      3 \n\
                    Node 0, zone   Normal      3      1      0      0      0      0      0      0      0      0      0 \n";
        let all = BasePages(1 + 7 * BASE_PAGES_PER_HUGE_PAGE + 5);
        assert_eq!(Free::parse(text), Free { all, huge: HugePages(7) });
        assert_eq!(Free::parse("nonsense\n"), Free::default());
        assert_eq!(Free::default().huge_share(), 0.0);
    }
}
