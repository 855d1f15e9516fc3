//! Looking into huge pages and splitting them: carries out what a de-bloating policy decides about a
//! process.
//!
//! Only hints are ever given to the process (`process_madvise`), and each is verified from outside
//! afterwards.

use crate::process::ManagedProcess;
use std::collections::HashMap;
use superpage_kernel::Result;
use superpage_kernel::pagemap::Mapping;
use superpage_kernel::process_madvise;
use superpage_kernel::sample::{Content, Sampler};
use superpage_policy::bloat::{BloatDensity, Knowledge};
use superpage_policy::debloat::Depth;
use superpage_policy::sampling::{self, EXCERPT, Sample, SampleSize};
use superpage_units::{BASE_PAGE_BYTES, BasePages, Bytes, PmdRange, ProcessKey};

/// Why a huge page stayed whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftAlone {
    /// Another process maps it too, as after a fork.
    Shared,
    /// It is this process's alone, yet the split did not happen: pinned for I/O, or in use by the
    /// kernel just then.
    Busy,
    /// The kernel said no, with this error number: locked memory, or not mapped any more.
    Refused(i32),
}

/// The outcome for a range that was to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// The range is mapped by base pages now, so many of which were freed.
    Freed(BasePages),
    /// The range is still one huge page.
    LeftAlone(LeftAlone),
}

/// The finding of a look at a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// How much of it is zero-filled, as far as was looked.
    Known(Knowledge),
    /// Another process maps it too, and it was not read: reading through the kernel would give the
    /// process a copy of each page read, and split its huge page for that.
    Shared,
    /// The range is not mapped any more, or cannot be read.
    Vanished,
}

/// A whole base page.
const PAGE: Bytes = Bytes(BASE_PAGE_BYTES);

/// A base page of a range, by its index.
type PageOf = (PmdRange, u16);

/// Looks into huge pages and splits them, of any process.
#[derive(Debug, Default)]
pub struct Splitter {
    sampler: Sampler,
    /// A base page seen zero-filled in each range, to give the hint on: nobody is using that page.
    zero_pages: HashMap<(ProcessKey, PmdRange), u16>,
}

impl Splitter {
    /// A splitter that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How much was read of the memory of processes.
    #[must_use]
    pub fn bytes_read(&self) -> Bytes {
        self.sampler.bytes_read()
    }

    /// Looks at `ranges`, but for what is shared with another process.
    ///
    /// # Errors
    /// [`superpage_kernel::Error::Gone`], [`superpage_kernel::Error::Denied`].
    pub fn look(
        &mut self,
        process: &ManagedProcess,
        ranges: &[PmdRange],
        depth: Depth,
        seed: u64,
    ) -> Result<Vec<Look>> {
        let exclusive = ranges.iter().map(|range| process.pagemap.is_exclusive(range.start()));
        let exclusive: Vec<Option<bool>> = exclusive.collect::<Result<_>>()?;
        let ours = ranges.iter().zip(&exclusive).filter(|(_, ours)| **ours == Some(true));
        let ours: Vec<PmdRange> = ours.map(|(range, _)| *range).collect();
        let mut read = self.read(process, &ours, depth, seed)?.into_iter();
        let look = |exclusive| match exclusive {
            Some(true) => read.next().flatten().map_or(Look::Vanished, Look::Known),
            Some(false) => Look::Shared,
            None => Look::Vanished,
        };
        Ok(exclusive.into_iter().map(look).collect())
    }

    /// Reads in `ranges`; `None` for one that cannot be read any more.
    fn read(
        &mut self,
        process: &ManagedProcess,
        ranges: &[PmdRange],
        depth: Depth,
        seed: u64,
    ) -> Result<Vec<Option<Knowledge>>> {
        match depth {
            Depth::Exact => ranges.iter().map(|range| self.read_whole(process, *range)).collect(),
            Depth::Sample(size) => {
                let pages = pages(ranges, size, seed);
                let contents = self.whole(process, &pages)?;
                Ok(self.samples(process.key, &pages, &contents, size, Knowledge::Sampled))
            }
            Depth::Filter(size) => {
                let pages = pages(ranges, size, seed);
                let contents = self.filtered(process, &pages, seed)?;
                Ok(self.samples(process.key, &pages, &contents, size, Knowledge::Sampled))
            }
            Depth::PreSample(size) => {
                let pages = pages(ranges, size, seed);
                let contents = self.excerpts(process, &pages, seed)?;
                Ok(self.samples(process.key, &pages, &contents, size, Knowledge::PreSampled))
            }
        }
    }

    fn read_whole(
        &mut self,
        process: &ManagedProcess,
        range: PmdRange,
    ) -> Result<Option<Knowledge>> {
        let Some(found) = self.sampler.zero_pages(&process.process, range)? else {
            return Ok(None);
        };
        if let Some(page) = found.first {
            self.zero_pages.insert((process.key, range), page);
        }
        Ok(Some(Knowledge::Exact(BloatDensity::new(found.count))))
    }

    /// The content of each of these base pages.
    fn whole(&mut self, process: &ManagedProcess, pages: &[PageOf]) -> Result<Vec<Content>> {
        let addresses: Vec<_> = pages.iter().map(|(range, page)| range.base_page(*page)).collect();
        self.sampler.contents(&process.process, &addresses, PAGE)
    }

    /// The content of an excerpt of each of these base pages.
    fn excerpts(
        &mut self,
        process: &ManagedProcess,
        pages: &[PageOf],
        seed: u64,
    ) -> Result<Vec<Content>> {
        let excerpt = |(range, page): &PageOf| sampling::excerpt(*range, *page, seed);
        let addresses: Vec<_> = pages.iter().map(excerpt).collect();
        self.sampler.contents(&process.process, &addresses, EXCERPT)
    }

    /// The content of each of these base pages; only those with an empty excerpt are read whole.
    fn filtered(
        &mut self,
        process: &ManagedProcess,
        pages: &[PageOf],
        seed: u64,
    ) -> Result<Vec<Content>> {
        let mut contents = self.excerpts(process, pages, seed)?;
        let empty = pages.iter().zip(&contents).filter(|(_, content)| **content == Content::Zero);
        let empty: Vec<PageOf> = empty.map(|(page, _)| *page).collect();
        let mut whole = self.whole(process, &empty)?.into_iter();
        for content in contents.iter_mut().filter(|content| **content == Content::Zero) {
            *content = whole.next().unwrap_or(Content::Unreadable);
        }
        Ok(contents)
    }

    /// The knowledge that looks at `size` base pages of each range give.
    fn samples(
        &mut self,
        process: ProcessKey,
        pages: &[PageOf],
        contents: &[Content],
        size: SampleSize,
        known: fn(Sample) -> Knowledge,
    ) -> Vec<Option<Knowledge>> {
        let per_range = usize::from(size.pages());
        let looks = pages.chunks(per_range).zip(contents.chunks(per_range));
        looks.map(|(pages, contents)| self.take_in(process, pages, contents).map(known)).collect()
    }

    /// A range's sample; `None` if a page of it could not be read.
    fn take_in(
        &mut self,
        process: ProcessKey,
        pages: &[PageOf],
        contents: &[Content],
    ) -> Option<Sample> {
        if contents.contains(&Content::Unreadable) {
            return None;
        }
        let zeros = || pages.iter().zip(contents).filter(|(_, c)| **c == Content::Zero);
        if let Some(((range, page), _)) = zeros().next() {
            self.zero_pages.insert((process, *range), *page);
        }
        let pages = u16::try_from(contents.len()).ok()?;
        let zero = u16::try_from(zeros().count()).ok()?;
        Sample::new(pages, zero)
    }

    /// Splits the huge pages at `ranges` and verifies what became of each.
    ///
    /// # Errors
    /// [`superpage_kernel::Error::Gone`], [`superpage_kernel::Error::Denied`].
    pub fn split(&mut self, process: &ManagedProcess, ranges: &[PmdRange]) -> Result<Vec<Became>> {
        let zero_page = |range: &PmdRange| self.zero_pages.remove(&(process.key, *range));
        let pages: Vec<u16> = ranges.iter().map(zero_page).map(Option::unwrap_or_default).collect();
        let addresses = ranges.iter().zip(pages).map(|(range, page)| range.base_page(page));
        let refusals = process_madvise::split(&process.process, &addresses.collect::<Vec<_>>())?;
        let mappings = process.pagemap.mappings(ranges)?;
        let became = ranges.iter().zip(mappings).enumerate().map(|(index, (range, mapping))| {
            let refusal = refusals.iter().find(|refusal| refusal.index == index);
            Ok(match (mapping, refusal) {
                (_, Some(refusal)) => {
                    Became::LeftAlone(LeftAlone::Refused(refusal.errno.raw_os_error()))
                }
                (Mapping::Split { zero_pages }, None) => Became::Freed(zero_pages),
                (Mapping::Huge, None) => Became::LeftAlone(why_whole(process, *range)?),
            })
        });
        became.collect()
    }
}

fn why_whole(process: &ManagedProcess, range: PmdRange) -> Result<LeftAlone> {
    Ok(match process.pagemap.is_exclusive(range.start())? {
        Some(false) => LeftAlone::Shared,
        Some(true) | None => LeftAlone::Busy,
    })
}

/// The base pages that a look at `size` of each range reads.
fn pages(ranges: &[PmdRange], size: SampleSize, seed: u64) -> Vec<PageOf> {
    let of = |range: &PmdRange| {
        let range = *range;
        size.positions(range, seed).map(move |page| (range, page))
    };
    ranges.iter().flat_map(of).collect()
}
