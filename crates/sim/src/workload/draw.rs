//! Drawing addresses from the patterns of a workload.

use super::graph::VertexDraw;
use super::{Pattern, Spread};
use crate::random::Random;
use superpage_units::{BASE_PAGE_BYTES, Bytes, VirtAddr};

/// Bytes in a cache line: how far a sequential stream goes with each access.
const LINE: u64 = 64;
/// Lines in a base page.
const PAGE_LINES: u64 = BASE_PAGE_BYTES / LINE;

/// Draws the addresses of one stream.
#[derive(Clone, Debug)]
pub struct Draw {
    start: VirtAddr,
    lines: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Uniform,
    PowerLaw { exponent: f64, spread: Spread },
    Sequential { next: u64 },
    Vertices(Box<VertexDraw>),
    Runs { accesses: u64, step: u64, left: u64, next: u64 },
}

impl Draw {
    /// From `length` bytes at `start`.
    #[must_use]
    pub fn new(start: VirtAddr, length: Bytes, pattern: Pattern) -> Self {
        let kind = match pattern {
            Pattern::Uniform => Kind::Uniform,
            Pattern::PowerLaw { theta, spread } => {
                Kind::PowerLaw { exponent: 1.0 / (1.0 - theta.clamp(0.0, 0.999)), spread }
            }
            Pattern::Sequential => Kind::Sequential { next: 0 },
            Pattern::Vertices(vertices) => Kind::Vertices(Box::new(VertexDraw::new(vertices))),
            Pattern::Runs { accesses, step } => {
                Kind::Runs { accesses, step: step.0, left: 0, next: 0 }
            }
        };
        Self { start, lines: (length.0 / LINE).max(1), kind }
    }

    /// The start of the next page of a sequential stream; of another, of the whole.
    pub fn next_page(&mut self) -> VirtAddr {
        let Kind::Sequential { next } = &mut self.kind else { return self.start };
        let line = *next;
        *next = (line + PAGE_LINES) % self.lines;
        self.start.offset(Bytes(line * LINE))
    }

    /// The next address.
    pub fn next(&mut self, random: &mut Random) -> VirtAddr {
        let offset = match &mut self.kind {
            Kind::Uniform => random.below(self.lines) * LINE,
            Kind::Sequential { next } => {
                let line = *next;
                *next = (line + 1) % self.lines;
                line * LINE
            }
            Kind::Vertices(vertices) => vertices.next(random).0.min((self.lines - 1) * LINE),
            Kind::Runs { accesses, step, left, next } => {
                if *left == 0 {
                    *left = (*accesses).max(1);
                    *next = random.below(self.lines) * LINE;
                }
                let offset = *next;
                *left -= 1;
                *next = (offset + *step) % (self.lines * LINE);
                offset
            }
            Kind::PowerLaw { exponent, spread } => {
                let rank = rank(random.share(), *exponent, self.lines);
                let line = match spread {
                    Spread::Grouped => rank,
                    Spread::Scattered => scatter(rank, self.lines),
                };
                line * LINE
            }
        };
        self.start.offset(Bytes(offset))
    }
}

/// The item that a share of all accesses ends at, of a power law over `items`.
fn rank(share: f64, exponent: f64, items: u64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a number of items; capped below"
    )]
    let rank = (share.powf(exponent) * items as f64) as u64;
    rank.min(items - 1)
}

/// Puts an item somewhere else, always the same place.
pub(super) fn scatter(item: u64, items: u64) -> u64 {
    let mixed = Random::new(item).next_u64();
    ((u128::from(mixed) * u128::from(items)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: VirtAddr = VirtAddr(1 << 30);

    fn addresses(pattern: Pattern, count: usize) -> Vec<u64> {
        let mut draw = Draw::new(START, Bytes::from_mib(1), pattern);
        let mut random = Random::new(3);
        (0..count).map(|_| draw.next(&mut random).since(START).0).collect()
    }

    #[test]
    fn all_patterns_stay_inside() {
        let power = |spread| Pattern::PowerLaw { theta: 0.7, spread };
        for pattern in [
            Pattern::Uniform,
            Pattern::Sequential,
            power(Spread::Grouped),
            power(Spread::Scattered),
        ] {
            let drawn = addresses(pattern, 50_000);
            assert!(drawn.iter().all(|offset| *offset < 1 << 20), "{pattern:?}");
        }
    }

    #[test]
    fn a_sequential_stream_goes_page_by_page_and_round() {
        let mut draw = Draw::new(START, Bytes::from_kib(12), Pattern::Sequential);
        let drawn: Vec<u64> = (0..4).map(|_| draw.next_page().since(START).0).collect();
        assert_eq!(drawn, [0, 4096, 8192, 0]);
    }

    #[test]
    fn runs_go_on_for_as_long_as_they_say_and_then_anywhere() {
        let drawn = addresses(Pattern::Runs { accesses: 4, step: Bytes(8) }, 4000);
        for run in drawn.chunks(4) {
            let offsets: Vec<u64> =
                run.iter().map(|at| (at + (1 << 20) - run[0]) % (1 << 20)).collect();
            assert_eq!(offsets, [0, 8, 16, 24]);
        }
        let starts: std::collections::BTreeSet<u64> = drawn.chunks(4).map(|run| run[0]).collect();
        assert!(starts.len() > 900, "{}", starts.len());
        let still = addresses(Pattern::Runs { accesses: u64::MAX, step: Bytes::ZERO }, 10);
        assert!(still.iter().all(|at| *at == still[0]));
    }

    #[test]
    fn a_power_law_is_as_skewed_as_it_says() {
        let drawn = addresses(Pattern::PowerLaw { theta: 0.5, spread: Spread::Grouped }, 100_000);
        let first_tenth = drawn.iter().filter(|offset| **offset < (1 << 20) / 10).count();
        let expected = 0.1_f64.sqrt();
        assert!((first_tenth as f64 / 100_000.0 - expected).abs() < 0.01, "{first_tenth}");
    }
}
