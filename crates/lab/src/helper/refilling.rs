//! A program that has touched a part of every huge page of its memory, and fills the rest later, in one of three ways, while it
//! reads at random what it wrote. It counts what it reads. Not when it is killed: its parent sees that.

use super::{Answer, Order, Play, refused};
use crate::width::to_usize;
use crate::workload::rng::{GOLDEN, Rng};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_units::{BASE_PAGE_BYTES, HugePages, Nanos, Share};

const PAGE: usize = to_usize(BASE_PAGE_BYTES);
/// The program reads once in such a time, for half of it, so that two of them and a daemon share two processors. Chosen.
const TURN: Duration = Duration::from_millis(2);
/// Words that are read between two looks at the clock. Chosen: some microseconds.
const BATCH: u64 = 256; // tidy: allow(words)

/// The base pages that the program fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fill {
    /// No base page.
    Nothing,
    /// All base pages, in address order: one huge page after the other.
    InOrder,
    /// The first half, as fast, in address order, and then none.
    HalfInOrder,
    /// All base pages, each huge page a little at a time.
    Everywhere,
}

/// The program.
pub(super) struct Refilling {
    memory: OwnMemory,
    /// How long it runs.
    time: Nanos,
    /// How long the filling takes.
    filling: Nanos,
    /// The base pages that hold data, in the order in which they were written.
    written: Vec<usize>,
    /// The pages that are to be filled, in the reverse of that order.
    left: Vec<usize>,
}

impl Refilling {
    pub(super) fn new(
        size: HugePages,
        touched: Share,
        fill: Fill,
        time: Nanos,
    ) -> Result<Self, String> {
        let memory = OwnMemory::map(size, Wish::Nothing).map_err(|error| error.to_string())?;
        let pages = 0..memory.bytes().len() / PAGE;
        let is_touched = |page: &usize| (drawn(*page) as f64) < touched.get() * (u64::MAX as f64);
        let (written, mut left): (Vec<usize>, Vec<usize>) = pages.partition(is_touched);
        match fill {
            Fill::Nothing => left.clear(),
            Fill::InOrder => left.reverse(),
            Fill::HalfInOrder => {
                left.truncate(left.len() / 2);
                left.reverse();
            }
            Fill::Everywhere => left.sort_by_key(|page| drawn(page ^ usize::MAX)),
        }
        let filling = if fill == Fill::HalfInOrder { time.0 / 2 } else { time.0 };
        let mut program = Self { memory, time, filling: Nanos(filling), written: Vec::new(), left };
        written.into_iter().for_each(|page| program.write(page));
        Ok(program)
    }

    fn write(&mut self, page: usize) {
        let place = &mut self.memory.bytes_mut()[page * PAGE..][..size_of::<u64>()];
        place.copy_from_slice(&word(page).to_ne_bytes());
        self.written.push(page);
    }

    fn holds(&self, page: usize) -> bool {
        self.memory.bytes()[page * PAGE..].starts_with(&word(page).to_ne_bytes())
    }

    /// Fills evenly over the time for that, and reads as long as it runs. How many words it read.
    fn go(&mut self) -> Result<u64, String> {
        let (began, time) = (Instant::now(), Duration::from_nanos(self.time.0));
        let (all, filling) = (self.left.len(), self.filling.as_secs_f64());
        let (mut rng, mut read, mut wrong) = (Rng::new(GOLDEN), 0, 0);
        while began.elapsed() < time {
            let turn = Instant::now();
            let passed = began.elapsed().as_secs_f64() / filling;
            while (self.left.len() as f64) > all as f64 * (1.0 - passed) {
                let Some(page) = self.left.pop() else { break };
                self.write(page);
            }
            while turn.elapsed() < TURN / 2 {
                for _ in 0..BATCH {
                    let index = to_usize(rng.below(self.written.len() as u64));
                    wrong += u64::from(!self.holds(self.written[index]));
                }
                read += BATCH;
            }
            std::thread::sleep(TURN.saturating_sub(turn.elapsed()));
        }
        while let Some(page) = self.left.pop() {
            self.write(page);
        }
        if wrong == 0 { Ok(read) } else { Err(format!("{wrong} words are not what was written")) }
    }

    fn check(&self) -> Result<(), String> {
        match self.written.iter().filter(|page| !self.holds(**page)).count() {
            0 => Ok(()),
            wrong => Err(format!("{wrong} base pages do not hold what was written to them")),
        }
    }
}

impl Play for Refilling {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        let began = Instant::now();
        let nanos = || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match order {
            Order::Go => {
                let result = self.go()?;
                Ok(Answer::Worked { nanos: nanos(), result })
            }
            Order::Check => {
                self.check()?;
                Ok(Answer::Done { nanos: nanos() })
            }
            other => refused(other),
        }
    }
}

/// A number that is drawn for a base page.
fn drawn(page: usize) -> u64 {
    Rng::new(page as u64).next()
}

/// The word that a base page holds; never zero.
fn word(page: usize) -> u64 {
    drawn(page) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(fill: Fill) -> Refilling {
        Refilling::new(HugePages(4), Share::percent(40), fill, Nanos(50_000_000)).expect("8 MiB")
    }

    #[test]
    fn it_fills_what_it_is_told_to_and_reads_what_it_wrote() {
        for (fill, written) in [
            (Fill::Nothing, 740..900),
            (Fill::HalfInOrder, 1394..1475),
            (Fill::InOrder, 2048..2049),
            (Fill::Everywhere, 2048..2049),
        ] {
            let mut program = program(fill);
            let before = program.written.len();
            assert!((740..900).contains(&before), "{before} of 2048");
            assert!(program.go().expect("it reads what it wrote") > 0);
            assert!(written.contains(&program.written.len()), "{fill:?}");
            program.check().expect("nobody touched it");
            let last = program.written.last().expect("some") * PAGE;
            program.memory.bytes_mut()[last] ^= 1;
            assert!(program.check().is_err());
        }
    }

    #[test]
    fn in_order_is_one_huge_page_after_the_other_and_everywhere_is_not() {
        let next = |fill| program(fill).left.into_iter().rev().take(100).max().expect("some");
        assert!(next(Fill::InOrder) < 512, "a huge page has 512");
        assert!(next(Fill::Everywhere) > 1024);
    }
}
