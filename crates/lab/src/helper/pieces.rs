//! A program that leaves free memory in pieces, as a cache does that has thrown most of its entries out: it touches all of its
//! memory, base page by base page, and gives back all but one base page of each [`GROUP`]. The kernel can move what is left.
//! Then it goes on to use what it has kept, and takes down where that takes long.

use super::pauses::take_down;
use super::{Answer, Order, Play, refused};
use crate::width::to_usize;
use std::time::Duration;
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_units::{BASE_PAGE_BYTES, BasePages, HugePages, Nanos};

/// Base pages of which it keeps the first one: the largest free piece is 16 KiB.
const GROUP: usize = 8;
/// Base pages that a turn writes to.
const WRITTEN: usize = 512; // tidy: allow(base pages a turn, some tenths of a millisecond)

const PAGE: usize = to_usize(BASE_PAGE_BYTES);

/// The program.
pub(super) struct Pieces {
    memory: OwnMemory,
    /// The group whose page is written to next.
    next: usize,
    time: Duration,
}

impl Pieces {
    pub(super) fn new(size: HugePages, time: Nanos) -> Result<Self, String> {
        let said = |error: superpage_kernel::Error| error.to_string();
        let mut memory = OwnMemory::map(size, Wish::BasePages).map_err(said)?;
        memory.bytes_mut().iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
        for group in 0..memory.bytes().len() / (GROUP * PAGE) {
            let first = BasePages((group * GROUP + 1) as u64);
            memory.discard(first, BasePages(GROUP as u64 - 1)).map_err(said)?;
        }
        Ok(Self { memory, next: 0, time: Duration::from_nanos(time.0) })
    }

    /// Writes to some of the pages that it has kept, far apart from each other.
    fn turn(&mut self) {
        /// Groups from one page to the next: odd, so that all pages have their turn.
        const STRIDE: usize = 1021; // tidy: allow(a prime number)
        let groups = self.memory.bytes().len() / (GROUP * PAGE);
        for _ in 0..WRITTEN {
            let byte = &mut self.memory.bytes_mut()[self.next * GROUP * PAGE];
            *byte = byte.wrapping_add(1);
            self.next = (self.next + STRIDE) % groups;
        }
    }
}

impl Play for Pieces {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        match order {
            Order::Go => {
                let time = self.time;
                let turn = || {
                    self.turn();
                    Ok(())
                };
                take_down(time, turn).map(Answer::Paused)
            }
            other => refused(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_kernel::pagemap::Pagemap;
    use superpage_kernel::process::Process;

    #[test]
    fn one_page_of_each_group_is_left_and_used() {
        let mut program = Pieces::new(HugePages(2), Nanos(0)).expect("4 MiB");
        let pagemap = Pagemap::open(&Process::current().expect("our own")).expect("readable");
        let ranges: Vec<_> = program.memory.ranges().collect();
        let present = |pagemap: &Pagemap| {
            let surveys = ranges.iter().map(|range| pagemap.survey(*range));
            surveys.map(|seen| seen.expect("readable").present).sum::<BasePages>()
        };
        assert_eq!(present(&pagemap), BasePages(2 * 512 / GROUP as u64));
        let before: u64 = program.memory.bytes().iter().map(|byte| u64::from(*byte)).sum();
        program.turn();
        let after: u64 = program.memory.bytes().iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(after - before, WRITTEN as u64);
    }
}
