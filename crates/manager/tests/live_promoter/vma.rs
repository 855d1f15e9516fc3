//! Memory of the program under test, and what was written to it.

use crate::{Ended, ensure};
use libtest_mimic::Failed;
use rustix::fd::{AsRawFd, OwnedFd};
use std::collections::BTreeMap;
use superpage_kernel::own_vma::OwnVma;
use superpage_units::{BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, HugePages};

const PAGE: usize = 4096;
const _: () = assert!(PAGE as u64 == BASE_PAGE_BYTES);

/// A VMA, and what each base page of it that was touched should be full of.
#[derive(Debug)]
pub(crate) struct Vma {
    memory: OwnVma,
    written: BTreeMap<usize, u8>,
}

impl From<OwnVma> for Vma {
    fn from(memory: OwnVma) -> Self {
        Self { memory, written: BTreeMap::new() }
    }
}

impl Vma {
    /// So many ranges of private memory.
    pub(crate) fn private(ranges: u64) -> Result<Self, Failed> {
        Ok(OwnVma::private(HugePages(ranges))?.into())
    }

    pub(crate) fn start(&self) -> u64 {
        self.memory.start().0
    }

    pub(crate) fn memory(&mut self) -> &mut OwnVma {
        &mut self.memory
    }

    /// The number of the descriptor of its file.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.memory.file().map(AsRawFd::as_raw_fd)
    }

    fn bytes(&mut self, page: usize) -> Result<&mut [u8], Failed> {
        let bytes = self.memory.bytes_mut().get_mut(page * PAGE..(page + 1) * PAGE);
        Ok(bytes.ok_or("no such page")?)
    }

    /// Fills pages with something that is unlike their neighbours, and never zero.
    pub(crate) fn touch(&mut self, first: usize, count: usize) -> Ended {
        for page in first..first + count {
            let before = self.written.get(&page).copied().unwrap_or_default();
            let value = u8::try_from(page % 251)?;
            let value = value.wrapping_add(before).wrapping_mul(2) | 1;
            self.bytes(page)?.fill(value);
            self.written.insert(page, value);
        }
        Ok(())
    }

    /// Fills a page with zeroes.
    pub(crate) fn zero(&mut self, page: usize) -> Ended {
        self.bytes(page)?.fill(0);
        self.written.insert(page, 0);
        Ok(())
    }

    /// Gives pages back.
    pub(crate) fn release(&mut self, first: usize, count: usize) -> Ended {
        self.memory.discard(BasePages(first as u64), BasePages(count as u64))?;
        self.written.retain(|page, _| !(first..first + count).contains(page));
        Ok(())
    }

    /// Fills the page of this number of each range.
    pub(crate) fn sprinkle(&mut self, number: usize) -> Ended {
        let pages = self.memory.bytes_mut().len() / PAGE;
        let mut chosen = (number..pages).step_by(usize::try_from(BASE_PAGES_PER_HUGE_PAGE)?);
        chosen.try_for_each(|page| self.touch(page, 1))
    }

    /// Unmaps it, and maps it anew at the same place.
    pub(crate) fn renew(&mut self) -> Ended {
        self.written.clear();
        Ok(self.memory.renew()?)
    }

    /// What is wrong with a page that is not as it was written, or not empty where it was not.
    pub(crate) fn wrong_at(&mut self, page: usize) -> Result<Option<String>, Failed> {
        let value = self.written.get(&page).copied().unwrap_or_default();
        let found = self.bytes(page)?.iter().find(|byte| **byte != value).copied();
        Ok(found.map(|found| format!("page {page} holds {found}, not {value}")))
    }

    /// What is wrong with the first page that is not as it was written.
    pub(crate) fn wrong(&mut self) -> Result<Option<String>, Failed> {
        let pages: Vec<usize> = self.written.keys().copied().collect();
        for page in pages {
            let wrong = self.wrong_at(page)?;
            if wrong.is_some() {
                return Ok(wrong);
            }
        }
        Ok(None)
    }
}

/// The file behind a descriptor of process `pid`.
pub(crate) fn file_of(pid: usize, descriptor: usize) -> Result<OwnedFd, Failed> {
    ensure!(pid > 0, "no process");
    let path = format!("/proc/{pid}/fd/{descriptor}");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
    Ok(file.into())
}
