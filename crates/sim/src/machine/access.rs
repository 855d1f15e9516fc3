//! What accesses leave behind: access bits, coverage, the share of cycles spent on walks.

use super::Machine;
use super::work::{Transfers, Work};
use crate::physical::Owner;
use crate::virtual_memory::page_index;
use crate::virtual_memory::slot::PAGES;
use superpage_units::{
    BasePages, Bytes, HUGE_PAGE_BYTES, Mapping, PageSize, PmdRange, ProcessKey, Share, VirtAddr,
};

impl Machine {
    /// An access to a mapped page: sets its access bit, and says by which size it is mapped.
    pub fn access(&mut self, key: ProcessKey, address: VirtAddr) -> Option<PageSize> {
        let now = self.now;
        let process = self.processes.get_mut(key)?;
        let slot = process.existing_slot_mut(PmdRange::containing(address))?;
        let size = match slot.mapping {
            Mapping::Gigantic => PageSize::Gigantic,
            Mapping::Huge => PageSize::Huge,
            Mapping::Base => {
                let page = page_index(address);
                let detail = slot.detail.as_mut().filter(|d| d.present.contains(page))?;
                detail.accessed.insert(page);
                PageSize::Base
            }
            Mapping::Empty => return None,
        };
        slot.is_accessed = true;
        slot.accessed_at = now;
        Some(size)
    }

    /// The share of cycles that a process spends on walks now.
    pub(crate) fn note_walk_share(&mut self, key: ProcessKey, share: Share) {
        if let Some(process) = self.processes.get_mut(key) {
            process.walk_share = share;
        }
    }

    /// Estimates how many base pages of each range were accessed, from sampled addresses each of
    /// which stands for `weight` accesses.
    ///
    /// With n accesses at random to a range of 512 base pages, 512 (1 - exp(-n / 512)) of them
    /// are accessed at least once, on average.
    pub(crate) fn note_coverage(&mut self, key: ProcessKey, sampled: &mut [u64], weight: f64) {
        let Some(process) = self.processes.get_mut(key) else { return };
        sampled.sort_unstable();
        let ranges = sampled.chunk_by(|a, b| a / HUGE_PAGE_BYTES == b / HUGE_PAGE_BYTES);
        for addresses in ranges {
            let Some(first) = addresses.first() else { continue };
            let range = PmdRange::containing(VirtAddr(*first));
            let accesses = addresses.len() as f64 * weight;
            let pages = f64::from(PAGES);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 0 and 512"
            )]
            let coverage = (pages * (1.0 - (-accesses / pages).exp())) as u16;
            if let Some(slot) = process.existing_slot_mut(range) {
                slot.coverage = coverage;
            }
        }
    }

    /// A program reads a file, which stays in page cache as far as there is free memory.
    pub fn read_file(&mut self, size: Bytes) -> Work {
        let mut work = Work::default();
        let pages = size.to_base_pages();
        for _ in 0..pages.0 {
            if self.physical.take(PageSize::Base, Owner::PageCache).is_none() {
                break;
            }
        }
        // Read ahead in large pieces: 2 MiB each.
        let pieces = pages.0.div_ceil(u64::from(PAGES));
        work.reads = Transfers { requests: pieces, pages: BasePages(pages.0) };
        work
    }
}
