//! One line of a text file: an edge, nothing, or a fault.
//!
//! Most lines are numbers with blanks between, which [`Layout::quick`] reads byte by byte. Whatever it does not
//! understand, [`Layout::slow`] takes apart into fields, to read what is rare (real numbers, comments, blanks at the
//! end) and to say what is wrong.

use crate::build::Edge;
use crate::graph::{MOST_VERTICES, Vertex, Weight};

/// The largest weight: files have 32-bit numbers with a sign.
pub(super) const LARGEST_WEIGHT: Weight = i32::MAX.unsigned_abs();

/// The bytes of the longest line that may hold an edge, with its end. Chosen: three numbers of ten digits take 34 with
/// blanks and `\r\n`.
pub(super) const LONGEST: usize = 4096; // tidy: allow(characters of a line)

/// The third field of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// No third field.
    None,
    /// A weight.
    Whole,
    /// A weight that may be written as a real number, as in `3.0` or `2e3`.
    Real,
}

/// The layout of a file's lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The number that stands for vertex 0.
    pub(super) first: u64,
    /// The largest number that stands for a vertex.
    pub(super) last: u64,
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
        value: Value::None,
        fields: "two vertices",
        vertex: "a vertex from 0 to 4294967294",
    };
    /// Two vertices and a weight on each line.
    pub(super) const WEIGHTED_EDGES: Self =
        Self { value: Value::Whole, fields: "two vertices and a weight", ..Self::EDGES };
}

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

    /// Parses a line of digits and blanks only; `None` for any other line.
    fn quick(&self, bytes: &[u8], at: &mut usize) -> Option<Edge> {
        let from = self.vertex(number(bytes, at)?)?;
        blanks(bytes, at)?;
        let to = self.vertex(number(bytes, at)?)?;
        let weight = match self.value {
            Value::None => 0,
            Value::Whole | Value::Real => {
                blanks(bytes, at)?;
                weight(number(bytes, at)?)?
            }
        };
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
        let mut fields = fields(line);
        let incomplete = || Fault::new(self.fields, line);
        let Some(from) = fields.next() else { return Ok(None) };
        let to = fields.next().ok_or_else(incomplete)?;
        let value = match self.value {
            Value::None => None,
            Value::Whole | Value::Real => Some(fields.next().ok_or_else(incomplete)?),
        };
        if fields.next().is_some() {
            return Err(incomplete());
        }
        let vertex = |field: &[u8]| {
            let vertex = whole(field).and_then(|number| self.vertex(number));
            vertex.ok_or_else(|| Fault::new(self.vertex, field))
        };
        let (from, to) = (vertex(from)?, vertex(to)?);
        let weight = value.map_or(Ok(0), |field| self.weight(field))?;
        Ok(Some(Edge { from, to, weight }))
    }

    fn vertex(&self, number: u64) -> Option<Vertex> {
        let number = Some(number).filter(|number| *number <= self.last)?;
        Vertex::try_from(number.checked_sub(self.first)?).ok()
    }

    fn weight(&self, field: &[u8]) -> Result<Weight, Fault> {
        let whole = whole(field).and_then(weight);
        match self.value {
            Value::None | Value::Whole => {
                whole.ok_or_else(|| Fault::new("a weight from 0 to 2147483647", field))
            }
            Value::Real => whole.or_else(|| real(field)).ok_or_else(|| {
                Fault::new(
                    "a whole number from 0 to 2147483647, because weights are whole numbers",
                    field,
                )
            }),
        }
    }
}

fn weight(number: u64) -> Option<Weight> {
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

/// Skips blanks, of which there must be one.
fn blanks(bytes: &[u8], at: &mut usize) -> Option<()> {
    let begin = *at;
    while bytes.get(*at).is_some_and(|byte| is_blank(*byte)) {
        *at += 1;
    }
    (*at > begin).then_some(())
}

/// A real number that is a weight.
#[expect(clippy::cast_possible_truncation, reason = "it is a whole number that fits")]
fn real(field: &[u8]) -> Option<Weight> {
    let number: f64 = std::str::from_utf8(field).ok()?.parse().ok()?;
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
        value: Value::Real,
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
        for line in ["3 4\n", "3\t4\r\n", "  3 \t 4  \n", "003 0004", "3 4\r", "3 4 \r\n"] {
            assert_eq!(only(Layout::EDGES, line), Ok(Some((3, 4, 0))), "{line:?}");
        }
        for line in ["3 4 5\n", "3\t4\t5\r\n", " 3 4 5 ", "3 4 5"] {
            assert_eq!(only(Layout::WEIGHTED_EDGES, line), Ok(Some((3, 4, 5))), "{line:?}");
        }
        for line in ["4 5 6\n", "4 5 6.0\n", "4 5 .6e1\n", "4 5 60E-1\n", "4 5 +6.000\r\n"] {
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
            ("one two three\r\n", two, "one two three"),
            ("1 x\n", vertex, "x"),
            ("1x 2\n", vertex, "1x"),
            ("-1 2\n", vertex, "-1"),
            ("1 -2", vertex, "-2"),
            ("+1 2", vertex, "+1"),
            ("1.0 2\n", vertex, "1.0"),
            ("1,2 3\n", vertex, "1,2"),
            ("1 4294967295\n", vertex, "4294967295"),
            ("99999999999999999999999 1\n", vertex, "99999999999999999999999"),
            ("1\r2 3\n", vertex, "1\r2"),
            ("1\0 2\n", vertex, "1\0"),
        ];
        for (line, expected, found) in bad {
            assert_eq!(only(Layout::EDGES, line), Err((expected, found.to_owned())), "{line:?}");
        }
        let (three, weight) = ("two vertices and a weight", "a weight from 0 to 2147483647");
        let bad = [
            ("1 2\n", three, "1 2"),
            ("1 2 3 4\n", three, "1 2 3 4"),
            ("1 2 -3\n", weight, "-3"),
            ("1 2 3.0\n", weight, "3.0"),
            ("1 2 2147483648\n", weight, "2147483648"),
        ];
        for (line, expected, found) in bad {
            assert_eq!(
                only(Layout::WEIGHTED_EDGES, line),
                Err((expected, found.to_owned())),
                "{line:?}"
            );
        }
        let whole = "a whole number from 0 to 2147483647, because weights are whole numbers";
        for field in ["0.5", "-1", "-1.0", "nan", "inf", "1e300", "2147483648.0", "x", "1d3"] {
            assert_eq!(only(REAL, &format!("1 2 {field}\n")), Err((whole, field.to_owned())));
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
        let blanks = prop_oneof![4 => Just(" ".to_owned()), 1 => "[ \t\r#%]{0,3}"];
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
