//! Groups of bars.

use super::frame::{self, Axes, Chart, LABEL, Numbers, failed, pixels};
use super::{Error, Result, short, write};
use plotters::prelude::{Color, PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, VPos};
use std::path::Path;

/// The share of a group's width that bars take; the rest keeps groups apart.
const FILLED: f64 = 0.8;
/// With more bars than this their values are left out, for want of room.
const BARS_WITH_VALUES: usize = 24;
/// About how wide the plot is, in pixels: to break the categories' names.
const PLOT_WIDTH: f64 = 800.0;

/// What a chart of grouped bars shows.
#[derive(Clone, Copy, Debug)]
pub struct Bars<'a> {
    /// The y axis, with its unit.
    pub y_label: &'a str,
    /// The groups, from left to right.
    pub categories: &'a [String],
    /// Name, and one value for each group; one that is not finite leaves a gap.
    pub series: &'a [(String, Vec<f64>)],
    /// A dashed line across, for instance at "no slowdown".
    pub reference: Option<f64>,
}

/// Draws grouped bars into the file `path`.
///
/// # Errors
/// [`Error::Empty`], [`Error::Uneven`], [`Error::Draw`], [`Error::Write`].
pub fn bars(path: &Path, title: &str, chart: &Bars<'_>) -> Result<()> {
    write(path, &draw(title, chart)?)
}

impl Bars<'_> {
    fn check(&self) -> Result<()> {
        let categories = self.categories.len();
        if categories == 0 || self.series.is_empty() {
            return Err(Error::Empty);
        }
        match self.series.iter().find(|(_, values)| values.len() != categories) {
            None => Ok(()),
            Some((series, values)) => {
                Err(Error::Uneven { series: series.clone(), values: values.len(), categories })
            }
        }
    }

    /// Least and greatest of zero, the reference and all values.
    fn limits(&self) -> (f64, f64) {
        let values = self.series.iter().flat_map(|(_, values)| values).copied();
        values
            .chain(self.reference)
            .filter(|value| value.is_finite())
            .fold((0.0, 0.0), |(least, greatest), value| (value.min(least), value.max(greatest)))
    }

    /// Left end, right end, height and series of each bar, where a group is 1 wide.
    fn boxes(&self) -> impl Iterator<Item = (f64, f64, f64, usize)> {
        let width = FILLED / self.series.len() as f64;
        self.series.iter().enumerate().flat_map(move |(series, (_, values))| {
            values.iter().enumerate().map(move |(group, value)| {
                let left = group as f64 + (1.0 - FILLED) / 2.0 + series as f64 * width;
                (left, left + width * 0.94, *value, series)
            })
        })
    }
}

fn draw(title: &str, bars: &Bars<'_>) -> Result<String> {
    bars.check()?;
    let (least, greatest) = bars.limits();
    let names = bars.series.iter().enumerate();
    let legend: Vec<_> =
        names.map(|(index, (name, _))| (name.clone(), frame::colour(index))).collect();
    let axes = Axes {
        x: 0.0..bars.categories.len() as f64,
        x_label: "",
        x_numbers: Numbers::None,
        y: least * 1.12..frame::headroom(greatest),
        y_label: bars.y_label,
    };
    frame::render(|root| {
        let area = frame::head(root, title, &legend)?;
        let mut chart = frame::axes(&area, &axes, |_| Ok(()))?;
        let boxes = bars.boxes().filter(|(_, _, value, _)| value.is_finite());
        let boxes = boxes.map(|(left, right, value, series)| {
            Rectangle::new([(left, 0.0), (right, value)], frame::colour(series).filled())
        });
        chart.draw_series(boxes).map_err(failed)?;
        draw_reference(&mut chart, bars, axes.x.end)?;
        draw_values(&mut chart, bars)?;
        draw_categories(&area, &chart, bars)
    })
}

fn draw_reference(chart: &mut Chart<'_>, bars: &Bars<'_>, end: f64) -> Result<()> {
    const DASHES: u32 = 60;
    let Some(level) = bars.reference.filter(|level| level.is_finite()) else { return Ok(()) };
    let dash = end / f64::from(DASHES);
    let dashes = (0..DASHES).map(|i| {
        let start = f64::from(i) * dash;
        PathElement::new([(start, level), (start + dash * 0.6, level)], frame::INK)
    });
    chart.draw_series(dashes).map_err(failed)?;
    Ok(())
}

/// Writes each bar's value above it, small enough to fit if there are many.
fn draw_values(chart: &mut Chart<'_>, bars: &Bars<'_>) -> Result<()> {
    let count = bars.categories.len() * bars.series.len();
    if count > BARS_WITH_VALUES {
        return Ok(());
    }
    let size = if count > 12 { 14.0 } else { 16.0 };
    let labels = bars.boxes().filter(|(_, _, value, _)| value.is_finite());
    let labels = labels.map(|(left, right, value, _)| {
        let style = frame::style(size, frame::INK, HPos::Center, VPos::Bottom);
        Text::new(short(value), (f64::midpoint(left, right), value.max(0.0)), style)
    });
    chart.draw_series(labels).map_err(failed)?;
    Ok(())
}

/// Writes the categories' names under their groups, split into lines that fit.
fn draw_categories(area: &frame::Area<'_>, chart: &Chart<'_>, bars: &Bars<'_>) -> Result<()> {
    const LINE: i32 = 18;
    let room = pixels(PLOT_WIDTH / bars.categories.len() as f64);
    let (origin_x, origin_y) = area.get_base_pixel();
    let bottom = chart.plotting_area().get_pixel_range().1.end;
    for (group, category) in bars.categories.iter().enumerate() {
        let middle = chart.backend_coord(&(group as f64 + 0.5, 0.0)).0 - origin_x;
        for (line, text) in split(&frame::plain(category), room).into_iter().enumerate() {
            let y = bottom - origin_y + 16 + LINE * i32::try_from(line).unwrap_or(0);
            let style = frame::style(LABEL, frame::INK, HPos::Center, VPos::Center);
            area.draw(&Text::new(text, (middle, y), style)).map_err(failed)?;
        }
    }
    Ok(())
}

/// `text` in lines of at most `room` pixels, split at spaces and hyphens only.
fn split(text: &str, room: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_inclusive([' ', '-']) {
        match lines.last_mut() {
            Some(line) if frame::width(&format!("{line}{word}"), LABEL) <= room => {
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| line.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::texts_of;
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn it_says_what_it_shows() {
        let categories = names(&["RandomAccess-L", "Random<Access>-R"]);
        let series = [
            ("paper".to_owned(), vec![611.0, 2146.0]),
            ("emd & co".to_owned(), vec![610.0, f64::NAN]),
        ];
        let bars = Bars {
            y_label: "huge pages split",
            categories: &categories,
            series: &series,
            reference: Some(610.0),
        };
        let texts = texts_of(&draw("Table 1", &bars).expect("drawn")).join("|");
        for label in
            ["Table 1", "paper", "emd &amp; co", "huge pages split", "611", "2146", "610", "2000"]
        {
            assert!(texts.contains(label), "{label} in {texts}");
        }
        assert!(texts.contains("RandomAccess-L|Random&lt;Access&gt;-R"), "{texts}");
    }

    #[test]
    fn no_bars_and_uneven_ones_are_errors() {
        let categories = names(&["a", "b"]);
        let with = |series: &[(String, Vec<f64>)]| {
            let bars = Bars { y_label: "y", categories: &categories, series, reference: None };
            draw("title", &bars).err()
        };
        assert_eq!(with(&[]), Some(Error::Empty));
        let uneven = Error::Uneven { series: "s".into(), values: 1, categories: 2 };
        assert_eq!(with(&[("s".into(), vec![1.0])]), Some(uneven));
        assert_eq!(with(&[("s".into(), vec![0.0, f64::INFINITY])]), None);
    }

    #[test]
    fn long_names_are_broken_where_they_may_be() {
        assert_eq!(split("RandomAccess-L", 400), ["RandomAccess-L"]);
        assert_eq!(split("RandomAccess-L", 115), ["RandomAccess-", "L"]);
        assert_eq!(split("a b", 10), ["a", "b"]);
        assert_eq!(split("", 10), Vec::<String>::new());
    }
}
