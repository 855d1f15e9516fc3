//! A recording of `superpage record`, sample by sample.

use super::snapshot::{Ask, Map, Moved, Origin, Row, SeenRange, Size, Snapshot, Source};
use crate::show;
use superpage_manager::history::{Entry, What};
use superpage_trace::{Memory, RangeState, Sample, Trace};
use superpage_units::{BasePages, Bytes, HugePages, Mapping, Pid};

/// The number that stands for the recorded process, which the trace does not say.
const PID: Pid = Pid(0);

/// A trace, at one of its samples.
#[derive(Debug)]
pub(super) struct Recording {
    trace: Trace,
    at: usize,
    memory: Memory,
    /// What the samples show was done, as if a daemon had told.
    actions: Vec<Entry>,
}

impl Recording {
    /// The trace, at its first sample.
    pub(super) fn new(trace: Trace) -> Self {
        let mut recording = Self { trace, at: 0, memory: Memory::default(), actions: Vec::new() };
        recording.go_to(usize::MAX);
        recording.go_to(0);
        recording
    }

    /// Goes to sample `at`, or the last. What happened on the way is kept the first time.
    fn go_to(&mut self, at: usize) {
        let at = at.min(self.trace.samples.len().saturating_sub(1));
        let is_first_time = self.actions.is_empty();
        self.memory = Memory::default();
        for (index, sample) in self.trace.samples.iter().take(at + 1).enumerate() {
            // The first sample is what was there, not what was done.
            if is_first_time && index > 0 {
                let command = &self.trace.header.command;
                self.actions.extend(changes(&self.memory, sample, command));
            }
            self.memory.apply(&sample.changes);
        }
        self.at = at;
    }

    fn sample(&self) -> Option<&Sample> {
        self.trace.samples.get(self.at)
    }
}

impl Source for Recording {
    fn look(&mut self, _: &Ask) -> anyhow::Result<Snapshot> {
        let ranges = self.memory.ranges.iter().map(|(range, state)| SeenRange {
            range: *range,
            size: if is_huge(*state) { Size::Huge } else { Size::Base },
            used: Some(state.data.0),
        });
        let (sample, samples) = (self.sample(), self.trace.samples.len());
        let now_ms = sample.map_or(0, |sample| sample.at.0 / 1_000_000);
        let command = show::printable(&self.trace.header.command);
        Ok(Snapshot {
            of: format!("recording of {command}"),
            at: format!("{:.1} s, sample {} of {samples}", now_ms as f64 / 1e3, self.at + 1),
            now_ms,
            origin: Origin::Recording,
            memory: Vec::new(),
            free_memory: None,
            processes: vec![row(&self.memory, sample, &self.trace.header.command)],
            denied: 0,
            actions: self.actions.iter().filter(|entry| entry.at_ms <= now_ms).cloned().collect(),
            map: Some(Map { ranges: ranges.collect() }),
        })
    }

    fn step(&mut self, steps: isize) -> Moved {
        let before = self.at;
        self.go_to(self.at.saturating_add_signed(steps));
        if self.at == before { Moved::No } else { Moved::Yes }
    }
}

fn is_huge(state: RangeState) -> bool {
    matches!(state.mapping, Mapping::Huge | Mapping::Gigantic)
}

fn row(memory: &Memory, sample: Option<&Sample>, command: &str) -> Row {
    let huge = || memory.ranges.values().filter(|state| is_huge(**state));
    let zero: BasePages = huge().map(|state| state.present.saturating_sub(state.data)).sum();
    let resident = sample.map(|sample| sample.usage.resident).unwrap_or_default();
    let in_huge = HugePages(huge().count() as u64).bytes();
    Row {
        pid: PID,
        command: command.to_owned(),
        resident,
        base: resident.saturating_sub(in_huge),
        huge: in_huge,
        // Hugetlb memory is not recorded.
        pool_huge: Bytes::ZERO,
        gigantic: Bytes::ZERO,
        bloat: Some(zero.bytes()),
        // A recording has nothing about heaps.
        heap: None,
    }
}

/// The actions between two samples: ranges that became huge, or stopped being so.
fn changes(before: &Memory, sample: &Sample, command: &str) -> Vec<Entry> {
    let (mut made, mut filled) = (HugePages::ZERO, BasePages::ZERO);
    let (mut split, mut freed) = (HugePages::ZERO, BasePages::ZERO);
    for run in &sample.changes.runs {
        for range in run.ranges() {
            let was = before.ranges.get(&range).copied().unwrap_or_default();
            match (is_huge(was), is_huge(run.state)) {
                (false, true) => {
                    made += HugePages(1);
                    filled += run.state.present.saturating_sub(was.present);
                }
                (true, false) => {
                    split += HugePages(1);
                    freed += was.present.saturating_sub(run.state.present);
                }
                _ => {}
            }
        }
    }
    let entry = |what, kind, cause, huge_pages, base_pages| Entry {
        pid: Some(PID),
        command: Some(command.to_owned()),
        huge_pages,
        base_pages,
        ..Entry::new(sample.at.0 / 1_000_000, what, kind, cause)
    };
    let made = (!made.is_zero())
        .then(|| entry(What::Promoted, "became-huge", "between two samples", made, filled));
    let split = (!split.is_zero())
        .then(|| entry(What::Debloated, "split", "between two samples", split, freed));
    made.into_iter().chain(split).collect()
}
