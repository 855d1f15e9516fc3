//! What a system sees of real processes: what their page tables said when it was taken.

use std::collections::{BTreeMap, BTreeSet};
use superpage_kernel::pagemap::{Pagemap, Populated};
use superpage_kernel::process::Process;
use superpage_kernel::{Result, maps};
use superpage_policy::supply::Supply;
use superpage_policy::system::{Fault, Footprint, Pool, RegionView, View};
use superpage_units::{
    Advice, Area, AreaKind, BasePages, Bytes, Growth, HugePages, Mapping, Nanos, Page, PageSize,
    ProcessKey, Region, VirtAddr,
};

/// The private anonymous areas of a process between two addresses.
pub(crate) fn areas(process: &Process, start: VirtAddr, end: VirtAddr) -> Result<Vec<maps::Area>> {
    let mut areas = maps::of(process)?;
    areas.retain(|area| area.start < end && start < area.end && area.is_private_anonymous());
    for area in &mut areas {
        (area.start, area.end) = (area.start.max(start), area.end.min(end));
    }
    Ok(areas)
}

/// All processes at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) now: Nanos,
    /// Noted, not had: see the differences in [`crate::machine`].
    pub(crate) reserved: BTreeSet<(ProcessKey, Region)>,
    supply: Supply,
    keys: Vec<ProcessKey>,
    processes: BTreeMap<ProcessKey, Memory>,
}

/// A process's memory.
#[derive(Debug, Default)]
struct Memory {
    areas: Vec<Area>,
    regions: BTreeMap<Region, Populated>,
}

impl Memory {
    /// What is populated of these areas.
    fn of(areas: &[maps::Area], pagemap: &mut Pagemap) -> Result<Self> {
        let as_seen = |area: &maps::Area| Area {
            start: area.start,
            end: area.end,
            kind: AreaKind::Anonymous,
            growth: Growth::Fixed,
            advice: Advice::None,
        };
        let found = pagemap.populated(areas)?;
        Ok(Self {
            areas: areas.iter().map(as_seen).collect(),
            regions: found.into_iter().map(|found| (found.region, found)).collect(),
        })
    }

    fn mapping(&self, region: Region) -> Mapping {
        match self.regions.get(&region) {
            Some(found) if found.is_huge => Mapping::Huge,
            Some(_) => Mapping::Base,
            None => Mapping::Empty,
        }
    }
}

impl Snapshot {
    /// Of no process yet, on a machine with so much memory, all of it free.
    pub(crate) fn new(memory: Bytes) -> Self {
        let mut supply = Supply { total: memory.to_base_pages(), ..Supply::NONE };
        supply.chunks[usize::from(PageSize::Huge.order())] = memory.to_huge_pages().0;
        Self {
            now: Nanos::ZERO,
            reserved: BTreeSet::new(),
            supply,
            keys: Vec::new(),
            processes: BTreeMap::new(),
        }
    }

    /// Looks at a process's memory in these areas again.
    pub(crate) fn look(
        &mut self,
        key: ProcessKey,
        areas: &[maps::Area],
        pagemap: &mut Pagemap,
    ) -> Result<()> {
        let memory = Memory::of(areas, pagemap)?;
        // A reservation ends with the last base page in it, and with a huge page.
        self.reserved.retain(|(of, region)| *of != key || memory.mapping(*region) == Mapping::Base);
        if self.processes.insert(key, memory).is_none() {
            self.keys.push(key);
        }
        Ok(())
    }

    /// The base pages of a region that are populated.
    pub(crate) fn populated(&self, key: ProcessKey, region: Region) -> Vec<u16> {
        let found = self.processes.get(&key).and_then(|memory| memory.regions.get(&region));
        found.map(|found| found.pages.iter().collect()).unwrap_or_default()
    }

    /// A fault at this address, as a system hears of it; `None` in no area.
    pub(crate) fn fault(&self, process: ProcessKey, address: VirtAddr) -> Option<Fault> {
        let holds = |area: &&Area| area.start <= address && address < area.end;
        let area = *self.areas(process).iter().find(holds)?;
        let giant = Page::containing(address, PageSize::Giant);
        let giant_is_empty =
            self.next_mapped(process, giant.start()).is_none_or(|r| r.start() >= giant.end());
        let region = self.region(process, Region::containing(address));
        Some(Fault { process, address, area, region, giant_is_empty })
    }
}

impl View for Snapshot {
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
        let mut footprint = Footprint::default();
        let regions = self.processes.get(&process).into_iter().flat_map(|m| m.regions.values());
        for found in regions {
            if found.is_huge {
                footprint.huge += HugePages(1);
            } else {
                footprint.base += found.pages.count();
            }
        }
        footprint
    }

    fn areas(&self, process: ProcessKey) -> &[Area] {
        self.processes.get(&process).map_or(&[], |memory| &memory.areas)
    }

    fn region(&self, process: ProcessKey, region: Region) -> RegionView {
        let Some(memory) = self.processes.get(&process) else { return RegionView::default() };
        let found = memory.regions.get(&region);
        RegionView {
            mapping: memory.mapping(region),
            population: found.map_or(BasePages::ZERO, |found| found.pages.count()),
            is_reserved: self.reserved.contains(&(process, region)),
            ..RegionView::default()
        }
    }

    fn next_mapped(&self, process: ProcessKey, from: VirtAddr) -> Option<Region> {
        let from = Region::containing(from);
        self.processes.get(&process)?.regions.range(from..).next().map(|(region, _)| *region)
    }

    fn next_page(&self, process: ProcessKey, from: VirtAddr) -> Option<Page> {
        let regions = self.processes.get(&process)?.regions.range(Region::containing(from)..);
        regions.map(|(_, found)| found).find_map(|found| {
            if found.is_huge {
                return Some(found.region.into());
            }
            let mut pages = found.pages.iter().map(|page| found.region.base_page(page));
            let next = pages.find(|start| *start >= from)?;
            Some(Page::containing(next, PageSize::Base))
        })
    }

    fn take_accessed(&mut self, _: ProcessKey, _: Page) -> bool {
        false
    }
}
