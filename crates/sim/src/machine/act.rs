//! Carrying out what a policy does in the background and under pressure.

use super::fault::owner_of;
use super::fill::Missing;
use super::work::{Transfers, Work};
use super::{Backing, Machine};
use crate::physical::{Frame, Owner};
use crate::virtual_memory::page_index;
use crate::virtual_memory::slot::{PAGES, PageSet};
use superpage_policy::bloat::BloatDensity;
use superpage_policy::compaction::Compaction;
use superpage_policy::promotion::{
    self, Act, Action, Batching, Carried, How, Outcome, Policy, drive,
};
use superpage_units::{BasePages, Mapping, Page, PageSize, PmdRange, ProcessKey, Time, VirtAddr};

/// Base pages evicted for each time that other CPUs are told: reclaim unmaps a batch before it does
/// (`SWAP_CLUSTER_MAX` in include/linux/swap.h).
const RECLAIM_BATCH: u64 = 32;

/// What a step in the background came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// Something was done, or looked at.
    Worked(Worked),
    /// Nothing is to be done until this time, or until something happens.
    Resting(Option<Time>),
}

/// What was done in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    /// How much.
    pub work: Work,
    /// The process whose page tables were held locked meanwhile, because pages were moved into a
    /// new one.
    pub locked: Option<ProcessKey>,
}

impl Machine {
    /// Lets the policy do one thing in the background.
    pub fn step(&mut self) -> Stepped {
        self.step_by(drive::step)
    }

    /// Lets the policy prepare one thing ahead of time.
    pub fn prepare_ahead(&mut self) -> Stepped {
        self.step_by(drive::prepare)
    }

    fn step_by(
        &mut self,
        by: fn(&mut dyn Policy, &mut dyn promotion::Machine) -> drive::Stepped,
    ) -> Stepped {
        let step = self.with_policy(|machine, policy| by(policy, machine));
        match step.unwrap_or(drive::Stepped::Rests(None)) {
            drive::Stepped::Acted(action, carried) => {
                let is_done = carried == Carried::Now(Outcome::Done);
                let locked = locked_by(&action).filter(|_| is_done);
                Stepped::Worked(Worked { work: self.take_work(), locked })
            }
            drive::Stepped::Scanned(scanned) => {
                let work = Work { scanned, ..Work::default() };
                Stepped::Worked(Worked { work, locked: None })
            }
            drive::Stepped::Rests(until) => Stepped::Resting(until),
        }
    }

    /// Carries an action out as if the policy had wanted it, and tells the policy.
    pub fn apply(&mut self, action: &Action, work: &mut Work) -> Outcome {
        let outcome = self.perform(action);
        self.with_policy(|_, policy| policy.learn(action, outcome));
        *work += self.take_work();
        outcome
    }

    /// Carries an action out, and counts what it took.
    pub(super) fn perform(&mut self, action: &Action) -> Outcome {
        let mut work = Work::default();
        let outcome = match action.act {
            Act::Promote { process, page, how } => self.promote(process, page, how, &mut work),
            Act::Zero(size) => self.zero_ahead(size, &mut work),
            Act::Compact(size, kind) => self.compact(size, kind, &mut work),
            Act::Unreserve { process, range } => self.unreserve(process, range, &mut work),
            Act::Evacuate { process, range } => self.evacuate(process, range, &mut work),
            Act::Evict { process, page } => self.evict(process, page, &mut work),
        };
        if outcome == Outcome::Stale {
            self.counts.stale += 1;
        }
        self.work += work;
        outcome
    }

    fn zero_ahead(&mut self, size: PageSize, work: &mut Work) -> Outcome {
        if !self.physical.zero_ahead(size) {
            return Outcome::NoFrame;
        }
        work.zeroed += size.base_pages();
        Outcome::Done
    }

    fn compact(&mut self, size: PageSize, kind: Compaction, work: &mut Work) -> Outcome {
        if !self.may_compact(size, kind) {
            return Outcome::NoFrame;
        }
        let compacted = self.physical.compact(size, kind, &mut self.processes);
        work.compacted.add(compacted);
        if compacted.made { Outcome::Done } else { Outcome::NoFrame }
    }

    fn promote(&mut self, process: ProcessKey, page: Page, how: How, work: &mut Work) -> Outcome {
        if !self.can_promote(process, page) {
            return Outcome::Stale;
        }
        let at = page.size().index();
        self.counts.promotion_attempts[at] += 1;
        let outcome = match how {
            How::InPlace => self.promote_in_place(process, page, work),
            How::Copy(compaction) => self.promote_anew(process, page, compaction, None, work),
            How::Exchange(batching, compaction) => {
                self.promote_anew(process, page, compaction, Some(batching), work)
            }
            How::Read => self.promote_by_reading(process, page, work),
        };
        match outcome {
            Outcome::Done => {
                self.counts.promotions[at] += 1;
                work.promotions += 1;
            }
            Outcome::NoFrame => self.counts.promotion_failures[at] += 1,
            Outcome::Stale => {}
        }
        outcome
    }

    /// Whether the page lies in a VMA and is mapped by smaller ones, at least in part, and was not
    /// split to reclaim bloat that would come back.
    fn can_promote(&self, key: ProcessKey, page: Page) -> bool {
        let Some(process) = self.processes.get(key) else { return false };
        let vma = process.vma_at(page.start());
        let smaller = |mapping| match page.size() {
            PageSize::Base => false,
            PageSize::Huge => mapping == Mapping::Base,
            PageSize::Gigantic => matches!(mapping, Mapping::Base | Mapping::Huge),
        };
        vma.is_some_and(|vma| vma.holds(page))
            && page.ranges().any(|range| process.slot(range).is_some_and(|s| smaller(s.mapping)))
            && !self.is_held(key, page)
    }

    fn promote_in_place(&mut self, key: ProcessKey, page: Page, work: &mut Work) -> Outcome {
        let is_done = page.size() == PageSize::Huge
            && self.finish_reservation(key, PmdRange::containing(page.start()), work);
        if is_done { Outcome::Done } else { Outcome::Stale }
    }

    /// Into a new frame, from memory and the backing store. Faults in it need not wait: nobody holds
    /// the process's memory locked for so long. If the backing store has all that was mapped, it
    /// has all of the new page.
    fn promote_by_reading(&mut self, key: ProcessKey, page: Page, work: &mut Work) -> Outcome {
        let slot = self.processes.get(key).and_then(|p| p.slot(page.ranges().next()?));
        let is_stored = slot.is_some_and(|slot| slot.used().without(slot.stored()).is_empty());
        let outcome = self.promote_anew(key, page, None, None, work);
        if outcome == Outcome::Done && is_stored {
            let process = self.processes.get_mut(key);
            process
                .into_iter()
                .for_each(|p| page.ranges().for_each(|r| p.slot_mut(r).is_as_stored()));
        }
        outcome
    }

    /// Into a new frame, by copying or by exchanging.
    fn promote_anew(
        &mut self,
        key: ProcessKey,
        page: Page,
        compaction: Option<Compaction>,
        exchange: Option<Batching>,
        work: &mut Work,
    ) -> Outcome {
        let owner = owner_of(key, page);
        let mut room = Work::default();
        let taken = self.take_contiguous(page.size(), owner, compaction, &mut room);
        if let Some(batching) = exchange {
            room.exchange_compacted(batching);
        }
        *work += room;
        let Some(taken) = taken else {
            return Outcome::NoFrame;
        };
        let mut huge = 0;
        let mut swapped = BasePages::ZERO;
        let mut populated = BasePages::ZERO;
        for range in page.ranges() {
            let Some(slot) = self.processes.get(key).and_then(|p| p.slot(range)) else { continue };
            swapped += BasePages(u64::from(slot.swapped().len()));
            // What others map as well cannot be exchanged: it is copied.
            if slot.mapping == Mapping::Huge && !self.is_shared_huge(slot) {
                huge += 1;
            } else {
                populated += slot.populated();
            }
            self.release_range(key, range);
        }
        let kept = PageSize::Huge.base_pages() * huge + populated;
        match exchange {
            None => work.copied += kept,
            Some(batching) => {
                work.exchange(huge, batching);
                work.copied += populated;
            }
        }
        let missing = Missing { pages: page.size().base_pages() - kept, swapped };
        self.fill(missing, taken, work);
        work.entries += page.size().base_pages().0 / u64::from(PAGES);
        work.shootdowns += self.threads(key);
        self.install(key, page, taken);
        Outcome::Done
    }

    /// Gives the frames of a range back; its slot keeps what it knows of its contents.
    fn release_range(&mut self, key: ProcessKey, range: PmdRange) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let slot = process.slot_mut(range);
        let present = u64::from(slot.present);
        // A gigantic page is given back as a whole, by nobody: it is split first.
        let frames = match slot.mapping {
            Mapping::Gigantic => Vec::new(),
            Mapping::Empty | Mapping::Base | Mapping::Huge => slot.frames(range),
        };
        slot.is_reserved = false;
        match slot.mapping {
            Mapping::Base => process.count(PageSize::Base, 0, present),
            Mapping::Huge => process.count(PageSize::Huge, 0, 1),
            Mapping::Empty | Mapping::Gigantic => {}
        }
        for (address, frame, size) in frames {
            self.put(key, address, (frame, size), Some(key));
        }
    }

    /// Gives the unpopulated frames of a reservation back.
    pub(super) fn unreserve(
        &mut self,
        key: ProcessKey,
        range: PmdRange,
        work: &mut Work,
    ) -> Outcome {
        let Some(process) = self.processes.get_mut(key) else { return Outcome::Stale };
        let Some(slot) = process.existing_slot_mut(range).filter(|slot| slot.is_reserved) else {
            return Outcome::Stale;
        };
        slot.is_reserved = false;
        let (start, present) = (slot.frame, slot.present());
        if slot.present > 0 {
            slot.detail().frames = Some(frames_in_place(start));
        }
        self.scatter(key, range, start, present);
        work.entries += u64::from(PAGES - present.len());
        Outcome::Done
    }

    /// Frees the frames of a huge frame whose pages are not in `kept`; the others are base pages
    /// of the process from now on.
    fn scatter(&mut self, key: ProcessKey, range: PmdRange, start: Frame, kept: PageSet) {
        for page in 0..PAGES {
            let frame = start.offset(u64::from(page));
            if kept.contains(page) {
                let owner = Owner::Process(key, range.base_page(page));
                self.physical.reown(frame, PageSize::Base, owner);
            } else {
                self.physical.give(frame, PageSize::Base);
            }
        }
    }

    /// Maps a huge page by base pages, and frees those that hold only zeroes.
    ///
    /// Returns how many were freed; nothing if no huge page is mapped there, or one that others share:
    /// the kernel leaves those alone.
    pub(super) fn split(
        &mut self,
        key: ProcessKey,
        range: PmdRange,
        work: &mut Work,
    ) -> Option<BloatDensity> {
        let slot = self.processes.get(key)?.slot(range).filter(|s| s.mapping == Mapping::Huge)?;
        if self.is_shared_huge(slot) {
            return None;
        }
        let process = self.processes.get_mut(key)?;
        let slot = process.slot_mut(range);
        let used = slot.data();
        let start = slot.frame;
        if used.is_empty() {
            slot.unmap();
        } else {
            slot.map_by_base_pages(used);
        }
        process.count(PageSize::Huge, 0, 1);
        process.count(PageSize::Base, u64::from(used.len()), 0);
        self.scatter(key, range, start, used);
        work.entries += u64::from(PAGES);
        work.shootdowns += self.threads(key);
        work.examined += PageSize::Huge.base_pages();
        work.splits += 1;
        work.freed += BasePages(u64::from(PAGES - used.len()));
        Some(BloatDensity::new(PAGES - used.len()))
    }

    /// Moves what is populated elsewhere, so that the huge frame is free whole.
    fn evacuate(&mut self, key: ProcessKey, range: PmdRange, work: &mut Work) -> Outcome {
        let is_huge = |slot: &crate::virtual_memory::slot::Slot| {
            slot.is_reserved || slot.mapping == Mapping::Huge
        };
        let slot = self.processes.get(key).and_then(|p| p.slot(range)).filter(|s| is_huge(s));
        let Some(slot) = slot.filter(|slot| !self.is_shared_huge(slot)) else {
            return Outcome::Stale;
        };
        let kept = if slot.is_reserved { slot.present() } else { slot.data() };
        let mut frames = Box::new([0; PAGES as usize]);
        let mut taken = Vec::new();
        for page in kept.iter() {
            let owner = Owner::Process(key, range.base_page(page));
            let Some(one) = self.take(PageSize::Base, owner) else {
                taken.into_iter().for_each(|frame| self.give(frame, PageSize::Base));
                return Outcome::NoFrame;
            };
            taken.push(one.frame);
            #[expect(clippy::cast_possible_truncation, reason = "below 16 TiB of memory")]
            {
                frames[usize::from(page)] = one.frame.0 as u32;
            }
        }
        self.release_range(key, range);
        self.remap_as_base(key, range, kept, frames);
        work.copied += BasePages(u64::from(kept.len()));
        work.entries += u64::from(kept.len());
        work.shootdowns += self.threads(key);
        Outcome::Done
    }

    fn remap_as_base(
        &mut self,
        key: ProcessKey,
        range: PmdRange,
        kept: PageSet,
        frames: Box<[u32; PAGES as usize]>,
    ) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let slot = process.slot_mut(range);
        let protected = slot.protected().intersection(kept);
        slot.present = kept.len();
        if kept.is_empty() {
            slot.unmap();
            return;
        }
        // Asked before there is a detail: without one, all of them hold data.
        let used = slot.used();
        slot.mapping = Mapping::Base;
        slot.is_protected = false;
        let detail = slot.detail();
        detail.present = kept;
        detail.protected = protected;
        detail.used = used;
        detail.frames = Some(frames);
        process.count(PageSize::Base, u64::from(kept.len()), 0);
    }

    /// Writes a page out and unmaps it.
    fn evict(&mut self, key: ProcessKey, page: Page, work: &mut Work) -> Outcome {
        if self.backing == Backing::None || page.size() == PageSize::Gigantic {
            return Outcome::Stale;
        }
        let range = PmdRange::containing(page.start());
        let Some(slot) = self.processes.get(key).and_then(|p| p.slot(range)) else {
            return Outcome::Stale;
        };
        let gone = match (page.size(), slot.mapping) {
            (PageSize::Huge, Mapping::Huge) => slot.data(),
            (PageSize::Base, Mapping::Base) if !slot.is_reserved => {
                let mut one = PageSet::default();
                let index = page_index(page.start());
                if !slot.present().contains(index) {
                    return Outcome::Stale;
                }
                one.insert(index);
                one
            }
            _ => return Outcome::Stale,
        };
        let written = gone.intersection(slot.data()).without(slot.stored()).len();
        if written > 0 {
            work.writes += Transfers::one(BasePages(u64::from(written)));
        }
        work.freed += BasePages(1);
        self.evicted += 1;
        let frame = slot.frame_of(page_index(page.start()));
        let Some(family) = self.family_sharing(frame) else {
            self.evict_from(key, page, gone, work);
            return Outcome::Done;
        };
        for (mapper, page, gone) in self.mappings_of(family, page, frame, gone, work) {
            self.evict_from(mapper, page, gone, work);
        }
        Outcome::Done
    }

    fn evict_from(&mut self, key: ProcessKey, page: Page, gone: PageSet, work: &mut Work) {
        work.entries += 1;
        if page.size() == PageSize::Huge || self.evicted.is_multiple_of(RECLAIM_BATCH) {
            work.shootdowns += self.threads(key);
        }
        self.drop_pages(key, PmdRange::containing(page.start()), page.size(), gone);
    }

    /// Unmaps a page whose contents are in the backing store now.
    fn drop_pages(&mut self, key: ProcessKey, range: PmdRange, size: PageSize, gone: PageSet) {
        if size == PageSize::Huge {
            self.release_range(key, range);
            let Some(process) = self.processes.get_mut(key) else { return };
            let slot = process.slot_mut(range);
            slot.mapping = Mapping::Empty;
            slot.is_protected = false;
            slot.present = 0;
            slot.detail = None;
            slot.detail().swapped = gone;
            return;
        }
        let Some(process) = self.processes.get_mut(key) else { return };
        let slot = process.slot_mut(range);
        let mut frames = Vec::new();
        for page in gone.iter() {
            frames.push((range.base_page(page), slot.frame_of(page)));
            let detail = slot.detail();
            detail.present.remove(page);
            detail.protected.remove(page);
            detail.stored.remove(page);
            if detail.used.contains(page) {
                // The data is in one place, so that nothing is left of it when it is given back there.
                detail.used.remove(page);
                detail.swapped.insert(page);
            }
            slot.present -= 1;
        }
        if slot.present == 0 {
            slot.unmap();
        }
        process.count(PageSize::Base, 0, frames.len() as u64);
        for (address, frame) in frames {
            self.put(key, address, (frame, PageSize::Base), None);
        }
    }

    /// A program gives memory back: everything between two addresses is unmapped and freed. A huge
    /// page that is only partly in there is split, and the part freed at once; or its frame is reserved again, if the policy
    /// defers its deallocation.
    pub fn discard(&mut self, key: ProcessKey, start: VirtAddr, end: VirtAddr) -> Work {
        let mut work = Work::default();
        let mut at = start;
        while at < end {
            let range = PmdRange::containing(at);
            let until = range.end().min(end);
            self.discard_in(key, range, at, until, &mut work);
            at = until;
        }
        work
    }

    fn discard_in(
        &mut self,
        key: ProcessKey,
        range: PmdRange,
        start: VirtAddr,
        end: VirtAddr,
        work: &mut Work,
    ) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let Some(slot) = process.existing_slot_mut(range) else { return };
        slot.forget_swapped(page_index(start), end.since(start).to_base_pages());
        let is_whole = start == range.start() && end == range.end();
        match slot.mapping {
            Mapping::Gigantic => {
                self.split_gigantic(key, Page::containing(start, PageSize::Gigantic), work);
                self.discard_in(key, range, start, end, work);
            }
            Mapping::Huge if is_whole => self.forget_range(key, range, work),
            Mapping::Huge => {
                if !self.reserve_again(key, range, work) {
                    self.demote(key, range, work);
                }
                self.discard_in(key, range, start, end, work);
            }
            Mapping::Base if is_whole => self.forget_range(key, range, work),
            Mapping::Base => self.discard_pages(key, range, start, end, work),
            Mapping::Empty => {}
        }
    }

    fn forget_range(&mut self, key: ProcessKey, range: PmdRange, work: &mut Work) {
        self.release_range(key, range);
        if let Some(slot) = self.processes.get_mut(key).map(|p| p.slot_mut(range)) {
            *slot = crate::virtual_memory::slot::Slot::default();
        }
        work.entries += 1;
        work.shootdowns += self.threads(key);
    }

    fn discard_pages(
        &mut self,
        key: ProcessKey,
        range: PmdRange,
        start: VirtAddr,
        end: VirtAddr,
        work: &mut Work,
    ) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let slot = process.slot_mut(range);
        let first = page_index(start);
        let count = u16::try_from(end.since(start).to_base_pages().0).unwrap_or(PAGES);
        let is_reserved = slot.is_reserved;
        let mut frames = Vec::new();
        let present = slot.present();
        for page in (first..first + count).filter(|page| present.contains(*page)) {
            frames.push((range.base_page(page), slot.frame_of(page)));
            let detail = slot.detail();
            detail.present.remove(page);
            detail.used.remove(page);
            detail.protected.remove(page);
            detail.stored.remove(page);
        }
        let gone = u16::try_from(frames.len()).unwrap_or(PAGES);
        slot.present -= gone;
        let is_empty = slot.present == 0;
        process.count(PageSize::Base, 0, u64::from(gone));
        work.entries += u64::from(gone);
        work.shootdowns += self.threads(key);
        if !is_reserved {
            for (address, frame) in frames {
                self.put(key, address, (frame, PageSize::Base), None);
            }
        }
        if is_empty {
            self.release_range(key, range);
            if let Some(slot) = self.processes.get_mut(key).map(|p| p.slot_mut(range)) {
                slot.unmap();
            }
        }
    }

    /// Maps the base pages of a huge page in place and reserves its frame again, if the policy defers deallocation (Quicksilver,
    /// Table 1); whether it did. A page that is protected since a fork is left alone.
    fn reserve_again(&mut self, key: ProcessKey, range: PmdRange, work: &mut Work) -> bool {
        let slot = self.processes.get(key).and_then(|process| process.slot(range));
        if slot.is_none_or(|slot| slot.is_protected) || !self.keeps_frames() {
            return false;
        }
        let Some(process) = self.processes.get_mut(key) else { return false };
        let slot = process.slot_mut(range);
        slot.map_by_base_pages(PageSet::ALL);
        slot.detail().frames = None;
        slot.is_reserved = true;
        let frame = slot.frame;
        process.count(PageSize::Huge, 0, 1);
        process.count(PageSize::Base, u64::from(PAGES), 0);
        self.physical.reown(frame, PageSize::Huge, Owner::Reserved(key, range.start()));
        work.entries += u64::from(PAGES);
        work.shootdowns += self.threads(key);
        let now = self.now;
        self.with_policy(|_, policy| policy.freed_in_part(key, range, now));
        true
    }

    /// Whether the frames of huge pages that are freed in part stay taken as a whole.
    pub(super) fn keeps_frames(&self) -> bool {
        self.policy().is_some_and(|policy| policy.life().deallocation.keeps_frames())
    }

    /// Maps a huge page by base pages, all of which stay. Where others share it, it stays whole for
    /// those.
    pub(super) fn demote(&mut self, key: ProcessKey, range: PmdRange, work: &mut Work) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let slot = process.slot_mut(range);
        let start = slot.frame;
        slot.map_by_base_pages(PageSet::ALL);
        process.count(PageSize::Huge, 0, 1);
        process.count(PageSize::Base, u64::from(PAGES), 0);
        match self.family_sharing(start) {
            Some(family) => self.settle_block(family, range, start, None),
            None => self.scatter(key, range, start, PageSet::ALL),
        }
        work.entries += u64::from(PAGES);
        work.shootdowns += self.threads(key);
    }

    /// Maps a gigantic page by huge pages.
    pub(super) fn split_gigantic(&mut self, key: ProcessKey, page: Page, work: &mut Work) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let mut frames = Vec::new();
        for range in page.ranges() {
            let slot = process.slot_mut(range);
            slot.mapping = Mapping::Huge;
            frames.push((range, slot.frame));
        }
        process.count(PageSize::Gigantic, 0, 1);
        process.count(PageSize::Huge, frames.len() as u64, 0);
        for (range, frame) in frames {
            self.physical.reown(frame, PageSize::Huge, owner_of(key, range.into()));
        }
        work.entries += PageSize::Gigantic.base_pages().0 / u64::from(PAGES);
        work.shootdowns += self.threads(key);
    }
}

/// The process whose page tables are locked while this is done (`collapse_huge_page()` in
/// mm/khugepaged.c).
fn locked_by(action: &Action) -> Option<ProcessKey> {
    match action.act {
        Act::Promote { how: How::InPlace | How::Read, .. } => None,
        Act::Promote { process, how: How::Copy(_) | How::Exchange(..), .. } => Some(process),
        Act::Zero(_)
        | Act::Compact(..)
        | Act::Unreserve { .. }
        | Act::Evacuate { .. }
        | Act::Evict { .. } => None,
    }
}

/// The frames of base pages that lie in place in a huge frame.
fn frames_in_place(start: Frame) -> Box<[u32; PAGES as usize]> {
    #[expect(clippy::cast_possible_truncation, reason = "below 16 TiB of memory")]
    Box::new(std::array::from_fn(|page| start.offset(page as u64).0 as u32))
}
