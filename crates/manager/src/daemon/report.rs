//! The reporter: the daemon's log, and through the ledger the history, the metrics and how the daemon
//! stands.

use super::reclaim::Counts;
use super::watch::Watch;
use crate::account::Account;
use crate::free_memory::{self, Nodes};
use crate::history::{Entry, What, now_ms};
use crate::ledger::{Ledger, entry};
use crate::pass::{End, Event};
use crate::promote::Promoter;
use crate::registry::Registry;
use crate::status::{AnonymousMemory, Status};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use superpage_kernel::process::own_pid;
use superpage_kernel::usage::{self, CpuTime};
use superpage_units::{BasePages, Bytes, HugePages, PageSize, Pid, Share};
use tracing::{debug, info, warn};

/// Splits in a process are added up for so long before the log tells them, as in the history.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Reports what the daemon does.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    /// Where it is recorded.
    pub(super) ledger: Arc<Ledger>,
    splits: Arc<Mutex<Splits>>,
}

/// Splits that the log has not told yet.
#[derive(Debug, Default)]
struct Splits {
    told: Option<Instant>,
    untold: BTreeMap<Pid, Split>,
}

/// What was split in a process.
#[derive(Debug)]
struct Split {
    command: String,
    split: HugePages,
    freed: BasePages,
    /// Why the first of them was.
    cause: String,
}

impl Splits {
    /// Adds what was split, and tells all if it is time.
    fn add(&mut self, pid: Pid, next: Split) {
        match self.untold.get_mut(&pid) {
            Some(split) => {
                split.split += next.split;
                split.freed += next.freed;
            }
            None => drop(self.untold.insert(pid, next)),
        }
        if self.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
            self.tell();
        }
    }

    fn tell(&mut self) {
        for (pid, Split { command, split, freed, cause }) in std::mem::take(&mut self.untold) {
            info!(pid = pid.0, command, split = split.0, freed = %freed.bytes(), cause, "split huge pages");
            self.told = Some(Instant::now());
        }
    }
}

impl Reporter {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, splits: Arc::default() }
    }

    fn splits(&self) -> MutexGuard<'_, Splits> {
        self.splits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how things stand.
    pub(super) fn status(
        &self,
        watches: &[Watch],
        registry: &Registry,
        promoter: Option<&Promoter>,
        reclaiming: Counts,
    ) {
        let promoting = promoter.map(Promoter::status).unwrap_or_default();
        let free_memory = free_memory::read(Path::new("/proc")).ok();
        let mut nodes = Nodes::now();
        let status = Status {
            at_ms: now_ms(),
            pid: own_pid(),
            // What cannot be asked now was said where it was to be watched.
            watches: watches.iter().filter_map(|watch| watch.memory(&mut nodes).ok()).collect(),
            free_huge_pages: free_memory
                .map_or(HugePages::ZERO, |free_memory| free_memory.huge_pages()),
            fragmentation: free_memory
                .map_or(Share::NONE, |free_memory| free_memory.fmfi(PageSize::Huge)),
            anonymous: AnonymousMemory::read(Path::new("/proc"), Path::new("/sys"))
                .unwrap_or_default(),
            policies: promoting.policies,
            surveys: promoting.counts.surveys,
            requests_timed_out: promoting.counts.timed_out + reclaiming.timed_out,
            workers_lost: promoting.counts.workers_lost + reclaiming.lost,
            too_long: registry.too_long() as u64,
            waiting: promoting.waiting,
            pause_ms: promoting.pause_ms,
            cpu_s: CpuTime::of_process().total().as_secs_f64(),
            resident: usage::resident().map_or(Bytes::ZERO, |resident| resident.current),
        };
        self.ledger.tell(&status);
    }

    /// Memory is above a watermark.
    pub(super) fn above_watermark(&self, name: &str, share: Share, low: Share, need: BasePages) {
        info!(watch = name, used = %share, low = %low, need = %need.bytes(), "memory above its watermark");
        let words = format!("{name}: {share} used, {} to free to reach {low}", need.bytes());
        self.ledger.record(entry(What::Watermark, "above", &words));
    }

    /// Something happened in a pass that `policy` decides; `cause` goes before its own.
    pub(super) fn event(&self, event: &Event<'_>, policy: &str, cause: Option<&str>) {
        log(event);
        let Event::Split { process, split, freed, cause: own } = event else { return };
        let (kind, words) = match cause {
            Some(cause) => ("idle", cause.to_owned()),
            None => (own.kind(), own.to_string()),
        };
        let (command, cause) = (process.command.clone(), own.to_string());
        self.splits().add(process.pid, Split { command, split: *split, freed: *freed, cause });
        self.ledger.record(Entry {
            policy: Some(policy.to_owned()),
            pid: Some(process.pid),
            command: Some(process.command.clone()),
            huge_pages: *split,
            base_pages: *freed,
            ..entry(What::Debloated, kind, &words)
        });
    }

    /// A pass of which this was missed, while it was at the process of this number and command.
    pub(super) fn missed(&self, kind: &str, process: Option<(Pid, &str)>, words: &str) {
        let (pid, command) = process.map(|(pid, command)| (pid, command.to_owned())).unzip();
        warn!(pid = pid.map(|pid: Pid| pid.0), command, "{words}");
        self.ledger.record(Entry { pid, command, ..entry(What::Missed, kind, words) });
    }

    /// Tells what was split and is not told yet, because a pass has ended.
    pub(super) fn tell_splits(&self) {
        self.splits().tell();
    }

    /// A pass has ended.
    pub(super) fn pass_done(
        &self,
        watch: &str,
        account: &Account,
        end: End,
        wait: Option<Duration>,
    ) {
        self.left_alone(account);
        report(watch, account, end, wait);
    }

    /// A pass has ended, in which huge pages stayed whole.
    pub(super) fn left_alone(&self, account: &Account) {
        self.tell_splits();
        for process in account.processes.values() {
            let counts = process.left_alone;
            for (kind, count, words) in [
                ("shared", counts.shared, "another process maps them too"),
                ("busy", counts.busy, "pinned, or in use by the kernel"),
                ("refused", counts.refused, "the kernel refused"),
                ("followed", counts.followed, "somebody follows the writes to them"),
            ] {
                if count.is_zero() {
                    continue;
                }
                self.ledger.record(Entry {
                    pid: Some(process.pid),
                    command: Some(process.command.clone()),
                    huge_pages: count,
                    ..entry(What::LeftAlone, kind, words)
                });
            }
        }
    }
}

fn log(event: &Event<'_>) {
    match event {
        Event::Looked { process, ranges, cause } => debug!(
            pid = process.pid.0,
            command = process.command,
            ranges = ranges.0,
            cause = %cause,
            "looked"
        ),
        Event::Pausing | Event::Split { .. } => {}
        Event::Excluded { process } => {
            info!(
                pid = process.pid.0,
                command = process.command,
                "left out: not permitted any more"
            );
        }
        Event::Lost { process, error } => {
            info!(pid = process.pid.0, command = process.command, "left out: {error}");
        }
    }
}

fn report(watch: &str, account: &Account, end: End, wait: Option<Duration>) {
    let total = account.total();
    let read: Bytes = account.read;
    info!(
        watch,
        end = %end,
        processes = account.processes.len(),
        split = total.split.0,
        freed = %total.freed.bytes(),
        left_alone = total.left_alone.total().0,
        asked_for = total.spared.0,
        read = %read,
        cpu_ms = account.cpu.0 / 1_000_000,
        "pass done"
    );
    if !total.left_alone.total().is_zero() {
        let counts = total.left_alone;
        warn!(
            watch,
            shared = counts.shared.0,
            busy = counts.busy.0,
            refused = counts.refused.0,
            followed = counts.followed.0,
            "huge pages that would not split; left alone for a while"
        );
    }
    if let Some(wait) = wait {
        info!(watch, wait = %humantime::format_duration(wait), "nothing left to free, waiting");
    }
}
