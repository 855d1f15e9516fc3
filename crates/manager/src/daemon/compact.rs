//! Has the kernel compact free memory that lies in pieces, in turns that a CPU budget pays for.
//!
//! Huge pages are given and promoted as long as there are free ones, and the kernel's own compaction in the background begins only
//! when most of the free memory is in pieces (`vm.compaction_proactiveness`, 20 by default: above 90 %). A turn holds that setting
//! at [`EAGER`] and is ended as soon as there are enough huge pages, the kernel's threads rest, or they have used what a turn may.
//! Then the setting is put back, and the next turn waits until this one is paid for.
//!
//! What the threads use is measured, so where their CPU time cannot be seen (a PID namespace of our own) nothing is changed. Nor
//! is it where the administrator has switched that compaction off (0), or has it more eager already.

use super::{Daemon, hold};
use crate::budget::CpuBudget;
use crate::history::What;
use crate::ledger::entry;
use crate::{clock, free_memory};
use std::fmt;
use std::path::Path;
use std::time::Duration;
use superpage_kernel::Result;
use superpage_kernel::compaction::{self, Threads};
use superpage_kernel::settings::{Change, Repair, Settings};
use superpage_policy::free_memory::FreeMemory;
use superpage_units::{BasePages, HugePages, Nanos, PageSize, Share, Time};
use tracing::{debug, info, warn};

/// The setting during a turn: the kernel begins where more than 30 % of the free memory is in pieces, and stops at 20 %.
const EAGER: Share = Share::percent(80);
/// A turn begins where more of the free memory than this is in pieces. Chosen, not measured: with as much in huge pages as in
/// pieces nobody is refused one for long.
const TOO_MUCH: Share = Share::percent(50);
/// The share of the free memory in pieces at which a turn ends: where the kernel stops.
const ENOUGH: Share = Share::percent(20);
/// The share of all memory that has to be in pieces for a turn to be worth it. Chosen, not measured: free memory that is less
/// comes and goes with the page cache.
const WORTH: f64 = 1.0 / 16.0; // tidy: allow(a sixteenth)
/// CPU time that a turn may use. The kernel begins each at the start of memory, so a short one would gain nothing: it looks
/// through 14 million base pages in a second, and moved enough for 2,300 to 3,100 huge pages in 1.0 to 1.7 s on 24 GiB.
const LONGEST: Nanos = Nanos(5_000_000_000); // tidy: allow(5 s)
/// A turn that took longer than this for each huge page gained nothing: as for a slow collapse ([`crate::promote::gate::SLOW`]).
const DEAR: Nanos = Nanos(30_000_000);
/// The pause after a turn that gained nothing; each further one in a row makes it twice as long, up to [`DOUBLINGS`] times.
/// Chosen, not measured: what cannot be moved stays mostly as long as programs run.
const FUTILE: Nanos = Nanos(60_000_000_000); // tidy: allow(60 s)
const DOUBLINGS: u32 = 6;

/// How often a turn is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// The threads rest when they have used no CPU time for so many looks: they wake within half a second.
const RESTS: u32 = 7;

/// What a turn is decided by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) now: Time,
    pub(super) free: FreeMemory,
}

/// What a turn has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gained {
    /// Huge pages that are free now and were not before.
    pub(super) huge_pages: HugePages,
    /// The CPU time of the kernel's threads.
    pub(super) cpu: Nanos,
}

/// A turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    huge_before: HugePages,
    cpu_before: Nanos,
    cpu: Nanos,
    /// How many looks in a row saw no CPU time used.
    rests: u32,
}

/// When turns begin and end. It knows no setting and no file.
#[derive(Clone, Debug, Default)]
struct Turns {
    turn: Option<Turn>,
    not_before: Time,
    futile: u32,
}

impl Turns {
    /// Whether a turn would be worth it.
    fn is_due(&self, seen: &Seen) -> bool {
        let pieces = in_pieces(&seen.free);
        self.turn.is_none()
            && seen.now >= self.not_before
            && seen.free.fmfi(PageSize::Huge) > TOO_MUCH
            && pieces.0 as f64 >= WORTH * seen.free.total.0 as f64
    }

    /// A turn has begun, and the threads have used so much CPU time until now.
    fn begin(&mut self, seen: &Seen, cpu: Nanos) {
        let huge_before = seen.free.huge_pages();
        self.turn = Some(Turn { huge_before, cpu_before: cpu, cpu, rests: 0 });
    }

    /// Looks at a turn under way, where the threads have used so much CPU time; returns what it has gained if it is over.
    fn look(&mut self, seen: &Seen, cpu: Nanos, budget: CpuBudget) -> Option<Gained> {
        let turn = self.turn.as_mut()?;
        turn.rests = if cpu == turn.cpu { turn.rests + 1 } else { 0 };
        turn.cpu = cpu;
        let is_over = seen.free.fmfi(PageSize::Huge) <= ENOUGH
            || turn.rests >= RESTS
            || Nanos(cpu.0 - turn.cpu_before.0) >= LONGEST;
        is_over.then(|| self.end(seen, budget)).flatten()
    }

    /// Ends the turn under way, if there is one.
    fn end(&mut self, seen: &Seen, budget: CpuBudget) -> Option<Gained> {
        let turn = self.turn.take()?;
        let cpu = Nanos(turn.cpu.0.saturating_sub(turn.cpu_before.0));
        let huge_pages = seen.free.huge_pages().saturating_sub(turn.huge_before);
        let is_dear = cpu.0 >= DEAR.0.saturating_mul(huge_pages.0);
        self.futile = if is_dear { (self.futile + 1).min(DOUBLINGS + 1) } else { 0 };
        let paid = Nanos::from_secs_f64(cpu.as_secs_f64() / budget.share().get());
        let futile = match self.futile {
            0 => Nanos::ZERO,
            times => FUTILE * (1 << (times - 1)),
        };
        self.not_before = seen.now + paid.max(futile);
        Some(Gained { huge_pages, cpu })
    }
}

/// The free base pages in chunks smaller than a huge page.
fn in_pieces(free: &FreeMemory) -> BasePages {
    free.free().saturating_sub(free.huge_pages().base_pages())
}

/// What became of a look.
#[derive(Debug)]
pub(super) enum Done {
    /// A turn began.
    Began(Change),
    /// It is over.
    Ended(Gained, Option<Repair>),
}

/// Turns of compaction, and the setting they hold.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    turns: Turns,
    threads: Option<Threads>,
}

impl Compaction {
    /// Whether a turn is under way.
    pub(super) fn is_running(&self) -> bool {
        self.turns.turn.is_some()
    }

    /// Begins a turn, or ends one.
    ///
    /// # Errors
    /// What reading and writing the setting fails with.
    pub(super) fn look(
        &mut self,
        settings: &mut Settings,
        budget: CpuBudget,
        seen: &Seen,
    ) -> Result<Option<Done>> {
        match &self.threads {
            Some(threads) if self.is_running() => {
                let gained = self.turns.look(seen, threads.cpu_time()?, budget);
                gained.map(|gained| ended(settings, gained)).transpose()
            }
            _ if self.turns.is_due(seen) => self.begin(settings, seen),
            _ => Ok(None),
        }
    }

    /// Ends the turn under way, if there is one.
    ///
    /// # Errors
    /// As [`Settings::put_back`].
    pub(super) fn end(
        &mut self,
        settings: &mut Settings,
        budget: CpuBudget,
        seen: &Seen,
    ) -> Result<Option<Done>> {
        self.turns.end(seen, budget).map(|gained| ended(settings, gained)).transpose()
    }

    fn begin(&mut self, settings: &mut Settings, seen: &Seen) -> Result<Option<Done>> {
        // What is in the way now will be a moment later.
        self.turns.not_before = seen.now + FUTILE;
        let root = settings.root().join("proc");
        let now = compaction::proactiveness(&root)?;
        if now == Share::NONE || now >= EAGER {
            return Ok(None);
        }
        let threads = Threads::find()?;
        if threads.is_empty() {
            debug!("free memory is left in pieces: the kernel's compaction threads cannot be seen");
            return Ok(None);
        }
        self.turns.begin(seen, threads.cpu_time()?);
        self.threads = Some(threads);
        let change = settings.change(&compaction::path(&root), &compaction::to_text(EAGER));
        if change.is_err() {
            self.turns.turn = None;
        }
        change.map(|change| Some(Done::Began(change)))
    }
}

fn ended(settings: &mut Settings, gained: Gained) -> Result<Done> {
    let path = compaction::path(&settings.root().join("proc"));
    settings.put_back(&path).map(|repair| Done::Ended(gained, repair))
}

impl Daemon {
    /// Has free memory compacted where huge pages are wanted and the configuration allows it.
    pub(super) fn compact(&mut self) {
        let is_running = self.compaction.is_running();
        let is_wanted = self.promotes() && hold::wants_huge(&self.settings, &self.config);
        if let Some(budget) = self.config.compaction.filter(|_| is_running || is_wanted) {
            let done = self
                .seen()
                .and_then(|seen| self.compaction.look(&mut self.settings, budget, &seen));
            self.tell_of_compaction(done);
        }
    }

    /// Ends a turn under way.
    pub(super) fn end_compaction(&mut self) {
        if let Some(budget) = self.config.compaction {
            let done =
                self.seen().and_then(|seen| self.compaction.end(&mut self.settings, budget, &seen));
            self.tell_of_compaction(done);
        }
    }

    fn seen(&self) -> Result<Seen> {
        Ok(Seen { now: clock::now(), free: free_memory::read(Path::new("/proc"))? })
    }

    fn tell_of_compaction(&self, done: Result<Option<Done>>) {
        match done {
            Ok(Some(Done::Began(change))) => info!("{change}, until free memory is compacted"),
            Ok(Some(Done::Ended(gained, repair))) => {
                let words = gained.to_string();
                info!("{words}{}", repair.map(|repair| format!("; {repair}")).unwrap_or_default());
                self.reporter.ledger.record(entry(What::Setting, "compaction", &words));
            }
            Ok(None) => {}
            Err(error) => warn!("free memory is left in pieces: {error}"),
        }
    }
}

impl fmt::Display for Gained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { huge_pages, cpu } = self;
        write!(
            f,
            "the kernel compacted free memory: {huge_pages} huge pages more are free, for {:.2} s of CPU time",
            cpu.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_units::Bytes;

    const SECOND: u64 = 1_000_000_000; // tidy: allow(1 s)

    fn budget() -> CpuBudget {
        CpuBudget::new(Share::percent(5)).expect("a share")
    }

    /// At this second, so much free of 64 GiB, with so much of it in huge pages.
    fn seen(second: u64, free: Bytes, huge: Bytes) -> Seen {
        let mut memory =
            FreeMemory { total: Bytes::from_gib(64).to_base_pages(), ..FreeMemory::NONE };
        memory.chunks[0] = (free.saturating_sub(huge)).to_base_pages().0;
        memory.chunks[usize::from(PageSize::Huge.order())] = huge.to_huge_pages().0;
        Seen { now: Time::ZERO + Nanos(second * SECOND), free: memory }
    }

    fn gib(free: u64, huge: u64) -> Seen {
        seen(100, Bytes::from_gib(free), Bytes::from_gib(huge))
    }

    #[test]
    fn a_turn_is_due_where_much_is_free_and_most_of_it_in_pieces() {
        let turns = Turns::default();
        for (free, huge, expected) in [
            (16, 2, true),
            (16, 7, true),
            (16, 8, false),
            (16, 16, false),
            (4, 0, true),
            (3, 0, false),
        ] {
            assert_eq!(turns.is_due(&gib(free, huge)), expected, "{huge} of {free} GiB");
        }
    }

    /// A turn that begins with 2 of 16 GiB in huge pages and is looked at when so much is, after this CPU time; what became of
    /// it.
    fn turn(huge: u64, cpu: u64) -> (Turns, Option<Gained>) {
        let mut turns = Turns::default();
        turns.begin(&gib(16, 2), Nanos(SECOND));
        let gained = turns.look(&gib(16, huge), Nanos(SECOND + cpu), budget());
        (turns, gained)
    }

    #[test]
    fn a_turn_goes_on_until_there_is_enough_or_it_has_used_what_it_may() {
        assert_eq!(turn(12, SECOND).1, None);
        let (turns, gained) = turn(13, SECOND);
        let huge_pages = Bytes::from_gib(11).to_huge_pages();
        assert_eq!(gained, Some(Gained { huge_pages, cpu: Nanos(SECOND) }));
        assert!(turns.turn.is_none());
        assert!(turn(3, LONGEST.0 - 1).1.is_none());
        assert!(turn(3, LONGEST.0).1.is_some());
    }

    #[test]
    fn a_turn_ends_when_the_threads_rest() {
        let mut turns = Turns::default();
        turns.begin(&gib(16, 2), Nanos::ZERO);
        let looks: Vec<bool> =
            (0..RESTS).map(|_| turns.look(&gib(16, 2), Nanos::ZERO, budget()).is_some()).collect();
        assert_eq!(looks.iter().position(|is_over| *is_over), Some(looks.len() - 1));
    }

    #[test]
    fn the_next_turn_waits_until_this_one_is_paid_for() {
        let (turns, _) = turn(13, SECOND);
        let later = |second| Seen { now: Time::ZERO + Nanos(second * SECOND), ..gib(16, 2) };
        assert!(!turns.is_due(&later(119)), "a second at 5 % is paid for in twenty");
        assert!(turns.is_due(&later(120)));
    }

    #[test]
    fn what_gains_nothing_is_tried_less_and_less_often() {
        let mut turns = Turns::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            turns.begin(&gib(16, 2), Nanos::ZERO);
            turns.look(&gib(16, 2), LONGEST, budget());
            pauses.push(turns.not_before.since(gib(16, 2).now).0 / FUTILE.0);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        turns.begin(&gib(16, 2), Nanos::ZERO);
        turns.look(&gib(16, 14), Nanos(SECOND), budget());
        assert!(turns.is_due(&Seen { now: turns.not_before, ..gib(16, 2) }));
        assert_eq!(turns.futile, 0);
    }
}
