//! Reclaiming bloat by a de-bloating policy, as the manager does on the real kernel: look, split,
//! verify, go on. A gigantic page is looked at by its ranges, and mapped by huge pages before the first
//! of them is split (Trident, section 7). Huge pages that are shared after a fork are not looked at:
//! splitting them does nothing.

use super::Machine;
use super::work::Work;
use crate::virtual_memory::slot::Slot;
use std::collections::BTreeSet;
use superpage_policy::bloat::{BloatMap, Knowledge};
use superpage_policy::debloat::{BloatMaps, Debloat, Decision, Depth, DoneCause};
use superpage_policy::sampling::{EXCERPT, Sample, SampleSize};
use superpage_units::{
    BASE_PAGE_BYTES, BasePages, Mapping, Page, PageSize, PmdRange, ProcessKey, VirtAddr,
};

/// Bytes of a page that holds data which are read, on average, until some are not zero (HawkEye, as
/// EMD's section 4.4 quotes it).
const UNTIL_DATA: u64 = 10;

/// De-bloating under way: what is known of the bloat, and what is still to be freed.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    maps: BloatMaps,
    need: BasePages,
    freed: BasePages,
}

impl Pass {
    /// What it has freed so far.
    #[must_use]
    pub const fn freed(&self) -> BasePages {
        self.freed
    }
}

impl Machine {
    /// Lets `policy` split huge pages of `processes` until `need` is freed or nothing is left.
    ///
    /// Returns what was freed.
    pub fn debloat(
        &mut self,
        policy: &mut dyn Debloat,
        processes: &[ProcessKey],
        need: BasePages,
        work: &mut Work,
    ) -> BasePages {
        let mut pass = self.begin_pass(processes, need);
        while self.debloat_once(policy, &mut pass, work).is_none() {}
        pass.freed
    }

    /// A pass over the huge pages that `processes` have now, none of which is known. A machine whose
    /// huge pages come from a pool has none that could be split.
    #[must_use]
    pub fn begin_pass(&self, processes: &[ProcessKey], need: BasePages) -> Pass {
        let maps = if self.pools.is_none() { self.bloat_maps(processes) } else { BloatMaps::new() };
        Pass { maps, need, freed: BasePages::ZERO }
    }

    /// Carries out one decision of `policy`; why there is no further one, once it is done.
    pub fn debloat_once(
        &mut self,
        policy: &mut dyn Debloat,
        pass: &mut Pass,
        work: &mut Work,
    ) -> Option<DoneCause> {
        match policy.decide(&pass.maps, pass.need.saturating_sub(pass.freed)) {
            Decision::Look { process, ranges, depth, .. } => {
                self.look(&mut pass.maps, process, &ranges, depth, work);
            }
            Decision::Split { process, ranges, .. } => {
                for range in ranges {
                    pass.freed += self.break_one(process, range, work);
                    if let Some(map) = pass.maps.get_mut(&process) {
                        map.remove(range);
                    }
                }
            }
            Decision::Done(cause) => return Some(cause),
        }
        None
    }

    /// From now on, what is split to reclaim bloat is not promoted again while more than
    /// `may_miss` of its base pages are missing: it would bloat again.
    pub fn hold_broken(&mut self, may_miss: BasePages) {
        self.may_miss = Some(may_miss);
    }

    /// Whether promoting this page would bring bloat back that was taken.
    pub(super) fn is_held(&self, key: ProcessKey, page: Page) -> bool {
        let Some(may_miss) = self.may_miss else { return false };
        let Some(process) = self.processes.get(key) else { return false };
        page.ranges().any(|range| {
            let populated = process.slot(range).map_or(BasePages::ZERO, Slot::populated);
            PageSize::Huge.base_pages().saturating_sub(populated) > may_miss
                && self.split.contains(&(key, range))
        })
    }

    fn break_one(&mut self, process: ProcessKey, range: PmdRange, work: &mut Work) -> BasePages {
        let slot = self.processes.get(process).and_then(|process| process.slot(range));
        if slot.is_some_and(|slot| slot.mapping == Mapping::Gigantic) {
            let page = Page::containing(range.start(), PageSize::Gigantic);
            self.split_gigantic(process, page, work);
        }
        let Some(density) = self.split(process, range, work) else { return BasePages::ZERO };
        if self.may_miss.is_some() {
            self.split.insert((process, range));
        }
        self.counts.split += 1;
        self.counts.freed += density.base_pages();
        density.base_pages()
    }

    fn bloat_maps(&self, processes: &[ProcessKey]) -> BloatMaps {
        let of = |key: &ProcessKey| {
            let mut map = BloatMap::new();
            let process = self.processes.get(*key)?;
            for (range, slot) in process.mapped_slots(VirtAddr::default()) {
                if self.is_splittable(slot) {
                    map.insert(range, Knowledge::Unknown);
                }
            }
            Some((*key, map))
        };
        let known: BTreeSet<ProcessKey> = processes.iter().copied().collect();
        known.iter().filter_map(of).collect()
    }

    /// Whether the slot is mapped by a superpage that can be split to reclaim bloat.
    fn is_splittable(&self, slot: &Slot) -> bool {
        matches!(slot.mapping, Mapping::Huge | Mapping::Gigantic) && !self.is_shared_huge(slot)
    }

    fn look(
        &mut self,
        maps: &mut BloatMaps,
        key: ProcessKey,
        ranges: &[PmdRange],
        depth: Depth,
        work: &mut Work,
    ) {
        let seed = self.random.next_u64();
        let Some(map) = maps.get_mut(&key) else { return };
        for range in ranges {
            let slot = self.processes.get(key).and_then(|process| process.slot(*range));
            match slot.filter(|slot| self.is_splittable(slot)) {
                Some(slot) => map.refine(*range, seen(slot, *range, depth, seed, work)),
                None => {
                    map.remove(*range);
                }
            }
        }
    }
}

fn seen(slot: &Slot, range: PmdRange, depth: Depth, seed: u64, work: &mut Work) -> Knowledge {
    match depth {
        Depth::Exact => {
            work.examined += read_whole(slot);
            Knowledge::Exact(slot.bloat())
        }
        Depth::PreSample(size) => {
            let excerpts = BasePages(u64::from(size.pages()) * EXCERPT.0 / BASE_PAGE_BYTES);
            work.examined += excerpts.max(BasePages(1));
            sample(slot, range, size, seed).map_or(Knowledge::Unknown, Knowledge::PreSampled)
        }
        Depth::Filter(size) => {
            let sample = sample(slot, range, size, seed);
            let zero = BasePages(sample.map_or(0, |sample| u64::from(sample.zero())));
            let excerpts = BasePages(u64::from(size.pages()) * EXCERPT.0 / BASE_PAGE_BYTES);
            work.examined += excerpts.max(BasePages(1)) + zero;
            sample.map_or(Knowledge::Unknown, Knowledge::Sampled)
        }
        Depth::Sample(size) => {
            work.examined += BasePages(u64::from(size.pages()));
            sample(slot, range, size, seed).map_or(Knowledge::Unknown, Knowledge::Sampled)
        }
    }
}

/// What is read of a huge page to find its zero-filled base pages: those whole, of the others the
/// beginning.
fn read_whole(slot: &Slot) -> BasePages {
    let zero = slot.bloat().base_pages();
    let used = PageSize::Huge.base_pages().saturating_sub(zero);
    zero + BasePages((used.0 * UNTIL_DATA).div_ceil(BASE_PAGE_BYTES))
}

fn sample(slot: &Slot, range: PmdRange, size: SampleSize, seed: u64) -> Option<Sample> {
    let used = slot.used();
    let zero = size.positions(range, seed).filter(|page| !used.contains(*page)).count();
    Sample::new(size.pages(), u16::try_from(zero).ok()?)
}

#[cfg(test)]
mod tests {
    use super::super::{Backing, Content, Setup};
    use super::*;
    use superpage_policy::debloat::emd;
    use superpage_policy::debloat::hawkeye::HAWKEYE;
    use superpage_policy::promotion::list;
    use superpage_units::{
        Advice, Bytes, GIGANTIC_PAGE_BYTES, Growth, HUGE_PAGE_BYTES, Vma, VmaKind,
    };

    const START: VirtAddr = VirtAddr(GIGANTIC_PAGE_BYTES);

    /// A machine whose one process has a gigantic page, and has written to two base pages of it, in
    /// different ranges.
    fn gigantic() -> (Machine, ProcessKey) {
        let memory = Bytes::from_gib(2);
        let setup = Setup { memory, pools: None, backing: Backing::None, seed: 1 };
        let policy = (list::find("trident").expect("it is known").build)();
        let mut machine = Machine::new(setup, policy);
        let key = machine.spawn();
        let end = START.offset(Bytes(GIGANTIC_PAGE_BYTES));
        let (kind, growth, advice) = (VmaKind::Anonymous, Growth::Fixed, Advice::None);
        machine.map(key, Vma { start: START, end, kind, growth, advice });
        for at in [0, 100 * HUGE_PAGE_BYTES] {
            machine.touch(key, START.offset(Bytes(at)), Content::Data).expect("there is memory");
        }
        (machine, key)
    }

    #[test]
    fn a_gigantic_page_gives_its_bloat_back_and_keeps_its_data() {
        let (mut machine, key) = gigantic();
        assert_eq!(machine.process(key).and_then(|p| p.footprint().gigantic), Some(1));
        let whole = PageSize::Gigantic.base_pages();
        assert_eq!(machine.bloat(key), whole - BasePages(2));
        let mut work = Work::default();
        let mut policy = (HAWKEYE.build)(emd::Options::WORTHWHILE);
        let freed = machine.debloat(policy.as_mut(), &[key], whole, &mut work);
        assert_eq!(freed, whole - BasePages(2));
        assert_eq!(machine.resident(key), BasePages(2));
        assert!(machine.holds_data(key, START.offset(Bytes(100 * HUGE_PAGE_BYTES))));
        machine.check();
    }

    #[test]
    fn a_gigantic_page_is_split_no_further_than_is_needed() {
        let (mut machine, key) = gigantic();
        let mut work = Work::default();
        let mut policy = (HAWKEYE.build)(emd::Options::WORTHWHILE);
        machine.debloat(policy.as_mut(), &[key], BasePages(1), &mut work);
        let footprint = machine.process(key).expect("it is there").footprint();
        assert_eq!((footprint.base, footprint.huge.0), (BasePages(1), 511)); // tidy: allow(one of 512 is split)
        assert_eq!(footprint.gigantic, Some(0));
        machine.check();
    }
}
