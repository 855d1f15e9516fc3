//! A pool of the kernel's, of gigantic or of huge pages, for whoever may change it: the daemon, or a `superpage run`.
//! The record of the setting, which one process at a time holds, says who that is.

use std::path::Path;
use superpage_kernel::Result;
use superpage_kernel::hugetlb::{self, Pool};
use superpage_kernel::settings::{Change, Mode, Repairs, Settings};
use superpage_units::PageSize;
use tracing::info;

const SYS: &str = "/sys";

/// The right to change the pool. When it is dropped, the pool is put back.
#[derive(Debug)]
pub struct HugetlbPool {
    settings: Settings,
    /// The size of its pages.
    size: PageSize,
    /// The pool's size without us: the pages that are never given back.
    least: u64,
    /// The size that we left it at.
    left: u64,
}

impl HugetlbPool {
    /// Takes the right to the pool of pages of this size, with the record in the directory `state`; and what was put back of an earlier holder that
    /// was killed.
    ///
    /// # Errors
    /// As [`Settings::open`] and [`hugetlb::read`]; [`Error::Busy`](superpage_kernel::Error::Busy) while another process has it.
    pub fn open(state: &Path, size: PageSize) -> Result<(Self, Repairs)> {
        let (settings, repairs) = Settings::open(state, Mode::Apply)?;
        let pool = hugetlb::read(Path::new(SYS), size)?;
        Ok((Self { settings, size, least: pool.size, left: pool.size }, repairs))
    }

    /// The pool now. Where somebody else has set it meanwhile, their pages are not ours to give back.
    ///
    /// # Errors
    /// As [`hugetlb::read`] and [`Settings::restore`].
    pub fn look(&mut self) -> Result<Pool> {
        let pool = hugetlb::read(Path::new(SYS), self.size)?;
        if pool.size != self.left {
            info!("somebody set the pool of {} pages to {}", self.size, pool.size);
            // The record holds values of ours only, so that theirs stays.
            self.settings.restore()?;
            (self.least, self.left) = (pool.size, pool.size);
        }
        Ok(pool)
    }

    /// The pages that are never given back.
    #[must_use]
    pub fn least(&self) -> u64 {
        self.least
    }

    /// The pages that were added and not given back.
    #[must_use]
    pub fn added(&self) -> u64 {
        self.left.saturating_sub(self.least)
    }

    /// Sets the number of pages in the pool. The kernel may find fewer.
    ///
    /// # Errors
    /// As [`Settings::change`]; [`Error::NotTaken`](superpage_kernel::Error::NotTaken) where the kernel finds none.
    pub fn set(&mut self, pages: u64) -> Result<Change> {
        let setting = hugetlb::setting(Path::new(SYS), self.size);
        let done = self.settings.change(&setting, &pages.to_string());
        if let Ok(change) = &done {
            self.left = change.to.parse().unwrap_or(pages);
        }
        done
    }

    /// Puts the pool back; pages in use go when they are freed.
    ///
    /// # Errors
    /// As [`Settings::restore`].
    pub fn restore(mut self) -> Result<Repairs> {
        self.settings.restore()
    }
}
