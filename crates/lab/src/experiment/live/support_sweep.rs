//! What `emd-fig7` and `emd-fig8` share: one instance of each program, 20 to 50 % of its footprint
//! reclaimed, by HawkEye and by EMD (EMD, section 5.2).
//!
//! The paper's text says a share of the bloat in one place and of the memory in another. Its own
//! results only fit a share of the footprint (at 50 % nearly all huge pages of RandomAccess are
//! split, and all of its bloat is half of its footprint), so that is what is taken.

use super::support_bench::{Bench, Subject, debloat, fitting_size, median, rounded};
use super::{Content, Picture, Progress, Result, Setting};
use crate::workload::WorkloadKind;
use serde::Serialize;
use superpage_policy::debloat::emd::EMD;
use superpage_policy::debloat::hawkeye::HAWKEYE;
use superpage_policy::debloat::list::Entry;
use superpage_units::{BasePages, Bytes};

/// The paper's programs, in its order.
pub(super) const KINDS: [WorkloadKind; 4] = [
    WorkloadKind::BTree,
    WorkloadKind::Memcached,
    WorkloadKind::RandomAccessL,
    WorkloadKind::RandomAccessR,
];
/// The paper's shares of the footprint.
pub(super) const FRACTIONS: [f64; 4] = [0.2, 0.3, 0.4, 0.5];
/// The policies that the paper compares.
pub(super) const POLICIES: [Entry; 2] = [HAWKEYE, EMD];

/// Whether to time the program after each de-bloating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timed {
    /// Yes, this often.
    Rounds(u32),
    /// No: only count huge pages.
    No,
}

/// What was measured for one program, policy and share.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) kind: WorkloadKind,
    pub(super) policy: Entry,
    pub(super) fraction: f64,
    pub(super) huge_pages: u64,
    pub(super) retained: f64,
    pub(super) target: BasePages,
    pub(super) freed: f64,
    pub(super) bloat: BasePages,
    /// NaN if it was not timed.
    pub(super) slowdown: f64,
}

/// What a row of either figure begins with.
#[derive(Debug, Serialize)]
pub(super) struct Taken {
    case: &'static str,
    policy: &'static str,
    fraction: f64,
    huge_pages: u64,
    huge_pages_retained: f64,
    target_base_pages: u64,
    freed_base_pages: f64,
}

impl Point {
    pub(super) fn taken(&self) -> Taken {
        Taken {
            case: self.kind.name(),
            policy: self.policy.name,
            fraction: self.fraction,
            huge_pages: self.huge_pages,
            huge_pages_retained: self.retained,
            target_base_pages: self.target.0,
            freed_base_pages: self.freed,
        }
    }
}

/// What a figure shows of each program.
pub(super) struct Shown {
    pub(super) experiment: &'static str,
    pub(super) title: &'static str,
    pub(super) y_label: &'static str,
    pub(super) value: fn(&Point) -> f64,
    /// Where a line is drawn across.
    pub(super) reference: Option<f64>,
}

impl Shown {
    /// A picture of each program.
    pub(super) fn pictures(&self, points: &[Point]) -> Vec<Picture> {
        KINDS.iter().map(|kind| self.picture(points, *kind)).collect()
    }

    /// One group of bars per share, one series per policy.
    fn picture(&self, points: &[Point], kind: WorkloadKind) -> Picture {
        let of = |policy: Entry| {
            let mine = points.iter().filter(|p| p.kind == kind && p.policy == policy);
            (policy.name.to_owned(), mine.map(self.value).collect())
        };
        Picture {
            file: format!("{}-{}.svg", self.experiment, kind.name().to_lowercase()),
            title: format!("{kind}: {}", self.title),
            content: Content::Bars {
                y_label: self.y_label.to_owned(),
                categories: FRACTIONS.into_iter().map(percent).collect(),
                series: POLICIES.into_iter().map(of).collect(),
                reference: self.reference,
            },
        }
    }
}

/// A share as the pictures write it.
pub(super) fn percent(fraction: f64) -> String {
    format!("{:.0} %", fraction * 100.0)
}

/// Measures every point.
pub(super) fn sweep(setting: &Setting, timed: Timed, progress: Progress<'_>) -> Result<Vec<Point>> {
    let size = fitting_size(setting, Bytes::from_gib(8), 1)?;
    let _bench = Bench::open(setting)?;
    let mut points = Vec::new();
    for kind in KINDS {
        progress(&format!("{kind}: filling {size} of memory"))?;
        let mut subject = Subject::start(setting, kind, size)?;
        for fraction in FRACTIONS {
            progress(&format!("{kind}: reclaiming {:.0} %", fraction * 100.0))?;
            points.extend(measure(&mut subject, kind, fraction, timed)?);
        }
        subject.check()?;
    }
    Ok(points)
}

/// Both policies in turn, round by round.
fn measure(
    subject: &mut Subject,
    kind: WorkloadKind,
    fraction: f64,
    timed: Timed,
) -> Result<Vec<Point>> {
    let target = subject.footprint().scaled(fraction).to_base_pages();
    let rounds = match timed {
        Timed::Rounds(rounds) => rounds,
        Timed::No => 1,
    };
    let mut split = vec![Vec::new(); POLICIES.len()];
    let mut freed = vec![Vec::new(); POLICIES.len()];
    let mut slowdowns = vec![Vec::new(); POLICIES.len()];
    for round in 0..rounds {
        for (index, policy) in POLICIES.into_iter().enumerate() {
            let baseline = time(subject, timed)?;
            debloat(std::slice::from_ref(subject), policy, target, u64::from(round))?;
            let (pages, base_pages) = subject.split_so_far()?;
            split[index].push(pages.0 as f64);
            freed[index].push(base_pages.0 as f64);
            slowdowns[index].push(time(subject, timed)? / baseline);
            subject.restore()?;
        }
    }
    let huge_pages = subject.huge_pages().0;
    let bloat = subject.bloat();
    let point = |(index, policy): (usize, Entry)| Point {
        kind,
        policy,
        fraction,
        huge_pages,
        retained: rounded(1.0 - median(split[index].iter().copied()) / huge_pages as f64, 4),
        target,
        freed: median(freed[index].iter().copied()),
        bloat,
        slowdown: rounded(median(slowdowns[index].iter().copied()), 3),
    };
    Ok(POLICIES.into_iter().enumerate().map(point).collect())
}

fn time(subject: &mut Subject, timed: Timed) -> Result<f64> {
    match timed {
        Timed::Rounds(_) => subject.time(),
        Timed::No => Ok(f64::NAN),
    }
}
