//! A busy program that fills its memory base page by base page, and sees for itself, by
//! PAGEMAP_SCAN, when each range has become a huge page.
//!
//! A second thread only computes, so that where there are two cores both are busy. The pace of
//! touching is that of a program that does something with each page.

use super::{Answer, Order, Play, refused};
use crate::width::to_usize;
use serde::{Deserialize, Serialize};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::pagemap::{Mapping, Pagemap};
use superpage_kernel::process::Process;
use superpage_units::{
    BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, BasePages, HugePages, Nanos, PmdRange,
};

/// From one touch to the next: a range takes 2 ms. Chosen.
const PACE: Duration = Duration::from_micros(4);
/// From one look at the page table to the next: so that looking, which takes some microseconds and
/// a lock, stays a small part. Chosen.
const LOOK: Duration = Duration::from_micros(100);

/// From when on a range's huge page is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Threshold {
    /// The touch of so many of its base pages.
    Touches(u64),
    /// The touch of one base page where huge pages were asked for (MADV_HUGEPAGE), which is enough for
    /// khugepaged.
    Advice,
}

/// The memory, untouched yet.
pub(super) struct Toucher {
    memory: OwnMemory,
    threshold: Threshold,
    patience: Nanos,
}

/// Ranges that are past the threshold and not huge yet, and how long the others took.
struct Watch {
    pagemap: Pagemap,
    waiting: Vec<(usize, PmdRange, Instant)>,
    took: Vec<Option<u64>>,
    looked: Instant,
}

impl Toucher {
    pub(super) fn new(
        size: HugePages,
        threshold: Threshold,
        patience: Nanos,
    ) -> Result<Self, String> {
        let memory = OwnMemory::map(size, Wish::Nothing).map_err(|error| error.to_string())?;
        Ok(Self { memory, threshold, patience })
    }

    fn touch_all(&mut self) -> superpage_kernel::Result<Vec<Option<u64>>> {
        let ranges: Vec<PmdRange> = self.memory.ranges().collect();
        let mut watch = Watch::new(ranges.len())?;
        let mut due = Instant::now();
        for (number, range) in ranges.into_iter().enumerate() {
            for page in 0..BASE_PAGES_PER_HUGE_PAGE {
                while Instant::now() < due {
                    spin_loop();
                }
                due += PACE;
                let first = number as u64 * BASE_PAGES_PER_HUGE_PAGE;
                self.memory.bytes_mut()[to_usize((first + page) * BASE_PAGE_BYTES)] = 1;
                let is_past = match self.threshold {
                    Threshold::Touches(count) => page + 1 == count,
                    Threshold::Advice => page == 0,
                };
                if is_past {
                    if self.threshold == Threshold::Advice {
                        let pages = BasePages(BASE_PAGES_PER_HUGE_PAGE);
                        self.memory.wish(BasePages(first), pages, Wish::HugePages)?;
                    }
                    watch.waiting.push((number, range, Instant::now()));
                }
                watch.look()?;
            }
            // Where the kernel kept it from its pace it does not make up for it.
            due = due.max(Instant::now());
        }
        let end = Instant::now() + Duration::from_nanos(self.patience.0);
        while !watch.waiting.is_empty() && Instant::now() < end {
            spin_loop();
            watch.look()?;
        }
        Ok(watch.took)
    }
}

impl Watch {
    fn new(ranges: usize) -> superpage_kernel::Result<Self> {
        let pagemap = Pagemap::open(&Process::current()?)?;
        Ok(Self { pagemap, waiting: Vec::new(), took: vec![None; ranges], looked: Instant::now() })
    }

    /// Looks, if it is time to, which ranges have become huge pages.
    fn look(&mut self) -> superpage_kernel::Result<()> {
        if self.waiting.is_empty() || self.looked.elapsed() < LOOK {
            return Ok(());
        }
        let ranges: Vec<PmdRange> = self.waiting.iter().map(|(_, range, _)| *range).collect();
        let mappings = self.pagemap.mappings(&ranges)?;
        self.looked = Instant::now();
        let mut mappings = mappings.into_iter();
        let (looked, took) = (self.looked, &mut self.took);
        self.waiting.retain(|(number, _, since)| {
            let is_huge = mappings.next() == Some(Mapping::Huge);
            if let (true, Some(took)) = (is_huge, took.get_mut(*number)) {
                let nanos = looked.saturating_duration_since(*since).as_nanos();
                *took = Some(u64::try_from(nanos).unwrap_or(u64::MAX));
            }
            !is_huge
        });
        Ok(())
    }
}

impl Play for Toucher {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        if order != Order::Go {
            return refused(order);
        }
        let is_over = AtomicBool::new(false);
        let took = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut sum = 1_u64;
                while !is_over.load(Ordering::Relaxed) {
                    sum = black_box(sum.wrapping_mul(sum | 1));
                }
            });
            let took = self.touch_all();
            is_over.store(true, Ordering::Relaxed);
            took
        });
        took.map(|nanos| Answer::Mapped { nanos }).map_err(|error| error.to_string())
    }
}
