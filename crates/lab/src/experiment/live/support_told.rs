//! What a daemon tells of its work, by its log and by its metrics, which must be the same.

use super::support_daemon::Daemon;
use super::{Error, Result};
use std::ops::AddAssign;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use superpage_manager::history::{Entry, Tail, What};
use superpage_manager::ledger::METRICS;
use superpage_units::{Bytes, HugePages};

/// Both are written every few seconds. Chosen: several times that.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was done since the daemon began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Ranges that became huge.
    pub(super) promoted: HugePages,
    /// What was filled with zeroes for that.
    pub(super) filled: Bytes,
    /// Huge pages that were split.
    pub(super) split: HugePages,
    /// What that freed.
    pub(super) freed: Bytes,
}

impl AddAssign<&Entry> for Told {
    fn add_assign(&mut self, entry: &Entry) {
        let (huge, bytes) = (entry.huge_pages, entry.base_pages.bytes());
        match entry.what {
            What::Promoted => {
                self.promoted += huge;
                self.filled += bytes;
            }
            // What is from before it began is an earlier daemon's.
            What::Started => *self = Self::default(),
            What::Debloated => {
                self.split += huge;
                self.freed += bytes;
            }
            _ => {}
        }
    }
}

impl Told {
    /// By metrics in Prometheus's text format.
    fn by_metrics(text: &str) -> Self {
        let sum = |name: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix(name));
            let of_metric = lines.filter(|rest| rest.starts_with(['{', ' ']));
            of_metric.filter_map(|rest| rest.rsplit(' ').next()?.parse::<u64>().ok()).sum()
        };
        Self {
            promoted: HugePages(sum("superpage_promoted_huge_pages_total")),
            filled: Bytes(sum("superpage_promotion_filled_bytes_total")),
            split: HugePages(sum("superpage_debloated_huge_pages_total")),
            freed: Bytes(sum("superpage_debloat_freed_bytes_total")),
        }
    }
}

/// Ends a daemon; what it did.
pub(super) fn told_by(daemon: &mut Daemon) -> Result<Told> {
    let mut log = Follower::new(daemon);
    daemon.end()?;
    log.told()
}

/// Follows a daemon's log from its beginning.
#[derive(Debug)]
pub(super) struct Follower {
    metrics: PathBuf,
    tail: Tail,
    told: Told,
}

impl Follower {
    pub(super) fn new(daemon: &Daemon) -> Self {
        let state = daemon.state();
        Self { metrics: state.join(METRICS), tail: Tail::new(state), told: Told::default() }
    }

    /// What the log says by now. Called now and then, so that nothing is missed when it begins a new
    /// file.
    pub(super) fn told(&mut self) -> Result<Told> {
        let explain = |error| Error::Child(format!("the daemon's log cannot be read: {error}"));
        let new = self.tail.more().map_err(explain)?;
        new.entries.iter().for_each(|entry| self.told += entry);
        Ok(self.told)
    }

    /// Waits until log and metrics say the same; what the log says, and whether they did in time. A
    /// daemon that does something all the time may not come to it.
    pub(super) fn compared(&mut self) -> Result<(Told, bool)> {
        let end = Instant::now() + PATIENCE;
        loop {
            let log = self.told()?;
            let text = std::fs::read_to_string(&self.metrics)
                .map_err(|error| Error::Child(format!("{}: {error}", self.metrics.display())))?;
            let metrics = Told::by_metrics(&text);
            if log == metrics || Instant::now() > end {
                return Ok((log, log == metrics));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::BasePages;

    #[test]
    fn log_and_metrics_are_added_up() {
        let mut told = Told::default();
        for (what, huge_pages, base_pages) in
            // The first one is an earlier daemon's.
            [
                (What::Promoted, 5, 1),
                (What::Started, 0, 0),
                (What::Promoted, 2, 10),
                (What::Debloated, 3, 900),
                (What::Refused, 7, 0),
            ]
        {
            let (huge_pages, base_pages) = (HugePages(huge_pages), BasePages(base_pages));
            told += &Entry { huge_pages, base_pages, ..Entry::new(0, what, "kind", "cause") };
        }
        let text = "# HELP superpage_promoted_huge_pages_total x\n\
             superpage_promoted_huge_pages_total{policy=\"a\",cause=\"b\"} 1\n\
             superpage_promoted_huge_pages_total{policy=\"a\",cause=\"c\"} 1\n\
             superpage_promotion_filled_bytes_total{policy=\"a\"} 40960\n\
             superpage_debloated_huge_pages_total{policy=\"emd\",cause=\"densest\"} 3\n\
             superpage_debloat_freed_bytes_total{policy=\"emd\",cause=\"densest\"} 3686400\n";
        assert_eq!(told, Told::by_metrics(text));
        assert_ne!(told, Told::default());
    }
}
