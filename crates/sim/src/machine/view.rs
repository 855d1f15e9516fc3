//! What a system sees of the machine.

use super::Machine;
use crate::virtual_memory::page_index;
use superpage_policy::supply::Supply;
use superpage_policy::system::{Footprint, Pool, RegionView, View};
use superpage_units::{
    Area, BasePages, Mapping, Nanos, Page, PageSize, ProcessKey, Region, VirtAddr,
};

impl Machine {
    pub(super) fn region_view(&self, process: ProcessKey, region: Region) -> RegionView {
        let slot = self.processes.get(process).and_then(|process| process.slot(region));
        let Some(slot) = slot else {
            return RegionView { idle: self.now, ..RegionView::default() };
        };
        RegionView {
            mapping: slot.mapping,
            population: slot.populated(),
            swapped: BasePages(u64::from(slot.swapped().len())),
            shared: BasePages(u64::from(self.shared_pages(slot))),
            is_reserved: slot.is_reserved,
            coverage: BasePages(u64::from(slot.coverage)),
            idle: self.now.saturating_sub(slot.accessed_at),
        }
    }
}

impl View for Machine {
    fn now(&self) -> Nanos {
        self.now
    }

    fn supply(&self) -> &Supply {
        self.physical.supply()
    }

    fn pool(&self, size: PageSize) -> Option<Pool> {
        self.pools.as_ref()?.get(size.index()).copied()
    }

    fn processes(&self) -> &[ProcessKey] {
        self.processes.keys()
    }

    fn footprint(&self, process: ProcessKey) -> Footprint {
        self.processes.get(process).map(|process| process.footprint()).unwrap_or_default()
    }

    fn areas(&self, process: ProcessKey) -> &[Area] {
        self.processes.get(process).map_or(&[], |process| process.areas())
    }

    fn region(&self, process: ProcessKey, region: Region) -> RegionView {
        self.region_view(process, region)
    }

    fn next_mapped(&self, process: ProcessKey, from: VirtAddr) -> Option<Region> {
        let process = self.processes.get(process)?;
        process.mapped_slots(from).next().map(|(region, _)| region)
    }

    fn next_page(&self, process: ProcessKey, from: VirtAddr) -> Option<Page> {
        self.processes.get(process)?.next_page(from)
    }

    fn take_accessed(&mut self, process: ProcessKey, page: Page) -> bool {
        let Some(process) = self.processes.get_mut(process) else { return false };
        let mut any = false;
        for region in page.regions() {
            let Some(slot) = process.existing_slot_mut(region) else { continue };
            if page.size() == PageSize::Base && slot.mapping == Mapping::Base {
                let index = page_index(page.start());
                let detail = slot.detail();
                any |= detail.accessed.contains(index);
                detail.accessed.remove(index);
            } else {
                any |= std::mem::replace(&mut slot.is_accessed, false);
            }
        }
        any
    }
}
