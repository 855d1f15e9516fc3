//! The view as characters. It changes nothing and asks nobody: what is drawn is in the model.

mod heaps;
mod map;
mod panel;

#[cfg(test)]
pub(super) use map::colour as mapped;

use super::model::{Model, Order, Over, Pace, Rate, Sort, View};
use super::snapshot::{Origin, Row as Process};
use crate::show;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, StatefulWidget, Table, TableState, Widget};
use superpage_manager::status::Memory;
use superpage_units::{Bytes, Pid, Share};

/// From this height on there is room for what was done below the processes.
const TALL: u16 = 18;
/// Lines of that.
const PANEL: u16 = 9;
/// From this height on there is room for more of it.
const TALLER: u16 = 32;
/// Lines of that.
const LARGE_PANEL: u16 = 15;

/// What the keys do.
const HELP: [&str; 11] = [
    "s        sort by the next column",
    "r        the other way round",
    "/        show only commands with this in their name",
    "p        pause and go on",
    "Enter    open the process: its map and what was done to it",
    "Esc      back",
    "up down  choose a process, or scroll its map",
    "left right   one sample back or on (a recording)",
    "space    play or stop (a recording)",
    "q        quit",
    "?        this help",
];

/// Draws all of it.
pub(super) fn draw(model: &mut Model, area: Rect, buffer: &mut Buffer) {
    let memory = u16::try_from(model.snapshot.memory.len().min(3)).unwrap_or(3);
    let has_daemon = matches!(model.snapshot.origin, Origin::Daemon(_));
    let head = 1 + memory + u16::from(model.snapshot.free_memory.is_some()) + u16::from(has_daemon);
    let panel = match area.height {
        TALLER.. => LARGE_PANEL,
        TALL.. => PANEL,
        _ => 0,
    };
    let heaps = if panel > 0 { heaps::height(model) } else { 0 };
    let parts = Layout::vertical([
        Constraint::Length(head),
        Constraint::Min(1),
        Constraint::Length(heaps),
        Constraint::Length(panel),
        Constraint::Length(1),
    ]);
    let [top, middle, below, bottom, keys] = parts.areas(area);
    head_lines(model, top.width).render(top, buffer);
    match model.view {
        View::All => table(model, middle, buffer),
        View::One { pid, .. } => map::draw(model, pid, middle, buffer),
    }
    if heaps > 0 {
        heaps::draw(model, below, buffer);
    }
    if panel > 0 {
        panel::draw(model, bottom, buffer);
    }
    key_line(model).render(keys, buffer);
    if model.over == Over::Help {
        help(area, buffer);
    }
}

fn head_lines(model: &Model, width: u16) -> Paragraph<'static> {
    let snapshot = &model.snapshot;
    let paused = if model.pace == Pace::Paused { "  [paused]" } else { "" };
    let daemon = match &snapshot.origin {
        Origin::Daemon(_) | Origin::Recording => String::new(),
        Origin::Alone(why) => format!("  {why}"),
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut lines = vec![Line::from(vec![
        Span::styled(format!("superpage top  {}", snapshot.of), bold),
        Span::raw(format!("  {}{daemon}{paused}", snapshot.at)),
    ])];
    lines.extend(snapshot.memory.iter().take(3).map(|memory| memory_line(memory, width)));
    if let Some(free_memory) = snapshot.free_memory {
        let bytes = free_memory.huge.bytes();
        lines.push(Line::raw(format!(
            "free    {} huge pages ({bytes}), fragmentation {}",
            free_memory.huge, free_memory.fragmentation
        )));
    }
    if let Origin::Daemon(status) = &snapshot.origin {
        lines.push(Line::raw(format!(
            "daemon  {}: {} surveys; {} promotions wait, pause {:.1} ms; {}",
            status.pid, status.surveys, status.waiting, status.pause_ms, status.resident,
        )));
    }
    Paragraph::new(lines)
}

/// Used memory as a bar with the watermarks in it.
fn memory_line(memory: &Memory, width: u16) -> Line<'static> {
    let share = memory.used.share_of(memory.total);
    let has_marks = memory.high > Share::NONE;
    let name = if memory.name == "machine" { "memory" } else { &memory.name };
    let text = format!("{share} of {}", memory.total);
    let marks = match has_marks {
        true => format!(", low {}, high {}", memory.low, memory.high),
        false => String::new(),
    };
    let columns = usize::from(width.saturating_sub(70)).clamp(10, 40);
    let mut bar: Vec<char> = show::bar(share, columns).chars().collect();
    bar.resize(columns, '·');
    for mark in [memory.low, memory.high].into_iter().filter(|_| has_marks) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
        let at = ((mark.get() * columns as f64) as usize).min(columns.saturating_sub(1));
        if let Some(place) = bar.get_mut(at) {
            *place = '|';
        }
    }
    let colour = if has_marks && share > memory.high { Color::Red } else { Color::Green };
    Line::from(vec![
        Span::raw(format!("{}  ", show::printable(name))),
        Span::styled(bar.into_iter().collect::<String>(), Style::new().fg(colour)),
        Span::raw(format!("  {text}{marks}")),
    ])
}

/// A column: its head, its width, the sort it stands for, what is in it, and when it is there.
struct Column {
    head: &'static str,
    width: u16,
    sort: Option<Sort>,
    text: fn(&Process, Rate) -> String,
    when: When,
}

/// When a column is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// Where a process has gigantic pages, which few machines see.
    Gigantic,
}

/// The columns, the first to be left out where it is narrow last.
const COLUMNS: [Column; 10] = [
    Column {
        head: "PID",
        width: 8,
        sort: Some(Sort::Pid),
        text: |p, _| number(p.pid),
        when: When::Always,
    },
    Column {
        head: "COMMAND",
        width: 16,
        sort: Some(Sort::Command),
        text: |p, _| show::printable(&p.command),
        when: When::Always,
    },
    Column {
        head: "GIGANTIC",
        width: 10,
        sort: None,
        text: |p, _| p.gigantic.to_string(),
        when: When::Gigantic,
    },
    Column {
        head: "HUGE",
        width: 10,
        sort: Some(Sort::Huge),
        text: |p, _| p.all_huge().to_string(),
        when: When::Always,
    },
    Column {
        head: "SHARE",
        width: 7,
        sort: None,
        text: |p, _| p.share_huge().to_string(),
        when: When::Always,
    },
    Column {
        head: "BLOAT",
        width: 10,
        sort: Some(Sort::Bloat),
        text: |p, _| bloat(p).map_or_else(|| "?".to_owned(), |bytes| bytes.to_string()),
        when: When::Always,
    },
    Column {
        head: "BASE",
        width: 10,
        sort: None,
        text: |p, _| p.base.to_string(),
        when: When::Gigantic,
    },
    Column {
        head: "RESIDENT",
        width: 11,
        sort: Some(Sort::Resident),
        text: |p, _| p.resident.to_string(),
        when: When::Always,
    },
    Column {
        head: "PROMOTED/s",
        width: 11,
        sort: Some(Sort::Promoted),
        text: |_, rate| per_second(rate.promoted),
        when: When::Always,
    },
    Column {
        head: "DEBLOATED/s",
        width: 12,
        sort: Some(Sort::Debloated),
        text: |_, rate| per_second(rate.debloated),
        when: When::Always,
    },
];

/// Where there are no huge pages there is no bloat in them.
pub(super) fn bloat(process: &Process) -> Option<Bytes> {
    if process.huge.is_zero() { Some(Bytes::ZERO) } else { process.bloat }
}

fn number(pid: Pid) -> String {
    if pid == Pid(0) { "-".to_owned() } else { pid.to_string() }
}

pub(super) fn per_second(rate: f64) -> String {
    if rate == 0.0 { "-".to_owned() } else { format!("{rate:.1}") }
}

fn table(model: &Model, area: Rect, buffer: &mut Buffer) {
    let rows = model.rows();
    if rows.is_empty() {
        let text = match model.filter.as_str() {
            "" => "No process that we may look into.".to_owned(),
            filter => format!("No command has {filter:?} in its name; Esc after / shows all."),
        };
        return Paragraph::new(text).render(area, buffer);
    }
    let mut left = area.width.saturating_sub(2);
    let has_gigantic = model.snapshot.processes.iter().any(|row| !row.gigantic.is_zero());
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .filter(|column| column.when == When::Always || has_gigantic)
        .take_while(|column| {
            let fits = left >= column.width;
            left = left.saturating_sub(column.width + 1);
            fits
        })
        .collect();
    let heads = columns.iter().map(|column| head(column, model));
    let lines = rows.iter().map(|(process, rate)| {
        Row::new(columns.iter().map(|column| (column.text)(process, *rate)))
    });
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let mut state = TableState::new().with_selected(model.position());
    let table = Table::new(lines, columns.iter().map(|column| column.width))
        .header(Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(reversed)
        .highlight_symbol("> ");
    StatefulWidget::render(table, area, buffer, &mut state);
}

/// The head of a column, marked if the table is sorted by it.
fn head(column: &Column, model: &Model) -> String {
    let mark = match model.order {
        _ if column.sort != Some(model.sort) => "",
        Order::Natural => "*",
        Order::Reversed => "^",
    };
    format!("{}{mark}", column.head)
}

fn key_line(model: &Model) -> Paragraph<'static> {
    let text = match (model.over, model.view, &model.snapshot.origin) {
        (Over::Filter, _, _) => format!("filter: {}_", show::printable(&model.filter)),
        (_, View::One { .. }, _) => "Esc back  up/down scroll  p pause  ? help  q quit".to_owned(),
        (_, _, Origin::Recording) => {
            "left/right step  space play  Enter open  ? help  q quit".to_owned()
        }
        _ => {
            let filter = match model.filter.as_str() {
                "" => String::new(),
                filter => format!(" [{}]", show::printable(filter)),
            };
            let denied = match model.snapshot.denied {
                0 => String::new(),
                denied => format!("  ({denied} not looked into)"),
            };
            format!(
                "s sort  r reverse  / filter{filter}  p pause  Enter open  ? help  q quit{denied}"
            )
        }
    };
    Paragraph::new(text).style(Style::new().add_modifier(Modifier::DIM))
}

fn help(area: Rect, buffer: &mut Buffer) {
    let height = u16::try_from(HELP.len() + 2).unwrap_or(u16::MAX);
    let over = area.centered(Constraint::Max(62), Constraint::Max(height));
    Clear.render(over, buffer);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::raw(*line)).collect();
    Paragraph::new(lines).block(Block::bordered().title(" keys ")).render(over, buffer);
}
