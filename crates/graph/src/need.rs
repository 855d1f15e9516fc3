//! The memory that making a graph takes at its peak, counted before it is taken: all arrays of the graph, what building them
//! takes beside them, the buffers of the file, and what the caller takes afterwards.
//!
//! How many edges are left once duplicates are gone is known only when they are gone. So there are two counts: what is
//! taken in any case decides, and is counted again with the right number of edges before the second adjacency is made and when
//! the graph is there; what is taken where no edge is there twice is what an error says.

use crate::error::{Error, Result};
use crate::graph::{Vertex, Weight};
use std::path::Path;
use superpage_kernel::own_room::{self, Limit, Room};
use superpage_units::{BASE_PAGE_BYTES, Bytes};

/// Memory that a caller takes beside a graph that has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Copies of the graph's arrays.
    pub copies: u64,
    /// Memory for each vertex.
    pub per_vertex: Bytes,
    /// Memory for each entry of the edge array.
    pub per_edge: Bytes,
}

/// The arrays of an adjacency before they are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) vertices: u64,
    pub(crate) edges: u64,
    pub(crate) is_weighted: bool,
}

impl Size {
    fn arrays(self) -> u64 {
        let each = size_of::<Vertex>() + if self.is_weighted { size_of::<Weight>() } else { 0 };
        let offsets = (self.vertices + 1) * size_of::<u64>() as u64;
        self.edges.saturating_mul(each as u64).saturating_add(offsets)
    }
}

/// What each thread has on its stack and in blocks of edges, and what there is once, such as the buffer of a file that is
/// written. Chosen: about 1 MiB beside the arrays was measured on two threads.
const OF_A_THREAD: u64 = 1 << 18;
const ONCE: u64 = 2 << 20;

/// The memory that making a graph takes from here on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// The size of each adjacency.
    pub(crate) size: Size,
    /// Whether duplicates are gone, so that all adjacencies have so many edges; else these are as many as the source gives.
    pub(crate) is_exact: bool,
    /// The adjacencies that the graph has in the end.
    pub(crate) rows: u64,
    /// The adjacencies that are made.
    pub(crate) made: u64,
    /// The memory for each vertex that making an adjacency takes beside the adjacency.
    pub(crate) making: Bytes,
    /// The most neighbors of a vertex, which are sorted in a copy where they have weights.
    pub(crate) longest: u64,
    pub(crate) buffers: Bytes,
    /// What the caller takes afterwards, first the one, and then the other.
    pub(crate) beside: [Beside; 2],
}

impl Need {
    /// Fails where there is less room than is taken in any case.
    pub(crate) fn check(self, room: &Room) -> Result<()> {
        let Size { vertices, edges, .. } = self.size;
        let certain = self.certain();
        if certain <= room.left {
            return Ok(());
        }
        let (needed, available) = (certain.max(self.with(edges)), room.left);
        Err(Error::TooLarge { vertices, edges, needed, available, under: room.under.clone() })
    }

    /// The memory that is taken, however many of the edges of the source are duplicates.
    fn certain(self) -> Bytes {
        if self.is_exact {
            return self.with(self.size.edges);
        }
        let first = Self { rows: 1, beside: [Beside::default(); 2], ..self };
        self.with(0).max(first.with(self.size.edges))
    }

    /// The memory that is taken where adjacencies have this number of edges.
    fn with(self, edges: u64) -> Bytes {
        let size = Size { edges, ..self.size };
        let left = self.rows - self.made;
        // The buffers are gone before the caller takes anything.
        let making = if left > 0 { self.making(edges) } else { 0 };
        let beside = self.beside.map(|beside| self.taken(beside, size));
        let arrays = left.saturating_mul(size.arrays());
        let most = beside.into_iter().fold(making, u64::max);
        let small = ONCE + OF_A_THREAD * rayon::current_num_threads() as u64;
        let all = arrays.saturating_add(most).saturating_add(small);
        // Page tables count as well: each base page has an entry in one.
        let entries = all.div_ceil(BASE_PAGE_BYTES).saturating_mul(size_of::<u64>() as u64);
        Bytes(all.saturating_add(entries))
    }

    fn making(self, edges: u64) -> u64 {
        let counters = self.size.vertices.saturating_mul(self.making.0);
        counters.saturating_add(self.sorted(edges)).saturating_add(self.buffers.0)
    }

    /// The copies in which threads sort neighbors with their weights.
    fn sorted(self, edges: u64) -> u64 {
        let copied = (rayon::current_num_threads() as u64).saturating_mul(self.longest).min(edges);
        let each = if self.size.is_weighted { size_of::<(Vertex, Weight)>() as u64 } else { 0 };
        copied.saturating_mul(each)
    }

    fn taken(self, beside: Beside, size: Size) -> u64 {
        let Beside { copies, per_vertex, per_edge } = beside;
        let sorted = if copies > 0 { self.sorted(size.edges) } else { 0 };
        let copies = (copies * self.rows).saturating_mul(size.arrays()).saturating_add(sorted);
        let vertices = size.vertices.saturating_mul(per_vertex.0);
        copies.saturating_add(vertices).saturating_add(size.edges.saturating_mul(per_edge.0))
    }
}

/// The memory that can be had now; without `/proc` the kernel is asked for the memory itself.
pub(crate) fn room() -> Room {
    let unknown = Room { left: Bytes(u64::MAX), under: Limit::Machine };
    own_room::now(Path::new("/")).unwrap_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_taken_in_any_case_is_what_any_number_of_duplicates_leaves(
            vertices in 0..1000_u64,
            given in 0..10_000_u64,
            left in 0.0..1.0_f64,
            rows in 1..3_u64,
            copies in 0..2_u64,
            is_weighted: bool,
        ) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a few")]
            let kept = (given as f64 * left) as u64;
            let size = Size { vertices, edges: given, is_weighted };
            let beside = Beside { copies, per_vertex: Bytes(12), per_edge: Bytes(4) };
            let need = Need {
                size, is_exact: false, rows, made: 0, making: Bytes(8), longest: 9, buffers: Bytes(100), beside: [Beside::default(), beside],
            };
            let each = if is_weighted { 8 } else { 4 };
            let arrays = |edges: u64| 8 * (vertices + 1) + each * edges;
            // One after the other, as the builder makes them: the first with all that is given, then the rest.
            let first = arrays(given) + 8 * vertices;
            let second = if rows == 2 { 2 * arrays(kept) + 8 * vertices } else { 0 };
            let sorted = if copies > 0 { need.sorted(kept) } else { 0 };
            let after = rows * arrays(kept) * (1 + copies) + 12 * vertices + 4 * kept + sorted;
            let small = ONCE + OF_A_THREAD * rayon::current_num_threads() as u64;
            let tables = |all: u64| all + small + 8 * (all + small).div_ceil(BASE_PAGE_BYTES);
            let peak = tables((100 + first.max(second)).max(after));
            prop_assert!(need.certain().0 <= peak + 16 * 9 * rayon::current_num_threads() as u64);
            prop_assert!(need.with(given).0 >= peak);
            let rest = Need { size: Size { edges: kept, ..size }, is_exact: true, made: rows, ..need };
            prop_assert_eq!(rest.certain().0, tables(after - rows * arrays(kept)));
        }

        #[test]
        fn no_numbers_are_too_large_to_count(vertices: u32, edges: u64, rows in 1..3_u64) {
            let size = Size { vertices: vertices.into(), edges, is_weighted: true };
            let beside = Beside { copies: 1, per_vertex: Bytes(40), per_edge: Bytes(40) };
            let need = Need {
                size, is_exact: false, rows, made: 0, making: Bytes(8), longest: edges, buffers: Bytes(1 << 40), beside: [beside; 2],
            };
            prop_assert!(need.certain() <= need.with(edges));
        }
    }
}
