//! What the kernel takes to fault, split, rebuild and look at pages of our own memory.
//!
//! All times are CPU time of this thread, the fastest of some rounds: other load on the machine
//! can only add to them.

use crate::width::to_usize;
use std::hint::black_box;
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::pagemap::{Mapping, Pagemap};
use superpage_kernel::process::Process;
use superpage_kernel::usage::CpuTime;
use superpage_kernel::{Result, process_madvise};
use superpage_units::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, Bytes, HUGE_PAGE_BYTES, HugePages, PmdRange,
    VirtAddr,
};

/// Memory that is faulted in and taken apart. Chosen: no cache holds it, any machine has it.
pub(super) const SIZE: HugePages = HugePages(128);
/// Rounds of each; the fastest counts.
const ROUNDS: usize = 4;

/// Nanoseconds each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    /// A fault on a base page, zeroing with it.
    pub(super) base_fault: f64,
    /// A fault on a huge page, zeroing with it.
    pub(super) huge_fault: f64,
    /// Splitting and rebuilding, where the kernel let us.
    pub(super) rebuilding: Option<Rebuilding>,
    /// Looking at a mapped base page.
    pub(super) scan_page: Option<f64>,
    /// Copying a base page, in user space.
    pub(super) copy_page: f64,
}

/// Nanoseconds for each huge page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rebuilding {
    /// Splitting one that is all in use.
    pub(super) split_full: f64,
    /// Splitting one of which one base page is in use, freeing the others.
    pub(super) split_freeing: f64,
    /// Rebuilding one from base pages that are all in use.
    pub(super) collapse_full: f64,
    /// Rebuilding one from a single base page in use.
    pub(super) collapse_single: f64,
}

impl Pages {
    /// Measures them. `None` if the kernel gives no huge pages.
    pub(super) fn measure() -> Result<Option<Self>> {
        let process = Process::current()?;
        let Some(huge_fault) = huge_fault(&process)? else { return Ok(None) };
        let base_fault = fastest(|| fault(Wish::BasePages, BASE_PAGE_BYTES))?;
        Ok(Some(Self {
            base_fault,
            huge_fault,
            rebuilding: Rebuilding::measure(&process)?,
            scan_page: scan_page(&process)?,
            copy_page: fastest(copy_page)?,
        }))
    }
}

/// The fastest of some rounds.
fn fastest(mut round: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut best = f64::INFINITY;
    // The first warms up: a hypervisor may have to find memory for us first.
    round()?;
    for _ in 0..ROUNDS {
        best = best.min(round()?);
    }
    Ok(best)
}

/// The nanoseconds of CPU time that `work` takes, divided by `times`.
fn timed<T>(times: u64, work: impl FnOnce() -> Result<T>) -> Result<f64> {
    let start = CpuTime::of_thread();
    black_box(work()?);
    Ok(CpuTime::of_thread().since(start).0 as f64 / times as f64)
}

/// Faults all of [`SIZE`] in, one byte in every `step`: the time of each.
fn fault(wish: Wish, step: u64) -> Result<f64> {
    let mut memory = OwnMemory::map(SIZE, wish)?;
    timed(SIZE.bytes().0 / step, || {
        touch(&mut memory, step);
        Ok(())
    })
}

fn touch(memory: &mut OwnMemory, step: u64) {
    memory.bytes_mut().iter_mut().step_by(to_usize(step)).for_each(|byte| *byte = 1);
}

/// The time of a fault on a huge page; `None` if those are not to be had.
fn huge_fault(process: &Process) -> Result<Option<f64>> {
    let mut memory = OwnMemory::map(SIZE, Wish::HugePages)?;
    touch(&mut memory, HUGE_PAGE_BYTES);
    if !are_huge(process, &memory)? {
        return Ok(None);
    }
    drop(memory);
    fastest(|| fault(Wish::HugePages, HUGE_PAGE_BYTES)).map(Some)
}

/// Whether all of `memory` is mapped by huge pages. Where the kernel cannot say, by the time that
/// faults take it will show.
fn are_huge(process: &Process, memory: &OwnMemory) -> Result<bool> {
    let ranges: Vec<PmdRange> = memory.ranges().collect();
    match Pagemap::open(process).and_then(|pagemap| pagemap.mappings(&ranges)) {
        Ok(found) => Ok(found.iter().all(|mapping| *mapping == Mapping::Huge)),
        Err(superpage_kernel::Error::Unsupported { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Copying a base page of memory that no cache holds, on huge pages.
fn copy_page() -> Result<f64> {
    let mut memory = OwnMemory::map(SIZE, Wish::HugePages)?;
    touch(&mut memory, BASE_PAGE_BYTES);
    let half = to_usize(Bytes(memory.size().0 / 2).0);
    timed(SIZE.0 / 2 * BASE_PAGES_PER_HUGE_PAGE, || {
        let (to, from) = memory.bytes_mut().split_at_mut(half);
        to.copy_from_slice(from);
        Ok(())
    })
}

/// What the kernel takes to look at a base page when it is asked what is mapped.
fn scan_page(process: &Process) -> Result<Option<f64>> {
    let mut memory = OwnMemory::map(SIZE, Wish::BasePages)?;
    touch(&mut memory, BASE_PAGE_BYTES);
    let ranges: Vec<PmdRange> = memory.ranges().collect();
    let Ok(pagemap) = Pagemap::open(process) else { return Ok(None) };
    if pagemap.mappings(&ranges).is_err() {
        return Ok(None);
    }
    let pages = SIZE.base_pages().0;
    fastest(|| timed(pages, || pagemap.mappings(&ranges))).map(Some)
}

impl Rebuilding {
    /// Measures it; `None` where the kernel refuses or does something else each time. Now and then
    /// it refuses one range, because somebody else looks at it; such a round does not count.
    fn measure(process: &Process) -> Result<Option<Self>> {
        let mut best: Option<Self> = None;
        for _ in 0..=ROUNDS {
            let Some(round) = Self::round(process)? else { continue };
            best = Some(best.map_or(round, |best| best.fastest_of(round)));
        }
        Ok(best)
    }

    fn fastest_of(self, other: Self) -> Self {
        Self {
            split_full: self.split_full.min(other.split_full),
            split_freeing: self.split_freeing.min(other.split_freeing),
            collapse_full: self.collapse_full.min(other.collapse_full),
            collapse_single: self.collapse_single.min(other.collapse_single),
        }
    }

    /// Huge pages in use: split, rebuilt, emptied but for one base page, split, rebuilt.
    fn round(process: &Process) -> Result<Option<Self>> {
        let mut memory = OwnMemory::map(SIZE, Wish::HugePages)?;
        touch(&mut memory, BASE_PAGE_BYTES);
        let ranges: Vec<PmdRange> = memory.ranges().collect();
        let Some(split_full) = split(process, &ranges)? else { return Ok(None) };
        let Some(collapse_full) = collapse(process, &ranges)? else { return Ok(None) };
        for huge_page in memory.bytes_mut().chunks_exact_mut(to_usize(HUGE_PAGE_BYTES)) {
            huge_page[to_usize(BASE_PAGE_BYTES)..].fill(0);
        }
        let Some(split_freeing) = split(process, &ranges)? else { return Ok(None) };
        if !has_freed(process, &ranges)? {
            return Ok(None);
        }
        let Some(collapse_single) = collapse(process, &ranges)? else { return Ok(None) };
        Ok(Some(Self { split_full, split_freeing, collapse_full, collapse_single }))
    }
}

/// Splits all of them: the time of each.
fn split(process: &Process, ranges: &[PmdRange]) -> Result<Option<f64>> {
    let spots: Vec<VirtAddr> = ranges.iter().map(|range| range.start()).collect();
    let mut refusals = 0;
    let time = timed(SIZE.0, || {
        process_madvise::split(process, &spots).map(|refused| refusals = refused.len())
    });
    allowed(time, refusals)
}

/// Rebuilds all of them: the time of each.
fn collapse(process: &Process, ranges: &[PmdRange]) -> Result<Option<f64>> {
    let mut refusals = 0;
    let time = timed(SIZE.0, || {
        process_madvise::collapse(process, ranges).map(|refused| refusals = refused.len())
    });
    allowed(time, refusals)
}

/// The time, if the kernel allowed all of it.
fn allowed(time: Result<f64>, refusals: usize) -> Result<Option<f64>> {
    use superpage_kernel::Error::{Denied, Unsupported};
    match time {
        Ok(time) => Ok((refusals == 0).then_some(time)),
        Err(Denied { .. } | Unsupported { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the split freed what was zero-filled (Linux 6.12 and later).
fn has_freed(process: &Process, ranges: &[PmdRange]) -> Result<bool> {
    let found = Pagemap::open(process)?.mappings(ranges)?;
    let is_empty = |mapping: &Mapping| match mapping {
        Mapping::Split { zero_pages } => zero_pages.0 + 1 == BASE_PAGES_PER_HUGE_PAGE,
        Mapping::Huge => false,
    };
    Ok(found.iter().all(is_empty))
}
