//! One line of a text file: an edge, nothing, or a fault.
//!
//! Most lines are whole numbers with one separator between two of them, which [`Layout::quick`] reads byte by byte.
//! Whatever it does not understand, [`Layout::slow`] takes apart into fields, to read what is rare (real numbers, comments,
//! blanks at the end) and to say what is wrong.

use crate::build::Edge;
use crate::graph::{MOST_VERTICES, Vertex, Weight};

/// The largest weight: files have 32-bit numbers with a sign.
pub(super) const LARGEST_WEIGHT: Weight = i32::MAX.unsigned_abs();

/// The bytes of the longest line that may hold an edge, with its end. Chosen: three numbers of ten digits take 34 with
/// blanks and `\r\n`.
pub(super) const LONGEST: usize = 4096; // tidy: allow(characters of a line)

/// The use of the first number behind the vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// The edge has no weight: there is no such number, or it is not kept.
    None,
    /// It is the weight, which may be written as a real number, as in `3.0` or `2e3`, but is whole.
    Weight,
    /// It is the weight where it is a weight, and any other number counts as 0: nobody looks at it.
    Unseen,
}

/// The layout of a file's lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The number that stands for vertex 0.
    pub(super) first: u64,
    /// The largest number that stands for a vertex.
    pub(super) last: u64,
    /// The fields of each line: two vertices, and numbers behind them.
    pub(super) columns: usize,
    pub(super) value: Value,
    /// The fields of a line, for error messages.
    pub(super) fields: &'static str,
    /// The numbers that stand for vertices, for error messages.
    pub(super) vertex: &'static str,
}

impl Layout {
    /// Two vertices on each line.
    pub(super) const EDGES: Self = Self {
        first: 0,
        last: MOST_VERTICES - 1,
        columns: 2,
        value: Value::None,
        fields: "two vertices",
        vertex: "a vertex from 0 to 4294967294",
    };
    /// Two vertices and a weight on each line.
    pub(super) const WEIGHTED_EDGES: Self = Self {
        columns: 3,
        value: Value::Weight,
        fields: "two vertices and a weight",
        ..Self::EDGES
    };
}

/// The weights that there are, and what to do with a file that has others.
const WEIGHT: &str = "a weight that is a whole number from 0 to 2147483647 (.el and .sg files, bfs, pr and cc need no weights)";
/// What to do with a file whose first line names its columns.
const HEADER: &str = "a number, because vertices are numbered and a line with names begins with #";
const NUMBER: &str = "a number";

/// A fault of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The text that the layout requires.
    pub(super) expected: &'static str,
    /// The text of the line or of its wrong field, shortened.
    pub(super) found: String,
}

impl Fault {
    pub(super) fn new(expected: &'static str, found: &[u8]) -> Self {
        Self { expected, found: shortened(found) }
    }
}

/// The characters of a line that an error shows.
const SHOWN: usize = 40;

/// At most [`SHOWN`] characters of a text.
fn shortened(text: &[u8]) -> String {
    // No character has more than four bytes.
    let near = &text[..text.len().min(4 * SHOWN + 4)];
    let whole = String::from_utf8_lossy(near.trim_ascii());
    if whole.chars().count() <= SHOWN {
        return whole.into_owned();
    }
    whole.chars().take(SHOWN - 1).chain(['…']).collect()
}

impl Layout {
    /// The edge on the line that begins at `at`, if it is neither empty nor a comment; `at` becomes the beginning of
    /// the next line. A line of `longest` bytes or more is a fault, whatever is on it; so many bytes are there, or the
    /// file ends.
    pub(super) fn line(
        &self,
        bytes: &[u8],
        at: &mut usize,
        longest: usize,
    ) -> Result<Option<Edge>, Fault> {
        let mut next = *at;
        match self.quick(bytes, &mut next) {
            Some(edge) if next - *at <= longest => {
                *at = next;
                Ok(Some(edge))
            }
            _ => self.slow(bytes, at, longest),
        }
    }

    /// Parses a line of whole numbers with one separator between two of them; `None` for any other line.
    fn quick(&self, bytes: &[u8], at: &mut usize) -> Option<Edge> {
        let from = self.vertex(number(bytes, at)?)?;
        let between = separator(bytes, at)?;
        let to = self.vertex(number(bytes, at)?)?;
        let mut weight = 0;
        for column in 2..self.columns {
            if separator(bytes, at)? != between {
                return None;
            }
            let number = number(bytes, at)?;
            weight = match self.value {
                Value::Weight if column == 2 => whole_weight(number)?,
                Value::Unseen if column == 2 => whole_weight(number).unwrap_or_default(),
                _ => weight,
            };
        }
        if bytes.get(*at) == Some(&b'\r') {
            *at += 1;
        }
        let is_end = bytes.get(*at) == Some(&b'\n');
        *at += 1;
        is_end.then_some(Edge { from, to, weight })
    }

    /// Parses any line.
    fn slow(&self, bytes: &[u8], at: &mut usize, longest: usize) -> Result<Option<Edge>, Fault> {
        let rest = &bytes[*at..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let line = &rest[..end.unwrap_or(rest.len())];
        *at += end.map_or(rest.len(), |end| end + 1);
        // How much of a long line is in `bytes` depends on the piece, so only its first `longest` bytes count.
        let near = &line[..line.len().min(longest)];
        if is_comment(near) {
            return Ok(None);
        }
        if line.len() >= longest {
            return Err(Fault::new("a line of less than 4096 bytes", near));
        }
        self.fields(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Parses the fields of a line.
    fn fields(&self, line: &[u8]) -> Result<Option<Edge>, Fault> {
        let line = without_comment(line);
        if line.iter().all(|byte| is_blank(*byte)) {
            return Ok(None);
        }
        let fields = columns(line);
        let [from, to, others @ ..] = &fields[..] else {
            return Err(Fault::new(self.fields, line));
        };
        let is_text = |field: &[u8]| {
            field.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'"')
        };
        if is_text(from) && is_text(to) {
            return Err(Fault::new(HEADER, line));
        }
        if fields.len() != self.columns {
            return Err(Fault::new(self.fields, line));
        }
        let vertex = |field: &[u8]| {
            let vertex = whole(field).and_then(|number| self.vertex(number));
            vertex.ok_or_else(|| Fault::new(self.vertex, field))
        };
        let (from, to) = (vertex(from)?, vertex(to)?);
        let mut weight = 0;
        for (column, field) in others.iter().enumerate() {
            let number = real(field);
            weight = match self.value {
                Value::Weight if column == 0 => {
                    number.and_then(real_weight).ok_or_else(|| Fault::new(WEIGHT, field))?
                }
                Value::Unseen if column == 0 => number.and_then(real_weight).unwrap_or_default(),
                _ => weight,
            };
            number.ok_or_else(|| Fault::new(NUMBER, field))?;
        }
        Ok(Some(Edge { from, to, weight }))
    }

    fn vertex(&self, number: u64) -> Option<Vertex> {
        let number = Some(number).filter(|number| *number <= self.last)?;
        Vertex::try_from(number.checked_sub(self.first)?).ok()
    }
}

fn whole_weight(number: u64) -> Option<Weight> {
    Weight::try_from(number).ok().filter(|weight| *weight <= LARGEST_WEIGHT)
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Whether a line is a comment, for SNAP or for Matrix Market.
pub(super) fn is_comment(line: &[u8]) -> bool {
    let first = line.iter().find(|byte| !is_blank(**byte));
    matches!(first, Some(b'#' | b'%'))
}

/// A line as far as the comment behind its edge, or the attributes in braces that networkx writes there.
fn without_comment(line: &[u8]) -> &[u8] {
    let end = line.iter().position(|byte| matches!(byte, b'#' | b'%' | b'{'));
    &line[..end.unwrap_or(line.len())]
}

/// Whether networkx's attributes are behind the edge of a line, and not just their braces.
pub(super) fn has_attributes(line: &[u8]) -> bool {
    let behind = &line[without_comment(line).len()..];
    behind.starts_with(b"{") && !behind.starts_with(b"{}")
}

/// The fields of a line of edges: semicolons separate them where there is one, else commas where there is one, else blanks.
/// So a comma within a number, as in `0;1;0,5`, separates nothing.
pub(super) fn columns(line: &[u8]) -> Vec<&[u8]> {
    let line = without_comment(line);
    match [b';', b','].into_iter().find(|byte| line.contains(byte)) {
        Some(between) => line.split(|byte| *byte == between).map(<[u8]>::trim_ascii).collect(),
        None => fields(line).collect(),
    }
}

/// The fields of a line, which blanks separate.
pub(super) fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| is_blank(*byte)).filter(|field| !field.is_empty())
}

/// A field of digits only, as a number; the largest one where it is larger than that.
pub(super) fn whole(field: &[u8]) -> Option<u64> {
    let mut at = 0;
    number(field, &mut at).filter(|_| at == field.len())
}

/// The number that begins at `at`, which becomes the place behind it; the largest one where it is larger than that.
fn number(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let begin = *at;
    let mut number = 0_u64;
    while let Some(digit) =
        bytes.get(*at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10)
    {
        number = number.saturating_mul(10).saturating_add(u64::from(digit));
        *at += 1;
    }
    (*at > begin).then_some(number)
}

/// Skips what separates two fields, and says which byte does: a comma or a semicolon, with or without blanks around it, or
/// else a blank.
fn separator(bytes: &[u8], at: &mut usize) -> Option<u8> {
    let skip = |at: &mut usize| {
        while bytes.get(*at).is_some_and(|byte| is_blank(*byte)) {
            *at += 1;
        }
    };
    let begin = *at;
    skip(at);
    match bytes.get(*at) {
        Some(byte @ (b',' | b';')) => {
            *at += 1;
            skip(at);
            Some(*byte)
        }
        _ => (*at > begin).then_some(b' '),
    }
}

/// A field as a number. Fortran writes the exponents of its numbers with a `D`.
fn real(field: &[u8]) -> Option<f64> {
    let field = std::str::from_utf8(field).ok()?;
    field.parse().or_else(|_| field.replace(['D', 'd'], "e").parse()).ok()
}

/// A number that is a weight.
#[expect(clippy::cast_possible_truncation, reason = "it is a whole number that fits")]
fn real_weight(number: f64) -> Option<Weight> {
    let is_weight = (0.0..=f64::from(LARGEST_WEIGHT)).contains(&number) && number.fract() == 0.0;
    is_weight.then_some(number as Weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REAL: Layout = Layout {
        first: 1,
        last: 50,
        columns: 3,
        value: Value::Weight,
        fields: "a row, a column and a value",
        vertex: "a row or column",
    };

    /// The vertices and the weight on a line, or what was expected and what was found.
    type Read = Result<Option<(u32, u32, u32)>, (&'static str, String)>;

    fn only(layout: Layout, line: &str) -> Read {
        let mut at = 0;
        let found = layout.line(line.as_bytes(), &mut at, LONGEST);
        assert_eq!(at, line.len(), "{line:?}");
        found
            .map(|edge| edge.map(|edge| (edge.from, edge.to, edge.weight)))
            .map_err(|fault| (fault.expected, fault.found))
    }

    #[test]
    fn good_lines_are_edges() {
        let separated = [
            "3,4\n",
            "3, 4\r\n",
            "3 ;4",
            " 3\t,\t4 # c\n",
            "3;4%c\n",
            "3 4 {'weight': 7}\n",
            "3 4 {}",
        ];
        let blanks = ["3 4\n", "3\t4\r\n", "  3 \t 4  \n", "003 0004", "3 4\r", "3 4 \r\n"];
        for line in separated.into_iter().chain(blanks) {
            assert_eq!(only(Layout::EDGES, line), Ok(Some((3, 4, 0))), "{line:?}");
        }
        for line in
            ["3 4 5\n", "3\t4\t5\r\n", " 3 4 5 ", "3 4 5", "3,4,5.0\n", "3;4;5\n", "3 4 5e0"]
        {
            assert_eq!(only(Layout::WEIGHTED_EDGES, line), Ok(Some((3, 4, 5))), "{line:?}");
        }
        for line in [
            "4 5 6\n",
            "4 5 6.0\n",
            "4 5 .6e1\n",
            "4 5 60E-1\n",
            "4 5 +6.000\r\n",
            "4 5 .6D+1",
            "4 5 60d-1 % c\n",
        ] {
            assert_eq!(only(REAL, line), Ok(Some((3, 4, 6))), "{line:?}");
        }
        assert_eq!(only(Layout::EDGES, "0 4294967294\n"), Ok(Some((0, u32::MAX - 1, 0))));
        assert_eq!(
            only(Layout::WEIGHTED_EDGES, "0 1 2147483647"),
            Ok(Some((0, 1, LARGEST_WEIGHT)))
        );
        assert_eq!(only(REAL, "50 1 2147483647.0"), Ok(Some((49, 0, LARGEST_WEIGHT))));
    }

    #[test]
    fn comments_and_empty_lines_are_no_edges() {
        for line in ["\n", "\r\n", "  \t \n", "# 1 2\n", "  % 1 2\n", "#", "", "   "] {
            assert_eq!(only(Layout::EDGES, line), Ok(None), "{line:?}");
        }
        let long = format!("# {}\n", "x".repeat(2 * LONGEST));
        assert_eq!(only(Layout::EDGES, &long), Ok(None));
    }

    #[test]
    fn bad_lines_say_what_was_expected() {
        let (two, vertex) = ("two vertices", "a vertex from 0 to 4294967294");
        let bad = [
            ("1\n", two, "1"),
            ("1 2 3\n", two, "1 2 3"),
            ("one two three\r\n", HEADER, "one two three"),
            ("source,target\n", HEADER, "source,target"),
            ("\"a\";\"b\"\n", HEADER, "\"a\";\"b\""),
            ("1,2,\n", two, "1,2,"),
            ("1,,2\n", two, "1,,2"),
            ("1 2,3\n", vertex, "1 2"),
            ("1,2;3\n", vertex, "1,2"),
            ("1 x\n", vertex, "x"),
            ("1x 2\n", vertex, "1x"),
            ("-1 2\n", vertex, "-1"),
            ("1 -2", vertex, "-2"),
            ("+1 2", vertex, "+1"),
            ("1.0 2\n", vertex, "1.0"),
            ("1,2 3\n", vertex, "2 3"),
            ("1 4294967295\n", vertex, "4294967295"),
            ("99999999999999999999999 1\n", vertex, "99999999999999999999999"),
            ("1\r2 3\n", vertex, "1\r2"),
            ("1\0 2\n", vertex, "1\0"),
        ];
        for (line, expected, found) in bad {
            assert_eq!(only(Layout::EDGES, line), Err((expected, found.to_owned())), "{line:?}");
        }
        let (three, weight) = ("two vertices and a weight", WEIGHT);
        let bad = [
            ("1 2\n", three, "1 2"),
            ("1 2 3 4\n", three, "1 2 3 4"),
            ("1 2 -3\n", weight, "-3"),
            ("1 2 3.5\n", weight, "3.5"),
            ("1;2;0,5\n", weight, "0,5"),
            ("1 2 0,5\n", three, "1 2 0,5"),
            ("1 2 2147483648\n", weight, "2147483648"),
        ];
        for (line, expected, found) in bad {
            assert_eq!(
                only(Layout::WEIGHTED_EDGES, line),
                Err((expected, found.to_owned())),
                "{line:?}"
            );
        }
        let unseen = Layout { value: Value::Unseen, ..REAL };
        let unread = Layout { value: Value::None, ..REAL };
        for field in ["0.5", "-1", "-1.0", "nan", "inf", "1e300", "2147483648.0", "1d-3"] {
            let line = format!("1 2 {field}\n");
            assert_eq!(only(REAL, &line), Err((WEIGHT, field.to_owned())));
            assert_eq!(only(unseen, &line), Ok(Some((0, 1, 0))));
            assert_eq!(only(unread, &line), Ok(Some((0, 1, 0))));
        }
        assert_eq!(only(unseen, "1 2 7\n"), Ok(Some((0, 1, 7))));
        assert_eq!(only(REAL, "1 2 x\n"), Err((WEIGHT, "x".to_owned())));
        for layout in [unseen, unread] {
            assert_eq!(only(layout, "1 2 x\n"), Err((NUMBER, "x".to_owned())));
            assert_eq!(only(layout, "1 2\n"), Err((REAL.fields, "1 2".to_owned())));
        }
        assert_eq!(only(REAL, "0 2 1\n"), Err((REAL.vertex, "0".to_owned())));
        assert_eq!(only(REAL, "1 51 1\n"), Err((REAL.vertex, "51".to_owned())));
    }

    #[test]
    fn errors_show_at_most_forty_characters() {
        let shown = |line: &str| only(Layout::EDGES, line).expect_err("a fault").1;
        assert_eq!(shown(&"ä".repeat(40)), "ä".repeat(40));
        assert_eq!(shown(&"ä".repeat(41)), format!("{}…", "ä".repeat(39)));
        assert_eq!(shown(&"\u{10ffff}".repeat(1000)).chars().count(), 40);
        let mut at = 0;
        let fault = Layout::EDGES.line(&[0xff; 100], &mut at, LONGEST).expect_err("a fault");
        assert_eq!(fault.found.chars().count(), 40);
    }

    #[test]
    fn an_edge_on_a_long_line_is_a_fault() {
        for line in [
            format!("1{}2\n", " ".repeat(LONGEST)),
            format!("1 {}2\n", "0".repeat(LONGEST)),
            " ".repeat(LONGEST),
        ] {
            assert_eq!(
                only(Layout::EDGES, &line).expect_err("a fault").0,
                "a line of less than 4096 bytes"
            );
        }
        let longest = format!("1{}2\n", " ".repeat(LONGEST - 3));
        assert_eq!(longest.len(), LONGEST);
        assert_eq!(only(Layout::EDGES, &longest), Ok(Some((1, 2, 0))));
        let too_long = [
            format!(" {longest}"),
            longest.replacen('1', "11", 1),
            format!("{}# 1 2\n", " ".repeat(LONGEST)),
        ];
        for line in too_long {
            let fault = only(Layout::EDGES, &line).expect_err("a fault");
            assert_eq!(fault.0, "a line of less than 4096 bytes");
        }
    }

    /// Lines that are nearly right, with a rare character anywhere.
    fn nearly() -> impl Strategy<Value = String> {
        let field = prop_oneof![
            4 => (0..60_u32).prop_map(|number| number.to_string()),
            1 => any::<u64>().prop_map(|number| number.to_string()),
            1 => "[-+.e0-9x]{1,4}",
        ];
        let blanks = prop_oneof![4 => Just(" ".to_owned()), 2 => "[ \t]?[,;][ \t]?", 1 => "[ \t\r#%{,;]{0,3}"];
        let end = prop_oneof![3 => Just("\n".to_owned()), 1 => "[ \t\r\n]{0,3}"];
        let fields = prop::collection::vec((blanks, field), 1..5);
        (fields, end).prop_map(|(fields, end)| {
            let mut line: String =
                fields.into_iter().map(|(blank, field)| blank + &field).collect();
            line.push_str(&end);
            line
        })
    }

    proptest! {
        #[test]
        fn the_quick_way_says_what_the_slow_one_says(
            line in prop_oneof![nearly(), nearly().prop_map(|line| line.trim_start().to_owned())],
        ) {
            for layout in [Layout::EDGES, Layout::WEIGHTED_EDGES, REAL] {
                let (mut quick, mut slow) = (0, 0);
                let found = layout.quick(line.as_bytes(), &mut quick);
                let expected = layout.slow(line.as_bytes(), &mut slow, LONGEST);
                if found.is_some() {
                    prop_assert_eq!((Ok(found), quick), (expected, slow));
                }
            }
        }
    }
}
