//! A small program as it starts: some threads, each with a little memory of malloc's. Which pages that gets is up to the C
//! library.

use super::{Answer, Order, Play, refused};
use std::sync::Barrier;
use std::time::Instant;
use superpage_units::Bytes;

/// The bytes that a thread asks for at a time: below malloc's threshold for mappings of their own.
const PIECE: usize = 16 * 1024;

/// The program.
pub(super) struct Threads {
    pub(super) threads: usize,
    /// Of each thread.
    pub(super) size: Bytes,
}

impl Threads {
    /// All threads have their memory at the same time, and see that it holds what they wrote.
    fn run(&self) -> Result<(), String> {
        let all = Barrier::new(self.threads);
        let pieces = usize::try_from(self.size.0).unwrap_or(usize::MAX) / PIECE;
        let work = |number: usize| {
            let byte = u8::try_from(number % 255).unwrap_or(0) + 1;
            let memory: Vec<Vec<u8>> = (0..pieces).map(|_| vec![byte; PIECE]).collect();
            all.wait();
            memory.iter().flatten().all(|found| *found == byte)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.threads).map(|number| scope.spawn(move || work(number))).collect();
            let is_right = threads.into_iter().all(|thread| thread.join().unwrap_or(false));
            is_right.then_some(()).ok_or_else(|| "a thread found something else".to_owned())
        })
    }
}

impl Play for Threads {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        if order != Order::Go {
            return refused(order);
        }
        let began = Instant::now();
        self.run()?;
        Ok(Answer::Done { nanos: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_see_their_own_memory() {
        let program = Threads { threads: 3, size: Bytes::from_kib(256) };
        assert_eq!(program.run(), Ok(()));
    }
}
