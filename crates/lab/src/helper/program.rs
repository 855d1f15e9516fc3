//! A program of a paper in a process of its own, which builds its data when it starts and works when told to.

use super::{Answer, Order, Play, refused};
use crate::program::{Program, Work};
use std::mem::ManuallyDrop;
use std::time::Instant;
use superpage_units::Bytes;

/// The program. Its millions of allocations go with the process, not one by one.
pub(super) struct Worker(ManuallyDrop<Box<dyn Work>>);

impl Worker {
    pub(super) fn new(program: Program, size: Bytes) -> Self {
        Self(ManuallyDrop::new(program.build(size)))
    }
}

impl Play for Worker {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        let Order::Work { operations, seed } = order else { return refused(order) };
        let start = Instant::now();
        let result = self.0.work(operations, seed);
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(Answer::Worked { nanos, result })
    }
}
