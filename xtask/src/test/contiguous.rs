//! Contiguous memory for the tests that take 1 GiB pages: compilers leave pages that do not move in nearly every GiB, so
//! the gate takes some GiB from the kernel before they run, and gives them back when all tests are built.

use anyhow::Result;
use std::path::Path;
use superpage_kernel::settings::{Mode, Settings};
use superpage_kernel::{hugetlb, meminfo};
use superpage_units::{GIGANTIC_PAGE_BYTES, PageSize};

/// The most pages that a test takes at a time is two; two more are for tests that run while one is not free yet.
const PAGES: u64 = 4;

/// 1 GiB pages in the kernel's pool. They leave it when this is dropped, or with the next gate if this one is killed.
pub(crate) struct Contiguous(
    #[expect(dead_code, reason = "dropping it puts the pool back")] Settings,
);

impl Contiguous {
    /// Takes up to [`PAGES`] pages, and at most half of the memory that is available. The record of it is beside what is
    /// built.
    pub(crate) fn take() -> Result<Self> {
        let record = std::path::absolute(super::target().join("contiguous"))?;
        let (mut settings, _) = Settings::open(&record, Mode::Apply)?;
        let available = meminfo::obtainable(Path::new("/proc"))?.0;
        let pages = PAGES.min(available / 2 / GIGANTIC_PAGE_BYTES);
        let wanted = hugetlb::read(Path::new("/sys"), PageSize::Gigantic)?.size + pages;
        let setting = hugetlb::setting(Path::new("/sys"), PageSize::Gigantic);
        // It is no error where the kernel finds fewer.
        settings.change(&setting, &wanted.to_string())?;
        Ok(Self(settings))
    }
}
