//! Heaps of programs under `superpage run --heap`: how much of each is in memory, and what goes in and out.

use super::super::model::{Model, View};
use super::super::snapshot::{Row, RowHeap};
use super::panel::titled;
use crate::heap::HeapState;
use crate::show;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use superpage_units::{Bytes, Nanos, Share};

/// Heaps that are shown below the processes at the most. Chosen: they leave half of a terminal of 24 lines.
const MOST: usize = 3;

/// The programs that have one, in the order of the table.
fn heaps(model: &Model) -> Vec<(&Row, &RowHeap)> {
    let rows = model.rows().into_iter();
    rows.filter_map(|(row, _)| Some((row, row.heap.as_ref()?))).take(MOST).collect()
}

/// The lines that they take below the table of processes: none where there is none.
pub(super) fn height(model: &Model) -> u16 {
    let lines = |count: usize| u16::try_from(1 + 2 * count).unwrap_or(u16::MAX);
    match (model.view, heaps(model).len()) {
        (View::One { .. }, _) | (_, 0) => 0,
        (View::All, count) => lines(count),
    }
}

/// Draws them below the table of processes.
pub(super) fn draw(model: &Model, area: Rect, buffer: &mut Buffer) {
    let shown = heaps(model).into_iter().flat_map(|(row, heap)| {
        let [memory, traffic] = lines(heap);
        let name = format!("{} ({})", show::printable(&row.command), row.pid);
        [format!("{name}  {memory}"), format!("  {traffic}")]
    });
    titled(
        "heaps larger than memory: on huge + base pages",
        shown.map(Line::raw).collect(),
        area,
        buffer,
    );
}

/// A heap in two lines, sizes as those of huge and of base pages: its memory and hit rates, and what goes in and out per
/// second, or so far where it was looked at once.
pub(super) fn lines(heap: &RowHeap) -> [String; 2] {
    let HeapState { memory, huge, base, .. } = heap.now;
    let (counted, seconds, when) = match &heap.lately {
        Some((since, time)) => (since, time.as_secs_f64(), "per second"),
        None => (&heap.now, 1.0, "so far"),
    };
    let count = |count: u64| format!("{:.0}", count as f64 / seconds);
    let bytes = |bytes: Bytes| bytes.scaled(1.0 / seconds);
    let waited = Nanos::from_secs_f64(counted.waited().0 as f64 / 1e9 / seconds);
    let share = |share: Option<Share>| share.map_or("-".to_owned(), |share| share.to_string());
    [
        format!(
            "{huge} + {base} of {memory}; {} of faults soft, {} of misses read ahead",
            share(counted.found()),
            share(counted.ahead_of_misses()),
        ),
        format!(
            "{when}: {} faults, {} waited, read {} + {}, written {} + {}",
            count(counted.faults() + counted.soft_faults),
            show::time(waited),
            bytes(counted.read_huge),
            bytes(counted.read_base),
            bytes(counted.written_huge),
            bytes(counted.written_base),
        ),
    ]
}
