//! Physical memory: frames, who uses each, what is free and how contiguous it is.
//!
//! [`Physical`] hands out frames and remembers their owners, so that compaction can move what is
//! movable ([`compact`]). Fragmentation is put in on purpose ([`fragment`]). It knows nothing of
//! page tables: whoever maps frames hears of moves through [`Mover`].

mod bits;
mod buddy;
pub mod compact;
pub mod fragment;

use bits::Bits;
use buddy::{Buddy, End};
use std::collections::BTreeSet;
use superpage_policy::compaction::ChunkCounts;
use superpage_policy::free_memory::FreeMemory;
use superpage_units::{BASE_PAGE_BYTES, BasePages, Bytes, PageSize, ProcessKey, VirtAddr};

/// A 4 KiB frame of physical memory, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u64);

impl Frame {
    /// The frame `pages` further up.
    #[must_use]
    pub const fn offset(self, pages: u64) -> Self {
        Self(self.0 + pages)
    }

    /// The first frame of the huge frame it lies in.
    #[must_use]
    pub const fn huge_floor(self) -> Self {
        Self(self.0 / BLOCK * BLOCK)
    }
}

/// Frames in a block, which is what a huge page needs.
const BLOCK: u64 = PageSize::Huge.base_pages().0;
/// The same as the length of an array.
const BLOCK_LENGTH: usize = index(BLOCK);
/// Frames in a chunk, which is what a gigantic page needs.
const CHUNK: u64 = PageSize::Gigantic.base_pages().0;

/// A number of frames as an index. Memory that does not fit an index is refused at the start.
#[expect(clippy::cast_possible_truncation, reason = "frame numbers fit: new() asserts it")]
const fn index(frames: u64) -> usize {
    frames as usize
}

/// Who uses a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The kernel: it cannot be moved.
    Unmovable,
    /// A page of a file that can be dropped.
    PageCache,
    /// A process, at this address.
    Process(ProcessKey, VirtAddr),
    /// Reserved for a range of a process, which starts at this address.
    Reserved(ProcessKey, VirtAddr),
    /// Part of a gigantic page of a process; this part is mapped at this address.
    Gigantic(ProcessKey, VirtAddr),
    /// Several processes that come from this one by forks, all at this address.
    Shared(ProcessKey, VirtAddr),
}

impl Owner {
    /// The owner of what lies `offset` further up in the same page.
    fn offset(self, offset: Bytes) -> Self {
        match self {
            Self::Process(process, start) => Self::Process(process, start.offset(offset)),
            Self::Reserved(process, start) => Self::Reserved(process, start.offset(offset)),
            Self::Gigantic(process, start) => Self::Gigantic(process, start.offset(offset)),
            Self::Shared(family, start) => Self::Shared(family, start.offset(offset)),
            Self::Unmovable | Self::PageCache => self,
        }
    }
}

/// An owner in eight bytes: 4 bits of kind, 24 of process, 36 of base page number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed(u64);

impl Packed {
    const FREE: Self = Self(0);
    const PAGE_BITS: u32 = 36;
    const PROCESS_BITS: u32 = 24;

    fn new(owner: Owner) -> Self {
        let place = |kind: u64, process: ProcessKey, address: VirtAddr| {
            let page = address.0 / BASE_PAGE_BYTES;
            debug_assert!(page >> Self::PAGE_BITS == 0, "addresses have 48 bits");
            debug_assert!(process.0 >> Self::PROCESS_BITS == 0, "so many processes");
            Self(kind << 60 | process.0 << Self::PAGE_BITS | page)
        };
        match owner {
            Owner::Unmovable => Self(1 << 60),
            Owner::PageCache => Self(2 << 60),
            Owner::Process(process, address) => place(3, process, address),
            Owner::Reserved(process, address) => place(4, process, address),
            Owner::Gigantic(process, address) => place(5, process, address),
            Owner::Shared(family, address) => place(6, family, address),
        }
    }

    fn owner(self) -> Option<Owner> {
        let process = ProcessKey(self.0 >> Self::PAGE_BITS & ((1 << Self::PROCESS_BITS) - 1));
        let address = VirtAddr((self.0 & ((1 << Self::PAGE_BITS) - 1)) * BASE_PAGE_BYTES);
        match self.0 >> 60 {
            1 => Some(Owner::Unmovable),
            2 => Some(Owner::PageCache),
            3 => Some(Owner::Process(process, address)),
            4 => Some(Owner::Reserved(process, address)),
            5 => Some(Owner::Gigantic(process, address)),
            6 => Some(Owner::Shared(process, address)),
            _ => None,
        }
    }
}

/// The owners of the 512 frames of a block.
#[derive(Clone, Debug)]
enum Block {
    /// One owner for all, or nobody's.
    Whole(Packed),
    /// Each its own.
    Mixed(Box<[Packed; BLOCK_LENGTH]>),
}

/// Free frames of one size that were zeroed ahead of time.
#[derive(Clone, Debug)]
struct Zeroed {
    size: PageSize,
    frames: BTreeSet<Frame>,
    /// All free frames of the size from this one on are zeroed.
    from: Frame,
}

impl Zeroed {
    /// None of a memory of so many base frames.
    fn new(size: PageSize, frames: u64) -> Self {
        let from = Frame(frames.next_multiple_of(size.base_pages().0));
        Self { size, frames: BTreeSet::new(), from }
    }

    /// Zeroes the highest free frame that is not zeroed yet; whether there was one.
    fn add_highest(&mut self, buddy: &Buddy) -> bool {
        let mut is_new = false;
        while !is_new && let Some(frame) = buddy.highest_free(self.size.order(), self.from) {
            is_new = self.frames.insert(frame);
            self.from = frame;
        }
        is_new
    }

    /// Notes that memory below `end` became free.
    fn note_free(&mut self, end: Frame) {
        let end = Frame(end.0.next_multiple_of(self.size.base_pages().0));
        self.from = self.from.max(end);
    }

    /// Asserts that all free frames from `from` to `end` are zeroed.
    fn check(&self, buddy: &Buddy, end: u64) {
        for frame in (self.from.0..end).step_by(index(self.size.base_pages().0)).map(Frame) {
            let chunk = buddy.chunk_of(frame);
            let is_free = chunk.is_some_and(|(_, order)| order >= self.size.order());
            assert!(!is_free || self.frames.contains(&frame), "{frame:?} is zeroed");
        }
    }
}

/// Physical memory.
#[derive(Clone, Debug)]
pub struct Physical {
    frames: u64,
    buddy: Buddy,
    blocks: Vec<Block>,
    chunks: Vec<ChunkCounts>,
    zeroed_huge: Zeroed,
    zeroed_gigantic: Zeroed,
    /// The frames that hold file pages.
    cached: Bits,
    sequential: compact::Pointers,
}

/// Hears that the contents of a frame were moved.
pub trait Mover {
    /// What `owner` had in the frame of this size at `from` is at `to` now.
    fn moved(&mut self, owner: Owner, from: Frame, to: Frame, size: PageSize);
}

impl Physical {
    /// So much memory, all free; whole huge pages of it.
    #[must_use]
    pub fn new(size: Bytes) -> Self {
        let frames = size.to_huge_pages().base_pages().0;
        assert!(usize::try_from(frames).is_ok(), "a machine of {size} cannot be simulated here");
        let mut chunks = vec![ChunkCounts::default(); index(frames.div_ceil(CHUNK))];
        for (at, chunk) in chunks.iter_mut().enumerate() {
            chunk.free = BasePages((frames - at as u64 * CHUNK).min(CHUNK));
        }
        Self {
            frames,
            buddy: Buddy::new(frames),
            blocks: vec![Block::Whole(Packed::FREE); index(frames / BLOCK)],
            chunks,
            zeroed_huge: Zeroed::new(PageSize::Huge, frames),
            zeroed_gigantic: Zeroed::new(PageSize::Gigantic, frames),
            cached: Bits::new(index(frames)),
            sequential: compact::Pointers::default(),
        }
    }

    /// All frames.
    #[must_use]
    pub fn total(&self) -> BasePages {
        BasePages(self.frames)
    }

    /// What is free.
    #[must_use]
    pub fn free_memory(&self) -> &FreeMemory {
        &self.buddy.memory
    }

    /// The counters of each 1 GiB of memory.
    #[must_use]
    pub fn chunks(&self) -> &[ChunkCounts] {
        &self.chunks
    }

    /// Who uses a frame; nobody if it is free.
    #[must_use]
    pub fn owner(&self, frame: Frame) -> Option<Owner> {
        let block = self.blocks.get(index(frame.0 / BLOCK))?;
        match block {
            Block::Whole(packed) => {
                // A page of one owner: each frame of it holds the next address.
                let offset = Bytes((frame.0 % BLOCK) * BASE_PAGE_BYTES);
                packed.owner().map(|owner| owner.offset(offset))
            }
            Block::Mixed(owners) => owners[index(frame.0 % BLOCK)].owner(),
        }
    }

    /// Takes a page of this size, from the bottom of memory; zeroed ahead of time if there is one.
    pub fn take(&mut self, size: PageSize, owner: Owner) -> Option<Taken> {
        if let Some(frame) = self.zeroed(size).and_then(|zeroed| zeroed.frames.pop_first()) {
            let taken = self.buddy.take_at(frame, size.order());
            debug_assert!(taken, "what is zeroed is free");
            self.settle(frame, size, owner);
            return Some(Taken { frame, is_zeroed: true });
        }
        let frame = self.buddy.take(size.order(), End::Bottom)?;
        self.settle(frame, size, owner);
        Some(Taken { frame, is_zeroed: false })
    }

    /// Takes a page of this size only if one was zeroed ahead of time.
    pub fn take_zeroed(&mut self, size: PageSize, owner: Owner) -> Option<Taken> {
        self.zeroed(size)?.frames.first()?;
        self.take(size, owner)
    }

    fn zeroed(&mut self, size: PageSize) -> Option<&mut Zeroed> {
        match size {
            PageSize::Base => None,
            PageSize::Huge => Some(&mut self.zeroed_huge),
            PageSize::Gigantic => Some(&mut self.zeroed_gigantic),
        }
    }

    /// Zeroes a free chunk of this size, if there is one that is not zeroed yet: the highest, because ordinary allocations come
    /// there last.
    pub fn zero_ahead(&mut self, size: PageSize) -> bool {
        let is_new = match size {
            PageSize::Base => false,
            PageSize::Huge => self.zeroed_huge.add_highest(&self.buddy),
            PageSize::Gigantic => self.zeroed_gigantic.add_highest(&self.buddy),
        };
        self.count_zeroed();
        is_new
    }

    /// Writes down the owner of a chunk that has just left the buddy allocator.
    fn settle(&mut self, frame: Frame, size: PageSize, owner: Owner) {
        self.note_owner(frame, size, owner);
        self.count_taken(frame, size, owner);
        self.forget_zeroed(frame, size);
    }

    fn note_owner(&mut self, frame: Frame, size: PageSize, owner: Owner) {
        match size {
            PageSize::Base => *self.entry(frame) = Packed::new(owner),
            PageSize::Huge => {
                self.blocks[index(frame.0 / BLOCK)] = Block::Whole(Packed::new(owner))
            }
            PageSize::Gigantic => {
                for block in 0..CHUNK / BLOCK {
                    let part = owner.offset(PageSize::Huge.bytes() * block);
                    self.blocks[index(frame.0 / BLOCK + block)] = Block::Whole(Packed::new(part));
                }
            }
        }
    }

    fn count_taken(&mut self, frame: Frame, size: PageSize, owner: Owner) {
        let chunk = &mut self.chunks[index(frame.0 / CHUNK)];
        chunk.free -= size.base_pages();
        match owner {
            Owner::Unmovable => chunk.unmovable += size.base_pages(),
            Owner::PageCache => {
                self.buddy.memory.page_cache += size.base_pages();
                let frames = frame.0..frame.0 + size.base_pages().0;
                frames.for_each(|frame| self.cached.insert(index(frame)));
            }
            Owner::Process(..) | Owner::Reserved(..) | Owner::Gigantic(..) | Owner::Shared(..) => {}
        }
    }

    /// A chunk of which a part was taken is no longer a zeroed chunk.
    fn forget_zeroed(&mut self, frame: Frame, size: PageSize) {
        let order = size.order();
        self.zeroed_gigantic.frames.remove(&Frame(frame.0 / CHUNK * CHUNK));
        if order <= PageSize::Huge.order() {
            self.zeroed_huge.frames.remove(&frame.huge_floor());
        } else {
            let end = frame.offset(1 << order);
            let inside: Vec<Frame> = self.zeroed_huge.frames.range(frame..end).copied().collect();
            inside.iter().for_each(|frame| {
                self.zeroed_huge.frames.remove(frame);
            });
        }
        self.count_zeroed();
    }

    /// Writes down how many free chunks are zeroed.
    fn count_zeroed(&mut self) {
        self.buddy.memory.zeroed_huge = self.zeroed_huge.frames.len() as u64;
        self.buddy.memory.zeroed_gigantic = self.zeroed_gigantic.frames.len() as u64;
    }

    /// The owner's entry of one frame, in a block that is made a mixed one for it.
    fn entry(&mut self, frame: Frame) -> &mut Packed {
        let block = &mut self.blocks[index(frame.0 / BLOCK)];
        if let Block::Whole(packed) = block {
            let owners = match packed.owner() {
                None => Box::new([Packed::FREE; BLOCK_LENGTH]),
                Some(owner) => Box::new(std::array::from_fn(|page| {
                    Packed::new(owner.offset(Bytes(page as u64 * BASE_PAGE_BYTES)))
                })),
            };
            *block = Block::Mixed(owners);
        }
        match block {
            Block::Mixed(owners) => &mut owners[index(frame.0 % BLOCK)],
            Block::Whole(packed) => packed,
        }
    }

    /// Frees a page of this size.
    pub fn give(&mut self, frame: Frame, size: PageSize) {
        self.count_given(frame, size);
        let end = frame.offset(size.base_pages().0);
        self.zeroed_huge.note_free(end);
        self.zeroed_gigantic.note_free(end);
        match size {
            PageSize::Base => {
                *self.entry(frame) = Packed::FREE;
                if self.buddy.give(frame, 0) >= PageSize::Huge.order() {
                    self.blocks[index(frame.0 / BLOCK)] = Block::Whole(Packed::FREE);
                }
            }
            PageSize::Huge | PageSize::Gigantic => {
                for block in 0..size.base_pages().0 / BLOCK {
                    self.blocks[index(frame.0 / BLOCK + block)] = Block::Whole(Packed::FREE);
                }
                self.buddy.give(frame, size.order());
            }
        }
    }

    fn count_given(&mut self, frame: Frame, size: PageSize) {
        let owner = self.owner(frame);
        debug_assert!(owner.is_some(), "{frame:?} is free already");
        let chunk = &mut self.chunks[index(frame.0 / CHUNK)];
        chunk.free += size.base_pages();
        match owner {
            Some(Owner::Unmovable) => chunk.unmovable -= size.base_pages(),
            Some(Owner::PageCache) => {
                self.buddy.memory.page_cache -= size.base_pages();
                let frames = frame.0..frame.0 + size.base_pages().0;
                frames.for_each(|frame| {
                    self.cached.remove(index(frame));
                });
            }
            Some(
                Owner::Process(..) | Owner::Reserved(..) | Owner::Gigantic(..) | Owner::Shared(..),
            )
            | None => {}
        }
    }

    /// Gives a page of this size, which stays where it is, another owner.
    pub fn reown(&mut self, frame: Frame, size: PageSize, owner: Owner) {
        self.note_owner(frame, size, owner);
    }

    /// Memory that holds pages of files.
    #[must_use]
    pub fn page_cache(&self) -> BasePages {
        self.buddy.memory.page_cache
    }

    /// All frames that processes have, mapped or reserved; shared ones once.
    #[must_use]
    pub fn owned_by_processes(&self) -> BasePages {
        let is_theirs = |packed: &Packed| {
            let owner = packed.owner();
            u64::from(matches!(
                owner,
                Some(
                    Owner::Process(..)
                        | Owner::Reserved(..)
                        | Owner::Gigantic(..)
                        | Owner::Shared(..)
                )
            ))
        };
        let of = |block: &Block| match block {
            Block::Whole(packed) => is_theirs(packed) * BLOCK,
            Block::Mixed(owners) => owners.iter().map(is_theirs).sum(),
        };
        BasePages(self.blocks.iter().map(of).sum())
    }

    /// Asserts that frames are free or owned, that counters agree with owners, and that what is
    /// zeroed is free.
    ///
    /// # Panics
    /// If something is wrong. Slow: for tests.
    pub fn check(&self) {
        self.buddy.check();
        let mut chunks = vec![ChunkCounts::default(); self.chunks.len()];
        let mut cached = BasePages::ZERO;
        for frame in (0..self.frames).map(Frame) {
            let owner = self.owner(frame);
            let is_free = self.buddy.chunk_of(frame).is_some();
            assert_eq!(owner.is_none(), is_free, "{frame:?} is free or owned");
            let chunk = &mut chunks[index(frame.0 / CHUNK)];
            chunk.free += BasePages(u64::from(is_free));
            chunk.unmovable += BasePages(u64::from(owner == Some(Owner::Unmovable)));
            let is_cached = owner == Some(Owner::PageCache);
            cached += BasePages(u64::from(is_cached));
            assert_eq!(self.cached.contains(index(frame.0)), is_cached, "{frame:?} in page cache");
        }
        assert_eq!(chunks, self.chunks, "counters of chunks");
        assert_eq!(cached, self.page_cache(), "page cache");
        for frame in &self.zeroed_huge.frames {
            assert!(self.buddy.chunk_of(*frame).is_some_and(|(_, order)| order >= 9));
        }
        for frame in &self.zeroed_gigantic.frames {
            assert_eq!(self.buddy.chunk_of(*frame), Some((*frame, 18)));
        }
        self.zeroed_huge.check(&self.buddy, self.frames);
        self.zeroed_gigantic.check(&self.buddy, self.frames);
    }
}

/// A page that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its first frame.
    pub frame: Frame,
    /// Whether it holds zeroes already.
    pub is_zeroed: bool,
}
