//! Serialized graphs of GAPBS, with weights (`.wsg`) and without (`.sg`): what `WriteSerializedGraph` in its `writer.h`
//! writes (<https://github.com/sbeamer/gapbs>). All numbers have a sign and the least byte first, and lie one after the
//! other without gaps:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | 1 where the graph is directed, else 0 |
//! | 8 | edges in the edge array: an undirected edge counts twice |
//! | 8 | vertices |
//! | 8 for each vertex, and 8 | where the neighbors of each vertex begin |
//! | 4 for each edge; 8 in a `.wsg` file | neighbors; in a `.wsg` file, each with its weight behind it |
//! | as many again, if directed | the same of the edges backwards |
//!
//! A thread reads pieces into buffers of 4 MiB, and the pool decodes them into the arrays. The reader checks sizes, offsets,
//! vertices and weights, and that neighbors are ascending, each there once. It does not check that the edges backwards are
//! those forwards, nor that an undirected edge is there both ways.

use super::output::Output;
use super::{Format, ReadOptions};
use crate::build::{self, BLOCK, Direction, Kept, Way};
use crate::direct::{DirectFile, PIECE, PageCache, pieces};
use crate::error::{Error, Result};
use crate::graph::{Adjacency, Graph, GraphPages, MOST_VERTICES, Vertex, Weight};
use crate::need::{self, Need, Size};
use crate::progress::Progress;
use crate::width::to_usize;
use std::ops::Range;
use std::path::Path;
use superpage_array::PageArray;
use superpage_units::Bytes;

/// The bytes before the first vertex array.
const HEAD: u64 = 17;
const OFFSET: u64 = size_of::<u64>() as u64;
const NEIGHBOR: u64 = size_of::<Vertex>() as u64;
const WEIGHTED_NEIGHBOR: u64 = NEIGHBOR + size_of::<Weight>() as u64;
const _: () = assert!(PIECE.is_multiple_of(OFFSET), "a piece has whole numbers");

/// Reads a graph. Where the caller wants another direction than the file has, another graph is built of the file's.
pub(super) fn read(
    path: &Path,
    format: Format,
    options: ReadOptions,
    progress: &Progress,
) -> Result<Graph> {
    let file = DirectFile::open(path, options.page_cache)?;
    let head = Head::read(&file, format)?;
    head.check_length(&file, format)?;
    let Head { vertices, edges, .. } = head;
    let is_weighted = format == Format::WeightedSerialized;
    let need = Need {
        size: Size { vertices, edges, is_weighted },
        rows: head.copies().into(),
        is_exact: true,
        made: 0,
        making: Bytes::ZERO,
        longest: 0,
        buffers: file.buffers(),
        beside: options.beside,
    };
    need.check(&need::room())?;
    progress.begin(file.length());
    let reader = Reader { file: &file, head, format, pages: options.pages, progress };
    let outgoing = reader.adjacency(HEAD)?;
    let graph = match head.direction {
        Direction::Undirected => Graph::undirected(outgoing),
        Direction::Directed => {
            let incoming = reader.adjacency(HEAD + (file.length() - HEAD) / 2)?;
            Graph::directed(outgoing, incoming).map_err(|what| broken(&file, what))?
        }
    };
    file.check_unchanged()?;
    match options.direction {
        Some(wanted) if wanted != head.direction => {
            let edges = Kept(graph.outgoing(), Way::Forwards);
            let (other, _) =
                build::graph_beside(&edges, wanted, options.pages, options.beside, progress)?;
            Ok(other)
        }
        _ => Ok(graph),
    }
}

/// The number of vertices that a file says.
pub(super) fn vertices(path: &Path, format: Format) -> Result<u64> {
    let file = DirectFile::open(path, PageCache::Avoided)?;
    let head = Head::read(&file, format)?;
    head.check_length(&file, format)?;
    Ok(head.vertices)
}

fn broken(file: &DirectFile, what: String) -> Error {
    Error::Broken { path: file.path().to_owned(), what }
}

/// The header of a file.
#[derive(Clone, Copy, Debug)]
struct Head {
    direction: Direction,
    edges: u64,
    vertices: u64,
}

impl Head {
    fn read(file: &DirectFile, format: Format) -> Result<Self> {
        let length = file.length();
        if length < HEAD {
            let ending = format.ending();
            let what =
                format!("it has {length} bytes, and the head of a {ending} file alone has {HEAD}");
            return Err(broken(file, what));
        }
        let (first, numbers) = file.with(0..HEAD, |bytes| {
            let numbers = bytes[1..].as_chunks().0;
            (bytes[0], [0, 1].map(|at: usize| i64::from_le_bytes(numbers[at])))
        })?;
        let direction = match first {
            0 => Direction::Undirected,
            1 => Direction::Directed,
            _ => {
                let what = "should be 0 (undirected) or 1 (directed)";
                return Err(broken(file, format!("its first byte is {first}, and {what}")));
            }
        };
        let count = |number: i64, of: &str| {
            let what = || format!("it says that it has {number} {of}");
            u64::try_from(number).map_err(|_| broken(file, what()))
        };
        let (edges, vertices) = (count(numbers[0], "edges")?, count(numbers[1], "vertices")?);
        if vertices > MOST_VERTICES {
            return Err(Error::TooManyVertices { found: vertices });
        }
        Ok(Self { direction, edges, vertices })
    }

    /// Fails where the file has not as many bytes as its head says.
    fn check_length(&self, file: &DirectFile, format: Format) -> Result<()> {
        let (width, copies) = (u128::from(neighbor_bytes(format)), u128::from(self.copies()));
        let each =
            (u128::from(self.vertices) + 1) * u128::from(OFFSET) + u128::from(self.edges) * width;
        let (length, needed) = (file.length(), u128::from(HEAD) + copies * each);
        if u128::from(length) == needed {
            return Ok(());
        }
        let Self { vertices, edges, direction } = self;
        let direction =
            if *direction == Direction::Directed { "a directed" } else { "an undirected" };
        let what = format!(
            "it has {length} bytes, and {direction} {} file of {vertices} vertices and {edges} edges has {needed}",
            format.ending()
        );
        Err(broken(file, what))
    }

    /// The number of adjacencies in the file.
    fn copies(&self) -> u8 {
        match self.direction {
            Direction::Undirected => 1,
            Direction::Directed => 2,
        }
    }
}

/// The bytes that a file has for each neighbor.
fn neighbor_bytes(format: Format) -> u64 {
    if format == Format::WeightedSerialized { WEIGHTED_NEIGHBOR } else { NEIGHBOR }
}

/// A file that is being read.
struct Reader<'a> {
    file: &'a DirectFile,
    head: Head,
    format: Format,
    pages: GraphPages,
    progress: &'a Progress,
}

impl Reader<'_> {
    /// The adjacency that begins at a byte of the file.
    fn adjacency(&self, begin: u64) -> Result<Adjacency> {
        let (vertices, edges) = (to_usize(self.head.vertices), to_usize(self.head.edges));
        let mut offsets = PageArray::<u64>::zeroed(vertices + 1, self.pages.vertex)?;
        let all = begin..begin + offsets.size().0;
        self.fill(all.clone(), offsets.chunks_mut(room(OFFSET)), decode_offsets)?;
        let all = all.end..all.end + self.head.edges * neighbor_bytes(self.format);
        let mut neighbors = PageArray::<Vertex>::zeroed(edges, self.pages.edge)?;
        let weights = if self.format == Format::WeightedSerialized {
            let mut weights = PageArray::<Weight>::zeroed(edges, self.pages.values)?;
            let room = room(WEIGHTED_NEIGHBOR);
            self.fill(
                all,
                neighbors.chunks_mut(room).zip(weights.chunks_mut(room)),
                decode_weighted,
            )?;
            Some(weights)
        } else {
            self.fill(all, neighbors.chunks_mut(room(NEIGHBOR)), decode_neighbors)?;
            None
        };
        Adjacency::new(offsets, neighbors, weights).map_err(|what| broken(self.file, what))
    }

    /// Decodes the bytes of a range into places, each of which takes a piece of it.
    fn fill<T: Send>(
        &self,
        range: Range<u64>,
        places: impl Iterator<Item = T> + Send,
        decode: fn(&[u8], T) -> std::result::Result<(), String>,
    ) -> Result<()> {
        self.file.each(places.zip(pieces(range, PIECE)), |place, bytes| {
            self.progress.add(bytes.len() as u64);
            decode(bytes, place).map_err(|what| broken(self.file, what))
        })
    }
}

/// The numbers of `width` bytes in a piece.
const fn room(width: u64) -> usize {
    to_usize(PIECE / width)
}

/// Decodes offsets; a negative one becomes too large, and [`Adjacency::new`] refuses it.
fn decode_offsets(bytes: &[u8], offsets: &mut [u64]) -> std::result::Result<(), String> {
    for (place, offset) in offsets.iter_mut().zip(bytes.as_chunks().0) {
        *place = u64::from_le_bytes(*offset);
    }
    Ok(())
}

fn decode_neighbors(bytes: &[u8], neighbors: &mut [Vertex]) -> std::result::Result<(), String> {
    // The sign of any of them is that of all: a loop without branches.
    let mut all = 0;
    for (place, neighbor) in neighbors.iter_mut().zip(bytes.as_chunks().0) {
        *place = u32::from_le_bytes(*neighbor);
        all |= *place;
    }
    check_signs(all, neighbors, "the number of a neighbor")
}

fn decode_weighted(
    bytes: &[u8],
    (neighbors, weights): (&mut [Vertex], &mut [Weight]),
) -> std::result::Result<(), String> {
    let (mut all, mut all_weights) = (0, 0);
    for (at, pair) in bytes.as_chunks::<{ to_usize(WEIGHTED_NEIGHBOR) }>().0.iter().enumerate() {
        let [a, b, c, d, weight @ ..] = *pair;
        (neighbors[at], weights[at]) =
            (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(weight));
        all |= neighbors[at];
        all_weights |= weights[at];
    }
    check_signs(all, neighbors, "the number of a neighbor")?;
    check_signs(all_weights, weights, "the weight of an edge")
}

/// Fails where `all`, the bits of all numbers, has a sign; one of the numbers is named then.
fn check_signs(all: u32, numbers: &[u32], of: &str) -> std::result::Result<(), String> {
    let is_negative = |number: &i32| *number < 0;
    if all.cast_signed() >= 0 {
        return Ok(());
    }
    let found =
        numbers.iter().map(|number| number.cast_signed()).find(is_negative).unwrap_or_default();
    Err(format!("{of} is negative: {found}"))
}

/// Writes a graph. A graph of more vertices than numbers with a sign have is refused.
pub(super) fn write(
    graph: &Graph,
    format: Format,
    output: &mut Output,
    progress: &Progress,
) -> Result<()> {
    const MOST: u64 = 1 << 31;
    let vertices = graph.vertices() as u64;
    if vertices > MOST {
        let what = format!(
            "{vertices} vertices are more than a {} file can have ({MOST})",
            format.ending()
        );
        return Err(Error::Usage(what));
    }
    let incoming = graph.is_directed().then(|| graph.incoming());
    let adjacencies: Vec<&Adjacency> = [graph.outgoing()].into_iter().chain(incoming).collect();
    progress.begin(graph.edges() * adjacencies.len() as u64);
    output.bytes(&[u8::from(graph.is_directed())])?;
    output.bytes(&graph.edges().to_le_bytes())?;
    output.bytes(&vertices.to_le_bytes())?;
    adjacencies
        .into_iter()
        .try_for_each(|adjacency| write_adjacency(adjacency, format, output, progress))
}

fn write_adjacency(
    adjacency: &Adjacency,
    format: Format,
    output: &mut Output,
    progress: &Progress,
) -> Result<()> {
    for offset in adjacency.offsets() {
        output.bytes(&offset.to_le_bytes())?;
    }
    let weights = adjacency
        .all_weights()
        .filter(|_| format == Format::WeightedSerialized)
        .unwrap_or_default();
    for (at, neighbors) in adjacency.all_neighbors().chunks(BLOCK).enumerate() {
        let weights = weights.get(at * BLOCK..).unwrap_or_default();
        for (at, neighbor) in neighbors.iter().enumerate() {
            output.bytes(&neighbor.to_le_bytes())?;
            if let Some(weight) = weights.get(at) {
                output.bytes(&weight.to_le_bytes())?;
            }
        }
        progress.add(neighbors.len() as u64);
    }
    Ok(())
}
