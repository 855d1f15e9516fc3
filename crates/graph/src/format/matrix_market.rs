//! Matrix Market files of sparse matrices: "The Matrix Market Exchange Formats: Initial Design" (Boisvert, Pozo and
//! Remington, NISTIR 5935, 1996), <https://math.nist.gov/MatrixMarket/formats.html>.
//!
//! An entry in row `i` and column `j` is an edge from vertex `i - 1` to vertex `j - 1`. A symmetric matrix should have
//! the entries of its lower triangle only; programs that write the upper one are understood. Entries that are 0 are
//! edges of weight 0.
//!
//! Read are the coordinates of square matrices of all values and symmetries. Values are weights only where they are whole and not
//! negative, so those of complex, hermitian and skew-symmetric matrices are none. `array`, which is for matrices where
//! every entry is there, is refused, as is a matrix that is not square.

use super::first_lines::FirstLines;
use super::line::{Fault, Layout, Value, fields, is_comment, whole};
use super::output::{Output, edges};
use super::text::{Count, Entry, TextEdges, line_number};
use super::{ReadOptions, Weights};
use crate::build::{Direction, Edge};
use crate::direct::{DirectFile, PageCache};
use crate::error::{Error, Result};
use crate::graph::{Graph, MOST_VERTICES};
use crate::progress::Progress;
use std::path::Path;

/// The edges of a file, and whether its matrix is that of a directed graph.
pub(super) fn open(path: &Path, options: ReadOptions) -> Result<(TextEdges, Direction)> {
    let file = DirectFile::open(path, options.page_cache)?;
    let head = Head::read(&file)?;
    let Kind { values, symmetry } = head.kind;
    if options.weights == Weights::Needed {
        head.kind.check_weights().or_else(|fault| malformed(&file, 0, fault))?;
    }
    let layout = Layout {
        first: 1,
        last: head.size,
        columns: 2 + values,
        value: if values == 0 { Value::None } else { options.weights.value() },
        fields: match values {
            0 => "a row and a column",
            1 => "a row, a column and a value",
            _ => "a row, a column and the two parts of a complex value",
        },
        vertex: "a row or column from 1 to the size of the matrix",
    };
    let mut edges = TextEdges::of(file, layout);
    edges.body = head.end;
    edges.vertices = Some(head.size);
    edges.count = Count::Exactly(head.entries);
    let direction = match symmetry {
        Symmetry::General => Direction::Directed,
        _ => Direction::Undirected,
    };
    if (direction, options.direction) == (Direction::Undirected, Some(Direction::Directed)) {
        edges.entry = Entry::Both;
    }
    Ok((edges, direction))
}

/// The number of vertices that a file says.
pub(super) fn vertices(path: &Path) -> Result<u64> {
    Ok(Head::read(&DirectFile::open(path, PageCache::Avoided)?)?.size)
}

/// The header: banner, comments, size line.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    kind: Kind,
    size: u64,
    entries: u64,
    /// The offset behind the header.
    end: u64,
}

/// The kind of a matrix, as its banner says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    /// The numbers of each value: none in a pattern, two where values are complex.
    values: usize,
    symmetry: Symmetry,
}

/// The entries that stand for two: all outside of the diagonal, unless the matrix is general.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symmetry {
    General,
    Symmetric,
    /// The value across the diagonal is the negative one.
    Skew,
    /// The value across the diagonal is the complex conjugate.
    Hermitian,
}

impl Kind {
    /// Fails where values cannot be weights.
    fn check_weights(self) -> std::result::Result<(), Fault> {
        let found = match self {
            Self { symmetry: Symmetry::Skew, .. } => "skew-symmetric",
            Self { symmetry: Symmetry::Hermitian, .. } => "hermitian",
            Self { values: 2, .. } => "complex",
            _ => return Ok(()),
        };
        Err(Fault::new(WEIGHTS, found.as_bytes()))
    }
}

/// The text that the banner must have.
const BANNER: &str = "%%MatrixMarket matrix coordinate, then pattern, integer, real or complex, then general, symmetric, \
                      skew-symmetric or hermitian";
const COORDINATES: &str = "coordinate, for a sparse matrix";
const VALUES: &str = "pattern, integer, real or complex values";
const SYMMETRY: &str = "a general, symmetric, skew-symmetric or hermitian matrix";
const WEIGHTS: &str = "a general or symmetric matrix of integer or real values, which can be weights (.el and .sg files, bfs, pr \
                       and cc need no weights)";
const SIZE: &str = "the rows, the columns and the entries of the matrix";

impl Head {
    fn read(file: &DirectFile) -> Result<Self> {
        let mut lines = FirstLines::of(file)?;
        let first = lines.next()?.unwrap_or_default();
        let kind = banner(&first).or_else(|fault| malformed(file, 0, fault))?;
        loop {
            let at = lines.at;
            let Some(line) = lines.next()? else {
                return malformed(file, at, Fault::new(SIZE, b""));
            };
            if is_comment(&line) || fields(&line).next().is_none() {
                continue;
            }
            let (size, entries) = match sizes(&line) {
                Ok((size, _)) if size > MOST_VERTICES => {
                    return Err(Error::TooManyVertices { found: size });
                }
                sizes => sizes.or_else(|fault| malformed(file, at, fault))?,
            };
            return Ok(Self { kind, size, entries, end: lines.at });
        }
    }
}

fn malformed<T>(file: &DirectFile, at: u64, fault: Fault) -> Result<T> {
    let line = line_number(file, at)?;
    let Fault { expected, found } = fault;
    Err(Error::Malformed { path: file.path().to_owned(), line, expected, found })
}

/// Parses the banner.
fn banner(line: &[u8]) -> std::result::Result<Kind, Fault> {
    let words = line.to_ascii_lowercase();
    let words: Vec<&[u8]> = fields(&words).collect();
    // The files of networkrepository.com begin with one `%`.
    let [b"%%matrixmarket" | b"%matrixmarket", b"matrix", form, values, symmetry] = words[..]
    else {
        return Err(Fault::new(BANNER, line));
    };
    if form != b"coordinate" {
        return Err(Fault::new(COORDINATES, form));
    }
    let values = match values {
        b"pattern" => 0,
        // SciPy writes two of these names, which the format does not have.
        b"integer" | b"unsigned-integer" | b"real" | b"double" => 1,
        b"complex" => 2,
        _ => return Err(Fault::new(VALUES, values)),
    };
    let symmetry = match symmetry {
        b"general" => Symmetry::General,
        b"symmetric" => Symmetry::Symmetric,
        b"skew-symmetric" => Symmetry::Skew,
        b"hermitian" => Symmetry::Hermitian,
        _ => return Err(Fault::new(SYMMETRY, symmetry)),
    };
    Ok(Kind { values, symmetry })
}

/// The rows, which are as many as the columns, and the entries.
fn sizes(line: &[u8]) -> std::result::Result<(u64, u64), Fault> {
    let numbers: Option<Vec<u64>> = fields(line).map(whole).collect();
    match numbers.as_deref() {
        Some([rows, columns, entries]) if rows == columns => Ok((*rows, *entries)),
        Some([_, _, _]) => Err(Fault::new("as many rows as columns", line)),
        _ => Err(Fault::new(SIZE, line)),
    }
}

/// Writes the matrix of a graph: symmetric where it is undirected, with integers where edges have weights.
pub(super) fn write(graph: &Graph, output: &mut Output, progress: &Progress) -> Result<()> {
    let symmetry = if graph.is_directed() { "general" } else { "symmetric" };
    let values = if graph.is_weighted() { "integer" } else { "pattern" };
    output.bytes(format!("%%MatrixMarket matrix coordinate {values} {symmetry}\n").as_bytes())?;
    // A symmetric matrix has the entries of its lower triangle only.
    let is_entry = |edge: &Edge| graph.is_directed() || edge.to <= edge.from;
    let entries = edges(graph.outgoing()).filter(is_entry).count() as u64;
    let size = graph.vertices() as u64;
    output.line(&[size, size, entries])?;
    progress.begin(entries);
    for edge in edges(graph.outgoing()).filter(is_entry) {
        let numbers = [u64::from(edge.from) + 1, u64::from(edge.to) + 1, u64::from(edge.weight)];
        output.line(if graph.is_weighted() { &numbers } else { &numbers[..2] })?;
        progress.add(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(content: &str) -> std::result::Result<Head, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), content).expect("written");
        let path = format!("{}:", file.path().display());
        let opened = DirectFile::open(file.path(), PageCache::Avoided).expect("opened");
        Head::read(&opened).map_err(|error| error.to_string().replace(&path, ""))
    }

    #[test]
    fn heads_are_read() {
        let kind = |values, symmetry| Kind { values, symmetry };
        let content =
            "%%MatrixMarket matrix coordinate pattern general\n% a comment\n\n 3 3 2\n1 2\n";
        let pattern = kind(0, Symmetry::General);
        let expected = Head { kind: pattern, size: 3, entries: 2, end: content.len() as u64 - 4 };
        assert_eq!(head(content), Ok(expected));
        let content = "%%matrixmarket MATRIX Coordinate Real Symmetric\r\n7\t7\t0\r\n";
        let real = kind(1, Symmetry::Symmetric);
        let expected = Head { kind: real, size: 7, entries: 0, end: content.len() as u64 };
        assert_eq!(head(content), Ok(expected));
        let kinds = [
            ("%MatrixMarket", "pattern symmetric", kind(0, Symmetry::Symmetric)),
            ("%%MatrixMarket", "real skew-symmetric", kind(1, Symmetry::Skew)),
            ("%%MatrixMarket", "unsigned-integer general", kind(1, Symmetry::General)),
            ("%%MatrixMarket", "COMPLEX Hermitian", kind(2, Symmetry::Hermitian)),
        ];
        for (first, rest, kind) in kinds {
            let content = format!("{first} matrix coordinate {rest}\n 1 1 0\n");
            assert_eq!(head(&content).map(|head| head.kind), Ok(kind), "{content}");
        }
    }

    #[test]
    fn comments_may_be_many_and_long() {
        let long =
            "%".repeat(3 * usize::try_from(super::super::first_lines::CHUNK).expect("a length"));
        let comments = format!("{long}\n{}", "% a comment\n".repeat(20_000));
        let content = format!("%%MatrixMarket matrix coordinate integer general\n{comments}5 5 6");
        let found = head(&content).expect("a head");
        assert_eq!((found.size, found.entries, found.end), (5, 6, content.len() as u64));
    }

    #[test]
    fn other_matrices_are_refused() {
        let says =
            |expected: &str, found: &str| Err(format!("1: expected {expected}, found {found:?}"));
        assert_eq!(head(""), says(BANNER, ""));
        assert_eq!(head("1 2\n"), says(BANNER, "1 2"));
        let bad = [
            ("array real general", COORDINATES, "array"),
            ("coordinate quaternion general", VALUES, "quaternion"),
            ("coordinate real triangular", SYMMETRY, "triangular"),
            ("coordinate real", BANNER, "%%MatrixMarket matrix coordinate real"),
            ("coordinate real general x", BANNER, "%%MatrixMarket matrix coordinate real g…"),
        ];
        for (kind, expected, found) in bad {
            let content = format!("%%MatrixMarket matrix {kind}\n1 1 0\n");
            assert_eq!(head(&content), says(expected, found), "{kind}");
        }
    }

    #[test]
    fn sizes_must_make_sense() {
        let of =
            |line: &str| head(&format!("%%MatrixMarket matrix coordinate real general\n%\n{line}"));
        let says =
            |expected: &str, found: &str| Err(format!("3: expected {expected}, found {found:?}"));
        assert_eq!(of(""), says(SIZE, ""));
        assert_eq!(of("3 3\n"), says(SIZE, "3 3"));
        assert_eq!(of("3 3 x\n"), says(SIZE, "3 3 x"));
        assert_eq!(of("3 3 -1\n"), says(SIZE, "3 3 -1"));
        assert_eq!(of("3 4 1\n"), says("as many rows as columns", "3 4 1"));
        assert_eq!(
            of("4294967296 4294967296 1\n"),
            Err("4294967296 vertices are more than there can be (4294967295)".to_owned())
        );
    }
}
