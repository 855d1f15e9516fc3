//! Making contiguous memory by moving what is in the way: Linux's way and Trident's.
//!
//! Which chunk to empty and which to fill is [`superpage_policy::compaction`]'s choice; the moving
//! and the counting of what was copied, and of what was copied for nothing, is here.

use super::buddy::End;
use super::{BLOCK, CHUNK, Frame, Mover, Owner, Physical, index};
use std::ops::Range;
use superpage_policy::compaction::{Compaction, smart_source, smart_targets};
use superpage_units::{BasePages, PageSize};

/// Where sequential compaction goes on next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pointers {
    source: Frame,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Whether a chunk of the size asked for became free.
    pub made: bool,
    /// Base pages that were copied.
    pub copied: BasePages,
    /// Of those, copied for a chunk that could not be emptied in the end.
    pub futile: BasePages,
    /// Huge pages that were copied whole, whose base pages are counted in `copied`.
    pub huge: u64,
    /// Huge pages among them that were copied for a chunk that could not be emptied in the end.
    pub futile_huge: u64,
    /// Frames that were looked at.
    pub scanned: BasePages,
}

impl Compacted {
    /// Adds what a further compaction did.
    pub fn add(&mut self, other: Self) {
        self.made |= other.made;
        self.copied += other.copied;
        self.futile += other.futile;
        self.huge += other.huge;
        self.futile_huge += other.futile_huge;
        self.scanned += other.scanned;
    }
}

/// Why a range was not emptied.
enum Stuck {
    /// Something in it cannot be moved.
    Unmovable,
    /// There is no room elsewhere.
    Full,
    /// There is no room elsewhere for a huge page that is in it.
    Scattered,
}

/// How many chunks the smart compaction tries to empty. So many as in the scripts published with
/// the paper (github.com/csl-iisc/Trident-MICRO21-artifact, `smart_compaction_retries`).
const SOURCES: u32 = 5;

impl Physical {
    /// Moves pages until a chunk of this size is free, or says that it cannot.
    pub fn compact(
        &mut self,
        size: PageSize,
        kind: Compaction,
        mover: &mut dyn Mover,
    ) -> Compacted {
        let mut done = Compacted::default();
        match kind {
            Compaction::Sequential => self.compact_sequentially(size, mover, &mut done),
            Compaction::Smart => self.compact_smartly(size, mover, &mut done),
        }
        done
    }

    /// From the source pointer up, chunk by chunk; what is moved goes to the top of memory.
    ///
    /// It looks ahead no further than its scanner, which goes by blocks of 2 MiB
    /// (`isolate_migratepages()` in mm/compaction.c): where something in a block cannot be moved it
    /// goes on with the next block, though the chunk cannot become free any more (Trident, section
    /// 5.1: all copying for such a range is wasted).
    fn compact_sequentially(
        &mut self,
        size: PageSize,
        mover: &mut dyn Mover,
        done: &mut Compacted,
    ) {
        let length = size.base_pages().0;
        let start = self.sequential.source.0 / length;
        let count = self.frames / length;
        for at in start..count {
            let range = Frame(at * length)..Frame((at + 1) * length);
            self.sequential.source = range.end;
            match self.empty_block_by_block(range, done, mover) {
                Ok(()) => {
                    done.made = true;
                    return;
                }
                // Linux goes on where it cannot move a huge page, as it does at unmovable ones.
                Err(Stuck::Unmovable | Stuck::Scattered) => {}
                Err(Stuck::Full) => break,
            }
        }
        // The pointers have met: the next one begins at the bottom again.
        self.sequential = Pointers::default();
    }

    /// Moves what can be moved out of `range`, to the top of memory, in one block after the other.
    fn empty_block_by_block(
        &mut self,
        range: Range<Frame>,
        done: &mut Compacted,
        mover: &mut dyn Mover,
    ) -> Result<(), Stuck> {
        let (copied, huge) = (done.copied, done.huge);
        let mut result = Ok(());
        for start in (range.start.0..range.end.0).step_by(index(BLOCK)) {
            let block = Frame(start)..Frame(start + BLOCK);
            let emptied = self.empty(block, done, mover, &mut |physical, size| {
                let frame = physical.buddy.take(size.order(), End::Top)?;
                if frame < range.end {
                    physical.buddy.give(frame, size.order());
                    return None;
                }
                Some(frame)
            });
            match emptied {
                Ok(()) => {}
                Err(Stuck::Full) => {
                    result = Err(Stuck::Full);
                    break;
                }
                Err(stuck) => result = Err(stuck),
            }
        }
        if result.is_err() {
            done.futile += done.copied - copied;
            done.futile_huge += done.huge - huge;
        }
        result
    }

    /// The emptiest movable chunk into the fullest ones.
    fn compact_smartly(&mut self, size: PageSize, mover: &mut dyn Mover, done: &mut Compacted) {
        let mut tried = Vec::new();
        for _ in 0..SOURCES {
            let Some(source) = self.source(&tried) else { return };
            let chunk = Frame(source as u64 * CHUNK)
                ..Frame((source as u64 + 1) * CHUNK).min(Frame(self.frames));
            let Some(range) = self.part_to_empty(chunk, size) else { return };
            let mut targets = Targets { chunks: smart_targets(&self.chunks, source), at: [0; 2] };
            let (copied, huge) = (done.copied, done.huge);
            let result =
                self.empty(range, done, mover, &mut |physical, size| targets.take(physical, size));
            let Err(stuck) = result else {
                done.made = true;
                return;
            };
            done.futile += done.copied - copied;
            done.futile_huge += done.huge - huge;
            match stuck {
                Stuck::Full => return,
                Stuck::Unmovable | Stuck::Scattered => tried.push(source),
            }
        }
    }

    /// The chunk to empty next, but for those that were tried.
    fn source(&self, tried: &[usize]) -> Option<usize> {
        let mut chunks = self.chunks.clone();
        for chunk in tried {
            chunks[*chunk].unmovable += BasePages(1);
        }
        smart_source(&chunks, BasePages(CHUNK))
    }

    /// The whole chunk for a gigantic page; for a huge page the block in it with least to move.
    fn part_to_empty(&self, chunk: Range<Frame>, size: PageSize) -> Option<Range<Frame>> {
        match size {
            PageSize::Gigantic => (chunk.end.0 - chunk.start.0 == CHUNK).then_some(chunk),
            PageSize::Base => None,
            PageSize::Huge => {
                let blocks = chunk.start.0 / BLOCK..chunk.end.0 / BLOCK;
                let used = |block: &u64| {
                    let frames = block * BLOCK..(block + 1) * BLOCK;
                    frames.filter(|frame| self.owner(Frame(*frame)).is_some()).count()
                };
                let block = blocks.filter(|block| used(block) > 0).min_by_key(used)?;
                Some(Frame(block * BLOCK)..Frame((block + 1) * BLOCK))
            }
        }
    }

    /// Moves everything in `range` to where `target` says.
    fn empty(
        &mut self,
        range: Range<Frame>,
        done: &mut Compacted,
        mover: &mut dyn Mover,
        target: &mut dyn FnMut(&mut Self, PageSize) -> Option<Frame>,
    ) -> Result<(), Stuck> {
        let mut copied = BasePages::ZERO;
        let mut at = range.start;
        let mut result = Ok(());
        while at < range.end {
            let step = match self.next_used(at, range.end) {
                Used::Nothing => break,
                Used::Movable(frame, size, owner) => {
                    self.move_page(frame, size, owner, mover, target).map(|()| {
                        copied += size.base_pages();
                        done.huge += u64::from(size == PageSize::Huge);
                        at = frame.offset(size.base_pages().0);
                    })
                }
                Used::Stuck => Err(Stuck::Unmovable),
            };
            if let Err(stuck) = step {
                result = Err(stuck);
                break;
            }
        }
        // The first frame of the range is always looked at.
        done.scanned += BasePages((at.0 - range.start.0).max(1));
        done.copied += copied;
        result
    }

    /// The first used page at or after `from`.
    fn next_used(&self, from: Frame, end: Frame) -> Used {
        let mut at = from;
        while at < end {
            let owner = self.owner(at);
            if owner.is_none()
                && let Some((start, order)) = self.buddy.chunk_of(at)
            {
                at = start.offset(1 << order);
                continue;
            }
            return match owner {
                None => Used::Nothing,
                Some(Owner::Unmovable | Owner::Gigantic(..)) => Used::Stuck,
                Some(owner) if self.is_whole(at) => {
                    // A range smaller than a huge page never cuts one: ranges are whole blocks.
                    Used::Movable(at.huge_floor(), PageSize::Huge, owner)
                }
                Some(owner) => Used::Movable(at, PageSize::Base, owner),
            };
        }
        Used::Nothing
    }

    fn move_page(
        &mut self,
        from: Frame,
        size: PageSize,
        owner: Owner,
        mover: &mut dyn Mover,
        target: &mut dyn FnMut(&mut Self, PageSize) -> Option<Frame>,
    ) -> Result<(), Stuck> {
        let stuck = if size == PageSize::Base { Stuck::Full } else { Stuck::Scattered };
        let to = target(self, size).ok_or(stuck)?;
        self.settle(to, size, owner);
        self.give(from, size);
        mover.moved(owner, from, to, size);
        Ok(())
    }

    /// Whether the frame's block belongs to one owner as a huge page.
    pub(crate) fn is_whole(&self, frame: Frame) -> bool {
        matches!(&self.blocks[index(frame.0 / BLOCK)], super::Block::Whole(packed) if packed.owner().is_some())
    }
}

/// What lies next in a range.
enum Used {
    Nothing,
    Movable(Frame, PageSize, Owner),
    Stuck,
}

/// Chunks to fill, the fullest first; for base and for huge pages how far it has come.
struct Targets {
    chunks: Vec<usize>,
    at: [usize; 2],
}

impl Targets {
    fn take(&mut self, physical: &mut Physical, size: PageSize) -> Option<Frame> {
        let at = &mut self.at[size.index().min(1)];
        while let Some(chunk) = self.chunks.get(*at) {
            let start = Frame(*chunk as u64 * CHUNK);
            let range = start..start.offset(CHUNK).min(Frame(physical.frames));
            if let Some(frame) = physical.buddy.take_in(size.order(), range) {
                return Some(frame);
            }
            *at += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::{Bytes, ProcessKey, VirtAddr};

    /// Moves need not be followed here.
    struct Nobody;

    impl Mover for Nobody {
        fn moved(&mut self, _: Owner, _: Frame, _: Frame, _: PageSize) {}
    }

    /// 3 GiB without a free huge frame: a huge page and few base pages in the first chunk, more
    /// base pages in the others.
    fn scattered() -> Physical {
        let mut physical = Physical::new(Bytes::from_gib(3));
        let owner = Owner::Process(ProcessKey(1), VirtAddr(1 << 30));
        let huge = physical.take(PageSize::Huge, owner).map(|taken| taken.frame);
        assert_eq!(huge, Some(Frame(0)));
        for block in 1..physical.frames / BLOCK {
            for page in 0..if block < CHUNK / BLOCK { 1 } else { 3 } {
                let frame = Frame(block * BLOCK + page);
                assert!(physical.buddy.take_at(frame, 0));
                physical.settle(frame, PageSize::Base, owner);
            }
        }
        physical
    }

    #[test]
    fn a_huge_page_that_nothing_else_holds_is_passed_over() {
        // A base page in each block of the first chunk but the one with the huge page is moved for
        // nothing by the scanner, which learns only there that the chunk cannot be emptied.
        let (first, second) = (CHUNK / BLOCK - 1, 3 * CHUNK / BLOCK);
        for (kind, futile) in [(Compaction::Sequential, first), (Compaction::Smart, 0)] {
            let mut physical = scattered();
            let done = physical.compact(PageSize::Gigantic, kind, &mut Nobody);
            assert!(done.made, "{kind:?}");
            assert_eq!((done.copied, done.futile), (BasePages(second + futile), BasePages(futile)));
            assert_eq!(done.huge, 0, "no huge page had to be moved");
            assert_eq!(physical.chunks()[1].free, BasePages(CHUNK));
            physical.check();
        }
    }

    /// The scanner goes on behind a page that cannot be moved; by the counters such a chunk is not
    /// even tried.
    #[test]
    fn an_unmovable_page_wastes_the_copying_of_its_whole_chunk() {
        let owner = Owner::Process(ProcessKey(1), VirtAddr(1 << 30));
        for (kind, futile) in [(Compaction::Sequential, 1), (Compaction::Smart, 0)] {
            let mut physical = Physical::new(Bytes::from_gib(3));
            for (frame, owner) in [(0, Owner::Unmovable), (BLOCK, owner), (CHUNK, owner)] {
                assert!(physical.buddy.take_at(Frame(frame), 0));
                physical.settle(Frame(frame), PageSize::Base, owner);
            }
            let done = physical.compact(PageSize::Gigantic, kind, &mut Nobody);
            assert!(done.made, "{kind:?}");
            assert_eq!((done.copied, done.futile), (BasePages(1 + futile), BasePages(futile)));
            assert_eq!(physical.chunks()[1].free, BasePages(CHUNK));
            physical.check();
        }
    }
}
