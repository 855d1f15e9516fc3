//! A trace as a workload: what was seen becomes what the program did.
//!
//! What a recording cannot say is assumed, and [`ASSUMED`] says it to people:
//!
//! - **What was touched.** Of a range on base pages, what is populated. Of a huge page, only what
//!   holds data: the kernel populated the rest. So the program is replayed, not the policy that it
//!   was recorded on. Pages that were touched and only read, or written with zeroes, and lie in a
//!   huge page are not known and left out.
//! - **Where in a range.** Only counts are recorded: pages are touched from the lowest address up
//!   and given back from the highest down. Addresses keep their place in their 1 GiB, so what is
//!   aligned in the program is aligned here; what lies far apart is moved together.
//! - **When.** What changed between two samples changed right after the first of them.
//! - **Accesses** are not recorded. As many as the CPU time gives at a rate that the caller
//!   chooses, each to any page that holds data, all alike. That is harder on translation than most
//!   programs are.

use crate::machine::Content;
use crate::units::Hertz;
use crate::virtual_memory::page_index;
use crate::virtual_memory::slot::{PAGES, PageSet};
use crate::workload::{Access, Change, Counting, Extent, Phase, Touch, Workload};
use std::collections::BTreeMap;
use superpage_trace::{RangeState, Sample, Trace};
use superpage_units::{BasePages, GIGANTIC_PAGE_BYTES, Mapping, Nanos, PmdRange, VirtAddr, Vma};

/// What a replay assumes, for people.
pub const ASSUMED: &str = "the program touched what is populated of each 2 MiB on base pages and \
    what holds data of each huge page; it accesses all pages that hold data alike";

/// Accesses that leave the data caches, in a second of CPU time. Chosen, not measured: a
/// key-value store makes some 3 million, a random walk through memory some 50 million.
pub const ACCESSES_PER_SECOND: f64 = 10e6;

/// The share of translation that a processor cannot hide behind other work. Chosen, not measured.
const EXPOSED: f64 = 0.6;

/// What to assume about accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Accesses that leave the data caches, in a second of CPU time.
    pub accesses_per_second: f64,
    /// The frequency of the processor that is simulated.
    pub frequency: Hertz,
}

/// A trace ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What the program does.
    pub workload: Workload,
    /// Where the samples are in it.
    pub marks: Vec<Mark>,
    /// The most it has touched at any sample: what the smallest machine must have.
    pub needs: BasePages,
}

/// A sample's place in the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When it was taken, since the first.
    pub at: Nanos,
    /// The phases that come before it.
    pub phases: usize,
}

/// Turns a trace into a workload.
#[must_use]
pub fn plan(trace: &Trace, options: &Options) -> Plan {
    let began = trace.samples.first().map_or(Nanos::ZERO, |sample| sample.at);
    let places = Places::of(trace);
    let mut program = Program::default();
    let mut phases = Vec::new();
    let mut marks = Vec::new();
    let mut needs = 0;
    for sample in &trace.samples {
        let change = places.place(program.follow(sample));
        if change != Change::default() {
            phases.push(Phase::Change(change));
        }
        phases.extend(accesses(sample.usage.cpu, options));
        let at = sample.at.saturating_sub(began);
        phases.push(Phase::WaitUntil(at));
        marks.push(Mark { at, phases: phases.len() });
        needs = needs.max(program.touched);
    }
    let name = trace.header.command.clone();
    let workload = Workload { name, threads: threads(&trace.samples), phases };
    Plan { workload, marks, needs: BasePages(needs) }
}

/// The accesses that so much CPU time stands for.
fn accesses(cpu: Nanos, options: &Options) -> Option<Phase> {
    let rate = options.accesses_per_second.max(1.0);
    let access = Access {
        streams: Vec::new(),
        count: (cpu.as_secs_f64() * rate).round(),
        cycles: options.frequency.0 as f64 / rate,
        exposed: EXPOSED,
        counting: Counting::Sampled,
    };
    (access.count >= 1.0).then_some(Phase::Access(access))
}

/// As many threads as were ever busy at the same time, on average between two samples.
fn threads(samples: &[Sample]) -> u32 {
    let busy = samples.windows(2).map(|pair| match pair {
        [before, after] => {
            let time = after.at.saturating_sub(before.at).as_secs_f64();
            // Less than a tenth of a CPU is the clock's coarseness.
            (after.usage.cpu.as_secs_f64() / time.max(1e-9) - 0.1).ceil()
        }
        _ => 1.0,
    });
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what a machine has just before"
    )]
    let threads = busy.fold(1.0, f64::max).clamp(1.0, 4096.0) as u32; // tidy: allow(threads)
    threads
}

/// Where the program's memory lies on the simulated machine, whose page tables stand in a row.
#[derive(Debug, Default)]
struct Places {
    /// Runs of gibibytes with VMAs in them: number of the first, of the last, and of the one that
    /// the first becomes.
    runs: Vec<(u64, u64, u64)>,
}

/// Gibibyte that the lowest address comes to lie in. Anything but zero would do.
const FIRST: u64 = 16;

impl Places {
    fn of(trace: &Trace) -> Self {
        let vmas = trace.samples.iter().flat_map(|sample| &sample.changes.vmas);
        let mut spans: Vec<(u64, u64)> = vmas
            .map(|vma| (vma.start.0 / GIGANTIC_PAGE_BYTES, (vma.end.0 - 1) / GIGANTIC_PAGE_BYTES))
            .collect();
        spans.sort_unstable();
        let mut runs: Vec<(u64, u64, u64)> = Vec::new();
        for (first, last) in spans {
            match runs.last_mut() {
                Some(run) if first <= run.1 + 1 => run.1 = run.1.max(last),
                // One stays free, so that what was apart does not touch.
                Some(run) => {
                    let next = run.2 + (run.1 - run.0) + 2;
                    runs.push((first, last, next));
                }
                None => runs.push((first, last, FIRST)),
            }
        }
        Self { runs }
    }

    fn address(&self, address: VirtAddr) -> VirtAddr {
        let number = address.0 / GIGANTIC_PAGE_BYTES;
        let at = self.runs.partition_point(|(first, ..)| *first <= number);
        let run = at.checked_sub(1).and_then(|at| self.runs.get(at));
        let moved = run.map_or(number, |(first, _, becomes)| number - first + becomes);
        VirtAddr(moved * GIGANTIC_PAGE_BYTES + address.0 % GIGANTIC_PAGE_BYTES)
    }

    fn place(&self, mut change: Change) -> Change {
        for vma in change.vmas.iter_mut().flatten() {
            let start = self.address(vma.start);
            *vma = Vma { start, end: start.offset(vma.end.since(vma.start)), ..*vma };
        }
        for extent in &mut change.released {
            extent.start = self.address(extent.start);
        }
        for touch in &mut change.touched {
            touch.extent.start = self.address(touch.extent.start);
        }
        change
    }
}

/// What is thought of the program so far.
#[derive(Debug, Default)]
struct Program {
    vmas: BTreeMap<VirtAddr, Vma>,
    ranges: BTreeMap<PmdRange, Touched>,
    /// Base pages touched in all ranges.
    touched: u64,
}

/// What the program touched of a range.
#[derive(Clone, Debug, Default)]
struct Touched {
    pages: PageSet,
    data: PageSet,
    /// What was populated at the last sample, whoever did it.
    present: u16,
}

impl Program {
    /// What the program did to come to this sample.
    fn follow(&mut self, sample: &Sample) -> Change {
        let mut change = Change { vmas: self.change_vmas(sample), ..Change::default() };
        for run in &sample.changes.runs {
            for range in run.ranges() {
                self.change_range(range, &run.state, &mut change);
            }
        }
        change
    }

    /// The VMAs from now on, if they change.
    fn change_vmas(&mut self, sample: &Sample) -> Option<Vec<Vma>> {
        let changes = &sample.changes;
        if changes.vmas.is_empty() && changes.unmapped.is_empty() {
            return None;
        }
        let mut affected = Vec::new();
        for start in &changes.unmapped {
            affected.extend(self.vmas.remove(start));
        }
        for vma in &changes.vmas {
            affected.extend(self.vmas.insert(vma.start, *vma));
        }
        // A list that was read while it changed may have VMAs that overlap.
        let starts: Vec<VirtAddr> = self.vmas.keys().skip(1).copied().collect();
        for (vma, next) in self.vmas.values_mut().zip(starts) {
            if next < vma.end {
                affected.push(*vma);
                vma.end = next;
            }
        }
        for vma in affected {
            self.clip(&vma);
        }
        let vmas = self.vmas.values().copied().collect();
        Some(vmas)
    }

    /// Forgets what was touched where there is no VMA any more; the machine gives it back.
    fn clip(&mut self, was: &Vma) {
        let first = PmdRange::containing(was.start);
        let ranges: Vec<PmdRange> = self
            .ranges
            .range(first..)
            .map(|(range, _)| *range)
            .take_while(|range| range.start() < was.end)
            .collect();
        for range in ranges {
            let allowed = self.allowed(range);
            let Some(touched) = self.ranges.get_mut(&range) else { continue };
            let before = touched.pages.len();
            touched.pages = touched.pages.intersection(allowed);
            touched.data = touched.data.intersection(allowed);
            self.touched -= u64::from(before - touched.pages.len());
        }
    }

    /// The base pages of a range that lie in a VMA.
    fn allowed(&self, range: PmdRange) -> PageSet {
        let mut allowed = PageSet::default();
        let before = self.vmas.range(..range.start()).next_back();
        let inside = self.vmas.range(range.start()..range.end());
        for (_, vma) in before.into_iter().chain(inside) {
            let (start, end) = (vma.start.max(range.start()), vma.end.min(range.end()));
            if start >= end {
                continue;
            }
            if start == range.start() && end == range.end() {
                return PageSet::ALL;
            }
            let last = page_index(VirtAddr(end.0 - 1));
            (page_index(start)..=last).for_each(|page| allowed.insert(page));
        }
        allowed
    }

    fn change_range(&mut self, range: PmdRange, state: &RangeState, change: &mut Change) {
        let allowed = self.allowed(range);
        let touched = self.ranges.entry(range).or_default();
        let before = touched.pages.len();
        let wanted = touched.wanted(state).min(allowed.len());
        let mut surplus = before.saturating_sub(wanted);
        while let Some(page) = touched.pages.last().filter(|_| surplus > 0) {
            touched.pages.remove(page);
            touched.data.remove(page);
            release(&mut change.released, range.base_page(page));
            surplus -= 1;
        }
        let mut missing = wanted.saturating_sub(before);
        let data = narrow(state.data).min(wanted);
        let mut without_data = data.saturating_sub(touched.data.len());
        for page in allowed.iter() {
            let is_new = !touched.pages.contains(page);
            if is_new && missing == 0 || touched.data.contains(page) {
                continue;
            }
            let gets_data = without_data > 0;
            if is_new {
                touched.pages.insert(page);
                missing -= 1;
            }
            if gets_data {
                touched.data.insert(page);
                without_data -= 1;
            }
            if is_new || gets_data {
                let content = if gets_data { Content::Data } else { Content::Zeroes };
                touch(&mut change.touched, range.base_page(page), content);
            }
        }
        touched.present = narrow(state.present);
        self.touched = self.touched + u64::from(touched.pages.len()) - u64::from(before);
        if touched.pages.is_empty() {
            self.ranges.remove(&range);
        }
    }
}

impl Touched {
    /// How many base pages the program has touched, if the range looks like this now.
    fn wanted(&self, state: &RangeState) -> u16 {
        let have = self.pages.len();
        let (present, data) = (narrow(state.present), narrow(state.data));
        match state.mapping {
            Mapping::Empty => 0,
            // At least one: nobody maps a huge page that nobody touches.
            Mapping::Huge | Mapping::Gigantic => have.max(data).max(1),
            // After a huge page was split, what it populated is still there, touched or not.
            Mapping::Base => {
                let grown = present.saturating_sub(self.present);
                (have + grown).max(data).min(present)
            }
        }
    }
}

fn narrow(pages: BasePages) -> u16 {
    u16::try_from(pages.0).unwrap_or(PAGES).min(PAGES)
}

/// Adds a page that is given back: pages of a range come from the highest address down.
fn release(released: &mut Vec<Extent>, page: VirtAddr) {
    let one = Extent { start: page, pages: BasePages(1) };
    match released.last_mut() {
        Some(last) if last.start == page.offset(one.pages.bytes()) => {
            *last = Extent { start: page, pages: last.pages + one.pages };
        }
        _ => released.push(one),
    }
}

/// Adds a page that is touched: pages come in address order.
fn touch(touched: &mut Vec<Touch>, page: VirtAddr, content: Content) {
    match touched.last_mut() {
        Some(last)
            if last.content == content
                && last.extent.start.offset(last.extent.pages.bytes()) == page =>
        {
            last.extent.pages.0 += 1;
        }
        _ => touched.push(Touch { extent: Extent { start: page, pages: BasePages(1) }, content }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_trace::{Changes, Contents, Header, Usage};
    use superpage_units::{Advice, Growth, VmaKind};

    #[test]
    fn what_lies_far_apart_moves_together_and_keeps_its_place_in_its_gibibyte() {
        let vma = |start: u64, end: u64| Vma {
            start: VirtAddr(start),
            end: VirtAddr(end),
            kind: VmaKind::Anonymous,
            growth: Growth::Fixed,
            advice: Advice::None,
        };
        let (heap, top) = (0x5555_5555_4000, 0x7fff_c000_0000);
        let vmas = vec![vma(heap, heap + 4096), vma(top - 4096, top), vma(top, top + 8192)];
        let header =
            Header { command: String::new(), interval: Nanos(1), contents: Contents::Exact };
        let changes = Changes { vmas: vmas.clone(), ..Changes::default() };
        let sample = Sample { at: Nanos(0), usage: Usage::default(), changes };
        let trace = Trace { header, samples: vec![sample], is_whole: true };
        let placed =
            Places::of(&trace).place(Change { vmas: Some(vmas.clone()), ..Change::default() });
        let placed = placed.vmas.expect("they are there");
        for (before, after) in vmas.iter().zip(&placed) {
            assert_eq!(before.start.0 % GIGANTIC_PAGE_BYTES, after.start.0 % GIGANTIC_PAGE_BYTES);
            assert_eq!(before.end.since(before.start), after.end.since(after.start));
        }
        assert_eq!(placed[1].end, placed[2].start, "neighbours stay neighbours");
        let numbers: Vec<u64> = placed.iter().map(|a| a.start.0 / GIGANTIC_PAGE_BYTES).collect();
        assert_eq!(numbers, [FIRST, FIRST + 2, FIRST + 3]);
    }
}
