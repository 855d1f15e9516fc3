//! A program that fills a part of its memory at a pace, base page by base page, and looks whether all of them hold what it
//! wrote. Not when it is killed: its parent sees that.

use super::{Answer, Order, Play, refused};
use crate::width::to_usize;
use std::time::{Duration, Instant};
use superpage_kernel::own_memory::{OwnMemory, Wish};
use superpage_units::{BASE_PAGE_BYTES, BASE_PAGES_PER_HUGE_PAGE, Bytes, HugePages, Share};

const PAGE: usize = to_usize(BASE_PAGE_BYTES);

/// The program.
pub(super) struct Filling {
    memory: OwnMemory,
    /// The share of its base pages that it touches.
    touched: Share,
    /// The memory that it passes in a second, touched or not; nothing: as fast as it can.
    pace: Option<Bytes>,
}

impl Filling {
    pub(super) fn new(
        size: HugePages,
        touched: Share,
        pace: Option<Bytes>,
    ) -> Result<Self, String> {
        let memory = OwnMemory::map(size, Wish::Nothing).map_err(|error| error.to_string())?;
        Ok(Self { memory, touched, pace })
    }

    /// Whether it touches a base page: as if drawn, and the same each time.
    fn touches(&self, page: usize) -> bool {
        let drawn = word(page) >> 11;
        (drawn as f64) < self.touched.get() * (1_u64 << 53) as f64
    }

    fn fill(&mut self) {
        let began = Instant::now();
        let pages = self.memory.bytes().len() / PAGE;
        for page in 0..pages {
            if self.touches(page) {
                let place = &mut self.memory.bytes_mut()[page * PAGE..][..size_of::<u64>()];
                place.copy_from_slice(&word(page).to_ne_bytes());
            }
            let is_at_border = (page + 1).is_multiple_of(to_usize(BASE_PAGES_PER_HUGE_PAGE));
            if let (true, Some(pace)) = (is_at_border, self.pace) {
                let due = ((page + 1) * PAGE) as f64 / pace.0 as f64;
                let wait = Duration::from_secs_f64(due).saturating_sub(began.elapsed());
                std::thread::sleep(wait);
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        let pages = self.memory.bytes().chunks_exact(PAGE).enumerate();
        let is_wrong = |(page, bytes): &(usize, &[u8])| {
            self.touches(*page) && !bytes.starts_with(&word(*page).to_ne_bytes())
        };
        match pages.filter(is_wrong).count() {
            0 => Ok(()),
            wrong => Err(format!("{wrong} base pages do not hold what was written to them")),
        }
    }
}

impl Play for Filling {
    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        let began = Instant::now();
        match order {
            Order::Go => self.fill(),
            Order::Check => self.check()?,
            other => return refused(other),
        }
        Ok(Answer::Done { nanos: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX) })
    }
}

/// The word that a base page holds: drawn by the page's number, never zero.
fn word(page: usize) -> u64 {
    let x = (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ x >> 31) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_pages_are_touched_as_were_asked_for_and_hold_what_was_written() {
        let mut program = Filling::new(HugePages(8), Share::percent(40), None).expect("16 MiB");
        let touched = (0..8 * 512).filter(|page| program.touches(*page)).count();
        assert!((1500..1800).contains(&touched), "{touched} of 4096");
        program.fill();
        program.check().expect("nobody touched it");
        let first = (0..).find(|page| program.touches(*page)).expect("there is one");
        program.memory.bytes_mut()[first * PAGE] ^= 1;
        assert!(program.check().is_err());
    }

    #[test]
    fn a_pace_is_kept() {
        let pace = Some(Bytes::from_mib(64));
        let mut program = Filling::new(HugePages(8), Share::percent(1), pace).expect("16 MiB");
        let began = Instant::now();
        program.fill();
        assert!(began.elapsed() >= Duration::from_millis(250));
    }
}
