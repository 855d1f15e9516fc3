//! A range in a page table: how its 512 base pages are mapped, and what they hold.

use crate::physical::Frame;
use superpage_policy::bloat::BloatDensity;
use superpage_units::{BasePages, Mapping, PageSize, PmdRange, Time, VirtAddr};

/// Base pages in a range.
pub(crate) const PAGES: u16 = 512; // tidy: allow(as u16; asserted below)
const _: () = assert!(PAGES as u64 == superpage_units::BASE_PAGES_PER_HUGE_PAGE);

/// One bit for each base page of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageSet([u64; 8]);

impl PageSet {
    pub(crate) const ALL: Self = Self([u64::MAX; 8]);

    /// Whether there is no member.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Whether each page is a member.
    pub(crate) fn is_all(&self) -> bool {
        self.0.iter().all(|word| *word == u64::MAX)
    }

    pub(crate) fn contains(&self, page: u16) -> bool {
        self.0[usize::from(page / 64)] >> (page % 64) & 1 == 1
    }

    pub(crate) fn insert(&mut self, page: u16) {
        self.0[usize::from(page / 64)] |= 1 << (page % 64);
    }

    pub(crate) fn remove(&mut self, page: u16) {
        self.0[usize::from(page / 64)] &= !(1 << (page % 64));
    }

    pub(crate) fn union(&self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    pub(crate) fn without(&self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    pub(crate) fn intersection(&self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// The last member.
    pub(crate) fn last(&self) -> Option<u16> {
        let (word, bits) = (0u16..).zip(self.0).filter(|(_, bits)| *bits != 0).last()?;
        Some(word * 64 + 63 - u16::from(bits.leading_zeros().to_le_bytes()[0]))
    }

    pub(crate) fn len(&self) -> u16 {
        self.0.iter().map(|word| u16::from(word.count_ones().to_le_bytes()[0])).sum()
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = u16> {
        (0..PAGES).filter(move |page| self.contains(*page))
    }

    /// The member that `before` others come before.
    pub(crate) fn nth(&self, mut before: u32) -> Option<u16> {
        for (word, bits) in (0..).zip(self.0) {
            if before < bits.count_ones() {
                let bits = (0..before).fold(bits, |bits, _| bits & (bits - 1));
                return Some(word * 64 + u16::from(bits.trailing_zeros().to_le_bytes()[0]));
            }
            before -= bits.count_ones();
        }
        None
    }

    /// The first member at or after `from`.
    pub(crate) fn next(&self, from: u16) -> Option<u16> {
        let mut word = usize::from(from / 64);
        let mut bits = *self.0.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.0.get(word)?;
        }
        let bit = bits.trailing_zeros().to_le_bytes()[0];
        u16::try_from(word * 64).ok().map(|base| base + u16::from(bit))
    }
}

/// What a slot knows of single base pages. Absent where all are alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detail {
    /// Mapped.
    pub(crate) present: PageSet,
    /// Written with something else than zeroes.
    pub(crate) used: PageSet,
    /// Accessed since somebody asked.
    pub(crate) accessed: PageSet,
    /// Written to the backing store and not mapped.
    pub(crate) swapped: PageSet,
    /// Base pages mapped read-only since a fork.
    pub(crate) protected: PageSet,
    /// Mapped, and the backing store still has what is in it: read from there and not written
    /// since. A superpage has one dirty bit, so one write makes all of it differ.
    pub(crate) stored: PageSet,
    /// Where each is, if they are base pages from anywhere.
    pub(crate) frames: Option<Box<[u32; PAGES as usize]>>,
}

impl Detail {
    /// Writes down where base page `page` is.
    pub(crate) fn place(&mut self, page: u16, frame: Frame) {
        let frames = self.frames.get_or_insert_with(|| Box::new([0; PAGES as usize]));
        #[expect(clippy::cast_possible_truncation, reason = "below 16 TiB of memory")]
        {
            frames[usize::from(page)] = frame.0 as u32;
        }
    }
}

/// A range of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) mapping: Mapping,
    /// Whether `frame` is a huge frame in which base pages are mapped in place.
    pub(crate) is_reserved: bool,
    /// Whether a larger page is mapped read-only since a fork.
    pub(crate) is_protected: bool,
    /// Base pages mapped; all of them by a larger page.
    pub(crate) present: u16,
    /// Base pages accessed in the last sampling period.
    pub(crate) coverage: u16,
    /// Whether it was accessed as a whole since somebody asked.
    pub(crate) is_accessed: bool,
    /// The huge frame, if one is mapped or reserved; part of the gigantic frame otherwise.
    pub(crate) frame: Frame,
    /// When it was accessed last.
    pub(crate) accessed_at: Time,
    pub(crate) detail: Option<Box<Detail>>,
}

impl Slot {
    /// Whether this base page is mapped, by whatever page.
    pub(crate) fn is_present(&self, page: u16) -> bool {
        match self.mapping {
            Mapping::Empty => false,
            Mapping::Huge | Mapping::Gigantic => true,
            Mapping::Base => {
                self.detail.as_ref().is_some_and(|detail| detail.present.contains(page))
            }
        }
    }

    /// The base pages that are mapped.
    pub(crate) fn present(&self) -> PageSet {
        match self.mapping {
            Mapping::Empty => PageSet::default(),
            Mapping::Huge | Mapping::Gigantic => PageSet::ALL,
            Mapping::Base => self.detail.as_ref().map(|d| d.present).unwrap_or_default(),
        }
    }

    /// The base pages that are mapped read-only since a fork.
    pub(crate) fn protected(&self) -> PageSet {
        match self.mapping {
            Mapping::Huge | Mapping::Gigantic if self.is_protected => PageSet::ALL,
            Mapping::Base => self.detail.as_ref().map(|d| d.protected).unwrap_or_default(),
            Mapping::Empty | Mapping::Huge | Mapping::Gigantic => PageSet::default(),
        }
    }

    /// Whether this base page is mapped read-only since a fork, by whatever page.
    pub(crate) fn is_read_only(&self, page: u16) -> bool {
        match self.mapping {
            Mapping::Empty => false,
            Mapping::Huge | Mapping::Gigantic => self.is_protected,
            Mapping::Base => self.detail.as_ref().is_some_and(|d| d.protected.contains(page)),
        }
    }

    /// Maps all that is mapped read-only, as a fork does; how many entries had to be written.
    pub(crate) fn protect(&mut self) -> u64 {
        match self.mapping {
            Mapping::Empty => 0,
            Mapping::Huge | Mapping::Gigantic => {
                u64::from(!std::mem::replace(&mut self.is_protected, true))
            }
            Mapping::Base => {
                let detail = self.detail();
                let before = std::mem::replace(&mut detail.protected, detail.present);
                u64::from(detail.present.len() - before.len())
            }
        }
    }

    /// The base pages that it maps in their place in the huge frame at `block`.
    pub(crate) fn in_place(&self, block: Frame) -> PageSet {
        match self.mapping {
            Mapping::Huge if self.frame == block => PageSet::ALL,
            Mapping::Base if !self.is_reserved => {
                let mut found = PageSet::default();
                let is_there = |page: &u16| self.frame_of(*page) == block.offset(u64::from(*page));
                self.present().iter().filter(is_there).for_each(|page| found.insert(page));
                found
            }
            Mapping::Empty | Mapping::Base | Mapping::Huge | Mapping::Gigantic => {
                PageSet::default()
            }
        }
    }

    /// A huge page is mapped by base pages from now on, in place; those in `present` stay.
    pub(crate) fn map_by_base_pages(&mut self, present: PageSet) {
        let used = self.data();
        let protected = self.protected().intersection(present);
        let frame = self.frame;
        self.mapping = Mapping::Base;
        self.present = present.len();
        self.is_protected = false;
        let detail = self.detail();
        detail.present = present;
        detail.used = used;
        detail.protected = protected;
        present.iter().for_each(|page| detail.place(page, frame.offset(u64::from(page))));
    }

    /// The base pages that were written with data.
    pub(crate) fn used(&self) -> PageSet {
        self.detail.as_ref().map_or(PageSet::ALL, |detail| detail.used)
    }

    /// The base pages that are in the backing store.
    pub(crate) fn swapped(&self) -> PageSet {
        self.detail.as_ref().map(|detail| detail.swapped).unwrap_or_default()
    }

    /// The base pages that hold data, in memory or in the backing store.
    pub(crate) fn data(&self) -> PageSet {
        let used = match self.mapping {
            Mapping::Empty => PageSet::default(),
            Mapping::Base | Mapping::Huge | Mapping::Gigantic => self.used(),
        };
        used.union(self.swapped())
    }

    /// Maps base page `page`, which holds what the backing store has of it.
    pub(crate) fn map_page(&mut self, page: u16) {
        if self.mapping == Mapping::Empty {
            self.unmap();
            self.mapping = Mapping::Base;
        }
        self.present += 1;
        let detail = self.detail();
        detail.present.insert(page);
        detail.used.remove(page);
        detail.stored.remove(page);
        if detail.swapped.contains(page) {
            detail.swapped.remove(page);
            detail.used.insert(page);
            detail.stored.insert(page);
        }
    }

    /// The base pages that need not be written to the backing store when they are evicted.
    pub(crate) fn stored(&self) -> PageSet {
        self.detail.as_ref().map(|detail| detail.stored).unwrap_or_default()
    }

    /// All that a superpage holds has just been read from the backing store.
    pub(crate) fn is_as_stored(&mut self) {
        let used = self.used();
        let detail = self.detail();
        detail.used = used;
        detail.stored = used;
    }

    /// Nothing is mapped any more; what is in the backing store stays there.
    pub(crate) fn unmap(&mut self) {
        let swapped = self.swapped();
        self.mapping = Mapping::Empty;
        self.is_protected = false;
        self.present = 0;
        self.detail = None;
        if swapped != PageSet::default() {
            self.detail().swapped = swapped;
        }
    }

    /// `count` base pages from `first` on are no longer wanted in the backing store.
    pub(crate) fn forget_swapped(&mut self, first: u16, count: BasePages) {
        if let Some(detail) = &mut self.detail {
            for page in (first..PAGES).zip(0..count.0).map(|(page, _)| page) {
                detail.swapped.remove(page);
            }
        }
    }

    /// The frame that base page `page` is in.
    pub(crate) fn frame_of(&self, page: u16) -> Frame {
        match self.detail.as_ref().and_then(|detail| detail.frames.as_ref()) {
            Some(frames) if self.mapping == Mapping::Base && !self.is_reserved => {
                Frame(u64::from(frames[usize::from(page)]))
            }
            _ => self.frame.offset(u64::from(page)),
        }
    }

    /// Every frame it has, where it is mapped or reserved, and the size it was taken in; nothing of a
    /// gigantic page but its part.
    pub(crate) fn frames(&self, range: PmdRange) -> Vec<(VirtAddr, Frame, PageSize)> {
        match self.mapping {
            _ if self.is_reserved => vec![(range.start(), self.frame, PageSize::Huge)],
            Mapping::Empty => Vec::new(),
            Mapping::Huge | Mapping::Gigantic => {
                vec![(range.start(), self.frame, PageSize::Huge)]
            }
            Mapping::Base => {
                let page = |page| (range.base_page(page), self.frame_of(page), PageSize::Base);
                self.present().iter().map(page).collect()
            }
        }
    }

    pub(crate) fn detail(&mut self) -> &mut Detail {
        self.detail.get_or_insert_default()
    }

    /// Writes down that base page `page` holds data.
    pub(crate) fn write(&mut self, page: u16) {
        if let Some(detail) = &mut self.detail {
            detail.used.insert(page);
            let is_superpage = matches!(self.mapping, Mapping::Huge | Mapping::Gigantic);
            if is_superpage {
                detail.stored = PageSet::default();
            } else {
                detail.stored.remove(page);
            }
            if is_superpage && detail.used.is_all() {
                self.detail = None;
            }
        }
    }

    /// How many of its base pages hold only zeroes while a huge page maps them.
    pub(crate) fn bloat(&self) -> BloatDensity {
        let used = self.detail.as_ref().map_or(PAGES, |detail| detail.used.len());
        BloatDensity::new(PAGES - used)
    }

    /// Base pages mapped, as a count.
    pub(crate) fn populated(&self) -> BasePages {
        BasePages(u64::from(self.present))
    }
}
