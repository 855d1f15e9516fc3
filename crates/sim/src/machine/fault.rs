//! Serving faults: the policy's attempts in order, and memory found for them.

use super::fill::Missing;
use super::work::Work;
use super::{Machine, OutOfMemory};
use crate::physical::{Owner, Taken};
use crate::virtual_memory::page_index;
use crate::virtual_memory::slot::{PAGES, PageSet};
use superpage_policy::compaction::Compaction;
use superpage_policy::promotion::{Attempt, Fault, Policy, RangeView, Shortage, Zeroed, drive};
use superpage_units::{BasePages, Mapping, Page, PageSize, PmdRange, ProcessKey, VirtAddr};

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
        let range = PmdRange::containing(address);
        let now = self.now;
        let Some(target) = self.processes.get_mut(process) else {
            return Err(OutOfMemory { process });
        };
        let slot = target.slot_mut(range);
        slot.accessed_at = now;
        slot.is_accessed = true;
        if slot.is_present(page) {
            if content == Content::Data && slot.is_read_only(page) {
                return self.write(process, address);
            }
            let size = match slot.mapping {
                Mapping::Gigantic => PageSize::Gigantic,
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
        Ok(self.served(process, address, content, size, work))
    }

    /// A write to a page that is mapped read-only.
    fn write(&mut self, process: ProcessKey, address: VirtAddr) -> Result<Served, OutOfMemory> {
        let mut work = Work::default();
        if let Some(size) = self.write_fault(process, address, &mut work)? {
            return Ok(self.served(process, address, Content::Data, size, work));
        }
        // The page went away while memory for a copy was sought.
        Ok(match self.touch(process, address, Content::Data)? {
            Served::Mapped(size) => Served::Fault { size, work },
            Served::Fault { size, work: more } => {
                work += more;
                Served::Fault { size, work }
            }
        })
    }

    /// Notes what a fault leaves behind.
    fn served(
        &mut self,
        process: ProcessKey,
        address: VirtAddr,
        content: Content,
        size: PageSize,
        work: Work,
    ) -> Served {
        let page = page_index(address);
        if let Some(target) = self.processes.get_mut(process) {
            let slot = target.slot_mut(PmdRange::containing(address));
            if content == Content::Data {
                slot.write(page);
            }
            if size == PageSize::Base {
                slot.detail().accessed.insert(page);
            }
        }
        self.counts.faults[size.index()] += 1;
        Served::Fault { size, work }
    }

    fn fault(
        &mut self,
        process: ProcessKey,
        address: VirtAddr,
    ) -> Result<(PageSize, Work), OutOfMemory> {
        self.wake_kswapd();
        let Some(fault) = self.describe(process, address) else {
            return Err(OutOfMemory { process });
        };
        let served = self.with_policy(|machine, policy| drive::serve(policy, machine, &fault));
        let mut work = self.take_work();
        let size = served.flatten().ok_or(OutOfMemory { process })?.size;
        work.faults[size.index()] += 1;
        Ok((size, work))
    }

    fn describe(&self, process: ProcessKey, address: VirtAddr) -> Option<Fault> {
        let fault = Fault::at(self, process, address)?;
        let RangeView { coverage, idle, .. } = fault.range;
        let coverage = coverage.and(Some(BasePages::ZERO));
        let untouched = RangeView { coverage, idle, ..RangeView::default() };
        let gigantic = fault.page(PageSize::Gigantic);
        let target = self.processes.get(process)?;
        let gigantic_is_empty = fault.range == untouched && target.is_empty_gigantic(gigantic);
        Some(Fault { gigantic_is_empty: Some(gigantic_is_empty), ..fault })
    }

    /// One attempt; the size mapped if it succeeds.
    pub(super) fn serve_by(
        &mut self,
        fault: &Fault,
        attempt: Attempt,
        policy: &mut dyn Policy,
        work: &mut Work,
    ) -> Option<PageSize> {
        match attempt {
            // A range with a reservation has a place for each of its pages.
            Attempt::Base if fault.range.is_reserved => self.map_in_place(fault, work),
            Attempt::Base => self.map_base(fault, policy, work),
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

    fn map_base(
        &mut self,
        fault: &Fault,
        policy: &mut dyn Policy,
        work: &mut Work,
    ) -> Option<PageSize> {
        let new = fault.page(PageSize::Base);
        let missing = self.missing_whole(fault.process, new);
        // The faulting page comes last: room made for the others must not take it away again.
        for page in self.pages_ahead(fault) {
            let neighbour = PmdRange::containing(new.start()).base_page(page);
            if self.map_base_at(fault.process, neighbour, policy, work).is_some() {
                work.faults[0] += 1;
                work.reads.pages += BasePages(1);
            }
        }
        let taken = self.map_base_at(fault.process, new.start(), policy, work)?;
        self.fill(missing, taken, work);
        Some(PageSize::Base)
    }

    /// The base pages that are read from swap along with the faulting one, of the same range.
    fn pages_ahead(&self, fault: &Fault) -> Vec<u16> {
        let page = page_index(fault.address);
        if self.read_ahead == 1 || page == 0 {
            return Vec::new();
        }
        let process = self.processes.get(fault.process);
        let Some(slot) = process.and_then(|p| p.slot(PmdRange::containing(fault.address))) else {
            return Vec::new();
        };
        let swapped = slot.swapped();
        if !swapped.contains(page) || !slot.is_present(page - 1) {
            return Vec::new();
        }
        let end = (page + self.read_ahead).min(PAGES);
        (page + 1..end).take_while(|page| swapped.contains(*page)).collect()
    }

    /// Maps a base page, which holds what the backing store has of it. Filling it is the caller's.
    fn map_base_at(
        &mut self,
        key: ProcessKey,
        address: VirtAddr,
        policy: &mut dyn Policy,
        work: &mut Work,
    ) -> Option<Taken> {
        let taken = self.take_base(Owner::Process(key, address), policy, work)?;
        work.entries += 1;
        let process = self.processes.get_mut(key)?;
        let slot = process.slot_mut(PmdRange::containing(address));
        let page = page_index(address);
        slot.map_page(page);
        slot.detail().place(page, taken.frame);
        process.count(PageSize::Base, 1, 0);
        Some(taken)
    }

    /// A base page, after giving up what can be given up.
    pub(super) fn take_base(
        &mut self,
        owner: Owner,
        policy: &mut dyn Policy,
        work: &mut Work,
    ) -> Option<Taken> {
        /// Actions under pressure for one page: reservations may give back little each.
        const TRIES: u32 = 10_000;
        for _ in 0..TRIES {
            if let Some(taken) = self.take(PageSize::Base, owner) {
                return Some(taken);
            }
            if !self.make_room(Shortage { size: PageSize::Base, pages: 1 }, policy, work) {
                return None;
            }
        }
        None
    }

    /// Gives up a file page or whatever the policy says; whether anything was given up.
    fn make_room(&mut self, shortage: Shortage, policy: &mut dyn Policy, work: &mut Work) -> bool {
        if self.reclaim(work) {
            return true;
        }
        let relieved = drive::relieve(policy, self, shortage).is_some();
        *work += self.take_work();
        relieved
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
        let missing = self.missing_whole(fault.process, page);
        self.fill(missing, taken, work);
        work.entries += 1;
        self.install(fault.process, page, taken);
        if !missing.swapped.is_zero() {
            let process = self.processes.get_mut(fault.process)?;
            page.ranges().for_each(|range| process.slot_mut(range).is_as_stored());
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

    /// Whether compaction may be tried.
    pub(super) fn may_compact(&self, size: PageSize, kind: Compaction) -> bool {
        kind.is_suitable(size, self.free_memory(), self.watermarks.low)
    }

    /// Maps a page that was taken, in place of what its slots had mapped; what they know to hold
    /// data still does.
    pub(super) fn install(&mut self, key: ProcessKey, page: Page, taken: Taken) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let now = self.now;
        for (at, range) in page.ranges().enumerate() {
            let slot = process.slot_mut(range);
            let kept = slot.data();
            slot.mapping =
                if page.size() == PageSize::Gigantic { Mapping::Gigantic } else { Mapping::Huge };
            slot.is_reserved = false;
            slot.is_protected = false;
            slot.present = PAGES;
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
        let range = PmdRange::containing(fault.address);
        if fault.range.present != BasePages::ZERO || fault.range.is_reserved {
            return None;
        }
        let owner = Owner::Reserved(fault.process, range.start());
        let taken = self.take(PageSize::Huge, owner)?;
        self.counts.reservations += 1;
        let slot = self.processes.get_mut(fault.process)?.slot_mut(range);
        slot.is_reserved = true;
        slot.frame = taken.frame;
        slot.unmap();
        self.map_in_place(fault, work)
    }

    fn map_in_place(&mut self, fault: &Fault, work: &mut Work) -> Option<PageSize> {
        let new = fault.page(PageSize::Base);
        let missing = self.missing_whole(fault.process, new);
        let process = self.processes.get_mut(fault.process)?;
        let slot = process.slot_mut(PmdRange::containing(new.start()));
        if !slot.is_reserved {
            return None;
        }
        slot.map_page(page_index(new.start()));
        let taken = Taken { frame: slot.frame, is_zeroed: false };
        process.count(PageSize::Base, 1, 0);
        self.fill(missing, taken, work);
        work.entries += 1;
        Some(PageSize::Base)
    }

    fn complete(&mut self, fault: &Fault, work: &mut Work) -> Option<PageSize> {
        self.map_in_place(fault, work)?;
        let page = fault.page(PageSize::Huge);
        if !fault.vma.holds(page) {
            return Some(PageSize::Base);
        }
        self.finish_reservation(fault.process, PmdRange::containing(fault.address), work);
        Some(PageSize::Huge)
    }

    /// Prepares what is missing in a reserved frame and maps it as a huge page.
    pub(super) fn finish_reservation(
        &mut self,
        key: ProcessKey,
        range: PmdRange,
        work: &mut Work,
    ) -> bool {
        let Some(process) = self.processes.get_mut(key) else { return false };
        let slot = process.slot_mut(range);
        if !slot.is_reserved {
            return false;
        }
        let taken = Taken { frame: slot.frame, is_zeroed: false };
        let populated = slot.populated();
        let missing = Missing {
            pages: PageSize::Huge.base_pages() - populated,
            swapped: BasePages(u64::from(slot.swapped().len())),
        };
        process.count(PageSize::Base, 0, populated.0);
        self.physical.reown(taken.frame, PageSize::Huge, owner_of(key, range.into()));
        self.install(key, range.into(), taken);
        self.fill(missing, taken, work);
        work.entries += 1;
        work.shootdowns += self.threads(key);
        true
    }
}

/// The owner that a page's frames get.
pub(super) fn owner_of(process: ProcessKey, page: Page) -> Owner {
    match page.size() {
        PageSize::Base | PageSize::Huge => Owner::Process(process, page.start()),
        PageSize::Gigantic => Owner::Gigantic(process, page.start()),
    }
}
