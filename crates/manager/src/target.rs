//! One process that is looked at and de-bloated: carries out what a policy decides about it.
//!
//! Only hints are ever given to the process (`process_madvise`), and each is verified from outside
//! afterwards.

use std::collections::HashMap;
use superpage_kernel::maps;
use superpage_kernel::pagemap::{Mapping, Pagemap};
use superpage_kernel::process::Process;
use superpage_kernel::process_madvise;
use superpage_kernel::sample::{Content, Sampler};
use superpage_kernel::{Error, Result, smaps_flags};
use superpage_policy::bloat::{BloatDensity, Knowledge};
use superpage_policy::debloat::Depth;
use superpage_policy::sampling::{self, EXCERPT, Sample, SampleSize};
use superpage_units::{BASE_PAGE_BYTES, BasePages, Bytes, ProcessKey, Region};

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

/// What became of a region that was to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It is base pages now, so many of which gave their memory back.
    Freed(BasePages),
    /// It is still one huge page.
    LeftAlone(LeftAlone),
}

/// What a look at a region found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// How much of it is zero-filled, as far as was looked.
    Known(Knowledge),
    /// Another process maps it too, and it was not read: reading through the kernel would give the
    /// process a copy of each page read, and split its huge page for that.
    Shared,
    /// It is not there any more, or cannot be read.
    Vanished,
}

/// A whole base page.
const PAGE: Bytes = Bytes(BASE_PAGE_BYTES);

/// A base page of a region, by its index.
type Spot = (Region, u16);

/// A held process with what is needed to look into it.
#[derive(Debug)]
pub struct Target {
    key: ProcessKey,
    process: Process,
    command: String,
    pagemap: Pagemap,
    /// A base page seen zero-filled in each region, to give the hint on: it has no one to disturb.
    zero_spots: HashMap<Region, u16>,
}

impl Target {
    /// A target from a held process.
    ///
    /// # Errors
    /// [`Error::Denied`] if we may not read its pagemap; [`Error::Gone`].
    pub fn new(key: ProcessKey, process: Process, command: String) -> Result<Self> {
        let pagemap = Pagemap::open(&process)?;
        Ok(Self { key, process, command, pagemap, zero_spots: HashMap::new() })
    }

    /// As [`Pagemap::take_time`].
    pub fn take_time(&mut self, rest: u32) {
        self.pagemap.take_time(rest);
    }

    /// Its key towards policies.
    #[must_use]
    pub fn key(&self) -> ProcessKey {
        self.key
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its command.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Its anonymous huge pages now.
    ///
    /// # Errors
    /// As [`Pagemap::huge_pages`].
    pub fn huge_pages(&mut self) -> Result<Vec<Region>> {
        let areas = maps::of(&self.process)?;
        self.pagemap.huge_pages(&areas)
    }

    /// Those of `regions` (in address order) for which the program asked for huge pages.
    ///
    /// The kernel walks all of the process's page tables for it ([`smaps_flags`]).
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`].
    pub fn asked_for(&self, regions: impl Iterator<Item = Region>) -> Result<Vec<Region>> {
        let asked = smaps_flags::asking_for_huge(&self.process)?;
        let mut asked = asked.iter().peekable();
        let is_asked_for = |region: &Region| {
            while asked.next_if(|(_, end)| *end <= region.start()).is_some() {}
            asked.peek().is_some_and(|(start, _)| *start <= region.start())
        };
        Ok(regions.filter(is_asked_for).collect())
    }

    /// How each of `regions` is mapped now.
    ///
    /// # Errors
    /// As [`Pagemap::mappings`].
    pub fn mappings(&mut self, regions: &[Region]) -> Result<Vec<Mapping>> {
        self.pagemap.mappings(regions)
    }

    /// Looks at `regions`, but for what is shared with another process.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`].
    pub fn look(
        &mut self,
        sampler: &mut Sampler,
        regions: &[Region],
        depth: Depth,
        seed: u64,
    ) -> Result<Vec<Look>> {
        let exclusive = regions.iter().map(|region| self.pagemap.is_exclusive(region.start()));
        let exclusive: Vec<Option<bool>> = exclusive.collect::<Result<_>>()?;
        let ours = regions.iter().zip(&exclusive).filter(|(_, ours)| **ours == Some(true));
        let ours: Vec<Region> = ours.map(|(region, _)| *region).collect();
        let mut read = self.read(sampler, &ours, depth, seed)?.into_iter();
        let look = |exclusive| match exclusive {
            Some(true) => read.next().flatten().map_or(Look::Vanished, Look::Known),
            Some(false) => Look::Shared,
            None => Look::Vanished,
        };
        Ok(exclusive.into_iter().map(look).collect())
    }

    /// Reads in `regions`; `None` for one that cannot be read any more.
    fn read(
        &mut self,
        sampler: &mut Sampler,
        regions: &[Region],
        depth: Depth,
        seed: u64,
    ) -> Result<Vec<Option<Knowledge>>> {
        match depth {
            Depth::Exact => {
                regions.iter().map(|region| self.read_whole(sampler, *region)).collect()
            }
            Depth::Sample(size) => {
                let spots = spots(regions, size, seed);
                let contents = self.whole(sampler, &spots)?;
                Ok(self.samples(&spots, &contents, size, Knowledge::Sampled))
            }
            Depth::Filter(size) => {
                let spots = spots(regions, size, seed);
                let contents = self.filtered(sampler, &spots, seed)?;
                Ok(self.samples(&spots, &contents, size, Knowledge::Sampled))
            }
            Depth::Glance(size) => {
                let spots = spots(regions, size, seed);
                let contents = self.excerpts(sampler, &spots, seed)?;
                Ok(self.samples(&spots, &contents, size, Knowledge::Glanced))
            }
        }
    }

    fn read_whole(&mut self, sampler: &mut Sampler, region: Region) -> Result<Option<Knowledge>> {
        let Some(found) = sampler.zero_pages(&self.process, region)? else { return Ok(None) };
        if let Some(spot) = found.first {
            self.zero_spots.insert(region, spot);
        }
        Ok(Some(Knowledge::Exact(BloatDensity::new(found.count))))
    }

    /// What each of these base pages holds.
    fn whole(&self, sampler: &mut Sampler, spots: &[Spot]) -> Result<Vec<Content>> {
        let addresses: Vec<_> =
            spots.iter().map(|(region, page)| region.base_page(*page)).collect();
        sampler.contents(&self.process, &addresses, PAGE)
    }

    /// What an excerpt of each of these base pages holds.
    fn excerpts(&self, sampler: &mut Sampler, spots: &[Spot], seed: u64) -> Result<Vec<Content>> {
        let excerpt = |(region, page): &Spot| sampling::excerpt(*region, *page, seed);
        let addresses: Vec<_> = spots.iter().map(excerpt).collect();
        sampler.contents(&self.process, &addresses, EXCERPT)
    }

    /// What each of these base pages holds; only those with an empty excerpt are read whole.
    fn filtered(&self, sampler: &mut Sampler, spots: &[Spot], seed: u64) -> Result<Vec<Content>> {
        let mut contents = self.excerpts(sampler, spots, seed)?;
        let empty = spots.iter().zip(&contents).filter(|(_, content)| **content == Content::Zero);
        let empty: Vec<Spot> = empty.map(|(spot, _)| *spot).collect();
        let mut whole = self.whole(sampler, &empty)?.into_iter();
        for content in contents.iter_mut().filter(|content| **content == Content::Zero) {
            *content = whole.next().unwrap_or(Content::Unreadable);
        }
        Ok(contents)
    }

    /// What looks at `size` base pages of each region say.
    fn samples(
        &mut self,
        spots: &[Spot],
        contents: &[Content],
        size: SampleSize,
        known: fn(Sample) -> Knowledge,
    ) -> Vec<Option<Knowledge>> {
        let per_region = usize::from(size.pages());
        let looks = spots.chunks(per_region).zip(contents.chunks(per_region));
        looks.map(|(spots, contents)| self.take_in(spots, contents).map(known)).collect()
    }

    /// What a sample of one region says.
    fn take_in(&mut self, spots: &[Spot], contents: &[Content]) -> Option<Sample> {
        if contents.contains(&Content::Unreadable) {
            return None;
        }
        let zeros = || spots.iter().zip(contents).filter(|(_, c)| **c == Content::Zero);
        if let Some(((region, spot), _)) = zeros().next() {
            self.zero_spots.insert(*region, *spot);
        }
        let pages = u16::try_from(contents.len()).ok()?;
        let zero = u16::try_from(zeros().count()).ok()?;
        Sample::new(pages, zero)
    }

    /// Breaks the huge pages at `regions` and verifies what became of each.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`].
    pub fn break_up(&mut self, regions: &[Region]) -> Result<Vec<Broken>> {
        let spot = |region: &Region| self.zero_spots.get(region).copied().unwrap_or(0);
        let addresses: Vec<_> = regions.iter().map(|r| r.base_page(spot(r))).collect();
        let refusals = process_madvise::split(&self.process, &addresses)?;
        let mappings = self.pagemap.mappings(regions)?;
        let mut broken = Vec::with_capacity(regions.len());
        for (index, (region, mapping)) in regions.iter().zip(mappings).enumerate() {
            self.zero_spots.remove(region);
            let refusal = refusals.iter().find(|refusal| refusal.index == index);
            broken.push(match (mapping, refusal) {
                (_, Some(refusal)) => {
                    Broken::LeftAlone(LeftAlone::Refused(refusal.errno.raw_os_error()))
                }
                (Mapping::Split { zero_pages }, None) => Broken::Freed(zero_pages),
                (Mapping::Huge, None) => Broken::LeftAlone(self.why_whole(*region)?),
            });
        }
        Ok(broken)
    }

    fn why_whole(&self, region: Region) -> Result<LeftAlone> {
        Ok(match self.pagemap.is_exclusive(region.start())? {
            Some(false) => LeftAlone::Shared,
            Some(true) | None => LeftAlone::Busy,
        })
    }

    /// Turns `regions` back into huge pages; returns how many the kernel refused.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Denied`].
    pub fn collapse(&self, regions: &[Region]) -> Result<usize> {
        Ok(process_madvise::collapse(&self.process, regions)?.len())
    }
}

/// The base pages that a look at `size` of each region reads.
fn spots(regions: &[Region], size: SampleSize, seed: u64) -> Vec<Spot> {
    let of = |region: &Region| {
        let region = *region;
        size.positions(region, seed).map(move |page| (region, page))
    };
    regions.iter().flat_map(of).collect()
}

/// Whether `error` only concerns the process at hand, so that the work can go on with others.
#[must_use]
pub fn is_about_one_process(error: &Error) -> bool {
    matches!(error, Error::Gone { .. } | Error::Denied { .. } | Error::Missing { .. })
}
