//! What experiments with a real Redis share: how long they wait and load it, and what they take
//! down of it.

use super::support_bench::median;
use super::{Error, Result};
use crate::load::{Client, Latencies, Mix, Window};
use std::time::Duration;
use superpage_kernel::process::Process;
use superpage_kernel::smaps;
use superpage_units::{Bytes, HugePages, Nanos, Pid};

/// Requests under way in a closed loop. Chosen: more do not make it faster.
pub(super) const WINDOW: Window = Window { requests: 64, bytes: Bytes::from_mib(4) };

/// The share of reads in a mixed load; the article does not say. Chosen.
pub(super) const READS: f64 = 0.8;

/// The share of the throughput on base pages at which latency is measured, so that every policy
/// sustains it.
pub(super) const LOAD: f64 = 0.5;

/// How long things take in a run of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pacing {
    /// Memory is looked at so long after the last deletion: twice as long as jemalloc keeps what is
    /// not used (10 s).
    pub(super) settle: Duration,
    /// A closed loop.
    pub(super) closed: Duration,
    /// An open loop.
    pub(super) open: Duration,
}

impl Pacing {
    /// Below a GiB a run is a trial of the experiment, not a measurement.
    pub(super) fn of(size: Bytes) -> Self {
        let (settle, closed, open) =
            if size < Bytes::from_gib(1) { (1, 1, 1) } else { (20, 8, 12) };
        let seconds = Duration::from_secs;
        Self { settle: seconds(settle), closed: seconds(closed), open: seconds(open) }
    }
}

/// A process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) resident: Bytes,
    pub(super) huge: HugePages,
}

/// The memory of the process `pid` now.
pub(super) fn memory_of(pid: Pid) -> Result<Memory> {
    let rollup = smaps::of(&Process::open(pid)?)?;
    let huge = rollup.anon_huge_pages.unwrap_or(Bytes::ZERO).to_huge_pages();
    Ok(Memory { resident: rollup.rss, huge })
}

/// Loads as fast as it answers, then at a fixed rate: that of the share of the throughput on base
/// pages if `rate` is not known yet. Returns throughput, and the latencies at the rate.
pub(super) fn load(
    client: &mut Client,
    pacing: Pacing,
    seed: u64,
    rate: &mut Option<f64>,
) -> Result<(f64, Latencies)> {
    let mix = |part: u64| Mix { reads: READS, seed: seed << 8 | part };
    // So that both halves begin with everything warm.
    client.closed(mix(0), WINDOW, pacing.closed / 4)?;
    let throughput = client.closed(mix(1), WINDOW, pacing.closed)?.throughput();
    if throughput <= 0.0 {
        return Err(Error::Child("redis answered nothing".to_owned()));
    }
    let rate = *rate.get_or_insert(throughput * LOAD);
    Ok((throughput, client.open(mix(2), rate, pacing.open)?))
}

/// In microseconds.
pub(super) fn micros(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

/// The middle of what `of` says of each.
pub(super) fn middle<T>(samples: &[T], of: impl Fn(&T) -> f64) -> f64 {
    median(samples.iter().map(of))
}
