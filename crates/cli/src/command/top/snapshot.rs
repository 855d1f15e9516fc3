//! What there is to show at one moment, wherever it comes from: the machine or a recording.

use crate::heap::HeapState;
use superpage_manager::history::Entry;
use superpage_manager::status::{Memory, Status};
use superpage_units::{
    BASE_PAGES_PER_HUGE_PAGE, BasePages, Bytes, HugePages, Nanos, Pid, PmdRange, Share,
};

/// A source of what is shown.
pub(super) trait Source {
    /// What there is now; of process `open` its map too.
    fn look(&mut self, ask: &Ask) -> anyhow::Result<Snapshot>;

    /// Goes `steps` samples on (or back); says whether that led anywhere.
    fn step(&mut self, steps: isize) -> Moved;
}

/// Whether a step led to another sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    Yes,
    No,
}

/// What the view wants to know.
#[derive(Clone, Debug, Default)]
pub(super) struct Ask {
    /// The process that is open.
    pub(super) open: Option<Pid>,
    /// Processes on the screen: these are brought up to date first.
    pub(super) shown: Vec<Pid>,
}

/// What there is to show.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// Of what: `this machine`.
    pub(super) of: String,
    /// When, in words.
    pub(super) at: String,
    /// When, on the clock of `actions`, in milliseconds.
    pub(super) now_ms: u64,
    pub(super) origin: Origin,
    /// Watched memory; watermarks of 0 are none.
    pub(super) memory: Vec<Memory>,
    pub(super) free_memory: Option<FreeHuge>,
    pub(super) processes: Vec<Row>,
    /// Processes that may not be looked into.
    pub(super) denied: usize,
    /// What was done, oldest first: of the last quarter of an hour.
    pub(super) actions: Vec<Entry>,
    pub(super) map: Option<Map>,
}

/// Where it comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// The machine, with a daemon.
    Daemon(Box<Status>),
    /// The machine, and why nothing is known of a daemon.
    Alone(String),
    /// A recording.
    Recording,
}

/// Huge pages that could be had.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeHuge {
    /// Free huge pages.
    pub(super) huge: HugePages,
    /// The share of free memory in smaller pieces.
    pub(super) fragmentation: Share,
}

/// A process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Its number; 0 in a recording, which does not say.
    pub(super) pid: Pid,
    pub(super) command: String,
    pub(super) resident: Bytes,
    /// Of that in base pages.
    pub(super) base: Bytes,
    /// Of that in huge pages.
    pub(super) huge: Bytes,
    /// Memory in huge pages of the kernel's pool, which is not resident.
    pub(super) pool_huge: Bytes,
    /// In gigantic pages, which are not resident.
    pub(super) gigantic: Bytes,
    /// Zero-filled memory in huge pages; `None` if nobody has looked yet.
    pub(super) bloat: Option<Bytes>,
    /// The process's heap that may be larger than memory, if it has one.
    pub(super) heap: Option<RowHeap>,
}

/// A heap that may be larger than memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RowHeap {
    /// How it stands.
    pub(super) now: HeapState,
    /// The counts since the look before, and the time since then; `None` at the first look.
    pub(super) lately: Option<(HeapState, Nanos)>,
}

impl RowHeap {
    /// How it stands `time` after it stood as `before`.
    pub(super) fn after(before: Option<(&HeapState, Nanos)>, now: HeapState) -> Self {
        let lately = before.map(|(before, time)| (now.since(before), time));
        Self { now, lately }
    }
}

impl Row {
    /// Its memory in huge and gigantic pages.
    pub(super) fn in_larger_pages(&self) -> Bytes {
        self.all_huge() + self.gigantic
    }

    /// The process's memory in huge pages, those of the kernel's pool included.
    pub(super) fn all_huge(&self) -> Bytes {
        self.huge + self.pool_huge
    }

    /// The share of its memory in huge pages.
    pub(super) fn share_huge(&self) -> Share {
        self.all_huge().share_of(self.resident + self.pool_huge)
    }
}

/// The address space of a process by range, those with anything in them, in address order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Map {
    pub(super) ranges: Vec<SeenRange>,
}

/// A range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SeenRange {
    pub(super) range: PmdRange,
    pub(super) size: Size,
    /// Base pages in use, populated and not zero-filled; `None` if nobody has looked into it yet.
    pub(super) used: Option<u64>,
}

/// How a range is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Huge,
    Base,
}

/// A character of the map, which stands for neighbouring ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) share_huge: Share,
    /// The share of base pages in use, of the ranges of which it is known; `None` of none.
    pub(super) density: Option<Share>,
}

/// One line of the map.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) start: PmdRange,
    pub(super) cells: Vec<Cell>,
}

impl Map {
    /// Lines of at most `columns` cells of `per_cell` ranges each; where nothing is mapped
    /// between two ranges, a new line begins.
    pub(super) fn lines(&self, columns: usize, per_cell: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        for stretch in self.ranges.chunk_by(|a, b| a.range.end() == b.range.start()) {
            for line in stretch.chunks(columns.max(1) * per_cell.max(1)) {
                let Some(first) = line.first() else { continue };
                let cells = line.chunks(per_cell.max(1)).map(cell).collect();
                lines.push(Line { start: first.range, cells });
            }
        }
        lines
    }
}

fn cell(ranges: &[SeenRange]) -> Cell {
    let [huge, all] = [ranges.iter().filter(|seen| seen.size == Size::Huge).count(), ranges.len()]
        .map(|count| HugePages(count as u64));
    Cell { share_huge: huge.share_of(all), density: density(ranges) }
}

/// The share of base pages in use, of the ranges of which it is known.
pub(super) fn density(ranges: &[SeenRange]) -> Option<Share> {
    let known: Vec<u64> = ranges.iter().filter_map(|seen| seen.used).collect();
    let all = BASE_PAGES_PER_HUGE_PAGE * known.len() as u64;
    (all > 0).then(|| BasePages(known.iter().sum()).share_of(BasePages(all)))
}
