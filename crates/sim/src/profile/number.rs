//! A number of a profile: its value in a unit of its own, its source, its basis. And how it is
//! written.

use crate::translation::{GeometryError, LineGeometry, TlbGeometry};
use crate::units::{BytesPerSecond, Count, Cycles, Hertz};
use serde::{Deserialize, Serialize};
use superpage_units::{Bytes, Nanos};

/// On what a number rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// A paper says so.
    Paper,
    /// Follows from one measured number, of a paper or of this machine.
    Calibrated,
    /// Taken from elsewhere, or chosen.
    Assumed,
}

/// A number with where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written", bound = "T: Quantity")]
pub struct Number<T> {
    /// The number.
    pub value: T,
    /// Where it comes from.
    pub source: String,
    /// On what it rests.
    pub basis: Basis,
}

/// What a number can be: written as a value in one of some units.
pub trait Quantity: Copy {
    /// The units, largest first, and how many of the smallest each is. The last is the smallest.
    const UNITS: &'static [(&'static str, f64)];

    /// So many of the smallest unit.
    fn from_smallest(number: u64) -> Self;

    /// How many of the smallest unit.
    fn to_smallest(self) -> u64;
}

/// Implements [`Quantity`] for a type around a `u64`.
macro_rules! quantity {
    ($name:ident: $($unit:literal = $size:literal),+) => {
        impl Quantity for $name {
            const UNITS: &'static [(&'static str, f64)] = &[$(($unit, $size)),+];

            fn from_smallest(number: u64) -> Self {
                Self(number)
            }

            fn to_smallest(self) -> u64 {
                self.0
            }
        }
    };
}

quantity! { Nanos: "s" = 1e9, "ms" = 1e6, "us" = 1e3, "ns" = 1.0 }
quantity! { Bytes: "GiB" = 1_073_741_824.0, "MiB" = 1_048_576.0, "KiB" = 1024.0, "B" = 1.0 }
quantity! { BytesPerSecond: "GB/s" = 1e9, "MB/s" = 1e6, "B/s" = 1.0 }
quantity! { Hertz: "GHz" = 1e9, "MHz" = 1e6, "Hz" = 1.0 }
quantity! { Cycles: "cycles" = 1.0 }
quantity! { Count: "count" = 1.0 }

/// A number as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    value: f64,
    unit: String,
    source: String,
    basis: Basis,
}

impl<T: Quantity> TryFrom<Written> for Number<T> {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written { value, unit, source, basis } = written;
        let Some((_, size)) = T::UNITS.iter().find(|(known, _)| *known == unit) else {
            let known: Vec<&str> = T::UNITS.iter().map(|(unit, _)| *unit).collect();
            return Err(format!("unit {unit:?}, expected one of {}", known.join(", ")));
        };
        let smallest = (value * size).round();
        if !(0.0..=MOST).contains(&smallest) {
            return Err(format!("value {value} {unit}, expected 0 or more and below 2^53"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, and its range was just checked"
        )]
        let value = T::from_smallest(smallest as u64);
        Ok(Self { value, source, basis })
    }
}

/// Whole numbers up to here are exact as floating-point numbers.
const MOST: f64 = 9_007_199_254_740_992.0;

impl<T: Quantity> From<Number<T>> for Written {
    fn from(number: Number<T>) -> Self {
        let smallest = number.value.to_smallest() as f64;
        // The largest unit of which there is at least one; the smallest for less.
        let last = T::UNITS.last().copied().unwrap_or(("", 1.0));
        let (unit, size) =
            T::UNITS.iter().copied().find(|(_, size)| smallest >= *size).unwrap_or(last);
        Self {
            value: smallest / size,
            unit: unit.to_owned(),
            source: number.source,
            basis: number.basis,
        }
    }
}

/// The shape of a TLB or a page-walk cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenShape", into = "WrittenShape")]
pub struct Shape {
    /// The shape.
    pub geometry: TlbGeometry,
    /// Where it comes from.
    pub source: String,
    /// On what it rests.
    pub basis: Basis,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenShape {
    entries: u32,
    ways: u32,
    source: String,
    basis: Basis,
}

impl TryFrom<WrittenShape> for Shape {
    type Error = GeometryError;

    fn try_from(written: WrittenShape) -> Result<Self, GeometryError> {
        let WrittenShape { entries, ways, source, basis } = written;
        Ok(Self { geometry: TlbGeometry::new(entries, ways)?, source, basis })
    }
}

impl From<Shape> for WrittenShape {
    fn from(Shape { geometry, source, basis }: Shape) -> Self {
        Self { entries: geometry.entries(), ways: geometry.ways(), source, basis }
    }
}

/// How many page-table lines a data cache holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenLines", into = "WrittenLines")]
pub struct LineShape {
    /// How many.
    pub geometry: LineGeometry,
    /// Where that comes from.
    pub source: String,
    /// On what it rests.
    pub basis: Basis,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLines {
    lines: u32,
    source: String,
    basis: Basis,
}

impl TryFrom<WrittenLines> for LineShape {
    type Error = GeometryError;

    fn try_from(written: WrittenLines) -> Result<Self, GeometryError> {
        let WrittenLines { lines, source, basis } = written;
        Ok(Self { geometry: LineGeometry::new(lines)?, source, basis })
    }
}

impl From<LineShape> for WrittenLines {
    fn from(LineShape { geometry, source, basis }: LineShape) -> Self {
        Self { lines: geometry.table().entries(), source, basis }
    }
}

/// The keys of a number in the order in which people read them.
const ORDER: [&str; 7] = ["value", "unit", "entries", "ways", "lines", "source", "basis"];

/// Writes `what` with each number, a table without tables in it, on a line of its own.
pub(super) fn lines(what: &impl Serialize) -> String {
    // Only a map with keys that are not text could fail, and there is none in a profile.
    let table = toml::Table::try_from(what).unwrap_or_default();
    let mut text = String::new();
    section("", &table, &mut text);
    text
}

fn section(path: &str, table: &toml::Table, text: &mut String) {
    let is_section = |value: &toml::Value| {
        value.as_table().is_some_and(|table| table.values().any(toml::Value::is_table))
    };
    let (sections, values): (Vec<_>, Vec<_>) =
        table.iter().partition(|(_, value)| is_section(value));
    if !path.is_empty() && !values.is_empty() {
        text.push_str(&format!("\n[{path}]\n"));
    }
    for (key, value) in values {
        text.push_str(&format!("{key} = {}\n", inline(value)));
    }
    for (key, value) in sections {
        let key = quoted(key);
        let path = if path.is_empty() { key } else { format!("{path}.{key}") };
        value.as_table().into_iter().for_each(|table| section(&path, table, text));
    }
}

/// A key as TOML wants it: bare where it can be.
fn quoted(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) {
        return key.to_owned();
    }
    let escaped = key.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

fn inline(value: &toml::Value) -> String {
    let Some(table) = value.as_table() else { return value.to_string() };
    let pairs: Vec<String> =
        ORDER.iter().filter_map(|key| Some(format!("{key} = {}", table.get(*key)?))).collect();
    format!("{{ {} }}", pairs.join(", "))
}
