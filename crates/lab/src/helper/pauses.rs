//! A program that touches, maps and unmaps memory a thousand times a second, and takes down where that took long.

use super::{Answer, Order, Play, refused};
use crate::width::to_usize;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_kernel::text;
use superpage_units::{BASE_PAGE_BYTES, HugePages, Nanos};

/// From one turn to the next.
const TURN: Duration = Duration::from_millis(1);
/// Base pages of the heap that a turn touches for the first time: some sixteen ranges a second pass the threshold of a policy.
const TOUCHED: usize = 8;
/// Base pages of the memory that a turn maps, touches and unmaps.
const PASSING: usize = 4;
/// A turn that takes longer is a pause.
pub(crate) const LONG: Duration = Duration::from_millis(5);

const PAGE: usize = to_usize(BASE_PAGE_BYTES);

/// A turn that took long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pause {
    /// When it began, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// How long it took.
    pub(crate) nanos: u64,
    /// How long of that the program was ready and had no processor.
    pub(crate) run_delay_nanos: u64,
    /// What the machine's host took from its processors meanwhile, of all together; in steps of 10 ms.
    pub(crate) stolen_nanos: u64,
}

/// What all turns together were like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Paused {
    /// When the first began, in milliseconds since 1970.
    pub(crate) began_ms: u64,
    /// How many there were.
    pub(crate) turns: u64,
    /// How long the longest took.
    pub(crate) longest_nanos: u64,
    /// The pauses that took long, in the order of time.
    pub(crate) pauses: Vec<Pause>,
}

/// The program.
pub(super) struct Pauses {
    heap: OwnMemory,
    /// The next page of the heap that has not been touched.
    next: usize,
    size: HugePages,
    time: Duration,
}

impl Pauses {
    pub(super) fn new(size: HugePages, time: Nanos) -> Result<Self, String> {
        let (heap, time) = (map(size)?, Duration::from_nanos(time.0));
        Ok(Self { heap, next: 0, size, time })
    }

    /// Touches some pages of the heap, which begins anew when it is full, and memory that is mapped for that only.
    fn turn(&mut self) -> Result<(), String> {
        if (self.next + TOUCHED) * PAGE > self.heap.bytes().len() {
            (self.heap, self.next) = (map(self.size)?, 0);
        }
        for page in self.next..self.next + TOUCHED {
            self.heap.bytes_mut()[page * PAGE] = 1;
        }
        self.next += TOUCHED;
        let mut passing = map(HugePages(1))?;
        for page in 0..PASSING {
            passing.bytes_mut()[page * PAGE] = 1;
        }
        Ok(())
    }
}

impl Play for Pauses {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        match order {
            Order::Go => take_down(self.time, || self.turn()).map(Answer::Paused),
            other => refused(other),
        }
    }
}

/// Has turns made for so long, one each millisecond, and takes down which of them took long.
pub(super) fn take_down(
    time: Duration,
    mut turn: impl FnMut() -> Result<(), String>,
) -> Result<Paused, String> {
    let began = Instant::now();
    let mut paused = Paused { began_ms: Times::now().at_ms, ..Paused::default() };
    while began.elapsed() < time {
        let before = Times::now();
        let start = Instant::now();
        turn()?;
        let took = start.elapsed();
        paused.turns += 1;
        paused.longest_nanos = paused.longest_nanos.max(nanos(took));
        if took > LONG {
            let after = Times::now();
            paused.pauses.push(Pause {
                at_ms: before.at_ms,
                nanos: nanos(took),
                run_delay_nanos: after.run_delay.saturating_sub(before.run_delay),
                stolen_nanos: after.stolen.saturating_sub(before.stolen),
            });
        }
        std::thread::sleep(TURN.saturating_sub(start.elapsed()));
    }
    Ok(paused)
}

fn map(size: HugePages) -> Result<OwnMemory, String> {
    OwnMemory::map(size, Wish::Nothing).map_err(|error| error.to_string())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Times that only grow.
struct Times {
    at_ms: u64,
    run_delay: u64,
    stolen: u64,
}

impl Times {
    fn now() -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // What cannot be read counts as nothing.
        let run_delay = text::read(Path::new("/proc/thread-self/schedstat")).unwrap_or_default();
        let stat = text::read(Path::new("/proc/stat")).unwrap_or_default();
        Self {
            at_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            run_delay: text::words(&run_delay).nth(1).and_then(text::decimal).unwrap_or(0),
            // `cpu user nice system idle iowait irq softirq steal`, in ticks.
            stolen: text::words(&stat).nth(8).and_then(text::decimal).map_or(0, ticks),
        }
    }
}

fn ticks(ticks: u64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    ticks.saturating_mul(SECOND / rustix::param::clock_ticks_per_second().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_begins_anew_when_it_is_full() {
        let mut program = Pauses::new(HugePages(1), Nanos(0)).expect("2 MiB");
        for turn in 1..=64 {
            program.turn().expect("memory");
            assert_eq!(program.next, turn * TOUCHED);
        }
        program.turn().expect("memory");
        assert_eq!(program.next, TOUCHED);
    }

    #[test]
    fn turns_are_counted_and_long_ones_kept() {
        let mut program = Pauses::new(HugePages(1), Nanos(0)).expect("2 MiB");
        let paused = take_down(Duration::from_millis(100), || program.turn()).expect("memory");
        assert!(paused.turns > 0 && paused.turns <= 100 && paused.longest_nanos > 0, "{paused:?}");
        let are_long = paused.pauses.iter().all(|pause| pause.nanos > nanos(LONG));
        assert!(are_long, "{paused:?}");
    }
}
