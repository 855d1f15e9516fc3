//! A program that does the same step over and over ([`crate::workload::steps`]).
//!
//! All threads' touches are made, in turn, because each may fault. The TLB is one thread's: only the
//! first thread's touches go through it, and what they cost stands for all.

use super::{Charged, Program, Result, System};
use crate::machine::Content;
use crate::workload::draw::Draw;
use crate::workload::steps::{Steps, Touches};
use crate::workload::{Counting, Pattern};
use superpage_units::{BasePages, Nanos, PageSize, Share};

/// How long it runs before the background has its turn. Chosen: about what the promotion of a huge
/// page from the backing store takes, so that it comes in time for the pages after it.
const TURN: Nanos = Nanos(500_000);
/// Steps of the first thread over which the cost of translation is averaged. Chosen, not measured.
const AVERAGED: f64 = 64.0;

/// Steps under way.
#[derive(Debug)]
pub(super) struct Stepping {
    steps: Steps,
    /// How many were made.
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

impl Touches {
    /// Pages touched in a thread's step of this number.
    fn times(&self, number: u64) -> u64 {
        let until = |steps: u64| (steps as f64 * self.per_step).floor();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few")]
        {
            (until(number + 1) - until(number)) as u64
        }
    }
}

impl Stepping {
    pub(super) fn new(program: &Program, steps: Steps) -> Self {
        let of = |touches: &Touches| {
            let (start, pages) = program.extent(touches.part);
            let is_shared = touches.pattern != Pattern::Sequential;
            let pieces = if is_shared { 1 } else { u64::from(program.threads.max(1)) };
            let length = BasePages((pages / pieces).max(1)).bytes();
            let draw = |at: u64| Draw::new(start.offset(length * at), length, touches.pattern);
            Drawn { touches: *touches, draws: (0..pieces).map(draw).collect() }
        };
        let drawn = steps.touches.iter().map(of).collect();
        Self { steps, done: 0, drawn, translation: 0.0 }
    }

    /// Makes steps for a turn; whether that was the last.
    pub(super) fn slice(&mut self, program: &mut Program, system: &mut System) -> Result<bool> {
        let threads = f64::from(program.threads.max(1));
        while self.done < self.steps.count && program.clock.spent() < TURN {
            system.machine.at(program.clock()).begin_requests_in_turn();
            let faults = self.step(program, system)?;
            system.machine.end_of_requests_in_turn();
            program.report.cycles += self.cycles();
            program.report.walk_cycles += self.translation;
            let own = self.cycles() / system.hardware.frequency();
            program.clock.spend((own + faults.as_secs_f64()) / threads);
        }
        let share = Share::clamped(self.translation / self.cycles());
        system.machine.note_walk_share(program.key, share);
        Ok(self.done >= self.steps.count)
    }

    /// Cycles of a step with its translation, without faults.
    fn cycles(&self) -> f64 {
        self.steps.cycles + self.steps.exposed * self.translation
    }

    /// One step of one thread; what its faults took.
    fn step(&mut self, program: &mut Program, system: &mut System) -> Result<Nanos> {
        let threads = u64::from(program.threads.max(1));
        let (thread, number) = (self.done % threads, self.done / threads);
        let (is_first, host) = (thread == 0, system.hardware.host_pages);
        let mut charged = Charged::default();
        for Drawn { touches, draws } in &mut self.drawn {
            if touches.made == Counting::Sampled && !is_first {
                continue;
            }
            for _ in 0..touches.times(number) {
                let at = usize::try_from(thread).unwrap_or(0) % draws.len().max(1);
                let Some(draw) = draws.get_mut(at) else { continue };
                let address = if touches.pattern == Pattern::Sequential {
                    draw.next_page()
                } else {
                    draw.next(&mut program.random)
                };
                let mapped = system.machine.access(program.key, address);
                if mapped.is_none() || touches.content == Content::Data {
                    charged.faults += program.touch(system, address, touches.content)?;
                }
                let size = mapped.or_else(|| system.machine.access(program.key, address));
                if is_first {
                    let size = size.unwrap_or(PageSize::Base);
                    let cost = program.translator.translate(address, size, host);
                    charged.add(cost, touches.stands_for);
                }
            }
        }
        if is_first {
            let all = threads as f64;
            program.report.translate(all * charged.accesses, all, &charged);
            let weight = if number == 0 { 1.0 } else { 1.0 / AVERAGED };
            self.translation += (charged.cycles - self.translation) * weight;
        }
        self.done += 1;
        Ok(charged.faults)
    }
}
