//! `superpage top`: processes by huge pages and bloat, what is done and why, in a terminal.
//!
//! | file | what |
//! |---|---|
//! | `snapshot` | what there is to show at one moment, and the trait of where it comes from |
//! | `live`, `recording` | the machine, and a trace of `superpage record` |
//! | `model` | the state of the view, and what each key changes |
//! | `draw` | the view as characters |

mod draw;
mod live;
mod model;
mod recording;
mod snapshot;

use crate::args::Top;
use crate::exit::{Failure, Outcome};
use crate::{show, signals};
use anyhow::Context;
use model::{Effect, Key, Model, Pace};
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use snapshot::{Moved, Source};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_kernel::usage::CpuTime;
use superpage_manager::budget::CpuBudget;
use superpage_trace::Partial;
use superpage_units::{Nanos, Share};

/// The size of a frame that goes to no terminal.
const PLAIN: Rect = Rect { x: 0, y: 0, width: 100, height: 40 };

/// How long to wait for a key before asking whether a signal came.
const NAP: Duration = Duration::from_millis(250);

/// Shows the machine or a recording until it is told to stop; one frame if that was asked for.
pub(super) fn run(arguments: &Top) -> Outcome {
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if !is_terminal && !arguments.once {
        let what = "top needs a terminal; use `superpage top --once` for one frame, \
                    or `superpage scan` and `superpage log`";
        return Err(Failure::Usage(what.to_owned()));
    }
    let mut source = source(arguments)?;
    let pace = if arguments.trace.is_some() { Pace::Paused } else { Pace::Running };
    let mut model = Model::new(source.look(&snapshot::Ask::default())?, pace);
    if arguments.once {
        return show::print(&plain(&mut model));
    }
    let stop = signals::stop_flag()?;
    // Restores the terminal also when something panics.
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let ended = watch(&mut terminal, source.as_mut(), &mut model, arguments.interval, &stop);
    ratatui::restore();
    Ok(ended?)
}

fn source(arguments: &Top) -> Result<Box<dyn Source>, Failure> {
    let Some(path) = &arguments.trace else {
        return Ok(Box::new(live::Live::new(&arguments.state)));
    };
    let shown = path.display();
    let unreadable = |error| Failure::Usage(format!("{shown} could not be read: {error}"));
    // A device may have no end.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        let what = "is not a regular file; give one that `superpage record PID -o FILE` wrote";
        return Err(Failure::Usage(format!("{shown} {what}")));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    // One that was cut off is as good to look at.
    let trace = superpage_trace::read(&bytes, Partial::Allowed)
        .map_err(|error| Failure::Usage(format!("{shown}: {error}")))?;
    Ok(Box::new(recording::Recording::new(trace)))
}

/// A frame as text, without the empty lines at its end.
fn plain(model: &mut Model) -> String {
    text(&frame(model, PLAIN))
}

fn frame(model: &mut Model, area: Rect) -> Buffer {
    let mut buffer = Buffer::empty(area);
    draw::draw(model, area, &mut buffer);
    buffer
}

fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    };
    let text: String = buffer.content.chunks(width).map(line).collect();
    text.trim_end().to_owned() + "\n"
}

/// When the next look is due, so that looking takes no more than its share of a CPU.
struct Clock {
    interval: Duration,
    next: Instant,
}

impl Clock {
    /// What looking may take of a core. Chosen: nobody minds.
    const SHARE: Share = Share::percent(2);

    fn look(&mut self, source: &mut dyn Source, model: &mut Model) -> anyhow::Result<()> {
        let (began, cpu) = (Instant::now(), CpuTime::of_thread());
        model.snapshot = source.look(&model.ask())?;
        let pause = CpuBudget::new(Self::SHARE).map_or(Duration::ZERO, |budget| {
            budget.pause(CpuTime::of_thread().since(cpu), Nanos::ZERO)
        });
        self.next = began + self.interval.max(pause);
        Ok(())
    }
}

fn watch(
    terminal: &mut DefaultTerminal,
    source: &mut dyn Source,
    model: &mut Model,
    interval: Duration,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut clock = Clock { interval, next: Instant::now() + interval };
    let mut effect = Effect::Draw;
    while !stop.load(Ordering::Relaxed) && effect != Effect::Quit {
        terminal.draw(|frame| draw::draw(model, frame.area(), frame.buffer_mut()))?;
        effect = wait(model, &clock, stop)?;
        if let Effect::Step(steps) = effect {
            if source.step(steps) == Moved::No && model.pace == Pace::Running {
                model.pace = Pace::Paused;
            }
            clock.look(source, model)?;
        } else if effect == Effect::Look {
            clock.look(source, model)?;
        }
    }
    Ok(())
}

/// Waits for a key, or until the next look is due.
fn wait(model: &mut Model, clock: &Clock, stop: &AtomicBool) -> anyhow::Result<Effect> {
    loop {
        let left = clock.next.saturating_duration_since(Instant::now());
        let is_due = left.is_zero() && model.pace == Pace::Running;
        if is_due || stop.load(Ordering::Relaxed) {
            return Ok(due(model));
        }
        let nap = if model.pace == Pace::Running { left.min(NAP) } else { NAP };
        if !event::poll(nap)? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                return Ok(pressed(model, key));
            }
            Event::Resize(_, _) => return Ok(Effect::Draw),
            _ => {}
        }
    }
}

/// What is to be done when time has passed: a recording goes on by a sample.
fn due(model: &Model) -> Effect {
    match model.snapshot.origin {
        snapshot::Origin::Recording => Effect::Step(1),
        _ => Effect::Look,
    }
}

fn pressed(model: &mut Model, key: KeyEvent) -> Effect {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let key = match key.code {
        KeyCode::Char('c') if control => return Effect::Quit,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Esc,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        _ => return Effect::Draw,
    };
    model.press(key)
}

#[cfg(test)]
mod tests;
