//! What a policy sees of the processes that are promoted by it: asked of the kernel when the policy
//! asks, region by region.
//!
//! Where the kernel says less than a simulated machine does:
//! - There are no reservations. Every region that is mapped by base pages counts as reserved: a
//!   frame for it is had when it is asked for, or it is not promoted.
//! - Accesses cannot be seen. The coverage of a region is its population; how long it was idle is
//!   not known, so that only its age counts.
//! - What a region shares with other processes is looked at when it is promoted, not before.
//! - Shared memory without a file counts as anonymous.

use super::tenant::Tenant;
use std::collections::BTreeMap;
use superpage_kernel::pagemap::Survey;
use superpage_policy::supply::Supply;
use superpage_policy::system::{Fault, Footprint, Pool, RegionView, View};
use superpage_units::{
    Area, BasePages, Growth, Mapping, Nanos, Page, PageSize, ProcessKey, Region, VirtAddr,
};

/// The processes under one policy.
#[derive(Debug)]
pub struct LiveView {
    now: Nanos,
    supply: Supply,
    keys: Vec<ProcessKey>,
    tenants: BTreeMap<ProcessKey, Tenant>,
}

impl LiveView {
    /// Nobody yet.
    #[must_use]
    pub fn new() -> Self {
        Self { now: Nanos::ZERO, supply: Supply::NONE, keys: Vec::new(), tenants: BTreeMap::new() }
    }

    /// The time goes on.
    pub fn set_now(&mut self, now: Nanos) {
        self.now = now;
    }

    /// Takes in what memory is free.
    pub fn set_supply(&mut self, supply: Supply) {
        self.supply = supply;
    }

    /// Adds a process.
    pub fn add(&mut self, tenant: Tenant) {
        self.tenants.insert(tenant.key(), tenant);
        self.keys = self.tenants.keys().copied().collect();
    }

    /// Takes a process out.
    pub fn remove(&mut self, key: ProcessKey) -> Option<Tenant> {
        let tenant = self.tenants.remove(&key);
        self.keys = self.tenants.keys().copied().collect();
        tenant
    }

    /// A process.
    #[must_use]
    pub fn tenant(&self, key: ProcessKey) -> Option<&Tenant> {
        self.tenants.get(&key)
    }

    /// A process, to change what is known of it.
    pub fn tenant_mut(&mut self, key: ProcessKey) -> Option<&mut Tenant> {
        self.tenants.get_mut(&key)
    }

    /// All of them.
    pub fn tenants_mut(&mut self) -> impl Iterator<Item = &mut Tenant> {
        self.tenants.values_mut()
    }

    /// How many processes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tenants.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// The fault that populated a page at `address` last, as a policy would have heard of it before
    /// it was served; `None` where nothing can be promoted.
    pub fn fault(&mut self, process: ProcessKey, address: VirtAddr) -> Option<Fault> {
        let tenant = self.tenants.get_mut(&process)?;
        let area = tenant.area_for_fault(address).ok().flatten()?;
        let region = Region::containing(address);
        let seen = tenant.survey(region).ok()?;
        tenant.see(region, &seen);
        if seen.is_huge || seen.population.is_zero() {
            return None;
        }
        let before = Survey { population: seen.population.saturating_sub(BasePages(1)), ..seen };
        Some(Fault {
            process,
            address,
            area,
            region: RegionView {
                // Beyond the end of what does not grow no huge page will ever be.
                is_reserved: !before.population.is_zero()
                    && (area.holds(region.into()) || area.growth == Growth::Up),
                ..region_view(&before)
            },
            giant_is_empty: false,
        })
    }
}

impl Default for LiveView {
    fn default() -> Self {
        Self::new()
    }
}

fn region_view(seen: &Survey) -> RegionView {
    let mapping = if seen.is_huge {
        Mapping::Huge
    } else if seen.population.is_zero() {
        Mapping::Empty
    } else {
        Mapping::Base
    };
    RegionView {
        mapping,
        population: seen.population,
        swapped: seen.swapped,
        is_reserved: mapping == Mapping::Base,
        coverage: seen.population,
        idle: Nanos(u64::MAX),
        ..RegionView::default()
    }
}

impl View for LiveView {
    fn now(&self) -> Nanos {
        self.now
    }

    fn supply(&self) -> &Supply {
        &self.supply
    }

    fn pool(&self, _: PageSize) -> Option<Pool> {
        None
    }

    fn processes(&self) -> &[ProcessKey] {
        &self.keys
    }

    fn footprint(&self, process: ProcessKey) -> Footprint {
        self.tenants.get(&process).map(|tenant| tenant.footprint).unwrap_or_default()
    }

    fn areas(&self, process: ProcessKey) -> &[Area] {
        self.tenants.get(&process).map_or(&[], Tenant::areas)
    }

    fn region(&self, process: ProcessKey, region: Region) -> RegionView {
        let seen = self.tenants.get(&process).and_then(|tenant| tenant.survey(region).ok());
        seen.map(|seen| region_view(&seen)).unwrap_or_default()
    }

    fn next_mapped(&self, process: ProcessKey, from: VirtAddr) -> Option<Region> {
        let tenant = self.tenants.get(&process)?;
        let areas = tenant.areas();
        let end = areas.last()?.end;
        let mut at = from;
        loop {
            // What lies outside the areas is passed over whole.
            let next = areas.get(areas.partition_point(|area| area.end <= at))?;
            at = at.max(next.start);
            let region = tenant.held.pagemap.next_populated(at, end).ok()??;
            let start = region.start().max(at);
            let after = areas.partition_point(|area| area.end <= start);
            match areas.get(after) {
                Some(area) if area.start < region.end() => return Some(region),
                Some(area) => at = area.start,
                None => return None,
            }
        }
    }

    /// Only what evicts asks for pages, and nothing is evicted from outside.
    fn next_page(&self, _: ProcessKey, _: VirtAddr) -> Option<Page> {
        None
    }

    fn take_accessed(&mut self, _: ProcessKey, _: Page) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_kernel::own_memory::{OwnMemory, Wish};
    use superpage_kernel::process::Process;
    use superpage_units::{BASE_PAGE_BYTES, HugePages};

    #[test]
    fn a_fault_is_told_as_it_was_before_it_was_served() {
        let me = Process::current().expect("we run");
        let mut memory = OwnMemory::map(HugePages(3), Wish::BasePages).expect("6 MiB");
        let page = usize::try_from(BASE_PAGE_BYTES).expect("small");
        memory.bytes_mut()[..9 * page].fill(1);
        let key = ProcessKey(1);
        let mut view = LiveView::new();
        view.add(Tenant::new(key, me, "me".into(), None).expect("readable"));
        let regions: Vec<Region> = memory.regions().collect();
        let fault = view.fault(key, regions[0].base_page(8)).expect("it is populated");
        assert_eq!((fault.region.population, fault.region.mapping), (BasePages(8), Mapping::Base));
        assert!(fault.region.is_reserved && fault.area.holds(regions[0].into()));
        assert!(view.fault(key, regions[1].start()).is_none(), "nothing is there");
        assert_eq!(view.next_mapped(key, regions[0].start()), Some(regions[0]));
        memory.bytes_mut()
            [usize::try_from(regions[2].start().since(regions[0].start()).0).expect("small")] = 1;
        assert_eq!(view.next_mapped(key, regions[0].end()), Some(regions[2]));
    }
}
