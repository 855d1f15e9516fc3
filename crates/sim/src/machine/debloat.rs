//! Taking bloat back by a de-bloating policy, as the manager does on the real kernel: look, break,
//! verify, go on. Huge pages that are shared after a fork are not looked at: breaking them does
//! nothing.

use super::Machine;
use super::work::Work;
use crate::virtual_memory::slot::{PAGES, Slot};
use std::collections::BTreeSet;
use superpage_policy::bloat::{BloatMap, Knowledge};
use superpage_policy::debloat::{BloatMaps, Debloat, Decision, Depth, ProcessKey};
use superpage_policy::region::Region;
use superpage_policy::sampling::{EXCERPT, Sample, SampleSize};
use superpage_policy::system::Mapping;
use superpage_policy::units::{BASE_PAGE_BYTES, BasePages, VirtAddr};

impl Machine {
    /// Lets `policy` break huge pages of `processes` until `need` is freed or nothing is left.
    ///
    /// Returns what was freed.
    pub fn debloat(
        &mut self,
        policy: &mut dyn Debloat,
        processes: &[ProcessKey],
        need: BasePages,
        work: &mut Work,
    ) -> BasePages {
        let mut maps = self.bloat_maps(processes);
        let mut freed = BasePages::ZERO;
        loop {
            match policy.decide(&maps, need.saturating_sub(freed)) {
                Decision::Look { process, regions, depth, .. } => {
                    self.look(&mut maps, process, &regions, depth, work);
                }
                Decision::Break { process, regions, .. } => {
                    for region in regions {
                        freed += self.break_one(process, region, work);
                        if let Some(map) = maps.get_mut(&process) {
                            map.remove(region);
                        }
                    }
                }
                Decision::Done(_) => return freed,
            }
        }
    }

    fn break_one(&mut self, process: ProcessKey, region: Region, work: &mut Work) -> BasePages {
        let Some(density) = self.split(process, region, work) else { return BasePages::ZERO };
        self.counts.broken += 1;
        self.counts.freed += density.base_pages();
        density.base_pages()
    }

    fn bloat_maps(&self, processes: &[ProcessKey]) -> BloatMaps {
        let of = |key: &ProcessKey| {
            let mut map = BloatMap::new();
            let process = self.processes.get(*key)?;
            for (region, slot) in process.mapped_slots(VirtAddr::default()) {
                if slot.mapping == Mapping::Huge && !self.is_shared_huge(slot) {
                    map.insert(region, Knowledge::Unknown);
                }
            }
            Some((*key, map))
        };
        let known: BTreeSet<ProcessKey> = processes.iter().copied().collect();
        known.iter().filter_map(of).collect()
    }

    fn look(
        &mut self,
        maps: &mut BloatMaps,
        key: ProcessKey,
        regions: &[Region],
        depth: Depth,
        work: &mut Work,
    ) {
        let seed = self.random.next_u64();
        let Some(map) = maps.get_mut(&key) else { return };
        for region in regions {
            let slot = self.processes.get(key).and_then(|process| process.slot(*region));
            let is_broken =
                |slot: &&Slot| slot.mapping == Mapping::Huge && !self.is_shared_huge(slot);
            match slot.filter(is_broken) {
                Some(slot) => map.refine(*region, seen(slot, *region, depth, seed, work)),
                None => {
                    map.remove(*region);
                }
            }
        }
    }
}

fn seen(slot: &Slot, region: Region, depth: Depth, seed: u64, work: &mut Work) -> Knowledge {
    match depth {
        Depth::Exact => {
            work.examined += BasePages(u64::from(PAGES));
            Knowledge::Exact(slot.bloat())
        }
        Depth::Glance(size) => {
            let excerpts = BasePages(u64::from(size.pages()) * EXCERPT.0 / BASE_PAGE_BYTES);
            work.examined += excerpts.max(BasePages(1));
            sample(slot, region, size, seed).map_or(Knowledge::Unknown, Knowledge::Glanced)
        }
        Depth::Sample(size) => {
            work.examined += BasePages(u64::from(size.pages()));
            sample(slot, region, size, seed).map_or(Knowledge::Unknown, Knowledge::Sampled)
        }
    }
}

fn sample(slot: &Slot, region: Region, size: SampleSize, seed: u64) -> Option<Sample> {
    let used = slot.used();
    let zero = size.positions(region, seed).filter(|page| !used.contains(*page)).count();
    Sample::new(size.pages(), u16::try_from(zero).ok()?)
}
