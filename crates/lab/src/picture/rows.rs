//! Bars that lie, a row for each, in groups: as many as there are, each with its name and its value.

use super::frame::{self, Area, INK, MARGIN, WIDTH, failed, pixels};
use super::{Error, Result, short, write};
use plotters::prelude::{Color, PathElement, RGBColor, Rectangle, Text};
use plotters::style::text_anchor::{HPos, VPos};
use std::path::Path;

/// Pixels from one row to the next, of which a bar takes so many.
const ROW: i32 = 20;
const BAR: i32 = 13;
/// A group's name, and the room above it.
const HEADING: i32 = 24;
const GAP: i32 = 10;
/// Below the rows: the axis's numbers and its label.
const FOOT: i32 = 64;
/// Sizes of text, as in the other pictures' labels or a little smaller.
const NAME: f64 = 17.0;
const SMALL: f64 = 16.0;
const FAINT: RGBColor = RGBColor(225, 225, 225);

/// Values that differ by more than this have a logarithmic axis.
const WIDEST: f64 = 100.0;

/// A value, and what it is held against.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name. Where groups have names, equal names of rows have equal colours.
    pub name: String,
    /// How long the bar is; nothing is drawn of one that is not finite.
    pub value: f64,
    /// A mark across the bar.
    pub mark: Option<f64>,
}

/// What a chart of rows shows.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The axis, with its unit.
    pub label: &'a str,
    /// Groups from top to bottom: name and rows. Without a name there is no line for it.
    pub groups: &'a [(String, Vec<Row>)],
    /// What the bars are, and what the marks.
    pub legend: [&'a str; 2],
    /// Whether the axis may be logarithmic.
    pub scaling: Scaling,
}

/// How values become lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// In proportion.
    Linear,
    /// In proportion, or if some are more than a hundred times others, by their logarithms.
    ByRange,
}

/// Draws rows into the file `path`, which is as high as they need.
///
/// # Errors
/// [`Error::Empty`], [`Error::Draw`], [`Error::Write`].
pub fn rows(path: &Path, title: &str, chart: &Rows<'_>) -> Result<()> {
    write(path, &draw(title, chart)?)
}

/// Where on the axis a value lies.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    is_log: bool,
    from: f64,
    to: f64,
}

impl Axis {
    fn of(chart: &Rows<'_>) -> Self {
        let all = || chart.rows().flat_map(|row| [Some(row.value), row.mark]).flatten();
        let all = || all().filter(|value| value.is_finite());
        let greatest = all().fold(0.0, f64::max);
        let least = all().fold(0.0, f64::min);
        let smallest = all().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let is_log =
            chart.scaling == Scaling::ByRange && least >= 0.0 && greatest > smallest * WIDEST;
        if is_log {
            let from = 10_f64.powf(smallest.log10().floor());
            return Self { is_log, from, to: greatest };
        }
        let to = if greatest > least { greatest } else { least + 1.0 };
        // Up to a quarter of the way to the next number.
        let quarter = step(to - least) / 4.0;
        Self { is_log, from: least, to: (to / quarter).ceil() * quarter }
    }

    /// 0 at its beginning, 1 at its end.
    fn place(self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        share.clamp(0.0, 1.0)
    }

    /// Where a bar begins.
    fn foot(self) -> f64 {
        if self.is_log { self.from } else { 0.0 }
    }

    /// The numbers to write along it.
    fn numbers(self) -> Vec<f64> {
        if self.is_log {
            let decades = (self.to / self.from).log10();
            let step = (decades / 7.0).ceil().max(1.0);
            let count = (decades / step).floor();
            return (0..=7)
                .map(f64::from)
                .filter(|at| *at <= count)
                .map(|at| self.from * 10_f64.powf(at * step))
                .collect();
        }
        let step = step(self.to - self.from);
        let first = (self.from / step).ceil();
        let numbers = (0..=12).map(|at| (first + f64::from(at)) * step);
        numbers.take_while(|number| *number <= self.to * (1.0 + 1e-9)).collect()
    }
}

/// From one number to the next, so that about six are written on a range of this length.
fn step(range: f64) -> f64 {
    let rough = range / 6.0;
    let unit = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|times| times * unit);
    steps.into_iter().find(|step| *step >= rough).unwrap_or(rough)
}

impl<'a> Rows<'a> {
    fn rows(&self) -> impl Iterator<Item = &'a Row> {
        self.groups.iter().flat_map(|(_, rows)| rows)
    }

    /// The names that rows have, each once; none in a group without a name, which is of one kind.
    fn names(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        let named = self.groups.iter().filter(|(name, _)| !name.is_empty());
        for row in named.flat_map(|(_, rows)| rows) {
            if !names.contains(&&*row.name) {
                names.push(&row.name);
            }
        }
        names
    }

    fn height(&self) -> i32 {
        let of = |(name, rows): &(String, Vec<Row>)| {
            let heading = if name.is_empty() { 0 } else { HEADING + GAP };
            heading + ROW * i32::try_from(rows.len()).unwrap_or(0)
        };
        self.groups.iter().map(of).sum::<i32>() + GAP
    }
}

/// What is written at the end of a row.
fn said(row: &Row) -> String {
    let value = if row.value.is_finite() { short(row.value) } else { "none".to_owned() };
    match row.mark {
        Some(mark) => format!("{value}  ({})", short(mark)),
        None => value,
    }
}

/// The plot: its columns, in pixels from the left, and its axis.
struct Plot<'a> {
    left: i32,
    right: i32,
    axis: Axis,
    names: Vec<&'a str>,
}

impl Plot<'_> {
    fn x(&self, value: f64) -> i32 {
        self.left + pixels(self.axis.place(value) * f64::from(self.right - self.left))
    }

    fn row(&self, area: &Area<'_>, row: &Row, y: i32) -> Result<()> {
        let middle = y + ROW / 2;
        let name = frame::style(SMALL, INK, HPos::Right, VPos::Center);
        let text = Text::new(frame::plain(&row.name), (self.left - 8, middle), name);
        area.draw(&text).map_err(failed)?;
        let (top, bottom) = (middle - BAR / 2, middle + BAR / 2);
        let mut end = self.x(self.axis.foot());
        if row.value.is_finite() {
            let at = self.names.iter().position(|name| *name == row.name).unwrap_or(0);
            let ends = [end, self.x(row.value)];
            let bar = Rectangle::new(
                [(ends[0].min(ends[1]), top), (ends[0].max(ends[1]), bottom)],
                frame::colour(at).filled(),
            );
            area.draw(&bar).map_err(failed)?;
            end = ends[0].max(ends[1]);
        }
        if let Some(mark) = row.mark.filter(|mark| mark.is_finite()) {
            let x = self.x(mark);
            let line = Rectangle::new([(x - 1, top - 3), (x + 2, bottom + 3)], INK.filled());
            area.draw(&line).map_err(failed)?;
            end = end.max(x + 2);
        }
        let style = frame::style(SMALL, INK, HPos::Left, VPos::Center);
        area.draw(&Text::new(said(row), (end + 7, middle), style)).map_err(failed)
    }

    /// The grid behind the rows, the numbers below them and what they are.
    fn grid(&self, area: &Area<'_>, label: &str, bottom: i32) -> Result<()> {
        for number in self.axis.numbers() {
            let x = self.x(number);
            let line = PathElement::new([(x, 0), (x, bottom)], FAINT);
            area.draw(&line).map_err(failed)?;
            let style = frame::style(SMALL, INK, HPos::Center, VPos::Top);
            area.draw(&Text::new(short(number), (x, bottom + 6), style)).map_err(failed)?;
        }
        let foot = self.x(self.axis.foot());
        area.draw(&PathElement::new([(foot, 0), (foot, bottom)], INK)).map_err(failed)?;
        let label = if self.axis.is_log { format!("{label}, logarithmic") } else { label.into() };
        let middle = i32::midpoint(self.left, self.right);
        let style = frame::style(NAME, INK, HPos::Center, VPos::Top);
        area.draw(&Text::new(frame::plain(&label), (middle, bottom + 32), style)).map_err(failed)
    }
}

fn draw(title: &str, chart: &Rows<'_>) -> Result<String> {
    if chart.rows().next().is_none() {
        return Err(Error::Empty);
    }
    let widest = |texts: &mut dyn Iterator<Item = String>| {
        texts.map(|text| frame::width(&text, SMALL)).max().unwrap_or(0)
    };
    let names = chart.rows().map(|row| row.name.clone());
    // Groups' names stand left of the plot too; they are a little larger.
    let groups = chart.groups.iter().map(|(name, _)| format!("{name}  "));
    let left = MARGIN + 24 + widest(&mut names.chain(groups));
    let right = WIDTH.cast_signed() - MARGIN - 10 - widest(&mut chart.rows().map(said));
    let plot = Plot { left, right, axis: Axis::of(chart), names: chart.names() };
    let [bars, marks] = chart.legend;
    let mut legend = vec![(bars.to_owned(), frame::colour(0))];
    if chart.rows().any(|row| row.mark.is_some()) {
        legend.push((format!("{marks} (in brackets)"), INK));
    }
    let bottom = chart.height();
    frame::render_high(frame::HEAD + bottom + FOOT, |root| {
        let area = frame::head(root, title, &legend)?;
        plot.grid(&area, chart.label, bottom)?;
        let mut y = GAP / 2;
        for (group, rows) in chart.groups {
            if !group.is_empty() {
                let style = frame::style(NAME, INK, HPos::Left, VPos::Center);
                let place = (MARGIN, y + GAP + HEADING / 2);
                area.draw(&Text::new(frame::plain(group), place, style)).map_err(failed)?;
                y += GAP + HEADING;
            }
            for row in rows {
                plot.row(&area, row, y)?;
                y += ROW;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::texts_of;
    use super::*;

    fn row(name: &str, value: f64, mark: Option<f64>) -> Row {
        Row { name: name.to_owned(), value, mark }
    }

    fn chart(groups: &[(String, Vec<Row>)]) -> Rows<'_> {
        let legend = ["simulated", "in the paper"];
        Rows { label: "time (ms)", groups, legend, scaling: Scaling::ByRange }
    }

    fn group(rows: Vec<Row>) -> [(String, Vec<Row>); 1] {
        [("A & B".to_owned(), rows)]
    }

    #[test]
    fn it_says_what_it_shows() {
        let groups = group(vec![row("linux <x>", 1.5, Some(2.0)), row("emd", f64::NAN, None)]);
        let svg = draw("Table 1", &chart(&groups)).expect("drawn");
        let texts = texts_of(&svg).join("|");
        for label in ["Table 1", "A &amp; B", "linux &lt;x&gt;", "1.5  (2)", "none", "time (ms)"] {
            assert!(texts.contains(label), "{label} in {texts}");
        }
        assert!(texts.contains("in the paper (in brackets)"), "{texts}");
        let alone = group(vec![row("linux", 1.5, None)]);
        let texts = texts_of(&draw("t", &chart(&alone)).expect("drawn")).join("|");
        assert!(!texts.contains("in the paper"), "{texts}");
    }

    #[test]
    fn no_rows_are_an_error() {
        assert_eq!(draw("t", &chart(&[])), Err(Error::Empty));
        assert_eq!(draw("t", &chart(&group(Vec::new()))), Err(Error::Empty));
    }

    #[test]
    fn the_axis_is_logarithmic_only_where_it_must_be() {
        let axis = |values: &[f64], scaling| {
            let groups = group(values.iter().map(|value| row("a", *value, None)).collect());
            Axis::of(&Rows { scaling, ..chart(&groups) })
        };
        let log = axis(&[0.48, 600.0, 0.0], Scaling::ByRange);
        assert!(log.is_log && log.from == 0.1 && log.to == 600.0);
        assert_eq!(log.numbers().len(), 4);
        assert_eq!((log.place(0.0), log.place(600.0)), (0.0, 1.0));
        assert!(!axis(&[0.48, 600.0], Scaling::Linear).is_log);
        assert!(!axis(&[-1.0, 0.01, 600.0], Scaling::ByRange).is_log);
        let linear = axis(&[1.0, 87.0], Scaling::ByRange);
        assert_eq!((linear.numbers(), linear.to), (vec![0.0, 20.0, 40.0, 60.0, 80.0], 90.0));
        assert_eq!(axis(&[0.0], Scaling::ByRange).place(0.0), 0.0);
        let below = axis(&[-10.0, 30.0], Scaling::ByRange);
        assert!((below.place(0.0) - 0.25).abs() < 1e-9, "bars begin at zero");
        assert!(below.numbers().contains(&0.0) && below.numbers().len() >= 4);
    }
}
