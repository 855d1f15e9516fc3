//! Lines over time.

use super::frame::{self, Axes, Chart, Numbers, failed};
use super::{Error, Result, write};
use plotters::prelude::{PathElement, RGBColor, ShapeStyle};
use std::path::Path;

/// How thick the last line is, in pixels. Those before are thicker, so that lines that lie on each
/// other show beside each other; but not ever thicker.
const THICK: u32 = 2;
const THICKEST: u32 = 8;
/// What a chart of lines shows.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    /// The x axis, with its unit.
    pub x_label: &'a str,
    /// The y axis, with its unit.
    pub y_label: &'a str,
    /// Name, and points from left to right; those that are not finite are left out.
    pub series: &'a [(String, Vec<(f64, f64)>)],
}

/// Draws lines into the file `path`.
///
/// # Errors
/// [`Error::Empty`], [`Error::Draw`], [`Error::Write`].
pub fn lines(path: &Path, title: &str, chart: &Lines<'_>) -> Result<()> {
    write(path, &draw(title, chart)?)
}

impl Lines<'_> {
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let all = self.series.iter().flat_map(|(_, points)| points).copied();
        all.filter(|point| is_finite(*point))
    }

    /// Least and greatest x, greatest y.
    fn limits(&self) -> Option<(f64, f64, f64)> {
        self.points().fold(None, |limits, (x, y)| {
            let (left, right, top) = limits.unwrap_or((x, x, 0.0));
            Some((x.min(left), x.max(right), y.max(top)))
        })
    }
}

fn is_finite((x, y): (f64, f64)) -> bool {
    x.is_finite() && y.is_finite()
}

fn draw(title: &str, lines: &Lines<'_>) -> Result<String> {
    let (left, right, top) = lines.limits().ok_or(Error::Empty)?;
    let names = lines.series.iter().enumerate();
    let legend: Vec<_> =
        names.map(|(index, (name, _))| (name.clone(), frame::colour(index))).collect();
    let axes = Axes {
        // A single point has no width.
        x: left..if right > left { right } else { left + 1.0 },
        x_label: lines.x_label,
        x_numbers: Numbers::Any,
        y: 0.0..frame::headroom(top),
        y_label: lines.y_label,
    };
    frame::render(|root| {
        let area = frame::head(root, title, &legend)?;
        let mut chart = frame::axes(&area, &axes, |_| Ok(()))?;
        for (index, (_, points)) in lines.series.iter().enumerate() {
            let above = u32::try_from(lines.series.len() - 1 - index).unwrap_or(THICKEST);
            let thick = (THICK + above).min(THICKEST);
            draw_one(&mut chart, points, thick, frame::colour(index))?;
        }
        Ok(())
    })
}

fn draw_one(
    chart: &mut Chart<'_>,
    points: &[(f64, f64)],
    thick: u32,
    colour: RGBColor,
) -> Result<()> {
    let style = ShapeStyle { color: colour.into(), filled: false, stroke_width: thick };
    let points: Vec<_> = points.iter().copied().filter(|point| is_finite(*point)).collect();
    let path = PathElement::new(points, style);
    chart.draw_series(std::iter::once(path)).map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::texts_of;
    use super::*;

    fn series(name: &str, points: &[(f64, f64)]) -> (String, Vec<(f64, f64)>) {
        (name.to_owned(), points.to_vec())
    }

    fn drawn(series: &[(String, Vec<(f64, f64)>)]) -> Result<String> {
        draw("Memory & time", &Lines { x_label: "time (s)", y_label: "memory (MiB)", series })
    }

    #[test]
    fn it_says_what_it_shows() {
        let all = [
            series("linux", &[(0.0, 10.0), (1.0, 30.0), (2.0, f64::NAN)]),
            series("linux-4k <x>", &[(0.0, 5.0), (2.0, 15.0)]),
        ];
        let svg = drawn(&all).expect("drawn");
        let texts = texts_of(&svg).join("|");
        for label in
            ["Memory &amp; time", "time (s)", "memory (MiB)", "linux-4k &lt;x&gt;", "0.5", "30"]
        {
            assert!(texts.contains(label), "{label} in {texts}");
        }
        assert!(svg.matches("<polyline").count() >= 2);
    }

    #[test]
    fn a_single_point_is_drawn_too() {
        assert!(drawn(&[series("a", &[(0.0, 1.0)]), series("b", &[(0.0, 1.0)])]).is_ok());
    }

    #[test]
    fn no_points_are_an_error() {
        assert_eq!(drawn(&[]).err(), Some(Error::Empty));
        assert_eq!(drawn(&[series("a", &[(f64::NAN, 1.0)])]).err(), Some(Error::Empty));
    }
}
