//! Accessing what is there: some accesses are made, and stand for many.

use super::{Charged, Program, Result, STEADY, System};
use crate::machine::{Content, Machine};
use crate::random::Random;
use crate::workload::draw::Draw;
use crate::workload::{Access, Counting, Stream, Target};
use superpage_units::{BasePages, Nanos, PageSize, PmdRange, ProcessKey, Share, VirtAddr};

/// Accesses sampled in a slice. Chosen: several times the entries of the largest TLB.
const SAMPLES: u32 = 10_000;
/// Accesses sampled for a slice that stands for all the rest of a phase.
const LONG_SAMPLES: u32 = 100_000;
/// Accesses before the first slice, to warm TLBs and caches up. Chosen: several times the lines of
/// page tables in the largest cache (a tenth of it made long slices 10 % dearer than short ones).
const WARM_UP: u32 = 300_000;
/// Draws for one access to a page with data before the last draw is taken.
const DRAWS: u32 = 64;

/// Accesses under way.
#[derive(Debug)]
pub(super) struct Accessing {
    access: Access,
    /// Of each stream the cumulated weight, drawing and target.
    streams: Vec<(f64, Draw, Target)>,
    /// Without streams: the ranges that hold data, with base pages up to and in each.
    data: Vec<(u64, PmdRange)>,
    /// How many accesses were made.
    done: f64,
    is_warm: bool,
    /// The addresses sampled last.
    covered: Vec<u64>,
}

impl Accessing {
    pub(super) fn new(program: &Program, machine: &Machine, access: Access) -> Self {
        let mut total = 0.0;
        let of = |stream: &Stream| {
            let (start, pages) = program.extent(stream.part);
            total += stream.weight;
            (total, Draw::new(start, BasePages(pages).bytes(), stream.pattern), stream.target)
        };
        let streams: Vec<_> = access.streams.iter().map(of).collect();
        let process = machine.process(program.key).filter(|_| streams.is_empty());
        let data = process.map(|process| process.data()).unwrap_or_default();
        Self { access, streams, data, done: 0.0, is_warm: false, covered: Vec::new() }
    }

    /// Makes accesses for a slice; whether those were the last.
    pub(super) fn slice(&mut self, program: &mut Program, system: &mut System) -> Result<bool> {
        if self.streams.is_empty() && self.data.is_empty() {
            return Ok(true);
        }
        let Access { count, cycles: own, exposed, counting, .. } = self.access;
        if !self.is_warm && counting == Counting::Sampled {
            self.sample(program, system, WARM_UP)?;
            self.is_warm = true;
        }
        let samples = match (counting, system.rest) {
            (Counting::Sampled, Some(_)) => LONG_SAMPLES,
            (Counting::Each, _) | (Counting::Sampled, None) => SAMPLES,
        };
        let charged = self.sample(program, system, samples)?;
        let translation = charged.cycles / charged.accesses;
        let cycles = own + exposed * translation;
        let threads = f64::from(program.threads.max(1));
        let seconds = cycles / system.hardware.frequency() / threads;
        let most = match (counting, system.rest) {
            (Counting::Each, _) => charged.accesses,
            (Counting::Sampled, Some(until)) => {
                until.since(program.clock()).max(STEADY).as_secs_f64() / seconds
            }
            (Counting::Sampled, None) => STEADY.as_secs_f64() / seconds,
        };
        let made = most.min(count - self.done);
        program.clock.spend(made * seconds + charged.faults.as_secs_f64() / threads);
        program.report.cycles += made * cycles;
        program.report.walk_cycles += made * translation;
        program.report.translate(made, made / charged.accesses, &charged);
        let machine = &mut system.machine;
        machine.note_walk_share(program.key, Share::clamped(translation / cycles));
        machine.note_coverage(program.key, &mut self.covered, made / charged.accesses);
        self.done += made;
        Ok(self.done >= count - 0.5)
    }

    /// Makes `count` accesses.
    fn sample(&mut self, of: &mut Program, system: &mut System, count: u32) -> Result<Charged> {
        let threads = u64::from(of.threads.max(1));
        let mut charged = Charged::default();
        self.covered.clear();
        for _ in 0..count {
            let address = self.draw(of.key, &mut of.random, &system.machine);
            let mut size = system.machine.access(of.key, address);
            if size.is_none() {
                system.machine.at(of.clock() + Nanos(charged.faults.0 / threads));
                charged.faults += of.touch(system, address, Content::Data)?;
                size = system.machine.access(of.key, address);
            }
            let (size, host) = (size.unwrap_or(PageSize::Base), system.hardware.host_pages);
            charged.add(of.translator.translate(address, size, host), 1.0);
            self.covered.push(address.0);
        }
        Ok(charged)
    }

    fn draw(&mut self, key: ProcessKey, random: &mut Random, machine: &Machine) -> VirtAddr {
        let Some((total, ..)) = self.streams.last() else {
            return self.draw_data(key, random, machine);
        };
        let share = random.share() * total;
        let at = self.streams.partition_point(|(until, _, _)| *until <= share);
        let last = self.streams.len() - 1;
        let Some((_, draw, target)) = self.streams.get_mut(at.min(last)) else {
            return VirtAddr::default();
        };
        let mut address = draw.next(random);
        if *target == Target::Data {
            for _ in 0..DRAWS {
                if machine.holds_data(key, address) {
                    break;
                }
                address = draw.next(random);
            }
        }
        address
    }

    /// Any of the pages that held data when the phase began.
    fn draw_data(&self, key: ProcessKey, random: &mut Random, machine: &Machine) -> VirtAddr {
        let pages = self.data.last().map_or(0, |(pages, _)| *pages);
        let drawn = random.below(pages);
        let at = self.data.partition_point(|(until, _)| *until <= drawn);
        let Some((_, range)) = self.data.get(at) else { return VirtAddr::default() };
        let before = at.checked_sub(1).and_then(|at| self.data.get(at));
        let nth = u32::try_from(drawn - before.map_or(0, |(until, _)| *until)).unwrap_or(0);
        let process = machine.process(key);
        process.and_then(|p| p.data_page(*range, nth)).unwrap_or(range.start())
    }
}
