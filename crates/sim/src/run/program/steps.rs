//! A program that does the same step over and over ([`crate::workload::steps`]).
//!
//! All threads' touches are made, in turn, because each may fault. The TLB is one thread's: only the
//! first thread's touches go through it, and what they cost stands for all.

use super::{Hardware, OutOfMemory, Program, Progress};
use crate::machine::{Content, Machine};
use crate::workload::draw::Draw;
use crate::workload::steps::{Steps, Touches};
use crate::workload::{Counting, Pattern};
use superpage_units::{BasePages, Nanos, PageSize, Share, VirtAddr};

/// How long it runs before the background has its turn. Chosen: about what the promotion of a huge
/// page from the backing store takes, so that it comes in time for the pages after it.
const TURN: Nanos = Nanos(500_000);
/// Steps of the first thread over which the cost of translation is averaged. Chosen, not measured.
const AVERAGED: f64 = 64.0;

/// How far it has come.
#[derive(Debug)]
pub(super) struct State {
    done: u64,
    drawn: Vec<Drawn>,
    /// Cycles that translation adds to a step, lately.
    translation: f64,
}

/// Touches with their drawing: one for each thread, or one for all.
#[derive(Debug)]
struct Drawn {
    touches: Touches,
    draws: Vec<Draw>,
}

impl Drawn {
    /// Pages touched in a thread's step of this number.
    fn times(&self, number: u64) -> u64 {
        let until = |steps: u64| (steps as f64 * self.touches.per_step).floor();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few")]
        {
            (until(number + 1) - until(number)) as u64
        }
    }
}

impl Program {
    /// Makes steps for a turn; whether that was the last.
    pub(super) fn steps(
        &mut self,
        machine: &mut Machine,
        hardware: &Hardware,
        steps: &Steps,
    ) -> Result<bool, OutOfMemory> {
        let mut state = match std::mem::replace(&mut self.progress, Progress::New) {
            Progress::Steps(state) => state,
            _ => State { done: 0, drawn: self.drawn(steps), translation: 0.0 },
        };
        let threads = f64::from(self.workload.threads.max(1));
        let (begun, end) = (self.clock, self.clock + TURN);
        let mut spent = 0.0;
        while state.done < steps.count && self.clock < end {
            let faults = self.step(machine, hardware, &mut state)?;
            let cycles = steps.cycles + steps.exposed * state.translation;
            self.report.cycles += cycles;
            self.report.walk_cycles += state.translation;
            spent += (cycles / hardware.frequency() + faults.as_secs_f64()) / threads;
            self.clock = begun + Nanos::from_secs_f64(spent);
        }
        let cycles = steps.cycles + steps.exposed * state.translation;
        machine.note_walk_share(self.key, Share::clamped(state.translation / cycles.max(1.0)));
        let is_over = state.done >= steps.count;
        self.progress = Progress::Steps(state);
        Ok(is_over)
    }

    fn drawn(&self, steps: &Steps) -> Vec<Drawn> {
        let of = |touches: &Touches| {
            let (start, pages) = self.extent(touches.part);
            let is_shared = touches.pattern != Pattern::Sequential;
            let pieces = if is_shared { 1 } else { u64::from(self.workload.threads.max(1)) };
            let length = BasePages((pages / pieces).max(1)).bytes();
            let draw = |at: u64| Draw::new(start.offset(length * at), length, touches.pattern);
            Drawn { touches: *touches, draws: (0..pieces).map(draw).collect() }
        };
        steps.touches.iter().map(of).collect()
    }

    /// One step of one thread; what its faults took.
    fn step(
        &mut self,
        machine: &mut Machine,
        hardware: &Hardware,
        state: &mut State,
    ) -> Result<Nanos, OutOfMemory> {
        let threads = u64::from(self.workload.threads.max(1));
        let (thread, number) = (state.done % threads, state.done / threads);
        let is_first = thread == 0;
        let mut faults = Nanos::ZERO;
        let mut cycles = 0.0;
        let (mut accesses, mut misses, mut walks) = (0.0, 0.0, 0.0);
        machine.now = self.clock;
        machine.begin_requests_in_turn();
        for drawn in &mut state.drawn {
            if drawn.touches.made == Counting::Sampled && !is_first {
                continue;
            }
            for _ in 0..drawn.times(number) {
                let at = usize::try_from(thread).unwrap_or(0) % drawn.draws.len().max(1);
                let Some(draw) = drawn.draws.get_mut(at) else { continue };
                let address = if drawn.touches.pattern == Pattern::Sequential {
                    draw.next_page()
                } else {
                    draw.next(&mut self.random)
                };
                let content = drawn.touches.content;
                let (size, latency) = self.visit(machine, hardware, address, content)?;
                faults += latency;
                if is_first {
                    let before = self.translator.stats();
                    let cost = match hardware.host_pages {
                        None => self.translator.access(address, size),
                        Some(host) => self.translator.access_nested(address, size, host),
                    };
                    let after = self.translator.stats();
                    let weight = drawn.touches.stands_for;
                    cycles += cost.0 as f64 * weight;
                    accesses += weight;
                    misses += (after.misses() - before.misses()) as f64 * weight;
                    walks += (after.walks() - before.walks()) as f64 * weight;
                }
            }
        }
        machine.end_of_requests_in_turn();
        if is_first {
            let all = threads as f64;
            self.report.accesses += all * accesses;
            self.report.first_misses += all * misses;
            self.report.walks += all * walks;
            let weight = if number == 0 { 1.0 } else { 1.0 / AVERAGED };
            state.translation += (cycles - state.translation) * weight;
        }
        state.done += 1;
        Ok(faults)
    }

    /// Touches a page: the size that maps it, and what the fault took if there was one.
    fn visit(
        &mut self,
        machine: &mut Machine,
        hardware: &Hardware,
        address: VirtAddr,
        content: Content,
    ) -> Result<(PageSize, Nanos), OutOfMemory> {
        let mapped = machine.access(self.key, address);
        if let Some(size) = mapped.filter(|_| content == Content::Zeroes) {
            return Ok((size, Nanos::ZERO));
        }
        let latency = self.touch(machine, hardware, address, content)?;
        let size = mapped.or_else(|| machine.access(self.key, address));
        Ok((size.unwrap_or(PageSize::Base), latency))
    }
}
