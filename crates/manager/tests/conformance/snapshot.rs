//! What a system sees of the programs: the promoter's own [`Snapshot`](snapshot::Snapshot) of them, made
//! by its own survey, and the reservations that the test notes (see the differences in
//! [`crate::machine`]).

use std::collections::BTreeSet;
use superpage_kernel::Result;
use superpage_kernel::pagemap::Found;
use superpage_manager::process::{ManagedProcess, Survey};
use superpage_manager::promote::snapshot;
use superpage_policy::supply::Supply;
use superpage_policy::system::{Fault, Footprint, RegionView, View};
use superpage_units::{
    Area, BasePages, Bytes, Mapping, Nanos, Page, PageSize, ProcessKey, Region, VirtAddr,
};

/// All programs at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Noted, not had.
    pub(crate) reserved: BTreeSet<(ProcessKey, Region)>,
    shipped: snapshot::Snapshot,
}

impl Snapshot {
    /// Of no process yet, on a machine with so much memory, all of it free.
    pub(crate) fn new(memory: Bytes) -> Self {
        let mut free = Supply { total: memory.to_base_pages(), ..Supply::NONE };
        free.chunks[usize::from(PageSize::Huge.order())] = memory.to_huge_pages().0;
        let mut shipped = snapshot::Snapshot::default();
        shipped.set_free(free);
        Self { reserved: BTreeSet::new(), shipped }
    }

    pub(crate) fn set_now(&mut self, now: Nanos) {
        self.shipped.set_now(now);
    }

    /// Surveys a process again, of which the test has the memory between two addresses.
    pub(crate) fn look(
        &mut self,
        process: &ManagedProcess,
        start: VirtAddr,
        end: VirtAddr,
    ) -> Result<()> {
        let mut survey: Survey = process.survey()?;
        survey.vmas.retain(|vma| vma.start < end && start < vma.end);
        for vma in &mut survey.vmas {
            (vma.start, vma.end) = (vma.start.max(start), vma.end.min(end));
        }
        survey.found.retain(|found| {
            let (Found::Huge(first, _) | Found::Base(first, _)) = found;
            start <= first.start() && first.start() < end
        });
        let key = process.key;
        self.shipped.add(key);
        self.shipped.take_in(key, &survey);
        // A reservation ends with the last base page in it, and with a huge page.
        let shipped = &self.shipped;
        self.reserved.retain(|(of, region)| {
            *of != key || shipped.region(key, *region).mapping == Mapping::Base
        });
        Ok(())
    }

    /// A fault at this address, as a system hears of it; `None` in no area.
    pub(crate) fn fault(&self, process: ProcessKey, address: VirtAddr) -> Option<Fault> {
        let holds = |area: &&Area| area.start <= address && address < area.end;
        let area = *self.areas(process).iter().find(holds)?;
        let giant = Page::containing(address, PageSize::Giant);
        let giant_is_empty =
            self.next_mapped(process, giant.start()).is_none_or(|r| r.start() >= giant.end());
        let region = self.region(process, Region::containing(address));
        Some(Fault { process, address, area, region, giant_is_empty: Some(giant_is_empty) })
    }
}

impl View for Snapshot {
    fn now(&self) -> Nanos {
        self.shipped.now()
    }

    fn supply(&self) -> &Supply {
        self.shipped.supply()
    }

    fn processes(&self) -> &[ProcessKey] {
        self.shipped.processes()
    }

    fn footprint(&self, process: ProcessKey) -> Footprint {
        self.shipped.footprint(process)
    }

    fn areas(&self, process: ProcessKey) -> &[Area] {
        self.shipped.areas(process)
    }

    fn region(&self, process: ProcessKey, region: Region) -> RegionView {
        let is_reserved = self.reserved.contains(&(process, region));
        // Where accesses cannot be seen the promoter lets present pages stand for them.
        let (coverage, idle) = (Some(BasePages::ZERO), Some(Nanos::ZERO));
        RegionView { is_reserved, coverage, idle, ..self.shipped.region(process, region) }
    }

    fn next_mapped(&self, process: ProcessKey, from: VirtAddr) -> Option<Region> {
        self.shipped.next_mapped(process, from)
    }
}
