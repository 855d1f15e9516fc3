//! What was done: how much per second by cause, and the last actions.

use super::super::model::{Cause, Model, View, causes};
use super::super::snapshot::Origin;
use crate::show::{self, action};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Widget};
use superpage_manager::history::{Entry, What};
use superpage_units::Share;

/// Slices of time in a line of bars.
const SLICES: usize = 30;
/// How long each is, in milliseconds.
const SLICE_MS: u64 = 2000;
/// Draws both, or only the actions of the process that is open.
pub(super) fn draw(model: &Model, area: Rect, buffer: &mut Buffer) {
    if let View::One { .. } = model.view {
        return actions(model, area, buffer);
    }
    // One more for the actions: each is a line, and causes are few.
    let parts = Layout::vertical([Constraint::Length(area.height * 4 / 9), Constraint::Min(1)]);
    let [above, below] = parts.areas(area);
    per_second(model, above, buffer);
    actions(model, below, buffer);
}

pub(super) fn titled(title: &str, lines: Vec<Line<'_>>, area: Rect, buffer: &mut Buffer) {
    let block = Block::new().borders(Borders::TOP).title(format!(" {title} "));
    Paragraph::new(lines).block(block).render(area, buffer);
}

fn per_second(model: &Model, area: Rect, buffer: &mut Buffer) {
    let found = causes(&model.snapshot, SLICES, SLICE_MS);
    let most = found.iter().flat_map(|cause| &cause.slices).fold(0.0, |a: f64, b| a.max(*b));
    let mut lines: Vec<Line<'_>> = found.iter().map(|cause| cause_line(cause, most)).collect();
    if lines.is_empty() {
        lines.push(Line::raw(nothing(model)));
    }
    titled("huge pages per second, last minute, by cause", lines, area, buffer);
}

/// Why there is nothing to show.
fn nothing(model: &Model) -> String {
    match &model.snapshot.origin {
        Origin::Alone(why) => format!("{why}: what it did is not known"),
        Origin::Daemon(_) => "nothing was promoted or de-bloated".to_owned(),
        Origin::Recording => "no PMD range became huge or was split".to_owned(),
    }
}

fn cause_line(cause: &Cause, most: f64) -> Line<'static> {
    let bars: String =
        cause.slices.iter().map(|slice| show::level(Share::clamped(slice / most))).collect();
    let name = format!("{:<9}  {:<20.20}  ", cause.what, show::printable(&cause.kind));
    Line::from(vec![
        Span::raw(name),
        Span::styled(bars, Style::new().fg(colour(cause.what))),
        Span::raw(format!("  {:.2}", cause.mean())),
    ])
}

fn actions(model: &Model, area: Rect, buffer: &mut Buffer) {
    let concerns = |entry: &&Entry| match model.view {
        View::All => true,
        View::One { pid, .. } => entry.pid == Some(pid),
    };
    let room = usize::from(area.height.saturating_sub(1));
    let all: Vec<&Entry> = model.snapshot.actions.iter().filter(concerns).collect();
    let first = all.len().saturating_sub(room);
    let mut lines: Vec<Line<'_>> =
        all.iter().skip(first).map(|entry| action_line(entry, model)).collect();
    if lines.is_empty() {
        lines.push(Line::raw(nothing(model)));
    }
    titled("last actions and why", lines, area, buffer);
}

fn action_line(entry: &Entry, model: &Model) -> Line<'static> {
    let when = match model.snapshot.origin {
        Origin::Recording => format!("{:.1} s", entry.at_ms as f64 / 1e3),
        // The time of day; the date is in the log.
        _ => action::date(entry.at_ms).chars().skip(11).take(8).collect(),
    };
    let process = match (model.view, &model.snapshot.origin) {
        (View::All, Origin::Daemon(_) | Origin::Alone(_)) => action::process(entry),
        // There is only this one.
        _ => String::new(),
    };
    let process = if process.is_empty() { process } else { format!("{process} ") };
    let dim = Style::new().add_modifier(Modifier::DIM);
    Line::from(vec![
        Span::styled(format!("{when} "), dim),
        Span::raw(process),
        Span::styled(action::deed(entry), Style::new().fg(colour(entry.what))),
        Span::styled(format!("  {}", action::cause(entry)), dim),
    ])
}

fn colour(what: What) -> Color {
    match what {
        What::Promoted => Color::Green,
        What::Debloated => Color::Cyan,
        What::Refused | What::LeftAlone | What::BackedOff | What::Missed | What::Restarted => {
            Color::Yellow
        }
        _ => Color::Reset,
    }
}
