//! Serving faults: the system's attempts in order, and memory found for them.

use super::work::{Transfers, Work};
use super::{Backing, LOW_WATERMARK, Machine, OutOfMemory};
use crate::physical::{Owner, Taken};
use crate::virtual_memory::page_index;
use crate::virtual_memory::slot::{PAGES, PageSet, Slot};
use superpage_policy::compaction::Compaction;
use superpage_policy::debloat::ProcessKey;
use superpage_policy::page::{Page, PageSize};
use superpage_policy::region::Region;
use superpage_policy::system::{Attempt, Fault, FaultPlan, Mapping, RegionView, Shortage, Zeroed};
use superpage_policy::units::{BasePages, VirtAddr};

/// What a program writes to a page that it touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data.
    Data,
    /// Nothing: it reads, or writes zeroes.
    Zeroes,
}

/// How a touch was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The page was mapped, by a page of this size.
    Mapped(PageSize),
    /// There was a fault; now it is mapped by a page of this size.
    Fault {
        /// The size.
        size: PageSize,
        /// What it took.
        work: Work,
    },
}

impl Machine {
    /// A process touches a base page.
    ///
    /// # Errors
    /// [`OutOfMemory`] if no memory could be found for it.
    pub fn touch(
        &mut self,
        process: ProcessKey,
        address: VirtAddr,
        content: Content,
    ) -> Result<Served, OutOfMemory> {
        let page = page_index(address);
        let region = Region::containing(address);
        let now = self.now;
        let Some(target) = self.processes.get_mut(process) else {
            return Err(OutOfMemory { process });
        };
        let slot = target.slot_mut(region);
        slot.accessed_at = now;
        slot.is_accessed = true;
        if slot.is_present(page) {
            let size = match slot.mapping {
                Mapping::Giant => PageSize::Giant,
                Mapping::Huge => PageSize::Huge,
                Mapping::Base | Mapping::Empty => PageSize::Base,
            };
            if content == Content::Data {
                slot.write(page);
            }
            if size == PageSize::Base {
                slot.detail().accessed.insert(page);
            }
            return Ok(Served::Mapped(size));
        }
        let (size, work) = self.fault(process, address)?;
        if let Some(target) = self.processes.get_mut(process) {
            let slot = target.slot_mut(region);
            if content == Content::Data {
                slot.write(page);
            }
            if size == PageSize::Base {
                slot.detail().accessed.insert(page);
            }
        }
        self.counts.faults[size.index()] += 1;
        Ok(Served::Fault { size, work })
    }

    fn fault(
        &mut self,
        process: ProcessKey,
        address: VirtAddr,
    ) -> Result<(PageSize, Work), OutOfMemory> {
        let mut work = Work::default();
        self.keep_reserve(&mut work);
        let Some(fault) = self.describe(process, address) else {
            return Err(OutOfMemory { process });
        };
        let plan = self
            .with_system(|machine, system| system.fault(&fault, machine))
            .unwrap_or(FaultPlan::base(superpage_policy::system::FaultCause::BasePages));
        for attempt in plan.attempts() {
            if let Some(size) = self.attempt(&fault, attempt, &mut work) {
                work.faults[size.index()] += 1;
                return Ok((size, work));
            }
        }
        Err(OutOfMemory { process })
    }

    fn describe(&self, process: ProcessKey, address: VirtAddr) -> Option<Fault> {
        let target = self.processes.get(process)?;
        let giant = Page::containing(address, PageSize::Giant);
        let region = self.region_view(process, Region::containing(address));
        let giant_is_empty = region == RegionView { idle: region.idle, ..RegionView::default() }
            && target.is_empty_giant(giant);
        Some(Fault { process, address, area: target.area_at(address)?, region, giant_is_empty })
    }

    /// One attempt; the size mapped if it succeeds.
    fn attempt(&mut self, fault: &Fault, attempt: Attempt, work: &mut Work) -> Option<PageSize> {
        match attempt {
            // A region with a reservation has a place for each of its pages.
            Attempt::Base if fault.region.is_reserved => self.map_in_place(fault, work),
            Attempt::Base => self.map_base(fault, work),
            Attempt::Map { size, compaction, zeroed } => {
                self.counts.fault_attempts[size.index()] += 1;
                let mapped = self.map_whole(fault, size, compaction, zeroed, work);
                if mapped.is_none() {
                    self.counts.fault_failures[size.index()] += 1;
                }
                mapped
            }
            Attempt::Reserve => self.reserve(fault, work),
            Attempt::InPlace => self.map_in_place(fault, work),
            Attempt::Complete => self.complete(fault, work),
        }
    }

    fn map_base(&mut self, fault: &Fault, work: &mut Work) -> Option<PageSize> {
        let address = fault.page(PageSize::Base).start();
        let ahead = self.pages_ahead(fault);
        self.fill(fault, BasePages(1), work);
        // The faulting page comes last: room made for the others must not take it away again.
        for page in ahead {
            let neighbour = Region::containing(address).base_page(page);
            if self.map_base_at(fault.process, neighbour, work).is_some() {
                work.faults[0] += 1;
                work.reads.pages += BasePages(1);
            }
        }
        self.map_base_at(fault.process, address, work)
    }

    /// The base pages that are read from swap along with the faulting one, of the same region.
    fn pages_ahead(&self, fault: &Fault) -> Vec<u16> {
        let page = page_index(fault.address);
        if self.read_ahead == 1 || page == 0 {
            return Vec::new();
        }
        let process = self.processes.get(fault.process);
        let Some(slot) = process.and_then(|p| p.slot(Region::containing(fault.address))) else {
            return Vec::new();
        };
        let swapped = slot.swapped();
        if !swapped.contains(page) || !slot.is_present(page - 1) {
            return Vec::new();
        }
        let end = (page + self.read_ahead).min(PAGES);
        (page + 1..end).take_while(|page| swapped.contains(*page)).collect()
    }

    fn map_base_at(
        &mut self,
        key: ProcessKey,
        address: VirtAddr,
        work: &mut Work,
    ) -> Option<PageSize> {
        let taken = self.take_base(Owner::Process(key, address), work)?;
        work.entries += 1;
        let process = self.processes.get_mut(key)?;
        let slot = process.slot_mut(Region::containing(address));
        let page = page_index(address);
        if slot.mapping == Mapping::Empty {
            slot.unmap();
            slot.mapping = Mapping::Base;
        }
        let detail = slot.detail();
        detail.present.insert(page);
        detail.used.remove(page);
        detail.stored.remove(page);
        if detail.swapped.contains(page) {
            detail.swapped.remove(page);
            detail.used.insert(page);
            detail.stored.insert(page);
        }
        let frames = detail.frames.get_or_insert_with(|| Box::new([0; PAGES as usize]));
        #[expect(clippy::cast_possible_truncation, reason = "below 16 TiB of memory")]
        {
            frames[usize::from(page)] = taken.frame.0 as u32;
        }
        slot.population += 1;
        process.count(PageSize::Base, 1, 0);
        Some(PageSize::Base)
    }

    /// What a new page holds at first: zeroes, or what the backing store has.
    fn fill(&mut self, fault: &Fault, pages: BasePages, work: &mut Work) {
        let is_swapped = || {
            let slot =
                self.processes.get(fault.process)?.slot(Region::containing(fault.address))?;
            let detail = slot.detail.as_ref()?;
            Some(detail.swapped.contains(page_index(fault.address)))
        };
        match self.backing {
            Backing::File => work.reads += Transfers::one(pages),
            Backing::Swap if is_swapped() == Some(true) => work.reads += Transfers::one(pages),
            Backing::Swap | Backing::None => work.zeroed += pages,
        }
    }

    /// A base page, after giving up what can be given up.
    fn take_base(&mut self, owner: Owner, work: &mut Work) -> Option<Taken> {
        /// Actions under pressure for one page: reservations may give back little each.
        const TRIES: u32 = 10_000;
        for _ in 0..TRIES {
            if let Some(taken) = self.take(PageSize::Base, owner) {
                return Some(taken);
            }
            if !self.make_room(Shortage { size: PageSize::Base, pages: 1 }, work) {
                return None;
            }
        }
        None
    }

    /// Gives up a file page or whatever the system says; whether anything was given up.
    pub(super) fn make_room(&mut self, shortage: Shortage, work: &mut Work) -> bool {
        let mut random = self.random.fork();
        if self.pools.is_none() && self.physical.drop_page_cache(&mut random) {
            work.dropped += BasePages(1);
            return true;
        }
        if self.split_partly_unmapped(work) {
            return true;
        }
        let action =
            self.with_system(|machine, system| system.pressure(shortage, machine)).flatten();
        let Some(action) = action else { return false };
        self.carry_out(&action, work);
        true
    }

    /// Drops file pages before free memory runs out, as the kernel does in the background; if there
    /// are none, splits huge pages that were given back in part.
    fn keep_reserve(&mut self, work: &mut Work) {
        let has_cache = !self.physical.page_cache().is_zero();
        let has_some = has_cache || !self.partly_unmapped.is_empty();
        if !has_some || self.supply().free_share() >= LOW_WATERMARK {
            return;
        }
        if !has_cache {
            self.split_partly_unmapped(work);
            return;
        }
        let mut random = self.random.fork();
        for _ in 0..PageSize::Huge.base_pages().0 {
            if self.physical.drop_page_cache(&mut random) {
                work.dropped += BasePages(1);
            }
        }
    }

    fn map_whole(
        &mut self,
        fault: &Fault,
        size: PageSize,
        compaction: Option<Compaction>,
        zeroed: Zeroed,
        work: &mut Work,
    ) -> Option<PageSize> {
        let page = fault.page(size);
        let owner = owner_of(fault.process, page);
        let taken = match zeroed {
            Zeroed::Required => self.physical.take_zeroed(size, owner),
            Zeroed::Preferred => self.take_contiguous(size, owner, compaction, work),
        }?;
        work.entries += 1;
        let slot = self.processes.get(fault.process).and_then(|p| p.slot(page.regions().next()?));
        let used = slot.map(Slot::swapped).unwrap_or_default();
        let is_read = self.backing == Backing::Swap && used.len() > 0;
        if is_read {
            work.reads += Transfers::one(BasePages(u64::from(used.len())));
        } else if !taken.is_zeroed {
            self.fill(fault, size.base_pages(), work);
        }
        self.install(fault.process, page, taken, used);
        if used.len() > 0 {
            self.processes.get_mut(fault.process)?.slot_mut(page.regions().next()?).is_as_stored();
        }
        Some(size)
    }

    /// A page of this size, after compaction if there must be.
    pub(super) fn take_contiguous(
        &mut self,
        size: PageSize,
        owner: Owner,
        compaction: Option<Compaction>,
        work: &mut Work,
    ) -> Option<Taken> {
        if let Some(taken) = self.take(size, owner) {
            return Some(taken);
        }
        let kind =
            compaction.filter(|kind| self.pools.is_none() && self.may_compact(size, *kind))?;
        let compacted = self.physical.compact(size, kind, &mut self.processes);
        work.compacted.add(compacted);
        if compacted.made { self.take(size, owner) } else { None }
    }

    /// Whether compaction is worth trying. Linux's is not while free memory is not above the low
    /// watermark by twice the size wanted: there is nowhere to move pages to
    /// (`compaction_suitable()` and `compact_gap()` in mm/compaction.c).
    pub(super) fn may_compact(&self, size: PageSize, kind: Compaction) -> bool {
        let low = self.physical.total().bytes().scaled(LOW_WATERMARK).to_base_pages();
        kind == Compaction::Smart || self.supply().free() >= low + size.base_pages() * 2
    }

    /// Maps a page that was taken; `used` are the base pages that hold data (of a huge page).
    pub(super) fn install(&mut self, key: ProcessKey, page: Page, taken: Taken, used: PageSet) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let now = self.now;
        for (at, region) in page.regions().enumerate() {
            let slot = process.slot_mut(region);
            let kept = if page.size() == PageSize::Giant { slot.data() } else { used };
            slot.mapping =
                if page.size() == PageSize::Giant { Mapping::Giant } else { Mapping::Huge };
            slot.is_reserved = false;
            slot.population = PAGES;
            slot.frame = taken.frame.offset(at as u64 * u64::from(PAGES));
            slot.accessed_at = now;
            slot.detail = None;
            if kept != PageSet::ALL {
                slot.detail().used = kept;
            }
        }
        process.count(page.size(), 1, 0);
    }

    fn reserve(&mut self, fault: &Fault, work: &mut Work) -> Option<PageSize> {
        let region = Region::containing(fault.address);
        if fault.region.population != BasePages::ZERO || fault.region.is_reserved {
            return None;
        }
        let owner = Owner::Reserved(fault.process, region.start());
        let taken = self.take(PageSize::Huge, owner)?;
        self.counts.reservations += 1;
        let slot = self.processes.get_mut(fault.process)?.slot_mut(region);
        slot.is_reserved = true;
        slot.frame = taken.frame;
        slot.unmap();
        self.map_in_place(fault, work)
    }

    fn map_in_place(&mut self, fault: &Fault, work: &mut Work) -> Option<PageSize> {
        self.fill(fault, BasePages(1), work);
        let process = self.processes.get_mut(fault.process)?;
        let slot = process.slot_mut(Region::containing(fault.address));
        if !slot.is_reserved {
            return None;
        }
        work.entries += 1;
        slot.mapping = Mapping::Base;
        slot.population += 1;
        let page = page_index(fault.address);
        let detail = slot.detail();
        detail.present.insert(page);
        detail.used.remove(page);
        detail.stored.remove(page);
        if detail.swapped.contains(page) {
            detail.swapped.remove(page);
            detail.used.insert(page);
            detail.stored.insert(page);
        }
        process.count(PageSize::Base, 1, 0);
        Some(PageSize::Base)
    }

    fn complete(&mut self, fault: &Fault, work: &mut Work) -> Option<PageSize> {
        self.map_in_place(fault, work)?;
        let page = fault.page(PageSize::Huge);
        if !fault.area.holds(page) {
            return Some(PageSize::Base);
        }
        self.finish_reservation(fault.process, Region::containing(fault.address), work);
        Some(PageSize::Huge)
    }

    /// Prepares what is missing in a reserved frame and maps it as a huge page.
    pub(super) fn finish_reservation(
        &mut self,
        key: ProcessKey,
        region: Region,
        work: &mut Work,
    ) -> bool {
        let Some(process) = self.processes.get_mut(key) else { return false };
        let slot = process.slot_mut(region);
        if !slot.is_reserved {
            return false;
        }
        let missing = u64::from(PAGES - slot.population);
        let (frame, used, populated) = (slot.frame, slot.data(), slot.population);
        process.count(PageSize::Base, 0, u64::from(populated));
        let owner = owner_of(key, region.into());
        self.physical.reown(frame, PageSize::Huge, owner);
        self.install(key, region.into(), Taken { frame, is_zeroed: false }, used);
        if self.backing == Backing::File {
            work.reads += Transfers::one(BasePages(missing));
        } else {
            work.zeroed += BasePages(missing);
        }
        work.entries += 1;
        work.shootdowns += self.threads(key);
        true
    }
}

/// The owner that a page's frames get.
pub(super) fn owner_of(process: ProcessKey, page: Page) -> Owner {
    match page.size() {
        PageSize::Base | PageSize::Huge => Owner::Process(process, page.start()),
        PageSize::Giant => Owner::Giant(process, page.start()),
    }
}
