//! Edges of a text file: an edge list (`.el`, and what SNAP calls `.txt`), one with weights (`.wel`), or the body of a
//! Matrix Market file.
//!
//! A pass reads the file in pieces, which threads take in order. A piece has the lines that begin in it; the last of
//! them may end in the next piece. The file is read twice instead of kept, so that memory holds nothing but the graph.

use super::first_lines::FirstLines;
use super::line::{Fault, LONGEST, Layout, Value, columns, has_attributes, is_comment};
use super::output::{Output, edges};
use crate::build::{BLOCK, Edge, Edges};
use crate::direct::{DirectFile, PIECE, PageCache, pieces};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::progress::Progress;
use crate::width::to_usize;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use superpage_units::Bytes;

/// The layout of lines that have so many fields, as far as they can mean something: a weight and a time behind the
/// vertices, as in the files of SNAP and KONECT. More are a list of neighbors rather than an edge.
fn with_columns(least: Layout, found: usize) -> Layout {
    let fields = match (least.value, found) {
        (Value::None, 3) => "two vertices and a number, as on the first line",
        (Value::None, 4) => "two vertices and two numbers, as on the first line",
        (Value::Weight | Value::Unseen, 4) => {
            "two vertices, a weight and a number, as on the first line"
        }
        _ => return least,
    };
    Layout { columns: found, fields, ..least }
}

/// The edges that one line stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// An edge.
    Edge,
    /// An edge, and the same backwards.
    Both,
}

/// The number of lines with edges that a file must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// The file has one line with an edge at the least.
    Some,
    /// The file has as many lines with edges as its head says.
    Exactly(u64),
}

/// The sizes by which a file is cut; tests use smaller ones, so that small files have many pieces.
#[derive(Clone, Copy, Debug)]
struct Cut {
    piece: u64,
    longest: usize,
}

/// The edges of a text file.
pub(super) struct TextEdges {
    pub(super) file: DirectFile,
    /// The offset of the first line that may hold an edge.
    pub(super) body: u64,
    pub(super) layout: Layout,
    pub(super) vertices: Option<u64>,
    pub(super) entry: Entry,
    pub(super) count: Count,
    /// The numbers and attributes behind the edge on the first line that are not kept.
    pub(super) unread: usize,
    cut: Cut,
}

impl TextEdges {
    /// An edge list whose lines have at least the fields that `least` says. Its first edge says how many they have.
    pub(super) fn open(path: &Path, cache: PageCache, least: Layout) -> Result<Self> {
        let file = DirectFile::open(path, cache)?;
        let mut lines = FirstLines::of(&file)?;
        while let Some(line) = lines.next()? {
            let found = columns(&line).len();
            if is_comment(&line) || found == 0 {
                continue;
            }
            let layout = with_columns(least, found);
            let unread = layout.columns - least.columns + usize::from(has_attributes(&line));
            return Ok(Self { unread, ..Self::of(file, layout) });
        }
        Ok(Self::of(file, least))
    }

    /// The edges of a file that is one list from its beginning to its end.
    pub(super) fn of(file: DirectFile, layout: Layout) -> Self {
        let cut = Cut { piece: PIECE, longest: LONGEST };
        let (vertices, entry, count) = (None, Entry::Edge, Count::Some);
        Self { file, body: 0, layout, vertices, entry, count, unread: 0, cut }
    }

    /// Fails where somebody has written to the file meanwhile.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        self.file.check_unchanged()
    }

    /// The bytes that are read for the lines that begin in `range`: the byte before says whether a line begins with the
    /// first one, and the last line may end behind it.
    fn around(&self, range: &Range<u64>) -> Range<u64> {
        let to = (range.end + self.cut.longest as u64).min(self.file.length());
        range.start.saturating_sub(1).max(self.body)..to
    }

    /// Calls `each` with the edges of the lines that begin in `range`, around which `bytes` are. Returns their number,
    /// or the first fault.
    fn piece(&self, range: &Range<u64>, bytes: &[u8], each: &(dyn Fn(&[Edge]) + Sync)) -> Lines {
        let from = self.around(range).start;
        let before = if range.start == self.body { Some(0) } else { after_newline(bytes) };
        let Some(begin) = before else { return Ok(0) };
        let end = to_usize(range.end - from);
        self.lines(bytes, begin..end, each).map_err(|(at, fault)| (from + at as u64, fault))
    }

    /// Parses the lines that begin within `range` of `bytes`.
    fn lines(
        &self,
        bytes: &[u8],
        range: Range<usize>,
        each: &(dyn Fn(&[Edge]) + Sync),
    ) -> std::result::Result<u64, (usize, Fault)> {
        let mut block = Vec::with_capacity(BLOCK + 2);
        let (mut at, mut found) = (range.start, 0);
        while at < range.end {
            let begin = at;
            let line = self.layout.line(bytes, &mut at, self.cut.longest);
            let Some(edge) = line.map_err(|fault| (begin, fault))? else { continue };
            found += 1;
            block.push(edge);
            if self.entry == Entry::Both && edge.from != edge.to {
                block.push(Edge { from: edge.to, to: edge.from, weight: edge.weight });
            }
            if block.len() >= BLOCK {
                each(&block);
                block.clear();
            }
        }
        each(&block);
        Ok(found)
    }

    /// The error that says what is wrong with the line that begins at `at`.
    fn malformed(&self, at: u64, fault: Fault) -> Error {
        match line_number(&self.file, at) {
            Ok(line) => Error::Malformed {
                path: self.file.path().to_owned(),
                line,
                expected: fault.expected,
                found: fault.found,
            },
            Err(error) => error,
        }
    }

    fn check_count(&self, found: u64) -> Result<()> {
        let what = match self.count {
            Count::Some if found == 0 => "there are no edges in it".to_owned(),
            Count::Exactly(said) if found != said => {
                format!("there are {found} entries in it, and its size line says {said}")
            }
            _ => return Ok(()),
        };
        Err(Error::Broken { path: self.file.path().to_owned(), what })
    }
}

/// The edges of some lines, or the first of them that is wrong and where it begins.
type Lines = std::result::Result<u64, (u64, Fault)>;

/// The first fault of a file: pieces end in any order.
#[derive(Default)]
struct First(Mutex<Option<(u64, Fault)>>);

impl First {
    fn keep(&self, at: u64, fault: Fault) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_none_or(|(first, _)| at < *first) {
            *kept = Some((at, fault));
        }
    }

    fn is_found(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn into_inner(self) -> Option<(u64, Fault)> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Edges for TextEdges {
    fn vertices(&self) -> Option<u64> {
        self.vertices
    }

    fn is_weighted(&self) -> bool {
        self.layout.value != Value::None
    }

    fn keeps_loops(&self) -> bool {
        true
    }

    fn buffers(&self) -> Bytes {
        self.file.buffers()
    }

    fn pass(&self, progress: &Progress, each: &(dyn Fn(&[Edge]) + Sync)) -> Result<()> {
        let body = self.body..self.file.length();
        progress.begin(body.end - body.start);
        let (first, found) = (First::default(), AtomicU64::new(0));
        // Once a fault is known, no further piece is read. All earlier pieces have been, so the first fault is kept.
        let parts = pieces(body, self.cut.piece).take_while(|_| !first.is_found());
        let parts = parts.map(|range| (range.clone(), self.around(&range)));
        self.file.each(parts, |range: Range<u64>, bytes| {
            match self.piece(&range, bytes, each) {
                Ok(edges) => {
                    found.fetch_add(edges, Relaxed);
                }
                Err((at, fault)) => first.keep(at, fault),
            }
            progress.add(range.end - range.start);
            Ok(())
        })?;
        match first.into_inner() {
            Some((at, fault)) => Err(self.malformed(at, fault)),
            None => self.check_count(found.into_inner()),
        }
    }
}

/// The place behind the first newline.
fn after_newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1)
}

/// The number of the line that begins at `at`, counted from 1.
pub(super) fn line_number(file: &DirectFile, at: u64) -> Result<u64> {
    let before = AtomicU64::new(0);
    file.each(pieces(0..at, PIECE).map(|range| ((), range)), |(), bytes| {
        let newlines = bytes.iter().filter(|byte| **byte == b'\n').count();
        before.fetch_add(newlines as u64, Relaxed);
        Ok(())
    })?;
    Ok(before.into_inner() + 1)
}

/// Writes each edge on a line, and its weight behind it where `value` says so. An undirected edge is there both ways,
/// so that the list means the same for those who read it as directed.
pub(super) fn write(
    graph: &Graph,
    value: Value,
    output: &mut Output,
    progress: &Progress,
) -> Result<()> {
    progress.begin(graph.edges());
    for edge in edges(graph.outgoing()) {
        let numbers = [edge.from, edge.to, edge.weight].map(u64::from);
        output.line(if value == Value::None { &numbers[..2] } else { &numbers })?;
        progress.add(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(content: &[u8], layout: Layout, cut: Cut) -> std::result::Result<Vec<Edge>, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), content).expect("written");
        let file = DirectFile::open(file.path(), PageCache::Avoided).expect("opened");
        let mut edges = TextEdges::of(file, layout);
        edges.cut = cut;
        let found = Mutex::new(Vec::new());
        let keep = |block: &[Edge]| found.lock().expect("a lock").extend_from_slice(block);
        let passed = edges.pass(&Progress::default(), &keep);
        let path = format!("{}:", edges.file.path().display());
        passed.map_err(|error| error.to_string().replace(&path, ""))?;
        edges.check_unchanged().expect("unchanged");
        let mut found = found.into_inner().expect("a lock");
        found.sort_unstable();
        Ok(found)
    }

    const WHOLE: Cut = Cut { piece: PIECE, longest: LONGEST };

    /// Parses a line slowly.
    fn model_line(line: &str, longest: usize) -> std::result::Result<Option<Edge>, ()> {
        if line.trim_start_matches([' ', '\t']).starts_with(['#', '%']) {
            return Ok(None);
        }
        let fields: Vec<&str> = line.split([' ', '\t']).filter(|field| !field.is_empty()).collect();
        if line.len() >= longest {
            return Err(());
        }
        let number =
            |field: &str| field.parse::<u32>().ok().filter(|number| *number < u32::MAX).ok_or(());
        match fields[..] {
            [] => Ok(None),
            [from, to] => Ok(Some(Edge { from: number(from)?, to: number(to)?, weight: 0 })),
            _ => Err(()),
        }
    }

    /// The edges of a file, or its first bad line.
    fn model(content: &str, longest: usize) -> std::result::Result<Vec<Edge>, usize> {
        let mut edges = Vec::new();
        for (index, line) in content.split('\n').enumerate() {
            edges.extend(model_line(line, longest).map_err(|()| index + 1)?);
        }
        edges.sort_unstable();
        Ok(edges)
    }

    fn line() -> impl Strategy<Value = String> {
        prop_oneof![
            40 => (0..3000_u32, 0..3000_u32).prop_map(|(from, to)| format!("{from} {to}\n")),
            3 => "[#%][a-z0-9 ]{0,60}\n",
            3 => "[ \t]{0,3}\n",
            3 => "[0-9]{1,3}[ \t]{1,12}[0-9]{1,3}[ \t]{0,12}\n",
            1 => "[0-9 ]{0,9}\n",
        ]
    }

    fn nearly_text() -> impl Strategy<Value = u8> {
        prop_oneof![4 => prop::sample::select(&b"0123456789 \n\r\t#-"[..]), 1 => any::<u8>()]
    }

    proptest! {
        #[test]
        fn lines_may_cross_the_borders_of_pieces(
            lines in prop::collection::vec(line(), 0..60),
            ends_open: bool,
            piece in prop_oneof![1..70_u64, 4000..5000_u64],
            longest in 16..40_usize,
        ) {
            let mut content = lines.concat();
            if ends_open {
                content.pop();
            }
            let found = listed(content.as_bytes(), Layout::EDGES, Cut { piece, longest });
            match model(&content, longest) {
                Ok(expected) if expected.is_empty() => {
                    prop_assert!(found.expect_err("no edges").ends_with("there are no edges in it"));
                }
                Ok(expected) => prop_assert_eq!(found, Ok(expected)),
                Err(line) => {
                    let found = found.expect_err("a bad line");
                    prop_assert!(found.starts_with(&format!("{line}: expected ")), "{} instead of {}", found, line);
                }
            }
        }

        #[test]
        fn arbitrary_bytes_mean_the_same_in_any_pieces(
            content in prop::collection::vec(nearly_text(), 0..300),
            piece in 1..50_u64,
            longest in 4..40_usize,
        ) {
            for layout in [Layout::EDGES, Layout::WEIGHTED_EDGES] {
                let whole = listed(&content, layout, Cut { longest, ..WHOLE });
                let cut = listed(&content, layout, Cut { piece, longest });
                prop_assert_eq!(whole, cut);
            }
        }
    }

    #[test]
    fn a_file_of_several_pieces_is_read_whole() {
        let count = 900_000_u32;
        let expected: Vec<Edge> =
            (0..count).map(|from| Edge { from, to: from / 7 * 3, weight: 0 }).collect();
        let mut content: String =
            expected.iter().map(|edge| format!("{}\t{}\n", edge.from, edge.to)).collect();
        assert!(content.len() as u64 > 2 * PIECE);
        assert!(listed(content.as_bytes(), Layout::EDGES, WHOLE) == Ok(expected));
        content.push_str("1 2 3\n4\n");
        let found = listed(content.as_bytes(), Layout::EDGES, WHOLE);
        assert_eq!(found, Err("900001: expected two vertices, found \"1 2 3\"".to_owned()));
    }

    #[test]
    fn the_first_of_several_faults_is_reported() {
        let lines: Vec<String> =
            (0..5000).map(|at| if at % 500 == 437 { "x\n" } else { "1 2\n" }.to_owned()).collect();
        for piece in [1, 10, 100, 1000] {
            let found =
                listed(lines.concat().as_bytes(), Layout::EDGES, Cut { piece, longest: 64 });
            assert_eq!(found, Err("438: expected two vertices, found \"x\"".to_owned()));
        }
    }

    /// A piece has more or less of a line that is too long.
    #[test]
    fn an_error_shows_the_same_of_a_long_line_in_any_pieces() {
        let cut = Cut { piece: 1, longest: 4 };
        let found = listed(&[b'0'; 100], Layout::EDGES, cut);
        assert_eq!(found, listed(&[b'0'; 100], Layout::EDGES, Cut { longest: 4, ..WHOLE }));
        assert_eq!(
            found,
            Err("1: expected a line of less than 4096 bytes, found \"0000\"".to_owned())
        );
    }

    #[test]
    fn a_file_without_newlines_is_not_read_again_and_again() {
        let content = vec![b'1'; 100_000];
        let found = listed(&content, Layout::EDGES, Cut { piece: 100, longest: LONGEST });
        let expected =
            format!("1: expected a line of less than 4096 bytes, found \"{}…\"", "1".repeat(39));
        assert_eq!(found, Err(expected));
        let mut comment = vec![b'#'; 100_000];
        comment.extend(b"\n7 8");
        let found = listed(&comment, Layout::EDGES, Cut { piece: 100, longest: LONGEST });
        assert_eq!(found, Ok(vec![Edge { from: 7, to: 8, weight: 0 }]));
    }
}
