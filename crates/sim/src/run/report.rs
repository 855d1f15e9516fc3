//! What a run found out about a program.

use crate::translation::{Source, Translation};
use hdrhistogram::Histogram;
use superpage_units::{BasePages, Nanos, Share};

/// The latencies of something, as a histogram with three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        // From a nanosecond to 100 s; what lies beyond is counted as the limit.
        let histogram = Histogram::new_with_bounds(1, 100_000_000_000, 3);
        Self { histogram: histogram.unwrap_or_else(|_| unreachable!("the bounds are constants")) }
    }
}

impl Latencies {
    /// One more.
    pub fn record(&mut self, latency: Nanos) {
        self.histogram.saturating_record(latency.0.max(1));
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that this share (0 to 1) of them do not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Nanos {
        Nanos(self.histogram.value_at_quantile(share))
    }

    /// The highest.
    #[must_use]
    pub fn max(&self) -> Nanos {
        Nanos(self.histogram.max())
    }

    /// Their mean.
    #[must_use]
    pub fn mean(&self) -> Nanos {
        Nanos::from_secs_f64(self.histogram.mean() / 1e9)
    }
}

/// The cost of some accesses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Charged {
    pub(super) accesses: f64,
    pub(super) cycles: f64,
    first_misses: f64,
    walks: f64,
    pub(super) faults: Nanos,
}

impl Charged {
    /// The translation of an access that stands for `weight` of them.
    pub(super) fn add(&mut self, translation: Translation, weight: f64) {
        self.accesses += weight;
        self.cycles += translation.cycles.0 as f64 * weight;
        self.first_misses += if translation.source > Source::FirstLevel { weight } else { 0.0 };
        self.walks += if translation.source == Source::PageTables { weight } else { 0.0 };
    }
}

/// What a program did, and what it took.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// From its start to now, or to its end.
    pub time: Nanos,
    /// How long each of its phases took that have ended.
    pub phases: Vec<Nanos>,
    /// Cycles of all its threads in accesses.
    pub cycles: f64,
    /// Of those, cycles spent on page walks and second-level TLB hits, hidden ones included.
    pub walk_cycles: f64,
    /// Accesses made, or stood for by samples.
    pub accesses: f64,
    /// Of those, accesses that the first level of the TLBs did not know.
    pub first_misses: f64,
    /// Of those, accesses that the second level did not know either: page walks.
    pub walks: f64,
    /// Time in faults, of all threads.
    pub fault_time: Nanos,
    /// Of that, time in which they waited for the device.
    pub fault_wait: Nanos,
    /// Each fault.
    pub faults: Latencies,
    /// The most memory it had in memory.
    pub peak: BasePages,
}

impl Report {
    /// Adds so many accesses; the charged ones stand for them, each for `each` of them.
    pub(super) fn translate(&mut self, accesses: f64, each: f64, charged: &Charged) {
        self.accesses += accesses;
        self.first_misses += each * charged.first_misses;
        self.walks += each * charged.walks;
    }

    /// The share of its cycles that went into translation, at most all: walks that are hidden overlap.
    #[must_use]
    pub fn walk_share(&self) -> Share {
        Share::clamped(self.walk_cycles / self.cycles)
    }

    /// The share of its accesses that the first level of the TLBs did not know.
    #[must_use]
    pub fn miss_rate(&self) -> Share {
        Share::clamped(self.first_misses / self.accesses)
    }

    /// The share of its accesses that took a page walk.
    #[must_use]
    pub fn walk_rate(&self) -> Share {
        Share::clamped(self.walks / self.accesses)
    }

    /// How long the phase took, if it has ended.
    #[must_use]
    pub fn phase(&self, index: usize) -> Option<Nanos> {
        self.phases.get(index).copied()
    }
}
