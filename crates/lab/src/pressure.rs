//! Pressure on memory, for whoever wants to see a program under it: memory that is held, and free memory that no huge page can be
//! had from. A child process holds the memory, and the kernel kills it when its parent ends, however that ends.
//!
//! The paper on graphs does so with memhog and with a kernel module (section 4); here both are ordinary processes.

use crate::helper::{Held, Helper, Part};
use crate::worker::{Error, Launcher, Result};
use std::path::Path;
use superpage_kernel::meminfo;
use superpage_kernel::process::Process;
use superpage_manager::free_memory;
use superpage_units::{BASE_PAGE_BYTES, Bytes, HugePages, PageSize, Share};

/// A process that has memory, until this is dropped.
#[derive(Debug)]
pub struct Pressure {
    helper: Helper,
    /// The memory that it has.
    pub size: Bytes,
}

impl Pressure {
    /// Fails if the process is gone: the kernel ends it first where memory is short.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn check(&self) -> Result<()> {
        if Process::open(self.helper.pid()).is_ok() {
            return Ok(());
        }
        let message = "the process that held memory was ended, by the kernel because memory was short, or by somebody";
        Err(Error::Failed { message: message.to_owned() })
    }
}

/// Holds so much memory (whole huge pages), locked. What is left free is as contiguous as it can be: all that lies in pieces is
/// held too, as base pages, because huge pages alone would leave it.
///
/// # Errors
/// As [`Worker::spawn`](crate::worker::Worker::spawn).
pub fn hold(launcher: &Launcher, size: Bytes) -> Result<Pressure> {
    let failed = |error: superpage_kernel::Error| Error::Failed { message: error.to_string() };
    let free = meminfo::read(Path::new("/proc")).map_err(failed)?.free;
    let pieces = unusable_share().map_err(failed)?.of(free);
    let size = size.to_huge_pages();
    // The kernel takes base pages from the smallest pieces. Huge pages are taken in less time.
    let base = pieces.to_huge_pages().min(size);
    let huge = size.saturating_sub(base);
    let helper = Helper::start(launcher, Part::Hog { huge, base })?;
    Ok(Pressure { helper, size: size.bytes() })
}

/// Holds one base page of each of many huge frames, so that no huge page can be had from this share of the memory that is free
/// now. The rest of each frame stays free.
///
/// # Errors
/// As [`hold`].
pub fn fragment(launcher: &Launcher, share: Share) -> Result<Pressure> {
    let failed = |error: superpage_kernel::Error| Error::Failed { message: error.to_string() };
    let free = meminfo::read(Path::new("/proc")).map_err(failed)?.free;
    // Memory that lies in pieces already counts. Pages on the CPUs' own lists are left out.
    let found = unusable_share().map_err(failed)?.of(free);
    let pinned = share.of(free).saturating_sub(found).to_huge_pages();
    let ballast = HugePages::ZERO;
    let helper =
        Helper::start(launcher, Part::Fragmenter { ballast, apart: pinned, held: Held::Pinned })?;
    Ok(Pressure { helper, size: Bytes(pinned.0 * BASE_PAGE_BYTES) })
}

/// The share of free memory that lies in pieces smaller than a huge page.
///
/// # Errors
/// As [`free_memory::read`].
pub fn unusable_share() -> superpage_kernel::Result<Share> {
    Ok(free_memory::read(Path::new("/proc"))?.fmfi(PageSize::Huge))
}
