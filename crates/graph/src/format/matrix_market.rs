//! Matrix Market files of sparse matrices: "The Matrix Market Exchange Formats: Initial Design" (Boisvert, Pozo and
//! Remington, NISTIR 5935, 1996), <https://math.nist.gov/MatrixMarket/formats.html>.
//!
//! An entry in row `i` and column `j` is an edge from vertex `i - 1` to vertex `j - 1`. A symmetric matrix should have
//! the entries of its lower triangle only; programs that write the upper one are understood. Entries that are 0 are
//! edges of weight 0.

use super::ReadOptions;
use super::line::{Fault, LONGEST, Layout, Value, fields, is_comment, whole};
use super::output::{Output, edges};
use super::text::{Count, Entry, TextEdges, line_number};
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
    let layout = Layout {
        first: 1,
        last: head.size,
        value: head.value,
        fields: match head.value {
            Value::None => "a row and a column",
            Value::Whole | Value::Real => "a row, a column and a value",
        },
        vertex: "a row or column from 1 to the size of the matrix",
    };
    let mut edges = TextEdges::of(file, layout);
    edges.body = head.end;
    edges.vertices = Some(head.size);
    edges.count = Count::Exactly(head.entries);
    if (head.direction, options.direction) == (Direction::Undirected, Some(Direction::Directed)) {
        edges.entry = Entry::Both;
    }
    Ok((edges, head.direction))
}

/// The number of vertices that a file says.
pub(super) fn vertices(path: &Path) -> Result<u64> {
    Ok(Head::read(&DirectFile::open(path, PageCache::Avoided)?)?.size)
}

/// The header: banner, comments, size line.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    value: Value,
    direction: Direction,
    size: u64,
    entries: u64,
    /// The offset behind the header.
    end: u64,
}

/// The text that the banner must have.
const BANNER: &str =
    "%%MatrixMarket matrix coordinate, then pattern, integer or real, then general or symmetric";
const COORDINATES: &str = "coordinate, for a sparse matrix";
const VALUES: &str = "pattern, integer or real values";
const SYMMETRY: &str = "a general or symmetric matrix";
const SIZE: &str = "the rows, the columns and the entries of the matrix";

impl Head {
    fn read(file: &DirectFile) -> Result<Self> {
        let mut lines = HeadLines { file, at: 0, chunk: Vec::new(), begin: 0 };
        let first = lines.next()?.unwrap_or_default();
        let (value, direction) = banner(&first).or_else(|fault| malformed(file, 0, fault))?;
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
            return Ok(Self { value, direction, size, entries, end: lines.at });
        }
    }
}

fn malformed<T>(file: &DirectFile, at: u64, fault: Fault) -> Result<T> {
    let line = line_number(file, at)?;
    let Fault { expected, found } = fault;
    Err(Error::Malformed { path: file.path().to_owned(), line, expected, found })
}

/// Parses the banner: type of values, and direction.
fn banner(line: &[u8]) -> std::result::Result<(Value, Direction), Fault> {
    let words = line.to_ascii_lowercase();
    let words: Vec<&[u8]> = fields(&words).collect();
    let [b"%%matrixmarket", b"matrix", form, value, symmetry] = words[..] else {
        return Err(Fault::new(BANNER, line));
    };
    if form != b"coordinate" {
        return Err(Fault::new(COORDINATES, form));
    }
    let value = match value {
        b"pattern" => Value::None,
        b"integer" => Value::Whole,
        b"real" => Value::Real,
        _ => return Err(Fault::new(VALUES, value)),
    };
    match symmetry {
        b"general" => Ok((value, Direction::Directed)),
        b"symmetric" => Ok((value, Direction::Undirected)),
        _ => Err(Fault::new(SYMMETRY, symmetry)),
    }
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

/// The bytes that are read of a head at a time. Chosen: most heads have less.
const CHUNK: u64 = 1 << 16;

/// The first lines of a file, one after the other.
struct HeadLines<'a> {
    file: &'a DirectFile,
    /// The offset of the next line.
    at: u64,
    /// A part of the file (`chunk`) and its offset (`begin`).
    chunk: Vec<u8>,
    begin: u64,
}

impl HeadLines<'_> {
    /// The next line without its end, or as much of it as a line may have; nothing at the end of the file.
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.at == self.file.length() {
            return Ok(None);
        }
        let rest = self.rest(LONGEST as u64)?;
        let end = newline(rest);
        let mut line = rest[..end.unwrap_or(rest.len().min(LONGEST))].to_vec();
        if line.ends_with(b"\r") {
            line.pop();
        }
        self.skip()?;
        Ok(Some(line))
    }

    /// Goes to the beginning of the next line.
    fn skip(&mut self) -> Result<()> {
        while self.at < self.file.length() {
            let rest = self.rest(1)?;
            let (found, length) = (newline(rest), rest.len());
            self.at += found.map_or(length, |end| end + 1) as u64;
            if found.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// The bytes of the chunk from `at` on: at least `least`, or all that the file has.
    fn rest(&mut self, least: u64) -> Result<&[u8]> {
        let length = self.file.length();
        if (self.at + least).min(length) > self.begin + self.chunk.len() as u64 {
            self.chunk = self.file.with(self.at..(self.at + CHUNK).min(length), <[u8]>::to_vec)?;
            self.begin = self.at;
        }
        Ok(&self.chunk[crate::width::to_usize(self.at - self.begin)..])
    }
}

fn newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
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
        let (value, direction) = (Value::None, Direction::Directed);
        let content =
            "%%MatrixMarket matrix coordinate pattern general\n% a comment\n\n 3 3 2\n1 2\n";
        let expected =
            Head { value, direction, size: 3, entries: 2, end: content.len() as u64 - 4 };
        assert_eq!(head(content), Ok(expected));
        let content = "%%matrixmarket MATRIX Coordinate Real Symmetric\r\n7\t7\t0\r\n";
        let (value, direction) = (Value::Real, Direction::Undirected);
        let expected = Head { value, direction, size: 7, entries: 0, end: content.len() as u64 };
        assert_eq!(head(content), Ok(expected));
    }

    #[test]
    fn comments_may_be_many_and_long() {
        let long = "%".repeat(3 * usize::try_from(CHUNK).expect("a length"));
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
            ("coordinate complex general", VALUES, "complex"),
            ("coordinate real hermitian", SYMMETRY, "hermitian"),
            ("coordinate real Skew-Symmetric", SYMMETRY, "skew-symmetric"),
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
