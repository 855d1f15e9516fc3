//! The heap of a program that `superpage run --heap` has started, as it stands: from the counters that the library in the
//! program keeps. Another process finds them by what the program has mapped.
//!
//! The file of the counters is in memory, and only who may trace the program and `superpage run` can open it. The commands
//! make tables and reports of it.

use crate::show;
use serde_json::{Value, json};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use superpage_kernel::process::Process;
use superpage_kernel::shared_page::PeersPage;
use superpage_kernel::{Error, status};
use superpage_launch::{Counters, FORMAT, HeapCounters};
use superpage_units::{BasePages, Bytes, HugePages, Nanos, Pid, Share};

/// The name of the file in memory in which `superpage run` keeps the counters.
pub(crate) const COUNTERS: &str = "superpage-run";

/// How a heap stands, and what was counted since its program began.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HeapState {
    /// The most that the program may have in it.
    pub(crate) size: Bytes,
    /// The memory that it may take; nothing before it holds anything.
    pub(crate) memory: Bytes,
    /// The memory that it may take while enough is available to others.
    pub(crate) most: Bytes,
    /// Mappings so far that had no room in it, and became ordinary memory.
    pub(crate) outside: Bytes,
    /// Anonymous mappings so far that are shared, which are never in it.
    pub(crate) shared: Bytes,
    /// Its memory on huge pages, and on base pages.
    pub(crate) huge: Bytes,
    pub(crate) base: Bytes,
    pub(crate) huge_faults: u64,
    pub(crate) base_faults: u64,
    pub(crate) soft_faults: u64,
    pub(crate) write_faults: u64,
    pub(crate) promotions: u64,
    pub(crate) read_ahead: u64,
    pub(crate) ahead_used: u64,
    pub(crate) read_huge: Bytes,
    pub(crate) read_base: Bytes,
    pub(crate) written_huge: Bytes,
    pub(crate) written_base: Bytes,
    pub(crate) reclaimed_clean: u64,
    pub(crate) stuck: u64,
    pub(crate) errors: u64,
    pub(crate) failed: u64,
    /// The time that the faults of each kind waited.
    pub(crate) waited_huge: Nanos,
    pub(crate) waited_base: Nanos,
    pub(crate) waited_soft: Nanos,
    /// The time that 99 of 100 faults did not exceed.
    pub(crate) p99: Nanos,
}

impl HeapState {
    pub(crate) fn of(counters: &HeapCounters) -> Self {
        let number = |counter: &AtomicU64| counter.load(Relaxed);
        let bytes = |counter: &AtomicU64| Bytes(number(counter));
        Self {
            size: bytes(&counters.size),
            memory: bytes(&counters.memory),
            most: bytes(&counters.most),
            outside: bytes(&counters.outside),
            shared: bytes(&counters.shared),
            huge: HugePages(number(&counters.huge)).bytes(),
            base: BasePages(number(&counters.base)).bytes(),
            huge_faults: number(&counters.huge_faults),
            base_faults: number(&counters.base_faults),
            soft_faults: number(&counters.soft_faults),
            write_faults: number(&counters.write_faults),
            promotions: number(&counters.promotions),
            read_ahead: number(&counters.read_ahead),
            ahead_used: number(&counters.ahead_used),
            read_huge: bytes(&counters.read_huge),
            read_base: bytes(&counters.read_base),
            written_huge: bytes(&counters.written_huge),
            written_base: bytes(&counters.written_base),
            reclaimed_clean: number(&counters.clean),
            stuck: number(&counters.stuck),
            errors: number(&counters.errors),
            failed: number(&counters.failed),
            waited_huge: Nanos(number(&counters.waited_huge)),
            waited_base: Nanos(number(&counters.waited_base)),
            waited_soft: Nanos(number(&counters.waited_soft)),
            p99: counters.waits.quantile(0.99).unwrap_or_default(),
        }
    }

    /// The same, of which what was counted up to `before` is taken off.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            huge_faults: self.huge_faults.saturating_sub(before.huge_faults),
            base_faults: self.base_faults.saturating_sub(before.base_faults),
            soft_faults: self.soft_faults.saturating_sub(before.soft_faults),
            write_faults: self.write_faults.saturating_sub(before.write_faults),
            promotions: self.promotions.saturating_sub(before.promotions),
            read_ahead: self.read_ahead.saturating_sub(before.read_ahead),
            ahead_used: self.ahead_used.saturating_sub(before.ahead_used),
            read_huge: self.read_huge.saturating_sub(before.read_huge),
            read_base: self.read_base.saturating_sub(before.read_base),
            written_huge: self.written_huge.saturating_sub(before.written_huge),
            written_base: self.written_base.saturating_sub(before.written_base),
            reclaimed_clean: self.reclaimed_clean.saturating_sub(before.reclaimed_clean),
            stuck: self.stuck.saturating_sub(before.stuck),
            errors: self.errors.saturating_sub(before.errors),
            waited_huge: Nanos(self.waited_huge.0.saturating_sub(before.waited_huge.0)),
            waited_base: Nanos(self.waited_base.0.saturating_sub(before.waited_base.0)),
            waited_soft: Nanos(self.waited_soft.0.saturating_sub(before.waited_soft.0)),
            ..*self
        }
    }

    /// Faults that brought a page in.
    pub(crate) fn faults(&self) -> u64 {
        self.huge_faults + self.base_faults
    }

    /// The share of all faults that found their page still in memory. Touches of pages that are in place are no faults, and
    /// nobody can count them.
    pub(crate) fn found(&self) -> Option<Share> {
        part(self.soft_faults, self.faults() + self.soft_faults)
    }

    /// The share of the ranges read ahead that were touched before they left memory.
    pub(crate) fn used_of_ahead(&self) -> Option<Share> {
        part(self.ahead_used, self.read_ahead)
    }

    /// The share of the misses that were read ahead in time. A range of 2 MiB that was read ahead and then touched is one miss, and so is
    /// each fault that brought a page in, also one of a page that never held anything.
    pub(crate) fn ahead_of_misses(&self) -> Option<Share> {
        part(self.ahead_used, self.ahead_used + self.faults())
    }

    /// The same, as the end of a sentence about what was read ahead.
    pub(crate) fn ahead_in_words(&self) -> String {
        let in_time = |share| format!(", in time for {share} of misses");
        self.ahead_of_misses().map(in_time).unwrap_or_default()
    }

    /// The time that the program's threads waited for faults of all kinds.
    pub(crate) fn waited(&self) -> Nanos {
        Nanos(self.waited_huge.0 + self.waited_base.0 + self.waited_soft.0)
    }

    /// The same, by kind, in words.
    pub(crate) fn waited_in_words(&self) -> String {
        let Self { waited_huge, waited_base, waited_soft, .. } = *self;
        let all = self.waited();
        let [all, huge, base, soft] = [all, waited_huge, waited_base, waited_soft].map(show::time);
        format!(
            "{all} in all: {huge} for huge pages, {base} for base pages, {soft} for pages still in memory"
        )
    }

    /// The mappings that are not in the heap, a sentence for each cause.
    pub(crate) fn outside_in_words(&self) -> impl Iterator<Item = String> + use<> {
        let room = "had no room and became ordinary memory: give a larger --heap-size";
        let shared = "are shared, and so ordinary memory";
        let causes = [(self.outside, room), (self.shared, shared)];
        let there = causes.into_iter().filter(|(length, _)| !length.is_zero());
        there.map(|(length, why)| format!("{length} of mappings {why}"))
    }

    pub(crate) fn as_json(&self) -> Value {
        json!({
            "size_bytes": self.size.0,
            "memory_bytes": self.memory.0,
            "most_memory_bytes": self.most.0,
            "faults": self.faults(),
            "huge_faults": self.huge_faults,
            "base_faults": self.base_faults,
            "soft_faults": self.soft_faults,
            "write_faults": self.write_faults,
            "found_share": self.found().map(Share::get),
            "promotions": self.promotions,
            "read_ahead": self.read_ahead,
            "read_ahead_used": self.ahead_used,
            "read_ahead_used_share": self.used_of_ahead().map(Share::get),
            "misses_read_ahead_share": self.ahead_of_misses().map(Share::get),
            "read_bytes": (self.read_huge + self.read_base).0,
            "read_base_bytes": self.read_base.0,
            "written_bytes": (self.written_huge + self.written_base).0,
            "written_base_bytes": self.written_base.0,
            "outside_bytes": self.outside.0,
            "shared_bytes": self.shared.0,
            "reclaimed_clean": self.reclaimed_clean,
            "stuck": self.stuck,
            "errors": self.errors,
            "failed": self.failed,
            "huge_bytes": self.huge.0,
            "base_bytes": self.base.0,
            "huge_share": self.huge.share_of(self.huge + self.base).get(),
            "waited_huge_s": self.waited_huge.0 as f64 / 1e9,
            "waited_base_s": self.waited_base.0 as f64 / 1e9,
            "waited_soft_s": self.waited_soft.0 as f64 / 1e9,
            "p99_fault_us": self.p99.0 as f64 / 1e3,
        })
    }
}

fn part(some: u64, all: u64) -> Option<Share> {
    (all > 0).then(|| Share::clamped(some as f64 / all as f64))
}

/// The reason why a process has no heap that can be looked at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoHeap {
    /// `superpage run --heap` did not start it.
    #[error("it was not started by `superpage run --heap`, or that has ended")]
    Ordinary,
    /// Its library has another layout of the counters.
    #[error("the library in it is of another version than this program")]
    OtherVersion,
    /// The kernel said something else.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// The heap of a process that runs.
#[derive(Debug)]
pub(crate) struct RunningHeap {
    page: PeersPage,
    /// The number of the process whose heap it is, as that process knows it.
    program: Pid,
}

impl RunningHeap {
    /// The heap of this process itself: not of the one whose child it is, nor of the program that it has started.
    pub(crate) fn of(process: &Process) -> Result<Self, NoHeap> {
        let heap = Self::mapped_by(process)?;
        match status::own_number(process)? == heap.program {
            true => Ok(heap),
            false => Err(NoHeap::Ordinary),
        }
    }

    /// The program of `superpage run --heap`, whose process this is.
    pub(crate) fn program_of(run: &Process) -> Result<Process, NoHeap> {
        let program = Process::open(Self::mapped_by(run)?.program)?;
        match status::parent(&program)? == run.pid() {
            true => Ok(program),
            false => Err(NoHeap::Ordinary),
        }
    }

    /// The heap whose counters the process has mapped.
    fn mapped_by(process: &Process) -> Result<Self, NoHeap> {
        let page = PeersPage::of(process, COUNTERS)?.ok_or(NoHeap::Ordinary)?;
        let words = page.read()?;
        let counters = Counters::of(&words);
        match counters.format.load(Relaxed) {
            0 => return Err(NoHeap::Ordinary),
            FORMAT => {}
            _ => return Err(NoHeap::OtherVersion),
        }
        match u32::try_from(counters.process.load(Relaxed)) {
            Ok(0) | Err(_) => Err(NoHeap::Ordinary),
            Ok(_) if counters.heap.size.load(Relaxed) == 0 => Err(NoHeap::Ordinary),
            Ok(program) => Ok(Self { page, program: Pid(program) }),
        }
    }

    /// How it stands.
    pub(crate) fn look(&self) -> Result<HeapState, Error> {
        Ok(HeapState::of(&Counters::of(&*self.page.read()?).heap))
    }

    /// Has the library keep to this much memory, soon: it looks every second.
    pub(crate) fn want(&self, memory: Bytes) {
        Counters::of(self.page.page().words()).heap.wanted.store(memory.0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_what_was_counted_since() {
        let before = HeapState { soft_faults: 9, huge_faults: 5, ..HeapState::default() };
        let now = HeapState {
            memory: Bytes::from_mib(64),
            soft_faults: 10,
            huge_faults: 7,
            base_faults: 1,
            ..before.clone()
        };
        let since = now.since(&before);
        assert_eq!((since.faults(), since.memory), (3, Bytes::from_mib(64)));
        assert_eq!(since.found(), Some(Share::percent(25)));
        assert_eq!(since.used_of_ahead(), None, "nothing was read ahead");
        let ahead = HeapState { ahead_used: 3, huge_faults: 1, ..HeapState::default() };
        assert_eq!(ahead.ahead_of_misses(), Some(Share::percent(75)));
        assert_eq!(HeapState::default().ahead_of_misses(), None, "nothing was missed");
    }
}
