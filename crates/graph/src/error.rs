//! Errors of this crate.

use std::path::PathBuf;
use superpage_kernel::own_room::Limit;
use superpage_units::Bytes;

/// This crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of reading, building, renumbering or writing a graph.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: could not {what}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operation that failed, as in `open`.
        what: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The path is no regular file.
    #[error("{} is {found}, and a graph is read from a file, twice", path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
        /// The kind of file found there.
        found: &'static str,
    },
    /// A line of a text file does not follow its format.
    #[error("{}:{line}: expected {expected}, found {found:?}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: u64,
        /// The text that the format requires.
        expected: &'static str,
        /// The text of the line or of its wrong field, cut to 40 characters.
        found: String,
    },
    /// A file is wrong as a whole: its length, offsets or number of edges, or it changed while it was read.
    #[error("{}: {what}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The fault, in words.
        what: String,
    },
    /// The extension of a file name belongs to no format.
    #[error(
        "{}: the end of its name is none of {}: convert it to one of these formats, or end its name as its format does",
        path.display(), crate::format::ENDINGS
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// The graph has no weights, and the caller needs some.
    #[error(
        "{what} needs weights, and the graph has none: use a .wel or .wsg file, or an .mtx file with values"
    )]
    NoWeights {
        /// The kernel or file format that needs weights.
        what: &'static str,
    },
    /// An argument is out of its range or has the wrong length.
    #[error("{0}")]
    Usage(String),
    /// The arrays that this crate made are no graph, which is a mistake of its own, or of a source of edges.
    #[error("the arrays of a graph came out wrong: {0}")]
    Inconsistent(String),
    /// More vertices than 32 bits number.
    #[error("{found} vertices are more than there can be ({})", crate::graph::MOST_VERTICES)]
    TooManyVertices {
        /// The number of vertices.
        found: u64,
    },
    /// The graph does not fit in memory.
    #[error(
        "a graph of {} takes {needed} more memory at its peak, and {under} leaves {available}: {}",
        of(*vertices, *edges), what_to_do(*vertices, *edges)
    )]
    TooLarge {
        /// The number of vertices.
        vertices: u64,
        /// The number of edges; 0 where they are not counted, because the vertices alone take too much.
        edges: u64,
        /// The memory that the graph, and what is done with it, takes from here on, at its peak where no edge is there twice.
        needed: Bytes,
        /// The memory that can be had without swapping.
        available: Bytes,
        /// The limit that leaves no more.
        under: Limit,
    },
    /// An array could not be mapped, or its placement not be read.
    #[error(transparent)]
    Array(#[from] superpage_array::Error),
}

fn of(vertices: u64, edges: u64) -> String {
    if edges == 0 {
        format!("{vertices} vertices")
    } else {
        format!("{vertices} vertices and {edges} edges")
    }
}

/// What to do about a graph that is too large: a list that numbers few vertices with large numbers takes memory for all of them.
const fn what_to_do(vertices: u64, edges: u64) -> &'static str {
    if vertices > 4 * edges {
        "number the vertices from 0 on without gaps, free some, or allow more"
    } else {
        "free some, or allow more"
    }
}
