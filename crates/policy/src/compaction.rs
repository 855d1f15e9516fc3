//! Compaction: which range of frames to empty, and where to put what was in it.
//!
//! Only the choice is here; moving pages is the machine's business. Physical memory is seen as
//! chunks of equal size (1 GiB in Trident), each with two counters (Trident, section 5.1.3):
//! free frames and unmovable frames.
//!
//! | kind | source | target |
//! |---|---|---|
//! | [`Compaction::Sequential`] (Linux) | frames from the bottom up, from where the last one stopped | free frames from the top down |
//! | [`Compaction::Smart`] (Trident) | the chunk with most free and no unmovable frames | the fullest chunk with room, then the next fullest |

use crate::free_memory::FreeMemory;
use alloc::vec::Vec;
use superpage_units::{BasePages, PageSize};

/// How to make contiguous free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// As Linux does: move pages from the bottom of memory to its top, whatever they cost.
    Sequential,
    /// As Trident does: empty what is cheapest to empty.
    Smart,
}

impl Compaction {
    /// Whether trying is worth it, for a page of `size`.
    ///
    /// Linux's is not while free memory is not above the `low` watermark by twice the size wanted:
    /// there is nowhere to move pages to (`compaction_suitable()` and `compact_gap()` in
    /// mm/compaction.c). So it is in every policy that is a changed Linux.
    #[must_use]
    pub fn is_suitable(self, size: PageSize, free_memory: &FreeMemory, low: BasePages) -> bool {
        match self {
            Self::Sequential => free_memory.free() >= low + size.base_pages() * 2,
            Self::Smart => true,
        }
    }
}

/// The counters of one chunk of physical memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// Free frames.
    pub free: BasePages,
    /// Frames that cannot be moved: the kernel's own.
    pub unmovable: BasePages,
}

/// The chunk that smart compaction empties: of those without unmovable frames and with something
/// to move, the one with most free frames; the lowest of several.
///
/// `size` is the frames in a chunk. A chunk that is wholly free needs no emptying.
#[must_use]
pub fn smart_source(chunks: &[ChunkCounts], size: BasePages) -> Option<usize> {
    chunks
        .iter()
        .enumerate()
        .filter(|(_, chunk)| chunk.unmovable.is_zero() && chunk.free < size)
        .max_by_key(|(index, chunk)| (chunk.free, core::cmp::Reverse(*index)))
        .map(|(index, _)| index)
}

/// The chunks that smart compaction fills, one after the other: those with a free frame that are
/// not `source`, the fullest first; of equal ones the lowest.
#[must_use]
pub fn smart_targets(chunks: &[ChunkCounts], source: usize) -> Vec<usize> {
    let has_room = |index: &usize| {
        *index != source && chunks.get(*index).is_some_and(|chunk| !chunk.free.is_zero())
    };
    let mut targets: Vec<usize> = (0..chunks.len()).filter(has_room).collect();
    targets.sort_by_key(|index| (chunks.get(*index).map(|chunk| chunk.free), *index));
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(free: u64, unmovable: u64) -> ChunkCounts {
        ChunkCounts { free: BasePages(free), unmovable: BasePages(unmovable) }
    }

    /// Trident's Figure 6 (b) in small: the emptiest movable chunk goes into the fullest.
    #[test]
    fn the_emptiest_movable_chunk_goes_into_the_fullest() {
        let chunks =
            [chunk(10, 0), chunk(90, 1), chunk(80, 0), chunk(3, 0), chunk(100, 0), chunk(0, 0)];
        assert_eq!(smart_source(&chunks, BasePages(100)), Some(2));
        assert_eq!(smart_targets(&chunks, 2), [3, 0, 1, 4]);
    }

    #[test]
    fn linux_compacts_only_with_room_above_the_watermark() {
        let low = BasePages(100);
        for (free, expected) in [(100 + 1024, true), (100 + 1023, false)] {
            let mut free_memory = FreeMemory { total: BasePages(10_000), ..FreeMemory::NONE };
            free_memory.chunks[0] = free;
            let of = |kind: Compaction| kind.is_suitable(PageSize::Huge, &free_memory, low);
            assert_eq!(of(Compaction::Sequential), expected);
            assert!(of(Compaction::Smart));
        }
    }

    #[test]
    fn nothing_to_choose() {
        assert_eq!(smart_source(&[chunk(100, 0), chunk(5, 2)], BasePages(100)), None);
        assert_eq!(smart_targets(&[chunk(0, 0), chunk(7, 0)], 1), []);
        assert_eq!(smart_targets(&[chunk(4, 0), chunk(4, 0), chunk(9, 0)], 2), [0, 1]);
    }
}
