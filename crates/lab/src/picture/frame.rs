//! What all pictures share: size, colours, title, legend above the plot, axes with units.

use super::{Error, Result, short};
use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    Cartesian2d, ChartBuilder, Color, DrawingArea, IntoDrawingArea, IntoFont, RGBColor, Rectangle,
    SVGBackend, Text, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

pub(super) const WIDTH: u32 = 960;
const HEIGHT: u32 = 520;
/// What title and one line of legend take.
pub(super) const HEAD: i32 = MARGIN + 64;
pub(super) const MARGIN: i32 = 18;
const TITLE: f64 = 26.0;
pub(super) const LABEL: f64 = 18.0;

pub(super) const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(222, 222, 222);

/// The palette of Okabe and Ito, with a grey for black; yellow last, for it shows least on white.
const PALETTE: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(90, 90, 90),
    RGBColor(240, 228, 66),
];

/// The colour of series `index`; after eight they come again.
pub(super) fn colour(index: usize) -> RGBColor {
    PALETTE[index % PALETTE.len()]
}

/// A part of the picture, in pixels.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A plot with two linear axes.
pub(super) type Chart<'a> =
    ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws a picture into a string. `draw` gets the whole of it.
pub(super) fn render(draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    render_high(HEIGHT.cast_signed(), draw)
}

/// The same, of another height.
pub(super) fn render_high(
    height: i32,
    draw: impl FnOnce(&Area<'_>) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    {
        let size = (WIDTH, height.unsigned_abs());
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&RGBColor(255, 255, 255)).map_err(failed)?;
        draw(&root)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

/// Puts title and legend on top and gives the rest, for the plot.
pub(super) fn head<'a>(
    root: &Area<'a>,
    title: &str,
    legend: &[(String, RGBColor)],
) -> Result<Area<'a>> {
    const ROW: i32 = 24;
    let right = WIDTH.cast_signed() - MARGIN;
    let title = plain(title);
    // A long title gets smaller, not cut.
    let fits = f64::from(right - MARGIN) / f64::from(width(&title, TITLE).max(1));
    let title_style = style(TITLE * fits.min(1.0), INK, HPos::Left, VPos::Top);
    root.draw(&Text::new(title, (MARGIN, MARGIN), title_style)).map_err(failed)?;
    let (mut x, mut y) = (MARGIN, MARGIN + 40);
    for (name, colour) in legend {
        let name = plain(name);
        let wide = 22 + width(&name, LABEL) + 24;
        if x > MARGIN && x + wide > right {
            (x, y) = (MARGIN, y + ROW);
        }
        let swatch = Rectangle::new([(x, y), (x + 14, y + 14)], colour.filled());
        root.draw(&swatch).map_err(failed)?;
        let text_style = style(LABEL, INK, HPos::Left, VPos::Center);
        root.draw(&Text::new(name, (x + 22, y + 7), text_style)).map_err(failed)?;
        x += wide;
    }
    let below = if legend.is_empty() { MARGIN + 36 } else { y + ROW };
    Ok(root.split_vertically(below).1)
}

/// What the axes of a plot show.
pub(super) struct Axes<'a> {
    pub(super) x: Range<f64>,
    pub(super) x_label: &'a str,
    pub(super) x_numbers: Numbers,
    pub(super) y: Range<f64>,
    pub(super) y_label: &'a str,
}

/// The numbers along an axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// As they come.
    Any,
    /// Only whole ones, for counts.
    Whole,
    None,
}

/// Draws the axes. `behind` draws what lies behind the grid.
pub(super) fn axes<'a>(
    area: &Area<'a>,
    axes: &Axes<'_>,
    behind: impl FnOnce(&mut Chart<'a>) -> Result<()>,
) -> Result<Chart<'a>> {
    let mut chart = ChartBuilder::on(area)
        .margin_top(10)
        .margin_right(34)
        .margin_bottom(12)
        .margin_left(12)
        .x_label_area_size(60)
        .y_label_area_size(84)
        .build_cartesian_2d(axes.x.clone(), axes.y.clone())
        .map_err(failed)?;
    behind(&mut chart)?;
    let text = style(LABEL, INK, HPos::Center, VPos::Center);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(RGBColor(255, 255, 255).mix(0.0))
        .axis_style(INK)
        .x_labels(if axes.x_numbers == Numbers::None { 0 } else { 9 })
        .y_labels(6)
        .x_label_formatter(&|x| match axes.x_numbers {
            Numbers::Whole if x.fract() != 0.0 => String::new(),
            _ => short(*x),
        })
        .y_label_formatter(&|y| short(*y))
        .x_desc(plain(axes.x_label))
        .y_desc(plain(axes.y_label))
        .label_style(text.clone())
        .axis_desc_style(text)
        .draw()
        .map_err(failed)?;
    Ok(chart)
}

/// A way to write text.
pub(super) fn style(size: f64, colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    let mut style = TextStyle::from(("sans-serif", size).into_font()).pos(Pos::new(h, v));
    style.color = colour.to_backend_color();
    style
}

/// About how many pixels wide `text` is. Generous: its reader's font is not known.
pub(super) fn width(text: &str, size: f64) -> i32 {
    // SVG text comes out at size / 1.24 pixels, and a character is about 0.58 of that wide.
    let characters = i32::try_from(text.chars().count()).unwrap_or(i32::MAX / 100);
    characters.saturating_mul(pixels(size * 58.0 / 1.24)) / 100
}

/// A number of pixels, rounded.
pub(super) fn pixels(size: f64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates; pictures are small")]
    let whole = size.round() as i32;
    whole
}

/// `text` without what XML does not allow.
pub(super) fn plain(text: &str) -> String {
    let allowed = |c: char| !c.is_control() && c != '\u{fffe}' && c != '\u{ffff}';
    text.chars().map(|c| if allowed(c) { c } else { ' ' }).collect()
}

/// Upper end of an axis on which `greatest` is the greatest value: a little more than that.
pub(super) fn headroom(greatest: f64) -> f64 {
    if greatest > 0.0 { greatest * 1.12 } else { 1.0 }
}

pub(super) fn failed(error: impl std::fmt::Display) -> Error {
    Error::Draw { detail: error.to_string() }
}
