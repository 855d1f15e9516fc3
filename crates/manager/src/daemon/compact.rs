//! Has the kernel compact free memory that lies in pieces, in turns that a CPU budget pays for.
//!
//! Huge pages are given and promoted as long as there are free ones, and the kernel's own compaction in the background begins only
//! when most of the free memory is in pieces (`vm.compaction_proactiveness`, 20 by default: above 90 %). A turn holds that setting
//! at [`EAGER`] and is ended as soon as there are enough huge pages, the kernel's threads rest, or they have used what a turn may.
//! Then the setting is put back, and the next turn waits until this one is paid for.
//!
//! What the threads use is measured, also after a turn: they may go on to the end of what they have begun. So where their CPU time cannot be seen (a PID namespace of our own) nothing is changed. Nor
//! is it where the administrator has switched that compaction off (0), or has it more eager already.

use super::{Daemon, hold};
use crate::budget::CpuBudget;
use crate::history::What;
use crate::ledger::entry;
use crate::{clock, free_memory};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use superpage_kernel::compaction::{self, Threads};
use superpage_kernel::settings::{Change, Repair, Settings};
use superpage_kernel::{Result, vmstat};
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
/// CPU time that a turn may use on a small machine, and for each base page of a larger one. The kernel begins each turn at the
/// start of memory, so one that does not get through all of it would never see the rest. Chosen, not measured.
const LONGEST: Nanos = Nanos(5_000_000_000); // tidy: allow(5 s)
const PER_PAGE: Nanos = Nanos(100);
/// A turn that took longer than this for each huge page gained nothing: as for a slow collapse ([`crate::promote::gate::SLOW`]).
const DEAR: Nanos = Nanos(30_000_000);
/// The pause after a turn that gained nothing; each further one in a row makes it twice as long, up to [`DOUBLINGS`] times.
/// Chosen, not measured: what cannot be moved stays mostly as long as programs run.
const FUTILE: Nanos = Nanos(60_000_000_000); // tidy: allow(60 s)
const DOUBLINGS: u32 = 6;

/// How often a turn is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// The threads rest when they have used no CPU time for so long: they wake within half a second.
const REST: Nanos = Nanos(700_000_000);

/// The readings by which turns are decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    now: Time,
    free: FreeMemory,
    /// Huge pages that programs have been given since the machine's start, by faults and by collapses.
    given: HugePages,
}

impl Seen {
    fn read(proc_root: &Path) -> Result<Self> {
        let thp = vmstat::read(proc_root)?.thp();
        let given = [thp.thp_fault_alloc, thp.thp_collapse_alloc].into_iter().flatten();
        let given = HugePages(given.sum());
        Ok(Self { now: clock::now(), free: free_memory::read(proc_root)?, given })
    }

    /// Huge pages that are free, or were and have been given.
    fn huge_pages(&self) -> HugePages {
        self.free.huge_pages() + self.given
    }
}

/// What a turn has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gained {
    /// Huge pages that are free now, or were given meanwhile, and were not free before.
    huge_pages: HugePages,
    /// The CPU time of the kernel's threads.
    cpu: Nanos,
}

/// A turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    huge_before: HugePages,
    cpu_before: Nanos,
    cpu: Nanos,
    looked: Time,
    /// The last time at which CPU time had been used.
    worked: Time,
}

/// A turn that is over, and not known to be paid for.
#[derive(Clone, Copy, Debug)]
struct Unpaid {
    cpu_before: Nanos,
    ended: Time,
}

/// When turns begin and end. It knows no setting and no file.
#[derive(Clone, Debug, Default)]
struct Turns {
    turn: Option<Turn>,
    not_before: Time,
    unpaid: Option<Unpaid>,
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

    /// Whether the last turn is paid for, where the threads have used so much CPU time until now: some of them may have gone on
    /// after it. If not, none is due before it is.
    fn is_paid(&mut self, seen: &Seen, cpu: Nanos, budget: CpuBudget) -> bool {
        if let Some(unpaid) = self.unpaid {
            let cost = cpu.saturating_sub(unpaid.cpu_before).as_secs_f64();
            self.not_before = unpaid.ended + Nanos::from_secs_f64(cost / budget.share().get());
        }
        seen.now >= self.not_before
    }

    /// A turn has begun, and the threads have used so much CPU time until now.
    fn begin(&mut self, seen: &Seen, cpu: Nanos) {
        let (huge_before, looked) = (seen.huge_pages(), seen.now);
        self.turn = Some(Turn { huge_before, cpu_before: cpu, cpu, looked, worked: looked });
        self.unpaid = None;
    }

    /// Whether the turn under way is to be looked at: not at each of the wakes of a busy daemon.
    fn is_to_be_looked_at(&self, now: Time) -> bool {
        let due = |turn: Turn| now.since(turn.looked).as_secs_f64() >= LOOK.as_secs_f64();
        self.turn.is_some_and(due)
    }

    /// Looks at a turn under way, where the threads have used so much CPU time; returns what it has gained if it is over.
    fn look(&mut self, seen: &Seen, cpu: Nanos, budget: CpuBudget) -> Option<Gained> {
        let turn = self.turn.as_mut()?;
        turn.looked = seen.now;
        if cpu != turn.cpu {
            (turn.cpu, turn.worked) = (cpu, seen.now);
        }
        let is_over = seen.free.fmfi(PageSize::Huge) <= ENOUGH
            || seen.now.since(turn.worked) >= REST
            || cpu.saturating_sub(turn.cpu_before) >= longest(&seen.free);
        if !is_over {
            return None;
        }
        let huge_pages = seen.huge_pages().saturating_sub(turn.huge_before);
        self.end(huge_pages, seen.now, budget)
    }

    /// Ends the turn under way, if there is one, which gained so many huge pages.
    fn end(&mut self, huge_pages: HugePages, now: Time, budget: CpuBudget) -> Option<Gained> {
        let turn = self.turn.take()?;
        let cpu = turn.cpu.saturating_sub(turn.cpu_before);
        self.unpaid = Some(Unpaid { cpu_before: turn.cpu_before, ended: now });
        let paid = Nanos::from_secs_f64(cpu.as_secs_f64() / budget.share().get());
        self.not_before = now + paid;
        if cpu.0 >= DEAR.0.saturating_mul(huge_pages.0) {
            self.gained_nothing(now);
        } else {
            self.futile = 0;
        }
        Some(Gained { huge_pages, cpu })
    }

    /// No turn is due for a while, and each time for longer.
    fn gained_nothing(&mut self, now: Time) {
        self.not_before = self.not_before.max(now + FUTILE * (1 << self.futile));
        self.futile = (self.futile + 1).min(DOUBLINGS);
    }
}

/// The CPU time that a turn may use on a machine with so much memory.
fn longest(free: &FreeMemory) -> Nanos {
    LONGEST.max(PER_PAGE * free.total.0)
}

/// The free base pages in chunks smaller than a huge page.
fn in_pieces(free: &FreeMemory) -> BasePages {
    free.free().saturating_sub(free.huge_pages().base_pages())
}

/// The outcome of a look.
#[derive(Debug)]
pub(super) enum Done {
    /// A turn began.
    Began(Change),
    /// A turn is over.
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

    /// Begins a turn, or ends one. Where something fails the turn under way is over, and its setting put back.
    ///
    /// # Errors
    /// What reading and writing the setting fails with.
    fn look(&mut self, settings: &mut Settings, budget: CpuBudget) -> Result<Option<Done>> {
        if self.is_running() && !self.turns.is_to_be_looked_at(clock::now()) {
            return Ok(None);
        }
        let done = self.begin_or_look(settings, budget);
        if done.is_err() {
            self.threads = None;
            let now = clock::now();
            if self.turns.end(HugePages::ZERO, now, budget).is_none() {
                self.turns.gained_nothing(now);
            }
            settings.put_back(&path(settings))?;
        }
        done
    }

    fn begin_or_look(
        &mut self,
        settings: &mut Settings,
        budget: CpuBudget,
    ) -> Result<Option<Done>> {
        let seen = Seen::read(&settings.root().join("proc"))?;
        match &self.threads {
            Some(threads) if self.turns.turn.is_some() => {
                let gained = self.turns.look(&seen, threads.cpu_time()?, budget);
                gained.map(|gained| ended(settings, gained)).transpose()
            }
            _ if self.turns.is_due(&seen) => self.begin(settings, budget, &seen),
            _ => Ok(None),
        }
    }

    /// Ends the turn under way, if there is one.
    ///
    /// # Errors
    /// As [`Settings::put_back`].
    fn end(&mut self, settings: &mut Settings, budget: CpuBudget) -> Result<Option<Done>> {
        let gained = self.turns.end(HugePages::ZERO, clock::now(), budget);
        gained.map(|gained| ended(settings, gained)).transpose()
    }

    fn begin(
        &mut self,
        settings: &mut Settings,
        budget: CpuBudget,
        seen: &Seen,
    ) -> Result<Option<Done>> {
        let path = path(settings);
        // A value that could not be put back after an earlier turn is ours, not the administrator's.
        settings.put_back(&path)?;
        let now = compaction::proactiveness(&settings.root().join("proc"))?;
        if now == Share::NONE || now >= EAGER {
            self.turns.gained_nothing(seen.now);
            return Ok(None);
        }
        let threads = match self.threads.take() {
            Some(threads) => threads,
            None => Threads::find()?,
        };
        let cpu = threads.cpu_time()?;
        if threads.is_empty() {
            debug!("free memory is left in pieces: the kernel's compaction threads cannot be seen");
            self.turns.gained_nothing(seen.now);
        } else if self.turns.is_paid(seen, cpu, budget) {
            let change = settings.change(&path, &compaction::to_text(EAGER))?;
            self.turns.begin(seen, cpu);
            self.threads = Some(threads);
            return Ok(Some(Done::Began(change)));
        }
        self.threads = Some(threads);
        Ok(None)
    }
}

/// The file of the setting.
fn path(settings: &Settings) -> PathBuf {
    compaction::path(&settings.root().join("proc"))
}

fn ended(settings: &mut Settings, gained: Gained) -> Result<Done> {
    settings.put_back(&path(settings)).map(|repair| Done::Ended(gained, repair))
}

impl Daemon {
    /// Has free memory compacted where huge pages are wanted and the configuration allows it.
    pub(super) fn compact(&mut self) {
        let is_running = self.compaction.is_running();
        let is_wanted = self.promotes() && hold::wants_huge(&self.settings, &self.config);
        if let Some(budget) = self.config.compaction.filter(|_| is_running || is_wanted) {
            let done = self.compaction.look(&mut self.settings, budget);
            self.tell_of_compaction(done);
        }
    }

    /// Ends a turn under way.
    pub(super) fn end_compaction(&mut self) {
        if let Some(budget) = self.config.compaction {
            let done = self.compaction.end(&mut self.settings, budget);
            self.tell_of_compaction(done);
        }
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

    /// Memory of 64 GiB of which so much is free at this tenth of a second, with so much of that in huge pages.
    fn seen(tenths: u64, free: u64, huge: u64) -> Seen {
        let [total, free, huge] = [64, free, huge].map(Bytes::from_gib);
        let mut memory = FreeMemory { total: total.to_base_pages(), ..FreeMemory::NONE };
        memory.chunks[0] = free.saturating_sub(huge).to_base_pages().0;
        memory.chunks[usize::from(PageSize::Huge.order())] = huge.to_huge_pages().0;
        let now = Time::ZERO + Nanos(tenths * SECOND / 10);
        Seen { now, free: memory, given: HugePages(7) }
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
            assert_eq!(turns.is_due(&seen(0, free, huge)), expected, "{huge} of {free} GiB");
        }
    }

    /// A turn that begins with 2 of 16 GiB in huge pages and is looked at when so much is, after this CPU time; what became of
    /// it.
    fn turn(huge: u64, cpu: u64) -> (Turns, Option<Gained>) {
        let mut turns = Turns::default();
        turns.begin(&seen(1000, 16, 2), Nanos(SECOND));
        let gained = turns.look(&seen(1000, 16, huge), Nanos(SECOND + cpu), budget());
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
    fn a_large_machine_is_gone_through_whole() {
        let memory =
            |gib| FreeMemory { total: Bytes::from_gib(gib).to_base_pages(), ..FreeMemory::NONE };
        assert_eq!(longest(&memory(24)), LONGEST);
        assert_eq!(longest(&memory(4096)).0 / SECOND, 107);
    }

    #[test]
    fn a_turn_ends_when_the_threads_rest_however_often_it_is_looked_at() {
        let mut turns = Turns::default();
        turns.begin(&seen(0, 16, 2), Nanos::ZERO);
        assert!(!turns.is_to_be_looked_at(seen(0, 16, 2).now));
        assert!(turns.is_to_be_looked_at(seen(1, 16, 2).now));
        for tenths in [1, 1, 1, 1, 1, 1, 1, 1, 1, 6] {
            assert!(turns.look(&seen(tenths, 16, 2), Nanos::ZERO, budget()).is_none());
        }
        assert!(turns.look(&seen(6, 16, 2), Nanos(SECOND), budget()).is_none());
        assert!(turns.look(&seen(12, 16, 2), Nanos(SECOND), budget()).is_none());
        assert!(turns.look(&seen(13, 16, 2), Nanos(SECOND), budget()).is_some());
    }

    #[test]
    fn what_is_given_at_once_was_gained_too() {
        let mut turns = Turns::default();
        turns.begin(&seen(0, 16, 2), Nanos::ZERO);
        let given = Seen { given: HugePages(7 + 900), ..seen(1, 16, 2) };
        let gained = turns.look(&given, LONGEST, budget()).expect("it has used what it may");
        assert_eq!(gained.huge_pages, HugePages(900));
        assert_eq!(turns.futile, 0);
    }

    #[test]
    fn the_next_turn_waits_until_this_one_is_paid_for() {
        let (mut turns, _) = turn(13, SECOND);
        let later = |second: u64| seen(second * 10, 16, 2);
        assert!(!turns.is_due(&later(119)), "a second at 5 % is paid for in twenty");
        assert!(turns.is_due(&later(120)));
        assert!(turns.clone().is_paid(&later(120), Nanos(2 * SECOND), budget()));
        // The threads went on for a second.
        assert!(!turns.is_paid(&later(120), Nanos(3 * SECOND), budget()));
        assert!(!turns.is_due(&later(139)) && turns.is_due(&later(140)));
    }

    #[test]
    fn what_gains_nothing_is_tried_less_and_less_often() {
        let mut turns = Turns::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            turns.begin(&seen(0, 16, 2), Nanos::ZERO);
            turns.look(&seen(0, 16, 2), Nanos(LONGEST.0), budget());
            pauses.push(turns.not_before.since(Time::ZERO).0 / FUTILE.0);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        turns.begin(&seen(0, 16, 2), Nanos::ZERO);
        turns.look(&seen(0, 16, 14), Nanos(SECOND), budget());
        assert_eq!(turns.futile, 0);
        assert!(turns.is_due(&Seen { now: turns.not_before, ..seen(0, 16, 2) }));
    }
}
