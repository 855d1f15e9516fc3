//! A program that is driven from outside: whoever has the run says what it does, one access after the other, as a model of an
//! allocator does. Its clock is here, as those of programs with phases are in [`super::program`].

use super::{Result, Run};
use crate::machine::{Content, Served};
use superpage_policy::promotion::View;
use superpage_units::{Advice, Bytes, Growth, Nanos, ProcessKey, Time, VirtAddr, Vma, VmaKind};

/// A run with one program that is driven from outside. The program takes fault after fault, so that it waits for whoever
/// holds its memory locked, but for when it rests.
#[derive(Debug)]
pub struct Driven {
    run: Run,
    key: ProcessKey,
    clock: Time,
    began: Time,
    caught_up: Time,
    /// How far the background may lag behind.
    lag: Nanos,
}

impl Driven {
    /// A program that has one VMA of anonymous memory and has done nothing yet.
    #[must_use]
    pub fn new(mut run: Run, start: VirtAddr, size: Bytes, lag: Nanos) -> Self {
        let machine = run.machine_mut();
        let key = machine.spawn();
        let (kind, growth, advice) = (VmaKind::Anonymous, Growth::Fixed, Advice::None);
        machine.map(key, Vma { start, end: start.offset(size), kind, growth, advice });
        let clock = machine.now();
        Self { run, key, clock, began: clock, caught_up: clock, lag }
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The process.
    #[must_use]
    pub fn key(&self) -> ProcessKey {
        self.key
    }

    /// The time on the program's clock.
    #[must_use]
    pub fn clock(&self) -> Time {
        self.clock
    }

    /// The time since the program began.
    #[must_use]
    pub fn elapsed(&self) -> Nanos {
        self.clock.since(self.began)
    }

    /// Works for so long without a fault.
    pub fn work(&mut self, time: Nanos) {
        self.clock += time;
    }

    /// Writes to the page at `address`.
    ///
    /// # Errors
    /// [`crate::machine::OutOfMemory`].
    pub fn write(&mut self, address: VirtAddr) -> Result<()> {
        let machine = self.run.system.machine.at(self.clock);
        if let Served::Fault { work, .. } = machine.touch(self.key, address, Content::Data)? {
            let (busy, waited) = self.run.system.cost(&work);
            self.clock += busy + waited;
        }
        Ok(())
    }

    /// Gives back the pages from `start` to `end`, with `madvise(MADV_DONTNEED)`.
    pub fn discard(&mut self, start: VirtAddr, end: VirtAddr) {
        let work = self.run.system.machine.at(self.clock).discard(self.key, start, end);
        self.clock += self.run.hardware().profile.price(&work);
    }

    /// Lets the background catch up, if it lags behind by more than it may.
    pub fn catch_up(&mut self) {
        if self.clock.since(self.caught_up) > self.lag {
            self.run.catch_up(self.clock);
            self.caught_up = self.clock;
            self.clock += self.run.system.take_wait(self.key);
        }
    }

    /// Does nothing for so long, in which it waits for no lock.
    pub fn rest(&mut self, time: Nanos) {
        self.clock += time;
        self.run.catch_up(self.clock);
        self.caught_up = self.clock;
        self.run.system.take_wait(self.key);
    }
}
