//! Bloat by address: Figure 4 of EMD (ISMM 2025).

use super::frame::{self, Axes, Numbers, failed};
use super::{Error, Result, write};
use plotters::prelude::{Color, RGBColor, Rectangle};
use std::path::Path;
use superpage_units::Share;

/// Columns drawn at most; the plot has hardly more pixels.
const COLUMNS: usize = 1000;

const FIRST_HALF: RGBColor = RGBColor(250, 243, 221);
const UNKNOWN: RGBColor = RGBColor(214, 214, 214);

/// Draws the bloat of a process's huge pages in order of address into the file `path`.
/// `None`: not known, drawn as a grey gap. With more than 1000 of them a column is a mean.
///
/// # Errors
/// [`Error::Empty`], [`Error::Draw`], [`Error::Write`].
pub fn bloat_by_address(path: &Path, title: &str, shares: &[Option<Share>]) -> Result<()> {
    write(path, &draw(title, shares)?)
}

/// A run of columns that look alike, in huge pages.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    start: f64,
    end: f64,
    percent: Option<f64>,
}

fn draw(title: &str, shares: &[Option<Share>]) -> Result<String> {
    if shares.is_empty() {
        return Err(Error::Empty);
    }
    let runs = runs(shares);
    let mut legend = vec![
        ("bloat".to_owned(), frame::colour(0)),
        ("first half of the address space".to_owned(), FIRST_HALF),
    ];
    if runs.iter().any(|run| run.percent.is_none()) {
        legend.push(("not known".to_owned(), UNKNOWN));
    }
    let count = shares.len() as f64;
    let axes = Axes {
        x: 0.0..count,
        x_label: "huge page (2 MiB), in order of address",
        x_numbers: Numbers::Whole,
        y: 0.0..100.0,
        y_label: "bloat: zero-filled base pages (%)",
    };
    frame::render(|root| {
        let area = frame::head(root, title, &legend)?;
        frame::axes(&area, &axes, |chart| {
            let half = Rectangle::new([(0.0, 0.0), (count / 2.0, 100.0)], FIRST_HALF.filled());
            chart.draw_series(std::iter::once(half)).map_err(failed)?;
            let boxes = runs.iter().map(|run| {
                let (height, colour) = match run.percent {
                    Some(percent) => (percent, frame::colour(0)),
                    None => (100.0, UNKNOWN),
                };
                Rectangle::new([(run.start, 0.0), (run.end, height)], colour.filled())
            });
            chart.draw_series(boxes).map_err(failed)?;
            Ok(())
        })?;
        Ok(())
    })
}

/// The columns, neighbours that look alike put together.
fn runs(shares: &[Option<Share>]) -> Vec<Run> {
    let columns = shares.len().min(COLUMNS);
    let mut runs: Vec<Run> = Vec::new();
    for column in 0..columns {
        let start = column * shares.len() / columns;
        let end = (column + 1) * shares.len() / columns;
        let percent = mean(&shares[start..end]);
        match runs.last_mut() {
            Some(last) if last.percent == percent => last.end = end as f64,
            _ => runs.push(Run { start: start as f64, end: end as f64, percent }),
        }
    }
    runs
}

/// The mean of what is known, in whole tenths of a percent.
fn mean(shares: &[Option<Share>]) -> Option<f64> {
    let known = || shares.iter().flatten();
    let sum: f64 = known().map(|share| share.get()).sum();
    match known().count() {
        0 => None,
        count => Some((sum / count as f64 * 1000.0).round() / 10.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::texts_of;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_says_what_it_shows() {
        let shares =
            [vec![Some(Share::percent(80)); 2000], vec![None; 96], vec![Some(Share::NONE); 2000]]
                .concat();
        let svg = draw("A <process> & \"its\" bloat\u{1b}", &shares).expect("drawn");
        let texts = texts_of(&svg).join("|");
        for label in [
            "A &lt;process&gt; &amp; &quot;its&quot; bloat",
            "huge page (2 MiB), in order of address",
            "bloat: zero-filled base pages (%)",
            "first half of the address space",
            "not known",
            "100",
            "4000",
        ] {
            assert!(texts.contains(label), "{label} in {texts}");
        }
        assert!(
            !texts_of(&draw("t", &[Some(Share::ALL)]).expect("drawn"))
                .contains(&"not known".into())
        );
        assert!(svg.len() < 20_000, "neighbours are put together: {} bytes", svg.len());
    }

    #[test]
    fn nothing_is_an_error() {
        assert_eq!(draw("title", &[]), Err(Error::Empty));
    }

    proptest! {
        #[test]
        fn runs_cover_everything_once(
            shares in prop::collection::vec(prop::option::of((0.0..1.0).prop_map(Share::clamped)), 1..3000),
        ) {
            let runs = runs(&shares);
            prop_assert!(runs.len() <= COLUMNS);
            prop_assert_eq!(runs[0].start, 0.0);
            prop_assert_eq!(runs[runs.len() - 1].end, shares.len() as f64);
            prop_assert!(runs.windows(2).all(|pair| pair[0].end == pair[1].start));
            texts_of(&draw("title", &shares).expect("drawn"));
        }
    }
}
