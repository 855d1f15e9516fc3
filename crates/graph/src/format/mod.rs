//! Graphs in files: which format a file has, reading it into arrays on chosen pages, and writing it.
//!
//! | ending | what | weights | direction, unless the caller says |
//! |---|---|---|---|
//! | `.el`, `.txt` | an edge on each line; comments begin with `#` or `%`, as in SNAP's files | no | directed |
//! | `.wel` | the same, with a weight behind each edge | yes | directed |
//! | `.mtx` | a Matrix Market matrix in coordinates | yes, unless it is a `pattern` | undirected, unless `general` |
//! | `.sg` | GAPBS's serialized graph | no | as the file says |
//! | `.wsg` | the same, with weights | yes | as the file says |
//!
//! Vertices are numbered from 0, in `.mtx` files from 1. Weights are whole numbers from 0 to 2147483647, also where they
//! are written as real numbers (`3.0`); a file with others is read where weights do not matter ([`Weights`]). An edge list
//! has no word for vertices without edges: it has as many vertices as its largest number says.
//!
//! The fields of a line of text are separated by blanks, or by a comma or a semicolon. All lines of an edge list have as many
//! fields as the first: behind what the format names there may be numbers, as in lists of SNAP and KONECT that have a weight
//! or a time, but not more than four fields in all. These numbers are not kept ([`Read::unread_columns`]). What follows
//! `#`, `%` or `{` is not read. A first line that names columns, names instead of numbers, a byte order mark, UTF-16 and
//! compressed files are refused.
//!
//! Of an edge that is there several times in a text file the least weight is kept ([`crate::build`], [`Read::duplicates`]).
//! An edge from a vertex to itself is an edge; GAP's own reader leaves it out. Serialized graphs are taken as they are.
//!
//! Text is read twice, and nothing but the graph is kept. All files are read past the page cache, by a thread that does
//! little but wait for the disk; the threads of the caller's pool decode what it has read.

mod first_lines;
mod line;
mod matrix_market;
mod output;
mod serialized;
mod text;

use crate::build::{self, Direction};
use crate::direct::PageCache;
use crate::error::{Error, Result};
use crate::graph::{Graph, GraphPages, Weight};
use crate::need::Beside;
use crate::progress::Progress;
use line::{LARGEST_WEIGHT, Layout, Value};
use output::Output;
use rayon::prelude::*;
use std::path::Path;
use text::TextEdges;

/// The ends of names by which formats are known.
pub const ENDINGS: &str = ".el, .wel, .txt, .mtx, .sg and .wsg";

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Two vertices on each line (`.el`, `.txt`).
    EdgeList,
    /// Two vertices and a weight on each line (`.wel`).
    WeightedEdgeList,
    /// A matrix in coordinates (`.mtx`).
    MatrixMarket,
    /// GAPBS's serialized graph (`.sg`).
    Serialized,
    /// GAPBS's serialized graph with weights (`.wsg`).
    WeightedSerialized,
}

impl Format {
    /// The format of a file, by the end of its name.
    ///
    /// # Errors
    /// [`Error::UnknownFormat`].
    pub fn of(path: &Path) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "el" | "txt" => Ok(Self::EdgeList),
            "wel" => Ok(Self::WeightedEdgeList),
            "mtx" => Ok(Self::MatrixMarket),
            "sg" => Ok(Self::Serialized),
            "wsg" => Ok(Self::WeightedSerialized),
            _ => Err(Error::UnknownFormat { path: path.to_owned() }),
        }
    }

    /// The file name extension, with its dot.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            Self::EdgeList => ".el",
            Self::WeightedEdgeList => ".wel",
            Self::MatrixMarket => ".mtx",
            Self::Serialized => ".sg",
            Self::WeightedSerialized => ".wsg",
        }
    }

    /// The kind of file that needs weights, for the error where a graph has none; `None` if the format does without.
    const fn needs_weights(self) -> Option<&'static str> {
        match self {
            Self::WeightedEdgeList => Some("a .wel file"),
            Self::WeightedSerialized => Some("a .wsg file"),
            Self::EdgeList | Self::MatrixMarket | Self::Serialized => None,
        }
    }
}

/// The use that the caller has for the weights of a text file; serialized graphs are read as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weights {
    /// The graph gets the weights, and a file is refused where they are not whole numbers from 0 on.
    #[default]
    Needed,
    /// The graph gets weights, but nobody looks at them: one that is not whole, or negative, is 0.
    Unseen,
    /// The graph gets no weights.
    Unread,
}

impl Weights {
    /// The use of the number behind two vertices.
    const fn value(self) -> Value {
        match self {
            Self::Needed => Value::Weight,
            Self::Unseen => Value::Unseen,
            Self::Unread => Value::None,
        }
    }
}

/// Options for [`read`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// The direction of edges; with `None` the format decides.
    pub direction: Option<Direction>,
    /// The pages of the graph's arrays.
    pub pages: GraphPages,
    /// The use that reading makes of the page cache.
    pub page_cache: PageCache,
    /// The use of the weights.
    pub weights: Weights,
    /// The memory that the caller takes when the graph is there, first the one, and then the other.
    pub beside: [Beside; 2],
}

/// A graph that was read, and what is not in it.
#[derive(Debug)]
pub struct Read {
    /// The graph.
    pub graph: Graph,
    /// The edges of a text file that were there before, and are there once.
    pub duplicates: u64,
    /// The numbers on each line of an edge list that mean nothing in its format, such as the time of an edge, and one more
    /// where there are attributes in braces.
    pub unread_columns: usize,
}

/// Reads a graph from a file; the end of its name says which format it has.
///
/// # Errors
/// [`Error::UnknownFormat`], [`Error::File`] and [`Error::NoFile`]; [`Error::Malformed`] of text and [`Error::Broken`],
/// where the file is wrong; and the errors of [`build::graph`].
pub fn read(path: &Path, options: ReadOptions, progress: &Progress) -> Result<Read> {
    let list = |layout| -> Result<_> {
        let edges = TextEdges::open(path, options.page_cache, layout)?;
        Ok((edges, Direction::Directed))
    };
    let (edges, direction) = match Format::of(path)? {
        format @ (Format::Serialized | Format::WeightedSerialized) => {
            let graph = serialized::read(path, format, options, progress)?;
            return Ok(Read { graph, duplicates: 0, unread_columns: 0 });
        }
        Format::EdgeList => list(Layout::EDGES)?,
        Format::WeightedEdgeList => {
            list(Layout { value: options.weights.value(), ..Layout::WEIGHTED_EDGES })?
        }
        Format::MatrixMarket => matrix_market::open(path, options)?,
    };
    let direction = options.direction.unwrap_or(direction);
    let (graph, duplicates) =
        build::graph_beside(&edges, direction, options.pages, options.beside, progress)?;
    edges.check_unchanged()?;
    Ok(Read { graph, duplicates, unread_columns: edges.unread })
}

/// The number of vertices, where the format says it at the beginning (`.mtx`, `.sg` and `.wsg`), without reading the
/// graph: for the property array, which may have to come first.
///
/// # Errors
/// As [`read`].
pub fn vertices(path: &Path) -> Result<Option<u64>> {
    match Format::of(path)? {
        format @ (Format::Serialized | Format::WeightedSerialized) => {
            serialized::vertices(path, format).map(Some)
        }
        Format::MatrixMarket => matrix_market::vertices(path).map(Some),
        Format::EdgeList | Format::WeightedEdgeList => Ok(None),
    }
}

/// Writes a graph to a file, which is there when all of it is, and replaces another one only then. A format without
/// weights leaves them out.
///
/// # Errors
/// [`Error::NoWeights`] where the format has weights and the graph has none, [`Error::Usage`] where a number is larger
/// than the format has it, [`Error::File`].
pub fn write(graph: &Graph, path: &Path, format: Format, progress: &Progress) -> Result<()> {
    check_weights(graph, format)?;
    let mut output = Output::create(path)?;
    match format {
        Format::EdgeList => text::write(graph, Value::None, &mut output, progress)?,
        Format::WeightedEdgeList => text::write(graph, Value::Weight, &mut output, progress)?,
        Format::MatrixMarket => matrix_market::write(graph, &mut output, progress)?,
        Format::Serialized | Format::WeightedSerialized => {
            serialized::write(graph, format, &mut output, progress)?;
        }
    }
    output.finish()
}

/// Fails where a graph has not the weights that its file is to have.
fn check_weights(graph: &Graph, format: Format) -> Result<()> {
    match (graph.outgoing().all_weights(), format.needs_weights()) {
        (None, Some(what)) => Err(Error::NoWeights { what }),
        (Some(weights), _) => weights.par_iter().try_for_each(|weight| check_weight(*weight)),
        (None, None) => Ok(()),
    }
}

fn check_weight(weight: Weight) -> Result<()> {
    if weight <= LARGEST_WEIGHT {
        return Ok(());
    }
    Err(Error::Usage(format!("a weight of {weight} is more than files have: {LARGEST_WEIGHT}")))
}
