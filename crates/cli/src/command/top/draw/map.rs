//! The view of one process: its numbers, and its address space, a character for neighbouring ranges. The
//! fuller the character, the more of the memory is in use; the colour says how it is mapped.

use super::super::model::{Model, View};
use super::super::snapshot::{Cell, Line as MapLine, Map, Size, density};
use super::{bloat, heaps};
use crate::show;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget};
use superpage_units::{HugePages, Pid, Share};

/// Columns of the address before each line.
const LABEL: u16 = 16;
/// Screens that the whole map should take at most; then a cell stands for more ranges.
const SCREENS: usize = 8;

/// Draws process `pid`.
pub(super) fn draw(model: &mut Model, pid: Pid, area: Rect, buffer: &mut Buffer) {
    let heads = heads(model, pid);
    let above = u16::try_from(heads.len()).unwrap_or(u16::MAX).min(area.height);
    Paragraph::new(heads).render(Rect { height: above, ..area }, buffer);
    let below = Rect { y: area.y + above, height: area.height - above, ..area };
    let Some(map) = model.snapshot.map.take() else {
        Paragraph::new("Its memory cannot be looked into; it may have exited.")
            .render(below, buffer);
        return;
    };
    let (columns, height) =
        (usize::from(below.width.saturating_sub(LABEL)), usize::from(below.height));
    let per_cell = map.ranges.len().div_ceil((columns * height * SCREENS).max(1)).max(1);
    let lines = map.lines(columns, per_cell);
    let room = height.saturating_sub(1);
    model.hold_scroll(lines.len().saturating_sub(room));
    let scroll = if let View::One { scroll, .. } = model.view { scroll } else { 0 };
    let more = lines.len().saturating_sub(scroll + room);
    let mut shown: Vec<Line<'_>> = vec![legend(per_cell, more)];
    shown.extend(lines.iter().skip(scroll).take(room).map(line));
    Paragraph::new(shown).render(below, buffer);
    model.snapshot.map = Some(map);
}

fn heads(model: &Model, pid: Pid) -> Vec<Line<'static>> {
    let Some(process) = model.process(pid) else {
        return vec![Line::raw(format!("Process {pid} is not there any more."))];
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let name = show::printable(&process.command);
    let bloat = bloat(process).map_or("unknown".to_owned(), |bytes| bytes.to_string());
    let mut lines =
        vec![Line::styled(if pid == Pid(0) { name } else { format!("{name} ({pid})") }, bold)];
    let mut numbers = format!(
        "resident {}, in huge pages {} ({}), of it bloat {bloat}",
        process.resident,
        process.all_huge(),
        process.share_huge(),
    );
    if !process.gigantic.is_zero() {
        numbers.push_str(&format!("; beside it in 1 GiB pages {}", process.gigantic));
    }
    lines.push(Line::raw(numbers));
    if let Some(heap) = &process.heap {
        let [memory, traffic] = heaps::lines(heap);
        lines.extend(
            [format!("heap on huge + base pages: {memory}"), format!("  {traffic}")].map(Line::raw),
        );
    }
    lines.extend(model.snapshot.map.as_ref().map(|map| Line::raw(sums(map))));
    lines
}

/// The map in numbers.
fn sums(map: &Map) -> String {
    let huge = map.ranges.iter().filter(|seen| seen.size == Size::Huge).count();
    let base = map.ranges.len() - huge;
    let used = density(&map.ranges).map_or("?".to_owned(), |share| share.to_string());
    format!("{huge} huge pages, {base} PMD ranges on base pages; {used} of them in use")
}

fn legend(per_cell: usize, more: usize) -> Line<'static> {
    let each = HugePages(per_cell as u64).bytes();
    let more = if more == 0 { String::new() } else { format!("  ({more} more lines below)") };
    Line::from(vec![
        Span::raw(format!("each cell {each}: ")),
        Span::styled("huge", Style::new().fg(colour(Share::ALL))),
        Span::raw(" "),
        Span::styled("mixed", Style::new().fg(colour(Share::percent(50)))),
        Span::raw(" "),
        Span::styled("base", Style::new().fg(colour(Share::NONE))),
        Span::raw(format!(" pages; fuller: more in use, ░ unknown{more}")),
    ])
}

fn line(line: &MapLine) -> Line<'static> {
    let mut spans = vec![Span::raw(format!("{:>14}  ", line.start.start().to_string()))];
    spans.extend(line.cells.iter().map(|cell| {
        Span::styled(glyph(*cell).to_string(), Style::new().fg(colour(cell.share_huge)))
    }));
    Line::from(spans)
}

/// Something is in every range of the map, so no cell is blank; a shade stands for what is not
/// known yet.
fn glyph(cell: Cell) -> char {
    cell.density.map_or('░', |density| show::level(density.max(Share::clamped(1.0 / 8.0))))
}

/// How a cell is mapped.
pub(in super::super) fn colour(share_huge: Share) -> Color {
    match share_huge {
        Share::ALL => Color::Green,
        Share::NONE => Color::Blue,
        _ => Color::Yellow,
    }
}
