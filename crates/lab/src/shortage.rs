//! Memory made short on purpose: free memory is taken into the kernel's pool of huge pages (hugetlb), where no program
//! that does not ask for it can have it. That touches nothing, takes a moment, and is undone at once.
//! [hugetlbpage](https://docs.kernel.org/admin-guide/mm/hugetlbpage.html).

use std::path::{Path, PathBuf};
use superpage_kernel::settings::Settings;
use superpage_kernel::{Error, Result, hugetlb, meminfo, text};
use superpage_units::{Bytes, HUGE_PAGE_BYTES, PageSize};

/// The part of memory that is left available. Chosen: less than the eighth at which `superpage run` and its library give
/// memory back, and enough to copy a gigantic page to on a machine with 16 GiB.
const LEFT: f64 = 0.1;
/// The memory that is available may differ from that part by so much.
const SLACK: Bytes = Bytes::from_mib(64);

/// A shortage of memory. It ends when this is dropped; settings that are opened after a crash end it as well.
#[derive(Debug)]
pub struct Shortage<'a> {
    settings: &'a mut Settings,
    /// The file that sets the size of the pool.
    pool: PathBuf,
    /// The size of the pool without us.
    before: u64,
    /// The pages that were taken.
    taken: u64,
}

impl<'a> Shortage<'a> {
    /// Makes memory short.
    ///
    /// # Errors
    /// As [`Settings::change`] and [`meminfo::read`].
    pub fn make(settings: &'a mut Settings) -> Result<Self> {
        let pool = hugetlb::setting(Path::new("/sys"), PageSize::Huge);
        let before = text::read_decimal(&pool)?;
        let mut shortage = Self { settings, pool, before, taken: 0 };
        shortage.hold()?;
        Ok(shortage)
    }

    /// Takes what has become available since, and gives back what others have come to need.
    ///
    /// # Errors
    /// As [`Shortage::make`].
    pub fn hold(&mut self) -> Result<()> {
        let memory = meminfo::read(Path::new("/proc"))?;
        let left = memory.total.scaled(LEFT);
        if memory.available.0.abs_diff(left.0) < SLACK.0 {
            return Ok(());
        }
        let all = memory.available + Bytes(self.taken * HUGE_PAGE_BYTES);
        self.set(all.saturating_sub(left).to_huge_pages().0)
    }

    fn set(&mut self, taken: u64) -> Result<()> {
        let wanted = self.before + taken;
        match self.settings.change(&self.pool, &wanted.to_string()) {
            // The kernel may find fewer than it was told, or none: what is free may be in pieces.
            Ok(_) | Err(Error::NotTaken { .. }) => {
                let size = text::read_decimal(&self.pool)?;
                self.taken = size.saturating_sub(self.before);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Shortage<'_> {
    fn drop(&mut self) {
        // The settings put the pool back where this fails.
        let _ = self.set(0);
    }
}
