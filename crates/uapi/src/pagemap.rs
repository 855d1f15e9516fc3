//! The pages that are mapped between two addresses: the `PAGEMAP_SCAN` ioctl on `/proc/PID/pagemap`.
//! [PAGEMAP_SCAN](https://docs.kernel.org/admin-guide/mm/pagemap.html), since Linux 6.7.

#![expect(unsafe_code, reason = "one ioctl that the kernel crates do not wrap")]

use crate::Result;
use bitflags::bitflags;
use core::ffi::c_void;
use linux_raw_sys::general::{
    PAGE_IS_FILE, PAGE_IS_HUGE, PAGE_IS_PFNZERO, PAGE_IS_PRESENT, PAGE_IS_SWAPPED, page_region,
    pm_scan_arg,
};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use superpage_units::VirtAddr;

const _: () = assert!(size_of::<pm_scan_arg>() == 96 && size_of::<page_region>() == 24);

bitflags! {
    /// Categories of a page. Bits that this program does not know are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Categories: u64 {
        /// Mapped by a huge page, at the level of the page table where 2 MiB pages are.
        const HUGE = PAGE_IS_HUGE as u64;
        /// Mapped to the shared zero page (of either size).
        const ZERO = PAGE_IS_PFNZERO as u64;
        /// Of a file, shared memory or a memfd.
        const FILE = PAGE_IS_FILE as u64;
        /// In memory.
        const PRESENT = PAGE_IS_PRESENT as u64;
        /// Swapped out, or just on its way somewhere else.
        const SWAPPED = PAGE_IS_SWAPPED as u64;
    }
}

/// Which pages a scan returns, and what it says about them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// A page must have all of these.
    pub all: Categories,
    /// A page must have none of these.
    pub none: Categories,
    /// A page must have at least one of these, if there are any.
    pub any: Categories,
    /// The categories to report of it.
    pub report: Categories,
}

/// Neighbouring pages of the same categories, as the kernel writes them (`struct page_region`).
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Region(page_region);

impl Region {
    /// No pages.
    pub const EMPTY: Self = Self(page_region { start: 0, end: 0, categories: 0 });

    /// The address of the first.
    #[must_use]
    pub const fn start(&self) -> VirtAddr {
        VirtAddr(self.0.start)
    }

    /// The address behind the last.
    #[must_use]
    pub const fn end(&self) -> VirtAddr {
        VirtAddr(self.0.end)
    }

    /// Those of their categories that were asked for.
    #[must_use]
    pub const fn categories(&self) -> Categories {
        Categories::from_bits_retain(self.0.categories)
    }
}

/// A walk through a part of the memory of a process, in address order.
#[derive(Debug)]
pub struct Walk<'a> {
    pagemap: BorrowedFd<'a>,
    filter: Filter,
    regions: &'a mut [Region],
    at: VirtAddr,
}

impl<'a> Walk<'a> {
    /// A walk that begins at `at` and tells as many regions in a step as there is room for.
    pub fn new(
        pagemap: &'a impl AsFd,
        at: VirtAddr,
        filter: Filter,
        regions: &'a mut [Region],
    ) -> Self {
        Self { pagemap: pagemap.as_fd(), filter, regions, at }
    }

    /// The address up to which all was told.
    #[must_use]
    pub const fn at(&self) -> VirtAddr {
        self.at
    }

    /// The next regions before `until`: all of them, or as many as there is room for.
    ///
    /// `walk_end` alone does not say where to go on: the kernel collects ranges in a buffer of its own, notes `walk_end`
    /// when that is full, and leaves it there when it then comes to the end without filling ours (seen on 6.18). Fewer
    /// ranges than there is room for mean that all was walked.
    ///
    /// # Errors
    /// ENOTTY or EINVAL before Linux 6.7, and what the kernel says.
    pub fn step(&mut self, until: VirtAddr) -> Result<&[Region]> {
        let mut call = Call::new(self.at, until, self.filter, self.regions);
        let count = call.make(self.pagemap)?.min(self.regions.len());
        let found = &self.regions[..count];
        self.at = match found.last() {
            Some(last) if count == self.regions.len() => VirtAddr(call.0.walk_end).max(last.end()),
            _ => until,
        };
        Ok(found)
    }
}

/// The first page between two addresses that passes `filter`. The kernel looks no further.
///
/// # Errors
/// As of [`Walk::step`].
pub fn first(
    pagemap: impl AsFd,
    start: VirtAddr,
    end: VirtAddr,
    filter: Filter,
) -> Result<Option<Region>> {
    let mut found = [Region::EMPTY];
    let mut call = Call::new(start, end, filter, &mut found);
    call.0.max_pages = 1;
    let count = call.make(pagemap.as_fd())?;
    Ok(found.first().filter(|_| count > 0).copied())
}

/// One call of the ioctl, with its argument.
struct Call(pm_scan_arg);

impl Call {
    fn new(start: VirtAddr, end: VirtAddr, filter: Filter, regions: &mut [Region]) -> Self {
        Self(pm_scan_arg {
            size: size_of::<pm_scan_arg>() as u64,
            flags: 0,
            start: start.0,
            end: end.0,
            walk_end: 0,
            vec: regions.as_mut_ptr().expose_provenance() as u64,
            vec_len: regions.len() as u64,
            max_pages: 0,
            category_inverted: filter.none.bits(),
            category_mask: (filter.all | filter.none).bits(),
            category_anyof_mask: filter.any.bits(),
            return_mask: filter.report.bits(),
        })
    }

    /// The number of regions that were written. Nothing else may touch them meanwhile.
    fn make(&mut self, pagemap: BorrowedFd<'_>) -> Result<usize> {
        // SAFETY: the argument points to the regions, of which the kernel writes no more than the number given with them.
        unsafe { ioctl(pagemap, self) }
    }
}

// SAFETY: the opcode is PAGEMAP_SCAN's, whose argument is a `pm_scan_arg`; its result is the
// number of ranges written.
unsafe impl Ioctl for &mut Call {
    type Output = usize;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<pm_scan_arg>(b'f', 16)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> Result<usize> {
        Ok(usize::try_from(out).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_categories_are_kept() {
        let unknown = Categories::from_bits_retain(1 << 40);
        let odd = unknown | Categories::HUGE;
        assert!(odd.contains(Categories::HUGE) && odd.contains(unknown));
        assert!(!odd.contains(Categories::ZERO));
    }
}
