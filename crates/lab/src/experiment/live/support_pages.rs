//! The parts of `emd-fig2` and `emd-table4` that are the same: one program on base pages, on the huge pages that the kernel gives it, and on huge pages
//! wherever it has memory.
//!
//! "Huge pages" are in the paper what Linux gives with transparent huge pages always on. So it is here; khugepaged sleeps, because a
//! program is not old when it is looked at. What an ordinary memcached gets that way depends on how it asks for its memory; so a third
//! way has all of that collapsed from outside, as khugepaged or superpage would in time.

use super::support_bench::{Bench, RUNS, collapse_all, hold};
use super::support_regime::set_enabled;
use super::{Result, Setting};
use crate::worker::Worker;
use crate::workload::arena::Residency;
use crate::workload::{PageSize, Timing, WorkloadKind, WorkloadSpec};
use superpage_kernel::thp::Enabled;
use superpage_units::Bytes;

/// How a program comes by its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// Base pages only.
    Base,
    /// The pages that Linux gives at first touches, transparent huge pages always on.
    Thp,
    /// The same, and then everything is collapsed.
    Collapsed,
}

impl Pages {
    /// The name in rows.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Base => "linux-4kb",
            Self::Thp => "linux-thp",
            Self::Collapsed => "all collapsed",
        }
    }

    /// The ways in which a program is measured; the first is what the others are compared with.
    pub(super) const fn of(kind: WorkloadKind) -> &'static [Self] {
        if kind.asks_for_huge_pages() {
            &[Self::Base, Self::Thp]
        } else {
            &[Self::Base, Self::Thp, Self::Collapsed]
        }
    }
}

/// Sets the machine as the paper's Linux is for programs that are going to start.
pub(super) fn prepare(setting: &Setting) -> Result<Bench> {
    let mut bench = Bench::open(setting)?;
    set_enabled(&mut bench, Enabled::Always)?;
    Ok(bench)
}

/// A populated program, and its memory as the kernel counts it.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) pages: Pages,
    pub(super) residency: Residency,
    worker: Worker,
}

impl Placed {
    /// Starts it.
    pub(super) fn start(
        setting: &Setting,
        kind: WorkloadKind,
        size: Bytes,
        pages: Pages,
    ) -> Result<Self> {
        let asked = if pages == Pages::Base { PageSize::Base } else { PageSize::Unasked };
        let spec = WorkloadSpec { kind, size, pages: asked, cpu: Some(0) };
        let worker = Worker::spawn(&setting.launcher, &spec)?;
        if pages == Pages::Collapsed {
            collapse_all(&*hold(worker.pid())?)?;
        }
        let residency = Residency::of(worker.pid())?;
        Ok(Self { pages, residency, worker })
    }

    /// Runs so many operations.
    pub(super) fn run(&mut self, operations: u64, seed: u64) -> Result<Timing> {
        Ok(self.worker.run(operations, seed)?)
    }

    /// Seconds of CPU time of the process with the memory, in the fastest of a few runs after a warm-up.
    pub(super) fn time(&mut self, operations: u64, round: u32) -> Result<f64> {
        let mut fastest = f64::INFINITY;
        self.run(operations / 4, u64::from(round) | 1 << 32)?;
        for run in 0..RUNS {
            let timing = self.run(operations, u64::from(round * RUNS + run))?;
            fastest = fastest.min(timing.cpu.as_secs_f64());
        }
        Ok(fastest)
    }

    /// Makes the program compare all its data with what it wrote.
    pub(super) fn check(&mut self) -> Result<()> {
        self.worker.check()?;
        Ok(())
    }
}
