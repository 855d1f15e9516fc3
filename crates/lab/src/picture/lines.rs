//! Lines over a common x axis.

use super::frame::{self, Axes, Numbers, failed};
use super::{Error, Result, write};
use plotters::prelude::{Circle, Color, PathElement};
use std::path::Path;

/// What a chart of lines shows.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    /// The x axis, with its unit.
    pub x_label: &'a str,
    /// The y axis, with its unit.
    pub y_label: &'a str,
    /// Name and points, from left to right; points that are not finite are left out.
    pub series: &'a [(String, Vec<(f64, f64)>)],
}

/// Draws lines into the file `path`. The y axis begins at zero.
///
/// # Errors
/// [`Error::Empty`], [`Error::Draw`], [`Error::Write`].
pub fn lines(path: &Path, title: &str, chart: &Lines<'_>) -> Result<()> {
    write(path, &draw(title, chart)?)
}

fn finite(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
}

fn draw(title: &str, lines: &Lines<'_>) -> Result<String> {
    let all = || lines.series.iter().flat_map(|(_, points)| finite(points));
    if all().next().is_none() {
        return Err(Error::Empty);
    }
    let left = all().fold(f64::INFINITY, |least, (x, _)| least.min(x));
    let right = all().fold(f64::NEG_INFINITY, |greatest, (x, _)| greatest.max(x));
    // A single point needs some width around it.
    let right = if right > left { right } else { left + 1.0 };
    let bottom = all().fold(0.0_f64, |least, (_, y)| least.min(y));
    let top = all().fold(0.0_f64, |greatest, (_, y)| greatest.max(y));
    let names = lines.series.iter().enumerate();
    let legend: Vec<_> =
        names.map(|(index, (name, _))| (name.clone(), frame::colour(index))).collect();
    let axes = Axes {
        x: left..right,
        x_label: lines.x_label,
        x_numbers: Numbers::All,
        y: bottom * 1.12..frame::headroom(top),
        y_label: lines.y_label,
    };
    frame::render(|root| {
        let area = frame::head(root, title, &legend)?;
        let mut chart = frame::axes(&area, &axes, |_| Ok(()))?;
        for (index, (_, points)) in lines.series.iter().enumerate() {
            let colour = frame::colour(index);
            let path: Vec<_> = finite(points).collect();
            let dots = path.clone().into_iter().map(|at| Circle::new(at, 4, colour.filled()));
            chart.draw_series(dots).map_err(failed)?;
            let line = PathElement::new(path, colour.stroke_width(2));
            chart.draw_series(std::iter::once(line)).map_err(failed)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::texts_of;
    use super::*;

    #[test]
    fn it_says_what_it_shows() {
        let series = [
            ("emd".to_owned(), vec![(20.0, 1.01), (30.0, 1.02), (50.0, f64::NAN)]),
            ("hawkeye".to_owned(), vec![(20.0, 1.3), (50.0, 2.1)]),
        ];
        let lines = Lines {
            x_label: "memory taken back (% of footprint)",
            y_label: "slowdown (times)",
            series: &series,
        };
        let texts = texts_of(&draw("Figure 7", &lines).expect("drawn")).join("|");
        for label in ["Figure 7", "emd", "hawkeye", "slowdown (times)", "(% of footprint)", "50"] {
            assert!(texts.contains(label), "{label} in {texts}");
        }
    }

    #[test]
    fn no_point_is_an_error_and_one_is_none() {
        let with = |points: Vec<(f64, f64)>| {
            let series = [("s".to_owned(), points)];
            draw("title", &Lines { x_label: "x", y_label: "y", series: &series }).err()
        };
        assert_eq!(with(vec![]), Some(Error::Empty));
        assert_eq!(with(vec![(f64::NAN, 1.0)]), Some(Error::Empty));
        assert_eq!(with(vec![(5.0, 0.0)]), None);
    }
}
