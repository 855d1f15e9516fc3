//! The kernel's pool of gigantic pages, for whoever may change it: the daemon, or a `superpage run`. The record of
//! the setting, which one process at a time holds, says who that is.

use std::path::Path;
use superpage_kernel::Result;
use superpage_kernel::hugetlb::{self, Pool};
use superpage_kernel::settings::{Change, Mode, Repairs, Settings};
use tracing::info;

const SYS: &str = "/sys";

/// The right to change the pool. When it is dropped, the pool is put back.
#[derive(Debug)]
pub struct GiganticPool {
    settings: Settings,
    /// The pool's size without us: the pages that are never given back.
    least: u64,
    /// The size that we left it at.
    left: u64,
}

impl GiganticPool {
    /// Takes the right, with the record in the directory `state`; and what was put back of an earlier holder that
    /// was killed.
    ///
    /// # Errors
    /// As [`Settings::open`] and [`hugetlb::read`]; [`Error::Busy`](superpage_kernel::Error::Busy) while another process has it.
    pub fn open(state: &Path) -> Result<(Self, Repairs)> {
        let (settings, repairs) = Settings::open(state, Mode::Apply)?;
        let pool = hugetlb::read(Path::new(SYS))?;
        Ok((Self { settings, least: pool.size, left: pool.size }, repairs))
    }

    /// The pool now. Where somebody else has set it meanwhile, their pages are not ours to give back.
    ///
    /// # Errors
    /// As [`hugetlb::read`] and [`Settings::restore`].
    pub fn look(&mut self) -> Result<Pool> {
        let pool = hugetlb::read(Path::new(SYS))?;
        if pool.size != self.left {
            info!("somebody set the pool of gigantic pages to {}", pool.size);
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

    /// Sets the pool's size.
    ///
    /// # Errors
    /// As [`Settings::change`]; [`Error::NotTaken`](superpage_kernel::Error::NotTaken) where the kernel finds fewer pages.
    pub fn set(&mut self, size: u64) -> Result<Change> {
        let done = self.settings.change(&hugetlb::setting(Path::new(SYS)), &size.to_string());
        if let Ok(change) = &done {
            self.left = change.to.parse().unwrap_or(size);
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
