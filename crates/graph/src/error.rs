//! What can go wrong with graphs.

use std::path::PathBuf;
use superpage_units::Bytes;

/// This crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no graph.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: could not {what}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// Something that is no regular file.
    #[error("{} is {found}, and a graph is read from a file, twice", path.display())]
    NoFile {
        /// Its name.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// A text file does not say what it should.
    #[error("{}:{line}: expected {expected}, found {found:?}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Its line, counted from 1.
        line: u64,
        /// What should be there.
        expected: &'static str,
        /// What is there, shortened.
        found: String,
    },
    /// A binary file does not say what it should.
    #[error("{}: {what}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The end of a name says nothing about a format.
    #[error("{}: the end of its name is none of {}", path.display(), crate::format::ENDINGS)]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// The graph has no weights, and the caller needs some.
    #[error(
        "{what} needs weights, and the graph has none: use a .wel or .wsg file, or an .mtx file with values"
    )]
    NoWeights {
        /// Who needs them.
        what: &'static str,
    },
    /// A number makes no sense.
    #[error("{0}")]
    Usage(String),
    /// More vertices than 32 bits number.
    #[error("{found} vertices are more than there can be ({})", crate::graph::MOST_VERTICES)]
    TooManyVertices {
        /// How many.
        found: u64,
    },
    /// The graph does not fit in memory.
    #[error(
        "a graph of {vertices} vertices and {edges} edges takes {needed}, and {available} of memory are available"
    )]
    TooLarge {
        /// Its vertices.
        vertices: u64,
        /// Its edges.
        edges: u64,
        /// The memory that it takes.
        needed: Bytes,
        /// The memory that there is.
        available: Bytes,
    },
    /// The memory of an array.
    #[error(transparent)]
    Array(#[from] superpage_array::Error),
}
