//! Frames that several processes share after forks: who maps them, and what becomes of them when one
//! of these no longer does.
//!
//! Nobody counts references. What a family shares lies at the same address in all of it, so whoever
//! maps a frame is found by looking there, as Linux finds it (`rmap_walk_anon()` in mm/rmap.c). A
//! frame with one process left is that process's own.
//!
//! A huge frame stays whole while any process maps it as a huge page; the others may map parts of it
//! by base pages, in place. When the last one is gone that mapped it whole, each of its frames is
//! left to those that still map it, and the rest is free. (Linux keeps it whole until memory is
//! short, `deferred_split_folio()` in mm/huge_memory.c.)

use super::Machine;
use super::work::Work;
use crate::physical::{Frame, Owner};
use crate::virtual_memory::page_index;
use crate::virtual_memory::slot::{PAGES, PageSet, Slot};
use superpage_units::{Mapping, Page, PageSize, PmdRange, ProcessKey, VirtAddr};

/// Who maps a huge frame.
#[derive(Debug, Default)]
struct Mappers {
    /// As a huge page.
    whole: Vec<ProcessKey>,
    /// By these base pages, in place.
    parts: Vec<(ProcessKey, PageSet)>,
}

impl Machine {
    /// The family that shares a frame, if one does.
    pub(super) fn family_sharing(&self, frame: Frame) -> Option<ProcessKey> {
        match self.physical.owner(frame) {
            Some(Owner::Shared(family, _)) => Some(family),
            _ => None,
        }
    }

    /// Whether a slot maps a huge page that others map as well, or parts of it.
    pub(super) fn is_shared_huge(&self, slot: &Slot) -> bool {
        slot.mapping == Mapping::Huge
            && slot.is_protected
            && self.family_sharing(slot.frame).is_some()
    }

    /// The base pages of a slot that others map as well.
    pub(super) fn shared_pages(&self, slot: &Slot) -> u16 {
        let protected = slot.protected();
        if protected.is_empty() {
            return 0;
        }
        let is_shared = |page: &u16| self.family_sharing(slot.frame_of(*page)).is_some();
        let count = protected.iter().filter(is_shared).count();
        u16::try_from(count).unwrap_or(PAGES)
    }

    /// Who maps the huge frame at `block`, which is shared by `family`, in `range`.
    fn mappers(
        &self,
        family: ProcessKey,
        range: PmdRange,
        block: Frame,
        but: Option<ProcessKey>,
    ) -> Mappers {
        let mut mappers = Mappers::default();
        for process in self.processes.family(family).filter(|p| Some(p.key()) != but) {
            let Some(slot) = process.slot(range) else { continue };
            let pages = slot.in_place(block);
            if slot.mapping == Mapping::Huge && pages == PageSet::ALL {
                mappers.whole.push(process.key());
            } else if !pages.is_empty() {
                mappers.parts.push((process.key(), pages));
            }
        }
        mappers
    }

    /// Who maps the base page at `address` to `frame`.
    fn page_mappers(&self, family: ProcessKey, address: VirtAddr, frame: Frame) -> Vec<ProcessKey> {
        let (range, page) = (PmdRange::containing(address), page_index(address));
        let maps_it = |slot: &Slot| slot.is_present(page) && slot.frame_of(page) == frame;
        let members = self.processes.family(family);
        members.filter(|p| p.slot(range).is_some_and(maps_it)).map(|p| p.key()).collect()
    }

    /// Process `key` no longer maps the page of this size at `address` to `frame`: frees it, or
    /// leaves it to the others. `but` is `key` if its slot still looks as if it did, for all of its
    /// range.
    pub(super) fn put(
        &mut self,
        key: ProcessKey,
        address: VirtAddr,
        (frame, size): (Frame, PageSize),
        but: Option<ProcessKey>,
    ) {
        match self.physical.owner(frame) {
            Some(Owner::Shared(family, _)) if self.physical.is_whole(frame) => {
                self.settle_block(family, PmdRange::containing(address), frame.huge_floor(), but);
            }
            Some(Owner::Shared(family, _)) => self.settle_page(family, address, frame, key),
            // Left to another one with the page before it.
            Some(Owner::Process(other, _)) if other != key => {}
            _ => self.give(frame, size),
        }
    }

    /// Finds the owners of a shared huge frame anew, because somebody no longer maps it as before.
    pub(super) fn settle_block(
        &mut self,
        family: ProcessKey,
        range: PmdRange,
        block: Frame,
        but: Option<ProcessKey>,
    ) {
        let Mappers { whole, parts } = self.mappers(family, range, block, but);
        match whole.as_slice() {
            [] => self.scatter_shared(family, range, block, &parts),
            [one] if parts.is_empty() => {
                let owner = Owner::Process(*one, range.start());
                self.physical.reown(block, PageSize::Huge, owner);
            }
            _ => {}
        }
    }

    /// Leaves each frame of a huge frame to those that map it.
    fn scatter_shared(
        &mut self,
        family: ProcessKey,
        range: PmdRange,
        block: Frame,
        parts: &[(ProcessKey, PageSet)],
    ) {
        for page in 0..PAGES {
            let frame = block.offset(u64::from(page));
            let address = range.base_page(page);
            let mut holders = parts.iter().filter(|(_, pages)| pages.contains(page));
            let owner = match (holders.next(), holders.next()) {
                (None, _) => {
                    self.physical.give(frame, PageSize::Base);
                    continue;
                }
                (Some((one, _)), None) => Owner::Process(*one, address),
                (Some(_), Some(_)) => Owner::Shared(family, address),
            };
            self.physical.reown(frame, PageSize::Base, owner);
        }
    }

    fn settle_page(
        &mut self,
        family: ProcessKey,
        address: VirtAddr,
        frame: Frame,
        gone: ProcessKey,
    ) {
        let mut left = self.page_mappers(family, address, frame);
        left.retain(|key| *key != gone);
        match left.as_slice() {
            [] => self.give(frame, PageSize::Base),
            [one] => self.physical.reown(frame, PageSize::Base, Owner::Process(*one, address)),
            _ => {}
        }
    }

    /// By which pages the members of a family map what is to be evicted. A huge frame of which only
    /// a part is evicted is mapped by base pages everywhere first.
    pub(super) fn mappings_of(
        &mut self,
        family: ProcessKey,
        page: Page,
        frame: Frame,
        gone: PageSet,
        work: &mut Work,
    ) -> Vec<(ProcessKey, Page, PageSet)> {
        let range = PmdRange::containing(page.start());
        let base = Page::containing(page.start(), PageSize::Base);
        if page.size() == PageSize::Huge {
            let mappers = self.mappers(family, range, frame, None);
            let parts = mappers.parts.into_iter().map(|(key, pages)| (key, base, pages));
            return parts.chain(mappers.whole.into_iter().map(|key| (key, page, gone))).collect();
        }
        if self.physical.is_whole(frame) {
            work.entries += self.split_everywhere(family, range, frame.huge_floor());
        }
        let mappers = self.page_mappers(family, page.start(), frame);
        mappers.into_iter().map(|key| (key, base, gone)).collect()
    }

    /// Maps a shared huge frame by base pages everywhere, as reclaim does before it takes a part of
    /// it; how many entries were written.
    fn split_everywhere(&mut self, family: ProcessKey, range: PmdRange, block: Frame) -> u64 {
        let whole = self.mappers(family, range, block, None).whole;
        for key in &whole {
            let Some(process) = self.processes.get_mut(*key) else { continue };
            process.slot_mut(range).map_by_base_pages(PageSet::ALL);
            process.count(PageSize::Huge, 0, 1);
            process.count(PageSize::Base, u64::from(PAGES), 0);
        }
        self.settle_block(family, range, block, None);
        whole.len() as u64 * u64::from(PAGES)
    }

    /// Asserts that every frame belongs to those that map it.
    ///
    /// # Panics
    /// If one does not.
    pub(super) fn check_owners(&self) {
        let mut mapped: std::collections::BTreeMap<Frame, Vec<(ProcessKey, VirtAddr)>> =
            std::collections::BTreeMap::new();
        for process in self.processes.iter() {
            process.check();
            for (address, frame, size) in process.frames() {
                for page in 0..size.base_pages().0 {
                    let part = address.offset(superpage_units::BasePages(page).bytes());
                    mapped.entry(frame.offset(page)).or_default().push((process.key(), part));
                }
            }
        }
        for (frame, by) in &mapped {
            self.check_owner(*frame, by);
        }
        let owned = self.physical.owned_by_processes();
        assert_eq!(mapped.len() as u64, owned.0, "frames were lost");
    }

    fn check_owner(&self, frame: Frame, by: &[(ProcessKey, VirtAddr)]) {
        let owner = self.physical.owner(frame);
        let Some(Owner::Shared(family, address)) = owner else {
            let [(key, address)] = by else { panic!("{frame:?} is mapped by {by:?}, not shared") };
            let is_its = matches!(
                owner,
                Some(Owner::Process(of, at) | Owner::Reserved(of, at) | Owner::Gigantic(of, at))
                    if of == *key && at == *address
            );
            assert!(is_its, "{frame:?} of {key:?} is owned by {owner:?}");
            return;
        };
        let (range, page) = (PmdRange::containing(address), page_index(address));
        for (key, at) in by {
            let process = self.processes.get(*key).expect("it is there");
            assert_eq!((process.family(), *at), (family, address), "{frame:?} of {key:?}");
            let slot = process.slot(range).expect("it is there");
            assert!(slot.protected().contains(page), "{key:?} may write to {frame:?}");
        }
        if self.physical.is_whole(frame) {
            let mappers = self.mappers(family, range, frame.huge_floor(), None);
            assert!(!mappers.whole.is_empty(), "{frame:?} is whole for nobody");
            assert!(mappers.whole.len() + mappers.parts.len() > 1, "{frame:?} is not shared");
        } else {
            assert!(by.len() > 1, "{frame:?} is shared by {by:?}");
        }
    }
}
