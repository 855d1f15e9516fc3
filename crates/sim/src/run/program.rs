//! One program on a machine: its phases, slice by slice.

mod steps;

use super::report::{Latencies, Report};
use super::{Hardware, Rest};
use crate::machine::work::Work;
use crate::machine::{Content, Machine, OutOfMemory, Served};
use crate::random::Random;
use crate::translation::Translator;
use crate::workload::draw::Draw;
use crate::workload::{
    Access, Change, Counting, Discard, Order, Part, Phase, Populate, Stream, Target, VmaShape,
    Workload,
};
use std::sync::Arc;
use superpage_units::{
    BASE_PAGE_BYTES, BasePages, Bytes, GIGANTIC_PAGE_BYTES, Growth, Nanos, PageSize, PmdRange,
    ProcessKey, Share, Time, VirtAddr, Vma,
};

/// Where programs' VMAs begin. Anything but zero would do.
const FIRST_ADDRESS: u64 = 16 * GIGANTIC_PAGE_BYTES;
/// How long a program runs before others and the background have their turn. Chosen: short
/// against khugepaged's ten seconds, long against a fault.
const SLICE: Nanos = Nanos(20_000_000);
/// Accesses sampled in a slice. Chosen: several times the entries of the largest TLB.
const SAMPLES: u32 = 10_000;
/// Accesses sampled for a slice that stands for all the rest of a phase.
const LONG_SAMPLES: u32 = 100_000;
/// Accesses before the first slice, to warm TLBs and caches up. Chosen: several times the lines of
/// page tables in the largest cache (a tenth of it made long slices 10 % dearer than short ones).
const WARM_UP: u32 = 300_000;
/// The longest slice of steady accesses while the background works. Chosen: short against
/// khugepaged's ten seconds.
const STEADY: Nanos = Nanos(1_000_000_000);
/// Draws for one access to a page with data before the last draw is taken.
const DRAWS: u32 = 64;

/// A program that runs.
#[derive(Debug)]
pub(super) struct Program {
    key: ProcessKey,
    /// Shared, so that a phase can be looked at while the program changes.
    workload: Arc<Workload>,
    /// Start of each VMA.
    vmas: Vec<(VirtAddr, VmaShape)>,
    next_address: u64,
    phase: usize,
    progress: Progress,
    clock: Time,
    phase_began: Time,
    began: Time,
    translator: Translator,
    random: Random,
    covered: Vec<u64>,
    /// Threads that wanted a CPU in the last slice.
    running: f64,
    descent: Descent,
    report: Report,
}

/// Where a program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Descent {
    Started,
    /// By a fork; its memory is freed when it ends.
    Forked,
}

/// How far a program has come in its phase.
#[derive(Debug)]
enum Progress {
    New,
    /// So many pages have been dealt with.
    Pages(u64),
    /// So many accesses were made, from these streams.
    Accesses(f64, Streams),
    /// So many steps were made.
    Steps(steps::State),
}

/// Streams with their drawing.
#[derive(Debug)]
struct Streams {
    /// Cumulated weight, drawing, target.
    streams: Vec<(f64, Draw, Target)>,
    total: f64,
    /// Without streams: the ranges that hold data, with base pages up to and in each.
    data: Vec<(u64, PmdRange)>,
    is_warm: bool,
}

impl Streams {
    fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.data.is_empty()
    }
}

/// What some accesses took.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    accesses: u32,
    cycles: u64,
    first_misses: u64,
    walks: u64,
    faults: Nanos,
}

impl Program {
    pub(super) fn new(
        key: ProcessKey,
        workload: Workload,
        translator: Translator,
        random: Random,
        now: Time,
    ) -> Self {
        let report = Report {
            time: Nanos::ZERO,
            phases: Vec::new(),
            cycles: 0.0,
            walk_cycles: 0.0,
            accesses: 0.0,
            first_misses: 0.0,
            walks: 0.0,
            fault_time: Nanos::ZERO,
            fault_wait: Nanos::ZERO,
            faults: Latencies::default(),
            peak: BasePages::ZERO,
        };
        Self {
            key,
            workload: Arc::new(workload),
            vmas: Vec::new(),
            next_address: FIRST_ADDRESS,
            phase: 0,
            progress: Progress::New,
            clock: now,
            phase_began: now,
            began: now,
            translator,
            random,
            covered: Vec::new(),
            running: 0.0,
            descent: Descent::Started,
            report,
        }
    }

    /// A child of this program, forked now as process `key`.
    fn child(&mut self, key: ProcessKey, workload: &Workload, hardware: &Hardware) -> Self {
        let (random, translator) = (self.random.fork(), hardware.translator());
        Self {
            vmas: self.vmas.clone(),
            next_address: self.next_address,
            descent: Descent::Forked,
            ..Self::new(key, workload.clone(), translator, random, self.clock)
        }
    }

    pub(super) fn key(&self) -> ProcessKey {
        self.key
    }

    pub(super) fn clock(&self) -> Time {
        self.clock
    }

    pub(super) fn report(&self) -> Report {
        Report { time: self.clock.since(self.began), ..self.report.clone() }
    }

    pub(super) fn wait_until(&mut self, time: Time) {
        self.clock = self.clock.max(time);
        self.phase_began = self.phase_began.max(time);
    }

    /// Whether it changes nothing in its present phase: it has ended, or accesses what it has.
    pub(super) fn is_steady(&self) -> bool {
        match self.workload.phases.get(self.phase) {
            None => true,
            Some(Phase::Access(access)) => access.counting == Counting::Sampled,
            Some(_) => false,
        }
    }

    /// Threads that want a CPU from this time on. A program whose clock is ahead by more than a
    /// slice was then doing what it did in its last one.
    pub(super) fn runnable_at(&self, time: Time) -> f64 {
        if self.clock > time + STEADY { self.running } else { self.runnable() }
    }

    /// Threads that want a CPU in the present phase.
    fn runnable(&self) -> f64 {
        match self.workload.phases.get(self.phase) {
            None | Some(Phase::Sleep(_)) => 0.0,
            Some(Phase::Populate(populate)) => f64::from(populate.threads),
            Some(Phase::Access(_) | Phase::Steps(_)) => f64::from(self.workload.threads),
            Some(_) => 1.0,
        }
    }

    /// What it did since `begun` takes `stretch` times as long, for want of CPUs.
    fn wait_for_cpus(&mut self, begun: Time, stretch: f64) {
        let taken = self.clock.since(begun).as_secs_f64();
        self.clock += Nanos::from_secs_f64(taken * (stretch - 1.0));
    }

    /// Somebody held its memory locked for so long: its faults waited, if it takes any all the time.
    pub(super) fn wait_for_lock(&mut self, time: Nanos) {
        let phase = self.workload.phases.get(self.phase);
        if let Some(Phase::Populate(_) | Phase::Steps(_) | Phase::Change(_)) = phase {
            self.clock += time;
        }
    }

    /// How many of its phases have not ended.
    fn phases_left(&self) -> usize {
        self.workload.phases.len() - self.phase
    }

    /// Whether it has something to do until all programs have no more than `left` phases left. Those
    /// of a child are not among its parent's: it goes on to its end.
    pub(super) fn is_waiting(&self, left: usize) -> bool {
        match self.descent {
            Descent::Started => self.phases_left() > left,
            Descent::Forked => self.phases_left() > 0,
        }
    }

    /// Runs for a while; all of it takes `stretch` times as long as with a CPU for each thread. The
    /// child, if it forks.
    pub(super) fn slice(
        &mut self,
        machine: &mut Machine,
        hardware: &Hardware,
        rest: Rest,
        stretch: f64,
    ) -> Result<Option<Self>, OutOfMemory> {
        let begun = self.clock;
        let mut child = None;
        self.running = self.runnable();
        let workload = Arc::clone(&self.workload);
        let Some(phase) = workload.phases.get(self.phase) else { return Ok(None) };
        let is_over = match phase {
            Phase::Map(shape) => self.map(machine, *shape),
            Phase::Populate(populate) => self.populate(machine, hardware, populate)?,
            Phase::Access(access) => self.access(machine, hardware, access, rest)?,
            Phase::Steps(steps) => self.steps(machine, hardware, steps)?,
            Phase::Discard(discard) => self.discard(machine, hardware, discard),
            Phase::ReadFile(size) => {
                let work = machine.read_file(*size);
                self.clock += hardware.profile.price(&work);
                true
            }
            Phase::Sleep(time) => {
                self.clock += *time;
                true
            }
            Phase::Change(change) => self.change(machine, hardware, change)?,
            Phase::WaitUntil(time) => {
                self.clock = self.clock.max(self.began + *time);
                true
            }
            Phase::Fork(workload) => {
                child = self.fork(machine, hardware, workload);
                true
            }
        };
        self.wait_for_cpus(begun, stretch);
        self.report.peak = self.report.peak.max(machine.resident(self.key));
        if is_over {
            self.report.phases.push(self.clock.since(self.phase_began));
            self.phase_began = self.clock;
            self.phase += 1;
            self.progress = Progress::New;
            if self.descent == Descent::Forked && self.phases_left() == 0 {
                self.clock += hardware.profile.price(&machine.exit(self.key));
            }
        }
        Ok(child)
    }

    /// The child, which begins when the fork is done. None of memory that cannot be forked.
    fn fork(
        &mut self,
        machine: &mut Machine,
        hardware: &Hardware,
        workload: &Workload,
    ) -> Option<Self> {
        let (key, work) = machine.fork(self.key)?;
        self.clock += hardware.profile.price(&work);
        if workload.phases.is_empty() {
            self.clock += hardware.profile.price(&machine.exit(key));
            return None;
        }
        machine.set_threads(key, workload.threads);
        Some(self.child(key, workload, hardware))
    }

    fn map(&mut self, machine: &mut Machine, shape: VmaShape) -> bool {
        let start = VirtAddr(self.next_address + shape.offset.0);
        let reserved = shape.offset.0 + shape.limit.0.max(shape.size.0);
        self.next_address += (reserved / GIGANTIC_PAGE_BYTES + 2) * GIGANTIC_PAGE_BYTES;
        self.vmas.push((start, shape));
        machine.map(
            self.key,
            Vma {
                start,
                end: start.offset(shape.size),
                kind: shape.kind,
                growth: shape.growth,
                advice: shape.advice,
            },
        );
        true
    }

    /// The first address of a part, and its length in base pages.
    fn extent(&self, part: Part) -> (VirtAddr, u64) {
        let Some((start, shape)) = self.vmas.get(part.vma) else {
            return (VirtAddr::default(), 0);
        };
        let limit = shape.limit.to_base_pages();
        let from = limit.bytes().scaled(part.from).0 / BASE_PAGE_BYTES;
        let to = limit.bytes().scaled(part.to).0 / BASE_PAGE_BYTES;
        (start.offset(BasePages(from).bytes()), to.saturating_sub(from))
    }

    fn populate(
        &mut self,
        machine: &mut Machine,
        hardware: &Hardware,
        populate: &Populate,
    ) -> Result<bool, OutOfMemory> {
        let (start, pages) = self.extent(populate.part);
        let mut done = match self.progress {
            Progress::Pages(done) => done,
            Progress::New | Progress::Accesses(..) | Progress::Steps(_) => 0,
        };
        let threads = f64::from(populate.threads.max(1));
        let own = populate.cycles_per_page / hardware.frequency() / threads;
        let end = self.clock + SLICE;
        let mut spent = 0.0;
        let begun = self.clock;
        while done < pages && self.clock < end {
            let page = match populate.order {
                Order::Sequential => done,
                Order::Random => self.random.below(pages),
            };
            done += 1;
            if populate.density < 1.0 && self.random.share() >= populate.density {
                continue;
            }
            let address = start.offset(BasePages(page).bytes());
            self.grow(machine, populate, address);
            machine.now = self.clock;
            let latency = self.touch(machine, hardware, address, Content::Data)?;
            spent += own + latency.as_secs_f64() / threads;
            self.clock = begun + Nanos::from_secs_f64(spent);
        }
        self.progress = Progress::Pages(done);
        Ok(done >= pages)
    }

    fn touch(
        &mut self,
        machine: &mut Machine,
        hardware: &Hardware,
        address: VirtAddr,
        content: Content,
    ) -> Result<Nanos, OutOfMemory> {
        let Served::Fault { work, .. } = machine.touch(self.key, address, content)? else {
            return Ok(Nanos::ZERO);
        };
        let waited = machine.wait_for_device(&hardware.profile, &work);
        let latency = hardware.profile.cpu_time(&work) + waited;
        self.report.faults.record(latency);
        self.report.fault_time += latency;
        self.report.fault_wait += waited;
        Ok(latency)
    }

    /// Makes the VMA long enough for `address`.
    fn grow(&mut self, machine: &mut Machine, populate: &Populate, address: VirtAddr) {
        let Some((start, shape)) = self.vmas.get(populate.part.vma).copied() else { return };
        if shape.growth == Growth::Fixed {
            return;
        }
        let vma = machine
            .process(self.key)
            .and_then(|process| process.vmas().iter().find(|vma| vma.start == start).copied());
        let Some(vma) = vma.filter(|vma| vma.end <= address) else { return };
        let step = populate.step.0.max(BASE_PAGE_BYTES);
        let needed = address.offset(Bytes(BASE_PAGE_BYTES)).since(vma.end).0;
        let end = vma.end.offset(Bytes(needed.div_ceil(step) * step));
        machine.resize(self.key, start, end.min(start.offset(shape.limit)));
    }

    fn access(
        &mut self,
        machine: &mut Machine,
        hardware: &Hardware,
        access: &Access,
        rest: Rest,
    ) -> Result<bool, OutOfMemory> {
        let (mut done, mut streams) = match std::mem::replace(&mut self.progress, Progress::New) {
            Progress::Accesses(done, streams) => (done, streams),
            Progress::New | Progress::Pages(_) | Progress::Steps(_) => {
                (0.0, self.streams(machine, access))
            }
        };
        if streams.is_empty() {
            return Ok(true);
        }
        if !streams.is_warm && access.counting == Counting::Sampled {
            self.sample(machine, hardware, &mut streams, WARM_UP)?;
            streams.is_warm = true;
        }
        self.covered.clear();
        let samples = match (access.counting, rest) {
            (Counting::Sampled, Rest::Until(_)) => LONG_SAMPLES,
            (Counting::Each, _) | (Counting::Sampled, Rest::Short) => SAMPLES,
        };
        let taken = self.sample(machine, hardware, &mut streams, samples)?;
        let translation = taken.cycles as f64 / f64::from(taken.accesses.max(1));
        let cycles = access.cycles + access.exposed * translation;
        let threads = f64::from(self.workload.threads.max(1));
        let seconds = cycles / hardware.frequency() / threads;
        let left = access.count - done;
        let most = match (access.counting, rest) {
            (Counting::Each, _) => f64::from(taken.accesses),
            (Counting::Sampled, Rest::Until(until)) => {
                until.since(self.clock).max(STEADY).as_secs_f64() / seconds
            }
            (Counting::Sampled, Rest::Short) => STEADY.as_secs_f64() / seconds,
        };
        let made = most.min(left);
        let faults = taken.faults.as_secs_f64() / threads;
        self.clock += Nanos::from_secs_f64(made * seconds + faults);
        self.report.cycles += made * cycles;
        self.report.walk_cycles += made * translation;
        self.report.accesses += made;
        let each = made / f64::from(taken.accesses.max(1));
        self.report.first_misses += each * taken.first_misses as f64;
        self.report.walks += each * taken.walks as f64;
        machine.note_walk_share(self.key, Share::clamped(translation / cycles.max(1e-9)));
        machine.note_coverage(self.key, &mut self.covered, made / f64::from(samples));
        done += made;
        self.progress = Progress::Accesses(done, streams);
        Ok(done >= access.count - 0.5)
    }

    fn streams(&self, machine: &Machine, access: &Access) -> Streams {
        let mut total = 0.0;
        let of = |stream: &Stream| {
            let (start, pages) = self.extent(stream.part);
            total += stream.weight;
            (total, Draw::new(start, BasePages(pages).bytes(), stream.pattern), stream.target)
        };
        let streams = access.streams.iter().map(of).collect();
        let process = machine.process(self.key).filter(|_| access.streams.is_empty());
        let data = process.map(|process| process.data()).unwrap_or_default();
        Streams { streams, total, data, is_warm: false }
    }

    /// Makes `count` accesses.
    fn sample(
        &mut self,
        machine: &mut Machine,
        hardware: &Hardware,
        streams: &mut Streams,
        count: u32,
    ) -> Result<Taken, OutOfMemory> {
        let mut taken = Taken { accesses: count, ..Taken::default() };
        let threads = u64::from(self.workload.threads.max(1));
        let before = self.translator.stats();
        for _ in 0..count {
            let address = self.draw(machine, streams);
            let mut size = machine.access(self.key, address);
            if size.is_none() {
                machine.now = self.clock + Nanos(taken.faults.0 / threads);
                taken.faults += self.touch(machine, hardware, address, Content::Data)?;
                size = machine.access(self.key, address);
            }
            let size = size.unwrap_or(PageSize::Base);
            taken.cycles += match hardware.host_pages {
                None => self.translator.access(address, size),
                Some(host) => self.translator.access_nested(address, size, host),
            }
            .0;
            self.covered.push(address.0);
        }
        let after = self.translator.stats();
        taken.first_misses = after.misses() - before.misses();
        taken.walks = after.walks() - before.walks();
        Ok(taken)
    }

    /// Any of the pages that held data when the phase began.
    fn draw_data(&mut self, machine: &Machine, data: &[(u64, PmdRange)]) -> VirtAddr {
        let pages = data.last().map_or(0, |(pages, _)| *pages);
        let drawn = self.random.below(pages);
        let at = data.partition_point(|(until, _)| *until <= drawn);
        let Some((_, range)) = data.get(at) else { return VirtAddr::default() };
        let before = at.checked_sub(1).and_then(|at| data.get(at)).map_or(0, |(until, _)| *until);
        let nth = u32::try_from(drawn - before).unwrap_or(0);
        let process = machine.process(self.key);
        process.and_then(|p| p.data_page(*range, nth)).unwrap_or(range.start())
    }

    fn draw(&mut self, machine: &Machine, streams: &mut Streams) -> VirtAddr {
        if streams.streams.is_empty() {
            return self.draw_data(machine, &streams.data);
        }
        let share = self.random.share() * streams.total;
        let at = streams.streams.partition_point(|(until, _, _)| *until <= share);
        let last = streams.streams.len().saturating_sub(1);
        let Some((_, draw, target)) = streams.streams.get_mut(at.min(last)) else {
            return VirtAddr::default();
        };
        let mut address = draw.next(&mut self.random);
        if *target == Target::Data {
            for _ in 0..DRAWS {
                if machine.holds_data(self.key, address) {
                    break;
                }
                address = draw.next(&mut self.random);
            }
        }
        address
    }

    /// One step of a recorded program; whether it is over.
    fn change(
        &mut self,
        machine: &mut Machine,
        hardware: &Hardware,
        change: &Change,
    ) -> Result<bool, OutOfMemory> {
        let mut done = match self.progress {
            Progress::Pages(done) => done,
            Progress::New | Progress::Accesses(..) | Progress::Steps(_) => {
                self.give_back(machine, hardware, change);
                0
            }
        };
        let threads = f64::from(self.workload.threads.max(1));
        let (begun, end) = (self.clock, self.clock + SLICE);
        let mut spent = 0.0;
        let mut before = 0;
        for touch in &change.touched {
            let pages = touch.extent.pages.0;
            while done < before + pages && self.clock < end {
                let address = touch.extent.start.offset(BasePages(done - before).bytes());
                done += 1;
                machine.now = self.clock;
                let latency = self.touch(machine, hardware, address, touch.content)?;
                spent += latency.as_secs_f64() / threads;
                self.clock = begun + Nanos::from_secs_f64(spent);
            }
            before += pages;
        }
        self.progress = Progress::Pages(done);
        Ok(done >= before)
    }

    fn give_back(&mut self, machine: &mut Machine, hardware: &Hardware, change: &Change) {
        let mut work = Work::default();
        if let Some(vmas) = &change.vmas {
            work += machine.lay_out(self.key, vmas.clone());
        }
        for extent in &change.released {
            let end = extent.start.offset(extent.pages.bytes());
            work += machine.discard(self.key, extent.start, end);
        }
        self.clock += hardware.profile.price(&work);
    }

    fn discard(&mut self, machine: &mut Machine, hardware: &Hardware, discard: &Discard) -> bool {
        let (start, pages) = self.extent(discard.part);
        let piece = discard.piece.to_base_pages().0.max(1);
        let mut work = Work::default();
        for first in (0..pages / piece).map(|at| at * piece) {
            if self.random.share() < discard.share {
                let from = start.offset(BasePages(first).bytes());
                work += machine.discard(self.key, from, from.offset(BasePages(piece).bytes()));
            }
        }
        self.clock += hardware.profile.price(&work);
        true
    }
}
