//! Free memory of which a share is fragmented, for good or so that the kernel could compact it, for an experiment; and how much of it
//! is in pieces that no huge page can be had from.

use super::support_bench::Bench;
use super::support_regime::set_enabled;
use super::{Error, Result, Setting};
use crate::helper::{Held, Helper, Part};
use std::path::Path;
use superpage_kernel::thp::Enabled;
use superpage_kernel::{compaction, meminfo};
use superpage_manager::free_memory;
use superpage_units::{Bytes, PageSize, Share};

/// Free memory that is left to the rest of the machine, at least.
const HEADROOM: Bytes = Bytes::from_mib(2048); // tidy: allow(megabytes, not base pages)

/// Memory that is out of the way. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Fragments {
    _helper: Option<Helper>,
    /// Of the free memory, the share (0 to 1) that no huge page can be had from.
    pub(super) found: f64,
}

impl Fragments {
    /// Leaves `room` and the headroom free. The share `fragmented` (0 to 1) of the room is held
    /// apart, and all of the headroom, which would otherwise be where huge pages come from. Where the kernel can move what is held,
    /// `vm.compaction_proactiveness` is 0 until the bench is dropped, so that the kernel compacts only for a page fault, for khugepaged or for
    /// `MADV_COLLAPSE`.
    pub(super) fn make(
        bench: &mut Bench,
        setting: &Setting,
        room: Bytes,
        (fragmented, held): (f64, Held),
    ) -> Result<Self> {
        if fragmented <= 0.0 {
            return Ok(Self { _helper: None, found: in_pieces()? });
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
        let apart = (HEADROOM + room.scaled(fragmented)).to_huge_pages();
        if held == Held::Movable {
            let setting = compaction::path(Path::new("/proc"));
            bench.settings().change(&setting, &compaction::to_text(Share::NONE))?;
        }
        let part = Part::Fragmenter { ballast, apart, held };
        let helper = Helper::start(&setting.launcher, part)?;
        let found = in_pieces()?;
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

/// The share of the free memory that no huge page can be had from.
fn in_pieces() -> Result<f64> {
    Ok(free_memory::read(Path::new("/proc"))?.fmfi(PageSize::Huge).get())
}
