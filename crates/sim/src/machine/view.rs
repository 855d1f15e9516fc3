//! The machine as a policy sees it and as its answers change it.

use super::work::Work;
use super::{Accesses, Machine};
use crate::virtual_memory::page_index;
use superpage_policy::free_memory::FreeMemory;
use superpage_policy::promotion::{
    AccessBits, Action, Attempt, Carried, Fault, Footprint, Policy, Pools, RangeView, View,
};
use superpage_units::{
    BasePages, Mapping, Page, PageSize, PmdRange, ProcessKey, Time, VirtAddr, Vma,
};

impl Machine {
    fn when_seen<T>(&self, value: T) -> Option<T> {
        (self.accesses == Accesses::Seen).then_some(value)
    }
}

impl View for Machine {
    fn now(&self) -> Time {
        self.now
    }

    fn free_memory(&self) -> &FreeMemory {
        self.physical.free_memory()
    }

    fn processes(&self) -> &[ProcessKey] {
        self.processes.keys()
    }

    fn footprint(&self, process: ProcessKey) -> Footprint {
        self.processes.get(process).map(|process| process.footprint()).unwrap_or_default()
    }

    fn vmas(&self, process: ProcessKey) -> &[Vma] {
        self.processes.get(process).map_or(&[], |process| process.vmas())
    }

    fn range(&self, process: ProcessKey, range: PmdRange) -> RangeView {
        let slot = self.processes.get(process).and_then(|process| process.slot(range));
        let Some(slot) = slot else {
            let coverage = self.when_seen(BasePages::ZERO);
            let idle = self.when_seen(self.now.since(Time::ZERO));
            return RangeView { coverage, idle, ..RangeView::default() };
        };
        RangeView {
            mapping: slot.mapping,
            present: slot.populated(),
            swapped: BasePages(u64::from(slot.swapped().len())),
            shared: BasePages(u64::from(self.shared_pages(slot))),
            is_reserved: slot.is_reserved,
            coverage: self.when_seen(BasePages(u64::from(slot.coverage))),
            idle: self.when_seen(self.now.since(slot.accessed_at)),
        }
    }

    fn next_mapped(&self, process: ProcessKey, from: VirtAddr) -> Option<PmdRange> {
        let process = self.processes.get(process)?;
        process.mapped_slots(from).next().map(|(range, _)| range)
    }

    fn pools(&self) -> Option<Pools> {
        self.pools.map(|[base, huge]| Pools { base, huge })
    }

    fn access_bits(&mut self) -> Option<&mut dyn AccessBits> {
        match self.accesses {
            Accesses::Seen => Some(self),
            Accesses::Unseen => None,
        }
    }
}

impl AccessBits for Machine {
    fn next_page(&self, process: ProcessKey, from: VirtAddr) -> Option<Page> {
        self.processes.get(process)?.next_page(from)
    }

    fn take_accessed(&mut self, process: ProcessKey, page: Page) -> bool {
        let Some(process) = self.processes.get_mut(process) else { return false };
        let mut any = false;
        for range in page.ranges() {
            let Some(slot) = process.existing_slot_mut(range) else { continue };
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

impl superpage_policy::promotion::Machine for Machine {
    fn attempt(
        &mut self,
        fault: &Fault,
        attempt: Attempt,
        policy: &mut dyn Policy,
    ) -> Option<PageSize> {
        let mut work = Work::default();
        let size = self.serve_by(fault, attempt, policy, &mut work);
        self.work += work;
        size
    }

    fn carry_out(&mut self, action: &Action) -> Carried {
        Carried::Now(self.perform(action))
    }
}
