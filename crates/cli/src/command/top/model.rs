//! The state of the view, and what each key changes. Pure: no terminal, no clock, no files.

use super::snapshot::{Ask, Row, Snapshot};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use superpage_manager::history::{Entry, What};
use superpage_units::Pid;

/// Over how long the numbers per second are taken, in milliseconds: actions come in bursts.
pub(super) const RATE_MS: u64 = 10_000;

/// A key, as far as the view knows any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Esc,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Left,
    Right,
}

/// What a key asks of whoever runs the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// To draw again.
    Draw,
    /// To look again, and draw.
    Look,
    /// To go so many samples on.
    Step(isize),
    /// To end.
    Quit,
}

/// What the table is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Huge,
    Bloat,
    Resident,
    Promoted,
    Debloated,
    Pid,
    Command,
}

impl Sort {
    const ALL: [Self; 7] = [
        Self::Huge,
        Self::Bloat,
        Self::Resident,
        Self::Promoted,
        Self::Debloated,
        Self::Pid,
        Self::Command,
    ];

    fn next(self) -> Self {
        let mut all = Self::ALL.into_iter().cycle().skip_while(|sort| *sort != self);
        all.nth(1).unwrap_or(self)
    }
}

/// Which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Largest first; names from A.
    Natural,
    Reversed,
}

/// Whether time goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    Running,
    Paused,
}

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// All processes.
    All,
    /// One of them, its map scrolled by so many lines.
    One { pid: Pid, scroll: usize },
}

/// What lies over the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Nothing,
    /// The filter is being typed.
    Filter,
    Help,
}

/// What was done to a process, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) promoted: f64,
    pub(super) debloated: f64,
}

/// The state.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) snapshot: Snapshot,
    pub(super) view: View,
    pub(super) over: Over,
    pub(super) sort: Sort,
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) pace: Pace,
    /// The process that is chosen, by number: rows change places.
    chosen: Option<Pid>,
}

impl Model {
    /// The view of `snapshot`, all processes, largest in huge and gigantic pages first.
    pub(super) fn new(snapshot: Snapshot, pace: Pace) -> Self {
        Self {
            snapshot,
            view: View::All,
            over: Over::Nothing,
            sort: Sort::Huge,
            order: Order::Natural,
            filter: String::new(),
            pace,
            chosen: None,
        }
    }

    /// What the view wants to know next.
    pub(super) fn ask(&self) -> Ask {
        let open = match self.view {
            View::One { pid, .. } => Some(pid),
            View::All => None,
        };
        let shown = self.rows().iter().map(|(row, _)| row.pid).collect();
        Ask { open, shown }
    }

    /// The processes that pass the filter, in order, with what was done to them.
    pub(super) fn rows(&self) -> Vec<(&Row, Rate)> {
        let rates = rates(&self.snapshot);
        let of = |row: &Row| rates.get(&row.pid).copied().unwrap_or_default();
        let wanted = self.filter.to_lowercase();
        let mut rows: Vec<(&Row, Rate)> = self
            .snapshot
            .processes
            .iter()
            .filter(|row| row.command.to_lowercase().contains(&wanted))
            .map(|row| (row, of(row)))
            .collect();
        rows.sort_by(|a, b| {
            let order = compare(self.sort, a, b)
                .then(b.0.resident.cmp(&a.0.resident))
                .then(a.0.pid.cmp(&b.0.pid));
            if self.order == Order::Reversed { order.reverse() } else { order }
        });
        rows
    }

    /// The position of the chosen process; the first if it is not there any more.
    pub(super) fn position(&self) -> usize {
        let rows = self.rows();
        rows.iter().position(|(row, _)| Some(row.pid) == self.chosen).unwrap_or(0)
    }

    /// The process with number `pid`.
    pub(super) fn process(&self, pid: Pid) -> Option<&Row> {
        self.snapshot.processes.iter().find(|row| row.pid == pid)
    }

    /// Takes a key.
    pub(super) fn press(&mut self, key: Key) -> Effect {
        match (self.over, key) {
            (Over::Filter, key) => self.type_filter(key),
            (Over::Help, Key::Char('q')) => Effect::Quit,
            (Over::Help, _) => {
                self.over = Over::Nothing;
                Effect::Draw
            }
            (Over::Nothing, key) => self.command(key),
        }
    }

    fn type_filter(&mut self, key: Key) -> Effect {
        match key {
            Key::Char(c) if !c.is_control() => self.filter.push(c),
            Key::Backspace => drop(self.filter.pop()),
            Key::Enter => self.over = Over::Nothing,
            Key::Esc => {
                self.filter.clear();
                self.over = Over::Nothing;
            }
            _ => {}
        }
        Effect::Draw
    }

    fn command(&mut self, key: Key) -> Effect {
        match key {
            Key::Char('q') => return Effect::Quit,
            Key::Char('s') => self.sort = self.sort.next(),
            Key::Char('r') => {
                self.order = match self.order {
                    Order::Natural => Order::Reversed,
                    Order::Reversed => Order::Natural,
                }
            }
            Key::Char('/') => self.over = Over::Filter,
            Key::Char('?') => self.over = Over::Help,
            Key::Char('p' | ' ') => {
                self.pace = match self.pace {
                    Pace::Running => Pace::Paused,
                    Pace::Paused => Pace::Running,
                }
            }
            Key::Left => return Effect::Step(-1),
            Key::Right => return Effect::Step(1),
            Key::Enter => return self.open(),
            Key::Esc | Key::Backspace => self.view = View::All,
            Key::Up | Key::Char('k') => self.move_by(-1),
            Key::Down | Key::Char('j') => self.move_by(1),
            Key::PageUp => self.move_by(-10),
            Key::PageDown => self.move_by(10),
            Key::Char(_) => {}
        }
        Effect::Draw
    }

    fn open(&mut self) -> Effect {
        let position = self.position();
        let chosen = self.rows().get(position).map(|(row, _)| row.pid);
        match (self.view, chosen) {
            (View::All, Some(pid)) => {
                self.chosen = Some(pid);
                self.view = View::One { pid, scroll: 0 };
                Effect::Look
            }
            _ => Effect::Draw,
        }
    }

    fn move_by(&mut self, lines: isize) {
        match &mut self.view {
            // What is too far is brought back when it is drawn.
            View::One { scroll, .. } => *scroll = scroll.saturating_add_signed(lines),
            View::All => {
                let rows = self.rows();
                let last = rows.len().saturating_sub(1);
                let position = self.position().saturating_add_signed(lines).min(last);
                self.chosen = rows.get(position).map(|(row, _)| row.pid);
            }
        }
    }

    /// Keeps the map from being scrolled beyond `last`.
    pub(super) fn hold_scroll(&mut self, last: usize) {
        if let View::One { scroll, .. } = &mut self.view {
            *scroll = (*scroll).min(last);
        }
    }
}

fn compare(sort: Sort, a: &(&Row, Rate), b: &(&Row, Rate)) -> Ordering {
    let largest = |a: f64, b: f64| b.total_cmp(&a);
    match sort {
        Sort::Huge => b.0.in_larger_pages().cmp(&a.0.in_larger_pages()),
        Sort::Bloat => b.0.bloat.cmp(&a.0.bloat),
        Sort::Resident => b.0.resident.cmp(&a.0.resident),
        Sort::Promoted => largest(a.1.promoted, b.1.promoted),
        Sort::Debloated => largest(a.1.debloated, b.1.debloated),
        Sort::Pid => a.0.pid.cmp(&b.0.pid),
        Sort::Command => a.0.command.cmp(&b.0.command),
    }
}

/// What was done per second, by process, over [`RATE_MS`].
fn rates(snapshot: &Snapshot) -> BTreeMap<Pid, Rate> {
    let mut rates: BTreeMap<Pid, Rate> = BTreeMap::new();
    let recent =
        |entry: &&Entry| entry.at_ms <= snapshot.now_ms && snapshot.now_ms - entry.at_ms < RATE_MS;
    for entry in snapshot.actions.iter().filter(recent) {
        let Some(pid) = entry.pid else { continue };
        let per_second = entry.huge_pages.0 as f64 * 1e3 / RATE_MS as f64;
        let rate = rates.entry(pid).or_default();
        match entry.what {
            What::Promoted => rate.promoted += per_second,
            What::Debloated => rate.debloated += per_second,
            _ => {}
        }
    }
    rates
}

/// What was done for one kind of cause in the last minutes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cause {
    pub(super) what: What,
    pub(super) kind: String,
    /// Huge pages per second in each of the last slices of time, oldest first.
    pub(super) slices: Vec<f64>,
}

impl Cause {
    /// Huge pages per second, over all of it.
    pub(super) fn mean(&self) -> f64 {
        self.slices.iter().sum::<f64>() / self.slices.len().max(1) as f64
    }
}

/// Promotions and de-bloats by kind of cause, over `count` slices of `slice_ms` milliseconds each;
/// most first.
pub(super) fn causes(snapshot: &Snapshot, count: usize, slice_ms: u64) -> Vec<Cause> {
    let mut found: BTreeMap<(What, &str), Vec<f64>> = BTreeMap::new();
    for entry in &snapshot.actions {
        let age = snapshot.now_ms.checked_sub(entry.at_ms);
        let slice = age.and_then(|age| usize::try_from(age / slice_ms).ok());
        let Some(slot) = slice.and_then(|slice| count.checked_sub(slice + 1)) else { continue };
        if !matches!(entry.what, What::Promoted | What::Debloated) {
            continue;
        }
        let slices = found.entry((entry.what, &entry.kind)).or_insert_with(|| vec![0.0; count]);
        if let Some(slice) = slices.get_mut(slot) {
            *slice += entry.huge_pages.0 as f64 * 1e3 / slice_ms as f64;
        }
    }
    let cause = |((what, kind), slices): ((What, &str), Vec<f64>)| Cause {
        what,
        kind: kind.to_owned(),
        slices,
    };
    let mut causes: Vec<Cause> = found.into_iter().map(cause).collect();
    causes.sort_by(|a, b| b.mean().total_cmp(&a.mean()));
    causes
}
